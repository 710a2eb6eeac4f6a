/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a target can make up by the million: names of files, processes, threads, names of
 * kernels and ranges, connections. However many there are, what the model holds stays
 * within what it may, it knows how much that is, its sums are exact, and the newest part
 * is there.
 *
 * PT_FLOOD=16 makes sixteen times as many (2 million names, 800,000 processes).
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/analysis.h"
#include "analysis/parts/part.h"
#include "cmd/pieces.h"
#include "model/names.h"
#include "model/socks.h"
#include "model/timeline.h"
#include "stream.h"

#define MAX (32ull << 20)
#define SHELL 10 /* the process that does it */
#define DEV 0x800001

#ifdef __SANITIZE_ADDRESS__
/* It counts what was asked for, without what an allocator adds. */
size_t __sanitizer_get_current_allocated_bytes(void);
#define SLACK 0.25
static uint64_t heap(void)
{
	return __sanitizer_get_current_allocated_bytes();
}
#else
#define SLACK 0.15
static uint64_t heap(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}
#endif

struct flood {
	struct pt_model *m;
	struct stream s;
	uint64_t before, most; /* bytes on the heap */
	uint64_t ts;
	uint32_t seq;	 /* of the shell */
	unsigned trimmed;
	double off; /* what the model says is so much off, at most */
};

static uint64_t times(uint64_t n)
{
	const char *s = getenv("PT_FLOOD");

	return n * (s ? strtoul(s, NULL, 10) : 1);
}

static struct flood begin(void)
{
	struct flood f = { .before = heap(), .ts = 1000 * ST_S };

	f.m = pt_model_new();
	assert_non_null(f.m);
	return f;
}

/* The one record that was made last. */
static void feed(struct flood *f, uint32_t *seq)
{
	struct pt_hdr *h = &f->s.recs.v[0].r.hdr;

	assert_int_equal(f->s.recs.n, 1);
	h->seq = (*seq)++;
	assert_int_equal(pt_model_feed(f->m, h, h->size), 0);
	f->s.recs.n = 0;
}

static void start(struct flood *f)
{
	st_mark(&f->s, f->ts, PT_MARK_BEGIN);
	feed(f, &f->seq);
	st_task(&f->s, f->ts, SHELL, SHELL, 1, "shell");
	f->seq = 0;
	feed(f, &f->seq);
	f->seq = 0;
}

static uint64_t held(const struct flood *f)
{
	return heap() - f->before - f->s.recs.cap * sizeof(*f->s.recs.v);
}

/* As the live trace does once a second. */
static void tick(struct flood *f)
{
	uint64_t bytes, real;
	double off;

	f->trimmed += pt_model_bytes(f->m) > MAX;
	assert_int_equal(pt_model_trim(f->m, MAX), 0);
	bytes = pt_model_bytes(f->m);
	real = held(f);
	f->most = real > f->most ? real : f->most;
	off = (double)bytes / (double)real - 1;
	off = off < 0 ? -off : off;
	if (real > MAX / 8 && off > f->off)
		f->off = off;
	if (real > MAX + MAX / 4)
		fail_msg("%.1f MiB are held, %.1f are allowed; the model says %.1f",
			 (double)real / (1 << 20), (double)MAX / (1 << 20),
			 (double)bytes / (1 << 20));
	if (f->off > SLACK)
		fail_msg("the model says %.1f MiB, and it is %.1f",
			 (double)bytes / (1 << 20), (double)real / (1 << 20));
}

static void done(struct flood *f, const char *what)
{
	printf("%s: %.1f MiB at most, told to %.1f %%, %u times too much; %.0f s of %.0f are there\n",
	       what, (double)f->most / (1 << 20), 100 * f->off, f->trimmed,
	       (double)(f->m->last_ts - f->m->begin) / 1e9,
	       (double)(f->m->last_ts - f->m->begin + f->m->trimmed_ns) / 1e9);
	assert_true(f->trimmed > 0);
	pt_model_free(f->m);
	f->m = NULL;
	st_free(&f->s);
	assert_true(heap() - f->before < 1 << 20);
}

/* The report that is made of what is left says what became of the rest. */
static char *report_of(struct flood *f)
{
	struct pt_analysis_opts o = { 0 };
	struct pt_report *r = pt_report_new();
	char *all = calloc(1, 1 << 16);
	size_t i;

	assert_true(r && all);
	assert_int_equal(pt_model_finish(f->m), 0);
	assert_int_equal(pt_analyze(f->m, &o, r), 0);
	for (i = 0; i < r->capture.n_limits; i++)
		strncat(all, r->capture.limits[i].reason, 1024);
	pt_report_free(r);
	return all;
}

