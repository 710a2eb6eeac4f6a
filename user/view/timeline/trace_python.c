// SPDX-License-Identifier: BSD-2-Clause
/*
 * A thread's stacks of Python: a slice for each line that it was in, callers around those
 * that they called. A look counts until the next one, so that the ends of slices lie up to
 * so much from where they were.
 */
#include <errno.h>

#include "base/vec.h"
#include "view/timeline/trace_int.h"

#define DEPTH 128		/* the outermost functions of a stack */
#define APART_NS 2000000000ull /* longer without a look, and nobody knows */

struct slice {
	uint64_t begin, end;
	uint32_t stack;
};

struct python {
	PT_VEC(struct slice) v; /* by begin, callers first */
	size_t open[DEPTH];	/* of v, the outermost first */
	size_t n;
};

static void close_to(struct python *p, size_t depth, uint64_t ts)
{
	while (p->n > depth)
		p->v.v[p->open[--p->n]].end = ts;
}

/* From `ts` on this is its stack. */
static int enter(struct python *p, const struct pt_model *m, uint32_t stack, uint64_t ts)
{
	uint32_t id[PT_STACK_DEPTH];
	size_t n = pt_model_unfold(m, stack, id), depth = n < DEPTH ? n : DEPTH, same = 0;

	while (same < p->n && same < depth && p->v.v[p->open[same]].stack == id[n - 1 - same])
		same++;
	close_to(p, same, ts);
	for (; p->n < depth; p->n++) {
		const struct slice s = { ts, ts, id[n - 1 - p->n] };

		p->open[p->n] = p->v.n;
		if (pt_vec_push(&p->v, s))
			return -ENOMEM;
	}
	return 0;
}

static int put_slice(struct pt_walk *k, const struct pt_trace_track *t, const struct slice *s)
{
	const struct pt_code_line *l =
		pt_model_line(k->x->m, pt_model_stack(k->x->m, s->stack)->line);
	struct pt_trace_event e = { .track = t, .cat = PT_CAT_PYTHON, .begin = s->begin,
				    .end = s->end };

	if (s->end <= s->begin)
		return 0;
	e.name = l ? l->name : "?";
	if (l)
		pt_arg_str(&e, "file", l->file);
	if (l && l->line)
		pt_arg_int(&e, "line", l->line);
	return k->w->slice(k->w, &e);
}

int pt_walk_python(struct pt_walk *k, const struct pt_thread *th)
{
	const struct pt_trace_track t = {
		.id = pt_track_id(PT_SPACE_PYTHON, th->tid),
		.parent = pt_track_id(PT_SPACE_THREAD, th->tid),
		.kind = PT_TRACK_LANE,
		.cat = PT_CAT_PYTHON,
		.pid = pt_real_id(th->tgid),
		.tid = pt_real_id(th->tid),
		.lane = PT_LANE_PYTHON,
		.name = "Python",
	};
	const struct pt_code_look *l = th->looks.v;
	struct python p = { .n = 0 };
	size_t i, n = th->looks.n;
	int err = n ? k->w->track(k->w, &t) : 0;

	for (i = 0; i < n && !err; i++) {
		err = enter(&p, k->x->m, l[i].stack, l[i].begin);
		if (i + 1 == n || l[i + 1].begin > l[i].end + APART_NS)
			close_to(&p, 0, l[i].end);
	}
	for (i = 0; i < p.v.n && !err; i++)
		err = put_slice(k, &t, &p.v.v[i]);
	pt_vec_free(&p.v);
	return err;
}
