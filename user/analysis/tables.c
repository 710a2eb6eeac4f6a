/* SPDX-License-Identifier: BSD-2-Clause */
/* The report's tables: workers, files, series. */
#include <errno.h>
#include <math.h>

#include "analysis/io/disks.h"
#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/parts/part.h"
#include "analysis/io/places.h"

#define SERIES_STEP_NS NS_PER_S

/* ---- workers ------------------------------------------------------------ */

struct worker_tally {
	struct pt_an *an;
	struct pt_trainer *t;
	const struct pt_worker *w;
	const struct pt_thread *th;
	uint64_t ns[PT_CAUSE_NR];
	size_t hint;
};

/* An idle worker starves for indices only while the trainer waits; otherwise
 * it has made all that it may (prefetch full). */
static void split_idle(struct worker_tally *k, uint64_t b, uint64_t e)
{
	uint64_t waiting = pt_waits_in(k->t, &k->hint, b, e);

	k->ns[PT_CAUSE_WORKER_IDLE] += waiting;
	k->ns[PT_CAUSE_PREFETCH_FULL] += e - b - waiting;
}

static int tally_piece(void *ctx, uint64_t b, uint64_t e,
		       const struct pt_iv *iv, bool queued)
{
	struct worker_tally *k = ctx;
	enum pt_cause c = !iv ? PT_CAUSE_CPU :
			  queued ? pt_queue_cause(k->t, k->th, iv) :
				   pt_piece_cause(k->an, k->t, k->w, iv);

	if (c == PT_CAUSE_WORKER_IDLE)
		split_idle(k, b, e);
	else
		k->ns[c] += e - b;
	return 0;
}

static int64_t batches_of(const struct pt_trainer *t, const struct pt_worker *w)
{
	if (w->feeder != w->main && w->done.n)
		return (int64_t)(w->done.n - w->earlier);
	return pt_shows_all(t, w) ? (int64_t)w->delivered : PT_NULL;
}

static const char *const roles[] = {
	[PT_ROLE_LOADER] = "loader", [PT_ROLE_THREAD] = "thread",
	[PT_ROLE_HELPER] = "helper", [PT_ROLE_OUTSIDE] = "outside",
};

/* What the row's thread did with its time. */
static void fill_parts(struct worker_tally *k, struct pt_r_worker *o)
{
	uint64_t b = pt_max64(k->an->t0, k->th->first);
	uint64_t e = pt_min64(k->an->t1, pt_thread_end(k->an, k->th));
	const struct pt_thread *th = k->th;

	if (e > b)
		pt_walk(th, b, e, tally_piece, k);
	else
		e = b;
	o->pid = th->tgid;
	o->tid = th->tid;
	o->rank = pt_rank_of_proc(k->t->proc);
	o->role = roles[k->w->role];
	o->cpu = pt_sec(k->ns[PT_CAUSE_CPU]);
	o->run_queue = pt_sec(k->ns[PT_CAUSE_RUN_QUEUE]);
	o->throttle = k->t->quotas.n ? pt_sec(k->ns[PT_CAUSE_THROTTLE]) : NAN;
	o->disk = pt_sec(k->ns[PT_CAUSE_DISK]);
	o->page_fault = pt_sec(k->ns[PT_CAUSE_PAGE_FAULT]);
	o->network = pt_sec(k->ns[PT_CAUSE_NETWORK]);
	o->lock = pt_sec(k->ns[PT_CAUSE_LOCK]);
	o->ipc = pt_sec(k->ns[PT_CAUSE_IPC]);
	o->worker_idle = pt_sec(k->ns[PT_CAUSE_WORKER_IDLE]);
	o->prefetch_full = pt_sec(k->ns[PT_CAUSE_PREFETCH_FULL]);
	o->window = pt_sec(e - b);
	o->other = pt_sec(k->ns[PT_CAUSE_UNKNOWN] + k->ns[PT_CAUSE_SLEEP]);
	o->read_bytes = pt_bytes_read(k->an, th);
	o->reads = th->reads.n ? (int64_t)pt_reads_of(k->an, th) : PT_NULL;
}

