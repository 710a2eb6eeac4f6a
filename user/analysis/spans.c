/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/spans.h"

#include <errno.h>

#include "base/minmax.h"

PT_ORDER(cmp_span, struct pt_span, pt_cmp(x->begin, y->begin))

uint64_t pt_spans_tidy(pt_spans *s, uint64_t t0, uint64_t t1)
{
	size_t i, n = 0;

	pt_vec_sort(s, cmp_span);
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

int pt_spans_add(pt_spans *s, uint64_t b, uint64_t e)
{
	struct pt_span x = { b, e };

	if (s->n && b < s->v[s->n - 1].end)
		x.begin = b = s->v[s->n - 1].end;
	return e > b ? pt_vec_push(s, x) : 0;
}

int pt_spans_append(pt_spans *to, const pt_spans *s)
{
	size_t i;
	int err = 0;

	for (i = 0; i < s->n && !err; i++)
		err = pt_vec_push(to, s->v[i]);
	return err;
}

uint64_t pt_spans_sum(const pt_spans *s)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < s->n; i++)
		sum += s->v[i].end - s->v[i].begin;
	return sum;
}

size_t pt_spans_after(const pt_spans *s, uint64_t ts)
{
	return pt_bisect(s->n, i, s->v[i].end <= ts);
}

uint64_t pt_spans_in(const pt_spans *s, uint64_t b, uint64_t e)
{
	uint64_t sum = 0;
	size_t i;

	for (i = pt_spans_after(s, b); i < s->n && s->v[i].begin < e; i++)
		sum += pt_overlap(s->v[i].begin, s->v[i].end, b, e);
	return sum;
}

uint64_t pt_spans_overlap(const pt_spans *a, const pt_spans *b)
{
	uint64_t sum = 0;
	size_t i = 0, j = 0;

	while (i < a->n && j < b->n) {
		sum += pt_overlap(a->v[i].begin, a->v[i].end, b->v[j].begin, b->v[j].end);
		if (a->v[i].end < b->v[j].end)
			i++;
		else
			j++;
	}
	return sum;
}

int pt_spans_subtract(const pt_spans *a, const pt_spans *b, pt_spans *out)
{
	size_t i, j = 0, k;

	for (i = 0; i < a->n; i++) {
		struct pt_span s = a->v[i];

		while (j < b->n && b->v[j].end <= s.begin)
			j++;
		for (k = j; k < b->n && b->v[k].begin < s.end; k++) {
			struct pt_span x = { s.begin, b->v[k].begin };

			if (x.end > x.begin && pt_vec_push(out, x))
				return -ENOMEM;
			s.begin = pt_max64(s.begin, b->v[k].end);
		}
		if (s.end > s.begin && pt_vec_push(out, s))
			return -ENOMEM;
	}
	return 0;
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
