/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams that are damaged in one known way: what is reported is right all the
 * same, or said with less certainty and with the reason.
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
#include <unistd.h>

#include "analysis/analysis.h"
#include "model/timeline.h"
#include "stream_case.h"

#define HANG_S 150
#define LEN (1200 * ST_MS)

struct result {
	struct pt_model *m;
	struct pt_report *r;
};

static struct result judge(const struct stream *s)
{
	struct result x;
	char buf[160];
	const char *trouble;

	x.r = st_analyze(s, &x.m);
	trouble = case_trouble(x.r, buf, sizeof(buf));
	if (trouble)
		fail_msg("%s", trouble);
	return x;
}

static void done(struct result *x)
{
	pt_report_free(x->r);
	pt_model_free(x->m);
}

/* Everything that is said, but how many records there were. */
static char *text_of(struct result *x)
{
	x->r->capture.events = 0;
	return case_json(x->r);
}

static struct job usual(void)
{
	struct job_opts o = job_defaults();
	struct job j;

	o.run_s_x10 = 15;
	o.mix[JOB_DISK] = 0.2;
	job_run(&j, &o);
	job_window(&j, JOB_BEGIN + 200 * ST_MS, JOB_BEGIN + 200 * ST_MS + LEN);
	return j;
}

static bool has_limit(const struct pt_report *r, const char *what)
{
	size_t i;

	for (i = 0; i < r->capture.n_limits; i++)
		if (!strcmp(r->capture.limits[i].what, what))
			return true;
	return false;
}

/* Nothing is wrong, and nothing is said to be. */
static void assert_clean(const struct pt_report *r)
{
	assert_int_equal(r->capture.lost_total, 0);
	assert_false(has_limit(r, "records"));
	assert_int_equal(r->steps.certainty, PT_CONF_HIGH);
}

/* Less sure of everything, and the reason is told. */
static void assert_unsure(const struct pt_report *r, enum pt_confidence most)
{
	size_t i;

	assert_true(has_limit(r, "records"));
	assert_true(r->steps.certainty <= most);
	for (i = 0; i < r->n_verdicts; i++)
		assert_true(r->verdicts[i].certainty <= most);
}

static void assert_near(double a, double b, double tolerance)
{
	if (!(fabs(a - b) <= tolerance))
		fail_msg("%.9f is not within %g of %.9f", a, tolerance, b);
}

static void put(struct stream *s, const struct st_rec *r)
{
	if (pt_vec_push(&s->recs, *r))
		abort();
}

/* ---- twice -------------------------------------------------------------------- */

static void test_each_twice(void **state)
{
	struct job j = usual();
	struct result a = judge(&j.s), b;
	struct stream twice = { 0 };
	char *before, *after;
	size_t i;

	(void)state;
	for (i = 0; i < j.s.recs.n; i++) {
		put(&twice, &j.s.recs.v[i]);
		put(&twice, &j.s.recs.v[i]);
	}
	b = judge(&twice);
	assert_clean(a.r);
	assert_clean(b.r);
	assert_true(b.m->doubled > j.s.recs.n / 2);
	before = text_of(&a);
	after = text_of(&b);
	assert_string_equal(before, after);
	free(before);
	free(after);
	done(&a);
	done(&b);
	st_free(&twice);
	job_free(&j);
}

/* The whole stream again behind itself, as two files joined by mistake. */
static void test_all_again(void **state)
{
	struct job j = usual();
	struct result a = judge(&j.s), b;
	size_t i, n = j.s.recs.n;
	char *before, *after;

	(void)state;
	for (i = 0; i < n; i++) {
		struct st_rec r = j.s.recs.v[i];

		put(&j.s, &r);
	}
	b = judge(&j.s);
	before = text_of(&a);
	after = text_of(&b);
	assert_string_equal(before, after);
	free(before);
	free(after);
	done(&a);
	done(&b);
	job_free(&j);
}

/* ---- out of order --------------------------------------------------------------- */

