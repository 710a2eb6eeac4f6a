/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/verdicts/verdict.h"
#include "analysis/whatif_ask.h"

/* In the order of PRACTICE's decisions: can it be told at all; inside the
 * trainer or its workers; one worker or all; which resource. */
#define V(name, root) { #name, root, pt_judge_##name }
const struct pt_verdict_def pt_verdicts[] = {
	V(insufficient_data, false),
	V(main_thread_loading, true),
	V(slow_worker, true),
	V(io_bound, true),
	V(cpu_oversubscribed, true),
	V(cpu_bound, true),
	V(gpu_starved, false),
	V(balanced, false),
};
const size_t pt_verdict_count = sizeof(pt_verdicts) / sizeof(pt_verdicts[0]);

const char *pt_verdict_static_id(const char *id)
{
	size_t i;

	for (i = 0; i < pt_verdict_count; i++)
		if (!strcmp(pt_verdicts[i].id, id))
			return pt_verdicts[i].id;
	return NULL;
}

int pt_evidence_start(struct pt_an *an, struct pt_r_verdict *v, size_t max)
{
	v->evidence = pt_arena_calloc(an->a, max, sizeof(*v->evidence));
	return v->evidence ? 0 : -ENOMEM;
}

void pt_evidence_add(struct pt_r_verdict *v, const char *metric, double value,
		     const char *unit, double threshold,
		     enum pt_certainty certainty)
{
	struct pt_r_evidence *e =
		(struct pt_r_evidence *)&v->evidence[v->n_evidence++];

	e->metric = metric;
	e->value = value;
	e->unit = unit;
	e->threshold = threshold;
	e->certainty = certainty;
}

int pt_evidence_starved(struct pt_an *an, const struct pt_facts *f,
			struct pt_r_verdict *v, size_t more)
{
	int err = pt_evidence_start(an, v, 2 + more);

	if (err)
		return err;
	pt_evidence_add(v, "gpu.starved_share", f->starved_shown, "share",
			PT_STARVED_INFO, f->bounded ? PT_BOUNDED : PT_ESTIMATED);
	pt_evidence_add(v, "breakdown.data_wait.share", f->wait_share, "share",
			NAN, PT_MEASURED);
	return 0;
}

void pt_speedup_bound(const struct pt_facts *f, struct pt_range *out)
{
	/* Hidden waiting costs nothing: only starved time can be won, and no
	 * change wins more than all of it. */
	out->low = 1;
	out->value = NAN;
	out->high = 1 / (1 - fmin(f->starved_hi, 0.999));
}

bool pt_expected_speedup(const struct pt_an *an, const struct pt_facts *f,
			 const char *change, struct pt_range *out)
{
	if (pt_speedup_of(an, change, PT_NULL, out))
		return true;
	pt_speedup_bound(f, out);
	return false;
}

int64_t pt_better_workers(const struct pt_an *an, const struct pt_facts *f)
{
	struct pt_range gain;

	if (!pt_speedup_of(an, "workers", PT_NULL, &gain) || !(gain.low > 1) ||
	    an->r->best_workers <= (int64_t)f->t->concurrent)
		return 0;
	return an->r->best_workers;
}

int pt_workers_needed(const struct pt_facts *f)
{
	double left = 1 - fmin(f->starved, 0.98);

	return (int)ceil((double)f->t->concurrent / left);
}

static void fill_groups(struct pt_facts *f)
{
	int g;

	f->group[PT_GROUP_CPU] = f->cause[PT_CAUSE_CPU] +
				 f->cause[PT_CAUSE_RUN_QUEUE];
	f->group[PT_GROUP_IO] = f->cause[PT_CAUSE_DISK] +
				f->cause[PT_CAUSE_PAGE_FAULT];
	f->group[PT_GROUP_IPC] = f->cause[PT_CAUSE_IPC];
	f->group[PT_GROUP_NETWORK] = f->cause[PT_CAUSE_NETWORK];
	f->group[PT_GROUP_LOCK] = f->cause[PT_CAUSE_LOCK];
	f->group[PT_GROUP_IDLE] = f->cause[PT_CAUSE_WORKER_IDLE];
	f->group[PT_GROUP_UNKNOWN] = f->cause[PT_CAUSE_UNKNOWN];
	f->largest = PT_GROUP_UNKNOWN;
	for (g = 0; g < PT_GROUP_NR; g++)
		if (f->group[g] > f->group[f->largest])
			f->largest = g;
}

