/* SPDX-License-Identifier: BSD-2-Clause */
/* One trace from attach to report, as `trace` and `demo` run it. */
#ifndef PT_CMD_SESSION_H
#define PT_CMD_SESSION_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "analysis/analysis.h"
#include "base/clock.h"
#include "capture/capture.h"
#include "capture/discover.h"
#include "cmd/options.h"
#include "cmd/outfile.h"
#include "cmd/parts.h"
#include "cmd/pieces.h"
#include "cmd/saving.h"
#include "cmd/spawn.h"
#include "inject/cupti.h"
#include "model/model.h"
#include "model/outside.h"
#include "python/watcher.h"
#include "report/lanes.h"
#include "report/report.h"

enum pt_stop {
	PT_STOP_NONE = 0,
	PT_STOP_SIGNAL,
	PT_STOP_TARGET, /* it ended */
	PT_STOP_TIME,
	PT_STOP_STEPS,
	PT_STOP_ERROR,
};

enum pt_phase { PT_PHASE_WAIT, PT_PHASE_WARMUP, PT_PHASE_ACTIVE };

struct pt_session {
	const struct pt_opts *o;
	struct pt_spawn *cmd; /* the command that was started, or NULL */
	bool cmd_is_ours;     /* demo: ends with the trace */

	struct pt_capture *cap;
	struct pt_cupti *cupti; /* NULL: not asked for */
	struct pt_py_watcher *watcher; /* NULL: Python is not read */
	int unsampled; /* -errno: why what runs is not sampled in the kernel; 0 */
	struct pt_model *model;
	struct pt_outside outside; /* who supplies the job from there */
	struct pt_report *report;
	struct pt_outfile json, summary, raw, html;
	struct pt_lanes lanes; /* for the page, in the report */
	struct pt_saving saving;

	pid_t roots[PT_MAX_PIDS];
	int pidfds[PT_MAX_PIDS]; /* -1: gone, or this kernel has none */
	size_t n_roots;
	struct pt_job job; /* of the first pid */
	bool trainer_known;

	char *warnings; /* said while attaching; shown once that has worked */
	size_t warnings_len;
	FILE *warn_stream;

	uint64_t begin_ns;
	int64_t steps_begun; /* so far, counted where --steps wants it */
	uint64_t newest_step_ns; /* ... up to this one's begin */
	struct { /* --schedule */
		enum pt_phase phase;
		uint64_t since;	  /* the phase began */
		uint64_t step_ns; /* a step took, seen last; 0 unknown */
		int64_t cycle;
	} sched;
	struct pt_parts parts;
	struct pt_long pieces; /* of a trace that is too long to be held */
	struct pt_past past;   /* ... for the page */
	enum pt_stop stop;
	int error; /* first error of the capture */
	bool raw_failed, interrupted;
};

/* What the options ask of the analysis. */
static inline struct pt_analysis_opts pt_opts_analysis(const struct pt_opts *o)
{
	return (struct pt_analysis_opts){
		.batch_size = o->batch_size, .thresholds = &o->thresholds,
		.from_ns = o->from_ns, .until_ns = o->until_ns,
		.first_step = o->first_step, .last_step = o->last_step,
		.by_steps = o->by_steps };
}

/* A record of a running capture: does it show somebody outside of the tree who is
 * to be followed? Nothing where `o` says so. */
void pt_adopt(const struct pt_opts *o, struct pt_outside *seen,
	      struct pt_capture *cap, const void *rec);

/*
 * Trace the pids of `o`, or `cmd`, and print the diagnosis. Returns the exit
 * status; every error has been told. `cmd` stays the caller's.
 */
int pt_trace(const struct pt_opts *o, struct pt_spawn *cmd, bool cmd_is_ours);

/* Block the signals that stop a trace; they are read as events. Before the
 * first thread or child. 0 or -errno. */
int pt_block_signals(void);

/* These signals. */
void pt_stop_signals(sigset_t *set);
/* schedule.c: wait for the moment of --at; with the signals blocked. 0; -EINTR:
 * one of them came, and that was told. */
int pt_wait_at(const struct pt_opts *o);

