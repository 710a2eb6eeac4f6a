/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of all commands, read by argp; nothing here exits or acts. */
#ifndef PT_OPTIONS_H
#define PT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "analysis/verdicts/thresholds.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/when.h"
#include "capture/capture.h"
#include "fleet/fleet.h"
#include "report/report.h"

#define PT_MAX_PIDS 64
#define PT_MAX_FILES 26

/* Formats of `export`, in the order in which they are written. */
enum pt_export_format {
	PT_EXPORT_PERFETTO = 0,
	PT_EXPORT_CHROME,
	PT_EXPORT_FOLDED,
	PT_EXPORT_HTML, /* also beside the diagnosis */
	PT_EXPORT_SQLITE,
	PT_EXPORT_CSV, /* a folder */
	PT_EXPORT_STACKS,
	PT_EXPORT_SPEEDSCOPE,
	PT_EXPORT_NR
};

/* A part of a schedule: so many steps, or so much time. */
struct pt_span_opt {
	uint64_t ns;   /* 0: counted in steps */
	int64_t steps;
};
struct pt_schedule_opt {
	struct pt_span_opt wait, warmup, active;
	int64_t repeat; /* 0: until something else ends the trace */
	bool set;
};

struct pt_opts {
	pid_t pids[PT_MAX_PIDS];
	size_t n_pids;
	char **cmd; /* after "--", NULL-terminated; or NULL */
	double duration; /* seconds; 0: until the end or Ctrl-C */
	bool auto_duration;
	const char *json;	/* file, "-", or NULL */
	const char *summary;	/* likewise */
	const char *output;	/* file to record to, or NULL */
	bool record_only;	/* no diagnosis, and no memory for one */
	uint64_t piece_bytes; /* cut the timelines there; 0: as fits */
	const char *raw_stream; /* file to write (trace) or read (report) */
	int64_t batch_size;	/* 0 unknown */
	int64_t print_steps;
	enum pt_op_sort sort; /* of the operations */
	int file_sort, worker_sort; /* enum pt_file_sort ...; -1: as they are */
	int top;	      /* of them; 0: the usual number; -1: all */
	bool operations;      /* they are asked for */
	int fail_on; /* enum pt_severity, -1: never */
	enum pt_mode mode;
	enum pt_loudness loud;
	const char *step_marker; /* [LIBRARY:]FUNCTION, or NULL */
	bool ascii, no_uprobe_multi, no_gpu_probes;
	bool no_adopt; /* follow nobody outside of the tree */
	bool no_python; /* do not read the job's Python */
	double budget; /* share of the job's time that the hooks may take; 0: no limit */
	bool cupti; /* exact GPU times, by an agent in the job */
	unsigned reads; /* PT_READS_* */
	char *labels[PT_LABELS_MAX]; /* "key=value", checked */
	size_t n_labels;
	struct pt_thresholds thresholds; /* of the verdicts */
	char *files[PT_MAX_FILES];
	size_t n_files;
	const char *export_to[PT_EXPORT_NR]; /* NULL: not asked for */
	const char *format; /* of `export`, where -o says where to; or NULL */
	uint64_t from_ns, until_ns; /* --window; both 0: all */
	int64_t first_step, last_step;
	bool by_steps;
	uint64_t max_size; /* of the recorded file, bytes; 0: no limit */
	struct pt_schedule_opt schedule;
	uint64_t at_ns; /* --at; 0: at once */
	bool at_aligned;
	bool force; /* replace what exists */
	double fail_on_regression; /* share of the throughput; NAN: never */
	double interval_s; /* of top */
	double last_s;	   /* ... and watch: the window */
	uint64_t memory;   /* bytes of its records */
	struct pt_when when[PT_WHEN_MAX]; /* of watch */
	size_t n_when;
	int64_t warmup, max_windows;
	double cooldown_s;
	uint64_t max_bytes;
	const char *config, *listen; /* of agent */
	bool check; /* the configuration, and end */
	struct pt_prometheus_options server; /* of fleet */
	struct pt_fleet_ask fleet;
	bool help, version; /* asked for and already answered */
};

/* Which options a command takes. */
enum pt_optset {
	PT_OPTS_TRACE,
	PT_OPTS_RECORD,
	PT_OPTS_REPORT, /* a file as argument */
	PT_OPTS_DIFF,	/* files as arguments */
	PT_OPTS_EXPORT, /* a file as argument */
	PT_OPTS_TOP,
	PT_OPTS_WATCH,
	PT_OPTS_TARGET, /* -p PID only */
	PT_OPTS_STACK,
	PT_OPTS_AGENT,
	PT_OPTS_FLEET,
	PT_OPTS_PLAIN,
};

/*
 * Parse. `doc` is the command's help text. 0; or -EINVAL after one sentence
 * on standard error. Sets up the log.
 */
int pt_opts_parse(struct pt_opts *o, enum pt_optset set, const char *doc,
		  int argc, char **argv);

/* The same for a command: whether it is done, with *status, for having been asked wrongly
 * or for help. */
bool pt_opts_done(struct pt_opts *o, enum pt_optset set, const char *doc, int argc,
		  char **argv, int *status);

/* Put the labels into a report. 0 or -ENOMEM. */
int pt_opts_label(const struct pt_opts *o, struct pt_report *r);
/* "wait=10s,warmup=2s,active=10s,repeat=3": in any order, active above 0, what is
 * not said is 0. 0 or -EINVAL. */
int pt_parse_schedule(const char *text, struct pt_schedule_opt *out);
/* Does this terminal show UTF-8 (by the locale)? */
bool pt_locale_is_utf8(void);

#endif
