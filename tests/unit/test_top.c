/* SPDX-License-Identifier: BSD-2-Clause */
/* The live view: screens drawn into memory, keys, and the window of records
 * that they are made from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/str.h"
#include "test_report_fixture.h"
#include "view/top/top.h"
#include "view/top/window.h"

static char *draw(struct pt_top *v, int cols, int rows)
{
	char *s = pt_top_draw(v, cols, rows);

	assert_non_null(s);
	return s;
}

/* `rows` lines of at most `cols` columns, of which nothing but our own colours
 * can move a terminal. */
static void check_screen(const char *s, int cols, int rows, bool unicode,
			 bool color)
{
	int lines = 0, x = 0;
	size_t n = strlen(s), len;
	uint32_t cp = 0;

	for (; *s; s += len, n -= len) {
		len = pt_utf8_decode(s, n, &cp);
		assert_true(len > 0);
		if (cp == '\033') {
			assert_true(color && s[1] == '[');
			len = 2 + strspn(s + 2, "0123456789;");
			assert_int_equal(s[len++], 'm');
		} else if (cp == '\n') {
			assert_true(x <= cols);
			lines++;
			x = 0;
		} else {
			assert_true(cp >= 0x20 && (unicode || cp < 0x7f));
			assert_false(cp >= 0x7f && cp < 0xa0);
			assert_false(cp >= 0x202a && cp <= 0x202e);
			x += (int)pt_cp_cols(cp);
		}
	}
	if (rows)
		assert_int_equal(lines, rows);
}

static void test_screens(void **state)
{
	static const int sizes[][2] = { { 80, 24 },  { 200, 50 }, { 60, 10 },
					{ 20, 5 },   { 1, 1 },	  { 40, 2 },
					{ 300, 3 },  { 80, 4 } };
	static struct pt_top_job jobs[2] = {
		{ .pid = 4242, .user = "ann", .lib = "libcudart.so.12",
		  .devices = "0", .rank = "-", .cmd = NASTY },
		{ .pid = 99, .user = NASTY, .lib = "-", .devices = "-",
		  .rank = "-", .cmd = "python" },
	};
	struct pt_report *r[] = { fixture_full(), fixture_hostile(),
				  pt_report_new(), NULL };
	struct pt_top v;

	(void)state;
	for (size_t k = 0; k < NR(r) * 4 * NR(sizes) * PT_TOP_PANES; k++) {
		size_t i = k / PT_TOP_PANES;
		const int *size = sizes[i % NR(sizes)];
		bool unicode = i / NR(sizes) % 2, color = i / NR(sizes) / 2 % 2;
		char *s;

		pt_top_init(&v, unicode, color);
		v.report = r[i / NR(sizes) / 4];
		v.jobs = jobs;
		v.n_jobs = NR(jobs);
		v.traced = 4242;
		v.pane = (enum pt_top_pane)(k % PT_TOP_PANES);
		v.window_s = 10;
		v.own_cpu = 0.012;
		v.help = k % 7 == 0;
		for (int h = 0; h < 300; h++)
			pt_top_note_share(&v, h % 9 ? h / 300. : NAN);
		if (k % 3 == 0)
			snprintf(v.status, sizeof(v.status), "%s", NASTY);
		s = draw(&v, size[0], size[1]);
		check_screen(s, size[0], size[1], unicode, color);
		free(s);
		s = draw(&v, size[0], 0);
		check_screen(s, size[0], 0, unicode, color);
		free(s);
	}
	for (size_t k = 0; k < NR(r); k++)
		pt_report_free(r[k]);
}

static void test_overview(void **state)
{
	struct pt_report *r = fixture_full();
	struct pt_top v;
	char *s;

	(void)state;
	assert_non_null(r);
	pt_top_init(&v, false, false);
	v.report = r;
	v.traced = 4242;
	v.window_s = 9.96;
	v.own_cpu = 0.0123;
	pt_top_note_share(&v, 0.613);
	s = draw(&v, 100, 40);
	has(s, "pipetrace top  pid 4242 ");
	has(s, "last 10.0 s  own CPU 1.2 %");
	has(s, "[1 Overview]");
	has(s, "[cpu_bound]");
	has(s, "busy 38 % (31 % to 45 %)");
	has(s, "61 % for data");
	has(s, "12 LOST");
	free(s);
	pt_report_free(r);
}

