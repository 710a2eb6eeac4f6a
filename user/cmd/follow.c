// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/follow.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "analysis/analysis.h"
#include "cmd/host.h"
#include "cmd/session.h"
#include "report/about.h"
#include "view/top/window.h"

#define CAPTURE_FDS 256
#define PROBE_EVERY 5 /* seconds between looks for a trainer that lacks */

struct pt_follow {
	const struct pt_opts *o;
	struct pt_capture *cap; /* NULL: it has ended */
	struct pt_window *win;
	pt_record_fn tap; /* or NULL */
	void *tap_ctx;
	struct pt_outside outside; /* who supplies the job from there */
	struct pt_report *base;	  /* host, target, hooks: what all reports share */
	struct pt_report *report; /* the last one */
	struct pt_job job;
	int pidfd; /* -1: none */
	unsigned ticks;
	uint64_t end_ns; /* of the job; 0: it runs */
	char note[PT_ERR_LEN];
};

static void on_record(void *ctx, const void *rec, size_t len)
{
	struct pt_follow *w = ctx;

	pt_adopt(w->o, &w->outside, w->cap, rec);
	/* a window without memory lacks records: what it shows has a gap */
	pt_window_put(w->win, rec, len);
	if (w->tap)
		w->tap(w->tap_ctx, rec, len);
}

/* Warnings would tear the screen: the last one is shown there. */
static void on_warning(void *ctx, const char *msg)
{
	struct pt_follow *w = ctx;

	snprintf(w->note, sizeof(w->note), "%s", msg);
}

static pid_t subject(const struct pt_follow *w)
{
	return w->job.trainer ? w->job.trainer : w->job.root;
}

static int describe(struct pt_follow *w, struct pt_err *err)
{
	int ret;

	ret = pt_host_report(w->base, subject(w), pt_capture_features(w->cap)->lockdown);
	ret = ret ?: pt_target_report(w->base, subject(w), w->job.given);
	return ret ? pt_err_set(err, ret, "out of memory") : 0;
}

static int attach(struct pt_follow *w, struct pt_err *err)
{
	struct pt_capture_opts c = {
		.pids = &w->job.root,
		.n_pids = 1,
		.trainer = subject(w),
		.mode = w->o->mode,
		.no_uprobe_multi = w->o->no_uprobe_multi,
		.no_gpu_probes = w->o->no_gpu_probes,
		.reads = w->o->reads,
		.warn = on_warning,
		.ctx = w,
	};
	int ret;

	w->pidfd = (int)syscall(SYS_pidfd_open, w->job.root, 0);
	if (w->pidfd < 0 && errno == ESRCH)
		return pt_err_set(err, -ESRCH, "process %d has ended",
				  w->job.root);
	ret = pt_capture_open(&w->cap, &c, err);
	return ret ? ret : describe(w, err);
}

int pt_follow_open(struct pt_follow **out, pid_t pid, const struct pt_opts *o,
		  struct pt_err *err)
{
	struct pt_follow *w = calloc(1, sizeof(*w));
	int ret = -ENOMEM;

	*out = NULL;
	if (!w)
		return pt_err_set(err, ret, "out of memory");
	w->o = o;
	w->pidfd = -1;
	w->base = pt_report_new();
	w->win = pt_window_new((uint64_t)(o->last_s * 1e9), o->memory);
	if (!w->base || !w->win) {
		pt_err_set(err, ret, "out of memory");
		goto out;
	}
	ret = pt_discover(pid, &w->job, err);
	if (ret)
		goto out;
	if (w->job.note[0])
		on_warning(w, w->job.note);
	ret = attach(w, err);
	if (ret)
		goto out;
	*out = w;
	w = NULL;
out:
	pt_follow_free(w);
	return ret;
}

static void detach(struct pt_follow *w)
{
	if (w->pidfd >= 0)
		close(w->pidfd);
	w->pidfd = -1;
	if (w->cap)
		pt_capture_close(w->cap, NULL, NULL);
	w->cap = NULL;
}

void pt_follow_free(struct pt_follow *w)
{
	if (!w)
		return;
	detach(w);
	pt_window_free(w->win);
	pt_report_free(w->report);
	pt_report_free(w->base);
	free(w);
}

