/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is waited for, and for what, where the last wake-up alone would mislead:
 * simulated jobs against the truth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "model/syscalls.h"
#include "stream_case.h"

/* What is charged to a cause must be within `slack` s of the truth. */
static void check_charged(const struct st_case *c, enum pt_cause cause,
			  enum job_seg seg, double slack)
{
	double truth = (double)job_cause_ns(&c->j, seg) / 1e9;
	double told = case_charged(c->r, cause);

	if (fabs(told - truth) > slack)
		fail_msg("%s: charged %.4f s, truth %.4f s",
			 pt_cause_name(cause), told, truth);
}

/* Each step that waited names the worker whose batch held it up longest; of
 * `micro` batches each: whose batch ended the step's obtaining last; that worker was
 * at it all the time. One that came unseen may be laid to another. How many such steps
 * there were. */
static size_t check_workers(const struct st_case *c, size_t micro)
{
	const struct job *j = &c->j;
	size_t i, k, n = 0;

	for (i = 0; i + micro <= j->steps.n; i += micro) {
		const struct job_step *s = &j->steps.v[i], *worst = s;
		const struct pt_r_step *o;

		for (k = 1; k < micro; k++)
			if (s[k].blocked)
				worst = &s[k];
		if (s->wait_begin < j->t0 || s[micro - 1].wait_end > j->t1 ||
		    !worst->blocked)
			continue;
		n++;
		o = case_step(c->r, s->wait_begin, 60 * ST_US);
		if (!o)
			fail_msg("step %zu was not found", i);
		if (!worst->unseen &&
		    o->worker != (int64_t)JOB_WORKER((unsigned)worst->worker))
			fail_msg("step %zu: named %lld, waited for %u", i,
				 (long long)o->worker,
				 JOB_WORKER((unsigned)worst->worker));
	}
	return n;
}

/* Workers that send by themselves: a batch that comes while another is taken
 * in wakes nobody, and the last who woke the trainer is not its maker. */
static void test_unseen_delivery(void **state)
{
	struct job_opts o = job_defaults();
	size_t unseen = 0, i;
	struct st_case c;

	(void)state;
	o.direct = true;
	o.jitter = 0.1;
	o.wake_ns = 2 * ST_MS; /* the trainer gets a core late */
	o.mix[JOB_DISK] = 0.3;
	o.slices = 400; /* switches often */
	o.run_s_x10 = 60;
	for (o.seed = 1; o.seed <= 4; o.seed++) {
		job_run(&c.j, &o);
		for (i = 0; i < c.j.steps.n; i++) {
			uint64_t at = c.j.steps.v[i].wait_end + 200 * ST_US;

			unseen += c.j.steps.v[i].unseen;
			/* the trainer is switched away now and then, too */
			st_preempted(&c.j.s, JOB_TRAINER, JOB_TRAINER, at,
				     at + 5 * ST_US);
		}
		job_window(&c.j, JOB_BEGIN + 400 * ST_MS,
			   JOB_BEGIN + 5900 * ST_MS);
		c.r = st_analyze(&c.j.s, &c.m);
		assert_true(check_workers(&c, 1) > 50);
		case_close(&c);
	}
	if (unseen < 10)
		fail_msg("only %zu batches came unseen", unseen);
}

/* Several batches in one wait: what it ends with was in the making all along. */
static void test_micro_batches(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;

	(void)state;
	o.micro = 2;
	o.jitter = 0.3;
	o.mix[JOB_DISK] = 0.5;
	o.run_s_x10 = 80;
	for (o.seed = 1; o.seed <= 3; o.seed++) {
		case_open(&c, &o, 0, 0);
		assert_true(check_workers(&c, 2) > 50);
		check_charged(&c, PT_CAUSE_DISK, JOB_DISK,
			      0.01 * c.r->breakdown.data_wait.seconds +
				      0.0025 * 40);
		case_close(&c);
	}
}

/* A sender that takes longer than the making: the maker idles meanwhile, and
 * that is not for want of work. */
