/* SPDX-License-Identifier: BSD-2-Clause */
/* Who ends a wait: each row of the table with records made by hand, on a kernel
 * that tells what a wake-up was made in, and on one that does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/classify.h"
#include "model/syscalls.h"

#define A 500u /* the process that sleeps */
#define B 600u /* the one that wakes */
#define OBJ 42u

enum in { TASK, SOFT, HARD, UNKNOWN };
static const uint16_t made[] = {
	[TASK] = PT_WAKER_KNOWN,
	[SOFT] = PT_WAKER_KNOWN | PT_WAKER_SOFTIRQ,
	[HARD] = PT_WAKER_KNOWN | PT_WAKER_HARDIRQ,
	[UNKNOWN] = 0,
};

static struct pt_rec_off record(int nr, uint16_t obj, int by, uint16_t by_obj,
				enum in in)
{
	return (struct pt_rec_off){
		.hdr = { .tgid = A, .tid = A }, .off_ts = 1000, .wake_ts = 5000,
		.state = 1, .syscall = nr, .obj_kind = obj, .object = OBJ,
		.arg = { 0x1000 }, .waker_tid = B, .waker_tgid = B,
		.waker_syscall = by, .waker_obj_kind = by_obj,
		.waker_object = OBJ, .waker_arg0 = 0x1000,
		.waker_in = made[in],
	};
}

struct row {
	int nr;
	uint16_t obj;
	int by;
	uint16_t by_obj;
	enum pt_wait wait;
	enum pt_wake wake;  /* where the kernel says that the waker did it */
	bool blind;	    /* the same where it does not say so */
};

