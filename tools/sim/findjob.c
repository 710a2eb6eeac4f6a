/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * findjob: launches kernels of its own through CUDA runtimes that it is told
 * of, or through one that is linked into it (built with FINDJOB_STATIC).
 *
 *   findjob [-w MS] [-l MS] [-n ROUNDS] [-u US] [-m] [-a] [LIBCUDART...]
 *
 * -w: wait so long behind printing the pid (0: for a line on the standard input). -l: open the libraries only
 * then, and so long after that (0: before). -n: rounds (100), each three
 * launches through each runtime in turn and a sync; -u: between rounds (2000).
 * -m: the libraries are CUDA drivers: kernels of a module, by their names. -a:
 * every tenth round allocates more than a device of 1 GiB has, through a runtime:
 * 600 MiB, and as much again, which fails, and again when the first is freed; then
 * 2 GiB, which fails for good.
 *
 * Prints its pid, "done" behind the last round (and waits for a line again), then
 * "NAME COUNT" for each kernel that it launched, "opened NS NS" (begin, end of
 * opening the libraries) and "first" with the moments of the rounds, all of
 * CLOCK_MONOTONIC.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAX_LIBS 8
#define MAX_ROUNDS 4096

typedef struct {
	unsigned x, y, z;
} dim3;

typedef int (*launch_fn)(const void *, dim3, dim3, void **, size_t, void *);
typedef int (*drv_launch_fn)(void *, unsigned, unsigned, unsigned, unsigned,
			     unsigned, unsigned, unsigned, void *, void **,
			     void **);

/* Host functions of kernels: their addresses are what a launch passes. The
 * names are those of add_tile(float*, int), scale<double>(double*) and of a C
 * function that its file keeps to itself. */
void _Z8add_tilePfi(void);
void _Z5scaleIdEvPT_(void);
__attribute__((noinline)) void _Z8add_tilePfi(void)
{
	__asm__ volatile("nop");
}

__attribute__((noinline)) void _Z5scaleIdEvPT_(void)
{
	__asm__ volatile("nop; nop");
}

__attribute__((noinline)) static void reduce_rows(void)
{
	__asm__ volatile("nop; nop; nop");
}

static const struct {
	void (*host_side)(void);
	const char *name;
} kernels[] = { { _Z8add_tilePfi, "_Z8add_tilePfi" },
		{ _Z5scaleIdEvPT_, "_Z5scaleIdEvPT_" },
		{ reduce_rows, "reduce_rows" } };
#define N_KERNELS (sizeof(kernels) / sizeof(kernels[0]))

struct lib {
	launch_fn launch;
	drv_launch_fn drv_launch;
	int (*sync)(void);
	int (*alloc)(void **, size_t);
	int (*release)(void *);
	void *function[N_KERNELS];
	void *driver; /* what dlopen gave; NULL: a runtime */
};

#ifdef FINDJOB_STATIC
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int cudaDeviceSynchronize(void);
int cudaSetDevice(int);
#endif

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void rest(uint64_t us)
{
	struct timespec t = { (time_t)(us / 1000000),
			      (long)(us % 1000000) * 1000 };

	nanosleep(&t, NULL);
}

/* Half a minute at most: whoever started this may have gone. */
static void await_line(void)
{
	char c;

	alarm(30);
	while (read(0, &c, 1) == 1 && c != '\n')
		;
	alarm(0);
}

static void *need(void *h, const char *name)
{
	void *p = h ? dlsym(h, name) : NULL;

	if (!p) {
		fprintf(stderr, "findjob: no %s: %s\n", name, dlerror());
		exit(1);
	}
	return p;
}

static void name_kernels(struct lib *l)
{
	void *h = l->driver;
	int (*init)(unsigned) = (int (*)(unsigned))need(h, "cuInit");
	int (*load)(void **, const void *) =
		(int (*)(void **, const void *))need(h, "cuModuleLoadData");
	int (*get)(void **, void *, const char *) =
		(int (*)(void **, void *, const char *))need(
			h, "cuModuleGetFunction");
	void *module;
	size_t i;

	l->drv_launch = (drv_launch_fn)need(h, "cuLaunchKernel");
	l->sync = (int (*)(void))need(h, "cuCtxSynchronize");
	if (init(0) || load(&module, ""))
		exit(1);
	for (i = 0; i < N_KERNELS; i++)
		if (get(&l->function[i], module, kernels[i].name))
			exit(1);
}

