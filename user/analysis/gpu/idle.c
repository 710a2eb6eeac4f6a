/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A device's likely idle time by what the host did instead of feeding it. Every
 * nanosecond is charged once, by the first rule that holds:
 *
 *   a data wait        the largest cause of that wait
 *   checkpoint         the main thread writes a file
 *   compile            a compiler that the job started is at work
 *   collective, transfer, sync    the main thread is inside such a call
 *   sync               certainly idle behind a sync: the host does something else before
 *                      it launches again
 *   run_queue          one of these, but it lacks a core
 *   launch             a pause between two launches
 *   other_host         anything else
 */
#include <errno.h>
#include <string.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"

static const char *const compilers[] = {
	"cc1", "cc1plus", "gcc", "g++", "cc", "c++", "clang", "clang++", "nvcc",
	"cicc", "ptxas", "nvlink", "fatbinary", "as", "ld", "ld.lld", "collect2",
};

struct idle {
	const struct pt_an *an;
	const struct pt_trainer *t;
	pt_spans rest; /* not charged yet; tidy */
	uint64_t wait_ns[PT_CAUSE_NR]; /* in data waits */
	uint64_t ns[PT_CAUSE_NR];      /* elsewhere */
};

static int take_waits(struct idle *x)
{
	const struct pt_trainer *t = x->t;
	pt_spans all = { 0 };
	int err = pt_wait_spans(x->an, t, &all);

	pt_each(const struct pt_fetch, w, &t->waits)
		x->wait_ns[w->cause] += pt_spans_in(&x->rest, w->begin, w->end);
	err = err ?: pt_spans_remove(&x->rest, &all);
	pt_vec_free(&all);
	return err;
}

/* Charge what lies in `s`. */
static int charge_spans(struct idle *x, const pt_spans *s, enum pt_cause cause)
{
	x->ns[cause] += pt_spans_overlap(&x->rest, s);
	return pt_spans_remove(&x->rest, s);
}

static bool compiles(const struct pt_proc *p)
{
	size_t i;

	for (i = 0; i < sizeof(compilers) / sizeof(compilers[0]); i++)
		if (!strncmp(p->comm, compilers[i], sizeof(p->comm)))
			return true;
	return false;
}

static int take_compilers(struct idle *x)
{
	const struct pt_model *m = x->an->m;
	pt_spans s = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < m->all_procs.n && !err; i++) {
		const struct pt_proc *p = m->all_procs.v[i];
		struct pt_span one = { pt_max64(p->born, x->an->t0),
				       p->died ? p->died : x->an->t1 };

		if (p != x->t->proc && compiles(p))
			err = pt_vec_push(&s, one);
	}
	pt_spans_tidy(&s, x->an->t0, x->an->t1);
	err = err ?: charge_spans(x, &s, PT_CAUSE_COMPILE);
	pt_vec_free(&s);
	return err;
}

/* What holds the host in this call, while the device idles. */
static enum pt_cause cause_of(const struct pt_gpu_call *c)
{
	if (c->cls == PT_API_COLLECTIVE || c->cls == PT_API_COMM)
		return PT_CAUSE_COLLECTIVE;
	if (pt_call_is_copy(c))
		return PT_CAUSE_TRANSFER;
	return pt_call_is_sync(c) ? PT_CAUSE_SYNC : PT_CAUSE_NR;
}

struct in_calls {
	struct idle *x;
	enum pt_cause cause;
};

static int call_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		      bool queued)
{
	struct in_calls *k = ctx;

	(void)iv;
	k->x->ns[queued ? PT_CAUSE_RUN_QUEUE : k->cause] += e - b;
	return 0;
}

/* What is left of `s`, by what the host did in it; it is charged. */
static int take_spans(struct idle *x, pt_spans *s, enum pt_cause cause)
{
	struct in_calls k = { x, cause };
	int err = pt_spans_meet(s, &x->rest);
	size_t i;

	for (i = 0; i < s->n && !err; i++)
		err = pt_walk(x->t->main, s->v[i].begin, s->v[i].end, call_piece, &k);
	return err ?: pt_spans_remove(&x->rest, s);
}