/* session.c to loop.c: run until something stops it (s->stop). */
int pt_session_loop(struct pt_session *s, struct pt_err *err);
/* Which doors the capture took, into a report. 0 or -ENOMEM. */
int pt_session_hooks(const struct pt_capture *cap, struct pt_report *r);
/* A record of the capture, for the model and the stream file. */
void pt_session_record(void *ctx, const void *rec, size_t len);
/* exact.c: exact GPU times, where they were asked for. Begin; once a second, for
 * ranks that come later; at the end, before the capture stops; and what came of it,
 * for the report. */
int pt_session_exact_begin(struct pt_session *s, struct pt_err *err);
void pt_session_exact_tick(struct pt_session *s);
void pt_session_exact_quiet(struct pt_session *s);
void pt_session_exact_state(struct pt_session *s);
/* lines.c: lines of Python. Begin; once a second; some ten times a second; before the
 * capture stops. Where they are not to be had, the trace goes on without. */
#define PT_LINES_PROCESSES 1024
bool pt_session_wants_lines(const struct pt_opts *o);
void pt_session_lines_begin(struct pt_session *s);
void pt_session_lines_tick(struct pt_session *s);
void pt_session_lines_drain(struct pt_session *s);
void pt_session_lines_end(struct pt_session *s);
double pt_session_lines_cpu(const struct pt_session *s); /* that it took, s */
/* schedule.c: before the loop, some ten times a second in it, and before the
 * capture stops. 0 or -errno. */
int pt_schedule_begin(struct pt_session *s);
int pt_schedule_step(struct pt_session *s);
int pt_schedule_end(struct pt_session *s);
bool pt_schedule_quiet(const struct pt_session *s); /* are the hooks? */
/* Look for the trainer of a job that had no GPU library at first. */
void pt_session_find_trainer(struct pt_session *s);


/*
 * replay.c: fill a new report from a recorded file, or a record stream for
 * developers; which of them, its first bytes tell. `name` is the file's, for
 * messages; `f`, seekable, stays the caller's. 0 or -errno after one sentence
 * on standard error.
 */
int pt_replay(FILE *f, const char *name, const struct pt_opts *o,
	      struct pt_report *r);
/* The same; then `then` sees the model and what can be drawn, before both go.
 * Its result is the result. */
struct pt_lanes;
typedef int (*pt_replayed_fn)(void *ctx, const struct pt_model *m,
			      const struct pt_lanes *lanes);
int pt_replay_then(FILE *f, const char *name, const struct pt_opts *o,
		   struct pt_report *r, pt_replayed_fn then, void *ctx);
/* Is the file a recording of ours? Rewinds it. */
bool pt_replay_is_recording(FILE *f);

/* Timelines in memory; a busy job makes about half a megabyte a second. What takes
 * more is looked at in pieces of nearly the latter: many, so that what they take
 * stays small. A live trace, once it has come to that. */
#define PT_MAX_MODEL_BYTES (512ull << 20)
#define PT_MAX_LIVE_BYTES (128ull << 20) /* where what is older can be looked at by parts */
#define PT_PIECE_BYTES (64ull << 20)

/* live.c: the line that tells how it goes. `tick` counts seconds. */
void pt_live_tick(struct pt_session *s, unsigned tick);

/*
 * output.c: text to standard output, unless one of these goes there; JSON and summary
 * where they are open. The operations are put in the order asked for. Returns the exit
 * status, --fail-on included; errors have been told.
 */
int pt_output(struct pt_report *r, const struct pt_opts *o,
	      struct pt_outfile *json, struct pt_outfile *summary);
/* Open those that are asked for, and the page. 0 or -errno with `err` filled. */
int pt_output_open(const struct pt_opts *o, struct pt_outfile *json,
		   struct pt_outfile *summary, struct pt_outfile *html,
		   struct pt_err *err);
/* The page, where one was asked for (`html` is open). 0 or -errno after a
 * sentence; the file is closed either way. */
int pt_output_html(const struct pt_report *r, const struct pt_model *m,
		   const struct pt_lanes *lanes, struct pt_outfile *html);
/* Open it, if asked for: a page does not mix with the diagnosis on standard
 * output. 0 or -errno with `err` filled. */
int pt_output_html_open(const struct pt_opts *o, struct pt_outfile *html,
			struct pt_err *err);
/* Do colours go to standard output; how wide it is (0: unknown). */
bool pt_want_color(void);
int pt_terminal_width(void);

#endif
