/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/schedule.h"

#include <math.h>

uint64_t pt_schedule_hash(const char *name)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 0x100000001b3ull;
	return h;
}

/* Bits that differ little spread over all (the finalizer of MurmurHash3). */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
	x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
	return x ^ (x >> 33);
}

double pt_schedule_next(const struct pt_schedule *s, uint64_t job, double after)
{
	double n = floor(after / s->interval), begin;

	for (;; n++) {
		begin = n * s->interval;
		if (!s->aligned) /* 53 bits: a share of what the interval leaves */
			begin += (s->interval - s->sample) *
				 (double)(mix(s->node ^ mix(job ^ mix((uint64_t)n))) >> 11) /
				 9007199254740992.0;
		if (begin > after)
			return begin;
	}
}

/* A budget that is met by so little is left alone: the rate would swing. */
#define SLACK 0.8
#define SMOOTH 0.5

bool pt_budget_spent(struct pt_budget *b, double cpu_s, double wall_s)
{
	double old = b->stretch, now;

	if (!(wall_s > 0) || !(cpu_s >= 0) || !(b->cpu_max > 0))
		return false;
	now = cpu_s / wall_s;
	b->used = b->used > 0 ? SMOOTH * now + (1 - SMOOTH) * b->used : now;
	if (now > b->cpu_max) /* what was spent goes with the rate */
		b->stretch = fmin(b->stretch_max, b->stretch * now / b->cpu_max);
	else if (b->used < SLACK * b->cpu_max && b->stretch > 1)
		b->stretch = fmax(1, b->stretch * 0.9);
	return b->stretch != old;
}
