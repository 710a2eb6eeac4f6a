/* SPDX-License-Identifier: BSD-2-Clause */
/* The operations table: what is in it, its order, its names, its text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/demangle.h"
#include "base/str.h"
#include "stream.h"
#include "view/text/text.h"

#define PID 1000u
#define HELPER 1100u /* forked by PID: its calls are the job's */
#define STRANGER 1200u
#define BEGIN (1000 * ST_S)
#define F1 0x401000ull
#define F2 0x402000ull

static const struct pt_r_operation *find(const struct pt_report *r,
					 const char *kind, const char *name)
{
	size_t i;

	for (i = 0; i < r->n_operations; i++)
		if (!strcmp(r->operations[i].kind, kind) &&
		    !strcmp(r->operations[i].name, name))
			return &r->operations[i];
	fail_msg("no %s %s", kind, name);
	return NULL;
}

static void near(double got, double want)
{
	if (!(fabs(got - want) < 1e-9))
		fail_msg("%.12f, not %.12f", got, want);
}

/* 20 steps: a copy that takes 2 ms, of which the caller slept 1.5 ms; two
 * kernels, one twice; a memset; a sync. */
static void make_steps(struct stream *s)
{
	uint64_t t = BEGIN + ST_S;
	int i;

	st_host(s, BEGIN, 4, PID);
	st_task(s, BEGIN, PID, PID, 1, "train");
	st_fork(s, BEGIN + 600 * ST_MS, PID, PID, HELPER, HELPER);
	st_task(s, BEGIN, STRANGER, STRANGER, 1, "else");
	st_gpu(s, "cudaMalloc", HELPER, HELPER, t, t + 10, 0, 0, 64, 0);
	st_gpu(s, "cudaMalloc", STRANGER, STRANGER, t, t + 10, 0, 0, 64, 0);
	for (i = 0; i < 20; i++, t += 100 * ST_MS) {
		st_gpu(s, "cudaMemcpyAsync", PID, PID, t, t + 2 * ST_MS, 0, 1,
		       1000, 1);
		st_off(s, PID, PID, t + 100 * ST_US, t + 1500 * ST_US,
		       t + 1600 * ST_US);
		st_gpu(s, "cudaLaunchKernel", PID, PID, t + 3 * ST_MS, 0, 0, F1,
		       0, 0);
		st_gpu(s, "cudaLaunchKernel", PID, PID, t + 4 * ST_MS, 0, 0, F2,
		       0, 0);
		st_gpu(s, "cudaLaunchKernel", PID, PID, t + 5 * ST_MS, 0, 0, F2,
		       0, 0);
		st_gpu(s, "cudaMemset", PID, PID, t + 6 * ST_MS, 0, 0, 1, 64, 0);
		st_gpu(s, "cudaStreamSynchronize", PID, PID, t + 7 * ST_MS,
		       t + 9 * ST_MS, 0, 0, 0, 0);
	}
	st_window(s, BEGIN + ST_S / 2, t + ST_S / 2);
	st_seal(s);
}

