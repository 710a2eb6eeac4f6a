/* SPDX-License-Identifier: BSD-2-Clause */
/* One thread's looks against its intervals. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/lines/lines.h"
#include "analysis/waits/gaps.h"
#include "base/wilson.h"

/* Of those below a line the first that are met; what is in another one is in none. */
#define LIBRARIES 6
#define FUNCTIONS 16 /* ... of each */

/* A line, in what the thread did there, and whether it obtained data then. */
struct at {
	uint32_t line;
	uint8_t cause; /* CPU: it ran, or was ready to */
	bool waits;
	uint64_t looks; /* running */
	struct {
		uint32_t line; /* of a library that is no Python */
		uint64_t looks;
		struct {
			uint32_t line; /* of a function of it */
			uint64_t looks;
		} at[FUNCTIONS];
	} in[LIBRARIES];
	uint64_t ns;	/* asleep: of sleeps that were looked at */
};

/* What it did in all: so long it ran, with so many looks; so long it slept, and of that
 * in sleeps that were looked at. Both only in calls of the GPU library (SYNC). */
struct sum {
	uint64_t ran_ns, looks, ns, seen_ns;
};

/* Which line of a stack is told, once each. */
struct told {
	const struct pt_model *m;
	uint32_t *function; /* by line: the first line of the same function */
	bool *trainers;	    /* ... which the trainer's main thread is ever in */
	uint32_t *trainer, *worker; /* by stack; NOT_YET: not looked at */
};
#define NOT_YET UINT32_MAX

struct thread {
	struct pt_an *an;
	struct told *told;
	const struct pt_trainer *t;
	const struct pt_worker *w; /* NULL: the trainer's main thread */
	const struct pt_thread *th;
	size_t hint, look, call, spin;
	PT_VEC(struct at) at;
	struct sum sum[PT_CAUSE_NR][2];
};

static int by_function(const struct pt_code_line *a, const struct pt_code_line *b)
{
	if (!a->name || !b->name) /* not told */
		return (a->name != NULL) - (b->name != NULL);
	return strcmp(a->name, b->name) ?: strcmp(a->file, b->file);
}

PT_ORDER(by_function_of, const struct pt_code_line *,
	 by_function(*x, *y) ?: pt_cmp(*x, *y))

static int find_functions(struct told *d)
{
	const struct pt_code_line *all = d->m->code_lines.v, **v;
	size_t n = d->m->code_lines.n, i, first = 0;

	v = malloc((n + 1) * sizeof(*v));
	d->function = malloc((n + 1) * sizeof(*d->function));
	d->trainers = calloc(n + 1, sizeof(*d->trainers));
	if (!v || !d->function || !d->trainers) {
		free(v);
		return -ENOMEM;
	}
	for (i = 0; i < n; i++)
		v[i] = &all[i];
	qsort(v, n, sizeof(*v), by_function_of);
	for (i = 0; i < n; i++) {
		if (by_function(v[first], v[i]))
			first = i;
		d->function[v[i] - all] = (uint32_t)(v[first] - all);
	}
	free(v);
	return 0;
}

/* The functions that the thread is ever in. */
static int find_trainers(struct told *d, const struct pt_thread *main)
{
	bool *seen = calloc(d->m->code_stacks.n + 1, sizeof(*seen));
	const struct pt_code_stack *s;
	uint32_t id;
	size_t i;
	int err = seen ? find_functions(d) : -ENOMEM;

	for (i = 0; !err && i < main->looks.n; i++)
		for (id = main->looks.v[i].stack; (s = pt_model_stack(d->m, id)) && !seen[id];
		     id = s->caller) {
			seen[id] = true;
			if (pt_model_line(d->m, s->line))
				d->trainers[d->function[s->line - 1]] = true;
		}
	free(seen);
	return err;
}

/* The innermost line of the job's own code; where there is none, the innermost. A worker
 * that was forked has the trainer's functions below its own: those tell nothing of it. */
