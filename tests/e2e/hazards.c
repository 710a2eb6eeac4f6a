/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Targets that are hard to load anything into. Each checks its own work, and
 * counts it, in a file that others can map:
 *
 *   hazards MODE FILE [LIBCUDART]
 *
 * Words of FILE (64-bit): 0 pid, 1 operations done, 2 operations that came out
 * wrong, 3 the most that a timed wait took beyond its time (ns), 4 waits that ended
 * before their time, 5 ready.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 64
#define WAIT_NS 100000000ll

typedef struct {
	unsigned x, y, z;
} dim3;

static uint64_t *out;
static int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
static int (*sync_all)(void *);
static int quiet_pipe[2];
static __thread uint64_t seed;
static __thread char alt[65536];
static volatile sig_atomic_t alarms;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void done(int ok)
{
	__atomic_add_fetch(&out[1], 1, __ATOMIC_RELAXED);
	if (!ok)
		__atomic_add_fetch(&out[2], 1, __ATOMIC_RELAXED);
}

static uint64_t rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* ---- what must not change ------------------------------------------------------- */

static void own_state(void)
{
	stack_t s = { .ss_sp = alt, .ss_size = sizeof(alt) };

	seed = (uint64_t)syscall(SYS_gettid) * 0x9e3779b97f4a7c15u + 1;
	sigaltstack(&s, NULL);
}

static int state_kept(void)
{
	sigset_t set;
	stack_t s;

	if (sigaltstack(NULL, &s) || s.ss_sp != alt ||
	    s.ss_size != sizeof(alt) || s.ss_flags)
		return 0;
	/* SIGUSR2 is blocked in every thread here, and nothing else */
	return !pthread_sigmask(SIG_BLOCK, NULL, &set) &&
	       sigismember(&set, SIGUSR2) == 1 && !sigismember(&set, SIGINT) &&
	       !sigismember(&set, SIGUSR1) && !sigismember(&set, SIGCHLD);
}

/* A launch and a synchronisation: results and errno. */
static int gpu_call(void)
{
	dim3 one = { 1, 1, 1 };
	int ok;

	errno = 4711;
	ok = !launch((const void *)(uintptr_t)&out, one, one, NULL, 0, NULL);
	ok &= errno == 4711;
	return ok;
}

static int short_poll(int ms)
{
	struct pollfd p = { .fd = quiet_pipe[0], .events = POLLIN };
	uint64_t begin = now();
	int r;

	errno = 4711;
	r = poll(&p, 1, ms);
	if (r < 0 && errno == EINTR)
		return alarms > 0;
	return r == 0 && errno == 4711 &&
	       now() - begin >= (uint64_t)ms * 1000000u;
}

/* ---- malloc storms --------------------------------------------------------------- */

struct block {
	size_t size;
	uint64_t mark;
	unsigned char data[];
};

static int check_free(struct block *b)
{
	size_t i;
	int ok = 1;

	if (!b)
		return 1;
	for (i = 0; i < b->size; i += 509)
		ok &= b->data[i] == (unsigned char)(b->mark + i);
	ok &= !b->size ||
	      b->data[b->size - 1] == (unsigned char)(b->mark + b->size - 1);
	free(b);
	return ok;
}

static struct block *make(void)
{
	size_t size = 2048 + rnd() % (58 * 1024), i;
	struct block *b = malloc(sizeof(*b) + size);

	if (!b)
		return NULL;
	b->size = size;
	b->mark = rnd();
	for (i = 0; i < size; i += 509)
		b->data[i] = (unsigned char)(b->mark + i);
	b->data[size - 1] = (unsigned char)(b->mark + size - 1);
	return b;
}

static void *storm(void *arg)
{
	struct block *slot[SLOTS] = { NULL };
	int calls = (int)(intptr_t)arg;
	uint64_t n;

	own_state();
	for (n = 0;; n++) {
		unsigned k = rnd() % SLOTS;
		int ok = check_free(slot[k]);

		slot[k] = make();
		if (calls == 1 && n % 16 == 0)
			ok &= gpu_call();
		if (calls == 2 && n % 256 == 0)
			ok &= short_poll(1);
		if (calls && n % 64 == 0)
			ok &= state_kept();
		done(ok);
	}
	return NULL;
}

/* ---- workers ----------------------------------------------------------------------- */