static void open_lib(struct lib *l, const char *path, bool driver)
{
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!h) {
		fprintf(stderr, "findjob: %s\n", dlerror());
		exit(1);
	}
	if (driver) {
		l->driver = h;
		return;
	}
	l->launch = (launch_fn)need(h, "cudaLaunchKernel");
	l->sync = (int (*)(void))need(h, "cudaDeviceSynchronize");
	l->alloc = (int (*)(void **, size_t))need(h, "cudaMalloc");
	l->release = (int (*)(void *))need(h, "cudaFree");
	if (((int (*)(int))need(h, "cudaSetDevice"))(0))
		exit(1);
}

static int launch(struct lib *l, size_t k)
{
	dim3 one = { 1, 1, 1 };

	if (l->drv_launch)
		return l->drv_launch(l->function[k], 1, 1, 1, 1, 1, 1, 0, NULL,
				     NULL, NULL);
	return l->launch((const void *)kernels[k].host_side, one, one, NULL, 0,
			 NULL);
}

/* Both failures of a turn; false when the device did not behave so. */
static bool too_much(struct lib *l)
{
	void *p, *q;

	return !l->alloc(&p, 600u << 20) && l->alloc(&q, 600u << 20) == 2 &&
	       !l->release(p) && !l->alloc(&q, 600u << 20) &&
	       l->alloc(&p, 2048ull << 20) == 2 && !l->release(q);
}

int main(int argc, char **argv)
{
	static uint64_t at[MAX_ROUNDS];
	unsigned wait_ms = 0, late_ms = 0, rounds = 100, us = 2000, r, i;
	uint64_t count[N_KERNELS] = { 0 }, begin = 0, end = 0;
	struct lib lib[MAX_LIBS] = { { 0 } };
	unsigned n = 0, k;
	bool driver = false, alloc = false;
	int c;

	while ((c = getopt(argc, argv, "w:l:n:u:ma")) != -1)
		switch (c) {
		case 'w': wait_ms = (unsigned)atoi(optarg); break;
		case 'l': late_ms = (unsigned)atoi(optarg); break;
		case 'n': rounds = (unsigned)atoi(optarg); break;
		case 'u': us = (unsigned)atoi(optarg); break;
		case 'm': driver = true; break;
		case 'a': alloc = true; break;
		default: return 2;
		}
	if (rounds > MAX_ROUNDS)
		return 2;
	for (i = 0; i < 2; i++) {
		if (i) {
			printf("%d\n", (int)getpid());
			fflush(stdout);
			if (wait_ms)
				rest(wait_ms * 1000);
			else
				await_line();
		}
		if (i == !late_ms)
			continue;
#ifdef FINDJOB_STATIC
		lib[n].launch = cudaLaunchKernel;
		lib[n++].sync = cudaDeviceSynchronize;
		cudaSetDevice(0);
#endif
		begin = now();
		for (; optind < argc && n < MAX_LIBS; n++)
			open_lib(&lib[n], argv[optind++], driver);
		end = now();
		if (i) /* 1: launch at once */
			rest((late_ms - 1) * 1000);
		for (k = 0; k < n; k++)
			if (lib[k].driver)
				name_kernels(&lib[k]);
	}
	for (r = 0; r < rounds; r++) {
		at[r] = now();
		for (i = 0; i < n; i++) {
			for (k = 0; k < N_KERNELS; k++, count[k - 1]++)
				if (launch(&lib[i], k))
					return 1;
			if (lib[i].sync())
				return 1;
		}
		if (alloc && r % 10 == 0 && !too_much(&lib[0]))
			return 1;
		rest(us);
	}
	printf("done\n");
	fflush(stdout);
	if (!wait_ms) /* names are looked for while it is there */
		await_line();
	for (k = 0; k < N_KERNELS; k++)
		printf("%s %llu\n", kernels[k].name,
		       (unsigned long long)count[k]);
	printf("opened %llu %llu\nfirst", (unsigned long long)begin,
	       (unsigned long long)end);
	for (r = 0; r < rounds; r++)
		printf(" %llu", (unsigned long long)at[r]);
	printf("\n");
	return 0;
}
