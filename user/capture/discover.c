// SPDX-License-Identifier: BSD-2-Clause
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/discover.h"
#include "base/minmax.h"
#include "capture/procfs.h"
#include "gpu/api.h"

#define MAX_CHAIN 64 /* processes between a worker and its trainer */
#define MAX_FDS 4096
#define MAX_TASKS 4096

static bool has_lib(pid_t pid, bool *unreadable)
{
	struct pt_gpulib g;
	ssize_t n = pt_gpulibs(pid, &g, 1);

	if (n == -EACCES || n == -EPERM)
		*unreadable = true;
	return n > 0;
}

static bool is_gpu_node(const char *path)
{
	return !strcmp(path, "/dev/kfd") || /* AMD's, one for all */
	       (!strncmp(path, "/dev/nvidia", 11) && path[11] >= '0' &&
		path[11] <= '9');
}

bool pt_owns_gpu(pid_t pid)
{
	char path[64], link[64];
	struct dirent *de;
	bool found = false;
	ssize_t len;
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && n++ < MAX_FDS && (de = readdir(dir))) {
		len = readlinkat(dirfd(dir), de->d_name, link, sizeof(link) - 1);
		if (len <= 0)
			continue;
		link[len] = '\0';
		found = is_gpu_node(link);
	}
	closedir(dir);
	return found;
}

/* Has the CUDA driver made a thread in it? A fork inherits descriptors of devices, but no
 * threads: this process uses a device by itself. */
static bool has_driver_thread(pid_t pid)
{
	char path[64], comm[PT_COMM_LEN];
	struct dirent *de;
	bool found = false;
	int n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && n++ < MAX_TASKS && (de = readdir(dir)))
		found = de->d_name[0] != '.' &&
			pt_proc_read((pid_t)strtol(de->d_name, NULL, 10), "comm", comm,
				     sizeof(comm)) > 0 &&
			pt_api_driver_thread(comm);
	closedir(dir);
	return found;
}

static bool same_exe(pid_t a, pid_t b)
{
	char path[32];
	struct stat x, y;

	snprintf(path, sizeof(path), "/proc/%d/exe", a);
	if (stat(path, &x))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/exe", b);
	return !stat(path, &y) && x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

/* Started by Python's multiprocessing with its own command line. */
static bool is_multiprocessing(const struct pt_process *p)
{
	char args[4096];
	ssize_t len = pt_proc_read(p->pid, "cmdline", args, sizeof(args));

	if (!strcmp(p->comm, "torch_shm_manag")) /* cut by the kernel */
		return true;
	return len > 0 &&
	       (memmem(args, (size_t)len, "multiprocessing.spawn", 21) ||
		memmem(args, (size_t)len, "multiprocessing.forkserver", 26) ||
		memmem(args, (size_t)len, "multiprocessing.resource_tracker",
		       32) ||
		memmem(args, (size_t)len, "--multiprocessing-fork", 22));
}

/*
 * A fork without exec keeps the addresses that exec had drawn at random; they
 * are hidden (0 or 1) from those who may not trace the process.
 */
static bool same_image(const struct pt_process *a, const struct pt_process *b)
{
	char x[2048], y[2048];
	ssize_t n, m;

	if (!same_exe(a->pid, b->pid))
		return false;
	if (a->start_code > 1 && a->start_stack > 1)
		return a->start_code == b->start_code &&
		       a->start_stack == b->start_stack;
	n = pt_proc_read(a->pid, "cmdline", x, sizeof(x));
	m = pt_proc_read(b->pid, "cmdline", y, sizeof(y));
	return n > 0 && n == m && !memcmp(x, y, (size_t)n);
}

/* Is `child` a helper of its parent's program, not a job of its own? */
static bool is_helper(const struct pt_process *child,
		      const struct pt_process *parent)
{
	if (!same_image(child, parent) && !is_multiprocessing(child))
		return false;
	/* a rank started by multiprocessing opens the GPU, a worker does not;
	 * forked workers of a GPU user inherit the descriptor */
	return !has_driver_thread(child->pid) &&
	       (!pt_owns_gpu(child->pid) || pt_owns_gpu(parent->pid));
}

static pid_t owner_of(const struct pt_tree *t, pid_t pid, bool *unreadable)
{
	const struct pt_process *p = pt_tree_find(t, pid), *up;
	pid_t owner = pid;
	int i;

	for (i = 0; p && i < MAX_CHAIN; i++, p = up) {
		up = pt_tree_find(t, p->ppid);
		if (!up || up->start_ticks > p->start_ticks ||
		    !is_helper(p, up))
			break;
		if (has_lib(up->pid, unreadable))
			owner = up->pid;
	}
	return owner;
}

int pt_rank_in(const struct pt_env *e)
{
	/* Slurm's behind those of MPI: below mpirun it counts mpirun's helpers.
	 * The agent's labels have the same order. */
	static const char *const names[] = { "RANK", "OMPI_COMM_WORLD_RANK",
					     "PMIX_RANK", "PMI_RANK",
					     "SLURM_PROCID", "LOCAL_RANK" };
	char buf[16], *end;
	size_t i;
	long v;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (pt_env_get(e, names[i], buf, sizeof(buf)))
			continue;
		v = strtol(buf, &end, 10);
		if (end != buf && !*end && v >= 0 && v < 1 << 24)
			return (int)v;
	}
	return -1;
}

