/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two stages that work side by side: one process fetches pieces, the next one makes batches of
 * them, and the trainer waits. The slower stage is charged with the waits, and more makers are
 * told to gain only where they would.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/syscalls.h"
#include "stream_case.h"

#define T0 (1000 * ST_S)
#define STEPS 120
#define TRAINER 500u
#define MAKER 600u
#define GIVER 700u
#define TO_MAKER 71u /* pipes */
#define TO_TRAINER 72u
#define TO_GIVER 73u
#define GPU_NS (20 * ST_MS)
#define COPY_BYTES (1u << 20)
#define H2D 1

struct stages {
	uint64_t fetch_ns, make_ns;
	bool asked; /* the giver begins when the maker asks for the next piece */
};

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The trainer waits until `ready` for the batch that this thread of the maker's hands over, and
 * has its device work on it; until when. */
static uint64_t train(struct stream *s, uint64_t at, uint64_t ready, uint32_t from)
{
	unsigned i;

	if (ready > at)
		st_pipe_in(s, TRAINER, TRAINER, at, ready, ready + 5 * ST_US, TO_TRAINER, MAKER,
			   from);
	at = later(at, ready) + 50 * ST_US;
	st_gpu(s, "cudaMemcpyAsync", TRAINER, TRAINER, at, at + 20 * ST_US, 0, 1, COPY_BYTES,
	       H2D);
	for (i = 0; i < 4; i++, at += 30 * ST_US)
		st_gpu(s, "cudaLaunchKernel", TRAINER, TRAINER, at + 30 * ST_US, 0, 0,
		       0x1000 + i, 64, 64);
	st_gpu(s, "cudaStreamSynchronize", TRAINER, TRAINER, at + 60 * ST_US, at + GPU_NS, 0, 0, 0,
	       0);
	st_futex(s, TRAINER, TRAINER, at + 80 * ST_US, at + GPU_NS - 10 * ST_US,
		 at + GPU_NS - 5 * ST_US, 0x7000, 0, 0);
	return at + GPU_NS + 20 * ST_US;
}

/* The trainer and its maker. */
static void begin(struct stream *s)
{
	st_host(s, T0, 8, TRAINER);
	st_mark(s, T0, PT_MARK_BEGIN);
	st_task(s, T0, TRAINER, TRAINER, 1, "python3");
	st_task(s, T0, MAKER, MAKER, TRAINER, "python3");
}

static struct pt_report *figures(struct stream *s, uint64_t end, struct pt_model **m)
{
	struct pt_report *r;

	st_mark(s, end, PT_MARK_END);
	st_seal(s);
	r = st_figures(s, m);
	st_free(s);
	return r;
}

static void make(struct stream *s, const struct stages *o)
{
	uint64_t fetched = T0, made = T0, used = T0 + ST_MS, begin, ready;
	unsigned n;

	for (n = 0; n < STEPS; n++) {
		/* the giver: from the last piece on, or from being asked on */
		begin = o->asked ? later(fetched, made) : fetched;
		if (begin > fetched + 10 * ST_US)
			st_pipe_in(s, GIVER, GIVER, fetched + 10 * ST_US, begin, begin + ST_US,
				   TO_GIVER, MAKER, MAKER);
		ready = begin + o->fetch_ns;
		st_sock(s, GIVER, GIVER, begin + 20 * ST_US, ready - 20 * ST_US,
			ready - 15 * ST_US, 74, 0, 0);
		/* the maker: from its last batch on, once the piece is there */
		if (ready > made + 10 * ST_US)
			st_pipe_in(s, MAKER, MAKER, made + 10 * ST_US, ready, ready + ST_US,
				   TO_MAKER, GIVER, GIVER);
		fetched = ready;
		made = later(made, ready) + o->make_ns;
		used = train(s, used, made, MAKER);
	}
	st_mark(s, used, PT_MARK_END);
}

static struct pt_report *told(const struct stages *o, struct pt_model **m)
{
	struct stream s = { 0 };
	struct pt_report *r;

