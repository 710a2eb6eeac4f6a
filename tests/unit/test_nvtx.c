/* SPDX-License-Identifier: BSD-2-Clause */
/* NVTX ranges in hand-made streams: nesting, pairing, what is not known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "stream.h"

#define PID 1000u
#define TID2 1001u
#define BEGIN (1000 * ST_S)

struct job {
	struct stream s;
	struct pt_model *m;
	struct pt_report *r;
};

static struct pt_rec_nvtx *event(struct job *j, uint32_t tid, uint64_t ms,
				 uint32_t op, const char *text)
{
	struct pt_rec_nvtx *r = (struct pt_rec_nvtx *)st_add(
		&j->s, PT_REC_NVTX, sizeof(*r), BEGIN + ms * ST_MS, PID, tid);

	r->op = op;
	if (text)
		memcpy(r->text, text, strlen(text));
	return r;
}

static void push(struct job *j, uint32_t tid, uint64_t ms, const char *text)
{
	event(j, tid, ms, PT_NVTX_PUSH, text);
}

static void pop(struct job *j, uint32_t tid, uint64_t ms)
{
	event(j, tid, ms, PT_NVTX_POP, NULL);
}

static void open_job(struct job *j)
{
	uint64_t t;

	memset(j, 0, sizeof(*j));
	st_host(&j->s, BEGIN, 4, PID);
	st_task(&j->s, BEGIN, PID, PID, 1, "train");
	st_task(&j->s, BEGIN, PID, TID2, 1, "second");
	for (t = BEGIN + 5 * ST_MS; t < BEGIN + ST_S; t += 50 * ST_MS)
		st_gpu(&j->s, "cudaDeviceSynchronize", PID, PID, t, t + ST_MS, 0,
		       0, 0, 0);
}

static void judge(struct job *j)
{
	st_seal(&j->s);
	j->r = st_analyze(&j->s, &j->m);
	assert_non_null(j->r);
	pt_model_free(j->m); /* the report holds what it shows */
	j->m = NULL;
}

/* The window is [10 ms, 1 s). */
static void finish(struct job *j)
{
	st_window(&j->s, BEGIN + 10 * ST_MS, BEGIN + ST_S);
	judge(j);
}

static void close_job(struct job *j)
{
	pt_report_free(j->r);
	pt_model_free(j->m);
	st_free(&j->s);
}

/* calls < 0: there is no such row; total NAN: its time is not known. */
static void expect(const struct job *j, const char *name, int calls, double ms,
		   double max_ms)
{
	const struct pt_r_operation *o = NULL;
	size_t i;

	for (i = 0; i < j->r->n_operations; i++)
		if (!strcmp(j->r->operations[i].kind, "nvtx") &&
		    !strcmp(j->r->operations[i].name, name))
			o = &j->r->operations[i];
	if (calls < 0) {
		if (o)
			fail_msg("there is a row %s", name);
		return;
	}
	if (!o)
		fail_msg("no row %s", name);
	assert_int_equal(o->calls, calls);
	if (isnan(ms) ? !isnan(o->total_s) : !(fabs(1e3 * o->total_s - ms) < 1e-6))
		fail_msg("%s: %f ms, not %f", name, 1e3 * o->total_s, ms);
	if (isnan(max_ms) ? !isnan(o->max_us) :
			    !(fabs(o->max_us / 1e3 - max_ms) < 1e-6))
		fail_msg("%s: at most %f us, not %f ms", name, o->max_us, max_ms);
}

static void test_nesting(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	pop(&j, PID, 20); /* begun before the trace */
	push(&j, PID, 100, "step");
	push(&j, PID, 110, "load");
	push(&j, TID2, 115, "step"); /* another thread's stack */
	pop(&j, PID, 130);
	pop(&j, TID2, 135);
	push(&j, PID, 140, "step"); /* in itself: its time counts once */
	pop(&j, PID, 150);
	pop(&j, PID, 200);
	pop(&j, PID, 210); /* one too many */
	push(&j, PID, 900, "open");
	finish(&j);
	expect(&j, "step", 3, 100 + 20, 100);
	expect(&j, "load", 1, 20, 20);
	expect(&j, "open", 1, 100, NAN); /* to the end; its length: nobody's */
	close_job(&j);
}

/* Hooks are put in one after another: a push from before the capture began
 * may have had its pop unseen. */
static void test_before(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	push(&j, PID, 100, "step");
	pop(&j, PID, 150);
	pop(&j, PID, 160); /* one too many */
	st_window(&j.s, BEGIN + 10 * ST_MS, BEGIN + ST_S);
	push(&j, PID, 8, "early"); /* its pop, at 9 ms, came before the hook */
	judge(&j);
	expect(&j, "early", -1, 0, 0);
	expect(&j, "step", 1, 50, 50);
	close_job(&j);
}

static void test_domains(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	push(&j, PID, 100, "a");
	event(&j, PID, 110, PT_NVTX_PUSH, "b")->domain = 7;
	pop(&j, PID, 150); /* of a, though b is the inner one */
	event(&j, PID, 170, PT_NVTX_POP, NULL)->domain = 7;
	finish(&j);
	expect(&j, "a", 1, 50, 50);
	expect(&j, "b", 1, 60, 60);
	close_job(&j);
}

