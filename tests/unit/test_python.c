/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks of CPython: line tables, and an interpreter that lies. This program plays one:
 * it defines the two objects by which one is found. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#undef PT_NULL /* of a program header: the report has one, too */
#include "base/clock.h"
#include "python/lines.h"
#include "python/looks_int.h"
#include "python/reader.h"
#include "python/sampler.h"
#include "stream.h"

static void lines_by_steps(void **state)
{
	/* line 10; 6 bytes on: 11; 4 bytes on: 9 */
	const unsigned char t[] = { 6, 1, 4, 0xfe };

	(void)state;
	assert_int_equal(pt_py_line(8, t, sizeof(t), 10, 0), 10);
	assert_int_equal(pt_py_line(8, t, sizeof(t), 10, 5), 10);
	assert_int_equal(pt_py_line(8, t, sizeof(t), 10, 6), 11);
	assert_int_equal(pt_py_line(9, t, sizeof(t), 10, 10), 9);
	assert_int_equal(pt_py_line(9, t, 0, 10, 4), 10);
	assert_int_equal(pt_py_line(9, t, sizeof(t), 10, -1), 10);
}

static void lines_by_ranges(void **state)
{
	/* 4 bytes of line 10, 2 without a line, 4 of line 12 */
	const unsigned char t[] = { 4, 0, 2, 0x80, 4, 2 };

	(void)state;
	assert_int_equal(pt_py_line(10, t, sizeof(t), 10, 0), 10);
	assert_int_equal(pt_py_line(10, t, sizeof(t), 10, 4), 0);
	assert_int_equal(pt_py_line(10, t, sizeof(t), 10, 6), 12);
	assert_int_equal(pt_py_line(10, t, sizeof(t), 10, 10), 0);
}

static void lines_by_entries(void **state)
{
	const unsigned char t[] = {
		0x80 | 0 << 3 | 1, 0x11,	   /* 2 units of line 10, short */
		0x80 | 11 << 3 | 0, 1, 2,	   /* 1 unit of line 11 */
		0x80 | 15 << 3 | 0,		   /* 1 without */
		0x80 | 13 << 3 | 0, 0x40 | 1, 0x3, /* 1: -(193 >> 1) lines on */
		0x80 | 14 << 3 | 0, 0x8, 0, 1, 2,  /* 1: 4 lines on */
	};

	(void)state;
	assert_int_equal(pt_py_line(11, t, sizeof(t), 110, 0), 110);
	assert_int_equal(pt_py_line(11, t, sizeof(t), 110, 3), 110);
	assert_int_equal(pt_py_line(12, t, sizeof(t), 110, 4), 111);
	assert_int_equal(pt_py_line(13, t, sizeof(t), 110, 6), 0);
	assert_int_equal(pt_py_line(13, t, sizeof(t), 110, 8), 111 - 96);
	assert_int_equal(pt_py_line(13, t, sizeof(t), 110, 10), 111 - 92);
	assert_int_equal(pt_py_line(13, t, sizeof(t), 110, 12), 0);
}

static void lines_of_anything(void **state)
{
	unsigned char *t;
	uint64_t r = 7;
	size_t n, i;
	int k, minor;

	(void)state;
	for (k = 0; k < 20000; k++) {
		n = st_rand(&r) % 40;
		t = malloc(n + 1); /* so that a byte behind it is noticed */
		assert_non_null(t);
		t = realloc(t, n ? n : 1);
		for (i = 0; i < n; i++)
			t[i] = (unsigned char)st_rand(&r);
		for (minor = 8; minor < 14; minor++)
			assert_true(pt_py_line(minor, t, n, (int)(st_rand(&r) % 1000),
					       (long)(st_rand(&r) % 100)) >= 0);
		free(t);
	}
}

/* ---- a made-up 3.11 ------------------------------------------------------------ */

#define WORDS 4096

uint64_t _PyRuntime[WORDS];
uint32_t Py_Version = 0x030b07f0;

