/* SPDX-License-Identifier: BSD-2-Clause */
/* Records to timelines: what each record means, what is missing, whose thread
 * it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "model/timeline.h"
#include "stream.h"

#define T0 (100 * ST_S)
#define A 500u /* a process and its main thread */
#define B 600u

static struct pt_model *model_of(struct stream *s)
{
	struct pt_model *m = pt_model_new();

	assert_non_null(m);
	st_seal(s);
	assert_int_equal(st_feed(s, m), 0);
	assert_int_equal(pt_model_finish(m), 0);
	return m;
}

static void done(struct stream *s, struct pt_model *m)
{
	pt_model_free(m);
	st_free(s);
}

/* ---- intervals ------------------------------------------------------------- */

static void test_interval(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	const struct pt_thread *t;

	(void)state;
	st_pipe_in(&s, A, A, T0 + 100, T0 + 300, T0 + 350, 42, B, B + 1);
	st_preempted(&s, A, A, T0 + 400, T0 + 500);
	st_off(&s, A, A, T0 + 600, 0, T0 + 700); /* its wake-up not seen */
	st_off(&s, A, A, T0 + 800, T0 + 10, T0 + 900); /* nonsense */
	st_window(&s, T0, T0 + 1000);
	m = model_of(&s);
	t = pt_model_thread(m, A);
	assert_non_null(t);
	assert_int_equal(t->iv.n, 4);
	assert_int_equal(t->iv.v[0].begin, T0 + 100);
	assert_int_equal(t->iv.v[0].ready, T0 + 300); /* not its end */
	assert_int_equal(t->iv.v[0].end, T0 + 350);
	assert_int_equal(t->iv.v[0].wait, PT_WAIT_PIPE_IN);
	assert_true(t->iv.v[0].valid_wake);
	assert_int_equal(t->iv.v[0].waker_tid, B + 1);
	assert_int_equal(t->iv.v[1].ready, T0 + 400); /* queued all along */
	assert_int_equal(t->iv.v[1].wait, PT_WAIT_RUNQ);
	assert_false(t->iv.v[1].valid_wake);
	assert_int_equal(t->iv.v[2].ready, T0 + 700);
	assert_int_equal(t->iv.v[3].ready, T0 + 900);
	assert_int_equal(m->begin, T0);
	assert_int_equal(m->end, T0 + 1000);
	assert_int_equal(t->last, T0 + 1000);
	assert_int_equal(m->malformed, 0);
	done(&s, m);
}

/* A poll that an interrupt ends is a wait for storage where the thread has asked it for
 * more, since it last slept, than its read calls returned. */
static void test_asynchronous_reads(void **state)
{
	static const struct {
		uint64_t read_bytes, rchar;
		enum pt_wait wait;
	} rows[] = {
		{ 0, 0, PT_WAIT_POLL },
		{ 8192, 8, PT_WAIT_DISK }, /* the eventfd's eight bytes */
		{ 8192, 16, PT_WAIT_POLL }, /* none is under way */
		{ 12288, 8192, PT_WAIT_POLL }, /* it read by a call, ahead of which ... */
		{ 16384, 8192, PT_WAIT_DISK },
	};
	struct stream s = { 0 };
	struct pt_model *m;
	const struct pt_thread *t;
	struct pt_rec_off *r;
	size_t i;

	(void)state;
	for (i = 0; i < 5; i++) {
		r = st_off(&s, A, A, T0 + 100 * i, T0 + 100 * i + 40, T0 + 100 * i + 50);
		r->state = 1;
		r->syscall = 232; /* epoll_wait */
		r->waker_in = PT_WAKER_KNOWN | PT_WAKER_HARDIRQ;
		r->waker_tgid = r->waker_tid = B;
	}
	st_seal(&s); /* it adds up what calls read: there are none */
	for (i = 0; i < 5; i++) {
		s.recs.v[i].r.off.tot.read_bytes = rows[i].read_bytes;
		s.recs.v[i].r.off.tot.rchar = rows[i].rchar;
	}
	m = pt_model_new();
	assert_non_null(m);
	assert_int_equal(st_feed(&s, m), 0);
	assert_int_equal(pt_model_finish(m), 0);
	t = pt_model_thread(m, A);
	assert_non_null(t);
	assert_int_equal(t->iv.n, 5);
	for (i = 0; i < 5; i++)
		assert_int_equal(t->iv.v[i].wait, rows[i].wait);
	done(&s, m);
}

