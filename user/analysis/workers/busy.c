/* SPDX-License-Identifier: BSD-2-Clause */
/* How busy the workers are, whether one hangs, and whether anybody asks the
 * trainer for anything. */
#include <math.h>

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"
#include "analysis/waits/look.h"

struct tally {
	const struct pt_worker *w;
	uint64_t cpu, queued, idle;
};

static int tally_piece(void *ctx, uint64_t b, uint64_t e, const struct pt_iv *iv,
		       bool queued)
{
	struct tally *k = ctx;

	if (!iv)
		k->cpu += e - b;
	else if (queued)
		k->queued += e - b;
	else if (pt_rests(k->w, iv))
		k->idle += e - b;
	return 0;
}

static bool is_worker_main(const struct pt_trainer *t,
			   const struct pt_thread *th)
{
	int i;

	return pt_worker_index(t, th, &i) && t->workers.v[i].main == th;
}

/* By all threads but the workers' own, ns. */
static double others_cpu(const struct pt_an *an, const struct pt_trainer *t)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < an->m->all_threads.n; i++) {
		const struct pt_thread *th = an->m->all_threads.v[i];

		if (!is_worker_main(t, th))
			sum += (double)pt_run_ns(an, th);
	}
	return sum;
}

static int sending_piece(void *ctx, uint64_t b, uint64_t e,
			 const struct pt_iv *iv, bool queued)
{
	struct tally *k = ctx;

	if (!iv || queued || iv->wait == PT_WAIT_PIPE_OUT)
		k->cpu += e - b;
	return 0;
}

/* CPU time of trainers inside calls that wait for the device, ns: where the
 * runtime polls it yields to whoever has work, so that core is there. */
static double polling(const struct pt_an *an)
{
	uint64_t ns = 0;
	size_t k;

	for (k = 0; k < an->trainers.n; k++) {
		const struct pt_proc *p = an->trainers.v[k].proc;

		pt_each_call(c, p, an->t0, an->t1) {
			const struct pt_thread *th;

			if (!pt_call_is_sync(c) || c->end <= c->begin)
				continue;
			th = pt_model_thread(an->m, c->tid);
			if (th)
				ns += pt_cpu_ns(th, c->begin, pt_min64(c->end, an->t1));
		}
	}
	return (double)ns;
}

#define SHELLS 4 /* between the trainer and its program, at most */

/* By the training thread itself, since then; or by a shell that it started so. */
static bool started_by_main(const struct pt_trainer *t, const struct pt_thread *th,
			    uint64_t since)
{
	int i;

	for (i = 0; i < SHELLS && th && th->first >= since; i++, th = th->parent)
		if (th->parent == t->main)
			return true;
	return false;
}

/* What a program for a batch prints is more, and more than a part of a batch. */
#define PRINTED_MIN 512

/* Waits for a process that the training thread started in them and that ended with them: a
 * program for each batch, which nobody runs ahead. */
static void measure_programs(const struct pt_trainer *t, struct pt_pool_time *out)
{
	const struct pt_givers *g = &t->look->givers;
	uint64_t got;
	size_t i;

	for (i = 0; i < t->waits.n; i++) {
		const struct pt_fetch *w = &t->waits.v[i];
		uint64_t next = i + 1 < t->waits.n ? t->waits.v[i + 1].begin : UINT64_MAX;
		const struct pt_thread *th;

		if (w->worker < 0)
			continue;
		th = t->workers.v[w->worker].main;
		if (!th->exited || th->last > next || !started_by_main(t, th, w->begin))
			continue;
		out->programs += (double)(w->end - w->begin);
		got = pt_read_between(t->main, w->begin, w->end);
		if (got < PRINTED_MIN || pt_feeds_too_little(&g->feed, got * g->uploads))
			out->silent += (double)(w->end - w->begin);
	}
}

