// SPDX-License-Identifier: BSD-2-Clause
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/session.h"

static const char doc[] =
	"Says whether a machine-learning job's GPU starves for input, why, and "
	"who is to blame: attach to a running job, unmodified and not "
	"restarted, or start one.\v"
	"Without arguments pipetrace lists the GPU jobs of this machine. Other "
	"commands: list, doctor [-p PID], demo, report --raw-stream FILE (for "
	"developers).\n\n"
	"Exit status: 0 traced, 1 failed, 2 bad usage, 3 a verdict reached "
	"--fail-on.";

int pt_cmd_trace(int argc, char **argv)
{
	struct pt_spawn_opts so = { 0 };
	struct pt_spawn cmd = { .go = -1, .failed = -1 };
	struct pt_err err = { "" };
	struct pt_opts o;
	int status;

	if (pt_opts_parse(&o, PT_OPTS_TRACE, doc, argc, argv))
		return PT_EXIT_USAGE;
	if (o.help || o.version)
		return PT_EXIT_OK;
	if (o.cmd ? o.n_pids > 0 || !o.cmd[0] : !o.n_pids) {
		if (o.cmd && o.n_pids)
			pt_error("give either -p PID or -- COMMAND, not both");
		else if (o.cmd)
			pt_error("-- needs a command to start, like "
				 "pipetrace -- python train.py");
		else
			pt_error("nothing to trace: give -p PID or -- COMMAND "
				 "(pipetrace alone lists the jobs)");
		return PT_EXIT_USAGE;
	}
	if (o.json && o.raw_stream && !strcmp(o.json, "-") &&
	    !strcmp(o.raw_stream, "-")) {
		pt_error("--json and --raw-stream cannot both take standard "
			 "output");
		return PT_EXIT_USAGE;
	}
	if (pt_block_signals()) {
		pt_error("cannot block signals");
		return PT_EXIT_FAILED;
	}
	if (o.cmd && pt_spawn(&cmd, o.cmd, &so, &err)) {
		pt_error("%s", err.msg);
		return PT_EXIT_FAILED;
	}
	status = pt_trace(&o, o.cmd ? &cmd : NULL, false);
	pt_spawn_release(&cmd);
	return status;
}
