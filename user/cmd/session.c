// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/heap.h"
#include "capture/elf.h"
#include "cmd/cmd.h"
#include "cmd/host.h"
#include "cmd/session.h"
#include "cmd/sudo.h"
#include "report/about.h"
#include "store/rawstream.h"

void pt_adopt(const struct pt_opts *o, struct pt_outside *seen,
	      struct pt_capture *cap, const void *rec)
{
	struct pt_outside_seen by;
	struct pt_supplier s;

	if (o->no_adopt || !cap || !pt_outside_see(seen, rec, &by))
		return;
	s = (struct pt_supplier){ .pid = (pid_t)by.waker,
				  .waiter = (pid_t)by.waiter,
				  .wakes = by.wakes,
				  .slept_ns = by.slept_ns,
				  .surely = pt_outside_surely(&by) };
	pt_capture_adopt(cap, &s);
}

void pt_session_record(void *ctx, const void *rec, size_t len)
{
	struct pt_session *s = ctx;
	struct pt_analysis_opts a = pt_opts_analysis(s->o);
	int err = 0;

	pt_adopt(s->o, &s->outside, s->cap, rec);
	/* the model counts what it cannot take */
	if (!s->o->record_only)
		pt_model_feed(s->model, rec, len);
	if (!s->o->record_only && s->o->schedule.set)
		err = pt_parts_see(&s->parts, s->model, &a, rec);
	if (err && !s->error)
		s->error = err;
	pt_saving_record(&s->saving, rec, len);
	if (!s->raw.f || s->raw_failed)
		return;
	if (pt_raw_put(s->raw.f, rec, len) == -EIO) {
		s->raw_failed = true;
		pt_note("the record stream is cut short: cannot write %s: %s",
			s->raw.path, strerror(errno));
	}
}

/* While attaching, an error may still follow that is all there is to say. */
static void on_warning(void *ctx, const char *msg)
{
	struct pt_session *s = ctx;

	if (s->warn_stream)
		fprintf(s->warn_stream, "%s\n", msg);
	else
		pt_note("%s", msg);
}

static void show_warnings(struct pt_session *s)
{
	char *line, *rest;

	if (!s->warn_stream)
		return;
	fclose(s->warn_stream);
	s->warn_stream = NULL;
	for (rest = s->warnings; rest && (line = strsep(&rest, "\n"));)
		if (*line)
			pt_note("%s", line);
}

static int open_outputs(struct pt_session *s, struct pt_err *err)
{
	int ret = pt_output_open(s->o, &s->json, &s->summary, &s->html, err);

	if (!ret && s->o->output)
		ret = pt_saving_open(&s->saving, s->o->output, err);
	s->saving.max = s->o->max_size;
	/* of steps that are asked for only the end of the trace tells which they were */
	s->saving.marks = !s->o->record_only && !s->o->by_steps;
	if (!ret && s->o->raw_stream) {
		ret = pt_outfile_open(&s->raw, s->o->raw_stream, err);
		if (!ret && pt_raw_begin(s->raw.f))
			ret = pt_err_set(err, -EIO, "cannot write %s: %s",
					 s->raw.path, strerror(errno));
	}
	return ret;
}

/*
 * Held from before the attach, so that an end during it is seen and a pid
 * that is reused cannot be taken for the target.
 */
static int open_pidfd(struct pt_session *s, size_t i, struct pt_err *err)
{
	s->pidfds[i] = (int)syscall(SYS_pidfd_open, s->roots[i], 0);
	if (s->pidfds[i] < 0 && errno == ESRCH)
		return pt_err_set(err, -ESRCH,
				  "process %d has ended: nothing is left to "
				  "trace",
				  s->roots[i]);
	return 0; /* without pidfds the capture still tells of the end */
}

static int add_root(struct pt_session *s, pid_t pid, struct pt_err *err)
{
	size_t i;

	for (i = 0; i < s->n_roots; i++)
		if (s->roots[i] == pid)
			return 0;
	s->roots[s->n_roots] = pid;
	return open_pidfd(s, s->n_roots++, err);
}

static int resolve(struct pt_session *s, struct pt_err *err)
{
	const struct pt_opts *o = s->o;
	struct pt_job job;
	struct pt_tree t;
	size_t i;
	int ret;

	if (s->cmd) {
		s->job.given = s->job.root = s->cmd->pid;
		return add_root(s, s->cmd->pid, err);
	}
	ret = pt_tree_snapshot(&t);
	if (ret)
		pt_err_set(err, ret, "cannot read /proc: %s", strerror(-ret));
	for (i = 0; !ret && i < o->n_pids; i++) {
		ret = pt_discover_in(&t, o->pids[i], &job, err);
		if (ret)
			break;
		ret = add_root(s, job.root, err);
		if (job.note[0])
			on_warning(s, job.note);
		if (!i || (!s->job.n_trainers && job.n_trainers))
			s->job = job;
	}
	pt_tree_free(&t);
	s->trainer_known = s->job.n_trainers > 0;
	return ret;
}

