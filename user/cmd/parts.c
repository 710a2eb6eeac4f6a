// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/parts.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/timeline.h"

/* A judgement under way in a process of its own; one at a time. */
struct helpers {
	pid_t pid;
	size_t row;
	struct pt_r_window *shared; /* its result; zeroed until it is there */
};

static void unknown_row(struct pt_r_window *w, const struct pt_model *m,
			uint64_t t0, uint64_t t1)
{
	uint64_t begin = m->begin > m->trimmed_ns ? m->begin - m->trimmed_ns : 0;

	*w = (struct pt_r_window){
		.at = (double)(t0 > begin ? t0 - begin : 0) / 1e9,
		.duration = (double)(t1 - t0) / 1e9,
		.begin_ns = (int64_t)t0, .end_ns = (int64_t)t1,
		.steps = PT_NULL, .step_ms = NAN, .step_p95_ms = NAN,
		.data_wait_share = NAN, .starved_share = NAN,
		.gpu_busy_share = NAN };
}

static struct pt_analysis_opts plain(const struct pt_analysis_opts *o)
{
	return (struct pt_analysis_opts){ .batch_size = o->batch_size,
					  .thresholds = o->thresholds };
}

int pt_parts_see(struct pt_parts *p, struct pt_model *m,
		 const struct pt_analysis_opts *o, const void *rec)
{
	struct pt_analysis_opts a = plain(o);
	const struct pt_window *w;
	struct pt_r_window row;
	struct pt_rec_window r;
	struct pt_hdr h;
	uint64_t t0;
	int err;

	memcpy(&h, rec, sizeof(h));
	if (h.kind != PT_REC_WINDOW || h.size < sizeof(r) || p->whole)
		return 0;
	memcpy(&r, rec, sizeof(r));
	if (!r.ended || !m->windows.n)
		return 0;
	w = &m->windows.v[m->windows.n - 1];
	/* the model has not taken a record that makes no sense */
	t0 = w->begin > m->begin ? w->begin : m->begin;
	if (w->end != h.ts || w->end <= t0)
		return 0;
	err = pt_analyze_part(m, &a, t0, w->end, &row);
	if (!err)
		err = pt_vec_push(&p->rows, row);
	/* the part before it is not needed any more, and this one still is */
	return err ? err : pt_model_cut(m, t0);
}

/* ---- more than memory holds ---------------------------------------------------- */

static void take_helper(struct pt_parts *p)
{
	struct helpers *h = p->helpers;
	int status;

	if (!h || h->pid <= 0)
		return;
	while (waitpid(h->pid, &status, 0) < 0 && errno == EINTR)
		;
	h->pid = 0;
	/* verdicts are constants of the program: the same there and here */
	if (h->shared->begin_ns && h->row < p->rows.n)
		p->rows.v[h->row] = *h->shared;
	memset(h->shared, 0, sizeof(*h->shared));
}

static struct helpers *helpers_of(struct pt_parts *p)
{
	struct helpers *h = p->helpers;