int pt_rank_of(pid_t pid)
{
	struct pt_env e;
	int rank = pt_env_read(pid, &e) ? -1 : pt_rank_in(&e);

	pt_env_free(&e);
	return rank;
}

struct candidate {
	pid_t pid;
	int rank;
	bool gpu, launcher;
};

PT_ORDER(by_rank, struct candidate, pt_cmp(x->rank, y->rank) ?: pt_cmp(x->pid, y->pid))

static bool descends(const struct pt_tree *t, pid_t pid, pid_t from)
{
	const struct pt_process *p = pt_tree_find(t, pid);
	int i;

	for (i = 0; p && i < MAX_CHAIN; i++) {
		if (p->ppid == from)
			return true;
		p = pt_tree_find(t, p->ppid);
	}
	return false;
}

/* torchrun imports torch, and so maps the library that only its ranks use. */
static void mark_launchers(const struct pt_tree *t, struct candidate *c,
			   size_t n)
{
	size_t i, k;

	for (i = 0; i < n; i++) {
		if (c[i].gpu)
			continue;
		for (k = 0; k < n && !c[i].launcher; k++)
			c[i].launcher =
				k != i &&
				(c[k].gpu || (c[k].rank >= 0 && c[i].rank < 0)) &&
				descends(t, c[k].pid, c[i].pid);
	}
}

size_t pt_trainers(const struct pt_tree *t, pid_t root, pid_t *out, size_t max,
		   bool *unreadable)
{
	size_t n, i, k = 0, stored = 0;
	struct candidate *c = NULL;
	pid_t *pids;

	pids = calloc(t->n + 1, sizeof(*pids));
	if (!pids)
		return 0;
	n = pt_tree_descendants(t, root, pids, t->n);
	c = calloc(n + 1, sizeof(*c));
	if (!c)
		goto out;
	for (i = 0; i < n; i++) {
		if (!has_lib(pids[i], unreadable) ||
		    owner_of(t, pids[i], unreadable) != pids[i])
			continue;
		c[k].pid = pids[i];
		c[k].rank = pt_rank_of(pids[i]);
		c[k++].gpu = pt_owns_gpu(pids[i]);
	}
	mark_launchers(t, c, k);
	qsort(c, k, sizeof(*c), by_rank);
	for (i = 0; i < k; i++) {
		if (c[i].launcher)
			continue;
		if (stored < max)
			out[stored] = c[i].pid;
		stored++;
	}
out:
	free(c);
	free(pids);
	return stored;
}

static bool listed(const pid_t *pids, size_t n, pid_t pid)
{
	while (n--)
		if (pids[n] == pid)
			return true;
	return false;
}

