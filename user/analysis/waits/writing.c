/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When the training thread writes files, or waits until threads of its process have written
 * them: checkpoints, which are no data wait.
 */
#include "analysis/waits/givers.h"
#include "model/syscalls.h"

/* As much written between two records of the trainer's main thread is a
 * checkpoint, not a log line or an index for a worker. */
#define WRITE_BURST (1u << 20)
/* Writing goes on behind a pause no longer than this, if nothing was launched
 * meanwhile: the next piece is serialised, or copied from the device. */
#define WRITE_PAUSE_NS (100 * NS_PER_MS)

/* One checkpoint is many writes: what passes between them belongs to it. */
static void join_writing(const struct pt_proc *p, pt_spans *s)
{
	size_t i, n = 0;

	for (i = 0; i < s->n; i++) {
		struct pt_span x = s->v[i];

		if (n && x.begin - s->v[n - 1].end <= WRITE_PAUSE_NS &&
		    !pt_launches_in(p, 0, s->v[n - 1].end, x.begin))
			s->v[n - 1].end = x.end;
		else
			s->v[n++] = x;
	}
	s->n = n;
}

/* So often the loop passes the call behind which it writes, from one time to the next: what
 * it computes there then, and not each time, is for the writing. */
#define WRITE_SELDOM 3

/* The last call that begins before `ts`, where the loop has passed it so often since `from`;
 * NULL. */
static const struct pt_lead_call *seldom_behind(const struct pt_actor *a, uint64_t from,
						 uint64_t ts)
{
	size_t at = pt_bisect(a->calls.n, i, a->calls.v[i].begin < ts), i, n = 0;

	if (!at)
		return NULL;
	for (i = at; i > 0 && n < WRITE_SELDOM && a->calls.v[i - 1].begin >= from; i--)
		n += a->calls.v[i - 1].site == a->calls.v[at - 1].site;
	return n >= WRITE_SELDOM ? &a->calls.v[at - 1] : NULL;
}

/* What the thread computes directly before it writes, back to its last GPU call or sleep, is
 * serialised for it: as long as the writing takes, at most. */
static void add_serialising(const struct pt_actor *a, pt_spans *s)
{
	uint64_t before = 0;
	size_t i, k;

	for (i = 0; i < s->n; i++) {
		struct pt_span *x = &s->v[i];
		const struct pt_lead_call *c = seldom_behind(a, before, x->begin);
		uint64_t most = pt_min64(x->end - x->begin, WRITE_PAUSE_NS);
		uint64_t from = x->begin - pt_min64(x->begin, most);

		before = x->end;
		if (!c)
			continue;
		from = pt_max64(from, c->end);
		for (k = pt_iv_after(a->lead, from);
		     k < a->lead->iv.n && a->lead->iv.v[k].begin < x->begin; k++)
			if (a->lead->iv.v[k].wait != PT_WAIT_RUNQ)
				from = pt_max64(from, a->lead->iv.v[k].end);
		x->begin = pt_min64(from, x->begin);
	}
}

/* A checkpoint is renamed when it is whole, and an old one removed. */
static bool finishes_file(const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_DISK &&
	       (iv->syscall == PT_NR_unlink || iv->syscall == PT_NR_unlinkat ||
		iv->syscall == PT_NR_rename);
}

/* The last launch in [b,e), or the first wait for the device behind it, is over; `b` without. */
static uint64_t behind_launches(const struct pt_proc *p, uint64_t b, uint64_t e)
{
	bool waited = true;
	uint64_t from = b;

	pt_each_call(c, p, b, e) {
		if (pt_call_is_launch(c)) {
			from = pt_max64(c->begin, c->end);
			waited = false;
		} else if (!waited && (pt_call_is_sync(c) || pt_call_is_copy(c))) {
			from = pt_max64(from, c->end);
			waited = true;
		}
	}
	return pt_min64(from, e);
}

/* Bytes are counted when their call returns: the thread may have been in it since before
 * it lost its core, maybe more than once. */
static uint64_t write_began(const struct pt_proc *p, const struct pt_thread *th, size_t i)
{
	const struct pt_iv *v = th->iv.v;
	uint64_t end = v[i].begin;

	for (i--; i && v[i].wait == PT_WAIT_RUNQ && !v[i].gap_before &&
		  v[i].wchar == v[i - 1].wchar &&
		  !pt_launches_in(p, 0, v[i - 1].end, end); i--)
		;
	return behind_launches(p, v[i].end, end);
}

/* A sleep that others of the process end, who write meanwhile: shorter ones are not worth it. */
#define WRITTEN_FOR_NS (5 * NS_PER_MS)

struct writers {
	const struct pt_proc *own;
	uint64_t bytes;
	bool others; /* another process has a part in it */
};

static int writer_leg(void *ctx, const struct pt_leg *l)
{
	struct writers *k = ctx;

	k->others |= l->th->proc != k->own;
	k->bytes += pt_written_between(l->th, l->begin, l->end);
	return 0;
}

/* Does the loop sleep now and then until other threads of its process have written a file?
 * Those that it waits for before each batch may keep what they have loaded. 1, 0 or -ENOMEM. */
static int is_written_for(const struct pt_an *an, const struct pt_actor *a,
			  struct pt_paths *paths, const pt_spans *before,
			  const struct pt_iv *iv)
{
	struct writers k = { .own = a->proc };
	const struct pt_thread *by = iv->valid_wake ?
		pt_model_thread(an->m, iv->waker_tid) : NULL;
	uint64_t last = before->n ? before->v[before->n - 1].end : 0;
	int err;

	if (!by || by->proc != a->proc || iv->ready < iv->begin + WRITTEN_FOR_NS ||
	    pt_inside_call(a->proc, a->lead->tid, iv->begin) ||
	    (iv->begin >= last + WRITE_PAUSE_NS && !seldom_behind(a, last, iv->begin)))
		return 0;
	err = pt_walk_cause(an, paths, by, iv->begin, iv->ready, writer_leg, &k);
	return err ? err : !k.others && k.bytes >= WRITE_BURST;
}

/* When the main thread writes a file, into t->writing: asleep in a write or a
 * flush, or many bytes between two records, or until others have written one. Before the
 * steps are sought: what is written before a fetch is none of it. */
int pt_find_writing(const struct pt_an *an, struct pt_trainer *t, const struct pt_actor *a,
		    struct pt_paths *paths)
{
	const struct pt_thread *th = t->main;
	pt_spans *out = &t->writing;
	size_t i;
	int err = 0;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n && !err; i++) {
		const struct pt_iv *iv = &th->iv.v[i], *prev = &th->iv.v[i ? i - 1 : 0];
		uint64_t end = pt_min64(iv->end, an->t1);
		bool blocked = iv->wait == PT_WAIT_DISK_WRITE ||
			       finishes_file(iv);

		if (iv->begin >= an->t1)
			break;
		if (i && !iv->gap_before && prev->end >= an->t0 &&
		    iv->wchar > prev->wchar &&
		    iv->wchar - prev->wchar >= WRITE_BURST)
			err = pt_spans_add(out, pt_max64(write_began(t->proc, th, i), an->t0),
				       iv->begin);
		if (!err && !blocked) {
			err = is_written_for(an, a, paths, out, iv);
			blocked = err > 0;
			err = err < 0 ? err : 0;
		}
		if (!err && blocked)
			err = pt_spans_add(out, pt_max64(iv->begin, an->t0), end);
	}
	if (!err) {
		join_writing(t->proc, out);
		add_serialising(a, out);
	}
	return err;
}
