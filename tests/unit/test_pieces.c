/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A capture looked at in pieces: its report is the one of the whole. Simulated
 * jobs of many kinds, each read whole and in pieces of some hundred steps; and
 * against their own truth.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "analysis/parts/join.h"
#include "cmd/pieces.h"
#include "model/timeline.h"
#include "report/fields.h"
#include "stream_case.h"

#define NR_READ 0

struct pieces {
	struct pt_model *m;
	struct pt_report *r;
	size_t n;
};

enum how {
	AS_IT_IS,
	ONE_AT_ONCE,
	THREE_AT_ONCE,
	NO_PROCESS,
};

/* Without descriptors no process can be started. */
static void allow_descriptors(bool yes)
{
	struct rlimit l;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &l), 0);
	l.rlim_cur = yes ? l.rlim_max : 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
}

static struct pieces read_so(const struct stream *s, uint64_t bytes, enum how how)
{
	struct pt_analysis_opts o = { 0 };
	struct pt_long l = { .ask_every = 2 };
	struct pieces p = { pt_model_new(), pt_report_new(), 0 };
	size_t i;

	assert_true(p.m && p.r);
	if (how == ONE_AT_ONCE || how == THREE_AT_ONCE)
		l.at_once = how == ONE_AT_ONCE ? 1 : 3;
	allow_descriptors(how != NO_PROCESS);
	for (i = 0; i < s->recs.n; i++) {
		const struct pt_hdr *h = &s->recs.v[i].r.hdr;

		pt_model_feed(p.m, h, h->size);
		if (i % 256 == 255)
			assert_int_equal(pt_long_spill(&l, p.m, &o, bytes), 0);
		if (how == NO_PROCESS)
			assert_int_equal(l.rooms.n, 0);
	}
	allow_descriptors(true);
	assert_int_equal(pt_model_finish(p.m), 0);
	assert_int_equal(pt_long_report(&l, p.m, &o, p.r), 0);
	p.n = p.r->n_windows;
	pt_long_free(&l);
	return p;
}

static struct pieces read_pieces(const struct stream *s, uint64_t bytes)
{
	return read_so(s, bytes, AS_IT_IS);
}

static void done(struct pieces *p)
{
	pt_report_free(p->r);
	pt_model_free(p->m);
}

static void same(const char *what, unsigned kind, double a, double b,
		 double slack)
{
	if (isnan(a) && isnan(b))
		return;
	if (!(fabs(a - b) <= slack))
		fail_msg("job %u: %s is %.9g of the whole and %.9g of the pieces",
			 kind, what, a, b);
}

/* The trainer's lines, each second of which is one charge. */
static void same_causes(unsigned kind, const struct pt_report *a,
			const struct pt_report *b, double slack)
{
	int c;

	for (c = 0; c < PT_CAUSE_NR; c++)
		same(pt_cause_name((enum pt_cause)c), kind,
		     case_charged(a, (enum pt_cause)c),
		     case_charged(b, (enum pt_cause)c), slack);
}

static void same_steps(unsigned kind, const struct pt_report *a,
		       const struct pt_report *b)
{
	size_t i;

	same("steps", kind, (double)a->steps.count, (double)b->steps.count, 0);
	same("batches", kind, (double)a->steps.batches,
	     (double)b->steps.batches, 0);
	for (i = 0; i < a->steps.n_list; i++) {
		same("a begin", kind, (double)a->steps.list[i].begin_ns / 1e6,
		     (double)b->steps.list[i].begin_ns / 1e6, 0.2);
		same("an end", kind, (double)a->steps.list[i].end_ns / 1e6,
		     (double)b->steps.list[i].end_ns / 1e6, 0.2);
	}
}

