// SPDX-License-Identifier: BSD-2-Clause
/*
 * What is held of a file of which less than all is asked for, and which is too long to
 * be held: what lies well before that is dropped while the file is read, what lies well
 * behind is not taken. The analysis is the same, pt_analyze().
 */
#ifndef PT_REACH_H
#define PT_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/analysis.h"
#include "model/model.h"

struct pt_reach {
	bool on, placed;
	/* What is held, ns: from the capture's begin, once placed CLOCK_MONOTONIC. */
	uint64_t from, until;
	uint64_t margin; /* ... of that, on either side of the part */
};

/* The part that `o` asks for. */
void pt_reach_set(struct pt_reach *h, const struct pt_analysis_opts *o);
/* Whether the model shall have the record. */
bool pt_reach_wants(struct pt_reach *h, const struct pt_model *m,
		    const struct pt_hdr *rec);
/* Between records: drop what lies before, when more than `stride` bytes are held.
 * 0; -E2BIG: what is left takes more than `most`; -ENOMEM. */
int pt_reach_drop(const struct pt_reach *h, struct pt_model *m, uint64_t stride,
		  uint64_t most);
/* How long a part can be, about, when that was too much, ns. */
uint64_t pt_reach_fits(const struct pt_reach *h, const struct pt_model *m);

#endif
