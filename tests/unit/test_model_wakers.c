/* SPDX-License-Identifier: BSD-2-Clause */
/* What a wait is, and which wakers can have ended it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/classify.h"
#include "model/syscalls.h"

#define A 500u /* a process and its main thread */
#define B 600u

static bool waker_valid(const struct pt_rec_off *r)
{
	bool valid;

	pt_wake_of(r, &valid);
	return valid;
}

/* ---- what a wait is ------------------------------------------------------ */

struct wait_case {
	int syscall;
	uint16_t state, obj, flags;
	enum pt_wait is;
};

static void test_classify(void **state)
{
	static const struct wait_case cases[] = {
		{ PT_NR_read, 0, PT_OBJ_FILE, PT_F_PREEMPTED, PT_WAIT_RUNQ },
		{ PT_NR_read, 0, PT_OBJ_FILE, 0, PT_WAIT_RUNQ },
		{ PT_NR_read, 2, PT_OBJ_FILE, PT_F_IOWAIT, PT_WAIT_DISK },
		{ PT_NR_read, 2, PT_OBJ_FILE, 0, PT_WAIT_DISK },
		{ PT_NR_pread64, 2, PT_OBJ_FILE, 0, PT_WAIT_DISK },
		{ PT_NR_getdents64, 2, PT_OBJ_DIR, 0, PT_WAIT_DISK },
		{ PT_NR_openat, 2, PT_OBJ_NONE, 0, PT_WAIT_DISK },
		{ PT_NR_statx, 2, PT_OBJ_NONE, 0, PT_WAIT_DISK },
		{ PT_NR_write, 2, PT_OBJ_FILE, 0, PT_WAIT_DISK_WRITE },
		{ PT_NR_fsync, 2, PT_OBJ_FILE, 0, PT_WAIT_DISK_WRITE },
		{ PT_NR_fsync, 2, PT_OBJ_NONE, PT_F_IOWAIT, PT_WAIT_DISK_WRITE },
		{ PT_SYSCALL_NONE, 2, PT_OBJ_NONE, 0, PT_WAIT_FAULT },
		{ PT_SYSCALL_NONE, 1, PT_OBJ_NONE, PT_F_IOWAIT, PT_WAIT_FAULT },
		{ PT_SYSCALL_NONE, 1, PT_OBJ_NONE, 0, PT_WAIT_OTHER },
		{ PT_NR_munmap, 2, PT_OBJ_NONE, PT_F_IOWAIT, PT_WAIT_DISK },
		{ PT_NR_read, 1, PT_OBJ_PIPE, 0, PT_WAIT_PIPE_IN },
		{ PT_NR_poll, 1, PT_OBJ_PIPE, 0, PT_WAIT_PIPE_IN },
		{ PT_NR_write, 1, PT_OBJ_PIPE, 0, PT_WAIT_PIPE_OUT },
		{ PT_NR_writev, 1, PT_OBJ_PIPE, 0, PT_WAIT_PIPE_OUT },
		{ PT_NR_recvmsg, 1, PT_OBJ_SOCK, 0, PT_WAIT_SOCK },
		{ PT_NR_poll, 1, PT_OBJ_SOCK, 0, PT_WAIT_SOCK },
		{ PT_NR_accept4, 1, PT_OBJ_NONE, 0, PT_WAIT_SOCK },
		{ PT_NR_futex, 1, PT_OBJ_FUTEX, 0, PT_WAIT_FUTEX },
		{ PT_NR_futex, 1, PT_OBJ_NONE, 0, PT_WAIT_FUTEX },
		{ PT_NR_nanosleep, 1, PT_OBJ_NONE, 0, PT_WAIT_SLEEP },
		{ PT_NR_clock_nanosleep, 1, PT_OBJ_NONE, 0, PT_WAIT_SLEEP },
		{ PT_NR_epoll_wait, 1, PT_OBJ_OTHER, 0, PT_WAIT_POLL },
		{ PT_NR_poll, 1, PT_OBJ_NONE, 0, PT_WAIT_POLL },
		{ PT_NR_read, 4, PT_OBJ_FILE, 0, PT_WAIT_STOPPED },
		{ PT_NR_read, 8, PT_OBJ_FILE, 0, PT_WAIT_STOPPED },
		{ 9999, 1, PT_OBJ_NONE, 0, PT_WAIT_OTHER },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pt_rec_off r = { .syscall = cases[i].syscall,
					.state = cases[i].state,
					.obj_kind = cases[i].obj };

		r.hdr.flags = cases[i].flags;
		if (pt_classify(&r) != cases[i].is)
			fail_msg("case %zu is %d, not %d", i, pt_classify(&r),
				 cases[i].is);
	}
}

