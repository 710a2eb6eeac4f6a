/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAKE_NS (60 * ST_US)  /* take a message out of the pipe, unpickle */
#define FEED_NS (20 * ST_US)  /* feeder: write an index */
#define ASK_NS (90 * ST_US)   /* a worker answers for its descriptors */
#define DONE_NS (12 * ST_US)  /* from the last launch to waking who waits */
#define SYNC_NS (4 * ST_US)   /* a sync that finds nothing to wait for */
#define COPY_CALL_NS (8 * ST_US)
#define COPY_DEV_NS (30 * ST_US)

#define READ_NS (15 * ST_US) /* from the page cache; the rest of a slice works on it */
#define BETWEEN_NS (120 * ST_US) /* two batches obtained in a row */
#define MESSAGE_BYTES 72 /* of a worker that sends by itself */

#define REST_ADDR(tid) (0x7f0000000000ull + (uint64_t)(tid) * 64)

static void must(int err)
{
	if (!err)
		return;
	fprintf(stderr, "stream_job: out of memory\n");
	abort();
}

struct job_opts job_defaults(void)
{
	struct job_opts o = {
		.workers = 2, .prefetch = 2, .cores = 4, .batch_ns = 40 * ST_MS,
		.jitter = 0.1, .slices = 8, .launches = 20,
		.kernel_ns = 200 * ST_US, .launch_gap_ns = 12 * ST_US,
		.send_ns = 40 * ST_US, /* pickle and write */
		.sync_every = 1, .wake_ns = 8 * ST_US, .run_s_x10 = 30,
		.seed = 1,
	};

	return o;
}

/* v, give or take the share. */
static uint64_t spread(struct job *j, uint64_t v, double share)
{
	uint64_t d = (uint64_t)((double)v * share);

	return d ? v - d + st_between(&j->rnd, 0, 2 * d) : v;
}

/* ---- loading --------------------------------------------------------------- */

static void piece(struct job_worker *w, uint64_t b, uint64_t e, enum job_seg seg)
{
	struct job_piece p = { b, e, seg };

	if (w && e > b)
		must(pt_vec_push(&w->pieces, p));
}

/* One stretch of loading by a thread; returns its end. */
static uint64_t segment(struct job *j, struct job_worker *w, uint32_t tid,
			uint64_t b, uint64_t e, enum job_seg seg)
{
	/* the interrupt hits whoever runs: mostly another process */
	uint32_t victim = j->o.hogs ? JOB_HOG + (uint32_t)(b % 2) : 0;
	unsigned id = w ? (unsigned)(w - j->worker) : 0;

	if (e <= b)
		return b;
	switch (seg) {
	case JOB_RUNQ:
	case JOB_QUOTA:
		st_preempted(&j->s, tid, tid, b, e);
		break;
	case JOB_DISK:
		st_disk(&j->s, tid, tid, b, e, e, JOB_FILE_DEV, JOB_FILE(id),
			victim);
		st_bytes(&j->s, 65536, 0);
		break;
	case JOB_FAULT:
		st_fault(&j->s, tid, tid, b, e, e);
		break;
	case JOB_NET:
		st_sock(&j->s, tid, tid, b, e, e, 888, 0, 0);
		break;
	case JOB_LOCK:
		st_futex(&j->s, tid, tid, b, e, e, 0x1234000, 0, 0);
		break;
	default:
		break;
	}
	piece(w, b, e, seg);
	return e;
}

#define PERIOD_NS (100 * ST_MS)

/* Compute for `ns`, as far as the worker's quota goes in each period. */
static uint64_t compute(struct job *j, struct job_worker *w, uint32_t tid,
			uint64_t t, uint64_t ns)
{
	unsigned id = w ? (unsigned)(w - j->worker) : 0;
	uint64_t shift = (id * 37 + 11) * ST_MS, n;

	if (!w || !j->o.quota_ns)
		return segment(j, w, tid, t, t + ns, JOB_CPU);
	while (ns) {
		if (w->period != (t + shift) / PERIOD_NS) {
			w->period = (t + shift) / PERIOD_NS;
			w->used = 0;
		}
		n = j->o.quota_ns - w->used;
		if (!n) { /* until the next period */
			n = (w->period + 1) * PERIOD_NS - shift;
			w->throttled += n - t;
			t = segment(j, w, tid, t, n, JOB_QUOTA);
			continue;
		}
		n = n < ns ? n : ns;
		t = segment(j, w, tid, t, t + n, JOB_CPU);
		w->used += n;
		ns -= n;
	}
	return t;
}

