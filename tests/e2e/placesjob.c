/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls functions of a GPU library, each as often as is said, when a line comes on
 * standard input; for places.py.
 *
 *   placesjob LIBRARY THREADS NAME=CALLS...
 *
 * Prints "ready PID BOX", where BOX is the first argument of all calls, and then for each
 * name, of each thread, its result and the ns of a call. Where the library has
 * cuGetProcAddress(), the calls go by the addresses that this hands out, as a runtime's do.
 *
 *   placesjob LIBRARY handed NAME...
 *
 * Prints each name that the library has, and whether its own address is handed out: 1 or 0.
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

typedef int (*hand_out)(const char *, void **, int, unsigned long long);

/* What a runtime may ask for: its version, and streams as they are or of each thread. */
static const int versions[] = { 2000, 3020, 4000, 6050, 7000, 9000, 10000, 11000, 12000, 12020 };

/* Is the function's address one of those that are handed out for its name? */
static int handed(hand_out hand, const char *name, function f)
{
	char base[64];
	size_t i, len = (size_t)snprintf(base, sizeof(base), "%s", name);
	int flags;
	void *got;

	if (len > 5 && (!strcmp(base + len - 5, "_ptsz") || !strcmp(base + len - 5, "_ptds")))
		base[len -= 5] = '\0';
	if (len > 3 && !strncmp(base + len - 3, "_v", 2))
		base[len - 3] = '\0';
	for (i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		for (flags = 0; flags < 3; flags++) {
			got = NULL;
			if (!hand(base, &got, versions[i], (unsigned long long)flags) &&
			    got == *(void **)&f)
				return 1;
		}
	return 0;
}

/* It hands out addresses also before cuInit(), which fails without a device. */
static hand_out hands(void *lib)
{
	hand_out hand;

	*(void **)&hand = dlsym(lib, "cuGetProcAddress");
	return hand;
}

static int list_handed(void *lib, int argc, char **argv)
{
	hand_out hand = hands(lib);
	function f;
	int k;

	for (k = 0; k < argc && hand; k++) {
		f = (function)dlsym(lib, argv[k]);
		if (f)
			printf("%s %d\n", argv[k], handed(hand, argv[k], f));
	}
	return !hand;
}

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
	hand_out hand;
	void *lib;
	char *is;

	lib = argc > 3 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!lib) {
		fprintf(stderr, "placesjob: %s\n", argc > 3 ? dlerror() : "usage");
		return 2;
	}
	if (!strcmp(argv[2], "handed"))
		return list_handed(lib, argc - 3, argv + 3);
	hand = hands(lib);
	threads = atoi(argv[2]);
	for (k = 3; k < argc && n < MAX; k++) {
		is = strchr(argv[k], '=');
		if (!is)
			return 2;
		*is = '\0';
		what[n].name = argv[k];
		what[n].calls = atol(is + 1);
		what[n].f = (function)dlsym(lib, argv[k]);
		if (!what[n].f || (hand && !handed(hand, argv[k], what[n].f))) {
			fprintf(stderr, "placesjob: no %s, or it is not handed out\n", argv[k]);
			return 2;
		}
		n++;
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
