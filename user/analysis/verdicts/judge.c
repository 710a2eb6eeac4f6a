/* SPDX-License-Identifier: BSD-2-Clause */
/* All judges are asked; what they found is put in order. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"

static const struct {
	const char *id;
	const struct pt_verdict *verdict;
} list[] = {
#define PT_VERDICT(id, flags, limits) { #id, &pt_verdict_##id },
#include "report/verdicts.def"
};

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
	struct pt_r_evidence evidence[PT_EVIDENCE_MAX]; /* of the one being judged */
	bool front, hung, root;
};

PT_ORDER(by_place, struct issued,
	 pt_cmp(x->place, y->place) ?: (x->place ? 0 : pt_cmp(y->lost, x->lost)) ?:
	 pt_cmp(x->order, y->order))

static bool issued_already(const struct issue *k, const char *id)
{
	size_t i;

	for (i = 0; i < k->n; i++)
		if (!strcmp(k->out[i].v.id, id))
			return true;
	return false;
}

/* May this one still speak? */
static bool due(const struct issue *k, const char *id, enum pt_verdict_stage stage)
{
	bool told = k->f.t && !k->f.insufficient;

	if (issued_already(k, id))
		return false;
	switch (stage) {
	case PT_V_WHERE:
	case PT_V_WHAT:
		return !k->front && k->f.is_starved && !k->f.data_root;
	case PT_V_RESULT:
		return told && (!k->front || k->hung);
	case PT_V_CALM:
		return !k->front && !k->root;
	case PT_V_BESIDE:
		return told && !k->f.no_demand;
	default:
		return !k->front;
	}
}

static void place(struct issue *k, enum pt_verdict_stage stage, struct issued *o)
{
	switch (stage) {
	case PT_V_HUNG:
		k->hung = true;
		k->f.data_root = o->v.id;
		/* fall through */
	case PT_V_FRONT:
		k->front = true;
		o->lost = 2; /* before every other */
		break;
	case PT_V_WHERE:
	case PT_V_WHAT:
		k->f.data_root = o->v.id;
		k->root = true;
		break;
	case PT_V_RESULT:
		o->v.consequence_of = k->f.data_root;
		k->root = true;
		/* nobody knows why: what is known to cost half as much goes first */
		if (!k->f.data_root &&
		    k->f.cause[PT_CAUSE_UNKNOWN] >= PT_SURE_UNFOLLOWED)
			o->lost *= PT_UNEXPLAINED;
		break;
	case PT_V_RANK: /* why that rank is late is a root of its own */
	case PT_V_IDLE:
		k->root = true;
		break;
	case PT_V_BESIDE:
		o->place = 2;
		break;
	default:
		break;
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
	if (pt_served_by(f))
		v->advice = f->largest == PT_GROUP_SLEEP ?
			"A service outside the job makes the batches (role outside in the workers "
			"table) and sleeps meanwhile: see whether that is a limit of its rate, "
			"polling, or a pause between tries. The settings of the job's own loader "
			"will not help." :
			"A service outside the job makes the batches (role outside in the workers "
			"table): give it more cores or processes, or make its items cheaper. The "
			"settings of the job's own loader will not help.";
}

/* Another stage decides how fast batches come. Makers wait for it for a part of their time, and
 * without that would be faster by no more. */
static void advise_fed(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_worker *w = pt_fed_worker(f);
	const struct pt_thread *by = w ? pt_model_thread(an->m, w->giver) : NULL;
	double wall = (double)(an->t1 - an->t0);
	bool apart;

	if (!by)
		return;
	apart = by->proc != w->proc;
	v->advice = pt_sentence(an,
		"%s %u hands the workers what they work on, and they wait for it: more of "
		"them gain nothing. Let it work on several items at a time, start several of it, "
		"or make its part cheaper.", apart ? "Process" : "Thread",
		pt_real_id(apart ? by->tgid : by->tid));
	pt_speedup_share(fmin(f->starved_hi, (double)w->starved_ns / wall),
			 &v->expected_speedup);
}

static const char *put_for(struct pt_an *an, const char *text, const char *what,
			   const char *other)
{
	const char *at = text ? strstr(text, what) : NULL;

	return at ? pt_sentence(an, "%.*s%s%s", (int)(at - text), text, other,
				at + strlen(what)) : text;
}

/* Judges speak of PyTorch's loader of processes. Of threads, PyTorch knows nothing. */
static void speak_of_threads(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	static const struct {
		const char *process, *thread;
	} words[] = {
		{ "num_workers", "the number of loader threads" },
		{ "num_workers", "their number" },
		{ "make __getitem__", "make the work for each batch" },
		{ "Make __getitem__", "Make the work for each batch" },
	};
	size_t i;

	if (!f->t || !f->t->thread_loader || !f->t->concurrent)
		return;
	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		v->title = put_for(an, v->title, words[i].process, words[i].thread);
		v->advice = put_for(an, v->advice, words[i].process, words[i].thread);
	}
}

