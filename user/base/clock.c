// SPDX-License-Identifier: BSD-2-Clause
#include "base/clock.h"

uint64_t pt_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double pt_now(void)
{
	return (double)pt_now_ns() / 1e9;
}

void pt_deadline(struct timespec *t, unsigned ms)
{
	uint64_t ns = pt_now_ns() + ms * 1000000ull;

	t->tv_sec = (time_t)(ns / 1000000000u);
	t->tv_nsec = (long)(ns % 1000000000u);
}