/* An interval that is still open counts up to the end; once it is over, the
 * record of its end replaces every look at it. */
static void test_open_intervals(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	const struct pt_thread *t;
	uint64_t at;

	(void)state;
	for (at = 200; at <= 800; at += 200) {
		st_off(&s, A, A, T0 + 100, 0, T0 + at)->hdr.flags = PT_F_OPEN;
		st_off(&s, B, B, T0 + 100, 0, T0 + at)->hdr.flags = PT_F_OPEN;
	}
	st_off(&s, B, B, T0 + 100, T0 + 850, T0 + 900); /* ended */
	/* a wake-up that found it running is stamped where the sleep begins */
	st_off(&s, A + 1, A + 1, T0 + 100, T0 + 100, T0 + 900)->hdr.flags =
		PT_F_OPEN | PT_F_SINCE_UNKNOWN;
	/* on a CPU: only its totals are meant */
	st_off(&s, B + 1, B + 1, T0 + 500, 0, T0 + 500)->hdr.flags = PT_F_OPEN;
	st_window(&s, T0, T0 + 1000);
	m = model_of(&s);
	t = pt_model_thread(m, A);
	assert_int_equal(t->iv.n, 1);
	assert_int_equal(t->iv.v[0].begin, T0 + 100);
	assert_int_equal(t->iv.v[0].end, T0 + 1000);
	assert_int_equal(t->iv.v[0].ready, T0 + 1000);
	assert_true(t->iv.v[0].open);
	assert_false(t->iv.v[0].since_unknown);
	t = pt_model_thread(m, A + 1);
	assert_int_equal(t->iv.n, 1);
	assert_int_equal(t->iv.v[0].ready, T0 + 1000);
	assert_true(t->iv.v[0].since_unknown);
	t = pt_model_thread(m, B);
	assert_int_equal(t->iv.n, 1);
	assert_int_equal(t->iv.v[0].end, T0 + 900);
	assert_false(t->iv.v[0].open);
	assert_int_equal(pt_model_thread(m, B + 1)->iv.n, 0);
	done(&s, m);
}

static void test_late_records_are_sorted(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m = pt_model_new();
	const struct pt_thread *t;
	size_t i;

	(void)state;
	for (i = 0; i < 50; i++)
		st_preempted(&s, A, A, T0 + i * 100, T0 + i * 100 + 50);
	st_window(&s, T0, T0 + ST_MS);
	st_seal(&s);
	for (i = s.recs.n; i-- > 0;) /* backwards */
		assert_int_equal(pt_model_feed(m, &s.recs.v[i].r,
					       s.recs.v[i].r.hdr.size), 0);
	for (i = 0; i < s.recs.n; i += 3) /* and some twice */
		pt_model_feed(m, &s.recs.v[i].r, s.recs.v[i].r.hdr.size);
	assert_int_equal(pt_model_finish(m), 0);
	t = pt_model_thread(m, A);
	assert_int_equal(t->iv.n, 50);
	for (i = 0; i < 50; i++) {
		assert_int_equal(t->iv.v[i].begin, T0 + i * 100);
		assert_int_equal(t->iv.v[i].end, T0 + i * 100 + 50);
	}
	assert_int_equal(pt_iv_after(t, T0), 0);
	assert_int_equal(pt_iv_after(t, T0 + 50), 1); /* [begin, end) */
	assert_int_equal(pt_iv_after(t, T0 + 149), 1);
	assert_int_equal(pt_iv_after(t, T0 + ST_S), 50);
	done(&s, m);
}

/* ---- what is missing -------------------------------------------------------- */