/* What holds unless a judge says otherwise. */
static void preset(struct issue *k, const char *id, enum pt_verdict_stage stage,
		   struct issued *o)
{
	*o = (struct issued){ .order = k->n, .lost = k->f.starved_shown };
	k->f.lost = &o->lost;
	o->v = (struct pt_r_verdict){
		.id = id, .severity = k->f.severity, .certainty = k->f.confidence,
		.subject_pid = PT_NULL, .subject_rank = PT_NULL, .subject_line = PT_NULL,
		.evidence = k->evidence, .expected_speedup = { NAN, NAN, NAN } };
	/* hidden waiting costs nothing: no change wins more than the starved time */
	if (pt_explains_starving(stage))
		pt_speedup_share(k->f.starved_hi, &o->v.expected_speedup);
}

/* Of several ranks the report shows the worst: say which. */
static void name_rank(const struct issue *k, struct pt_r_verdict *v)
{
	if (k->an->trainers.n < 2 || !k->f.t)
		return;
	if (v->subject_pid == PT_NULL)
		v->subject_pid = k->f.t->proc->tgid;
	if (v->subject_pid == k->f.t->proc->tgid)
		v->subject_rank = pt_rank_of_proc(k->f.t->proc);
}

static int ask(struct issue *k, const char *id, const struct pt_verdict *of, size_t n)
{
	enum pt_verdict_stage stage = of->asked[n].stage;
	struct issued *o = &k->out[k->n];
	struct pt_r_evidence *e;
	int yes;

	if (!due(k, id, stage))
		return 0;
	preset(k, id, stage, o);
	yes = of->asked[n].judge(k->an, &k->f, &o->v);
	if (yes <= 0)
		return yes;
	if (stage == PT_V_WHAT)
		advise_fed(k->an, &k->f, &o->v);
	pt_lower_certainty(&k->f, stage, &o->v);
	/* one maker, file or item of a service is to be looked at like any other */
	if (stage == PT_V_WHAT)
		advise_outside(&k->f, &o->v);
	pt_name_line(k->an, &of->lines, &o->v);
	speak_of_threads(k->an, &k->f, &o->v);
	name_rank(k, &o->v);
	place(k, stage, o);
	e = pt_arena_calloc(k->an->a, o->v.n_evidence + 1, sizeof(*e));
	if (!e || pt_arena_failed(k->an->a)) /* a sentence lacks */
		return -ENOMEM;
	memcpy(e, k->evidence, o->v.n_evidence * sizeof(*e));
	o->v.evidence = e;
	k->n++;
	return 0;
}

static int ask_all(struct issue *k, enum pt_verdict_stage stage)
{
	size_t i, n, times = sizeof(list->verdict->asked) / sizeof(*list->verdict->asked);
	int err = 0;

	for (i = 0; i < PT_VERDICT_NR; i++)
		for (n = 0; n < times && !err; n++)
			if (list[i].verdict->asked[n].stage == stage)
				err = ask(k, list[i].id, list[i].verdict, n);
	return err;
}

/* The verdicts by these facts, into the report. 0 or -ENOMEM. */
static int judge_all(struct pt_an *an, const struct pt_facts *f)
{
	struct issue k = { .an = an, .f = *f };
	struct pt_r_verdict *to;
	int stage, err = 0;
	size_t i;

	k.out = calloc(PT_VERDICT_NR + 1, sizeof(*k.out));
	if (!k.out)
		return -ENOMEM;
	for (stage = PT_V_NEVER + 1; stage < PT_V_STAGES && !err; stage++)
		err = ask_all(&k, (enum pt_verdict_stage)stage);
	to = err ? NULL : pt_arena_calloc(an->a, k.n + 1, sizeof(*to));
	if (!to) {
		err = err ? err : -ENOMEM;
		goto out;
	}
	qsort(k.out, k.n, sizeof(*k.out), by_place);
	for (i = 0; i < k.n; i++)
		to[i] = k.out[i].v;
	an->r->verdicts = to;
	an->r->n_verdicts = k.n;
out:
	free(k.out);
	return err;
}

int pt_issue_verdicts(struct pt_an *an, const struct pt_measured *k)
{
	struct pt_facts f = { 0 };
	int err = pt_gather_facts(an, k, &f);

	return err ? err : judge_all(an, &f);
}
