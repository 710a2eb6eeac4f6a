// SPDX-License-Identifier: BSD-2-Clause
/*
 * Level of detail: a lane of any length in a bounded number of pieces. What is
 * shorter than the resolution is mixed with its neighbours, and the piece says
 * which share of it each category has; what is longer stays exact.
 */
#include <stdlib.h>
#include <string.h>

#include "view/html/html_int.h"

#define NS_PER_US 1000u
#define LEAST 2 /* 255ths of a mix: less cannot be seen */
#define LONG 10	/* bytes of a usual mixed piece */

/* ---- bytes ------------------------------------------------------------------ */

void pt_bytes_put(struct pt_bytes *s, uint8_t v)
{
	if (!s->failed && pt_vec_push(&s->b, v))
		s->failed = true;
}

void pt_bytes_number(struct pt_bytes *s, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		pt_bytes_put(s, (uint8_t)(v | 0x80));
	pt_bytes_put(s, (uint8_t)v);
}

json_t *pt_bytes_json(struct pt_jb *b, struct pt_bytes *s)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "abcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t i, n = s->b.n;
	const uint8_t *v = s->b.v;
	json_t *j = NULL;
	char *text = s->failed ? NULL : malloc((n + 2) / 3 * 4 + 1), *to = text;

	for (i = 0; text && i < n; i += 3) {
		uint32_t w = (uint32_t)v[i] << 16;

		w |= i + 1 < n ? (uint32_t)v[i + 1] << 8 : 0;
		w |= i + 2 < n ? v[i + 2] : 0;
		*to++ = digits[w >> 18];
		*to++ = digits[w >> 12 & 63];
		*to++ = i + 1 < n ? digits[w >> 6 & 63] : '=';
		*to++ = i + 2 < n ? digits[w & 63] : '=';
	}
	if (text)
		j = json_stringn(text, (size_t)(to - text));
	if (!j)
		b->failed = true;
	free(text);
	pt_vec_free(&s->b);
	return j;
}

/* ---- pieces ----------------------------------------------------------------- */

struct mix {
	double time[PT_HC_NR]; /* ns */
	uint64_t begin, end;
};

struct pt_lod {
	uint64_t begin, end; /* of the capture */
	uint64_t at;	     /* all before is in */
	uint64_t resolution; /* ns */
	/* not put out yet: a long piece of one category, or short ones */
	struct mix mix;
	bool pure;
	uint8_t cat;
	struct pt_bytes out;
	float (*coarse)[PT_HC_NR]; /* NULL: not wanted now; ns */
};

static void put_mix(struct pt_bytes *out, const double *time, double all)
{
	uint8_t cat[PT_HC_NR], share[PT_HC_NR];
	unsigned i, n = 0;

	for (i = 1; i < PT_HC_NR; i++) {
		double v = all > 0 ? time[i] / all * 255 + 0.5 : 0;

		if (v < LEAST)
			continue;
		cat[n] = (uint8_t)i;
		share[n++] = v > 255 ? 255 : (uint8_t)v;
	}
	if (!n || (n == 1 && share[0] == 255)) {
		pt_bytes_put(out, n ? cat[0] : PT_HC_NOTHING);
		return;
	}
	pt_bytes_put(out, (uint8_t)(0x80 | n));
	for (i = 0; i < n; i++) {
		pt_bytes_put(out, cat[i]);
		pt_bytes_put(out, share[i]);
	}
}

static uint64_t us_of(const struct pt_lod *l, uint64_t ts)
{
	return (ts - l->begin) / NS_PER_US;
}

/* Rounded at its ends and not in its length, so that no error adds up. */
static void put_length(struct pt_lod *l, uint64_t begin, uint64_t end)
{
	pt_bytes_number(&l->out, us_of(l, end) - us_of(l, begin));
}

static void flush(struct pt_lod *l)
{
	struct mix *m = &l->mix;

	if (m->end > m->begin) {
		put_length(l, m->begin, m->end);
		if (l->pure)
			pt_bytes_put(&l->out, l->cat);
		else
			put_mix(&l->out, m->time, (double)(m->end - m->begin));
	}
	memset(m->time, 0, sizeof(m->time));
	m->begin = m->end;
	l->pure = false;
}

static void put_coarse(struct pt_lod *l, uint64_t begin, uint64_t end,
		       unsigned cat, double share)
{
	double width = (double)(l->end - l->begin) / PT_LOD_COARSE;
	double from = (double)(begin - l->begin) / width;
	double to = (double)(end - l->begin) / width;
	size_t i = (size_t)from;

	for (; i < PT_LOD_COARSE && (double)i < to; i++) {
		double a = from > (double)i ? from : (double)i;
		double z = to < (double)i + 1 ? to : (double)i + 1;

		l->coarse[i][cat] += (float)((z - a) * share);
	}
}

