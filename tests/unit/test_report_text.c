/* SPDX-License-Identifier: BSD-2-Clause */
/* The text form of the report, and what a terminal is protected from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "base/str.h"
#include "report/rowsort.h"
#include "test_report_fixture.h"
#include "view/text/text.h"

static char *render(const struct pt_report *r, const struct pt_text_opts *o)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert_non_null(f);
	assert_int_equal(pt_report_text(r, f, o), 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(strlen(text), n);
	return text;
}

/* Only what a terminal shows: valid UTF-8 (or ASCII), no control byte but the
 * newline, nothing that reorders text; no line beyond `width` columns. */
static void check_safe(const char *text, bool unicode, size_t width)
{
	const char *line = text;
	size_t n = strlen(text), len;
	uint32_t cp = 0;
	char copy[1024];

	for (const char *s = text; *s; s += len, n -= len) {
		len = pt_utf8_decode(s, n, &cp);
		assert_true(len > 0);
		assert_true(cp >= 0x20 || cp == '\n');
		assert_false(cp >= 0x7f && cp < 0xa0);
		assert_false(cp >= 0x202a && cp <= 0x202e);
		assert_false(cp >= 0x2066 && cp <= 0x2069);
		assert_true(unicode || cp < 0x80);
	}
	for (; *line; line += len + (line[len] == '\n')) {
		len = strcspn(line, "\n");
		assert_true(len < sizeof(copy));
		memcpy(copy, line, len);
		copy[len] = '\0';
		if (pt_str_cols(copy) > width)
			fail_msg("%zu columns: %s", pt_str_cols(copy), copy);
		if (len && line[len - 1] == ' ')
			fail_msg("blanks at the end: \"%s\"", copy);
	}
}

static void test_full(void **state)
{
	struct pt_text_opts o = { .unicode = true };
	struct pt_report *r = fixture_full();
	const char *root, *child;
	char *text;

	(void)state;
	assert_non_null(r);
	text = render(r, &o);
	assert_memory_equal(text, "CRITICAL  Preparing", 19);
	root = strstr(text, "[cpu_bound, high confidence]");
	child = strstr(text, "\xe2\x94\x94 CRITICAL  The GPU");
	assert_non_null(root);
	assert_true(child > root);
	assert_true(strstr(text, "\nWARNING   Worker 4244") > child);
	has(text, "workers computing 94 % (threshold 80 %)");
	has(text, "host.idle_cores ~2"); /* of a later version */
	lacks(text, "GPU starved 41 %"); /* a consequence's evidence */
	has(text, "dataset.py:88");
	has(text, "1.8x faster (1.6x\xe2\x80\x93" "2.0x)");
	has(text, "busy 38 % (at least 31 %, at most 45 %), bounded");
	has(text, "data wait 61 %");
	has(text, "loader 4244");
	has(text, "n01440764_10026.JPEG\n"); /* a long path keeps its name */
	has(text, "slow 3.1x");
	has(text, "12 LOST (ring_full 12)");
	has(text, "tracer used 410 ms of CPU (1.4 % of one core)");
	has(text, "limitation that does not affect these verdicts (-v lists it)");
	lacks(text, "\033");
	lacks(text, "Step list");
	free(text);
	pt_report_free(r);
}

/* --verbose has the consequence's evidence too, and every limit; --quiet the
 * sentences alone. */
static void test_loudness(void **state)
{
	static struct pt_r_verdict disk = {
		.id = "io_bound", .title = "Disk.", .subject_pid = PT_NULL,
		.subject_rank = PT_NULL, .expected_speedup = { NAN, NAN, NAN } };
	struct pt_text_opts o = { .verbose = true };
	struct pt_report *r = fixture_full();
	char *text;

	(void)state;
	assert_non_null(r);
	assert_int_equal(pt_report_limit(r, "nvtx", "nobody asked"), 0);
	assert_int_equal(pt_report_limit(r, "records", "somebody lost some"), 0);
	text = render(r, &o);
	has(text, "GPU starved 41 % (bounded, threshold 30 %)");
	has(text, "nvtx: nobody asked");
	free(text);
	o.verbose = false;
	text = render(r, &o);
	lacks(text, "nvtx: nobody asked");
	has(text, "records: somebody lost some");
	has(text, "that do not affect these verdicts (-v lists them)");
	free(text);
	o.quiet = true;
	text = render(r, &o);
	has(text, "[cpu_bound, high confidence]");
	has(text, "[gpu_starved, medium confidence]");
	lacks(text, "threshold");
	lacks(text, "num_workers");
	lacks(text, "Trainer");
	lacks(text, "Capture");
	free(text);
	o.quiet = false;
	r->verdicts = &disk;
	r->n_verdicts = 1;
	text = render(r, &o);
	has(text, "Limits    reads: single reads");
	free(text);
	disk.expected_speedup = (struct pt_range){ 0.999, 0.9, 1.1 };
	text = render(r, &o);
	has(text, "Expected gain  none (0.9x");
	free(text);
	pt_report_free(r);
}