/* The end of a batch is made with the lock that all workers share. */
static uint64_t with_lock(struct job *j, struct job_worker *w, uint32_t tid,
			  uint64_t t)
{
	unsigned id = (unsigned)(w - j->worker);

	if (j->lock_free > t) {
		st_futex(&j->s, tid, tid, t, j->lock_free, j->lock_free,
			 0x5678000, JOB_WORKER(j->lock_had),
			 JOB_WORKER(j->lock_had));
		piece(w, t, j->lock_free, JOB_LOCK);
		t = j->lock_free;
	}
	t = compute(j, w, tid, t, j->o.lock_ns);
	j->lock_free = t;
	j->lock_had = id;
	return t;
}

/* Load one batch from `t`; returns when it is made. */
static uint64_t load(struct job *j, struct job_worker *w, uint32_t tid,
		     uint64_t t)
{
	double f = w ? j->o.factor[w - j->worker] : 0, cpu = 1;
	uint64_t ns = spread(j, (uint64_t)((double)j->o.batch_ns *
					   (f > 0 ? f : 1)), j->o.jitter);
	bool heavy = w == j->worker && j->o.heavy_every &&
		     w->made.n % j->o.heavy_every == 0;
	double mix[JOB_SEND] = { 0 };
	unsigned i, seg;

	if (heavy)
		ns = (uint64_t)((double)ns * j->o.heavy);
	if (heavy || !j->o.heavy_mix)
		memcpy(mix, j->o.mix, sizeof(mix));
	for (seg = JOB_RUNQ; seg < JOB_SEND; seg++)
		cpu -= mix[seg];
	for (i = 0; i < j->o.slices; i++) {
		double slice = (double)ns / j->o.slices;

		if (!j->o.workers && !j->o.no_reads)
			st_read(&j->s, tid, tid, t, t + READ_NS, JOB_FILE_DEV,
				JOB_FILE(0), 16384);
		t = compute(j, w, tid, t, (uint64_t)(slice * cpu));
		for (seg = JOB_RUNQ; seg < JOB_SEND; seg++) {
			t = segment(j, w, tid, t, t + (uint64_t)
				    (slice * mix[seg]), (enum job_seg)seg);
			/* two sleeps do not touch */
			piece(w, t, t + 1000, JOB_CPU);
			t += 1000;
		}
	}
	return w && j->o.lock_ns ? with_lock(j, w, tid, t) : t;
}

static void moved(struct job *j, uint32_t tid, uint64_t at, uint64_t rchar,
		  uint64_t wchar)
{
	struct job_bytes b = { at, rchar, wchar, tid };

	must(pt_vec_push(&j->bytes, b));
}

/* Bytes show in the totals at the thread's next switch. */
static void moved_bytes(struct job *j)
{
	size_t i, k;

	for (k = 0; k < j->bytes.n; k++) {
		const struct job_bytes *b = &j->bytes.v[k];
		struct st_rec *next = NULL;

		for (i = 0; i < j->s.recs.n; i++) {
			struct st_rec *r = &j->s.recs.v[i];

			if (r->r.hdr.kind == PT_REC_OFF &&
			    r->r.hdr.tid == b->tid && r->r.off.off_ts >= b->at &&
			    (!next || r->r.off.off_ts < next->r.off.off_ts))
				next = r;
		}
		if (next) {
			next->rchar += b->rchar;
			next->wchar += b->wchar;
		}
	}
}

