/* SPDX-License-Identifier: BSD-2-Clause */
/* The target set: which processes are followed. The kernel's fork and exit
 * hooks keep it; here it is filled for the first time, and read. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/discover.h"
#include "capture/procfs.h"
#include "capture/session.h"

#define PT_MAX_PASSES 16 /* looks at the process tree until it is stable */

static bool root_gone(const struct pt_capture *c, size_t i)
{
	struct pollfd p = { .fd = c->root_fd[i], .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

bool pt_capture_target_gone(struct pt_capture *c)
{
	size_t i;

	for (i = 0; i < c->n_roots; i++)
		if (!root_gone(c, i))
			return false;
	return true;
}

bool pt_is_target(struct pt_capture *c, pid_t pid)
{
	struct pt_target v;
	uint32_t key = (uint32_t)pid;

	return !bpf_map_lookup_elem(bpf_map__fd(c->skel->maps.pt_targets), &key,
				    &v) && !v.outside;
}

/* Add the tree as it is now. How many were new, or -errno; *full: for how many there
 * was no room. */
static int add_tree(struct pt_capture *c, uint64_t *full)
{
	int map = bpf_map__fd(c->skel->maps.pt_targets), added = 0, r;
	struct pt_target v = { 0 };
	struct pt_tree t = { 0 };
	pid_t *pids = NULL;
	size_t i, k, n;
	uint32_t key;

	*full = 0;
	r = pt_tree_snapshot(&t);
	if (r)
		goto out;
	v.since = pt_now_ns(); /* all of the snapshot began before */
	pids = calloc(t.n + 1, sizeof(*pids));
	if (!pids) {
		r = -ENOMEM;
		goto out;
	}
	for (i = 0; i < c->n_roots; i++) {
		/* If it is there now, its number in the snapshot was its own. */
		if (root_gone(c, i))
			continue;
		n = pt_tree_descendants(&t, c->roots[i], pids, t.n);
		for (k = 0; k < n && k < t.n; k++) {
			key = (uint32_t)pids[k];
			if (!bpf_map_update_elem(map, &key, &v, BPF_NOEXIST))
				added++;
			else if (errno != EEXIST)
				++*full;
		}
	}
out:
	free(pids);
	pt_tree_free(&t);
	return r ? r : added;
}

/* Has it ended, or begun behind its entry's making? */
static bool is_stale(pid_t pid, const struct pt_target *v)
{
	uint64_t asleep = pt_clock_ns(CLOCK_BOOTTIME) - pt_now_ns();
	uint64_t tick = UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK);
	struct pt_proc_stat st;
	int r = pt_proc_stat(pid, &st);

	if (r)
		return r == -ESRCH || r == -ENOENT;
	/* of a first thread that has ended before the others the state is Z, too */
	return ((st.state == 'Z' || st.state == 'X') && st.threads <= 1) ||
	       st.start_ticks * tick > v->since + asleep;
}

/* A process that exits while we add it stays in the set as a stale number, and so
 * does one that its parent has not asked after yet; drop those, or a stranger who
 * gets the number would be followed. */
static void drop_dead(struct pt_capture *c)
{
	int map = bpf_map__fd(c->skel->maps.pt_targets);
	uint32_t key, next, *prev = NULL;
	struct pt_target v;

	while (!bpf_map_get_next_key(map, prev, &next)) {
		if (!bpf_map_lookup_elem(map, &next, &v) && is_stale((pid_t)next, &v)) {
			bpf_map_delete_elem(map, &next);
			prev = NULL; /* deleting may restart the walk anyway */
			continue;
		}
		key = next;
		prev = &key;
	}
}

int pt_targets_fill(struct pt_capture *c, struct pt_err *err)
{
	uint64_t full = 0;
	int i, r = 0;

	/* Forks of processes in the set are followed by the fork hook from
	 * the moment of their insertion; others show in the next look. */
	for (i = 0; i < PT_MAX_PASSES; i++) {
		r = add_tree(c, &full);
		if (r <= 0)
			break;
	}
	c->loss[PT_LOSS_TARGETS_FULL] += full;
	if (r < 0)
		return pt_err_set(err, r, "cannot read the process list: %s",
				  strerror(-r));
	drop_dead(c);
	if (pt_capture_target_gone(c))
		return pt_err_set(err, -ESRCH,
				  "process %d ended before tracing could begin",
				  (int)c->roots[0]);
	r = pt_run_pass(c, PT_PASS_SEED, 0);
	if (r)
		return pt_err_set(err, r, "the task iterator failed: %s",
				  strerror(-r));
	return 0;
}

size_t pt_capture_processes(struct pt_capture *c, pid_t *out, size_t max)
{
	int map = bpf_map__fd(c->skel->maps.pt_targets);
	uint32_t key, next, *prev = NULL;
	size_t n = 0, steps;

	/* Bounded: a walk over a set that changes may start over. */
	for (steps = 0; n < max && steps < PT_MAX_TARGETS; steps++) {
		if (bpf_map_get_next_key(map, prev, &next))
			break;
		out[n++] = (pid_t)next;
		key = next;
		prev = &key;
	}
	return n;
}
