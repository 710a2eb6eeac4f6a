/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job that turns on its tracer, for attacks.py. It is an ordinary user's, and
 * does to itself what any process may.
 *
 *   attacker memfd KIND VICTIM CUDART
 *       answers for its own syscall(): memfd_create() gives another descriptor
 *       (KIND), of VICTIM or of something else that is no new memory file. With
 *       "swap" it gives a true one, whose number a second thread turns into
 *       VICTIM's and back, all the time.
 *   attacker library MINE OTHER
 *       maps MINE (a path), a GPU library, whose path a second thread turns
 *       into a link to OTHER and back, all the time.
 *   attacker maps FILE COUNT
 *       maps FILE for execution, and starts COUNT programs that do; none of them
 *       does anything.
 *   attacker lease FILE [VICTIM]
 *       maps FILE for execution, and has a lease on it: who opens it waits as long as the
 *       kernel lets him. With VICTIM the file's name is a link to that.
 *
 * It writes "READY" when it is set up.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SWAPPED 200 /* the descriptor that is now this, now that */

struct dim {
	unsigned x, y, z;
};

static int (*launch)(const void *, struct dim, struct dim, void **, size_t,
		     void *);
static const char *kind, *victim;
static int given = -1, victim_fd = -1;

static void die(const char *what)
{
	fprintf(stderr, "attacker: %s: %s\n", what, strerror(errno));
	exit(3);
}

static void rest_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

static void ready(void)
{
	printf("READY %d\n", (int)getpid());
	fflush(stdout);
}

/* The kernel itself, as the C library's syscall() is ours now. */
static long kernel(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8),
			   "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

static int memory(unsigned flags)
{
	return (int)kernel(SYS_memfd_create, (long)"pipetrace-agent", flags, 0, 0,
			   0, 0);
}

static int sealed(void)
{
	int fd = memory(MFD_ALLOW_SEALING);

	if (fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK))
		die("sealing");
	return fd;
}

/* A memory file that somebody else lets us read only. */
static int read_only(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory(MFD_ALLOW_SEALING));
	return open(path, O_RDONLY);
}

static int make_given(void)
{
	if (!strcmp(kind, "path"))
		return open(victim, O_PATH);
	if (!strcmp(kind, "read_only"))
		return open(victim, O_RDONLY);
	if (!strcmp(kind, "own_file"))
		return open(victim, O_RDWR);
	if (!strcmp(kind, "tmpfile"))
		return open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
	if (!strcmp(kind, "huge"))
		return memory(MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (!strcmp(kind, "sealed"))
		return sealed();
	if (!strcmp(kind, "memfd_read_only"))
		return read_only();
	return -1;
}

static long answer(long nr, ...)
{
	long v[6];
	va_list ap;
	size_t i;

	va_start(ap, nr);
	for (i = 0; i < 6; i++)
		v[i] = va_arg(ap, long);
	va_end(ap);
	if (nr != SYS_memfd_create)
		return kernel(nr, v[0], v[1], v[2], v[3], v[4], v[5]);
	if (strcmp(kind, "swap"))
		return given;
	nr = kernel(nr, v[0], v[1], v[2], 0, 0, 0);
	if (nr < 0)
		return nr;
	/* the second thread's from now on; it lets go of it with the next */
	nr = kernel(SYS_dup3, nr, SWAPPED + 1, 0, 0, 0, 0);
	kernel(SYS_dup3, nr, SWAPPED, 0, 0, 0, 0);
	return SWAPPED;
}

static void *swap(void *arg)
{
	(void)arg;
	for (;;) {
		dup3(victim_fd, SWAPPED, 0);
		dup3(SWAPPED + 1, SWAPPED, 0);
	}
	return NULL;
}

/* All of the C library's code at once: in pieces it would look like two. */
static void patch(void *at, const void *to)
{
	unsigned char code[] = { 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0 };
	FILE *f = fopen("/proc/self/maps", "r");
	uintptr_t begin = 0, end = 0;
	char line[512];

	while (f && fgets(line, sizeof(line), f) &&
	       (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2 ||
		(uintptr_t)at < begin || (uintptr_t)at >= end))
		;
	if (!f || (uintptr_t)at >= end)
		die("maps");
	fclose(f);
	memcpy(code + 2, &to, sizeof(to));
	if (mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE | PROT_EXEC))
		die("mprotect");
	memcpy(at, code, sizeof(code));
	if (mprotect((void *)begin, end - begin, PROT_READ | PROT_EXEC))
		die("mprotect");
}

