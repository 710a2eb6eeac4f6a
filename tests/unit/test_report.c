/* SPDX-License-Identifier: BSD-2-Clause */
/* The report object and its JSON form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>
#include <jansson.h>

#include "base/str.h"
#include "report/json.h"
#include "test_report_fixture.h"

/* Suites run from the top of the source tree. */
#define CHECKER "tests/unit/schema_check.py"

static json_t *get(json_t *o, const char *path)
{
	char copy[160], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *k = strtok_r(copy, "/", &save); k && o;
	     k = strtok_r(NULL, "/", &save))
		o = json_is_array(o) ? json_array_get(o, strtoul(k, NULL, 10)) :
				       json_object_get(o, k);
	if (!o)
		fail_msg("no %s in the report", path);
	return o;
}

static char *render(const struct pt_report *r, const struct pt_json_opts *o)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert_non_null(f);
	assert_int_equal(pt_report_json(r, f, o), 0);
	assert_int_equal(fclose(f), 0);
	return text;
}

static json_t *parse(const struct pt_report *r, const struct pt_json_opts *o)
{
	char *text = render(r, o);
	json_error_t err;
	json_t *d = json_loads(text, JSON_REJECT_DUPLICATES, &err);

	if (!d)
		fail_msg("%s at %d", err.text, err.position);
	free(text);
	return d;
}