static void same_workers(unsigned kind, const struct pt_report *a,
			 const struct pt_report *b)
{
	size_t i, k;

	same("workers", kind, (double)a->n_workers, (double)b->n_workers, 0);
	for (i = 0; i < a->n_workers; i++) {
		const struct pt_r_worker *x = &a->workers[i], *y = NULL;

		for (k = 0; k < b->n_workers; k++)
			if (b->workers[k].tid == x->tid)
				y = &b->workers[k];
		assert_non_null(y);
		same("batches", kind, (double)x->batches, (double)y->batches, 0);
		same("batch times", kind, (double)x->batch_ms.n,
		     (double)y->batch_ms.n, 0);
		same("cpu", kind, x->cpu, y->cpu, 1e-6);
		same("disk", kind, x->disk, y->disk, 1e-6);
		same("observed", kind, x->window, y->window, 1e-6);
		same("read", kind, (double)x->read_bytes,
		     (double)y->read_bytes, 0);
		assert_int_equal(x->state, y->state);
	}
}

static void same_verdicts(unsigned kind, const struct pt_report *a,
			  const struct pt_report *b)
{
	size_t i;

	for (i = 0; i < a->n_verdicts || i < b->n_verdicts; i++) {
		const char *x = i < a->n_verdicts ? a->verdicts[i].id : "none";
		const char *y = i < b->n_verdicts ? b->verdicts[i].id : "none";

		if (strcmp(x, y))
			fail_msg("job %u: verdict %zu is %s of the whole and %s of the pieces",
				 kind, i, x, y);
	}
}

static struct job_opts kind_of(unsigned kind)
{
	struct job_opts o = job_defaults();

	o.run_s_x10 = 80;
	o.seed = 7 + kind;
	switch (kind % 6) {
	case 1:
		o.mix[JOB_DISK] = 0.7;
		break;
	case 2:
		o.workers = 3;
		o.factor[1] = 3;
		break;
	case 3:
		o.batch_ns /= 6; /* it keeps up */
		break;
	case 4:
		o.workers = 0;
		break;
	case 5:
		o.pin = true;
		break;
	}
	return o;
}

static void test_same_report(void **state)
{
	unsigned kind;

	(void)state;
	for (kind = 0; kind < 6; kind++) {
		struct job_opts o = kind_of(kind);
		char buf[160];
		const char *trouble;
		struct pieces p;
		struct st_case c;
		double slack;

		case_open(&c, &o, 0, 0);
		p = read_pieces(&c.j.s, pt_model_timelines(c.m) / 3);
		if (p.n < 3)
			fail_msg("job %u is in %zu pieces", kind, p.n);
		trouble = case_trouble(p.r, buf, sizeof(buf));
		if (trouble)
			fail_msg("job %u: %s", kind, trouble);
		same_steps(kind, c.r, p.r);
		same_workers(kind, c.r, p.r);
		same_verdicts(kind, c.r, p.r);
		/* a wait at each cut may lack what came long before it */
		slack = 1e-3 + 0.003 * (double)p.n * c.r->data_wait.blocked /
				       (double)c.r->steps.count;
		same_causes(kind, c.r, p.r, 1e-3 + (double)p.n *
			    c.r->breakdown.data_wait.seconds /
			    (double)c.r->steps.count);
		same("data wait", kind, c.r->breakdown.data_wait.seconds,
		     p.r->breakdown.data_wait.seconds, slack);
		same("data wait, by the job", kind,
		     (double)job_wait_ns(&c.j) / 1e9,
		     p.r->breakdown.data_wait.seconds,
		     1e-3 + 100e-6 * (double)c.r->steps.count);
		/* hard bounds of pieces hold, and are no better */
		assert_int_equal(p.r->n_gpu, c.r->n_gpu);
		assert_true(p.r->gpu[0].busy_hard[0] <=
			    c.r->gpu[0].busy_hard[0] + 1e-3);
		assert_true(p.r->gpu[0].busy_hard[1] >=
			    c.r->gpu[0].busy_hard[1] - 1e-3);
		same("kernels", kind, (double)c.r->gpu[0].kernels,
		     (double)p.r->gpu[0].kernels, 0);
		done(&p);
		case_close(&c);
	}
}

static int64_t launches(const struct pt_report *r)
{
	size_t i;

	for (i = 0; i < r->n_operations; i++)
		if (!strcmp(r->operations[i].kind, "api") &&
		    !strcmp(r->operations[i].name, "cudaLaunchKernel"))
			return r->operations[i].calls;
	fail_msg("no launches");
	return 0;
}

