/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is who, by behaviour: the trainer launches GPU work and consumes the
 * final hand-off; a worker takes indices from it and delivers to it; the pin
 * thread receives for it; feeders write for others. Names only confirm.
 */
#include <errno.h>
#include <string.h>

#include "analysis/internal.h"
#include "analysis/piece.h"

/* Calls of the process, or of one thread of it: those lie in its life, and
 * there may be very many short-lived ones. */
static uint64_t step_calls(const struct pt_an *an, const struct pt_proc *p,
			   const struct pt_thread *th)
{
	uint64_t from = an->t0, to = an->t1, n = 0;
	size_t i;

	if (th) {
		from = pt_max64(from, th->first);
		to = pt_min64(to, pt_thread_end(an, th));
	}
	for (i = pt_gpu_after(p, from); i < p->gpu.n; i++) {
		if (p->gpu.v[i].begin > to)
			break;
		if (pt_call_is_step(&p->gpu.v[i]) &&
		    (!th || p->gpu.v[i].tid == th->tid))
			n++;
	}
	return n;
}

/* PyTorch runs backward from its autograd thread, JAX and TensorFlow launch
 * from runtime threads: the main thread is the actor where it calls the GPU
 * at all, else the thread that calls most. */
static struct pt_thread *main_thread(const struct pt_an *an,
				     const struct pt_proc *p, uint64_t all)
{
	struct pt_thread *best = NULL, *t;
	uint64_t n, most = 0;
	size_t i;

	for (i = 0; i < p->threads.n; i++) {
		t = p->threads.v[i];
		n = step_calls(an, p, t);
		if (t->tid == t->tgid && n * 50 >= all && n)
			return t;
		if (n > most) {
			most = n;
			best = t;
		}
	}
	return best;
}

static bool descends_from(const struct pt_model *m, const struct pt_proc *p,
			  uint32_t ancestor)
{
	int depth;

	for (depth = 0; p && depth < 32; depth++) {
		if (p->ppid == ancestor)
			return true;
		p = p->ppid ? pt_model_proc(m, p->ppid) : NULL;
	}
	return false;
}

static struct pt_worker *worker_make(struct pt_an *an, struct pt_trainer *t,
				     uint32_t tgid)
{
	struct pt_worker w = { 0 };
	size_t i;

	/* of many that came and went, it mostly is a recent one */
	for (i = t->workers.n; i-- > 0;)
		if (t->workers.v[i].proc->tgid == tgid)
			return &t->workers.v[i];
	w.proc = pt_model_proc(an->m, tgid);
	if (!w.proc)
		return NULL;
	for (i = 0; i < w.proc->threads.n; i++)
		if (w.proc->threads.v[i]->tid == tgid)
			w.main = w.proc->threads.v[i];
	if (!w.main || pt_vec_push(&t->workers, w))
		return NULL;
	return &t->workers.v[t->workers.n - 1];
}

static int add_pipe(struct pt_trainer *t, uint64_t inode)
{
	size_t i;

	for (i = 0; i < t->result_pipes.n; i++)
		if (t->result_pipes.v[i] == inode)
			return 0;
	return pt_vec_push(&t->result_pipes, inode);
}

/* Deliveries: a thread of the trainer asleep on a pipe, woken by a write to
 * that pipe from another process of the target. */
static int find_deliveries(struct pt_an *an, struct pt_trainer *t,
			   struct pt_thread *th, uint64_t *count)
{
	size_t i;
	int err;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];
		struct pt_worker *w;
		struct pt_thread *from;

		if (iv->begin >= an->t1)
			break;
		if (iv->wait != PT_WAIT_PIPE_IN || !iv->valid_wake ||
		    iv->waker_tgid == t->proc->tgid)
			continue;
		w = worker_make(an, t, iv->waker_tgid);
		if (!w)
			continue; /* outside the target: not a loader */
		w->wakes++;
		(*count)++;
		from = pt_model_thread(an->m, iv->waker_tid);
		if (from && from->tgid == w->proc->tgid && from != w->main)
			w->feeder = from;
		err = add_pipe(t, iv->object);
		if (err)
			return err;
	}
	return 0;
}

/* Demand: a descendant of the trainer asleep on a pipe that the trainer
 * writes. Tells workers that are never waited for. */
