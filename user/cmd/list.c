// SPDX-License-Identifier: BSD-2-Clause
/* The GPU jobs of this machine, and how to trace one. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "cmd/cmd.h"
#include "cmd/jobs.h"
#include "cmd/options.h"
#include "cmd/sudo.h"

static const char doc[] = "List the GPU jobs of this machine.";

static void print_job(const struct pt_top_job *j, unsigned flags)
{
	char safe[4096];

	printf("%8d  ", j->pid);
	pt_str_term(safe, sizeof(safe), j->user, flags, 12);
	printf("%-12s  ", safe);
	pt_str_term(safe, sizeof(safe), j->lib, flags, 22);
	printf("%-22s  %-4s  %4s  ", safe, j->devices, j->rank);
	pt_str_term(safe, sizeof(safe), j->cmd, flags, 60);
	printf("%s\n", safe);
}

int pt_cmd_list(int argc, char **argv)
{
	struct pt_jobs jobs;
	struct pt_opts o;
	size_t i;
	int ret;

	if (pt_opts_done(&o, PT_OPTS_PLAIN, doc, argc, argv, &ret))
		return ret;
	if (pt_give_up(PT_RIGHTS_LOOK, 0))
		return PT_EXIT_FAILED;
	ret = pt_jobs_find(&jobs, NULL);
	if (ret) {
		pt_error("cannot read /proc: %s", strerror(-ret));
		pt_jobs_free(&jobs);
		return PT_EXIT_FAILED;
	}
	if (jobs.n)
		printf("%8s  %-12s  %-22s  %-4s  %4s  %s\n", "PID", "USER",
		       "GPU LIBRARY", "GPU", "RANK", "COMMAND");
	for (i = 0; i < jobs.n; i++)
		print_job(&jobs.v[i], o.ascii ? 0 : PT_TERM_UNICODE);
	if (jobs.n)
		printf("\nTrace one:    sudo pipetrace -p %d -d auto\n",
		       jobs.v[0].pid);
	else
		printf("No process has a GPU library (CUDA, HIP, NCCL) "
		       "mapped.\n\n"
		       "See it work:  sudo pipetrace demo\n");
	printf("Watch them:   sudo pipetrace top\n"
	       "Start one:    sudo pipetrace -- python train.py\n"
	       "More:         pipetrace --help\n");
	if (jobs.hidden && geteuid())
		pt_note("processes of other users could not be looked at: run "
			"as root to list them");
	pt_jobs_free(&jobs);
	return PT_EXIT_OK;
}