/* Calls whose records were lost count in one piece each, also where it begins or ends. */
static void test_lost_calls(void **state)
{
	struct pt_report *r, *whole;
	struct job_opts o = kind_of(0);
	struct pt_rec_missed *x;
	struct pieces p;
	struct st_case c;
	uint64_t begin, end, ts;
	unsigned n = 0;

	(void)state;
	case_open(&c, &o, 0, 0);
	begin = c.r->capture.begin_ns;
	end = c.r->capture.end_ns;
	for (ts = begin + 1; ts <= end; ts += (end - begin) / 997, n++) {
		x = &st_add(&c.j.s, PT_REC_MISSED, sizeof(*x), ts, 0, 0)->missed;
		x->what = st_api("cudaLaunchKernel");
		x->count = 11;
	}
	st_seal(&c.j.s);
	whole = c.r;
	pt_model_free(c.m);
	r = st_analyze(&c.j.s, &c.m);
	assert_true(n > 900);
	same("launches", 0, (double)launches(r), (double)launches(whole) + 11 * n, 0);
	p = read_pieces(&c.j.s, pt_model_timelines(c.m) / 3);
	assert_true(p.n >= 3);
	same("launches", 0, (double)launches(r), (double)launches(p.r), 0);
	done(&p);
	pt_report_free(whole);
	c.r = r;
	case_close(&c);
}

/* The pieces follow each other without a gap, from begin to end. */
static void test_no_gap(void **state)
{
	struct job_opts o = job_defaults();
	struct pieces p;
	struct st_case c;
	size_t i;

	(void)state;
	o.run_s_x10 = 80;
	case_open(&c, &o, 0, 0);
	p = read_pieces(&c.j.s, pt_model_timelines(c.m) / 3);
	assert_int_equal(p.r->windows[0].begin_ns, c.r->capture.begin_ns);
	for (i = 1; i < p.r->n_windows; i++)
		assert_int_equal(p.r->windows[i].begin_ns,
				 p.r->windows[i - 1].end_ns);
	assert_int_equal(p.r->windows[i - 1].end_ns, c.r->capture.end_ns);
	assert_int_equal(p.r->capture.begin_ns, c.r->capture.begin_ns);
	assert_int_equal(p.r->capture.end_ns, c.r->capture.end_ns);
	done(&p);
	case_close(&c);
}

/* However many processes look at them. */
static void test_at_once(void **state)
{
	struct job_opts o = kind_of(1);
	char *first = NULL, *other;
	struct pieces p;
	struct st_case c;
	int how;

	(void)state;
	case_open(&c, &o, 0, 0);
	for (how = ONE_AT_ONCE; how <= NO_PROCESS; how++) {
		p = read_so(&c.j.s, pt_model_timelines(c.m) / 5, (enum how)how);
		assert_true(p.n >= 5);
		other = case_json(p.r);
		if (first)
			assert_string_equal(first, other);
		else
			first = other;
		if (first != other)
			free(other);
		done(&p);
	}
	free(first);
	case_close(&c);
}

/* A piece is lost: what is left is of the end, and says so. */
static void test_lost(void **state)
{
	struct pt_analysis_opts a = { 0 };
	struct job_opts o = kind_of(0);
	struct pt_long l = { .at_once = 2 };
	struct pt_report *r = pt_report_new();
	struct pt_model *m = pt_model_new();
	struct st_case c;
	size_t i, told = 0;
	bool killed = false;

	(void)state;
	assert_true(m && r);
	case_open(&c, &o, 0, 0);
	for (i = 0; i < c.j.s.recs.n; i++) {
		const struct pt_hdr *h = &c.j.s.recs.v[i].r.hdr;

		pt_model_feed(m, h, h->size);
		if (i % 256 == 255)
			assert_int_equal(pt_long_spill(&l, m, &a,
						       pt_model_timelines(c.m) / 5), 0);
		if (!killed && l.rooms.n)
			killed = kill(l.rooms.v[0].pid, SIGKILL) == 0;
	}
	assert_true(killed);
	assert_int_equal(pt_model_finish(m), 0);
	assert_int_equal(pt_long_report(&l, m, &a, r), 0);
	assert_true(l.broken);
	for (i = 0; i < r->capture.n_limits; i++)
		told += strstr(r->capture.limits[i].reason, "a piece of it") != NULL;
	assert_int_equal(told, 1);
	assert_true(r->capture.duration > 0.5);
	assert_true(r->capture.begin_ns > c.r->capture.begin_ns);
	assert_int_equal(r->capture.end_ns, c.r->capture.end_ns);
	pt_report_free(r);
	pt_long_free(&l);
	pt_model_free(m);
	case_close(&c);
}