static void test_sequence_gaps(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m = pt_model_new();
	const struct pt_thread *t;
	size_t i;

	(void)state;
	for (i = 0; i < 20; i++)
		st_preempted(&s, A, A, T0 + i * 100, T0 + i * 100 + 50);
	st_seal(&s);
	for (i = 0; i < 20; i++)
		if (i != 7 && i != 8 && i != 15)
			pt_model_feed(m, &s.recs.v[i].r, s.recs.v[i].r.hdr.size);
	t = pt_model_thread(m, A);
	assert_int_equal(t->lost, 3);
	/* one of them was only late */
	pt_model_feed(m, &s.recs.v[15].r, s.recs.v[15].r.hdr.size);
	assert_int_equal(t->lost, 2);
	assert_int_equal(pt_model_finish(m), 0);
	assert_int_equal(t->iv.n, 18);
	for (i = 0; i < t->iv.n; i++)
		assert_int_equal(t->iv.v[i].gap_before,
				 t->iv.v[i].begin == T0 + 900 ||
				 t->iv.v[i].begin == T0 + 1600);
	done(&s, m);
}

/* A lost record loses detail, never a total. */
static void test_totals_survive_loss(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m = pt_model_new();
	const struct pt_thread *t;
	size_t i;

	(void)state;
	for (i = 0; i < 10; i++)
		st_preempted(&s, A, A, T0 + i * 100, T0 + i * 100 + 30);
	st_seal(&s);
	for (i = 0; i < 10; i++)
		if (i < 2 || i == 9)
			pt_model_feed(m, &s.recs.v[i].r, s.recs.v[i].r.hdr.size);
	t = pt_model_thread(m, A);
	assert_true(t->totals_known);
	assert_int_equal(t->t1.runq_ns - t->t0.runq_ns, 9 * 30);
	assert_int_equal(t->t1.run_ns - t->t0.run_ns, 9 * 70);
	done(&s, m);
}

/* ---- GPU calls --------------------------------------------------------------- */

static void test_gpu_calls(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	const struct pt_proc *p;

	(void)state;
	st_gpu(&s, "cudaLaunchKernel", A, A, T0 + 100, 0, 3, 0x40, 0, 0);
	st_gpu(&s, "cudaStreamSynchronize", A, A, T0 + 200, T0 + 300, 3, 0, 0, 0);
	s.recs.v[s.recs.n - 1].r.gpu.v[0] = 700; /* its return code */
	/* two threads inside the same call at once */
	st_gpu(&s, "cudaDeviceSynchronize", A, A, T0 + 400, T0 + 700, 0, 0, 0, 0);
	st_gpu(&s, "cudaDeviceSynchronize", A, A + 1, T0 + 500, T0 + 600, 0, 0, 0, 0);
	/* a call inside a call */
	st_gpu(&s, "cudaMemcpy", A, A, T0 + 800, T0 + 950, 0, 1, 2, 3);
	st_gpu(&s, "cudaStreamSynchronize", A, A, T0 + 850, T0 + 900, 3, 0, 0, 0);
	/* has not returned when the capture ends */
	st_gpu(&s, "cudaFree", A, A, T0 + 960, 0, 0, 9, 0, 0);
	st_window(&s, T0, T0 + 1000);
	m = model_of(&s);
	p = pt_model_proc(m, A);
	assert_int_equal(p->gpu.n, 7);
	assert_int_equal(p->gpu.v[0].cls, PT_API_LAUNCH);
	assert_int_equal(p->gpu.v[0].stream, 3);
	assert_int_equal(p->gpu.v[0].v[0], 0x40);
	assert_true(p->gpu.v[0].ret == INT64_MIN);
	assert_false(p->gpu.v[0].open); /* its return is not watched */
	assert_int_equal(p->gpu.v[1].end, T0 + 300);
	assert_int_equal(p->gpu.v[1].ret, 700);
	assert_int_equal(p->gpu.v[2].end, T0 + 700);
	assert_int_equal(p->gpu.v[3].end, T0 + 600);
	assert_int_equal(p->gpu.v[4].end, T0 + 950);
	assert_int_equal(p->gpu.v[5].end, T0 + 900);
	assert_true(p->gpu.v[6].open);
	assert_int_equal(p->gpu.v[6].end, T0 + 1000);
	assert_int_equal(pt_gpu_after(p, T0 + 400), 2);
	assert_int_equal(pt_gpu_after(p, T0 + 401), 3);
	done(&s, m);
}

