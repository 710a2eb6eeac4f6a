// SPDX-License-Identifier: BSD-2-Clause
/* Which options each command takes, with their help. */
#include "cmd/opttable.h"

#include "cmd/cmd.h"

#define COMMON                                                                 \
	{ "quiet", 'q', NULL, 0, "Print only errors and, of a diagnosis, the verdicts", 20 },             \
	{ "verbose", 'v', NULL, 0, "Print more details", 20 },                           \
	SHARED
#define SHARED                                                                 \
	{ "ascii", K_ASCII, NULL, 0, "Draw with ASCII only", 20 },             \
	{ "help", 'h', NULL, 0, "Show this help", 21 },                        \
	{ "version", 'V', NULL, 0, "Show the version", 21 },                   \
	{ NULL, 0, NULL, 0, NULL, 0 }
#define TARGET(text) { "pid", 'p', "PID[,PID]", 0, text, 1 }
#define TARGET_ONE(text) { "pid", 'p', "PID", 0, text, 1 }
#define LABEL                                                                  \
	{ "label", K_LABEL, "KEY=VALUE", 0,                                    \
	  "Label this run in its report, for diff to show; may be given "      \
	  "several times", 3 }
#define HTML(text)                                                             \
	{ "html", K_EXPORT + PT_EXPORT_HTML, "FILE", 0, text, 3 }
#define THRESHOLD                                                              \
	{ "threshold", K_THRESHOLD, "NAME=VALUE", 0,                           \
	  "Set a threshold that verdicts are decided by; may be given "        \
	  "several times (names and defaults: man pipetrace)", 3 }
#define RENDER                                                                 \
	HTML("Write the report, with timeline and plots, as one HTML page"),   \
	{ "json", K_JSON, "FILE", 0,                                           \
	  "Write the report as JSON to FILE; - is standard output, with no "   \
	  "text there", 3 },                                                   \
	{ "summary", K_SUMMARY, "FILE", 0,                                     \
	  "Write a few lines of Markdown for chat or a pull request to FILE; " \
	  "- is standard output, with no text there", 3 },                     \
	{ "batch-size", K_BATCH, "N", 0, "Samples per batch, for samples/s", 3 }, \
	{ "print-steps", K_STEPS, "N", 0, "Print the first N steps", 3 },      \
	{ "sort", K_SORT, "KEY", 0,                                            \
	  "List the operations by total (default), calls, mean, max, gpu, "    \
	  "cpu or name; files by files:bytes, reads, blocked, p99, again or "  \
	  "path; workers by workers:slowdown, p50, batches, read, disk or "    \
	  "pid; may be given for each", 3 },                                   \
	{ "top", K_TOP, "N", 0,                                                \
	  "List the first N operations, files and workers; 0: all", 3 },       \
	THRESHOLD,                                                             \
	{ "fail-on", K_FAIL, "SEVERITY", 0,                                    \
	  "Exit with 3 when a verdict is at least that severe: info, warning "    \
	  "or critical", 3 }

#define PIECE                                                                  \
	{ "piece-bytes", K_PIECE, "N", OPTION_HIDDEN,                          \
	  "Look at it in pieces where its timelines take more; for tests", 1 }
#define WINDOW(text) { "window", K_WINDOW, "A..B", 0, text, 2 }
#define STEPS(text) { "steps", K_RANGE, "A..B", 0, text, 2 }
#define AT                                                                     \
	{ "at", K_AT, "+TIME|/TIME", 0,                                        \
	  "Begin in TIME (+30s), or at the next multiple of TIME by the "      \
	  "clock (/10s), so that several hosts begin together", 2 }
#define SCHEDULE                                                               \
	{ "schedule", K_SCHEDULE, "PARTS", 0,                                  \
	  "Capture now and then: wait=10s,warmup=2s,active=10s,repeat=3; "     \
	  "numbers without a unit are steps; without repeat it goes on "       \
	  "until the end", 2 }
#define OUTPUT                                                                 \
	{ "output", 'o', "FILE", 0,                                            \
	  "Record the capture in FILE, for `pipetrace report FILE`", 3 },      \
	{ "max-size", K_MAXSIZE, "SIZE", 0,                                    \
	  "Keep the recorded file below SIZE (500M, 2G) by dropping its "      \
	  "oldest part", 3 }