/* Neighbours of one thread change places, now and then. */
static void test_out_of_order(void **state)
{
	struct job j = usual();
	struct result a = judge(&j.s), b;
	uint64_t rnd = 5;
	size_t i, k, swapped = 0;

	(void)state;
	for (i = 0; i + 40 < j.s.recs.n; i += 10) {
		struct st_rec *x = &j.s.recs.v[i], tmp = *x;

		if (x->r.hdr.kind != PT_REC_OFF)
			continue;
		for (k = i + 1; k < i + 30; k++)
			if (j.s.recs.v[k].r.hdr.tid == x->r.hdr.tid)
				break;
		if (k == i + 30 || st_rand(&rnd) % 2)
			continue;
		*x = j.s.recs.v[k];
		j.s.recs.v[k] = tmp;
		swapped++;
	}
	assert_true(swapped * 500 > j.s.recs.n);
	b = judge(&j.s);
	assert_int_equal(b.m->disordered, swapped);
	assert_int_equal(b.r->capture.lost_total, 0); /* late is not lost */
	assert_unsure(b.r, PT_CONF_MEDIUM);
	assert_int_equal(b.r->steps.count, a.r->steps.count);
	assert_near(b.r->breakdown.data_wait.seconds,
		    a.r->breakdown.data_wait.seconds,
		    0.01 * a.r->breakdown.data_wait.seconds);
	assert_string_equal(case_root(a.r), case_root(b.r));
	done(&a);
	done(&b);
	job_free(&j);
}

/* A call's return before its entry: no call as long as the rest of time. */
static void test_return_before_entry(void **state)
{
	struct job j = usual();
	struct result a = judge(&j.s), b;
	size_t i, n = 0;

	(void)state;
	for (i = 1; i < j.s.recs.n && n < 3; i++) {
		struct st_rec *x = &j.s.recs.v[i], tmp = *x;

		if (x->r.hdr.kind != PT_REC_GPU_RETURN ||
		    x[-1].r.hdr.kind != PT_REC_GPU_ENTER)
			continue;
		*x = x[-1];
		x[-1] = tmp;
		n++;
	}
	assert_int_equal(n, 3);
	b = judge(&j.s);
	assert_true(has_limit(b.r, "records"));
	assert_near(b.r->breakdown.gpu_wait.seconds,
		    a.r->breakdown.gpu_wait.seconds, 0.02);
	done(&a);
	done(&b);
	job_free(&j);
}

/* ---- missing ----------------------------------------------------------------------- */

static size_t drop_between(struct stream *s, uint64_t from, uint64_t to)
{
	size_t i, n = 0, numbered = 0;

	for (i = 0; i < s->recs.n; i++) {
		const struct pt_hdr *h = &s->recs.v[i].r.hdr;

		if (h->kind < PT_REC_USER && h->ts >= from && h->ts < to) {
			numbered++;
			continue;
		}
		s->recs.v[n++] = s->recs.v[i];
	}
	s->recs.n = n;
	return numbered;
}

/* A tenth of a second is missing in the middle, and no counter tells. */
static void test_loss_in_the_middle(void **state)
{
	struct job j = usual();
	struct result a = judge(&j.s), b;
	size_t gone = drop_between(&j.s, j.t0 + 500 * ST_MS, j.t0 + 600 * ST_MS);
	double step = a.r->steps.period_ms.mean / 1000;

	(void)state;
	b = judge(&j.s);
	assert_int_equal(b.r->capture.lost_total, gone);
	assert_string_equal(b.r->capture.lost[0].cause, "uncounted");
	assert_string_equal(case_root(b.r), "insufficient_data");
	assert_unsure(b.r, PT_CONF_LOW);
	/* what is left is not stretched over the hole by more than a step */
	assert_true(b.r->steps.count <= a.r->steps.count);
	assert_near(b.r->steps.count, a.r->steps.count, 0.1 / step + 2);
	assert_near(b.r->breakdown.gpu_wait.seconds,
		    a.r->breakdown.gpu_wait.seconds, 0.1 + step);
	done(&a);
	done(&b);
	job_free(&j);
}

/* The kernel counted them itself: they are not counted twice. */
static void test_loss_that_is_counted(void **state)
{
	struct job j = usual();
	size_t gone = drop_between(&j.s, j.t0 + 500 * ST_MS, j.t0 + 510 * ST_MS);
	struct pt_rec_loss *l;
	struct result b;

	(void)state;
	l = &st_add(&j.s, PT_REC_LOSS, sizeof(*l), j.t1, 0, 0)->loss;
	l->count[PT_LOSS_RING_FULL] = gone;
	b = judge(&j.s);
	assert_int_equal(b.r->capture.lost_total, gone);
	assert_int_equal(b.r->capture.n_lost, 1);
	assert_string_equal(b.r->capture.lost[0].cause, "ring_full");
	done(&b);
	job_free(&j);
}

