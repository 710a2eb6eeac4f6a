/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `pipetrace watch` catches: its conditions as they are typed, the trigger on steps
 * made by hand, and a simulated job with planted stalls, fed as a capture would.
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/watch/watch.h"
#include "cmd/keep.h"
#include "stream_job.h"

#define BEGIN (1000 * ST_S)
#define STEP (30 * ST_MS)
#define PID 42u

/* ---- conditions ------------------------------------------------------------------ */

static void test_parse(void **state)
{
	static const struct {
		const char *text;
		struct pt_when is;
	} good[] = {
		{ "step > 3x median", { PT_WHEN_STEP, PT_WHEN_MEDIANS, 3 } },
		{ "  step>1.5x  median ", { PT_WHEN_STEP, PT_WHEN_MEDIANS, 1.5 } },
		{ "step > 500ms", { PT_WHEN_STEP, PT_WHEN_NS, 500e6 } },
		{ "step > 2m", { PT_WHEN_STEP, PT_WHEN_NS, 120e9 } },
		{ "wait > 20%", { PT_WHEN_WAIT, PT_WHEN_SHARE, 0.2 } },
		{ "wait > 2s", { PT_WHEN_WAIT, PT_WHEN_NS, 2e9 } },
		{ "worker  silent > 10s", { PT_WHEN_WORKER, PT_WHEN_NS, 10e9 } },
		{ "rank late>0.5s", { PT_WHEN_RANK, PT_WHEN_NS, 500e6 } },
	};
	static const char *const bad[] = {
		"", ">", "step", "step > ", "> 3s", "step > 3", "step >> 3s", "step < 3s",
		"step > 3x", "step > 0.5x median", "step > x median", "step > 20%",
		"step > 3x mean", "step > -1s", "step > 0s", "step > 100us", "step > 1e3s",
		"steps > 3s", "wait > 3x median", "wait > 0%", "wait > 100%",
		"wait > 120%", "worker > 10s", "worker silent > 10%", "rank > 1s",
		"rank late > 2x median", "loss > 3s", "step > 3s and wait > 2s",
		"step > 1000h", "a condition that is far too long for any of them > 3s",
		"step > 33333333333333333333333333333333333333333s",
	};
	struct pt_when w;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(*good); i++) {
		if (pt_parse_when(good[i].text, &w))
			fail_msg("%s is refused", good[i].text);
		assert_int_equal(w.of, good[i].is.of);
		assert_int_equal(w.unit, good[i].is.unit);
		assert_true(w.limit == good[i].is.limit);
	}
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (!pt_parse_when(bad[i], &w))
			fail_msg("%s is taken", bad[i]);
}

/* ---- the trigger ------------------------------------------------------------------- */

#define STEPS_MAX 2000

struct made {
	struct pt_seen_step step[STEPS_MAX]; /* one behind the other */
	size_t n;
	struct pt_trigger *g;
	struct pt_event event;
	uint64_t now;
};

static void begin(struct made *j, const struct pt_when *when, size_t n)
{
	const struct pt_trigger_opts o = { .when = when, .n = n, .warmup = 20,
					   .cooldown_ns = 60 * ST_S };

	memset(j, 0, sizeof(*j));
	j->g = pt_trigger_new(&o);
	assert_non_null(j->g);
	j->now = BEGIN;
}

static void add(struct made *j, size_t n, uint64_t ns, uint64_t wait_ns)
{
	uint64_t at = j->n ? j->step[j->n - 1].end : BEGIN;

	for (; n; n--, at += ns) {
		assert_true(j->n < STEPS_MAX);
		j->step[j->n++] = (struct pt_seen_step){ at, at + ns, wait_ns, false };
	}
}

/* What a look to `until` sees of them. */
static int see_to(struct made *j, uint64_t until)
{
	static struct pt_seen_step in[STEPS_MAX];
	struct pt_seen_trainer t = { .pid = PID, .step = in };
	struct pt_seen s = { .from = pt_trigger_from(j->g, until), .until = until,
			     .t = &t, .n = 1 };
	size_t i;

	for (i = 0; i < j->n; i++) {
		if (j->step[i].end <= s.from || j->step[i].begin >= until)
			continue;
		in[t.n] = j->step[i];
		in[t.n].partial = in[t.n].begin < s.from;
		if (in[t.n].partial)
			in[t.n].begin = s.from;
		t.n++;
	}
	if (t.n)
		in[t.n - 1].end = until;
	j->now = until;
	return pt_trigger_see(j->g, &s, &j->event);
}

