/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream_case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/json.h"

static void simulate(struct st_case *c, const struct job_opts *o, uint64_t t0,
		     uint64_t t1)
{
	memset(c, 0, sizeof(*c));
	job_run(&c->j, o);
	if (!t1) {
		t0 = 400 * ST_MS + 12345;
		t1 = o->run_s_x10 * (ST_S / 10) - 100 * ST_MS + 777;
	}
	job_window(&c->j, JOB_BEGIN + t0, JOB_BEGIN + t1);
}

void case_open(struct st_case *c, const struct job_opts *o, uint64_t t0,
	       uint64_t t1)
{
	simulate(c, o, t0, t1);
	c->r = st_analyze(&c->j.s, &c->m);
}

void case_figures(struct st_case *c, const struct job_opts *o)
{
	simulate(c, o, 0, 0);
	c->r = st_figures(&c->j.s, &c->m);
}

void case_close(struct st_case *c)
{
	pt_report_free(c->r);
	pt_model_free(c->m);
	job_free(&c->j);
}

static const char *say(char *buf, size_t n, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static const char *say(char *buf, size_t n, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, n, fmt, ap);
	va_end(ap);
	return buf;
}

/* A share that is known must be one. */
static bool bad_share(double v)
{
	return !isnan(v) && !(v >= -1e-9 && v <= 1 + 1e-9);
}

static const char *breakdown_trouble(const struct pt_report *r, char *buf,
				     size_t n)
{
	const struct pt_r_breakdown *b = &r->breakdown;
	const struct pt_r_part *p[] = {
		&b->data_wait, &b->gpu_wait, &b->transfer, &b->sync,
		&b->launch, &b->collective, &b->checkpoint, &b->other,
	};
	double sum = 0, secs = 0;
	size_t i;

	if (!b->known)
		return NULL;
	for (i = 0; i < sizeof(p) / sizeof(p[0]); i++) {
		if (!(p[i]->share >= 0 && p[i]->share <= 1 + 1e-9))
			return say(buf, n, "breakdown part %zu has share %g", i,
				   p[i]->share);
		sum += p[i]->share;
		secs += p[i]->seconds;
	}
	if (r->capture.duration > 0 && fabs(sum - 1) > 1e-6)
		return say(buf, n, "breakdown shares sum to %.9f", sum);
	if (fabs(secs - r->capture.duration) > 1e-6 + 1e-9 * secs)
		return say(buf, n, "breakdown sums to %.9f s of %.9f s", secs,
			   r->capture.duration);
	return NULL;
}

static const char *wait_trouble(const struct pt_report *r, char *buf, size_t n)
{
	const struct pt_r_data_wait *d = &r->data_wait;
	double sum = 0, shares = 0, wait = r->breakdown.data_wait.seconds;
	size_t i;

	if (!r->breakdown.known)
		return NULL;
	for (i = 0; i < d->n_causes; i++) {
		const struct pt_r_charge *c = &d->causes[i];

		if (!(c->seconds >= 0) || bad_share(c->share) ||
		    isnan(c->share))
			return say(buf, n, "charge %zu: %g s, share %g", i,
				   c->seconds, c->share);
		sum += c->seconds;
		shares += c->share;
	}
	if (fabs(sum - wait) > 1e-6 + 1e-9 * wait)
		return say(buf, n, "charges sum to %.9f s, the wait is %.9f s",
			   sum, wait);
	if (d->n_causes && fabs(shares - 1) > 1e-6)
		return say(buf, n, "shares of the wait sum to %.9f", shares);
	if (d->blocked + d->own_read + d->own_cpu + d->handover >
	    wait * (1 + 1e-9) + 1e-6)
		return say(buf, n, "the wait's parts exceed it");
	return NULL;
}

static const char *worker_trouble(const struct pt_report *r, char *buf, size_t n)
{
	size_t i, k;

	for (i = 0; i < r->n_workers; i++) {
		const struct pt_r_worker *w = &r->workers[i];
		double v[] = { w->cpu, w->run_queue, w->throttle, w->disk,
			       w->page_fault, w->network, w->lock, w->ipc,
			       w->worker_idle, w->prefetch_full, w->other };
		double sum = 0;

		for (k = 0; k < sizeof(v) / sizeof(v[0]); k++) {
			if (v[k] < 0)
				return say(buf, n, "worker %lld part %zu is %g s",
					   (long long)w->pid, k, v[k]);
			sum += isnan(v[k]) ? 0 : v[k];
		}
		if (fabs(sum - w->window) > 1e-6 + 1e-9 * sum ||
		    w->window > (1 + 1e-9) * r->capture.duration + 1e-6)
			return say(buf, n,
				   "worker %lld: parts %.9f s, window %.9f s",
				   (long long)w->pid, sum, w->window);
	}
	return NULL;
}