/* Many charges of one cause through one thread are a line. */
static void test_charges(void **state)
{
	static struct pt_r_charge c[90];
	static char names[90][32];
	struct pt_text_opts o = { 0 };
	struct pt_report *r = fixture_full();
	char *text;

	(void)state;
	assert_non_null(r);
	for (size_t i = 0; i < NR(c); i++) {
		snprintf(names[i], sizeof(names[i]), "/d/f%02zu", i);
		c[i] = (struct pt_r_charge){
			.cause = i ? PT_CAUSE_DISK : PT_CAUSE_CPU,
			.share = i ? 0.01 : 0.11, .what = i ? names[i] : NULL,
			.subject_pid = 4243, .subject_tid = PT_NULL };
	}
	r->data_wait.causes = c;
	r->data_wait.n_causes = NR(c);
	text = render(r, &o);
	has(text, "89 %  disk          loader 4243      /d/f01 and 88 more\n");
	has(text, "11 %  CPU           loader 4243\n");
	assert_true(strstr(text, "89 %  disk") < strstr(text, "11 %  CPU"));
	lacks(text, "/d/f02");
	free(text);
	o.verbose = true;
	text = render(r, &o);
	has(text, "/d/f02");
	has(text, "/d/f89");
	free(text);
	pt_report_free(r);
}

/* --sort and --top of files and workers. */
static void test_rows(void **state)
{
	static const struct pt_r_file files[] = {
		{ .path = "/d/first", .bytes = 1, .reads = 5, .blocked_s = NAN },
		{ .path = "/d/second", .bytes = 9, .reads = PT_NULL,
		  .blocked_s = 0.5 },
		{ .path = "/d/third", .bytes = 9, .reads = 7, .blocked_s = 0.7 },
	};
	struct pt_text_opts o = { .files = true };
	struct pt_report *r = fixture_full();
	int64_t last;
	char *text;

	(void)state;
	assert_non_null(r);
	r->files = files;
	r->n_files = NR(files);
	assert_int_equal(pt_report_sort_files(r, PT_FILE_BYTES), 0);
	text = render(r, &o);
	assert_true(strstr(text, "/d/second") < strstr(text, "/d/third"));
	assert_true(strstr(text, "/d/third") < strstr(text, "/d/first"));
	free(text);
	assert_int_equal(pt_report_sort_files(r, PT_FILE_READS), 0);
	o.top = 1;
	text = render(r, &o);
	has(text, "/d/third");
	lacks(text, "/d/first");
	has(text, "and 2 more");
	free(text);
	assert_int_equal(pt_report_sort_files(r, PT_FILE_BLOCKED), 0);
	assert_string_equal(r->files[0].path, "/d/third");
	assert_string_equal(r->files[2].path, "/d/first");
	assert_int_equal(pt_report_sort_workers(r, PT_WORKER_PID), 0);
	last = r->workers[0].pid;
	for (size_t i = 1; i < r->n_workers; last = r->workers[i++].pid)
		assert_true(r->workers[i].pid >= last);
	assert_int_equal(pt_report_sort_workers(r, PT_WORKER_SLOWDOWN), 0);
	for (size_t i = 1; i < r->n_workers; i++)
		assert_true(pt_worker_cmp(PT_WORKER_SLOWDOWN, &r->workers[i - 1],
					  &r->workers[i]) <= 0);
	pt_report_free(r);
}

