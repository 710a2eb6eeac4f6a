/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread that sleeps and one that wakes it, by a way of many; which is which
 * goes into the log. See wakers.py.
 *
 *   wakers WAY ROUNDS GAP_US LOG
 *
 * The waker acts every GAP_US. LOG: "sleeper TID", "waker TID" for each thread that
 * wakes, and "begin NS" and "end NS" (CLOCK_MONOTONIC) of the rounds.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BIG (1 << 20)
#define MANY 4000 /* bytes that fill what is full but for them */

static int a, b, c, d;	/* descriptors or ids: to sleep on, to wake by */
static int *word;	/* a futex that is shared; each process has its address */
static pid_t sleeper;
static int rounds;
static unsigned gap;
static FILE *log_file;
static char path[64];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int must(int r, const char *what)
{
	if (r < 0)
		fail(what);
	return r;
}

static pid_t my_tid(void)
{
	return (pid_t)syscall(SYS_gettid);
}

static void tell(const char *who, pid_t tid)
{
	fprintf(log_file, "%s %d\n", who, tid);
	fflush(log_file);
}

static void tell_time(const char *what)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	fprintf(log_file, "%s %lld\n", what,
		(long long)t.tv_sec * 1000000000 + t.tv_nsec);
	fflush(log_file);
}

static void wait_gap(void)
{
	usleep(gap);
}

static void name_it(const char *suffix)
{
	snprintf(path, sizeof(path), "/tmp/wakers-%d%s", getpid(), suffix);
}

/* ---- bytes ------------------------------------------------------------------ */

static void pair(int domain, int type)
{
	int s[2];

	must(socketpair(domain, type, 0, s), "socketpair");
	a = s[0];
	b = s[1];
}

static void set_pipe(void)
{
	int p[2];

	must(pipe(p), "pipe");
	a = p[0];
	b = p[1];
}
static void set_pipes(void)
{
	set_pipe();
	c = a; /* the first of two, where nothing comes */
	d = b;
	set_pipe();
}
static void set_high(void) /* in the third word of a set of descriptors */
{
	set_pipe();
	a = must(fcntl(a, F_DUPFD, 150), "fcntl");
}
static void set_fifo(void)
{
	name_it(".fifo");
	must(mkfifo(path, 0600), "mkfifo");
	a = must(open(path, O_RDWR), "open");
	b = must(open(path, O_RDWR), "open");
	unlink(path);
}
static void set_stream(void) { pair(AF_UNIX, SOCK_STREAM); }
static void set_dgram(void) { pair(AF_UNIX, SOCK_DGRAM); }
static void set_seqpacket(void) { pair(AF_UNIX, SOCK_SEQPACKET); }
static void set_event(void) { a = b = must(eventfd(0, 0), "eventfd"); }

static void set_inet(int domain)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6,
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in to4 = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr *at = domain == AF_INET ? (void *)&to4 : (void *)&to;
	socklen_t len = domain == AF_INET ? sizeof(to4) : sizeof(to);
	int l = must(socket(domain, SOCK_STREAM, 0), "socket");

	must(bind(l, at, len), "bind");
	must(listen(l, 1), "listen");
	must(getsockname(l, at, &len), "getsockname");
	b = must(socket(domain, SOCK_STREAM, 0), "socket");
	must(connect(b, at, len), "connect");
	a = must(accept(l, NULL, NULL), "accept");
	close(l);
}
static void set_tcp(void) { set_inet(AF_INET); }
static void set_tcp6(void) { set_inet(AF_INET6); }
static void set_udp(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);

	a = must(socket(AF_INET, SOCK_DGRAM, 0), "socket");
	b = must(socket(AF_INET, SOCK_DGRAM, 0), "socket");
	must(bind(a, (struct sockaddr *)&at, len), "bind");
	must(getsockname(a, (struct sockaddr *)&at, &len), "getsockname");
	must(connect(b, (struct sockaddr *)&at, len), "connect");
}