/* By layout.def. */
enum { INTERPRETER = 200, THREAD = 400, CFRAME = 600, FRAME = 700, FRAMES = 3, CODE = 1000,
       TYPE = 1100, TYPE_NAME = 1150, FILE_TEXT = 1200, NAME_TEXT = 1300, TABLE = 1400,
       CODE2 = 1500, LIBRARY_TEXT = 1600, CODE3 = 1700, MADE_TEXT = 1800 };

static uint64_t at(unsigned word)
{
	return (uint64_t)(uintptr_t)&_PyRuntime[word];
}

static void put(unsigned word, unsigned offset, uint64_t v)
{
	memcpy((char *)&_PyRuntime[word] + offset, &v, sizeof(v));
}

static void put_str(unsigned word, const char *s)
{
	put(word, 16, strlen(s));
	put(word, 32, 1 << 2 | 32 | 64); /* one byte each, compact, ASCII */
	strcpy((char *)&_PyRuntime[word] + 48, s);
}

static void make_true(void)
{
	const unsigned char table[] = { 0x80 | 12 << 3 | 7, 0, 0 }; /* 8 units, 2 on */
	unsigned i;

	memset(_PyRuntime, 0, sizeof(_PyRuntime));
	put(0, 40, at(INTERPRETER));
	put(INTERPRETER, 16, at(THREAD));
	put(THREAD, 160, (uint64_t)syscall(SYS_gettid));
	put(THREAD, 56, at(CFRAME));
	put(CFRAME, 8, at(FRAME));
	for (i = 0; i < FRAMES; i++) {
		put(FRAME + 20 * i, 32, at(CODE));
		put(FRAME + 20 * i, 48, i + 1 < FRAMES ? at(FRAME + 20 * (i + 1)) : 0);
		put(FRAME + 20 * i, 56, at(CODE) + 184 + 4);
	}
	put(CODE, 8, at(TYPE));
	put(TYPE, 24, at(TYPE_NAME));
	strcpy((char *)&_PyRuntime[TYPE_NAME], "code");
	put(CODE, 112, at(FILE_TEXT));
	put(CODE, 128, at(NAME_TEXT));
	put(CODE, 72, 40);
	put(CODE, 136, at(TABLE));
	put_str(FILE_TEXT, "/job/train.py");
	put_str(NAME_TEXT, "Data.load");
	put(TABLE, 16, sizeof(table));
	memcpy((char *)&_PyRuntime[TABLE] + 32, table, sizeof(table));
}

struct seen {
	int threads, frames;
	struct pt_py_frame last;
};

static bool on_thread(void *ctx, pid_t tid)
{
	struct seen *s = ctx;

	assert_int_equal(tid, syscall(SYS_gettid));
	s->threads++;
	return true;
}

static void on_frame(void *ctx, const struct pt_py_frame *f)
{
	struct seen *s = ctx;

	assert_true(memchr(f->file, 0, sizeof(f->file)) && memchr(f->name, 0, sizeof(f->name)));
	assert_true(f->line >= 0);
	s->last = *f;
	s->frames++;
}

static void a_true_stack(void **state)
{
	struct seen s = { 0 };
	const struct pt_py_sink to = { on_thread, on_frame, &s };
	struct pt_err err = { "" };
	struct pt_py *p;

	(void)state;
	make_true();
	if (pt_py_open(&p, getpid(), &err))
		fail_msg("%s", err.msg);
	assert_string_equal(pt_py_version(p), "3.11");
	assert_int_equal(pt_py_stacks(p, &to), 1);
	assert_int_equal(s.threads, 1);
	assert_int_equal(s.frames, FRAMES);
	assert_string_equal(s.last.file, "/job/train.py");
	assert_string_equal(s.last.name, "Data.load");
	assert_int_equal(s.last.line, 42);
	/* a circle of frames ends */
	put(FRAME + 20 * (FRAMES - 1), 48, at(FRAME));
	s.frames = 0;
	pt_py_stacks(p, &to);
	assert_int_equal(s.frames, PT_PY_DEPTH);
	/* a circle of threads, too */
	put(FRAME, 32, 0);
	put(THREAD, 8, at(THREAD));
	assert_int_equal(pt_py_stacks(p, &to), PT_PY_THREADS);
	pt_py_close(p);
}

