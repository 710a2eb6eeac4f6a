/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines of Python: a thread's time by line, from looks at a job whose every line is known;
 * and how looks come into the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "analysis/analysis.h"
#include "analysis/lines/lines.h"
#include "model/timeline.h"
#include "stream_case.h"
#include "view/export.h"
#include "view/html/html_int.h"
#include "view/timeline/stacks.h"

/* Lines, and the stacks in which they are the innermost: 1 the trainer's loop, 2 a library
 * that the loop calls, 3 a worker's loop (a library), 4 and 5 what the worker computes,
 * 6 what it reads in. 7 the loop's call of the device; 8 a generator that the loop goes
 * through, and 10 what the loop calls from its line 9, behind that call; 12 what it calls
 * before that, from 11. 21 and 22, libraries that the loop calls from 9: what copies, what
 * receives. 31, which calls the device, is called by line 13; by the same one 32 before it, and
 * 33 behind it. */
static const struct {
	uint32_t id;
	int line;
	bool library;
	const char *name, *file;
	uint32_t caller, flags;
} program[] = {
	{ 1, 10, false, "train", "/job/train.py", 0, PT_PYSTACK_ITER },
	{ 2, 700, true, "Loader.__next__", "/usr/lib/python3/dist-packages/l.py", 1,
	  PT_PYSTACK_NEXT },
	{ 3, 40, true, "worker_loop", "/usr/lib/python3/dist-packages/l.py", 1, 0 },
	{ 4, 7, false, "Augment.__call__", "/job/data.py", 3, 0 },
	{ 5, 15, false, "Decode.__call__", "/job/data.py", 3, 0 },
	{ 6, 21, false, "Images.load", "/job/data.py", 3, 0 },
	{ 7, 13, false, "train", "/job/train.py", 0, 0 },
	{ 8, 5, false, "batches", "/job/train.py", 1, PT_PYSTACK_NEXT },
	{ 9, 14, false, "train", "/job/train.py", 0, 0 },
	{ 10, 30, false, "metrics", "/job/train.py", 9, 0 },
	{ 11, 11, false, "train", "/job/train.py", 0, 0 },
	{ 12, 50, false, "prepare", "/job/train.py", 11, 0 },
	{ 21, 180, true, "concatenate", "/usr/lib/python3/dist-packages/numpy/core.py", 9, 0 },
	{ 31, 80, false, "use", "/job/train.py", 7, 20 << PT_PYSTACK_AT },
	{ 32, 60, false, "fetch", "/job/train.py", 7, 10 << PT_PYSTACK_AT },
	{ 33, 60, false, "fetch", "/job/train.py", 7, 30 << PT_PYSTACK_AT },
	{ 22, 250, true, "Connection.recv", "/usr/lib/python3.11/multiprocessing/connection.py", 9,
	  0 },
};
#define LINES (sizeof(program) / sizeof(*program))

static void feed(struct pt_model *m, void *rec, uint16_t kind, uint16_t size, uint64_t ts)
{
	struct pt_hdr h = { .size = size, .kind = kind, .ts = ts };
	struct pt_hdr old;

	memcpy(&old, rec, sizeof(old));
	h.tid = old.tid;
	h.tgid = old.tgid;
	memcpy(rec, &h, sizeof(h));
	pt_model_feed(m, rec, size);
}

static void feed_program(struct pt_model *m)
{
	size_t i, n;

	for (i = 0; i < LINES; i++) {
		struct pt_rec_pyline l = { .id = program[i].id, .line = program[i].line,
					   .flags = program[i].library };
		struct pt_rec_pystack s = { .id = program[i].id, .caller = program[i].caller,
					    .line = program[i].id,
					    .flags = program[i].flags };

		n = strlen(program[i].name);
		memcpy(l.text, program[i].name, n);
		memcpy(l.text + n + 1, program[i].file, strlen(program[i].file));
		feed(m, &l, PT_REC_PYLINE, sizeof(l), JOB_BEGIN);
		feed(m, &s, PT_REC_PYSTACK, sizeof(s), JOB_BEGIN);
	}
}

static void look(struct pt_model *m, uint32_t tgid, uint32_t tid, uint64_t begin, uint64_t end,
		 uint32_t stack)
{
	struct pt_rec_pylook l = { .hdr = { .tid = tid, .tgid = tgid }, .begin_ts = begin,
				   .stack = stack };

	feed(m, &l, PT_REC_PYLOOK, sizeof(l), end);
}

/* A sample, with a place in the library that its stack ends in. */
static void look_at(struct pt_model *m, uint32_t tid, uint64_t ts, uint32_t stack, uint32_t place)
{
	struct pt_rec_pylook l = { .hdr = { .tid = tid, .tgid = tid }, .begin_ts = ts,
				   .stack = stack, .running = 1, .place = place };

	feed(m, &l, PT_REC_PYLOOK, sizeof(l), ts);
}

static void place_is(struct pt_model *m, uint32_t place, uint32_t line)
{
	struct pt_rec_pyplace r = { .id = place, .line = line };

	feed(m, &r, PT_REC_PYPLACE, sizeof(r), JOB_BEGIN);
}

/* What a worker is in at a moment: 4 in the first 6 of 10 ms that it runs, else 5; asleep it
 * reads, but for its rests. */
static uint32_t stack_at(const struct pt_thread *th, uint64_t ts)
{
	size_t i = pt_iv_after(th, ts);
	const struct pt_iv *iv = i < th->iv.n ? &th->iv.v[i] : NULL;

	if (iv && iv->begin <= ts && iv->ready > ts && iv->wait != PT_WAIT_RUNQ)
		return iv->wait == PT_WAIT_DISK ? 6 : 3;
	return ts % (10 * ST_MS) < 6 * ST_MS ? 4 : 5;
}

