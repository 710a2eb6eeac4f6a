// SPDX-License-Identifier: BSD-2-Clause
/* The GPU jobs of this machine, and how to trace one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "capture/discover.h"
#include "capture/procfs.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "gpu/nvml.h"

#define NVML_WAIT_MS 500

static const char doc[] = "List the GPU jobs of this machine.";

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

static void print_job(pid_t pid, const struct pt_nvml_answer *gpus,
		      unsigned flags)
{
	char user[64], lib[64], cmd[1024], safe[4096], rank[16] = "-";
	char devices[24];
	uid_t uid;
	int r = pt_rank_of(pid);

	snprintf(user, sizeof(user), "-");
	if (!pt_proc_uid(pid, &uid))
		pt_user_name(uid, user, sizeof(user));
	lib_name(pid, lib, sizeof(lib));
	if (r >= 0)
		snprintf(rank, sizeof(rank), "%d", r);
	printf("%8d  ", pid);
	pt_str_term(safe, sizeof(safe), user, flags, 12);
	printf("%-12s  ", safe);
	pt_str_term(safe, sizeof(safe), lib, flags, 22);
	devices_of(gpus, pid, devices, sizeof(devices));
	printf("%-22s  %-4s  %4s  ", safe, devices, rank);
	if (pt_proc_cmdline(pid, cmd, sizeof(cmd)) <= 0)
		snprintf(cmd, sizeof(cmd), "-");
	pt_str_term(safe, sizeof(safe), cmd, flags, 60);
	printf("%s\n", safe);
}

static bool listed(const pid_t *pids, size_t n, pid_t pid)
{
	while (n--)
		if (pids[n] == pid)
			return true;
	return false;
}

/* Trainers of the whole machine, each once. */
static size_t all_trainers(const struct pt_tree *t, pid_t *out, size_t max,
			   bool *unreadable)
{
	size_t i, k, n = 0, got;
	pid_t found[PT_MAX_TRAINERS];
	const struct pt_process *p;
	struct pt_gpulib g;

	for (i = 0; i < t->n; i++) {
		p = &t->p[i];
		/* trees from the top, but not from init: its tree is
		 * everybody's, so that is looked at by its children */
		if (p->ppid != 1 && pt_tree_find(t, p->ppid))
			continue;
		if (p->pid == 1 && pt_gpulibs(1, &g, 1) <= 0)
			continue;
		got = pt_trainers(t, p->pid, found, PT_MAX_TRAINERS,
				  unreadable);
		if (got > PT_MAX_TRAINERS)
			got = PT_MAX_TRAINERS;
		for (k = 0; k < got && n < max; k++)
			if (!listed(out, n, found[k]))
				out[n++] = found[k];
	}
	return n;
}

int pt_cmd_list(int argc, char **argv)
{
	struct pt_nvml_answer *gpus;
	pid_t pids[1024];
	bool unreadable = false;
	struct pt_opts o;
	struct pt_tree t;
	size_t n, i;
	int ret;

	if (pt_opts_parse(&o, PT_OPTS_PLAIN, doc, argc, argv))
		return PT_EXIT_USAGE;
	if (o.help || o.version)
		return PT_EXIT_OK;
	ret = pt_tree_snapshot(&t);
	if (ret) {
		pt_error("cannot read /proc: %s", strerror(-ret));
		pt_tree_free(&t);
		return PT_EXIT_FAILED;
	}
	n = all_trainers(&t, pids, sizeof(pids) / sizeof(*pids), &unreadable);
	gpus = n ? ask_devices() : NULL;
	if (n)
		printf("%8s  %-12s  %-22s  %-4s  %4s  %s\n", "PID", "USER",
		       "GPU LIBRARY", "GPU", "RANK", "COMMAND");
	for (i = 0; i < n; i++)
		print_job(pids[i], gpus, o.ascii ? 0 : PT_TERM_UNICODE);
	free(gpus);
	if (n)
		printf("\nTrace one:    sudo pipetrace -p %d\n", pids[0]);
	else
		printf("No process has a GPU library (CUDA, HIP, NCCL) "
		       "mapped.\n\n"
		       "See it work:  sudo pipetrace demo\n");
	printf("Start one:    sudo pipetrace -- python train.py\n"
	       "More:         pipetrace --help\n");
	if (unreadable && geteuid())
		pt_note("processes of other users could not be looked at: run "
			"as root to list them");
	pt_tree_free(&t);
	return PT_EXIT_OK;
}