static void note_missing_gpu(struct pt_session *s)
{
	if (s->cmd || s->trainer_known)
		return;
	pt_note("no GPU library (CUDA, HIP, NCCL) is mapped in process %d "
		"or its children: only waits are seen until one is loaded",
		s->job.root);
}

static pid_t subject(const struct pt_session *s)
{
	return s->job.trainer ? s->job.trainer : s->job.root;
}

static int describe(struct pt_session *s, struct pt_err *err)
{
	int ret = pt_target_report(s->report, subject(s),
				   s->cmd ? subject(s) : s->job.given);

	return ret ? pt_err_set(err, ret, "out of memory") : 0;
}

void pt_session_find_trainer(struct pt_session *s)
{
	struct pt_err err;
	struct pt_job job;

	if (s->trainer_known || pt_discover(s->job.root, &job, &err) ||
	    !job.n_trainers || job.root != s->job.root)
		return;
	job.given = s->job.given;
	s->job = job;
	s->trainer_known = true;
	/* a report that lacks memory for names is still a report */
	describe(s, &err);
}

int pt_session_hooks(const struct pt_capture *cap, struct pt_report *r)
{
	const struct pt_hook_state *h;
	size_t n = pt_capture_hooks(cap, &h), i;
	struct pt_r_hook *out = pt_arena_calloc(r->arena, n + 1, sizeof(*out));

	for (i = 0; out && i < n; i++) {
		out[i].need = pt_arena_strdup(r->arena, h[i].need);
		out[i].door = pt_arena_strdup(r->arena, h[i].door);
		out[i].note = h[i].note[0] ? pt_arena_strdup(r->arena, h[i].note) : NULL;
		if (!out[i].need || !out[i].door || (h[i].note[0] && !out[i].note))
			return -ENOMEM;
	}
	r->capture.hooks = out;
	r->capture.n_hooks = out ? n : 0;
	return out ? 0 : -ENOMEM;
}

static int attach(struct pt_session *s, struct pt_err *err)
{
	struct pt_capture_opts c = {
		.pids = s->roots,
		.n_pids = s->n_roots,
		.trainer = subject(s),
		.mode = s->o->mode,
		.step_marker = s->o->step_marker,
		.marker_later = s->cmd != NULL,
		.no_uprobe_multi = s->o->no_uprobe_multi,
		.no_gpu_probes = s->o->no_gpu_probes,
		.python = pt_session_wants_lines(s->o),
		.budget = s->o->budget,
		.reads = s->o->reads,
		.warn = on_warning,
		.ctx = s,
	};
	int ret;

	ret = pt_capture_open(&s->cap, &c, err);
	if (ret) {
		/* the target may have ended meanwhile: say that instead */
		struct pollfd p = { .fd = s->pidfds[0], .events = POLLIN };

		if (s->n_roots == 1 && p.fd >= 0 && poll(&p, 1, 0) == 1)
			pt_err_set(err, -ESRCH,
				   "process %d ended while pipetrace attached: "
				   "nothing was traced",
				   s->roots[0]);
		return ret;
	}
	s->begin_ns = pt_now_ns();
	if (s->cmd) {
		ret = pt_spawn_go(s->cmd, s->o->cmd ? s->o->cmd[0] : "the job",
				  err);
		if (ret)
			return ret;
	}
	show_warnings(s);
	note_missing_gpu(s);
	ret = pt_host_report(s->report, subject(s), pt_capture_features(s->cap)->lockdown);
	if (ret)
		return pt_err_set(err, ret, "out of memory");
	ret = describe(s, err);
	if (!ret && pt_session_hooks(s->cap, s->report))
		ret = pt_err_set(err, -ENOMEM, "out of memory");
	return ret ? ret : pt_saving_begin(&s->saving, s->report, err);
}

static double cpu_seconds(void)
{
	struct rusage u;

	return getrusage(RUSAGE_SELF, &u) ? NAN :
					    pt_cpu_s(&u) + (double)pt_elf_child_cpu_ns() / 1e9;
}

/* What follows is done all the same; the first error is the one that is told. */
static void first(int *err, int more)
{
	*err = *err ? *err : more;
}

