/* SPDX-License-Identifier: BSD-2-Clause */
/* The HTML page's data: pieces of a lane, steps, and texts that would end them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "report/json.h"
#include "stream.h"
#include "test_report_fixture.h"
#include "view/export.h"
#include "view/html/html_int.h"

#define BEGIN (1000 * ST_S)

/* ---- reading what was packed --------------------------------------------------- */

struct bytes {
	unsigned char v[1 << 20];
	size_t n, at;
};

static void unbase64(const char *text, struct bytes *out)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "abcdefghijklmnopqrstuvwxyz0123456789+/";
	uint32_t w = 0;
	int bits = 0;

	out->n = out->at = 0;
	for (; *text && *text != '='; text++) {
		const char *d = strchr(digits, *text);

		assert_non_null(d);
		w = w << 6 | (uint32_t)(d - digits);
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			assert_true(out->n < sizeof(out->v));
			out->v[out->n++] = (unsigned char)(w >> bits);
		}
	}
}

static unsigned byte(struct bytes *b)
{
	assert_true(b->at < b->n);
	return b->v[b->at++];
}

static uint64_t number(struct bytes *b)
{
	uint64_t v = 0;
	unsigned c, shift = 0;

	do {
		c = byte(b);
		v |= (uint64_t)(c & 127) << shift;
		shift += 7;
	} while (c & 128);
	return v;
}

struct sums {
	double time[PT_HC_NR], all;
	size_t pieces, mixed;
};

/* Each category's time over all pieces of a level, in its own unit. */
static void add_up(const json_t *lane, const char *level, struct sums *s)
{
	static struct bytes b;

	memset(s, 0, sizeof(*s));
	unbase64(json_string_value(json_object_get(lane, level)), &b);
	while (b.at < b.n) {
		double length = (double)number(&b);
		unsigned c = byte(&b), cat;

		s->all += length;
		s->pieces++;
		if (c < 128) {
			assert_true(c < PT_HC_NR);
			s->time[c] += length;
			continue;
		}
		for (s->mixed++, c -= 128; c; c--) {
			cat = byte(&b);
			assert_true(cat && cat < PT_HC_NR);
			s->time[cat] += length * byte(&b) / 255;
		}
	}
}

/* ---- lanes ------------------------------------------------------------------------- */

struct span {
	uint64_t begin, end;
	enum pt_html_cat cat;
};
struct spans {
	struct span *v;
	size_t n;
};

static void give(const void *src, struct pt_lod *l)
{
	const struct spans *s = src;
	size_t i;

	for (i = 0; i < s->n; i++)
		pt_lod_add(l, s->v[i].begin, s->v[i].end, s->v[i].cat);
}

static void test_exact(void **state)
{
	/* before the begin, a gap, one inside of another, behind the end */
	struct span v[] = {
		{ BEGIN - ST_S, BEGIN + 5 * ST_MS, PT_HC_DISK },
		{ BEGIN + 7 * ST_MS, BEGIN + 9 * ST_MS, PT_HC_RUNNING },
		{ BEGIN + 8 * ST_MS, BEGIN + 8500 * ST_US, PT_HC_FUTEX },
		{ BEGIN + 99 * ST_MS, BEGIN + 900 * ST_MS, PT_HC_RUNQ },
	};
	struct spans src = { v, NR(v) };
	static struct bytes b;
	struct pt_jb jb = { 0 };
	json_t *o = json_object();

	(void)state;
	pt_lod_pack(&jb, o, give, &src, BEGIN, BEGIN + 100 * ST_MS, 100000);
	assert_false(jb.failed);
	assert_int_equal(json_integer_value(json_object_get(o, "resolution_us")), 1);
	unbase64(json_string_value(json_object_get(o, "detail")), &b);
	assert_int_equal(number(&b), 5000);
	assert_int_equal(byte(&b), PT_HC_DISK);
	assert_int_equal(number(&b), 2000);
	assert_int_equal(byte(&b), PT_HC_NOTHING);
	assert_int_equal(number(&b), 2000);
	assert_int_equal(byte(&b), PT_HC_RUNNING);
	assert_int_equal(number(&b), 90000);
	assert_int_equal(byte(&b), PT_HC_NOTHING);
	assert_int_equal(number(&b), 1000);
	assert_int_equal(byte(&b), PT_HC_RUNQ);
	assert_int_equal(b.at, b.n);
	json_decref(o);
}

