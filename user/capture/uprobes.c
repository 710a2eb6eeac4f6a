/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU entry points of the target. One link per process and library file where
 * the kernel has multi-uprobe links (other processes then pay nothing), else
 * one perf event per symbol and file, for every process, filtered in BPF.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "capture/discover.h"
#include "capture/kernels.h"
#include "capture/mapped.h"
#include "capture/points.h"
#include "capture/procfs.h"
#include "capture/session.h"

#define PT_MAX_LIBS 65535 /* attachments in a session; fits the cookie */
#define PT_LIBS_PER_PROC 16

/* The brief ones (pt_point) may go before the others. */
enum { RETURNS, ENTRIES, BRIEF_RETURNS, BRIEF_ENTRIES, N_LINKS };

/* One library file in one process. Its number is its place in the table, so
 * an entry stays when the process has gone. */
struct attached {
	pid_t pid; /* 0: every process (perf door) */
	uint32_t dev;
	uint64_t inode;
	uint64_t start; /* of the process, to tell it from a later one */
	int fd[N_LINKS]; /* multi links; -1 none */
	enum pt_gpulib_kind kind;
	bool gone;
	bool by_symbols;
	bool bare; /* its launches are told where they reach the driver */
	uint64_t hooked_ns;
};

struct pt_uprobes {
	bool multi;
	struct attached *lib;
	uint32_t n_libs, cap_libs;
	struct bpf_link **link; /* perf links */
	size_t n_link, cap_link;
	uint64_t handles; /* changes of pt_handles that were looked at */
	uint64_t handles_ns; /* not before then again */
	uint32_t symbols; /* attached in all */
	uint32_t failed;  /* libraries that did not take a hook */
};

int pt_uprobes_new(struct pt_capture *c, bool multi)
{
	c->uprobes = calloc(1, sizeof(*c->uprobes));
	if (!c->uprobes)
		return -ENOMEM;
	c->uprobes->multi = multi;
	return 0;
}

static bool is_lib(const struct pt_uprobes *u, const struct attached *a,
		   pid_t pid, uint64_t start, const struct pt_gpulib *l)
{
	return a->dev == l->dev && a->inode == l->inode && a->kind == l->kind &&
	       (!u->multi || (a->pid == pid && a->start == start));
}

static int room_for_lib(struct pt_uprobes *u)
{
	uint32_t cap = u->cap_libs ? 2 * u->cap_libs : 16;
	struct attached *p;

	if (u->n_libs < u->cap_libs)
		return 0;
	if (u->n_libs >= PT_MAX_LIBS)
		return -ENOSPC;
	p = realloc(u->lib, cap * sizeof(*p));
	if (!p)
		return -ENOMEM;
	u->lib = p;
	u->cap_libs = cap;
	return 0;
}

