/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records that no kernel sends: damaged, lost, doubled, out of order, with
 * times from nowhere. Whatever comes in, the report keeps its promises: no
 * crash (under sanitizers), no hang, shares that are shares, parts that add up
 * to their whole, JSON that parses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "analysis/analysis.h"
#include "model/timeline.h"
#include "stream_case.h"

#define HANG_S 120
#define NOISE 300
#define DAMAGED 150

/* The report of a stream, checked; NULL-terminated JSON when asked for. */
static char *check(const struct stream *s, const char *what, uint64_t seed,
		   bool keep)
{
	struct pt_model *m;
	struct pt_report *r = st_analyze(s, &m);
	char buf[160], *text = NULL;
	const char *trouble = case_trouble(r, buf, sizeof(buf));
	json_error_t err;
	json_t *j;

	if (trouble)
		fail_msg("%s, seed %llu: %s", what, (unsigned long long)seed,
			 trouble);
	/* a window of years has a long series; a few of them are enough */
	if (r->n_series > 1000 && seed % 100)
		goto out;
	text = case_json(r);
	j = json_loads(text, 0, &err);
	if (!j)
		fail_msg("%s, seed %llu: JSON line %d: %s", what,
			 (unsigned long long)seed, err.line, err.text);
	json_decref(j);
out:
	pt_report_free(r);
	pt_model_free(m);
	if (keep)
		return text;
	free(text);
	return NULL;
}

/* ---- next to nothing ---------------------------------------------------- */

static void test_empty(void **state)
{
	struct stream s = { 0 };

	(void)state;
	check(&s, "nothing", 0, false);
	st_mark(&s, 1000, PT_MARK_BEGIN);
	check(&s, "a begin", 0, false);
	st_mark(&s, 500, PT_MARK_END); /* before it */
	check(&s, "an end before the begin", 0, false);
	st_mark(&s, UINT64_MAX, PT_MARK_END);
	check(&s, "an end at the end of time", 0, false);
	st_gpu(&s, "cudaLaunchKernel", 7, 7, 2000, 0, 0, 0, 0, 0);
	check(&s, "one call", 0, false);
	st_free(&s);
}

/* No step, one, two: no division by what is not there. */
static void test_few_steps(void **state)
{
	struct job_opts o = job_defaults();
	uint64_t len;

	(void)state;
	o.run_s_x10 = 8;
	for (len = ST_MS / 2; len < 150 * ST_MS; len += 3 * ST_MS) {
		struct job j;

		o.workers = len % 2 ? 2 : 0;
		job_run(&j, &o);
		job_window(&j, JOB_BEGIN + 400 * ST_MS,
			   JOB_BEGIN + 400 * ST_MS + len);
		check(&j.s, "a short window", len, false);
		job_free(&j);
	}
}

/* ---- noise ---------------------------------------------------------------- */

