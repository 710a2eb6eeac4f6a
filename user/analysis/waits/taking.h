/* SPDX-License-Identifier: BSD-2-Clause */
/* In which of its functions the loop takes its batches. */
#ifndef PT_WAITS_TAKING_H
#define PT_WAITS_TAKING_H

#include "analysis/waits/loop.h"

#define PT_TAKING_MAX 16 /* functions that are looked at */

struct pt_taking {
	struct pt_takes {
		const struct pt_code_line *function; /* the model's */
		size_t looks; /* that found it taking something */
	} v[PT_TAKING_MAX];
	size_t n;
	uint64_t most; /* looks */
};

/* Of the thread whose loop was learned. */
void pt_find_taking(const struct pt_loop *loop, const struct pt_thread *th, struct pt_taking *out);
/* Does that stack lie in one of them? */
bool pt_is_taking(const struct pt_model *m, const struct pt_taking *t, uint32_t stack);

#endif
