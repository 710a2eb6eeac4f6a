/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/gaps.h"

#include <errno.h>
#include <string.h>

struct caller {
	uint32_t tid;
	uint64_t calls;
};
typedef PT_VEC(struct caller) callers;

static struct caller *caller_of(callers *c, uint32_t tid)
{
	struct caller fresh = { .tid = tid };
	size_t i;

	for (i = 0; i < c->n; i++)
		if (c->v[i].tid == tid)
			return &c->v[i];
	return pt_vec_push(c, fresh) ? NULL : &c->v[c->n - 1];
}

static int count_callers(const struct pt_proc *p, uint64_t t0, uint64_t t1,
			 callers *out)
{
	struct caller *by = NULL;

	pt_each_call(c, p, t0, t1) {
		if (!pt_call_is_step(c))
			continue;
		if (!by || by->tid != c->tid)
			by = caller_of(out, c->tid);
		if (!by)
			return -ENOMEM;
		by->calls++;
	}
	return 0;
}

/* The main thread leads where it makes more than a few of the calls (PyTorch runs backward
 * from a thread of its own; a model is put on the device by one that trains in another
 * thread), else the thread that calls most. */
#define LEADS_FROM 100 /* one in so many */
static int choose(const struct pt_model *m, const callers *c,
		  struct pt_actor *out, bool *leads)
{
	uint64_t all = 0, most = 0;
	size_t i;

	for (i = 0; i < c->n; i++)
		all += c->v[i].calls;
	for (i = 0; i < c->n; i++) {
		const struct pt_thread *th = pt_model_thread(m, c->v[i].tid);
		uint64_t n = c->v[i].calls;

		if (!th)
			continue;
		if (pt_vec_push(&out->threads, th))
			return -ENOMEM;
		if (th->tid == th->tgid && n * LEADS_FROM >= all)
			n = UINT64_MAX;
		if (n > most) {
			most = n;
			out->lead = th;
		}
	}
	*leads = most == UINT64_MAX || most * 2 > all;
	return 0;
}

bool pt_is_actor(const struct pt_actor *a, const struct pt_thread *th)
{
	size_t i;

	for (i = 0; i < a->threads.n; i++)
		if (a->threads.v[i] == th)
			return true;
	return false;
}

static int collect(const struct pt_model *m, uint64_t t0, uint64_t t1,
		   bool all, struct pt_actor *a)
{
	const struct pt_proc *p = a->proc;
	uint64_t busy = 0; /* calls may nest: the latest end counts */

	pt_each_call(c, p, t0, t1) {
		struct pt_lead_call l = { .begin = c->begin, .th = a->lead };

		if (!pt_call_is_step(c) || (!all && c->tid != a->lead->tid))
			continue;
		if (all)
			l.th = pt_model_thread(m, c->tid);
		/* behind it, where its return is not watched */
		busy = l.end = pt_max64(busy, pt_max64(c->end, c->begin + 1));
		l.site = pt_call_site(c);
		l.graph = c->cls == PT_API_GRAPH_LAUNCH;
		l.launches = pt_call_is_launch(c);
		l.results = pt_brings_results(c);
		l.uploads = pt_uploads(c);
		l.syncs = pt_call_is_sync(c) ||
			  (pt_call_is_copy(c) && c->v[2] == PT_COPY_D2H);
		if (l.th && pt_vec_push(&a->calls, l))
			return -ENOMEM;
	}
	return 0;
}

int pt_find_actor(const struct pt_model *m, const struct pt_proc *proc,
		  uint64_t t0, uint64_t t1, struct pt_actor *out)
{
	callers c = { 0 };
	int err = count_callers(proc, t0, t1, &c);
	bool leads = true;

	*out = (struct pt_actor){ .proc = proc };
	err = err ?: choose(m, &c, out, &leads);
	if (!err && out->lead)
		err = collect(m, t0, t1, !leads, out);
	pt_vec_free(&c);
	return err;
}

void pt_actor_free(struct pt_actor *a)
{
	pt_vec_free(&a->threads);
	pt_vec_free(&a->calls);
}

/* A call whose return is not watched lasts so long at most: launches take 2 to 10 us. */
#define UNWATCHED_NS 20000ull

const struct pt_gpu_call *pt_last_call(const struct pt_proc *p, uint32_t tid, uint64_t ts)
{
	size_t i = pt_gpu_after(p, ts + 1);

	while (i-- > 0) {
		const struct pt_gpu_call *c = &p->gpu.v[i];

		if (c->tid == tid)
			return c;
		if (c->begin + NS_PER_S < ts)
			break;
	}
	return NULL;
}

bool pt_inside_call(const struct pt_proc *p, uint32_t tid, uint64_t ts)
{
	const struct pt_gpu_call *c = pt_last_call(p, tid, ts);

	return c && (ts < c->end || (c->end == c->begin && ts < c->begin + UNWATCHED_NS));
}

bool pt_gap_before(const struct pt_actor *a, size_t i, uint64_t t0, uint64_t t1,
		   struct pt_gap *out)
{
	const struct pt_lead_call *prev = i ? &a->calls.v[i - 1] : NULL;
	const struct pt_lead_call *next = i < a->calls.n ? &a->calls.v[i] : NULL;

	*out = (struct pt_gap){ .begin = prev ? prev->end : t0,
				.end = next ? next->begin : t1,
				.th = next ? next->th : a->lead,
				.prev = prev ? prev->site : 0,
				.next = next ? next->site : 0 };
	return out->end >= out->begin + PT_GAP_MIN_NS;
}
