// SPDX-License-Identifier: BSD-2-Clause
/*
 * Slices that may overlap, such as a device's work or ranges of several
 * threads, spread over as few lanes as hold them nested or side by side.
 */
#include <stdlib.h>

#include "base/minmax.h"
#include "view/timeline/trace_int.h"

#define NEST 16 /* slices inside of each other on one lane */

struct lane {
	uint64_t end[NEST];
	unsigned depth;
};

/* Parents before what is in them. */
PT_ORDER(by_group, struct pt_spread,
	 pt_cmp(x->group, y->group) ?: pt_cmp(x->lane, y->lane) ?:
	 pt_cmp(x->begin, y->begin) ?: pt_cmp(y->end, x->end) ?: pt_cmp(x->at, y->at))

/* Does it go there: behind, or inside, all that is open? */
static bool fits(struct lane *l, const struct pt_spread *s)
{
	while (l->depth && l->end[l->depth - 1] <= s->begin)
		l->depth--;
	return l->depth < NEST && (!l->depth || l->end[l->depth - 1] >= s->end);
}

static void choose_lanes(struct pt_spread *v, size_t n)
{
	struct lane lanes[PT_SPREAD_LANES];
	size_t i;
	unsigned k, used = 0;

	for (i = 0; i < n; i++) {
		if (!i || v[i].group != v[i - 1].group)
			used = 0;
		for (k = 0; k < used && !fits(&lanes[k], &v[i]); k++)
			;
		if (k == used && used < PT_SPREAD_LANES)
			lanes[used++].depth = 0;
		if (k == PT_SPREAD_LANES) { /* cut, so that it fits the last */
			struct lane *l = &lanes[--k];

			if (l->depth && v[i].end > l->end[l->depth - 1])
				v[i].end = l->end[l->depth - 1];
			if (l->depth == NEST)
				v[i].end = v[i].begin; /* an instant */
		}
		v[i].lane = (uint8_t)k;
		if (v[i].end == v[i].begin)
			continue;
		lanes[k].end[lanes[k].depth++] = v[i].end;
	}
}

int pt_spread(struct pt_spread *v, size_t n, pt_spread_fn track,
	      pt_spread_fn slice, void *ctx)
{
	size_t i;
	int err = 0;

	if (!n)
		return 0;
	qsort(v, n, sizeof(*v), by_group);
	choose_lanes(v, n);
	qsort(v, n, sizeof(*v), by_group);
	for (i = 0; i < n && !err; i++) {
		if (!i || v[i].group != v[i - 1].group ||
		    v[i].lane != v[i - 1].lane)
			err = track(ctx, &v[i]);
		err = err ?: slice(ctx, &v[i]);
	}
	return err;
}
