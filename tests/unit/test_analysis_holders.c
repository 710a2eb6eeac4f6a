/* SPDX-License-Identifier: BSD-2-Clause */
/* Who held the interpreter's lock: a thread waits for it in vain two times for 5 ms, then gets
 * it from another one. What is sampled meanwhile is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "analysis/lines/lines.h"
#include "analysis/waits/look.h"
#include "analysis/waits/path.h"
#include "stream.h"

#define PID 500 /* and its main thread, which waits */
#define HOLDER 501
#define OTHER 502
#define LOCK 0x7f0000001000 /* the interpreter's */
#define PLAIN 0x7f0000900000
#define BEGIN (100 * ST_S)
#define CYCLE (40 * ST_MS)

enum { HEAVY = 1, LIGHT = 2, LIBRARY = 3 }; /* LIBRARY: called by LIGHT */

struct opts {
	int cycles;
	bool plain;  /* the lock is no interpreter's: nobody asks for it every 5 ms */
	bool given;  /* the other thread has it all the time, and gives it up */
};

static void feed(struct pt_model *m, void *rec, uint16_t kind, uint16_t size, uint64_t ts,
		 uint32_t tid)
{
	const struct pt_hdr h = { .size = size, .kind = kind, .ts = ts, .tgid = tid ? PID : 0,
				  .tid = tid };

	memcpy(rec, &h, sizeof(h));
	pt_model_feed(m, rec, size);
}

static void feed_line(struct pt_model *m, uint32_t id, uint32_t caller, const char *name,
		      uint32_t flags)
{
	struct pt_rec_pyline l = { .id = id, .line = flags ? 0 : (int32_t)(10 * id), .flags = flags };
	struct pt_rec_pystack s = { .id = id, .caller = caller, .line = id };
	size_t n = strlen(name);

	memcpy(l.text, name, n);
	memcpy(l.text + n + 1, "/job/x.py", 9);
	feed(m, &l, PT_REC_PYLINE, sizeof(l), BEGIN, 0);
	feed(m, &s, PT_REC_PYSTACK, sizeof(s), BEGIN, 0);
}

static void sample(struct pt_model *m, uint32_t tid, uint64_t ts, uint32_t stack)
{
	struct pt_rec_pylook l = { .begin_ts = ts, .stack = stack, .running = 1 };

	feed(m, &l, PT_REC_PYLOOK, sizeof(l), ts, tid);
}

/* Nobody ends it but the clock. */
static void in_vain(struct stream *s, uint64_t begin)
{
	struct pt_rec_off *r = st_futex(s, PID, PID, begin, begin + 5 * ST_MS,
					begin + 5 * ST_MS + 20 * ST_US, LOCK, 0, 0);

	r->waker_in = PT_WAKER_KNOWN | PT_WAKER_HARDIRQ;
	r->waker_syscall = PT_SYSCALL_NONE;
	r->waker_obj_kind = PT_OBJ_NONE;
}

static void one_cycle(struct stream *s, const struct opts *o, uint64_t t)
{
	uint64_t end = t + 13 * ST_MS, lock = o->plain ? PLAIN : LOCK;
	uint32_t from = o->given ? OTHER : HOLDER;

	if (!o->plain) {
		in_vain(s, t);
		in_vain(s, t + 5 * ST_MS + 30 * ST_US);
	}
	st_futex(s, PID, PID, o->plain ? t : t + 10 * ST_MS + 60 * ST_US, end, end + 5000, lock,
		 PID, from);
	/* who gave it up sleeps on another word of it until the next one says that it has it */
	st_futex(s, PID, from, end, end + 10 * ST_US, end + 15 * ST_US, lock + 80, PID, PID);
	/* it has it then, and the holder waits */
	st_futex(s, PID, HOLDER, t + 20 * ST_MS, t + 25 * ST_MS, t + 25 * ST_MS + 5000, lock, PID,
		 PID);
	st_off(s, PID, OTHER, t + 30 * ST_MS, t + 35 * ST_MS, t + 35 * ST_MS);
}

struct found {
	uint32_t line;
	double share;
	uint64_t samples;
};

/* Of three samples of the holder in a wait two in `heavy`; the other thread computes in the
 * library all the time; and what is sampled while nobody waits is none of it. */
static struct found find(const struct opts *o)
{
	struct pt_trainer t = { .proc = NULL };
	struct pt_look look = { .paths = NULL };
	struct pt_model *m = pt_model_new();
	struct stream s = { .recs = { NULL } };
	struct found f = { .line = 0 };
	struct pt_an an = { .m = m };
	int i;

	assert_non_null(m);
	st_task(&s, BEGIN, PID, PID, 1, "python3");
	st_task(&s, BEGIN, PID, HOLDER, 1, "holder");
	st_task(&s, BEGIN, PID, OTHER, 1, "other");
	for (i = 0; i < o->cycles; i++)
		one_cycle(&s, o, BEGIN + ST_MS + (uint64_t)i * CYCLE);
	an.t0 = BEGIN;
	an.t1 = BEGIN + (uint64_t)(o->cycles + 1) * CYCLE;
	st_window(&s, an.t0, an.t1);
	st_seal(&s);
	assert_int_equal(st_feed(&s, m), 0);
	feed_line(m, HEAVY, 0, "heavy", 0);
	feed_line(m, LIGHT, 0, "light", 0);
	feed_line(m, LIBRARY, LIGHT, "libx.so", PT_PYLINE_LIBRARY | PT_PYLINE_NATIVE);
	for (i = 0; i < o->cycles; i++) {
		uint64_t at = BEGIN + ST_MS + (uint64_t)i * CYCLE;

		sample(m, HOLDER, at + 2 * ST_MS, HEAVY);
		sample(m, HOLDER, at + 3 * ST_MS, HEAVY);
		sample(m, HOLDER, at + 6 * ST_MS, LIBRARY);
		sample(m, OTHER, at + 4 * ST_MS, LIBRARY);
		sample(m, HOLDER, at + 15 * ST_MS, LIGHT);
	}
	pt_model_settle(m);
	t.main = (struct pt_thread *)pt_model_thread(m, PID);
	t.proc = t.main->proc;
	look.paths = pt_paths_new(m, t.proc);
	assert_non_null(look.paths);
	t.look = &look;
	assert_int_equal(pt_holding_line(&an, &t, false, &f.line, &f.share, &f.samples), 0);
	pt_paths_free(look.paths);
	pt_model_free(m);
	st_free(&s);
	return f;
}

static void who_has_it_is_named(void **state)
{
	struct opts o = { .cycles = 40 };
	struct found f = find(&o);

	(void)state;
	assert_int_equal(f.line, HEAVY);
	assert_int_equal(f.samples, 3 * 40);
	assert_true(fabs(f.share - 2.0 / 3) < 1e-9);
}

static void who_runs_need_not_have_it(void **state)
{
	struct opts o = { .cycles = 40, .given = true };
	struct found f = find(&o);

	(void)state;
	assert_int_equal(f.line, LIGHT); /* which called the library */
	assert_int_equal(f.samples, 40);
	assert_true(f.share > 0.99);
}

static void too_few_or_another_lock_tell_nothing(void **state)
{
	struct opts o = { .cycles = 6 };

	(void)state;
	assert_int_equal(find(&o).line, 0);
	o.cycles = 7;
	assert_int_equal(find(&o).line, HEAVY);
	o = (struct opts){ .cycles = 40, .plain = true };
	assert_int_equal(find(&o).line, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_has_it_is_named),
		cmocka_unit_test(who_runs_need_not_have_it),
		cmocka_unit_test(too_few_or_another_lock_tell_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