/* ---- names of files -------------------------------------------------------------- */

#define FILES 100000

static void name_of(char name[64], uint64_t inode)
{
	snprintf(name, 64, "sample-%08llu.jpg", (unsigned long long)inode);
}

/* Opens of 100,000 files in no order; the kernel's side forgets which it has named. */
static void test_names(void **state)
{
	uint64_t n = times(125000), i, inode, seed = 1, bytes = 0, kept, k;
	struct flood f = begin();
	const struct pt_thread *t;
	char name[64], path[96];
	char *said;

	(void)state;
	start(&f);
	for (i = 0; i < n; i++) {
		f.ts += ST_S / 36000;
		inode = 1 + st_rand(&seed) % FILES;
		name_of(name, inode);
		st_file(&f.s, f.ts, DEV, inode, name, "data");
		f.s.recs.v[0].r.hdr.tid = f.s.recs.v[0].r.hdr.tgid = SHELL;
		f.s.recs.v[0].r.hdr.start = SHELL + 1;
		feed(&f, &f.seq);
		for (k = 0; k < 4; k++) { /* more of them, so that it is too much soon */
			st_read(&f.s, SHELL, SHELL, f.ts, f.ts + 1000, DEV, inode, 100 + (int64_t)k);
			bytes += 100 + k;
			feed(&f, &f.seq);
		}
		if (i % 18000 == 17999)
			tick(&f);
	}
	t = pt_model_thread(f.m, SHELL);
	assert_int_equal(t->lost, 0);
	assert_int_equal(f.m->gone.reads + t->reads.n, 4 * n);
	kept = 0;
	for (i = 0; i < t->reads.n; i++) {
		const struct pt_read *r = &t->reads.v[i];
		const struct pt_file *file = pt_model_file(f.m, r->dev, r->inode);

		kept += (uint64_t)r->ret;
		name_of(name, r->inode);
		snprintf(path, sizeof(path), "/data/%s", name);
		assert_non_null(file);
		assert_string_equal(file->path, path);
	}
	assert_int_equal(f.m->gone.bytes + kept, bytes);
	assert_true(t->reads.n > 50000);
	said = report_of(&f);
	assert_non_null(strstr(said, "dropped to save memory"));
	free(said);
	done(&f, "names of files");
}

/* Files that are met and never read: nothing of them is on a timeline. One of them has
 * another name each time. */
static void test_names_alone(void **state)
{
	uint64_t n = times(125000), i, inode = 1;
	struct flood f = begin();
	const struct pt_file *file;
	char name[300];

	(void)state;
	start(&f);
	for (i = 0; i < n; i++) {
		f.ts += ST_S / 36000;
		inode = i % 2 ? 7 : 1000 + i;
		memset(name, 'x', 100);
		snprintf(name + 100, sizeof(name) - 100, "-%08llu",
			 (unsigned long long)(inode == 7 ? i % 1000 : i));
		st_file(&f.s, f.ts, DEV, inode, name, "tmp");
		f.s.recs.v[0].r.hdr.tid = f.s.recs.v[0].r.hdr.tgid = SHELL;
		f.s.recs.v[0].r.hdr.start = SHELL + 1;
		feed(&f, &f.seq);
		if (i % 18000 == 17999)
			tick(&f);
	}
	assert_true(f.m->gone.names > 0);
	assert_int_equal(pt_model_finish(f.m), 0);
	file = pt_model_file(f.m, DEV, 1000 + n - 2);
	assert_non_null(file);
	assert_non_null(strstr(file->path, "/tmp/xxxx"));
	done(&f, "names of files that are not read");
}

/* A known name takes nothing. */
static void test_known_name(void **state)
{
	struct flood f = begin();
	uint64_t bytes = 0, real = 0;
	unsigned i;

	(void)state;
	start(&f);
	for (i = 0; i < 1000; i++) {
		f.ts += ST_MS;
		st_file(&f.s, f.ts, DEV, 1 + i % 10, "one", "two");
		feed(&f, &(uint32_t){ 0 });
		if (i == 10) {
			bytes = pt_model_bytes(f.m);
			real = held(&f);
		}
	}
	assert_int_equal(pt_model_bytes(f.m), bytes);
	assert_int_equal(held(&f), real);
	pt_model_free(f.m);
	st_free(&f.s);
}

/* ---- processes ----------------------------------------------------------------- */

#define RUN_NS 150000