/* ns that it ran, or was ready to, while it was in this line. */
static uint64_t ran_in(const struct pt_thread *th, uint32_t line, uint64_t t0, uint64_t t1)
{
	uint64_t ns = 0, ts;

	for (ts = t0; ts < t1; ts += 10 * ST_US)
		ns += stack_at(th, ts) == line ? 10 * ST_US : 0;
	return ns;
}

static uint64_t slept(const struct pt_thread *th, enum pt_wait wait, uint64_t t0, uint64_t t1)
{
	uint64_t ns = 0;
	size_t i;

	for (i = 0; i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];
		uint64_t b = iv->begin > t0 ? iv->begin : t0, e = iv->ready < t1 ? iv->ready : t1;

		if (iv->wait == wait && e > b)
			ns += e - b;
	}
	return ns;
}

static const struct pt_r_line *find(const struct pt_report *r, int64_t pid, enum pt_cause cause,
				    const char *function)
{
	size_t i;

	for (i = 0; i < r->n_lines; i++)
		if (r->lines[i].pid == pid && r->lines[i].cause == cause &&
		    !strcmp(r->lines[i].function, function))
			return &r->lines[i];
	return NULL;
}

/* Looks at both workers and the trainer, every 3 to 9 ms, each 0.1 ms long. */
static void look_at_all(struct pt_model *m, uint64_t t0, uint64_t t1)
{
	const uint32_t who[] = { JOB_TRAINER, JOB_WORKER(0), JOB_WORKER(1) };
	uint64_t rnd = 7, ts;
	size_t i;

	pt_model_settle(m);
	for (i = 0; i < 3; i++) {
		const struct pt_thread *th = pt_model_thread(m, who[i]);

		assert_non_null(th);
		for (ts = t0; ts < t1; ts += st_between(&rnd, 3 * ST_MS, 9 * ST_MS)) {
			uint32_t at = i ? stack_at(th, ts) : 2;

			if (!i || at == stack_at(th, ts + ST_US * 100))
				look(m, who[i], who[i], ts, ts + ST_US * 100, at);
		}
	}
}

/* The job's records, and the lines; looks are still to come. */
static void feed_job(struct st_case *c, const struct job_opts *o)
{
	memset(c, 0, sizeof(*c));
	job_run(&c->j, o);
	job_window(&c->j, JOB_BEGIN + 400 * ST_MS,
		   JOB_BEGIN + o->run_s_x10 * (ST_S / 10) - 100 * ST_MS);
	c->m = pt_model_new();
	assert_non_null(c->m);
	st_feed(&c->j.s, c->m);
	feed_program(c->m);
}

static struct pt_report *analyze(struct st_case *c)
{
	const struct pt_analysis_opts a = { .batch_size = 0 };

	assert_int_equal(pt_model_finish(c->m), 0);
	c->r = pt_report_new();
	assert_non_null(c->r);
	assert_int_equal(pt_analyze(c->m, &a, c->r), 0);
	return c->r;
}

/* batch_ns: what a worker takes for one; 0: as usual, which is too long. */
static struct pt_report *report_of(struct st_case *c, bool looks, uint64_t batch_ns)
{
	struct job_opts o = job_defaults();

	o.mix[JOB_DISK] = 0.3;
	o.batch_ns = batch_ns ? batch_ns : o.batch_ns;
	feed_job(c, &o);
	if (looks)
		look_at_all(c->m, c->j.t0, c->j.t1);
	return analyze(c);
}

static void time_goes_to_its_line(void **state)
{
	struct st_case c;
	const struct pt_report *r = report_of(&c, true, 0);
	const struct pt_thread *w = pt_model_thread(c.m, JOB_WORKER(0));
	const struct pt_r_line *l;
	double truth, all;
	uint32_t id;

	(void)state;
	assert_true(r->n_workers == 2);
	all = (double)(ran_in(w, 4, c.j.t0, c.j.t1) + ran_in(w, 5, c.j.t0, c.j.t1)) / 1e9;
	for (id = 4; id <= 5; id++) {
		truth = (double)ran_in(w, id, c.j.t0, c.j.t1) / 1e9;
		l = find(r, JOB_WORKER(0), PT_CAUSE_CPU, program[id - 1].name);
		assert_non_null(l);
		assert_true(fabs(l->seconds - truth) < 0.06 * all);
		assert_true(l->low <= truth && truth <= l->high);
		assert_true(l->line == program[id - 1].line);
	}
	/* what it slept for storage is one line's, to the last sleep that was looked at */
	truth = (double)slept(w, PT_WAIT_DISK, c.j.t0, c.j.t1) / 1e9;
	l = find(r, JOB_WORKER(0), PT_CAUSE_DISK, "Images.load");
	assert_non_null(l);
	assert_true(truth > 0.2 && fabs(l->seconds - truth) < 0.001);
	assert_true(l->low <= truth && truth <= l->high + 1e-6 && l->share > 0.999);
	/* of all workers */
	l = find(r, PT_NULL, PT_CAUSE_CPU, "Augment.__call__");
	assert_non_null(l);
	assert_true(l->share > 0.5 && l->share < 0.7);
	/* the loop is told where it calls the library */
	l = find(r, JOB_TRAINER, PT_CAUSE_IPC, "train");
	assert_non_null(l);
	assert_true(l->line == 10 && l->data_wait == 1);
	case_close(&c);
}

