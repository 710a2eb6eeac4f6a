/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the trainer's wall time went. Every nanosecond of the window counts
 * once: data waits first, then time inside GPU calls, then what is left. */
#include <errno.h>

#include "analysis/internal.h"

/* Time of [b,e) that lies inside data waits. */
static uint64_t in_waits(const struct pt_trainer *t, size_t *hint, uint64_t b,
			 uint64_t e)
{
	uint64_t sum = 0;
	size_t i;

	while (*hint < t->steps.n && t->steps.v[*hint].wait_end <= b)
		(*hint)++;
	for (i = *hint; i < t->steps.n && t->steps.v[i].wait_begin < e; i++)
		sum += pt_step_wait_in(&t->steps.v[i], b, e);
	return sum;
}

static void add_to_step(struct pt_trainer *t, size_t *hint,
			const struct pt_gpu_call *c, uint64_t ns)
{
	while (*hint < t->steps.n && t->steps.v[*hint].end <= c->begin)
		(*hint)++;
	if (*hint == t->steps.n || t->steps.v[*hint].begin > c->begin)
		return;
	if (pt_call_is_sync(c) || pt_call_is_copy(c))
		t->steps.v[*hint].gpu_wait_ns += c->end - c->begin;
	else
		t->steps.v[*hint].collective_ns += ns;
}

/* A shorter collective has only put its kernel into the queue. */
#define COLLECTIVE_NS 30000ull

/* The host blocked in calls of the main thread: for the device (gpu_wait),
 * for a copy while the device had nothing to compute (transfer), or for the
 * other ranks (collective). */
static void host_blocked(struct pt_an *an, struct pt_trainer *t)
{
	const struct pt_proc *p = t->proc;
	size_t i, hint = 0, step = 0;
	uint64_t last = an->t0;
	bool empty = false; /* drained since the last launch */

	for (i = pt_gpu_after(p, an->t0); i < p->gpu.n; i++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];
		uint64_t b, e, ns;

		if (c->begin >= an->t1)
			break;
		if (c->cls == PT_API_LAUNCH || c->cls == PT_API_GRAPH_LAUNCH)
			empty = false;
		if (c->tid != t->main->tid || c->end <= c->begin)
			continue;
		b = pt_max64(c->begin, last);
		e = pt_min64(c->end, an->t1);
		if (e <= b)
			continue;
		last = e;
		ns = e - b - in_waits(t, &hint, b, e);
		if (pt_call_is_sync(c) || (pt_call_is_copy(c) && !empty)) {
			t->gpu_wait_ns += ns;
			add_to_step(t, &step, c, ns);
		} else if (pt_call_is_copy(c)) {
			t->transfer_ns += ns;
		} else if ((c->cls == PT_API_COLLECTIVE ||
			    c->cls == PT_API_COMM) && e - b >= COLLECTIVE_NS) {
			t->collective_ns += ns;
			add_to_step(t, &step, c, ns);
		}
		if (c->cls == PT_API_SYNC_DEVICE || c->cls == PT_API_SYNC_STREAM ||
		    (pt_call_is_copy(c) && c->v[2] == PT_COPY_D2H))
			empty = true;
	}
}

int pt_sum_breakdown(struct pt_an *an, struct pt_trainer *t)
{
	size_t i;

	for (i = 0; i < t->steps.n; i++) {
		const struct pt_step *s = &t->steps.v[i];

		t->data_wait_ns += pt_step_wait(s);
		t->blocked_ns += s->blocked_ns;
		t->own_read_ns += s->own_read_ns;
		t->own_cpu_ns += s->own_cpu_ns;
		t->handover_ns += s->handover_ns;
	}
	host_blocked(an, t);
	return 0;
}