/* Words of it become something else: pointers to anywhere, lengths, nothing. */
static void lies(void **state)
{
	struct seen s = { 0 };
	const struct pt_py_sink to = { on_thread, on_frame, &s };
	struct pt_err err = { "" };
	struct pt_py *p;
	uint64_t r = 11;
	int k, i;

	(void)state;
	make_true();
	assert_int_equal(pt_py_open(&p, getpid(), &err), 0);
	for (k = 0; k < 3000; k++) {
		make_true();
		for (i = (int)(st_rand(&r) % 4); i >= 0; i--) {
			unsigned word = (unsigned)(st_rand(&r) % 1420);
			uint64_t v = st_rand(&r);

			_PyRuntime[word] = v % 4 == 0 ? at((unsigned)(v >> 8) % WORDS) :
					   v % 4 == 1 ? v >> (v % 64) :
					   v % 4 == 2 ? UINT64_MAX - (v >> 60) : v;
		}
		s.frames = 0;
		pt_py_stacks(p, &to);
		assert_true(s.frames <= PT_PY_DEPTH * PT_PY_THREADS);
	}
	pt_py_close(p);
	/* what does not fit is refused */
	memset(_PyRuntime, 0, sizeof(_PyRuntime));
	assert_true(pt_py_open(&p, getpid(), &err) < 0);
	assert_non_null(strstr(err.msg, "do not look as expected"));
	Py_Version = 0x03630000;
	assert_true(pt_py_open(&p, getpid(), &err) < 0);
	assert_non_null(strstr(err.msg, "3.99"));
	Py_Version = 0x030b07f0;
}

static void refused(uint32_t version, const char *words)
{
	struct pt_err err = { "" };
	struct pt_py *p;

	Py_Version = version;
	assert_int_equal(pt_py_open(&p, getpid(), &err), -EOPNOTSUPP);
	assert_null(p);
	if (!strstr(err.msg, words))
		fail_msg("%s", err.msg);
	Py_Version = 0x030b07f0;
}

/* From 3.13 on it says itself where things are: a free-threaded build, offsets that are
 * beyond all that is read. */
static void published(void **state)
{
	unsigned i;

	(void)state;
	memset(_PyRuntime, 0, sizeof(_PyRuntime));
	memcpy(_PyRuntime, "xdebugpy", 8);
	_PyRuntime[2] = 1;
	refused(0x030d00f0, "free-threaded");
	_PyRuntime[2] = 0;
	for (i = 3; i < 50; i++)
		_PyRuntime[i] = 100;
	_PyRuntime[30] = 1000; /* a frame's code */
	refused(0x030d00f0, "cannot be right");
	_PyRuntime[30] = 100;
	refused(0x030d00f0, "do not look as expected");
	make_true();
	refused(0x030e00f0, "3.14: pipetrace reads the stacks of 3.8 to 3.13");
	refused(0x030700f0, "3.7: ");
}

/* Looks at a stack that stays are counted for its line; the job's own code comes before
 * a library's. */
