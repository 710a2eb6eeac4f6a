/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the simulated runtime offers beside CUDA's own names: the duration of
 * the kernels that follow, and counters to compare a trace with.
 */
#ifndef PTSIM_H
#define PTSIM_H

#include <stdint.h>

/*
 * Device time in nanoseconds of every kernel that the calling thread launches
 * from now on; 0 returns to the default (PT_SIM_KERNEL_NS, else 10 us).
 * Clamped to 60 s.
 */
void ptsim_set_kernel_ns(uint64_t ns);

/*
 * API calls accepted so far in this process: kernel and graph launches, copies
 * (memsets are not copies) and synchronisations. Any pointer may be NULL.
 */
void ptsim_counts(uint64_t *launches, uint64_t *copies, uint64_t *syncs);

/* Nanoseconds so far in which at least one device operation ran. */
uint64_t ptsim_busy_ns(void);

#endif
