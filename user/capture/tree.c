// SPDX-License-Identifier: BSD-2-Clause
/* A snapshot of the process tree. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "base/minmax.h"
#include "capture/discover.h"
#include "capture/procfs.h"

PT_ORDER(by_pid, struct pt_process, pt_cmp(x->pid, y->pid))

static int by_ppid(const void *a, const void *b, void *ctx)
{
	const struct pt_process *p = ctx;
	const struct pt_process *x = &p[*(const size_t *)a];
	const struct pt_process *y = &p[*(const size_t *)b];

	if (x->ppid != y->ppid)
		return x->ppid < y->ppid ? -1 : 1;
	return by_pid(x, y);
}

static void fill(struct pt_process *p, const struct pt_proc_stat *st)
{
	memset(p, 0, sizeof(*p));
	p->pid = st->pid;
	p->ppid = st->ppid;
	p->start_ticks = st->start_ticks;
	p->start_code = st->start_code;
	p->start_stack = st->start_stack;
	memcpy(p->comm, st->comm, strnlen(st->comm, sizeof(p->comm) - 1));
}

static int collect(struct pt_tree *t, DIR *dir)
{
	struct pt_proc_stat st;
	struct pt_process *p;
	struct dirent *de;
	size_t cap = 0;

	while ((de = readdir(dir))) {
		if (!isdigit((unsigned char)de->d_name[0]))
			continue;
		/* one that is gone by now is simply not in the snapshot */
		if (pt_proc_stat((pid_t)strtol(de->d_name, NULL, 10), &st) ||
		    st.kthread)
			continue;
		if (t->n == cap) {
			cap = cap ? cap * 2 : 256;
			p = reallocarray(t->p, cap, sizeof(*p));
			if (!p)
				return -ENOMEM;
			t->p = p;
		}
		fill(&t->p[t->n++], &st);
	}
	return 0;
}

int pt_tree_snapshot(struct pt_tree *t)
{
	DIR *dir;
	size_t i;
	int ret;

	memset(t, 0, sizeof(*t));
	dir = opendir("/proc");
	if (!dir)
		return -errno;
	ret = collect(t, dir);
	closedir(dir);
	if (ret)
		return ret;
	if (!t->n)
		return -ENOENT;
	t->by_parent = calloc(t->n, sizeof(*t->by_parent));
	if (!t->by_parent)
		return -ENOMEM;
	for (i = 0; i < t->n; i++)
		t->by_parent[i] = i;
	qsort(t->p, t->n, sizeof(*t->p), by_pid);
	qsort_r(t->by_parent, t->n, sizeof(*t->by_parent), by_ppid, t->p);
	return 0;
}

void pt_tree_free(struct pt_tree *t)
{
	free(t->p);
	free(t->by_parent);
	memset(t, 0, sizeof(*t));
}

const struct pt_process *pt_tree_find(const struct pt_tree *t, pid_t pid)
{
	struct pt_process key = { .pid = pid };

	return t->n ? bsearch(&key, t->p, t->n, sizeof(*t->p), by_pid) : NULL;
}

/* First position in by_parent whose ppid is at least `ppid`. */
static size_t first_child(const struct pt_tree *t, pid_t ppid)
{
	return pt_bisect(t->n, i, t->p[t->by_parent[i]].ppid < ppid);
}

size_t pt_tree_descendants(const struct pt_tree *t, pid_t root, pid_t *out,
			   size_t max)
{
	const struct pt_process *parent = pt_tree_find(t, root), *child;
	size_t *queue, n = 0, head, k;
	bool *seen;

	if (!parent)
		return 0;
	queue = calloc(t->n, sizeof(*queue));
	/* the kernel's tree has no loops, a torn snapshot may have one */
	seen = calloc(t->n, sizeof(*seen));
	if (!queue || !seen) {
		free(queue);
		free(seen);
		if (max)
			out[0] = root;
		return 1;
	}
	queue[n++] = (size_t)(parent - t->p);
	seen[parent - t->p] = true;
	for (head = 0; head < n; head++) {
		parent = &t->p[queue[head]];
		if (head < max)
			out[head] = parent->pid;
		for (k = first_child(t, parent->pid); k < t->n; k++) {
			child = &t->p[t->by_parent[k]];
			if (child->ppid != parent->pid)
				break;
			if (seen[child - t->p] ||
			    child->start_ticks < parent->start_ticks)
				continue;
			seen[child - t->p] = true;
			queue[n++] = (size_t)(child - t->p);
		}
	}
	free(queue);
	free(seen);
	return n;
}