static void looks(void **state)
{
	struct pt_py_sampler *s = pt_py_sampler_new();
	const struct pt_py_share *rows;
	const char *version, *cmdline;
	struct pt_err err = { "" };
	size_t n;
	int i;

	(void)state;
	make_true();
	assert_non_null(s);
	assert_int_equal(pt_py_looks_watch(pt_py_sampler_looks(s), getpid(), &err), 0);
	assert_true(pt_py_looks_process(pt_py_sampler_looks(s), getpid(), &version, &cmdline));
	assert_string_equal(version, "3.11");
	for (i = 0; i < 10; i++)
		assert_int_equal(pt_py_sampler_look(s), 1);
	/* the innermost is now in a library: another code object */
	memcpy(&_PyRuntime[CODE2], &_PyRuntime[CODE], 8 * (TYPE - CODE));
	put(CODE2, 112, at(LIBRARY_TEXT));
	put_str(LIBRARY_TEXT, "/usr/lib/python3/dist-packages/torch/x.py");
	put(FRAME, 32, at(CODE2));
	for (i = 0; i < 5; i++)
		assert_int_equal(pt_py_sampler_look(s), 1);
	/* in what a library made as it ran */
	memcpy(&_PyRuntime[CODE3], &_PyRuntime[CODE], 8 * (TYPE - CODE));
	put(CODE3, 112, at(MADE_TEXT));
	put_str(MADE_TEXT, "<__array_function__ internals>");
	put(FRAME, 32, at(CODE3));
	for (i = 0; i < 4; i++)
		assert_int_equal(pt_py_sampler_look(s), 1);
	for (i = 0; i < FRAMES; i++) /* no other code: the innermost line tells */
		put(FRAME + 20 * i, 32, at(CODE2));
	for (i = 0; i < 3; i++)
		assert_int_equal(pt_py_sampler_look(s), 1);
	put(FRAME, 32, 0); /* no stack is no look */
	pt_py_sampler_look(s);
	rows = pt_py_sampler_shares(s, &n);
	assert_int_equal(n, 2);
	assert_int_equal(rows[0].seen, 19);
	assert_int_equal(rows[0].looks, 22);
	assert_string_equal(rows[0].place.at.file, "/job/train.py");
	assert_int_equal(rows[0].place.at.line, 42);
	assert_true(rows[0].place.running); /* it is who looks */
	assert_int_equal(rows[1].seen, 3);
	assert_non_null(strstr(rows[1].place.at.file, "/torch/"));
	pt_py_sampler_free(s);
	/* a process without Python: so after some calls, once */
	s = pt_py_sampler_new();
	assert_non_null(s);
	for (n = 0, i = 0; i < 20; i++)
		n += pt_py_looks_watch(pt_py_sampler_looks(s), getppid(), &err) != 0;
	assert_true(n <= 1);
	pt_py_sampler_free(s);
}

/* ---- samples of the kernel's ----------------------------------------------------- */

struct told {
	struct pt_py_looks *l;
	int n;
	struct pt_py_look last;
};

static void on_told(void *ctx, const struct pt_py_look *look)
{
	struct told *t = ctx;

	assert_true(look->stack && look->stack <= pt_py_nodes_known(t->l));
	t->n++;
	t->last = *look;
}

static struct pt_py_sample true_sample(void)
{
	struct pt_py_sample s = { .ts = 1000, .tgid = (uint32_t)getpid(), .tid = 77, .n = FRAMES };
	unsigned i;

	for (i = 0; i < FRAMES; i++) {
		s.at[i].code = at(CODE);
		s.at[i].instr = at(CODE) + 184 + 4;
	}
	return s;
}

