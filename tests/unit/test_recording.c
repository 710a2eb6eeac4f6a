/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorded file: what went in comes out, and of a file that was cut or
 * damaged what is whole, or nothing, but never anything else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/records.h"
#include "store/recorder.h"
#include "store/recording.h"
#include "cmd/saving.h"
#include "stream_job.h"

static uint64_t rnd_state;

static uint64_t rnd(void)
{
	/* xorshift64*, Vigna 2016 */
	rnd_state ^= rnd_state >> 12;
	rnd_state ^= rnd_state << 25;
	rnd_state ^= rnd_state >> 27;
	return rnd_state * 0x2545f4914f6cdd1dull;
}

static void add(pt_bytes *b, const void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(pt_vec_push(b, ((const unsigned char *)p)[i]),
				 0);
}

/* The records of a made-up training job. */
static void job_records(pt_bytes *out, uint64_t tenths)
{
	struct job_opts o = job_defaults();
	struct job j;

	o.run_s_x10 = tenths;
	job_run(&j, &o);
	job_window(&j, JOB_BEGIN, JOB_BEGIN + tenths * (ST_S / 10));
	for (size_t i = 0; i < j.s.recs.n; i++)
		add(out, j.s.recs.v[i].r.bytes, j.s.recs.v[i].r.hdr.size);
	job_free(&j);
}

/* Every byte of a record is in one member, and what tells of members means one. */
static void test_kinds(void **state)
{
	const struct pt_rec_line *l;
	unsigned kind, n, i, known = 0;

	(void)state;
	for (kind = 0; kind < PT_REC_KINDS; kind++) {
		const struct pt_rec_kind *k = pt_rec_kind((uint16_t)kind);
		size_t at = sizeof(struct pt_hdr);

		if (!k)
			continue;
		known++;
		assert_int_equal(k->number, kind);
		l = k->lines(&n);
		for (i = 0; i < n; i++) {
			if (l[i].says > PT_SAYS_TEXT) {
				assert_true(l[i].off + l[i].width <= k->size);
				assert_true(l[i].width == 1 || l[i].width == 2 ||
					    l[i].width == 4 || l[i].width == 8);
				continue;
			}
			assert_int_equal(l[i].off, at);
			at += (size_t)l[i].width * l[i].n;
		}
		assert_int_equal(at, k->size);
	}
	assert_true(known >= 30);
	assert_null(pt_rec_kind(0));
	assert_null(pt_rec_kind(UINT16_MAX));
}

/* Records of any kind, size and content; a few threads. */
static void any_records(pt_bytes *out, size_t n)
{
	unsigned char r[PT_REC_MAX];
	struct pt_hdr h;

	while (n--) {
		for (size_t i = 0; i < sizeof(r); i += 8) {
			uint64_t v = rnd();

			v = rnd() % 3 ? v % 5 : v;
			memcpy(r + i, &v, 8);
		}
		memcpy(&h, r, sizeof(h));
		h.kind = (uint16_t)(4 + rnd() % 6);
		h.size = (uint16_t)(sizeof(h) + rnd() % 4 * 8 +
				    (rnd() % 2 ? 0 : 160));
		if (rnd() % 64 == 0)
			h.size = PT_REC_MAX;
		h.tid = (uint32_t)(rnd() % 7);
		h.tgid = 1;
		h.start = (uint32_t)(rnd() % 2);
		memcpy(r, &h, sizeof(h));
		add(out, r, h.size);
	}
}

static void check_round_trip(const pt_bytes *raw)
{
	pt_bytes columns = { 0 }, back = { 0 };
	uint64_t n = 0;

	assert_int_equal(pt_columns_encode(raw->v, raw->n, &columns), 0);
	assert_int_equal(pt_columns_decode(columns.v, columns.n, &back, &n), 0);
	assert_int_equal(back.n, raw->n);
	if (raw->n)
		assert_memory_equal(back.v, raw->v, raw->n);
	pt_vec_free(&columns);
	pt_vec_free(&back);
}

