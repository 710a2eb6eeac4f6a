/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the training thread spends its steps on: data, forward, backward,
 * optimizer, waiting for the device. It is the host's time: in a loop that does
 * not wait for the device after each phase, launching one takes other than
 * running it.
 *
 * Backward is what a second thread launches while the training thread sleeps
 * for it, as PyTorch's autograd does. Forward is what comes before it, the
 * optimizer what the training thread launches behind it. Where one thread
 * launches all, the optimizer still shows under gradient accumulation: its
 * call sites come in the updating steps only. The rest is called compute.
 */
#include <errno.h>

#include "analysis/internal.h"
#include "analysis/parts/part.h"

enum { DATA, FORWARD, BACKWARD, OPTIMIZER, GPU_WAIT, REST, PHASES = PT_PHASES };

/* The training thread's sleeps while others launched within the step. A runtime
 * whose threads launch all of it does not show what is what. */
static struct pt_span backward_of(const struct pt_trainer *t,
				  const struct pt_step *s)
{
	const struct pt_thread *th = t->main;
	const struct pt_proc *p = t->proc;
	uint64_t first = 0, last = 0, slept = 0;
	struct pt_span out = { 0, 0 };

	pt_each_call(c, p, s->wait_end, s->end) {
		if (c->tid == th->tid || !pt_call_is_submit(c))
			continue;
		if (!first)
			first = c->begin;
		last = c->begin;
	}
	pt_each_iv(iv, th, first, last > first ? last + 1 : 0) {
		if (iv->wait != PT_WAIT_FUTEX)
			continue;
		if (!out.begin)
			out.begin = pt_max64(iv->begin, s->wait_end);
		out.end = pt_min64(iv->end, s->end);
		slept += pt_overlap(iv->begin, iv->end, first, last);
	}
	/* launching beside it is no backward pass */
	if (slept * 5 < (last - first) * 4 ||
	    !pt_launches_in(p, th->tid, s->wait_end, out.begin))
		out = (struct pt_span){ 0, 0 };
	return out;
}

/* From the first launch behind `from` that `micro` lacks to the last one of
 * the training thread; where that is empty from `from`. */
static struct pt_span optimizer_of(const struct pt_trainer *t,
				   const struct pt_step *s, uint64_t from,
				   const struct pt_sites *micro)
{
	const struct pt_proc *p = t->proc;
	struct pt_span out = { 0, 0 };

	pt_each_call(c, p, from, s->end) {
		if (!pt_call_is_launch(c) || c->tid != t->main->tid)
			continue;
		if (!out.begin && micro->n && pt_sites_have(micro, pt_call_site(c)))
			continue;
		if (!out.begin)
			out.begin = micro->n ? c->begin : from;
		out.end = pt_max64(c->begin, c->end);
	}
	return out;
}

/* The training thread waits for the device, outside of [b,e). */
static uint64_t device_waits(const struct pt_trainer *t, uint64_t begin,
			     uint64_t end, uint64_t b, uint64_t e)
{
	const struct pt_proc *p = t->proc;
	uint64_t sum = 0, last = begin;

	pt_each_call(c, p, begin, end) {
		uint64_t x, y;

		if (c->tid != t->main->tid ||
		    (!pt_call_is_sync(c) &&
		     !(pt_call_is_copy(c) && c->v[2] == PT_COPY_D2H)))
			continue;
		x = pt_max64(c->begin, last); /* calls may nest */
		y = pt_min64(c->end, end);
		if (y <= x)
			continue;
		sum += y - x - pt_overlap(x, y, b, e);
		last = y;
	}
	return sum;
}

static void add_step(const struct pt_trainer *t, const struct pt_step *s,
		     const struct pt_sites *micro, struct pt_phases *k)
{
	static const struct pt_sites none;
	struct pt_span back = backward_of(t, s), opt = { 0, 0 };
	uint64_t forward = 0, used, in_opt, wait = s->wait_ns;

	if (back.end > back.begin) {
		opt = optimizer_of(t, s, back.end, &none);
		forward = back.begin - s->wait_end -
			  device_waits(t, s->wait_end, back.begin, 0, 0);
		k->backward++;
	} else if (micro->n && s->shape != t->micro_shape) {
		opt = optimizer_of(t, s, s->wait_end, micro);
	}
	k->steps++;
	k->ns[DATA] += wait;
	k->ns[FORWARD] += forward;
	k->ns[BACKWARD] += back.end - back.begin;
	in_opt = device_waits(t, opt.begin, opt.end, 0, 0);
	k->ns[OPTIMIZER] += opt.end - opt.begin - in_opt;
	used = device_waits(t, s->wait_end, s->end, back.begin, back.end);
	k->ns[GPU_WAIT] += used;
	used += wait + forward + back.end - back.begin + opt.end - opt.begin - in_opt;
	k->ns[REST] += s->end - s->begin - pt_min64(used, s->end - s->begin);
}

static int put(struct pt_an *an, const struct pt_phases *k, bool backward)
{
	static const char *const names[PHASES] = {
		"data", "forward", "backward", "optimizer", "gpu_wait", NULL,
	};
	struct pt_r_phase *o = pt_arena_calloc(an->a, PHASES, sizeof(*o));
	uint64_t sum = 0;
	size_t i, n = 0;

	if (!o)
		return -ENOMEM;
	for (i = 0; i < PHASES; i++)
		sum += k->ns[i];
	for (i = 0; i < PHASES && sum; i++) {
		if (!k->ns[i])
			continue;
		o[n].name = names[i] ? names[i] : backward ? "other" : "compute";
		o[n].seconds = pt_sec(k->ns[i]);
		o[n].share = (double)k->ns[i] / (double)sum;
		o[n++].certainty = i == GPU_WAIT ? PT_MEASURED : PT_ESTIMATED;
	}
	an->r->phases = o;
	an->r->n_phases = n;
	return 0;
}

void pt_measure_phases(const struct pt_trainer *t, struct pt_phases *k)
{
	struct pt_sites micro = { .n = 0 };
	size_t i;

	if (t->micro_shape != t->update_shape)
		pt_sites_of_shape(t, t->micro_shape, &micro);
	k->told = micro.n > 0;
	for (i = 0; i < t->steps.n; i++)
		if (!t->steps.v[i].partial)
			add_step(t, &t->steps.v[i], &micro, k);
}

int pt_fill_phases(struct pt_an *an, const struct pt_phases *all)
{
	struct pt_phases k = *all;
	bool backward = k.backward * 2 >= k.steps;
	int err;

	if (!k.steps)
		return 0;
	if (!backward) { /* now and then is something else */
		k.ns[REST] += k.ns[FORWARD] + k.ns[BACKWARD];
		k.ns[FORWARD] = k.ns[BACKWARD] = 0;
		if (!k.told) {
			k.ns[REST] += k.ns[OPTIMIZER];
			k.ns[OPTIMIZER] = 0;
		}
	}
	err = put(an, &k, backward);
	pt_report_limit(an->r, "phases", backward ?
		"Phases are the training thread's time; the device may run them later." :
		"Phases are the training thread's time. One thread launches forward and "
		"backward, so they cannot be separated.");
	return err;
}