static int find_demand(struct pt_an *an, struct pt_trainer *t)
{
	size_t i, j, k;

	for (i = 0; i < an->m->all_procs.n; i++) {
		struct pt_proc *p = an->m->all_procs.v[i];

		if (p == t->proc || pt_model_proc(an->m, p->tgid) != p)
			continue;
		if (!pt_is_worker(t, p->tgid, NULL) &&
		    !descends_from(an->m, p, t->proc->tgid))
			continue;
		for (j = 0; j < p->threads.n; j++) {
			struct pt_thread *th = p->threads.v[j];

			for (k = pt_iv_after(th, an->t0); k < th->iv.n; k++) {
				const struct pt_iv *iv = &th->iv.v[k];
				struct pt_worker *w;

				if (iv->begin >= an->t1)
					break;
				if (iv->wait != PT_WAIT_PIPE_IN ||
				    !iv->valid_wake ||
				    iv->waker_tgid != t->proc->tgid)
					continue;
				w = worker_make(an, t, p->tgid);
				if (!w)
					return -ENOMEM;
				w->main = th;
				w->index_pipe = iv->object;
				w->index_dev = iv->dev;
				break; /* its first is enough */
			}
		}
	}
	return 0;
}

/*
 * A thread that only sends: it sleeps on a futex, `from` wakes it, and it
 * writes each time, perhaps after a few waits for locks. The writing tells it
 * from other threads that `from` wakes (a driver's, an autograd thread's).
 * 1, 0 or -ENOMEM.
 */
static int is_feeder(struct pt_an *an, struct pt_thread *th,
		     const struct pt_thread *from)
{
	pt_times items = { 0 };
	uint64_t wakes = 0;
	int yes;

	if (th == from || step_calls(an, th->proc, th))
		return 0;
	yes = pt_rest_wakes(an, th, from, &items, &wakes);
	if (!yes)
		yes = items.n >= 2 && items.n * 4 >= wakes;
	pt_vec_free(&items);
	return yes;
}

static int find_feeders(struct pt_an *an, struct pt_trainer *t)
{
	size_t i, j;
	int yes;

	for (i = 0; i < t->proc->threads.n; i++) {
		struct pt_feeder f = { .thread = t->proc->threads.v[i],
				       .worker = -1 };

		if (f.thread == t->main || f.thread == t->pin)
			continue;
		yes = is_feeder(an, f.thread, t->main);
		if (yes < 0 || (yes && pt_vec_push(&t->feeders, f)))
			return -ENOMEM;
	}
	for (i = 0; i < t->workers.n; i++) {
		struct pt_worker *w = &t->workers.v[i];

		for (j = 0; !w->feeder && j < w->proc->threads.n; j++) {
			yes = is_feeder(an, w->proc->threads.v[j], w->main);
			if (yes < 0)
				return yes;
			if (yes)
				w->feeder = w->proc->threads.v[j];
		}
		if (!w->feeder)
			w->feeder = w->main;
	}
	return 0;
}

static int cmp_mark(const void *a, const void *b)
{
	const struct pt_mark *x = a, *y = b;

	return x->ts < y->ts ? -1 : x->ts > y->ts;
}

/* The consumer has just written an index to a worker that slept for one. */
static bool is_direct_refill(const struct pt_trainer *t, const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_PIPE_IN && iv->valid_wake &&
	       iv->waker_tid == t->main->tid;
}

/* When the consumer refilled `source`'s worker. */
static int refills(struct pt_an *an, struct pt_trainer *t, size_t source,
		   pt_times *out)
{
	const struct pt_thread *th;
	uint64_t wakes = 0;
	size_t j;

	if (!t->marks_direct)
		return pt_rest_wakes(an, t->feeders.v[source].thread, t->main,
				     out, &wakes);
	th = t->workers.v[source].main;
	for (j = pt_iv_after(th, an->t0); j < th->iv.n; j++) {
		const struct pt_iv *iv = &th->iv.v[j];

		if (iv->begin >= an->t1 || iv->ready > an->t1)
			break;
		if (is_direct_refill(t, iv) && pt_vec_push(out, iv->ready))
			return -ENOMEM;
	}
	return 0;
}