static void sleep_read(void)
{
	char buf[64];

	must((int)read(a, buf, 8), "read");
}
static void wake_write(void)
{
	const uint64_t one = 1;

	must((int)write(b, &one, 8), "write");
}
static void sleep_poll(void)
{
	struct pollfd p[2] = { { .fd = c ? c : a, .events = POLLIN },
			       { .fd = a, .events = POLLIN } };

	must(poll(p, 2, 5000), "poll");
	sleep_read();
}
static void sleep_select(void)
{
	fd_set in;

	FD_ZERO(&in);
	FD_SET(a, &in);
	must(select(a + 1, &in, NULL, NULL, NULL), "select");
	sleep_read();
}
static void sleep_epoll(void)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (!d) {
		d = must(epoll_create1(0), "epoll");
		must(epoll_ctl(d, EPOLL_CTL_ADD, a, &ev), "epoll_ctl");
	}
	must(epoll_wait(d, &ev, 1, -1), "epoll_wait");
	sleep_read();
}

/* A request, and its answer: the request's reading frees room. */
static void sleep_ask(void)
{
	char buf[8] = "";

	must((int)write(a, buf, 8), "write");
	sleep_read();
}
static void wake_answer(void)
{
	char buf[8];

	must((int)read(b, buf, 8), "read");
	wait_gap();
	wake_write();
}

/* ---- what is full ------------------------------------------------------------- */

static char big[BIG];