static const char *gpu_trouble(const struct pt_report *r, char *buf, size_t n)
{
	size_t i, k;

	for (i = 0; i < r->n_gpu; i++) {
		const struct pt_r_gpu *g = &r->gpu[i];
		double v[] = { g->busy_share, g->idle_share, g->busy_hard[0],
			       g->busy_hard[1], g->idle_hard[0], g->idle_hard[1],
			       g->starved_share[0], g->starved_share[1] };

		for (k = 0; k < sizeof(v) / sizeof(v[0]); k++)
			if (bad_share(v[k]))
				return say(buf, n, "GPU share %zu is %g", k, v[k]);
		if (g->idle_hard[0] > g->idle_hard[1] + 1e-9 ||
		    g->busy_hard[0] > g->busy_hard[1] + 1e-9)
			return say(buf, n, "GPU bounds are crossed: idle %g..%g",
				   g->idle_hard[0], g->idle_hard[1]);
		if (g->starved_share[0] > g->idle_hard[1] + 1e-9 ||
		    g->starved_share[0] > g->starved_share[1] + 1e-9)
			return say(buf, n, "starved %g..%g, idle at most %g",
				   g->starved_share[0], g->starved_share[1],
				   g->idle_hard[1]);
	}
	return NULL;
}

const char *case_trouble(const struct pt_report *r, char *buf, size_t n)
{
	const char *t = breakdown_trouble(r, buf, n);
	size_t i;

	if (!t)
		t = wait_trouble(r, buf, n);
	if (!t)
		t = worker_trouble(r, buf, n);
	if (!t)
		t = gpu_trouble(r, buf, n);
	for (i = 1; i < r->steps.n_list && !t; i++)
		if (r->steps.list[i].begin_ns < r->steps.list[i - 1].end_ns)
			t = say(buf, n, "step %zu begins before its predecessor ends",
				i);
	for (i = 0; i < r->steps.n_list && !t; i++)
		if (r->steps.list[i].period_ms < 0 ||
		    r->steps.list[i].data_wait_ms < 0)
			t = say(buf, n, "step %zu takes negative time", i);
	if (!t && !r->n_verdicts)
		t = say(buf, n, "no verdict");
	for (i = 0; i < r->n_verdicts && !t; i++)
		if (!r->verdicts[i].id || !r->verdicts[i].title ||
		    r->verdicts[i].certainty == PT_CONF_NONE)
			t = say(buf, n, "verdict %zu is incomplete", i);
	return t;
}

double case_charged(const struct pt_report *r, enum pt_cause cause)
{
	double sum = 0;
	size_t i;

	for (i = 0; i < r->data_wait.n_causes; i++)
		if (r->data_wait.causes[i].cause == cause)
			sum += r->data_wait.causes[i].seconds;
	return sum;
}

char *case_json(const struct pt_report *r)
{
	struct pt_json_opts o = { .steps = 100000, .indent = 1 };
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f || pt_report_json(r, f, &o) || fclose(f)) {
		fprintf(stderr, "stream_case: the report cannot be written\n");
		abort();
	}
	return text;
}

const char *case_root(const struct pt_report *r)
{
	return r->n_verdicts ? r->verdicts[0].id : "";
}

const struct pt_r_verdict *case_verdict(const struct pt_report *r, const char *id)
{
	size_t i;

	for (i = 0; i < r->n_verdicts; i++)
		if (!strcmp(r->verdicts[i].id, id))
			return &r->verdicts[i];
	return NULL;
}

const struct pt_r_step *case_step(const struct pt_report *r, uint64_t ts,
				  uint64_t slack)
{
	size_t i;

	for (i = 0; i < r->steps.n_list; i++) {
		int64_t d = r->steps.list[i].begin_ns - (int64_t)ts;

		if (d <= (int64_t)slack && -d <= (int64_t)slack)
			return &r->steps.list[i];
	}
	return NULL;
}