/* The waker itself made the wake-up. */
static const struct row rows[] = {
#define P PT_OBJ_PIPE
#define S PT_OBJ_SOCK
#define N PT_OBJ_NONE
#define AN PT_OBJ_ANON
#define NR(name) PT_NR_##name
	{ NR(read), P, NR(write), P, PT_WAIT_PIPE_IN, PT_WAKE_DATA, true },
	{ NR(read), P, NR(splice), P, PT_WAIT_PIPE_IN, PT_WAKE_DATA, true },
	{ NR(read), P, NR(close), P, PT_WAIT_PIPE_IN, PT_WAKE_DATA, true },
	{ NR(poll), P, NR(exit_group), N, PT_WAIT_PIPE_IN, PT_WAKE_DATA, true },
	{ NR(read), P, NR(io_uring_enter), AN, PT_WAIT_PIPE_IN, PT_WAKE_DATA, false },
	{ NR(read), P, NR(tgkill), N, PT_WAIT_PIPE_IN, PT_WAKE_SIGNAL, false },
	{ NR(write), P, NR(read), P, PT_WAIT_PIPE_OUT, PT_WAKE_ROOM, true },
	{ NR(write), P, NR(close), P, PT_WAIT_PIPE_OUT, PT_WAKE_ROOM, true },
	{ NR(writev), P, NR(exit_group), N, PT_WAIT_PIPE_OUT, PT_WAKE_ROOM, true },
	{ NR(read), P, NR(getdents), PT_OBJ_DIR, PT_WAIT_PIPE_IN, PT_WAKE_OTHER, false },

	{ NR(recvfrom), S, NR(sendto), S, PT_WAIT_SOCK, PT_WAKE_DATA, true },
	{ NR(recvmsg), S, NR(write), S, PT_WAIT_SOCK, PT_WAKE_DATA, true },
	{ NR(poll), S, NR(sendmsg), S, PT_WAIT_SOCK, PT_WAKE_DATA, true },
	{ NR(epoll_wait), S, NR(sendmsg), S, PT_WAIT_SOCK, PT_WAKE_DATA, true },
	{ NR(accept4), S, NR(connect), S, PT_WAIT_SOCK, PT_WAKE_DATA, true },
	{ NR(read), S, NR(shutdown), S, PT_WAIT_SOCK, PT_WAKE_DATA, true },
	{ NR(read), S, NR(exit_group), N, PT_WAIT_SOCK, PT_WAKE_DATA, false },
	{ NR(recvfrom), S, NR(recvfrom), S, PT_WAIT_SOCK, PT_WAKE_ROOM, true },
	{ NR(read), S, NR(read), S, PT_WAIT_SOCK, PT_WAKE_ROOM, true },
	{ NR(sendto), S, NR(recvfrom), S, PT_WAIT_SOCK, PT_WAKE_ROOM, true },
	{ NR(write), S, NR(read), S, PT_WAIT_SOCK, PT_WAKE_ROOM, true },
	{ NR(sendmsg), S, NR(sendmsg), S, PT_WAIT_SOCK, PT_WAKE_ROOM, true },
	{ NR(connect), S, NR(accept4), S, PT_WAIT_SOCK, PT_WAKE_ROOM, true },
	{ NR(recvfrom), S, NR(futex), PT_OBJ_FUTEX, PT_WAIT_SOCK, PT_WAKE_OTHER, false },

	{ NR(select), N, NR(write), P, PT_WAIT_POLL, PT_WAKE_DATA, true },
	{ NR(epoll_wait), AN, NR(write), AN, PT_WAIT_POLL, PT_WAKE_DATA, true },
	{ NR(poll), N, NR(recvfrom), S, PT_WAIT_POLL, PT_WAKE_ROOM, true },
	{ NR(ppoll), N, NR(msgsnd), PT_OBJ_MSGQ, PT_WAIT_POLL, PT_WAKE_DATA, false },
	{ NR(poll), N, NR(kill), N, PT_WAIT_POLL, PT_WAKE_SIGNAL, false },
	{ NR(io_uring_enter), AN, NR(write), S, PT_WAIT_URING, PT_WAKE_DATA, true },
	{ NR(io_uring_enter), AN, NR(io_uring_enter), AN, PT_WAIT_URING, PT_WAKE_DATA, true },
	{ NR(io_uring_enter), AN, NR(recvfrom), S, PT_WAIT_URING, PT_WAKE_ROOM, true },

	{ NR(read), AN, NR(write), AN, PT_WAIT_EVENT, PT_WAKE_DATA, true },
	{ NR(read), AN, NR(tgkill), N, PT_WAIT_EVENT, PT_WAKE_SIGNAL, false },
	{ NR(write), AN, NR(read), AN, PT_WAIT_EVENT, PT_WAKE_ROOM, true },
	{ NR(read), PT_OBJ_OTHER, NR(write), PT_OBJ_OTHER, PT_WAIT_EVENT, PT_WAKE_DATA, true },
	{ NR(msgrcv), PT_OBJ_MSGQ, NR(msgsnd), PT_OBJ_MSGQ, PT_WAIT_MSGQ, PT_WAKE_DATA, true },
	{ NR(msgrcv), PT_OBJ_MSGQ, NR(msgctl), PT_OBJ_MSGQ, PT_WAIT_MSGQ, PT_WAKE_DATA, true },
	{ NR(msgsnd), PT_OBJ_MSGQ, NR(msgrcv), PT_OBJ_MSGQ, PT_WAIT_MSGQ, PT_WAKE_ROOM, true },
	{ NR(mq_timedreceive), PT_OBJ_MSGQ, NR(mq_timedsend), PT_OBJ_MSGQ, PT_WAIT_MSGQ,
	  PT_WAKE_DATA, true },
	{ NR(mq_timedsend), PT_OBJ_MSGQ, NR(mq_timedreceive), PT_OBJ_MSGQ, PT_WAIT_MSGQ,
	  PT_WAKE_ROOM, true },

	{ NR(futex), PT_OBJ_FUTEX, NR(futex), PT_OBJ_FUTEX, PT_WAIT_FUTEX, PT_WAKE_FUTEX, true },
	{ NR(futex_wait), N, NR(futex_wake), N, PT_WAIT_FUTEX, PT_WAKE_FUTEX, true },
	{ NR(futex), PT_OBJ_FUTEX, NR(exit), N, PT_WAIT_FUTEX, PT_WAKE_CHILD, true },
	{ NR(futex), PT_OBJ_FUTEX, NR(exit_group), N, PT_WAIT_FUTEX, PT_WAKE_CHILD, false },
	{ NR(semop), PT_OBJ_SEM, NR(semop), PT_OBJ_SEM, PT_WAIT_SEM, PT_WAKE_FUTEX, true },
	{ NR(semtimedop), PT_OBJ_SEM, NR(semctl), PT_OBJ_SEM, PT_WAIT_SEM, PT_WAKE_FUTEX, true },
	{ NR(semop), PT_OBJ_SEM, NR(exit_group), N, PT_WAIT_SEM, PT_WAKE_FUTEX, false },
	{ NR(wait4), N, NR(exit_group), N, PT_WAIT_CHILD, PT_WAKE_CHILD, true },
	{ NR(waitid), N, NR(exit), N, PT_WAIT_CHILD, PT_WAKE_CHILD, true },
	{ NR(wait4), N, NR(kill), N, PT_WAIT_CHILD, PT_WAKE_SIGNAL, false },

	{ NR(flock), PT_OBJ_FILE, NR(flock), PT_OBJ_FILE, PT_WAIT_FLOCK, PT_WAKE_LOCK, true },
	{ NR(flock), PT_OBJ_FILE, NR(close), N, PT_WAIT_FLOCK, PT_WAKE_LOCK, false },
	{ NR(flock), PT_OBJ_FILE, NR(exit_group), N, PT_WAIT_FLOCK, PT_WAKE_LOCK, false },
	{ NR(openat), N, NR(fcntl), PT_OBJ_FILE, PT_WAIT_FLOCK, PT_WAKE_LOCK, false },
	{ NR(openat), N, NR(exit_group), N, PT_WAIT_FLOCK, PT_WAKE_LOCK, true },
	{ NR(pause), N, NR(kill), N, PT_WAIT_SIGNAL, PT_WAKE_OTHER, false },
	{ NR(rt_sigtimedwait), N, NR(rt_sigqueueinfo), N, PT_WAIT_SIGNAL, PT_WAKE_OTHER, false },
	{ NR(rt_sigtimedwait), N, NR(exit_group), N, PT_WAIT_SIGNAL, PT_WAKE_SIGNAL, false },
	{ NR(nanosleep), N, NR(tgkill), N, PT_WAIT_SLEEP, PT_WAKE_SIGNAL, false },
	{ NR(mmap), N, NR(munmap), N, PT_WAIT_OTHER, PT_WAKE_LOCK, false },
	{ NR(ioctl), PT_OBJ_CHR, NR(ioctl), PT_OBJ_CHR, PT_WAIT_OTHER, PT_WAKE_OTHER, false },
};

