/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

static const char *const does[PT_HOST_NR] = {
	[PT_HOST_COMPUTING] = "computes",
	[PT_HOST_QUEUED] = "waits for a core",
	[PT_HOST_SLEEPING] = "sleeps by a timer",
	[PT_HOST_WRITING] = "writes files",
	[PT_HOST_LOCK] = "waits for a lock of its own process",
	[PT_HOST_CHILD] = "waits for a process that it started",
	[PT_HOST_COLLECTIVE] = "waits for another rank",
	[PT_HOST_CLIENT] = "waits to be asked",
	[PT_HOST_OTHER] = "waits for something that was not seen",
};

/* The place of the loop that costs the most, and what is done there. */
static const struct pt_host_place *worst_place(const struct pt_trainer *t,
					       enum pt_host_kind *what)
{
	const struct pt_host_place *best = NULL;
	size_t i;
	int k;

	for (i = 0; i < t->host_places.n; i++)
		if (!best || t->host_places.v[i].idle_ns > best->idle_ns)
			best = &t->host_places.v[i];
	*what = PT_HOST_OTHER;
	for (k = 0; best && k < PT_HOST_NR; k++)
		if (best->ns[k] > best->ns[*what])
			*what = (enum pt_host_kind)k;
	return best;
}

/* ... of a lock: what holds the loop up is whoever has it. */
int pt_judge_host_lock(struct pt_an *an, const struct pt_facts *f,
		       struct pt_r_verdict *v)
{
	const struct pt_host_place *p;
	enum pt_host_kind what;
	double share;

	if (f->insufficient || !f->t || f->host < f->th->starved_info)
		return 0;
	p = worst_place(f->t, &what);
	if (!p || !p->n || what != PT_HOST_LOCK)
		return 0;
	if (pt_evidence_start(an, v))
		return -ENOMEM;
	share = (double)f->t->host_ns[PT_HOST_LOCK] / NS_PER_S / f->wall_s;
	pt_evidence_add(v, "gpu.idle_host_share", f->host, "share",
			f->th->starved_info, PT_ESTIMATED);
	pt_evidence_add(v, "host.lock_share", share, "share", NAN, PT_MEASURED);
	*f->lost = f->host;
	v->severity = pt_severity_of(f, f->host);
	v->certainty = f->t->gpu_known ? PT_CONF_MEDIUM : PT_CONF_LOW;
	v->subject_pid = f->t->main->tgid;
	v->title = pt_arena_printf(an->a,
		"Between GPU calls the training thread waits for a lock that other threads of its process have, %.0f %% of the time, and the GPU idles meanwhile.",
		100 * share);
	v->advice = "In Python that is the interpreter's lock: let threads that compute (loaders, loggers) do so in a process, or in code that lets go of it.";
	pt_speedup_share(f->host, &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}

static const char *advice_of(enum pt_host_kind what, bool often)
{
	switch (what) {
	case PT_HOST_COMPUTING:
		return often ?
			"Find what the training thread computes there: a transform, a metric, a conversion, or loading from memory. Whether it loads data cannot be seen from outside. Do it in another thread or process, on the GPU, or less often." :
			"Find what the training thread computes there every so often (metrics, logging, evaluation on the host) and move it to another thread, or do it less often.";
	case PT_HOST_SLEEPING:
		return "Find the sleep in the training loop (a logger's or a client's pause, polling): do it in another thread, or drop it.";
	case PT_HOST_CHILD:
		return "The loop waits for a program that it starts: run it beside the training.";
	case PT_HOST_QUEUED:
		return "The training thread lacks a core: look at what else runs on this host, and at the cores that the job may use.";
	default:
		return "Look at what the training thread does between these GPU calls, and move it to another thread.";
	}
}

/* The device idles because of what the host does between its calls, and that was
 * not seen to be obtaining data. */
int pt_judge_host_bound(struct pt_an *an, const struct pt_facts *f,
			struct pt_r_verdict *v)
{
	const struct pt_host_place *p;
	enum pt_host_kind what;
	double each, every;

	if (f->insufficient || !f->t || f->host < f->th->starved_info)
		return 0;
	p = worst_place(f->t, &what);
	if (!p || !p->n || what == PT_HOST_LOCK)
		return 0;
	if (pt_evidence_start(an, v))
		return -ENOMEM;
	each = (double)p->ns[what] / (double)p->n / NS_PER_MS;
	every = (double)f->t->steps.n / (double)p->n;
	pt_evidence_add(v, "gpu.idle_host_share", f->host, "share",
			f->th->starved_info, PT_ESTIMATED);
	pt_evidence_add(v, "host.place_ms", each, "ms", NAN, PT_MEASURED);
	pt_evidence_add(v, "host.place_steps", every, "count", NAN, PT_MEASURED);
	pt_evidence_add(v, "breakdown.data_wait.share", f->wait_share, "share",
			NAN, PT_MEASURED);
	*f->lost = f->host;
	v->severity = pt_severity_of(f, f->host);
	v->certainty = f->t->gpu_known ? PT_CONF_HIGH : PT_CONF_LOW;
	v->subject_pid = f->t->main->tgid;
	v->title = every >= 1.5 ?
		pt_arena_printf(an->a,
			"Every %.0f steps the training thread %s for %.0f ms between two GPU calls, and the GPU idles meanwhile: %.0f %% of the time. It was not seen to load data there.",
			every, does[what], each, 100 * f->host) :
		pt_arena_printf(an->a,
			"Between GPU calls the training thread %s for %.1f ms at a time, and the GPU idles meanwhile: %.0f %% of the time. It was not seen to load data there.",
			does[what], each, 100 * f->host);
	v->advice = advice_of(what, every < 1.5);
	pt_speedup_share(f->host, &v->expected_speedup);
	return v->title ? 1 : -ENOMEM;
}
