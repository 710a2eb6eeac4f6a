/* SPDX-License-Identifier: BSD-2-Clause */
/* What the driver said of the devices (NVML), sample by sample. */
#ifndef PT_MODEL_DEVICES_H
#define PT_MODEL_DEVICES_H

#include "model/timeline.h"

/* Take a sample. 0, -EINVAL or -ENOMEM. */
int pt_feed_device(struct pt_model *m, const struct pt_rec_device *r);

/* Is this sample of the device that traced processes call `ordinal`? */
bool pt_device_is(const struct pt_rec_device *d, uint32_t ordinal);

/*
 * Did a process that is not traced have a context on the device that the traced
 * ones call `ordinal`, in any sample of [t0,t1)? False where nothing tells.
 */
bool pt_model_device_shared(const struct pt_model *m, uint32_t ordinal,
			    uint64_t t0, uint64_t t1);

/*
 * Mean of the driver's utilisation of that device over the samples in [t0,t1),
 * 0..1: the share of the last sample period (1/6 to 1 s) in which a kernel ran.
 * Copies are not in it, so the device is busy at least so much of that time; of
 * the time between two samples it says nothing. Only where one process alone, a
 * traced one, had a context in each of them. How many samples; 0: *mean is NAN.
 */
size_t pt_model_device_util(const struct pt_model *m, uint32_t ordinal,
			    uint64_t t0, uint64_t t1, double *mean);

#endif
