/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the hooks take of the target's time: each time that one met a thread of it
 * (counted in the kernel, bpf/emit.bpf.h), times what that costs. The trap of a probe was
 * timed by the self-test; the programs are timed in the job, one of 32 times; what the
 * kernel takes to come to a program of a tracepoint is from a table (docs/performance.md).
 */
#ifndef PT_COST_H
#define PT_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"
#include "pystack.h"

struct pt_capture;

struct pt_cost {
	double budget; /* share of the target's time; 0: no limit */
	bool unknown;  /* a door is open that cannot count */
	uint64_t hits[PT_HIT_NR], run_ns, at; /* as of the last time */
	uint64_t timed[PT_HIT_NR], timed_ns[PT_HIT_NR]; /* programs, so far */
	double low, ns, high;
	struct pt_py_counts py; /* as of the last time */
	uint64_t tracer_ns, elsewhere_ns; /* on cores; of it, of helpers */
	uint32_t saved; /* PT_SAVE_*, taken so far */
};

/* Behind a pass that counted: what was met since the last time, at its price. Queues a
 * record, and where there is a budget keeps within it: one step at a time is taken. */
void pt_cost_tick(struct pt_capture *c);

#endif
