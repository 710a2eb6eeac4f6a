// SPDX-License-Identifier: BSD-2-Clause
/*
 * From a capture to tracks and events. One process after the other: its
 * counters, then each of its threads with its calls and its states; a
 * trainer's steps, waits and device behind its own.
 */
#include "view/timeline/trace.h"

#include <math.h>
#include <stdlib.h>

#include "base/demangle.h"
#include "view/timeline/trace_int.h"

#define NS_PER_S 1e9

/* Ids of tracks: the process' or thread's in the model, and which of its. */
uint64_t pt_track_id(enum pt_track_space space, uint32_t id)
{
	return (uint64_t)space << 32 | id;
}

/* ---- processes ---------------------------------------------------------- */

static int walk_process(struct pt_walk *k, const struct pt_proc *p)
{
	struct pt_trace_track t = {
		.id = pt_track_id(PT_SPACE_PROCESS, p->tgid),
		.kind = PT_TRACK_PROCESS,
		.pid = pt_real_id(p->tgid),
		.name = p->comm,
	};

	return k->w->track(k->w, &t);
}

/* ---- counters ----------------------------------------------------------- */

static int counter(struct pt_walk *k, const struct pt_proc *p, uint32_t which,
		   const char *name, enum pt_track_unit unit,
		   double (*get)(const struct pt_rec_sample *was,
				 const struct pt_rec_sample *now))
{
	struct pt_trace_track t = {
		.id = pt_track_id(PT_SPACE_COUNTER + which, p->tgid),
		.parent = pt_track_id(PT_SPACE_PROCESS, p->tgid),
		.kind = PT_TRACK_COUNTER,
		.unit = unit,
		.pid = pt_real_id(p->tgid),
		.name = name,
	};
	const struct pt_rec_sample *s = p->samples.v;
	size_t i;
	double v;
	int err = p->samples.n ? k->w->track(k->w, &t) : 0;

	for (i = 0; i < p->samples.n && !err; i++) {
		v = get(i ? &s[i - 1] : NULL, &s[i]);
		if (!isnan(v))
			err = k->w->value(k->w, &t, s[i].hdr.ts, v);
	}
	return err;
}

/* Of a growing figure, per second since the sample before. */
static double rate(const struct pt_rec_sample *was,
		   const struct pt_rec_sample *now, uint64_t from, uint64_t to)
{
	if (!was || now->hdr.ts <= was->hdr.ts || to < from)
		return NAN;
	return (double)(to - from) * NS_PER_S /
	       (double)(now->hdr.ts - was->hdr.ts);
}

static double get_rss(const struct pt_rec_sample *was,
		      const struct pt_rec_sample *now)
{
	(void)was;
	return (double)now->rss_anon + (double)now->rss_file +
	       (double)now->rss_shmem;
}

static double get_cpu(const struct pt_rec_sample *was,
		      const struct pt_rec_sample *now)
{
	return was ? rate(was, now, was->utime_ns + was->stime_ns,
			  now->utime_ns + now->stime_ns) / NS_PER_S : NAN;
}

static double get_read(const struct pt_rec_sample *was,
		       const struct pt_rec_sample *now)
{
	return was ? rate(was, now, was->rchar, now->rchar) : NAN;
}

static double get_storage(const struct pt_rec_sample *was,
			  const struct pt_rec_sample *now)
{
	return was ? rate(was, now, was->read_bytes, now->read_bytes) : NAN;
}

static int walk_counters(struct pt_walk *k, const struct pt_proc *p)
{
	int err = counter(k, p, 0, "memory (rss)", PT_UNIT_BYTES, get_rss);

	err = err ?: counter(k, p, 1, "CPU", PT_UNIT_CORES, get_cpu);
	err = err ?: counter(k, p, 2, "read calls", PT_UNIT_BYTES_S, get_read);
	err = err ?: counter(k, p, 3, "read from storage", PT_UNIT_BYTES_S, get_storage);
	return err;
}

/* A column of the report's series, where it was observed. */
static int series(struct pt_walk *k, uint32_t which, const char *name,
		  enum pt_track_unit unit, size_t at)
{
	const struct pt_report *r = k->x->r;
	const struct pt_r_point *p = r->series;
	struct pt_trace_track t = {
		.id = pt_track_id(PT_SPACE_SERIES, which + 1),
		.kind = PT_TRACK_COUNTER,
		.unit = unit,
		.pid = r->target.pid > 0 ? (uint32_t)r->target.pid : 0,
		.name = name,
	};
	bool told = false;
	uint64_t ts;
	int err = 0;