static void samples(void **state)
{
	struct told t = { .l = pt_py_looks_new() };
	const struct pt_py *py;
	struct pt_py_found f;
	pid_t pid;
	struct pt_err err = { "" };
	struct pt_py_sample s;
	uint32_t depth = 0, id;

	(void)state;
	make_true();
	assert_non_null(t.l);
	s = true_sample();
	/* of nobody who is watched */
	assert_false(pt_py_looks_sample(t.l, &s, s.n, on_told, &t));
	assert_null(pt_py_looks_opened(t.l, &pid));
	assert_int_equal(pt_py_looks_watch(t.l, getpid(), &err), 0);
	assert_true(pt_py_looks_sample(t.l, &s, s.n, on_told, &t));
	assert_int_equal(t.n, 1);
	assert_int_equal(t.last.tid, 77);
	assert_int_equal(t.last.begin_ns, 1000);
	assert_int_equal(t.last.end_ns, 1000);
	assert_true(t.last.running);
	for (id = t.last.stack; id; id = pt_py_node_of(t.l, id)->caller)
		depth++;
	assert_int_equal(depth, FRAMES);
	assert_int_equal(pt_py_line_of(t.l, pt_py_telling(t.l, t.last.stack))->line, 42);
	/* the same stack is the same; another instruction is not */
	id = t.last.stack;
	assert_true(pt_py_looks_sample(t.l, &s, s.n, on_told, &t));
	assert_int_equal(t.last.stack, id);
	/* which of its caller's instructions called it */
	assert_int_equal(pt_py_node_of(t.l, id)->called_at, 4 / 2 + 1);
	s.at[1].instr = at(CODE) + 184 + 6;
	assert_true(pt_py_looks_sample(t.l, &s, s.n, on_told, &t));
	assert_int_not_equal(t.last.stack, id);
	assert_int_equal(pt_py_node_of(t.l, t.last.stack)->called_at, 6 / 2 + 1);
	for (id = t.last.stack; pt_py_node_of(t.l, id)->caller; id = pt_py_node_of(t.l, id)->caller)
		;
	assert_int_equal(pt_py_node_of(t.l, id)->called_at, 0);
	id = t.last.stack;
	s.at[0].instr = at(CODE) + 184 + 400; /* behind all lines */
	assert_true(pt_py_looks_sample(t.l, &s, s.n, on_told, &t));
	assert_int_not_equal(t.last.stack, id);
	/* one frame without a code object: none of it is told */
	s.at[1].code = at(TABLE);
	assert_false(pt_py_looks_sample(t.l, &s, s.n, on_told, &t));
	s.at[1].code = 8;
	assert_false(pt_py_looks_sample(t.l, &s, s.n, on_told, &t));
	assert_false(pt_py_looks_sample(t.l, &s, PT_PY_FRAMES + 1, on_told, &t));
	assert_false(pt_py_looks_sample(t.l, &s, 0, on_told, &t));
	assert_int_equal(t.n, 4);
	/* where it is is told once */
	py = pt_py_looks_opened(t.l, &pid);
	assert_non_null(py);
	assert_int_equal(pid, getpid());
	assert_true(pt_py_where(py, &f));
	assert_null(pt_py_looks_opened(t.l, &pid));
	assert_int_equal(pt_py_state(py).begin, at(0));
	assert_int_equal(pt_py_state(py).minor, 11);
	assert_int_equal(f.pid, getpid());
	assert_int_equal(f.minor, 11);
	assert_int_equal(f.where.runtime, at(0));
	assert_true(pt_py_found_check(&f));
	/* who runs is not looked at any more: this thread, which looks */
	t.n = 0;
	pt_py_looks_at(t.l, on_told, &t);
	assert_int_equal(t.n, 1);
	pt_py_looks_sampled(t.l, getpid(), true);
	pt_py_looks_at(t.l, on_told, &t);
	assert_int_equal(t.n, 1);
	pt_py_looks_sampled(t.l, getpid(), false);
	pt_py_looks_at(t.l, on_told, &t);
	assert_int_equal(t.n, 2);
	pt_py_looks_free(t.l);
}

/* A thread for each request: those that have ended are forgotten, with what they were
 * sampled in; this one, at which looks are, is not, nor is one that is still sampled. */
static void threads_that_end(void **state)
{
	struct told t = { .l = pt_py_looks_new() };
	struct pt_err err = { "" };
	struct pt_py_sample s;
	unsigned i, k;

	(void)state;
	make_true();
	assert_non_null(t.l);
	assert_int_equal(pt_py_looks_watch(t.l, getpid(), &err), 0);
	s = true_sample();
	for (i = 0; i < 20; i++) {
		for (k = 0; k < 500; k++) {
			s.tid = k ? 100000 + 500 * i + k : 77;
			assert_true(pt_py_looks_sample(t.l, &s, s.n, on_told, &t));
		}
		t.n = 0;
		pt_py_looks_at(t.l, on_told, &t);
		assert_int_equal(t.n, 1);
		assert_true(HASH_COUNT(t.l->threads) <= 2 + 2 * 499);
	}
	pt_py_looks_at(t.l, on_told, &t);
	pt_py_looks_at(t.l, on_told, &t);
	assert_int_equal(HASH_COUNT(t.l->threads), 1);
	pt_py_looks_free(t.l);
}