/* The trainer hands out the next index; its feeder thread writes it. */
static void dispatch(struct job *j, uint64_t t)
{
	unsigned id = (unsigned)(j->dispatched % j->o.workers);
	struct job_worker *w = &j->worker[id];
	uint32_t pid = JOB_WORKER(id), writer = JOB_FEEDER(id), maker = pid;
	uint64_t d = j->o.wake_ns, at = t, start, sent;
	struct job_batch b = { 0 };

	if (j->o.direct) {
		writer = JOB_TRAINER;
		at += FEED_NS;
	} else {
		if (w->feed_free < t) {
			st_futex(&j->s, JOB_TRAINER, writer, w->feed_free, t,
				 t + d, REST_ADDR(writer), JOB_TRAINER,
				 JOB_TRAINER);
			at = t + d + FEED_NS;
		} else { /* still awake from the one before */
			at = w->feed_free + FEED_NS;
		}
		w->feed_free = at + 3000;
		/* its write shows at its next record */
	}
	start = w->free_at;
	if (w->free_at < at) {
		st_pipe_in(&j->s, pid, pid, w->free_at, at, at + d,
			   JOB_INDEX_PIPE(id), JOB_TRAINER, writer);
		piece(w, w->free_at, at, JOB_IDLE);
		piece(w, at, at + d, JOB_RUNQ);
		start = at + d;
	}
	b.made = load(j, w, pid, start);
	if (j->o.direct) {
		b.written = b.made + j->o.send_ns;
		w->free_at = b.written + 2000;
		piece(w, b.made, w->free_at, JOB_CPU);
		moved(j, pid, b.written, 0, MESSAGE_BYTES);
	} else {
		maker = JOB_SENDER(id);
		sent = w->send_free;
		if (sent < b.made) {
			st_futex(&j->s, pid, maker, sent, b.made, b.made + d,
				 REST_ADDR(maker), pid, pid);
			st_bytes(&j->s, 0, w->made.n ? 450 : 0);
			sent = b.made + d;
		}
		b.written = sent + j->o.send_ns;
		w->send_free = b.written + 3000;
		w->free_at = b.made + 5000;
		piece(w, b.made, w->free_at, JOB_CPU);
	}
	must(pt_vec_push(&w->made, b.made));
	must(pt_vec_push(&j->batches, b));
	j->dispatched++;
}

/* The feeder's write shows in the totals at its next record. */
static void feeder_bytes(struct job *j)
{
	size_t i;

	for (i = 0; i < j->s.recs.n; i++) {
		struct st_rec *r = &j->s.recs.v[i];

		if (r->r.hdr.kind == PT_REC_OFF && r->r.hdr.tgid == JOB_TRAINER &&
		    r->r.hdr.tid >= JOB_FEEDER(0) &&
		    r->r.hdr.tid < JOB_FEEDER(JOB_MAX_WORKERS))
			r->wchar += 70;
	}
}

/* ---- obtaining a batch ------------------------------------------------------ */

/* The message that was written first and not taken yet; -1 none. */
static long first_message(const struct job *j)
{
	long best = -1;
	size_t i, n = j->batches.n, span = j->o.workers * j->o.prefetch + 4;

	for (i = n > 2 * span ? n - 2 * span : 0; i < n; i++)
		if (!j->batches.v[i].taken &&
		    (best < 0 || j->batches.v[i].written <
				 j->batches.v[best].written))
			best = (long)i;
	return best;
}

static int maker_of(const struct job *j, size_t k)
{
	return j->o.workers ? (int)(k % j->o.workers) : -1;
}