/* One record is missing, each kind in turn, somewhere in the middle. */
static void test_one_missing(void **state)
{
	static const uint16_t kinds[] = { PT_REC_OFF, PT_REC_GPU_ENTER,
					  PT_REC_GPU_RETURN };
	uint64_t rnd = 7;
	size_t k, tries;

	(void)state;
	for (k = 0; k < 3; k++)
		for (tries = 0; tries < 5; tries++) {
			struct job j = usual();
			struct result a = judge(&j.s), b;
			double step = a.r->steps.period_ms.max / 1000;
			size_t i = st_between(&rnd, j.s.recs.n / 4,
					      j.s.recs.n * 3 / 4);

			while (j.s.recs.v[i].r.hdr.kind != kinds[k])
				i++;
			memmove(&j.s.recs.v[i], &j.s.recs.v[i + 1],
				(j.s.recs.n - i - 1) * sizeof(*j.s.recs.v));
			j.s.recs.n--;
			b = judge(&j.s);
			assert_int_equal(b.r->capture.lost_total, 1);
			assert_true(has_limit(b.r, "records"));
			assert_near(b.r->steps.count, a.r->steps.count, 1);
			assert_near(b.r->breakdown.data_wait.seconds,
				    a.r->breakdown.data_wait.seconds, step);
			assert_near(b.r->breakdown.gpu_wait.seconds,
				    a.r->breakdown.gpu_wait.seconds, step);
			done(&a);
			done(&b);
			job_free(&j);
		}
}

/* ---- ids that are used again ----------------------------------------------------------- */

#define GENERATION (1500 * ST_MS)

/* The workers of the second half: other processes. */
static uint32_t of_generation(uint32_t id, bool distinct)
{
	return distinct && id >= JOB_WORKER(0) && id < JOB_HOG ? id + 5000 : id;
}

static void second_half(union pt_rec_any *r, bool distinct)
{
	bool other = r->hdr.tgid >= JOB_WORKER(0) && r->hdr.tgid < JOB_HOG;

	r->hdr.ts += GENERATION;
	if (other)
		r->hdr.start += 100000;
	r->hdr.tid = of_generation(r->hdr.tid, distinct);
	r->hdr.tgid = of_generation(r->hdr.tgid, distinct);
	if (r->hdr.kind != PT_REC_OFF)
		return;
	r->off.off_ts += GENERATION;
	r->off.wake_ts += r->off.wake_ts ? GENERATION : 0;
	r->off.waker_tid = of_generation(r->off.waker_tid, distinct);
	r->off.waker_tgid = of_generation(r->off.waker_tgid, distinct);
}

/* Two jobs' halves in one trainer: its workers end, others take their place
 * and, unless `distinct`, their ids. The second half's workers read less. */
static void two_generations(struct stream *s, bool distinct)
{
	struct job_opts o = job_defaults();
	struct job a, b;
	size_t i;

	o.run_s_x10 = 15;
	o.mix[JOB_DISK] = 0.6;
	job_run(&a, &o);
	o.mix[JOB_DISK] = 0;
	o.seed = 9;
	job_run(&b, &o);
	memset(s, 0, sizeof(*s));
	for (i = 0; i < a.s.recs.n; i++)
		if (a.s.recs.v[i].r.hdr.ts < JOB_BEGIN + GENERATION)
			put(s, &a.s.recs.v[i]);
	for (i = 0; i < 2; i++) {
		uint32_t pid = JOB_WORKER((uint32_t)i);

		st_exit(s, JOB_BEGIN + GENERATION - 2000, pid, pid + 1, false);
		st_exit(s, JOB_BEGIN + GENERATION - 1000, pid, pid, true);
		st_fork(s, JOB_BEGIN + GENERATION, JOB_TRAINER, JOB_TRAINER,
			of_generation(pid, distinct),
			of_generation(pid, distinct));
		s->recs.v[s->recs.n - 1].r.fork.child_start = pid + 1 + 100000;
	}
	for (i = 0; i < b.s.recs.n; i++) {
		struct st_rec r = b.s.recs.v[i];

		if (r.r.hdr.kind == PT_REC_TASK || r.r.hdr.kind == PT_REC_HOST ||
		    (r.r.hdr.kind == PT_REC_OFF &&
		     r.r.off.off_ts < JOB_BEGIN + 1000))
			continue;
		second_half(&r.r, distinct);
		r.order = s->recs.n;
		put(s, &r);
	}
	/* the window's cut dates introductions back to its begin */
	st_window(s, JOB_BEGIN + 200 * ST_MS, JOB_BEGIN + 2800 * ST_MS);
	st_seal(s);
	job_free(&a);
	job_free(&b);
}

