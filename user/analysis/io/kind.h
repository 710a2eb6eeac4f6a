/* SPDX-License-Identifier: BSD-2-Clause */
/* What the makers of the batches wait for when they wait for storage. */
#ifndef PT_ANALYSIS_IO_KIND_H
#define PT_ANALYSIS_IO_KIND_H

#include "analysis/io/places.h"

enum pt_io_kind {
	PT_IO_UNKNOWN = 0,
	PT_IO_BANDWIDTH,   /* bytes come no faster */
	PT_IO_LATENCY,	   /* each wait takes its time, however little it is for */
	PT_IO_SMALL_FILES, /* ... one for each small file */
	PT_IO_RANDOM,	   /* ... one for each place in a large file */
	PT_IO_CACHE,	   /* what was in memory has been evicted since */
};
const char *pt_io_kind_name(enum pt_io_kind k); /* NULL: unknown */

enum pt_io_limit { PT_IO_LIMIT_UNKNOWN, PT_IO_LIMIT_BYTES, PT_IO_LIMIT_COUNT };

struct pt_io {
	enum pt_io_kind kind;
	enum pt_confidence certainty;
	uint64_t waits;	   /* for storage, by the makers */
	double wait_ms;	   /* mean */
	double depth;	   /* makers that waited while any did, mean */
	double bytes_per_s; /* that the makers read, over the window */
	double fetched_per_s; /* ... of those from storage; NAN unknown */
	double busy_per_s; /* bytes a second of the time in which any waited */
	double read_bytes; /* a call with data, mean; NAN unknown */
	/* Fits of a wait's length: the part of the waiting that goes with the
	 * bytes; and that which goes with the bytes or with who waits too.
	 * NAN: these varied too little. */
	struct pt_io_part {
		double value, se; /* standard error */
	} by_bytes, by_share;
	double held; /* part of the waiting that is above the disks: what they
		      * were asked for they answered in the rest; NAN unknown */
	enum pt_io_limit limit; /* ... and what is limited there */
	bool long_runs;	   /* half of the waiting is for files read on and on */
	double opening;	   /* part of the waiting in open, stat and the like */
	double visits_per_s, visit_bytes; /* files gone through; NAN unknown */
	uint64_t files;	   /* that were waited for, or read; 0 unknown */
	double random;	   /* part of the waiting for files that are read in
			    * jumps, with short runs */
	double refault;	   /* bytes evicted and fetched again, of those fetched;
			    * NAN unknown */
	bool measured;	   /* there were such waits */
	bool looked;	   /* ... and it was looked where in the files */
	bool placed;	   /* ... which is known of the file waited for most */
	const char *where; /* that file, or the folder of all; NULL */
	bool where_folder;
	int64_t stride;	   /* of that file; PT_NULL */
};

/* Of the top trainer. 0 or -ENOMEM. */
int pt_measure_io(struct pt_an *an, struct pt_trainer *t, struct pt_io *out);
/* Its kind, certainty and refault, by all of it and the report's memory. */
void pt_io_decide(const struct pt_r_memory *m, struct pt_io *o);

#endif