static void find_slow(struct pt_facts *f)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < f->t->workers.n; i++)
		sum += f->t->workers.v[i].charged_ns;
	for (i = 0; i < f->t->workers.n; i++) {
		const struct pt_worker *w = &f->t->workers.v[i];
		double share = sum ? (double)w->charged_ns / (double)sum : 0;

		if (!w->slow || share < PT_SLOW_SHARE)
			continue;
		f->slow = w;
		f->slow_charge = share;
	}
}

static enum pt_severity severity_of(double share)
{
	return share >= PT_STARVED_CRITICAL ? PT_CRITICAL :
	       share >= PT_STARVED_WARNING  ? PT_WARNING :
					      PT_INFO;
}

/* By the lower bound where that alone gives the severity; else by the likely
 * value, with less certainty. */
static void judge_starvation(struct pt_facts *f)
{
	f->starved_shown = f->starved_lo;
	f->bounded = f->starved_lo >= PT_STARVED_INFO &&
		     severity_of(f->starved_lo) == severity_of(f->starved);
	f->confidence = PT_CONF_HIGH;
	if (!f->bounded) {
		f->starved_shown = f->starved;
		f->confidence = f->t->gpu_known ? PT_CONF_MEDIUM : PT_CONF_LOW;
	}
	f->is_starved = f->starved_shown >= PT_STARVED_INFO;
	f->severity = severity_of(f->starved_shown);
}

static const char *insufficient(struct pt_an *an, const struct pt_facts *f)
{
	const struct pt_r_capture *c = &an->r->capture;

	if (!f->t)
		return "no call of a GPU library was seen";
	if (f->wall_s < 0.5)
		return "the capture is shorter than half a second";
	if (f->whole_steps < PT_MIN_STEPS)
		return "fewer than three whole steps were seen";
	if (c->events > 0 && c->lost_total * 100 > c->events)
		return "more than 1 % of the events were lost";
	return NULL;
}

static void gather(struct pt_an *an, struct pt_facts *f)
{
	struct pt_trainer *t = an->top;
	uint64_t wall = an->t1 - an->t0, sum = 0;
	size_t i;

	f->t = t;
	f->wall_s = (double)wall / NS_PER_S;
	f->cores = an->m->host_known ? an->m->host.cores : 0;
	if (t && wall) {
		f->wait_share = (double)t->data_wait_ns / (double)wall;
		f->starved_lo = (double)t->starved_lo_ns / (double)wall;
		f->starved = (double)t->starved_likely_ns / (double)wall;
		f->starved_hi = (double)t->starved_hi_ns / (double)wall;
		f->idle_hard = (double)t->idle_hard_ns / (double)wall;
		f->idle = t->gpu_known ?
				  (double)t->idle_likely_ns / (double)wall : NAN;
		for (i = 0; i < PT_CAUSE_NR; i++)
			sum += t->cause_ns[i];
		for (i = 0; i < PT_CAUSE_NR && sum; i++)
			f->cause[i] = (double)t->cause_ns[i] / (double)sum;
		for (i = 0; i < t->steps.n; i++)
			f->whole_steps += !t->steps.v[i].partial;
		f->step_ms = an->r->steps.period_ms.mean;
		fill_groups(f);
		find_slow(f);
		judge_starvation(f);
	}
	f->insufficient = insufficient(an, f);
}

int pt_issue_verdicts(struct pt_an *an)
{
	struct pt_r_verdict *out = pt_arena_calloc(an->a, pt_verdict_count,
						   sizeof(*out));
	struct pt_facts f = { 0 };
	const char *root = NULL;
	size_t i, n = 0;
	int yes;

	if (!out)
		return -ENOMEM;
	gather(an, &f);
	for (i = 0; i < pt_verdict_count; i++) {
		const struct pt_verdict_def *d = &pt_verdicts[i];
		struct pt_r_verdict *v = &out[n];

		if (d->root && (root || f.insufficient || !f.is_starved))
			continue;
		memset(v, 0, sizeof(*v));
		v->id = d->id;
		v->severity = f.severity;
		v->certainty = f.confidence;
		v->subject_pid = v->subject_rank = v->subject_line = PT_NULL;
		v->expected_speedup = (struct pt_range){ NAN, NAN, NAN };
		yes = d->judge(an, &f, v);
		if (yes < 0)
			return yes;
		if (!yes)
			continue;
		/* of several ranks the report shows the worst: say which */
		if (an->trainers.n > 1 && v->subject_pid == PT_NULL)
			v->subject_pid = f.t->proc->tgid;
		if (d->root) {
			root = d->id;
		} else if (root) { /* what to do is the root's to say */
			v->consequence_of = root;
			v->advice = NULL;
			v->expected_speedup = (struct pt_range){ NAN, NAN, NAN };
		}
		n++;
	}
	an->r->verdicts = out;
	an->r->n_verdicts = n;
	return 0;
}
