// SPDX-License-Identifier: BSD-2-Clause
/* The lines of the job's Python, beside a trace of it. */

#include "cmd/session.h"

static void follow(struct pt_session *s)
{
	static pid_t pids[PT_LINES_PROCESSES];
	size_t n = pt_capture_processes(s->cap, pids, PT_LINES_PROCESSES);

	if (pt_schedule_quiet(s) || pt_capture_saved(s->cap) & PT_SAVE_LINES)
		n = 0;
	pt_py_watcher_follow(s->watcher, pids, n);
}

void pt_session_lines_begin(struct pt_session *s)
{
	struct pt_err err = { "" };

	if (s->o->no_python || s->o->mode == PT_MODE_LIGHT)
		return;
	if (pt_py_watcher_start(&s->watcher, &err))
		pt_note("without lines of Python: %s", err.msg);
	else
		follow(s);
}

void pt_session_lines_tick(struct pt_session *s)
{
	if (s->watcher)
		follow(s);
}

void pt_session_lines_drain(struct pt_session *s)
{
	if (s->watcher)
		pt_py_watcher_drain(s->watcher, pt_session_record, s);
}

/* How it went is told as of any other hook. */
void pt_session_lines_end(struct pt_session *s)
{
	const struct pt_py_seen *seen;
	char note[160] = "";

	if (!s->watcher)
		return;
	pt_py_watcher_stop(s->watcher, pt_session_record, s);
	seen = pt_py_watcher_seen(s->watcher);
	pt_capture_spent_elsewhere(s->cap, seen->cpu_ns);
	if (seen->processes)
		snprintf(note, sizeof(note), "%u looks took %.1f ms of CPU; %.100s", seen->looks,
			 (double)seen->cpu_ns / 1e6,
			 seen->why[0] ? seen->why : "what is asleep is read once");
	else if (seen->why[0])
		snprintf(note, sizeof(note), "%.150s", seen->why);
	else
		snprintf(note, sizeof(note), "no Python was seen in the job");
	pt_capture_hook(s->cap, "python", seen->processes ? "process_vm_readv" : "none", note);
}

double pt_session_lines_cpu(const struct pt_session *s)
{
	return s->watcher ? (double)pt_py_watcher_seen(s->watcher)->cpu_ns / 1e9 : 0;
}