/* One look a second until then; how many events. */
static unsigned see(struct made *j, uint64_t until)
{
	unsigned n = 0;
	int ret;

	while (j->now + ST_S <= until) {
		ret = see_to(j, j->now + ST_S);
		assert_true(ret >= 0);
		n += (unsigned)ret;
	}
	return n;
}

static void test_median(void **state)
{
	const struct pt_when w = { PT_WHEN_STEP, PT_WHEN_MEDIANS, 3 };
	struct pt_trigger_state s;
	struct made j;

	(void)state;
	begin(&j, &w, 1);
	add(&j, 10, STEP, 0);
	add(&j, 1, 2 * ST_S, 0); /* within the warm-up */
	add(&j, 300, STEP, 0);
	assert_int_equal(see(&j, BEGIN + 11 * ST_S), 0);
	add(&j, 1, 240 * ST_MS, 0); /* eight times as long, but short */
	add(&j, 50, STEP, 0);
	add(&j, 1, 2 * ST_S, 0);
	add(&j, 200, STEP, 0);
	assert_int_equal(see(&j, BEGIN + 20 * ST_S), 1);
	assert_int_equal(j.event.pid, PID);
	assert_int_equal(j.event.begin, j.step[362].begin);
	assert_int_equal(j.event.usual_ns, STEP);
	assert_ptr_equal(j.event.when, &w);
	/* within the cool-down, then behind it */
	add(&j, 1, 2 * ST_S, 0);
	add(&j, 100, STEP, 0);
	assert_int_equal(see(&j, BEGIN + 25 * ST_S), 0);
	pt_trigger_state(j.g, &s);
	assert_int_equal(s.untold, 1);
	assert_int_equal(s.usual_ns, STEP);
	pt_trigger_free(j.g);
}

/* It is told while it runs, and not again when it has ended. */
static void test_running(void **state)
{
	const struct pt_when w = { PT_WHEN_STEP, PT_WHEN_NS, 3e9 };
	struct pt_trigger_state s;
	struct made j;

	(void)state;
	begin(&j, &w, 1);
	add(&j, 200, STEP, 0);
	add(&j, 1, 3600 * ST_S, 0);
	assert_int_equal(see(&j, BEGIN + 9 * ST_S), 0);
	assert_int_equal(see(&j, BEGIN + 10 * ST_S), 1);
	assert_true(j.event.running);
	assert_int_equal(j.event.begin, BEGIN + 200 * STEP);
	assert_int_equal(see(&j, BEGIN + 1000 * ST_S), 0);
	assert_true(pt_trigger_last(j.g)->running && pt_trigger_last(j.g)->value > 990e9);
	add(&j, 400, STEP, 0);
	assert_int_equal(see(&j, BEGIN + 3610 * ST_S), 0);
	assert_int_equal(pt_trigger_last(j.g)->begin, BEGIN + 200 * STEP);
	assert_true(pt_trigger_last(j.g)->value >= 3599e9);
	pt_trigger_state(j.g, &s);
	assert_int_equal(s.untold, 0);
	/* and the next one is a new one */
	add(&j, 1, 4 * ST_S, 0);
	add(&j, 60, STEP, 0);
	assert_int_equal(see(&j, BEGIN + 3624 * ST_S), 1);
	pt_trigger_free(j.g);
}

