/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/acts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/budget.h"
#include "model/internal.h"

#define TS_MAX (1ull << 60)
#define LOST_MAX (1ull << 48)
#define COVERS_MAX 4096 /* each is one use of an agent */

static int feed_cover(struct pt_model *m, struct pt_proc *p,
		      const struct pt_rec_act *r)
{
	struct pt_act_cover c = { r->begin, r->end, r->bytes, r->detail == 1 };
	size_t i;

	if (c.lost > LOST_MAX)
		c.lost = LOST_MAX;
	for (i = p->covers.n; i-- > 0;) {
		struct pt_act_cover *old = &p->covers.v[i];

		if (old->begin != c.begin)
			continue;
		if (c.end > old->end)
			old->end = c.end;
		if (c.lost > old->lost)
			old->lost = c.lost;
		old->whole |= c.whole;
		return 0;
	}
	if (p->covers.n == COVERS_MAX)
		return -EINVAL;
	return pt_held_push(&m->held.tasks, &p->covers, c);
}

int pt_feed_act(struct pt_model *m, const struct pt_rec_act *r)
{
	struct pt_act a = {
		.begin = r->begin, .end = r->end, .bytes = r->bytes,
		.name = r->name, .stream = r->stream,
		.correlation = r->correlation, .graph = r->graph,
		.call = PT_ACT_NO_CALL, .device = (uint16_t)r->device,
		.what = (uint8_t)r->what, .detail = r->detail, .flags = r->flags,
	};
	struct pt_proc *p;

	if (r->begin > r->end || r->end > TS_MAX)
		return -EINVAL;
	if (r->what < PT_ACT_KERNEL || r->what > PT_ACT_LAST)
		return 0; /* of a later version */
	p = pt_proc_make(m, r->hdr.tgid);
	if (!p)
		return -ENOMEM;
	switch (r->what) {
	case PT_ACT_COVER:
		return feed_cover(m, p, r);
	case PT_ACT_OVERHEAD:
	case PT_ACT_SYNC: /* the host's: its calls tell the same */
		return 0;
	}
	if (r->device >= PT_ACT_DEVICES)
		return -EINVAL;
	return pt_held_push(&m->held.time, &p->acts, a);
}

PT_ORDER(by_begin, struct pt_act,
	 pt_cmp(x->begin, y->begin) ?: pt_cmp(x->end, y->end) ?:
	 pt_cmp(x->device, y->device) ?: pt_cmp(x->correlation, y->correlation) ?:
	 pt_cmp(x->stream, y->stream))

PT_ORDER(cover_by_begin, struct pt_act_cover, pt_cmp(x->begin, y->begin))

void pt_settle_acts(struct pt_proc *p)
{
	size_t i;

	pt_vec_sort(&p->covers, cover_by_begin);
	for (i = p->acts_settled ? p->acts_settled : 1; i < p->acts.n; i++)
		if (by_begin(&p->acts.v[i], &p->acts.v[i - 1]) < 0)
			break;
	if (i < p->acts.n)
		pt_vec_sort(&p->acts, by_begin);
	p->acts_settled = p->acts.n;
}

void pt_trim_acts(struct pt_model *m, struct pt_proc *p, uint64_t before)
{
	size_t i, k = p->acts.n;

	for (i = p->acts.n; i-- > 0;) /* those that stay go to the end */
		if (p->acts.v[i].end >= before)
			p->acts.v[--k] = p->acts.v[i];
	pt_held_cut(&m->held.time, &p->acts, k);
	p->acts_settled = p->acts.n;
}

/* ---- which call ------------------------------------------------------------- */

/*
 * CUPTI numbers the calls of the process in the order in which they enter it,
 * and gives no thread. The calls that were seen stand in the same order, but
 * for two that enter within a moment of each other; some put nothing on the
 * device (a copy of no bytes, a launch that failed), some were not seen. So the
 * two rows are laid side by side: a call takes the next number whose work it
 * can be, and that begins behind it.
 */
#define LOOK_AHEAD 64

struct group { /* the activities of one number */
	uint32_t correlation;
	uint64_t begin, bytes;
	uint8_t what;
	bool graph;
};
typedef PT_VEC(struct group) groups;