static uint32_t choose(const struct told *d, uint32_t stack, bool worker)
{
	uint32_t id[PT_STACK_DEPTH], line;
	size_t n = pt_model_unfold(d->m, stack, id), i, own;

	for (own = i = 0; i < n; i++) {
		line = pt_model_stack(d->m, id[i])->line;
		if (pt_model_line(d->m, line))
			id[own++] = line;
	}
	n = own;
	while (worker && own && d->trainers[d->function[id[own - 1] - 1]])
		own--;
	for (i = 0; i < own; i++)
		if (!pt_model_line(d->m, id[i])->library)
			return id[i];
	return n ? id[0] : 0;
}

static uint32_t telling(struct thread *k, uint32_t stack)
{
	uint32_t *of = k->w ? k->told->worker : k->told->trainer;

	if (!stack || stack > k->an->m->code_stacks.n)
		return 0;
	if (of[stack - 1] == NOT_YET)
		of[stack - 1] = choose(k->told, stack, k->w);
	return of[stack - 1];
}

static struct at *place_of(struct thread *k, uint32_t stack, uint8_t cause, bool waits)
{
	const struct at new = { .line = telling(k, stack), .cause = cause,
				.waits = waits };
	size_t i;

	for (i = 0; i < k->at.n; i++)
		if (k->at.v[i].line == new.line && k->at.v[i].cause == cause &&
		    k->at.v[i].waits == waits)
			return &k->at.v[i];
	return !new.line || pt_vec_push(&k->at, new) ? NULL : &k->at.v[k->at.n - 1];
}

/* Is most of [b,e) obtaining data? Only the trainer does. */
static bool waits(struct thread *k, uint64_t b, uint64_t e)
{
	return !k->w && 2 * pt_waits_in(k->t, &k->hint, b, e) > e - b;
}

/* Does the thread sleep in a call of the GPU library? Asked in time's order. */
static bool in_gpu_call(struct thread *k, const struct pt_iv *iv)
{
	const struct pt_proc *p = k->th->proc;
	const struct pt_gpu_call *c;
	size_t i;

	for (; k->call < p->gpu.n && p->gpu.v[k->call].begin <= iv->begin; k->call++)
		;
	for (i = k->call; i-- > 0 && k->call - i <= 8;) {
		c = &p->gpu.v[i];
		if (c->tid == k->th->tid)
			return c->end >= iv->begin + (iv->ready - iv->begin) / 2;
	}
	return false;
}

static enum pt_cause cause_of(struct thread *k, const struct pt_iv *iv)
{
	return !k->w && in_gpu_call(k, iv) ? PT_CAUSE_SYNC :
					     pt_piece_cause(k->an, k->t, k->w, iv);
}

/* The first look that ends behind `ts`. */
static const struct pt_code_look *look_from(struct thread *k, uint64_t ts)
{
	const struct pt_thread *th = k->th;

	while (k->look < th->looks.n && th->looks.v[k->look].end <= ts)
		k->look++;
	return k->look < th->looks.n ? &th->looks.v[k->look] : NULL;
}

static void count_function(struct at *at, size_t in, uint32_t line)
{
	size_t i;

	for (i = 0; line && i < FUNCTIONS; i++)
		if (!at->in[in].at[i].looks || at->in[in].at[i].line == line) {
			at->in[in].at[i].line = line;
			at->in[in].at[i].looks++;
			return;
		}
}

static void count_library(const struct thread *k, struct at *at, const struct pt_code_look *l)
{
	const struct pt_code_stack *s = l->leaf != l->stack ?
						pt_model_stack(k->an->m, l->leaf) : NULL;
	size_t i;

	for (i = 0; s && i < LIBRARIES; i++)
		if (!at->in[i].looks || at->in[i].line == s->line) {
			at->in[i].line = s->line;
			at->in[i].looks++;
			count_function(at, i, pt_model_function(k->an->m, l));
			return;
		}
}

/* Looks that lie in [b,e), all of which it ran or was ready to. */
static void count_running(struct thread *k, uint64_t b, uint64_t e, enum pt_cause cause)
{
	const struct pt_code_look *l = look_from(k, b);
	bool obtains = waits(k, b, e);
	struct sum *s = &k->sum[cause][obtains];
	struct at *at;

	s->ran_ns += e - b;
	for (; l && l->end < e; l = look_from(k, l->end)) {
		if (l->begin < b)
			continue; /* torn: it began to run meanwhile */
		at = place_of(k, l->stack, cause, obtains);
		if (!at)
			continue;
		at->looks++;
		count_library(k, at, l);
		s->looks++;
	}
}

