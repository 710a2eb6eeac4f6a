/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a probe costs at a function's entry, and where pipetrace would put it.
 *
 *   places LIBRARY ROUNDS CALLS NAME...
 *
 * Each round calls every function CALLS times without a probe, with an empty program at
 * its entry, and with one at the place chosen, in turns. A line for each function: name,
 * bytes from the entry, and of each of the three the lowest, median and highest ns a call.
 */
#include <bpf/bpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capture/elf.h"
#include "capture/session.h"

#define MAX 32
#define MAX_ROUNDS 64

typedef long (*function)(void *, long, long, long, long, long, long, long, long, void *, void *);

static double ns_a_call(function f, long calls)
{
	static long box[16];
	struct timespec a, b;
	long i;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (i = 0; i < calls; i++)
		f(box, 1, 2, 3, 4, 5, 6, 7, 8, box, NULL);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) /
	       (double)calls;
}

static int empty_program(void)
{
	const struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = PT_ATTACH_UPROBE_MULTI);

	return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "empty", "GPL", code, 2, &o);
}

static double probed(int prog, const char *lib, uint64_t at, function f, long calls)
{
	uint64_t cookie = 0;
	int fd = pt_uprobe_multi(prog, lib, &at, &cookie, 1, 0, getpid());
	double ns;

	if (fd < 0) {
		fprintf(stderr, "places: %s\n", strerror(-fd));
		exit(1);
	}
	ns = ns_a_call(f, calls);
	close(fd);
	return ns;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const struct pt_entry_use use[MAX] = { [0 ... MAX - 1] = { .args = 0x3f, .stack = 1 } };
	static double ns[MAX][3][MAX_ROUNDS];
	struct pt_elf_entry e[MAX];
	struct pt_err err = { "" };
	int n = argc - 4, rounds, r, i, k, prog, fd;
	function f[MAX];
	long calls;
	void *lib;

	if (n < 1 || n > MAX || atoi(argv[2]) < 1 || atoi(argv[2]) > MAX_ROUNDS) {
		fprintf(stderr, "usage: places LIBRARY ROUNDS CALLS NAME...\n");
		return 2;
	}
	rounds = atoi(argv[2]);
	calls = atol(argv[3]);
	lib = dlopen(argv[1], RTLD_NOW);
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	prog = empty_program();
	if (!lib || fd < 0 || prog < 0 ||
	    pt_elf_entries(fd, (const char *const *)argv + 4, use, (size_t)n, e, &err) != n) {
		fprintf(stderr, "places: %s %s\n", lib ? strerror(errno) : dlerror(), err.msg);
		return 1;
	}
	for (i = 0; i < n; i++)
		f[i] = (function)dlsym(lib, argv[4 + i]);
	for (r = 0; r < rounds; r++)
		for (i = 0; i < n; i++) {
			ns[i][0][r] = ns_a_call(f[i], calls);
			ns[i][1][r] = probed(prog, argv[1], e[i].offset, f[i], calls);
			ns[i][2][r] = probed(prog, argv[1], e[i].offset + e[i].place.skip, f[i],
					     calls);
		}
	for (i = 0; i < n; i++) {
		printf("%s %u", argv[4 + i], e[i].place.skip);
		for (k = 0; k < 3; k++) {
			qsort(ns[i][k], (size_t)rounds, sizeof(double), by_value);
			printf(" %.0f %.0f %.0f", ns[i][k][0], ns[i][k][rounds / 2],
			       ns[i][k][rounds - 1]);
		}
		putchar('\n');
	}
	return 0;
}