int pt_measure_pool(struct pt_an *an, struct pt_trainer *t, struct pt_pool_time *out)
{
	*out = (struct pt_pool_time){ 0 };

	pt_each(const struct pt_worker, w, &t->workers) {
		struct tally k = { .w = w };
		uint64_t b = pt_max64(an->t0, w->main->first);
		uint64_t e = pt_min64(an->t1, pt_thread_end(an, w->main));

		if (e <= b)
			continue;
		pt_walk(w->main, b, e, tally_piece, &k);
		out->all += (double)(e - b);
		out->cpu += (double)k.cpu;
		out->run_queue += (double)k.queued;
		out->idle += (double)k.idle;
		if (w->feeder == w->main)
			continue;
		k.cpu = 0;
		pt_walk(w->feeder, b, e, sending_piece, &k);
		out->sending += (double)k.cpu;
	}
	measure_programs(t, out);
	pt_measure_apart(an, t, out);
	/* Totals come with a thread's next record; a worker that computes all
	 * the time may not make one for long. */
	out->cores = fmax(out->cpu + others_cpu(an, t) - polling(an), out->cpu);
	return pt_measure_turns(an, t, &out->together, &out->chance);
}

void pt_fill_pool(const struct pt_pool_time *k, uint64_t wall, struct pt_pool *out)
{
	out->sending = k->all > 0 ? k->sending / k->all : 0;
	out->busy = k->all > 0 ? 1 - k->idle / k->all : NAN;
	out->cpu = k->all > 0 ? k->cpu / k->all : NAN;
	out->run_queue = k->all > 0 ? k->run_queue / k->all : NAN;
	out->cores_used = k->cores / (double)pt_max64(wall, 1);
	out->together = k->together / (double)pt_max64(wall, 1);
	out->chance = k->chance / (double)pt_max64(wall, 1);
	out->apart = k->woken >= PT_APART_MIN && k->held <= PT_APART_HELD * k->woken;
}

/* ---- hung ------------------------------------------------------------------ */

/* The wait that `th` still sat in at the end, longer than `least`. A wait
 * may lie on both sides of a moment in which nothing was watched. */
static const struct pt_iv *last_wait(const struct pt_an *an,
				     const struct pt_thread *th, double *s)
{
	const struct pt_iv *iv;
	uint64_t begin;
	size_t i = th->iv.n;

	if (!i || th->exited)
		return NULL;
	iv = &th->iv.v[--i];
	if (!iv->open && iv->end + NS_PER_MS < an->t1)
		return NULL;
	begin = iv->begin;
	while (i && th->iv.v[i - 1].wait == iv->wait &&
	       th->iv.v[i - 1].object == iv->object &&
	       th->iv.v[i - 1].end + 1000 >= begin)
		begin = th->iv.v[--i].begin;
	begin = pt_max64(begin, an->t0);
	*s = an->t1 > begin ? pt_sec(an->t1 - begin) : 0;
	return iv;
}

struct hunt {
	const struct pt_an *an;
	const struct pt_trainer *t; /* may be NULL */
	struct pt_hung *out;
	double least; /* seconds that are looked at */
	bool asks; /* the trainer stands still, too */
	bool vain; /* it mostly waits in vain, and goes on without whom it waited for */
};

/* One item may take as long. */
static bool may_end(const struct pt_an *an, enum pt_hang how, double s)
{
	return how != PT_HANG_STOPPED && s < an->th->hung_s;
}

static enum pt_hang hang_of(const struct hunt *k, const struct pt_iv *iv, double s, bool known)
{
	if (iv->wait == PT_WAIT_STOPPED)
		return s >= k->an->th->stopped_s ? PT_HANG_STOPPED : PT_HANG_NONE;
	if (s < k->least)
		return PT_HANG_NONE;
	switch (iv->wait) {
	case PT_WAIT_DISK:
	case PT_WAIT_DISK_WRITE:
	case PT_WAIT_FAULT:
		return PT_HANG_UNINTERRUPTIBLE;
	case PT_WAIT_FUTEX:
	case PT_WAIT_SOCK:
	case PT_WAIT_POLL:
	case PT_WAIT_SLEEP:
	case PT_WAIT_OTHER:
	case PT_WAIT_FLOCK:
	case PT_WAIT_CHILD:
	case PT_WAIT_MSGQ:
	case PT_WAIT_SEM:
	case PT_WAIT_EVENT:
	case PT_WAIT_INODE_LOCK:
	case PT_WAIT_RECLAIM:
	case PT_WAIT_URING:
	case PT_WAIT_SIGNAL:
	case PT_WAIT_PIPE_IN:
	case PT_WAIT_PIPE_OUT:
		/* a helper process of some library may rest like this */
		return known ? PT_HANG_WAITING : PT_HANG_NONE;
	default:
		return PT_HANG_NONE;
	}
}

