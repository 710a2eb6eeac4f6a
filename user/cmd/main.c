// SPDX-License-Identifier: BSD-2-Clause
/* Which command the arguments name. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "capture/elf.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "gpu/nvml.h"

const struct pt_command pt_commands[] = {
	{ "trace", pt_cmd_trace, "trace a job (the default)" },
	{ "list", pt_cmd_list, "list the GPU jobs of this machine" },
	{ "doctor", pt_cmd_doctor, "what this machine allows" },
	{ "demo", pt_cmd_demo, "trace a job on a simulated GPU" },
	{ "record", pt_cmd_record, "record a job, to be diagnosed later" },
	{ "top", pt_cmd_top, "watch a job live, on the whole screen" },
	{ "report", pt_cmd_report, "diagnose a recorded file" },
	{ "diff", pt_cmd_diff, "compare reports: what changed, and is it noise" },
	{ "export", pt_cmd_export, "a recorded file for other programs" },
	{ "agent", pt_cmd_agent, "sample the jobs of this node, and tell Prometheus" },
	{ "stack", pt_cmd_stack, "what every thread of a job is doing right now" },
	{ "fleet", pt_cmd_fleet, "the jobs of many nodes, by GPU time wasted" },
	{ NULL, NULL, NULL },
};

int pt_cmd_main(int argc, char **argv)
{
	static char name[] = "pipetrace";
	const struct pt_command *c;
	int (*run)(int, char **) = pt_cmd_trace;
	int skip = 0, status;

	if (argc < 1)
		return PT_EXIT_USAGE;
	/* not for users: a trace starts it, see gpu/nvml.h */
	if (argc == 2 && !strcmp(argv[1], PT_NVML_COMMAND))
		return pt_nvml_child(STDIN_FILENO, STDOUT_FILENO);
	pt_log_init(PT_NORMAL, pt_locale_is_utf8());
	/* a file that reached RLIMIT_FSIZE is an error to tell (EFBIG), not an
	 * end without a diagnosis */
	signal(SIGXFSZ, SIG_IGN);
	if (argc == 1) {
		run = pt_cmd_list;
	} else if (argv[1][0] != '-') {
		for (c = pt_commands; c->name && strcmp(c->name, argv[1]); c++)
			;
		if (!c->name) {
			pt_error("unknown command \"%s\": there are trace, "
				 "record, top, report, diff, export, agent, fleet, stack, list, doctor and demo; to "
				 "start and trace a program write pipetrace -- %s",
				 argv[1], argv[1]);
			return PT_EXIT_USAGE;
		}
		run = c->run;
		skip = 1;
	}
	/* getopt puts it before its messages */
	argv[skip] = name;
	status = run(argc - skip, argv + skip);
	pt_elf_child_end();
	return status;
}
