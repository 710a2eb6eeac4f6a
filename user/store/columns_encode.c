// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "store/columns_int.h"

/* ---- the records of a block, linked by form and by thread ----------------------- */

struct rec {
	uint32_t at;   /* offset in the records */
	uint32_t slot; /* which thread */
	uint32_t next; /* of this form; index + 1; 0 none */
	uint32_t prev; /* of this form and thread; index + 1; 0 none */
	uint8_t shape;
};

struct table {
	struct pt_col_shape shapes[PT_COL_MAX_SHAPES];
	unsigned n_shapes;
	PT_VEC(struct rec) recs;
	PT_VEC(struct pt_col_slot) slots;
	PT_VEC(uint32_t) lasts; /* per slot and shape: index + 1 */
};

static const unsigned char nothing[PT_REC_MAX];

static void table_free(struct table *t)
{
	pt_vec_free(&t->recs);
	pt_vec_free(&t->slots);
	pt_vec_free(&t->lasts);
}

/* Links the record at offset `at` into its form's and its thread's rows. 0 or
 * -ENOMEM. */
static int table_add(struct table *t, uint32_t at, unsigned shape, uint32_t slot)
{
	struct rec r = { .at = at, .slot = slot, .shape = (uint8_t)shape };
	struct pt_col_shape *s = &t->shapes[shape];
	uint32_t id = (uint32_t)t->recs.n + 1;

	while (t->lasts.n < ((size_t)slot + 1) * PT_COL_MAX_SHAPES)
		if (pt_vec_push(&t->lasts, 0))
			return -ENOMEM;
	r.prev = t->lasts.v[slot * PT_COL_MAX_SHAPES + shape];
	if (pt_vec_push(&t->recs, r))
		return -ENOMEM;
	t->lasts.v[slot * PT_COL_MAX_SHAPES + shape] = id;
	if (s->last)
		t->recs.v[s->last - 1].next = id;
	else
		s->first = id;
	s->last = id;
	s->n++;
	return 0;
}

/* The last record of this form and thread before `r`; zeros: none. */
static const unsigned char *prev_of(const struct table *t, const struct rec *r,
				    const unsigned char *base)
{
	return r->prev ? base + t->recs.v[r->prev - 1].at : nothing;
}

/* ---- their columns -------------------------------------------------------------- */

struct slot_key {
	struct pt_col_slot s; /* the hash's key: no padding is left unset */
	uint32_t index;
	UT_hash_handle hh;
};

static int put32(pt_bytes *b, uint32_t v)
{
	unsigned char *p = pt_bytes_extend(b, 4);

	if (!p)
		return -ENOMEM;
	memcpy(p, &v, 4);
	return 0;
}

/* n numbers: how many bytes the largest needs, then as many planes: all
 * lowest bytes, all second ones, ... */
static int put_planes(pt_bytes *b, const uint64_t *v, size_t n)
{
	unsigned width = 0, w;
	uint64_t all = 0;
	unsigned char *p;
	size_t i;

	for (i = 0; i < n; i++)
		all |= v[i];
	while (width < 8 && all >> (8 * width))
		width++;
	p = pt_bytes_extend(b, 1 + n * width);
	if (!p)
		return -ENOMEM;
	*p++ = (unsigned char)width;
	for (w = 0; w < width; w++)
		for (i = 0; i < n; i++)
			*p++ = (unsigned char)(v[i] >> (8 * w));
	return 0;
}

static int shape_of(struct table *t, uint16_t kind, uint16_t size)
{
	unsigned i;

	for (i = 0; i < t->n_shapes; i++)
		if (t->shapes[i].kind == kind && t->shapes[i].size == size)
			return (int)i;
	if (i == PT_COL_MAX_SHAPES)
		return -EINVAL;
	t->shapes[i].kind = kind;
	t->shapes[i].size = size;
	t->n_shapes++;
	return (int)i;
}

static int slot_of(struct table *t, struct slot_key **all,
		   const struct pt_hdr *h, uint32_t *index)
{
	struct pt_col_slot s = { h->tid, h->tgid, h->start, 0 };
	struct slot_key *k = pt_hash_make(*all, s, &s);
	int err = k ? 0 : -ENOMEM;

	if (!err && HASH_COUNT(*all) > t->slots.n) { /* a new one */
		k->index = (uint32_t)t->slots.n;
		err = pt_vec_push(&t->slots, s);
	}
	if (!err)
		*index = k->index;
	return err;
}

static int scan(struct table *t, const unsigned char *raw, size_t len)
{
	struct slot_key *all = NULL;
	struct pt_hdr h;
	size_t at = 0;
	uint32_t slot;
	int shape = 0, err = 0;

	while (at < len && !err) {
		err = -EINVAL;
		if (!pt_rec_head(raw + at, len - at, &h))
			break;
		shape = shape_of(t, h.kind, h.size);
		if (shape < 0)
			break;
		err = slot_of(t, &all, &h, &slot);
		err = err ?: table_add(t, (uint32_t)at, (unsigned)shape, slot);
		at += h.size;
	}
	pt_hash_free(all);
	return err;
}

struct entry { /* of a dictionary: the values of its fields */
	uint64_t v[PT_COL_TOGETHER];
	uint32_t index;
	UT_hash_handle hh;
};