static void test_rows(void **state)
{
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *t = &rows[i];
		struct pt_rec_off r = record(t->nr, t->obj, t->by, t->by_obj, TASK);
		enum pt_wake wake;
		bool valid;

		if (pt_classify(&r) != t->wait)
			fail_msg("row %zu is wait %d, not %d", i, pt_classify(&r),
				 t->wait);
		wake = pt_wake_of(&r, &valid);
		if (wake != t->wake || !valid)
			fail_msg("row %zu is wake %d (%d), not %d", i, wake, valid,
				 t->wake);
		r.waker_in = made[UNKNOWN];
		wake = pt_wake_of(&r, &valid);
		if (valid != t->blind || (valid && wake != t->wake))
			fail_msg("row %zu is wake %d (%d) where it is not known", i,
				 wake, valid);
		r.waker_in = made[HARD];
		pt_wake_of(&r, &valid);
		if (valid)
			fail_msg("row %zu: an interrupt's victim", i);
		r.waker_in = made[TASK] | PT_WAKER_KTHREAD;
		pt_wake_of(&r, &valid);
		if (valid)
			fail_msg("row %zu: a thread of the kernel", i);
	}
}

static void check(const struct pt_rec_off *r, enum pt_wake wake, bool valid)
{
	bool v;
	enum pt_wake w = pt_wake_of(r, &v);

	assert_int_equal(w, wake);
	assert_int_equal(v, valid);
}

/* A network's softirq runs where its packet was sent, or wherever one came in. */
static void test_softirq(void **state)
{
	struct pt_rec_off r = record(NR(recvfrom), S, NR(sendto), S, SOFT);

	(void)state;
	r.waker_object = 77; /* the two ends have numbers of their own */
	check(&r, PT_WAKE_DATA, true);
	r.waker_in |= PT_WAKER_PEER;
	check(&r, PT_WAKE_DATA, true);
	r.waker_in = made[SOFT] | PT_WAKER_STRANGER;
	check(&r, PT_WAKE_DEVICE, false);
	r = record(NR(recvfrom), S, NR(write), S, SOFT);
	check(&r, PT_WAKE_DATA, true);
	r = record(NR(sendto), S, NR(recvfrom), S, SOFT);
	check(&r, PT_WAKE_ROOM, true);
	r = record(NR(recvfrom), S, NR(write), P, SOFT);
	check(&r, PT_WAKE_DEVICE, false);
	r = record(NR(recvfrom), S, PT_SYSCALL_NONE, N, SOFT);
	check(&r, PT_WAKE_DEVICE, false);
	r = record(NR(io_uring_enter), AN, NR(sendto), S, SOFT);
	check(&r, PT_WAKE_DATA, true);
	r.hdr.flags = PT_F_IOWAIT; /* a ring's wait is one, whatever it reads */
	assert_int_equal(pt_classify(&r), PT_WAIT_URING);
	/* what is no socket's is not carried by softirqs */
	r = record(NR(read), P, NR(write), P, SOFT);
	check(&r, PT_WAKE_TIMER, false);
	r = record(NR(futex), PT_OBJ_FUTEX, NR(futex), PT_OBJ_FUTEX, SOFT);
	check(&r, PT_WAKE_TIMER, false);
}