/* A return without entry: at the begin of the capture it is a call that was
 * under way; in the middle its entry was lost, and nothing is made up. */
static void test_gpu_returns_without_entry(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	const struct pt_proc *p;

	(void)state;
	st_task(&s, T0, A, A, 1, "t");
	st_gpu(&s, "cudaStreamSynchronize", A, A, T0 - 100, T0 + 300, 3, 0, 0, 0);
	st_gpu(&s, "cudaLaunchKernel", A, A, T0 + 400, 0, 3, 0x40, 0, 0);
	st_gpu(&s, "cudaStreamSynchronize", A, A, T0 + 500, T0 + 600, 3, 0, 0, 0);
	st_window(&s, T0, T0 + 1000);
	/* lose the entry at T0 + 500 */
	{
		size_t i, n = 0;

		for (i = 0; i < s.recs.n; i++)
			if (s.recs.v[i].r.hdr.ts != T0 + 500)
				s.recs.v[n++] = s.recs.v[i];
		s.recs.n = n;
	}
	m = model_of(&s);
	p = pt_model_proc(m, A);
	assert_int_equal(p->gpu.n, 2);
	assert_int_equal(p->gpu.v[0].begin, T0);
	assert_int_equal(p->gpu.v[0].end, T0 + 300);
	assert_true(p->gpu.v[0].late);
	assert_int_equal(p->gpu.v[1].begin, T0 + 400);
	assert_false(p->gpu.v[1].late);
	done(&s, m);
}

/* The inner call's return was lost: the outer's is not taken for it. */
static void test_gpu_lost_return(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	const struct pt_proc *p;

	(void)state;
	st_gpu(&s, "cudaMemcpy", A, A, T0 + 100, T0 + 400, 0, 1, 2, 3);
	st_gpu(&s, "cudaStreamSynchronize", A, A, T0 + 200, 0, 3, 0, 0, 0);
	st_gpu(&s, "cudaStreamSynchronize", A, A, T0 + 500, T0 + 600, 3, 0, 0, 0);
	st_window(&s, T0, T0 + 1000);
	m = model_of(&s);
	p = pt_model_proc(m, A);
	assert_int_equal(p->gpu.n, 3);
	assert_int_equal(p->gpu.v[0].end, T0 + 400);
	assert_true(p->gpu.v[1].ret == INT64_MIN);
	assert_int_equal(p->gpu.v[2].end, T0 + 600);
	done(&s, m);
}

static void test_unknown_api(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;

	(void)state;
	st_gpu(&s, "cudaMemcpy", A, A, T0 + 100, T0 + 200, 0, 1, 2, 3);
	s.recs.v[0].r.gpu.api = s.recs.v[1].r.gpu.api = 60000;
	st_window(&s, T0, T0 + 1000);
	m = model_of(&s);
	assert_int_equal(pt_model_proc(m, A)->gpu.n, 0);
	assert_int_equal(m->malformed, 0); /* a later version's */
	done(&s, m);
}

/* ---- processes and threads ---------------------------------------------------- */

static void test_fork_and_exit(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	const struct pt_proc *p;
	const struct pt_thread *t;

	(void)state;
	st_task(&s, T0, A, A, 1, "parent");
	st_fork(&s, T0 + 100, A, A, B, B);	 /* a process */
	st_fork(&s, T0 + 200, A, A, A, A + 1); /* a thread */
	st_exit(&s, T0 + 800, B, B, true);
	st_window(&s, T0, T0 + 1000);
	m = model_of(&s);
	p = pt_model_proc(m, B);
	assert_int_equal(p->ppid, A);
	assert_int_equal(p->born, T0 + 100);
	assert_int_equal(p->died, T0 + 800);
	t = pt_model_thread(m, B);
	assert_true(t->exited);
	assert_int_equal(t->first, T0 + 100);
	assert_int_equal(t->last, T0 + 800);
	p = pt_model_proc(m, A);
	assert_int_equal(p->threads.n, 2);
	assert_string_equal(p->comm, "parent");
	assert_false(pt_model_thread(m, A)->exited);
	assert_int_equal(m->all_procs.n, 2);
	done(&s, m);
}