	begin(&s);
	st_task(&s, T0, GIVER, GIVER, TRAINER, "python3");
	make(&s, o);
	st_seal(&s);
	r = st_analyze(&s, m);
	st_free(&s);
	return r;
}

static double gain(const struct pt_report *r, int64_t workers)
{
	size_t i;

	for (i = 0; i < r->n_whatif; i++)
		if (!strcmp(r->whatif[i].change, "workers") && r->whatif[i].value == workers)
			return r->whatif[i].speedup.value;
	return NAN;
}

/* The part of the wait that is charged to `cause`, and what two makers would gain (INFINITY:
 * it need not be told). */
static void expect(struct stages o, enum pt_cause cause, double low, double high, double most)
{
	struct pt_model *m;
	struct pt_report *r = told(&o, &m);
	double part = case_charged(r, cause) / r->breakdown.data_wait.seconds;

	assert_true(r->breakdown.data_wait.seconds > 1);
	if (!(part >= low && part <= high))
		fail_msg("%s: %.2f of the wait, expected %.2f to %.2f", pt_cause_name(cause), part,
			 low, high);
	if (isfinite(most) && !(gain(r, 2) <= most))
		fail_msg("2 makers: %.2fx, expected at most %.2fx", gain(r, 2), most);
	pt_report_free(r);
	pt_model_free(m);
}

static void slow_giver(void **state)
{
	(void)state;
	expect((struct stages){ 48 * ST_MS, 36 * ST_MS, false }, PT_CAUSE_NETWORK, 0.95, 1, 1.05);
}

static void slow_maker(void **state)
{
	(void)state;
	expect((struct stages){ 30 * ST_MS, 48 * ST_MS, false }, PT_CAUSE_CPU, 0.95, 1, INFINITY);
}

/* Nothing is ahead: both parts follow each other, and both count. */
static void asked(void **state)
{
	(void)state;
	expect((struct stages){ 20 * ST_MS, 36 * ST_MS, true }, PT_CAUSE_CPU, 0.9, 1, INFINITY);
	expect((struct stages){ 36 * ST_MS, 12 * ST_MS, true }, PT_CAUSE_NETWORK, 0.4, 0.75, INFINITY);
}

/* ---- a maker's thread that hands over by the clock ---------------------------------- */

#define FLUSHER (MAKER + 1)

/* A batch takes `make_ns` from when it was asked for, and is handed over `hold_ns` after that
 * moment; until when. */
static uint64_t flush_late(struct stream *s, uint64_t make_ns, uint64_t hold_ns)
{
	uint64_t asked = T0 + ST_MS, out, next;
	struct pt_rec_off *r;
	unsigned n;

	for (n = 0; n < STEPS; n++, asked = next) {
		out = asked + hold_ns;
		r = st_off(s, MAKER, FLUSHER, asked + 20 * ST_US, out - 20 * ST_US,
			   out - 10 * ST_US);
		r->syscall = PT_NR_clock_nanosleep;
		r->waker_in = PT_WAKER_KNOWN | PT_WAKER_HARDIRQ;
		next = train(s, asked, out, FLUSHER);
		st_pipe_in(s, MAKER, MAKER, asked + make_ns, next, next + ST_US, TO_MAKER,
			   TRAINER, TRAINER);
		st_futex(s, MAKER, FLUSHER, out + 50 * ST_US, next + 10 * ST_US,
			 next + 15 * ST_US, 0x9000, MAKER, MAKER);
	}
	return asked;
}

/* The part of the data wait that is charged to `cause`. */
static double flushed(uint64_t make_ns, uint64_t hold_ns, enum pt_cause cause)
{
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	double part;

	begin(&s);
	st_task(&s, T0, MAKER, FLUSHER, TRAINER, "python3");
	r = figures(&s, flush_late(&s, make_ns, hold_ns), &m);
	assert_true(r->breakdown.data_wait.seconds > 0.9 * STEPS * (double)hold_ns / 1e9);
	part = case_charged(r, cause) / r->breakdown.data_wait.seconds;
	pt_report_free(r);
	pt_model_free(m);
	return part;
}

