// SPDX-License-Identifier: BSD-2-Clause
/* GPU libraries that are mapped in a process. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "capture/discover.h"
#include "capture/elf.h"
#include "capture/mapped.h"
#include "capture/maps.h"

#define MAX_INSIDE 2048 /* files that are looked into */

enum pt_gpulib_kind pt_gpulib_kind(const char *path)
{
	static const struct {
		const char *stem;
		enum pt_gpulib_kind kind;
	} libs[] = {
		{ "libcudart", PT_GPULIB_CUDART }, { "libcuda", PT_GPULIB_CUDA },
		{ "libamdhip64", PT_GPULIB_HIP },  { "libnccl", PT_GPULIB_NCCL },
		{ "librccl", PT_GPULIB_NCCL },
	};
	const char *base = strrchr(path, '/');
	size_t i, len;

	base = base ? base + 1 : path;
	for (i = 0; i < sizeof(libs) / sizeof(libs[0]); i++) {
		len = strlen(libs[i].stem);
		if (strncmp(base, libs[i].stem, len))
			continue;
		/* pip wheels rename it to libcudart-<hash>.so.11.0 */
		if (!strncmp(base + len, ".so", 3) ||
		    (base[len] == '-' && strstr(base + len, ".so")))
			return libs[i].kind;
	}
	return 0;
}

/* ---- what a mapped file is, whatever its name ---------------------------------- */

/* By its own name for the loader (DT_SONAME), by the functions that it exports, and for a
 * runtime that was linked into a program by its symbol table. Each file is looked at once.
 * Not for several threads. */

/* One function that each library has and nobody else would. */
static const char *const marks[] = { "cudaLaunchKernel", "cuLaunchKernel",
				     "hipLaunchKernel", "ncclAllReduce" };
static const enum pt_gpulib_kind mark_kind[] = {
	PT_GPULIB_CUDART, PT_GPULIB_CUDA, PT_GPULIB_HIP, PT_GPULIB_NCCL
};
#define N_MARKS (sizeof(marks) / sizeof(marks[0]))

#define SYMTAB_MAX (64u << 20)
#define CACHE 8192 /* files */
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
			    dyn.symtab_bytes <= SYMTAB_MAX;
	close(fd);
}

/* A slot may be lost to another file: then it is looked at again. */
static struct known *known(const struct pt_gpulib *g)
{
	uint32_t path = pt_hash_of(g->path_display, strlen(g->path_display));
	uint64_t at[2] = { g->inode, (uint64_t)g->dev << 32 ^ path };
	struct known *k = &cache[pt_hash_of(at, sizeof(at)) % CACHE];
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

/*
 * The kind of a mapped file (its place, dev, inode and path_display are read);
 * 0: no GPU library. *by_symbols: it exports the functions and has another
 * library's name: it may be one that goes on to the real one.
 */
static enum pt_gpulib_kind libkind(const struct pt_gpulib *g, bool *by_symbols)
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

/*
 * Does this file carry a CUDA runtime or NCCL that was linked in, with its
 * symbols? Kinds as bits (1 << kind). Reads the symbol table, once; one of
 * more than 64 MiB is left alone.
 */
static unsigned libkind_inside(const struct pt_gpulib *g)
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

/* ---- mappings ------------------------------------------------------------------ */

int pt_gpulib_open(const struct pt_gpulib *g)
{
	const struct pt_mapped m = {
		.pid = g->pid, .start = g->start, .end = g->end,
		.dev = g->dev, .inode = g->inode, .name = g->path_display,
	};

	return pt_mapped_open(&m);
}

static bool listed(const struct pt_gpulib *v, size_t n, const struct pt_gpulib *g)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (v[i].inode == g->inode && v[i].dev == g->dev)
			return true;
	return false;
}

/* Executable mappings of files, each file once; `gpu`: GPU libraries only. */
static ssize_t read_maps(pid_t pid, struct pt_gpulib *out, size_t max, bool gpu)
{
	struct pt_filemaps m;
	struct pt_gpulib g;
	size_t n = 0;
	int err = pt_filemaps_open(&m, pid, true);

	while (!err && n < max && pt_filemaps_next(&m, &g)) {
		if (listed(out, n, &g))
			continue;
		if (gpu)
			g.kind = libkind(&g, &g.by_symbols);
		if (g.kind || !gpu)
			out[n++] = g;
	}
	err = err ?: m.err;
	pt_filemaps_close(&m);
	return err && !n ? err : (ssize_t)n;
}

static bool has_kind(const struct pt_gpulib *v, size_t n,
		     enum pt_gpulib_kind kind)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (v[i].kind == kind && !v[i].by_symbols)
			return true;
	return false;
}

/* Runtimes that were linked into a program or library of this process. */
static size_t add_inside(pid_t pid, struct pt_gpulib *out, size_t n, size_t max)
{
	struct pt_gpulib *f = calloc(MAX_INSIDE, sizeof(*f));
	unsigned kind, kinds;
	ssize_t k, i;

	k = f ? read_maps(pid, f, MAX_INSIDE, false) : 0;
	for (i = 0; i < k; i++) {
		if (listed(out, n, &f[i]))
			continue;
		kinds = libkind_inside(&f[i]);
		for (kind = 1; kinds >> kind && n < max; kind++) {
			if (!(kinds >> kind & 1))
				continue;
			out[n] = f[i];
			out[n].kind = (enum pt_gpulib_kind)kind;
			out[n++].inside = true;
		}
	}
	free(f);
	return n;
}

ssize_t pt_gpulibs(pid_t pid, struct pt_gpulib *out, size_t max)
{
	ssize_t got = read_maps(pid, out, max, true);
	size_t n = 0, i;

	if (got <= 0)
		return got;
	for (i = 0; i < (size_t)got; i++)
		if (!out[i].by_symbols || !has_kind(out, (size_t)got, out[i].kind))
			out[n++] = out[i];
	if (n < max && has_kind(out, n, PT_GPULIB_CUDA))
		n = add_inside(pid, out, n, max);
	return (ssize_t)n;
}

bool pt_gpulib_mapped(pid_t pid, struct pt_gpulib *g, bool driver)
{
	g->pid = pid;
	g->kind = libkind(g, &g->by_symbols);
	return g->kind || (driver && libkind_inside(g));
}

ssize_t pt_exec_files(pid_t pid, struct pt_gpulib *out, size_t max)
{
	return read_maps(pid, out, max, false);
}