static void test_null(void **state)
{
	struct pt_text_opts o = { .unicode = true, .verbose = true,
				  .print_steps = 3 };
	struct pt_report *r = pt_report_new();
	char *text;

	(void)state;
	assert_non_null(r);
	text = render(r, &o);
	check_safe(text, true, 80);
	has(text, "UNKNOWN   No diagnosis");
	has(text, "Time      unknown");
	has(text, "GPU       unknown");
	has(text, "Steps     unknown");
	has(text, "losses unknown");
	lacks(text, "nan");
	lacks(text, "0");
	lacks(text, "922337"); /* PT_NULL */
	free(text);
	pt_report_free(r);
}

static void test_null_inside(void **state)
{
	static const struct pt_r_gpu gpu = {
		.index = PT_NULL, .busy_share = NAN,
		.busy_hard = { 0.2, NAN }, .busy_likely = { NAN, NAN },
		.starved_share = { NAN, NAN }, .kernels = PT_NULL,
		.copies_h2d = PT_NULL, .copies_d2h = PT_NULL,
		.copies_other = PT_NULL, .copy_bytes = PT_NULL,
		.pageable_share = NAN, .syncs = PT_NULL,
		.failed_allocations = PT_NULL, .mem_peak = PT_NULL,
	};
	struct pt_text_opts o = { .print_steps = 3 };
	struct pt_report *r = fixture_full();
	char *text;

	(void)state;
	assert_non_null(r);
	r->gpu = &gpu;
	r->breakdown.known = false;
	r->steps.period_ms.n = 0;
	text = render(r, &o);
	has(text, "GPU       busy unknown (at least 20 %)\n");
	has(text, "Time      unknown\n");
	lacks(text, "ms: mean");
	has(text, "4242/4250 helper         -       -       -  unknown");
	has(text, "       1   0.074     71.0       1.25      61.0       no  -");
	lacks(text, "nan");
	lacks(text, "922337");
	free(text);
	pt_report_free(r);
}

static void test_widths(void **state)
{
	static const int widths[] = { 0, 80, 100, 200 };
	struct pt_report *r[] = { fixture_full(), fixture_hostile() };

	(void)state;
	for (size_t k = 0; k < NR(r); k++) {
		assert_non_null(r[k]);
		for (size_t i = 0; i < 2 * NR(widths); i++) {
			struct pt_text_opts o = {
				.unicode = i % 2, .verbose = true,
				.width = widths[i / 2], .print_steps = 9,
			};
			char *text = render(r[k], &o);

			check_safe(text, o.unicode, o.width ? o.width : 80);
			/* the order of a file's reads, where there is room */
			if (!k)
				assert_true(!strstr(text, "       order  path") ==
					    (o.width < 100));
			if (!k && o.width >= 100)
				assert_non_null(strstr(text, "      stride  "));
			free(text);
		}
		pt_report_free(r[k]);
	}
}

/* Behind the columns of a narrow terminal there is no room for a path, but it is still cut. */
static void test_narrow(void **state)
{
	static const struct pt_r_file file = { .path = "/data/a/very/long/path/to/shard-0017.bin",
					       .bytes = 3 << 20, .faults = 7 };
	static const struct pt_r_write write = { .path = "/out/a/very/long/path/to/model.ckpt",
						 .bytes = 3 << 20 };
	struct pt_text_opts o = { .verbose = true, .files = true };
	struct pt_report *r = fixture_full();
	char *text;

	(void)state;
	assert_non_null(r);
	r->files = &file;
	r->writes = &write;
	r->n_files = r->n_writes = 1;
	for (o.width = 40; o.width < 64; o.width++) {
		text = render(r, &o);
		has(text, "...7.bin\n");
		has(text, "....ckpt\n");
		lacks(text, "shard-0017");
		lacks(text, "model.ckpt");
		free(text);
	}
	pt_report_free(r);
}

/* Colour adds only sequences of ours: without them the text is the same. */
static void test_color(void **state)
{
	struct pt_text_opts o = { .unicode = true, .verbose = true };
	struct pt_report *r = fixture_hostile();
	char *plain, *color, *to;

	(void)state;
	assert_non_null(r);
	plain = render(r, &o);
	o.color = true;
	color = render(r, &o);
	has(color, "\033[1;31mCRITICAL\033[0m");
	to = color;
	for (char *s = color; *s; s++) {
		if (*s != '\033') {
			*to++ = *s;
			continue;
		}
		assert_int_equal(s[1], '[');
		s += 2 + strspn(s + 2, "0123456789;");
		assert_int_equal(*s, 'm');
	}
	*to = '\0';
	assert_string_equal(color, plain);
	free(plain);
	free(color);
	pt_report_free(r);
}