static void open_gpu(const char *path)
{
	void *h = dlopen(path, RTLD_NOW);

	*(void **)&launch = h ? dlsym(h, "cudaLaunchKernel") : NULL;
	if (!launch) {
		fprintf(stderr, "attacker: %s\n", dlerror());
		exit(3);
	}
}

static void work(void)
{
	const struct dim one = { 1, 1, 1 };

	for (;;) {
		launch((const void *)work, one, one, NULL, 0, NULL);
		poll(NULL, 0, 1);
	}
}

/* So that each try comes to its end soon, and the next begins anew. */
static void *no_library(const char *path, int mode)
{
	(void)path;
	(void)mode;
	return NULL;
}

static int run_memfd(char **argv)
{
	pthread_t t;

	kind = argv[2];
	victim = argv[3];
	open_gpu(argv[4]);
	given = make_given();
	if (!strcmp(kind, "swap")) {
		victim_fd = open(victim, O_PATH);
		if (victim_fd < 0 || dup3(victim_fd, SWAPPED + 1, 0) < 0)
			die(victim);
		pthread_create(&t, NULL, swap, NULL);
		patch(dlsym(RTLD_DEFAULT, "dlopen"), (const void *)no_library);
	} else if (given < 0) {
		die(kind);
	}
	patch(dlsym(RTLD_DEFAULT, "syscall"), (const void *)answer);
	ready();
	work();
	return 0;
}

/* ---- a library that becomes another -------------------------------------------- */

static const char *paths[3]; /* the name, the library, a link to the other */

static void *rename_all(void *arg)
{
	(void)arg;
	for (;;) {
		renameat2(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE);
		rest_us(random() % 300);
	}
	return NULL;
}

static int run_library(char **argv)
{
	static char link[512];
	pthread_t t;

	snprintf(link, sizeof(link), "%s.link", argv[2]);
	unlink(link);
	if (symlink(argv[3], link))
		die(link);
	paths[0] = argv[2];
	paths[1] = link;
	open_gpu(argv[2]);
	pthread_create(&t, NULL, rename_all, NULL);
	ready();
	work();
	return 0;
}

/* ---- many that look like jobs --------------------------------------------------- */

static void map_file(const char *path, int fd)
{
	if (fd < 0 || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd,
			   0) == MAP_FAILED)
		die(path);
}

static int stay(void)
{
	ready();
	for (;;)
		pause();
	return 0;
}

static int run_maps(char **argv)
{
	int n = atoi(argv[3]);

	map_file(argv[2], open(argv[2], O_RDONLY));
	while (n-- > 0) {
		pid_t p = fork();

		if (p < 0)
			die("fork");
		/* programs of their own, nobody's helpers or ranks */
		if (!p && !fork())
			execl("/proc/self/exe", argv[0], "maps", argv[2], "0",
			      NULL);
		if (!p)
			_exit(0);
		waitpid(p, NULL, 0);
	}
	rest_us(300000);
	return stay();
}

/* ---- files that keep others waiting ---------------------------------------------- */

static int run_lease(int argc, char **argv)
{
	int fd = open(argv[2], O_RDWR);

	signal(SIGIO, SIG_IGN);
	map_file(argv[2], fd);
	if (fcntl(fd, F_SETLEASE, F_WRLCK))
		die("lease");
	if (argc > 3 && (unlink(argv[2]) || symlink(argv[3], argv[2])))
		die("link");
	return stay();
}

int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* after a change of user: to be looked at as any job of that user is */
	prctl(PR_SET_DUMPABLE, 1);
	if (argc == 5 && !strcmp(argv[1], "memfd"))
		return run_memfd(argv);
	if (argc == 4 && !strcmp(argv[1], "library"))
		return run_library(argv);
	if (argc == 4 && !strcmp(argv[1], "maps"))
		return run_maps(argv);
	if ((argc == 3 || argc == 4) && !strcmp(argv[1], "lease"))
		return run_lease(argc, argv);
	return 2;
}