struct dictionary {
	struct entry *all; /* the hash */
	struct entry *store;
	uint32_t n;
};

static int dictionary_add(struct dictionary *d, const uint64_t *v, size_t size,
			  uint64_t *index)
{
	struct entry *e;

	HASH_FIND(hh, d->all, v, size, e);
	if (!e) {
		e = &d->store[d->n];
		memcpy(e->v, v, size);
		e->index = d->n++;
		HASH_ADD(hh, d->all, v, size, e);
		if (!PT_HASHED(e))
			return -ENOMEM;
	}
	*index = e->index;
	return 0;
}

/* The values of `n` fields as one index among the different ones, which go
 * before, in the order of their coming. v: room for a number per record. */
static int put_dictionary(const struct table *t, const struct pt_col_shape *s,
			  const struct pt_col_field *f, unsigned n,
			  const unsigned char *raw, uint64_t *v, pt_bytes *out)
{
	struct dictionary d = { .store = calloc(s->n, sizeof(*d.store)) };
	uint64_t *column = malloc(s->n * sizeof(*column));
	uint64_t x[PT_COL_TOGETHER];
	uint32_t i, k = 0;
	unsigned j;
	int err = d.store && column ? 0 : -ENOMEM;

	for (i = s->first; i && !err; i = t->recs.v[i - 1].next) {
		const unsigned char *p = raw + t->recs.v[i - 1].at;

		for (j = 0; j < n; j++)
			x[j] = pt_col_get(p + f[j].off, f[j].width);
		err = dictionary_add(&d, x, n * sizeof(*x), &v[k++]);
	}
	HASH_CLEAR(hh, d.all);
	err = err ? err : put32(out, d.n);
	for (j = 0; j < n && !err; j++) {
		for (i = 0; i < d.n; i++)
			column[i] = d.store[i].v[j];
		err = put_planes(out, column, d.n);
	}
	err = err ? err : put_planes(out, v, k);
	free(column);
	free(d.store);
	return err;
}

static int put_field(const struct table *t, const struct pt_col_shape *s,
		     const struct pt_col_field *f, const unsigned char *raw,
		     uint64_t *v, pt_bytes *out)
{
	uint32_t i, k = 0;

	for (i = s->first; i; i = t->recs.v[i - 1].next) {
		const struct rec *r = &t->recs.v[i - 1];
		const unsigned char *p = raw + r->at;

		v[k++] = pt_col_code(f, pt_col_get(p + f->off, f->width), p,
				     prev_of(t, r, raw));
	}
	return put_planes(out, v, k);
}

static int put_shape(const struct table *t, const struct pt_col_shape *s,
		     const unsigned char *raw, uint64_t *v, pt_bytes *out)
{
	struct pt_col_field f[PT_COL_MAX_FIELDS];
	unsigned n = pt_col_fields(s->kind, s->size, f), i, k;
	int err = 0;

	for (i = 0; i < n && !err; i += k) {
		k = 1;
		if (pt_col_is_dict(&f[i])) {
			k = pt_col_together(f + i, n - i);
			err = put_dictionary(t, s, f + i, k, raw, v, out);
		} else {
			err = put_field(t, s, f + i, raw, v, out);
		}
	}
	return err;
}

/* What all records have: their form, their thread, their time. */
static int put_common(const struct table *t, const unsigned char *raw,
		      uint64_t *v, pt_bytes *out)
{
	size_t n = t->recs.n, i;
	uint64_t last = 0, ts;
	int err = put32(out, (uint32_t)n);

	err = err ? err : put32(out, t->n_shapes);
	for (i = 0; i < t->n_shapes && !err; i++)
		err = put32(out, (uint32_t)t->shapes[i].kind << 16 |
				 t->shapes[i].size);
	err = err ? err : put32(out, (uint32_t)t->slots.n);
	for (i = 0; i < t->slots.n && !err; i++) {
		err = put32(out, t->slots.v[i].tid);
		err = err ? err : put32(out, t->slots.v[i].tgid);
		err = err ? err : put32(out, t->slots.v[i].start);
	}
	for (i = 0; i < n; i++)
		v[i] = t->recs.v[i].shape;
	err = err ? err : put_planes(out, v, n);
	for (i = 0; i < n; i++)
		v[i] = t->recs.v[i].slot;
	err = err ? err : put_planes(out, v, n);
	for (i = 0; i < n; i++) {
		ts = pt_col_get(raw + t->recs.v[i].at +
				offsetof(struct pt_hdr, ts), 8);
		v[i] = pt_col_zigzag(ts - last);
		last = ts;
	}
	return err ? err : put_planes(out, v, n);
}

int pt_columns_encode(const void *raw, size_t len, pt_bytes *out)
{
	struct table t = { 0 };
	uint64_t *v = NULL;
	unsigned i;
	int err = len > PT_COL_MAX_RAW ? -EINVAL : scan(&t, raw, len);

	if (err)
		goto out;
	v = calloc(t.recs.n + 1, sizeof(*v));
	err = v ? put_common(&t, raw, v, out) : -ENOMEM;
	for (i = 0; i < t.n_shapes && !err; i++)
		err = put_shape(&t, &t.shapes[i], raw, v, out);
out:
	free(v);
	table_free(&t);
	return err;
}