size_t pt_follow_fds(const struct pt_follow *w, struct pollfd *fds, size_t max)
{
	int got[CAPTURE_FDS];
	size_t n = 0, k, i;

	if (!w->cap || !max)
		return 0;
	if (w->pidfd >= 0)
		fds[n++] = (struct pollfd){ .fd = w->pidfd, .events = POLLIN };
	k = pt_capture_fds(w->cap, got, CAPTURE_FDS);
	for (i = 0; i < k && i < CAPTURE_FDS && n < max; i++)
		fds[n++] = (struct pollfd){ .fd = got[i], .events = POLLIN };
	return n;
}

int pt_follow_drain(struct pt_follow *w)
{
	int ret = w->cap ? pt_capture_drain(w->cap, on_record, w) : 0;

	return ret < 0 ? ret : 0;
}

/* A job that had no GPU library at first may have one by now. */
static void find_trainer(struct pt_follow *w)
{
	struct pt_err err;
	struct pt_job job;

	if (w->job.n_trainers || w->ticks % PROBE_EVERY ||
	    pt_discover(w->job.root, &job, &err) || !job.n_trainers ||
	    job.root != w->job.root)
		return;
	job.given = w->job.given;
	w->job = job;
	describe(w, &err);
}

int pt_follow_tick(struct pt_follow *w)
{
	int ret;

	if (!w->cap)
		return 0;
	w->ticks++;
	ret = pt_capture_tick(w->cap, on_record, w);
	if (ret >= 0)
		find_trainer(w);
	return ret < 0 ? ret : 0;
}

bool pt_follow_ended(struct pt_follow *w)
{
	struct pollfd p = { .fd = w->pidfd, .events = POLLIN };

	if (!w->cap)
		return true;
	/* the process asked for may be gone while its children go on */
	if ((p.fd >= 0 && poll(&p, 1, 0) != 1) ||
	    !pt_capture_target_gone(w->cap))
		return false;
	pt_capture_stop(w->cap, on_record, w);
	w->end_ns = pt_now_ns();
	detach(w);
	return true;
}

void pt_follow_tap(struct pt_follow *w, pt_record_fn fn, void *ctx)
{
	w->tap = fn;
	w->tap_ctx = ctx;
}

void pt_follow_reach(struct pt_follow *w, uint64_t span_ns)
{
	pt_window_reach(w->win, span_ns);
}

uint64_t pt_follow_kept_from(const struct pt_follow *w)
{
	return pt_window_kept_from(w->win);
}

uint64_t pt_follow_feed(struct pt_follow *w, pt_record_fn fn, void *ctx)
{
	return pt_window_feed(w->win, w->end_ns ? w->end_ns : pt_now_ns(), fn, ctx);
}

int pt_follow_facts(struct pt_follow *w, struct pt_report *r)
{
	r->host = w->base->host;
	r->target = w->base->target;
	r->capture.mode = pt_mode_name(w->o->mode);
	r->capture.complete = true;
	r->capture.no_gpu_library = !w->job.n_trainers;
	return w->cap ? pt_session_hooks(w->cap, r) : 0;
}

static void feed_model(void *ctx, const void *rec, size_t len)
{
	pt_model_feed(ctx, rec, len); /* it counts what it cannot take */
}

const struct pt_report *pt_follow_look(struct pt_follow *w, double *window_s)
{
	struct pt_analysis_opts a = pt_opts_analysis(w->o);
	struct pt_model *m = pt_model_new();
	struct pt_report *r = pt_report_new();
	uint64_t ns;
	int ret = -ENOMEM;

	if (!m || !r)
		goto out;
	ns = pt_follow_feed(w, feed_model, m);
	ret = pt_model_finish(m);
	ret = ret ?: pt_follow_facts(w, r);
	ret = ret ?: pt_analyze(m, &a, r);
	ret = ret ?: pt_about_limits(r);
	ret = ret ?: pt_report_demangle(r);
	*window_s = (double)ns / 1e9;
out:
	pt_model_free(m);
	if (ret) {
		pt_report_free(r);
		return NULL;
	}
	pt_report_free(w->report);
	w->report = r;
	return r;
}

pid_t pt_follow_pid(const struct pt_follow *w)
{
	return subject(w);
}

const char *pt_follow_note(const struct pt_follow *w)
{
	return w->note;
}