static void *gpu_worker(void *arg)
{
	uint64_t n;

	(void)arg;
	own_state();
	for (n = 0;; n++) {
		int ok = gpu_call();

		if (n % 32 == 0)
			ok &= !sync_all(NULL);
		done(ok && state_kept());
		if (n % 32 == 0)
			ok = short_poll(2);
	}
	return NULL;
}

static void *spin(void *arg)
{
	volatile double x = 1;
	uint64_t n;

	(void)arg;
	for (n = 0;; n++) {
		double y = x;
		int i;

		for (i = 0; i < 10000; i++)
			y = y * 1.0000001 + 0.5;
		done(y > 0);
		x = 1;
	}
	return NULL;
}

/* Timed waits of every kind: not early, and how late. */
static void *timed(void *arg)
{
	int kind = (int)(intptr_t)arg, ep = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN };
	struct timespec t, left;
	struct timeval tv;
	fd_set set;

	own_state();
	epoll_ctl(ep, EPOLL_CTL_ADD, quiet_pipe[0], &ev);
	for (;;) {
		struct pollfd p = { .fd = quiet_pipe[0], .events = POLLIN };
		uint64_t begin = now(), took, old;
		int r = 0;

		t = (struct timespec){ 0, WAIT_NS };
		if (kind == 0)
			r = nanosleep(&t, &left);
		else if (kind == 1)
			r = poll(&p, 1, WAIT_NS / 1000000);
		else if (kind == 2)
			r = epoll_wait(ep, &ev, 1, WAIT_NS / 1000000);
		else if (kind == 3) {
			FD_ZERO(&set);
			FD_SET(quiet_pipe[0], &set);
			tv = (struct timeval){ 0, WAIT_NS / 1000 };
			r = select(quiet_pipe[0] + 1, &set, NULL, NULL, &tv);
		} else if (kind == 4)
			r = ppoll(&p, 1, &t, NULL);
		else
			r = clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &left);
		took = now() - begin;
		if (took < WAIT_NS)
			__atomic_add_fetch(&out[4], 1, __ATOMIC_RELAXED);
		old = __atomic_load_n(&out[3], __ATOMIC_RELAXED);
		if (took > WAIT_NS && took - WAIT_NS > old)
			__atomic_store_n(&out[3], took - WAIT_NS,
					 __ATOMIC_RELAXED);
		done(r == 0 && state_kept());
	}
	return NULL;
}

/* poll(p, 1, -1) by the instruction itself, with what the kernel keeps in vector
 * registers: 64 bytes in the widest that this processor has. */
#define POLL_WITH(load, store)                                                 \
	__asm__ volatile(load "movl $7, %%eax\n\tsyscall\n\t" store            \
			 : "=&a"(r)                                            \
			 : "D"(p), "S"(1L), "d"(-1L), "r"(in), "r"(back)        \
			 : "rcx", "r11", "xmm6", "xmm7", "xmm8", "xmm9",       \
			   "memory")

static long poll_with(struct pollfd *p, const uint64_t *in, uint64_t *back)
{
	long r;

	if (__builtin_cpu_supports("avx512f"))
		POLL_WITH("vmovdqu64 (%4), %%zmm20\n\t",
			  "vmovdqu64 %%zmm20, (%5)\n\t");
	else if (__builtin_cpu_supports("avx"))
		POLL_WITH("vmovdqu (%4), %%ymm8\n\tvmovdqu 32(%4), %%ymm9\n\t",
			  "vmovdqu %%ymm8, (%5)\n\tvmovdqu %%ymm9, 32(%5)\n\t");
	else
		POLL_WITH("movdqu (%4), %%xmm6\n\tmovdqu 16(%4), %%xmm7\n\t"
			  "movdqu 32(%4), %%xmm8\n\tmovdqu 48(%4), %%xmm9\n\t",
			  "movdqu %%xmm6, (%5)\n\tmovdqu %%xmm7, 16(%5)\n\t"
			  "movdqu %%xmm8, 32(%5)\n\tmovdqu %%xmm9, 48(%5)\n\t");
	return r;
}

/* Somebody writes now and then. */
static void *endless(void *arg)
{
	int fd = (int)(intptr_t)arg, i;
	uint64_t a[8], b[8];
	char c;

	own_state();
	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		long r;

		for (i = 0; i < 8; i++)
			a[i] = rnd();
		memset(b, 0, sizeof(b));
		r = poll_with(&p, a, b);
		done(r == 1 && p.revents == POLLIN && !memcmp(a, b, sizeof(a)) &&
		     read(fd, &c, 1) == 1 && state_kept());
	}
	return NULL;
}

