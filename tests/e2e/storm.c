/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Launches kernels in bursts through a runtime library and, later, through a
 * collective of a library that is loaded only then. It names no driver: what
 * it calls is given on the command line or belongs to the runtime.
 *
 *   storm LIBCUDART SECONDS [LIBNCCL]     STORM_THREADS=N: N threads do
 *
 * Prints its pid, then at the end "launches N collectives N ns N": the last is
 * what a launch took on average, CPU time, in the second half of the time before
 * anything was loaded.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BURST 500
#define PAUSE_NS 20000000l
#define HOLD_NS 999999999l /* behind a load: the tracer attaches */

typedef struct {
	unsigned x, y, z;
} dim3;
typedef struct {
	char internal[128];
} unique_id;

int main(int argc, char **argv);
static int (*launch)(const void *, dim3, dim3, void **, size_t, void *);
static int (*sync_all)(void);
static int (*allreduce)(const void *, void *, size_t, int, int, void *, void *);

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static void rest(long ns)
{
	struct timespec t = { 0, ns };

	nanosleep(&t, NULL);
}

static void *symbol(const char *lib, const char *name)
{
	void *h = dlopen(lib, RTLD_NOW), *p = h ? dlsym(h, name) : NULL;

	if (!p) {
		fprintf(stderr, "storm: %s: no %s\n", lib, name);
		exit(1);
	}
	return p;
}

/* One burst; what its launches took. */
static uint64_t burst(const void *func)
{
	dim3 one = { 1, 1, 1 };
	uint64_t t = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	int i;

	for (i = 0; i < BURST; i++)
		if (launch(func, one, one, NULL, 0, NULL))
			exit(1);
	return clock_ns(CLOCK_THREAD_CPUTIME_ID) - t;
}

#define THREADS_MAX 64
static uint64_t storm_until;

/* How many it launched. */
static void *more(void *arg)
{
	uint64_t *launches = arg;

	for (; now() < storm_until; *launches += BURST) {
		burst(&main);
		rest(PAUSE_NS);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t begin, half, until, launches = 0, collectives = 0;
	uint64_t timed = 0, spent = 0, others[THREADS_MAX] = { 0 };
	const char *n_threads = getenv("STORM_THREADS");
	int threads = n_threads ? atoi(n_threads) - 1 : 0, i;
	pthread_t thread[THREADS_MAX];
	unique_id id = { { 0 } };
	int (*init)(void **, int, unique_id, int);
	void *comm = NULL;

	if (argc < 3)
		return 2;
	*(void **)&launch = symbol(argv[1], "cudaLaunchKernel");
	*(void **)&sync_all = symbol(argv[1], "cudaDeviceSynchronize");
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (getchar() > '\n') /* a line, or the input's end */
		;
	begin = now();
	until = begin + (uint64_t)(atof(argv[2]) * 1e9);
	half = begin + (until - begin) / 2;
	storm_until = until;
	for (i = 0; i < threads && i < THREADS_MAX; i++)
		if (pthread_create(&thread[i], NULL, more, &others[i]))
			return 1;
	for (; now() < until; launches += BURST) {
		uint64_t ns = burst(&main);

		if (now() > half) {
			timed += BURST;
			spent += ns;
		}
		sync_all();
		rest(PAUSE_NS);
	}
	while (i-- > 0) {
		pthread_join(thread[i], NULL);
		launches += others[i];
	}
	sync_all();
	if (argc > 3) {
		*(void **)&init = symbol(argv[3], "ncclCommInitRank");
		*(void **)&allreduce = symbol(argv[3], "ncclAllReduce");
		rest(HOLD_NS);
		if (init(&comm, 1, id, 0))
			return 1;
		for (until = now() + 1000000000u; now() < until;
		     launches += BURST) {
			burst(&main);
			if (allreduce(NULL, NULL, 10, 7, 0, comm, NULL))
				return 1;
			collectives++;
			sync_all();
			rest(PAUSE_NS);
		}
	}
	printf("launches %llu collectives %llu ns %llu\n",
	       (unsigned long long)launches, (unsigned long long)collectives,
	       (unsigned long long)(timed ? spent / timed : 0));
	return 0;
}