PT_ORDER(by_number, struct group,
	 pt_cmp(x->correlation, y->correlation) ?: pt_cmp(x->begin, y->begin))

static bool can_be(const struct pt_gpu_call *c, const struct group *g)
{
	if (c->begin > g->begin)
		return false;
	switch (c->cls) {
	case PT_API_LAUNCH:
		return g->what == PT_ACT_KERNEL && !g->graph;
	case PT_API_GRAPH_LAUNCH:
		return g->graph;
	case PT_API_COPY_SYNC:
	case PT_API_COPY_ASYNC:
		return g->what == PT_ACT_COPY && !g->graph &&
		       (!c->v[1] || c->v[1] == g->bytes);
	case PT_API_MEMSET:
		return g->what == PT_ACT_MEMSET && !g->graph;
	default:
		return false;
	}
}

static bool submits(const struct pt_gpu_call *c)
{
	return c->cls == PT_API_LAUNCH || c->cls == PT_API_GRAPH_LAUNCH ||
	       c->cls == PT_API_COPY_SYNC || c->cls == PT_API_COPY_ASYNC ||
	       c->cls == PT_API_MEMSET;
}

static int make_groups(const struct pt_proc *p, groups *out)
{
	size_t i, n = 0;

	pt_each(const struct pt_act, a, &p->acts) {
		struct group g = { a->correlation, a->begin, a->bytes, a->what,
				   a->flags & PT_ACT_F_GRAPH };

		if (a->correlation && pt_vec_push(out, g))
			return -ENOMEM;
	}
	pt_vec_sort(out, by_number);
	for (i = 0; i < out->n; i++)
		if (!n || out->v[n - 1].correlation != out->v[i].correlation)
			out->v[n++] = out->v[i];
	out->n = n;
	return 0;
}

/* The call of a number, found by halves. */
static uint32_t call_of(const groups *g, const uint32_t *calls, uint32_t number)
{
	size_t lo = pt_bisect(g->n, i, g->v[i].correlation < number);

	return lo < g->n && g->v[lo].correlation == number ? calls[lo] :
							     PT_ACT_NO_CALL;
}

void pt_join_acts(struct pt_proc *p)
{
	groups g = { 0 };
	uint32_t *calls = NULL;
	size_t i, k = 0, from;

	if (!p->acts.n || !p->covers.n || make_groups(p, &g) || !g.n)
		goto out;
	calls = malloc(g.n * sizeof(*calls));
	if (!calls)
		goto out; /* they go without a call */
	/* numbers were given while the agent was there */
	from = pt_gpu_after(p, p->covers.v[0].begin);
	for (i = 0; i < g.n; i++) {
		size_t j, seen = 0;

		calls[i] = PT_ACT_NO_CALL;
		if (k < from)
			k = from;
		for (j = k; j < p->gpu.n && seen < LOOK_AHEAD; j++) {
			const struct pt_gpu_call *c = &p->gpu.v[j];

			if (!submits(c))
				continue;
			seen++;
			if (!can_be(c, &g.v[i]))
				continue;
			calls[i] = (uint32_t)j;
			k = j + 1;
			break;
		}
	}
	for (i = 0; i < p->acts.n; i++)
		p->acts.v[i].call = call_of(&g, calls, p->acts.v[i].correlation);
out:
	free(calls);
	pt_vec_free(&g);
}

uint32_t pt_act_tid(const struct pt_proc *p, const struct pt_act *a)
{
	return a->call < p->gpu.n ? p->gpu.v[a->call].tid : 0;
}

/* ---- sums -------------------------------------------------------------------- */

bool pt_name_is_collective(const char *name)
{
	if (!name)
		return false;
	if (!strncmp(name, "_Z", 2)) /* mangled: the length stands before */
		for (name += 2; *name == 'N' || *name == 'L' ||
				(*name >= '0' && *name <= '9'); name++)
			;
	/* ncclKernel_..., ncclDevKernel_..., ncclSymDevKernel_... of both */
	return !strncmp(name, "nccl", 4) || !strncmp(name, "rccl", 4) ||
	       !strncmp(name, "mscclKernel", 11);
}
