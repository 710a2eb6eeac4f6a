/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where hundreds of threads want each core, a reader that is one of them gets a core once in
 * half a second, and the ring is full before. It goes before the others when it is behind, and
 * for some seconds more, but for the analysis at the end, and not where it takes much of a core.
 */
#ifndef PT_HASTE_H
#define PT_HASTE_H

#include <stdbool.h>
#include <stdint.h>

struct pt_haste {
	bool may, on;
	uint64_t since, until; /* ns of the monotonic clock */
	uint64_t ran;	       /* ns of CPU of the thread, when it began */
};

/* This thread reads. Who gave it a priority has chosen, and it keeps that; so does one that
 * lacks CAP_SYS_NICE. What it starts is never in haste. */
void pt_haste_open(struct pt_haste *h);
/* Before each read, or while there can be none: is it late? */
void pt_haste_read(struct pt_haste *h, bool late, uint64_t now);
/* Has this thread waited for a core longer than it had one, up to now? */
bool pt_haste_starved(void);
/* As it was; by the same thread. */
void pt_haste_close(struct pt_haste *h);

#endif