static void fill(void)
{
	fcntl(a, F_SETFL, O_NONBLOCK);
	while (write(a, big, MANY) > 0)
		;
	fcntl(a, F_SETFL, 0);
}
static void set_pipe_full(void)
{
	set_pipe();
	c = a, a = b, b = c, c = 0;
	fill();
}
static void set_stream_full(void) { set_stream(); fill(); }
static void set_tcp_full(void)
{
	int small = 65536;

	set_tcp();
	setsockopt(a, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	setsockopt(b, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	fill();
}
static void sleep_write(void)
{
	must((int)write(a, big, 16 * MANY), "write");
}
static void wake_drain(void)
{
	ssize_t left = 16 * MANY, n;

	for (; left > 0; left -= n) {
		n = read(b, big, (size_t)left);
		if (n <= 0)
			fail("read");
	}
}

/* ---- futexes, semaphores, queues --------------------------------------------- */

static int futex(int op, int value, const struct timespec *t)
{
	return (int)syscall(SYS_futex, word, op, value, t, NULL, 0);
}
static void set_word(void)
{
	word = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (word == MAP_FAILED)
		fail("mmap");
	word += 25;
}
static int private = FUTEX_PRIVATE_FLAG;
static void set_shared(void) { set_word(); private = 0; }
static void sleep_futex(void)
{
	while (!__atomic_exchange_n(word, 0, __ATOMIC_ACQ_REL))
		futex(FUTEX_WAIT | private, 0, NULL);
}
static void wake_futex(void)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	futex(FUTEX_WAKE | private, 1, NULL);
}
/* The waker's process has the page somewhere else. */
static void move_word(void)
{
	char *page = (char *)((uintptr_t)word & ~4095ul), *to;

	to = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	to = mremap(page, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	if (to == MAP_FAILED)
		fail("mremap");
	word = (int *)(to + ((char *)word - page));
}

static void set_semop(void)
{
	a = must(semget(IPC_PRIVATE, 1, 0600), "semget");
}
static void sleep_semop(void)
{
	struct sembuf s = { .sem_op = -1 };

	must(semop(a, &s, 1), "semop");
}
static void wake_semop(void)
{
	struct sembuf s = { .sem_op = 1 };

	must(semop(a, &s, 1), "semop");
}
static void end_semop(void) { semctl(a, 0, IPC_RMID); }

struct message { long type; char text[8]; };
static void set_msg(void)
{
	a = must(msgget(IPC_PRIVATE, 0600), "msgget");
}
static void sleep_msg(void)
{
	struct message m;

	must((int)msgrcv(a, &m, 8, 0, 0), "msgrcv");
}
static void wake_msg(void)
{
	struct message m = { 1, "" };

	must(msgsnd(a, &m, 8, 0), "msgsnd");
}
static void end_msg(void) { msgctl(a, IPC_RMID, NULL); }

static void set_mq(void)
{
	struct mq_attr attr = { .mq_maxmsg = 4, .mq_msgsize = 8 };

	snprintf(path, sizeof(path), "/wakers-%d", getpid());
	a = must(mq_open(path, O_CREAT | O_RDWR, 0600, &attr), "mq_open");
	mq_unlink(path);
}
static void sleep_mq(void)
{
	char buf[8];

	must((int)mq_receive(a, buf, 8, NULL), "mq_receive");
}
static void wake_mq(void) { must(mq_send(a, path, 8, 0), "mq_send"); }

/* ---- signals ------------------------------------------------------------------ */

static void on_usr(int sig) { (void)sig; }
static void set_signal(void)
{
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &s, NULL);
	signal(SIGUSR1, on_usr);
}
static void set_signalfd(void)
{
	sigset_t s;

	set_signal();
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	a = must(signalfd(-1, &s, 0), "signalfd");
}
static void sleep_signalfd(void)
{
	struct signalfd_siginfo si;

	must((int)read(a, &si, sizeof(si)), "read");
}
static void sleep_sigwait(void)
{
	sigset_t s;
	int sig;

	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	sigwait(&s, &sig);
}
static void sleep_suspend(void)
{
	sigset_t s;

	sigemptyset(&s);
	sigsuspend(&s);
}
static void wake_kill(void)
{
	must((int)syscall(SYS_tgkill, getppid() == sleeper ? sleeper : getpid(),
			  sleeper, SIGUSR1), "tgkill");
}

/* ---- locks --------------------------------------------------------------------- */

static void set_lock(void)
{
	name_it(".lock");
	a = must(open(path, O_RDWR | O_CREAT, 0600), "open");
	b = must(open(path, O_RDWR), "open");
	unlink(path);
}
static void sleep_flock(void)
{
	must(flock(a, LOCK_EX), "flock");
	flock(a, LOCK_UN);
	usleep(100); /* the waker takes it again */
}
static void wake_flock(void)
{
	must(flock(b, LOCK_EX), "flock");
	wait_gap();
	flock(b, LOCK_UN);
}
static void lock_by(int fd, int cmd, int type)
{
	struct flock l = { .l_type = (short)type };

	must(fcntl(fd, cmd, &l), "fcntl");
}
static void sleep_fcntl(void)
{
	lock_by(a, F_SETLKW, F_WRLCK);
	lock_by(a, F_SETLKW, F_UNLCK);
	usleep(100);
}
static void wake_fcntl(void)
{
	lock_by(b, F_SETLKW, F_WRLCK);
	wait_gap();
	lock_by(b, F_SETLKW, F_UNLCK);
}
static void sleep_ofd(void)
{
	lock_by(a, F_OFD_SETLKW, F_WRLCK);
	lock_by(a, F_OFD_SETLKW, F_UNLCK);
	usleep(100);
}
static void wake_ofd(void)
{
	lock_by(b, F_OFD_SETLKW, F_WRLCK);
	wait_gap();
	lock_by(b, F_OFD_SETLKW, F_UNLCK);
}

/* An inode's lock is spun for while its owner runs: both on one core, a write of
 * the owner is interrupted by the other's turn. */
static void set_inode(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	sched_setaffinity(0, sizeof(one), &one);
	snprintf(path, sizeof(path), "/dev/shm/wakers-%d", getpid());
	a = must(open(path, O_RDWR | O_CREAT, 0600), "open");
	b = must(open(path, O_RDWR), "open");
	unlink(path);
}
static void sleep_inode(void)
{
	int i;

	for (i = 0; i < 20; i++)
		must((int)pwrite(a, big, 16, 0), "pwrite");
	usleep(100);
}
static void wake_inode(void)
{
	int i;

	for (i = 0; i < 8; i++)
		must((int)pwrite(b, big, BIG, 0), "pwrite");
}

/* ---- ends ----------------------------------------------------------------------- */

static void sleep_child(void)
{
	pid_t pid = must(fork(), "fork");

	if (!pid) {
		wait_gap();
		_exit(0);
	}
	tell("waker", pid);
	must(waitpid(pid, NULL, 0), "waitpid");
}
static void sleep_waitid(void)
{
	siginfo_t si;
	pid_t pid = must(fork(), "fork");

	if (!pid) {
		wait_gap();
		_exit(0);
	}
	tell("waker", pid);
	must(waitid(P_PID, (id_t)pid, &si, WEXITED), "waitid");
}
static void sleep_vfork(void)
{
	volatile pid_t self = 0;
	pid_t pid = vfork();

	if (!pid) {
		self = my_tid();
		usleep(gap);
		_exit(0);
	}
	tell("waker", self);
	waitpid(pid, NULL, 0);
}
/* A killed child that was in a call of another kind. */
static void sleep_killed(void)
{
	pid_t pid = must(fork(), "fork"), by;

	if (!pid) {
		pause();
		_exit(0);
	}
	by = must(fork(), "fork");
	if (!by) {
		wait_gap();
		kill(pid, SIGKILL);
		_exit(0);
	}
	tell("waker", pid);
	tell("waker", by);
	must(waitpid(pid, NULL, 0), "waitpid");
	waitpid(by, NULL, 0);
}
static void *join_me(void *arg)
{
	tell("waker", my_tid());
	wait_gap();
	return arg;
}
static void sleep_join(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, join_me, NULL))
		fail("pthread_create");
	pthread_join(t, NULL);
}
/* End of file, because a process ends. */
static void sleep_eof(void)
{
	pid_t pid;
	char buf;

	set_stream();
	pid = must(fork(), "fork");
	if (!pid) {
		wait_gap();
		_exit(0);
	}
	tell("waker", pid);
	close(b);
	must((int)read(a, &buf, 1), "read");
	close(a);
	waitpid(pid, NULL, 0);
}

