/* SPDX-License-Identifier: BSD-2-Clause */
/* Work of devices as it was measured there (PT_REC_ACT). */
#ifndef PT_MODEL_ACTS_H
#define PT_MODEL_ACTS_H

#include "model/timeline.h"

/* In order of their begin; and which call each is of (pt_act.call). */
void pt_settle_acts(struct pt_proc *p);
void pt_join_acts(struct pt_proc *p);
/* Drop what ended before. */
void pt_trim_acts(struct pt_model *m, struct pt_proc *p, uint64_t before);

/* The thread that launched it; 0 unknown. */
uint32_t pt_act_tid(const struct pt_proc *p, const struct pt_act *a);
/* Does this name belong to a kernel of NCCL or RCCL? NULL: no. */
bool pt_name_is_collective(const char *name);

#endif