static void test_columns(void **state)
{
	pt_bytes raw = { 0 };

	(void)state;
	rnd_state = 1;
	check_round_trip(&raw); /* nothing is something too */
	job_records(&raw, 20);
	check_round_trip(&raw);
	for (int i = 0; i < 200; i++) {
		raw.n = 0;
		any_records(&raw, rnd() % 300);
		check_round_trip(&raw);
	}
	pt_vec_free(&raw);
}

/* What is no row of records is refused. */
static void test_columns_refuse(void **state)
{
	pt_bytes raw = { 0 }, out = { 0 };
	struct pt_hdr h = { .size = sizeof(h), .kind = 9 };

	(void)state;
	add(&raw, &h, sizeof(h));
	assert_int_equal(pt_columns_encode(raw.v, raw.n - 1, &out), -EINVAL);
	h.size = 8;
	memcpy(raw.v, &h, sizeof(h));
	assert_int_equal(pt_columns_encode(raw.v, raw.n, &out), -EINVAL);
	raw.n = 0;
	h.size = sizeof(h);
	for (h.kind = 0; h.kind <= PT_COL_MAX_SHAPES; h.kind++)
		add(&raw, &h, sizeof(h));
	assert_int_equal(pt_columns_encode(raw.v, raw.n, &out), -EINVAL);
	pt_vec_free(&raw);
	pt_vec_free(&out);
}

/* Columns that nobody encoded: an error or records, and no more than fit. */
static void test_columns_hostile(void **state)
{
	pt_bytes raw = { 0 }, columns = { 0 }, back = { 0 };
	uint64_t n = 0;

	(void)state;
	rnd_state = 2;
	any_records(&raw, 100);
	assert_int_equal(pt_columns_encode(raw.v, raw.n, &columns), 0);
	for (int i = 0; i < 4000; i++) {
		size_t at = rnd() % columns.n, len = columns.n;
		unsigned char old = columns.v[at];
		int err;

		columns.v[at] = (unsigned char)rnd();
		if (i % 4 == 0)
			len = rnd() % columns.n;
		back.n = 0;
		err = pt_columns_decode(columns.v, len, &back, &n);
		assert_true(!err || err == -EBADMSG);
		assert_true(back.n <= PT_COL_MAX_RAW);
		if (err)
			assert_int_equal(back.n, 0);
		columns.v[at] = old;
	}
	pt_vec_free(&raw);
	pt_vec_free(&columns);
	pt_vec_free(&back);
}

#define ABOUT "target.pid\0001"
#define CHUNKS 5

/* A file in memory: CHUNKS chunks of records, `ends`: where each ends. */
static void write_file(const pt_bytes *raw, char **file, size_t *size,
		       size_t *ends, size_t *sizes)
{
	FILE *f = open_memstream(file, size);
	struct pt_rf_writer w;
	size_t at = 0;

	assert_non_null(f);
	assert_int_equal(pt_rf_begin(&w, f, 12345), 0);
	assert_int_equal(pt_rf_about(&w, "{}", 2), 0);
	for (int i = 0; i < CHUNKS; i++) {
		size_t end = at, goal = raw->n / CHUNKS * (size_t)(i + 1);
		struct pt_hdr h;

		while (end < raw->n && (end < goal || i == CHUNKS - 1)) {
			memcpy(&h, raw->v + end, sizeof(h));
			end += h.size;
		}
		assert_int_equal(pt_rf_put(&w, raw->v + at, end - at), 0);
		ends[i] = w.at;
		sizes[i] = end;
		at = end;
	}
	assert_int_equal(pt_rf_about(&w, ABOUT, sizeof(ABOUT)), 0);
	w.dropped = 3;
	assert_int_equal(pt_rf_end(&w), 0);
	pt_rf_writer_free(&w);
	assert_int_equal(fclose(f), 0);
}