static void sit_in_read(struct pt_rec_off *off)
{
	off->syscall = NR_READ;
	off->obj_kind = PT_OBJ_FILE;
	off->object = JOB_FILE(1);
	off->dev = JOB_FILE_DEV;
	off->state = 2; /* uninterruptible */
	off->wake_ts = 0;
}

/* One that hangs, of a capture whose end mark lies before the last cut: nothing is
 * left behind the piece that found it. */
static void test_hung(void **state)
{
	struct pt_analysis_opts a = { 0 };
	struct pt_long l = { .ask_every = 2 };
	struct pt_report *r = pt_report_new();
	struct pt_model *m = pt_model_new();
	struct job_opts o = job_defaults();
	struct st_rec *end = NULL;
	struct job j;
	size_t i;

	(void)state;
	assert_true(m && r);
	o.run_s_x10 = 20;
	o.mix[JOB_DISK] = 0.3; /* it has slept before, too */
	job_run(&j, &o);
	for (i = 0; i < j.s.recs.n; i++)
		if (j.s.recs.v[i].r.hdr.kind == PT_REC_OFF &&
		    j.s.recs.v[i].r.hdr.tid == JOB_WORKER(1) &&
		    j.s.recs.v[i].r.hdr.ts >= JOB_BEGIN + 1000 * ST_S)
			break;
	assert_true(i < j.s.recs.n);
	sit_in_read(&j.s.recs.v[i].r.off);
	j.s.recs.v[i].r.hdr.ts = JOB_BEGIN + 9 * ST_S;
	sit_in_read(st_off(&j.s, JOB_WORKER(1), JOB_WORKER(1),
			   JOB_BEGIN + 9 * ST_S, ST_NEVER, ST_NEVER));
	job_window(&j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + 12 * ST_S);
	st_file(&j.s, JOB_BEGIN + 400 * ST_MS, JOB_FILE_DEV, JOB_FILE(1), "one",
		"data");
	for (i = 0; i < j.s.recs.n; i++) {
		struct st_rec *x = &j.s.recs.v[i];

		if (x->r.hdr.kind == PT_REC_MARK && x->r.mark.mark == PT_MARK_END)
			end = x;
		else
			pt_model_feed(m, &x->r, x->r.hdr.size);
	}
	assert_non_null(end);
	assert_int_equal(pt_long_spill(&l, m, &a, 0), 0);
	end->r.hdr.ts = JOB_BEGIN + 9500 * ST_MS;
	pt_model_feed(m, &end->r, end->r.hdr.size);
	assert_int_equal(pt_model_finish(m), 0);
	assert_int_equal(pt_long_report(&l, m, &a, r), 0);
	assert_int_equal(r->n_windows, 1);
	assert_string_equal(case_root(r), "hung_worker");
	assert_int_equal(r->verdicts[0].subject_pid, JOB_WORKER(1));
	assert_string_equal(r->verdicts[0].subject_file, "/data/one");
	pt_report_free(r);
	pt_long_free(&l);
	pt_model_free(m);
	job_free(&j);
}

#define SHELL 900
#define FIRST_PID 100000

/* Every thread of the processes of the workers ends. */
static void end_workers(struct job *j, unsigned workers, uint64_t ts)
{
	struct { uint32_t tgid, tid; } seen[64];
	size_t i, k, n = 0, recs = j->s.recs.n;

	for (i = 0; i < recs; i++) {
		const struct pt_hdr h = j->s.recs.v[i].r.hdr;

		for (k = 0; k < workers && JOB_WORKER(k) != h.tgid; k++)
			;
		if (k == workers)
			continue;
		for (k = 0; k < n && seen[k].tid != h.tid; k++)
			;
		if (k < n)
			continue;
		assert_true(n < 64);
		seen[n].tgid = h.tgid;
		seen[n++].tid = h.tid;
	}
	assert_true(n >= workers);
	for (i = 0; i < n; i++)
		st_exit(&j->s, ts, seen[i].tgid, seen[i].tid,
			seen[i].tid == seen[i].tgid);
}