/* Made nothing for long although it had work, on and off the CPU. */
static bool spins(const struct pt_an *an, const struct pt_trainer *t,
		  const struct pt_worker *w, double *s)
{
	struct tally k = { .w = w };
	uint64_t since = pt_max64(an->t0, w->main->first);
	double peers = 0;
	size_t i;

	if (w->main->exited || w->feeder == w->main)
		return false; /* its batches are seen only when waited for */
	if (w->done.n)
		since = pt_max64(since, w->done.v[w->done.n - 1]);
	*s = an->t1 > since ? pt_sec(an->t1 - since) : 0;
	if (*s < an->th->hung_s)
		return false;
	for (i = 0; i < t->workers.n; i++)
		if (&t->workers.v[i] != w)
			peers = fmax(peers, t->workers.v[i].median_ms);
	if (!(peers > 0) || *s * 1000 < PT_HUNG_BATCHES * peers)
		return false;
	pt_walk(w->main, since, an->t1, tally_piece, &k);
	return (double)k.cpu > PT_HUNG_SPINS * (double)(an->t1 - since);
}

/* Has the step at the end lasted longer than the others do, by their median? Unknown where there are
 * few. */
static bool lacks_a_step(const struct pt_an *an, const struct pt_trainer *t)
{
	size_t i, n = t->steps.n ? t->steps.n - 1 : 0, shorter = 0;
	uint64_t open = n ? an->t1 - t->steps.v[n].begin : 0;

	for (i = 0; i < n; i++)
		shorter += PT_HUNG_STILL * (t->steps.v[i].end - t->steps.v[i].begin) <= open;
	return n < PT_MIN_STEPS || 2 * shorter >= n;
}

/* Did every step before the one at the end take a small part of that one's time? */
static bool never_so_long(const struct pt_an *an, const struct pt_trainer *t)
{
	size_t i, n = t->steps.n ? t->steps.n - 1 : 0;
	uint64_t open = n ? an->t1 - t->steps.v[n].begin : 0, longest = 0;

	for (i = 0; i < n; i++)
		longest = pt_max64(longest, t->steps.v[i].end - t->steps.v[i].begin);
	return n >= PT_MIN_STEPS && PT_HUNG_SEEMS_STEPS * longest <= open;
}

/* Does the trainer stand still, too? While it computes, sleeps by a timer or waits for its device
 * it asks for nothing, and who waits to be asked does not hang. */
static bool stands_still(const struct pt_an *an, const struct pt_trainer *t)
{
	const struct pt_gpu_call *c = pt_last_call(t->proc, t->main->tid, an->t1);
	const struct pt_iv *iv;
	double s;

	if (t->main->exited)
		return true;
	iv = last_wait(an, t->main, &s);
	return iv && iv->wait != PT_WAIT_SLEEP && iv->wait != PT_WAIT_RUNQ && lacks_a_step(an, t) &&
	       !(c && pt_call_is_sync(c) && (c->open || c->end > iv->begin));
}

/* Batches are made ahead, two by each worker as a rule, or more: a job that makes this many steps in
 * the later half of the `s` seconds since one stopped does not wait for it. */
static bool goes_on(const struct pt_an *an, const struct pt_trainer *t, double s)
{
	uint64_t since = an->t1 - pt_min64(an->t1, (uint64_t)(s / 2 * NS_PER_S));
	size_t n = 0;

	pt_each(const struct pt_step, x, &t->steps)
		n += x->begin > since;
	return n > PT_HUNG_GOES_ON * pt_max64(t->workers.n, 1);
}

double pt_vain_share(const struct pt_trainer *t)
{
	uint64_t all = 0, vain = 0;

	pt_each(const struct pt_charge, c, &t->charges) {
		all += c->ns;
		if (c->cause == PT_CAUSE_SLEEP && c->pid == t->proc->tgid)
			vain += c->ns;
	}
	return (double)vain / (double)pt_max64(all, 1);
}

static void consider(const struct hunt *k, const struct pt_thread *th,
		     enum pt_hang how, double s, const struct pt_iv *iv)
{
	struct pt_hung *out = k->out;
	bool seems = may_end(k->an, how, s);

	if (how == PT_HANG_NONE || (k->t && !k->vain && goes_on(k->an, k->t, s)))
		return;
	if (out->proc && (out->seems == seems ? out->seconds >= s : seems))
		return;
	*out = (struct pt_hung){ .proc = th->proc, .th = th, .how = how, .seconds = s,
				 .vain = k->vain, .seems = seems };
	if (iv && iv->obj_kind == PT_OBJ_FILE) {
		out->inode = iv->object;
		out->dev = iv->dev;
	}
}