/* Everything that can be read, in `out`; the state at the end. */
static enum pt_rf_state read_file(const char *file, size_t size, pt_bytes *out,
				  struct pt_rf_reader *r)
{
	FILE *f = fmemopen((void *)(uintptr_t)file, size, "r");
	enum pt_rf_state state = PT_RF_DAMAGED;
	int got;

	assert_non_null(f);
	out->n = 0;
	got = pt_rf_open(r, f);
	assert_true(!got || got == -ENOEXEC || got == -EPROTO);
	if (!got) {
		while ((got = pt_rf_next(r)) == 1)
			add(out, r->raw.v, r->raw.n);
		assert_int_equal(got, 0);
		state = r->state;
	}
	fclose(f);
	return state;
}

struct fixture {
	pt_bytes raw, out;
	char *file;
	size_t size, ends[CHUNKS], sizes[CHUNKS];
};

static void open_fixture(struct fixture *x)
{
	memset(x, 0, sizeof(*x));
	job_records(&x->raw, 10);
	write_file(&x->raw, &x->file, &x->size, x->ends, x->sizes);
}

static void close_fixture(struct fixture *x)
{
	pt_vec_free(&x->raw);
	pt_vec_free(&x->out);
	free(x->file);
}

static void test_file(void **state)
{
	struct pt_rf_reader r;
	struct fixture x;

	(void)state;
	open_fixture(&x);
	assert_int_equal(read_file(x.file, x.size, &x.out, &r), PT_RF_WHOLE);
	assert_int_equal(x.out.n, x.raw.n);
	assert_memory_equal(x.out.v, x.raw.v, x.raw.n);
	assert_int_equal(r.head.unix_ns, 12345);
	assert_int_equal(r.dropped, 3);
	assert_int_equal(r.skipped, 0);
	assert_int_equal(r.about.n, sizeof(ABOUT));
	assert_memory_equal(r.about.v, ABOUT, r.about.n);
	assert_true(x.size * 8 < x.raw.n);
	pt_rf_reader_free(&r);
	close_fixture(&x);
}

/* Cut anywhere: the whole chunks before the cut, and the cut is noticed. */
static void test_cut(void **state)
{
	struct pt_rf_reader r;
	struct fixture x;

	(void)state;
	rnd_state = 3;
	open_fixture(&x);
	for (int i = 0; i < 1000; i++) {
		size_t len = 1 + rnd() % (x.size - 1), whole = 0;
		enum pt_rf_state s = read_file(x.file, len, &x.out, &r);

		for (int k = 0; k < CHUNKS && x.ends[k] <= len; k++)
			whole = x.sizes[k];
		if (len >= sizeof(struct pt_rf_head))
			assert_int_equal(s, PT_RF_CUT);
		assert_int_equal(x.out.n, whole);
		if (whole)
			assert_memory_equal(x.out.v, x.raw.v, whole);
		pt_rf_reader_free(&r);
	}
	close_fixture(&x);
}

/* One byte is another: nothing is read that was not written. */
static void test_damage(void **state)
{
	struct pt_rf_reader r;
	struct fixture x;

	(void)state;
	rnd_state = 4;
	open_fixture(&x);
	for (int i = 0; i < 1000; i++) {
		size_t at = rnd() % x.size;
		unsigned char change = (unsigned char)(1 + rnd() % 255);
		enum pt_rf_state s;

		x.file[at] ^= (char)change;
		s = read_file(x.file, x.size, &x.out, &r);
		assert_true(x.out.n <= x.raw.n);
		if (x.out.n)
			assert_memory_equal(x.out.v, x.raw.v, x.out.n);
		/* only the head's own fields may change unnoticed */
		if (at >= sizeof(struct pt_rf_head))
			assert_true(s == PT_RF_DAMAGED || s == PT_RF_CUT);
		pt_rf_reader_free(&r);
		x.file[at] ^= (char)change;
	}
	close_fixture(&x);
}