/* What the receiving thread does with a message; returns the end. */
static uint64_t take(struct job *j, uint32_t tid, size_t k, uint64_t t)
{
	unsigned w = (unsigned)maker_of(j, k);

	j->batches.v[k].taken = true;
	if (j->o.piped_ns) {
		uint64_t end = t + j->o.piped_ns, from = t;

		/* its sender has filled the pipe, and sleeps for room */
		for (; t < end; from = t, t += j->o.piped_ns / 8) {
			struct pt_rec_off *r = st_pipe_in(
				&j->s, JOB_WORKER(w), JOB_ANSWERER(w), from,
				t + 5 * ST_US, t + 9 * ST_US, JOB_RESULT_PIPE,
				JOB_TRAINER, tid);

			r->syscall = 1;
			r->waker_syscall = 0;
		}
		t = end;
	} else if (j->o.sockets && j->o.awake) {
		st_sock(&j->s, JOB_WORKER(w), JOB_ANSWERER(w), t,
			t + 10 * ST_US, t + 10 * ST_US + j->o.wake_ns, 700 + w,
			JOB_TRAINER, tid);
		/* the next one does not come at once */
		t += 600 * ST_US;
		st_sock(&j->s, JOB_TRAINER, tid, t, t + ASK_NS,
			t + ASK_NS + j->o.wake_ns, 700 + w, JOB_WORKER(w),
			JOB_ANSWERER(w));
		t += ASK_NS + j->o.wake_ns;
	} else if (j->o.sockets) {
		st_sock(&j->s, JOB_TRAINER, tid, t + 10 * ST_US,
			t + 10 * ST_US + ASK_NS,
			t + 10 * ST_US + ASK_NS + j->o.wake_ns, 700 + w,
			JOB_WORKER(w), JOB_ANSWERER(w));
		t += 10 * ST_US + ASK_NS + j->o.wake_ns;
	}
	return t + TAKE_NS;
}

/* What held up [b,e), a sleep for batch k: its maker's main thread until it
 * was made, then its sender. */
static void blame(struct job *j, struct job_step *s, size_t k, uint64_t b,
		  uint64_t e)
{
	const struct job_worker *w = &j->worker[maker_of(j, k)];
	uint64_t made = j->batches.v[k].made, stop = e;
	size_t i;

	s->blocked += e - b;
	if (!j->o.direct && made < e) {
		stop = made > b ? made : b;
		s->ns[JOB_SEND] += e - stop;
	}
	for (i = 0; i < w->pieces.n; i++) {
		const struct job_piece *p = &w->pieces.v[i];
		uint64_t lo = p->begin > b ? p->begin : b;
		uint64_t hi = p->end < stop ? p->end : stop;

		if (hi > lo)
			s->ns[p->seg] += hi - lo;
	}
}

static void obtain_direct(struct job *j, struct job_step *s, size_t k)
{
	while (!j->batches.v[k].taken) {
		long i = first_message(j);
		uint64_t at = j->batches.v[i].written, b = j->now;
		unsigned w = (unsigned)maker_of(j, (size_t)i);

		if (at > b) {
			st_pipe_in(&j->s, JOB_TRAINER, JOB_TRAINER, b, at,
				   at + j->o.wake_ns, JOB_RESULT_PIPE,
				   JOB_WORKER(w), j->o.direct ? JOB_WORKER(w) :
							       JOB_SENDER(w));
			blame(j, s, k, b, at);
			j->now = at + j->o.wake_ns;
			s->ns[JOB_RUNQ] += j->o.wake_ns;
		}
		s->unseen = at <= b && s->blocked;
		b = j->now;
		j->now = take(j, JOB_TRAINER, (size_t)i, b);
		if (j->o.direct)
			moved(j, JOB_TRAINER, b + ST_US, MESSAGE_BYTES, 0);
		s->ns[JOB_SEND] += j->now - b;
	}
}

/* Let the pin thread work until it has handed batch k over. */
static void run_pin(struct job *j, size_t k)
{
	while (!j->batches.v[k].pinned) {
		long i = first_message(j);
		struct job_batch *b = &j->batches.v[i];
		unsigned w = (unsigned)maker_of(j, (size_t)i);
		uint64_t t = j->pin_free;

		if (b->written > t) {
			st_pipe_in(&j->s, JOB_TRAINER, JOB_PIN, t, b->written,
				   b->written + j->o.wake_ns, JOB_RESULT_PIPE,
				   JOB_WORKER(w), JOB_SENDER(w));
			t = b->written + j->o.wake_ns;
		}
		b->pinned = take(j, JOB_PIN, (size_t)i, t);
		j->pin_free = b->pinned + 5000;
	}
}

