/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Before a probe gets into anybody else's code: probes of the same kinds are put on
 * functions of our own, which are called so many times. Each call must be counted once,
 * in another thread than the one that put the probes there. What a call costs so is
 * timed on the way.
 */
#ifndef PT_SELFTEST_H
#define PT_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ns; what a probe adds to a call: between the second lowest and the second highest of
 * some turns, and the median of all. */
struct pt_self_cost {
	double low, ns, high; /* NAN: not measured */
};

struct pt_selftest {
	bool opened; /* the kernel took the program and the probes */
	bool works;  /* ... and every call was counted, once */
	uint32_t calls, counted; /* of the first place with a difference, or of all */
	const char *place; /* ... what it stands on; NULL: no difference */
	struct pt_self_cost emulated, stepped; /* the instruction that the probe replaced */
};

/* By multi-uprobe links, or by perf events: one event each, and a tenth of a second to
 * take each out, so only the first place is tried. Done once for each; what it found
 * stays. */
const struct pt_selftest *pt_selftest(bool multi);

/* One sentence of what it found, without its full stop. */
void pt_selftest_text(const struct pt_selftest *t, char *out, size_t size);

/* A perf event of a uprobe can be opened, with the rights that there are. */
bool pt_selftest_perf_opens(void);

#endif