static void test_pid_reuse(void **state)
{
	struct stream plain, reused;
	struct result a, b;
	size_t i;

	(void)state;
	two_generations(&plain, true);
	two_generations(&reused, false);
	a = judge(&plain);
	b = judge(&reused);
	assert_int_equal(a.r->n_workers, 4);
	assert_int_equal(b.r->n_workers, 4);
	assert_int_equal(a.r->steps.count, b.r->steps.count);
	assert_true(a.r->steps.count > 40);
	assert_near(b.r->breakdown.data_wait.seconds,
		    a.r->breakdown.data_wait.seconds, 1e-9);
	for (i = 0; i < PT_CAUSE_NR; i++)
		assert_near(case_charged(b.r, (enum pt_cause)i),
			    case_charged(a.r, (enum pt_cause)i), 1e-9);
	for (i = 0; i < 4; i++) {
		const struct pt_r_worker *x = &a.r->workers[i];
		const struct pt_r_worker *y = &b.r->workers[i];

		/* shown by the kernel's ids */
		assert_int_equal(y->pid, x->pid > 5000 ? x->pid - 5000 : x->pid);
		assert_int_equal(y->batches, x->batches);
		assert_near(y->cpu, x->cpu, 1e-9);
		assert_near(y->disk, x->disk, 1e-9);
		assert_near(y->window, x->window, 1e-9);
		assert_int_equal(y->state, x->state);
	}
	for (i = 0; i < a.r->steps.n_list; i++) {
		int64_t w = a.r->steps.list[i].worker;

		assert_int_equal(b.r->steps.list[i].worker,
				 w > 5000 ? w - 5000 : w);
	}
	assert_string_equal(case_root(a.r), case_root(b.r));
	done(&a);
	done(&b);
	st_free(&plain);
	st_free(&reused);
}

/* A sender's thread ends, and its id goes to a thread of another process, then
 * to one of the trainer: who was woken by whom stays as it was. */
static void test_tid_changes_process(void **state)
{
	struct job j = usual();
	struct result a, b;
	uint32_t i, tid = JOB_SENDER(0);
	uint64_t end = j.t1 - 300 * ST_MS;
	struct stream s = { 0 };
	size_t k;

	(void)state;
	/* the sender is silent in the end: the others' records go on */
	for (k = 0; k < j.s.recs.n; k++)
		if (j.s.recs.v[k].r.hdr.tid != tid ||
		    j.s.recs.v[k].r.hdr.ts < end)
			put(&s, &j.s.recs.v[k]);
	st_exit(&s, end, JOB_WORKER(0), tid, false);
	st_seal(&s);
	a = judge(&s);
	for (i = 0; i < 40; i++) {
		uint64_t t = end + ST_MS + i * 5 * ST_MS;

		st_preempted(&s, i < 20 ? 7777 : JOB_TRAINER, tid, t, t + 1000);
		s.recs.v[s.recs.n - 1].r.hdr.start = i < 20 ? 5 : 6;
	}
	st_seal(&s);
	b = judge(&s);
	assert_int_equal(b.m->all_threads.n, a.m->all_threads.n + 2);
	assert_int_equal(a.r->steps.count, b.r->steps.count);
	assert_int_equal(a.r->n_workers, b.r->n_workers);
	assert_near(b.r->breakdown.data_wait.seconds,
		    a.r->breakdown.data_wait.seconds, 1e-9);
	for (k = 0; k < PT_CAUSE_NR; k++)
		assert_near(case_charged(b.r, (enum pt_cause)k),
			    case_charged(a.r, (enum pt_cause)k), 1e-9);
	done(&a);
	done(&b);
	st_free(&s);
	job_free(&j);
}