/* Many short spans in few bytes: whose the time is stays as it was, as far as a
 * share of 255 tells it. */
static void test_bounded(void **state)
{
	const size_t n = 200000, cap = 120000;
	struct spans src = { calloc(n, sizeof(*src.v)), n };
	uint64_t at = BEGIN, seed = 5, end;
	double want[PT_HC_NR] = { 0 };
	struct pt_jb jb = { 0 };
	json_t *o = json_object();
	struct sums got;
	size_t i;

	(void)state;
	assert_non_null(src.v);
	for (i = 0; i < n; i++) {
		bool rest = st_between(&seed, 0, 499) == 0;

		end = at + (rest ? 300 * ST_MS : st_between(&seed, 100, 4 * ST_MS));
		src.v[i] = (struct span){ at, end, rest ? PT_HC_POLL :
			(enum pt_html_cat)st_between(&seed, 1, 5) };
		want[src.v[i].cat] += (double)(end - at) / 1e3;
		at = end;
	}
	pt_lod_pack(&jb, o, give, &src, BEGIN, at, cap);
	assert_false(jb.failed);
	add_up(o, "detail", &got);
	assert_true(strlen(json_string_value(json_object_get(o, "detail"))) <=
		    cap * 4 / 3 + 4);
	assert_true(json_integer_value(json_object_get(o, "resolution_us")) > 4000);
	assert_int_equal(got.all, (at - BEGIN) / 1000);
	assert_true(got.mixed > 100 && got.pieces > got.mixed);
	for (i = 1; i < PT_HC_NR; i++)
		if (fabs(got.time[i] - want[i]) > got.all * 2.5 / 255)
			fail_msg("category %zu: %.0f us, not %.0f", i,
				 got.time[i], want[i]);
	/* a rest is long enough to stay what it is */
	assert_true(fabs(got.time[PT_HC_POLL] - want[PT_HC_POLL]) < 1e-3 * got.all);
	add_up(o, "coarse", &got);
	assert_int_equal(got.all, PT_LOD_COARSE);
	for (i = 1; i < PT_HC_NR; i++)
		assert_true(fabs(got.time[i] / PT_LOD_COARSE * (double)(at - BEGIN) /
				 1e3 - want[i]) < (double)(at - BEGIN) / 1e3 * 2.5 / 255);
	json_decref(o);
	free(src.v);
}

/* ---- steps ------------------------------------------------------------------------- */

static void test_histogram(void **state)
{
	double ms[] = { 10, NAN, 12, 1000, 11, 10, -1, 0, INFINITY };
	struct pt_jb jb = { 0 };
	json_t *o = pt_html_histogram(&jb, ms, sizeof(*ms), NR(ms), 0, 0), *v;
	size_t i;
	json_int_t sum = 0;

	(void)state;
	json_array_foreach(json_object_get(o, "counts"), i, v)
		sum += json_integer_value(v);
	assert_int_equal(sum, 5);
	v = json_object_get(o, "edges");
	assert_true(json_number_value(json_array_get(v, 0)) == 10);
	assert_true(json_number_value(json_array_get(v, json_array_size(v) - 1)) ==
		    1000);
	json_decref(o);
	o = pt_html_histogram(&jb, ms, sizeof(*ms), 1, 0, 0);
	assert_true(json_is_null(o)); /* one length is no distribution */
	json_decref(o);
	assert_false(jb.failed);
}

