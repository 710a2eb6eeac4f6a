/* SPDX-License-Identifier: BSD-2-Clause */
/* What is true of a simulated job in the window of its capture. */
#include "stream_job.h"

static uint64_t common(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	uint64_t lo = a > c ? a : c, hi = b < d ? b : d;

	return hi > lo ? hi - lo : 0;
}

size_t job_count(const struct job *j)
{
	size_t i, n = 0;

	for (i = 0; i < j->steps.n; i++)
		n += j->steps.v[i].wait_begin >= j->t0 &&
		     j->steps.v[i].wait_begin < j->t1;
	return n;
}

uint64_t job_wait_ns(const struct job *j)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < j->steps.n; i++)
		sum += common(j->steps.v[i].wait_begin, j->steps.v[i].wait_end,
			      j->t0, j->t1);
	return sum;
}

uint64_t job_cause_ns(const struct job *j, enum job_seg seg)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < j->steps.n; i++)
		if (j->steps.v[i].wait_begin >= j->t0 &&
		    j->steps.v[i].wait_end <= j->t1)
			sum += j->steps.v[i].ns[seg];
	return sum;
}

uint64_t job_busy_ns(const struct job *j)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < j->busy.n; i++)
		sum += common(j->busy.v[i].begin, j->busy.v[i].end, j->t0, j->t1);
	return sum;
}

uint64_t job_starved_ns(const struct job *j)
{
	uint64_t busy = 0;
	size_t i, k = 0, n;

	for (i = 0; i < j->steps.n; i++) {
		uint64_t b = j->steps.v[i].wait_begin, e = j->steps.v[i].wait_end;

		b = b > j->t0 ? b : j->t0;
		e = e < j->t1 ? e : j->t1;
		while (k < j->busy.n && j->busy.v[k].end <= b)
			k++;
		for (n = k; b < e && n < j->busy.n && j->busy.v[n].begin < e; n++)
			busy += common(j->busy.v[n].begin, j->busy.v[n].end, b, e);
	}
	return job_wait_ns(j) - busy;
}