void pt_fill_worker_health(struct pt_worker *w, struct pt_r_worker *o)
{
	pt_dist_of(w->service_ms.v, w->service_ms.n, &o->batch_ms);
	o->slowdown = w->slowdown;
	o->state = w->main->exited ? PT_WORKER_EXITED :
		   w->hung ? PT_WORKER_HUNG :
		   w->slow ? PT_WORKER_SLOW : PT_WORKER_OK;
}

static void fill_worker(struct pt_an *an, struct pt_trainer *t,
			struct pt_worker *w, struct pt_r_worker *o)
{
	struct worker_tally k = { .an = an, .t = t, .w = w, .th = w->main };

	fill_parts(&k, o);
	o->batches = batches_of(t, w);
	pt_fill_worker_health(w, o);
}

static int fill_workers(struct pt_an *an, struct pt_trainer *t)
{
	struct pt_r_worker *o = pt_arena_calloc(an->a, t->workers.n + 1,
						sizeof(*o));
	bool uncounted = false;
	size_t i;

	if (!o)
		return -ENOMEM;
	for (i = 0; i < t->workers.n; i++) {
		fill_worker(an, t, &t->workers.v[i], &o[i]);
		uncounted |= o[i].batches == PT_NULL;
	}
	if (uncounted)
		pt_report_limit(an->r, "workers.batches", "A worker that sends on its own "
							  "leaves no trace of a batch that "
							  "nobody waits for, so its batches "
							  "are not counted.");
	an->r->workers = o;
	an->r->n_workers = t->workers.n;
	return 0;
}

/* ---- files -------------------------------------------------------------- */

static int by_cost(const struct pt_place *x, const struct pt_place *y)
{
	return pt_cmp(y->blocked_ns + y->fault_ns, x->blocked_ns + x->fault_ns) ?:
	       pt_cmp(y->bytes + y->fault_bytes, x->bytes + x->fault_bytes);
}

static void fill_faults(const struct pt_an *an, const struct pt_place *f,
			const struct pt_file *name, struct pt_r_file *o)
{
	bool seen = an->m->host_known &&
		    an->m->host.fault_door != PT_FAULT_DOOR_NONE;

	o->faults = seen ? (int64_t)f->faults : PT_NULL;
	o->fault_bytes = seen ? (int64_t)f->fault_bytes : PT_NULL;
	o->fault_s = seen ? pt_sec(f->fault_ns) : NAN;
	/* it is looked up when a fault meets the file */
	o->text = !f->faults ? PT_NULL : name ? name->text : PT_NULL;
}

static void fill_file(struct pt_an *an, const struct pt_place *f, bool traced,
		      struct pt_r_file *o)
{
	const struct pt_file *name = pt_model_file(an->m, (uint32_t)f->key.dev,
						   f->key.inode);

	o->path = name && name->path ? pt_arena_strdup(an->a, name->path) : NULL;
	o->dev = (uint32_t)f->key.dev;
	o->inode = f->key.inode;
	o->opens = PT_NULL;
	o->reads = traced ? (int64_t)f->reads : PT_NULL;
	o->bytes = traced ? (int64_t)f->bytes : PT_NULL;
	o->read_s = traced && !f->untimed ? pt_sec(f->read_ns) : NAN;
	o->blocked_s = pt_sec(f->blocked_ns);
	o->p99_ms = o->cached_share = NAN;
	pt_fill_place(an->places, f, o);
	o->dev = pt_model_dev(an->m, o->dev, o->inode);
	pt_file_place(an, name, o);
	pt_file_cached(o, f->unfetched ? PT_NULL : (int64_t)f->fetched);
	fill_faults(an, f, name, o);
}

static int fill_files(struct pt_an *an)
{
	bool traced = an->m->host_known && an->m->host.read_door != PT_DOOR_NONE;
	struct pt_places *all = an->places;
	size_t n = 0, most = pt_min64(HASH_COUNT(all->all), PT_PART_FILES);
	struct pt_r_file *o = pt_arena_calloc(an->a, most + 1, sizeof(*o));
	const struct pt_place *f;

	if (!o)
		return -ENOMEM;
	HASH_SORT(all->all, by_cost);
	for (f = all->all; f && n < most; f = f->hh.next)
		fill_file(an, f, traced, &o[n++]);
	an->r->files = o;
	an->r->n_files = n;
	return 0;
}

