/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * NVTX ranges, where a library exports the functions: libnvToolsExt of CUDA 12
 * and before. The header-only NVTX 3 compiles them into the program: nothing is
 * there to be hooked, and a process that maps no such library pays nothing.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/discover.h"
#include "capture/elf.h"
#include "capture/mapped.h"
#include "capture/maps.h"
#include "capture/procfs.h"
#include "capture/session.h"

#define MAX_FILES 2048 /* executable mappings that are looked through */
#define MAX_ATTACHED 64

#define NO PT_SLOT_ABSENT
#define COOKIE(op, msg, slot, domain, id)                                      \
	PT_NVTX_COOKIE(PT_NVTX_##op, PT_NVTX_MSG_##msg, slot, domain, id)
static const struct point {
	const char *symbol;
	uint64_t cookie;
	bool ret; /* it gives a handle */
} points[] = { /* nvToolsExt.h; W variants take wide characters: no text */
	{ "nvtxRangePushA", COOKIE(PUSH, TEXT, 0, NO, NO), false },
	{ "nvtxRangePushW", COOKIE(PUSH, NONE, 0, NO, NO), false },
	{ "nvtxRangePushEx", COOKIE(PUSH, ATTR, 0, NO, NO), false },
	{ "nvtxRangePop", COOKIE(POP, NONE, 0, NO, NO), false },
	{ "nvtxRangeStartA", COOKIE(START, TEXT, 0, NO, NO), true },
	{ "nvtxRangeStartW", COOKIE(START, NONE, 0, NO, NO), true },
	{ "nvtxRangeStartEx", COOKIE(START, ATTR, 0, NO, NO), true },
	{ "nvtxRangeEnd", COOKIE(END, NONE, 0, NO, 0), false },
	{ "nvtxMarkA", COOKIE(MARK, TEXT, 0, NO, NO), false },
	{ "nvtxMarkEx", COOKIE(MARK, ATTR, 0, NO, NO), false },
	{ "nvtxDomainRangePushEx", COOKIE(PUSH, ATTR, 1, 0, NO), false },
	{ "nvtxDomainRangePop", COOKIE(POP, NONE, 0, 0, NO), false },
	{ "nvtxDomainRangeStartEx", COOKIE(START, ATTR, 1, 0, NO), true },
	{ "nvtxDomainRangeEnd", COOKIE(END, NONE, 0, 0, 1), false },
	{ "nvtxDomainMarkEx", COOKIE(MARK, ATTR, 1, 0, NO), false },
	{ "nvtxDomainRegisterStringA", COOKIE(STRING, TEXT, 1, 0, NO), true },
};
#define N_POINTS (sizeof(points) / sizeof(points[0]))

/* What bpf/nvtx.bpf.c reads there. */
static struct pt_entry_use use_of(const struct point *p)
{
	const uint32_t slot[] = { PT_NVTX_COOKIE_SLOT(p->cookie),
				  PT_NVTX_COOKIE_DOMAIN(p->cookie),
				  PT_NVTX_COOKIE_ID(p->cookie) };
	struct pt_entry_use use = { .stack = p->ret };
	size_t i;

	for (i = 0; i < sizeof(slot) / sizeof(slot[0]); i++)
		if (slot[i] != NO)
			use.args |= PT_ENTRY_ARG(slot[i]);
	return use;
}

struct attached {
	pid_t pid; /* 0: every process (perf door) */
	uint64_t start, inode;
	uint32_t dev;
	int fd[2]; /* multi links: returns, entries; -1 none */
};

struct pt_nvtx {
	bool multi;
	struct attached lib[MAX_ATTACHED];
	size_t n_libs;
	struct bpf_link *link[MAX_ATTACHED * 2 * N_POINTS]; /* perf links */
	size_t n_links;
	unsigned symbols;
};

struct pt_nvtx *pt_nvtx_new(bool multi)
{
	struct pt_nvtx *n = calloc(1, sizeof(*n));

	if (n)
		n->multi = multi;
	return n;
}

bool pt_nvtx_lib(const char *path)
{
	static const char stem[] = "libnvToolsExt";
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	return !strncmp(base, stem, sizeof(stem) - 1) &&
	       strstr(base + sizeof(stem) - 1, ".so");
}

static int attach_multi(struct pt_capture *c, struct attached *a,
			const char *path, const uint64_t *at)
{
	uint64_t off[N_POINTS], cookie[N_POINTS];
	struct bpf_program *prog[] = { c->skel->progs.pt_nvtx_return_multi,
				       c->skel->progs.pt_nvtx_enter_multi };
	uint32_t i, k, n;

	/* returns first: an entry whose return is missed has no handle */
	for (k = 0; k < 2; k++) {
		for (i = 0, n = 0; i < N_POINTS; i++) {
			if (!at[i] || (!k && !points[i].ret))
				continue;
			off[n] = at[i];
			cookie[n++] = points[i].cookie;
		}
		if (!n)
			continue;
		a->fd[k] = pt_uprobe_multi(bpf_program__fd(prog[k]), path, off,
					   cookie, n,
					   k ? 0 : PT_UPROBE_MULTI_RETURN,
					   a->pid);
		if (a->fd[k] < 0)
			return a->fd[k];
	}
	return 0;
}

static int attach_perf(struct pt_capture *c, const char *path,
		       const uint64_t *at)
{
	struct pt_nvtx *n = c->nvtx;
	struct bpf_link *l;
	size_t i, k;

	for (i = 0; i < N_POINTS; i++) {
		for (k = 0; at[i] && k < (points[i].ret ? 2 : 1); k++) {
			LIBBPF_OPTS(bpf_uprobe_opts, o,
				    .bpf_cookie = points[i].cookie,
				    .retprobe = k != 0);

			l = bpf_program__attach_uprobe_opts(
				k ? c->skel->progs.pt_nvtx_return :
				    c->skel->progs.pt_nvtx_enter,
				-1, path, at[i], &o);
			if (!l)
				return -errno;
			n->link[n->n_links++] = l;
		}
	}
	return 0;
}

static void attach_file(struct pt_capture *c, pid_t pid, uint64_t start,
			const struct pt_gpulib *f)
{
	struct pt_nvtx *n = c->nvtx;
	const char *names[N_POINTS];
	struct pt_entry_use use[N_POINTS];
	struct pt_elf_entry e[N_POINTS] = { 0 };
	uint64_t at[N_POINTS];
	struct pt_err err = { "" };
	char path[PT_FD_PATH];
	struct attached *a;
	int found, r, fd;
	size_t i;

	for (i = 0; i < n->n_libs; i++)
		if (n->lib[i].inode == f->inode && n->lib[i].dev == f->dev &&
		    (!n->multi ||
		     (n->lib[i].pid == pid && n->lib[i].start == start)))
			return;
	if (n->n_libs == MAX_ATTACHED)
		return;
	for (i = 0; i < N_POINTS; i++) {
		names[i] = points[i].symbol;
		use[i] = use_of(&points[i]);
	}
	fd = pt_gpulib_open(f);
	found = fd < 0 ? pt_err_set(&err, fd, "%s", strerror(-fd)) :
			 pt_elf_entries(fd, names, use, N_POINTS, e, &err);
	for (i = 0; i < N_POINTS; i++)
		at[i] = e[i].offset ? e[i].offset + e[i].place.skip : 0;
	/* kept even when it fails: it would fail every time */
	a = &n->lib[n->n_libs++];
	*a = (struct attached){ .pid = n->multi ? pid : 0, .start = start,
				.inode = f->inode, .dev = f->dev,
				.fd = { -1, -1 } };
	r = found < 0 ? found :
	    !found    ? -ENOENT :
	    n->multi  ? attach_multi(c, a, pt_fd_path(fd, path), at) :
			attach_perf(c, pt_fd_path(fd, path), at);
	if (fd >= 0)
		close(fd);
	if (!r)
		n->symbols += (unsigned)found;
	if (!n->symbols)
		pt_hook_set(c, "nvtx", "none",
			    "the NVTX library could not be hooked: %s",
			    found < 0 ? err.msg : strerror(-r));
	else
		pt_hook_set(c, "nvtx",
			    n->multi ? "uprobe_multi" : "uprobe_perf", "%s", "");
}

/* Most processes have none: that is told without looking at every file. */
static bool maps_one(pid_t pid)
{
	struct pt_filemaps m;
	struct pt_gpulib g;
	bool found = false;

	if (!pt_filemaps_open(&m, pid, true))
		while (!found && pt_filemaps_next(&m, &g))
			found = strstr(g.path_display, "/libnvToolsExt");
	pt_filemaps_close(&m);
	return found;
}

void pt_nvtx_process(struct pt_capture *c, pid_t pid)
{
	struct pt_gpulib *files;
	struct pt_proc_stat st;
	ssize_t n, i;

	if (!c->nvtx || !maps_one(pid) || pt_proc_stat(pid, &st))
		return;
	files = calloc(MAX_FILES, sizeof(*files));
	if (!files)
		return;
	n = pt_exec_files(pid, files, MAX_FILES);
	for (i = 0; i < n; i++)
		if (pt_nvtx_lib(files[i].path_display))
			attach_file(c, pid, st.start_ticks, &files[i]);
	free(files);
}

void pt_nvtx_free(struct pt_nvtx *n)
{
	size_t i;

	if (!n)
		return;
	for (i = 0; i < n->n_libs; i++) {
		if (n->lib[i].fd[0] >= 0)
			close(n->lib[i].fd[0]);
		if (n->lib[i].fd[1] >= 0)
			close(n->lib[i].fd[1]);
	}
	for (i = 0; i < n->n_links; i++)
		bpf_link__destroy(n->link[i]);
	free(n);
}
