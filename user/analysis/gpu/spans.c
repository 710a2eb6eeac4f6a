/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of spans: put in order, cut, taken from each other. */
#include <errno.h>
#include <stdlib.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"

static int cmp_span(const void *a, const void *b)
{
	const struct pt_span *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

uint64_t pt_spans_tidy(pt_spans *s, uint64_t t0, uint64_t t1)
{
	size_t i, n = 0;

	if (s->n)
		qsort(s->v, s->n, sizeof(*s->v), cmp_span);
	for (i = 0; i < s->n; i++) {
		struct pt_span x = { pt_max64(s->v[i].begin, t0),
				     pt_min64(s->v[i].end, t1) };

		if (x.begin >= x.end)
			continue;
		if (n && x.begin <= s->v[n - 1].end)
			s->v[n - 1].end = pt_max64(s->v[n - 1].end, x.end);
		else
			s->v[n++] = x;
	}
	s->n = n;
	return pt_spans_sum(s);
}

static int replace(pt_spans *a, pt_spans *with, int err)
{
	if (err) {
		pt_vec_free(with);
		return err;
	}
	pt_vec_free(a);
	a->v = with->v;
	a->n = with->n;
	a->cap = with->cap;
	return 0;
}

int pt_spans_remove(pt_spans *a, const pt_spans *b)
{
	pt_spans out = { 0 };
	int err = pt_spans_subtract(a, b, &out);

	return replace(a, &out, err);
}

int pt_spans_meet(pt_spans *a, const pt_spans *b)
{
	pt_spans out = { 0 };
	size_t i = 0, k = 0;
	int err = 0;

	while (i < a->n && k < b->n && !err) {
		struct pt_span s = { pt_max64(a->v[i].begin, b->v[k].begin),
				     pt_min64(a->v[i].end, b->v[k].end) };

		if (s.begin < s.end)
			err = pt_vec_push(&out, s);
		if (a->v[i].end < b->v[k].end)
			i++;
		else
			k++;
	}
	return replace(a, &out, err);
}

int pt_spans_invert(const pt_spans *a, uint64_t t0, uint64_t t1, pt_spans *out)
{
	struct pt_span all = { t0, t1 };
	pt_spans whole = { &all, 1, 1 };

	return pt_spans_subtract(&whole, a, out);
}
