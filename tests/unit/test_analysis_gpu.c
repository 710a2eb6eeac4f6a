/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The device as a queue, against simulated devices: whatever the kernels do,
 * the hard bounds contain the truth. Random programs of up to three threads
 * on up to four streams, with events, copies, syncs of every kind, and hosts
 * that come back late.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "analysis/internal.h"
#include "analysis/verdicts/thresholds.h"
#include "stream_case.h"

#define SEEDS 200
#define PID 1000u
#define STREAMS 4
#define EVENTS 6
#define EPS 1e-6

struct world {
	struct stream s;
	uint64_t rnd, t0, t1;
	uint64_t now[3], waits_from;
	unsigned threads, streams;
	uint64_t done[STREAMS];	 /* stream empty from here on */
	uint64_t event[EVENTS];	 /* what was before it is done */
	PT_VEC(struct job_span) busy;
	uint64_t late;		 /* host's delay behind the device, at most */
};

static uint64_t handle(unsigned stream)
{
	return stream ? 0xcafe0000 + 64 * stream : 0;
}

static void run_on(struct world *w, unsigned stream, uint64_t at, uint64_t ns)
{
	struct job_span b = { at > w->done[stream] ? at : w->done[stream], 0 };

	b.end = w->done[stream] = b.begin + ns;
	assert_int_equal(pt_vec_push(&w->busy, b), 0);
}

/* A call that blocks until `done`: asleep, or spinning and perhaps
 * preempted. Returns its end. */
static uint64_t block(struct world *w, uint32_t tid, uint64_t b, uint64_t done)
{
	uint64_t end = (done > b ? done : b) + 2000, late = 0;

	if (done > b + 10 * ST_US && w->late) {
		late = st_between(&w->rnd, 3000, w->late);
		end = done + late;
		if (st_rand(&w->rnd) % 2) { /* asleep, woken at once, queued */
			struct pt_rec_off *o = st_off(&w->s, PID, tid, b + 3000,
						      done, end - 1000);

			o->syscall = 16; /* ioctl */
		} else if (late > 10 * ST_US) { /* spun, lost its CPU */
			st_preempted(&w->s, PID, tid,
				     st_between(&w->rnd, b + 3000, done),
				     end - 1000);
		}
	} else if (w->late && st_rand(&w->rnd) % 4 == 0) {
		/* nothing to wait for, yet preempted inside the call */
		end += st_between(&w->rnd, 10 * ST_US, w->late);
		st_preempted(&w->s, PID, tid, b + 500, end - 500);
	}
	return end;
}

static void act(struct world *w, unsigned th)
{
	uint32_t tid = PID + th;
	uint64_t t = w->now[th], end = 0, all = 0;
	unsigned str = (unsigned)(st_rand(&w->rnd) % w->streams), i;
	unsigned ev = (unsigned)(st_rand(&w->rnd) % EVENTS);
	uint64_t evh = 0xe000 + 8 * ev;

	for (i = 0; i < w->streams; i++)
		if (w->done[i] > all)
			all = w->done[i];
	switch (st_rand(&w->rnd) % 12) {
	default:
		st_gpu(&w->s, "cudaLaunchKernel", PID, tid, t, 0, handle(str),
		       0x4000 + 16 * (st_rand(&w->rnd) % 5), 0, 0);
		run_on(w, str, t, st_between(&w->rnd, 5 * ST_US, 3 * ST_MS));
		end = t + 5 * ST_US;
		break;
	case 0: /* copies to the device return once staged: in the midst */
		run_on(w, str, t, st_between(&w->rnd, 20 * ST_US, 2 * ST_MS));
		end = t + st_between(&w->rnd, 5 * ST_US,
				     (w->done[str] - t) / 2 + 6 * ST_US);
		if (end > w->done[str])
			end = w->done[str];
		st_gpu(&w->s, "cudaMemcpyAsync", PID, tid, t, end, handle(str),
		       1, 65536, 1);
		break;
	case 1: /* copies from it, once done */
		run_on(w, str, t, st_between(&w->rnd, 5 * ST_US, ST_MS));
		end = block(w, tid, t, w->done[str]);
		st_gpu(&w->s, "cudaMemcpyAsync", PID, tid, t, end, handle(str),
		       1, 65536, 2);
		break;
	case 2:
		end = block(w, tid, t, w->done[str]);
		st_gpu(&w->s, "cudaStreamSynchronize", PID, tid, t, end,
		       handle(str), 0, 0, 0);
		break;
	case 3:
		end = block(w, tid, t, all);
		st_gpu(&w->s, "cudaDeviceSynchronize", PID, tid, t, end, 0, 0,
		       0, 0);
		break;
	case 4:
		w->event[ev] = w->done[str];
		st_gpu(&w->s, "cudaEventRecord", PID, tid, t, 0, handle(str),
		       evh, 0, 0);
		end = t + 2000;
		break;
	case 5:
		end = block(w, tid, t, w->event[ev]);
		st_gpu(&w->s, "cudaEventSynchronize", PID, tid, t, end, 0, evh,
		       0, 0);
		break;
	case 6: /* something else keeps the host */
		end = t + st_between(&w->rnd, ST_MS, 12 * ST_MS);
		break;
	}
	w->now[th] = end + st_between(&w->rnd, 2 * ST_US, 40 * ST_US);
}

