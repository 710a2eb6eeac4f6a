/* SPDX-License-Identifier: BSD-2-Clause */
/* Who is followed from outside of the tree: what counts, and how much is enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/classify.h"
#include "model/outside.h"
#include "model/syscalls.h"

#define JOB 500u
#define SERVICE 600u
#define MS 1000000ull

/* The job sleeps from `at` for `ms` in a recv() that the service's send() ends. */
static struct pt_rec_off sleep_of(uint64_t at, uint64_t ms)
{
	return (struct pt_rec_off){
		.hdr = { .size = sizeof(struct pt_rec_off), .kind = PT_REC_OFF,
			 .ts = at + ms * MS, .tgid = JOB, .tid = JOB },
		.off_ts = at, .wake_ts = at + ms * MS, .state = 1,
		.syscall = PT_NR_recvfrom, .obj_kind = PT_OBJ_SOCK,
		.waker_tid = SERVICE, .waker_tgid = SERVICE,
		.waker_syscall = PT_NR_sendto, .waker_obj_kind = PT_OBJ_SOCK,
		.waker_in = PT_WAKER_KNOWN,
	};
}

/* How many of `n` such sleeps, each `every` ms, it takes until it is told; 0: none
 * is. */
static unsigned takes(const struct pt_rec_off *r, unsigned n, uint64_t every,
		      struct pt_outside_seen *s)
{
	static struct pt_outside o;
	struct pt_rec_off x = *r;
	unsigned i;

	memset(&o, 0, sizeof(o));
	for (i = 1; i <= n; i++) {
		if (pt_outside_see(&o, &x, s))
			return i;
		x.off_ts += every * MS;
		x.wake_ts += every * MS;
		x.hdr.ts += every * MS;
	}
	return 0;
}

static void test_supplier(void **state)
{
	struct pt_rec_off r = sleep_of(1000, 4);
	struct pt_outside_seen s;

	(void)state;
	assert_int_equal(takes(&r, 100, 100, &s), 3);
	assert_int_equal(s.waker, SERVICE);
	assert_int_equal(s.waiter, JOB);
	assert_int_equal(s.wakes, 3);
	assert_true(s.slept_ns == 12 * MS);
	assert_true(s.over_ns == 204 * MS);
	/* ... sooner, where there is little else */
	assert_int_equal(takes(&r, 100, 10, &s), 2);
	/* a batch in five seconds is a supplier's, too */
	r = sleep_of(1000, 4000);
	assert_int_equal(takes(&r, 10, 5000, &s), 2);
	/* who takes what it was asked, on a Unix socket, was asked */
	r = sleep_of(1000, 4);
	r.waker_syscall = PT_NR_recvfrom;
	assert_int_equal(takes(&r, 100, 100, &s), 3);
	/* a line a minute is a logger's */
	r = sleep_of(1000, 1);
	assert_int_equal(takes(&r, 1000, 60000, &s), 0);
}

static void none(const struct pt_rec_off *r)
{
	struct pt_outside_seen s;

	assert_int_equal(takes(r, 100, 10, &s), 0);
}

/* What does not count, one thing at a time. */
static void test_not(void **state)
{
	struct pt_rec_off r = sleep_of(1000, 4);

	(void)state;
	r.hdr.kind = PT_REC_EXIT;
	none(&r);
	r = sleep_of(1000, 4);
	r.hdr.size = 100;
	none(&r);
	r = sleep_of(1000, 4);
	r.hdr.flags = PT_F_OPEN;
	none(&r);
	r = sleep_of(1000, 4);
	r.waker_tgid = JOB;
	none(&r);
	r = sleep_of(1000, 4);
	r.waker_tgid = r.waker_tid = 0;
	none(&r);
	r = sleep_of(1000, 4);
	r.wake_ts = r.off_ts + 299999; /* too short */
	none(&r);
	r.wake_ts = r.off_ts - 1;
	none(&r);
	r = sleep_of(1000, 4);
	r.wake_ts = 0;
	none(&r);
	r = sleep_of(1000, 4);
	r.waker_syscall = PT_NR_kill; /* a signal */
	none(&r);
	r = sleep_of(1000, 4);
	r.waker_syscall = PT_NR_recvfrom; /* it took something, over the network */
	r.waker_in |= PT_WAKER_SOFTIRQ;
	none(&r);
	r.waker_in = 0; /* ... or nobody knows */
	none(&r);
	r = sleep_of(1000, 4);
	r.waker_in |= PT_WAKER_HARDIRQ; /* a victim of an interrupt */
	none(&r);
	r = sleep_of(1000, 4);
	r.waker_in |= PT_WAKER_KTHREAD;
	none(&r);
	r = sleep_of(1000, 4);
	r.waker_in |= PT_WAKER_SOFTIRQ | PT_WAKER_STRANGER;
	none(&r);
	r = sleep_of(1000, 4);
	r.waker_syscall = PT_NR_connect; /* who connects asks */
	none(&r);
	r = sleep_of(1000, 4);
	r.syscall = PT_NR_accept4;
	none(&r);
	r = sleep_of(1000, 4);
	r.state = 0; /* preempted */
	none(&r);
}

