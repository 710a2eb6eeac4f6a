/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How sure a comparison of two series is, when neighbours in a series depend
 * on each other: steps do (two workers alternate, a queue drains and fills).
 * Pure; the same input gives the same output.
 */
#ifndef PT_BOOTSTRAP_H
#define PT_BOOTSTRAP_H

#include <stddef.h>

/* Below this many values no block of them can stand for the rest. */
#define PT_BOOT_MIN 20
#define PT_BOOT_REPLICATES 2000
#define PT_BOOT_SEED 0x70697065747261ull /* fixed: results are reproducible */
#define PT_BOOT_LEVEL 0.95

/*
 * Block length for a circular block bootstrap of the mean: the automatic rule
 * of Politis and White (2004) as corrected by Patton, Politis and White
 * (2009), at most a third of the series. At least 1; not an integer.
 */
double pt_block_length(const double *v, size_t n);

struct pt_boot {
	double value, low, high; /* interval at PT_BOOT_LEVEL */
	double block[2];	 /* block length of each series, in values */
	double freedom;		 /* degrees of freedom that widened it */
};

/*
 * mean(x) / mean(y) with its interval, x and y independent of each other, all
 * values finite and their means above 0. Circular block bootstrap (Politis
 * and Romano 1992) of the two logarithms of the mean; its deviations are
 * widened for the number of blocks, by sqrt(k / (k - 1)) and by Student's t
 * over the normal quantile with Welch's degrees of freedom, because a plain
 * percentile interval is too narrow when blocks are few.
 * 0; -ERANGE: fewer than PT_BOOT_MIN values or a mean that is not above 0;
 * -ENOMEM.
 */
int pt_boot_ratio(const double *x, size_t nx, const double *y, size_t ny,
		  struct pt_boot *out);

#endif