/* Beside the job thousands of processes come and go, and at last its workers do. They
 * are folded, but for the workers, whom pieces point to. */
static void test_folded(void **state)
{
	struct job_opts o = kind_of(2);
	struct pt_model *m;
	struct pt_report *r;
	struct pieces p;
	struct job j;
	unsigned i;

	(void)state;
	o.run_s_x10 = 60;
	job_run(&j, &o);
	end_workers(&j, o.workers, JOB_BEGIN + 6200 * ST_MS);
	st_task(&j.s, JOB_BEGIN + 401 * ST_MS, SHELL, SHELL, 1, "sh");
	for (i = 0; i < 20000; i++) {
		uint64_t ts = JOB_BEGIN + 410 * ST_MS + i * 400 * ST_US;
		uint32_t pid = FIRST_PID + i % 15000;

		st_fork(&j.s, ts, SHELL, SHELL, pid, pid);
		j.s.recs.v[j.s.recs.n - 1].r.fork.child_start = i + 1;
		st_off(&j.s, pid, pid, ts + 20 * ST_US, ts + 30 * ST_US,
		       ts + 40 * ST_US)->hdr.start = i + 1;
		st_exit(&j.s, ts + 300 * ST_US, pid, pid, true);
		j.s.recs.v[j.s.recs.n - 1].r.hdr.start = i + 1;
	}
	job_window(&j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + 8500 * ST_MS);
	r = st_analyze(&j.s, &m);
	p = read_pieces(&j.s, pt_model_timelines(m) / 8);
	assert_true(p.n >= 5);
	assert_true(p.m->gone.procs > 8000);
	assert_int_equal(p.m->gone.procs + p.m->all_procs.n, m->all_procs.n);
	for (i = 0; i < o.workers; i++)
		assert_non_null(pt_model_proc(p.m, JOB_WORKER(i)));
	same_steps(99, r, p.r);
	/* the last batch of one may lie where a piece ends */
	same("workers", 99, (double)r->n_workers, (double)p.r->n_workers, 0);
	for (i = 0; i < r->n_workers; i++) {
		same("worker", 99, r->workers[i].tid, p.r->workers[i].tid, 0);
		same("batches", 99, (double)r->workers[i].batches,
		     (double)p.r->workers[i].batches, 1);
		assert_int_equal(p.r->workers[i].state, PT_WORKER_EXITED);
	}
	pt_report_free(r);
	pt_model_free(m);
	done(&p);
	job_free(&j);
}

static void test_join_distributions(void **state)
{
	double v[] = { 1, 2, 3, 4, 10, 20, 30 }, w[7];
	struct pt_dist all, a = { 0 }, b, first;

	(void)state;
	memcpy(w, v, sizeof(v));
	pt_dist_of(w, 7, &all);
	pt_dist_join(&a, &(struct pt_dist){ 0 });
	assert_int_equal(a.n, 0);
	memcpy(w, v, sizeof(v));
	pt_dist_of(w, 4, &b);
	pt_dist_join(&a, &b);
	first = b;
	pt_dist_of(w + 4, 3, &b);
	pt_dist_join(&a, &b);
	assert_int_equal(a.n, 7);
	assert_true(fabs(a.mean - all.mean) < 1e-9);
	assert_true(fabs(a.std - all.std) < 1e-9);
	assert_true(fabs(a.min - all.min) < 1e-9);
	assert_true(fabs(a.max - all.max) < 1e-9);
	/* of theirs the mean, by how many there are */
	assert_true(fabs(a.p50 - (4 * first.p50 + 3 * b.p50) / 7) < 1e-9);
	assert_true(fabs(a.p95 - (4 * first.p95 + 3 * b.p95) / 7) < 1e-9);
	assert_true(fabs(a.p99 - (4 * first.p99 + 3 * b.p99) / 7) < 1e-9);
}

