/* SPDX-License-Identifier: BSD-2-Clause */
/* The summary in Markdown: what it says, and that a hostile name does nothing in it. */
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
#include "test_report_fixture.h"
#include "view/text/text.h"

static char *render(const struct pt_report *r, bool unicode)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert_non_null(f);
	assert_int_equal(pt_report_summary(r, f, unicode), 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(strlen(text), n);
	return text;
}

static size_t run_of(const char *s, char c)
{
	size_t n = 0;

	while (s[n] == c)
		n++;
	return n;
}

/* The end of the code span that begins at `s`, as CommonMark has it; NULL: it is none. */
static const char *span_end(const char *s)
{
	size_t n = run_of(s, '`'), k;

	for (s += n; *s && *s != '\n'; s += k ? k : 1) {
		k = run_of(s, '`');
		if (k == n)
			return s + k;
	}
	return NULL;
}

/* Outside of code spans there is nothing that a renderer, a forge or a chat acts on, but
 * our own bold labels and list items. */
static void check_inert(const char *text)
{
	const char *s;

	for (s = text; *s;) {
		bool begins = s == text || s[-1] == '\n';

		if (begins && *s != '\n' && strncmp(s, "**", 2) && strncmp(s, "- ", 2))
			fail_msg("a line begins with: %.40s\n%s", s, text);
		if (*s == '`') {
			const char *end = span_end(s);

			if (!end)
				fail_msg("no code span: %.60s\n%s", s, text);
			s = end;
			continue;
		}
		if (*s == '*') { /* of a label: "**GPU 0:** " */
			size_t n = strcspn(s + 2, "*\n");

			if (run_of(s, '*') != 2 || strncmp(s + 2 + n - 1, ":** ", 4))
				fail_msg("a star: %.40s\n%s", s, text);
			s += n + 5;
			continue;
		}
		if (strchr("@#<>[]|\\&~_$", *s) || !strncmp(s, "//", 2) ||
		    !strncmp(s, "www", 3))
			fail_msg("\"%c\" is not in code: %.60s\n%s", *s, s, text);
		if (*s != '\n' && (unsigned char)*s < ' ')
			fail_msg("a control byte: %.60s", s);
		s++;
	}
}

static const struct pt_r_line lines[] = {
	{ .who = "trainer", .pid = 4242, .tid = 4242, .cause = PT_CAUSE_IPC, .data_wait = 1,
	  .seconds = 18, .low = 17, .high = 18, .share = 0.9, .looks = 90,
	  .function = "main", .file = "/home/ann/train.py", .line = 12 },
	{ .who = "worker", .pid = PT_NULL, .tid = PT_NULL, .cause = PT_CAUSE_CPU,
	  .data_wait = PT_NULL, .seconds = 10, .low = 9, .high = 11, .share = 0.5, .looks = 50,
	  .function = "Set.<lambda>", .file = "/home/ann/dataset.py", .line = 88 },
};

static void test_full(void **state)
{
	struct pt_report *r = fixture_full();
	char *text;

	(void)state;
	assert_non_null(r);
	r->lines = lines;
	r->n_lines = NR(lines);
	text = render(r, true);
	check_inert(text);
	assert_ptr_equal(strstr(text, "**CRITICAL:** Preparing batches takes more CPU than two "
			 "workers have: both compute nearly all the time, and two cores are "
			 "free. (`cpu_bound`, high confidence)\n\n"), text);
	has(text, "- **Subject:** loader 4243 \xc2\xb7 `/home/ann/train/dataset.py:88`\n");
	has(text, "- **Fix:** Raise `num_workers` from 2 to 4, or make `__getitem__` cheaper.\n");
	has(text, "- **Expected gain:** 1.8x faster (1.6x\xe2\x80\x93" "2.0x)\n");
	has(text, "- **GPU 0:** busy 38 % (at least 31 %, at most 45 %), bounded \xc2\xb7 idle "
		  "waiting for data 41 % (at least 38 %)\n");
	has(text, "- **Data wait:** 61 % of the time: 82 % CPU (loader 4243), 10 % run queue "
		  "(loader 4244), 4.9 % network disk (loader 4244, "
		  "`/data/imagenet/train/n01440764/n01440764_10026.JPEG`)\n");
	has(text, "- **Worst worker:** loader 4244, slow, 430.1 ms a batch (median), 3.1x as "
		  "long as its peers\n");
	has(text, "- **Line:** `Set.<lambda>` `/home/ann/dataset.py:88`, 50 % of 20.0 s (all "
		  "workers, running or ready to run)\n");
	has(text, "- Also **WARNING:** Worker 4244 takes 3.1 times");
	has(text, "- **Trace:** pid 4242 `python3 train.py --epochs 3` \xc2\xb7 30.0 s \xc2\xb7 "
		  "412 steps, 13.7/s \xc2\xb7 12 records lost \xc2\xb7 pipetrace 0.1.0\n");
	has(text, "- **Limit:** `gpu.busy.compute`: compute and copies are told apart only with");
	/* a consequence, a cause beyond the third, a limit that matters to no verdict */
	lacks(text, "starve");
	lacks(text, "hand-over");
	lacks(text, "`reads`");
	free(text);
	text = render(r, false);
	for (const char *s = text; *s; s++)
		assert_true((unsigned char)*s < 0x80);
	free(text);
	pt_report_free(r);
}