	for (; p < r->series + r->n_series && !err; p++) {
		double v = *(const double *)(const void *)((const char *)p + at);

		if (!isfinite(v) || p->t < 0)
			continue;
		if (!told)
			err = k->w->track(k->w, &t);
		told = true;
		ts = (uint64_t)r->capture.begin_ns + (uint64_t)(p->t * NS_PER_S);
		err = err ?: k->w->value(k->w, &t, ts, v);
	}
	return err;
}

static int walk_series(struct pt_walk *k)
{
#define AT(member) offsetof(struct pt_r_point, member)
	int err = series(k, 0, "GPU memory", PT_UNIT_BYTES, AT(gpu_mem));

	err = err ?: series(k, 1, "GPU utilization", PT_UNIT_SHARE, AT(gpu_util));
	return err ?: series(k, 2, "data wait share", PT_UNIT_SHARE, AT(data_wait_share));
#undef AT
}

/* ---- threads ------------------------------------------------------------ */

static int state(struct pt_walk *k, struct pt_trace_event *e, uint64_t begin,
		 uint64_t end, const char *name)
{
	if (end <= begin)
		return 0;
	e->begin = begin;
	e->end = end;
	e->name = name;
	return k->w->slice(k->w, e);
}

static void state_args(struct pt_walk *k, const struct pt_iv *iv,
		       struct pt_trace_event *e)
{
	const char *path = pt_iv_path(k->x->m, iv);

	e->n_args = 0;
	pt_arg_str(e, "file", path);
	if (iv->object && !path)
		pt_arg_id(e, iv->obj_kind == PT_OBJ_FUTEX ? "futex" : "inode",
			  iv->object);
	if (iv->syscall >= 0)
		pt_arg_int(e, "syscall", iv->syscall);
	if (iv->valid_wake) {
		pt_arg_int(e, "woken by pid", pt_real_id(iv->waker_tgid));
		pt_arg_int(e, "woken by tid", pt_real_id(iv->waker_tid));
	}
	if (iv->open)
		pt_arg_int(e, "not over", 1);
}

/* Blocked, then on the run queue; before it, the thread ran. */
static int walk_interval(struct pt_walk *k, const struct pt_iv *iv,
			 struct pt_trace_event *e, uint64_t *at)
{
	uint64_t end = iv->end > *at ? iv->end : *at;
	uint64_t begin = iv->begin > *at ? iv->begin : *at;
	uint64_t ready = iv->ready > begin ? iv->ready : begin;
	int err = 0;

	ready = ready < end ? ready : end;
	e->n_args = 0;
	/* where records are missing nobody knows what it did */
	if (!iv->gap_before)
		err = state(k, e, *at, begin, "running");
	if (!err && ready > begin) {
		state_args(k, iv, e);
		err = state(k, e, begin, ready, pt_wait_name(iv->wait));
	}
	e->n_args = 0;
	if (!err && end > ready)
		err = state(k, e, ready, end, "run queue");
	*at = end;
	return err;
}

static int walk_states(struct pt_walk *k, const struct pt_thread *th)
{
	struct pt_trace_track t = {
		.id = pt_track_id(PT_SPACE_STATE, th->tid),
		.parent = pt_track_id(PT_SPACE_THREAD, th->tid),
		.kind = PT_TRACK_LANE,
		.cat = PT_CAT_STATE,
		.pid = pt_real_id(th->tgid),
		.tid = pt_real_id(th->tid),
		.lane = PT_LANE_STATE,
		.name = "state",
	};
	struct pt_trace_event e = { .track = &t, .cat = PT_CAT_STATE };
	uint64_t at = th->first;
	size_t i;
	int err;

	if (!th->iv.n)
		return 0;
	/* a sleep may have begun before the capture */
	if (th->iv.v[0].begin < at)
		at = th->iv.v[0].begin;
	err = k->w->track(k->w, &t);
	for (i = 0; i < th->iv.n && !err; i++)
		err = walk_interval(k, &th->iv.v[i], &e, &at);
	e.n_args = 0;
	if (!err && !th->gap)
		err = state(k, &e, at, th->last, "running");
	return err;
}

