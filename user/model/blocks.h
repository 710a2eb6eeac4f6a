/* SPDX-License-Identifier: BSD-2-Clause */
/* Block requests of the target, and what device numbers stand for. */
#ifndef PT_MODEL_BLOCKS_H
#define PT_MODEL_BLOCKS_H

#include "model/timeline.h"

/* Drop counters from before this moment, but for the last ones. */
void pt_trim_disks(struct pt_model *m, uint64_t before);

/* The last that was told of this device number; NULL: nothing. */
const struct pt_rec_disk *pt_model_disk(const struct pt_model *m, uint32_t dev);

#endif
