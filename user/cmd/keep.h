/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The windows that `watch` saves: a folder each, in the one that the user named, with
 * the recording and its report as JSON and as text. A child writes one, so that the
 * capture goes on meanwhile, and a disk that does not answer holds nobody up.
 */
#ifndef PT_KEEP_H
#define PT_KEEP_H

#include <stdint.h>
#include <sys/types.h>

#include "base/vec.h"
#include "base/when.h"
#include "cmd/follow.h"

#define PT_KEEP_NAME 32 /* "20261124T031209Z-worker" */
#define PT_KEEP_WORDS 200

struct pt_kept_window {
	char name[PT_KEEP_NAME];
	char words[PT_KEEP_WORDS]; /* what stepped out */
	uint64_t ns, bytes;
};

struct pt_keep {
	const struct pt_opts *o;
	PT_VEC(struct pt_kept_window) v; /* what is there, also of earlier runs; the oldest first */
	uint64_t bytes;			 /* of all of them */
	unsigned long saved, lost;
	pid_t pid; /* of the child; 0: none is written now */
	int fd;	   /* from it */
	struct pt_kept_window now;
};

/* The folder is there, or made, and can be written; windows of earlier runs count. 0, or -errno with `err` filled. */
int pt_keep_open(struct pt_keep *k, const struct pt_opts *o, struct pt_err *err);
/* Begin to save the last `span_ns`; what it was and the time (unix, ns) make its name. What
 * becomes of it is told by pt_keep_reap(). */
void pt_keep_save(struct pt_keep *k, struct pt_follow *f, uint64_t span_ns,
		  enum pt_when_of of, uint64_t unix_ns, const char *words);
/* Is it written? Waits for it so long, at most. */
void pt_keep_reap(struct pt_keep *k, int wait_ms);
void pt_keep_close(struct pt_keep *k);

/* How many of the oldest go when another one of so many bytes comes. Pure. */
size_t pt_keep_surplus(const struct pt_keep *k, uint64_t bytes);

#endif