/* Bytes by chance behind a header that is half right. */
static void random_record(struct stream *s, uint64_t *rnd)
{
	uint16_t kind = (uint16_t)st_between(rnd, 0, 77);
	const struct pt_rec_kind *k = pt_rec_kind(kind);
	uint16_t size = k ? k->size : 40;
	union pt_rec_any *r;
	size_t i;

	if (st_rand(rnd) % 16 == 0)
		size = (uint16_t)st_between(rnd, 32, PT_REC_MAX);
	r = st_add(s, kind, size, 0, 0, 0);
	for (i = sizeof(r->hdr); i < size; i++)
		r->bytes[i] = (unsigned char)st_rand(rnd);
	r->hdr.ts = JOB_BEGIN + st_between(rnd, 0, ST_S);
	if (st_rand(rnd) % 32 == 0)
		r->hdr.ts = st_rand(rnd);
	r->hdr.tid = (uint32_t)st_between(rnd, 1, 12);
	r->hdr.tgid = (uint32_t)st_between(rnd, 1, 4);
	r->hdr.seq = (uint32_t)st_between(rnd, 0, 40);
	r->hdr.start = (uint32_t)st_between(rnd, 0, 2);
	r->hdr.flags = (uint16_t)st_rand(rnd);
	if (kind == PT_REC_OFF && st_rand(rnd) % 8) { /* half plausible */
		r->off.off_ts = r->hdr.ts - st_between(rnd, 0, 50 * ST_MS);
		r->off.wake_ts = r->hdr.ts - st_between(rnd, 0, 20 * ST_MS);
		r->off.syscall = (int32_t)st_between(rnd, 0, 460) - 1;
		r->off.waker_syscall = (int32_t)st_between(rnd, 0, 460) - 1;
		r->off.waker_tid = (uint32_t)st_between(rnd, 0, 12);
		r->off.waker_tgid = (uint32_t)st_between(rnd, 0, 4);
		r->off.obj_kind = (uint16_t)st_between(rnd, 0, 8);
		r->off.waker_obj_kind = (uint16_t)st_between(rnd, 0, 8);
		r->off.object = st_between(rnd, 0, 3);
		r->off.waker_object = st_between(rnd, 0, 3);
	}
	if (kind == PT_REC_GPU_ENTER || kind == PT_REC_GPU_RETURN) {
		r->gpu.api = (uint32_t)st_between(rnd, 0, 33);
		r->gpu.stream = st_between(rnd, 0, 100);
		r->gpu.v[0] = st_between(rnd, 0, 5);
	}
}

static void test_noise(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= NOISE; seed++) {
		struct stream s = { 0 };
		uint64_t rnd = seed, n = st_between(&rnd, 1, 1500), i;

		for (i = 0; i < n; i++)
			random_record(&s, &rnd);
		check(&s, "noise", seed, false);
		st_free(&s);
	}
}

/* ---- a good stream, damaged ------------------------------------------------- */

static uint64_t odd_time(uint64_t *rnd, uint64_t ts)
{
	switch (st_rand(rnd) % 6) {
	case 0: return 0;
	case 1: return UINT64_MAX;
	case 2: return 1ull << 63;
	case 3: return ts - st_between(rnd, 0, 100 * ST_MS);
	case 4: return ts + st_between(rnd, 0, 100 * ST_MS);
	default: return st_rand(rnd);
	}
}

static void damage(struct stream *s, uint64_t *rnd)
{
	size_t n = s->recs.n;
	struct st_rec *r = &s->recs.v[st_rand(rnd) % n], tmp;
	struct st_rec *o = &s->recs.v[st_rand(rnd) % n];
	size_t i;

	switch (st_rand(rnd) % 12) {
	case 0: /* lost */
		r->r.hdr.kind = 999;
		break;
	case 1: /* twice */
		*o = *r;
		break;
	case 2: /* out of order */
		tmp = *r;
		*r = *o;
		*o = tmp;
		break;
	case 3:
		r->r.hdr.ts = odd_time(rnd, r->r.hdr.ts);
		break;
	case 4:
		r->r.off.off_ts = odd_time(rnd, r->r.hdr.ts);
		break;
	case 5:
		r->r.off.wake_ts = odd_time(rnd, r->r.hdr.ts);
		break;
	case 6: /* cut short, or longer than it is */
		r->r.hdr.size = (uint16_t)st_between(rnd, 0, PT_REC_MAX);
		break;
	case 7:
		r->r.hdr.tid = o->r.hdr.tid;
		break;
	case 8:
		r->r.hdr.tgid = o->r.hdr.tgid;
		break;
	case 9:
		r->r.hdr.flags ^= (uint16_t)(1u << st_rand(rnd) % 8);
		break;
	case 10:
		r->r.hdr.seq = (uint32_t)st_rand(rnd);
		break;
	default:
		i = sizeof(struct pt_hdr) + st_rand(rnd) % 160;
		r->r.bytes[i] = (unsigned char)st_rand(rnd);
	}
}