static int walk_thread(struct pt_walk *k, const struct pt_thread *th)
{
	struct pt_trace_track t = {
		.id = pt_track_id(PT_SPACE_THREAD, th->tid),
		.parent = pt_track_id(PT_SPACE_PROCESS, th->tgid),
		.kind = PT_TRACK_THREAD,
		.pid = pt_real_id(th->tgid),
		.tid = pt_real_id(th->tid),
		.name = th->comm,
	};
	int err = k->w->track(k->w, &t);

	err = err ?: pt_walk_calls(k, th, &t);
	err = err ?: pt_walk_batches(k, th, &t);
	err = err ?: walk_states(k, th);
	return err ?: pt_walk_python(k, th);
}

const char *pt_shown_name(struct pt_walk *k, const char *raw)
{
	struct pt_shown *s;

	HASH_FIND_PTR(k->shown, &raw, s);
	if (s)
		return s->text ? s->text : raw;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->raw = raw;
	s->text = pt_demangle(raw); /* NULL: it is what it is */
	HASH_ADD_PTR(k->shown, raw, s);
	if (PT_HASHED(s))
		return s->text ? s->text : raw;
	free(s->text);
	free(s);
	return NULL;
}

static void forget_shown(struct pt_walk *k)
{
	struct pt_shown *s, *next;

	HASH_ITER(hh, k->shown, s, next) {
		HASH_DEL(k->shown, s);
		free(s->text);
		free(s);
	}
}

/* ---- a part of the capture ------------------------------------------------ */

/* A writer before another one, which gets what lies in the report's part: slices that
 * reach beyond it are cut there. */
struct clip {
	struct pt_trace_writer w; /* to be walked with */
	struct pt_trace_writer *to;
	uint64_t begin, end; /* CLOCK_MONOTONIC ns */
};

static int clip_track(struct pt_trace_writer *w, const struct pt_trace_track *t)
{
	struct clip *c = (struct clip *)w;

	return c->to->track(c->to, t);
}

static int clip_slice(struct pt_trace_writer *w, const struct pt_trace_event *e)
{
	struct clip *c = (struct clip *)w;
	struct pt_trace_event x = *e;

	if (x.begin < c->begin)
		x.begin = c->begin;
	if (x.end > c->end)
		x.end = c->end;
	return x.end > x.begin ? c->to->slice(c->to, &x) : 0;
}

static int clip_instant(struct pt_trace_writer *w, const struct pt_trace_event *e)
{
	struct clip *c = (struct clip *)w;

	return e->begin >= c->begin && e->begin < c->end ?
		       c->to->instant(c->to, e) : 0;
}

static int clip_value(struct pt_trace_writer *w, const struct pt_trace_track *t,
		 uint64_t ts, double v)
{
	struct clip *c = (struct clip *)w;

	return ts >= c->begin && ts < c->end ? c->to->value(c->to, t, ts, v) : 0;
}

static void clip_to(struct clip *c, const struct pt_report *r, struct pt_trace_writer *to)
{
	*c = (struct clip){
		.w = { .track = clip_track, .slice = clip_slice,
		       .instant = clip_instant, .value = clip_value },
		.to = to,
		.begin = (uint64_t)r->capture.begin_ns,
		.end = (uint64_t)r->capture.end_ns,
	};
}

/* ---- all of it ------------------------------------------------------------ */

int pt_trace_walk(const struct pt_export *x, struct pt_trace_writer *w)
{
	struct pt_walk k = { .x = x, .w = w };
	const struct pt_model *m = x->m;
	struct clip part;
	size_t i, j;
	int err = 0;

	if (x->part) {
		clip_to(&part, x->r, w);
		k.w = &part.w;
	}
	for (i = 0; i < m->all_procs.n && !err; i++) {
		const struct pt_proc *p = m->all_procs.v[i];

		err = walk_process(&k, p);
		err = err ?: walk_counters(&k, p);
		err = err ?: pt_sort_calls(&k, p);
		for (j = 0; j < p->threads.n && !err; j++)
			err = walk_thread(&k, p->threads.v[j]);
		err = err ?: pt_walk_ranges(&k, p);
		err = err ?: pt_walk_device(&k, p);
	}
	for (i = 0; i < x->lanes->n_trainers && !err; i++)
		err = pt_walk_trainer(&k, &x->lanes->trainers[i]);
	err = err ?: walk_series(&k);
	forget_shown(&k);
	free(k.calls);
	free(k.acts);
	return err;
}
