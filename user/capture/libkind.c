/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/libkind.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/elf.h"

/* One function that each library has and nobody else would. */
static const char *const marks[] = { "cudaLaunchKernel", "cuLaunchKernel",
				     "hipLaunchKernel", "ncclAllReduce" };
static const enum pt_gpulib_kind mark_kind[] = {
	PT_GPULIB_CUDART, PT_GPULIB_CUDA, PT_GPULIB_HIP, PT_GPULIB_NCCL
};
#define N_MARKS (sizeof(marks) / sizeof(marks[0]))

#define MAX_INSIDE (64u << 20)
#define CACHE 8192 /* files; a power of two */
struct known {
	uint64_t inode;
	uint32_t dev, path; /* path: a hash; an inode may be used again */
	uint8_t kind, by_symbols, inside, looked_inside;
	uint8_t static_symbols, used;
};
static struct known cache[CACHE];

/* A process may map thousands of files that are made to be long to read: in any
 * ten seconds they get three. What is not looked at now is when it is seen again. */
#define WINDOW_NS 10000000000ull
#define LOOK_NS 3000000000ull
static uint64_t window_ns, spent_ns;

static bool may_look(uint64_t now)
{
	if (now - window_ns >= WINDOW_NS) {
		window_ns = now;
		spent_ns = 0;
	}
	return spent_ns < LOOK_NS;
}

static uint32_t hash_of(const char *s)
{
	uint32_t h = 2166136261u;

	while (*s)
		h = (h ^ (unsigned char)*s++) * 16777619u;
	return h;
}

static void look(const struct pt_gpulib *g, struct known *k)
{
	bool exports[N_MARKS];
	struct pt_elf_dyn dyn;
	int fd = pt_gpulib_open(g);
	size_t i;

	if (fd < 0)
		return;
	if (!pt_elf_dyn(fd, marks, N_MARKS, exports, &dyn)) {
		k->kind = (uint8_t)pt_gpulib_kind(dyn.soname);
		for (i = 0; i < N_MARKS && !k->kind; i++)
			if (exports[i]) {
				k->kind = (uint8_t)mark_kind[i];
				k->by_symbols = 1;
			}
	}
	k->static_symbols = dyn.symtab_bytes &&
			    dyn.symtab_bytes <= MAX_INSIDE;
	close(fd);
}

/* A slot may be lost to another file: then it is looked at again. */
static struct known *known(const struct pt_gpulib *g)
{
	uint32_t path = hash_of(g->path_display);
	uint64_t h = (g->inode ^ (uint64_t)g->dev << 32 ^ path) *
		     0x9e3779b97f4a7c15ull;
	struct known *k = &cache[(h >> 40) & (CACHE - 1)];
	uint64_t now;

	if (k->used && k->inode == g->inode && k->dev == g->dev &&
	    k->path == path)
		return k;
	*k = (struct known){ .inode = g->inode, .dev = g->dev, .path = path };
	now = pt_now_ns();
	if (!may_look(now))
		return k;
	k->used = 1;
	look(g, k);
	spent_ns += pt_now_ns() - now;
	return k;
}

enum pt_gpulib_kind pt_libkind(const struct pt_gpulib *g, bool *by_symbols)
{
	enum pt_gpulib_kind kind = pt_gpulib_kind(g->path_display);
	const struct known *k;

	*by_symbols = false;
	if (kind)
		return kind;
	k = known(g);
	*by_symbols = k->by_symbols;
	return (enum pt_gpulib_kind)k->kind;
}

unsigned pt_libkind_inside(const struct pt_gpulib *g)
{
	static const char *const names[] = { "cudaLaunchKernel",
					     "ncclAllReduce" };
	struct known *k = known(g);
	uint64_t off[2], now = pt_now_ns();
	struct pt_err err;
	int fd;

	if (k->looked_inside || !may_look(now))
		return k->inside;
	k->looked_inside = 1;
	if (!k->static_symbols)
		return 0;
	fd = pt_gpulib_open(g);
	if (fd < 0)
		return 0;
	if (pt_elf_symbols(fd, names, 2, off, &err) > 0)
		k->inside = (uint8_t)((off[0] ? 1u << PT_GPULIB_CUDART : 0) |
				      (off[1] ? 1u << PT_GPULIB_NCCL : 0));
	close(fd);
	spent_ns += pt_now_ns() - now;
	return k->inside;
}
