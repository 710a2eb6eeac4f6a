/* SPDX-License-Identifier: BSD-2-Clause */
/* What is scraped: syntax, names, bounds, and labels that others choose. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/prom.h"

static struct pt_tally *worst(void)
{
	struct pt_tally *t = calloc(1, sizeof(*t));
	size_t i;

	assert_non_null(t);
	for (i = 0; i < PT_CAUSE_NR; i++)
		t->lost_s[i] = 1 + (double)i;
	for (i = 0; i < PT_TALLY_CAUSES; i++)
		t->cause[i] = (uint8_t)i;
	t->n_causes = PT_TALLY_CAUSES;
	t->steps = 1;
	t->n_mounts = PT_TALLY_MOUNTS;
	for (i = 0; i < PT_TALLY_MOUNTS; i++) {
		snprintf(t->mount[i].name, sizeof(t->mount[i].name), "m%zu", i);
		t->mount[i].read_s = (double)i;
	}
	t->has_last = true;
	t->watched = true;
	t->last.duration = 5;
	t->last.gpus = 2;
	t->last.busy_s = 5;
	t->last.slowdown = 2;
	t->last.n_verdicts = PT_SAMPLE_VERDICTS;
	for (i = 0; i < PT_SAMPLE_VERDICTS; i++)
		snprintf(t->last.verdict[i].id, sizeof(t->last.verdict[i].id),
			 "v%zu", i);
	strcpy(t->last.verdict[PT_SAMPLE_VERDICTS - 1].id, "gpu_starved");
	return t;
}

static char *write_one(const struct pt_prom_job *j, size_t n, bool openmetrics)
{
	struct pt_prom_agent a = { .version = "1", .cpu_s = 1.5, .jobs = 1 };
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	assert_int_equal(pt_prom_write(f, &a, j, n, openmetrics), 0);
	fclose(f);
	return text;
}

static size_t count(const char *text, const char *what)
{
	size_t n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

/* Every line is a comment or a sample: a name, labels in quotes, a number. */
static void check_syntax(char *text)
{
	char *save, *line;

	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *p = line + strspn(line, "abcdefghijklmnopqrstuvwxyz_"), *end;

		if (*line == '#')
			continue;
		assert_true(p > line);
		if (*p == '{') {
			for (p++; *p != '}'; p += *p == ',') {
				p += strspn(p, "abcdefghijklmnopqrstuvwxyz_");
				assert_true(!strncmp(p, "=\"", 2));
				for (p += 2; *p != '"'; p++) {
					assert_true((unsigned char)*p >= 0x20);
					if (*p == '\\')
						assert_non_null(strchr("\\\"n", *++p));
				}
				p++;
			}
			p++;
		}
		assert_true(*p++ == ' ');
		strtod(p, &end);
		assert_true(end > p && !*end);
	}
}

static void bounded_series(void **state)
{
	struct pt_tally *t = worst();
	struct pt_prom_job j = { .job = "a", .t = t, .pid = 1, .rank = -1,
				 .world = -1, .since_unix = 1e9 };
	char *text = write_one(&j, 1, true);

	(void)state;
	/* all of them at once: what a job has at the most */
	assert_int_equal(count(text, "job_id=\"a\""), PT_PROM_SERIES);
	assert_non_null(strstr(text, "cause=\"no_demand\"} 17\n"));
	assert_non_null(strstr(text, "cause=\"other\"} "));
	assert_non_null(strstr(text, "{job_id=\"a\",id=\"gpu_starved\""));
	assert_int_equal(count(text, "pipetrace_verdict{"), 5);
	assert_non_null(strstr(text, "mount_read_seconds_total{job_id=\"a\",mount=\"m31\"} 31\n"));
	assert_int_equal(count(text, "mount=\""), 6);
	assert_int_equal(count(text, "phase=\""), 4);
	assert_non_null(strstr(text, "cause=\"disk\"} 4\n"));
	assert_non_null(strstr(text, "bound=\"estimate\"} 0.5\n"));
	assert_string_equal(text + strlen(text) - 6, "# EOF\n");
	assert_non_null(strstr(text, "# TYPE pipetrace_samples counter\n"));
	free(text);
	/* ended: it starves no more, but what it lost stays lost */
	j.ended = true;
	text = write_one(&j, 1, true);
	assert_int_equal(count(text, "pipetrace_verdict{"), 0);
	assert_int_equal(count(text, "_ratio{"), 0);
	assert_non_null(strstr(text, "cause=\"no_demand\"} 17\n"));
	free(text);
	text = write_one(&j, 1, false);
	assert_null(strstr(text, "# EOF"));
	assert_non_null(strstr(text, "# TYPE pipetrace_samples_total counter\n"));
	free(text);
	free(t);
}

/* A job may be called what it likes. */
static void hostile_labels(void **state)
{
	static const char evil[] =
		"x\"} 1\nnode_up{a=\"\\\xff\x1b[31m\xe2\x80\xa8\x7f";
	struct pt_tally *t = worst();
	struct pt_owner owner = { .pod = "p" };
	struct pt_prom_label free_label = { "team", "a\\b\"c\nd" };
	char lots[5000];
	struct pt_prom_job j[2] = {
		{ .job = evil, .comm = evil, .user = evil, .t = t, .rank = 3,
		  .world = 8, .owner = &owner, .labels = &free_label, .n_labels = 1 },
		{ .job = lots, .comm = lots, .t = t, .rank = -1, .world = -1 },
	};
	char *text;

	(void)state;
	memset(lots, 'x', sizeof(lots) - 1);
	lots[sizeof(lots) - 1] = '\0';
	memcpy(lots + PT_PROM_LABEL - 1, "\xc3\xa4", 2); /* not half of it */
	text = write_one(j, 2, true);
	assert_null(strstr(text, "\nnode_up"));
	assert_null(strchr(text, 0x1b));
	assert_non_null(strstr(text, "rank=\"3\",world_size=\"8\",pod=\"p\""));
	assert_non_null(strstr(text, "team=\"a\\\\b\\\"c\\nd\""));
	assert_null(strstr(text, "\xc3"));
	check_syntax(text);
	free(text);
	free(t);
}

static void unknown_is_left_out(void **state)
{
	struct pt_tally t = { 0 };
	struct pt_prom_job j = { .job = "a", .t = &t, .rank = -1, .world = -1 };
	char *text = write_one(&j, 1, true);

	(void)state;
	assert_null(strstr(text, "nan"));
	assert_null(strstr(text, "pipetrace_data_wait_ratio{"));
	assert_null(strstr(text, "pipetrace_gpu_busy_ratio{"));
	check_syntax(text);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bounded_series),
		cmocka_unit_test(hostile_labels),
		cmocka_unit_test(unknown_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