/* The trainer turns into another program while a sync is under way. */
static void test_exec_in_the_middle(void **state)
{
	struct job j = usual();
	uint64_t at = j.t0 + LEN / 2;
	struct result before, x;
	size_t i, n = 0;

	(void)state;
	for (i = 0; i < j.s.recs.n; i++) { /* no GPU call behind it */
		const struct pt_hdr *h = &j.s.recs.v[i].r.hdr;

		if (h->ts < at || (h->kind != PT_REC_GPU_ENTER &&
				   h->kind != PT_REC_GPU_RETURN))
			j.s.recs.v[n++] = j.s.recs.v[i];
	}
	j.s.recs.n = n;
	before = judge(&j.s);
	st_gpu(&j.s, "cudaStreamSynchronize", JOB_TRAINER, JOB_TRAINER,
	       at - 1000, 0, 0, 0, 0, 0);
	st_exec(&j.s, at, JOB_TRAINER, JOB_TRAINER);
	st_seal(&j.s);
	x = judge(&j.s);
	/* the sync did not last till the end */
	assert_near(x.r->breakdown.gpu_wait.seconds,
		    before.r->breakdown.gpu_wait.seconds, 1e-5);
	assert_clean(x.r);
	done(&before);
	done(&x);
	job_free(&j);
}

/* ---- clocks ------------------------------------------------------------------------------ */

/* One CPU's clock lags by a few microseconds. */
static void test_clock_between_cpus(void **state)
{
	struct job j = usual();
	struct result a = judge(&j.s), b;
	uint64_t rnd = 11;
	size_t i;

	(void)state;
	for (i = 0; i < j.s.recs.n; i++) {
		union pt_rec_any *r = &j.s.recs.v[i].r;
		uint64_t lag = st_rand(&rnd) % 2 ? 3000 : 0;

		if (r->hdr.kind >= PT_REC_USER)
			continue;
		if (r->hdr.kind != PT_REC_OFF) {
			r->hdr.ts -= lag;
			continue;
		}
		if (r->hdr.ts - r->off.off_ts > 2 * lag)
			r->hdr.ts -= lag; /* else the kernel drops it */
		if (r->off.wake_ts)
			r->off.wake_ts -= st_rand(&rnd) % 2 ? 3000 : 0;
	}
	b = judge(&j.s);
	assert_clean(b.r);
	assert_near(b.r->steps.count, a.r->steps.count, 0);
	assert_near(b.r->breakdown.data_wait.seconds,
		    a.r->breakdown.data_wait.seconds,
		    0.001 * a.r->breakdown.data_wait.seconds);
	assert_near(b.r->breakdown.gpu_wait.seconds,
		    a.r->breakdown.gpu_wait.seconds, 0.001);
	for (i = 0; i < PT_CAUSE_NR; i++)
		assert_near(case_charged(b.r, (enum pt_cause)i),
			    case_charged(a.r, (enum pt_cause)i), 0.005);
	assert_string_equal(case_root(a.r), case_root(b.r));
	done(&a);
	done(&b);
	job_free(&j);
}

/* ---- how many steps ------------------------------------------------------------------------ */

static void test_zero_and_one_step(void **state)
{
	int n;

	(void)state;
	for (n = 0; n < 3; n++) {
		struct stream s = { 0 };
		uint64_t t0 = JOB_BEGIN;
		struct result x;
		int i;

		st_task(&s, t0, JOB_TRAINER, JOB_TRAINER, 1, "python3");
		for (i = 0; i < n; i++) {
			uint64_t t = t0 + 300 * ST_MS + (uint64_t)i * 400 * ST_MS;

			st_gpu(&s, "cudaLaunchKernel", JOB_TRAINER, JOB_TRAINER,
			       t, 0, 0, 0x10, 0, 0);
			st_gpu(&s, "cudaStreamSynchronize", JOB_TRAINER,
			       JOB_TRAINER, t + 1000, t + 9 * ST_MS, 0, 0, 0, 0);
		}
		st_window(&s, t0, t0 + ST_S);
		st_seal(&s);
		x = judge(&s);
		assert_string_equal(case_root(x.r), "insufficient_data");
		assert_true(x.r->steps.count <= n + 1 || x.r->steps.count == PT_NULL);
		assert_true(x.r->steps.certainty <= PT_CONF_LOW);
		done(&x);
		st_free(&s);
	}
}