#define MODE                                                                   \
	{ "mode", K_MODE, "MODE", 0,                                           \
	  "How much to trace: light, standard (default) or full", 2 }
#define MODE_LIGHT                                                             \
	{ "mode", K_MODE, "MODE", 0,                                           \
	  "How much to trace: light (default), standard or full", 2 }
#define CUPTI                                                                  \
	{ "cupti", K_CUPTI, NULL, 0,                                           \
	  "Exact GPU times: for the time of the trace, load an agent into "    \
	  "the job that asks CUPTI; without it GPU times are bounds", 2 }
#define NOGPU                                                                  \
	{ "no-gpu-probes", K_NOGPU, NULL, 0,                                   \
	  "Hook nothing in the job's GPU libraries: GPU calls are not seen; "  \
	  "the scheduler, file reads and --cupti still are", 2 }
#define ADOPT                                                                  \
	{ "no-adopt", K_NOADOPT, NULL, 0,                                      \
	  "Follow only the job's own processes; by default also those "        \
	  "outside it that it waits for, like a data service", 2 }
#define PYTHON                                                                 \
	{ "no-python", K_NOPYTHON, NULL, 0,                                    \
	  "Do not sample Python stacks; by default, except in mode light, "    \
	  "they are sampled at a cost of about 1 % of a core", 2 }
#define BUDGET                                                                 \
	{ "budget", K_BUDGET, "PERCENT", 0,                                    \
	  "Slow the job down by no more than this, like 0.5%: hooks that "     \
	  "cost most for what they tell are switched off one by one, and the " \
	  "report says which and when; totals stay complete", 2 }
#define MARKER                                                                 \
	{ "step-marker", K_MARKER, "[LIBRARY:]FUNCTION", 0,                    \
	  "Each call of this function of the job begins a step; by default "   \
	  "steps are found without a marker", 2 }

static const struct argp_option trace_options[] = {
	PIECE,
	TARGET("Trace these processes and all their descendants"),
	{ "duration", 'd', "SEC|auto", 0,
	  "Stop after SEC seconds; auto: after 20 steps and 5 s, or 120 s (default: at "
	  "Ctrl-C or when the job ends)", 2 },
	STEPS("Report steps A to B only (the first is 0), and stop after step B"),
	AT,
	SCHEDULE,
	MODE,
	ADOPT,
	PYTHON,
	BUDGET,
	CUPTI,
	NOGPU,
	MARKER,
	OUTPUT,
	RENDER,
	LABEL,
	{ NULL, 0, NULL, 0, "For developers of pipetrace:", 10 },
	{ "raw-stream", K_RAW, "FILE", 0,
	  "Also store the record stream; its format may change at any time",
	  10 },
	{ "no-uprobe-multi", K_NOMULTI, NULL, 0,
	  "Attach through perf events even where multi-uprobe links work", 10 },
	{ "reads", K_READS, "DOOR", 0,
	  "Trace reads by this kind of hook: fexit, kprobe, pages, syscall, "
	  "none; auto (default) takes the first that the kernel has", 10 },
	{ NULL, 0, NULL, 0, "Commands (pipetrace COMMAND --help has the options of each):", 30 },
#define X(name, text) { #name, 0, NULL, OPTION_DOC, text, 30 },
	PT_COMMANDS(X)
#undef X
	COMMON
};

static const struct argp_option record_options[] = {
	TARGET("Record these processes and all their descendants"),
	{ "duration", 'd', "SEC", 0,
	  "Stop after SEC seconds (default: at Ctrl-C or when the job ends)",
	  2 },
	AT,
	SCHEDULE,
	MODE,
	ADOPT,
	PYTHON,
	BUDGET,
	CUPTI,
	NOGPU,
	MARKER,
	OUTPUT,
	LABEL,
	COMMON
};

static const struct argp_option report_options[] = {
	{ "raw-stream", K_RAW, "FILE", 0,
	  "Replay a record stream that a trace stored; for developers, its "
	  "format may change at any time", 1 },
	PIECE,
	WINDOW("Report only from A to B after the start of the capture, like 12s..20s or "
	       "500ms.."),
	STEPS("Report steps A to B only, both included (the first is 0)"),
	RENDER,
	LABEL,
	COMMON
};