/* An id that comes again is another process: nothing of the old one is its. */
static void test_pid_reuse(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	const struct pt_proc *p;
	const struct pt_thread *t;

	(void)state;
	st_task(&s, T0, A, A, 1, "parent");
	st_fork(&s, T0 + 100, A, A, B, B);
	st_preempted(&s, B, B, T0 + 150, T0 + 160);
	st_exit(&s, T0 + 200, B, B, true);
	st_fork(&s, T0 + 300, A, A, B, B);
	s.recs.v[s.recs.n - 1].r.fork.child_start = 999;
	st_preempted(&s, B, B, T0 + 350, T0 + 360);
	s.recs.v[s.recs.n - 1].r.hdr.start = 999;
	st_preempted(&s, B, B, T0 + 370, T0 + 380);
	s.recs.v[s.recs.n - 1].r.hdr.start = 999;
	st_window(&s, T0, T0 + 1000);
	m = model_of(&s);
	assert_ptr_equal(pt_model_proc(m, B), pt_model_proc(m, pt_model_id(m, B))->older);
	p = pt_model_proc(m, pt_model_id(m, B));
	assert_int_equal(m->all_procs.n, 3);
	assert_non_null(p->older);
	assert_int_equal(p->born, T0 + 300);
	assert_int_equal(p->died, 0);
	assert_int_equal(p->older->died, T0 + 200);
	t = pt_model_thread(m, pt_model_id(m, B));
	assert_int_equal(t->iv.n, 2);
	assert_int_equal(t->proc == p, 1);
	assert_int_equal(t->tgid, p->tgid);
	assert_int_equal(pt_real_id(t->tid), B);
	assert_int_equal(pt_real_id(p->tgid), B);
	assert_int_equal(t->older->iv.n, 1);
	assert_ptr_equal(pt_model_thread(m, B), t->older);
	done(&s, m);
}

/* A thread that moves to another process (its id reused there). */
static void test_tid_changes_process(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	const struct pt_thread *t;

	(void)state;
	st_task(&s, T0, A, A, 1, "a");
	st_task(&s, T0, B, B, 1, "b");
	st_preempted(&s, A, 700, T0 + 100, T0 + 200);
	st_preempted(&s, B, 700, T0 + 300, T0 + 400);
	st_window(&s, T0, T0 + 1000);
	m = model_of(&s);
	t = pt_model_thread(m, pt_model_id(m, 700));
	assert_int_equal(t->tgid, B);
	assert_int_equal(t->iv.n, 1);
	assert_ptr_equal(t->older, pt_model_thread(m, 700));
	assert_int_equal(t->older->tgid, A);
	assert_true(t->older->exited);
	assert_int_equal(pt_model_proc(m, A)->threads.n, 2);
	assert_int_equal(pt_model_proc(m, B)->threads.n, 2);
	done(&s, m);
}

/* Exec by a thread that is not the leader: it takes the leader's id. */
static void python_at(struct stream *s, uint64_t ts, uint64_t state, uint32_t bytes)
{
	struct pt_rec_python *r = &st_add(s, PT_REC_PYTHON, sizeof(*r), ts, A, A)->python;

	r->state = state;
	r->bytes = bytes;
}

/* Where the interpreter is holds until another program runs. */
static void test_python_state(void **state)
{
	uint64_t told[] = { T0 + 400, T0 + 600 };
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct pt_model *m = pt_model_new();
		struct stream s = { 0 };

		assert_non_null(m);
		st_task(&s, T0, A, A, 1, "before");
		python_at(&s, told[i], 0x5000, 1464);
		st_exec(&s, T0 + 500, A, A);
		/* more than an interpreter has, nowhere, and of nobody who is followed */
		python_at(&s, T0 + 700, 0x6000, PT_PY_STATE_MAX + 1);
		python_at(&s, T0 + 710, 0, 100);
		st_add(&s, PT_REC_PYTHON, sizeof(struct pt_rec_python), T0 + 720, B, B)
			->python.state = 8;
		st_window(&s, T0, T0 + 1000);
		st_seal(&s);
		assert_int_equal(st_feed(&s, m), 2);
		assert_int_equal(pt_model_finish(m), 0);
		assert_int_equal(pt_model_proc(m, A)->python_bytes, i ? 1464 : 0);
		assert_null(pt_model_proc(m, B));
		done(&s, m);
	}
}