static void test_rows(void **state)
{
	const struct pt_r_operation *o;
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	make_steps(&s);
	r = st_analyze(&s, &m);
	assert_int_equal(r->gpu->kernels, 60);
	o = find(r, "kernel", "kernel at 0x402000");
	assert_int_equal(o->calls, 40);
	assert_true(o->bytes == PT_NULL);
	assert_true(isnan(o->cpu_s));
	o = find(r, "copy", "host to device");
	assert_int_equal(o->calls, 20);
	assert_int_equal(o->bytes, 20000);
	o = find(r, "memset", "memset");
	assert_int_equal(o->calls, 20);
	assert_int_equal(o->bytes, 20 * 64);
	/* the helper's, not the stranger's */
	assert_int_equal(find(r, "api", "cudaMalloc")->calls, 1);
	o = find(r, "api", "cudaMemcpyAsync");
	assert_int_equal(o->calls, 20);
	near(o->total_s, 0.040);
	near(o->cpu_s, 0.010); /* asleep or on the run queue: 1.5 of 2 ms */
	near(o->mean_us, 2000);
	near(o->share, 0.040 / 3.0);
	assert_int_equal(o->certainty, PT_MEASURED);
	/* no return is watched: unknown, not 0 */
	o = find(r, "api", "cudaLaunchKernel");
	assert_int_equal(o->calls, 60);
	assert_true(isnan(o->total_s) && isnan(o->mean_us) && isnan(o->cpu_s));
	assert_int_equal(o->certainty, PT_CERT_NONE);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

static void add_act(struct stream *s, uint16_t what, uint64_t begin, uint64_t ns,
		    uint32_t correlation, uint64_t name, uint8_t flags)
{
	struct pt_rec_act *a = (struct pt_rec_act *)st_add(
		s, PT_REC_ACT, sizeof(*a), begin + ns, PID, PID);

	a->begin = begin;
	a->end = begin + ns;
	a->what = what;
	a->correlation = correlation;
	a->name = name;
	a->flags = flags;
	if (what == PT_ACT_COPY) {
		a->detail = 1;
		a->bytes = 1000;
	}
}

static void add_name(struct stream *s, uint32_t space, uint64_t key,
		     const char *text)
{
	struct pt_rec_name *n = (struct pt_rec_name *)st_add(
		s, PT_REC_NAME, sizeof(*n), BEGIN + ST_S, PID, PID);

	n->key = key;
	n->space = space;
	strcpy(n->name, text);
}

/* With activity records the device's times are theirs: F1 is measured in each
 * launch, F2 in half of them; two kernels of a graph have rows of their own. */
static void test_measured(void **state)
{
	const struct pt_r_operation *o;
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;
	uint32_t number = 1;
	int i;

	(void)state;
	st_host(&s, BEGIN, 4, PID);
	st_task(&s, BEGIN, PID, PID, 1, "train");
	add_name(&s, PT_NAME_FUNCTION, F1, "_Z3onev");
	add_name(&s, PT_NAME_ACT, 0x11, "_Z3onev");
	add_name(&s, PT_NAME_ACT, 0x22, "_Z3twov");
	add_name(&s, PT_NAME_ACT, 0x33, "_Z3gphv");
	add_act(&s, PT_ACT_COVER, BEGIN + ST_S / 2, 3 * ST_S, 0, 0, 0);
	for (i = 0; i < 20; i++) {
		uint64_t t = BEGIN + ST_S + (uint64_t)i * 100 * ST_MS;

		st_gpu(&s, "cudaMemcpyAsync", PID, PID, t, t + 2 * ST_MS, 0, 1,
		       1000, 1);
		add_act(&s, PT_ACT_COPY, t + ST_MS, 100 * ST_US, number++, 0, 0);
		st_gpu(&s, "cudaLaunchKernel", PID, PID, t + 3 * ST_MS, 0, 0, F1,
		       0, 0);
		add_act(&s, PT_ACT_KERNEL, t + 4 * ST_MS,
			(uint64_t)(1000 + i) * ST_US, number++, 0x11, 0);
		st_gpu(&s, "cudaLaunchKernel", PID, PID, t + 6 * ST_MS, 0, 0, F2,
		       0, 0);
		if (i < 10)
			add_act(&s, PT_ACT_KERNEL, t + 7 * ST_MS, 500 * ST_US,
				number, 0x22, 0);
		number++;
		st_gpu(&s, "cudaDeviceSynchronize", PID, PID, t + 20 * ST_MS,
		       t + 22 * ST_MS, 0, 0, 0, 0);
	}
	for (i = 0; i < 2; i++)
		add_act(&s, PT_ACT_KERNEL, BEGIN + 3 * ST_S, 200 * ST_US, 5000,
			0x33, PT_ACT_F_GRAPH);
	st_window(&s, BEGIN + ST_S / 2, BEGIN + 4 * ST_S);
	st_seal(&s);
	r = st_analyze(&s, &m);
	pt_model_free(m); /* the report holds what it shows */
	o = find(r, "kernel", "_Z3onev");
	assert_int_equal(o->calls, 20);
	assert_int_equal(o->certainty, PT_MEASURED);
	near(o->gpu_s, 20 * 0.0010095);
	near(o->total_s, o->gpu_s);
	near(o->min_us, 1000);
	near(o->max_us, 1019);
	/* half of them: the others are taken for their like */
	o = find(r, "kernel", "_Z3twov");
	assert_int_equal(o->calls, 20);
	assert_int_equal(o->certainty, PT_ESTIMATED);
	near(o->gpu_s, 20 * 0.0005);
	o = find(r, "kernel", "_Z3gphv");
	assert_int_equal(o->calls, 2);
	near(o->gpu_s, 2 * 0.0002);
	o = find(r, "copy", "host to device");
	assert_int_equal(o->calls, 20);
	assert_int_equal(o->bytes, 20000);
	assert_int_equal(o->certainty, PT_MEASURED);
	near(o->gpu_s, 20 * 0.0001);
	assert_int_equal(pt_report_demangle(r), 0);
	find(r, "kernel", "one()");
	pt_report_free(r);
	st_free(&s);
}

static void test_order(void **state)
{
	static const struct pt_r_operation ops[] = {
		{ .name = "b", .kind = "api", .calls = 5, .total_s = 2,
		  .mean_us = 4, .max_us = 9, .cpu_s = 1, .gpu_s = NAN },
		{ .name = "c", .kind = "kernel", .calls = 7, .total_s = NAN,
		  .mean_us = NAN, .max_us = NAN, .cpu_s = NAN, .gpu_s = 3 },
		{ .name = "a", .kind = "api", .calls = PT_NULL, .total_s = 3,
		  .mean_us = 2, .max_us = 8, .cpu_s = 2, .gpu_s = NAN },
	};
	static const char *const want[PT_SORT_NR] = {
		[PT_SORT_TOTAL] = "abc", [PT_SORT_CALLS] = "cba",
		[PT_SORT_MEAN] = "bac",  [PT_SORT_MAX] = "bac",
		[PT_SORT_GPU] = "cba",	 [PT_SORT_CPU] = "abc",
		[PT_SORT_NAME] = "abc",
	};
	struct pt_report *r = pt_report_new();
	int by;

	(void)state;
	r->operations = ops;
	r->n_operations = 3;
	for (by = 0; by < PT_SORT_NR; by++) {
		char got[4] = "";
		size_t i;

		assert_int_equal(pt_report_sort_operations(r, by), 0);
		for (i = 0; i < 3; i++)
			got[i] = r->operations[i].name[0];
		if (strcmp(got, want[by]))
			fail_msg("by %s: %s, not %s", pt_op_sort_name(by), got,
				 want[by]);
	}
	pt_report_free(r);
}

static void test_names(void **state)
{
	char bomb[448], *name;
	size_t n, i;

	(void)state;
	name = pt_demangle("_Z9vectorAddIfEvPKT_S2_PS0_i");
	assert_non_null(name);
	assert_string_equal(name, "void vectorAdd<float>(float const*, float const*, float*, int)");
	free(name);
	assert_null(pt_demangle("cudaLaunchKernel"));
	assert_null(pt_demangle("_Z"));
	assert_null(pt_demangle("_ZN"));
	/* each pair takes twice what came before: 2^50 names in the end */
	n = (size_t)snprintf(bomb, sizeof(bomb), "_Z1fI");
	n += (size_t)snprintf(bomb + n, sizeof(bomb) - n, "1AIiiE");
	for (i = 0; i < 40 && n < 400; i++)
		n += (size_t)snprintf(bomb + n, sizeof(bomb) - n, "S_I%s%sE",
				      i ? "S0_" : "i", i ? "S0_" : "i");
	snprintf(bomb + n, sizeof(bomb) - n, "Evv");
	free(pt_demangle(bomb)); /* in no time, whatever it says */
}

/* Any bytes of the length that a record can hold. */
static void test_hostile_names(void **state)
{
	static const char from[] = "_ZNSKEIDpT0123456789SdStS_vPRilfOjJLcX";
	char s[200];
	uint64_t seed = 7;
	int i, k;

	(void)state;
	for (i = 0; i < 30000; i++) {
		strcpy(s, "_Z");
		for (k = 2; k < 2 + (int)st_between(&seed, 1, 150); k++) {
			s[k] = from[st_between(&seed, 0, sizeof(from) - 2)];
			s[k + 1] = '\0';
		}
		free(pt_demangle(s));
	}
}

static char *render(const struct pt_report *r, const struct pt_text_opts *o)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert_non_null(f);
	assert_int_equal(pt_report_text(r, f, o), 0);
	assert_int_equal(fclose(f), 0);
	return text;
}

