// SPDX-License-Identifier: BSD-2-Clause
/* Which command the arguments name. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "capture/elf.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "gpu/nvml.h"

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
#define X(name, text) { #name, pt_cmd_##name },
	PT_COMMANDS(X)
#undef X
	{ NULL, NULL },
};

int pt_cmd_main(int argc, char **argv)
{
	static char name[] = "pipetrace";
	const struct command *c;
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
		for (c = commands; c->name && strcmp(c->name, argv[1]); c++)
			;
		if (!c->name)
			return pt_fail(PT_EXIT_USAGE,
				       "unknown command \"%s\": pipetrace --help lists the commands; "
				       "to start and trace a program write pipetrace -- %s",
				       argv[1], argv[1]);
		run = c->run;
		skip = 1;
	}
	/* getopt puts it before its messages */
	argv[skip] = name;
	status = run(argc - skip, argv + skip);
	pt_elf_child_end();
	return status;
}
