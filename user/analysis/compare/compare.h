/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports compared with each other. Pure. */
#ifndef PT_COMPARE_H
#define PT_COMPARE_H

#include "report/diff.h"

/* A difference below this share is called none even where it is more than
 * noise: what a different address layout alone does to a program is of that
 * size and more (Mytkowicz et al. 2009). */
#define PT_D_SMALL 0.01

struct pt_d_source {
	const char *path;
	bool recording;
	const struct pt_report *r;
};

/*
 * Compare `n` (2 to PT_D_INPUTS_MAX) reports: each with the first, and all in a ranking.
 * How a figure is made: part_ms = share of trainer wall * mean period of whole
 * steps; cause_ms likewise, so that both sum up; speedup = ratio of the mean
 * throughput with the interval of pt_boot_ratio(). *out is the caller's to
 * free with pt_diff_free(), before the reports. 0, -EINVAL or -ENOMEM.
 */
int pt_compare(const struct pt_d_source *src, size_t n, struct pt_diff **out);

#endif