/* Long names lose their middle, keep both ends, and fit the line. */
static void test_text(void **state)
{
	static struct pt_r_operation ops[30];
	struct pt_text_opts o = { .operations = true, .width = 80 };
	struct pt_report *r = pt_report_new();
	char *text, *line;
	size_t i;

	(void)state;
	for (i = 0; i < 30; i++) {
		ops[i] = (struct pt_r_operation){
			.name = "void at::native::vectorized_elementwise_kernel"
				"<4, at::native::FillFunctor<float>>(int)",
			.kind = "kernel", .calls = 1234567, .total_s = 123.4,
			.mean_us = 99999, .p99_us = 12345678, .share = 0.999,
			.gpu_s = 1, .cpu_s = NAN, .bytes = PT_NULL,
			.certainty = PT_ESTIMATED };
	}
	r->operations = ops;
	r->n_operations = 30;
	for (i = 0; i < 2; i++) {
		o.unicode = i;
		text = render(r, &o);
		assert_non_null(strstr(text, "10 of 30"));
		assert_non_null(strstr(text, "void at::na"));
		assert_non_null(strstr(text, ">(int)\n"));
		assert_non_null(strstr(text, "~"));
		for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			assert_true(pt_str_cols(line) <= 80);
		free(text);
	}
	o.top = 3;
	text = render(r, &o);
	assert_non_null(strstr(text, "and 27 more"));
	free(text);
	o.top = -1;
	text = render(r, &o);
	assert_null(strstr(text, "more (--top"));
	free(text);
	o.operations = false;
	text = render(r, &o);
	assert_null(strstr(text, "Operations"));
	free(text);
	pt_report_free(r);
}