static void test_steps(void **state)
{
	static struct pt_r_step list[PT_HTML_STEPS * 2 + 3];
	struct pt_report *r = pt_report_new();
	struct pt_lanes lanes = { 0 };
	struct pt_export x = { .r = r, .lanes = &lanes };
	static struct bytes b;
	struct pt_jb jb = { 0 };
	double mean = 0;
	uint64_t at = 0;
	size_t i, n;
	json_t *o;

	(void)state;
	for (i = 0; i < NR(list); i++)
		list[i] = (struct pt_r_step){
			.index = (int64_t)i, .begin_ns = (int64_t)(BEGIN + i * ST_MS),
			.end_ns = (int64_t)(BEGIN + (i + 1) * ST_MS),
			.period_ms = i % 10 ? 1 : 5, .data_wait_ms = 0.25,
			.cause = PT_CAUSE_DISK, .worker = PT_NULL };
	list[7].period_ms = NAN;
	r->capture.begin_ns = (int64_t)BEGIN;
	r->steps.list = list;
	r->steps.n_list = NR(list);
	o = pt_html_steps(&jb, &x);
	assert_int_equal(json_integer_value(json_object_get(o, "per")), 3);
	unbase64(json_string_value(json_object_get(o, "data")), &b);
	for (n = 0; b.at < b.n; n++) {
		double least, most, middle;

		at += number(&b);
		assert_int_equal(at, n * 3000);
		middle = (double)number(&b) - 1;
		least = (double)number(&b) - 1;
		most = (double)number(&b) - 1;
		mean += middle;
		assert_true(least <= middle && middle <= most && least == 1000);
		assert_int_equal(number(&b), 251);
		assert_int_equal(number(&b), PT_CAUSE_DISK);
		assert_int_equal(number(&b), 0);
	}
	assert_int_equal(n, (NR(list) + 2) / 3);
	assert_true(fabs(mean / (double)n - 1400) < 1);
	json_decref(o);
	pt_report_free(r);
}

/* ---- the page ------------------------------------------------------------------------ */

static size_t occurs(const char *in, size_t n, const char *what)
{
	const char *at = in;
	size_t times = 0, len = strlen(what);

	while ((at = memmem(at, n - (size_t)(at - in), what, len))) {
		times++;
		at += len;
	}
	return times;
}

static json_t *block(const char *page, const char *id)
{
	char head[80];
	const char *at, *end;
	json_t *o;

	snprintf(head, sizeof(head), "<script type=\"application/json\" id=\"%s\">",
		 id);
	at = strstr(page, head);
	assert_non_null(at);
	at += strlen(head);
	end = strstr(at, "</script>");
	assert_non_null(end);
	o = json_loadb(at, (size_t)(end - at), 0, NULL);
	assert_non_null(o);
	return o;
}

static void test_texts(void **state)
{
	struct pt_report *r = pt_report_new();
	struct pt_model *m = pt_model_new();
	struct pt_lanes lanes = { 0 };
	struct pt_export x = { .m = m, .r = r, .lanes = &lanes };
	char *page = NULL, *text = NULL;
	size_t n = 0, len, bare;
	json_t *got, *want;
	FILE *f;

	(void)state;
	r->target.cmdline = "</script><!-- <script>&amp;\xe2\x80\xa8\xe2\x80\xa9]]>" NASTY;
	pt_report_label(r, "name", "</SCRIPT >'\"`\\u003c");
	assert_int_equal(pt_model_finish(m), 0);
	f = open_memstream(&page, &n);
	assert_int_equal(pt_export_html(&x, f), 0);
	fclose(f);
	pt_html_page(&len);
	bare = occurs(pt_html_page(&len), len, "</script");
	assert_int_equal(occurs(page, n, "</script"), bare + 2);
	assert_int_equal(occurs(page, n, "</SCRIPT"), 0);
	assert_int_equal(occurs(page, n, PT_HTML_MARK), 0);
	assert_int_equal(occurs(page, n, "\xe2\x80\xa8"),
			 occurs(pt_html_page(&len), len, "\xe2\x80\xa8"));
	f = open_memstream(&text, &n);
	assert_int_equal(pt_report_json(r, f, NULL), 0);
	fclose(f);
	want = json_loads(text, 0, NULL);
	got = block(page, "report");
	assert_true(json_equal(got, want));
	json_decref(got);
	json_decref(want);
	/* nothing was captured: the timeline says so, and is one */
	got = block(page, "timeline");
	assert_int_equal(json_array_size(json_object_get(got, "lanes")), 0);
	json_decref(got);
	free(page);
	free(text);
	pt_model_free(m);
	pt_report_free(r);
}

static void test_full_disk(void **state)
{
	struct pt_report *r = pt_report_new();
	struct pt_model *m = pt_model_new();
	struct pt_lanes lanes = { 0 };
	struct pt_export x = { .m = m, .r = r, .lanes = &lanes };
	FILE *f = fopen("/dev/full", "w");

	(void)state;
	if (!f)
		skip();
	assert_int_equal(pt_model_finish(m), 0);
	assert_true(pt_export_html(&x, f) < 0);
	fclose(f);
	pt_model_free(m);
	pt_report_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_histogram),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