	if (h)
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->shared = mmap(NULL, sizeof(*h->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (h->shared == MAP_FAILED) {
		free(h);
		return NULL;
	}
	p->helpers = h;
	return h;
}

/* Judge [t0, t1) while the caller goes on; the row waits for the result. */
static void judge_aside(struct pt_parts *p, struct pt_model *m,
			const struct pt_analysis_opts *a, uint64_t t0,
			uint64_t t1)
{
	struct pt_r_window *row = &p->rows.v[p->rows.n - 1];
	struct helpers *h = helpers_of(p);
	struct pt_r_window got;
	pid_t pid = -1;

	if (h) {
		take_helper(p);
		pid = fork();
	}
	if (pid > 0) {
		h->pid = pid;
		h->row = p->rows.n - 1;
		return;
	}
	if (pid == 0) {
		if (!pt_analyze_part(m, a, t0, t1, &got))
			*h->shared = got;
		_exit(0);
	}
	if (!pt_analyze_part(m, a, t0, t1, &got))
		*row = got;
}

int pt_parts_spill(struct pt_parts *p, struct pt_model *m,
		   const struct pt_analysis_opts *o, uint64_t max_bytes)
{
	struct pt_analysis_opts a = plain(o);
	struct pt_r_window row;
	uint64_t t0, t1;
	int err;

	if (pt_model_bytes(m) <= max_bytes)
		return 0;
	t0 = m->begin ? m->begin : m->first_ts;
	t1 = pt_model_middle(m);
	if (p->whole || t1 <= t0)
		return pt_model_trim(m, max_bytes);
	p->long_file = true;
	err = pt_model_settle(m);
	if (err)
		return err;
	unknown_row(&row, m, t0, t1);
	if (pt_vec_push(&p->rows, row))
		return -ENOMEM;
	judge_aside(p, m, &a, t0, t1);
	return pt_model_cut(m, t1);
}

/* ---- at the end ------------------------------------------------------------------ */

int pt_parts_choose(struct pt_parts *p, const struct pt_model *m,
		    struct pt_analysis_opts *o)
{
	uint64_t base = m->begin > m->trimmed_ns ? m->begin - m->trimmed_ns : 0;
	const struct pt_r_window *last;

	take_helper(p);
	if (p->whole || !p->rows.n || p->long_file || o->by_steps ||
	    o->from_ns || o->until_ns)
		return 0;
	last = &p->rows.v[p->rows.n - 1];
	o->from_ns = (uint64_t)last->begin_ns - base;
	o->until_ns = (uint64_t)last->end_ns - base;
	p->rows.v[p->rows.n - 1].reported = true;
	return 0;
}

/* The last part of a long file is the report itself. */
static int add_reported(struct pt_parts *p, const struct pt_report *r)
{
	struct pt_r_window w = {
		.begin_ns = r->capture.begin_ns, .end_ns = r->capture.end_ns,
		.duration = r->capture.duration, .reported = true,
		.steps = r->steps.count, .step_ms = NAN, .step_p95_ms = NAN,
		.data_wait_share = NAN, .starved_share = NAN,
		.gpu_busy_share = NAN };
	const struct pt_r_window *before = &p->rows.v[p->rows.n - 1];
	size_t i;

	w.at = before->at + before->duration;
	if (r->steps.period_ms.n) {
		w.step_ms = r->steps.period_ms.mean;
		w.step_p95_ms = r->steps.period_ms.p95;
	}
	if (r->breakdown.known)
		w.data_wait_share = r->breakdown.data_wait.share;
	if (r->n_gpu) {
		w.starved_share = r->gpu[0].starved_share[1];
		w.gpu_busy_share = r->gpu[0].busy_share;
	}
	for (i = 0; i < r->n_verdicts && i < PT_R_WINDOW_VERDICTS; i++)
		w.verdicts[w.n_verdicts++] = r->verdicts[i].id;
	return pt_vec_push(&p->rows, w);
}

int pt_parts_fill(struct pt_parts *p, struct pt_report *r)
{
	const struct pt_r_window *w;
	size_t n;
	int err = 0;

	if (p->long_file)
		err = add_reported(p, r);
	n = p->rows.n;
	if (err || !n)
		return err;
	r->windows = pt_arena_calloc(r->arena, n, sizeof(*r->windows));
	if (!r->windows)
		return -ENOMEM;
	memcpy(r->windows, p->rows.v, n * sizeof(*r->windows));
	r->n_windows = n;
	w = &r->windows[n - 1];
	if (p->long_file)
		return pt_report_limit(r, "capture", "The capture is too long to be looked at in one piece: the report is of its last %.1f s, from %.1f s on; windows has a line for each part.",
				       w->duration, w->at);
	return pt_report_limit(r, "capture.schedule", "The report is of the last of %zu active parts of a schedule; windows has a line for each.",
			       n);
}

void pt_parts_free(struct pt_parts *p)
{
	struct helpers *h = p->helpers;

	take_helper(p);
	if (h)
		munmap(h->shared, sizeof(*h->shared));
	free(h);
	p->helpers = NULL;
	pt_vec_free(&p->rows);
}