/* This job's syncs spin: that is waiting for the device, not work of the loop's. */
static void who_spins_in_a_sync_waits(void **state)
{
	struct st_case c;
	const struct pt_report *r = report_of(&c, true, 2 * ST_MS);
	const struct pt_proc *p = pt_model_thread(c.m, JOB_TRAINER)->proc;
	const struct pt_r_line *in, *out;
	uint64_t ns = 0;
	size_t i;

	(void)state;
	for (i = 0; i < p->gpu.n; i++) {
		const struct pt_gpu_call *g = &p->gpu.v[i];

		if (g->begin >= c.j.t0 && g->end <= c.j.t1 && g->end >= g->begin + ST_MS / 10)
			ns += g->end - g->begin;
	}
	in = find(r, JOB_TRAINER, PT_CAUSE_SYNC, "train");
	out = find(r, JOB_TRAINER, PT_CAUSE_CPU, "train");
	assert_true(ns > ST_S / 2);
	assert_true(in && in->looks != PT_NULL && in->looks > 10);
	assert_true(fabs(in->seconds - (double)ns / 1e9) < 0.05 * (double)ns / 1e9);
	assert_true(!out || out->seconds < in->seconds / 2);
	case_close(&c);
}

/* A forked worker has the trainer's loop below its own functions: where it waits for work it
 * is not in the loop. */
static void a_worker_is_not_in_the_loop_that_started_it(void **state)
{
	struct st_case c;
	const struct pt_report *r = report_of(&c, true, 2 * ST_MS);
	size_t i, rests = 0;

	(void)state;
	for (i = 0; i < r->n_lines; i++) {
		const struct pt_r_line *l = &r->lines[i];

		assert_true(l->data_wait != PT_NULL || strcmp(l->function, "train"));
		rests += !strcmp(l->function, "worker_loop");
	}
	assert_true(rests);
	case_close(&c);
}

static void a_verdict_names_the_line(void **state)
{
	struct st_case c, bare;
	const struct pt_r_verdict *v;

	(void)state;
	report_of(&c, true, 0);
	report_of(&bare, false, 0);
	assert_true(c.r->n_verdicts && bare.r->n_verdicts && !bare.r->n_lines);
	v = &c.r->verdicts[0];
	assert_string_equal(v->id, bare.r->verdicts[0].id);
	assert_true(v->certainty == bare.r->verdicts[0].certainty);
	assert_non_null(strstr(v->title, "Augment.__call__ (data.py:7)"));
	assert_string_equal(v->subject_file, "/job/data.py");
	assert_true(v->subject_line == 7);
	assert_null(strstr(bare.r->verdicts[0].title, "data.py"));
	case_close(&c);
	case_close(&bare);
}

/* A job that makes its batches up by computing, and one that computes as much for itself: what
 * differs is the stack. `in`: where it computes, `call`: where it calls the device. */
static const struct pt_report *computing(struct st_case *c, uint32_t in, uint32_t call,
					 uint64_t batch_ns)
{
	struct job_opts o = job_defaults();
	uint64_t rnd = 11, ts;
	size_t k = 0;

	o.workers = 0;
	o.no_reads = true;
	o.batch_ns = batch_ns ? batch_ns : o.batch_ns;
	feed_job(c, &o);
	for (ts = c->j.t0; ts < c->j.t1; ts += st_between(&rnd, 5 * ST_MS, 15 * ST_MS)) {
		const struct job_step *s;

		while (k + 1 < c->j.steps.n && c->j.steps.v[k].wait_end <= ts)
			k++;
		s = &c->j.steps.v[k];
		look(c->m, JOB_TRAINER, JOB_TRAINER, ts, ts + 50 * ST_US,
		     s->wait_begin <= ts && ts + 50 * ST_US < s->wait_end ? in : call);
	}
	return analyze(c);
}

#define ROW(name, at, waits, s)                                                       \
	{ .who = "trainer", .pid = 5, .tid = 5, .function = name, .file = "/job/t.py",     \
	  .line = at, .cause = PT_CAUSE_CPU, .data_wait = waits, .seconds = s,             \
	  .low = (s) * 0.9, .looks = 40 }

/* Of the function that takes longest, with what Python names apart in it, the line that does;
 * never the loop over the loader, where the thread obtains its data. */
static void a_headline_names_a_function(void **state)
{
	static const struct pt_r_line rows[] = {
		ROW("main", 46, 1, 4), ROW("main", 46, 0, 3), ROW("main", 50, 0, 0.2),
		ROW("F1.score.<locals>.<genexpr>", 34, 0, 1.2), ROW("F1.score", 36, 0, 1.5),
		ROW("F1.score", 37, 0, 0.3), ROW("log", 80, 0, 2),
	};
	static const struct pt_line_ask loop = { PT_LINES_LOOP, PT_LINES_ALL, "it" };
	struct pt_report r = { .lines = rows, .n_lines = sizeof(rows) / sizeof(*rows) };
	struct pt_an an = { .r = &r, .a = pt_arena_new() };
	struct pt_r_line l;

	(void)state;
	assert_non_null(an.a);
	assert_true(pt_top_line(&an, &loop, PT_NULL, &l));
	assert_string_equal(pt_line_place(&an, &l), "F1.score (t.py:36)");
	assert_true(fabs(l.seconds - 3) < 1e-9);
	assert_true(fabs(l.share - 3 / 8.2) < 1e-9);
	assert_int_equal(l.looks, 120);
	l = rows[3];
	assert_string_equal(pt_line_place(&an, &l), "F1.score (t.py:34)");
	pt_arena_free(an.a);
}

/* The job computes in line `in`, which is told as its data wait, to the length, and by name. */
static const struct pt_report *loads_in(struct st_case *c, uint32_t in, uint32_t call,
					const char *name)
{
	const struct pt_report *r = computing(c, in, call, 0);
	double wall = (double)(c->j.t1 - c->j.t0), truth = (double)job_wait_ns(&c->j) / wall;

	assert_true(r->breakdown.known && truth > 0.2);
	assert_true(fabs(r->breakdown.data_wait.share - truth) < 0.03);
	assert_string_equal(case_root(r), "main_thread_loading");
	assert_non_null(strstr(r->verdicts[0].title, name));
	return r;
}