/* ---- timers ---------------------------------------------------------------------- */

static void sleep_nap(void) { usleep(gap); }
static void sleep_poll_out(void)
{
	struct pollfd p = { .fd = a, .events = POLLIN };

	poll(&p, 1, 2);
}
static void sleep_futex_out(void)
{
	struct timespec t = { .tv_nsec = 2000000 };

	futex(FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &t);
}
static void sleep_epoll_out(void)
{
	struct epoll_event ev = { .events = EPOLLIN };

	if (!d) {
		d = must(epoll_create1(0), "epoll");
		must(epoll_ctl(d, EPOLL_CTL_ADD, a, &ev), "epoll_ctl");
	}
	epoll_wait(d, &ev, 1, 2);
}
static void set_disk(void)
{
	snprintf(path, sizeof(path), "wakers-%d", getpid());
	a = must(open(path, O_RDWR | O_CREAT | O_DIRECT, 0600), "open");
	unlink(path);
	if (posix_memalign((void **)&word, 4096, BIG) || !memset(word, 1, BIG))
		fail("memalign");
	must((int)pwrite(a, word, BIG, 0), "pwrite");
	fsync(a);
}
static void sleep_disk(void)
{
	must((int)pread(a, word, 65536, (rand() % 16) * 65536), "pread");
}

/* ---- io_uring ---------------------------------------------------------------------- */

static struct {
	int fd;
	struct io_uring_sqe *sqe;
	unsigned *sq_tail, *sq_array, *cq_head, *cq_tail, mask;
} ring;