/* What a later version may do, and what it may not. */
static void test_versions(void **state)
{
	struct pt_rf_head *h;
	struct pt_rf_reader r;
	struct fixture x;
	FILE *f;

	(void)state;
	open_fixture(&x);
	h = (struct pt_rf_head *)(void *)x.file;
	h->format = PT_RECORDING_FORMAT + 1;
	f = fmemopen(x.file, x.size, "r");
	assert_int_equal(pt_rf_open(&r, f), -EPROTO);
	fclose(f);
	h->magic[0] = 'P';
	f = fmemopen(x.file, x.size, "r");
	assert_int_equal(pt_rf_open(&r, f), -ENOEXEC);
	fclose(f);
	close_fixture(&x);
}

static void put_all(struct pt_recorder *rec, const pt_bytes *raw)
{
	struct pt_hdr h;

	for (size_t at = 0; at < raw->n; at += h.size) {
		memcpy(&h, raw->v + at, sizeof(h));
		pt_recorder_put(rec, raw->v + at, h.size + at % 2 * 4);
	}
}

/* Records one by one, over several blocks; what is put comes back. */
static void test_recorder(void **state)
{
	struct pt_recorder_state s;
	struct pt_recorder *rec;
	struct pt_rf_reader r;
	pt_bytes raw = { 0 }, out = { 0 };
	FILE *f = tmpfile();

	(void)state;
	assert_non_null(f);
	job_records(&raw, 10);
	add(&raw, "\0\0\0\0", 4); /* what the last one may look at */
	raw.n -= 4;
	assert_int_equal(pt_recorder_open(&rec, f, 1, 0, NULL), 0);
	put_all(rec, &raw);
	pt_recorder_flush(rec);
	put_all(rec, &raw);
	pt_recorder_put(rec, raw.v, 8); /* no record */
	pt_recorder_state(rec, &s);
	assert_int_equal(s.dropped, 0);
	assert_int_equal(pt_recorder_about(rec, ABOUT, sizeof(ABOUT)), 0);
	assert_int_equal(pt_recorder_close(rec, 5000, NULL), 0);
	rewind(f);
	assert_int_equal(pt_rf_open(&r, f), 0);
	while (pt_rf_next(&r) == 1)
		add(&out, r.raw.v, r.raw.n);
	assert_int_equal(r.state, PT_RF_WHOLE);
	assert_int_equal(r.about.n, sizeof(ABOUT));
	assert_memory_equal(r.about.v, ABOUT, r.about.n);
	assert_int_equal(out.n, 2 * raw.n);
	assert_memory_equal(out.v, raw.v, raw.n);
	assert_memory_equal(out.v + raw.n, raw.v, raw.n);
	pt_rf_reader_free(&r);
	pt_vec_free(&raw);
	pt_vec_free(&out);
	fclose(f);
}

/* A disk without room: the error is told once, the rest is dropped. */
static void test_recorder_full(void **state)
{
	struct pt_recorder *rec;
	pt_bytes raw = { 0 };
	FILE *f = fopen("/dev/full", "w");

	(void)state;
	assert_non_null(f);
	setvbuf(f, NULL, _IONBF, 0);
	job_records(&raw, 5);
	add(&raw, "\0\0\0\0", 4);
	raw.n -= 4;
	assert_int_equal(pt_recorder_open(&rec, f, 1, 0, NULL), -ENOSPC);
	fclose(f);
	f = fopen("/dev/full", "w");
	assert_non_null(f);
	assert_int_equal(pt_recorder_open(&rec, f, 1, 0, NULL), 0);
	put_all(rec, &raw);
	assert_int_equal(pt_recorder_close(rec, 5000, NULL), -ENOSPC);
	fclose(f);
	pt_vec_free(&raw);
}

