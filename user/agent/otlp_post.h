/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One POST at a time, by libcurl. That is loaded when it is needed: linked, its thirty
 * libraries would make every start of the program four milliseconds longer.
 */
#ifndef PT_AGENT_OTLP_POST_H
#define PT_AGENT_OTLP_POST_H

#include <stddef.h>
#include <stdint.h>

#include "agent/otlp.h"
#include "agent/otlp_queue.h"

#define PT_OTLP_ANSWER 16384 /* bytes kept of an answer */

struct pt_otlp_post;

struct pt_otlp_answer {
	long status;	    /* of HTTP; 0: none came */
	double retry_after; /* s; 0: not said */
	uint8_t body[PT_OTLP_ANSWER];
	size_t len;
};

/* 0; -errno with a sentence in `why`. */
int pt_otlp_post_new(const struct pt_otlp_options *o, struct pt_otlp_post **out,
		     char *why, size_t n);
void pt_otlp_post_free(struct pt_otlp_post *p);

/* Sends gzip'd bytes. It ends at the latest when `until` (s, monotonic) says so, which
 * is asked again after every pt_otlp_post_wake(). 0: an answer came; -EIO: none did. */
int pt_otlp_post(struct pt_otlp_post *p, enum pt_otlp_signal s, const void *data,
		 size_t len, double (*until)(void *), void *ctx,
		 struct pt_otlp_answer *a);

/* From another thread. */
void pt_otlp_post_wake(struct pt_otlp_post *p);

/* Lines "Name: value" of a file's text as a request's headers may be: how many; -EINVAL
 * with a sentence. Names that are ours to set are refused. Calls `each` with every line
 * (a copy that may be changed). */
int pt_otlp_headers(char *text, int (*each)(void *ctx, const char *line), void *ctx,
		    char *why, size_t n);

#endif