/* `count` calls whose records found no room; `ts`: when the kernel's counts were read. */
static void missed(struct stream *s, uint64_t ts, uint32_t tgid, uint32_t what, uint64_t count)
{
	struct pt_rec_missed *r;

	r = &st_add(s, PT_REC_MISSED, sizeof(*r), ts, tgid, tgid)->missed;
	r->what = what;
	r->count = count;
}

/* They are in the sums, each once, and whose they are is known. */
static void test_lost_calls(void **state)
{
	uint64_t t = BEGIN + ST_S, end = BEGIN + 7 * ST_S / 2;
	const struct pt_r_operation *o;
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	make_steps(&s);
	missed(&s, BEGIN, PID, st_api("cudaLaunchKernel"), 1 << 20); /* before its begin */
	missed(&s, t, PID, st_api("cudaLaunchKernel"), 1000);
	missed(&s, end, PID, st_api("cudaLaunchKernel"), 500);
	missed(&s, t, HELPER, st_api("cudaMemcpyAsync"), 7);
	missed(&s, t, 0, st_api("cudaMemset"), 3); /* nobody knows whose */
	missed(&s, t, STRANGER, st_api("cudaMemset"), 1 << 20);
	missed(&s, t, PID, 0xfffe, 1 << 20); /* of a later version */
	missed(&s, t, PID, PT_MISSED_READS, 1 << 20);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_int_equal(r->capture.end_ns, end);
	assert_int_equal(find(r, "api", "cudaLaunchKernel")->calls, 60 + 1500);
	assert_int_equal(find(r, "api", "cudaMemcpyAsync")->calls, 20 + 7);
	assert_int_equal(find(r, "api", "cudaMemset")->calls, 20 + 3);
	/* which kernels is not known */
	assert_int_equal(find(r, "kernel", "kernel at 0x402000")->calls, 40);
	o = find(r, "kernel", "(all others)");
	assert_int_equal(o->calls, 1500);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_lost_calls),
		cmocka_unit_test(test_measured),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_hostile_names),
		cmocka_unit_test(test_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
