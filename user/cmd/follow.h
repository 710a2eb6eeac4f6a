/* SPDX-License-Identifier: BSD-2-Clause */
/* A job that `top` or `watch` follows: its capture, and reports of its last seconds. */
#ifndef PT_FOLLOW_H
#define PT_FOLLOW_H

#include <poll.h>

#include "capture/capture.h"
#include "capture/discover.h"
#include "cmd/options.h"
#include "report/report.h"

struct pt_follow;

/* Attach. 0, or -errno with `err` filled. `o` must outlive the watch. */
int pt_follow_open(struct pt_follow **out, pid_t pid, const struct pt_opts *o,
		  struct pt_err *err);
/* Detach and free; the reports go with it. Harmless for NULL. */
void pt_follow_free(struct pt_follow *w);

/* Descriptors to poll; how many, at most `max`. */
size_t pt_follow_fds(const struct pt_follow *w, struct pollfd *fds, size_t max);
/* Take what has come, often; and once a second what is to be asked for. 0 or
 * -errno. Nothing to do once it has ended. */
int pt_follow_drain(struct pt_follow *w);
int pt_follow_tick(struct pt_follow *w);
/* Has the job ended? Then the hooks are taken away at once. */
bool pt_follow_ended(struct pt_follow *w);

/*
 * Diagnose the last seconds. *window_s: how many those are. The report stays
 * until the next look. NULL: no memory.
 */
const struct pt_report *pt_follow_look(struct pt_follow *w, double *window_s);

/*
 * For `watch`. Each record goes to `fn` as well; before the first drain. The last
 * seconds, until now, as a capture of their own, record by record; how long, ns;
 * pt_follow_reach(): so many, twice as many as the options say at most, and none from
 * before pt_follow_kept_from(). And what is known beside the records, into a report:
 * 0 or -ENOMEM.
 */
void pt_follow_tap(struct pt_follow *w, pt_record_fn fn, void *ctx);
void pt_follow_reach(struct pt_follow *w, uint64_t span_ns);
uint64_t pt_follow_kept_from(const struct pt_follow *w);
uint64_t pt_follow_feed(struct pt_follow *w, pt_record_fn fn, void *ctx);
int pt_follow_facts(struct pt_follow *w, struct pt_report *r);

pid_t pt_follow_pid(const struct pt_follow *w); /* the trainer, or the job's root */
const char *pt_follow_note(const struct pt_follow *w); /* of the attach, or "" */

#endif