static void obtain_pinned(struct job *j, struct job_step *s, size_t k)
{
	run_pin(j, k);
	for (;;) {
		uint64_t first = UINT64_MAX, b = j->now;
		size_t i;

		/* the queue wakes us for every batch that comes */
		for (i = k; i < j->batches.n; i++)
			if (j->batches.v[i].pinned > b &&
			    j->batches.v[i].pinned < first)
				first = j->batches.v[i].pinned;
		if (j->batches.v[k].pinned <= b)
			break;
		st_futex(&j->s, JOB_TRAINER, JOB_TRAINER, b, first,
			 first + j->o.wake_ns, REST_ADDR(JOB_TRAINER),
			 JOB_TRAINER, JOB_PIN);
		blame(j, s, k, b, first);
		j->now = first + j->o.wake_ns;
		s->ns[JOB_RUNQ] += j->o.wake_ns;
	}
}

static void obtain(struct job *j)
{
	struct job_step s = { .wait_begin = j->starting ? j->starting : j->now,
			      .worker = -1 };
	size_t k = j->steps.n;

	j->starting = 0;
	j->now += j->o.lead_ns;
	if (j->o.late_every && k % j->o.late_every == 0)
		j->now += 700 * ST_US;
	s.ns[JOB_SEND] += j->now - s.wait_begin;
	if (!j->o.workers) {
		size_t from = j->worker[0].pieces.n, i;

		j->now = load(j, &j->worker[0], JOB_TRAINER, j->now);
		for (i = from; i < j->worker[0].pieces.n; i++) {
			const struct job_piece *p = &j->worker[0].pieces.v[i];

			s.ns[p->seg] += p->end - p->begin;
		}
	} else {
		s.worker = maker_of(j, k);
		s.early = j->batches.v[k].taken && !j->o.pin;
		s.made = j->batches.v[k].made;
		if (j->o.pin)
			obtain_pinned(j, &s, k);
		else
			obtain_direct(j, &s, k);
		if (!j->o.epoch || j->dispatched % j->o.epoch)
			dispatch(j, j->now + 10 * ST_US);
		j->now += 30 * ST_US;
		s.ns[JOB_SEND] += 30 * ST_US;
	}
	s.wait_end = j->now;
	must(pt_vec_push(&j->steps, s));
}

/* ---- the device -------------------------------------------------------------- */

static void device(struct job *j, uint64_t at, uint64_t ns)
{
	uint64_t b = at > j->dev_free ? at : j->dev_free;
	struct job_span *last = j->busy.n ? &j->busy.v[j->busy.n - 1] : NULL;
	struct job_span s = { b, b + ns };

	j->dev_free = b + ns;
	if (last && last->end >= b)
		last->end = j->dev_free;
	else
		must(pt_vec_push(&j->busy, s));
}

static void launch(struct job *j, uint32_t tid, uint64_t *t, unsigned site)
{
	if (j->o.sites && site < j->o.launches)
		site %= j->o.sites;
	st_gpu(&j->s, "cudaLaunchKernel", JOB_TRAINER, tid, *t, 0, 0,
	       j->o.one_kernel ? 0x4000 : 0x4000 + 16 * site, 0, 0);
	device(j, *t, spread(j, j->o.kernel_ns, j->o.kernel_jitter));
	*t += j->o.launch_gap_ns;
}

static void to_device(struct job *j)
{
	uint64_t call = j->o.copy_ns ? j->o.copy_ns : COPY_CALL_NS;

	st_gpu(&j->s, "cudaMemcpyAsync", JOB_TRAINER, JOB_TRAINER, j->now,
	       j->now + call, 0, 0xd000, 1 << 16, 1);
	device(j, j->now, COPY_DEV_NS);
	j->now += call + j->o.launch_gap_ns;
}

static void use_with_thread(struct job *j, unsigned half)
{
	uint64_t d = j->o.wake_ns, t = j->now + d, slept = j->now + 3000;
	unsigned i;

	if (j->grad_free)
		st_futex(&j->s, JOB_TRAINER, JOB_GRAD, j->grad_free, j->now,
			 t, REST_ADDR(JOB_GRAD), JOB_TRAINER, JOB_TRAINER);
	for (i = half; i < j->o.launches; i++)
		launch(j, JOB_GRAD, &t, i);
	t -= j->o.launch_gap_ns; /* no launch follows: it returns */
	t += DONE_NS;
	st_futex(&j->s, JOB_TRAINER, JOB_TRAINER, slept, t, t + d,
		 REST_ADDR(JOB_TRAINER) + 8, JOB_TRAINER, JOB_GRAD);
	j->grad_free = t + 2000;
	j->now = t + d;
	if (j->o.thread_last)
		return;
	j->now += j->o.launch_gap_ns;
	launch(j, JOB_TRAINER, &j->now, j->o.launches); /* the optimizer */
}

