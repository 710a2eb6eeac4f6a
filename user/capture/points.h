/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in a GPU library's file its entry points are. */
#ifndef PT_POINTS_H
#define PT_POINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "capture/discover.h"

#define PT_MAX_POINTS 512

/* One point of attachment: an api and where it is in the file. */
struct pt_point {
	uint64_t offset; /* where the probes stand: at the entry, or a little later */
	uint64_t entry;
	uint64_t cookie;
	bool ret;
	bool brief; /* its hook may go before the others (uprobes.c) */
	bool stepped; /* nothing there that the kernel emulates: a dear place */
};

/* PT_LAYER_* of a library. */
unsigned pt_layer_of(enum pt_gpulib_kind kind);

/* Points of a library with the number `lib`, at most PT_MAX_POINTS, in the file
 * behind `fd`; an address with two names is taken once. How many, or -errno with
 * `err` filled. */
int pt_points_find(int fd, enum pt_gpulib_kind kind, uint32_t lib,
		   struct pt_point *out, struct pt_err *err);

#endif
