// SPDX-License-Identifier: BSD-2-Clause
/*
 * Ranges that the program named (NVTX): push and pop in their thread and
 * domain, start and end in their process. An end without a begin is left out;
 * a range that is open at the end lasts until then. Without a profiler in the
 * process the library hands out no handles: then an end belongs to the one range
 * that is open, and from the first time that it could be another's on, only the
 * begins are shown.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/timeline/trace_int.h"

#define OPEN_MAX 1024 /* deeper, only damage or a leak makes */

struct ranges {
	struct pt_walk *k;
	const struct pt_proc *p;
	struct pt_trace_track track;
	uint32_t tracks;
	PT_VEC(struct pt_spread) done;
	uint32_t open[OPEN_MAX]; /* places in done; end is UINT64_MAX */
	size_t n_open;
	bool mixed_up; /* ends without a handle could be anybody's */
};

static int begin_range(struct ranges *r, uint32_t at)
{
	const struct pt_nvtx_event *e = &r->p->nvtx.v[at];
	struct pt_spread s = {
		.group = e->op == PT_NVTX_START ? 0 : e->tid,
		.begin = e->ts,
		.end = UINT64_MAX,
		.at = at,
	};

	if (!e->text)
		return 0;
	if (r->n_open == OPEN_MAX ||
	    (e->op == PT_NVTX_START && !e->id && r->mixed_up)) {
		s.end = s.begin;
		return pt_vec_push(&r->done, s);
	}
	r->open[r->n_open++] = (uint32_t)r->done.n;
	return pt_vec_push(&r->done, s);
}

/* Does `end` end the range that `b` began? */
static bool ends(const struct pt_nvtx_event *b, const struct pt_nvtx_event *end)
{
	if (end->op == PT_NVTX_POP)
		return b->op == PT_NVTX_PUSH && b->tid == end->tid &&
		       b->domain == end->domain;
	return b->op == PT_NVTX_START && b->id == end->id;
}

/* Those that the next end without a handle may end. */
static size_t nameless(const struct ranges *r)
{
	size_t i, n = 0;

	for (i = 0; i < r->n_open; i++) {
		const struct pt_nvtx_event *b =
			&r->p->nvtx.v[r->done.v[r->open[i]].at];

		n += b->op == PT_NVTX_START && !b->id;
	}
	return n;
}

static void mix_up(struct ranges *r)
{
	size_t i, n = 0;

	r->mixed_up = true;
	for (i = 0; i < r->n_open; i++) {
		struct pt_spread *s = &r->done.v[r->open[i]];
		const struct pt_nvtx_event *b = &r->p->nvtx.v[s->at];

		if (b->op == PT_NVTX_START && !b->id)
			s->end = s->begin;
		else
			r->open[n++] = r->open[i];
	}
	r->n_open = n;
}

static void end_range(struct ranges *r, const struct pt_nvtx_event *end)
{
	size_t i;

	if (end->op == PT_NVTX_END && !end->id && !r->mixed_up &&
	    nameless(r) > 1)
		mix_up(r);
	for (i = r->n_open; i--;) {
		struct pt_spread *s = &r->done.v[r->open[i]];

		if (!ends(&r->p->nvtx.v[s->at], end))
			continue;
		s->end = end->ts;
		memmove(&r->open[i], &r->open[i + 1],
			(--r->n_open - i) * sizeof(*r->open));
		return;
	}
}

/* Records of a thread are missing: what it had open, nobody knows the end of. */
static void forget(struct ranges *r, uint32_t tid)
{
	size_t i, n = 0;

	for (i = 0; i < r->n_open; i++) {
		struct pt_spread *s = &r->done.v[r->open[i]];

		if (r->p->nvtx.v[s->at].tid == tid)
			s->end = s->begin;
		else
			r->open[n++] = r->open[i];
	}
	r->n_open = n;
}

static int begin_track(void *ctx, const struct pt_spread *s)
{
	struct ranges *r = ctx;

	r->track = (struct pt_trace_track){
		.id = pt_track_id(PT_SPACE_RANGES + r->tracks, r->p->tgid),
		.parent = s->group ? pt_track_id(PT_SPACE_THREAD,
						 (uint32_t)s->group) :
				     pt_track_id(PT_SPACE_PROCESS, r->p->tgid),
		.kind = PT_TRACK_LANE,
		.cat = PT_CAT_RANGE,
		.pid = pt_real_id(r->p->tgid),
		.lane = PT_LANE_RANGES,
		.number = r->tracks + 1,
		.name = "NVTX",
	};
	/* a thread that made no other record has no track */
	if (s->group && !pt_model_thread(r->k->x->m, (uint32_t)s->group))
		r->track.parent = pt_track_id(PT_SPACE_PROCESS, r->p->tgid);
	r->tracks++;
	return r->k->w->track(r->k->w, &r->track);
}

static int put_range(void *ctx, const struct pt_spread *s)
{
	struct ranges *r = ctx;
	const struct pt_nvtx_event *b = &r->p->nvtx.v[s->at];
	struct pt_trace_event e = {
		.track = &r->track, .begin = s->begin, .end = s->end,
		.name = b->text, .cat = PT_CAT_RANGE,
	};

	pt_arg_int(&e, "tid", pt_real_id(b->tid));
	if (b->domain)
		pt_arg_id(&e, "domain", b->domain);
	return e.end > e.begin ? r->k->w->slice(r->k->w, &e) :
				 r->k->w->instant(r->k->w, &e);
}

int pt_walk_ranges(struct pt_walk *k, const struct pt_proc *p)
{
	struct ranges *r = p->nvtx.n ? calloc(1, sizeof(*r)) : NULL;
	size_t i;
	int err = 0;

	if (!r)
		return p->nvtx.n ? -ENOMEM : 0;
	r->k = k;
	r->p = p;
	for (i = 0; i < p->nvtx.n && i < UINT32_MAX && !err; i++) {
		const struct pt_nvtx_event *e = &p->nvtx.v[i];

		if (e->op == PT_NVTX_PUSH || e->op == PT_NVTX_START)
			err = begin_range(r, (uint32_t)i);
		else if (e->op == PT_NVTX_POP || e->op == PT_NVTX_END)
			end_range(r, e);
		else if (e->op == PT_NVTX_GAP)
			forget(r, e->tid);
	}
	for (i = 0; i < r->done.n; i++)
		if (r->done.v[i].end == UINT64_MAX)
			r->done.v[i].end = k->x->m->end > r->done.v[i].begin ?
						   k->x->m->end :
						   r->done.v[i].begin;
	err = err ?: pt_spread(r->done.v, r->done.n, begin_track, put_range, r);
	pt_vec_free(&r->done);
	free(r);
	return err;
}