static void python_names_a_data_wait(void **state)
{
	struct st_case c;
	const struct pt_report *r = loads_in(&c, 8, 7, "batches (train.py:5)");

	(void)state;
	assert_string_equal(r->data_wait.evidence, "named");
	case_close(&c);
}

/* No iterator: the loop computes above the line from which it calls the device. */
static void python_above_the_calls_is_loading(void **state)
{
	struct st_case c;
	const struct pt_report *r = loads_in(&c, 12, 7, "prepare (train.py:50)");

	(void)state;
	assert_int_equal(r->verdicts[0].certainty, PT_CONF_MEDIUM);
	case_close(&c);
}

/* The capture begins and ends in a wait: a batch of ten, where each takes 0.3 s. */
static void python_names_waits_that_are_cut(void **state)
{
	const uint32_t in[] = { 8, 12 };
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct st_case c;
		const struct pt_report *r = computing(&c, in[i], 7, 300 * ST_MS);
		double wall = (double)(c.j.t1 - c.j.t0);
		bool begins = false, ends = false;

		pt_each(const struct job_step, s, &c.j.steps) {
			begins |= s->wait_begin + 20 * ST_MS < c.j.t0 && s->wait_end > c.j.t0 + 20 * ST_MS;
			ends |= s->wait_begin + 20 * ST_MS < c.j.t1 && s->wait_end > c.j.t1 + 20 * ST_MS;
		}
		assert_true(begins && ends);
		assert_true(fabs(r->breakdown.data_wait.share - (double)job_wait_ns(&c.j) / wall) < 0.015);
		case_close(&c);
	}
}

/* use(fetch()): one line does both, and only which comes first tells. */
static void python_before_the_call_in_its_line_is_loading(void **state)
{
	struct st_case c;
	const struct pt_report *r = loads_in(&c, 32, 31, "fetch (train.py:60)");

	(void)state;
	assert_string_equal(r->data_wait.evidence, "named");
	case_close(&c);
	r = computing(&c, 33, 31, 0);
	assert_true(r->breakdown.known && r->breakdown.data_wait.share < 0.01);
	assert_string_equal(case_root(r), "host_bound");
	case_close(&c);
}

/* The share of data waits of a job that copies bytes for `batch_ns`, above its calls, in what it
 * calls last before each upload. */
static double waits_in_copies(uint64_t batch_ns)
{
	struct pt_rec_pyline l = { .id = 23, .flags = PT_PYLINE_LIBRARY | PT_PYLINE_NATIVE,
				   .text = "libc.so.6\0/usr/lib/libc.so.6" };
	struct pt_rec_pystack in = { .id = 23, .caller = 12, .line = 23 };
	struct job_opts o = job_defaults();
	uint64_t rnd = 11, ts;
	struct st_case c;
	double share;
	size_t k = 0;

	o.workers = 0;
	o.no_reads = true;
	o.batch_ns = batch_ns;
	feed_job(&c, &o);
	feed(c.m, &l, PT_REC_PYLINE, sizeof(l), JOB_BEGIN);
	feed(c.m, &in, PT_REC_PYSTACK, sizeof(in), JOB_BEGIN);
	for (ts = c.j.t0; ts < c.j.t1; ts += st_between(&rnd, 100 * ST_US, 400 * ST_US)) {
		const struct job_step *x;

		while (k + 1 < c.j.steps.n && c.j.steps.v[k].wait_end <= ts)
			k++;
		x = &c.j.steps.v[k];
		look_at(c.m, JOB_TRAINER, ts, x->wait_begin <= ts && ts < x->wait_end ? 23 : 7, 0);
	}
	share = analyze(&c)->breakdown.data_wait.share;
	case_close(&c);
	return share;
}

/* What sends a batch up is no loading; what takes longer than that is. */
static void what_sends_a_batch_up_is_no_loading(void **state)
{
	(void)state;
	assert_true(waits_in_copies(400 * ST_US) < 0.002);
	assert_true(waits_in_copies(8 * ST_MS) > 0.1);
}

static void python_elsewhere_is_host_work(void **state)
{
	struct st_case c;
	const struct pt_report *r = computing(&c, 10, 7, 0);

	(void)state;
	assert_true(r->breakdown.known && r->breakdown.data_wait.share < 0.01);
	assert_string_equal(case_root(r), "host_bound");
	assert_non_null(strstr(r->verdicts[0].title, "metrics (train.py:30)"));
	case_close(&c);
}

/* Behind each step's sync the loop computes in line `in`; in the sync it is in line 13. */
static const char *root_behind_syncs(struct st_case *c, uint32_t in)
{
	struct job_opts o = job_defaults();
	uint64_t rnd = 3;
	size_t k;

	o.batch_ns = 5 * ST_MS;
	o.kernel_ns = ST_MS;
	o.host_ns = 12 * ST_MS;
	feed_job(c, &o);
	for (k = 1; k < c->j.steps.n; k++) {
		uint64_t host = c->j.steps.v[k].wait_begin - o.host_ns;

		if (host < c->j.t0 + 10 * ST_MS || host + o.host_ns + ST_MS > c->j.t1)
			continue;
		look(c->m, JOB_TRAINER, JOB_TRAINER, host - 2 * ST_MS, host - ST_MS, 7);
		look_at(c->m, JOB_TRAINER, host + st_between(&rnd, ST_MS, o.host_ns - ST_MS), in, 0);
	}
	return case_root(analyze(c));
}