static void test_timers(void **state)
{
	struct pt_rec_off r = record(NR(clock_nanosleep), N, NR(write), P, HARD);

	(void)state;
	check(&r, PT_WAKE_TIMER, false);
	r.waker_in = made[UNKNOWN];
	check(&r, PT_WAKE_TIMER, false);
	r = record(NR(futex), PT_OBJ_FUTEX, NR(futex), PT_OBJ_FUTEX, HARD);
	check(&r, PT_WAKE_TIMER, false);
	r = record(NR(poll), S, NR(sendto), S, HARD);
	check(&r, PT_WAKE_TIMER, false);
	r = record(NR(epoll_wait), AN, PT_SYSCALL_NONE, N, HARD);
	check(&r, PT_WAKE_TIMER, false);
	r = record(NR(recvfrom), S, PT_SYSCALL_NONE, N, HARD);
	check(&r, PT_WAKE_DEVICE, false);
	/* poll's own time-out tells where the kernel does not */
	r = record(NR(poll), S, PT_SYSCALL_NONE, N, UNKNOWN);
	r.arg[2] = 2;
	r.wake_ts = r.off_ts + 2000001;
	check(&r, PT_WAKE_TIMER, false);
	r.wake_ts = r.off_ts + 1999999;
	check(&r, PT_WAKE_DEVICE, false);
	/* pid 0 and a timer: nobody */
	r = record(NR(futex), PT_OBJ_FUTEX, NR(futex), PT_OBJ_FUTEX, TASK);
	r.waker_tid = r.waker_tgid = 0;
	r.waker_in = made[HARD] | PT_WAKER_KTHREAD;
	check(&r, PT_WAKE_TIMER, false);
	r = record(NR(poll), PT_OBJ_CHR, PT_SYSCALL_NONE, N, HARD);
	check(&r, PT_WAKE_DEVICE, false);
}

/* A lease that is not given back in time; storage, and a file system's server. */
static void test_leases(void **state)
{
	struct pt_rec_off r = record(NR(openat), N, PT_SYSCALL_NONE, N, SOFT);

	(void)state;
	assert_int_equal(pt_classify(&r), PT_WAIT_FLOCK);
	r.hdr.flags = PT_F_IOWAIT;
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
	r.hdr.flags = 0;
	r.state = 2;
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
	r = record(NR(openat), N, NR(fcntl), PT_OBJ_FILE, UNKNOWN);
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
	r = record(NR(openat), N, NR(writev), PT_OBJ_CHR, TASK);
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
	r = record(NR(openat), N, NR(openat), N, TASK); /* a FIFO's other end */
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
}

static void test_files(void **state)
{
	struct pt_rec_off r = record(NR(read), PT_OBJ_FILE, NR(write),
				     PT_OBJ_FILE, HARD);

	(void)state;
	r.state = 2;
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
	check(&r, PT_WAKE_DEVICE, false);
	r.waker_in = made[UNKNOWN];
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
	check(&r, PT_WAKE_DEVICE, false);
	/* another thread's call on that file handed its lock on */
	r.waker_in = made[TASK];
	assert_int_equal(pt_classify(&r), PT_WAIT_INODE_LOCK);
	check(&r, PT_WAKE_LOCK, true);
	r.waker_object = OBJ + 1; /* another file's: a journal, a page's lock */
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
	check(&r, PT_WAKE_LOCK, true);
	r.waker_object = OBJ;
	r.hdr.flags = PT_F_IOWAIT;
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
	/* a file system that a process serves */
	r.waker_obj_kind = PT_OBJ_CHR;
	check(&r, PT_WAKE_DATA, true);
	r.hdr.flags = PT_F_RECLAIM;
	assert_int_equal(pt_classify(&r), PT_WAIT_RECLAIM);
	/* from a file to a socket: what is known is the socket, and a disk is waited for */
	r = record(NR(sendfile), PT_OBJ_SOCK, NR(recvfrom), PT_OBJ_SOCK, HARD);
	assert_int_equal(pt_classify(&r), PT_WAIT_SOCK);
	r.state = 2;
	r.hdr.flags = PT_F_IOWAIT;
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK);
	check(&r, PT_WAKE_DEVICE, false);
	/* by name: no descriptor */
	r = record(NR(renameat2), N, NR(unlinkat), N, TASK);
	r.state = 2;
	assert_int_equal(pt_classify(&r), PT_WAIT_INODE_LOCK);
	check(&r, PT_WAKE_LOCK, true);
}