/* Where `b` comes after `a`. */
static bool before(const char *s, const char *a, const char *b)
{
	const char *x = strstr(s, a), *y = strstr(s, b);

	assert_non_null(x);
	assert_non_null(y);
	return x < y;
}

static void test_keys(void **state)
{
	static const struct pt_r_file files[] = {
		{ .path = "/d/many", .reads = 900, .bytes = 10, .reread_bytes = 5,
		  .read_s = NAN, .blocked_s = 0.1, .p99_ms = NAN,
		  .cached_share = NAN },
		{ .path = "/d/big", .reads = 3, .bytes = 5000, .reread_bytes = 7,
		  .read_s = NAN, .blocked_s = 0.2, .p99_ms = 1,
		  .cached_share = NAN },
		{ .path = "/d/unknown", .reads = PT_NULL, .bytes = PT_NULL,
		  .reread_bytes = PT_NULL, .read_s = NAN, .blocked_s = NAN,
		  .p99_ms = NAN, .cached_share = NAN },
	};
	struct pt_report *r = fixture_full();
	struct pt_top v;
	char *s;

	(void)state;
	assert_non_null(r);
	r->files = files;
	r->n_files = NR(files);
	pt_top_init(&v, false, false);
	v.report = r;
	assert_int_equal(pt_top_key(&v, '4', 24), PT_TOP_DRAW);
	s = draw(&v, 100, 24);
	has(s, "bytesv");
	assert_true(before(s, "/d/big", "/d/many"));
	assert_true(before(s, "/d/many", "/d/unknown"));
	free(s);
	assert_int_equal(pt_top_key(&v, 's', 24), PT_TOP_DRAW);
	s = draw(&v, 100, 24);
	has(s, "readsv");
	assert_true(before(s, "/d/many", "/d/big"));
	free(s);
	assert_int_equal(pt_top_key(&v, 'r', 24), PT_TOP_DRAW);
	s = draw(&v, 100, 24);
	has(s, "reads^");
	assert_true(before(s, "/d/big", "/d/many"));
	free(s);
	assert_int_equal(pt_top_key(&v, 'S', 24), PT_TOP_DRAW);
	assert_int_equal(v.p[PT_TOP_FILES].sort, 0);

	/* panes go round; help takes one key; Esc leaves only a traced job */
	assert_int_equal(pt_top_key(&v, '\t', 24), PT_TOP_DRAW);
	assert_int_equal(v.pane, PT_TOP_OPERATIONS);
	pt_top_key(&v, PT_KEY_RIGHT, 24);
	pt_top_key(&v, PT_KEY_RIGHT, 24);
	assert_int_equal(v.pane, PT_TOP_OVERVIEW);
	pt_top_key(&v, PT_KEY_BACK_TAB, 24);
	assert_int_equal(v.pane, PT_TOP_JOBS);
	assert_int_equal(pt_top_key(&v, '?', 24), PT_TOP_DRAW);
	s = draw(&v, 100, 24);
	has(s, "sort the other way round");
	free(s);
	assert_int_equal(pt_top_key(&v, 's', 24), PT_TOP_DRAW);
	assert_false(v.help);
	assert_int_equal(pt_top_key(&v, PT_KEY_ENTER, 24), PT_TOP_NOTHING);
	assert_int_equal(pt_top_key(&v, PT_KEY_ESC, 24), PT_TOP_NOTHING);
	v.traced = 1;
	assert_int_equal(pt_top_key(&v, PT_KEY_ESC, 24), PT_TOP_LEAVE);
	assert_int_equal(pt_top_key(&v, 0x1fff, 24), PT_TOP_NOTHING);
	assert_int_equal(pt_top_key(&v, 'q', 24), PT_TOP_QUIT);
	pt_report_free(r);
}