static void one_function_behind_syncs_is_host_work(void **state)
{
	struct st_case c;

	(void)state;
	assert_string_equal(root_behind_syncs(&c, 10), "host_bound");
	assert_int_equal(c.r->verdicts[0].certainty, PT_CONF_MEDIUM);
	assert_non_null(strstr(c.r->verdicts[0].title, "metrics (train.py:30)"));
	assert_non_null(strstr(c.r->verdicts[0].advice, "Without the sync"));
	case_close(&c);
	/* the loop's own function has it all */
	assert_string_equal(root_behind_syncs(&c, 9), "sync_bound");
	case_close(&c);
}

/* By how much of the time the data wait is too long, in a job with work of its own before it
 * asks. */
static double too_long(bool looks)
{
	struct st_case c;
	struct job_opts o = job_defaults();
	uint64_t rnd = 5;
	double share;
	size_t k;

	o.host_ns = 500 * ST_US;
	feed_job(&c, &o);
	for (k = 0; looks && k < c.j.steps.n; k++) {
		const struct job_step *s = &c.j.steps.v[k];
		uint64_t own = s->wait_begin - st_between(&rnd, 20 * ST_US, o.host_ns - 20 * ST_US);
		uint64_t slept = (s->wait_begin + s->wait_end) / 2;

		if (own < c.j.t0 || s->wait_end + ST_MS > c.j.t1)
			continue;
		look_at(c.m, JOB_TRAINER, own, 10, 0);
		look(c.m, JOB_TRAINER, JOB_TRAINER, slept, slept + 20 * ST_US, 2);
		look_at(c.m, JOB_TRAINER, s->wait_end - 5 * ST_US, 2, 0);
		look(c.m, JOB_TRAINER, JOB_TRAINER, s->wait_end + 150 * ST_US,
		     s->wait_end + 150 * ST_US, 7);
	}
	share = analyze(&c)->breakdown.data_wait.share;
	share -= (double)job_wait_ns(&c.j) / (double)(c.j.t1 - c.j.t0);
	case_close(&c);
	return share;
}

#define MAKER 2500

/* One step: the trainer sleeps for the parts of a batch, `has` apart, and moves `bytes` up. */
static uint64_t take_and_use(struct stream *s, uint64_t t, uint64_t has, uint64_t bytes)
{
	unsigned k;

	st_pipe_in(s, JOB_TRAINER, JOB_TRAINER, t, t + 5 * ST_MS, t + 5 * ST_MS + 5000, 0x77, MAKER,
		   MAKER);
	t += 5 * ST_MS + has;
	st_pipe_in(s, JOB_TRAINER, JOB_TRAINER, t - ST_MS / 2, t - 20 * ST_US, t - 15 * ST_US, 0x77,
		   MAKER, MAKER);
	st_gpu(s, "cudaMemcpyAsync", JOB_TRAINER, JOB_TRAINER, t, t + 5 * ST_US, 0, 0, bytes, 1);
	for (k = 0; k < 10; k++, t += 20 * ST_US)
		st_gpu(s, "cudaLaunchKernel", JOB_TRAINER, JOB_TRAINER, t + 10 * ST_US, 0, 0,
		       0x4000 + 16 * k, 0, 0);
	st_gpu(s, "cudaStreamSynchronize", JOB_TRAINER, JOB_TRAINER, t, t + 4 * ST_MS, 0, 0, 0, 0);
	return t + 4 * ST_MS + 20 * ST_US;
}

/* Is that told of a trainer that computes for `has` over each batch, seen in `stack` then? */
static bool loads_itself(uint64_t has, uint64_t bytes, uint32_t stack)
{
	struct st_case c = { 0 };
	struct stream s = { 0 };
	uint64_t t = JOB_BEGIN + ST_MS, at[80], ts;
	bool itself;
	size_t i;

	st_host(&s, JOB_BEGIN, 4, JOB_TRAINER);
	st_task(&s, JOB_BEGIN, JOB_TRAINER, JOB_TRAINER, 1, "train");
	st_task(&s, JOB_BEGIN, MAKER, MAKER, JOB_TRAINER, "train");
	for (i = 0; i < 80; i++) {
		at[i] = t + 5 * ST_MS;
		t = take_and_use(&s, t, has, bytes);
	}
	st_window(&s, JOB_BEGIN, t);
	st_seal(&s);
	c.m = pt_model_new();
	assert_non_null(c.m);
	st_feed(&s, c.m);
	st_free(&s);
	feed_program(c.m);
	for (i = 0; i < 80; i++) {
		for (ts = at[i] + ST_MS; ts + ST_MS < at[i] + has; ts += 4 * ST_MS)
			look_at(c.m, JOB_TRAINER, ts, stack, 0);
	}
	assert_true(analyze(&c)->breakdown.data_wait.share > 0.8);
	itself = !strcmp(case_root(c.r), "main_thread_loading");
	pt_report_free(c.r);
	pt_model_free(c.m);
	return itself;
}

/* A library that the loop calls copies for 30 ms where 4 KiB go up: nobody copies a batch so
 * slowly. Of 6 MiB that may be the hand-over, and so may be what Python's own connection does. */
static void more_than_a_copy_is_loading(void **state)
{
	(void)state;
	assert_true(loads_itself(30 * ST_MS, 4096, 21));
	assert_false(loads_itself(30 * ST_MS, 6 << 20, 21));
	assert_false(loads_itself(30 * ST_MS, 4096, 22));
}

static void what_the_loop_calls_is_not_its_loader(void **state)
{
	(void)state;
	assert_true(too_long(false) > 0.02);
	assert_true(fabs(too_long(true)) < 0.01);
}

/* Who runs is sampled thirty times as often as who sleeps is looked at: both stand for their
 * time all the same. Looks from outside alone count one each. */