static void test_locks(void **state)
{
	struct pt_rec_off r = record(NR(fcntl), PT_OBJ_FILE, NR(fcntl),
				     PT_OBJ_FILE, TASK);

	(void)state;
	assert_int_equal(pt_classify(&r), PT_WAIT_DISK); /* not to set a lock */
	r.arg[1] = 7;
	assert_int_equal(pt_classify(&r), PT_WAIT_FLOCK);
	check(&r, PT_WAKE_LOCK, true);
	r.arg[1] = 38;
	assert_int_equal(pt_classify(&r), PT_WAIT_FLOCK);
	/* a priority-inheriting mutex */
	r = record(NR(futex), PT_OBJ_FUTEX, NR(futex), PT_OBJ_FUTEX, UNKNOWN);
	r.arg[1] = 6 | 128;
	r.waker_tgid = A;
	check(&r, PT_WAKE_LOCK, true);
}

/* The address of a futex that is shared is another one in the other process. */
static void test_shared_futex(void **state)
{
	struct pt_rec_off r = record(NR(futex), PT_OBJ_FUTEX, NR(futex),
				     PT_OBJ_FUTEX, UNKNOWN);

	(void)state;
	r.waker_arg0 = 0x77001000;
	check(&r, PT_WAKE_FUTEX, true);
	r.waker_arg0 = 0x77001040; /* another word of the page */
	check(&r, PT_WAKE_NONE, false);
	r.waker_arg0 = 0x1000;
	r.arg[1] = 128; /* private: no other process's */
	check(&r, PT_WAKE_NONE, false);
	r.waker_tgid = A;
	check(&r, PT_WAKE_FUTEX, true);
	/* known to have done it: requeued from another word, then woken there */
	r.waker_arg0 = 0x2000;
	check(&r, PT_WAKE_NONE, false);
	r.waker_in = made[TASK];
	check(&r, PT_WAKE_FUTEX, true);
}

/* The end of a process, whatever call it was killed in. */
static void test_killed(void **state)
{
	struct pt_rec_off r = record(NR(wait4), N, NR(futex), PT_OBJ_FUTEX, TASK);

	(void)state;
	check(&r, PT_WAKE_OTHER, true);
	r.waker_in |= PT_WAKER_EXITING;
	check(&r, PT_WAKE_CHILD, true);
	r = record(NR(read), P, PT_SYSCALL_NONE, N, TASK);
	r.waker_in |= PT_WAKER_EXITING;
	check(&r, PT_WAKE_DATA, true);
}

static void test_vfork(void **state)
{
	struct pt_rec_off r = record(NR(vfork), N, NR(execve), N, TASK);

	(void)state;
	r.state = 2;
	assert_int_equal(pt_classify(&r), PT_WAIT_CHILD);
	check(&r, PT_WAKE_CHILD, true);
	r.syscall = NR(clone);
	r.arg[0] = 0x4000 | 0x100;
	assert_int_equal(pt_classify(&r), PT_WAIT_CHILD);
	r.arg[0] = 0;
	assert_int_equal(pt_classify(&r), PT_WAIT_OTHER);
	r.syscall = NR(clone3);
	assert_int_equal(pt_classify(&r), PT_WAIT_CHILD);
	r.waker_syscall = NR(munmap); /* waits for the memory's lock */
	assert_int_equal(pt_classify(&r), PT_WAIT_OTHER);
	check(&r, PT_WAKE_LOCK, true);
}

static void test_nothing(void **state)
{
	struct pt_rec_off r = record(NR(read), P, NR(write), P, TASK);

	(void)state;
	r.wake_ts = 0; /* no wake-up was seen */
	check(&r, PT_WAKE_NONE, false);
	r = record(NR(read), P, NR(write), P, TASK);
	r.state = 0; /* preempted */
	check(&r, PT_WAKE_NONE, false);
	r.state = 4; /* stopped */
	check(&r, PT_WAKE_NONE, false);
	/* hostile numbers */
	r = record(-7, 999, 1 << 30, 999, UNKNOWN);
	r.waker_in = 0xffff;
	check(&r, PT_WAKE_TIMER, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_softirq),
		cmocka_unit_test(test_timers),
		cmocka_unit_test(test_leases),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_locks),
		cmocka_unit_test(test_shared_futex),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_vfork),
		cmocka_unit_test(test_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