/* Lines scroll, titles stay, and nobody scrolls out of what there is. */
static void test_scroll(void **state)
{
	static struct pt_r_operation ops[100];
	static char names[100][16];
	struct pt_report *r = fixture_full();
	struct pt_top v;
	char *s;

	(void)state;
	assert_non_null(r);
	for (int i = 0; i < 100; i++) {
		snprintf(names[i], sizeof(names[i]), "op%03d.", i);
		ops[i] = (struct pt_r_operation){
			.name = names[i], .kind = "api", .calls = 1000 - i,
			.total_s = 1000 - i, .certainty = PT_MEASURED };
	}
	r->operations = ops;
	r->n_operations = NR(ops);
	pt_top_init(&v, true, true);
	v.report = r;
	v.pane = PT_TOP_OPERATIONS;
	s = draw(&v, 100, 24);
	has(s, "op000.");
	assert_null(strstr(s, "op030."));
	free(s);
	pt_top_key(&v, PT_KEY_END, 24);
	s = draw(&v, 100, 24);
	has(s, "op099.");
	has(s, "name");
	assert_null(strstr(s, "op000."));
	free(s);
	pt_top_key(&v, PT_KEY_UP, 24);
	pt_top_key(&v, PT_KEY_HOME, 24);
	s = draw(&v, 100, 24);
	has(s, "op000.");
	free(s);
	pt_report_free(r);
}

/* ---- the window ------------------------------------------------------------- */

struct seen {
	uint64_t begin, end, losses, first_off;
	unsigned task, off, file, other;
	struct pt_rec_task last_task;
	struct pt_rec_file last_file;
	bool after_end, late_fact;
};

static void see(void *ctx, const void *rec, size_t len)
{
	struct seen *s = ctx;
	struct pt_hdr h;
	struct pt_rec_off o;
	struct pt_rec_loss l;
	struct pt_rec_mark m;

	assert_true(len >= sizeof(h));
	memcpy(&h, rec, sizeof(h));
	assert_int_equal(h.size, len);
	s->after_end |= s->end != 0;
	assert_true(h.kind == PT_REC_MARK || h.ts >= s->begin);
	switch (h.kind) {
	case PT_REC_MARK:
		memcpy(&m, rec, sizeof(m));
		if (m.mark == PT_MARK_BEGIN)
			s->begin = h.ts;
		else if (m.mark == PT_MARK_END)
			s->end = h.ts;
		break;
	case PT_REC_TASK:
		s->task++;
		memcpy(&s->last_task, rec, sizeof(s->last_task));
		break;
	case PT_REC_FILE:
		s->file++;
		memcpy(&s->last_file, rec, sizeof(s->last_file));
		break;
	case PT_REC_OFF:
		memcpy(&o, rec, sizeof(o));
		assert_true(o.off_ts >= s->begin);
		if (!s->off++)
			s->first_off = o.off_ts;
		break;
	case PT_REC_LOSS:
		memcpy(&l, rec, sizeof(l));
		s->losses = l.count[PT_LOSS_RING_FULL];
		break;
	default:
		s->other++;
	}
}

#define S 1000000000ull

static void put(struct pt_window *w, void *rec, uint16_t size, uint16_t kind,
		uint64_t ts, uint32_t tid)
{
	struct pt_hdr *h = rec;

	h->size = size;
	h->kind = kind;
	h->ts = ts;
	h->tid = tid;
	h->tgid = 7;
	assert_int_equal(pt_window_put(w, rec, size), 0);
}

static void put_off(struct pt_window *w, uint64_t from, uint64_t to)
{
	struct pt_rec_off o = { .off_ts = from, .wake_ts = from + 1 };

	put(w, &o, sizeof(o), PT_REC_OFF, to, 7);
}

static void begin(struct pt_window *w, uint64_t ts)
{
	struct pt_rec_mark m = { .mark = PT_MARK_BEGIN, .unix_ns = 77 * S };

	put(w, &m, sizeof(m), PT_REC_MARK, ts, 0);
}