size_t pt_all_trainers(const struct pt_tree *t, pid_t *out, size_t max,
		       bool *unreadable)
{
	/* All of a tree's: somebody may have put hundreds before another's. */
	pid_t *found = calloc(t->n + 1, sizeof(*found));
	size_t i, k, n = 0, got;
	const struct pt_process *p;
	struct pt_gpulib g;

	for (i = 0; found && i < t->n; i++) {
		p = &t->p[i];
		/* trees from the top, but not from init: its tree is
		 * everybody's, so that is looked at by its children */
		if (p->ppid != 1 && pt_tree_find(t, p->ppid))
			continue;
		if (p->pid == 1 && pt_gpulibs(1, &g, 1) <= 0)
			continue;
		got = pt_trainers(t, p->pid, found, t->n, unreadable);
		if (got > t->n)
			got = t->n;
		for (k = 0; k < got && n < max; k++)
			if (!listed(out, n, found[k]))
				out[n++] = found[k];
	}
	free(found);
	return n;
}

/* Names come from the target: keep what is safe on a terminal. */
static const char *name_of(const struct pt_tree *t, pid_t pid, char *buf)
{
	const struct pt_process *p = pt_tree_find(t, pid);
	size_t i;

	snprintf(buf, PT_COMM_LEN, "%s", p ? p->comm : "?");
	for (i = 0; buf[i]; i++)
		if (buf[i] < 0x20 || buf[i] > 0x7e)
			buf[i] = '?';
	return buf;
}

static void say_how(const struct pt_tree *t, pid_t tgid, struct pt_job *j)
{
	char comm[PT_COMM_LEN];

	name_of(t, j->root, comm);
	if (j->root != tgid)
		snprintf(j->note, sizeof(j->note),
			 "%d is a helper of %d (%s): tracing the whole job",
			 j->given, j->root, comm);
	else if (j->given != tgid)
		snprintf(j->note, sizeof(j->note),
			 "%d is a thread of %d (%s): tracing the whole process",
			 j->given, tgid, comm);
	else if (j->n_trainers && j->trainer != j->root)
		snprintf(j->note, sizeof(j->note),
			 "%d (%s) launches %zu training process%s: following "
			 "%s (first is %d)",
			 j->root, comm, j->n_trainers,
			 j->n_trainers == 1 ? "" : "es",
			 j->n_trainers == 1 ? "it" : "them", j->trainer);
}

int pt_discover_in(const struct pt_tree *t, pid_t given, struct pt_job *out,
		   struct pt_err *err)
{
	pid_t tgid;
	int ret;

	memset(out, 0, sizeof(*out));
	out->given = given;
	ret = given > 0 ? pt_proc_tgid(given, &tgid) : -ESRCH;
	if (ret == -ESRCH)
		return pt_err_set(err, ret,
				  "no process has the id %d (it may have "
				  "ended): run pipetrace alone to list jobs",
				  given);
	if (ret)
		return pt_err_set(err, ret, "cannot look at process %d: %s",
				  given, strerror(-ret));
	if (tgid == getpid())
		return pt_err_set(err, -EINVAL,
				  "process %d is pipetrace itself: give the "
				  "id of a training job",
				  given);
	if (!pt_tree_find(t, tgid))
		return pt_err_set(err, -ESRCH,
				  "process %d is a kernel thread or has just "
				  "ended: give the id of a training job",
				  given);
	out->root = owner_of(t, tgid, &out->unreadable);
	out->n_trainers = pt_trainers(t, out->root, out->trainers,
				      PT_MAX_TRAINERS, &out->unreadable);
	if (out->n_trainers)
		out->trainer = out->trainers[0];
	say_how(t, tgid, out);
	if (out->n_trainers > PT_MAX_TRAINERS)
		out->n_trainers = PT_MAX_TRAINERS;
	return 0;
}

int pt_discover(pid_t given, struct pt_job *out, struct pt_err *err)
{
	struct pt_tree t;
	int ret = pt_tree_snapshot(&t);

	if (ret)
		pt_err_set(err, ret, "cannot read /proc: %s", strerror(-ret));
	else
		ret = pt_discover_in(&t, given, out, err);
	pt_tree_free(&t);
	return ret;
}
