/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "capture/entry_int.h"

#define MAX_AROUND 4096	     /* instructions elsewhere that it jumps to */
#define MAX_JUMPS 64	     /* ... and places */
#define PIECE 512

struct pt_decoder *pt_decoder_for(const struct pt_insns *of)
{
	struct pt_decoder *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->of = of;
	if (of->open(d))
		return d;
	pt_decoder_free(d);
	return NULL;
}

struct pt_decoder *pt_decoder_new(void)
{
#ifdef __aarch64__
	return pt_decoder_for(&pt_insns_arm64);
#else
	return pt_decoder_for(&pt_insns_x86);
#endif
}

void pt_decoder_free(struct pt_decoder *d)
{
	if (d)
		d->of->close(d);
	free(d);
}

/* ---- the function -------------------------------------------------------------- */

struct around {
	const struct pt_entry_code *c;
	uint64_t place; /* (c->at, place]: nobody may jump there */
	uint64_t jump[MAX_JUMPS]; /* places outside, that the function goes to */
	unsigned n, left;
};

static bool is_inside(const struct around *a, uint64_t at)
{
	return at - a->c->at < a->c->size;
}

static bool is_forbidden(const struct around *a, uint64_t at)
{
	return at - a->c->at - 1 < a->place - a->c->at;
}

/* False: it may come back into the run. */
static bool note_jump(struct pt_decoder *d, struct around *a)
{
	uint64_t to = d->now.to;
	unsigned k;

	switch (d->now.jump) {
	case PT_JUMP_UNKNOWN:
		return false;
	case PT_JUMP_NONE:
	case PT_JUMP_AWAY:
		return true;
	case PT_JUMP_KNOWN:
		break;
	}
	if (is_forbidden(a, to))
		return false;
	if (d->now.calls || is_inside(a, to))
		return true;
	for (k = 0; k < a->n; k++)
		if (a->jump[k] == to)
			return true;
	if (a->n == MAX_JUMPS)
		return false;
	a->jump[a->n++] = to;
	return true;
}

/* All of the function's own instructions, those too that only an exception or a table
 * leads to: to its very end, or it is not what the file says. */
static bool look_inside(struct pt_decoder *d, struct around *a)
{
	const uint8_t *p = d->code;
	uint64_t at = a->c->at;
	size_t len = (size_t)a->c->size;

	if (a->c->get(a->c->ctx, at, d->code, len) != len)
		return false;
	while (d->of->next(d, &p, &len, &at))
		if (!note_jump(d, a))
			return false;
	return !len;
}

/* What it jumps to elsewhere (cold parts, other functions that end in it), as far as
 * it goes on from there without a return. */
static bool look_at(struct pt_decoder *d, struct around *a, uint64_t at)
{
	uint8_t buf[PIECE];
	const uint8_t *p;
	uint64_t begin;
	size_t len;

	for (;;) {
		p = buf;
		begin = at;
		len = a->c->get(a->c->ctx, at, buf, sizeof(buf));
		while (d->of->next(d, &p, &len, &at)) {
			if (!a->left-- || !note_jump(d, a) || is_forbidden(a, at))
				return false;
			if (d->now.ends || is_inside(a, at))
				return true;
		}
		if (at == begin)
			return false;
	}
}

/* Does each call pass the place once, and only after the entry? */
static bool is_passed_once(struct pt_decoder *d, const struct pt_entry_code *c, unsigned skip)
{
	struct around a = { .c = c, .place = c->at + skip, .left = MAX_AROUND };
	unsigned i;

	if (c->size <= skip || c->size > PT_ENTRY_CODE || !look_inside(d, &a))
		return false;
	for (i = 0; i < a.n; i++)
		if (!look_at(d, &a, a.jump[i]))
			return false;
	return true;
}

struct pt_entry_place pt_entry_place(struct pt_decoder *d, const struct pt_entry_code *c,
				     struct pt_entry_use use)
{
	struct pt_entry_place entry = { .stepped = 1 }, later = { 0 };
	uint8_t run[PT_ENTRY_RUN];
	const uint8_t *p = run;
	uint64_t at = c->at, begin = at;
	size_t len = c->get(c->ctx, at, run, sizeof(run));

	while (d->of->next(d, &p, &len, &at)) {
		if (begin == c->at && d->now.emulated)
			entry.stepped = 0;
		if (d->now.cheap) {
			later.skip = (uint8_t)(begin - c->at);
			break;
		}
		if (!d->of->is_harmless(d, use))
			return entry;
		begin = at;
	}
	return later.skip && is_passed_once(d, c, later.skip) ? later : entry;
}
