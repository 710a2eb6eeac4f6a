/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/haste.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>

#define FIRST (-20)
#define CALM_NS UINT64_C(5000000000)

void pt_haste_open(struct pt_haste *h)
{
	const struct sched_param none = { 0 };

	errno = 0;
	*h = (struct pt_haste){
		.may = !getpriority(PRIO_PROCESS, 0) && !errno && sched_getscheduler(0) == SCHED_OTHER &&
		       !sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none),
	};
}

static bool set(int nice)
{
	return !setpriority(PRIO_PROCESS, 0, nice);
}

void pt_haste_read(struct pt_haste *h, bool late, uint64_t now)
{
	if (late && h->may) {
		if (!h->on)
			h->on = h->may = set(FIRST);
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