#define SPIN_NS (NS_PER_S / 10000) /* a call that runs for longer waits for the device */

/* A thread that spins in a sync runs, and does nothing of its own. */
static void on_running(struct thread *k, uint64_t b, uint64_t e)
{
	const struct pt_proc *p = k->th->proc;
	size_t i;

	for (; k->spin < p->gpu.n && p->gpu.v[k->spin].begin <= b; k->spin++)
		;
	i = k->w ? p->gpu.n : k->spin - pt_min64(k->spin, 8); /* one may be under way */
	for (; i < p->gpu.n && p->gpu.v[i].begin < e; i++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];
		uint64_t from = pt_max64(b, c->begin), until = pt_min64(e, c->end);

		if (c->tid != k->th->tid || until < from + SPIN_NS)
			continue;
		if (b < from)
			count_running(k, b, from, PT_CAUSE_CPU);
		count_running(k, from, until, PT_CAUSE_SYNC);
		b = until;
	}
	if (b < e)
		count_running(k, b, e, PT_CAUSE_CPU);
}

/* It slept in [b,e), a part of `iv` or all of it. */
static int on_asleep(struct thread *k, uint64_t b, uint64_t e, const struct pt_iv *iv)
{
	const struct pt_code_look *l = look_from(k, iv->begin);
	bool obtains = waits(k, b, e);
	enum pt_cause cause = cause_of(k, iv);
	struct sum *s = &k->sum[cause][obtains];
	struct at *at;

	s->ns += e - b;
	while (l && l->begin < iv->begin)
		l = look_from(k, l->end);
	at = l && l->end <= iv->ready ? place_of(k, l->stack, cause, obtains) : NULL;
	if (!at)
		return 0;
	at->ns += e - b;
	s->seen_ns += e - b;
	return 0;
}

/* What it ran goes on over the end of a time slice. */
struct pieces {
	struct thread *k;
	uint64_t from, until; /* it ran; equal: nothing is open */
};

static int on_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv, bool queued)
{
	struct pieces *p = ctx;

	if (!iv || queued || iv->wait == PT_WAIT_RUNQ) {
		if (p->from == p->until)
			p->from = b;
		p->until = e;
		return 0;
	}
	if (p->from < p->until)
		on_running(p->k, p->from, p->until);
	p->from = p->until = e;
	return on_asleep(p->k, b, e, iv);
}

/* Running: by so many looks. Asleep: what was looked at, and all of the rest that might be
 * there, too. */
static void bound(const struct at *a, const struct sum *s, struct pt_r_line *o)
{
	double all = pt_sec(s->ns), seen = pt_sec(s->seen_ns), n = (double)s->looks;
	double ran = pt_sec(s->ran_ns), low, high;

	o->seconds = o->low = o->high = 0;
	if (a->ns) {
		o->low = pt_sec(a->ns);
		o->high = o->low + (all - seen);
		o->seconds = o->low + (all - seen) * o->low / seen;
	}
	if (a->looks) {
		pt_wilson((double)a->looks / n, n, &low, &high);
		o->low += ran * low;
		o->high += ran * high;
		o->seconds += ran * (double)a->looks / n;
	}
}

/* The library in which most looks below the line were, and the function of it. */
static void fill_native(const struct thread *k, const struct at *a, struct pt_r_line *o)
{
	const struct pt_code_line *l;
	size_t i, most = 0, best = 0;

	for (i = 0; i < LIBRARIES; i++)
		if (a->in[i].looks > a->in[most].looks)
			most = i;
	l = a->in[most].looks ? pt_model_line(k->an->m, a->in[most].line) : NULL;
	if (!l)
		return;
	o->native = pt_arena_strdup(k->an->a, l->name);
	o->native_share = (double)a->in[most].looks / (double)a->looks;
	for (i = 0; i < FUNCTIONS; i++)
		if (a->in[most].at[i].looks > a->in[most].at[best].looks)
			best = i;
	if (!a->in[most].at[best].looks)
		return;
	l = pt_model_line(k->an->m, a->in[most].at[best].line);
	o->native_symbol = pt_arena_strdup(k->an->a, l->name);
	o->native_symbol_share = (double)a->in[most].at[best].looks / (double)a->looks;
}