/* The batch was made long ago: it waits for the sleep's end, not for its maker. */
static void held_back(void **state)
{
	(void)state;
	assert_true(flushed(5 * ST_MS, 40 * ST_MS, PT_CAUSE_SLEEP) > 0.9);
	/* who looks now and then whether there is a batch holds nothing back */
	assert_true(flushed(39 * ST_MS, 40 * ST_MS, PT_CAUSE_CPU) > 0.9);
}

/* ---- a sender that stands before a full socket ------------------------------------------ */

/* The end of a batch is on its way while the trainer takes the begin of it: the sender sleeps in a
 * write, or in a read that the trainer answers with a request (what it hands over is memory, whose
 * descriptor it is asked for). The loader's way of sharing, NULL: not known. */
static bool shares_descriptors(bool asks)
{
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	uint64_t asked = T0 + ST_MS, out, next;
	struct pt_rec_off *o;
	unsigned n;
	bool told;

	begin(&s);
	st_task(&s, T0, MAKER, FLUSHER, TRAINER, "python3");
	for (n = 0; n < STEPS; n++, asked = next) {
		out = asked + 40 * ST_MS;
		next = train(&s, asked, out, MAKER);
		o = st_sock(&s, MAKER, FLUSHER, asked + 20 * ST_US, out + 20 * ST_US,
			    out + 25 * ST_US, 91, TRAINER, TRAINER);
		o->syscall = asks ? PT_NR_recvmsg : PT_NR_write;
		o->waker_syscall = asks ? PT_NR_sendmsg : PT_NR_read;
		o->waker_object = 92;
		st_pipe_in(&s, MAKER, MAKER, out + 50 * ST_US, next, next + ST_US, TO_MAKER,
			   TRAINER, TRAINER);
	}
	r = figures(&s, asked, &m);
	told = r->loader.sharing.value;
	pt_report_free(r);
	pt_model_free(m);
	return told;
}

static void room_in_a_socket(void **state)
{
	(void)state;
	assert_false(shares_descriptors(false));
	assert_true(shares_descriptors(true));
}

/* ---- somebody outside who is asked before each upload ---------------------------------- */

#define ANSWER_NS (15 * ST_MS)
#define MAKE_NS (45 * ST_MS)

/* Seconds of data wait in which a batch of `read` bytes was taken from the maker's pipe, and
 * GIVER, of no tree of ours, was asked something by way of a socket; or it is a thread of the
 * trainer's that works all the time, and has a lock which is waited for. */
static double waits_beside(uint64_t read, bool thread)
{
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	struct pt_rec_outside *o;
	uint64_t made = T0, used = T0 + ST_MS, answered = T0, ready;
	double told;
	unsigned n;

	begin(&s);
	if (thread) {
		st_task(&s, T0, TRAINER, GIVER, 1, "python3");
	} else {
		o = &st_add(&s, PT_REC_OUTSIDE, sizeof(*o), T0, GIVER, GIVER)->outside;
		memcpy(o->comm, "policy", sizeof("policy"));
	}
	for (n = 0; n < STEPS; n++) {
		made += MAKE_NS;
		ready = later(made, used);
		if (made > used)
			st_pipe_in(&s, TRAINER, TRAINER, used, made, made + ST_US, TO_TRAINER,
				   MAKER, MAKER);
		made = ready;
		ready += 100 * ST_US;
		if (!thread)
			st_sock(&s, GIVER, GIVER, answered + 10 * ST_US, ready, ready + ST_US, 81,
				TRAINER, TRAINER);
		answered = ready + ANSWER_NS;
		if (thread)
			st_futex(&s, TRAINER, TRAINER, ready, answered, answered + ST_US, 0xa000,
				 TRAINER, GIVER);
		else
			st_sock(&s, TRAINER, TRAINER, ready, answered, answered + ST_US, 80, GIVER,
				GIVER)->hdr.flags |= PT_F_AWAITED;
		st_bytes(&s, read, 0);
		used = train(&s, answered + 10 * ST_US, answered + 10 * ST_US, MAKER);
	}
	r = figures(&s, used, &m);
	told = r->breakdown.data_wait.seconds;
	pt_report_free(r);
	pt_model_free(m);
	return told;
}