/* From the stop to a finished report. */
static int conclude(struct pt_session *s, struct pt_err *err)
{
	struct pt_analysis_opts a = pt_opts_analysis(s->o);
	struct pt_r_capture *c = &s->report->capture;
	int ret;

	a.lanes = s->html.f ? &s->lanes : NULL;
	pt_live_clear();
	pt_session_find_trainer(s);
	pt_session_exact_quiet(s);
	pt_session_lines_end(s);
	first(&s->error, pt_schedule_end(s));
	ret = pt_capture_stop(s->cap, pt_session_record, s);
	first(&s->error, ret < 0 ? ret : 0);
	if (!s->cupti) /* whose agents are still to be taken out */
		pt_give_up_rest();
	if (!s->o->record_only)
		pt_heap_huge_pages();
	ret = s->o->record_only ? 0 : pt_parts_report(&s->parts, &s->pieces, s->model,
						      &a, s->report);
	if (ret == -ERANGE) {
		pt_note("step %" PRId64 " was not reached: %" PRId64 " steps were "
			"seen, and all of them are reported",
			s->o->first_step, s->report->steps.count);
		a.by_steps = false;
		ret = pt_parts_report(&s->parts, &s->pieces, s->model, &a, s->report);
	}
	s->lanes.past = s->past.sum ? &s->past : NULL;
	pt_session_exact_state(s);
	first(&ret, pt_session_hooks(s->cap, s->report));
	c->mode = pt_mode_name(s->o->mode);
	c->complete = !s->error && s->stop != PT_STOP_ERROR;
	c->no_gpu_library = !s->trainer_known;
	c->tracer_cpu_s = cpu_seconds() + pt_session_lines_cpu(s);
	first(&ret, pt_about_limits(s->report));
	return ret ? pt_err_set(err, ret, "out of memory: the report is "
					  "incomplete") : 0;
}

static void on_pending(void *ctx, unsigned probes)
{
	(void)ctx;
	if (pt_live_possible())
		pt_live("detaching %u probes", probes);
	else
		pt_note("detaching %u probes", probes);
}

static int finish(struct pt_session *s, struct pt_err *err)
{
	int status = PT_EXIT_FAILED, ret;
	bool unsaved;

	ret = conclude(s, err);
	if (ret)
		pt_error("%s", err->msg);
	status = s->o->record_only ? PT_EXIT_OK :
				     pt_output(s->report, s->o, &s->json, &s->summary);
	if (pt_output_html(s->report, s->model, &s->lanes, &s->html))
		status = PT_EXIT_FAILED;
	/* one of the two files that cannot be written does not cost the other */
	unsaved = pt_saving_end(&s->saving, s->report) != 0;
	if (s->raw.f && s->raw_failed)
		pt_outfile_abandon(&s->raw);
	else if (s->raw.f)
		s->raw_failed = pt_outfile_end(&s->raw, "the stream", 0) != 0;
	if (ret || unsaved || s->raw_failed || s->stop == PT_STOP_ERROR)
		status = PT_EXIT_FAILED;
	if (s->cmd && !s->cmd_is_ours && !pt_spawn_done(s->cmd))
		pt_note("the command keeps running as process %d", s->cmd->pid);
	return status;
}

static void release(struct pt_session *s)
{
	size_t i;

	/* first: what is in the target goes out before what watches it */
	pt_cupti_free(s->cupti);
	pt_py_watcher_free(s->watcher);
	if (s->cap)
		pt_capture_close(s->cap, on_pending, NULL);
	pt_live_clear();
	for (i = 0; i < s->n_roots; i++)
		if (s->pidfds[i] >= 0)
			close(s->pidfds[i]);
	pt_outfile_abandon(&s->json);
	pt_outfile_abandon(&s->summary);
	pt_outfile_abandon(&s->html);
	pt_outfile_abandon(&s->raw);
	pt_saving_abandon(&s->saving);
	pt_past_free(&s->past);
	pt_long_free(&s->pieces);
	pt_parts_free(&s->parts);
	pt_model_free(s->model);
	pt_report_free(s->report);
	if (s->warn_stream)
		fclose(s->warn_stream);
	free(s->warnings);
}

int pt_trace(const struct pt_opts *o, struct pt_spawn *cmd, bool cmd_is_ours)
{
	struct pt_session s = { .o = o, .cmd = cmd,
				.cmd_is_ours = cmd_is_ours };
	struct pt_err err = { "" };
	int status = PT_EXIT_FAILED;

	s.json.dir = s.summary.dir = s.html.dir = s.raw.dir = s.saving.out.dir = -1;
	s.warn_stream = open_memstream(&s.warnings, &s.warnings_len);
	s.model = pt_model_new();
	s.report = pt_report_new();
	if (!s.warn_stream || !s.model || !s.report ||
	    pt_opts_label(o, s.report)) {
		pt_err_set(&err, -ENOMEM, "out of memory");
		goto fail;
	}
	if (open_outputs(&s, &err) || resolve(&s, &err) || attach(&s, &err) ||
	    pt_session_exact_begin(&s, &err))
		goto fail;
	pt_session_lines_begin(&s);
	if (pt_session_loop(&s, &err)) {
		pt_live_clear();
		pt_error("%s", err.msg);
	}
	status = finish(&s, &err);
	goto out;
fail:
	pt_error("%s", err.msg[0] ? err.msg : "the trace could not start");
out:
	release(&s);
	return status;
}