static void test_futex(void **state)
{
	struct pt_rec_off r = sleep_of(1000, 4);
	struct pt_outside_seen s;

	(void)state;
	r.syscall = r.waker_syscall = PT_NR_futex;
	r.obj_kind = r.waker_obj_kind = PT_OBJ_FUTEX;
	r.arg[0] = 0x7000;
	r.waker_arg0 = 0x9000; /* the same page elsewhere */
	assert_int_equal(takes(&r, 100, 100, &s), 3);
	/* on a kernel that does not tell what a wake-up was made in */
	r.waker_in = 0;
	assert_int_equal(takes(&r, 100, 100, &s), 3);
	r.arg[1] = 128; /* private to the process */
	none(&r);
}

static void test_loopback(void **state)
{
	struct pt_rec_off r = sleep_of(1000, 4);
	struct pt_outside_seen s;

	(void)state;
	r.waker_in |= PT_WAKER_SOFTIRQ | PT_WAKER_PEER;
	assert_int_equal(takes(&r, 100, 100, &s), 3);
}

static void test_enough(void **state)
{
	struct pt_outside_seen s = { .wakes = 3, .slept_ns = 10 * MS,
				     .over_ns = 4000 * MS };

	(void)state;
	assert_true(pt_outside_supplies(&s));
	s.over_ns = 4000 * MS + 400;
	assert_false(pt_outside_supplies(&s));
	s.over_ns = 4000 * MS;
	s.wakes = 2;
	assert_false(pt_outside_supplies(&s));
	s.slept_ns = 400 * MS;
	assert_true(pt_outside_supplies(&s));
	s.slept_ns--;
	assert_false(pt_outside_supplies(&s));

	s = (struct pt_outside_seen){ .wakes = 30, .slept_ns = 1000 * MS,
				      .over_ns = 10000 * MS };
	assert_true(pt_outside_surely(&s));
	s.wakes = 29;
	assert_false(pt_outside_surely(&s));
	s.wakes = 30;
	s.slept_ns--;
	assert_false(pt_outside_surely(&s));
	s.slept_ns++;
	s.over_ns += 10;
	assert_false(pt_outside_surely(&s));
}

/* It is told once, and again at twice as many; others do not disturb it. */
static void test_again(void **state)
{
	static struct pt_outside o;
	struct pt_rec_off r = sleep_of(1000, 4), x;
	struct pt_outside_seen s;
	unsigned i, told = 0, others = 0;

	(void)state;
	memset(&o, 0, sizeof(o));
	for (i = 1; i <= 48; i++) {
		uint64_t at = 1000 + i * 10 * MS;

		r = sleep_of(at, 4);
		if (pt_outside_see(&o, &r, &s)) {
			told++;
			assert_int_equal(s.waker, SERVICE);
			assert_true(i == 2 || i == 4 || i == 8 || i == 16 ||
				    i == 32);
		}
		x = sleep_of(at, 4);
		x.waker_tgid = x.waker_tid = 1000 + i; /* once each */
		others += pt_outside_see(&o, &x, &s);
	}
	assert_int_equal(told, 5);
	assert_int_equal(others, 0);
	/* more than it holds: bounded, and whoever is seen often stays */
	for (i = 0; i < 10000; i++) {
		x = sleep_of(1000 + (1000 + i) * MS, 4);
		x.waker_tgid = x.waker_tid = 2000 + i;
		assert_false(pt_outside_see(&o, &x, &s));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_supplier),
		cmocka_unit_test(test_not),
		cmocka_unit_test(test_futex),
		cmocka_unit_test(test_loopback),
		cmocka_unit_test(test_enough),
		cmocka_unit_test(test_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