static void test_damage(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= DAMAGED; seed++) {
		struct job_opts o = job_defaults();
		uint64_t rnd = seed, n, i;
		struct job j;

		o.workers = (unsigned)(seed % 4);
		o.pin = o.workers && seed % 8 > 3;
		o.sockets = seed % 3 == 0;
		o.loop = (enum job_loop)(seed % 3);
		o.mix[JOB_DISK] = 0.3;
		o.run_s_x10 = 12;
		o.batch_ns = 15 * ST_MS;
		o.seed = seed;
		job_run(&j, &o);
		job_window(&j, JOB_BEGIN + 100 * ST_MS, JOB_BEGIN + 1100 * ST_MS);
		/* a little, or a lot */
		n = seed % 2 ? 5 : j.s.recs.n / 3;
		for (i = 0; i < n; i++)
			damage(&j.s, &rnd);
		check(&j.s, "damage", seed, false);
		job_free(&j);
	}
}

/* ---- kinds of trouble by name ----------------------------------------------- */

static struct job usual(void)
{
	struct job_opts o = job_defaults();
	struct job j;

	o.run_s_x10 = 15;
	job_run(&j, &o);
	job_window(&j, JOB_BEGIN + 200 * ST_MS, JOB_BEGIN + 1400 * ST_MS);
	return j;
}

/* Every n-th record is missing: what is left is judged, and with this much
 * loss nothing is claimed with certainty that the stream does not show. */
static void test_lost_records(void **state)
{
	size_t every, i, n;

	(void)state;
	for (every = 2; every < 12; every++) {
		struct job j = usual();

		for (i = n = 0; i < j.s.recs.n; i++)
			if (i % every || j.s.recs.v[i].r.hdr.kind == PT_REC_MARK)
				j.s.recs.v[n++] = j.s.recs.v[i];
		j.s.recs.n = n;
		check(&j.s, "lost records", every, false);
		job_free(&j);
	}
}

static void test_time_goes_back(void **state)
{
	struct job j = usual();
	size_t i;

	(void)state;
	for (i = j.s.recs.n / 2; i < j.s.recs.n; i++) {
		j.s.recs.v[i].r.hdr.ts -= 400 * ST_MS;
		if (j.s.recs.v[i].r.hdr.kind == PT_REC_OFF)
			j.s.recs.v[i].r.off.off_ts -= 400 * ST_MS;
	}
	check(&j.s, "time goes back", 0, false);
	job_free(&j);
}

static void test_no_returns(void **state)
{
	struct job j = usual();
	size_t i, n = 0;

	(void)state;
	for (i = 0; i < j.s.recs.n; i++)
		if (j.s.recs.v[i].r.hdr.kind != PT_REC_GPU_RETURN)
			j.s.recs.v[n++] = j.s.recs.v[i];
	j.s.recs.n = n;
	check(&j.s, "no returns", 0, false);
	job_free(&j);
	j = usual();
	for (i = n = 0; i < j.s.recs.n; i++)
		if (j.s.recs.v[i].r.hdr.kind != PT_REC_GPU_ENTER)
			j.s.recs.v[n++] = j.s.recs.v[i];
	j.s.recs.n = n;
	check(&j.s, "no entries", 0, false);
	job_free(&j);
}

static void test_many_threads(void **state)
{
	struct job j = usual();
	uint32_t i;

	(void)state;
	for (i = 0; i < 100000; i++)
		st_preempted(&j.s, 100000 + i / 4, 100000 + i, j.t0 + i * 10,
			     j.t0 + i * 10 + 5);
	for (i = 0; i < 20000; i++) /* and children of the trainer */
		st_fork(&j.s, j.t0 + i, JOB_TRAINER, JOB_TRAINER, 300000 + i,
			300000 + i);
	check(&j.s, "100,000 threads", 0, false);
	job_free(&j);
}