/* The checker's exit status for `d`; what it finds is shown on request. */
static int validate(json_t *d, bool show)
{
	char path[] = "/tmp/pt_report_XXXXXX";
	char *argv[] = { "/usr/bin/python3", CHECKER, path, NULL };
	int fd = mkstemp(path), status = -1;
	FILE *f;
	pid_t pid;

	assert_true(fd >= 0);
	f = fdopen(fd, "w");
	assert_non_null(f);
	assert_int_equal(json_dumpf(d, f, JSON_REAL_PRECISION(15)), 0);
	assert_int_equal(fclose(f), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (!show && !freopen("/dev/null", "w", stderr))
			_exit(127);
		execv(argv[0], argv);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		assert_int_equal(errno, EINTR);
	unlink(path);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static bool can_validate(void)
{
	static int missing = -1;
	json_t *d;

	if (missing < 0) {
		d = json_object();
		missing = validate(d, false); /* 1: it works, and refuses {} */
		json_decref(d);
	}
	if (missing == 77 || missing == 127)
		print_message("skipped: no python3-jsonschema\n");
	else
		assert_int_equal(missing, 1);
	return missing == 1;
}

static void test_new_is_null(void **state)
{
	static const char *const nulls[] = {
		"host/version", "host/cores", "host/quota_cores", "target/pid",
		"target/cmdline", "target/started", "target/container",
		"target/job", "loader/workers/value", "capture/duration",
		"capture/begin_ns", "capture/begin_unix_ns",
		"capture/hooks/reads", "capture/events", "capture/lost/total",
		"capture/tracer_cpu_s", "capture/target_overhead/value",
		"steps/count", "steps/batches", "steps/optimizer_steps",
		"steps/certainty", "steps/source", "steps/period_ms",
		"steps/per_second", "steps/batch_size",
		"steps/samples_per_second", "steps/first_ms",
		"steps/max_over_min", "breakdown/data_wait/share",
		"breakdown/other/seconds", "data_wait/blocked",
		"data_wait/lead", "phases", "memory/growth_per_min",
		"memory/certainty",
	};
	struct pt_report *r = pt_report_new();
	json_t *d;

	(void)state;
	assert_non_null(r);
	assert_int_equal(pt_report_severity(r), -1);
	d = parse(r, NULL);
	for (size_t i = 0; i < NR(nulls); i++)
		if (!json_is_null(get(d, nulls[i])))
			fail_msg("%s is not null", nulls[i]);
	assert_int_equal(json_array_size(get(d, "ranks")), 0);
	assert_int_equal(json_array_size(get(d, "workers")), 0);
	assert_null(json_object_get(get(d, "steps"), "list"));
	/* a part that was filled but is not known stays null */
	r->breakdown.other.share = 0;
	json_decref(d);
	d = parse(r, NULL);
	assert_true(json_is_null(get(d, "breakdown/other/share")));
	json_decref(d);
	pt_report_free(r);
}

static void test_full_values(void **state)
{
	const struct pt_json_opts o = { .steps = 2, .indent = 2 };
	struct pt_report *r = fixture_full();
	json_t *d;

	(void)state;
	assert_non_null(r);
	d = parse(r, &o);
	assert_string_equal(json_string_value(get(d, "schema")),
			    "pipetrace.report/1");
	/* clocks: exact integers, the wall clock and inodes as text */
	assert_true(json_integer_value(get(d, "capture/begin_ns")) ==
		    900123456000000);
	assert_string_equal(json_string_value(get(d, "capture/begin_unix_ns")),
			    "1735689630123456789");
	assert_string_equal(json_string_value(get(d, "files/0/inode")),
			    "18446744073709551615");
	assert_string_equal(json_string_value(get(d, "files/1/inode")),
			    "9007199254740993");
	assert_int_equal(json_integer_value(get(d, "files/0/dev")), 0x800001);
	assert_int_equal(json_array_size(get(d, "steps/list")), 2);
	assert_true(json_integer_value(get(d, "steps/list/0/begin_ns")) ==
		    900123456789012);
	assert_true(json_is_true(get(d, "steps/list/0/blocked")));
	assert_true(json_is_null(get(d, "steps/list/1/worker")));
	/* settings take their type */
	assert_int_equal(json_integer_value(get(d, "loader/workers/value")), 2);
	assert_true(json_is_false(get(d, "loader/pinned/value")));
	assert_true(json_is_string(get(d, "loader/kind/value")));
	assert_true(json_is_null(get(d, "loader/sharing/value")));
	assert_string_equal(json_string_value(get(d, "capture/hooks/gpu")),
			    "uprobe_multi");
	assert_true(json_is_null(get(d, "capture/hooks/faults")));
	assert_string_equal(json_string_value(get(d, "verdicts/0/id")),
			    "cpu_bound");
	assert_string_equal(
		json_string_value(get(d, "verdicts/1/consequence_of")),
		"cpu_bound");
	assert_true(json_is_null(get(d, "verdicts/1/advice")));
	assert_true(json_is_null(get(d, "verdicts/1/expected_speedup/value")));
	assert_true(json_is_null(get(d, "gpu/0/memory/reserved")));
	assert_int_equal(json_integer_value(get(d, "gpu/0/copies/other")), 0);
	assert_true(json_is_null(get(d, "data_wait/causes/3/subject")));
	assert_int_equal(
		json_integer_value(get(d, "data_wait/causes/1/subject/pid")),
		4244);
	assert_true(json_is_null(get(d, "ranks/1/gpu/busy/share")));
	assert_string_equal(json_string_value(get(d, "workers/1/state")),
			    "slow");
	json_decref(d);
	pt_report_free(r);
}

static void test_shares_sum(void **state)
{
	struct pt_report *r = fixture_full();
	double sum = 0;
	const char *key;
	json_t *d, *v;

	(void)state;
	assert_non_null(r);
	d = parse(r, NULL);
	json_object_foreach(get(d, "breakdown"), key, v)
		if (strcmp(key, "host")) /* a detail of the others */
			sum += json_real_value(get(v, "share"));
	assert_true(fabs(sum - 1) < 1e-9);
	json_decref(d);
	pt_report_free(r);
}

static void test_rounding(void **state)
{
	struct pt_report *r = pt_report_new();
	char *text;

	(void)state;
	assert_non_null(r);
	r->capture.duration = 0.1 + 0.2;
	r->capture.tracer_cpu_s = 1.0 / 3;
	r->steps.first_ms = 12.34567;
	r->steps.per_second = -1e-12;
	r->steps.max_over_min = INFINITY;
	r->mem_growth_per_min = 1234567.89;
	r->target.started = 1735689630.123456;
	text = render(r, NULL);
	assert_non_null(strstr(text, "\"duration\":0.3,"));
	assert_non_null(strstr(text, "\"tracer_cpu_s\":0.333333,"));
	assert_non_null(strstr(text, "\"first_ms\":12.346,"));
	assert_non_null(strstr(text, "\"per_second\":0.0,"));
	assert_non_null(strstr(text, "\"max_over_min\":null,"));
	assert_non_null(strstr(text, "\"growth_per_min\":1234568.0,"));
	assert_non_null(strstr(text, "\"started\":1735689630.1234"));
	assert_null(strstr(text, "00000001"));
	assert_ptr_equal(strchr(text, '\n') + 1, text + strlen(text));
	free(text);
	pt_report_free(r);
}

static void test_hostile(void **state)
{
	struct pt_report *r = fixture_hostile();
	const char *cmd;
	char *text;
	json_t *d;

	(void)state;
	assert_non_null(r);
	text = render(r, NULL);
	for (const char *c = text; *c; c++)
		assert_true((unsigned char)*c >= 0x20 ||
			    (*c == '\n' && !c[1]));
	free(text);
	d = parse(r, NULL);
	cmd = json_string_value(get(d, "target/cmdline"));
	assert_non_null(strstr(cmd, "\\xff\\xc0\\xaf\\xed\\xa0\\x80"));
	/* the backslash that was there is not taken for one of ours */
	assert_non_null(strstr(cmd, "a\\\\x1b"));
	assert_true(json_is_true(get(d, "target/cmdline_escaped")));
	assert_true(json_is_true(get(d, "files/0/path_escaped")));
	assert_null(json_object_get(get(d, "verdicts/0"), "id_escaped"));
	/* two hooks of one need keep both doors; its name was no UTF-8 */
	assert_int_equal(json_object_size(get(d, "capture/hooks")), 5);
	assert_int_equal(json_object_size(get(d, "capture/hook_notes")), 1);
	assert_int_equal(
		json_integer_value(get(d, "capture/lost/by_cause/unknown")), 2);
	json_decref(d);
	pt_report_free(r);
}

static void test_utf8(void **state)
{
	static const struct {
		const char *in, *out;
		bool escaped;
	} cases[] = {
		{ "", "", false },
		{ "a\\b", "a\\b", false },
		{ "a\\b\xff", "a\\\\b\\xff", true },
		{ "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x8d",
		  "\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x8d", false },
		{ "\xc0\x80", "\\xc0\\x80", true },	/* overlong */
		{ "\xe0\x80\xaf", "\\xe0\\x80\\xaf", true },
		{ "\xf0\x8f\xbf\xbf", "\\xf0\\x8f\\xbf\\xbf", true },
		{ "\xed\xbf\xbf", "\\xed\\xbf\\xbf", true }, /* surrogate */
		{ "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", true },
		{ "\xe2\x82", "\\xe2\\x82", true },	/* cut short */
		{ "\x80", "\\x80", true },
	};

	(void)state;
	for (size_t i = 0; i < NR(cases); i++) {
		bool escaped = !cases[i].escaped;
		char *s = pt_str_utf8(cases[i].in, &escaped);

		assert_non_null(s);
		assert_string_equal(s, cases[i].out);
		assert_int_equal(escaped, cases[i].escaped);
		free(s);
	}
}

static void test_schema_takes_reports(void **state)
{
	const struct pt_json_opts o = { .steps = 100 };
	struct pt_report *r[] = { pt_report_new(), fixture_full(),
				  fixture_hostile() };

	(void)state;
	for (size_t i = 0; i < NR(r); i++)
		assert_non_null(r[i]);
	if (!can_validate()) {
		for (size_t i = 0; i < NR(r); i++)
			pt_report_free(r[i]);
		skip();
	}
	for (size_t i = 0; i < NR(r); i++) {
		json_t *d = parse(r[i], &o);

		assert_int_equal(validate(d, true), 0);
		json_decref(d);
		pt_report_free(r[i]);
	}
}

static void test_schema_refuses(void **state)
{
	static const struct {
		const char *where, *key, *json; /* NULL: take the key away */
	} bad[] = {
		{ "", "steps", NULL },
		{ "", "phases", NULL },
		{ "", "schema", "\"pipetrace.report/2\"" },
		{ "host", "kernel", NULL },
		{ "capture", "complete", "null" },
		{ "capture", "begin_unix_ns", "1735689630123456789" },
		{ "capture/hooks", "faults", NULL },
		{ "files/0", "inode", "12" },
		{ "files/0", "cached_share", "1.5" },
		{ "breakdown/data_wait", "share", "-0.1" },
		{ "data_wait/causes/0", "cause", "\"magic\"" },
		{ "verdicts/0", "id", "\"nonsense\"" },
		{ "verdicts/0", "severity", "\"fatal\"" },
		{ "verdicts/0", "certainty", "\"measured\"" },
		{ "verdicts/0/evidence/0", "certainty", "\"high\"" },
		{ "workers/0", "state", "\"busy\"" },
		{ "workers/0", "batches", "-1" },
		{ "gpu/0/busy", "hard", "[0.1]" },
		{ "steps/period_ms", "p95", "\"9\"" },
	};
	struct pt_report *r;

	(void)state;
	if (!can_validate())
		skip();
	r = fixture_full();
	assert_non_null(r);
	for (size_t i = 0; i < NR(bad); i++) {
		json_t *d = parse(r, NULL), *o = get(d, bad[i].where);

		assert_non_null(json_object_get(o, bad[i].key));
		if (bad[i].json)
			json_object_set_new(o, bad[i].key,
					    json_loads(bad[i].json,
						       JSON_DECODE_ANY, NULL));
		else
			json_object_del(o, bad[i].key);
		if (validate(d, false) != 1)
			fail_msg("the schema takes %s/%s: %s", bad[i].where,
				 bad[i].key, bad[i].json ? bad[i].json : "none");
		json_decref(d);
	}
	pt_report_free(r);
}

static void test_limits(void **state)
{
	struct pt_report *r = pt_report_new();

	(void)state;
	assert_non_null(r);
	for (int i = 0; i < 40; i++)
		assert_int_equal(pt_report_limit(r, "gpu", "reason %d", i / 2),
				 0);
	assert_int_equal(pt_report_limit(r, "cpu", "reason %d", 0), 0);
	assert_int_equal(r->capture.n_limits, 21);
	assert_string_equal(r->capture.limits[0].reason, "reason 0");
	assert_string_equal(r->capture.limits[19].reason, "reason 19");
	assert_string_equal(r->capture.limits[20].what, "cpu");
	pt_report_free(r);
	pt_report_free(NULL);
}

static void test_names(void **state)
{
	struct pt_report *r = fixture_full();

	(void)state;
	assert_non_null(r);
	assert_int_equal(pt_report_severity(r), PT_CRITICAL);
	r->verdicts += 2;
	r->n_verdicts = 1;
	assert_int_equal(pt_report_severity(r), PT_WARNING);
	pt_report_free(r);
	assert_null(pt_certainty_name(PT_CERT_NONE));
	assert_string_equal(pt_certainty_name(PT_BOUNDED), "bounded");
	assert_null(pt_confidence_name(PT_CONF_NONE));
	assert_string_equal(pt_cause_name(PT_CAUSE_RUN_QUEUE), "run_queue");
	assert_string_equal(pt_cause_name((enum pt_cause)99), "unknown");
	assert_string_equal(pt_worker_state_name(PT_WORKER_HUNG), "hung");
}

static void test_write_error(void **state)
{
	struct pt_report *r = fixture_full();
	FILE *f = fopen("/dev/full", "w");

	(void)state;
	assert_non_null(r);
	assert_non_null(f);
	assert_int_equal(pt_report_json(r, f, NULL), -EIO);
	fclose(f);
	pt_report_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new_is_null),
		cmocka_unit_test(test_full_values),
		cmocka_unit_test(test_shares_sum),
		cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_schema_takes_reports),
		cmocka_unit_test(test_schema_refuses),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_write_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