static void test_bar(void **state)
{
	struct pt_text_opts o = { 0 };
	struct pt_report *r = fixture_full();
	const char *bar;
	char *text;

	(void)state;
	assert_non_null(r);
	text = render(r, &o);
	bar = strstr(text, "Time      ");
	assert_non_null(bar);
	bar += 10;
	/* 70 columns: 61.3, 22, 3, 0, 4 and 9.7 percent */
	assert_int_equal(strspn(bar, "#"), 43);
	bar += 43;
	assert_int_equal(strspn(bar, "="), 15);
	bar += 15;
	assert_int_equal(strspn(bar, "t"), 2);
	bar += 2;
	assert_int_equal(strspn(bar, "l"), 3);
	bar += 3;
	assert_int_equal(strcspn(bar, "\n"), 7);
	free(text);
	pt_report_free(r);
}

/* The loop's own work is told by kind where there is more of it than any loop has. */
static void test_host_work(void **state)
{
	struct pt_text_opts o = { 0 };
	struct pt_report *r = fixture_full();
	char *text;

	(void)state;
	assert_non_null(r);
	text = render(r, &o);
	has(text, "Host work computing 6.0 %, sleeping 3.0 %\n");
	has(text, "starting the loader");
	free(text);
	r->breakdown.host[PT_HOST_COMPUTING].share = 0.015;
	text = render(r, &o);
	assert_null(strstr(text, "Host work"));
	free(text);
	o.verbose = true;
	text = render(r, &o);
	has(text, "Host work computing 1.5 %, sleeping 3.0 %, writing 0.1 %\n");
	free(text);
	pt_report_free(r);
}

static void test_order(void **state)
{
	static const struct pt_r_verdict v[] = {
		/* each names the other: shown all the same, once */
		{ .id = "io_bound", .title = "one", .consequence_of = "cpu_bound",
		  .subject_pid = PT_NULL, .subject_rank = PT_NULL },
		{ .id = "cpu_bound", .title = "two", .consequence_of = "io_bound",
		  .subject_pid = PT_NULL, .subject_rank = PT_NULL },
		{ .id = "balanced", .title = "three",
		  .consequence_of = "lock_bound", .subject_pid = PT_NULL,
		  .subject_rank = PT_NULL },
	};
	static const char *const ids[] = { "[io_bound", "[cpu_bound",
					   "[balanced" };
	struct pt_report *r = pt_report_new();
	char *text;

	(void)state;
	assert_non_null(r);
	r->verdicts = v;
	r->n_verdicts = NR(v);
	text = render(r, NULL);
	for (size_t i = 0; i < NR(ids); i++) {
		const char *at = strstr(text, ids[i]);

		assert_non_null(at);
		assert_null(strstr(at + 1, ids[i]));
	}
	free(text);
	pt_report_free(r);
}

/* Many workers: those in trouble are shown, and the rest is counted. */
static void test_many_workers(void **state)
{
	static struct pt_r_worker w[64];
	struct pt_text_opts o = { 0 };
	struct pt_report *r = fixture_full();
	char *text;

	(void)state;
	assert_non_null(r);
	for (size_t i = 0; i < NR(w); i++) {
		w[i] = r->workers[0];
		w[i].pid = w[i].tid = 5000 + (int64_t)i;
	}
	w[61].state = PT_WORKER_HUNG;
	r->workers = w;
	r->n_workers = NR(w);
	text = render(r, &o);
	has(text, "\n  5061 ");
	has(text, "hung");
	has(text, "\n  5010 ");
	lacks(text, "\n  5011 ");
	has(text, "and 52 more");
	free(text);
	pt_report_free(r);
}

/* Labels show, made safe; without any there is no line for them. */
static void test_labels(void **state)
{
	struct pt_report *r = fixture_full();
	char *text;

	(void)state;
	assert_non_null(r);
	text = render(r, NULL);
	lacks(text, "Labels");
	free(text);
	assert_int_equal(pt_report_label(r, "workers", "4"), 0);
	assert_int_equal(pt_report_label(r, "disk", "a\x1b[2Jb"), 0);
	text = render(r, NULL);
	has(text, "Labels    workers=4");
	has(text, "disk=a");
	check_safe(text, false, 80);
	free(text);
	pt_report_free(r);
}

