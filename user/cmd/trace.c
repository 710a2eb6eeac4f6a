// SPDX-License-Identifier: BSD-2-Clause
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/session.h"
#include "cmd/sudo.h"

static const char doc[] =
	"Diagnose whether a machine-learning job's GPU starves for input, why, and "
	"which worker, file and line is responsible. Attaches to a running job "
	"without changing or restarting it, or starts one.\v"
	"Without arguments pipetrace lists the GPU jobs of this machine.\n\n"
	"Exit status: 0 traced, 1 failed, 2 bad usage, 3 a verdict reached "
	"--fail-on.";

static const char record_doc[] =
	"Record a job now; `pipetrace report FILE` gives the diagnosis later, here "
	"or elsewhere. Memory does not grow with the time recorded.";

static bool both_to_stdout(const char *a, const char *b)
{
	return a && b && !strcmp(a, "-") && !strcmp(b, "-");
}

/* The command line makes sense, or one sentence says why not. */
static bool makes_sense(const struct pt_opts *o)
{
	if (o->cmd && o->n_pids)
		pt_error("give either -p PID or -- COMMAND, not both");
	else if (o->cmd && !o->cmd[0])
		pt_error("-- needs a command to start, like "
			 "pipetrace -- python train.py");
	else if (!o->cmd && !o->n_pids)
		pt_error("nothing to trace: give -p PID or -- COMMAND "
			 "(pipetrace alone lists the jobs)");
	else if (both_to_stdout(o->json, o->raw_stream))
		pt_error("--json and --raw-stream cannot both take standard "
			 "output");
	else if (o->output && !strcmp(o->output, "-"))
		pt_error("a recorded file cannot go to standard output");
	else if (o->record_only && !o->output)
		pt_error("record needs -o FILE, the file to record to");
	else if (o->schedule.set && (o->by_steps || o->auto_duration))
		pt_error("--schedule goes with neither --steps nor -d auto");
	else if (o->schedule.set && o->cupti)
		pt_error("--schedule cannot silence the agent of --cupti: give "
			 "only one of them");
	else if (o->record_only && (o->schedule.wait.steps ||
				    o->schedule.warmup.steps ||
				    o->schedule.active.steps))
		pt_error("record does not count steps: give the parts of the "
			 "schedule in time, like active=10s");
	else if (o->record_only && o->auto_duration)
		pt_error("record takes -d SEC; it does not count steps");
	else
		return true;
	return false;
}

static int trace_or_record(enum pt_optset set, const char *text, int argc, char **argv)
{
	struct pt_spawn_opts so = { 0 };
	struct pt_spawn cmd = { .go = -1, .failed = -1 };
	struct pt_err err = { "" };
	struct pt_opts o;
	int status;

	if (pt_opts_done(&o, set, text, argc, argv, &status))
		return status;
	o.record_only = set == PT_OPTS_RECORD;
	if (!makes_sense(&o))
		return PT_EXIT_USAGE;
	if (pt_block_signals())
		return pt_fail(PT_EXIT_FAILED, "cannot block signals");
	if (pt_wait_at(&o))
		return PT_EXIT_FAILED;
	if (o.cmd && pt_spawn(&cmd, o.cmd, &so, &err))
		return pt_fail(PT_EXIT_FAILED, "%s", err.msg);
	status = PT_EXIT_FAILED;
	if (!pt_give_up(o.cupti ? PT_RIGHTS_INJECT : PT_RIGHTS_TRACE,
			o.no_uprobe_multi ? PT_PERF_DOOR : 0))
		status = pt_trace(&o, o.cmd ? &cmd : NULL, false);
	pt_spawn_release(&cmd);
	return status;
}

int pt_cmd_trace(int argc, char **argv)
{
	return trace_or_record(PT_OPTS_TRACE, doc, argc, argv);
}

int pt_cmd_record(int argc, char **argv)
{
	return trace_or_record(PT_OPTS_RECORD, record_doc, argc, argv);
}
