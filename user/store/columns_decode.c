// SPDX-License-Identifier: BSD-2-Clause
/* Whoever made the columns is not trusted. */
#include <errno.h>
#include <stdlib.h>

#include "store/columns_int.h"

/*
 * ---- the fields of a stretch of records out of their columns ----
 *
 * Most of what reading a file takes is spent here, so there is a loop for each width
 * and each coding that is common.
 */

struct planes { /* a column, as it lies in the data */
	const unsigned char *p;
	size_t n; /* numbers */
	unsigned width;
};

struct place { /* of a record: offsets */
	uint32_t at;
	uint32_t prev; /* of the thread's last record of its form */
};
#define NO_PREV UINT32_MAX

/* Records of one form, in their order, and a number for each. */
struct run {
	unsigned char *base;
	const struct place *at;
	size_t n;
	uint64_t *v;
};

static const unsigned char nothing[PT_REC_MAX];

/* Numbers [from, from + n) of a column, all of which are there, into v. */
static void unpack(const struct planes *c, size_t from, size_t n,
		   uint64_t *v)
{
	const unsigned char *p = c->p + from;
	unsigned w;
	size_t i;

	switch (c->width) {
	case 0:
		memset(v, 0, n * sizeof(*v));
		return;
	case 1:
		for (i = 0; i < n; i++)
			v[i] = p[i];
		return;
	case 2:
		for (i = 0; i < n; i++)
			v[i] = p[i] | (uint64_t)p[c->n + i] << 8;
		return;
	}
	for (i = 0; i < n; i++)
		v[i] = p[i] | (uint64_t)p[c->n + i] << 8 |
		       (uint64_t)p[2 * c->n + i] << 16;
	for (w = 3; w < c->width; w++)
		for (i = 0; i < n; i++)
			v[i] |= (uint64_t)p[w * c->n + i] << (8 * w);
}

/* `width` and `mode` are known where it is called. */
static inline __attribute__((always_inline)) void
each(const struct run *r, unsigned off, unsigned width, unsigned mode)
{
	const struct pt_col_field f = { .off = (uint16_t)off,
					.width = (uint8_t)width,
					.mode = (uint8_t)mode };
	size_t i;

	for (i = 0; i < r->n; i++) {
		unsigned char *p = r->base + r->at[i].at;
		const unsigned char *prev =
			r->at[i].prev == NO_PREV ? nothing :
							  r->base + r->at[i].prev;

		pt_col_set(p + off, width, pt_col_value(&f, r->v[i], p, prev));
	}
}

static void fill_last(const struct run *r, const struct pt_col_field *f)
{
	switch (f->width) {
	case 8:
		each(r, f->off, 8, PT_COL_LAST);
		break;
	case 4:
		each(r, f->off, 4, PT_COL_LAST);
		break;
	case 2:
		each(r, f->off, 2, PT_COL_LAST);
		break;
	default:
		each(r, f->off, 1, PT_COL_LAST);
	}
}

/* Field `f` of each record, told by its number and by what came before. */
static void fill_field(const struct run *r, const struct pt_col_field *f)
{
	if (f->mode == PT_COL_LAST)
		fill_last(r, f);
	else if (f->mode == PT_COL_SEQ && f->width == 4)
		each(r, f->off, 4, PT_COL_SEQ);
	else if (f->mode == PT_COL_TIME && f->width == 8)
		each(r, f->off, 8, PT_COL_TIME);
	else if (f->mode == PT_COL_RUN && f->width == 8)
		each(r, f->off, 8, PT_COL_RUN);
	else if (f->mode == PT_COL_RUNQ && f->width == 8)
		each(r, f->off, 8, PT_COL_RUNQ);
	else if (f->mode == PT_COL_IOWAIT && f->width == 8)
		each(r, f->off, 8, PT_COL_IOWAIT);
	else if (f->mode == PT_COL_BLOCK && f->width == 8)
		each(r, f->off, 8, PT_COL_BLOCK);
	else
		each(r, f->off, f->width, f->mode);
}

static inline __attribute__((always_inline)) void
each_of(const struct run *r, unsigned off, unsigned width,
	const uint64_t *values)
{
	size_t i;

	for (i = 0; i < r->n; i++)
		pt_col_set(r->base + r->at[i].at + off, width, values[r->v[i]]);
}

/* ... by values[its number], which is there. */
static void fill_of(const struct run *r, const struct pt_col_field *f,
		    const uint64_t *values)
{
	switch (f->width) {
	case 8:
		each_of(r, f->off, 8, values);
		break;
	case 4:
		each_of(r, f->off, 4, values);
		break;
	case 2:
		each_of(r, f->off, 2, values);
		break;
	default:
		each_of(r, f->off, 1, values);
	}
}

/* ---- where they lie ------------------------------------------------------------- */

struct part { /* a column, of one field or of several that share a dictionary */
	struct planes planes;
	unsigned field, fields;
	uint32_t n;	  /* of different values; 0: it is no dictionary */
	uint64_t *values; /* n of each field */
};

