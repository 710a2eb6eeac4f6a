/* SPDX-License-Identifier: BSD-2-Clause */
/* The report's tables: workers, files, series. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/io/disks.h"
#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/parts/part.h"
#include "analysis/io/places.h"

#define SERIES_STEP_NS NS_PER_S

static double sec(uint64_t ns)
{
	return (double)ns / NS_PER_S;
}

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

/* A worker with a sender thread wakes it for each batch. One that writes by
 * itself is seen only when somebody waits, so its count is known only where
 * every wait has its deliverer. */
static int64_t batches_of(const struct pt_trainer *t, const struct pt_worker *w)
{
	size_t i;

	if (w->feeder != w->main && w->done.n)
		return (int64_t)(w->done.n - w->earlier);
	for (i = 0; i < t->steps.n; i++)
		if (t->steps.v[i].worker < 0)
			return PT_NULL;
	return (int64_t)w->delivered;
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
	o->cpu = sec(k->ns[PT_CAUSE_CPU]);
	o->run_queue = sec(k->ns[PT_CAUSE_RUN_QUEUE]);
	o->throttle = k->t->quotas.n ? sec(k->ns[PT_CAUSE_THROTTLE]) : NAN;
	o->disk = sec(k->ns[PT_CAUSE_DISK]);
	o->page_fault = sec(k->ns[PT_CAUSE_PAGE_FAULT]);
	o->network = sec(k->ns[PT_CAUSE_NETWORK]);
	o->lock = sec(k->ns[PT_CAUSE_LOCK]);
	o->ipc = sec(k->ns[PT_CAUSE_IPC]);
	o->worker_idle = sec(k->ns[PT_CAUSE_WORKER_IDLE]);
	o->prefetch_full = sec(k->ns[PT_CAUSE_PREFETCH_FULL]);
	o->window = sec(e - b);
	o->other = sec(k->ns[PT_CAUSE_UNKNOWN] + k->ns[PT_CAUSE_SLEEP]);
	o->read_bytes = pt_bytes_read(k->an, th);
	o->reads = th->reads.n ? (int64_t)pt_reads_of(k->an, th) : PT_NULL;
}

static void fill_worker(struct pt_an *an, struct pt_trainer *t,
			struct pt_worker *w, struct pt_r_worker *o)
{
	struct worker_tally k = { .an = an, .t = t, .w = w, .th = w->main };

	fill_parts(&k, o);
	o->batches = batches_of(t, w);
	pt_dist_of(w->service_ms.v, w->service_ms.n, &o->batch_ms);
	o->slowdown = w->slowdown;
	o->state = w->main->exited ? PT_WORKER_EXITED :
		   w->hung ? PT_WORKER_HUNG :
		   w->slow ? PT_WORKER_SLOW : PT_WORKER_OK;
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
		pt_report_limit(an->r, "workers.batches", "A worker that sends by itself leaves no trace of a batch that nobody waits for, so its batches are not counted.");
	an->r->workers = o;
	an->r->n_workers = t->workers.n;
	return 0;
}

/* ---- files -------------------------------------------------------------- */

struct file_sum {
	struct pt_file_key key;
	uint64_t reads, bytes, read_ns, blocked_ns, fetched;
	uint64_t faults, fault_bytes, fault_ns;
	bool untimed; /* some reads' time is not known */
	bool unfetched; /* ... what they had fetched from storage is not */
	UT_hash_handle hh;
};

static struct file_sum *file_sum(struct file_sum **all, uint32_t dev,
				 uint64_t inode)
{
	struct pt_file_key key = { inode, dev };
	struct file_sum *f;

	HASH_FIND(hh, *all, &key, sizeof(key), f);
	if (f)
		return f;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->key = key;
	HASH_ADD(hh, *all, key, sizeof(f->key), f);
	if (!PT_HASHED(f)) {
		free(f);
		return NULL;
	}
	return f;
}

static int sum_files(struct pt_an *an, struct pt_thread *th,
		     struct file_sum **all)
{
	struct file_sum *f;
	size_t i;

	for (i = pt_iv_after(th, an->t0); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= an->t1)
			break;
		if ((iv->wait != PT_WAIT_DISK && iv->wait != PT_WAIT_FAULT) ||
		    iv->obj_kind != PT_OBJ_FILE)
			continue;
		f = file_sum(all, iv->dev, iv->object);
		if (!f)
			return -ENOMEM;
		*(iv->wait == PT_WAIT_FAULT ? &f->fault_ns : &f->blocked_ns) +=
			pt_overlap(an->t0, an->t1, iv->begin, iv->ready);
	}
	for (i = 0; i < th->faults.n; i++) {
		const struct pt_fault_sum *s = &th->faults.v[i];

		if (!s->major || s->end < an->t0 || s->end > an->t1)
			continue;
		f = file_sum(all, s->dev, s->inode);
		if (!f)
			return -ENOMEM;
		f->faults += s->major;
		f->fault_bytes += s->bytes;
	}
	for (i = 0; i < th->reads.n; i++) {
		const struct pt_read *r = &th->reads.v[i];

		if (r->obj_kind != PT_OBJ_FILE || r->end < an->t0 ||
		    r->end > an->t1)
			continue;
		f = file_sum(all, r->dev, r->inode);
		if (!f)
			return -ENOMEM;
		f->reads += r->count;
		f->bytes += r->ret > 0 ? (uint64_t)r->ret : 0;
		f->read_ns += r->busy;
		f->untimed |= !r->timed;
		f->unfetched |= r->fetched == UINT32_MAX;
		if (r->fetched != UINT32_MAX)
			f->fetched += (uint64_t)r->fetched << 9;
	}
	return 0;
}

