/* SPDX-License-Identifier: BSD-2-Clause */
/* What the replay's stretches say of the costs of their kinds of operations. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/gpu/replay.h"

/* Where nothing is known yet: of a kernel (any value will do, it is scaled),
 * of a copy (PCI Express 3.0 with 16 lanes), of a memset. */
#define KERNEL_NS 10000.0
#define COPY_START_NS 8000.0
#define COPY_BYTES_PER_NS 12.0
#define SET_START_NS 2000.0
#define SET_BYTES_PER_NS 500.0

/* The time of an operation whose class costs 1. */
double pt_gop_nominal(const struct pt_gop *op)
{
	switch (op->kind) {
	case PT_GOP_COPY:
		return COPY_START_NS + (double)op->bytes / COPY_BYTES_PER_NS;
	case PT_GOP_MEMSET:
		return SET_START_NS + (double)op->bytes / SET_BYTES_PER_NS;
	case PT_GOP_GRAPH:
		return KERNEL_NS * (double)(op->bytes ? op->bytes : 1);
	default:
		return KERNEL_NS;
	}
}

/* Fewer copies that held their caller tell nothing. */
#define COPIES_MIN 5

/* Copies that held their caller took no longer than he was held; those that
 * found their stream empty took just that. */
int pt_replay_time_copies(struct pt_replay *r)
{
	const pt_gops *ops = &r->q->ops;
	pt_doubles v = { 0 };
	size_t i, k;
	int err = 0;

	for (k = 0; k < r->classes.n && !err; k++) {
		struct pt_gclass *c = r->classes.v[k];

		v.n = 0;
		if (c->id[0] != PT_GOP_COPY)
			continue;
		for (i = 0; i + 1 < ops->n && !err; i++) {
			const struct pt_gop *s = &ops->v[i + 1];

			if (ops->v[i].kind == PT_GOP_COPY && r->cls[i] == k &&
			    s->kind == PT_GOP_SYNC && s->blocked &&
			    s->at == ops->v[i].at && s->done > s->at)
				err = pt_vec_push(&v, (double)(s->done - s->at) /
							      pt_gop_nominal(&ops->v[i]));
		}
		if (err || v.n < COPIES_MIN)
			continue;
		pt_vec_sort(&v, pt_by_double);
		if (v.v[v.n / 4] > PT_COPY_SLOWEST)
			continue;
		c->ns[0] = c->ns[1] = c->ns[2] = v.v[v.n / 4];
		c->fixed = true;
	}
	pt_vec_free(&v);
	return err;
}

struct key { /* a sample's time; as a whole number it has the same order */
	uint64_t ns;
	uint32_t at;
};

/* By the byte at `shift`; what is equal stays in its order. False: all are. */
static bool sort_byte(const struct key *from, struct key *to, size_t n,
		      unsigned shift)
{
	size_t at[257] = { 0 }, i;

	for (i = 0; i < n; i++)
		at[(from[i].ns >> shift & 255) + 1]++;
	if (n && at[(from[0].ns >> shift & 255) + 1] == n)
		return false;
	for (i = 1; i < 257; i++)
		at[i] += at[i - 1];
	for (i = 0; i < n; i++)
		to[at[from[i].ns >> shift & 255]++] = from[i];
	return true;
}

/* By class, then by time; those that are equal stay in their order: by bytes, as
 * there are many, and as often as the costs are fitted. */
static int sort_samples(struct pt_replay *r)
{
	size_t n = r->samples.n, classes = r->classes.n, i;
	struct key *k = malloc((2 * n + 1) * sizeof(*k)), *a = k, *b = k + n, *x;
	struct pt_gsample *v = malloc((n + 1) * sizeof(*v));
	size_t *at = calloc(classes + 1, sizeof(*at));
	int err = k && v && at ? 0 : -ENOMEM;
	unsigned shift;

	if (err)
		goto out;
	for (i = 0; i < n; i++) {
		memcpy(&a[i].ns, &r->samples.v[i].ns, sizeof(a[i].ns));
		a[i].at = (uint32_t)i;
		at[r->samples.v[i].cls + 1]++;
	}
	for (shift = 0; shift < 64; shift += 8)
		if (sort_byte(a, b, n, shift)) {
			x = a;
			a = b;
			b = x;
		}
	for (i = 1; i <= classes; i++)
		at[i] += at[i - 1];
	for (i = 0; i < n; i++)
		v[at[r->samples.v[a[i].at].cls]++] = r->samples.v[a[i].at];
	memcpy(r->samples.v, v, n * sizeof(*v));
out:
	free(k);
	free(v);
	free(at);
	return err;
}