/* Was it started like a worker that had ended by then, and does the trainer wait since? Then it is
 * to do that one's work. */
static bool is_successor(const struct hunt *k, const struct pt_proc *p)
{
	if (!k->asks || !p->born)
		return false;
	pt_each(const struct pt_worker, w, &k->t->workers)
		if (w->role != PT_ROLE_HELPER && w->proc->ppid == p->ppid && w->proc->died &&
		    w->proc->died <= p->born &&
		    !strncmp(w->proc->comm, p->comm, sizeof(p->comm)))
			return true;
	return false;
}

/* Children that were never seen at work: workers that hung before, or from their start. */
static void unknown_children(const struct hunt *k)
{
	const struct pt_an *an = k->an;
	const struct pt_trainer *t = k->t;
	uint32_t parent = t ? t->proc->tgid :
			  an->m->host_known ? an->m->host.target_pid : 0;
	size_t i;
	double s;

	for (i = 0; parent && i < an->m->all_procs.n; i++) {
		const struct pt_proc *p = an->m->all_procs.v[i];
		const struct pt_thread *th = pt_model_thread(an->m, p->tgid);
		const struct pt_iv *iv;

		if (p->ppid != parent || p->died || !th ||
		    pt_model_proc(an->m, p->tgid) != p ||
		    (t && pt_worker_index(t, th, NULL)))
			continue;
		iv = last_wait(an, th, &s);
		if (iv)
			consider(k, th, hang_of(k, iv, s, is_successor(k, p)), s, iv);
	}
}

/* One of several that do the same. */
static bool has_peer(const struct pt_trainer *t, const struct pt_worker *w)
{
	pt_each(const struct pt_worker, x, &t->workers)
		if (x != w && x->role == w->role)
			return w->role != PT_ROLE_HELPER;
	return false;
}

/* A program of its own is at work: what it reads from a pipe may be that one's. */
static bool runs_program(const struct pt_an *an, const struct pt_worker *w)
{
	size_t i;

	for (i = 0; i < an->m->all_procs.n; i++) {
		const struct pt_proc *p = an->m->all_procs.v[i];

		if (p->ppid == w->proc->tgid && !p->died)
			return true;
	}
	return false;
}

/* What may be a lock, and another worker computes meanwhile: it has it. */
static bool waits_for_peer(const struct pt_an *an, const struct pt_trainer *t,
			   const struct pt_worker *w, const struct pt_iv *iv, double s)
{
	uint64_t since = an->t1 - pt_min64(an->t1, (uint64_t)(s * NS_PER_S));

	return (iv->wait == PT_WAIT_FUTEX || iv->wait == PT_WAIT_SEM ||
		iv->wait == PT_WAIT_FLOCK || iv->wait == PT_WAIT_EVENT) &&
	       pt_other_computes(t, w, since, an->t1);
}

void pt_find_hung(const struct pt_an *an, struct pt_trainer *t,
		  struct pt_hung *out)
{
	struct hunt k = { .an = an, .t = t, .out = out, .least = an->th->hung_s,
			  .asks = t && stands_still(an, t) };
	bool vain = t && pt_vain_share(t) >= PT_HUNG_VAIN;
	size_t i;
	double s;

	*out = (struct pt_hung){ 0 };
	if (k.asks && never_so_long(an, t))
		k.least = fmin(k.least, PT_HUNG_SEEMS_S);
	for (i = 0; t && i < t->workers.n; i++) {
		struct pt_worker *w = &t->workers.v[i];
		const struct pt_iv *iv = last_wait(an, w->main, &s);

		w->hung = false;
		k.vain = vain && has_peer(t, w);
		if (iv && !pt_rests(w, iv) && !waits_for_peer(an, t, w, iv, s) &&
		    (k.vain || iv->wait != PT_WAIT_PIPE_IN || runs_program(an, w))) {
			enum pt_hang how = hang_of(&k, iv, s, k.asks || k.vain);

			w->hung = how != PT_HANG_NONE && !may_end(an, how, s);
			consider(&k, w->main, how, s, iv);
		}
		if (!w->hung && spins(an, t, w, &s)) {
			w->hung = true;
			consider(&k, w->main, PT_HANG_SPINNING, s, NULL);
		}
	}
	k.vain = false;
	unknown_children(&k);
}