struct decoder {
	struct pt_col_shape shapes[PT_COL_MAX_SHAPES]; /* first: of its places */
	unsigned n_shapes;
	PT_VEC(struct pt_col_slot) slots;
	uint32_t n;			/* records */
	unsigned char *shape;		/* of each */
	struct place *places;	/* by form, then in their order */
	struct pt_col_field field[PT_COL_MAX_FIELDS]; /* of one form */
	struct part part[PT_COL_MAX_FIELDS];
	unsigned n_parts;
};

/* So many at once: what a field is told from is still near. */
#define RUN 128

struct input {
	const unsigned char *p;
	size_t left;
};

static int get32(struct input *in, uint32_t *v)
{
	if (in->left < 4)
		return -EBADMSG;
	memcpy(v, in->p, 4);
	in->p += 4;
	in->left -= 4;
	return 0;
}

/* A column of n numbers of at most `most` bytes. */
static int get_planes(struct input *in, size_t n, unsigned most,
		      struct planes *c)
{
	unsigned width;

	if (!in->left)
		return -EBADMSG;
	width = *in->p++;
	in->left--;
	if (width > most || (width && in->left / width < n))
		return -EBADMSG;
	*c = (struct planes){ in->p, n, width };
	in->p += n * width;
	in->left -= n * width;
	return 0;
}

static int get_shapes(struct decoder *t, struct input *in)
{
	uint32_t i, x, n;
	int err = get32(in, &n);

	if (!err && n > PT_COL_MAX_SHAPES)
		err = -EBADMSG;
	for (i = 0; !err && i < n; i++) {
		err = get32(in, &x);
		if (err)
			break;
		t->shapes[i].kind = (uint16_t)(x >> 16);
		t->shapes[i].size = (uint16_t)x;
		if (t->shapes[i].size < sizeof(struct pt_hdr) ||
		    t->shapes[i].size > PT_REC_MAX)
			err = -EBADMSG;
	}
	t->n_shapes = err ? 0 : n;
	return err;
}

static int get_slots(struct decoder *t, struct input *in, uint32_t records)
{
	struct pt_col_slot s = { 0 };
	uint32_t i, n;
	int err = get32(in, &n);

	if (!err && n > records)
		err = -EBADMSG;
	for (i = 0; !err && i < n; i++) {
		err = get32(in, &s.tid);
		err = err ? err : get32(in, &s.tgid);
		err = err ? err : get32(in, &s.start);
		err = err ? err : pt_vec_push(&t->slots, s);
	}
	return err;
}

static int get_forms(struct decoder *t, struct input *in)
{
	struct planes c;
	uint32_t i, sum = 0;
	unsigned k;
	int err = get_planes(in, t->n, 1, &c);

	for (i = 0; !err && i < t->n; i++) {
		t->shape[i] = c.width ? c.p[i] : 0;
		if (t->shape[i] >= t->n_shapes)
			return -EBADMSG;
		t->shapes[t->shape[i]].n++;
	}
	for (k = 0; k < t->n_shapes; k++) {
		t->shapes[k].first = t->shapes[k].last = sum;
		sum += t->shapes[k].n;
	}
	return err;
}

/* The places of the records. slot: of each; *size: of all, bytes. */
static int get_places(struct decoder *t, const uint64_t *slot, size_t *size)
{
	size_t at = 0;
	uint32_t i, *last = malloc((t->slots.n * t->n_shapes + 1) * sizeof(*last));
	int err = last ? 0 : -ENOMEM;

	if (last)
		memset(last, 0xff, t->slots.n * t->n_shapes * sizeof(*last));
	for (i = 0; i < t->n && !err; i++) {
		struct pt_col_shape *s = &t->shapes[t->shape[i]];
		struct place *p = &t->places[s->last++];
		uint32_t *prev;

		if (slot[i] >= t->slots.n) {
			err = -EBADMSG;
			break;
		}
		prev = &last[slot[i] * t->n_shapes + t->shape[i]];
		*p = (struct place){ (uint32_t)at, *prev };
		*prev = (uint32_t)at;
		at += s->size;
		if (at > PT_COL_MAX_RAW)
			err = -EBADMSG;
	}
	free(last);
	*size = at;
	return err;
}

/* Forms, threads and times of the records, into their headers. v: room for two
 * numbers per record. The fields, which are all the rest, come later. */
