/* SPDX-License-Identifier: BSD-2-Clause */
/* How sure a share of so many looks is: Wilson's score interval (1927), 95 %. */
#ifndef PT_WILSON_H
#define PT_WILSON_H

#include <math.h>

#define PT_Z_95 1.96 /* of the normal distribution, two-sided */

static inline void pt_wilson(double share, double n, double *low, double *high)
{
	double z = PT_Z_95 * PT_Z_95;
	double wide = PT_Z_95 * sqrt(share * (1 - share) / n + z / (4 * n * n));

	*low = fmax(0, (share + z / (2 * n) - wide) / (1 + z / n));
	*high = fmin(1, (share + z / (2 * n) + wide) / (1 + z / n));
}

#endif