static int by_begin(const void *a, const void *b)
{
	const struct job_span *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Share of the window in which some stream was at work. */
static double busy_share(struct world *w)
{
	uint64_t sum = 0, to = w->t0;
	size_t i;

	if (w->busy.n)
		qsort(w->busy.v, w->busy.n, sizeof(*w->busy.v), by_begin);
	for (i = 0; i < w->busy.n; i++) {
		uint64_t b = w->busy.v[i].begin, e = w->busy.v[i].end;

		b = b > to ? b : to;
		e = e < w->t1 ? e : w->t1;
		if (e <= b)
			continue;
		sum += e - b;
		to = e;
	}
	return (double)sum / (double)(w->t1 - w->t0);
}

static void random_program(struct world *w, uint64_t seed, unsigned threads,
			   uint64_t late)
{
	uint64_t end = JOB_BEGIN + 600 * ST_MS;
	unsigned i;

	memset(w, 0, sizeof(*w));
	w->rnd = seed;
	w->threads = threads;
	w->streams = 1 + (unsigned)(st_rand(&w->rnd) % STREAMS);
	w->late = late;
	st_host(&w->s, JOB_BEGIN, 4, PID);
	for (i = 0; i < threads; i++) {
		st_task(&w->s, JOB_BEGIN, PID, PID + i, 1, "gpu");
		w->now[i] = JOB_BEGIN + i * 1000;
	}
	for (;;) { /* whoever is earliest acts: calls interleave in time */
		unsigned th = 0;

		for (i = 1; i < threads; i++)
			if (w->now[i] < w->now[th])
				th = i;
		if (w->now[th] > end)
			break;
		act(w, th);
	}
	w->t0 = JOB_BEGIN + 50 * ST_MS;
	w->t1 = JOB_BEGIN + 560 * ST_MS;
	st_window(&w->s, w->t0, w->t1);
	st_seal(&w->s);
}

/* No nanosecond that is called idle for certain lies in a stream's work. */
static void check_spans(struct world *w, const struct pt_model *m, uint64_t seed)
{
	struct pt_analysis_opts o = { 0 };
	struct pt_report *r = pt_report_new();
	struct pt_an an = { .m = m, .o = &o, .r = r, .a = r->arena,
			    .th = &pt_thresholds_default,
			    .t0 = m->begin, .t1 = m->end };
	uint64_t wrong = 0;
	struct pt_trainer *t;
	const pt_spans *idle;
	size_t i, k;

	assert_int_equal(pt_find_trainers(&an), 0);
	t = &an.trainers.v[0];
	assert_int_equal(pt_model_gpu(&an, t), 0);
	assert_int_equal(t->devs.n, 1);
	idle = &t->devs.v[0].idle_hard;
	for (i = 0; i < idle->n; i++)
		for (k = 0; k < w->busy.n &&
			    w->busy.v[k].begin < idle->v[i].end; k++)
			wrong += pt_overlap(idle->v[i].begin, idle->v[i].end,
					    w->busy.v[k].begin,
					    w->busy.v[k].end);
	for (i = 0; i < an.trainers.n; i++)
		pt_trainer_free(&an.trainers.v[i]);
	pt_vec_free(&an.trainers);
	pt_report_free(r);
	if (wrong)
		fail_msg("seed %llu: %llu ns of work are called idle",
			 (unsigned long long)seed, (unsigned long long)wrong);
}

static void check_bounds(unsigned threads, uint64_t late)
{
	uint64_t seed;
	double widest = 0, narrowest = 1;

	for (seed = 1; seed <= SEEDS; seed++) {
		struct world w;
		struct pt_model *m;
		struct pt_report *r;
		const struct pt_r_gpu *g;
		double idle;
		char buf[160];
		const char *trouble;

		random_program(&w, seed, threads, late);
		r = st_figures(&w.s, &m);
		assert_int_equal(r->n_gpu, 1);
		g = &r->gpu[0];
		idle = 1 - busy_share(&w);
		if (g->idle_hard[0] > idle + EPS || g->idle_hard[1] < idle - EPS)
			fail_msg("seed %llu, %u streams: idle %.6f, bounds %.6f to %.6f",
				 (unsigned long long)seed, w.streams, idle,
				 g->idle_hard[0], g->idle_hard[1]);
		check_spans(&w, m, seed);
		trouble = case_trouble(r, buf, sizeof(buf));
		if (trouble)
			fail_msg("seed %llu: %s", (unsigned long long)seed,
				 trouble);
		widest = fmax(widest, g->idle_hard[1] - g->idle_hard[0]);
		narrowest = fmin(narrowest, g->idle_hard[1] - g->idle_hard[0]);
		pt_report_free(r);
		pt_model_free(m);
		st_free(&w.s);
		pt_vec_free(&w.busy);
	}
	/* bounds of 0 to 1 would hold for anything */
	assert_true(narrowest < 0.6);
	assert_true(widest > 0);
}

static void test_bounds_one_thread(void **state)
{
	(void)state;
	check_bounds(1, 0);
}

static void test_bounds_many_threads(void **state)
{
	(void)state;
	check_bounds(2, 0);
	check_bounds(3, 0);
}

/* The host comes back late from a sync: what it slept behind the device's end
 * is not the device's work. */
static void test_bounds_late_host(void **state)
{
	(void)state;
	check_bounds(1, 4 * ST_MS);
	check_bounds(3, 4 * ST_MS);
}

/* In a training loop the bounds are narrow, and the likely value is near. */
static void test_training_loop(void **state)
{
	struct job_opts o = job_defaults();
	uint64_t seed;

	(void)state;
	o.kernel_ns = 600 * ST_US;
	for (seed = 1; seed <= 5; seed++) {
		struct st_case c;
		const struct pt_r_gpu *g;
		double idle, starved, w;

		o.seed = seed;
		case_open(&c, &o, 0, 0);
		g = c.r->gpu;
		w = (double)(c.j.t1 - c.j.t0);
		idle = 1 - (double)job_busy_ns(&c.j) / w;
		starved = (double)job_starved_ns(&c.j) / w;
		assert_true(g->idle_hard[0] <= idle + EPS);
		assert_true(g->idle_hard[1] >= idle - EPS);
		assert_true(g->starved_share[0] <= starved + EPS);
		assert_true(fabs(g->idle_share - idle) < 0.02);
		assert_true(fabs(g->starved_share[1] - starved) < 0.02);
		assert_true(g->idle_hard[1] - g->idle_hard[0] < 0.1);
		case_close(&c);
	}
}

/* Syncs every ten steps, kernels of steady length: solved, not bounded. */
static void test_likely_between_syncs(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	double w, idle, starved;

	(void)state;
	o.kernel_ns = 600 * ST_US;
	o.kernel_jitter = 0.1;
	o.sync_every = 10;
	o.run_s_x10 = 60;
	case_open(&c, &o, 0, 0);
	w = (double)(c.j.t1 - c.j.t0);
	idle = 1 - (double)job_busy_ns(&c.j) / w;
	starved = (double)job_starved_ns(&c.j) / w;
	if (fabs(c.r->gpu->idle_share - idle) > 0.03 ||
	    fabs(c.r->gpu->starved_share[1] - starved) > 0.03)
		fail_msg("idle %.3f, likely %.3f; starved %.3f, likely %.3f",
			 idle, c.r->gpu->idle_share, starved,
			 c.r->gpu->starved_share[1]);
	assert_true(c.r->gpu->idle_hard[0] <= idle + EPS);
	assert_true(c.r->gpu->idle_hard[1] >= idle - EPS);
	case_close(&c);
}

/*
 * Steps of 2,500 kernels of 200 us, of which 1,000 may be pending: the rest are launched as
 * the device goes on. The copy of the loss is held for all that is pending then, and behind
 * it the host works for 200 ms. Costs come from whole stretches, and the copy takes no longer
 * than a copy does.
 */
static void test_full_queue(void **state)
{
	enum { STEPS = 8, KERNELS = 2500, PENDING = 1000 };
	const uint64_t kernel = 200 * ST_US;
	uint64_t at = ST_S + 10 * ST_MS, t, done = 0, n, k;
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	st_host(&s, ST_S, 4, PID);
	st_task(&s, ST_S, PID, PID, 1, "train");
	for (n = 0; n < STEPS; n++) {
		for (k = 0; k < KERNELS; k++) {
			t = k < PENDING ? at + k * 5 * ST_US : at + (k - PENDING + 1) * kernel;
			st_gpu(&s, "cudaLaunchKernel", PID, PID, t, 0, 0, 1 + k % 3, 0, 0);
		}
		done = at + KERNELS * kernel;
		t += 5 * ST_US;
		st_off(&s, PID, PID, t + 3000, done, done + 3000)->syscall = 16; /* ioctl */
		st_gpu(&s, "cudaMemcpy", PID, PID, t, done + 10 * ST_US, 0, 1, 4, 2);
		at = done + 200 * ST_MS;
	}
	st_window(&s, ST_S + 10 * ST_MS, done);
	st_seal(&s);
	r = st_figures(&s, &m);
	assert_int_equal(r->n_gpu, 1);
	/* 500 of 700 ms, and the last step whole */
	if (!(fabs(r->gpu->busy_share - 4000.0 / 5400) < 0.02))
		fail_msg("busy %.3f, likely %.3f to %.3f", r->gpu->busy_share,
			 r->gpu->busy_likely[0], r->gpu->busy_likely[1]);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* Calls by kind, bytes, failures. */
/* Forty syncs find the stream empty, then two take longer, as a host may that loses its CPU:
 * neither is that work from before the trace, nor does it tell what a kernel takes. */
static void test_accidents(void **state)
{
	struct stream s = { 0 };
	const struct pt_r_gpu *g;
	struct pt_report *r;
	struct pt_model *m;
	uint64_t at, k, n;

	(void)state;
	st_host(&s, ST_S, 4, PID);
	st_task(&s, ST_S, PID, PID, 1, "train");
	for (n = 0; n < 60; n++) {
		at = ST_S + 10 * ST_MS + n * 30 * ST_MS;
		for (k = 0; k < 10; k++)
			st_gpu(&s, "cudaLaunchKernel", PID, PID, at + k * 20 * ST_US, 0, 0, 1 + k,
			       0, 0);
		at += ST_MS;
		st_gpu(&s, "cudaStreamSynchronize", PID, PID, at,
		       at + (n == 40 || n == 41 ? 400 : 10) * ST_US, 0, 0, 0, 0);
	}
	st_seal(&s);
	r = st_figures(&s, &m);
	assert_int_equal(r->n_gpu, 1);
	g = &r->gpu[0];
	assert_true(isnan(g->busy_share));
	assert_true(g->busy_likely[0] < 0.005 && g->busy_likely[1] < 0.06);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

static void test_counts(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	uint64_t t = JOB_BEGIN + ST_MS;
	int i;

	(void)state;
	st_host(&s, t, 2, PID);
	st_task(&s, t, PID, PID, 1, "gpu");
	for (i = 0; i < 7; i++, t += 100 * ST_MS) {
		st_gpu(&s, "cudaLaunchKernel", PID, PID, t, 0, 0, 1, 0, 0);
		st_gpu(&s, "cudaMemcpyAsync", PID, PID, t + 1000, t + 2000, 0,
		       1, 1000, 1);
		st_gpu(&s, "cudaMemcpy", PID, PID, t + 3000, t + 4000, 0, 1, 10,
		       2);
		st_gpu(&s, "cudaMemcpy", PID, PID, t + 5000, t + 6000, 0, 1, 1,
		       3);
		st_gpu(&s, "cudaStreamSynchronize", PID, PID, t + 7000, t + 8000,
		       0, 0, 0, 0);
		st_gpu(&s, "cudaMalloc", PID, PID, t + 9000, t + 10000, 0, 0,
		       64, 0);
		if (i >= 5) /* its return code */
			s.recs.v[s.recs.n - 1].r.gpu.v[0] = 2;
	}
	st_window(&s, JOB_BEGIN, t);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_int_equal(r->gpu->kernels, 7);
	assert_int_equal(r->gpu->copies_h2d, 7);
	assert_int_equal(r->gpu->copies_d2h, 7);
	assert_int_equal(r->gpu->copies_other, 7);
	assert_int_equal(r->gpu->copy_bytes, 7 * 1011);
	assert_int_equal(r->gpu->syncs, 7);
	assert_int_equal(r->gpu->failed_allocations, 2);
	/* five entry points, one kernel, three directions of copies */
	assert_int_equal(r->n_operations, 9);
	for (i = 0; i < 9; i++) {
		const struct pt_r_operation *o = &r->operations[i];

		if (strcmp(o->kind, "api")) {
			assert_int_equal(o->calls, 7);
			continue;
		}
		assert_int_equal(o->calls, strcmp(o->name, "cudaMemcpy") ? 7 : 14);
		if (!strcmp(o->name, "cudaLaunchKernel"))
			assert_true(isnan(o->total_s)); /* no return watched */
		else
			assert_true(fabs(o->mean_us - 1) < 1e-6);
	}
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* One call of cudaMalloc by `tid` that returned `code`, or gave `pointer`. */
static uint64_t alloc(struct stream *s, uint64_t t, uint32_t tid,
		      uint64_t bytes, uint64_t pointer, uint64_t code)
{
	struct pt_rec_gpu *r;

	st_gpu(s, "cudaMalloc", PID, tid, t, t + 1000, 0, 0, bytes, 0);
	r = &s->recs.v[s->recs.n - 1].r.gpu;
	r->v[0] = code;
	r->v[1] = pointer;
	return t + ST_MS;
}

static void test_failed_allocations(void **state)
{
	struct stream s = { 0 };
	const struct pt_r_alloc_failure *f;
	struct pt_model *m;
	struct pt_report *r;
	uint64_t t = JOB_BEGIN + ST_MS;

	(void)state;
	st_host(&s, t, 2, PID);
	st_task(&s, t, PID, PID, 1, "gpu");
	st_task(&s, t, PID, PID + 1, 1, "other");
	st_gpu(&s, "cudaLaunchKernel", PID, PID, t, 0, 0, 1, 0, 0);
	t = alloc(&s, t + ST_MS, PID, 600, 0x1000, 0);
	t = alloc(&s, t, PID, 500, 0x2000, 0);
	t = alloc(&s, t, PID, 700, 0, 2);
	/* another thread's is no retry */
	t = alloc(&s, t, PID + 1, 700, 0x3000, 0);
	st_gpu(&s, "cudaFree", PID, PID, t, t + 1000, 0, 0x1000, 0, 0);
	t = alloc(&s, t + ST_MS, PID, 700, 0, 2); /* twice over */
	t = alloc(&s, t, PID, 700, 0x1000, 0);
	t = alloc(&s, t, PID + 1, 900, 0, 2); /* given up */
	t = alloc(&s, t, PID + 1, 10, 0x4000, 0);
	t = alloc(&s, t, PID, 5, 0, 777); /* a code without a name */
	st_window(&s, JOB_BEGIN, t);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_int_equal(r->gpu->failed_allocations, 4);
	assert_int_equal(r->gpu->n_alloc_failures, 2);
	f = r->gpu->alloc_failures;
	assert_int_equal(f[0].code, 2);
	assert_string_equal(f[0].name, "cudaErrorMemoryAllocation");
	assert_int_equal(f[0].count, 3);
	assert_int_equal(f[0].smallest_bytes, 700);
	assert_int_equal(f[0].largest_bytes, 900);
	assert_int_equal(f[0].retried, 2);
	assert_int_equal(f[0].recovered, 2);
	/* 500, and twice 700; nobody's sample says what was free */
	assert_int_equal(f[0].held_bytes, 1900);
	assert_int_equal(f[0].free_bytes, PT_NULL);
	assert_int_equal(f[1].code, 777);
	assert_null(f[1].name);
	assert_int_equal(f[1].retried, 0);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_allocations),
		cmocka_unit_test(test_bounds_one_thread),
		cmocka_unit_test(test_bounds_many_threads),
		cmocka_unit_test(test_bounds_late_host),
		cmocka_unit_test(test_training_loop),
		cmocka_unit_test(test_likely_between_syncs),
		cmocka_unit_test(test_full_queue),
		cmocka_unit_test(test_accidents),
		cmocka_unit_test(test_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
