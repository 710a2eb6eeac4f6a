// SPDX-License-Identifier: BSD-2-Clause
#include "base/clock.h"

uint64_t pt_clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double pt_clock(clockid_t id)
{
	return (double)pt_clock_ns(id) / 1e9;
}

uint64_t pt_now_ns(void)
{
	return pt_clock_ns(CLOCK_MONOTONIC);
}

double pt_now(void)
{
	return pt_clock(CLOCK_MONOTONIC);
}

double pt_cpu_s(const struct rusage *u)
{
	return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
	       (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

void pt_deadline(struct timespec *t, unsigned ms)
{
	uint64_t ns = pt_now_ns() + ms * 1000000ull;

	t->tv_sec = (time_t)(ns / 1000000000u);
	t->tv_nsec = (long)(ns % 1000000000u);
}
