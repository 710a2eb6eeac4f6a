// SPDX-License-Identifier: BSD-2-Clause
/*
 * A part of a file that is too long to be held: what lies well before it is
 * dropped while the file is read, and what lies well behind it is not taken.
 */
#ifndef PT_REACH_H
#define PT_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/analysis.h"
#include "model/model.h"

struct pt_reach {
	bool on;
	uint64_t from, until; /* ns: offsets from the capture's begin ... */
	bool absolute;	      /* ... or CLOCK_MONOTONIC; until 0: to the end */
	uint64_t margin;      /* ns on either side that is held with it */
	bool ended;	      /* something behind it was not taken */
};

/* The part that `o` asks for. */
void pt_reach_set(struct pt_reach *h, const struct pt_analysis_opts *o);
/* Whether the model shall have the record. One that marks the end of the capture
 * is changed, if what lies before it was not taken. `rec`: `len` bytes, whole. */
bool pt_reach_wants(struct pt_reach *h, const struct pt_model *m, void *rec,
		    size_t len);
/* Between records: drop what lies before, when more than `stride` bytes are held.
 * 0; -E2BIG: what is left takes more than `most`; -ENOMEM. */
int pt_reach_drop(const struct pt_reach *h, struct pt_model *m, uint64_t stride,
		  uint64_t most);
/* How long a part can be, about, when that was too much, ns. */
uint64_t pt_reach_fits(const struct pt_reach *h, const struct pt_model *m);

#endif