static void samples_stand_for_time(void **state)
{
	struct st_case c;
	const struct pt_thread *w;
	struct job_opts o = job_defaults();
	struct pt_an an = { 0 };
	double *weight, sum[7] = { 0 }, ran, truth;
	struct pt_rec_pylook l = { .hdr = { .tid = JOB_WORKER(0), .tgid = JOB_WORKER(0) } };
	uint64_t ts, asleep = 0;
	size_t i;

	(void)state;
	o.mix[JOB_DISK] = 0.3;
	feed_job(&c, &o);
	w = pt_model_thread(c.m, JOB_WORKER(0));
	assert_non_null(w);
	pt_model_settle(c.m);
	for (ts = c.j.t0; ts < c.j.t1; ts += ST_MS) {
		uint32_t at = stack_at(w, ts);
		bool runs = at == 4 || at == 5;

		if (!runs && (asleep + 30 * ST_MS > ts || at != stack_at(w, ts + 10 * ST_US)))
			continue;
		if (!runs)
			asleep = ts;
		l.begin_ts = ts;
		l.stack = at;
		l.running = runs;
		feed(c.m, &l, PT_REC_PYLOOK, sizeof(l), runs ? ts : ts + 10 * ST_US);
	}
	assert_true(pt_is_sampled(w));
	an.t0 = c.j.t0;
	an.t1 = c.j.t1;
	an.m = c.m;
	assert_int_equal(pt_weigh_looks(&an, w, &weight), 0);
	for (i = 0; i < w->looks.n; i++)
		sum[w->looks.v[i].stack] += weight[i];
	free(weight);
	ran = (double)(ran_in(w, 4, c.j.t0, c.j.t1) + ran_in(w, 5, c.j.t0, c.j.t1));
	truth = (double)ran_in(w, 4, c.j.t0, c.j.t1);
	assert_true(fabs(sum[4] + sum[5] - ran) < 0.02 * ran);
	assert_true(fabs(sum[4] - truth) < 0.06 * ran);
	truth = (double)(c.j.t1 - c.j.t0) - ran;
	assert_true(truth > 0 && fabs(sum[3] + sum[6] - truth) < 0.02 * truth);
	case_close(&c);
}

static double seconds_in(const struct pt_stack_times *s, uint32_t stack, uint32_t state)
{
	const struct pt_stack_key key = { stack, 0, state };
	const struct pt_stack_time *t;

	HASH_FIND(hh, s->all, &key, sizeof(key), t);
	return t ? (double)t->ns / 1e9 : 0;
}

static void time_goes_to_its_stack(void **state)
{
	struct st_case c;
	struct pt_stack_times s = { 0 };
	const struct pt_stack_time *t;
	const struct pt_thread *w;
	uint64_t sum = 0;
	double truth, all;
	uint32_t id;

	(void)state;
	report_of(&c, true, 0);
	w = pt_model_thread(c.m, JOB_WORKER(0));
	assert_int_equal(pt_stacks_add(&s, c.m, w, c.j.t0, c.j.t1), 0);
	all = (double)(ran_in(w, 4, c.j.t0, c.j.t1) + ran_in(w, 5, c.j.t0, c.j.t1)) / 1e9;
	for (id = 4; id <= 5; id++) {
		truth = (double)ran_in(w, id, c.j.t0, c.j.t1) / 1e9;
		assert_true(fabs(seconds_in(&s, id, PT_PAST_RUNNING) - truth) < 0.06 * all);
	}
	truth = (double)slept(w, PT_WAIT_DISK, c.j.t0, c.j.t1) / 1e9;
	assert_true(truth > 0.2 && fabs(seconds_in(&s, 6, PT_WAIT_DISK) - truth) < 0.001);
	/* nothing is counted twice, and nothing is lost */
	for (t = s.all; t; t = t->hh.next)
		sum += t->ns;
	assert_true(!s.ran_unseen_ns && s.ran_ns + s.slept_ns <= c.j.t1 - c.j.t0);
	assert_true(s.ran_ns + s.slept_ns > (c.j.t1 - c.j.t0) / 100 * 99);
	sum += s.slept_unseen_ns;
	assert_true(sum <= s.ran_ns + s.slept_ns && sum + 1000 > s.ran_ns + s.slept_ns);
	pt_stacks_free(&s);
	/* of a part, not more than that is long */
	assert_int_equal(pt_stacks_add(&s, c.m, w, c.j.t0 + ST_S, c.j.t0 + ST_S + 100 * ST_MS),
			 0);
	assert_true(s.ran_ns + s.slept_ns <= 100 * ST_MS && s.ran_ns + s.slept_ns > 98 * ST_MS);
	pt_stacks_free(&s);
	case_close(&c);
}

/* Of a tree of the page: us of its own of all nodes; who is called comes behind its caller. */
static int64_t sum_of(const json_t *nodes)
{
	size_t i, n = json_array_size(nodes);
	int64_t us = 0, parent;

	assert_true(n && n % 3 == 0);
	for (i = 0; i < n; i += 3) {
		parent = json_integer_value(json_array_get(nodes, i));
		assert_true(parent >= 0 && (size_t)parent <= i / 3);
		us += json_integer_value(json_array_get(nodes, i + 2));
	}
	return us;
}

static void the_page_has_trees(void **state)
{
	const struct pt_lanes lanes = { NULL };
	static const char *const sides[] = { "running", "asleep" };
	struct pt_jb b = { 0 };
	struct st_case c;
	struct pt_export x = { .lanes = &lanes };
	const json_t *group, *side;
	double seconds;
	json_t *o;
	size_t i;

	(void)state;
	x.r = report_of(&c, true, 0);
	x.m = c.m;
	o = pt_html_stacks(&b, &x);
	assert_true(o && !b.failed);
	assert_int_equal(json_array_size(json_object_get(o, "groups")), 1);
	group = json_array_get(json_object_get(o, "groups"), 0);
	assert_string_equal(json_string_value(json_object_get(group, "who")), "others");
	assert_int_equal(json_integer_value(json_object_get(group, "threads")), 3);
	for (i = 0; i < 2; i++) {
		side = json_object_get(group, sides[i]);
		seconds = json_number_value(json_object_get(side, "seconds")) -
			  json_number_value(json_object_get(side, "unseen"));
		assert_true(seconds > 0.1);
		assert_true(fabs((double)sum_of(json_object_get(side, "nodes")) / 1e6 -
				 seconds) < 1e-4);
	}
	json_decref(o);
	case_close(&c);
}

