// SPDX-License-Identifier: BSD-2-Clause
/*
 * Who else uses a GPU here? Without the driver's word a process that is not traced
 * may be on the target's device, and then nobody knows when that is idle.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/discover.h"
#include "capture/procfs.h"
#include "capture/session.h"

#define LIST 1024

/* Is the GPU of this machine reached through files at all? (A simulated one is
 * not.) */
static bool has_nodes(void)
{
	struct stat st;

	return !stat("/dev/nvidiactl", &st) || !stat("/dev/kfd", &st);
}

/* Do two lists of CUDA_VISIBLE_DEVICES name no device in common? Only where both
 * are numbers can that be told. */
static bool apart(const char *a, const char *b)
{
	bool seen[1024] = { false };
	const char *list[2] = { a, b };
	char *end;
	long v;
	int i;

	for (i = 0; i < 2; i++) {
		const char *p = list[i];

		while (*p) {
			v = strtol(p, &end, 10);
			if (end == p || (*end && *end != ',') || v < 0 ||
			    v >= (long)(sizeof(seen) / sizeof(seen[0])))
				return false;
			if (i && seen[v])
				return false;
			if (!i)
				seen[v] = true;
			p = *end ? end + 1 : end;
		}
	}
	return true;
}

/* Nothing in its environment says that it is on another device. */
static bool may_share(pid_t pid, pid_t trainer)
{
	char a[LIST], b[LIST];
	int x = pt_rank_of(pid), y = pt_rank_of(trainer);

	if (x >= 0 && y >= 0 && x != y)
		return false; /* ranks of a job do not share */
	return pt_proc_getenv(pid, "CUDA_VISIBLE_DEVICES", a, sizeof(a)) ||
	       pt_proc_getenv(trainer, "CUDA_VISIBLE_DEVICES", b, sizeof(b)) ||
	       !apart(a, b);
}

static void open_record(struct pt_rec_neighbours *r, const struct pt_capture *c)
{
	pt_rec_begin(r, sizeof(*r), PT_REC_NEIGHBOURS, pt_now_ns(), (uint32_t)c->trainer);
}

void pt_neighbours(struct pt_capture *c)
{
	struct pt_rec_neighbours r;
	bool by_nodes = has_nodes();
	struct pt_tree t = { 0 };
	struct pt_gpulib lib;
	size_t i;

	open_record(&r, c);
	if (pt_tree_snapshot(&t))
		goto out;
	for (i = 0; i < t.n; i++) {
		pid_t pid = t.p[i].pid;

		if (pid == getpid() || !t.p[i].start_code ||
		    pt_is_target(c, pid))
			continue;
		if (by_nodes ? pt_owns_gpu(pid) : pt_gpulibs(pid, &lib, 1) > 0)
			r.procs += may_share(pid, c->trainer);
	}
	pt_queue_record(c, &r, sizeof(r));
	c->neighbours |= r.procs > 0;
out:
	pt_tree_free(&t);
}

void pt_neighbour_mapped(struct pt_capture *c, pid_t pid, const char *path)
{
	struct pt_rec_neighbours r;

	/* One is enough: from then on nothing is certain. NCCL is for those
	 * that have a runtime, too. */
	if (c->neighbours || pid == getpid() || !pt_gpulib_kind(path) ||
	    !may_share(pid, c->trainer))
		return;
	c->neighbours = true;
	open_record(&r, c);
	r.procs = 1;
	pt_queue_record(c, &r, sizeof(r));
}