/* Frames are whatever was in the job's memory, and so is what they point to. */
static void samples_that_lie(void **state)
{
	struct told t = { .l = pt_py_looks_new() };
	struct pt_err err = { "" };
	struct pt_py_sample s;
	uint64_t r = 13;
	unsigned i;
	int k;

	(void)state;
	make_true();
	assert_non_null(t.l);
	assert_int_equal(pt_py_looks_watch(t.l, getpid(), &err), 0);
	for (k = 0; k < 3000; k++) {
		make_true();
		s = true_sample();
		s.n = (uint32_t)(st_rand(&r) % (PT_PY_FRAMES + 1));
		for (i = 0; i < s.n; i++) {
			uint64_t v = st_rand(&r);

			s.at[i].code = v % 16 ? at(CODE) : v % 32 ? at((unsigned)(v >> 8) % WORDS) : v;
			s.at[i].instr = v % 3 ? at(CODE) + 184 + 2 * (v >> 50) : v;
		}
		for (i = 0; i < st_rand(&r) % 4; i++)
			_PyRuntime[CODE + st_rand(&r) % 420] =
				st_rand(&r) % 2 ? at((unsigned)(st_rand(&r) % WORDS)) : st_rand(&r);
		pt_py_looks_sample(t.l, &s, s.n, on_told, &t);
	}
	assert_true(t.n > 10);
	pt_py_looks_free(t.l);
}

/* What the reader says is checked by who gives it to the kernel. */
static void found(void **state)
{
	struct pt_py_found good = { .pid = 1, .minor = 13 }, f;
	struct pt_err err = { "" };
	struct pt_py *p;
	uint64_t r = 17;
	unsigned i, k, taken = 0;

	(void)state;
	memset(_PyRuntime, 0, sizeof(_PyRuntime));
	for (i = 8; i <= 13; i++) {
		assert_int_equal(pt_py_open_at(&p, getpid(), at(0), (int)i, &err), 0);
		if (pt_py_where(p, &good))
			assert_true(pt_py_found_check(&good));
		pt_py_close(p);
	}
	assert_int_equal(good.minor, 13);
	f = good;
	f.minor = 14;
	assert_false(pt_py_found_check(&f));
	f = good;
	f.where.previous = 4;
	assert_false(pt_py_found_check(&f));
	f = good;
	f.where.size = PT_PY_RAW + 1;
	assert_false(pt_py_found_check(&f));
	f = good;
	f.where.owner = f.where.size;
	assert_false(pt_py_found_check(&f));
	f = good;
	f.where.native = 0;
	assert_false(pt_py_found_check(&f));
	/* of a version that publishes nothing it is not what was said */
	f = good;
	f.minor = 11;
	memset(&f.where.interpreters, 0xff, sizeof(f.where) - sizeof(f.where.runtime));
	f.where.apart = 1;
	assert_true(pt_py_found_check(&f));
	assert_int_equal(f.where.interpreters, 40);
	assert_int_equal(f.where.native, 1);
	assert_int_equal(f.where.size, 64);
	for (k = 0; k < 20000; k++) {
		uint32_t words[sizeof(f.where) / 4];

		f = good;
		memcpy(words, &f.where, sizeof(words));
		words[st_rand(&r) % (sizeof(words) / 4)] = (uint32_t)st_rand(&r) >> st_rand(&r) % 32;
		memcpy(&f.where, words, sizeof(words));
		if (!pt_py_found_check(&f))
			continue;
		taken++;
		assert_true(f.where.size <= PT_PY_RAW && f.where.code + 8 <= f.where.size &&
			    f.where.instr + 8 <= f.where.size && f.where.previous + 8 <= f.where.size);
	}
	assert_true(taken && taken < k);
}

/* ---- functions of libraries -------------------------------------------------------- */

#define LIB_BYTES (1 << 20) /* that are mapped */

/* Somebody's library, whose code is mapped as a loader does. */
struct lib {
	char path[128];
	int fd;
	unsigned char *at;
	struct told t;
};

static void put_bytes(const char *path, const void *v, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, v, n), n);
	close(fd);
}

