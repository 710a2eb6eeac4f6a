/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_ANALYSIS_IO_UNITS_H
#define PT_ANALYSIS_IO_UNITS_H

#include "analysis/io/kind.h"

/* The waits for storage inside one system call of a maker. */
struct pt_io_unit {
	double t; /* ms */
	double c; /* makers that waited meanwhile, itself included */
	double x; /* c times n */
	double n; /* bytes that the thread obtained for it */
	/* Bytes and units of all makers whose waits ended meanwhile, itself
	 * included: what the storage did in that time. */
	double w, k;
	uint64_t end; /* CLOCK_MONOTONIC ns */
	uint64_t begin;
	bool sized; /* these are what the wait was for: see kind.c */
	uint64_t ns;
	uint64_t inode; /* 0 unknown */
	uint32_t dev;
	bool opening; /* no read: open, stat, a folder's entries */
};
typedef PT_VEC(struct pt_io_unit) pt_io_units;

/* Those of the makers of the trainer's batches, with the sums of `o` that they
 * give. 0 or -ENOMEM. */
int pt_io_collect(struct pt_an *an, struct pt_trainer *t, pt_io_units *out,
		  struct pt_io *o);

/* held and limit of `o`, by the disks of the report; behind pt_io_collect().
 * 0 or -ENOMEM. */
int pt_io_held(const struct pt_an *an, const pt_io_units *v, struct pt_io *o);

#endif