static void sync_up(struct job *j)
{
	uint64_t b = j->now, end = b + SYNC_NS;

	if (j->dev_free + 2000 > end)
		end = j->dev_free + 2000;
	if (j->o.loss_item) {
		device(j, b, COPY_DEV_NS);
		end = j->dev_free + 2000;
		st_gpu(&j->s, "cudaMemcpyAsync", JOB_TRAINER, JOB_TRAINER, b,
		       end, 0, 0xe000, 4, 2);
	} else {
		st_gpu(&j->s, "cudaStreamSynchronize", JOB_TRAINER, JOB_TRAINER,
		       b, end, 0, 0, 0, 0);
	}
	if (b >= JOB_BEGIN + ST_S)
		j->synced += end - b;
	j->now = end;
}

/* Writes and flushes a file for a while. */
static void save(struct job *j)
{
	uint64_t end = j->now + j->o.save_ns;

	while (j->now < end) {
		st_disk(&j->s, JOB_TRAINER, JOB_TRAINER, j->now,
			j->now + ST_MS, j->now + ST_MS, JOB_FILE_DEV, 777, 0)
			->syscall = 74;
		st_bytes(&j->s, 0, 1 << 18);
		j->now += ST_MS + 50 * ST_US;
	}
}

/* The workers have nothing left: a new epoch hands out work to all at once. */
static void start_epoch(struct job *j)
{
	size_t i;

	j->starting = j->now;
	j->now += j->o.start_ns;
	for (i = 0; i < (size_t)j->o.workers * j->o.prefetch; i++)
		dispatch(j, j->now += 10 * ST_US);
	j->now += 20 * ST_US;
}

static void use(struct job *j, bool copied)
{
	unsigned i, n = j->o.launches, half = n / 2;
	size_t k = j->steps.n;

	if (j->o.validate &&
	    (k - 1) % (j->o.train + j->o.validate) >= j->o.train)
		n /= 3;
	if (!copied)
		to_device(j);
	if (j->o.thread_all)
		half = 0;
	if (j->o.loop == JOB_THREAD) {
		for (i = 0; i < half; i++)
			launch(j, JOB_TRAINER, &j->now, i);
		use_with_thread(j, half);
	} else {
		for (i = 0; i < n; i++)
			launch(j, JOB_TRAINER, &j->now, i);
	}
	for (i = 0; j->o.update_every && k % j->o.update_every == 0 &&
		    i < 5; i++)
		launch(j, JOB_TRAINER, &j->now, 1000 + i);
	if (j->o.sync_every && k % j->o.sync_every == 0)
		sync_up(j);
	j->now += j->o.host_ns;
	if (j->o.save_every && k % j->o.save_every == 0)
		save(j);
	if (j->o.epoch && j->steps.n == j->dispatched)
		start_epoch(j);
}

/* ---- the whole ---------------------------------------------------------------- */

static void introduce(struct job *j)
{
	unsigned w;

	st_host(&j->s, JOB_BEGIN, j->o.cores, JOB_TRAINER);
	st_task(&j->s, JOB_BEGIN, JOB_TRAINER, JOB_TRAINER, 1, "python3");
	if (j->o.pin)
		st_task(&j->s, JOB_BEGIN, JOB_TRAINER, JOB_PIN, 1, "python3");
	if (j->o.loop == JOB_THREAD)
		st_task(&j->s, JOB_BEGIN, JOB_TRAINER, JOB_GRAD, 1, "python3");
	for (w = 0; w < j->o.workers; w++) {
		uint32_t pid = JOB_WORKER(w);

		st_task(&j->s, JOB_BEGIN, pid, pid, JOB_TRAINER, "python3");
		if (!j->o.direct) {
			st_task(&j->s, JOB_BEGIN, pid, JOB_SENDER(w),
				JOB_TRAINER, "python3");
			st_task(&j->s, JOB_BEGIN, JOB_TRAINER, JOB_FEEDER(w), 1,
				"python3");
		}
		if (j->o.sockets || j->o.piped_ns)
			st_task(&j->s, JOB_BEGIN, pid, JOB_ANSWERER(w),
				JOB_TRAINER, "python3");
	}
	/* in the target's tree, so that a careless analysis could blame them */
	for (w = 0; j->o.hogs && w < 2; w++)
		st_task(&j->s, JOB_BEGIN, JOB_HOG + w, JOB_HOG + w, JOB_TRAINER,
			"hog");
}