static void copy_file(const char *from, const char *to)
{
	int fd = open(from, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *v;

	assert_true(fd >= 0 && !fstat(fd, &st));
	v = malloc((size_t)st.st_size);
	assert_non_null(v);
	assert_int_equal(read(fd, v, (size_t)st.st_size), st.st_size);
	put_bytes(to, v, (size_t)st.st_size);
	free(v);
	close(fd);
}

static void map_lib(struct lib *b, const char *name)
{
	struct pt_err err = { "" };

	b->fd = open(b->path, O_RDONLY | O_CLOEXEC);
	assert_true(b->fd >= 0);
	b->at = mmap(NULL, LIB_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE, b->fd, 0);
	assert_true(b->at != MAP_FAILED);
	make_true();
	b->t = (struct told){ .l = pt_py_looks_new() };
	assert_non_null(b->t.l);
	assert_int_equal(pt_py_looks_watch(b->t.l, getpid(), &err), 0);
	assert_non_null(strstr(b->path, name));
}

static void unmap_lib(struct lib *b)
{
	pt_py_looks_free(b->t.l);
	munmap(b->at, LIB_BYTES);
	close(b->fd);
	unlink(b->path);
}

/* The place of a sample there. */
static uint32_t sample_at(struct lib *b, uint64_t offset)
{
	struct pt_py_sample s = true_sample();

	s.ip = (uintptr_t)b->at + offset;
	assert_true(pt_py_looks_sample(b->t.l, &s, s.n, on_told, &b->t));
	return b->t.last.place;
}

static const struct pt_py_line *told_of(struct lib *b, uint32_t place)
{
	size_t i;

	for (i = 0; i < pt_py_bound_known(b->t.l); i++)
		if (pt_py_bound_of(b->t.l, i)->place == place)
			return pt_py_line_of(b->t.l, pt_py_bound_of(b->t.l, i)->line);
	return NULL;
}

/* Where libz has its function, and libz. */
static uint64_t offset_of(const char *function, const char **path)
{
	void *at = dlsym(RTLD_DEFAULT, function);
	static Dl_info info;

	assert_true(at && dladdr(at, &info));
	*path = info.dli_fname;
	return (uint64_t)((uintptr_t)at - (uintptr_t)info.dli_fbase);
}

static void places_are_told(void **state)
{
	struct lib b = { .path = "/tmp/pt-test-libone.XXXXXX" };
	const struct pt_py_line *l;
	const char *libz;
	uint64_t crc = offset_of("crc32_z", &libz), adler = offset_of("adler32_z", &libz);
	uint32_t one, two;

	(void)state;
	close(mkstemp(b.path));
	copy_file(libz, b.path);
	map_lib(&b, "libone");
	assert_false(pt_py_functions_due(b.t.l));
	one = sample_at(&b, crc + 5);
	two = sample_at(&b, adler);
	assert_true(one && two && one != two && sample_at(&b, crc + 5) == one);
	assert_true(pt_py_functions_due(b.t.l) && !told_of(&b, one));
	pt_py_functions(b.t.l);
	assert_false(pt_py_functions_due(b.t.l));
	l = told_of(&b, one);
	assert_non_null(l);
	assert_string_equal(l->name, "crc32_z");
	assert_string_equal(l->file, b.path);
	assert_true(l->native && !l->line);
	l = told_of(&b, two);
	assert_non_null(l);
	assert_string_equal(l->name, "adler32_z");
	/* another one in a function that is known needs no look into the file */
	assert_int_equal(sample_at(&b, crc + 6), one);
	assert_int_equal(sample_at(&b, adler + 9), two);
	assert_false(pt_py_functions_due(b.t.l));
	unmap_lib(&b);
}

/* Renamed away, the file that is mapped still is what it was; written over, nobody knows what
 * was there when the sample was taken. */
static void another_file_is_not_believed(void **state)
{
	struct lib b = { .path = "/tmp/pt-test-libtwo.XXXXXX" };
	char other[sizeof(b.path) + 8];
	const struct pt_py_line *l;
	const char *libz;
	uint64_t crc = offset_of("crc32_z", &libz);
	uint32_t place;
	int fd;

	(void)state;
	close(mkstemp(b.path));
	copy_file(libz, b.path);
	map_lib(&b, "libtwo");
	snprintf(other, sizeof(other), "%s.other", b.path);
	copy_file("/proc/self/exe", other);
	assert_int_equal(rename(other, b.path), 0);
	place = sample_at(&b, crc + 5);
	pt_py_functions(b.t.l);
	l = told_of(&b, place);
	if (l)
		assert_string_equal(l->name, "crc32_z");
	else
		assert_int_not_equal(geteuid(), 0); /* who may look at the mapping itself */
	unmap_lib(&b);

	copy_file(libz, b.path);
	map_lib(&b, "libtwo");
	place = sample_at(&b, crc + 5);
	assert_true(place);
	fd = open(b.path, O_WRONLY | O_CLOEXEC | O_APPEND);
	assert_int_equal(write(fd, "x", 1), 1);
	close(fd);
	pt_py_functions(b.t.l);
	assert_null(told_of(&b, place));
	/* and it never is again */
	place = sample_at(&b, crc + 7);
	pt_py_functions(b.t.l);
	assert_null(told_of(&b, place));
	unmap_lib(&b);
}

/* A gigabyte of symbols; and one that is no library. */
static void claims_are_not_taken(void **state)
{
	const Elf64_Ehdr eh = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = EV_CURRENT,
		.e_ehsize = sizeof(eh), .e_phoff = sizeof(eh), .e_phnum = 1,
		.e_phentsize = sizeof(Elf64_Phdr), .e_shoff = 4096, .e_shnum = 3,
		.e_shentsize = sizeof(Elf64_Shdr),
	};
	const uint64_t claim = 1ull << 30;
	const Elf64_Phdr ph = { .p_type = PT_LOAD, .p_flags = PF_X | PF_R, .p_filesz = claim,
				.p_memsz = claim };
	const Elf64_Shdr sh[3] = {
		{ .sh_size = 0 },
		{ .sh_type = SHT_SYMTAB, .sh_offset = 8192, .sh_size = claim,
		  .sh_entsize = sizeof(Elf64_Sym), .sh_link = 2 },
		{ .sh_type = SHT_STRTAB, .sh_offset = 8192 + claim, .sh_size = claim },
	};
	struct lib b = { .path = "/tmp/pt-test-libbig.XXXXXX" };
	uint64_t begin = pt_now_ns();
	uint32_t place;
	int fd = mkstemp(b.path);

	(void)state;
	assert_int_equal(pwrite(fd, &eh, sizeof(eh), 0), sizeof(eh));
	assert_int_equal(pwrite(fd, &ph, sizeof(ph), sizeof(eh)), sizeof(ph));
	assert_int_equal(pwrite(fd, sh, sizeof(sh), 4096), sizeof(sh));
	assert_int_equal(ftruncate(fd, (off_t)(8192 + 2 * claim)), 0);
	close(fd);
	map_lib(&b, "libbig");
	place = sample_at(&b, 5000);
	assert_true(place);
	pt_py_functions(b.t.l);
	assert_null(told_of(&b, place));
	assert_true(pt_now_ns() - begin < 8000000000ull);
	unmap_lib(&b);

	put_bytes(b.path, "no library", 10);
	map_lib(&b, "libbig");
	place = sample_at(&b, 5);
	pt_py_functions(b.t.l);
	assert_null(told_of(&b, place));
	unmap_lib(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_are_told),
		cmocka_unit_test(another_file_is_not_believed),
		cmocka_unit_test(claims_are_not_taken),
		cmocka_unit_test(lines_by_steps),   cmocka_unit_test(lines_by_ranges),
		cmocka_unit_test(lines_by_entries), cmocka_unit_test(lines_of_anything),
		cmocka_unit_test(a_true_stack),	    cmocka_unit_test(lies),
		cmocka_unit_test(published),	    cmocka_unit_test(looks),
		cmocka_unit_test(samples),	    cmocka_unit_test(samples_that_lie),
		cmocka_unit_test(threads_that_end), cmocka_unit_test(found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
