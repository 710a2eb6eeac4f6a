/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands: each takes its own argv (argv[0] is its name in messages) and
 * returns the program's exit status. */
#ifndef PT_CMD_H
#define PT_CMD_H

#include <stdbool.h>

#define PT_EXIT_OK 0
#define PT_EXIT_FAILED 1
#define PT_EXIT_USAGE 2
#define PT_EXIT_VERDICT 3 /* --fail-on or --fail-on-regression was reached */

struct pt_command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};
/* Ends with a NULL name. */
extern const struct pt_command pt_commands[];

/* The whole program: choose a command and run it. */
int pt_cmd_main(int argc, char **argv);

int pt_cmd_trace(int argc, char **argv);
int pt_cmd_list(int argc, char **argv);
int pt_cmd_doctor(int argc, char **argv);
int pt_cmd_demo(int argc, char **argv);
int pt_cmd_top(int argc, char **argv);
int pt_cmd_record(int argc, char **argv);
int pt_cmd_report(int argc, char **argv);
int pt_cmd_diff(int argc, char **argv);
int pt_cmd_export(int argc, char **argv);
int pt_cmd_agent(int argc, char **argv);
int pt_cmd_stack(int argc, char **argv);
int pt_cmd_fleet(int argc, char **argv);

#endif
