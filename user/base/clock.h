/* SPDX-License-Identifier: BSD-2-Clause */
/* The clock that records are stamped with: CLOCK_MONOTONIC. */
#ifndef PT_CLOCK_H
#define PT_CLOCK_H

#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

uint64_t pt_now_ns(void);
double pt_now(void); /* s */
/* ... and of another clock that every kernel has. */
uint64_t pt_clock_ns(clockid_t id);
double pt_clock(clockid_t id);
/* CPU time, of user and system, s. */
double pt_cpu_s(const struct rusage *u);

/* Now and `ms` milliseconds, for waits that take a moment (and that were told to
 * go by this clock). */
void pt_deadline(struct timespec *t, unsigned ms);

#endif