/* ---- the join by itself ------------------------------------------------------- */

#define PARTS 60

/* A part of nothing but rows. */
struct made {
	struct pt_part p;
	struct pt_part_head head;
	struct pt_trainer t;
	struct pt_measured got;
	struct pt_r_file files[PT_PART_FILES];
	char path[PT_PART_FILES][32];
};

static void make_part(struct made *d, struct pt_proc *proc, struct pt_report *rows,
		      struct pt_report *empty, unsigned k)
{
	unsigned i;

	*d = (struct made){ .head.end = (k + 1) * ST_S, .t.proc = proc,
			    .got.rows = empty,
			    .p = { .t0 = k * ST_S, .t1 = (k + 1) * ST_S, .n = 1 } };
	d->p.head = &d->head;
	d->p.t = &d->t;
	d->p.got = &d->got;
	d->p.r = rows;
	rows->files = d->files;
	rows->n_files = PT_PART_FILES;
	for (i = 0; i < PT_PART_FILES; i++) {
		struct pt_charge c = { .ns = i ? 1 : 1000, .cause = PT_CAUSE_DISK, .tid = 7,
				       .inode = i ? 1 + k * PT_PART_FILES + i : 1 };

		pt_row_null(pt_row_find("file"), &d->files[i]);
		snprintf(d->path[i], sizeof(d->path[i]), "/data/%u", (unsigned)c.inode);
		d->files[i].path = d->path[i];
		d->files[i].inode = c.inode;
		d->files[i].reads = 1;
		d->files[i].bytes = 4096;
		d->files[i].blocked_s = i ? 0.001 : 0.5;
		assert_int_equal(pt_add_charge(&d->t.charges, &c), 0);
		d->t.cause_ns[PT_CAUSE_DISK] += c.ns;
	}
}

/* Each part has other files, but one that is in all: what is held does not grow with
 * their number, the one has all of it, and so have the sums. */
static void test_bounded(void **state)
{
	struct pt_proc proc = { .tgid = 5 };
	struct pt_report *rows = pt_report_new(), *empty = pt_report_new();
	struct pt_join *j = pt_join_new();
	struct pt_join_file *f, *most = NULL;
	struct made *d = calloc(1, sizeof(*d));
	uint64_t asked = 0, hot = 0;
	unsigned k;
	size_t i;

	(void)state;
	assert_true(rows && empty && j && d);
	for (k = 0; k < PARTS; k++) {
		make_part(d, &proc, rows, empty, k);
		assert_int_equal(pt_join_add(j, &d->p), 0);
		pt_vec_free(&d->t.charges);
		memset(d, 0xff, sizeof(*d)); /* nothing points into a part any more */
		assert_true(HASH_COUNT(j->host.files) <= 2 * PT_JOIN_FILES);
		assert_true(j->t.v[0].charges.n <= 2 * PT_JOIN_CHARGES);
	}
	assert_true(j->host.files_dropped);
	for (i = 0; i < j->t.v[0].charges.n; i++) {
		const struct pt_charge *c = &j->t.v[0].charges.v[i];

		asked += c->ns;
		hot += c->inode == 1 ? c->ns : 0;
	}
	assert_int_equal(asked, PARTS * (1000 + PT_PART_FILES - 1));
	assert_int_equal(asked, j->t.v[0].cause_ns[PT_CAUSE_DISK]);
	assert_int_equal(hot, PARTS * 1000);
	for (f = j->host.files; f; f = f->hh.next)
		if (!most || f->f.blocked_s > most->f.blocked_s)
			most = f;
	assert_string_equal(most->f.path, "/data/1");
	assert_int_equal(most->f.reads, PARTS);
	assert_int_equal(most->f.bytes, PARTS * 4096);
	pt_report_free(rows);
	pt_report_free(empty);
	pt_join_free(j);
	free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_report),
		cmocka_unit_test(test_lost_calls),
		cmocka_unit_test(test_no_gap),
		cmocka_unit_test(test_at_once),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_hung),
		cmocka_unit_test(test_folded),
		cmocka_unit_test(test_join_distributions),
		cmocka_unit_test(test_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