/* A process that ends at once, each 200 us; `ids`: how many numbers the kernel has. */
static void forks(uint64_t ids, const char *what)
{
	uint64_t n = times(50000), i, run = 0, own = 0, offs = 0, procs = 0;
	struct flood f = begin();
	const struct pt_thread *t;
	char *said;

	start(&f);
	for (i = 0; i < n; i++) {
		uint32_t pid = (uint32_t)(1000 + i % ids), seq = 0;
		struct pt_rec_off *off;

		f.ts += ST_S / 5000;
		st_fork(&f.s, f.ts, SHELL, SHELL, pid, pid);
		f.s.recs.v[0].r.fork.child_start = (uint32_t)(i + 1);
		feed(&f, &f.seq);
		off = st_off(&f.s, pid, pid, f.ts + 10 * ST_US, f.ts + 20 * ST_US,
			     f.ts + 30 * ST_US);
		off->hdr.start = (uint32_t)(i + 1);
		feed(&f, &seq);
		st_exit(&f.s, f.ts + 180 * ST_US, pid, pid, true);
		f.s.recs.v[0].r.hdr.start = (uint32_t)(i + 1);
		f.s.recs.v[0].r.exit.tot.run_ns = RUN_NS;
		feed(&f, &seq);
		own += 100000;
		off = st_off(&f.s, SHELL, SHELL, f.ts + 100 * ST_US,
			     f.ts + 150 * ST_US, f.ts + 190 * ST_US);
		off->tot.run_ns = own;
		feed(&f, &f.seq);
		if (i % 5000 == 4999)
			tick(&f);
	}
	for (i = 0; i < f.m->all_threads.n; i++) {
		t = f.m->all_threads.v[i];
		run += t->t1.run_ns - t->t0.run_ns;
		assert_ptr_equal(pt_model_thread(f.m, t->tid), t);
		assert_true(!t->parent || t->parent->tid == SHELL);
		if (t->tid == SHELL)
			offs = t->iv.n;
		assert_int_equal(t->lost, 0);
	}
	for (i = 0; i < f.m->all_procs.n; i++)
		procs += f.m->all_procs.v[i]->died > f.m->begin;
	assert_int_equal(f.m->gone.threads + f.m->all_threads.n, n + 1);
	assert_int_equal(f.m->gone.procs + f.m->all_procs.n, n + 1);
	assert_int_equal(f.m->gone.run_ns + run, n * RUN_NS + own - 100000);
	assert_int_equal(pt_model_missing(f.m), 0);
	/* the newest part: each process of it, each wait of the shell */
	assert_true(offs > 1000);
	assert_true(procs >= offs - 1 && procs <= offs + 1);
	said = report_of(&f);
	assert_non_null(strstr(said, "threads that had ended are not listed"));
	free(said);
	done(&f, what);
}

static void test_forks(void **state)
{
	(void)state;
	forks(4000000, "processes");
}

/* The kernel hands their numbers out again. */
static void test_forks_again(void **state)
{
	(void)state;
	forks(30000, "processes, numbers used again");
}

/* Threads of a process that goes on, made by one that goes on. */
static void test_threads(void **state)
{
	uint64_t n = times(50000), i;
	struct flood f = begin();
	const struct pt_proc *p;

	(void)state;
	start(&f);
	for (i = 0; i < n; i++) {
		uint32_t tid = (uint32_t)(1000 + i % 4000000), seq = 0;

		f.ts += ST_S / 5000;
		st_fork(&f.s, f.ts, SHELL, SHELL, SHELL, tid);
		feed(&f, &f.seq);
		st_off(&f.s, SHELL, tid, f.ts + 10 * ST_US, f.ts + 20 * ST_US,
		       f.ts + 30 * ST_US);
		feed(&f, &seq);
		st_exit(&f.s, f.ts + 180 * ST_US, SHELL, tid, false);
		feed(&f, &seq);
		if (i % 5000 == 4999)
			tick(&f);
	}
	p = pt_model_proc(f.m, SHELL);
	assert_non_null(p);
	assert_int_equal(p->threads.n, f.m->all_threads.n);
	assert_int_equal(p->threads.v[0]->tid, SHELL);
	assert_int_equal(f.m->gone.threads + p->threads.n, n + 1);
	assert_int_equal(f.m->gone.procs, 0);
	done(&f, "threads");
}