static int by_cost(const struct file_sum *x, const struct file_sum *y)
{
	uint64_t a = x->blocked_ns + x->fault_ns, b = y->blocked_ns + y->fault_ns;

	if (a != b)
		return a > b ? -1 : 1;
	a = x->bytes + x->fault_bytes;
	b = y->bytes + y->fault_bytes;
	return a > b ? -1 : a < b;
}

static void fill_faults(const struct pt_an *an, const struct file_sum *f,
			const struct pt_file *name, struct pt_r_file *o)
{
	bool seen = an->m->host_known &&
		    an->m->host.fault_door != PT_FAULT_DOOR_NONE;

	o->faults = seen ? (int64_t)f->faults : PT_NULL;
	o->fault_bytes = seen ? (int64_t)f->fault_bytes : PT_NULL;
	o->fault_s = seen ? sec(f->fault_ns) : NAN;
	/* it is looked up when a fault meets the file */
	o->text = !f->faults ? PT_NULL : name ? name->text : PT_NULL;
}

static int fill_files(struct pt_an *an)
{
	bool traced = an->m->host_known && an->m->host.read_door != PT_DOOR_NONE;
	struct file_sum *all = NULL, *f, *tmp;
	size_t i, n = 0, most = PT_PART_FILES;
	struct pt_r_file *o;
	int err = 0;

	for (i = 0; i < an->m->all_threads.n && !err; i++)
		err = sum_files(an, an->m->all_threads.v[i], &all);
	HASH_SORT(all, by_cost);
	most = HASH_COUNT(all) < most ? HASH_COUNT(all) : most;
	o = pt_arena_calloc(an->a, most + 1, sizeof(*o));
	if (!o)
		err = -ENOMEM;
	HASH_ITER(hh, all, f, tmp) {
		const struct pt_file *name;

		if (!err && n < most) {
			name = pt_model_file(an->m, (uint32_t)f->key.dev,
					     f->key.inode);
			o[n].path = name && name->path ?
					    pt_arena_strdup(an->a, name->path) :
					    NULL;
			o[n].dev = (uint32_t)f->key.dev;
			o[n].inode = f->key.inode;
			o[n].opens = PT_NULL;
			o[n].reads = traced ? (int64_t)f->reads : PT_NULL;
			o[n].bytes = traced ? (int64_t)f->bytes : PT_NULL;
			o[n].read_s = traced && !f->untimed ? sec(f->read_ns) : NAN;
			o[n].blocked_s = sec(f->blocked_ns);
			o[n].p99_ms = o[n].cached_share = NAN;
			pt_fill_place(an->places, &o[n]);
			o[n].dev = pt_model_dev(an->m, o[n].dev, o[n].inode);
			pt_file_place(an, name, &o[n]);
			pt_file_cached(&o[n], f->unfetched ? PT_NULL :
						      (int64_t)f->fetched);
			fill_faults(an, f, name, &o[n]);
			n++;
		}
		HASH_DEL(all, f);
		free(f);
	}
	an->r->files = o;
	an->r->n_files = err ? 0 : n;
	return err;
}

/* ---- series -------------------------------------------------- */

static void add_sample(struct pt_r_point *pt, const struct pt_rec_sample *a,
		       const struct pt_rec_sample *b)
{
	double dt = sec(b->hdr.ts - a->hdr.ts);

	pt->rss += (double)b->rss_anon;
	pt->shm += (double)b->rss_shmem;
	if (dt <= 0)
		return;
	pt->cpu += sec(b->utime_ns + b->stime_ns - a->utime_ns - a->stime_ns) / dt;
	pt->read_bps += (double)(b->rchar - a->rchar) / dt;
}

static int fill_series(struct pt_an *an)
{
	size_t n = (size_t)((an->t1 - an->t0) / SERIES_STEP_NS), i, j, k,
	       hint = 0;
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
	for (i = 0; i < an->m->all_procs.n; i++) {
		const struct pt_proc *p = an->m->all_procs.v[i];

		size_t last = 0; /* one sample a process and interval */

		if (p->outside)
			continue;
		for (j = 1; j < p->samples.n; j++) {
			const struct pt_rec_sample *b = &p->samples.v[j];

			if (b->hdr.ts < an->t0)
				continue;
			k = (size_t)((b->hdr.ts - an->t0) / SERIES_STEP_NS);
			if (k > last && k <= n) {
				last = k;
				add_sample(&o[k - 1], b - 1, b);
				seen[k - 1] = true;
			}
		}
	}
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

	if (!err)
		err = fill_workers(an, t);
	return err ? err : pt_fill_operations(an, t);
}

int pt_measure_host_tables(struct pt_an *an)
{
	int err = pt_find_places(an, an->places);

	if (!err)
		err = fill_files(an);
	if (!err)
		pt_measure_working_set(an);
	if (!err)
		err = pt_fill_disks(an);
	if (!err)
		err = pt_fill_writes(an);
	return err ? err : pt_fill_peers(an);
}

int pt_fill_samples(struct pt_an *an)
{
	int err = fill_series(an);

	if (!err)
		err = pt_fill_devices(an);
	return err ? err : pt_fill_memory(an);
}