/* What comes out of the pipes is all that goes up, but for names and sizes: then an answer, or
 * what a thread has made, is no part of a batch. */
static void answers_beside(void **state)
{
	double waits = STEPS * (double)ANSWER_NS / 1e9, alone;
	bool thread = false;

	(void)state;
	do {
		alone = waits_beside(COPY_BYTES, thread);
		assert_true(alone < waits_beside(COPY_BYTES / 2, thread) - 0.8 * waits);
		assert_float_equal(waits_beside(COPY_BYTES + COPY_BYTES / 60, thread), alone,
				   0.1 * waits);
		/* ... but where the rest of it is more than those, or a byte is missing */
		assert_true(alone < waits_beside(COPY_BYTES + COPY_BYTES / 40, thread) -
					    0.8 * waits);
		assert_true(alone < waits_beside(COPY_BYTES - 1, thread) - 0.8 * waits);
		thread = !thread;
	} while (thread);
}

/* ---- a child that answers a few bytes in each step ------------------------------------- */

/* Seconds of data wait in which the maker writes so much of each batch of COPY_BYTES into the
 * trainer's pipe, and another child is asked for ANSWER_NS in each step, and answers ten bytes. */
static double waits_for_answers(uint64_t by_maker)
{
	uint64_t used = T0 + ST_MS, answered = T0, made = T0, ready;
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	double told;
	unsigned n;

	begin(&s);
	st_task(&s, T0, GIVER, GIVER, TRAINER, "python3");
	for (n = 0; n < STEPS; n++) {
		st_pipe_in(&s, GIVER, GIVER, answered + 10 * ST_US, used + 20 * ST_US,
			   used + 25 * ST_US, TO_GIVER, TRAINER, TRAINER);
		st_bytes(&s, 10, 10);
		answered = used + ANSWER_NS;
		st_pipe_in(&s, TRAINER, TRAINER, used + 30 * ST_US, answered, answered + ST_US, 75,
			   GIVER, GIVER);
		st_bytes(&s, 10, 10);
		ready = answered + 2 * ST_MS;
		st_pipe_in(&s, MAKER, MAKER, made + 10 * ST_US, ready - ST_MS, ready - ST_MS + ST_US,
			   TO_MAKER, TRAINER, TRAINER);
		st_bytes(&s, 0, by_maker);
		st_pipe_in(&s, TRAINER, TRAINER, answered + 20 * ST_US, ready, ready + ST_US,
			   TO_TRAINER, MAKER, MAKER);
		st_bytes(&s, COPY_BYTES, 10);
		made = ready;
		used = train(&s, ready + 10 * ST_US, ready + 10 * ST_US, MAKER);
	}
	r = figures(&s, used, &m);
	told = r->breakdown.data_wait.seconds;
	pt_report_free(r);
	pt_model_free(m);
	return told;
}

/* Who else writes all that goes up has made the batches; where nobody is seen to, who answers may
 * have. */
static void answers_are_no_batches(void **state)
{
	double answers = STEPS * (double)ANSWER_NS / 1e9;

	(void)state;
	assert_true(waits_for_answers(COPY_BYTES + 100) < 0.3 * answers);
	assert_true(waits_for_answers(20) > 0.9 * answers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slow_giver),
		cmocka_unit_test(slow_maker),
		cmocka_unit_test(asked),
		cmocka_unit_test(held_back),
		cmocka_unit_test(answers_beside), cmocka_unit_test(answers_are_no_batches),
		cmocka_unit_test(room_in_a_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