static void *endless_epoll(void *arg)
{
	int fd = (int)(intptr_t)arg, ep = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN };
	char c;

	own_state();
	epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
	for (;;) {
		int r = epoll_wait(ep, &ev, 1, -1);

		done(r == 1 && read(fd, &c, 1) == 1 && state_kept());
	}
	return NULL;
}

static void on_alarm(int sig)
{
	int saved = errno;

	(void)sig;
	alarms++;
	errno = saved;
}

/* A handler that waits: whatever it interrupted, the allocator above all. */
static void on_alarm_wait(int sig)
{
	int saved = errno;

	(void)sig;
	alarms++;
	poll(NULL, 0, 1);
	errno = saved;
}

static void alarm_every(long us, void (*fn)(int))
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = SA_RESTART };
	struct itimerval it = { { 0, us }, { 0, us } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
}

static void start(void *(*fn)(void *), void *arg, size_t stack)
{
	pthread_attr_t at;
	pthread_t t;

	pthread_attr_init(&at);
	if (stack)
		pthread_attr_setstacksize(&at, stack);
	if (pthread_create(&t, &at, fn, arg))
		exit(3);
}

/* ---- seccomp ------------------------------------------------------------------------- */

static void filter(int kill_above)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)kill_above, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = { 4, f };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		exit(3);
}

/* memfd_create gets an error instead of a file. */
static void filter_memfd(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = { 4, f };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		exit(3);
}

/* Killed for whatever is not listed: what this program does itself, and what an agent takes.
 * `shorter` leaves out as many of the last ones. */