/* ---- who can have ended it ----------------------------------------------- */

static struct pt_rec_off on_pipe(void)
{
	return (struct pt_rec_off){
		.hdr = { .tgid = A, .tid = A }, .wake_ts = 5, .state = 1,
		.syscall = PT_NR_poll, .obj_kind = PT_OBJ_PIPE, .object = 42,
		.waker_tid = B, .waker_tgid = B, .waker_syscall = PT_NR_write,
		.waker_obj_kind = PT_OBJ_PIPE, .waker_object = 42,
	};
}

static void test_pipe_wakers(void **state)
{
	struct pt_rec_off r = on_pipe();

	(void)state;
	assert_true(waker_valid(&r));
	r.waker_object = 43; /* another pipe */
	assert_false(waker_valid(&r));
	r = on_pipe();
	r.waker_syscall = PT_SYSCALL_NONE; /* an interrupt's victim */
	assert_false(waker_valid(&r));
	r = on_pipe();
	r.waker_syscall = PT_NR_read; /* takes from it, does not feed it */
	assert_false(waker_valid(&r));
	r = on_pipe();
	r.waker_syscall = PT_NR_futex;
	assert_false(waker_valid(&r));
	r = on_pipe();
	r.waker_obj_kind = PT_OBJ_FILE; /* same number, another thing */
	assert_false(waker_valid(&r));
	r = on_pipe();
	r.wake_ts = 0;
	assert_false(waker_valid(&r));
	r = on_pipe();
	r.waker_tid = 0; /* the idle task: an interrupt */
	assert_false(waker_valid(&r));
	r = on_pipe();
	r.waker_syscall = PT_NR_close; /* end of file */
	assert_true(waker_valid(&r));
	r.waker_obj_kind = PT_OBJ_NONE;
	r.waker_syscall = PT_NR_exit_group; /* closed with its process */
	assert_true(waker_valid(&r));

	r = on_pipe(); /* a full pipe: whoever reads ends it */
	r.syscall = PT_NR_write;
	assert_false(waker_valid(&r));
	r.waker_syscall = PT_NR_read;
	assert_true(waker_valid(&r));
	r.waker_object = 43;
	assert_false(waker_valid(&r));
}

static void test_futex_wakers(void **state)
{
	struct pt_rec_off r = {
		.hdr = { .tgid = A, .tid = A }, .wake_ts = 5, .state = 1,
		.syscall = PT_NR_futex, .obj_kind = PT_OBJ_FUTEX,
		.arg = { 0x1000 }, .waker_tid = A + 1, .waker_tgid = A,
		.waker_syscall = PT_NR_futex, .waker_arg0 = 0x1000,
	};

	(void)state;
	assert_true(waker_valid(&r));
	r.waker_arg0 = 0x2000; /* another lock */
	assert_false(waker_valid(&r));
	r.waker_tgid = B; /* shared memory lies elsewhere there */
	assert_true(waker_valid(&r));
	r.waker_tgid = A;
	r.waker_arg0 = 0x1000;
	r.waker_syscall = PT_NR_write;
	assert_false(waker_valid(&r));
	r.waker_syscall = PT_SYSCALL_NONE;
	assert_false(waker_valid(&r));
	r.waker_syscall = PT_NR_exit; /* a thread that is joined */
	assert_true(waker_valid(&r));
}

static void test_other_wakers(void **state)
{
	struct pt_rec_off r = {
		.hdr = { .tgid = A, .tid = A }, .wake_ts = 5, .state = 2,
		.syscall = PT_NR_read, .obj_kind = PT_OBJ_FILE, .object = 7,
		.waker_tid = B, .waker_tgid = B, .waker_syscall = PT_NR_write,
		.waker_obj_kind = PT_OBJ_FILE, .waker_object = 7,
	};

	(void)state;
	assert_false(waker_valid(&r)); /* storage answers by interrupt */
	r.state = 1;
	r.syscall = PT_NR_recvmsg;
	r.obj_kind = PT_OBJ_SOCK;
	r.waker_obj_kind = PT_OBJ_SOCK;
	r.waker_object = 8; /* the other end */
	r.waker_syscall = PT_NR_sendmsg;
	assert_true(waker_valid(&r));
	r.waker_syscall = PT_NR_futex;
	assert_false(waker_valid(&r));
	r.waker_syscall = PT_NR_write;
	r.waker_obj_kind = PT_OBJ_PIPE;
	assert_false(waker_valid(&r));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classify),
		cmocka_unit_test(test_pipe_wakers),
		cmocka_unit_test(test_futex_wakers),
		cmocka_unit_test(test_other_wakers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
