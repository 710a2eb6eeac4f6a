/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/haste.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"

#define FIRST (-20)
#define CALM_NS UINT64_C(5000000000)
/* A job that floods its tracer gets no core for that before others on the machine: in haste
 * the thread may take so much, which empties a full ring, and of the time this part. */
#define ONCE_NS UINT64_C(500000000)
#define PART(ns) ((ns) / 10 * 3)

void pt_haste_open(struct pt_haste *h)
{
	const struct sched_param none = { 0 };

	errno = 0;
	*h = (struct pt_haste){
		.may = !getpriority(PRIO_PROCESS, 0) && !errno &&
		       (sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) == SCHED_OTHER &&
		       !sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none),
	};
}

static uint64_t ran(void)
{
	return pt_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static bool takes_too_much(const struct pt_haste *h, uint64_t now)
{
	return ran() - h->ran > ONCE_NS + PART(now - h->since);
}

static bool set(int nice)
{
	return !setpriority(PRIO_PROCESS, 0, nice);
}

void pt_haste_read(struct pt_haste *h, bool late, uint64_t now)
{
	if (h->on && takes_too_much(h, now)) {
		pt_haste_close(h);
		h->may = false; /* it shares like others from here on */
	} else if (late && h->may) {
		if (!h->on) {
			h->on = h->may = set(FIRST);
			h->since = now;
			h->ran = ran();
		}
		h->until = now + CALM_NS;
	} else if (h->on && now >= h->until) {
		pt_haste_close(h);
	}
}

bool pt_haste_starved(void)
{
	FILE *f = fopen("/proc/thread-self/schedstat", "re");
	uint64_t ran = 0, waited = 0;
	bool read = f && fscanf(f, "%" SCNu64 " %" SCNu64, &ran, &waited) == 2;

	if (f)
		fclose(f);
	return read && waited > ran;
}

void pt_haste_close(struct pt_haste *h)
{
	/* to lower itself a thread needs no right */
	if (h->on)
		h->may = set(0);
	h->on = false;
}
