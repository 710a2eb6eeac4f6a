/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What kind of step each step is, by the set of call sites in it. With
 * gradient accumulation most steps share one shape, and every N-th has the
 * optimizer's call sites on top.
 */
#include "analysis/internal.h"

/* Spread the bits, so that a sum over a set is as good as the set
 * (the finalizer of MurmurHash3, public domain, by Austin Appleby). */
static uint64_t scramble(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ (x >> 33);
}

/* FNV-1a over the parts that tell one call site from another; high bytes that are 0,
 * as most are, at once. */
#define FNV 0x100000001b3ull
static uint64_t mix(uint64_t h, uint64_t v)
{
	static const uint64_t zeros[] = { 1, FNV, FNV * FNV, FNV * FNV * FNV,
		FNV * FNV * FNV * FNV, FNV * FNV * FNV * FNV * FNV,
		FNV * FNV * FNV * FNV * FNV * FNV,
		FNV * FNV * FNV * FNV * FNV * FNV * FNV,
		FNV * FNV * FNV * FNV * FNV * FNV * FNV * FNV };
	int left;

	for (left = 8; v; left--, v >>= 8)
		h = (h ^ (v & 0xff)) * FNV;
	return h * zeros[left];
}

uint64_t pt_call_site(const struct pt_gpu_call *c)
{
	uint64_t h = mix(0xcbf29ce484222325ull, c->api);

	if (pt_call_is_launch(c))
		h = mix(h, c->v[0]);
	else if (pt_call_is_copy(c))
		h = mix(h, 2 * c->v[2] + pt_brings_results(c));
	return h;
}

/* Where it is, or the free slot in which it would be: there always is one. */
static size_t slot_of(const struct pt_sites *s, uint64_t site)
{
	size_t i = scramble(site) % PT_SITE_SLOTS;

	while (s->slot[i] && s->slot[i] != site)
		i = (i + 1) % PT_SITE_SLOTS;
	return i;
}

bool pt_sites_have(const struct pt_sites *s, uint64_t site)
{
	return s->slot[slot_of(s, site)] != 0;
}

uint64_t pt_shape_of(const struct pt_proc *p, uint64_t b, uint64_t e, struct pt_sites *s)
{
	uint64_t shape = 0, last = 0;

	while (s->n)
		s->slot[s->used[--s->n]] = 0;
	pt_each_call(c, p, b, e) {
		uint64_t site;
		size_t i;

		if (!pt_call_is_launch(c))
			continue;
		site = pt_call_site(c);
		if (site == last) /* as in a loop of one kernel */
			continue;
		last = site;
		i = slot_of(s, site);
		if (s->slot[i])
			continue;
		if (s->n == PT_MAX_SITES)
			break;
		s->slot[i] = site;
		s->used[s->n++] = (uint16_t)i;
		shape += scramble(site);
	}
	return shape;
}

/* The shape that most whole steps have, and how many have it. */
static size_t commonest(const struct pt_trainer *t, uint64_t not_this, bool any,
			uint64_t *shape)
{
	size_t best = 0, i, j, n, looked = 0;

	for (i = 0; i < t->steps.n && looked < 64; i++) {
		const struct pt_step *s = &t->steps.v[i];

		if (s->partial || (!any && s->shape == not_this))
			continue;
		looked++;
		for (j = 0, n = 0; j < t->steps.n; j++)
			n += !t->steps.v[j].partial &&
			     t->steps.v[j].shape == s->shape;
		if (n > best) {
			best = n;
			*shape = s->shape;
		}
	}
	return best;
}

/* Steps of shape `rare`, if they come at one constant distance; else -1. */
static int64_t periodic(const struct pt_trainer *t, uint64_t rare)
{
	size_t last = 0, gap = 0, i;
	int64_t n = 0;

	for (i = 0; i < t->steps.n; i++) {
		if (t->steps.v[i].partial || t->steps.v[i].shape != rare)
			continue;
		if (n == 1)
			gap = i - last;
		else if (n > 1 && i - last != gap)
			return -1;
		last = i;
		n++;
	}
	return n >= 3 ? n : -1;
}

size_t pt_sites_of_shape(const struct pt_trainer *t, uint64_t shape, struct pt_sites *out)
{
	pt_each(const struct pt_step, s, &t->steps) {
		if (s->partial || s->shape != shape)
			continue;
		pt_shape_of(t->proc, s->wait_end, s->end, out);
		return out->n;
	}
	return 0;
}

static int64_t count_optimizer(struct pt_trainer *t, size_t whole)
{
	uint64_t common = 0, rare = 0;
	struct pt_sites room = { .n = 0 };
	size_t nc, nr;
	int64_t n;

	if (whole < 4)
		return PT_NULL;
	nc = commonest(t, 0, true, &common);
	t->micro_shape = t->update_shape = common;
	if (nc * 100 >= whole * 98)
		return (int64_t)t->steps.n; /* all alike: one update each */
	nr = commonest(t, common, false, &rare);
	if ((nc + nr) * 100 < whole * 95)
		return PT_NULL;
	/* an accumulation by two may have more whole steps of those that update */
	if (pt_sites_of_shape(t, rare, &room) < pt_sites_of_shape(t, common, &room)) {
		t->micro_shape = rare;
		rare = common;
	}
	n = periodic(t, rare);
	if (n < 0) {
		t->micro_shape = common;
		return PT_NULL;
	}
	t->update_shape = rare;
	return n;
}

void pt_shape_steps(struct pt_trainer *t)
{
	struct pt_sites sites = { .n = 0 };
	size_t whole = 0;

	pt_each(struct pt_step, s, &t->steps) {
		s->shape = pt_shape_of(t->proc, s->wait_end, s->end, &sites);
		whole += !s->partial;
	}
	t->optimizer_steps = count_optimizer(t, whole);
}
