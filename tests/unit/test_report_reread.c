/* SPDX-License-Identifier: BSD-2-Clause */
/* A report that is written, read and written again is the same to the byte.
 * test_report_reread FILE...: so is each of these reports. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "report/json.h"
#include "report/readjson.h"
#include "test_report_fixture.h"

static char *render(const struct pt_report *r, const struct pt_json_opts *o)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f || pt_report_json(r, f, o) || fclose(f))
		abort();
	return text;
}

/* NULL, or what is wrong. */
static const char *reread(const char *text, const struct pt_json_opts *o)
{
	static struct pt_read_error why;
	struct pt_report *r = pt_report_new();
	char *again;
	size_t i;

	if (!r || pt_report_read_json(text, strlen(text), r, &why)) {
		pt_report_free(r);
		return why.text;
	}
	again = render(r, o);
	for (i = 0; text[i] && text[i] == again[i]; i++)
		;
	if (text[i] || again[i])
		snprintf(why.text, sizeof(why.text), "\"%.90s\" was \"%.90s\"",
			 again + (i < 40 ? 0 : i - 40),
			 text + (i < 40 ? 0 : i - 40));
	else
		why.text[0] = '\0';
	free(again);
	pt_report_free(r);
	return why.text[0] ? why.text : NULL;
}

static void fixtures_come_back(void **state)
{
	struct pt_report *all[] = { pt_report_new(), fixture_full(),
				    fixture_hostile() };
	static const struct pt_json_opts how[] = {
		{ .steps = 0 }, { .steps = 1000, .indent = 2 } };

	(void)state;
	for (size_t i = 0; i < NR(all); i++) {
		assert_non_null(all[i]);
		assert_int_equal(pt_report_label(all[i], "k", NASTY), 0);
		for (size_t k = 0; k < NR(how); k++) {
			char *text = render(all[i], &how[k]);
			const char *wrong = reread(text, &how[k]);

			if (wrong)
				fail_msg("report %zu: %s", i, wrong);
			free(text);
		}
		pt_report_free(all[i]);
	}
}

/* Keys of later versions, and none of those that this one knows. */
static void other_keys_are_no_error(void **state)
{
	static const char text[] =
		"{\"schema\":\"pipetrace.report/1\",\"of_tomorrow\":{\"a\":[1]},"
		"\"capture\":{\"duration\":2.5,\"moon\":\"full\"},\"workers\":[{}]}";
	struct pt_report *r = pt_report_new();
	struct pt_read_error why = { "" };

	(void)state;
	assert_non_null(r);
	assert_int_equal(pt_report_read_json(text, sizeof(text) - 1, r, &why), 0);
	assert_true(r->capture.duration == 2.5 && isnan(r->capture.tracer_cpu_s));
	assert_int_equal(r->n_workers, 1);
	assert_int_equal(r->workers->pid, PT_NULL);
	assert_true(isnan(r->workers->slowdown) && !r->workers->batch_ms.n);
	assert_false(r->breakdown.known);
	pt_report_free(r);
}

static int files(char **path)
{
	static const struct pt_json_opts plain = { .indent = 2 },
					 listed = { .steps = SIZE_MAX, .indent = 2 };
	int status = 0;

	for (; *path; path++) {
		static char text[32 << 20];
		FILE *f = fopen(*path, "r");
		const char *wrong = "cannot be read";

		if (f) {
			text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
			fclose(f);
			wrong = reread(text, &plain);
			if (wrong && strstr(text, "\"list\""))
				wrong = reread(text, &listed);
		}
		if (wrong)
			printf("%s: %s\n", *path, wrong);
		status |= wrong != NULL;
	}
	return status;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fixtures_come_back),
		cmocka_unit_test(other_keys_are_no_error),
	};

	return argc > 1 ? files(argv + 1) :
			  cmocka_run_group_tests(tests, NULL, NULL);
}
