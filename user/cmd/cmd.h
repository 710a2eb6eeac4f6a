/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands: each takes its own argv (argv[0] is its name in messages) and
 * returns the program's exit status. */
#ifndef PT_CMD_H
#define PT_CMD_H


#define PT_EXIT_OK 0
#define PT_EXIT_FAILED 1
#define PT_EXIT_USAGE 2
#define PT_EXIT_VERDICT 3 /* --fail-on or --fail-on-regression was reached */

/* Each command: its name, and what --help says of it. The shells' completions read it there. */
#define PT_COMMANDS(X)                                                         \
	X(trace, "Trace a job (the default)")                                  \
	X(list, "List the GPU jobs of this machine")                           \
	X(doctor, "Say what can be seen on this machine")                      \
	X(demo, "Trace a job on a simulated GPU")                              \
	X(record, "Record a job, to be diagnosed later")                       \
	X(top, "Watch a job live, on the whole screen")                        \
	X(watch, "Watch a job for days, and save unusual moments")              \
	X(report, "Diagnose a recorded file")                                  \
	X(diff, "Compare reports: what changed, beyond noise")                 \
	X(export, "Convert a recorded file to other programs' formats")        \
	X(agent, "Sample the jobs of this node from time to time, for Prometheus") \
	X(stack, "Print what every thread of a job is doing")                  \
	X(fleet, "Rank the jobs of many nodes by wasted GPU time")

/* The whole program: choose a command and run it. */
int pt_cmd_main(int argc, char **argv);

int pt_cmd_trace(int argc, char **argv);
int pt_cmd_list(int argc, char **argv);
int pt_cmd_doctor(int argc, char **argv);
int pt_cmd_demo(int argc, char **argv);
int pt_cmd_top(int argc, char **argv);
int pt_cmd_record(int argc, char **argv);
int pt_cmd_watch(int argc, char **argv);
int pt_cmd_report(int argc, char **argv);
int pt_cmd_diff(int argc, char **argv);
int pt_cmd_export(int argc, char **argv);
int pt_cmd_agent(int argc, char **argv);
int pt_cmd_stack(int argc, char **argv);
int pt_cmd_fleet(int argc, char **argv);

#endif
