// SPDX-License-Identifier: BSD-2-Clause
/* The lines of the job's Python, beside a trace of it. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/session.h"
#include "python/looks.h"
#include "python/reader.h"

struct list {
	pid_t *v;
	size_t n;
};

static bool is_there(void *ctx, pid_t pid)
{
	const struct list *l = ctx;

	return bsearch(&pid, l->v, l->n, sizeof(pid), pt_by_pid);
}

static void follow(struct pt_session *s)
{
	static pid_t pids[PT_LINES_PROCESSES];
	size_t n = pt_capture_processes(s->cap, pids, PT_LINES_PROCESSES), i;
	bool quiet = pt_schedule_quiet(s) || pt_capture_saved(s->cap) & PT_SAVE_LINES;
	struct list list = { pids, n };

	qsort(pids, n, sizeof(*pids), pt_by_pid);
	pt_capture_py_keep(s->cap, is_there, &list);
	pt_capture_py_quiet(s->cap, quiet);
	for (i = 0; i < n; i++)
		if (pt_capture_py_has(s->cap, pids[i]))
			pids[i] = -pids[i];
	pt_py_watcher_follow(s->watcher, pids, quiet ? 0 : n);
}

/* What can be sampled is from now on. */
static void take_found(struct pt_session *s)
{
	struct pt_py_found f;
	bool any = false;
	int r;

	while (pt_py_watcher_found(s->watcher, &f)) {
		r = pt_capture_py_add(s->cap, f.pid, &f.where);
		any |= !r;
		if (r && r != -EOPNOTSUPP)
			s->unsampled = r;
	}
	if (any)
		follow(s);
}

bool pt_session_wants_lines(const struct pt_opts *o)
{
	return !o->no_python && o->mode != PT_MODE_LIGHT;
}

void pt_session_lines_begin(struct pt_session *s)
{
	struct pt_err err = { "" };
	size_t bytes;
	int ring;

	if (!pt_session_wants_lines(s->o))
		return;
	ring = pt_capture_py_ring(s->cap, &bytes);
	if (pt_py_watcher_start(&s->watcher, ring, bytes, &err))
		pt_note("without lines of Python: %s", err.msg);
	else
		follow(s);
}

void pt_session_lines_tick(struct pt_session *s)
{
	if (!s->watcher)
		return;
	pt_capture_py_tick(s->cap, pt_py_watcher_seen(s->watcher)->sample_ns, PT_PY_SAMPLES_BUDGET);
	follow(s);
}

void pt_session_lines_drain(struct pt_session *s)
{
	if (!s->watcher)
		return;
	if (!pt_py_watcher_drain(s->watcher, pt_session_record, s))
		pt_capture_py_quiet(s->cap, true); /* nobody is there to read them */
	take_found(s);
}

/* Nothing was sampled in the kernel. */
static void note_looks(const struct pt_session *s, const struct pt_py_seen *seen, char *note,
		       size_t n)
{
	char refused[96] = "";

	if (s->unsampled)
		snprintf(refused, sizeof(refused), "they are from outside, as the kernel refuses "
			 "samples: %.30s", strerror(-s->unsampled));
	snprintf(note, n, "%u looks took %.1f ms of CPU; %.100s", seen->looks,
		 (double)seen->cpu_ns / 1e6,
		 seen->why[0] ? seen->why : refused[0] ? refused : "what is asleep is read once");
}

/* How it went is told as of any other hook. */
void pt_session_lines_end(struct pt_session *s)
{
	struct pt_py_counts n;
	const struct pt_py_seen *seen;
	char note[160] = "";
	unsigned hz;

	if (!s->watcher)
		return;
	pt_py_watcher_stop(s->watcher, pt_session_record, s);
	seen = pt_py_watcher_seen(s->watcher);
	pt_capture_spent_elsewhere(s->cap, seen->cpu_ns);
	pt_capture_py_quiet(s->cap, true);
	pt_capture_py_counts(s->cap, &n, &hz);
	if (seen->processes && hz)
		snprintf(note, sizeof(note), "%u samples, at most %u a second of a core (%llu lost; "
			 "%.1f us each, %.1f to read); %u looks; %.0f ms of CPU%s%.30s",
			 seen->samples, hz, (unsigned long long)(n.unread + n.full + seen->strange),
			 n.tried ? (double)n.ns / (double)n.tried / 1e3 : 0,
			 seen->samples ? (double)seen->sample_ns / seen->samples / 1e3 : 0, seen->looks,
			 (double)seen->cpu_ns / 1e6, seen->why[0] ? "; " : "", seen->why);
	else if (seen->processes)
		note_looks(s, seen, note, sizeof(note));
	else if (seen->why[0])
		snprintf(note, sizeof(note), "%.150s", seen->why);
	else
		snprintf(note, sizeof(note), "no Python was seen in the job");
	pt_capture_hook(s->cap, "python", !seen->processes ? "none" : hz ? "perf_event" :
			"process_vm_readv", note);
}

double pt_session_lines_cpu(const struct pt_session *s)
{
	return s->watcher ? (double)pt_py_watcher_seen(s->watcher)->cpu_ns / 1e9 : 0;
}
