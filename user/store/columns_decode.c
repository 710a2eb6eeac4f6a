// SPDX-License-Identifier: BSD-2-Clause
/* Whoever made the columns is not trusted. */
#include <errno.h>
#include <stdlib.h>

#include "store/columns_table.h"

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

/* Numbers of at most `most` bytes. */
static int get_planes(struct input *in, uint64_t *v, size_t n, unsigned most)
{
	unsigned width, w;
	size_t i;

	if (!in->left)
		return -EBADMSG;
	width = *in->p++;
	in->left--;
	if (width > most || (width && in->left / width < n))
		return -EBADMSG;
	memset(v, 0, n * sizeof(*v));
	for (w = 0; w < width; w++)
		for (i = 0; i < n; i++)
			v[i] |= (uint64_t)*in->p++ << (8 * w);
	in->left -= n * width;
	return 0;
}

/* Indices into a dictionary of `n` fields; set them in every record. */
static int get_dictionary(const struct pt_col_table *t, const struct pt_col_shape *s,
			  const struct pt_col_field *f, unsigned n,
			  struct input *in, uint64_t *v, unsigned char *base)
{
	uint64_t *values = NULL;
	uint32_t m, i, k;
	unsigned j;
	int err = get32(in, &m);

	if (err)
		return err;
	if (m > s->n)
		return -EBADMSG;
	values = malloc(((size_t)m * n + 1) * sizeof(*values));
	if (!values)
		return -ENOMEM;
	for (j = 0; j < n && !err; j++)
		err = get_planes(in, values + (size_t)m * j, m, f[j].width);
	err = err ? err : get_planes(in, v, s->n, 4);
	for (k = 0; k < s->n && !err; k++)
		if (v[k] >= m)
			err = -EBADMSG;
	for (i = s->first, k = 0; i && !err; i = t->recs.v[i - 1].next, k++)
		for (j = 0; j < n; j++)
			pt_col_set(base + t->recs.v[i - 1].at + f[j].off,
				   f[j].width,
				   values[(size_t)m * j + v[k]]);
	free(values);
	return err;
}

static int get_shapes(struct pt_col_table *t, struct input *in)
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

static int get_slots(struct pt_col_table *t, struct input *in, uint32_t records)
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

/* Forms and threads of the records, which gives their places; then their
 * times. v and shapes: room for a number and a byte per record. */
static int get_common(struct pt_col_table *t, struct input *in, uint32_t n,
		      uint64_t *v, unsigned char *shapes, pt_bytes *out)
{
	size_t at = 0;
	uint32_t i;
	unsigned char *base;
	uint64_t last = 0;
	int err = get_planes(in, v, n, 1);

	for (i = 0; !err && i < n; i++) {
		if (v[i] >= t->n_shapes)
			return -EBADMSG;
		shapes[i] = (unsigned char)v[i];
	}
	err = err ? err : get_planes(in, v, n, 4);
	for (i = 0; !err && i < n; i++) {
		if (v[i] >= t->slots.n)
			return -EBADMSG;
		err = pt_col_table_add(t, (uint32_t)at, shapes[i], (uint32_t)v[i]);
		at += t->shapes[shapes[i]].size;
		if (at > PT_COL_MAX_RAW)
			return -EBADMSG;
	}
	err = err ? err : get_planes(in, v, n, 8);
	if (err || !n)
		return err;
	base = pt_col_extend(out, at);
	if (!base)
		return -ENOMEM;
	memset(base, 0, at);
	for (i = 0; i < n; i++) {
		const struct pt_col_rec *r = &t->recs.v[i];
		const struct pt_col_slot *s = &t->slots.v[r->slot];
		struct pt_hdr h = { .size = t->shapes[r->shape].size,
				    .kind = t->shapes[r->shape].kind,
				    .tid = s->tid, .tgid = s->tgid,
				    .start = s->start };

		last += pt_col_zagzig(v[i]);
		h.ts = last;
		memcpy(base + r->at, &h, sizeof(h));
	}
	return 0;
}

static int get_field(const struct pt_col_table *t, const struct pt_col_shape *s,
		     const struct pt_col_field *f, struct input *in,
		     uint64_t *v, unsigned char *base)
{
	uint32_t i, k = 0;
	int err = get_planes(in, v, s->n, f->width);

	for (i = s->first; i && !err; i = t->recs.v[i - 1].next) {
		const struct pt_col_rec *r = &t->recs.v[i - 1];
		unsigned char *p = base + r->at;

		pt_col_set(p + f->off, f->width,
			   pt_col_value(f, v[k++], p, pt_col_prev(t, r, base)));
	}
	return err;
}

static int get_shape(const struct pt_col_table *t, const struct pt_col_shape *s,
		     struct input *in, uint64_t *v, unsigned char *base)
{
	struct pt_col_field f[PT_COL_MAX_FIELDS];
	unsigned n = pt_col_fields(s->kind, s->size, f), i, k;
	int err = 0;

	for (i = 0; i < n && !err; i += k) {
		k = 1;
		if (pt_col_is_dict(&f[i])) {
			k = pt_col_together(f + i, n - i);
			err = get_dictionary(t, s, f + i, k, in, v, base);
		} else {
			err = get_field(t, s, f + i, in, v, base);
		}
	}
	return err;
}

int pt_columns_decode(const void *data, size_t len, pt_bytes *out, uint64_t *n)
{
	struct input in = { data, len };
	struct pt_col_table t = { 0 };
	unsigned char *shapes = NULL;
	size_t begin = out->n;
	uint64_t *v = NULL;
	uint32_t count = 0;
	unsigned i;
	int err = get32(&in, &count);

	if (!err && count > PT_COL_MAX_RAW / sizeof(struct pt_hdr))
		err = -EBADMSG;
	err = err ? err : get_shapes(&t, &in);
	err = err ? err : get_slots(&t, &in, count);
	if (err)
		goto out;
	v = malloc(((size_t)count + 1) * sizeof(*v));
	shapes = malloc((size_t)count + 1);
	err = v && shapes ? get_common(&t, &in, count, v, shapes, out) : -ENOMEM;
	for (i = 0; i < t.n_shapes && !err; i++)
		err = get_shape(&t, &t.shapes[i], &in, v, out->v + begin);
	if (!err && in.left)
		err = -EBADMSG;
	if (!err)
		*n += count;
out:
	if (err)
		out->n = begin;
	free(v);
	free(shapes);
	pt_col_table_free(&t);
	return err;
}