static void stacks_are_folded(void **state)
{
	struct st_case c;
	struct pt_export x = { .r = report_of(&c, true, 0), .part = false };
	char *text = NULL, *line, *rest;
	size_t n, lines = 0;
	FILE *f = open_memstream(&text, &n);

	(void)state;
	x.m = c.m;
	assert_non_null(f);
	assert_int_equal(pt_export_stacks(&x, f), 0);
	assert_int_equal(fclose(f), 0);
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		assert_true(strtoull(strrchr(line, ' ') + 1, NULL, 10) > 0);
		lines += strstr(line, ";train (/job/train.py:10);worker_loop (/usr/lib/python3/"
				      "dist-packages/l.py:40);Images.load (/job/data.py:21);"
				      "disk ") != NULL;
		lines += strstr(line, ";Augment.__call__ (/job/data.py:7) ") != NULL;
	}
	assert_int_equal(lines, 4); /* of two workers */
	free(text);
	case_close(&c);
}

/* Of speedscope's file, the ns that all samples stand for, and no profile more than `most`. */
static int64_t scope_ns(const struct pt_export *x, int64_t most, size_t *profiles)
{
	char *text = NULL;
	size_t n, i, j;
	FILE *f = open_memstream(&text, &n);
	int64_t all = 0, one;
	const json_t *p, *w;
	json_t *o;

	assert_non_null(f);
	assert_int_equal(pt_export_speedscope(x, f), 0);
	assert_int_equal(fclose(f), 0);
	o = json_loads(text, 0, NULL);
	assert_non_null(o);
	p = json_object_get(o, "profiles");
	*profiles = json_array_size(p);
	for (i = 0; i < *profiles; i++) {
		w = json_object_get(json_array_get(p, i), "weights");
		assert_true(json_array_size(w) > 0);
		for (j = 0, one = 0; j < json_array_size(w); j++)
			one += json_integer_value(json_array_get(w, j));
		assert_true(one <= most);
		assert_true(one <= json_integer_value(json_object_get(json_array_get(p, i),
								      "endValue")));
		all += one;
	}
	json_decref(o);
	free(text);
	return all;
}

static void speedscope_of_a_part(void **state)
{
	struct st_case c;
	struct pt_report *r = report_of(&c, true, 0);
	struct pt_export x = { .r = r };
	int64_t begin = r->capture.begin_ns, end = r->capture.end_ns, mid = (begin + end) / 2;
	int64_t all, first, second;
	size_t n;

	(void)state;
	x.m = c.m;
	all = scope_ns(&x, end - begin, &n);
	assert_int_equal(n, 3);
	x.part = true;
	assert_true(scope_ns(&x, end - begin, &n) == all);
	r->capture.end_ns = mid;
	first = scope_ns(&x, mid - begin, &n);
	r->capture.begin_ns = mid;
	r->capture.end_ns = end;
	second = scope_ns(&x, end - mid, &n);
	assert_true(first > all / 4 && second > all / 4);
	assert_true(first + second == all);
	/* nobody was looked at then */
	r->capture.begin_ns = end + 1000;
	r->capture.end_ns = end + 2000;
	assert_true(scope_ns(&x, 0, &n) == 0 && !n);
	r->capture.begin_ns = begin;
	r->capture.end_ns = end;
	case_close(&c);
}

/* A worker that has been in one wait: the stack that was seen last, where that was lately. */
static void who_hangs_is_inside_of_it(void **state)
{
	struct st_case c;
	struct pt_an an = { 0 };
	struct pt_r_verdict v = { .title = "It hangs.", .subject_line = PT_NULL };
	const struct pt_thread *w, *main;
	uint64_t since;

	(void)state;
	an.r = report_of(&c, true, 0);
	an.m = c.m;
	an.a = an.r->arena;
	an.t1 = c.j.t1 + 10 * ST_S;
	w = pt_model_thread(c.m, JOB_WORKER(0));
	main = pt_model_thread(c.m, JOB_TRAINER);
	/* it moves; the trainer is always looked at in one line */
	since = pt_same_line_since(c.m, w);
	assert_true(since > c.j.t1 - 200 * ST_MS && since < c.j.t1);
	assert_true(pt_same_line_since(c.m, main) == main->looks.v[0].begin);
	assert_int_equal(pt_tell_stack(&an, w, main, 5, "it is inside", &v), 0);
	assert_true(!v.n_stack && !strcmp(v.title, "It hangs."));
	assert_int_equal(pt_tell_stack(&an, w, main, 12, "it is inside", &v), 0);
	assert_true(v.n_stack >= 2 && v.n_stack <= 3);
	assert_string_equal(v.stack[v.n_stack - 1].function, "train");
	assert_true(v.stack[v.n_stack - 2].library);
	if (v.n_stack == 3) {
		assert_non_null(strstr(v.title, "It hangs; it is inside "));
		assert_non_null(strstr(v.title, " (data.py:"));
		assert_string_equal(v.subject_file, "/job/data.py");
	} else { /* the loop that started it is not where it is */
		assert_non_null(strstr(v.title, "inside worker_loop (l.py:40)."));
	}
	case_close(&c);
}