static void handle(struct job *j, uint32_t tid, uint64_t ms, uint64_t id)
{
	event(j, tid, ms, PT_NVTX_ID, NULL)->id = id;
}

static void test_handles(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	event(&j, PID, 100, PT_NVTX_START, "first");
	event(&j, TID2, 100, PT_NVTX_START, "second");
	handle(&j, PID, 101, 11);
	handle(&j, TID2, 101, 12);
	event(&j, TID2, 130, PT_NVTX_END, NULL)->id = 11;
	event(&j, PID, 150, PT_NVTX_END, NULL)->id = 12;
	event(&j, PID, 160, PT_NVTX_END, NULL)->id = 13;
	event(&j, PID, 200, PT_NVTX_STRING, "by name");
	handle(&j, PID, 201, 0xabc);
	event(&j, PID, 210, PT_NVTX_PUSH, NULL)->text_id = 0xabc;
	pop(&j, PID, 220);
	event(&j, PID, 230, PT_NVTX_PUSH, NULL)->text_id = 0xdef;
	pop(&j, PID, 240);
	event(&j, PID, 250, PT_NVTX_MARK, "mark");
	finish(&j);
	expect(&j, "first", 1, 30, 30);
	expect(&j, "second", 1, 50, 50);
	expect(&j, "by name", 1, 10, 10);
	expect(&j, "(no text)", 1, 10, 10);
	expect(&j, "mark", 1, NAN, NAN);
	close_job(&j);
}

/* Without a profiler every handle is 0. */
static void test_no_handles(void **state)
{
	struct job j;

	(void)state;
	open_job(&j);
	event(&j, PID, 50, PT_NVTX_END, NULL); /* begun before the trace */
	event(&j, PID, 100, PT_NVTX_START, "alone");
	event(&j, PID, 130, PT_NVTX_END, NULL);
	finish(&j);
	expect(&j, "alone", 1, 30, 30);
	close_job(&j);

	open_job(&j);
	event(&j, PID, 100, PT_NVTX_START, "alone");
	event(&j, PID, 130, PT_NVTX_END, NULL);
	event(&j, PID, 200, PT_NVTX_START, "one");
	event(&j, PID, 210, PT_NVTX_START, "two");
	event(&j, PID, 220, PT_NVTX_END, NULL);
	event(&j, PID, 230, PT_NVTX_END, NULL);
	finish(&j);
	expect(&j, "alone", 1, NAN, NAN);
	expect(&j, "one", 1, NAN, NAN);
	expect(&j, "two", 1, NAN, NAN);
	close_job(&j);
}

/* A lost record could have been a pop: nothing that was open has a time. */
static void test_gap(void **state)
{
	struct job j;
	size_t i;

	(void)state;
	open_job(&j);
	push(&j, PID, 100, "before");
	push(&j, PID, 110, "inner");
	pop(&j, PID, 120);
	push(&j, PID, 300, "after");
	pop(&j, PID, 310);
	pop(&j, PID, 320);
	st_window(&j.s, BEGIN + 10 * ST_MS, BEGIN + ST_S);
	st_seal(&j.s);
	for (i = 0; i < j.s.recs.n; i++) {
		union pt_rec_any *r = &j.s.recs.v[i].r;

		if (r->hdr.kind == PT_REC_NVTX &&
		    r->hdr.ts == BEGIN + 120 * ST_MS)
			break;
	}
	assert_true(i < j.s.recs.n);
	memmove(&j.s.recs.v[i], &j.s.recs.v[i + 1],
		(--j.s.recs.n - i) * sizeof(j.s.recs.v[0]));
	j.r = st_analyze(&j.s, &j.m);
	expect(&j, "before", 1, NAN, NAN);
	expect(&j, "inner", 1, NAN, NAN);
	expect(&j, "after", 1, 10, 10);
	close_job(&j);
}

/* Whatever the events are: an answer, soon, and never more time than there is. */
static void test_any_events(void **state)
{
	uint64_t seed = 3;
	struct job j;
	size_t i;
	int k;

	(void)state;
	open_job(&j);
	for (k = 0; k < 60000; k++) {
		struct pt_rec_nvtx *r = event(&j, st_between(&seed, 0, 1) ? PID : TID2,
					      0, (uint32_t)st_between(&seed, 0, 9),
					      NULL);

		r->hdr.ts = BEGIN + st_between(&seed, 11 * ST_MS, ST_S - ST_MS);
		r->id = st_between(&seed, 0, 3);
		r->domain = st_between(&seed, 0, 2);
		r->text_id = st_between(&seed, 0, 9) ? 0 : 1;
		memset(r->text, (int)st_between(&seed, 0, 255),
		       st_between(&seed, 0, sizeof(r->text)));
	}
	finish(&j);
	for (i = 0; i < j.r->n_operations; i++)
		assert_false(j.r->operations[i].share > 1);
	close_job(&j);

	/* nested without end */
	open_job(&j);
	for (k = 0; k < 200000; k++)
		push(&j, PID, 500, k % 2 ? "x" : "y");
	finish(&j);
	close_job(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nesting),
		cmocka_unit_test(test_before),
		cmocka_unit_test(test_domains),
		cmocka_unit_test(test_handles),
		cmocka_unit_test(test_no_handles),
		cmocka_unit_test(test_gap),
		cmocka_unit_test(test_any_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