static void fill_row(const struct thread *k, const struct at *a, struct pt_r_line *o)
{
	const struct sum *s = &k->sum[a->cause][a->waits];
	const struct pt_code_line *l = pt_model_line(k->an->m, a->line);

	*o = (struct pt_r_line){ .who = k->w ? "worker" : "trainer", .pid = k->th->tgid,
				 .tid = k->th->tid, .cause = (enum pt_cause)a->cause,
				 .data_wait = k->w ? PT_NULL : a->waits,
				 .share = NAN, .line = l->line ? l->line : PT_NULL,
				 .looks = (int64_t)s->looks };
	if (a->ns)
		o->looks = PT_NULL;
	bound(a, s, o);
	o->function = pt_arena_strdup(k->an->a, l->name);
	o->file = pt_arena_strdup(k->an->a, l->file);
	o->native_share = o->native_symbol_share = NAN;
	fill_native(k, a, o);
}

static int add_rows(const struct thread *k, struct pt_report *r)
{
	struct pt_r_line *o = pt_arena_calloc(k->an->a, r->n_lines + k->at.n + 1, sizeof(*o));
	size_t i;

	if (!o)
		return -ENOMEM;
	if (r->n_lines)
		memcpy(o, r->lines, r->n_lines * sizeof(*o));
	for (i = 0; i < k->at.n; i++)
		if (k->at.v[i].looks || k->at.v[i].ns)
			fill_row(k, &k->at.v[i], &o[r->n_lines++]);
	r->lines = o;
	return pt_arena_failed(k->an->a) ? -ENOMEM : 0;
}

static int measure_thread(struct pt_an *an, struct told *told, const struct pt_trainer *t,
			  const struct pt_worker *w)
{
	const struct pt_thread *th = w ? w->main : t->main;
	struct thread k = { .an = an, .told = told, .t = t, .w = w, .th = th };
	uint64_t b = pt_max64(an->t0, th->first), e = pt_min64(an->t1, pt_thread_end(an, th));
	struct pieces p = { .k = &k, .from = b, .until = b };
	int err = 0;

	if (!th->looks.n || e <= b)
		return 0;
	err = pt_walk(th, b, e, on_piece, &p);
	if (!err && p.from < p.until)
		on_running(&k, p.from, p.until);
	err = err ?: add_rows(&k, an->r);
	pt_vec_free(&k.at);
	return err;
}

int pt_telling_line(const struct pt_model *m, const struct pt_thread *trainer, uint32_t stack,
		    uint32_t *line)
{
	struct told d = { .m = m };
	int err = trainer ? find_trainers(&d, trainer) : 0;

	*line = err ? 0 : choose(&d, stack, trainer);
	free(d.function);
	free(d.trainers);
	return err;
}

uint64_t pt_same_line_since(const struct pt_model *m, const struct pt_thread *th)
{
	const struct told d = { .m = m };
	uint64_t since = UINT64_MAX;
	size_t i = th->looks.n;
	uint32_t last = 0, was = 0;

	for (; i-- > 0; since = th->looks.v[i].begin) {
		uint32_t stack = th->looks.v[i].stack;

		if (stack != was && last != choose(&d, stack, false) && was)
			break;
		if (!was)
			last = choose(&d, stack, false);
		was = stack;
	}
	return since;
}

#define APART_NS (2 * NS_PER_S) /* between looks; longer, and nobody knows */