static int threads_now(void)
{
	DIR *d = opendir("/proc/self/task");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* A disk that does not answer (a pipe that nobody reads): the tracer goes on,
 * the end waits no longer than it was told to, what was dropped is counted. */
static void test_recorder_stuck(void **state)
{
	struct pt_recorder_state s;
	struct pt_recorder *rec;
	pt_bytes raw = { 0 };
	int ends[2], i, before = threads_now();
	FILE *f;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	f = fdopen(ends[1], "w");
	assert_non_null(f);
	rnd_state = 5;
	any_records(&raw, 20000); /* random: hardly compresses */
	add(&raw, "\0\0\0\0", 4);
	raw.n -= 4;
	assert_int_equal(pt_recorder_open(&rec, f, 1, 0, NULL), 0);
	for (i = 0; i < 60; i++)
		put_all(rec, &raw);
	pt_recorder_state(rec, &s);
	assert_true(s.dropped > 0);
	assert_int_equal(pt_recorder_close(rec, 50, NULL), -ETIMEDOUT);
	/* nobody will read: the thread ends, and frees what it has, before the test does */
	close(ends[0]);
	for (i = 0; i < 1000 && threads_now() > before; i++)
		usleep(10000);
	assert_int_equal(threads_now(), before);
	pt_vec_free(&raw);
}

/* A limited size: the newest records in their order, a whole file, the names of
 * what went, and a mark that says so. */
static void test_limited(void **state)
{
	enum { MAX = 24 << 10 };
	char dir[] = "/tmp/pipetrace-unit-XXXXXX", path[64];
	struct pt_saving s = { .out.dir = -1, .next.dir = -1, .max = MAX };
	struct pt_report *r = pt_report_new();
	pt_bytes raw = { 0 }, back = { 0 };
	struct pt_rf_reader in;
	size_t at, tasks = 0, cuts = 0, kept;
	struct pt_err err;
	struct pt_hdr h;
	struct stat st;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/x", dir);
	job_records(&raw, 600);
	assert_int_equal(pt_saving_open(&s, path, &err), 0);
	assert_int_equal(pt_saving_begin(&s, r, &err), 0);
	for (at = 0; at < raw.n; at += h.size) {
		memcpy(&h, raw.v + at, sizeof(h));
		pt_saving_record(&s, raw.v + at, h.size);
		if (at / 100000 != (at + h.size) / 100000) {
			pt_saving_tick(&s);
			usleep(20000); /* the writer has its turn */
			assert_int_equal(stat(path, &st), 0);
			assert_true(st.st_size < 2 * MAX);
		}
	}
	assert_int_equal(pt_saving_end(&s, r), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_true(st.st_size <= MAX); /* with its index and end */
	f = fopen(path, "re");
	assert_non_null(f);
	assert_int_equal(pt_rf_open(&in, f), 0);
	while (pt_rf_next(&in) == 1)
		add(&back, in.raw.v, in.raw.n);
	assert_int_equal(in.state, PT_RF_WHOLE);
	assert_int_equal(in.dropped, 0);
	pt_rf_reader_free(&in);
	fclose(f);
	for (at = kept = 0; at < back.n; at += h.size) {
		struct pt_rec_mark m;

		memcpy(&h, back.v + at, sizeof(h));
		tasks += h.kind == PT_REC_TASK && !cuts;
		if (h.kind != PT_REC_MARK)
			continue;
		memcpy(&m, back.v + at, sizeof(m));
		cuts += m.mark == PT_MARK_CUT;
		if (m.mark == PT_MARK_CUT)
			kept = at + h.size;
	}
	assert_int_equal(cuts, 1);
	assert_true(tasks >= 5);
	assert_true(kept && back.n - kept > raw.n / 50 && back.n - kept < raw.n);
	assert_memory_equal(back.v + kept, raw.v + raw.n - (back.n - kept),
			    back.n - kept);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0); /* nothing else is left there */
	pt_vec_free(&raw);
	pt_vec_free(&back);
	pt_report_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_columns),
		cmocka_unit_test(test_columns_refuse),
		cmocka_unit_test(test_columns_hostile),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_recorder),
		cmocka_unit_test(test_recorder_full),
		cmocka_unit_test(test_limited),
		/* last: its thread never ends, and holds what it was given */
		cmocka_unit_test(test_recorder_stuck),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
