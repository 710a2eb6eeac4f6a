// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/jobs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture/discover.h"
#include "capture/procfs.h"
#include "gpu/nvml.h"

#define NVML_WAIT_MS 500
#define JOBS_MAX 1024

static void lib_name(pid_t pid, char *out, size_t size)
{
	struct pt_gpulib g;
	const char *base;

	snprintf(out, size, "-");
	if (pt_gpulibs(pid, &g, 1) != 1)
		return;
	base = strrchr(g.path_display, '/');
	snprintf(out, size, "%.40s%s", base ? base + 1 : g.path_display,
		 g.deleted ? " (replaced)" : "");
}

/* The driver's view, within half a second; NULL: it says nothing. Freed by the
 * caller. */
static struct pt_nvml_answer *ask_devices(void)
{
	struct pt_nvml_answer *a = malloc(sizeof(*a));
	struct pt_nvml *n;

	if (!a || pt_nvml_start(&n)) {
		free(a);
		return NULL;
	}
	pt_nvml_ask(n);
	if (!pt_nvml_wait(n, NVML_WAIT_MS, a) || a->state != PT_NVML_OK) {
		free(a);
		a = NULL;
	}
	pt_nvml_free(n);
	return a;
}

/* Numbers of the devices that the process has a context on: "0,3"; a dash where
 * that is not known. */
static void devices_of(const struct pt_nvml_answer *a, pid_t pid, char *out,
		       size_t size)
{
	size_t n = 0;
	uint32_t i, k;

	snprintf(out, size, "-");
	for (i = 0; a && i < a->n; i++) {
		for (k = 0; k < a->dev[i].n_pids; k++)
			if (a->dev[i].pid[k] == (uint32_t)pid)
				break;
		if (k < a->dev[i].n_pids && n + 8 < size)
			n += (size_t)snprintf(out + n, size - n, "%s%u",
					      n ? "," : "",
					      a->dev[i].rec.index & 0xffff);
	}
}

static void describe(struct pt_top_job *j, pid_t pid)
{
	int r = pt_rank_of(pid);
	uid_t uid;

	j->pid = pid;
	snprintf(j->user, sizeof(j->user), "-");
	if (!pt_proc_uid(pid, &uid))
		pt_user_name(uid, j->user, sizeof(j->user));
	lib_name(pid, j->lib, sizeof(j->lib));
	snprintf(j->rank, sizeof(j->rank), "-");
	if (r >= 0)
		snprintf(j->rank, sizeof(j->rank), "%d", r);
	if (pt_proc_cmdline(pid, j->cmd, sizeof(j->cmd)) <= 0)
		snprintf(j->cmd, sizeof(j->cmd), "-");
}

/* Are the same processes there as before? Then so are their devices. */
static bool keep_devices(struct pt_jobs *j, const struct pt_jobs *before)
{
	size_t i;

	if (!before || before->n != j->n)
		return false;
	for (i = 0; i < j->n; i++)
		if (before->v[i].pid != j->v[i].pid)
			return false;
	for (i = 0; i < j->n; i++)
		memcpy(j->v[i].devices, before->v[i].devices,
		       sizeof(j->v[i].devices));
	return true;
}

int pt_jobs_find(struct pt_jobs *out, const struct pt_jobs *before)
{
	struct pt_nvml_answer *gpus;
	pid_t pids[JOBS_MAX];
	struct pt_tree t;
	size_t i;
	int ret;

	memset(out, 0, sizeof(*out));
	ret = pt_tree_snapshot(&t);
	if (ret)
		goto out;
	out->n = pt_all_trainers(&t, pids, JOBS_MAX, &out->hidden);
	out->v = calloc(out->n ? out->n : 1, sizeof(*out->v));
	if (!out->v) {
		out->n = 0;
		ret = -ENOMEM;
		goto out;
	}
	for (i = 0; i < out->n; i++)
		describe(&out->v[i], pids[i]);
	if (keep_devices(out, before))
		goto out;
	gpus = out->n ? ask_devices() : NULL;
	for (i = 0; i < out->n; i++)
		devices_of(gpus, pids[i], out->v[i].devices,
			   sizeof(out->v[i].devices));
	free(gpus);
out:
	pt_tree_free(&t);
	return ret;
}

void pt_jobs_free(struct pt_jobs *j)
{
	free(j->v);
	memset(j, 0, sizeof(*j));
}