static void filter_list(int shorter)
{
	static const int allowed[] = {
		/* its own, and what the device's stand-in does */
		SYS_write, SYS_poll, SYS_pipe, SYS_pipe2, SYS_sigaltstack, SYS_nanosleep,
		SYS_clock_gettime, SYS_restart_syscall, SYS_mremap, SYS_lseek, SYS_exit_group,
		/* loading, running and ending the agent */
		SYS_memfd_create, SYS_openat, SYS_read, SYS_pread64, SYS_fstat, SYS_newfstatat,
		SYS_mmap, SYS_mprotect, SYS_munmap, SYS_brk, SYS_close, SYS_rt_sigaction,
		SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_clone, SYS_clone3,
		SYS_set_robust_list, 334 /* rseq */, SYS_futex, SYS_madvise, SYS_gettid,
		SYS_getpid, SYS_clock_nanosleep, SYS_fcntl, SYS_exit, SYS_sched_yield,
		SYS_tgkill, SYS_prctl,
	};
	const int all = sizeof(allowed) / sizeof(*allowed);
	struct sock_filter f[2 * sizeof(allowed) / sizeof(*allowed) + 2];
	struct sock_fprog p = { 0, f };
	int i;

	f[p.len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						  offsetof(struct seccomp_data, nr));
	for (i = 0; i < all - shorter; i++) {
		f[p.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							  (uint32_t)allowed[i], 0, 1);
		f[p.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	f[p.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
		exit(3);
}

/* ---- modes ----------------------------------------------------------------------------- */

static void *symbol(const char *lib, const char *name)
{
	void *h = dlopen(lib, RTLD_NOW), *p = h ? dlsym(h, name) : NULL;

	if (!p)
		exit(4);
	return p;
}

static void run_for(uint64_t ns)
{
	uint64_t end = now() + ns;

	while (now() < end)
		done(gpu_call());
}

static void forks(void)
{
	for (;;) {
		pid_t p = fork();
		int st = 0;

		if (!p)
			_exit(7);
		done(p > 0 && waitpid(p, &st, 0) == p && WIFEXITED(st) &&
		     WEXITSTATUS(st) == 7 && gpu_call());
	}
}

static void ping(int fd)
{
	struct timespec t = { 0, 150000000 };

	for (;;) {
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, NULL);
		if (write(fd, "x", 1) != 1)
			exit(3);
	}
}

static int is(const char *mode, const char *name)
{
	return !strcmp(mode, name);
}

/* The loader is at work in another thread, for seconds. */
static int slow_look(struct dl_phdr_info *i, size_t n, void *arg)
{
	struct timespec t = { 2, 500000000 };

	(void)i;
	(void)n;
	(void)arg;
	nanosleep(&t, NULL);
	return 1;
}

static void *busy_loader(void *arg)
{
	struct timespec t = { 0, 200000000 };

	(void)arg;
	own_state();
	for (;;) {
		dl_iterate_phdr(slow_look, NULL);
		nanosleep(&t, NULL);
	}
	return NULL;
}

static void never(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;

	pthread_mutex_lock(&m);
	for (;;)
		pthread_cond_wait(&c, &m);
}

static void run(const char *mode, char **argv)
{
	int p[2], i;
	char c;

	if (pipe(p))
		exit(3);
	if (is(mode, "gpu")) {
		for (i = 0; i < 3; i++)
			start(gpu_worker, NULL, 0);
		gpu_worker(NULL);
	} else if (is(mode, "spin_gpu")) {
		start(gpu_worker, NULL, 0);
		spin(NULL);
	} else if (is(mode, "spin")) {
		spin(NULL);
	} else if (is(mode, "storm1_gpu")) {
		storm((void *)1);
	} else if (is(mode, "storm4_gpu")) {
		for (i = 0; i < 3; i++)
			start(storm, (void *)1, 0);
		storm((void *)1);
	} else if (is(mode, "storm1_poll")) {
		storm((void *)2);
	} else if (is(mode, "storm4_poll")) {
		for (i = 0; i < 3; i++)
			start(storm, (void *)2, 0);
		storm((void *)2);
	} else if (is(mode, "storm1")) {
		storm(NULL);
	} else if (is(mode, "storm_handler")) {
		alarm_every(3000, on_alarm_wait);
		storm(NULL);
	} else if (is(mode, "read")) {
		out[5] = read(p[0], &c, 1) + 100;
	} else if (is(mode, "futex")) {
		never();
	} else if (is(mode, "timed")) {
		for (i = 0; i < 5; i++)
			start(timed, (void *)(intptr_t)i, 0);
		timed((void *)5);
	} else if (is(mode, "endless")) {
		start(endless, (void *)(intptr_t)p[0], 0);
		ping(p[1]);
	} else if (is(mode, "endless_epoll")) {
		start(endless_epoll, (void *)(intptr_t)p[0], 0);
		ping(p[1]);
	} else if (is(mode, "alarm")) {
		alarm_every(1000, on_alarm);
		gpu_worker(NULL);
	} else if (is(mode, "loader")) {
		start(busy_loader, NULL, 0);
		gpu_worker(NULL);
	} else if (is(mode, "small_stack")) {
		start(gpu_worker, NULL, 131072);
		never();
	} else if (is(mode, "small_endless")) {
		start(gpu_worker, NULL, 131072);
		start(endless, (void *)(intptr_t)p[0], 0);
		ping(p[1]);
	} else if (is(mode, "forks")) {
		forks();
	} else if (is(mode, "exec")) {
		run_for(400000000 + (uint64_t)getpid() % 97 * 5000000);
		execl("/proc/self/exe", argv[0], "gpu", argv[2], argv[3], NULL);
	} else if (is(mode, "exit")) {
		run_for(900000000 + (uint64_t)getpid() % 97 * 5000000);
		_exit(42);
	} else if (is(mode, "seccomp_335")) {
		filter(335);
		gpu_worker(NULL);
	} else if (is(mode, "seccomp_all")) {
		filter(100000);
		gpu_worker(NULL);
	} else if (is(mode, "seccomp_list")) {
		filter_list(0);
		gpu_worker(NULL);
	} else if (is(mode, "seccomp_short")) {
		filter_list(1);
		gpu_worker(NULL);
	} else if (is(mode, "seccomp_memfd")) {
		filter_memfd();
		gpu_worker(NULL);
	}
}

int main(int argc, char **argv)
{
	sigset_t set;
	int fd;

	if (argc < 3)
		return 2;
	fd = open(argv[2], O_RDWR | O_CREAT, 0666);
	if (fd < 0 || ftruncate(fd, 4096))
		return 3;
	out = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (out == MAP_FAILED || pipe(quiet_pipe))
		return 3;
	close(fd);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_SETMASK, &set, NULL);
	own_state();
	if (argc > 3 && *argv[3]) {
		*(void **)&launch = symbol(argv[3], "cudaLaunchKernel");
		*(void **)&sync_all = symbol(argv[3], "cudaStreamSynchronize");
	}
	/* the device's thread starts before any filter */
	if (launch && !gpu_call())
		return 4;
	out[0] = (uint64_t)getpid();
	out[5] = 1;
	run(argv[1], argv);
	return 5;
}