static void set_ring(void)
{
	struct io_uring_params p = { 0 };
	char *m;

	ring.fd = must((int)syscall(SYS_io_uring_setup, 4, &p), "io_uring_setup");
	m = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe),
		 PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	ring.sqe = mmap(NULL, p.sq_entries * sizeof(*ring.sqe),
			PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
			IORING_OFF_SQES);
	if (m == MAP_FAILED || ring.sqe == MAP_FAILED)
		fail("mmap");
	ring.sq_tail = (unsigned *)(m + p.sq_off.tail);
	ring.sq_array = (unsigned *)(m + p.sq_off.array);
	ring.mask = *(unsigned *)(m + p.sq_off.ring_mask);
	ring.cq_head = (unsigned *)(m + p.cq_off.head);
	ring.cq_tail = (unsigned *)(m + p.cq_off.tail);
}
static void set_uring(void) { set_stream(); set_ring(); }
static void set_uring_tcp(void) { set_tcp(); set_ring(); }
static void sleep_uring(void)
{
	static char buf[64];
	unsigned tail = *ring.sq_tail, at = tail & ring.mask;

	memset(&ring.sqe[at], 0, sizeof(ring.sqe[at]));
	ring.sqe[at].opcode = IORING_OP_RECV;
	ring.sqe[at].fd = a;
	ring.sqe[at].addr = (uint64_t)(uintptr_t)buf;
	ring.sqe[at].len = 8;
	ring.sq_array[at] = at;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	must((int)syscall(SYS_io_uring_enter, ring.fd, 1, 1,
			  IORING_ENTER_GETEVENTS, NULL, 0), "io_uring_enter");
	__atomic_store_n(ring.cq_head, *ring.cq_tail, __ATOMIC_RELEASE);
}

/* ---- */

