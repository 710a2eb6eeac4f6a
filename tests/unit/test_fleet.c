/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is late in a group; and what a server's answer is taken for. */
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

#include "fleet/fleet.h"

#define MAX 64

static size_t groups, small;

/* Members of one group with these times; how many straggle. */
static size_t late(struct pt_fleet_member *m, const double *step_s, size_t n)
{
	double scratch[MAX];
	size_t i, count = 0;

	assert_true(n <= MAX);
	for (i = 0; i < n; i++)
		m[i] = (struct pt_fleet_member){ .group = "g", .own_s = step_s[i],
						 .data_s = NAN, .length_s = NAN, .index = i };
	pt_fleet_judge(m, n, scratch, &groups, &small);
	for (i = 0; i < n; i++)
		count += m[i].straggles;
	return count;
}

static void one_is_late(void **state)
{
	static const double one[] = { 1, 1.01, 0.99, 1.5, 1, 1.02, 0.98, 1 };
	static const double even[] = { 1, 1, 1, 1.09 };
	static const double wild[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	static const double half[] = { 1, 1, 1, 3, 3, 3 };
	static const double pair[] = { 1, 9 };
	static const double three[] = { 1, 1, 9 };
	struct pt_fleet_member m[MAX];
	size_t i;

	(void)state;
	assert_int_equal(late(m, one, 8), 1);
	for (i = 0; i < 8; i++)
		assert_int_equal(m[i].straggles, m[i].index == 3);
	assert_int_equal(m[0].members, 8);
	assert_true(m[0].median_s == 1);
	assert_int_equal(late(m, even, 4), 0); /* not by a tenth */
	assert_int_equal(late(m, wild, 8), 0); /* they differ all */
	assert_int_equal(late(m, half, 6), 0); /* there is no usual time */
	assert_int_equal(late(m, pair, 2), 0); /* of two nobody can tell */
	assert_int_equal(groups, 1);
	assert_int_equal(small, 1);
	assert_int_equal(late(m, three, 3), 1);
	assert_int_equal(small, 0);
	assert_int_equal(late(m, NULL, 0), 0);
	assert_int_equal(groups, 0);
}

/* Groups are told apart wherever their members stand, and the reason is found. */
static void groups_and_reasons(void **state)
{
	struct pt_fleet_member m[13];
	double scratch[13];
	size_t i, n = 0;

	(void)state;
	for (i = 0; i < 12; i++)
		m[n++] = (struct pt_fleet_member){
			.group = i % 3 == 0 ? "a" : i % 3 == 1 ? "b" : "c",
			.own_s = i == 4 ? 5 : i == 8 ? 30 : i % 3 == 2 ? 10 : 1,
			.data_s = i == 4 ? 4.2 : 0.2, .length_s = NAN,
			.index = i };
	m[n++] = (struct pt_fleet_member){ .group = "alone", .own_s = 99, .length_s = NAN, .index = 12 };
	pt_fleet_judge(m, n, scratch, &groups, &small);
	assert_int_equal(groups, 3);
	assert_int_equal(small, 0); /* alone, there is nothing to compare */
	for (i = 0; i < n; i++) {
		assert_int_equal(m[i].straggles, m[i].index == 4 || m[i].index == 8);
		if (m[i].straggles)
			assert_int_equal(m[i].by_data, m[i].index == 4);
	}
}

/* Host work that is three times another's is nothing in a long step. */
static void a_tenth_of_the_step(void **state)
{
	struct pt_fleet_member m[4];
	double scratch[4], length;
	size_t i, late = 0;

	(void)state;
	for (length = 1; length <= 10; length += 9) {
		for (i = 0; i < 4; i++)
			m[i] = (struct pt_fleet_member){
				.group = "g", .own_s = i ? 0.1 : 0.3, .data_s = NAN,
				.length_s = length, .index = i };
		pt_fleet_judge(m, 4, scratch, &groups, &small);
		for (i = 0, late = 0; i < 4; i++)
			late += m[i].straggles;
		assert_int_equal(late, length < 2);
	}
}

/* Noise alone: of 32 ranks whose times differ by 3 %, over many seeds, hardly any
 * is blamed; one that is a quarter slower always is. */
static void noise(void **state)
{
	struct pt_fleet_member m[MAX];
	double v[32];
	unsigned seed, blamed = 0, found = 0;
	size_t i;

	(void)state;
	for (seed = 1; seed <= 1000; seed++) {
		srand(seed);
		for (i = 0; i < 32; i++) {
			double sum = 0;
			int k;

			for (k = 0; k < 12; k++)
				sum += rand() / (double)RAND_MAX;
			v[i] = 0.2 * (1 + 0.03 * (sum - 6));
		}
		blamed += late(m, v, 32);
		v[7] *= 1.25;
		late(m, v, 32);
		for (i = 0; i < 32; i++)
			found += m[i].index == 7 && m[i].straggles;
	}
	print_message("of 32000 ranks %u blamed, of 1000 late ones %u found\n", blamed,
		      found);
	assert_true(blamed < 100);
	assert_true(found > 950);
}

static int parse(const char *text, json_t **rows)
{
	char why[256] = "";
	int ret = pt_prometheus_parse(text, strlen(text), rows, why, sizeof(why));

	assert_true(!ret == !!*rows);
	assert_true(!ret || *why);
	return ret;
}

static void answers(void **state)
{
	static const char *const bad[] = {
		"", "{}", "[]", "null", "{\"data\":{}}", "{\"data\":{\"result\":[]}}",
		"{\"data\":{\"resultType\":\"vector\",\"result\":{}}}",
		"{\"data\":{\"resultType\":\"matrix\",\"result\":[]}}",
		"{\"data\":{\"resultType\":\"vector\",\"result\":[{}]}}",
		"{\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":{},\"value\":[1,2]}]}}",
		"{\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":{},\"value\":[1,\"\"]}]}}",
		"{\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":{\"a\":1},\"value\":[1,\"2\"]}]}}",
		"{\"data\":{\"resultType\":\"scalar\",\"result\":[1]}}",
	};
	json_t *rows;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(parse(bad[i], &rows), -EPROTO);
	assert_int_equal(parse("{\"data\":{\"resultType\":\"vector\",\"result\":["
			       "{\"metric\":{\"a\":\"b\"},\"value\":[1,\"2.5\"]},"
			       "{\"metric\":{},\"value\":[1,\"NaN\"]},"
			       "{\"metric\":{},\"value\":[1,\"+Inf\"]}]}}", &rows), 0);
	assert_int_equal(json_array_size(rows), 1);
	assert_string_equal(pt_fleet_label(json_object_get(json_array_get(rows, 0),
							   "metric"), "a"), "b");
	json_decref(rows);
	assert_int_equal(parse("{\"data\":{\"resultType\":\"scalar\",\"result\":[1,\"7\"]}}",
			       &rows), 0);
	assert_true(json_number_value(json_object_get(json_array_get(rows, 0),
						      "value")) == 7);
	json_decref(rows);
}

static void urls(void **state)
{
	static const char *const bad[] = { "", "localhost:9090", "http://", "http:///x",
					   "file:///etc/passwd", "http://a b", "http://u:p@h",
					   "http://h/?x", "http://h#x", "http://h\n" };
	struct pt_prometheus_options o = { .timeout_s = 1 };
	struct pt_prometheus *p;
	char why[256];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		o.url = bad[i];
		assert_int_equal(pt_prometheus_open(&o, &p, why, sizeof(why)), -EINVAL);
		assert_null(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_is_late),
		cmocka_unit_test(groups_and_reasons),
		cmocka_unit_test(a_tenth_of_the_step),
		cmocka_unit_test(noise),
		cmocka_unit_test(answers),
		cmocka_unit_test(urls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