/* Where it was sampled: for what each look stands. *all: the sum. 0 or -ENOMEM. */
static int sum_samples(struct pt_an *an, const struct pt_trainer *t, bool data, uint64_t *ns,
		       uint64_t *all)
{
	const struct pt_code_look *l = t->main->looks.v;
	size_t n = t->main->looks.n, hint = 0, i;
	double *weight;
	int err = pt_weigh_looks(an, t->main, &weight);

	*all = 0;
	for (i = 0; i < n && !err; i++) {
		if (l[i].begin < an->t0 || l[i].end > an->t1 || !pt_model_stack(an->m, l[i].stack) ||
		    data != (pt_waits_in(t, &hint, l[i].begin, l[i].begin + 1) > 0) ||
		    pt_inside_call(t->proc, t->main->tid, l[i].begin))
			continue;
		ns[l[i].stack - 1] += (uint64_t)weight[i];
		*all += (uint64_t)weight[i];
	}
	free(weight);
	return err;
}

/* Where each look found it until the next one. */
static uint64_t sum_stacks(struct pt_an *an, const struct pt_trainer *t, bool data, uint64_t *ns)
{
	const struct pt_code_look *l = t->main->looks.v;
	size_t n = t->main->looks.n, hint = 0, i;
	uint64_t all = 0, took;

	for (i = 0; i + 1 < n; i++) {
		took = l[i + 1].begin - l[i].begin;
		if (l[i].begin < an->t0 || l[i + 1].begin > an->t1 || took > APART_NS ||
		    !pt_model_stack(an->m, l[i].stack) ||
		    data != (2 * pt_waits_in(t, &hint, l[i].begin, l[i + 1].begin) > took) ||
		    pt_inside_call(t->proc, t->main->tid, l[i].begin))
			continue;
		ns[l[i].stack - 1] += took;
		all += took;
	}
	return all;
}

int pt_most_line(const struct pt_model *m, const uint64_t *stacks, uint32_t *line,
		 uint64_t *most)
{
	const struct told d = { .m = m };
	uint64_t *lines = calloc(m->code_lines.n + 1, sizeof(*lines));
	uint32_t at;
	size_t i;

	*line = 0;
	*most = 0;
	for (i = 0; lines && i < m->code_stacks.n; i++)
		if (stacks[i] && (at = choose(&d, (uint32_t)i + 1, false)))
			lines[at - 1] += stacks[i];
	for (i = 0; lines && i < m->code_lines.n; i++)
		if (lines[i] > *most) {
			*most = lines[i];
			*line = (uint32_t)i + 1;
		}
	free(lines);
	return lines ? 0 : -ENOMEM;
}

int pt_late_line(struct pt_an *an, const struct pt_trainer *t, bool data, uint32_t *line,
		 uint32_t *stack, double *share)
{
	const struct told d = { .m = an->m };
	size_t n = an->m->code_stacks.n, i;
	uint64_t *ns = calloc(n + 1, sizeof(*ns)), all = 0, most;
	int err = ns ? 0 : -ENOMEM;

	*line = *stack = 0;
	if (err || !t->main)
		goto out;
	if (pt_is_sampled(t->main))
		err = sum_samples(an, t, data, ns, &all);
	else
		all = sum_stacks(an, t, data, ns);
	err = err ?: pt_most_line(an->m, ns, line, &most);
	if (err)
		goto out;
	*share = all ? (double)most / (double)all : 0;
	for (i = 0, most = 0; i < n; i++)
		if (ns[i] > most && choose(&d, (uint32_t)i + 1, false) == *line) {
			most = ns[i];
			*stack = (uint32_t)i + 1;
		}
out:
	free(ns);
	return err;
}

int pt_measure_lines(struct pt_an *an, const struct pt_trainer *t)
{
	size_t n = an->m->code_stacks.n, i;
	struct told d = { .m = an->m };
	int err;

	if (!n)
		return 0;
	d.trainer = malloc(2 * n * sizeof(*d.trainer));
	err = d.trainer ? find_trainers(&d, t->main) : -ENOMEM;
	if (err)
		goto out;
	d.worker = d.trainer + n;
	memset(d.trainer, 0xff, 2 * n * sizeof(*d.trainer));
	err = measure_thread(an, &d, t, NULL);
	for (i = 0; i < t->workers.n && !err; i++)
		err = measure_thread(an, &d, t, &t->workers.v[i]);
out:
	free(d.trainer);
	free(d.function);
	free(d.trainers);
	return err;
}