static void test_sender_bound(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	double wait;

	(void)state;
	o.batch_ns = 4 * ST_MS;
	o.send_ns = 60 * ST_MS;
	o.run_s_x10 = 80;
	case_open(&c, &o, 0, 0);
	wait = c.r->breakdown.data_wait.seconds;
	assert_true(wait > 4);
	check_charged(&c, PT_CAUSE_IPC, JOB_SEND, 0.02 * wait);
	check_charged(&c, PT_CAUSE_WORKER_IDLE, JOB_IDLE, 0.02 * wait);
	case_close(&c);
}

/* The second wait of all, and the capture ends in the middle of it: all other
 * workers have done their work, so it is for the one that is still at it. */
static void test_cut_wait(void **state)
{
	struct job_opts o = job_defaults();
	uint64_t long_wait[2] = { 0 };
	size_t i, n = 0;
	struct st_case c;

	(void)state;
	o.batch_ns = 2 * ST_MS;
	o.prefetch = 3;
	o.heavy_every = 100;
	o.heavy = 500;
	o.run_s_x10 = 60;
	job_run(&c.j, &o);
	for (i = 10; i < c.j.steps.n && n < 2; i++)
		if (c.j.steps.v[i].blocked > 500 * ST_MS) {
			assert_int_equal(c.j.steps.v[i].worker, 0);
			long_wait[n++] = c.j.steps.v[i].wait_begin;
		}
	assert_int_equal(n, 2);
	job_window(&c.j, long_wait[0] - 100 * ST_MS, long_wait[1] + 400 * ST_MS);
	c.r = st_analyze(&c.j.s, &c.m);
	assert_true(c.r->steps.n_list > 10);
	assert_int_equal(c.r->steps.list[c.r->steps.n_list - 1].worker,
			 JOB_WORKER(0));
	assert_true(case_charged(c.r, PT_CAUSE_UNKNOWN) < 0.01);
	assert_true(case_charged(c.r, PT_CAUSE_CPU) > 1.2);
	case_close(&c);
}

#define POOL(i) (1100u + (i))
#define MADE 0x7f0000001000ull /* the main thread sleeps here for a batch */
#define WANTED 0x7f0000001030ull /* ... and a loader's thread for work */

/* The batch goes up, ten kernels work on it, and the trainer waits for them; until when. */
static uint64_t use_batch(struct stream *s, uint64_t t)
{
	unsigned k;

	st_gpu(s, "cudaMemcpyAsync", JOB_TRAINER, JOB_TRAINER, t - 10 * ST_US, t - 5 * ST_US, 0, 0,
	       4096, 1);
	for (k = 0; k < 10; k++, t += 20 * ST_US)
		st_gpu(s, "cudaLaunchKernel", JOB_TRAINER, JOB_TRAINER, t, 0, 0,
		       0x4000 + 16 * k, 0, 0);
	st_gpu(s, "cudaStreamSynchronize", JOB_TRAINER, JOB_TRAINER, t, t + 2 * ST_MS, 0, 0, 0,
	       0);
	return t + 2 * ST_MS;
}

/* One step of a job whose batches come from two threads of its own: 20 ms of
 * waiting for thread `i`, whose other one rests half of the time. */
static uint64_t pool_step(struct stream *s, uint64_t t, unsigned i, bool wait)
{
	uint64_t rest = t + 2 * ST_MS, made = t + 20 * ST_MS;

	if (wait)
		st_futex(s, JOB_TRAINER, JOB_TRAINER, t, made, made + 5000,
			 MADE, JOB_TRAINER, POOL(i));
	st_disk(s, JOB_TRAINER, POOL(i), rest, rest + 8 * ST_MS,
		rest + 8 * ST_MS, JOB_FILE_DEV, JOB_FILE(0), 0);
	/* a lock that both need, for a moment */
	st_futex(s, JOB_TRAINER, POOL(i), made - ST_MS, made - ST_MS + 30000,
		 made - ST_MS + 40000, MADE + 8, JOB_TRAINER, JOB_TRAINER);
	st_futex(s, JOB_TRAINER, JOB_TRAINER, made + 10000, made + 15000,
		 made + 20000, MADE + 8, JOB_TRAINER, POOL(i));
	t = made + 50 * ST_US;
	st_futex(s, JOB_TRAINER, POOL(1 - i), t - 10 * ST_MS, t, t + 5000,
		 WANTED, JOB_TRAINER, JOB_TRAINER);
	return use_batch(s, t);
}