/* What breaks out of where names usually stand. */
static const char *const nasty[] = {
	NASTY, "", "`", "``", "a`b``c", " ` ", "@everyone", "x @team/all y", "#1", "GH-12",
	"[x](https://evil.example/)", "![x](//evil.example)", "<img src=x onerror=y>", "&copy;",
	"https://evil.example/a", "www.evil.example", "evil|row\n|---|", "**bold** _it_ ~~no~~",
	"\\`", "\\@x", "$x$", "a*b", "<!channel>", "(((", ")))", "(@x)", "(`)", "-", "%", "1.2.3@x",
	"\n# heading", "\n\n---\n", "``` \n", "\xe2\x80\xae" "@x", "a\x01@b", "user@host.example",
};

static void test_hostile(void **state)
{
	static struct pt_r_verdict v[2];
	static struct pt_r_charge c;
	static struct pt_r_line l;

	(void)state;
	for (size_t i = 0; i < NR(nasty); i++) {
		struct pt_report *r = fixture_hostile();
		char *text, *like;

		assert_non_null(r);
		r->host.version = r->target.cmdline = nasty[i];
		v[0] = r->verdicts[0];
		assert_true(asprintf(&like, "Worker 1 is slow in %s (%s), %s.", nasty[i], nasty[i],
				     nasty[i]) > 0);
		v[0].title = like;
		v[0].id = v[0].advice = v[0].subject_file = nasty[i];
		v[1] = v[0];
		v[1].subject_file = NULL;
		v[1].subject_peer = nasty[i];
		c = r->data_wait.causes[0];
		c.what = nasty[i];
		l = lines[1];
		l.function = l.file = nasty[i];
		r->verdicts = v;
		r->n_verdicts = NR(v);
		r->data_wait.causes = &c;
		r->lines = &l;
		r->n_lines = 1;
		assert_int_equal(pt_report_limit(r, nasty[i], "%s", nasty[i]), 0);
		for (int unicode = 0; unicode < 2; unicode++) {
			text = render(r, unicode);
			check_inert(text);
			free(text);
		}
		r->verdicts = &v[1];
		r->n_verdicts = 1;
		text = render(r, true);
		check_inert(text);
		free(text);
		free(like);
		pt_report_free(r);
	}
}

/* Nothing was seen: it says so, and invents no figure. */
static void test_null(void **state)
{
	struct pt_report *r = pt_report_new();
	char *text;

	(void)state;
	assert_non_null(r);
	text = render(r, true);
	check_inert(text);
	has(text, "**UNKNOWN:** nothing was concluded");
	has(text, "- **Trace:** pid \xe2\x80\x93");
	for (const char *s = text; *s; s++)
		assert_false(*s >= '0' && *s <= '9');
	free(text);
	pt_report_free(r);
}

/* Of many only some are listed, and the rest is counted. */
static void test_many(void **state)
{
	static struct pt_r_verdict v[9];
	static struct pt_r_gpu g[8];
	struct pt_report *r = fixture_full();
	char *text;

	(void)state;
	assert_non_null(r);
	for (size_t i = 0; i < NR(v); i++)
		v[i] = r->verdicts[0];
	for (size_t i = 0; i < NR(g); i++)
		g[i] = r->gpu[0];
	r->verdicts = v;
	r->n_verdicts = NR(v);
	r->gpu = g;
	r->n_gpu = NR(g);
	text = render(r, true);
	check_inert(text);
	has(text, "- and 5 more\n");
	assert_true(strlen(text) < 4000);
	free(text);
	pt_report_free(r);
}

static void test_write_error(void **state)
{
	struct pt_report *r = fixture_full();
	FILE *full = fopen("/dev/full", "w");

	(void)state;
	assert_non_null(r);
	assert_non_null(full);
	assert_int_equal(pt_report_summary(r, full, true), -EIO);
	fclose(full);
	pt_report_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_null),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_write_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