/* The value below which a part of the weight lies; sorted. */
static double quantile(const struct pt_gsample *s, size_t n, double part)
{
	double sum = 0, at = 0;
	size_t i;

	for (i = 0; i < n; i++)
		sum += s[i].weight;
	for (i = 0; i < n; i++) {
		at += s[i].weight;
		if (at >= part * sum)
			return s[i].ns;
	}
	return s[n - 1].ns;
}

/* Which part of the samples lies below the cost. A piece of work that is hardly
 * longer than what the host may be told late is seen too long more often than
 * too short, and by much. */
static const double parts[2][PT_REPLAY_NR] = {
	{ [PT_REPLAY_LOW] = 0.25, [PT_REPLAY_MID] = 0.5, [PT_REPLAY_HIGH] = 0.75 },
	{ [PT_REPLAY_LOW] = 0.05, [PT_REPLAY_MID] = 0.5, [PT_REPLAY_HIGH] = 0.75 },
};
#define SHORT_PIECE_NS 500000.0

/* Were most of the samples, by weight, seen in short pieces? */
static bool in_short_pieces(const struct pt_gsample *s, size_t n)
{
	double all = 0, brief = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		all += s[i].weight;
		if (s[i].piece < SHORT_PIECE_NS)
			brief += s[i].weight;
	}
	return brief > all / 2;
}

static double typical(const struct pt_gsample *s, size_t n, enum pt_replay_mode m)
{
	return quantile(s, n, parts[in_short_pieces(s, n)][m]);
}

/* Of so many syncs one that waits does so by accident. */
#define RARE 16

/* What launches cost whose function was seen: the weighted median, by the
 * samples, whose order it changes. */
static int usual(struct pt_replay *r, double *ns)
{
	size_t i, n = 0;

	for (i = 0; i < r->samples.n; i++)
		if (r->classes.v[r->samples.v[i].cls]->id[0] == PT_GOP_LAUNCH &&
		    !r->samples.v[i].less) {
			r->samples.v[n] = r->samples.v[i];
			r->samples.v[n++].cls = 0;
		}
	r->samples.n = n;
	*ns = 1;
	if (!n || RARE * r->ends <= r->quick)
		return 0;
	if (sort_samples(r))
		return -ENOMEM;
	*ns = typical(r->samples.v, n, r->mode);
	return 0;
}

/* Of so many stretches in which a class had ended before a pause, one in which it seems to have
 * lasted until the end says little: in the others it would have, too. */
#define APART 8

static void set_cost(struct pt_replay *r, struct pt_gclass *c, double ns)
{
	r->moved = fmax(r->moved, fabs(ns - c->ns[r->mode]) / fmax(ns, c->ns[r->mode]));
	c->ns[r->mode] = ns;
}

/* A function of which nothing is known is taken to be like the others. */
static int guess_others(struct pt_replay *r)
{
	bool asked = false;
	double other;
	size_t i;

	for (i = 0; i < r->classes.n; i++) {
		struct pt_gclass *c = r->classes.v[i];

		if (c->seen || c->id[0] != PT_GOP_LAUNCH)
			continue;
		if (!asked && usual(r, &other))
			return -ENOMEM;
		asked = true;
		set_cost(r, c, other);
	}
	return 0;
}

/* Of a class' samples, those that show an end to the front; how many. A few ends among
 * many syncs that did not wait, or stretches that were shorter by far, are accidents, of
 * the host or of a hypervisor: then there are none. */
static size_t with_ends(const struct pt_replay *r, struct pt_gsample *s, size_t n)
{
	size_t i, k = 0;

	for (i = 0; i < n; i++)
		if (!s[i].less)
			s[k++] = s[i];
	return 2 * k > n && RARE * r->ends > r->quick ? k : 0;
}

int pt_replay_learn(struct pt_replay *r)
{
	size_t i, k, n;

	r->moved = 0;
	if (r->samples.n && sort_samples(r))
		return -ENOMEM;
	for (i = 0; i < r->samples.n; i = k) {
		struct pt_gclass *c = r->classes.v[r->samples.v[i].cls];

		for (k = i; k < r->samples.n && r->samples.v[k].cls == c->index;)
			k++;
		n = APART * (k - i) < c->apart ? 0 : with_ends(r, r->samples.v + i, k - i);
		c->seen = n > 0;
		if (!n)
			continue;
		set_cost(r, c, typical(r->samples.v + i, n, r->mode));
		if (r->mode == PT_REPLAY_MID)
			c->ns[PT_REPLAY_LOW] = c->ns[PT_REPLAY_HIGH] =
				c->ns[PT_REPLAY_MID];
	}
	return guess_others(r);
}