/* A hiccup does not hide a stall behind it, nor one that outlasts the cool-down. */
static void test_hiccup(void **state)
{
	const struct pt_when w = { PT_WHEN_STEP, PT_WHEN_NS, 3e8 };
	struct pt_trigger_state s;
	struct made j;

	(void)state;
	begin(&j, &w, 1);
	add(&j, 200, STEP, 0);
	add(&j, 1, 400 * ST_MS, 0);
	add(&j, 60, STEP, 0);
	add(&j, 1, 500 * ST_MS, 0); /* not told */
	add(&j, 60, STEP, 0);
	add(&j, 1, 3 * ST_S, 0);
	add(&j, 200, STEP, 0);
	assert_int_equal(see(&j, BEGIN + 9 * ST_S), 1);
	assert_int_equal(see(&j, BEGIN + 18 * ST_S), 1);
	assert_int_equal(j.event.begin, j.step[322].begin);
	pt_trigger_state(j.g, &s);
	assert_int_equal(s.untold, 2); /* the second is at first no more than the first */
	add(&j, 1, 100 * ST_S, 0);
	assert_int_equal(see(&j, BEGIN + 25 * ST_S), 0);
	assert_int_equal(see(&j, BEGIN + 120 * ST_S), 1);
	assert_int_equal(j.event.begin, j.step[523].begin);
	pt_trigger_free(j.g);
}

/* A process that has ended runs no step. */
static void test_gone(void **state)
{
	const struct pt_when w = { PT_WHEN_STEP, PT_WHEN_MEDIANS, 3 };
	const uint32_t gone = PID;
	struct pt_seen s = { .from = BEGIN + 12 * ST_S, .until = BEGIN + 20 * ST_S,
			     .gone = &gone, .n_gone = 1 };
	struct made j;

	(void)state;
	begin(&j, &w, 1);
	add(&j, 300, STEP, 0);
	assert_int_equal(see(&j, BEGIN + 8 * ST_S), 0);
	assert_int_equal(pt_trigger_see(j.g, &s, &j.event), 0);
	s.until += 100 * ST_S;
	s.n_gone = 0; /* nor one that nothing is known of */
	assert_int_equal(pt_trigger_see(j.g, &s, &j.event), 0);
	pt_trigger_free(j.g);
}

/* A phase of steps that are found twice as long, or a slower one of the job, is no step
 * that steps out. */
static void test_phase(void **state)
{
	const struct pt_when w = { PT_WHEN_STEP, PT_WHEN_MEDIANS, 3 };
	struct made j;

	(void)state;
	begin(&j, &w, 1);
	add(&j, 30, 200 * ST_MS, 0);
	assert_int_equal(see(&j, BEGIN + 5 * ST_S), 0);
	add(&j, 40, 500 * ST_MS, 0);
	assert_int_equal(see(&j, BEGIN + 24 * ST_S), 0);
	pt_trigger_free(j.g);
}

/* Every eighth step waits for the loader: that is usual, and three times that is not. */
static void test_bursts(void **state)
{
	const struct pt_when w = { PT_WHEN_STEP, PT_WHEN_MEDIANS, 3 };
	struct made j;
	unsigned i;

	(void)state;
	begin(&j, &w, 1);
	for (i = 0; i < 40; i++) {
		add(&j, 7, STEP, 0);
		add(&j, 1, (800 + i * 37 % 400) * ST_MS, 0);
	}
	assert_int_equal(see(&j, BEGIN + 46 * ST_S), 0);
	add(&j, 7, STEP, 0);
	add(&j, 1, 4 * ST_S, 0);
	add(&j, 300, STEP, 0);
	assert_int_equal(see(&j, BEGIN + 57 * ST_S), 1);
	assert_true(j.event.value >= 2e9);
	pt_trigger_free(j.g);
}

static void test_waits(void **state)
{
	const struct pt_when w[] = { { PT_WHEN_WAIT, PT_WHEN_SHARE, 0.2 },
				     { PT_WHEN_WAIT, PT_WHEN_NS, 1e9 } };
	struct made j;

	(void)state;
	begin(&j, w, 2);
	add(&j, 100, 100 * ST_MS, 5 * ST_MS);
	add(&j, 100, 100 * ST_MS, 10 * ST_MS);
	add(&j, 200, 100 * ST_MS, 50 * ST_MS); /* for 20 s: told once */
	assert_int_equal(see(&j, BEGIN + 20 * ST_S), 0);
	assert_int_equal(see(&j, BEGIN + 39 * ST_S), 1);
	assert_ptr_equal(j.event.when, &w[0]);
	assert_true(j.event.value > 0.2 && j.event.value <= 0.5);
	add(&j, 400, 100 * ST_MS, 5 * ST_MS);
	add(&j, 1, 1500 * ST_MS, 1200 * ST_MS);
	add(&j, 20, 100 * ST_MS, 5 * ST_MS);
	assert_int_equal(see(&j, BEGIN + 79 * ST_S), 0);
	add(&j, 300, 100 * ST_MS, 5 * ST_MS);
	assert_int_equal(see(&j, BEGIN + 100 * ST_S), 1);
	assert_ptr_equal(j.event.when, &w[1]);
	assert_int_equal(j.event.begin, BEGIN + 80 * ST_S);
	pt_trigger_free(j.g);
}