/* 100,000 that live: they cannot go, and the timeline is not what pays for them. */
static void test_living(void **state)
{
	struct flood f = begin();
	uint64_t i, span, least = UINT64_MAX;

	(void)state;
	start(&f);
	for (i = 0; i < 100000; i++) {
		f.ts += 10 * ST_US;
		st_fork(&f.s, f.ts, SHELL, SHELL, (uint32_t)(1000 + i),
			(uint32_t)(1000 + i));
		feed(&f, &f.seq);
	}
	assert_true(pt_model_bytes(f.m) > MAX);
	for (i = 0; i < 300000; i++) {
		f.ts += 100 * ST_US;
		st_off(&f.s, SHELL, SHELL, f.ts, f.ts + 50 * ST_US, f.ts + 60 * ST_US);
		feed(&f, &f.seq);
		if (i % 10000 != 9999)
			continue;
		assert_int_equal(pt_model_trim(f.m, MAX), 0);
		span = f.m->last_ts - f.m->begin;
		least = i > 100000 && span < least ? span : least;
	}
	assert_int_equal(f.m->all_procs.n, 100001);
	assert_true(least > 2 * ST_S); /* 20,000 waits and more */
	pt_model_free(f.m);
	st_free(&f.s);
}

/* ---- names of kernels and ranges ------------------------------------------------- */

static void test_kernels(void **state)
{
	uint64_t n = times(125000), i, acts = 0;
	struct flood f = begin();
	const struct pt_proc *p;

	(void)state;
	start(&f);
	for (i = 0; i < n; i++) {
		struct pt_rec_name *r = &st_add(&f.s, PT_REC_NAME, sizeof(*r),
						f.ts, SHELL, SHELL)->name;
		struct pt_rec_nvtx *x;

		f.ts += 20 * ST_US;
		r->key = i + 1;
		r->space = PT_NAME_ACT;
		memset(r->name, 'k', 150);
		snprintf(r->name + 150, sizeof(r->name) - 150, "_%llu",
			 (unsigned long long)i);
		feed(&f, &(uint32_t){ 0 });
		if (i % 4 == 0) {
			struct pt_rec_act *a = &st_add(&f.s, PT_REC_ACT, sizeof(*a),
						       f.ts, SHELL, SHELL)->act;

			a->what = PT_ACT_KERNEL;
			a->begin = f.ts - 10 * ST_US;
			a->end = f.ts;
			a->name = i + 1;
			feed(&f, &(uint32_t){ 0 });
		}
		x = &st_add(&f.s, PT_REC_NVTX, sizeof(*x), f.ts, SHELL, SHELL)->nvtx;
		x->op = i % 2 ? PT_NVTX_POP : PT_NVTX_PUSH;
		if (!(i % 2))
			snprintf(x->text, sizeof(x->text), "range %llu",
				 (unsigned long long)i % 100);
		feed(&f, &f.seq);
		if (i % 25000 == 24999)
			tick(&f);
	}
	p = pt_model_proc(f.m, SHELL);
	for (i = 0; i < p->acts.n; i++) {
		char end[32];
		const char *name = pt_act_name(f.m, p, p->acts.v[i].name);

		snprintf(end, sizeof(end), "k_%llu",
			 (unsigned long long)p->acts.v[i].name - 1);
		assert_non_null(name);
		assert_string_equal(name + 149, end);
		acts++;
	}
	assert_true(acts > 5000);
	assert_true(f.m->gone.names > 0);
	assert_true(p->nvtx.n > 100 && p->nvtx.v[p->nvtx.n - 2].text);
	done(&f, "names of kernels and ranges");
}

/* ---- connections ------------------------------------------------------------------- */

static void test_socks(void **state)
{
	uint64_t n = times(100000), i;
	struct flood f = begin();
	const struct pt_sock *s;

	(void)state;
	start(&f);
	for (i = 0; i < n; i++) {
		struct pt_rec_sock *r = &st_add(&f.s, PT_REC_SOCK, sizeof(*r),
						f.ts, SHELL, SHELL)->sock;

		f.ts += 100 * ST_US;
		r->hdr.ts = f.ts;
		r->inode = 5000 + i;
		r->family = PT_AF_INET;
		r->protocol = PT_IPPROTO_TCP;
		r->local[0] = r->remote[0] = 127;
		r->remote[1] = (uint8_t)(i >> 24);
		r->remote[2] = (uint8_t)(i >> 16);
		r->remote[3] = 1;
		r->local_port = 80;
		r->remote_port = (uint16_t)i;
		r->state = i % 3 ? 7 : 1; /* some are left open */
		r->received = 100;
		feed(&f, &(uint32_t){ 0 });
		if (i % 10000 == 9999)
			tick(&f);
	}
	s = pt_model_sock(f.m, 5000 + n - 1, f.ts);
	assert_non_null(s);
	assert_non_null(s->peer);
	done(&f, "connections");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_name),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_names_alone),
		cmocka_unit_test(test_forks),
		cmocka_unit_test(test_forks_again),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_living),
		cmocka_unit_test(test_kernels),
		cmocka_unit_test(test_socks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