static void test_exec(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;

	(void)state;
	st_task(&s, T0, A, A, 1, "before");
	st_task(&s, T0, A, A + 1, 1, "caller");
	st_exec(&s, T0 + 500, A, A + 1);
	st_window(&s, T0, T0 + 1000);
	m = model_of(&s);
	assert_true(pt_model_thread(m, A + 1)->exited);
	assert_int_equal(pt_model_thread(m, A + 1)->last, T0 + 500);
	assert_string_equal(pt_model_proc(m, A)->comm, "execed");
	done(&s, m);
}

/* ---- files, and records of other versions --------------------------------------- */

static void test_files(void **state)
{
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_rec_file *r;

	(void)state;
	st_file(&s, T0, 8, 77, "x.jpg", "data");
	st_file(&s, T0 + 1, 9, 77, "y.jpg", "data"); /* another device */
	st_file(&s, T0 + 2, 8, 78, "", "");
	r = &st_add(&s, PT_REC_FILE, sizeof(*r), T0 + 3, 1, 1)->file;
	r->dev = 8;
	r->inode = 79;
	r->parts = 60000;
	memset(r->path, 'a', sizeof(r->path)); /* no end anywhere */
	m = model_of(&s);
	assert_string_equal(pt_model_file(m, 8, 77)->path, "/data/x.jpg");
	assert_string_equal(pt_model_file(m, 9, 77)->path, "/data/y.jpg");
	assert_null(pt_model_file(m, 8, 78)->path);
	assert_null(pt_model_file(m, 8, 79)->path);
	assert_null(pt_model_file(m, 10, 77));
	done(&s, m);
}

static void test_longer_and_shorter_records(void **state)
{
	struct pt_model *m = pt_model_new();
	struct stream s = { 0 };
	unsigned char big[PT_REC_MAX + 64] = { 0 };
	struct pt_hdr h;

	(void)state;
	st_preempted(&s, A, A, T0 + 100, T0 + 200);
	memcpy(big, &s.recs.v[0].r, sizeof(s.recs.v[0].r));
	memcpy(&h, big, sizeof(h));
	h.size = 400; /* a later version's: the rest is ignored */
	memcpy(big, &h, sizeof(h));
	assert_int_equal(pt_model_feed(m, big, sizeof(big)), 0);
	assert_int_equal(pt_model_thread(m, A)->iv.n, 1);
	assert_int_equal(pt_model_feed(m, big, 399), -EINVAL);
	h.size = 191;
	memcpy(big, &h, sizeof(h));
	assert_int_equal(pt_model_feed(m, big, sizeof(big)), -EINVAL);
	h.size = 31;
	memcpy(big, &h, sizeof(h));
	assert_int_equal(pt_model_feed(m, big, sizeof(big)), -EINVAL);
	assert_int_equal(pt_model_feed(m, big, 5), -EINVAL);
	h.size = 64;
	h.kind = 1000;
	memcpy(big, &h, sizeof(h));
	assert_int_equal(pt_model_feed(m, big, 64), 0);
	assert_int_equal(m->skipped_kinds, 1);
	assert_int_equal(m->malformed, 4);
	done(&s, m);
}

static void test_times_that_cannot_be(void **state)
{
	struct pt_model *m = pt_model_new();
	struct stream s = { 0 };
	struct pt_rec_read *r;

	(void)state;
	st_off(&s, A, A, T0 + 200, 0, T0 + 100); /* ends before it begins */
	r = &st_add(&s, PT_REC_READ, sizeof(*r), T0, A, A)->read;
	r->begin_ts = T0 + 1;
	st_mark(&s, UINT64_MAX, PT_MARK_END);
	st_preempted(&s, A, A, (1ull << 60) - 10, (1ull << 60) + 1);
	assert_int_equal(st_feed(&s, m), 4);
	assert_int_equal(m->malformed, 4);
	assert_int_equal(pt_model_finish(m), 0);
	assert_int_equal(pt_model_feed(m, &s.recs.v[0].r, 192), -EINVAL);
	done(&s, m);
}

