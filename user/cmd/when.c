// SPDX-License-Identifier: BSD-2-Clause
/* When a trace begins (--at). */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "cmd/session.h"

#define NS 1000000000ull

static uint64_t clock_of(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

int pt_wait_at(const struct pt_opts *o)
{
	clockid_t clock = o->at_aligned ? CLOCK_REALTIME : CLOCK_MONOTONIC;
	uint64_t now = clock_of(clock), at;
	sigset_t set;

	if (!o->at_ns)
		return 0;
	at = o->at_aligned ? (now / o->at_ns + 1) * o->at_ns : now + o->at_ns;
	pt_stop_signals(&set);
	pt_note("the trace begins in %.1f s", (double)(at - now) / 1e9);
	while (now < at) {
		/* in small parts: the clock of the day may be set meanwhile */
		uint64_t left = at - now < NS / 2 ? at - now : NS / 2;
		struct timespec t = { 0, (long)left };

		if (sigtimedwait(&set, NULL, &t) > 0) {
			pt_note("interrupted before the trace began");
			return -EINTR;
		}
		now = clock_of(clock);
	}
	return 0;
}