static const struct argp_option diff_options[] = {
	{ "json", K_JSON, "FILE", 0,
	  "Write the comparison as JSON to FILE; - is standard output, with no "
	  "text there", 1 },
	HTML("Write the comparison as one HTML page"),
	{ "batch-size", K_BATCH, "N", 0,
	  "Samples per batch, for captures that do not say it", 1 },
	{ "fail-on-regression", K_REGRESSION, "PCT", 0,
	  "Exit with 3 when the throughput of a later capture is PCT percent or "
	  "more below the first's, beyond noise", 1 },
	COMMON
};

#define FORMAT(name, format, out, text)                                        \
	{ name, K_EXPORT + PT_EXPORT_##format, out, 0, text, 1 }
static const struct argp_option export_options[] = {
	FORMAT("perfetto", PERFETTO, "FILE", "A trace for ui.perfetto.dev"),
	FORMAT("chrome", CHROME, "FILE",
	       "Chrome's trace events (JSON), as torch.profiler writes them"),
	FORMAT("csv", CSV, "DIR", "A new folder with a CSV file for each table"),
	FORMAT("sqlite", SQLITE, "FILE", "A database of the same tables"),
	FORMAT("folded", FOLDED, "FILE",
	       "Time off the CPU as folded stacks, for flame graphs"),
	FORMAT("stacks", STACKS, "FILE",
	       "Time by Python stack as folded stacks, for flame graphs"),
	FORMAT("speedscope", SPEEDSCOPE, "FILE",
	       "Python stacks of each thread in the order of time, for speedscope"),
	FORMAT("html", HTML, "FILE", "The report as one page for a browser"),
	{ "format", K_FORMAT, "FORMAT", 0,
	  "With -o: one of the formats above, by name", 1 },
	{ "output", 'o', "OUT", 0, "Where to write what --format chose", 1 },
	{ "force", K_FORCE, NULL, 0, "Replace files that exist", 2 },
	PIECE,
	WINDOW("Only from A to B after the start of the capture, like 12s..20s; for "
	       "--perfetto, --chrome, --stacks, --speedscope and --html"),
	STEPS("Only steps A to B (the first is 0); for the same formats"),
	{ "batch-size", K_BATCH, "N", 0, "Samples per batch, for samples/s", 2 },
	COMMON
};

static const struct argp_option top_options[] = {
	TARGET_ONE("Watch this job; by default the only one there is, or the one "
		   "chosen on the screen"),
	{ "duration", 'd', "SEC", 0, "Quit after SEC seconds", 2 },
	{ "interval", K_INTERVAL, "SEC", 0,
	  "Renew the diagnosis every SEC seconds (default 2)", 2 },
	{ "last", K_LAST, "SEC", 0,
	  "Diagnose the last SEC seconds (default 10)", 2 },
	MODE,
	ADOPT,
	PYTHON,
	{ "batch-size", K_BATCH, "N", 0, "Samples per batch, for samples/s", 3 },
	THRESHOLD,
	COMMON
};

static const struct argp_option watch_options[] = {
	TARGET_ONE("Watch this job"),
	{ "when", K_WHEN, "CONDITION", 0,
	  "What to catch: 'step > 3x median' (the default), 'step > 500ms', "
	  "'wait > 2s', 'wait > 20%', 'worker silent > 10s', 'rank late > 500ms'; "
	  "may be given several times", 2 },
	{ "keep", K_KEEP, "TIME", 0,
	  "Save this much of the capture around it (default 30s)", 2 },
	{ "cooldown", K_COOLDOWN, "TIME", 0,
	  "After saving one, save nothing for TIME (default 1m)", 2 },
	{ "warmup", K_WARMUP, "N", 0, "Judge no step before N have been seen (default 20)", 2 },
	{ "duration", 'd', "SEC", 0,
	  "Stop after SEC seconds (default: at Ctrl-C or when the job ends)", 2 },
	MODE_LIGHT,
	ADOPT,
	{ "output", 'o', "DIR", 0, "Save what was caught (windows) in this folder, each in one of its own", 3 },
	{ "max-windows", K_MAXWINDOWS, "N", 0,
	  "Keep the last N windows in the folder, of earlier runs, too (default 50)", 3 },
	{ "max-bytes", K_MAXBYTES, "SIZE", 0,
	  "Keep windows of no more than SIZE together (default 1G): the oldest are removed", 3 },
	{ "memory", K_MEMORY, "SIZE", 0,
	  "Hold up to SIZE of records in memory (default 256M); where that is too "
	  "little for --keep, windows are shorter", 3 },
	COMMON
};

static const struct argp_option target_options[] = {
	TARGET("Also look at this job"), COMMON
};

static const struct argp_option stack_options[] = {
	TARGET("Print the threads of these processes and of all below them"),
	{ "duration", 'd', "SEC", 0,
	  "Sample for SEC seconds, and say where each thread spent the time", 2 },
	COMMON
};

static const struct argp_option agent_options[] = {
	{ "config", K_CONFIG, "FILE", 0, "Read the configuration from FILE", 1 },
	{ "listen", K_LISTEN, "ADDR:PORT", 0,
	  "Serve at this address instead of the configured one", 1 },
	{ "check", K_CHECK, NULL, 0,
	  "Only check the configuration, and say what is wrong with it", 1 },
	COMMON
};

static const struct argp_option fleet_options[] = {
	{ "prometheus", K_URL, "URL", 0, "The server, like http://localhost:9090", 1 },
	{ "since", K_SINCE, "TIME", 0, "Look at the last TIME (1h by default), at "
	  "least 10s", 2 },
	{ "top", K_JOBS, "N", 0, "List the first N jobs (20 by default)", 2 },
	{ "sort", K_RANK, "KEY", 0, "By wasted (default), share (wasted, of the job's own "
	  "GPU time) or gpu (GPU time)", 2 },
	{ "json", K_JSON, "FILE", 0, "Write the list as JSON to FILE; - is standard output, "
	  "with no text there", 3 },
	{ "token-file", K_TOKEN, "FILE", 0, "Send the bearer token in FILE", 4 },
	{ "ca", K_CA, "FILE", 0, "Trust the certificates in FILE (PEM)", 4 },
	{ "timeout", K_TIMEOUT, "SEC", 0, "Give up after SEC seconds (60 by default)", 4 },
	SHARED
};

static const struct argp_option plain_options[] = { COMMON };

const struct argp_option *const pt_opts_tables[] = {
	[PT_OPTS_TRACE] = trace_options,
	[PT_OPTS_RECORD] = record_options,
	[PT_OPTS_REPORT] = report_options,
	[PT_OPTS_DIFF] = diff_options,
	[PT_OPTS_EXPORT] = export_options,
	[PT_OPTS_TOP] = top_options,
	[PT_OPTS_WATCH] = watch_options,
	[PT_OPTS_TARGET] = target_options,
	[PT_OPTS_STACK] = stack_options,
	[PT_OPTS_AGENT] = agent_options,
	[PT_OPTS_FLEET] = fleet_options,
	[PT_OPTS_PLAIN] = plain_options,
};

const char *const pt_opts_arguments[] = {
	[PT_OPTS_TRACE] = "-p PID[,PID]\n-- CMD [ARG...]",
	[PT_OPTS_RECORD] = "record -p PID[,PID] -o FILE\n"
			   "record -o FILE -- CMD [ARG...]",
	[PT_OPTS_REPORT] = "report FILE",
	[PT_OPTS_DIFF] = "diff BEFORE AFTER [MORE...]",
	[PT_OPTS_EXPORT] = "export --FORMAT OUT... FILE\n"
			   "export FILE --format FORMAT -o OUT",
	[PT_OPTS_TOP] = "top [-p PID]",
	[PT_OPTS_WATCH] = "watch -p PID -o DIR",
	[PT_OPTS_TARGET] = "doctor [-p PID]",
	[PT_OPTS_STACK] = "stack -p PID[,PID]",
	[PT_OPTS_AGENT] = "agent --config FILE",
	[PT_OPTS_FLEET] = "fleet --prometheus URL",
	[PT_OPTS_PLAIN] = NULL,
};