/* Short reads come as sums. */
static void test_sums_of_reads(void **state)
{
	struct pt_model *m = pt_model_new();
	struct stream s = { 0 };
	const struct pt_thread *t;
	struct pt_rec_reads *r;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		r = &st_add(&s, PT_REC_READS, sizeof(*r), T0 + 1000 + i, A, A)->reads;
		r->begin_ts = T0;
		r->hdr.seq = (uint32_t)i;
		r->inode = 7;
		r->dev = 8;
		r->count = 5;
		r->failed = 1;
		r->bytes = 4096;
		r->busy_ns = i ? UINT64_MAX : 600;
		r->obj_kind = PT_OBJ_FILE;
		r->door = i ? PT_DOOR_PAGES : PT_DOOR_FEXIT;
		r->hdr.flags = i ? PT_F_BOUND : 0;
	}
	/* of no call; more failed than there were; more bytes than can be */
	for (i = 0; i < 3; i++) {
		r = &st_add(&s, PT_REC_READS, sizeof(*r), T0 + 2000, A, A)->reads;
		r->begin_ts = T0;
		r->count = i ? 2 : 0;
		r->failed = i == 1 ? 3 : 0;
		r->bytes = i == 2 ? UINT64_MAX : 0;
	}
	st_add(&s, PT_REC_READS, sizeof(*r), T0, A, A)->reads.begin_ts = T0 + 1;
	st_feed(&s, m);
	assert_int_equal(m->malformed, 4);
	assert_int_equal(pt_model_finish(m), 0);
	t = m->all_threads.v[0];
	assert_int_equal(t->reads.n, 2);
	assert_int_equal(t->reads.v[0].count, 5);
	assert_int_equal(t->reads.v[0].ret, 4096);
	assert_int_equal(t->reads.v[0].busy, 600);
	assert_true(t->reads.v[0].timed && !t->reads.v[0].bound);
	assert_true(!t->reads.v[1].timed && t->reads.v[1].bound);
	assert_int_equal(t->reads.v[1].busy, 0);
	done(&s, m);
}

/* A capture that nobody stops: its older half goes. */
static void test_trim(void **state)
{
	struct pt_model *m = pt_model_new();
	struct stream s = { 0 };
	uint64_t before;
	size_t i;

	(void)state;
	st_mark(&s, T0, PT_MARK_BEGIN);
	for (i = 0; i < 4000; i++)
		st_preempted(&s, A, A, T0 + i * 100, T0 + i * 100 + 50);
	st_seal(&s);
	assert_int_equal(st_feed(&s, m), 0);
	before = pt_model_bytes(m);
	assert_int_equal(pt_model_trim(m, before), 0);
	assert_int_equal(m->trimmed_ns, 0);
	assert_int_equal(pt_model_trim(m, before - 1), 0);
	assert_true(m->trimmed_ns > 199000 && m->trimmed_ns < 201000);
	assert_int_equal(m->begin, T0 + m->trimmed_ns);
	assert_true(pt_model_bytes(m) < before * 6 / 10);
	assert_int_equal(pt_model_finish(m), 0);
	assert_true(pt_model_thread(m, A)->iv.v[0].end > m->begin);
	assert_true(pt_model_thread(m, A)->iv.n >= 1999);
	done(&s, m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_interval),
		cmocka_unit_test(test_asynchronous_reads),
		cmocka_unit_test(test_open_intervals),
		cmocka_unit_test(test_late_records_are_sorted),
		cmocka_unit_test(test_sequence_gaps),
		cmocka_unit_test(test_totals_survive_loss),
		cmocka_unit_test(test_gpu_calls),
		cmocka_unit_test(test_gpu_returns_without_entry),
		cmocka_unit_test(test_gpu_lost_return),
		cmocka_unit_test(test_unknown_api),
		cmocka_unit_test(test_fork_and_exit),
		cmocka_unit_test(test_pid_reuse),
		cmocka_unit_test(test_tid_changes_process),
		cmocka_unit_test(test_exec),
		cmocka_unit_test(test_python_state),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_longer_and_shorter_records),
		cmocka_unit_test(test_times_that_cannot_be),
		cmocka_unit_test(test_sums_of_reads),
		cmocka_unit_test(test_trim),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
