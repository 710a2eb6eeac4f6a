/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job whose processes or threads come and go.
 *
 *   churn forks [N]     as many processes as it can start, two at a time; no more than N a second
 *   churn threads N     N threads that wake now and then
 *   churn crowd N M     N processes that do nothing; on SIGUSR1 M more
 *   churn opens DIR N R opens and reads N files in turn, which it makes in DIR, no more than R
 *                       a second
 *   churn kernels LIB R launches R kernels a second by the simulated library LIB, each with a
 *                       name of its own
 *
 * The last two begin at SIGUSR1.
 * Prints its pid; on SIGTERM what it did.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK 65536

static volatile sig_atomic_t stop, more;

static void on_term(int sig)
{
	if (sig == SIGUSR1)
		more = 1;
	else
		stop = 1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Naps while `n` things at `rate` a second (0: any) would be ahead of the clock. */
static void pace(unsigned long n, double begin, double rate)
{
	double ahead = rate > 0 ? (double)n / rate - (now() - begin) : 0;
	struct timespec t = { (long)ahead, (long)(1e9 * (ahead - (double)(long)ahead)) };

	if (ahead > 0.002)
		nanosleep(&t, NULL);
}

static void forks(double rate)
{
	double begin = now();
	unsigned long n = 0;

	while (!stop) {
		pid_t p = fork();

		if (!p)
			_exit(0);
		if (p > 0)
			n++;
		if (n > 1 || p < 0)
			wait(NULL);
		pace(n, begin, rate);
	}
	while (wait(NULL) > 0)
		;
	printf("%lu processes, %.0f a second\n", n, (double)n / (now() - begin));
}

static void *nap(void *arg)
{
	struct timespec t = { 1 + (long)(size_t)arg % 3, 1000000 };

	while (!stop)
		nanosleep(&t, NULL);
	return NULL;
}

static void threads(unsigned long n)
{
	pthread_attr_t a;
	unsigned long i, made = 0;
	pthread_t t;

	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, STACK);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	for (i = 0; i < n; i++)
		made += !pthread_create(&t, &a, nap, (void *)(size_t)i);
	while (!stop)
		pause();
	printf("%lu threads\n", made);
}

static void await(void)
{
	while (!stop && !more)
		poll(NULL, 0, 10);
}

static unsigned long idle(unsigned long n)
{
	unsigned long i, made = 0;

	for (i = 0; i < n; i++) {
		pid_t p = fork();

		if (!p) {
			signal(SIGTERM, SIG_DFL);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		made += p > 0;
	}
	return made;
}

static void crowd(unsigned long n, unsigned long m)
{
	unsigned long made = idle(n);

	printf("%lu processes\n", made);
	fflush(stdout);
	while (!stop) {
		if (more) {
			more = 0;
			printf("%lu more\n", idle(m));
			fflush(stdout);
		}
		poll(NULL, 0, 50);
	}
}

static void opens(const char *dir, unsigned long n, double rate)
{
	int at = open(dir, O_RDONLY | O_DIRECTORY), fd;
	unsigned long i, done = 0, tried = 0;
	char name[64], byte;
	double begin;

	if (at < 0)
		_exit(1);
	for (i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "a-file-with-a-name-of-some-length-%lu", i);
		fd = openat(at, name, O_WRONLY | O_CREAT, 0600);
		if (fd < 0 || write(fd, "x", 1) != 1)
			_exit(1);
		close(fd);
	}
	printf("ready\n");
	fflush(stdout);
	await();
	begin = now();
	for (i = 0; !stop; i = (i + 1) % n) {
		snprintf(name, sizeof(name), "a-file-with-a-name-of-some-length-%lu", i);
		fd = openat(at, name, O_RDONLY);
		if (fd >= 0) {
			done += read(fd, &byte, 1) == 1;
			close(fd);
		}
		if (++tried % 64 == 0)
			pace(tried, begin, rate);
	}
	printf("%lu reads, %.0f a second\n", done, (double)done / (now() - begin));
}

struct dim3 {
	unsigned x, y, z;
};

static void kernels(const char *lib, double rate)
{
	void *so = dlopen(lib, RTLD_NOW | RTLD_GLOBAL);
	int (*launch)(const void *, struct dim3, struct dim3, void **, size_t, void *);
	void (*named)(const void *, const char *);
	unsigned long n = 0;
	char name[64];
	double begin;

	*(void **)&launch = so ? dlsym(so, "cudaLaunchKernel") : NULL;
	*(void **)&named = so ? dlsym(so, "ptsim_name_kernel") : NULL;
	if (!launch || !named)
		_exit(1);
	await();
	begin = now();
	while (!stop) {
		const void *function = (const void *)(0x10000 + 16 * ++n);

		snprintf(name, sizeof(name), "a_kernel_with_a_name_of_its_own_%lu", n);
		named(function, name);
		launch(function, (struct dim3){ 1, 1, 1 }, (struct dim3){ 1, 1, 1 }, NULL, 0, NULL);
		pace(n, begin, rate);
	}
	printf("%lu kernels\n", n);
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_term };

	if (argc < 2)
		return 2;
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	printf("%d\n", getpid());
	fflush(stdout);
	if (!strcmp(argv[1], "forks"))
		forks(argc > 2 ? atof(argv[2]) : 0);
	else if (!strcmp(argv[1], "kernels") && argc > 3)
		kernels(argv[2], atof(argv[3]));
	else if (!strcmp(argv[1], "crowd") && argc > 3)
		crowd(strtoul(argv[2], NULL, 0), strtoul(argv[3], NULL, 0));
	else if (!strcmp(argv[1], "opens") && argc > 4)
		opens(argv[2], strtoul(argv[3], NULL, 0), atof(argv[4]));
	else
		threads(argc > 2 ? strtoul(argv[2], NULL, 0) : 1000);
	fflush(stdout);
	_exit(0);
}