/* Fed as it is made: nothing of it is kept but what the model keeps. */
static void feed_step(struct pt_model *m, uint64_t t, uint32_t k)
{
	struct stream s = { 0 };
	size_t i;

	st_pipe_in(&s, JOB_TRAINER, JOB_TRAINER, t, t + 60000, t + 63000,
		   JOB_RESULT_PIPE, JOB_WORKER(0), JOB_WORKER(0));
	s.recs.v[0].r.hdr.seq = 4 * k;
	st_gpu(&s, "cudaLaunchKernel", JOB_TRAINER, JOB_TRAINER, t + 65000, 0, 0,
	       0x10, 0, 0);
	s.recs.v[1].r.hdr.seq = 4 * k + 1;
	st_gpu(&s, "cudaStreamSynchronize", JOB_TRAINER, JOB_TRAINER, t + 67000,
	       t + 99000, 0, 0, 0, 0);
	s.recs.v[2].r.hdr.seq = 4 * k + 2;
	s.recs.v[3].r.hdr.seq = 4 * k + 3;
	st_pipe_in(&s, JOB_WORKER(0), JOB_WORKER(0), t + 61000, t + 64000,
		   t + 70000, JOB_INDEX_PIPE(0), JOB_TRAINER, JOB_TRAINER);
	s.recs.v[4].r.hdr.seq = k;
	for (i = 0; i < s.recs.n; i++)
		assert_int_equal(pt_model_feed(m, &s.recs.v[i].r,
					       s.recs.v[i].r.hdr.size), 0);
	st_free(&s);
}

#define MANY 100000u
#define STEP_NS 100000ull

static void test_very_many_steps(void **state)
{
	struct pt_model *m = pt_model_new();
	struct pt_report *r = pt_report_new();
	struct pt_analysis_opts o = { 0 };
	struct stream s = { 0 };
	char buf[160];
	uint32_t k;
	size_t i;

	(void)state;
	st_task(&s, JOB_BEGIN, JOB_TRAINER, JOB_TRAINER, 1, "python3");
	st_task(&s, JOB_BEGIN, JOB_WORKER(0), JOB_WORKER(0), JOB_TRAINER, "w");
	st_mark(&s, JOB_BEGIN, PT_MARK_BEGIN);
	st_mark(&s, JOB_BEGIN + MANY * STEP_NS, PT_MARK_END);
	for (i = 0; i < s.recs.n; i++)
		pt_model_feed(m, &s.recs.v[i].r, s.recs.v[i].r.hdr.size);
	for (k = 0; k < MANY; k++)
		feed_step(m, JOB_BEGIN + k * STEP_NS, k);
	assert_int_equal(pt_model_finish(m), 0);
	assert_int_equal(pt_analyze(m, &o, r), 0);
	assert_null(case_trouble(r, buf, sizeof(buf)));
	/* the first may be cut by the capture's begin */
	assert_near((double)r->steps.count, MANY, 1);
	assert_near(r->steps.period_ms.mean, 0.1, 1e-6);
	assert_near(r->breakdown.data_wait.share, 0.65, 0.02);
	assert_near(r->breakdown.gpu_wait.share, 0.32, 0.02);
	assert_int_equal(r->n_workers, 1);
	assert_int_equal(r->capture.lost_total, 0);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_twice),
		cmocka_unit_test(test_all_again),
		cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_return_before_entry),
		cmocka_unit_test(test_loss_in_the_middle),
		cmocka_unit_test(test_loss_that_is_counted),
		cmocka_unit_test(test_one_missing),
		cmocka_unit_test(test_pid_reuse),
		cmocka_unit_test(test_tid_changes_process),
		cmocka_unit_test(test_exec_in_the_middle),
		cmocka_unit_test(test_clock_between_cpus),
		cmocka_unit_test(test_zero_and_one_step),
		cmocka_unit_test(test_very_many_steps),
	};

	alarm(HANG_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