/* Processes that descend from each other in a ring. */
static void test_parents_in_a_ring(void **state)
{
	struct job j = usual();
	uint32_t i;

	(void)state;
	for (i = 0; i < 40; i++)
		st_task(&j.s, j.t0, 5000 + i, 5000 + i, 5000 + (i + 1) % 40, "x");
	st_task(&j.s, j.t0, JOB_TRAINER, JOB_TRAINER, JOB_WORKER(0), "x");
	check(&j.s, "a ring", 0, false);
	job_free(&j);
}

/* Names with quotes, control bytes and broken UTF-8 reach the JSON escaped. */
static void test_hostile_names(void **state)
{
	struct job_opts o = job_defaults();
	struct job j;
	char *text;

	(void)state;
	o.mix[JOB_DISK] = 0.8;
	o.run_s_x10 = 15;
	job_run(&j, &o);
	st_file(&j.s, JOB_BEGIN + 300 * ST_MS, JOB_FILE_DEV, JOB_FILE(0),
		"\xff\xfe\"\\\n\x1b[31m", "\xc3(");
	job_window(&j, JOB_BEGIN + 200 * ST_MS, JOB_BEGIN + 1400 * ST_MS);
	text = check(&j.s, "names", 0, true);
	assert_non_null(strstr(text, "\\\\xff"));
	assert_null(strchr(text, '\x1b'));
	free(text);
	job_free(&j);
}

/* ---- order between processes does not matter --------------------------------- */

/* Another order of the same records that keeps each process's own order. */
static void shuffle(struct stream *s, uint64_t seed)
{
	size_t i, k, n = s->recs.n;

	for (k = 0; k < 30; k++)
		for (i = 1; i < n; i++) {
			struct st_rec *a = &s->recs.v[i - 1];
			struct st_rec *b = &s->recs.v[i], tmp;

			if (a->r.hdr.tgid == b->r.hdr.tgid ||
			    st_rand(&seed) % 2)
				continue;
			tmp = *a;
			*a = *b;
			*b = tmp;
		}
}

static void test_order_between_processes(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= 10; seed++) {
		struct job_opts o = job_defaults();
		char *before, *after;
		struct job j;

		o.workers = 3;
		o.sockets = true;
		o.pin = seed % 2;
		o.mix[JOB_DISK] = 0.4;
		o.run_s_x10 = 15;
		o.seed = seed;
		job_run(&j, &o);
		job_window(&j, JOB_BEGIN + 200 * ST_MS, JOB_BEGIN + 1400 * ST_MS);
		before = check(&j.s, "order", seed, true);
		shuffle(&j.s, seed);
		after = check(&j.s, "another order", seed, true);
		assert_string_equal(before, after);
		free(before);
		free(after);
		job_free(&j);
	}
}

/* A process that has nothing to do with the job changes no finding. */
static void test_strangers(void **state)
{
	struct job j = usual();
	struct pt_model *m;
	struct pt_report *r = st_analyze(&j.s, &m);
	struct pt_model *m2;
	struct pt_report *r2;
	uint64_t rnd = 3;
	uint32_t i;

	(void)state;
	for (i = 0; i < 2000; i++) {
		uint32_t pid = 7000 + i % 20;
		uint64_t t = j.t0 + st_between(&rnd, 0, ST_S);

		st_pipe_in(&j.s, pid, pid, t, t + 1000, t + 2000, 33 + i % 3,
			   7000 + (i + 1) % 20, 7000 + (i + 1) % 20);
	}
	r2 = st_analyze(&j.s, &m2);
	assert_int_equal(r->steps.count, r2->steps.count);
	assert_int_equal(r->n_workers, r2->n_workers);
	assert_true(r->breakdown.data_wait.seconds ==
		    r2->breakdown.data_wait.seconds);
	assert_string_equal(case_root(r), case_root(r2));
	pt_report_free(r);
	pt_report_free(r2);
	pt_model_free(m);
	pt_model_free(m2);
	job_free(&j);
}

