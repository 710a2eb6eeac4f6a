// SPDX-License-Identifier: BSD-2-Clause
/* A trainer's steps and data waits, who fed them, and its device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "view/timeline/trace_int.h"

/* A flow's id: the trainer's place and the step's, never 0. */
static uint64_t flow_of(size_t trainer, size_t step)
{
	return ((uint64_t)trainer + 1) << 40 | (uint64_t)step;
}

static bool fed(const struct pt_lane_trainer *t, const struct pt_lane_step *s)
{
	return s->worker >= 0 && (size_t)s->worker < t->n_workers &&
	       s->made != UINT64_MAX && s->n_wait;
}

/* When it was handed over: not behind what it ended. */
static uint64_t handed(const struct pt_lane_step *s)
{
	uint64_t end = s->wait[s->n_wait - 1].end;

	return s->made < end ? s->made : end;
}

static int batch_made(struct pt_walk *k, const struct pt_trace_track *track,
		      size_t trainer, size_t step)
{
	const struct pt_lane_step *s =
		&k->x->lanes->trainers[trainer].steps[step];
	struct pt_trace_event e = {
		.track = track,
		.begin = handed(s),
		.end = handed(s),
		.name = "batch made",
		.cat = PT_CAT_BATCH,
		.flow_out = flow_of(trainer, step),
	};

	pt_arg_int(&e, "for step", (int64_t)step);
	return k->w->instant(k->w, &e);
}

int pt_walk_batches(struct pt_walk *k, const struct pt_thread *th,
		    const struct pt_trace_track *track)
{
	const struct pt_lanes *l = k->x->lanes;
	size_t i, j;
	int w, err = 0;

	for (i = 0; i < l->n_trainers && !err; i++) {
		const struct pt_lane_trainer *t = &l->trainers[i];

		for (w = 0; w < (int)t->n_workers; w++)
			if (t->workers[w].tid == th->tid)
				break;
		if (w == (int)t->n_workers)
			continue;
		for (j = 0; j < t->n_steps && !err; j++)
			if (t->steps[j].worker == w && fed(t, &t->steps[j]))
				err = batch_made(k, track, i, j);
	}
	return err;
}

/* A lane of slices below the trainer's process. */
static struct pt_trace_track lane_of(const struct pt_lane_trainer *t,
				     enum pt_track_space space,
				     enum pt_trace_cat cat,
				     enum pt_lane_number lane,
				     const char *name)
{
	return (struct pt_trace_track){
		.id = pt_track_id(space, t->tgid),
		.parent = pt_track_id(PT_SPACE_PROCESS, t->tgid),
		.kind = PT_TRACK_LANE,
		.cat = cat,
		.pid = pt_real_id(t->tgid),
		.lane = lane,
		.name = name,
	};
}

static int one_step(struct pt_walk *k, const struct pt_trace_track *track,
		    int64_t index, uint64_t begin, uint64_t end)
{
	struct pt_trace_event e = {
		.track = track, .begin = begin, .end = end,
		.name_once = true, .cat = PT_CAT_STEP,
	};
	char name[40];

	/* the name by which analysers of PyTorch traces know a step */
	snprintf(name, sizeof(name), "ProfilerStep#%lld", (long long)index);
	e.name = name;
	return k->w->slice(k->w, &e);
}

/* The steps of the report where it is about this trainer: the user may have
 * marked them. */
static int walk_steps(struct pt_walk *k, const struct pt_lane_trainer *t)
{
	struct pt_trace_track track = lane_of(t, PT_SPACE_STEPS, PT_CAT_STEP,
					      PT_LANE_STEPS, "steps");
	const struct pt_r_steps *r = &k->x->r->steps;
	size_t i, n = t->top ? r->n_list : t->n_steps;
	int err = n ? k->w->track(k->w, &track) : 0;

	for (i = 0; i < n && !err; i++) {
		const struct pt_r_step *s = t->top ? &r->list[i] : NULL;

		err = s ? one_step(k, &track, s->index, (uint64_t)s->begin_ns,
				   (uint64_t)s->end_ns) :
			  one_step(k, &track, (int64_t)i, t->steps[i].begin,
				   t->steps[i].end);
	}
	return err;
}

