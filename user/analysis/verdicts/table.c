/* SPDX-License-Identifier: BSD-2-Clause */
/* Which verdicts there are, and in which order they speak. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/verdicts/verdict.h"

static bool mostly_first_batches(const struct pt_facts *f)
{
	return f->wait_share > 0 &&
	       f->steady.first_share >= f->th->slow_share * f->wait_share;
}

static bool mostly_slow_files(const struct pt_facts *f)
{
	return f->item.slow_share >= f->th->slow_share;
}

static bool takes_turns(const struct pt_facts *f)
{
	return f->asked >= f->th->lock_asked;
}

/* In the order of a practitioner's decisions: can it be told at all; inside
 * the trainer or its workers; one batch, file or worker or all; which
 * resource. An id may stand twice: as a root under a condition, and beside. */
#define V(name, kind, when) { #name, kind, pt_judge_##name, when }
const struct pt_verdict_def pt_verdicts[] = {
	V(hung_worker, PT_V_HUNG, NULL),
	V(insufficient_data, PT_V_FRONT, NULL),
	V(no_demand, PT_V_FRONT, NULL),
	V(rank_straggler, PT_V_RANK, NULL),
	V(loader_restart, PT_V_DATA, mostly_first_batches),
	V(slow_first_batch, PT_V_DATA, mostly_first_batches),
	V(main_thread_loading, PT_V_DATA, NULL),
	V(slow_file, PT_V_DATA, mostly_slow_files),
	V(lock_bound, PT_V_DATA, takes_turns),
	V(slow_worker, PT_V_DATA, NULL),
	V(slow_item, PT_V_DATA, NULL),
	V(network_bound, PT_V_DATA, NULL),
	V(page_fault_io, PT_V_DATA, NULL),
	V(io_bound, PT_V_DATA, NULL),
	V(lock_bound, PT_V_DATA, NULL),
	V(ipc_bound, PT_V_DATA, NULL),
	V(cpu_oversubscribed, PT_V_DATA, NULL),
	V(too_few_workers, PT_V_DATA, NULL),
	V(cpu_bound, PT_V_DATA, NULL),
	V(gpu_starved, PT_V_RESULT, NULL),
	V(checkpoint_stall, PT_V_IDLE, NULL),
	V(transfer_bound, PT_V_IDLE, NULL),
	V(host_bound, PT_V_IDLE, NULL),
	{ "lock_bound", PT_V_IDLE, pt_judge_host_lock, NULL },
	V(sync_bound, PT_V_IDLE, NULL),
	V(launch_bound, PT_V_IDLE, NULL),
	V(balanced, PT_V_CALM, NULL),
	V(loader_restart, PT_V_BESIDE, NULL),
	V(slow_first_batch, PT_V_BESIDE, NULL),
	V(slow_file, PT_V_BESIDE, NULL),
	V(unstable_steps, PT_V_BESIDE, NULL),
	V(host_memory_growth, PT_V_BESIDE, NULL),
	V(gpu_memory_growth, PT_V_BESIDE, NULL),
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

struct issued {
	struct pt_r_verdict v;
	double lost;
	int place; /* roots, their consequences, findings beside */
	size_t order;
};

struct issue {
	struct pt_an *an;
	struct pt_facts f;
	struct issued *out;
	size_t n;
	bool front, hung, root;
};

static int by_place(const void *a, const void *b)
{
	const struct issued *x = a, *y = b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	if (!x->place && x->lost != y->lost)
		return x->lost > y->lost ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

static bool issued_already(const struct issue *k, const char *id)
{
	size_t i;

	for (i = 0; i < k->n; i++)
		if (!strcmp(k->out[i].v.id, id))
			return true;
	return false;
}

/* May this one still speak? */
static bool due(const struct issue *k, const struct pt_verdict_def *d)
{
	if (issued_already(k, d->id) || (d->when && !d->when(&k->f)))
		return false;
	switch (d->kind) {
	case PT_V_FRONT:
	case PT_V_HUNG:
		return !k->front;
	case PT_V_DATA:
		return !k->front && k->f.is_starved && !k->f.data_root;
	case PT_V_RESULT:
		return k->f.t && !k->f.insufficient && (!k->front || k->hung);
	case PT_V_RANK:
	case PT_V_IDLE:
		return !k->front;
	case PT_V_CALM:
		return !k->front && !k->root;
	default:
		return k->f.t && !k->f.insufficient && !k->f.no_demand;
	}
}

static void place(struct issue *k, const struct pt_verdict_def *d,
		  struct issued *o)
{
	switch (d->kind) {
	case PT_V_HUNG:
		k->hung = true;
		k->f.data_root = d->id;
		/* fall through */
	case PT_V_FRONT:
		k->front = true;
		o->lost = 2; /* before every other */
		break;
	case PT_V_RANK: /* why that rank is late is a root of its own */
		k->root = true;
		break;
	case PT_V_DATA:
		k->f.data_root = d->id;
		k->root = true;
		break;
	case PT_V_RESULT:
		o->v.consequence_of = k->f.data_root;
		k->root = true;
		break;
	case PT_V_IDLE:
		k->root = true;
		break;
	case PT_V_CALM:
		break;
	default:
		o->place = 2;
	}
	if (!o->v.consequence_of)
		return;
	o->place = 1;
	/* what to do is the root's to say */
	o->v.advice = NULL;
	o->v.expected_speedup = (struct pt_range){ NAN, NAN, NAN };
}

/* Whoever makes the batches is not of the job: nothing in it can be set. */
static void advise_outside(const struct pt_facts *f, struct pt_r_verdict *v)
{
	size_t i, outside = 0;

	for (i = 0; f->t && i < f->t->workers.n; i++)
		outside += f->t->workers.v[i].role == PT_ROLE_OUTSIDE;
	if (outside && !f->t->concurrent)
		v->advice = "The batches are made by a service outside of the job (role outside in the workers' table): give it more cores or processes, or make its items cheaper. Settings of the job's own loader do not change that.";
}

static int try_one(struct issue *k, const struct pt_verdict_def *d)
{
	struct issued *o = &k->out[k->n];
	int yes;

	if (!due(k, d))
		return 0;
	memset(o, 0, sizeof(*o));
	o->order = k->n;
	o->lost = k->f.starved_shown;
	k->f.lost = &o->lost;
	o->v.id = d->id;
	o->v.severity = k->f.severity;
	o->v.certainty = k->f.confidence;
	o->v.subject_pid = o->v.subject_rank = o->v.subject_line = PT_NULL;
	o->v.expected_speedup = (struct pt_range){ NAN, NAN, NAN };
	yes = d->judge(k->an, &k->f, &o->v);
	if (yes <= 0)
		return yes;
	pt_lower_certainty(&k->f, d->kind, &o->v);
	if (d->kind == PT_V_DATA)
		advise_outside(&k->f, &o->v);
	/* of several ranks the report shows the worst: say which */
	if (k->an->trainers.n > 1 && o->v.subject_pid == PT_NULL && k->f.t)
		o->v.subject_pid = k->f.t->proc->tgid;
	if (k->an->trainers.n > 1 && k->f.t &&
	    o->v.subject_pid == k->f.t->proc->tgid)
		o->v.subject_rank = pt_rank_of_proc(k->f.t->proc);
	place(k, d, o);
	k->n++;
	return 0;
}

int pt_judge(struct pt_an *an, const struct pt_facts *f)
{
	struct issue k = { .an = an, .f = *f };
	struct pt_r_verdict *list;
	size_t i;
	int err = 0;

	k.out = calloc(pt_verdict_count, sizeof(*k.out));
	if (!k.out)
		err = -ENOMEM;
	for (i = 0; i < pt_verdict_count && !err; i++)
		err = try_one(&k, &pt_verdicts[i]);
	list = err ? NULL : pt_arena_calloc(an->a, k.n + 1, sizeof(*list));
	if (!list) {
		free(k.out);
		return err ? err : -ENOMEM;
	}
	qsort(k.out, k.n, sizeof(*k.out), by_place);
	for (i = 0; i < k.n; i++)
		list[i] = k.out[i].v;
	free(k.out);
	an->r->verdicts = list;
	an->r->n_verdicts = k.n;
	return 0;
}

int pt_issue_verdicts(struct pt_an *an)
{
	struct pt_facts f = { 0 };
	int err = pt_gather_facts(an, &f);

	return err ? err : pt_judge(an, &f);
}
