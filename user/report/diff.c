/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/diff.h"

const char *pt_d_part_name(enum pt_d_part p)
{
	static const char *const names[] = {
#define X(id, name) [PT_D_##id] = #name,
		PT_D_PARTS(X)
#undef X
	};

	return (unsigned)p < PT_D_PART_NR ? names[p] : "other";
}

const char *pt_d_by_name(enum pt_d_by by)
{
	return by == PT_D_BY_SAMPLES ? "samples_per_second" :
				       "steps_per_second";
}

const char *pt_d_result_name(enum pt_d_result r)
{
	switch (r) {
	case PT_D_FASTER:
		return "faster";
	case PT_D_SLOWER:
		return "slower";
	case PT_D_NO_DIFFERENCE:
		return "no_difference";
	case PT_D_UNKNOWN:
		break;
	}
	return "unknown";
}

const char *pt_d_idle_name(enum pt_d_idle i)
{
	switch (i) {
	case PT_D_IDLE_CANNOT_TELL:
		return "cannot_tell";
	case PT_D_IDLE_LOWER:
		return "lower";
	case PT_D_IDLE_HIGHER:
		return "higher";
	case PT_D_IDLE_UNKNOWN:
		break;
	}
	return "unknown";
}

void pt_diff_free(struct pt_diff *d)
{
	if (d)
		pt_arena_free(d->arena); /* it lies in it */
}
