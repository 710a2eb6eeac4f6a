/* SPDX-License-Identifier: BSD-2-Clause */
/* What the driver said of the devices (NVML), sample by sample. */
#ifndef PT_MODEL_DEVICES_H
#define PT_MODEL_DEVICES_H

#include "model/timeline.h"

/* Is this sample of the device that traced processes call `ordinal`? */
bool pt_device_is(const struct pt_rec_device *d, uint32_t ordinal);

#endif
