/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls functions of a GPU library, each as often as is said, when a line comes on
 * standard input; for places.py.
 *
 *   placesjob LIBRARY THREADS NAME=CALLS...
 *
 * Prints "ready PID BOX", where BOX is the first argument of all calls, and then for each
 * name, of each thread, its result and the ns of a call.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX 32

typedef long (*function)(void *, long, long, long, long, long, long, long, long, void *, void *);

static struct {
	const char *name;
	function f;
	long calls;
} what[MAX];
static int n;
static long box[16];
static pthread_mutex_t said = PTHREAD_MUTEX_INITIALIZER;

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *run(void *arg)
{
	long i, got = 0;
	double begin;
	int k;

	for (k = 0; k < n; k++) {
		begin = now_ns();
		for (i = 0; i < what[k].calls; i++)
			got = what[k].f(box, 0x101, 0x102, 0x103, 0x104, 0x105, 0x106, 0x107,
					0x108, box, NULL);
		begin = (now_ns() - begin) / (double)what[k].calls;
		pthread_mutex_lock(&said);
		printf("%s %ld %.0f\n", what[k].name, got, begin);
		pthread_mutex_unlock(&said);
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t[MAX];
	int k, threads;
	void *lib;
	char *is;

	lib = argc > 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!lib) {
		fprintf(stderr, "placesjob: %s\n", argc > 3 ? dlerror() : "usage");
		return 2;
	}
	threads = atoi(argv[2]);
	for (k = 3; k < argc && n < MAX; k++) {
		is = strchr(argv[k], '=');
		if (!is)
			return 2;
		*is = '\0';
		what[n].name = argv[k];
		what[n].calls = atol(is + 1);
		what[n].f = (function)dlsym(lib, argv[k]);
		if (!what[n++].f) {
			fprintf(stderr, "placesjob: no %s\n", argv[k]);
			return 2;
		}
	}
	printf("ready %d %llu\n", (int)getpid(), (unsigned long long)(size_t)box);
	fflush(stdout);
	getchar();
	for (k = 0; k < threads && k < MAX; k++)
		if (pthread_create(&t[k], NULL, run, NULL))
			return 1;
	while (k--)
		pthread_join(t[k], NULL);
	return 0;
}