static void test_window(void **state)
{
	struct pt_window *w = pt_window_new(10 * S, 8 << 20);
	struct pt_rec_task t = { .ppid = 3, .comm = "old" };
	struct pt_rec_task c = { .comm = "new" };
	struct pt_rec_file f = { .inode = 5, .path = "x" };
	struct pt_rec_fork k = { .child_tid = 8, .child_tgid = 8 };
	struct pt_rec_exit e = { .exit_code = 0 };
	struct pt_rec_loss l = { .count = { [PT_LOSS_RING_FULL] = 4 } };
	struct seen s = { 0 };

	(void)state;
	assert_non_null(w);
	begin(w, 100 * S);
	put(w, &t, sizeof(t), PT_REC_TASK, 100 * S, 7);
	put(w, &c, sizeof(c), PT_REC_COMM, 101 * S, 7);
	put(w, &k, sizeof(k), PT_REC_FORK, 101 * S, 7);
	put(w, &f, sizeof(f), PT_REC_FILE, 102 * S, 7);
	put(w, &l, sizeof(l), PT_REC_LOSS, 103 * S, 0);
	/* all of the capture, while it is younger than the window */
	assert_int_equal(pt_window_feed(w, 105 * S, see, &s), 5 * S);
	assert_int_equal(s.begin, 100 * S);
	assert_int_equal(s.end, 105 * S);
	assert_int_equal(s.losses, 4);
	assert_int_equal(s.task, 1); /* and a COMM and a FORK, as they came */
	assert_int_equal(s.other, 2);
	for (uint64_t i = 0; i < 100; i++)
		put_off(w, 105 * S + i * S, 106 * S + i * S);
	l.count[PT_LOSS_RING_FULL] = 6;
	put(w, &l, sizeof(l), PT_REC_LOSS, 206 * S, 0);

	/* what was said before still holds; of the rest the last ten seconds,
	 * cut at their begin */
	memset(&s, 0, sizeof(s));
	assert_int_equal(pt_window_feed(w, 206 * S + S / 2, see, &s), 10 * S);
	assert_int_equal(s.begin, 196 * S + S / 2);
	assert_int_equal(s.first_off, s.begin);
	assert_int_equal(s.off, 9);
	assert_int_equal(s.task, 2); /* thread 7, and the child as a task */
	assert_int_equal(s.file, 1);
	assert_int_equal(s.last_file.hdr.tid, 0);
	assert_int_equal(s.other, 0);
	assert_int_equal(s.losses, 2);
	assert_false(s.after_end);
	assert_true(!strcmp(s.last_task.comm, "new") || s.last_task.ppid == 7);

	/* whoever has exited before the window is no part of it */
	e.hdr.flags = PT_F_GROUP_DEAD;
	put(w, &e, sizeof(e), PT_REC_EXIT, 207 * S, 7);
	put_off(w, 227 * S, 228 * S);
	memset(&s, 0, sizeof(s));
	pt_window_feed(w, 229 * S, see, &s);
	assert_int_equal(s.task, 1); /* the child is another process */
	assert_int_equal(s.last_task.hdr.tid, 8);
	pt_window_free(w);
}

/* However fast records come, memory stays bounded, and the window says how
 * short it got. */
static void test_window_bounded(void **state)
{
	const size_t max = 2 << 20;
	struct pt_window *w = pt_window_new(10 * S, max);
	struct pt_rec_file f = { .path = "x" };
	struct seen s = { 0 };
	uint64_t ns;

	(void)state;
	assert_non_null(w);
	begin(w, S);
	for (uint64_t i = 0; i < 200000; i++) {
		f.inode = i;
		put(w, &f, sizeof(f), PT_REC_FILE, S + i * 10000, 7);
		put_off(w, S + i * 10000 - 5000, S + i * 10000);
	}
	assert_true(pt_window_bytes(w) < 20 << 20);
	ns = pt_window_feed(w, 3 * S, see, &s);
	assert_true(ns < S / 2);
	assert_true(ns > S / 1000);
	assert_true(s.off > 1000 && s.off * sizeof(struct pt_rec_off) <= max);
	pt_window_free(w);
}