static void check_pool(bool all_waited)
{
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	uint64_t t = JOB_BEGIN + 5 * ST_MS;
	unsigned i;

	st_host(&s, JOB_BEGIN, 4, JOB_TRAINER);
	st_task(&s, JOB_BEGIN, JOB_TRAINER, JOB_TRAINER, 1, "train");
	for (i = 0; i < 2; i++)
		st_task(&s, JOB_BEGIN, JOB_TRAINER, POOL(i), 1, "train");
	for (i = 0; i < 90; i++)
		t = pool_step(&s, t, i % 3 == 2, all_waited || i != 40);
	st_window(&s, JOB_BEGIN, t + 100 * ST_US);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_string_equal(r->loader.kind.value, "threads");
	assert_int_equal(r->n_workers, 2);
	for (i = 0; i < 2; i++) {
		const struct pt_r_worker *w = &r->workers[i];
		bool second = w->tid == POOL(1);
		double steps = second ? 30 : 60;

		assert_int_equal(w->pid, JOB_TRAINER);
		assert_true(second || w->tid == POOL(0));
		assert_string_equal(w->role, "thread");
		assert_true(fabs(w->disk - 8e-3 * steps) < 1e-3);
		/* rests in the other one's steps, the lock is not rest */
		assert_true(fabs(w->worker_idle + w->prefetch_full -
				 10e-3 * (90 - steps)) < 5e-3);
		assert_true(fabs(w->lock - 30e-6 * steps) < 1e-3);
		if (all_waited)
			assert_int_equal(w->batches, second ? 30 : 60);
		else
			assert_int_equal(w->batches, PT_NULL);
	}
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* A loader of threads: each has its row, and its batches are counted where
 * every one of them was waited for. */
static void test_thread_pool(void **state)
{
	(void)state;
	check_pool(true);
	check_pool(false);
}

/* ---- a program for each batch ------------------------------------------------ */
#define PROGRAM(i) (2000u + 2 * (i))
#define SERVICE 1900u

/* A step at `t`: `starter` starts a program that computes for 18 ms, writes its batch into the
 * trainer's pipe and ends. `again`: one process stays and makes all of them. */
static uint64_t program_step(struct stream *s, uint64_t t, unsigned i, uint32_t starter,
			     bool again)
{
	uint64_t made = t + 19 * ST_MS;
	uint32_t pid = again ? PROGRAM(0) : PROGRAM(i);

	if (!again)
		st_fork(s, t + 50 * ST_US, starter, starter, pid, pid);
	else if (i)
		st_off(s, pid, pid, made - 20 * ST_MS, t + ST_MS, t + ST_MS);
	st_pipe_in(s, JOB_TRAINER, JOB_TRAINER, t + 100 * ST_US, made, made + 5000, 0x77, pid,
		   pid);
	if (!again)
		st_exit(s, made + 100 * ST_US, pid, pid, true);
	t = made + 200 * ST_US;
	return use_batch(s, t);
}

static bool told_main_thread(uint32_t starter, bool again)
{
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	uint64_t t = JOB_BEGIN + 5 * ST_MS;
	unsigned i;
	bool told;

	st_host(&s, JOB_BEGIN, 4, JOB_TRAINER);
	st_task(&s, JOB_BEGIN, JOB_TRAINER, JOB_TRAINER, 1, "train");
	st_task(&s, JOB_BEGIN, SERVICE, SERVICE, JOB_TRAINER, "service");
	if (again)
		st_task(&s, JOB_BEGIN, PROGRAM(0), PROGRAM(0), JOB_TRAINER, "decode");
	for (i = 0; i < 90; i++)
		t = program_step(&s, t, i, starter, again);
	st_window(&s, JOB_BEGIN, t + 100 * ST_US);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_true(r->breakdown.data_wait.share > 0.5);
	told = !strcmp(case_root(r), "main_thread_loading");
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
	return told;
}

/* Programs that the training thread starts and waits for are its own loading. The same ones of
 * a service that could start them earlier are not, and one that lives is a worker. */
static void test_program_per_batch(void **state)
{
	(void)state;
	assert_true(told_main_thread(JOB_TRAINER, false));
	assert_false(told_main_thread(SERVICE, false));
	assert_false(told_main_thread(JOB_TRAINER, true));
}

/* A step at `t`: a thread of the trainer's runs a program for its batch, and rests. */
static uint64_t thread_program_step(struct stream *s, uint64_t t, unsigned i)
{
	uint64_t made = t + 19 * ST_MS, next;

	st_fork(s, t + 50 * ST_US, JOB_TRAINER, POOL(0), PROGRAM(i), PROGRAM(i));
	st_pipe_in(s, JOB_TRAINER, POOL(0), t + 100 * ST_US, made, made + 5000, 0x77, PROGRAM(i),
		   PROGRAM(i));
	st_exit(s, made + 10 * ST_US, PROGRAM(i), PROGRAM(i), true);
	st_futex(s, JOB_TRAINER, JOB_TRAINER, t, made + 50 * ST_US, made + 55 * ST_US, MADE,
		 JOB_TRAINER, POOL(0));
	next = made + 3 * ST_MS;
	st_futex(s, JOB_TRAINER, POOL(0), made + 60 * ST_US, next, next + 5000, WANTED,
		 JOB_TRAINER, JOB_TRAINER);
	t = made + 200 * ST_US;
	use_batch(s, t);
	return next;
}

/* A thread that runs a program for each batch is the worker, and the programs are its work: no
 * loader starts anew each time. */
static void test_thread_of_programs(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	uint64_t t = JOB_BEGIN + 5 * ST_MS;
	size_t i;

	(void)state;
	st_host(&s, JOB_BEGIN, 4, JOB_TRAINER);
	st_task(&s, JOB_BEGIN, JOB_TRAINER, JOB_TRAINER, 1, "train");
	st_task(&s, JOB_BEGIN, JOB_TRAINER, POOL(0), 1, "train");
	for (i = 0; i < 90; i++)
		t = thread_program_step(&s, t, (unsigned)i);
	st_window(&s, JOB_BEGIN, t + 100 * ST_US);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_true(r->breakdown.data_wait.share > 0.5);
	assert_string_equal(r->loader.kind.value, "threads");
	assert_int_equal(r->n_workers, 1);
	assert_int_equal(r->workers[0].tid, POOL(0));
	assert_true(case_charged(r, PT_CAUSE_CPU) > 0.9 * r->breakdown.data_wait.seconds);
	for (i = 0; i < r->n_verdicts; i++)
		assert_string_not_equal(r->verdicts[i].id, "loader_restart");
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* ---- batches of many tensors -------------------------------------------------- */

/* The trainer asks its worker for every other batch and waits for it, and has the one between.
 * Each goes up in eight copies, with 2 ms of computing between them. */
static void test_many_tensors(void **state)
{
	const uint32_t trainer = JOB_TRAINER, worker = PROGRAM(0);
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	uint64_t t = JOB_BEGIN + 5 * ST_MS, made = JOB_BEGIN;
	unsigned i, k;

	(void)state;
	st_host(&s, JOB_BEGIN, 4, trainer);
	st_task(&s, JOB_BEGIN, trainer, trainer, 1, "train");
	st_task(&s, JOB_BEGIN, worker, worker, trainer, "train");
	for (i = 0; i < 60; i++) {
		if (i % 2 == 0) {
			st_pipe_in(&s, worker, worker, made + 10 * ST_US, t + 100 * ST_US,
				   t + 105 * ST_US, 0x78, trainer, trainer);
			made = t + 40 * ST_MS;
			st_pipe_in(&s, trainer, trainer, t + 120 * ST_US, made, made + 5000, 0x77,
				   worker, worker);
			t = made;
		}
		for (k = 0; k < 8; k++, t += 2 * ST_MS)
			st_gpu(&s, "cudaMemcpyAsync", trainer, trainer, t + 200 * ST_US,
			       t + 205 * ST_US, 0, 0, 1 << 20, 1);
		for (k = 0; k < 10; k++, t += 20 * ST_US)
			st_gpu(&s, "cudaLaunchKernel", trainer, trainer, t, 0, 0, 0x4000 + 16 * k, 0,
			       0);
		st_gpu(&s, "cudaStreamSynchronize", trainer, trainer, t, t + 2 * ST_MS, 0, 0, 0, 0);
		t += 2 * ST_MS;
	}
	st_window(&s, JOB_BEGIN, t + 100 * ST_US);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_true(r->breakdown.data_wait.share > 0.45);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* ---- two makers, of whom each has the trainer's every other step ---------------- */
#define MAKER(i) (2500u + 2 * (i))
#define MAKE_NS (40 * ST_MS)
#define PIECES 8

static struct pt_report *two_makers(struct stream *s, uint64_t end, struct pt_model **m)
{
	unsigned i;
	struct pt_report *r;

	st_host(s, JOB_BEGIN, 4, JOB_TRAINER);
	st_task(s, JOB_BEGIN, JOB_TRAINER, JOB_TRAINER, 1, "train");
	for (i = 0; i < 2; i++)
		st_task(s, JOB_BEGIN, MAKER(i), MAKER(i), JOB_TRAINER, "train");
	st_window(s, JOB_BEGIN, end);
	st_seal(s);
	r = st_analyze(s, m);
	st_free(s);
	assert_int_equal(r->n_workers, 2);
	return r;
}

static const struct pt_r_worker *row_of(const struct pt_report *r, uint32_t pid)
{
	return &r->workers[r->workers[0].pid == pid ? 0 : 1];
}

static void wait_for_room(struct stream *s, uint32_t maker, uint64_t begin, uint64_t end)
{
	struct pt_rec_off *o = st_pipe_in(s, maker, maker, begin, end, end + 5000, 0x77,
					  JOB_TRAINER, JOB_TRAINER);

	o->syscall = PT_NR_write;
	o->waker_syscall = PT_NR_read;
}

/* The trainer takes a batch that is longer than the pipe: for `each` it sleeps for the next piece,
 * and the maker for room. */
static uint64_t take_pieces(struct stream *s, uint64_t t, uint32_t maker, uint64_t each)
{
	unsigned k;

	for (k = 0; k < PIECES; k++, t += each) {
		st_pipe_in(s, JOB_TRAINER, JOB_TRAINER, t + 10 * ST_US, t + each, t + each + 5000,
			   0x77, maker, maker);
		wait_for_room(s, maker, t + 20 * ST_US, t + each - 30 * ST_US);
	}
	return t;
}

/* Both compute as long for a batch, and one of them waits longer for room between the pieces:
 * none is slow, and no piece is a batch. */
static void test_batches_in_pieces(void **state)
{
	uint64_t free_at[2] = { JOB_BEGIN, JOB_BEGIN }, t = JOB_BEGIN + 5 * ST_MS, ready;
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	unsigned i;

	(void)state;
	for (i = 0; i < 120; i++) {
		uint32_t maker = MAKER(i % 2);

		ready = free_at[i % 2] + MAKE_NS;
		if (ready > t)
			st_pipe_in(&s, JOB_TRAINER, JOB_TRAINER, t, ready, ready + 5000, 0x77,
				   maker, maker);
		else
			wait_for_room(&s, maker, ready, t);
		t = (ready > t ? ready : t) + 10 * ST_US;
		t = take_pieces(&s, t, maker, i % 2 ? 3 * ST_MS : ST_MS / 2);
		free_at[i % 2] = t;
		t = use_batch(&s, t + 100 * ST_US);
	}
	r = two_makers(&s, t, &m);
	assert_string_not_equal(case_root(r), "slow_worker");
	for (i = 0; i < 2; i++)
		assert_float_equal(row_of(r, MAKER(i))->batch_ms.p50, 40, 6);
	pt_report_free(r);
	pt_model_free(m);
}

/* Both make a batch in 80 ms. The second one's is there before the trainer looks, but for each
 * fourth time: what is seen of it are the times of four, and it is not slow. */
static void test_unseen_are_not_slow(void **state)
{
	const uint64_t turn = 80 * ST_MS;
	uint64_t x = JOB_BEGIN + 5 * ST_MS, t = x, end;
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	unsigned i;

	(void)state;
	for (i = 0; i < 80; i++) {
		end = x += turn;
		st_pipe_in(&s, JOB_TRAINER, JOB_TRAINER, t, end, end + 5000, 0x77, MAKER(0),
			   MAKER(0));
		t = use_batch(&s, end + 100 * ST_US);
		if (i % 4 == 3) {
			end = t + 2 * ST_MS;
			st_pipe_in(&s, JOB_TRAINER, JOB_TRAINER, t, end, end + 5000, 0x78, MAKER(1),
				   MAKER(1));
			t = end;
		}
		t = use_batch(&s, t + 100 * ST_US);
	}
	r = two_makers(&s, t, &m);
	assert_float_equal(row_of(r, MAKER(0))->batch_ms.p50, 80, 5);
	assert_float_equal(row_of(r, MAKER(1))->batch_ms.p50, 320, 20);
	assert_int_equal(row_of(r, MAKER(1))->state, PT_WORKER_OK);
	pt_report_free(r);
	pt_model_free(m);
}

/* Both make their batches under one lock in a file, so the second one's is always there: it is met
 * behind the first one's waits for the lock only, and is no less of a loader. */
static void test_holder_is_loader(void **state)
{
	const uint64_t turn = 30 * ST_MS;
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	uint64_t x, t = JOB_BEGIN + ST_MS;
	unsigned i, k;

	(void)state;
	for (i = 0, x = JOB_BEGIN + 5 * ST_MS; i < 60; i++, x += 2 * turn) {
		for (k = 0; k < 2; k++) {
			struct pt_rec_off *o;
			uint64_t b = k ? x + 50 * ST_US : x + turn + 50 * ST_US;

			if (k && i % 5 == 4) { /* it has nothing to do, until it is asked */
				st_pipe_in(&s, MAKER(k), MAKER(k), b, x + turn, x + turn + 5000,
					   0x78, JOB_TRAINER, JOB_TRAINER);
				continue;
			}
			o = st_pipe_in(&s, MAKER(k), MAKER(k), b, k ? x + turn : x + 2 * turn,
				       (k ? x + turn : x + 2 * turn) + 5000, 0x91, MAKER(1 - k),
				       MAKER(1 - k));
			o->syscall = o->waker_syscall = PT_NR_flock;
			o->obj_kind = o->waker_obj_kind = PT_OBJ_FILE;
		}
		st_pipe_in(&s, JOB_TRAINER, JOB_TRAINER, t, x + turn, x + turn + 5000, 0x77,
			   MAKER(0), MAKER(0));
		t = use_batch(&s, x + turn + 100 * ST_US);
		t = use_batch(&s, t + 100 * ST_US); /* of the other one's */
	}
	r = two_makers(&s, t, &m);
	for (i = 0; i < 2; i++)
		assert_string_equal(row_of(r, MAKER(i))->role, "loader");
	assert_string_equal(case_root(r), "lock_bound");
	pt_report_free(r);
	pt_model_free(m);
}

/* The second maker has nothing to do from the fifth batch on. The steps of the first one's go on until
 * the job stands `still`, at the end of the `length`, all in nanoseconds. The certainty of its being
 * hung; -1: it is not. */
static int told_hung(uint64_t step, uint64_t still, uint64_t length)
{
	uint64_t t = JOB_BEGIN + ST_MS, end = JOB_BEGIN + length, b;
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	const struct pt_r_verdict *v;
	unsigned i;
	int told;

	for (i = 0; t + step < end - still; i++) {
		uint32_t maker = MAKER(i % 2 && i < 9);

		b = t;
		st_pipe_in(&s, JOB_TRAINER, JOB_TRAINER, b, b + step, b + step + 5000, 0x77, maker,
			   maker);
		t = use_batch(&s, b + step + 100 * ST_US);
		if (i == 8)
			st_off(&s, MAKER(1), MAKER(1), t, end + ST_S, end + ST_S)->syscall =
				PT_NR_poll;
	}
	st_pipe_in(&s, JOB_TRAINER, JOB_TRAINER, t, end + ST_S, end + ST_S, 0x77, MAKER(1), MAKER(1));
	r = two_makers(&s, end, &m);
	v = case_verdict(r, "hung_worker");
	told = v ? (int)v->certainty : -1;
	assert_int_equal(row_of(r, MAKER(1))->state,
			 v && still > 5 * ST_S ? PT_WORKER_HUNG : PT_WORKER_OK);
	assert_true(!v || !strstr(v->title, "may be") == (still > 5 * ST_S));
	pt_report_free(r);
	pt_model_free(m);
	return told;
}

static void test_idle_is_not_hung(void **state)
{
	(void)state;
	assert_int_equal(told_hung(300 * ST_MS, 0, 10 * ST_S), -1);
	assert_int_equal(told_hung(300 * ST_MS, 7 * ST_S, 10 * ST_S), PT_CONF_MEDIUM);
	/* for a shorter time it may: no step took a twentieth of that, or some did */
	assert_int_equal(told_hung(100 * ST_MS, 4 * ST_S, 5100 * ST_MS), PT_CONF_LOW);
	assert_int_equal(told_hung(300 * ST_MS, 4 * ST_S, 7300 * ST_MS), -1);
	assert_int_equal(told_hung(50 * ST_MS, 1500 * ST_MS, 2050 * ST_MS), -1);
}

/* ---- makers that take turns by something unseen ---------------------------------- */
#define SERVER 2600

/* Each batch takes 20 ms to compute; in turn, its maker sleeps for a server's word until the other
 * one is done, and `seen`: the server has slept for that one's; else both compute all the time. */
static void check_turns(bool in_turn, bool seen, const char *root,
			enum pt_confidence certainty)
{
	uint64_t t = JOB_BEGIN + ST_MS, made, until[2] = { JOB_BEGIN, JOB_BEGIN };
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;
	unsigned i;

	st_task(&s, JOB_BEGIN, SERVER, SERVER, JOB_TRAINER, "server");
	for (i = 0; i < 160; i++) {
		uint32_t maker = MAKER(i % 2);

		made = t + 20 * ST_MS;
		if (seen && i)
			st_sock(&s, SERVER, SERVER, until[(i + 1) % 2] - 19 * ST_MS,
				until[(i + 1) % 2] + 5000, until[(i + 1) % 2] + 10000, 0x98,
				MAKER((i + 1) % 2), MAKER((i + 1) % 2));
		if (in_turn && t > until[i % 2])
			st_sock(&s, maker, maker, until[i % 2] + 20000, t, t + 5000, 0x99, SERVER,
				SERVER);
		st_pipe_in(&s, JOB_TRAINER, JOB_TRAINER, t, made, made + 5000, 0x77, maker, maker);
		until[i % 2] = made + 10000;
		t = use_batch(&s, made + 50 * ST_US);
	}
	r = two_makers(&s, t, &m);
	assert_string_equal(case_root(r), root);
	assert_int_equal(r->verdicts[0].certainty, certainty);
	pt_report_free(r);
	pt_model_free(m);
}

static void test_turns_unseen(void **state)
{
	(void)state;
	check_turns(true, false, "lock_bound", PT_CONF_MEDIUM);
	check_turns(true, true, "lock_bound", PT_CONF_HIGH);
	check_turns(false, false, "too_few_workers", PT_CONF_HIGH);
}

/* ---- a maker that waits for more until its time is over ------------------------- */
#define SOURCE 2700
#define ITEMS 0x88
#define LINGER_MS 24

/* It looks for another item, `ms` long; nobody writes one. */
static void wait_in_vain(struct stream *s, uint64_t begin, int ms)
{
	uint64_t end = begin + (uint64_t)ms * ST_MS + 20000;
	struct pt_rec_off *o = st_pipe_in(s, MAKER(0), MAKER(0), begin, end, end + 5000, ITEMS, 0,
					  0);

	o->arg[2] = (uint64_t)ms;
	o->waker_syscall = PT_SYSCALL_NONE;
	o->waker_obj_kind = PT_OBJ_NONE;
	o->waker_object = 0;
}

/* What the data wait is laid to that is spent so. `again`: in two looks, and then the item
 * comes. */
static double lingers(enum pt_cause cause, bool again)
{
	uint64_t t = JOB_BEGIN + ST_MS, made;
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;
	double share;
	unsigned i;

	st_host(&s, JOB_BEGIN, 4, JOB_TRAINER);
	st_task(&s, JOB_BEGIN, JOB_TRAINER, JOB_TRAINER, 1, "train");
	st_task(&s, JOB_BEGIN, MAKER(0), MAKER(0), JOB_TRAINER, "train");
	st_task(&s, JOB_BEGIN, SOURCE, SOURCE, JOB_TRAINER, "train");
	for (i = 0; i < 100; i++) {
		made = t + (LINGER_MS + 3) * ST_MS;
		if (again) {
			wait_in_vain(&s, t + ST_MS / 2, LINGER_MS / 2);
			st_bytes(&s, 0, 1000);
			wait_in_vain(&s, t + (LINGER_MS / 2 + 1) * ST_MS, LINGER_MS / 2 - 1);
			st_pipe_in(&s, MAKER(0), MAKER(0), t + (LINGER_MS + 1) * ST_MS,
				   made - ST_MS, made - ST_MS + 5000, ITEMS, SOURCE, SOURCE);
		} else {
			wait_in_vain(&s, t + ST_MS, LINGER_MS);
			st_bytes(&s, 0, 1000);
		}
		st_pipe_in(&s, JOB_TRAINER, JOB_TRAINER, t, made, made + 5000, 0x77, MAKER(0),
			   MAKER(0));
		t = use_batch(&s, made + 50 * ST_US);
	}
	st_window(&s, JOB_BEGIN, t);
	st_seal(&s);
	r = st_figures(&s, &m);
	share = case_charged(r, cause) / r->breakdown.data_wait.seconds;
	assert_true(r->breakdown.data_wait.share > 0.7);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
	return share;
}

/* A batch that is put together until it is full or its time is over sleeps until then; who looks
 * for the same again waits for whoever brings it. */
static void test_lingers(void **state)
{
	(void)state;
	assert_true(lingers(PT_CAUSE_SLEEP, false) > 0.85);
	assert_true(lingers(PT_CAUSE_IPC, false) < 0.1);
	assert_true(lingers(PT_CAUSE_SLEEP, true) < 0.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unseen_delivery),
		cmocka_unit_test(test_micro_batches),
		cmocka_unit_test(test_sender_bound),
		cmocka_unit_test(test_cut_wait),
		cmocka_unit_test(test_thread_pool),
		cmocka_unit_test(test_program_per_batch),
		cmocka_unit_test(test_thread_of_programs),
		cmocka_unit_test(test_many_tensors),
		cmocka_unit_test(test_batches_in_pieces),
		cmocka_unit_test(test_unseen_are_not_slow),
		cmocka_unit_test(test_holder_is_loader),
		cmocka_unit_test(test_idle_is_not_hung),
		cmocka_unit_test(test_turns_unseen),
		cmocka_unit_test(test_lingers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