/* A library below a line of Python is no function of the job: the look is at the line. */
static void a_library_is_below_its_line(void **state)
{
	struct pt_rec_pyline l = { .id = 13, .flags = PT_PYLINE_LIBRARY | PT_PYLINE_NATIVE,
				   .text = "libz.so.1\0/usr/lib/libz.so.1" };
	struct pt_rec_pystack s = { .id = 13, .caller = 4, .line = 13 };
	const struct pt_thread *w;
	struct job_opts o = job_defaults();
	const struct pt_r_line *row = NULL;
	struct pt_report *r;
	struct st_case c;
	uint64_t ts;
	size_t i;

	(void)state;
	feed_job(&c, &o);
	feed(c.m, &l, PT_REC_PYLINE, sizeof(l), JOB_BEGIN);
	feed(c.m, &s, PT_REC_PYSTACK, sizeof(s), JOB_BEGIN);
	w = pt_model_thread(c.m, JOB_WORKER(0));
	assert_non_null(w);
	/* three of four below line 4, two of them in one function, which is told later */
	for (ts = c.j.t0; ts < c.j.t1; ts += 10 * ST_MS)
		look_at(c.m, JOB_WORKER(0), ts, ts / (10 * ST_MS) % 4 ? 13 : 4,
			ts / (10 * ST_MS) % 4);
	place_is(c.m, 1, 14);
	place_is(c.m, 2, 14); /* another place in it */
	place_is(c.m, 4000, 14);
	l = (struct pt_rec_pyline){ .id = 14, .flags = PT_PYLINE_LIBRARY | PT_PYLINE_NATIVE,
				    .text = "deflate\0/usr/lib/libz.so.1" };
	feed(c.m, &l, PT_REC_PYLINE, sizeof(l), JOB_BEGIN);
	pt_model_settle(c.m);
	assert_true(w->looks.n > 100);
	for (i = 0; i < w->looks.n; i++)
		assert_true(w->looks.v[i].stack == 4 &&
			    (w->looks.v[i].leaf == 13 || w->looks.v[i].leaf == 4) &&
			    pt_model_function(c.m, &w->looks.v[i]) ==
				    (w->looks.v[i].place % 3 ? 14 : 0));
	r = analyze(&c);
	for (i = 0; i < r->n_lines; i++)
		if (r->lines[i].pid == JOB_WORKER(0) && r->lines[i].cause == PT_CAUSE_CPU)
			row = &r->lines[i];
	assert_non_null(row);
	assert_string_equal(row->native, "libz.so.1");
	assert_true(fabs(row->native_share - 0.75) < 0.05);
	assert_string_equal(row->native_symbol, "deflate");
	assert_true(fabs(row->native_symbol_share - 0.5) < 0.05);
	case_close(&c);
}

static void what_makes_no_sense_is_refused(void **state)
{
	struct pt_model *m = pt_model_new();
	struct pt_rec_pyline l = { .id = 1, .line = 3 };
	struct pt_rec_pystack s = { .id = 2, .caller = 2, .line = 1 };
	struct pt_rec_pylook look_of_old = { .hdr = { .tid = 5, .tgid = 5 }, .stack = 1 };

	(void)state;
	assert_non_null(m);
	memset(l.text, 'x', sizeof(l.text)); /* no end */
	feed(m, &l, PT_REC_PYLINE, sizeof(l), 1);
	l = (struct pt_rec_pyline){ .id = PT_PY_IDS, .text = "f" };
	feed(m, &l, PT_REC_PYLINE, sizeof(l), 1);
	feed(m, &s, PT_REC_PYSTACK, sizeof(s), 1); /* a circle */
	s.caller = 3;
	feed(m, &s, PT_REC_PYSTACK, sizeof(s), 1);
	assert_true(m->malformed == 4);
	assert_null(pt_model_line(m, 1));
	assert_null(pt_model_stack(m, 2));
	place_is(m, 0, 1);
	place_is(m, PT_PY_PLACES, 1);
	place_is(m, 1, PT_PY_IDS);
	look_at(m, 5, 10, 1, PT_PY_PLACES);
	assert_true(m->malformed == 8 && !m->code_places.n);
	/* of a thread that nobody knows: no look, and no harm; older ones had no place */
	look(m, 5, 5, 10, 20, 1);
	feed(m, &look_of_old, PT_REC_PYLOOK, 48, 20);
	assert_true(m->malformed == 8 && !m->all_threads.n);
	pt_model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_goes_to_its_line),
		cmocka_unit_test(who_spins_in_a_sync_waits),
		cmocka_unit_test(a_worker_is_not_in_the_loop_that_started_it),
		cmocka_unit_test(a_verdict_names_the_line),
		cmocka_unit_test(a_headline_names_a_function),
		cmocka_unit_test(python_names_a_data_wait),
		cmocka_unit_test(python_above_the_calls_is_loading),
		cmocka_unit_test(python_names_waits_that_are_cut),
		cmocka_unit_test(python_before_the_call_in_its_line_is_loading),
		cmocka_unit_test(what_sends_a_batch_up_is_no_loading),
		cmocka_unit_test(python_elsewhere_is_host_work),
		cmocka_unit_test(one_function_behind_syncs_is_host_work),
		cmocka_unit_test(what_the_loop_calls_is_not_its_loader),
		cmocka_unit_test(more_than_a_copy_is_loading),
		cmocka_unit_test(samples_stand_for_time),
		cmocka_unit_test(time_goes_to_its_stack),
		cmocka_unit_test(the_page_has_trees),
		cmocka_unit_test(stacks_are_folded),
		cmocka_unit_test(speedscope_of_a_part),
		cmocka_unit_test(who_hangs_is_inside_of_it),
		cmocka_unit_test(a_library_is_below_its_line),
		cmocka_unit_test(what_makes_no_sense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