/* What the control groups say: the trainer's has no quota. */
static void sample(struct job *j, uint64_t ts)
{
	unsigned w;

	st_add(&j->s, PT_REC_SAMPLE, sizeof(struct pt_rec_sample), ts,
	       JOB_TRAINER, JOB_TRAINER);
	for (w = 0; w < j->o.workers; w++)
		st_add(&j->s, PT_REC_SAMPLE, sizeof(struct pt_rec_sample), ts,
		       JOB_WORKER(w), JOB_WORKER(w))->sample.throttled_ns =
			j->worker[w].throttled;
}

/* Threads that sleep when the job is over. */
static void conclude(struct job *j)
{
	unsigned w;

	for (w = 0; w < j->o.workers; w++) {
		struct job_worker *k = &j->worker[w];

		st_off(&j->s, JOB_WORKER(w), JOB_WORKER(w), k->free_at, 0,
		       k->free_at + 3600 * ST_S);
		if (j->o.direct)
			continue;
		st_off(&j->s, JOB_WORKER(w), JOB_SENDER(w), k->send_free, 0,
		       k->send_free + 3600 * ST_S);
		st_off(&j->s, JOB_TRAINER, JOB_FEEDER(w), k->feed_free, 0,
		       k->feed_free + 3600 * ST_S);
	}
}

void job_run(struct job *j, const struct job_opts *o)
{
	uint64_t end = JOB_BEGIN + o->run_s_x10 * (ST_S / 10);
	size_t i;

	memset(j, 0, sizeof(*j));
	j->o = *o;
	j->rnd = o->seed;
	j->now = JOB_BEGIN;
	j->pin_free = JOB_BEGIN;
	introduce(j);
	if (o->quota_ns)
		sample(j, JOB_BEGIN + ST_S / 2);
	for (i = 0; i < JOB_MAX_WORKERS; i++)
		j->worker[i].free_at = j->worker[i].send_free =
			j->worker[i].feed_free = JOB_BEGIN;
	for (i = 0; i < (size_t)o->workers * o->prefetch; i++)
		dispatch(j, j->now += 50 * ST_US);
	if (o->loop == JOB_AHEAD) {
		obtain(j);
		while (j->now < end) {
			to_device(j);
			obtain(j);
			use(j, true);
		}
	} else {
		while (j->now < end) {
			obtain(j);
			if (o->loop == JOB_TWO) {
				to_device(j);
				obtain(j);
				j->steps.v[j->steps.n - 1].joins = true;
			}
			for (i = 1; i < o->micro; i++) {
				j->now += o->between_ns ? o->between_ns :
							  BETWEEN_NS;
				obtain(j);
				j->steps.v[j->steps.n - 1].joins = true;
			}
			use(j, false);
			for (i = 1; i < o->micro; i++)
				use(j, false);
		}
	}
	if (o->quota_ns)
		sample(j, end - ST_S / 5);
	conclude(j);
	feeder_bytes(j);
}

void job_free(struct job *j)
{
	size_t i;

	for (i = 0; i < JOB_MAX_WORKERS; i++) {
		pt_vec_free(&j->worker[i].pieces);
		pt_vec_free(&j->worker[i].made);
	}
	pt_vec_free(&j->steps);
	pt_vec_free(&j->busy);
	pt_vec_free(&j->batches);
	pt_vec_free(&j->bytes);
	st_free(&j->s);
}

void job_window(struct job *j, uint64_t t0, uint64_t t1)
{
	j->t0 = t0;
	j->t1 = t1;
	moved_bytes(j);
	st_window(&j->s, t0, t1);
	st_seal(&j->s);
}
