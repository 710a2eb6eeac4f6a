/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The step marker: an entry probe on a function that the user named. Never a
 * return probe: a function that throws, or looks at its own stack, would end
 * the target.
 */
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/discover.h"
#include "capture/elf.h"
#include "capture/mapped.h"
#include "capture/session.h"

#define MAX_FILES 2048 /* executable mappings that are looked through */
#define MARKER_LIB 0xffff
#define MARKER_COOKIE                                                          \
	PT_COOKIE(PT_API_STEP_MARKER, MARKER_LIB, PT_SLOT_ABSENT,              \
		  PT_SLOT_ABSENT, PT_SLOT_ABSENT, PT_SLOT_ABSENT)

struct pt_marker {
	const char *symbol;
	const char *lib; /* beginning of the file's name; len 0: any file */
	size_t lib_len;
	bool multi;
	int fd[PT_MAX_TRAINERS]; /* multi links, one a process */
	struct bpf_link *link[PT_MAX_TRAINERS]; /* perf: one a file */
	size_t n;
};

static bool right_file(const struct pt_marker *k, const struct pt_gpulib *f)
{
	const char *base = strrchr(f->path_display, '/');

	base = base ? base + 1 : f->path_display;
	return !strncmp(base, k->lib, k->lib_len);
}

static int attach_at(struct pt_capture *c, struct pt_marker *k, pid_t pid,
		     const char *path, uint64_t offset)
{
	uint64_t cookie = MARKER_COOKIE;
	LIBBPF_OPTS(bpf_uprobe_opts, o, .bpf_cookie = cookie);
	struct bpf_link *l;
	int fd;

	if (k->multi) {
		fd = pt_uprobe_multi(
			bpf_program__fd(c->skel->progs.pt_gpu_enter_multi),
			path, &offset, &cookie, 1, 0, pid);
		if (fd < 0)
			return fd;
		k->fd[k->n++] = fd;
		return 0;
	}
	l = bpf_program__attach_uprobe_opts(c->skel->progs.pt_gpu_enter, -1,
					    path, offset, &o);
	if (!l)
		return -errno;
	k->link[k->n++] = l;
	return 0;
}

/* In the first file of the process that has the function. 0 or -errno;
 * -ENOENT: none has it. */
static int attach_process(struct pt_capture *c, struct pt_marker *k, pid_t pid)
{
	struct pt_gpulib *files = calloc(MAX_FILES, sizeof(*files));
	uint64_t offset;
	int ret = -ENOENT, fd;
	char path[PT_FD_PATH];
	struct pt_err e;
	ssize_t n, i;

	if (!files)
		return -ENOMEM;
	n = pt_exec_files(pid, files, MAX_FILES);
	for (i = 0; i < n && ret == -ENOENT; i++) {
		fd = right_file(k, &files[i]) ? pt_gpulib_open(&files[i]) : -1;
		if (fd < 0)
			continue;
		if (pt_elf_symbols(fd, &k->symbol, 1, &offset, &e) == 1)
			ret = attach_at(c, k, pid, pt_fd_path(fd, path),
					offset);
		close(fd);
	}
	free(files);
	return n < 0 ? (int)n : ret;
}

/* Without multi links one probe serves all processes. */
static bool complete(const struct pt_marker *k)
{
	return k->n == PT_MAX_TRAINERS || (!k->multi && k->n);
}

int pt_marker_scan(struct pt_capture *c)
{
	struct pt_marker *k = c->marker;
	pid_t pids[PT_MAX_TRAINERS];
	struct pt_tree t = { 0 };
	bool unreadable = false;
	size_t r, i, n;
	int ret = 0, err = -ENOENT;

	if (!k || k->n)
		return 0;
	ret = pt_tree_snapshot(&t);
	for (r = 0; !ret && r < c->n_roots; r++) {
		n = pt_trainers(&t, c->roots[r], pids, PT_MAX_TRAINERS,
				&unreadable);
		if (!n) /* no GPU library yet: the process itself */
			pids[n++] = c->roots[r];
		for (i = 0; i < n && i < PT_MAX_TRAINERS && !complete(k); i++) {
			int e = -ESRCH;

			if (pt_is_target(c, pids[i]))
				e = attach_process(c, k, pids[i]);

			if (e && e != -ENOENT && e != -ESRCH)
				err = e;
		}
	}
	pt_tree_free(&t);
	if (!ret && !k->n)
		ret = err;
	if (ret)
		pt_hook_set(c, "marker", "none",
			    "the step marker could not be hooked: %s",
			    ret == -ENOENT ? "no such function" :
					     strerror(-ret));
	else
		pt_hook_set(c, "marker", k->multi ? "uprobe_multi" :
						    "uprobe_perf", "%s", "");
	return ret;
}

int pt_marker_open(struct pt_capture *c, const struct pt_capture_opts *o,
		   struct pt_err *err)
{
	const char *colon = strchr(o->step_marker, ':');
	struct pt_marker *k = calloc(1, sizeof(*k));
	int ret;

	if (!k)
		return pt_err_set(err, -ENOMEM, "out of memory");
	c->marker = k;
	k->symbol = colon ? colon + 1 : o->step_marker;
	k->lib = o->step_marker;
	k->lib_len = colon ? (size_t)(colon - o->step_marker) : 0;
	k->multi = c->feat.uprobe_multi && !o->no_uprobe_multi;
	if (!c->feat.uprobe)
		return pt_err_set(err, -EOPNOTSUPP,
				  "--step-marker needs a kernel with uprobes and cookies (5.15)");
	if (o->marker_later) /* what runs now is not the job's program yet */
		return 0;
	ret = pt_marker_scan(c);
	if (ret == -ENOENT)
		pt_err_set(err, ret,
			   "there is no function %s in process %d%s: nm -D lists a library's; inlined and stripped ones have no name",
			   o->step_marker, (int)c->roots[0],
			   colon ? " and that library" :
				   " and the libraries that it has mapped");
	else if (ret)
		pt_err_set(err, ret, "cannot hook the step marker %s: %s",
			   o->step_marker, strerror(-ret));
	return ret;
}

void pt_marker_free(struct pt_marker *k)
{
	size_t i;

	if (!k)
		return;
	for (i = 0; i < k->n; i++) {
		if (k->multi)
			close(k->fd[i]);
		else
			bpf_link__destroy(k->link[i]);
	}
	free(k);
}
