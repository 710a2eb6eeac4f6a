/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Obtainings that feed one update together. A loop that draws from two loaders
 * may copy what the first gave before it asks the second: the GPU calls then
 * show two gaps with a batch in them, but one period. With gradient
 * accumulation, where each batch is computed on at once, each is a step.
 *
 * What tells them apart is the GPU work behind each gap: next to none (copies,
 * perhaps a kernel that converts them) or an update's worth. Different call
 * sites are counted, not calls: an optimizer may launch far more kernels than
 * the forward and backward pass of one micro-batch, but few different ones.
 *
 * Where nothing at all is launched behind a gap, the parts of one batch are copied one by
 * one: a graph, its edges, its labels.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/internal.h"

/* A stretch of GPU work with at most a quarter of the call sites that a full
 * step has is no step. A forward pass alone, as in a validation, has a third
 * or more. */
#define LIGHT_PART 4
#define KINDS_MAX 16 /* of gaps with a batch; more do not come in turn */

struct turn { /* one kind of gap */
	uint64_t kind, then; /* then: the kind that follows */
	size_t n, light;
};

static struct turn *turn_of(struct turn *v, size_t *n, uint64_t kind)
{
	size_t i;

	for (i = 0; i < *n; i++)
		if (v[i].kind == kind)
			return &v[i];
	if (*n == KINDS_MAX)
		return NULL;
	v[*n] = (struct turn){ .kind = kind };
	return &v[(*n)++];
}

PT_ORDER(cmp_size, size_t, pt_cmp(*x, *y))

/* Count, per kind of gap, how often it is followed by little work and then by
 * a gap of another kind. `sites` of every step but the last. */
static size_t count_turns(const struct pt_trainer *t, const size_t *sites,
			  size_t full, struct turn *v)
{
	size_t i, n = 0;

	for (i = 0; i + 1 < t->steps.n; i++) {
		const struct pt_step *s = &t->steps.v[i];
		struct turn *k;

		if (s->partial)
			continue;
		k = turn_of(v, &n, s->kind);
		if (!k)
			continue;
		k->n++;
		k->then = s[1].kind;
		k->light += sites[i] * LIGHT_PART <= full &&
			    s[1].kind != s->kind;
	}
	return n;
}

/* Is what `s` obtained used only together with what `next` does? The kind of a
 * gap that the capture's begin cut is known by what follows it. */
static bool is_light(const struct turn *v, size_t n, const struct pt_step *s,
		     const struct pt_step *next)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (s->partial ? v[i].then == next->kind : v[i].kind == s->kind)
			if (v[i].n >= 3 && v[i].light * 10 >= v[i].n * 9)
				return next->kind != s->kind;
	return false;
}

/* `b` follows `a`: its waits are next to those of `a`. made: somebody makes batches. */
static void join(struct pt_step *a, const struct pt_step *b, bool made)
{
	if (!a->n_waits)
		a->wait_begin = b->wait_begin;
	a->n_waits += b->n_waits;
	a->wait_end = b->wait_end;
	a->wait_ns += b->wait_ns;
	/* a part of a batch is none of its own */
	a->batches += made || a->launches ? b->batches : 0;
	a->launches |= b->launches;
	a->kind = b->kind; /* for a third one */
	a->asks += b->asks;
	a->started |= b->started;
	a->burst |= b->burst;
	a->partial |= b->partial;
}

static bool sees_launches(const struct pt_trainer *t)
{
	size_t i;

	for (i = 0; i < t->steps.n; i++)
		if (t->steps.v[i].launches)
			return true;
	return false;
}

/* It is a part of the next one: what that began with came from nobody. */
static bool is_bare(const struct pt_trainer *t, const struct pt_step *s,
		    const struct pt_step *next)
{
	size_t i;

	if (s->launches || s->partial || next->partial || next->asks)
		return false;
	for (i = next->wait0; i < next->wait0 + next->n_waits; i++)
		if (t->waits.v[i].blocked_ns)
			return false;
	return true;
}

int pt_join_steps(struct pt_trainer *t)
{
	struct turn v[KINDS_MAX];
	size_t *sites = malloc((2 * t->steps.n + 1) * sizeof(*sites));
	struct pt_sites room = { .n = 0 };
	size_t i, kinds = 0, full, n = t->steps.n, k = 0;
	bool sees = sees_launches(t);

	if (!sites)
		return -ENOMEM;
	if (n < 2)
		goto out;
	for (i = 0; i + 1 < n; i++) {
		pt_shape_of(t->proc, t->steps.v[i].wait_end, t->steps.v[i + 1].begin, &room);
		sites[i] = sites[n + i] = room.n;
	}
	qsort(sites + n, n - 1, sizeof(*sites), cmp_size);
	full = sites[n + (n - 1) * 9 / 10];
	if (full) /* else most of them are copies alone */
		kinds = count_turns(t, sites, full, v);
	for (i = 1; i < n; i++) {
		struct pt_step *s = &t->steps.v[k];

		if ((sees && is_bare(t, s, &t->steps.v[i])) ||
		    (kinds && sites[i - 1] * LIGHT_PART <= full &&
		     is_light(v, kinds, s, &t->steps.v[i])))
			join(s, &t->steps.v[i], t->workers.n);
		else
			t->steps.v[++k] = t->steps.v[i];
	}
	t->steps.n = k + 1;
out:
	free(sites);
	return 0;
}