static void test_term(void **state)
{
	static const struct {
		const char *in, *out;
		unsigned flags;
		size_t max, cols;
	} cases[] = {
		{ "plain", "plain", PT_TERM_UNICODE, 0, 5 },
		{ "C:\\x", "C:\\x", PT_TERM_UNICODE, 0, 4 },
		{ "\\x1b\x1b", "\\\\x1b\\x1b", PT_TERM_UNICODE, 0, 9 },
		{ "a\nb\tc", "a\\nb\\tc", PT_TERM_UNICODE, 0, 7 },
		{ "\xc3\xa9", "\xc3\xa9", PT_TERM_UNICODE, 0, 1 },
		{ "\xc3\xa9", "\\u{e9}", 0, 0, 6 },
		{ "1\xe2\x80\x93" "2", "1-2", 0, 0, 3 },
		{ "\xe2\x80\xae", "\\u{202e}", PT_TERM_UNICODE, 0, 8 },
		{ "\xc2\x9b", "\\u{9b}", PT_TERM_UNICODE, 0, 6 },
		{ "\xef\xbf\xbf", "\\u{ffff}", PT_TERM_UNICODE, 0, 8 },
		{ "\xe6\x97\xa5", "\xe6\x97\xa5", PT_TERM_UNICODE, 0, 2 },
		{ "abcdef", "abc\xe2\x80\xa6", PT_TERM_UNICODE, 4, 4 },
		{ "abcdef", "a...", 0, 4, 4 },
		{ "abcdef", "...f", PT_TERM_TAIL, 4, 4 },
		{ "abcdef", "abcdef", PT_TERM_TAIL, 6, 6 },
		/* an escape is kept whole or left out */
		{ "ab\x1b" "cd", "ab\xe2\x80\xa6", PT_TERM_UNICODE, 5, 3 },
		/* a wide character does not fit half */
		{ "a\xe6\x97\xa5" "bc", "a\xe2\x80\xa6", PT_TERM_UNICODE, 3, 2 },
		{ "abcdef", "", 0, 2, 0 },
	};
	char buf[64];

	(void)state;
	for (size_t i = 0; i < NR(cases); i++) {
		size_t cols = pt_str_term(buf, sizeof(buf), cases[i].in,
					  cases[i].flags, cases[i].max);

		assert_string_equal(buf, cases[i].out);
		assert_int_equal(cols, cases[i].cols);
		assert_int_equal(cols, pt_str_cols(buf));
	}
}

/* Every size of buffer: never overrun, always ended, never cut in a code
 * point (the sanitizers watch the heap block). */
static void test_term_small(void **state)
{
	static const char in[] = "\x1b\xc3\xa9\xf0\x9f\x90\x8d\xff" NASTY;

	(void)state;
	for (size_t cap = 0; cap < 200; cap++)
		for (unsigned flags = 0; flags < 4; flags++)
			for (size_t max = 0; max < 24; max += 3) {
				char *b = malloc(cap ? cap : 1);
				size_t cols;

				assert_non_null(b);
				cols = pt_str_term(b, cap, in, flags, max);
				if (cap) {
					assert_int_equal(pt_str_cols(b), cols);
					assert_true(!max || cols <= max);
					check_safe(b, flags & PT_TERM_UNICODE,
						   4096);
				} else {
					assert_int_equal(cols, 0);
				}
				free(b);
			}
}

static void test_write_error(void **state)
{
	struct pt_report *r = fixture_full();
	FILE *f = fopen("/dev/full", "w");

	(void)state;
	assert_non_null(r);
	assert_non_null(f);
	assert_int_equal(pt_report_text(r, f, NULL), -EIO);
	fclose(f);
	pt_report_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_loudness),
		cmocka_unit_test(test_charges),
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_null),
		cmocka_unit_test(test_null_inside),
		cmocka_unit_test(test_widths),
		cmocka_unit_test(test_narrow),
		cmocka_unit_test(test_color),
		cmocka_unit_test(test_bar),
		cmocka_unit_test(test_host_work),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_many_workers),
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_term),
		cmocka_unit_test(test_term_small),
		cmocka_unit_test(test_write_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