static int walk_waits(struct pt_walk *k, const struct pt_lane_trainer *t)
{
	struct pt_trace_track track = lane_of(t, PT_SPACE_WAITS, PT_CAT_WAIT,
					      PT_LANE_WAITS, "data wait");
	size_t i, at = (size_t)(t - k->x->lanes->trainers);
	unsigned j;
	int err = t->n_steps ? k->w->track(k->w, &track) : 0;

	for (i = 0; i < t->n_steps && !err; i++) {
		const struct pt_lane_step *s = &t->steps[i];
		struct pt_trace_event e = {
			.track = &track,
			.name = pt_cause_name(s->cause),
			.cat = PT_CAT_WAIT,
		};

		pt_arg_int(&e, "step", (int64_t)i);
		pt_arg_int(&e, "batches", s->batches);
		if (s->worker >= 0 && (size_t)s->worker < t->n_workers)
			pt_arg_int(&e, "worker",
				   pt_real_id(t->workers[s->worker].tgid));
		for (j = 0; j < s->n_wait && !err; j++) {
			e.begin = s->wait[j].begin;
			e.end = s->wait[j].end;
			e.flow_in = j + 1 == s->n_wait && fed(t, s) ?
					    flow_of(at, i) : 0;
			err = e.end > e.begin ? k->w->slice(k->w, &e) :
						k->w->instant(k->w, &e);
		}
	}
	return err;
}

/* Idle and, between, busy: as far as the queue model tells. */
static int walk_device(struct pt_walk *k, const struct pt_lane_trainer *t)
{
	bool guess = t->device_known;
	const struct pt_lane_span *s = guess ? t->idle_likely : t->idle_hard;
	size_t i, n = guess ? t->n_idle_likely : t->n_idle_hard;
	struct pt_trace_track track = lane_of(
		t, PT_SPACE_DEVICE, PT_CAT_DEVICE, PT_LANE_DEVICE,
		guess ? "GPU (estimated)" : "GPU (certainly idle)");
	struct pt_trace_event e = { .track = &track, .cat = PT_CAT_DEVICE };
	/* of what lies before, there are no spans */
	uint64_t at = t->n_before ? t->before[t->n_before - 1].end :
				    k->x->m->begin;
	int err = n || guess ? k->w->track(k->w, &track) : 0;

	for (i = 0; i <= n && !err; i++) {
		uint64_t begin = i < n ? s[i].begin : k->x->m->end;

		e.begin = at;
		e.end = begin;
		e.name = "busy";
		if (guess && e.end > e.begin)
			err = k->w->slice(k->w, &e);
		if (i == n || err)
			break;
		e.begin = begin > at ? begin : at;
		e.end = s[i].end;
		e.name = "idle";
		if (e.end > e.begin)
			err = k->w->slice(k->w, &e);
		at = s[i].end > at ? s[i].end : at;
	}
	return err;
}

/* ---- how many batches are ready ------------------------------------------ */

struct change {
	uint64_t ts;
	int by;
};

static int by_time(const void *a, const void *b)
{
	const struct change *x = a, *y = b;

	if (x->ts != y->ts)
		return x->ts < y->ts ? -1 : 1;
	return (x->by < y->by) - (x->by > y->by); /* made before taken */
}

/* Batches made less batches taken: as a difference to its least, since what
 * lay there at the begin was not seen being made. */
static int walk_queue(struct pt_walk *k, const struct pt_lane_trainer *t)
{
	struct pt_trace_track track = lane_of(t, PT_SPACE_QUEUE, PT_CAT_NONE, 0,
					      "batches ready");
	struct change *c;
	size_t i, j, n = t->n_steps, made = 0;
	int64_t now = 0, least = 0;
	int err;

	for (i = 0; i < t->n_workers; i++)
		made += t->workers[i].n_made;
	if (!made || !n)
		return 0;
	c = calloc(made + n, sizeof(*c));
	if (!c)
		return -ENOMEM;
	for (i = n = 0; i < t->n_workers; i++)
		for (j = 0; j < t->workers[i].n_made; j++)
			c[n++] = (struct change){ t->workers[i].made[j], 1 };
	for (i = 0; i < t->n_steps; i++)
		if (t->steps[i].n_wait)
			c[n++] = (struct change){
				t->steps[i].wait[t->steps[i].n_wait - 1].end,
				-(int)t->steps[i].batches };
	qsort(c, n, sizeof(*c), by_time);
	for (i = 0; i < n; i++) {
		now += c[i].by;
		least = now < least ? now : least;
	}
	track.kind = PT_TRACK_COUNTER;
	track.unit = PT_UNIT_COUNT;
	err = k->w->track(k->w, &track);
	for (i = 0, now = -least; i < n && !err; i++) {
		now += c[i].by;
		err = k->w->value(k->w, &track, c[i].ts, (double)now);
	}
	free(c);
	return err;
}

int pt_walk_trainer(struct pt_walk *k, const struct pt_lane_trainer *t)
{
	int err = walk_steps(k, t);

	err = err ?: walk_waits(k, t);
	err = err ?: walk_device(k, t);
	err = err ?: walk_queue(k, t);
	return err;
}
