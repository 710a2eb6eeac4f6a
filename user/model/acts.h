/* SPDX-License-Identifier: BSD-2-Clause */
/* Work of devices as it was measured there (PT_REC_ACT). */
#ifndef PT_MODEL_ACTS_H
#define PT_MODEL_ACTS_H

#include "model/timeline.h"

/* Take a record. 0, -ENOMEM, or -EINVAL: its times or its kind make no sense. */
int pt_feed_act(struct pt_model *m, const struct pt_rec_act *r);
/* In order of their begin; and which call each is of (pt_act.call). */
void pt_settle_acts(struct pt_proc *p);
void pt_join_acts(struct pt_proc *p);
/* Drop what ended before. */
void pt_trim_acts(struct pt_proc *p, uint64_t before);

/* The thread that launched it; 0 unknown. */
uint32_t pt_act_tid(const struct pt_proc *p, const struct pt_act *a);
/* Does this name belong to a kernel of NCCL or RCCL? NULL: no. */
bool pt_name_is_collective(const char *name);

/* Sums of the activities of one name, or of one kind of copy. */
struct pt_act_total {
	uint64_t name;	/* KERNEL: for pt_act_name(); 0: it has none */
	uint8_t what;	/* PT_ACT_KERNEL, COPY, MEMSET */
	uint8_t detail; /* COPY: cudaMemcpyKind */
	uint64_t calls, total_ns, min_ns, max_ns, bytes;
};
typedef PT_VEC(struct pt_act_total) pt_act_totals;
/* Those that begin in [t0,t1), appended to `out`, most time first; nothing when
 * there are no records. The caller frees `out`. 0 or -ENOMEM. */
int pt_acts_sum(const struct pt_proc *p, uint64_t t0, uint64_t t1,
		pt_act_totals *out);

#endif
