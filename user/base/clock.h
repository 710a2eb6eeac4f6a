/* SPDX-License-Identifier: BSD-2-Clause */
/* The clock that records are stamped with: CLOCK_MONOTONIC. */
#ifndef PT_CLOCK_H
#define PT_CLOCK_H

#include <stdint.h>
#include <time.h>

uint64_t pt_now_ns(void);
double pt_now(void); /* s */

/* Now and `ms` milliseconds, for waits that take a moment (and that were told to
 * go by this clock). */
void pt_deadline(struct timespec *t, unsigned ms);

#endif