static const struct way {
	const char *name;
	void (*set)(void), (*sleep)(void), (*wake)(void), (*end)(void);
	bool process; /* the waker is another one */
	bool paced;   /* the waker paces itself */
} ways[] = {
	{ "pipe", set_pipe, sleep_read, wake_write, NULL, false, false },
	{ "fifo", set_fifo, sleep_read, wake_write, NULL, true, false },
	{ "socketpair", set_stream, sleep_read, wake_write, NULL, true, false },
	{ "dgram", set_dgram, sleep_read, wake_write, NULL, true, false },
	{ "seqpacket", set_seqpacket, sleep_read, wake_write, NULL, true, false },
	{ "ask", set_stream, sleep_ask, wake_answer, NULL, true, true },
	{ "ask_tcp", set_tcp, sleep_ask, wake_answer, NULL, true, true },
	{ "tcp", set_tcp, sleep_read, wake_write, NULL, true, false },
	{ "tcp6", set_tcp6, sleep_read, wake_write, NULL, true, false },
	{ "udp", set_udp, sleep_read, wake_write, NULL, true, false },
	{ "eventfd", set_event, sleep_read, wake_write, NULL, true, false },
	{ "poll2", set_pipes, sleep_poll, wake_write, NULL, true, false },
	{ "poll_tcp", set_tcp, sleep_poll, wake_write, NULL, true, false },
	{ "select", set_pipe, sleep_select, wake_write, NULL, true, false },
	{ "select_high", set_high, sleep_select, wake_write, NULL, true, false },
	{ "select_tcp", set_tcp, sleep_select, wake_write, NULL, true, false },
	{ "epoll_pipe", set_pipe, sleep_epoll, wake_write, NULL, true, false },
	{ "epoll_event", set_event, sleep_epoll, wake_write, NULL, true, false },
	{ "epoll_tcp", set_tcp, sleep_epoll, wake_write, NULL, true, false },
	{ "pipe_full", set_pipe_full, sleep_write, wake_drain, NULL, true, false },
	{ "stream_full", set_stream_full, sleep_write, wake_drain, NULL, true, false },
	{ "tcp_full", set_tcp_full, sleep_write, wake_drain, NULL, true, false },
	{ "futex", set_word, sleep_futex, wake_futex, NULL, false, false },
	{ "futex_shared", set_shared, sleep_futex, wake_futex, NULL, true, false },
	{ "semop", set_semop, sleep_semop, wake_semop, end_semop, true, false },
	{ "msg", set_msg, sleep_msg, wake_msg, end_msg, true, false },
	{ "mq", set_mq, sleep_mq, wake_mq, NULL, true, false },
	{ "signalfd", set_signalfd, sleep_signalfd, wake_kill, NULL, true, false },
	{ "sigwait", set_signal, sleep_sigwait, wake_kill, NULL, true, false },
	{ "sigsuspend", set_signal, sleep_suspend, wake_kill, NULL, true, false },
	{ "flock", set_lock, sleep_flock, wake_flock, NULL, true, true },
	{ "fcntl", set_lock, sleep_fcntl, wake_fcntl, NULL, true, true },
	{ "ofd", set_lock, sleep_ofd, wake_ofd, NULL, false, true },
	{ "inode", set_inode, sleep_inode, wake_inode, NULL, false, false },
	{ "child", NULL, sleep_child, NULL, NULL, false, false },
	{ "waitid", NULL, sleep_waitid, NULL, NULL, false, false },
	{ "killed", NULL, sleep_killed, NULL, NULL, false, false },
	{ "vfork", NULL, sleep_vfork, NULL, NULL, false, false },
	{ "join", NULL, sleep_join, NULL, NULL, false, false },
	{ "eof", NULL, sleep_eof, NULL, NULL, false, false },
	{ "uring", set_uring, sleep_uring, wake_write, NULL, true, false },
	{ "uring_tcp", set_uring_tcp, sleep_uring, wake_write, NULL, true, false },
	{ "nap", NULL, sleep_nap, NULL, NULL, false, false },
	{ "poll_out", set_stream, sleep_poll_out, NULL, NULL, false, false },
	{ "epoll_out", set_pipe, sleep_epoll_out, NULL, NULL, false, false },
	{ "futex_out", set_word, sleep_futex_out, NULL, NULL, false, false },
	{ "disk", set_disk, sleep_disk, NULL, NULL, false, false },
};

static bool over;
static void *waker(void *arg)
{
	const struct way *w = arg;

	tell("waker", my_tid());
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		if (!w->paced)
			wait_gap();
		w->wake();
		if (w->paced && w->sleep != sleep_ask)
			usleep(50);
	}
	return NULL;
}

static pid_t start(const struct way *w, pthread_t *thread)
{
	pid_t pid;

	if (!w->process) {
		if (pthread_create(thread, NULL, waker, (void *)w))
			fail("pthread_create");
		return 0;
	}
	pid = must(fork(), "fork");
	if (!pid) {
		if (w->sleep == sleep_futex)
			move_word();
		waker((void *)w);
	}
	return pid;
}

int main(int argc, char **argv)
{
	const struct way *w = NULL;
	pthread_t thread;
	pid_t pid = 0;
	size_t i;
	int n;

	for (i = 0; argc == 5 && i < sizeof(ways) / sizeof(ways[0]); i++)
		if (!strcmp(ways[i].name, argv[1]))
			w = &ways[i];
	if (!w) {
		fprintf(stderr, "usage: wakers WAY ROUNDS GAP_US LOG\n");
		return 2;
	}
	rounds = atoi(argv[2]);
	gap = (unsigned)atoi(argv[3]);
	log_file = fopen(argv[4], "a");
	if (!log_file)
		fail(argv[4]);
	sleeper = my_tid();
	tell("sleeper", sleeper);
	if (w->set)
		w->set();
	if (w->wake)
		pid = start(w, &thread);
	tell_time("begin");
	for (n = 0; n < rounds; n++)
		w->sleep();
	tell_time("end");
	if (pid) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	if (w->end)
		w->end();
	_exit(0);
}
