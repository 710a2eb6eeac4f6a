/* SPDX-License-Identifier: BSD-2-Clause */
/* Rows of the `operations` table while they are summed up. */
#ifndef PT_ANALYSIS_OPERATIONS_H
#define PT_ANALYSIS_OPERATIONS_H

#include "analysis/internal.h"

enum pt_op_kind { /* in the order in which equal rows are listed */
	PT_OP_API,
	PT_OP_KERNEL,
	PT_OP_COPY,
	PT_OP_MEMSET,
	PT_OP_NVTX,
};

#define PT_OPS_RECENT 64
/* Names of ranges and kernels come from the job: it may make up any number. */
#define PT_OPS_MAX 4096

struct pt_op_key { /* no padding: it is hashed whole */
	uint32_t kind; /* enum pt_op_kind */
	uint32_t tgid; /* kernels: whose function; nvtx: 1 a mark; else 0 */
	uint64_t id;
};

struct pt_op {
	struct pt_op_key key;
	const char *name; /* NULL: made from the key */
	uint64_t calls, bytes;
	bool bytes_unknown; /* ... of some of the calls */
	bool some; /* there were more calls than could be counted */
	pt_doubles us;	/* of the calls whose time is known */
	double total_ns; /* of them, and of what ran on at the ends */
	double cpu_ns;	/* of the calling thread, in them */
	uint64_t timed; /* device: how many of them `us` and total_ns are of */
	UT_hash_handle hh;
};

struct pt_ops {
	struct pt_an *an;
	struct pt_op *all; /* uthash, by key */
	struct pt_op *recent[PT_OPS_RECENT]; /* that were asked for: a loop's few come
					      * again and again */
	size_t n;
	bool launches; /* calls that launch were seen */
	bool timed; /* device times were measured */
	bool full; /* PT_OPS_MAX reached: later ones share a row */
};

/* The row of this key, made when new; where there are too many, the one that
 * the rest of the kind shares. NULL: out of memory. */
struct pt_op *pt_op_row(struct pt_ops *o, enum pt_op_kind kind, uint32_t tgid,
			uint64_t id);

#define PT_OP_GRAPHS (UINT64_MAX - 1) /* id: kernels that graphs ran */
/*
 * operations_gpu.c: device time of the rows of kernels, copies and memsets.
 * where work was measured (activity records), kernels of graphs then in rows of
 * their names. 0 or -ENOMEM.
 */
int pt_op_measured(struct pt_ops *o, const struct pt_proc *p);

/* nvtx.c: rows of the ranges and marks of a process. 0 or -ENOMEM. */
int pt_op_ranges(struct pt_ops *o, const struct pt_proc *p);

#endif