static void count(void *ctx, const void *rec, size_t len)
{
	struct pt_hdr h;

	assert_true(len >= sizeof(h));
	memcpy(&h, rec, sizeof(h));
	assert_int_equal(h.size, len);
	++*(unsigned *)ctx;
}

/* Records that are cut short or of no known kind (the sanitizers watch). */
static void test_window_malformed(void **state)
{
	struct pt_window *w = pt_window_new(10 * S, 1 << 20);
	unsigned char rec[PT_REC_MAX + 64] = { 0 };
	struct pt_hdr h = { .ts = S };
	unsigned n = 0;

	(void)state;
	assert_non_null(w);
	assert_int_not_equal(pt_window_put(w, rec, 4), 0);
	for (uint16_t size = 0; size < sizeof(rec); size += 5)
		for (uint16_t kind = 0; kind < 80; kind++) {
			h.size = size;
			h.kind = kind;
			h.ts += S / 50;
			memcpy(rec, &h, sizeof(h));
			pt_window_put(w, rec, kind % 3 ? size : sizeof(h));
		}
	pt_window_feed(w, h.ts, count, &n);
	assert_true(n > 2);
	pt_window_free(w);
}

/* It can be asked for more than usual, but for no more than is held. */
static void test_window_reach(void **state)
{
	static const uint64_t asked[] = { 15, 1000 }, got[] = { 15, 20 };

	(void)state;
	for (size_t k = 0; k < NR(asked); k++) {
		struct pt_window *w = pt_window_new(10 * S, 1 << 20);
		struct seen s = { 0 };

		assert_non_null(w);
		begin(w, 100 * S);
		for (uint64_t i = 0; i < 100; i++)
			put_off(w, 105 * S + i * S, 106 * S + i * S);
		pt_window_reach(w, asked[k] * S);
		assert_int_equal(pt_window_feed(w, 205 * S, see, &s), got[k] * S);
		assert_true(s.off + 1 >= got[k] && s.off <= got[k] + 1);
		pt_window_free(w);
	}
}

/* CPU time, s, of 5,000 processes that come and go beside `living` ones. */
static double come_and_go(uint32_t living)
{
	struct pt_window *w = pt_window_new(10 * S, 1 << 20);
	struct pt_rec_fork k = { .comm = "sh" };
	struct pt_rec_exit e = { .hdr.flags = PT_F_GROUP_DEAD };
	struct timespec was, is;
	struct seen s = { 0 };
	uint32_t i;

	assert_non_null(w);
	begin(w, S);
	for (i = 0; i < living + 5000; i++) {
		if (i == living)
			assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &was), 0);
		k.child_tid = k.child_tgid = 1000 + i;
		put(w, &k, sizeof(k), PT_REC_FORK, 2 * S + i, 7);
		e.hdr = (struct pt_hdr){ .size = sizeof(e), .kind = PT_REC_EXIT,
					 .flags = PT_F_GROUP_DEAD, .ts = 2 * S + i,
					 .tid = k.child_tid, .tgid = k.child_tgid };
		if (i >= living)
			assert_int_equal(pt_window_put(w, &e, sizeof(e)), 0);
	}
	pt_window_feed(w, 100 * S, see, &s);
	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &is), 0);
	assert_int_equal(s.task, living);
	pt_window_free(w);
	return (double)(is.tv_sec - was.tv_sec) + (double)(is.tv_nsec - was.tv_nsec) / 1e9;
}

/* The end of one process costs no more where many others live. */
static void test_window_ends(void **state)
{
	double few = come_and_go(10), many = come_and_go(30000);

	(void)state;
	if (many > 20 * few)
		fail_msg("%.3f s beside 30,000 processes, %.3f beside 10", many, few);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_screens),
		cmocka_unit_test(test_overview),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_scroll),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_window_reach),
		cmocka_unit_test(test_window_bounded),
		cmocka_unit_test(test_window_ends),
		cmocka_unit_test(test_window_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