static void test_others(void **state)
{
	const struct pt_when w[] = { { PT_WHEN_WORKER, PT_WHEN_NS, 10e9 },
				     { PT_WHEN_RANK, PT_WHEN_NS, 5e8 } };
	struct pt_seen s = { .from = BEGIN, .until = BEGIN + 30 * ST_S };
	struct pt_seen_trainer late = { .pid = 8, .n = 3 };
	struct pt_seen_step step[3];
	struct made j;

	(void)state;
	begin(&j, w, 2);
	assert_int_equal(pt_trigger_see(j.g, &s, &j.event), 0);
	s.worker = 7;
	s.worker_ns = 9 * ST_S;
	assert_int_equal(pt_trigger_see(j.g, &s, &j.event), 0);
	s.until += 2 * ST_S;
	s.worker_ns += 2 * ST_S;
	assert_int_equal(pt_trigger_see(j.g, &s, &j.event), 1);
	assert_int_equal(j.event.pid, 7);
	assert_int_equal(j.event.begin, s.until - s.worker_ns);
	/* it stays so for hours */
	s.from = s.until + 3600 * ST_S;
	s.until = s.from + 10 * ST_S;
	s.worker_ns += 3610 * ST_S;
	assert_int_equal(pt_trigger_see(j.g, &s, &j.event), 0);
	s.rank = 8;
	s.late_ns = ST_S;
	s.t = &late;
	s.n = 1;
	late.step = step;
	step[0] = (struct pt_seen_step){ s.from, s.from + ST_S, 0, true };
	step[1] = (struct pt_seen_step){ s.from + ST_S, s.from + 3 * ST_S, 0, false };
	step[2] = (struct pt_seen_step){ s.from + 3 * ST_S, s.until - 6 * ST_S, 0, false };
	assert_int_equal(pt_trigger_see(j.g, &s, &j.event), 1);
	assert_int_equal(j.event.pid, 8);
	assert_int_equal(j.event.begin, step[1].begin);
	/* seen again */
	s.until += ST_S;
	assert_int_equal(pt_trigger_see(j.g, &s, &j.event), 0);
	pt_trigger_free(j.g);
}

/* ---- a job ------------------------------------------------------------------------------ */

struct caught {
	unsigned n;
	uint64_t begin[16];
	uint64_t most; /* bytes of the model */
};

/* As a capture comes, one look a second. */
static void watch_job(const struct job *j, const struct pt_when *when, struct caught *c)
{
	const struct pt_trigger_opts o = { .when = when, .n = 1, .warmup = 20,
					   .cooldown_ns = 2 * ST_S };
	struct pt_watch *w = pt_watch_new(&o);
	uint64_t next = j->t0 + ST_S;
	struct pt_event e;
	size_t i;
	int ret;

	assert_non_null(w);
	memset(c, 0, sizeof(*c));
	for (i = 0; i < j->s.recs.n; i++) {
		const struct pt_hdr *h = &j->s.recs.v[i].r.hdr;

		pt_watch_feed(w, h, h->size);
		if (h->ts < next || i + 1 == j->s.recs.n)
			continue;
		next += ST_S;
		ret = pt_watch_round(w, h->ts, &e);
		assert_true(ret >= 0);
		if (ret && c->n < 16)
			c->begin[c->n] = e.begin;
		c->n += (unsigned)ret;
		if (pt_watch_bytes(w) > c->most)
			c->most = pt_watch_bytes(w);
	}
	pt_watch_free(w);
}

/* The steps that waited for so long, of those that a look can see: not the first ones,
 * not the last. */