static int keep_link(struct pt_uprobes *u, struct bpf_link *l)
{
	if (u->n_link == u->cap_link) {
		size_t cap = u->cap_link ? 2 * u->cap_link : 64;
		struct bpf_link **p = realloc(u->link, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		u->link = p;
		u->cap_link = cap;
	}
	u->link[u->n_link++] = l;
	return 0;
}

/* Is a library of this layer hooked in the process, by links of its own? */
static bool has_layer(const struct pt_uprobes *u, pid_t pid, unsigned layer)
{
	pt_each_of(const struct attached, a, u->lib, u->n_libs) {
		if (a->pid == pid && !a->gone && a->fd[ENTRIES] >= 0 &&
		    pt_layer_of(a->kind) == layer)
			return true;
	}
	return false;
}

/* Where this process has an outer library's code: its calls of an inner one
 * are known by it. Again after an exec, which moves it. */
static void note_text(struct pt_capture *c, pid_t pid, uint32_t lib,
		      const struct pt_gpulib *l)
{
	struct pt_text_key key = { .tgid = (uint32_t)pid, .lib = lib };
	int fd = bpf_map__fd(c->skel->maps.pt_texts);
	struct pt_text text, old;

	if (pt_layer_of(l->kind) != PT_LAYER_OUTER)
		return;
	text = (struct pt_text){ .begin = l->start, .end = l->end,
				 .inner = has_layer(c->uprobes, pid, PT_LAYER_INNER),
				 .bare = c->uprobes->lib[lib].bare };
	if (!bpf_map_lookup_elem(fd, &key, &old)) {
		text.launches = old.launches;
		text.reached = old.reached;
	}
	/* Without it the stack alone decides. */
	bpf_map_update_elem(fd, &key, &text, BPF_ANY);
}

/* An inner library's hooks come, or have: then what launches do is counted anew. */
static void tell_texts(struct pt_capture *c, pid_t pid, bool inner)
{
	int fd = bpf_map__fd(c->skel->maps.pt_texts);
	struct pt_text_key key = { .tgid = (uint32_t)pid };
	struct pt_text text;

	for (key.lib = 0; c->uprobes->multi && key.lib < c->uprobes->n_libs; key.lib++) {
		if (c->uprobes->lib[key.lib].pid != pid ||
		    bpf_map_lookup_elem(fd, &key, &text))
			continue;
		text.inner = inner;
		text.launches = text.reached = 0;
		bpf_map_update_elem(fd, &key, &text, BPF_EXIST);
	}
}

static void forget_text(struct pt_capture *c, pid_t pid, uint32_t lib)
{
	struct pt_text_key key = { .tgid = (uint32_t)pid, .lib = lib };

	bpf_map_delete_elem(bpf_map__fd(c->skel->maps.pt_texts), &key);
}

static void close_attached(struct attached *a, unsigned from)
{
	pt_close_links(a->fd + from, N_LINKS - from);
	for (; from < N_LINKS; from++)
		a->fd[from] = -1;
}

/* The points of one of the four links. */
static int attach_some(struct pt_capture *c, const char *path, struct attached *a,
		       const struct pt_point *p, int n, unsigned link)
{
	bool brief = link >= BRIEF_RETURNS, ret = link == RETURNS || link == BRIEF_RETURNS;
	uint64_t off[PT_MAX_POINTS], cookie[PT_MAX_POINTS];
	uint32_t k = 0;
	int i;

	for (i = 0; i < n; i++) {
		if (p[i].brief != brief || (ret && !p[i].ret))
			continue;
		off[k] = p[i].offset;
		cookie[k++] = p[i].cookie;
	}
	if (!k)
		return 0;
	a->fd[link] = pt_uprobe_multi(
		bpf_program__fd(ret ? c->skel->progs.pt_gpu_return_multi :
				      c->skel->progs.pt_gpu_enter_multi),
		path, off, cookie, k, ret ? PT_UPROBE_MULTI_RETURN : 0, a->pid);
	return a->fd[link] < 0 ? a->fd[link] : 0;
}

static int attach_multi(struct pt_capture *c, const char *path,
			struct attached *a, const struct pt_point *p, int n)
{
	/* Returns first, so that no call is seen to enter and never return
	 * only because its return hook was not there yet. */
	int r = attach_some(c, path, a, p, n, RETURNS);

	r = r ?: attach_some(c, path, a, p, n, BRIEF_RETURNS);
	r = r ?: attach_some(c, path, a, p, n, BRIEF_ENTRIES);
	r = r ?: attach_some(c, path, a, p, n, ENTRIES);
	/* Returns without their entries would only confuse. */
	if (r)
		close_attached(a, 0);
	return r;
}

static int attach_perf_one(struct pt_capture *c, const char *path,
			   const struct pt_point *p, bool ret)
{
	LIBBPF_OPTS(bpf_uprobe_opts, o, .bpf_cookie = p->cookie, .retprobe = ret);
	struct bpf_link *l;
	int r;

	/* pid -1: a per-task event would tax every context switch. */
	l = bpf_program__attach_uprobe_opts(
		ret ? c->skel->progs.pt_gpu_return : c->skel->progs.pt_gpu_enter,
		-1, path, p->offset, &o);
	if (!l)
		return -errno;
	r = keep_link(c->uprobes, l);
	if (r)
		bpf_link__destroy(l);
	return r;
}

static int attach_perf(struct pt_capture *c, const char *path,
		       const struct pt_point *p, int n)
{
	int i, r;

	for (i = 0; i < n; i++) {
		if (p[i].ret) {
			r = attach_perf_one(c, path, &p[i], true);
			if (r)
				return r;
		}
		r = attach_perf_one(c, path, &p[i], false);
		if (r)
			return r;
	}
	return 0;
}

static void queue_lib(struct pt_capture *c, uint32_t id, uint32_t symbols,
		      const char *path)
{
	struct pt_rec_lib rec;

	pt_rec_begin(&rec, sizeof(rec), PT_REC_LIB, pt_now_ns(),
		     (uint32_t)c->uprobes->lib[id].pid);
	rec.lib = id;
	rec.symbols = symbols;
	snprintf(rec.path, sizeof(rec.path), "%.*s", (int)sizeof(rec.path) - 1,
		 path);
	pt_queue_record(c, &rec, sizeof(rec));
}

/* What there is to hook in a library, and the descriptor through which it was
 * read: it is hooked through the same, so that both are of one file. *fd is -1 or
 * the caller's to close. */
static int find_points(const struct pt_gpulib *l, uint32_t id,
		       struct pt_point *points, int *fd, struct pt_err *err)
{
	*fd = pt_gpulib_open(l);
	if (*fd < 0)
		return pt_err_set(err, *fd, "%s", strerror(-*fd));
	return pt_points_find(*fd, l->kind, id, points, err);
}

static int attach_points(struct pt_capture *c, int fd, struct attached *a,
			 const struct pt_point *p, int n)
{
	char path[PT_FD_PATH];

	pt_fd_path(fd, path);
	return c->uprobes->multi ? attach_multi(c, path, a, p, n) :
				   attach_perf(c, path, p, n);
}

static void attach_lib(struct pt_capture *c, pid_t pid, uint64_t start,
		       const struct pt_gpulib *l)
{
	struct pt_uprobes *u = c->uprobes;
	struct pt_point points[PT_MAX_POINTS];
	struct pt_err err = { "" };
	bool inner = pt_layer_of(l->kind) == PT_LAYER_INNER;
	struct attached *a;
	uint32_t id;
	int n, r, fd;

	for (id = 0; id < u->n_libs; id++) {
		if (!is_lib(u, &u->lib[id], pid, start, l))
			continue;
		note_text(c, pid, id, l);
		return;
	}
	r = room_for_lib(u);
	if (r) {
		u->failed++;
		return;
	}
	/* Noted even when it fails: it would fail every second. */
	a = &u->lib[u->n_libs++];
	*a = (struct attached){ .pid = u->multi ? pid : 0, .dev = l->dev,
				.inode = l->inode, .start = start,
				.fd = { -1, -1, -1, -1 }, .kind = l->kind,
				.by_symbols = l->by_symbols,
				.hooked_ns = pt_now_ns() };
	n = find_points(l, id, points, &fd, &err);
	if (n > 0) {
		note_text(c, pid, id, l);
		/* Before the hooks: from the first call on they must know. */
		if (inner) {
			c->skel->bss->pt_inner = 1;
			tell_texts(c, pid, true);
		}
	}
	r = n > 0 ? attach_points(c, fd, a, points, n) : n;
	if (fd >= 0)
		close(fd);
	if (n > 0 && inner)
		tell_texts(c, pid, !r);
	/* a library of GPU functions that we have no line for, or gone meanwhile */
	if (n == 0 || r == -ESRCH)
		return;
	if (r) {
		u->failed++;
		pt_warn(c, "%s: no hooks: %s", l->path_display,
			n < 0 ? err.msg : strerror(-r));
		return;
	}
	u->symbols += (uint32_t)n;
	queue_lib(c, id, (uint32_t)n, l->path_display);
}

/* A process where nothing above the driver has a name. */
static bool driver_alone(const struct pt_uprobes *u)
{
	bool driver = false;
	uint32_t i;

	for (i = 0; i < u->n_libs; i++) {
		driver |= u->lib[i].kind == PT_GPULIB_CUDA;
		if (u->lib[i].kind == PT_GPULIB_CUDART)
			return false;
	}
	return driver;
}

static void update_hook(struct pt_capture *c)
{
	const struct pt_uprobes *u = c->uprobes;

	if (!u->symbols)
		pt_hook_set(c, "gpu", "none", "no GPU library with known entry "
			    "points is mapped by the target yet");
	else if (u->failed)
		pt_hook_set(c, "gpu", u->multi ? "uprobe_multi" : "uprobe_perf",
			    "%u GPU libraries could not be hooked", u->failed);
	else if (!u->multi)
		pt_hook_set(c, "gpu", "uprobe_perf",
			    "other processes that use the same library pay for "
			    "the hooks too, and detaching is slow");
	else if (driver_alone(u))
		pt_hook_set(c, "gpu", "uprobe_multi",
			    "only the CUDA driver is hooked: a runtime, if there "
			    "is one, is in a stripped program; its calls are seen "
			    "where they reach the driver");
	else
		pt_hook_set(c, "gpu", "uprobe_multi", "%s", "");
}

/* The library of the right name has come: one that only exports its functions
 * may go on to it, and then each call would count twice. */
static void unhook_doubles(struct pt_capture *c, pid_t pid,
			   const struct pt_gpulib *named)
{
	struct pt_uprobes *u = c->uprobes;
	uint32_t i;

	if (named->by_symbols || named->inside)
		return;
	for (i = 0; i < u->n_libs; i++) {
		struct attached *a = &u->lib[i];

		if (a->pid != pid || !a->by_symbols || a->gone ||
		    a->kind != named->kind)
			continue;
		forget_text(c, pid, i);
		close_attached(a, 0);
		a->gone = true;
	}
}

void pt_uprobes_process(struct pt_capture *c, pid_t pid)
{
	struct pt_gpulib libs[PT_LIBS_PER_PROC];
	struct pt_proc_stat st;
	ssize_t n, i;

	if (!c->uprobes || pt_proc_stat(pid, &st))
		return;
	n = pt_gpulibs(pid, libs, PT_LIBS_PER_PROC);
	for (i = 0; i < n && i < PT_LIBS_PER_PROC; i++)
		attach_lib(c, pid, st.start_ticks, &libs[i]);
	for (i = 0; i < n && i < PT_LIBS_PER_PROC; i++)
		unhook_doubles(c, pid, &libs[i]);
	pt_nvtx_process(c, pid);
	update_hook(c);
}

void pt_uprobes_scan(struct pt_capture *c)
{
	pid_t pids[PT_MAX_TRAINERS];
	struct pt_tree t = { 0 };
	bool unreadable = false;
	size_t r, i, n;

	if (!c->uprobes)
		return;
	if (pt_tree_snapshot(&t))
		goto out;
	for (r = 0; r < c->n_roots; r++) {
		n = pt_trainers(&t, c->roots[r], pids, PT_MAX_TRAINERS,
				&unreadable);
		for (i = 0; i < n && i < PT_MAX_TRAINERS; i++)
			if (pt_is_target(c, pids[i]))
				pt_uprobes_process(c, pids[i]);
	}
out:
	update_hook(c);
	pt_tree_free(&t);
}

/* Close the links of the entries that `all` or their end selects. */
static void close_libs(struct pt_uprobes *u, bool all)
{
	int *fd = calloc((size_t)u->n_libs * N_LINKS + 1, sizeof(*fd));
	uint32_t k;
	size_t n = 0;

	pt_each_of(struct attached, a, u->lib, u->n_libs) {
		if (!all && !a->gone)
			continue;
		for (k = 0; k < N_LINKS; k++) {
			if (a->fd[k] < 0)
				continue;
			if (fd)
				fd[n++] = a->fd[k];
			else
				close(a->fd[k]); /* one by one, then */
			a->fd[k] = -1;
		}
	}
	pt_close_links(fd, n);
	free(fd);
}

void pt_uprobes_reap(struct pt_capture *c)
{
	struct pt_uprobes *u = c->uprobes;
	struct pt_proc_stat st;
	bool any = false;
	uint32_t i;

	if (!u || !u->multi)
		return;
	for (i = 0; i < u->n_libs; i++) {
		struct attached *a = &u->lib[i];

		if (a->gone)
			continue;
		if (!pt_proc_stat(a->pid, &st) && st.start_ticks == a->start)
			continue;
		forget_text(c, a->pid, i);
		a->gone = true;
		any = true;
	}
	if (any)
		close_libs(u, false);
}

unsigned pt_uprobes_links(const struct pt_uprobes *u)
{
	return u ? (unsigned)u->n_link : 0;
}

void pt_uprobes_free(struct pt_uprobes *u)
{
	size_t i;

	if (!u)
		return;
	close_libs(u, true);
	for (i = 0; i < u->n_link; i++)
		bpf_link__destroy(u->link[i]);
	free(u->lib);
	free(u->link);
	free(u);
}

/* ---- hooks that need not stay --------------------------------------------------- */

bool pt_uprobes_driver(const struct pt_capture *c, pid_t pid)
{
	const struct pt_uprobes *u = c->uprobes;
	uint32_t i;

	for (i = 0; u && i < u->n_libs; i++)
		if (u->lib[i].pid == pid && !u->lib[i].gone &&
		    u->lib[i].kind == PT_GPULIB_CUDA)
			return true;
	return false;
}

/* So many launches show the way that a runtime's launches take, and all but so small a
 * part of them (others are on their way just now). */
#define SHOWN_LAUNCHES 256
#define SHOWN_PART 64
/* A process' kernels have their handles by then, or nobody waits for their names. */
#define BRIEF_NS 3000000000u

/*
 * A runtime's launches that all reach the driver's hook are told there, and trap once when
 * the runtime's hook is gone: in the next look, when no thread is in its program any more.
 * Launches that do not go that way are told by the runtime's hook alone.
 */
static void look_at_launches(struct pt_capture *c, struct attached *a, uint32_t lib)
{
	struct pt_text_key key = { .tgid = (uint32_t)a->pid, .lib = lib };
	int fd = bpf_map__fd(c->skel->maps.pt_texts);
	struct pt_text t;

	if (a->bare) {
		close_attached(a, BRIEF_RETURNS);
		return;
	}
	if (bpf_map_lookup_elem(fd, &key, &t) || !t.inner || t.launches < SHOWN_LAUNCHES)
		return;
	a->bare = t.reached + t.launches / SHOWN_PART >= t.launches;
	t.bare = a->bare;
	t.inner = a->bare;
	bpf_map_update_elem(fd, &key, &t, BPF_EXIST);
}

/* A process that makes handles all the time is asked for them in so small a part of ours. */
#define NAMES_REST 20

void pt_uprobes_names(struct pt_capture *c, bool last_time)
{
	int fd = bpf_map__fd(c->skel->maps.pt_handles);
	uint64_t changed = c->skel->bss->pt_handles_new, begin = pt_now_ns(), end, function;
	struct pt_handle_key key, *last = NULL;
	struct pt_uprobes *u = c->uprobes;
	unsigned n;

	if (!u || changed == u->handles || (!last_time && begin < u->handles_ns))
		return;
	u->handles = changed;
	for (n = 0; n < PT_MAX_HANDLES && !bpf_map_get_next_key(fd, last, &key); n++) {
		if (!bpf_map_lookup_elem(fd, &key, &function))
			pt_kernels_handle(c->kernels, key.tgid, key.handle, function);
		last = &key;
	}
	end = pt_now_ns();
	u->handles_ns = end + (end - begin) * NAMES_REST;
}

void pt_uprobes_tick(struct pt_capture *c)
{
	struct pt_uprobes *u = c->uprobes;
	uint64_t now = pt_now_ns();
	uint32_t i;

	for (i = 0; u && u->multi && i < u->n_libs; i++) {
		struct attached *a = &u->lib[i];

		if (a->gone || a->fd[BRIEF_ENTRIES] < 0)
			continue;
		if (pt_layer_of(a->kind) == PT_LAYER_OUTER)
			look_at_launches(c, a, i);
		else if (now - a->hooked_ns > BRIEF_NS)
			close_attached(a, BRIEF_RETURNS);
	}
}