/* ---- series -------------------------------------------------- */

static void add_sample(struct pt_r_point *pt, const struct pt_rec_sample *a,
		       const struct pt_rec_sample *b)
{
	double dt = pt_sec(b->hdr.ts - a->hdr.ts);

	pt->rss += (double)b->rss_anon;
	pt->shm += (double)b->rss_shmem;
	if (dt <= 0)
		return;
	pt->cpu += pt_sec(b->utime_ns + b->stime_ns - a->utime_ns - a->stime_ns) / dt;
	pt->read_bps += (double)(b->rchar - a->rchar) / dt;
}

#define TURN_MAX 8 /* a longer pause is none; a file may claim any */

/*
 * One sample a process and interval. Where many processes take turns, a sample counts for all
 * intervals since the one before, and the last for as many as are missing until its next turn.
 */
static void add_samples(const struct pt_an *an, const struct pt_proc *p, struct pt_r_point *o,
			bool *seen, size_t n)
{
	size_t j, k, last = 0, to;
	uint64_t turn;

	for (j = 1; j < p->samples.n; j++) {
		const struct pt_rec_sample *b = &p->samples.v[j], *a = b - 1;

		if (b->hdr.ts < an->t0)
			continue;
		turn = (b->hdr.ts - a->hdr.ts + SERIES_STEP_NS / 2) / SERIES_STEP_NS;
		turn = turn > TURN_MAX ? 1 : turn;
		to = (size_t)((b->hdr.ts - an->t0) / SERIES_STEP_NS);
		k = a->hdr.ts > an->t0 ? (size_t)((a->hdr.ts - an->t0) / SERIES_STEP_NS) : 0;
		k = turn < 2 ? to : k + 1;
		if (turn > 1 && j + 1 == p->samples.n)
			to += turn - 1;
		for (k = k > last ? k : last + 1; k <= to && k <= n; k++) {
			last = k;
			add_sample(&o[k - 1], a, b);
			seen[k - 1] = true;
		}
	}
}

static int fill_series(struct pt_an *an)
{
	size_t n = (size_t)((an->t1 - an->t0) / SERIES_STEP_NS), i, hint = 0;
	struct pt_r_point *o;
	bool *seen;

	if (n > 100000)
		n = 100000;
	o = pt_arena_calloc(an->a, n + 1, sizeof(*o));
	seen = calloc(n + 1, sizeof(*seen));
	if (!o || !seen) {
		free(seen);
		return -ENOMEM;
	}
	for (i = 0; i < an->m->all_procs.n; i++)
		if (!an->m->all_procs.v[i]->outside)
			add_samples(an, an->m->all_procs.v[i], o, seen, n);
	for (i = 0; i < n; i++) {
		uint64_t b = an->t0 + i * SERIES_STEP_NS, e = b + SERIES_STEP_NS;

		o[i].t = (double)(i + 1);
		o[i].gpu_util = o[i].gpu_mem = NAN;
		o[i].data_wait_share = an->top ?
			(double)pt_waits_in(an->top, &hint, b, e) /
				(double)SERIES_STEP_NS : NAN;
		if (!seen[i])
			o[i].cpu = o[i].rss = o[i].shm = o[i].read_bps = NAN;
	}
	free(seen);
	an->r->series = o;
	an->r->n_series = n;
	return 0;
}

int pt_measure_rank_tables(struct pt_an *an, struct pt_trainer *t)
{
	int err = pt_measure_gpu(an, t);

	err = err ?: fill_workers(an, t);
	return err ? err : pt_fill_operations(an, t);
}

int pt_measure_host_tables(struct pt_an *an)
{
	int err = pt_find_places(an, an->places);

	err = err ?: fill_files(an);
	if (!err)
		pt_measure_working_set(an);
	err = err ?: pt_fill_disks(an);
	err = err ?: pt_fill_writes(an);
	return err ? err : pt_fill_peers(an);
}

int pt_fill_samples(struct pt_an *an)
{
	int err = fill_series(an);

	err = err ?: pt_fill_devices(an);
	return err ? err : pt_fill_memory(an);
}