/* [begin, end) directly behind the last. */
static void append_mix(struct pt_lod *l, uint64_t begin, uint64_t end,
		       const uint8_t *cats, const double *shares, unsigned n)
{
	struct mix *m = &l->mix;
	bool one = n == 1 && shares[0] >= 1;
	unsigned i;

	for (i = 0; l->coarse && i < n; i++)
		if (cats[i])
			put_coarse(l, begin, end, cats[i], shares[i]);
	if (one && l->pure && l->cat == cats[0]) { /* it goes on */
		m->end = end;
		return;
	}
	if (l->pure)
		flush(l);
	if (one && end - begin >= l->resolution) {
		flush(l);
		l->pure = true;
		l->cat = cats[0];
		m->begin = begin;
		m->end = end;
		return;
	}
	m->end = end;
	for (i = 0; i < n; i++)
		m->time[cats[i]] += shares[i] * (double)(end - begin);
	if (m->end - m->begin >= l->resolution)
		flush(l);
}

void pt_lod_mix(struct pt_lod *l, uint64_t begin, uint64_t end,
		const uint8_t *cats, const double *shares, unsigned n)
{
	static const uint8_t none = PT_HC_NOTHING;
	static const double one = 1;
	unsigned i;

	begin = begin > l->at ? begin : l->at;
	end = end < l->end ? end : l->end;
	if (end <= begin)
		return;
	if (begin > l->at)
		append_mix(l, l->at, begin, &none, &one, 1);
	for (i = 0; i < n && shares[i] <= 0; i++)
		;
	if (i < n)
		append_mix(l, begin, end, cats, shares, n);
	else
		append_mix(l, begin, end, &none, &one, 1);
	l->at = end;
}

void pt_lod_add(struct pt_lod *l, uint64_t begin, uint64_t end,
		enum pt_html_cat cat)
{
	uint8_t c = (uint8_t)cat;
	double one = 1;

	pt_lod_mix(l, begin, end, &c, &one, 1);
}

static void feed_from(struct pt_lod *l, pt_lod_fn fn, const void *src)
{
	pt_vec_free(&l->out.b);
	memset(&l->mix, 0, sizeof(l->mix));
	l->pure = false;
	l->at = l->mix.begin = l->mix.end = l->begin;
	fn(src, l);
	flush(l);
}

/* Equal neighbours are one piece. */
static void pack_coarse(const struct pt_lod *l, struct pt_bytes *out)
{
	struct pt_bytes one = { 0 }, last = { 0 };
	size_t i, length = 0, j;
	double time[PT_HC_NR];

	for (i = 0; i <= PT_LOD_COARSE && !out->failed; i++) {
		one.b.n = 0;
		for (j = 0; i < PT_LOD_COARSE && j < PT_HC_NR; j++)
			time[j] = l->coarse[i][j];
		if (i < PT_LOD_COARSE)
			put_mix(&one, time, 1);
		if (i == PT_LOD_COARSE || (length && (one.b.n != last.b.n ||
				  memcmp(one.b.v, last.b.v, one.b.n)))) {
			pt_bytes_number(out, length);
			for (j = 0; j < last.b.n; j++)
				pt_bytes_put(out, last.b.v[j]);
			length = 0;
		}
		length++;
		last.b.n = 0;
		for (j = 0; j < one.b.n; j++)
			pt_bytes_put(&last, one.b.v[j]);
		out->failed |= one.failed || last.failed;
	}
	pt_vec_free(&one.b);
	pt_vec_free(&last.b);
}

void pt_lod_pack(struct pt_jb *b, json_t *lane, pt_lod_fn fn, const void *src,
		 uint64_t begin, uint64_t end, size_t cap)
{
	struct pt_lod l = { .begin = begin, .end = end,
			    .resolution = NS_PER_US };
	struct pt_bytes coarse = { 0 };

	if (end <= begin)
		return;
	l.coarse = calloc(PT_LOD_COARSE, sizeof(*l.coarse));
	if (!l.coarse) {
		b->failed = true;
		return;
	}
	feed_from(&l, fn, src);
	pack_coarse(&l, &coarse);
	free(l.coarse);
	l.coarse = NULL;
	cap = cap > 2 * coarse.b.n ? cap - coarse.b.n : coarse.b.n + LONG;
	/* two pieces at most for each time of the resolution: this ends */
	if (l.out.b.n > cap && (end - begin) / (cap / LONG) / 4 > l.resolution)
		l.resolution = (end - begin) / (cap / LONG) / 4;
	while (l.out.b.n > cap && l.resolution < end - begin) {
		feed_from(&l, fn, src);
		if (l.out.b.n > cap)
			l.resolution += l.resolution / 4 + 1;
	}
	pt_j_put(b, lane, "resolution_us",
		 json_integer((json_int_t)(l.resolution / NS_PER_US)));
	pt_j_put(b, lane, "detail", pt_bytes_json(b, &l.out));
	pt_j_put(b, lane, "coarse", pt_bytes_json(b, &coarse));
}