static int take_calls(struct idle *x, enum pt_cause cause)
{
	const struct pt_proc *p = x->t->proc;
	pt_spans s = { 0 };
	int err = 0;

	pt_each_call(c, p, x->an->t0, x->an->t1) {
		struct pt_span one = { c->begin, c->end };

		if (c->tid == x->t->main->tid && c->end > c->begin &&
		    cause_of(c) == cause)
			err = err ?: pt_vec_push(&s, one);
	}
	pt_spans_tidy(&s, x->an->t0, x->an->t1);
	err = err ?: take_spans(x, &s, cause);
	pt_vec_free(&s);
	return err;
}

/* Certainly idle, and none of the above: behind a sync. */
static int take_behind_syncs(struct idle *x, const pt_spans *hard)
{
	pt_spans s = { 0 };
	int err = pt_spans_append(&s, hard);

	err = err ?: take_spans(x, &s, PT_CAUSE_SYNC);
	pt_vec_free(&s);
	return err;
}

static void take_rest(struct idle *x)
{
	size_t i;

	for (i = 0; i < x->rest.n; i++) {
		uint64_t ns = x->rest.v[i].end - x->rest.v[i].begin;

		x->ns[ns <= PT_LAUNCH_GAP_NS ? PT_CAUSE_LAUNCH :
					       PT_CAUSE_OTHER_HOST] += ns;
	}
}

PT_ORDER(by_seconds, struct pt_r_charge,
	 pt_cmp(y->seconds, x->seconds) ?: (int)x->cause - (int)y->cause)

static void put(struct pt_r_charge *out, size_t *n, uint64_t ns, uint64_t wall,
		enum pt_cause cause, const char *what)
{
	if (!ns || !wall)
		return;
	out[(*n)++] = (struct pt_r_charge){
		.cause = cause, .seconds = pt_sec(ns),
		.share = (double)ns / (double)wall, .subject_pid = PT_NULL,
		.subject_tid = PT_NULL, .what = what,
	};
}

static const char *const what[PT_CAUSE_NR] = {
	[PT_CAUSE_CHECKPOINT] = "writing a file",
	[PT_CAUSE_SYNC] = "in or after a sync",
	[PT_CAUSE_RUN_QUEUE] = "of the training thread",
};

static int report(const struct idle *x, struct pt_r_gpu *g)
{
	uint64_t wall = x->an->t1 - x->an->t0;
	struct pt_r_charge *out = pt_arena_calloc(x->an->a, 2 * PT_CAUSE_NR,
						  sizeof(*out));
	size_t n = 0;
	int c;

	if (!out)
		return -ENOMEM;
	for (c = 0; c < PT_CAUSE_NR; c++) {
		put(out, &n, x->wait_ns[c], wall, (enum pt_cause)c,
		    "waiting for data");
		put(out, &n, x->ns[c], wall, (enum pt_cause)c, what[c]);
	}
	qsort(out, n, sizeof(*out), by_seconds);
	g->idle_causes = out;
	g->n_idle_causes = n;
	return 0;
}

int pt_fill_idle_causes(const struct pt_an *an, const struct pt_trainer *t,
			const struct pt_dev *d, struct pt_r_gpu *g)
{
	struct idle x = { .an = an, .t = t };
	int err = pt_spans_append(&x.rest, &d->idle_likely);

	err = err ?: take_waits(&x);
	err = err ?: charge_spans(&x, &t->writing, PT_CAUSE_CHECKPOINT);
	err = err ?: take_compilers(&x);
	err = err ?: take_calls(&x, PT_CAUSE_COLLECTIVE);
	err = err ?: take_calls(&x, PT_CAUSE_TRANSFER);
	err = err ?: take_calls(&x, PT_CAUSE_SYNC);
	err = err ?: take_behind_syncs(&x, &d->idle_hard);
	if (!err) {
		take_rest(&x);
		err = report(&x, g);
	}
	pt_vec_free(&x.rest);
	return err;
}
