/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/outside.h"

#include <string.h>

#include "abi.h"
#include "model/classify.h"
#include "model/syscalls.h"

/* A sleep shorter than this is nobody's wait: a lock that is handed on, say. */
#define SLEEP_NS 300000u
/* So often, and for so much of the time since the first: whoever sends a line each
 * minute supplies nothing; one of 64 who answer in turn does, and ends no more than a
 * sixty-fourth of the waits. */
#define WAKES 3
#define SHARE 400
/* ... or twice, where the job does hardly anything but wait for it. */
#define MOSTLY_WAKES 2
#define MOSTLY_SHARE 10
#define SURELY_WAKES 30
#define SURELY_SHARE 10
#define SURELY_NS 1000000000u

static bool takes(const struct pt_outside_seen *s, uint32_t wakes,
		  uint64_t share)
{
	return s->wakes >= wakes && s->slept_ns >= s->over_ns / share;
}

bool pt_outside_supplies(const struct pt_outside_seen *s)
{
	return takes(s, WAKES, SHARE) || takes(s, MOSTLY_WAKES, MOSTLY_SHARE);
}

bool pt_outside_surely(const struct pt_outside_seen *s)
{
	return takes(s, SURELY_WAKES, SURELY_SHARE) && s->slept_ns >= SURELY_NS;
}

/* Whoever waits for data on a Unix socket is woken as well when the other end reads
 * what it had asked: its own next call, in the reader's own context, not the network's. */
static bool was_asked(const struct pt_rec_off *r)
{
	return (r->syscall == PT_NR_recvfrom || r->syscall == PT_NR_recvmsg ||
		r->syscall == PT_NR_read) && r->obj_kind == PT_OBJ_SOCK &&
	       r->waker_in & PT_WAKER_KNOWN && !(r->waker_in & PT_WAKER_SOFTIRQ);
}

/* A wait of one process that another one ended by giving it something. Who makes
 * a connection asks for something. */
static bool counts(const struct pt_rec_off *r)
{
	enum pt_wake wake;
	bool valid;

	if (r->hdr.kind != PT_REC_OFF || r->hdr.size < sizeof(*r) ||
	    r->hdr.flags & PT_F_OPEN || !r->waker_tgid ||
	    r->waker_tgid == r->hdr.tgid || r->wake_ts < r->off_ts ||
	    r->wake_ts - r->off_ts < SLEEP_NS ||
	    r->waker_in & (PT_WAKER_HARDIRQ | PT_WAKER_KTHREAD) ||
	    r->waker_syscall == PT_NR_connect || r->syscall == PT_NR_accept ||
	    r->syscall == PT_NR_accept4)
		return false;
	wake = pt_wake_of(r, &valid);
	return valid && (wake == PT_WAKE_DATA || wake == PT_WAKE_FUTEX ||
			 (wake == PT_WAKE_ROOM && was_asked(r)));
}

/* The pair's entry, made from the one that was seen longest ago. */
static struct pt_outside_pair *pair_of(struct pt_outside *o, uint32_t waker,
				       uint32_t waiter)
{
	uint32_t set = (waker * 2654435761u ^ waiter * 2246822519u) >> 16;
	struct pt_outside_pair *way = o->pair[set % PT_OUTSIDE_SETS], *old = way;
	size_t i;

	for (i = 0; i < PT_OUTSIDE_WAYS; i++) {
		if (way[i].seen.waker == waker && way[i].seen.waiter == waiter)
			return &way[i];
		if (way[i].last < old->last)
			old = &way[i];
	}
	memset(old, 0, sizeof(*old));
	old->seen.waker = waker;
	old->seen.waiter = waiter;
	return old;
}

bool pt_outside_see(struct pt_outside *o, const void *rec,
		    struct pt_outside_seen *s)
{
	const struct pt_rec_off *r = rec;
	struct pt_outside_pair *p;

	if (!counts(r))
		return false;
	p = pair_of(o, r->waker_tgid, r->hdr.tgid);
	if (!p->first || r->off_ts < p->first)
		p->first = r->off_ts;
	if (r->wake_ts > p->last)
		p->last = r->wake_ts;
	p->seen.wakes++;
	p->seen.slept_ns += r->wake_ts - r->off_ts;
	p->seen.over_ns = p->last - p->first;
	if (!pt_outside_supplies(&p->seen) ||
	    p->seen.wakes / 2 < p->told)
		return false;
	p->told = p->seen.wakes;
	*s = p->seen;
	return true;
}
