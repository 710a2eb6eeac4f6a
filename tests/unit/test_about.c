/* SPDX-License-Identifier: BSD-2-Clause */
/* What a recorded file says beside its records: it comes back as it was, bytes
 * that are no text included, and nothing that is damaged does harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "report/about.h"

static struct pt_report *filled(void)
{
	static const struct pt_r_hook hooks[] = {
		{ "sched", "tp_btf", NULL },
		{ "reads", "none", "Reads are not seen." },
		{ "faults", "none", NULL },
	};
	static const struct pt_r_threshold th[] = {
		{ "starved_info", 0.125, 0.1, "share" },
	};
	struct pt_report *r = pt_report_new();

	assert_non_null(r);
	r->host.kernel = "6.18";
	r->host.hostname = "a\xff\x1b[2J";
	r->host.cores = 8;
	r->host.quota_cores = 2.0 / 3;
	r->target.pid = 4711;
	r->target.cmdline = "python train.py \"x\"\n";
	r->target.started = 1.79e9 + 0.123456789;
	r->capture.mode = "standard";
	r->capture.complete = true;
	r->capture.no_gpu_library = true;
	r->capture.hooks = hooks;
	r->capture.n_hooks = 3;
	r->thresholds = th;
	r->n_thresholds = 1;
	r->steps.batch_size = 32;
	assert_int_equal(pt_report_label(r, "workers", "4"), 0);
	assert_int_equal(pt_report_label(r, "disk", ""), 0);
	return r;
}

static char *written(const struct pt_report *r, size_t *n)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, n);

	assert_non_null(f);
	assert_int_equal(pt_about_write(r, false, f), 0);
	assert_int_equal(fclose(f), 0);
	return text;
}

static void test_round_trip(void **state)
{
	struct pt_report *a = filled(), *b = pt_report_new();
	struct pt_about more = { .n_thresholds = 0 };
	size_t n, m;
	char *x = written(a, &n), *y;

	(void)state;
	assert_non_null(b);
	assert_int_equal(pt_about_read(b, &more, x, n), 0);
	assert_string_equal(b->host.hostname, a->host.hostname);
	assert_true(b->host.quota_cores == a->host.quota_cores);
	assert_true(b->target.started == a->target.started);
	assert_int_equal(b->host.memory, PT_NULL); /* was not observed */
	assert_null(b->target.user);
	assert_int_equal(b->capture.n_hooks, 3);
	assert_string_equal(b->capture.hooks[1].note, "Reads are not seen.");
	assert_null(b->capture.hooks[2].note);
	assert_int_equal(b->n_labels, 2);
	assert_int_equal(more.n_thresholds, 1);
	assert_string_equal(more.thresholds[0], "starved_info=0.125");
	/* the rest by writing it again */
	b->thresholds = a->thresholds;
	b->n_thresholds = a->n_thresholds;
	y = written(b, &m);
	assert_int_equal(n, m);
	assert_memory_equal(x, y, n);
	free(x);
	free(y);
	pt_report_free(a);
	pt_report_free(b);
}

/* A hook that did not open, and no GPU library: what is lost is said once. */
static void test_limits(void **state)
{
	struct pt_report *r = filled();

	(void)state;
	assert_int_equal(pt_about_limits(r), 0);
	assert_int_equal(pt_about_limits(r), 0);
	assert_int_equal(r->capture.n_limits, 2);
	assert_string_equal(r->capture.limits[0].what, "reads");
	assert_string_equal(r->capture.limits[1].what, "gpu");
	pt_report_free(r);
}

/* Cut and changed at every place: no crash, and texts that end. */
static void test_damaged(void **state)
{
	struct pt_report *a = filled();
	size_t n, i, k;
	char *x = written(a, &n);

	(void)state;
	for (i = 0; i < 2 * n; i++) {
		struct pt_about more = { .n_thresholds = 0 };
		struct pt_report *b = pt_report_new();
		/* exactly as long as it is, for the sanitizer to see */
		size_t len = i < n ? i : n;
		char *copy = malloc(len ? len : 1);

		assert_non_null(b);
		assert_non_null(copy);
		memcpy(copy, x, len);
		if (i >= n)
			copy[i - n] ^= 0x41;
		assert_int_equal(pt_about_read(b, &more, copy, len), 0);
		for (k = 0; k < b->capture.n_hooks; k++) {
			assert_non_null(b->capture.hooks[k].need);
			assert_non_null(b->capture.hooks[k].door);
		}
		assert_int_equal(pt_about_limits(b), 0);
		free(copy);
		pt_report_free(b);
	}
	free(x);
	pt_report_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
