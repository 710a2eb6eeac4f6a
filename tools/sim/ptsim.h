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

/*
 * What the device does, told as it ends: for the stand-in of CUPTI, which finds
 * this by dlsym in each library that carries a device. One listener; NULL ends
 * it, and no call is under way once ptsim_listen() has returned. `on` is called
 * under the device's lock: it may not call CUDA. Times are CLOCK_MONOTONIC, the
 * device's own. Work that was submitted while nobody listened is not told.
 */
enum { PTSIM_ACT_KERNEL, PTSIM_ACT_COPY, PTSIM_ACT_MEMSET, PTSIM_ACT_SYNC };
enum { PTSIM_SYNC_EVENT = 1, PTSIM_SYNC_STREAM = 3, PTSIM_SYNC_DEVICE = 4 };
struct ptsim_act {
	uint32_t what;	      /* PTSIM_ACT_* */
	uint32_t detail;      /* COPY: cudaMemcpyKind; SYNC: PTSIM_SYNC_* */
	uint64_t begin, end, bytes;
	uint32_t device, stream; /* stream: a small number; 7: the NULL stream */
	uint32_t correlation, graph;
	const void *func;
	const char *name; /* KERNEL: NULL unknown; valid until the exit */
	uint32_t pageable, async;
};
typedef void (*ptsim_listener)(void *ctx, const struct ptsim_act *a);
void ptsim_listen(ptsim_listener on, void *ctx);
/* Bring the device up to the present, so that what has ended is told. */
void ptsim_poll(void);
/* What a kernel is called; `func` as it is launched. Copied; the last counts. */
void ptsim_name_kernel(const void *func, const char *name);

/*
 * The kernels of several processes meet: ptsim_meet_join() says which rank this
 * process is in a group of `ranks` that share the file `path` (up to 4 groups in
 * a file, 64 ranks), and the next kernel that the thread launches behind
 * ptsim_meet_next() ends its own time after the last rank's has begun. 0 or
 * -errno.
 */
int ptsim_meet_join(const char *path, unsigned group, unsigned ranks,
		    unsigned rank);
void ptsim_meet_next(unsigned group);

#endif