static size_t stalls(const struct job *j, uint64_t ns, uint64_t *at)
{
	size_t i, n = 0;

	for (i = 0; i < j->steps.n; i++) {
		const struct job_step *s = &j->steps.v[i];

		if (s->wait_end - s->wait_begin > ns && s->wait_begin > j->t0 + 3 * ST_S &&
		    s->wait_end + 4 * ST_S < j->t1)
			at[n++] = s->wait_begin;
	}
	return n;
}

static void test_job(void **state)
{
	static const struct pt_when when[] = {
		{ PT_WHEN_STEP, PT_WHEN_MEDIANS, 3 }, { PT_WHEN_STEP, PT_WHEN_NS, 1e9 },
		{ PT_WHEN_WAIT, PT_WHEN_NS, 1e9 }
	};
	struct job_opts o = job_defaults();
	uint64_t at[64], most = 0;
	struct caught c;
	struct job j;
	size_t i, k, n;

	(void)state;
	for (k = 0; k < 5; k++) {
		/* no stall; then some of 2 s, a loader that works ahead, and long steps */
		o.heavy_every = k == 4 ? 50 : k ? 250 : 0;
		o.heavy = k == 4 ? 25 : 50;
		o.batch_ns = k == 4 ? ST_S : k == 3 ? 15 * ST_MS : 40 * ST_MS;
		o.run_s_x10 = k == 4 ? 3000 : 600;
		memset(&j, 0, sizeof(j));
		job_run(&j, &o);
		job_window(&j, JOB_BEGIN + ST_S, JOB_BEGIN + o.run_s_x10 * (ST_S / 10) - ST_S);
		n = stalls(&j, o.batch_ns * (k == 4 ? 10 : 20), at);
		assert_true(k ? n >= 3 : !n);
		for (i = 0; i < sizeof(when) / sizeof(*when); i++) {
			size_t x;

			if (i && k >= 3)
				continue; /* of 0.75 s; all steps are long */
			watch_job(&j, &when[i], &c);
			if (c.n != n)
				fail_msg("job %zu, condition %zu: %u of %zu stalls", k, i, c.n, n);
			for (x = 0; x < n; x++)
				if (c.begin[x] + 50 * ST_MS < at[x] ||
				    c.begin[x] > at[x] + 50 * ST_MS)
					fail_msg("job %zu, condition %zu: %.3f s, not %.3f s", k, i,
						 (double)(c.begin[x] - JOB_BEGIN) / 1e9,
						 (double)(at[x] - JOB_BEGIN) / 1e9);
			if (c.most > most)
				most = c.most;
		}
		job_free(&j);
	}
	assert_true(most < 32u << 20);
}

/* Records that are damaged, twice there or missing: whatever is told, it ends well. */
static void test_hostile(void **state)
{
	static const struct pt_when when[] = {
		{ PT_WHEN_STEP, PT_WHEN_MEDIANS, 3 }, { PT_WHEN_WAIT, PT_WHEN_SHARE, 0.2 },
		{ PT_WHEN_WORKER, PT_WHEN_NS, 1e9 }, { PT_WHEN_RANK, PT_WHEN_NS, 1e7 }
	};
	const struct pt_trigger_opts o = { .when = when, .n = 4, .warmup = 3 };
	struct job_opts jo = job_defaults();
	struct job j;
	unsigned seed;

	(void)state;
	jo.run_s_x10 = 60;
	memset(&j, 0, sizeof(j));
	job_run(&j, &jo);
	job_window(&j, JOB_BEGIN + ST_S, JOB_BEGIN + 5 * ST_S);
	for (seed = 1; seed <= 30; seed++) {
		struct pt_watch *w = pt_watch_new(&o);
		uint64_t next = j.t0, x = seed;
		struct pt_event e;
		size_t i;

		assert_non_null(w);
		for (i = 0; i < j.s.recs.n; i++) {
			union pt_rec_any r = j.s.recs.v[i].r;
			uint16_t len = r.hdr.size;

			x = x * 6364136223846793005ull + 1442695040888963407ull;
			if (x >> 58 == 0)
				r.bytes[(x >> 32) % len] = (unsigned char)(x >> 24);
			if (x >> 57 != 1)
				pt_watch_feed(w, &r, len);
			if (x >> 57 == 2)
				pt_watch_feed(w, &r, len);
			if (j.s.recs.v[i].r.hdr.ts < next)
				continue;
			next += ST_S / 2;
			assert_true(pt_watch_round(w, next, &e) >= 0);
		}
		pt_watch_free(w);
	}
	job_free(&j);
}