/* The live look at a running capture survives any moment. */
static void test_live_at_any_moment(void **state)
{
	struct job j = usual();
	struct pt_model *m = pt_model_new();
	struct pt_analysis_opts opts = { 0 };
	struct pt_provisional p = { .steps = -1 };
	size_t i;

	(void)state;
	for (i = 0; i < j.s.recs.n; i++) {
		const union pt_rec_any *r = &j.s.recs.v[i].r;

		if (r->hdr.kind == PT_REC_MARK &&
		    r->mark.mark == PT_MARK_END)
			continue;
		pt_model_feed(m, r, r->hdr.size);
		if (i % 97)
			continue;
		pt_analyze_live(m, &opts, r->hdr.ts, 500 * ST_MS, &p);
		assert_true(!(p.data_wait_share < 0 ||
			      p.data_wait_share > 1 + 1e-9));
	}
	pt_analyze_live(m, &opts, j.t1, 800 * ST_MS, &p);
	assert_true(p.steps > 10);
	assert_true(p.data_wait_share > 0.5);
	assert_string_equal(p.verdict, "too_few_workers"); /* 2 of 4 cores */
	pt_model_free(m);
	job_free(&j);
}

/* Strings without an end, and counters that no disk has. */
static void test_devices_and_disks(void **state)
{
	struct stream s = { 0 };
	struct pt_rec_device *g =
		(void *)st_add(&s, PT_REC_DEVICE, sizeof(*g), 1000, 0, 0);
	struct pt_rec_disk *d;
	struct pt_model *m = pt_model_new();
	const struct pt_rec_device *dev;
	const struct pt_rec_disk *disk;
	size_t i;

	(void)state;
	memset((char *)g + sizeof(g->hdr), 'x', sizeof(*g) - sizeof(g->hdr));
	g->index = 1;
	d = (void *)st_add(&s, PT_REC_DISK, sizeof(*d), 2000, 0, 0);
	memset((char *)d + sizeof(d->hdr), 'x', sizeof(*d) - sizeof(d->hdr));
	st_seal(&s);
	for (i = 0; i < s.recs.n; i++)
		pt_model_feed(m, &s.recs.v[i].r, s.recs.v[i].r.hdr.size);
	assert_int_equal(m->devices.n, 1);
	dev = &m->devices.v[0];
	assert_int_equal(strnlen(dev->uuid, sizeof(dev->uuid)), sizeof(dev->uuid) - 1);
	assert_int_equal(strnlen(dev->name, sizeof(dev->name)), sizeof(dev->name) - 1);
	assert_int_equal(dev->util, PT_DEVICE_UNKNOWN);
	assert_int_equal(dev->mem_util, PT_DEVICE_UNKNOWN);
	assert_true(dev->mem_total == ~(uint64_t)0);
	assert_int_equal(m->disks.n, 1);
	disk = &m->disks.v[0];
	assert_int_equal(strnlen(disk->name, sizeof(disk->name)), sizeof(disk->name) - 1);
	assert_int_equal(strnlen(disk->model, sizeof(disk->model)),
			 sizeof(disk->model) - 1);
	assert_int_equal(strnlen(disk->fstype, sizeof(disk->fstype)),
			 sizeof(disk->fstype) - 1);
	assert_int_equal(strnlen(disk->mount, sizeof(disk->mount)),
			 sizeof(disk->mount) - 1);
	for (i = 0; i < 8; i++)
		assert_true((&disk->reads)[i] == PT_DISK_UNKNOWN);
	pt_model_free(m);
	st_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_devices_and_disks),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_few_steps),
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_lost_records),
		cmocka_unit_test(test_time_goes_back),
		cmocka_unit_test(test_no_returns),
		cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_parents_in_a_ring),
		cmocka_unit_test(test_hostile_names),
		cmocka_unit_test(test_order_between_processes),
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_live_at_any_moment),
	};

	alarm(HANG_S);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