static int get_common(struct decoder *t, struct input *in, uint64_t *v,
		      pt_bytes *out)
{
	uint64_t *slot = v + t->n, last = 0;
	struct planes c;
	unsigned char *p;
	size_t size;
	uint32_t i;
	int err = get_forms(t, in);

	err = err ? err : get_planes(in, t->n, 4, &c);
	if (err)
		return err;
	unpack(&c, 0, t->n, slot);
	err = get_places(t, slot, &size);
	err = err ? err : get_planes(in, t->n, 8, &c);
	if (err || !t->n)
		return err;
	unpack(&c, 0, t->n, v);
	p = pt_bytes_extend(out, size);
	if (!p)
		return -ENOMEM;
	for (i = 0; i < t->n; i++) {
		const struct pt_col_shape *shape = &t->shapes[t->shape[i]];
		const struct pt_col_slot *s = &t->slots.v[slot[i]];
		struct pt_hdr h = { .size = shape->size, .kind = shape->kind,
				    .tid = s->tid, .tgid = s->tgid,
				    .start = s->start };

		last += pt_col_zagzig(v[i]);
		h.ts = last;
		memcpy(p, &h, sizeof(h));
		p += shape->size;
	}
	return 0;
}

static int get_dictionary(const struct pt_col_shape *s, const struct pt_col_field *f,
			  struct input *in, struct part *p)
{
	struct planes c;
	unsigned j;
	int err = get32(in, &p->n);

	if (err)
		return err;
	if (p->n > s->n || (s->n && !p->n))
		return -EBADMSG;
	p->values = malloc(((size_t)p->n * p->fields + 1) * sizeof(*p->values));
	if (!p->values)
		return -ENOMEM;
	for (j = 0; j < p->fields && !err; j++) {
		err = get_planes(in, p->n, f[j].width, &c);
		if (!err)
			unpack(&c, 0, p->n, p->values + (size_t)p->n * j);
	}
	return err ? err : get_planes(in, s->n, 4, &p->planes);
}

/* Where the columns of a form lie. */
static int get_parts(struct decoder *t, const struct pt_col_shape *s,
		     struct input *in)
{
	unsigned n = pt_col_fields(s->kind, s->size, t->field), i;
	int err = 0;

	for (i = 0; i < n && !err;) {
		const struct pt_col_field *f = &t->field[i];
		struct part *p = &t->part[t->n_parts++];

		*p = (struct part){ .field = i, .fields = 1 };
		if (pt_col_is_dict(f)) {
			p->fields = pt_col_together(f, n - i);
			err = get_dictionary(s, f, in, p);
		} else {
			err = get_planes(in, s->n, f->width, &p->planes);
		}
		i += p->fields;
	}
	return err;
}

/* One column, for some records from number `from` of the form on. */
static int fill(const struct decoder *t, const struct part *p,
		const struct run *r, size_t from)
{
	const struct pt_col_field *f = &t->field[p->field];
	size_t i;

	unpack(&p->planes, from, r->n, r->v);
	if (!p->values) {
		fill_field(r, f);
		return 0;
	}
	for (i = 0; i < r->n; i++)
		if (r->v[i] >= p->n)
			return -EBADMSG;
	for (i = 0; i < p->fields; i++)
		fill_of(r, &f[i], p->values + (size_t)p->n * i);
	return 0;
}

static int get_shape(struct decoder *t, const struct pt_col_shape *s,
		     struct input *in, unsigned char *base)
{
	uint64_t v[RUN];
	struct run r = { .base = base, .v = v };
	size_t from;
	unsigned i;
	int err;

	t->n_parts = 0;
	err = get_parts(t, s, in);
	for (from = 0; from < s->n && !err; from += r.n) {
		r.at = t->places + s->first + from;
		r.n = s->n - from < RUN ? s->n - from : RUN;
		for (i = 0; i < t->n_parts && !err; i++)
			err = fill(t, &t->part[i], &r, from);
	}
	for (i = 0; i < t->n_parts; i++)
		free(t->part[i].values);
	return err;
}

int pt_columns_decode(const void *data, size_t len, pt_bytes *out, uint64_t *n)
{
	struct input in = { data, len };
	struct decoder *t = calloc(1, sizeof(*t));
	size_t begin = out->n;
	uint64_t *v = NULL;
	unsigned i;
	int err = t ? get32(&in, &t->n) : -ENOMEM;

	if (!err && t->n > PT_COL_MAX_RAW / sizeof(struct pt_hdr))
		err = -EBADMSG;
	err = err ? err : get_shapes(t, &in);
	err = err ? err : get_slots(t, &in, t->n);
	if (err)
		goto out;
	v = malloc(((size_t)t->n * 2 + 1) * sizeof(*v));
	t->shape = malloc((size_t)t->n + 1);
	t->places = malloc(((size_t)t->n + 1) * sizeof(*t->places));
	err = v && t->shape && t->places ? get_common(t, &in, v, out) : -ENOMEM;
	for (i = 0; !err && i < t->n_shapes; i++)
		err = get_shape(t, &t->shapes[i], &in, out->v + begin);
	if (!err && in.left)
		err = -EBADMSG;
	if (!err)
		*n += t->n;
out:
	if (err)
		out->n = begin;
	free(v);
	if (t) {
		free(t->shape);
		free(t->places);
		pt_vec_free(&t->slots);
	}
	free(t);
	return err;
}
