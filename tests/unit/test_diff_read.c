/* SPDX-License-Identifier: BSD-2-Clause */
/* The reader of JSON reports: what is none of this version is refused in one
 * sentence. Runs under sanitizers. (What was written comes back:
 * test_report_reread.) */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "report/json.h"
#include "report/readjson.h"
#include "test_report_fixture.h"

static char *render(const struct pt_report *r, size_t *len)
{
	struct pt_json_opts o = { .steps = 1000, .indent = 1 };
	char *text = NULL;
	FILE *f = open_memstream(&text, len);

	assert_non_null(f);
	assert_int_equal(pt_report_json(r, f, &o), 0);
	assert_int_equal(fclose(f), 0);
	return text;
}

/* Read `text`; the report and its complaint are thrown away. */
static int try_text(const char *text, size_t len, struct pt_read_error *why)
{
	struct pt_report *r = pt_report_new();
	int ret;

	assert_non_null(r);
	why->text[0] = '\0';
	ret = pt_report_read_json(text, len, r, why);
	assert_true(ret == 0 || ret == -EINVAL);
	/* a complaint is one line and not empty */
	assert_int_equal(!ret, !why->text[0]);
	assert_null(strchr(why->text, '\n'));
	pt_report_free(r);
	return ret;
}

static int try_doc(const json_t *d, struct pt_read_error *why)
{
	char *text = json_dumps(d, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
	int ret;

	assert_non_null(text);
	ret = try_text(text, strlen(text), why);
	free(text);
	return ret;
}

static json_t *fixture_doc(void)
{
	struct pt_report *r = fixture_full();
	json_t *d;
	size_t len;
	char *text;

	assert_non_null(r);
	assert_int_equal(pt_report_label(r, "workers", "2"), 0);
	assert_int_equal(pt_report_label(r, "branch", "main"), 0);
	text = render(r, &len);
	d = json_loadb(text, len, 0, NULL);
	assert_non_null(d);
	free(text);
	pt_report_free(r);
	return d;
}

/* ---- what is wrong is named ------------------------------------------------ */

static json_t *at(json_t *o, const char *path)
{
	char copy[160], *save = NULL, *k;

	snprintf(copy, sizeof(copy), "%s", path);
	for (k = strtok_r(copy, "/", &save); k && o;
	     k = strtok_r(NULL, "/", &save))
		o = json_is_array(o) ? json_array_get(o, strtoul(k, NULL, 10)) :
				       json_object_get(o, k);
	assert_non_null(o);
	return o;
}

static void complaints_are_clear(void **state)
{
	static const struct {
		const char *where, *key, *json, *says; /* json NULL: without */
	} bad[] = {
		{ "", "schema", NULL, "no report of pipetrace" },
		{ "", "schema", "\"pipetrace.report/2\"",
		  "it is \"pipetrace.report/2\", this version reads" },
		{ "", "schema", "\"pipetrace.diff/1\"", "a comparison" },
		{ "", "schema", "7", "no report of pipetrace" },
		{ "", "capture", NULL, "capture is missing" },
		{ "", "steps", "[]", "steps is not an object" },
		{ "", "verdicts", "{}", "verdicts is not an array" },
		{ "", "labels", "{\"a\": 1}", "a label is not a text" },
		{ "steps", "count", "-1", "steps.count is -1, which is out" },
		{ "steps", "count", "1.5", "steps.count is not a whole number" },
		{ "steps", "source", "[1]", "steps.source is not a text" },
		{ "steps", "certainty", "7",
		  "steps.certainty is not a name" },
		{ "steps/period_ms", "mean", "null", "no count or no mean" },
		{ "steps/period_ms", "mean", "1e300", "out of its range" },
		{ "steps/period_ms", "count", "0", "out of its range" },
		{ "steps/list/1", "period_ms", "\"71\"",
		  "steps.list[1].period_ms is not a number" },
		{ "steps/list/1", "end_ns", "5", "ends before it begins" },
		{ "steps/list/2", "begin_ns", "7", "not in order" },
		{ "steps/list/0", "cause", "7",
		  "steps.list[0].cause is not a name" },
		{ "steps/list/0", "blocked", "0", "not true or false" },
		{ "capture", "end_ns", "1", "ends before it begins" },
		{ "capture", "complete", "null", "not true or false" },
		{ "breakdown/data_wait", "share", "1.5", "out of its range" },
		{ "breakdown/other", "seconds", "null", "some of its parts" },
		{ "data_wait/causes/0", "seconds", "-3", "out of its range" },
		{ "gpu/0/idle", "hard", "[0.1]", "not a pair of numbers" },
		{ "gpu/0/idle", "hard", "[0.9, 0.1]", "the wrong way round" },
		{ "verdicts/0", "title", "null", "verdicts[0].title is missing" },
		{ "verdicts/0", "severity", "\"fatal\"", "not a name" },
		{ "loader/workers", "value", "{}", "loader.workers.value" },
	};
	struct pt_read_error why;

	(void)state;
	for (size_t i = 0; i < NR(bad); i++) {
		json_t *d = fixture_doc(), *o = at(d, bad[i].where), *v;

		if (bad[i].json) {
			v = json_loads(bad[i].json, JSON_DECODE_ANY, NULL);
			assert_int_equal(json_object_set_new(o, bad[i].key, v),
					 0);
		} else {
			assert_int_equal(json_object_del(o, bad[i].key), 0);
		}
		assert_int_equal(try_doc(d, &why), -EINVAL);
		if (!strstr(why.text, bad[i].says))
			fail_msg("\"%s\" lacks \"%s\"", why.text, bad[i].says);
		json_decref(d);
	}
}

static void files_that_are_none(void **state)
{
	static const char *const bad[] = {
		"", " ", "{", "[]", "7", "null", "\"pipetrace.report/1\"", "{}",
		"{\"schema\": \"pipetrace.report/1\"}",
		"{\"schema\": \"pipetrace.report/1\", \"schema\": \"x\"}",
		"{\"a\": 1e999}", "{\"a\": 99999999999999999999999}",
		"{\"a\": NaN}", "{\"\\u0000\": 1}", "\xff\xfe{}", "PTRAWST",
	};
	struct pt_read_error why;
	char *deep = malloc(300001);

	(void)state;
	assert_non_null(deep);
	for (size_t i = 0; i < NR(bad); i++)
		assert_int_equal(try_text(bad[i], strlen(bad[i]), &why),
				 -EINVAL);
	memset(deep, '[', 300000);
	assert_int_equal(try_text(deep, 300000, &why), -EINVAL);
	/* too large: it is not even looked at */
	assert_int_equal(try_text(NULL, (size_t)PT_READ_MAX + 1, &why),
			 -EINVAL);
	assert_non_null(strstr(why.text, "larger than 64 MiB"));
	free(deep);
}

/* Every value of the document, one after the other, replaced by every kind. */
static size_t replace_each(json_t *root, json_t *o, size_t *refused)
{
	static const char *const junk[] = {
		"null", "true", "-1", "9223372036854775807", "1e308", "-0.5",
		"\"\"", "\"\\u001b[2J\"", "[]", "[null, 1, {}]", "{}",
	};
	struct pt_read_error why;
	size_t tried = 0;
	const char *key;
	json_t *v;
	void *tmp;

	json_object_foreach_safe(o, tmp, key, v) {
		char name[128];

		snprintf(name, sizeof(name), "%s", key);
		json_incref(v);
		for (size_t i = 0; i < NR(junk); i++, tried++) {
			json_object_set_new(o, name,
					    json_loads(junk[i], JSON_DECODE_ANY,
						       NULL));
			*refused += try_doc(root, &why) != 0;
		}
		json_object_set_new(o, name, v);
		if (json_is_object(v))
			tried += replace_each(root, v, refused);
		if (json_is_object(json_array_get(v, 0)))
			tried += replace_each(root, json_array_get(v, 0),
					      refused);
	}
	return tried;
}

static void every_value_replaced(void **state)
{
	json_t *d = fixture_doc();
	struct pt_read_error why;
	size_t refused = 0, tried = replace_each(d, d, &refused);

	(void)state;
	print_message("# %zu documents, %zu refused\n", tried, refused);
	assert_true(tried > 2000 && refused > tried / 4);
	assert_int_equal(try_doc(d, &why), 0);
	json_decref(d);
}

static void bytes_flipped_and_cut(void **state)
{
	struct pt_report *r = fixture_full();
	struct pt_read_error why;
	uint32_t rnd = 2463534242u;
	size_t len, i;
	char *text, *copy;

	(void)state;
	text = render(r, &len);
	copy = malloc(len);
	assert_non_null(copy);
	for (i = 0; i < len; i += 97) /* the whole ends with a newline */
		if (i + 1 < len)
			assert_int_equal(try_text(text, i, &why), -EINVAL);
	for (i = 0; i < 1500; i++) {
		memcpy(copy, text, len);
		for (int k = 0; k < 3; k++) {
			rnd ^= rnd << 13;
			rnd ^= rnd >> 17;
			rnd ^= rnd << 5;
			copy[rnd % len] = "0-9e.\"{}[],:x\xff"[(rnd >> 8) % 15];
		}
		try_text(copy, len, &why);
	}
	free(copy);
	free(text);
	pt_report_free(r);
}

static void labels_have_limits(void **state)
{
	struct pt_report *r = pt_report_new();
	char key[16];

	(void)state;
	assert_non_null(r);
	for (int i = 0; i < PT_LABELS_MAX; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		assert_int_equal(pt_report_label(r, key, "v"), 0);
	}
	assert_int_equal(pt_report_label(r, "one more", "v"), -ENOSPC);
	assert_int_equal(pt_report_label(r, "k7", "w"), 0);
	assert_int_equal(r->n_labels, PT_LABELS_MAX);
	assert_string_equal(r->labels[7].value, "w");
	pt_report_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(complaints_are_clear),
		cmocka_unit_test(files_that_are_none),
		cmocka_unit_test(every_value_replaced),
		cmocka_unit_test(bytes_flipped_and_cut),
		cmocka_unit_test(labels_have_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
