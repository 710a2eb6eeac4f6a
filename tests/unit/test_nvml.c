/* SPDX-License-Identifier: BSD-2-Clause */
/* Asking NVML through a child that does anything; its samples in the model and
 * in the report. This program is that child too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capture/session.h"
#include "gpu/nvml.h"
#include "gpu/nvml_int.h"
#include "stream.h"

#define PID 1000u
#define BEGIN (1000 * ST_S)

/* ---- the child ---------------------------------------------------------------- */

static void say(const void *data, size_t n)
{
	if (write(STDOUT_FILENO, data, n) != (ssize_t)n)
		_exit(1);
}

static int play(const char *how)
{
	static struct pt_nvml_answer a;
	char ask;

	a.magic = PT_NVML_MAGIC;
	a.n = 1;
	a.dev[0].rec.hdr.size = sizeof(a.dev[0].rec);
	a.dev[0].rec.hdr.kind = PT_REC_DEVICE;
	memset(a.dev[0].rec.name, 'x', sizeof(a.dev[0].rec.name));
	while (read(STDIN_FILENO, &ask, 1) == 1) {
		if (!strcmp(how, "dies"))
			raise(SIGSEGV);
		if (!strcmp(how, "silent"))
			for (;;)
				pause();
		if (!strcmp(how, "chatter"))
			say("NVRM: hello\n", 12);
		if (!strcmp(how, "many"))
			a.n = PT_NVML_DEVICES + 1;
		if (!strcmp(how, "pids"))
			a.dev[0].n_pids = PT_NVML_PIDS + 1;
		if (!strcmp(how, "kind"))
			a.dev[0].rec.hdr.size = 4096;
		if (!strcmp(how, "state"))
			a.state = 77;
		if (!strcmp(how, "half")) {
			say(&a, sizeof(a) / 2);
			return 0;
		}
		say(&a, sizeof(a));
	}
	return 0;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void expect_state(const char *how, enum pt_nvml_state want, double least,
			 double most)
{
	static struct pt_nvml_answer a;
	int fds = open_fds();
	struct pt_nvml *n;
	double begin;

	setenv("PT_TEST_NVML", how, 1);
	assert_int_equal(pt_nvml_start(&n), 0);
	assert_int_equal(pt_nvml_poll(n, &a), 0); /* nobody asked */
	begin = now();
	pt_nvml_ask(n);
	assert_int_equal(pt_nvml_wait(n, 8000, &a), 1);
	if (a.state != want)
		fail_msg("%s: state %u, not %d", how, a.state, want);
	assert_true(now() - begin >= least && now() - begin < most);
	if (want == PT_NVML_OK) {
		/* a name without an end has got one */
		assert_int_equal(strlen(a.dev[0].rec.name), 63);
		pt_nvml_ask(n);
		pt_nvml_ask(n); /* one at a time */
		assert_int_equal(pt_nvml_wait(n, 8000, &a), 1);
		assert_int_equal(pt_nvml_wait(n, 50, &a), 0);
	} else {
		assert_true(pt_nvml_state_text(a.state)[0] != '\0');
		pt_nvml_ask(n); /* no more, and no harm */
		assert_int_equal(pt_nvml_poll(n, &a), 0);
	}
	pt_nvml_free(n);
	assert_int_equal(open_fds(), fds);
}

static void test_children(void **state)
{
	static const char *const broken[] = { "dies", "chatter", "many", "pids",
					      "kind", "state", "half" };
	size_t i;

	(void)state;
	expect_state("good", PT_NVML_OK, 0, 2);
	for (i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
		expect_state(broken[i], PT_NVML_DIED, 0, 2.9);
	expect_state("silent", PT_NVML_STUCK, PT_NVML_WAIT_MS / 1e3,
		     PT_NVML_WAIT_MS / 1e3 + 2);
}

/* ---- which device a process means ----------------------------------------------- */

static void test_ordinal(void **state)
{
	const struct pt_rec_device d = { .index = 2, .uuid = "GPU-abcd1234-ff" };
	static const struct {
		bool one;
		const char *visible, *order;
		uint32_t want;
	} cases[] = {
		{ true, NULL, NULL, 2 },
		{ false, NULL, NULL, PT_DEVICE_UNKNOWN },
		{ false, NULL, "PCI_BUS_ID", 2 },
		{ false, NULL, "FASTEST_FIRST", PT_DEVICE_UNKNOWN },
		{ true, "2", NULL, 0 },
		{ true, "0,1,2", NULL, 2 },
		{ true, "3, 2", NULL, 1 },
		{ true, "0,1", NULL, PT_DEVICE_UNKNOWN },
		{ true, "0,-1,2", NULL, PT_DEVICE_UNKNOWN },
		{ true, "", NULL, PT_DEVICE_UNKNOWN },
		{ true, "2x", NULL, PT_DEVICE_UNKNOWN },
		{ true, "22", NULL, PT_DEVICE_UNKNOWN },
		{ false, "2", NULL, PT_DEVICE_UNKNOWN },
		{ false, "GPU-ee,GPU-abcd", NULL, 1 },
		{ false, "GPU-", NULL, PT_DEVICE_UNKNOWN },
		{ false, "MIG-abcd", NULL, PT_DEVICE_UNKNOWN },
		{ true, ",,,", NULL, PT_DEVICE_UNKNOWN },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t got = pt_device_ordinal(&d, cases[i].one,
						 cases[i].visible,
						 cases[i].order);

		if (got != cases[i].want)
			fail_msg("%s: %u, not %u", cases[i].visible ?
				 cases[i].visible : "unset", got, cases[i].want);
	}
}

/* ---- samples ---------------------------------------------------------------------- */

struct job {
	struct stream s;
	struct pt_model *m;
	struct pt_report *r;
};

static void open_job(struct job *j)
{
	uint64_t t;

	memset(j, 0, sizeof(*j));
	st_host(&j->s, BEGIN, 4, PID);
	st_task(&j->s, BEGIN, PID, PID, 1, "train");
	for (t = BEGIN + 5 * ST_MS; t < BEGIN + 5 * ST_S; t += 50 * ST_MS)
		st_gpu(&j->s, "cudaDeviceSynchronize", PID, PID, t, t + ST_MS, 0,
		       0, 0, 0);
}

/* A sample `ms` behind the beginning, of a device that the job has alone. */
static struct pt_rec_device *sample(struct job *j, uint64_t ms, uint32_t index,
				    uint32_t util)
{
	struct pt_rec_device *d = (struct pt_rec_device *)st_add(
		&j->s, PT_REC_DEVICE, sizeof(*d), BEGIN + ms * ST_MS, 0, 0);

	d->index = d->ordinal = index;
	d->util = util;
	d->mem_util = 0;
	d->mem_used = (index + 1) << 20;
	d->mem_total = 1 << 30;
	d->sm_mhz = 1000;
	d->sm_max_mhz = 2000;
	d->procs = d->traced = 1;
	d->pid = PID;
	snprintf(d->uuid, sizeof(d->uuid), "GPU-%u", index);
	snprintf(d->name, sizeof(d->name), "Made Up %u", index);
	return d;
}

static void finish(struct job *j)
{
	st_window(&j->s, BEGIN + 10 * ST_MS, BEGIN + 5 * ST_S);
	st_seal(&j->s);
	j->r = st_analyze(&j->s, &j->m);
	assert_non_null(j->r);
	assert_int_equal(j->r->n_gpu, 1);
}

static void close_job(struct job *j)
{
	pt_report_free(j->r);
	pt_model_free(j->m);
	st_free(&j->s);
}

static void test_report(void **state)
{
	const struct pt_r_device *d;
	struct pt_rec_device *x;
	struct job j;

	(void)state;
	open_job(&j);
	sample(&j, 5, 0, 100); /* before the window */
	sample(&j, 500, 0, 40)->throttle = 0x1 | 0x40;
	sample(&j, 1500, 0, 60)->throttle = 0x4;
	sample(&j, 2500, 0, PT_DEVICE_UNKNOWN)->mem_used = 7 << 20;
	x = sample(&j, 3500, 0, 101); /* no such percentage */
	x->sm_mhz = 500;
	finish(&j);
	d = &j.r->gpu->device;
	assert_true(d->known);
	assert_string_equal(j.r->gpu->uuid, "GPU-0");
	assert_string_equal(d->name, "Made Up 0");
	assert_int_equal(d->util.n, 2);
	assert_true(fabs(d->util.mean - 0.5) < 1e-9);
	assert_int_equal(d->sm_mhz.n, 4);
	assert_int_equal(d->sm_max_mhz, 2000);
	assert_int_equal(d->n_throttle, 2);
	assert_string_equal(d->throttle[0], "sw_power_cap");
	assert_string_equal(d->throttle[1], "hw_thermal_slowdown");
	assert_int_equal(j.r->gpu->mem_peak, 7 << 20);
	assert_int_equal(j.r->gpu->mem_reserved, 1 << 20);
	assert_true(isnan(j.r->gpu->mem_growth_per_min)); /* too few samples */
	assert_true(fabs(j.r->series[0].gpu_util - 0.4) < 1e-9);
	assert_true(fabs(j.r->series[1].gpu_util - 0.6) < 1e-9);
	assert_true(isnan(j.r->series[2].gpu_util));
	assert_true(fabs(j.r->series[2].gpu_mem - (7 << 20)) < 1);
	close_job(&j);
}

/* Somebody else is on the device: it is told, and nothing is narrowed. */
static void test_shared(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	sample(&j, 500, 0, 40);
	sample(&j, 1500, 0, 40)->procs = 3;
	finish(&j);
	assert_int_equal(j.r->gpu->device.processes, 3);
	assert_int_equal(j.r->gpu->device.traced, 1);
	close_job(&j);
}

/* Launches that nobody waits for, or one time only: `once`. */
static struct pt_r_gpu hardly_waited_for(uint32_t util, uint32_t procs, bool once)
{
	struct pt_r_gpu g;
	struct job j;
	uint64_t t;

	memset(&j, 0, sizeof(j));
	st_host(&j.s, BEGIN, 4, PID);
	st_task(&j.s, BEGIN, PID, PID, 1, "train");
	for (t = BEGIN + 15 * ST_MS; t < BEGIN + 5 * ST_S; t += 50 * ST_MS)
		st_gpu(&j.s, "cudaLaunchKernel", PID, PID, t, t, 0, 1, 0, 0);
	if (once)
		st_gpu(&j.s, "cudaStreamSynchronize", PID, PID,
		       BEGIN + 2016 * ST_MS, BEGIN + 2019 * ST_MS, 0, 0, 0, 0);
	for (t = 250; util && t < 5000; t += 500)
		sample(&j, t, 0, util)->procs = procs;
	finish(&j);
	g = *j.r->gpu;
	close_job(&j);
	return g;
}

/* Only the driver tells how busy the device is. */
static void test_narrows(void **state)
{
	struct pt_r_gpu g = hardly_waited_for(0, 0, false);

	(void)state;
	assert_true(g.busy_likely[0] < 0.01 && g.busy_likely[1] > 0.99);
	g = hardly_waited_for(60, 1, false);
	assert_true(g.busy_likely[0] > 0.45 && g.busy_likely[0] < 0.6);
	assert_true(g.busy_likely[1] > 0.6 && g.busy_likely[1] < 0.75); /* it copies nothing */
	assert_true(g.busy_hard[0] < 0.01);
	assert_true(fabs(g.idle_likely[1] + g.busy_likely[0] - 1) < 1e-9);
	g = hardly_waited_for(60, 2, false); /* whose work is it? */
	assert_true(g.busy_likely[0] < 0.01);
}

/* A guess from few calls that the driver rules out is none. */
static void test_contradicts(void **state)
{
	struct pt_r_gpu g = hardly_waited_for(0, 0, true);

	(void)state;
	assert_true(g.busy_share < 0.1);
	g = hardly_waited_for(2, 1, true);
	assert_true(g.busy_share < 0.1);
	g = hardly_waited_for(98, 1, true);
	assert_true(isnan(g.busy_share));
	assert_true(g.busy_likely[0] > 0.8);
	g = hardly_waited_for(98, 2, true); /* whose work is it? */
	assert_true(g.busy_share < 0.1);
}

/* It launches for 100 ms and computes for 400: of what the driver counts as idle, all is
 * at the end of those. */
static void test_places_idle(void **state)
{
	const struct pt_r_verdict *v;
	struct job j;
	uint64_t t, k;

	(void)state;
	memset(&j, 0, sizeof(j));
	st_host(&j.s, BEGIN, 4, PID);
	st_task(&j.s, BEGIN, PID, PID, 1, "train");
	for (t = BEGIN + 15 * ST_MS; t < BEGIN + 5 * ST_S; t += 500 * ST_MS)
		for (k = 0; k < 100; k++)
			st_gpu(&j.s, "cudaLaunchKernel", PID, PID, t + k * ST_MS,
			       t + k * ST_MS, 0, 1, 0, 0);
	for (t = 250; t < 5000; t += 500)
		sample(&j, t, 0, 60);
	finish(&j);
	v = j.r->verdicts;
	assert_true(j.r->n_verdicts > 0);
	assert_string_equal(v->id, "host_bound");
	assert_int_equal(v->certainty, PT_CONF_LOW);
	assert_string_equal(v->evidence->metric, "gpu.idle_host_share");
	assert_true(fabs(v->evidence->value - 0.4) < 0.02);
	assert_true(isnan(j.r->gpu->busy_share));
	close_job(&j);
}

/* Several in the machine: the one that the job uses, or none. */
static void test_which(void **state)
{
	struct job j;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		open_job(&j);
		sample(&j, 500, 0, 10)->traced = 0;
		sample(&j, 500, 1, 20)->ordinal = PT_DEVICE_UNKNOWN;
		sample(&j, 500, 2, 30)->traced = i ? 1 : 0;
		j.s.recs.v[j.s.recs.n - 1].r.hdr.tid = 0;
		((struct pt_rec_device *)&j.s.recs.v[j.s.recs.n - 1].r)->ordinal =
			PT_DEVICE_UNKNOWN;
		finish(&j);
		/* with two of them in use nobody knows which is which */
		if (i)
			assert_false(j.r->gpu->device.known);
		else
			assert_string_equal(j.r->gpu->uuid, "GPU-1");
		assert_true(fabs(j.r->series[0].gpu_util - (i ? 0.25 : 0.2)) <
			    1e-9);
		close_job(&j);
	}
}

static void test_damaged(void **state)
{
	uint64_t seed = 5;
	struct job j;
	size_t i;
	int k;

	(void)state;
	open_job(&j);
	for (k = 0; k < 3000; k++) {
		struct pt_rec_device *d = sample(&j, 0, 0, 0);
		unsigned char *b = (unsigned char *)d + sizeof(d->hdr);

		d->hdr.ts = BEGIN + st_between(&seed, 0, 5 * ST_S);
		for (i = 0; i < sizeof(*d) - sizeof(d->hdr); i++)
			if (st_between(&seed, 0, 3))
				b[i] = (unsigned char)st_rand(&seed);
		d->index = (uint32_t)st_between(&seed, 0, 70);
		d->traced = (uint32_t)st_between(&seed, 0, 1);
		d->ordinal = (uint32_t)st_between(&seed, 0, 2);
	}
	finish(&j);
	for (i = 0; i < j.r->n_series; i++)
		assert_false(j.r->series[i].gpu_util > 1);
	close_job(&j);
}

int unit_nvml(void);
int unit_nvml(void)
{
	return play(getenv("PT_TEST_NVML"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_children),
		cmocka_unit_test(test_ordinal),
		cmocka_unit_test(test_report),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_narrows),
		cmocka_unit_test(test_contradicts),
		cmocka_unit_test(test_places_idle),
		cmocka_unit_test(test_which),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
