/* SPDX-License-Identifier: BSD-2-Clause */
/* What the driver said of the devices (NVML), sample by sample. */
#ifndef PT_MODEL_DEVICES_H
#define PT_MODEL_DEVICES_H

#include "model/timeline.h"

/* Take a sample. 0, -EINVAL or -ENOMEM. */
int pt_feed_device(struct pt_model *m, const struct pt_rec_device *r);

/* Is this sample of the device that traced processes call `ordinal`? */
bool pt_device_is(const struct pt_rec_device *d, uint32_t ordinal);

#endif