/* ---- what is kept ---------------------------------------------------------------------- */

static void test_surplus(void **state)
{
	struct pt_opts o = { .max_windows = 3, .max_bytes = 100 };
	struct pt_keep k = { .o = &o };
	struct pt_kept_window w = { .bytes = 30 };
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++) {
		assert_int_equal(pt_keep_surplus(&k, 30), 0);
		assert_int_equal(pt_vec_push(&k.v, w), 0);
		k.bytes += w.bytes;
	}
	assert_int_equal(pt_keep_surplus(&k, 1), 1); /* a fourth one */
	assert_int_equal(pt_keep_surplus(&k, 50), 2);
	assert_int_equal(pt_keep_surplus(&k, 101), 3);
	o.max_windows = 4;
	assert_int_equal(pt_keep_surplus(&k, 10), 0);
	assert_int_equal(pt_keep_surplus(&k, 11), 1);
	pt_vec_free(&k.v);
}

static void make_file(const char *dir, const char *name, size_t bytes)
{
	char path[PATH_MAX];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	while (bytes--)
		fputc('x', f);
	assert_int_equal(fclose(f), 0);
}

/* Windows of earlier runs count, the oldest first; nothing else does, and nothing that a
 * link leads to. */
static void test_earlier(void **state)
{
	static const struct {
		const char *folder, *file;
	} there[] = { { "20260102T030405Z-worker", "window.ptrace" },
		      { "20250102T030405Z-step", "report.json" },
		      { "20250102T030405Z-step", "report.txt" },
		      { "20250102T030405Z-rank", NULL }, /* half removed */
		      { "20250102T030405Z-wait", "notes.txt" },
		      { "20250102T030405Z-wait", "report.txt" },
		      { "20250102T030405Z-mine", "report.txt" },
		      { "20250102T030405Z-step2", "report.txt" },
		      { "2025012T030405Z-step", "report.txt" },
		      { "copy-20250102T030405Z-step", "report.txt" } };
	struct pt_opts o = { .max_windows = 3, .max_bytes = 1000 };
	char dir[] = "/tmp/pt-earlier-XXXXXX", path[PATH_MAX], cmd[64];
	struct pt_err err = { "" };
	struct pt_keep k;
	size_t i;

	(void)state;
	assert_non_null(mkdtemp(dir));
	for (i = 0; i < sizeof(there) / sizeof(*there); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, there[i].folder);
		assert_true(!mkdir(path, 0700) || errno == EEXIST);
		if (there[i].file)
			make_file(path, there[i].file, 100);
	}
	make_file(dir, "20250103T030405Z-step", 100);
	snprintf(path, sizeof(path), "%s/20250104T030405Z-step", dir);
	assert_int_equal(symlink("20250102T030405Z-step", path), 0);
	snprintf(path, sizeof(path), "%s/20250105T030405Z-step", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/20250105T030405Z-step/report.txt", dir);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	o.output = dir;
	if (pt_keep_open(&k, &o, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(k.v.n, 3);
	assert_string_equal(k.v.v[0].name, "20250102T030405Z-rank");
	assert_string_equal(k.v.v[1].name, "20250102T030405Z-step");
	assert_string_equal(k.v.v[2].name, "20260102T030405Z-worker");
	assert_int_equal(k.v.v[1].bytes, 200);
	assert_int_equal(k.bytes, 300);
	assert_int_equal(pt_keep_surplus(&k, 10), 1);
	assert_int_equal(pt_keep_surplus(&k, 850), 2);
	pt_keep_close(&k);
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	assert_int_equal(system(cmd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_median),
		cmocka_unit_test(test_running),
		cmocka_unit_test(test_hiccup),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_phase),
		cmocka_unit_test(test_bursts),
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_job),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_surplus),
		cmocka_unit_test(test_earlier),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