static int collect_marks(struct pt_an *an, struct pt_trainer *t)
{
	size_t n = t->feeders.n ? t->feeders.n : t->workers.n, i, j;
	int err = 0;

	t->marks_direct = !t->feeders.n;
	for (i = 0; i < n && !err; i++) {
		pt_times at = { 0 };

		err = refills(an, t, i, &at);
		for (j = 0; j < at.n && !err; j++) {
			struct pt_mark mk = { at.v[j], (uint32_t)i };

			if (pt_vec_push(&t->marks, mk))
				err = -ENOMEM;
		}
		pt_vec_free(&at);
	}
	if (err)
		return err;
	if (t->marks.n)
		qsort(t->marks.v, t->marks.n, sizeof(*t->marks.v), cmp_mark);
	return 0;
}

/* The most that lived at once: the loader's num_workers. */
static void count_concurrent(const struct pt_an *an, struct pt_trainer *t)
{
	size_t i, j, n;

	for (i = 0; i < t->workers.n; i++) {
		uint64_t at = t->workers.v[i].main->first;

		n = 0;
		for (j = 0; j < t->workers.n; j++)
			n += t->workers.v[j].main->first <= at &&
			     pt_thread_end(an, t->workers.v[j].main) > at;
		if (n > t->concurrent)
			t->concurrent = n;
		t->respawned |= t->workers.v[i].proc->born > 0;
	}
}

/* Workers that the piece before knew, and that were not waited for in this one. */
static int find_known(struct pt_an *an, struct pt_trainer *t)
{
	const struct pt_piece_head *h = an->piece ? an->piece->before : NULL;
	size_t i;

	for (i = 0; h && i < h->n_workers; i++) {
		const struct pt_piece_worker *old = &h->workers[i];
		struct pt_worker *w;

		if (old->trainer != t->proc ||
		    (old->main->exited && old->main->last < an->piece->from))
			continue;
		w = worker_make(an, t, old->proc->tgid);
		if (!w)
			return -ENOMEM;
		if (w->index_pipe)
			continue;
		w->main = old->main;
		w->index_pipe = old->index_pipe;
		w->index_dev = old->index_dev;
	}
	return 0;
}

static int find_loader(struct pt_an *an, struct pt_trainer *t)
{
	uint64_t best = 0, n;
	size_t i;
	int err;

	t->receiver = t->main;
	for (i = 0; i < t->proc->threads.n; i++) {
		n = 0;
		err = find_deliveries(an, t, t->proc->threads.v[i], &n);
		if (err)
			return err;
		if (n > best) {
			best = n;
			t->receiver = t->proc->threads.v[i];
		}
	}
	if (t->receiver != t->main)
		t->pin = t->receiver;
	err = find_demand(an, t);
	if (!err)
		err = find_known(an, t);
	if (!err)
		err = find_feeders(an, t);
	if (!err)
		err = collect_marks(an, t);
	t->handoffs = t->workers.n > 0;
	count_concurrent(an, t);
	return err ? err : pt_index_workers(t);
}

int pt_find_roles(struct pt_an *an)
{
	size_t i;
	int err;

	for (i = 0; i < an->m->all_procs.n; i++) {
		struct pt_trainer t = { 0 };
		uint64_t n;

		t.proc = an->m->all_procs.v[i];
		n = step_calls(an, t.proc, NULL);
		if (!n)
			continue;
		t.main = main_thread(an, t.proc, n);
		if (!t.main)
			continue;
		err = find_loader(an, &t);
		if (err || pt_vec_push(&an->trainers, t)) {
			pt_trainer_free(&t);
			return -ENOMEM;
		}
	}
	return 0;
}

void pt_trainer_free(struct pt_trainer *t)
{
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		pt_vec_free(&t->workers.v[i].done);
		pt_vec_free(&t->workers.v[i].service_ms);
	}
	pt_vec_free(&t->workers);
	pt_vec_free(&t->index);
	pt_vec_free(&t->feeders);
	pt_vec_free(&t->result_pipes);
	pt_vec_free(&t->marks);
	pt_vec_free(&t->steps);
	pt_vec_free(&t->charges);
	pt_vec_free(&t->quotas);
	pt_vec_free(&t->pool);
	pt_vec_free(&t->pool_rests);
	for (i = 0; i < t->devs.n; i++)
		pt_dev_free(&t->devs.v[i]);
	pt_vec_free(&t->devs);
	pt_vec_free(&t->writing);
}
