/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A family's samples must come together, so each is written for all jobs in turn.
 * Names follow the practice of Prometheus: base units, _total for counters.
 */
#include "agent/prom.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define VERDICTS_SHOWN 7 /* roots come first */

struct out {
	FILE *f;
	bool openmetrics;
	const struct pt_prom_job *job;
	size_t n;
};

void pt_prom_value(FILE *f, const char *s)
{
	char *clean = pt_str_utf8(s ? s : "", NULL);
	size_t i, len = 0, n;
	uint32_t cp;

	if (!clean)
		return; /* an empty value; the stream has no memory either */
	while (clean[len]) {
		n = pt_utf8_decode(clean + len, strlen(clean + len), &cp);
		if (!n || len + n > PT_PROM_LABEL)
			break;
		len += n;
	}
	for (i = 0; i < len; i++) {
		if (clean[i] == '\\' || clean[i] == '"')
			fprintf(f, "\\%c", clean[i]);
		else if (clean[i] == '\n')
			fputs("\\n", f);
		else if ((unsigned char)clean[i] < 0x20 || clean[i] == 0x7f)
			fputc('?', f); /* a log or a browser may run it */
		else
			fputc(clean[i], f);
	}
	free(clean);
}

static void label(FILE *f, const char *name, const char *value)
{
	if (!value || !*value)
		return;
	fprintf(f, ",%s=\"", name);
	pt_prom_value(f, value);
	fputc('"', f);
}

static void family(const struct out *o, const char *name, const char *type,
		   const char *unit, const char *help)
{
	bool counter = !strcmp(type, "counter");

	/* OpenMetrics names a counter's family without its _total. */
	fprintf(o->f, "# TYPE %s%s %s\n", name,
		counter && !o->openmetrics ? "_total" : "",
		!strcmp(type, "info") && !o->openmetrics ? "gauge" : type);
	if (unit && o->openmetrics)
		fprintf(o->f, "# UNIT %s %s\n", name, unit);
	fprintf(o->f, "# HELP %s%s %s\n", name,
		counter && !o->openmetrics ? "_total" : "", help);
}

static void value(FILE *f, double x)
{
	fprintf(f, "} %.17g\n", x);
}

static void begin(const struct out *o, const char *name,
		  const struct pt_prom_job *j)
{
	fprintf(o->f, "%s{job_id=\"", name);
	pt_prom_value(o->f, j->job);
	fputc('"', o->f);
}

/* One sample of each job; NAN: it has none. */
static void each(const struct out *o, const char *name,
		 double (*of)(const struct pt_tally *))
{
	size_t i;

	for (i = 0; i < o->n; i++) {
		double x = of(o->job[i].t);

		if (isnan(x))
			continue;
		begin(o, name, &o->job[i]);
		value(o->f, x);
	}
}

static void info(const struct out *o)
{
	size_t i, k;

	family(o, "pipetrace_job", "info", NULL,
	       "A job that is sampled, and whose it is.");
	for (i = 0; i < o->n; i++) {
		const struct pt_prom_job *j = &o->job[i];
		char num[24];

		begin(o, "pipetrace_job_info", j);
		label(o->f, "comm", j->comm);
		label(o->f, "user", j->user);
		label(o->f, "group", j->group);
		snprintf(num, sizeof(num), "%ld", j->pid);
		label(o->f, "pid", num);
		snprintf(num, sizeof(num), "%ld", j->rank);
		label(o->f, "rank", j->rank < 0 ? NULL : num);
		snprintf(num, sizeof(num), "%ld", j->world);
		label(o->f, "world_size", j->world < 0 ? NULL : num);
		if (j->owner) {
			label(o->f, "runtime", j->owner->runtime);
			label(o->f, "container_id", j->owner->container);
			label(o->f, "pod_uid", j->owner->pod_uid);
			label(o->f, "pod", j->owner->pod);
			label(o->f, "namespace", j->owner->pod_namespace);
			label(o->f, "container", j->owner->container_name);
			label(o->f, "slurm_job", j->owner->slurm_job);
			label(o->f, "slurm_step", j->owner->slurm_step);
		}
		for (k = 0; k < j->n_labels && k < PT_PROM_FREE; k++)
			label(o->f, j->labels[k].name, j->labels[k].value);
		value(o->f, 1);
	}
}

/* Each cause for itself: one that came out of a common rest would make that rest
 * fall, and a counter that falls is taken for a restart. */
static void lost(const struct out *o)
{
	size_t i;
	int c;

	family(o, "pipetrace_gpu_lost_seconds", "counter", "seconds",
	       "GPU-seconds idle, by cause (estimated: samples stand for the time between them).");
	for (i = 0; i < o->n; i++) {
		for (c = 0; c < PT_CAUSE_NR; c++) {
			if (!(o->job[i].t->lost_s[c] > 0))
				continue;
			begin(o, "pipetrace_gpu_lost_seconds_total", &o->job[i]);
			label(o->f, "cause", pt_cause_name((enum pt_cause)c));
			value(o->f, o->job[i].t->lost_s[c]);
		}
	}
}

static void busy(const struct out *o)
{
	static const char *const bound[] = { "hard_low", "likely_low", "estimate",
					     "likely_high", "hard_high" };
	size_t i, k;

	family(o, "pipetrace_gpu_busy_ratio", "gauge", "ratio",
	       "Busy share of the job's GPUs in its last sample: bounds that always hold, likely ones, and the best guess.");
	for (i = 0; i < o->n; i++) {
		const struct pt_sample *s = &o->job[i].t->last;
		const double v[] = { s->busy_hard_s[0], s->busy_likely_s[0],
				     s->busy_s, s->busy_likely_s[1],
				     s->busy_hard_s[1] };
		double of = s->duration * s->gpus;

		for (k = 0; o->job[i].t->has_last && of > 0 && k < 5; k++) {
			if (isnan(v[k]))
				continue;
			begin(o, "pipetrace_gpu_busy_ratio", &o->job[i]);
			label(o->f, "bound", bound[k]);
			value(o->f, v[k] / of);
		}
	}
}

static void steps(const struct out *o)
{
	size_t i, k;

	family(o, "pipetrace_step_seconds", "histogram", "seconds",
	       "Time of training steps (estimated like the counters).");
	for (i = 0; i < o->n; i++) {
		const struct pt_tally *t = o->job[i].t;
		double sum = 0;

		for (k = 0; k <= PT_TALLY_BUCKETS; k++) {
			char le[24] = "+Inf";

			sum += t->step_bucket[k];
			if (k < PT_TALLY_BUCKETS)
				snprintf(le, sizeof(le), "%.15g",
					 pt_tally_bucket[k]);
			begin(o, "pipetrace_step_seconds_bucket", &o->job[i]);
			label(o->f, "le", le);
			value(o->f, sum);
		}
		begin(o, "pipetrace_step_seconds_sum", &o->job[i]);
		value(o->f, t->step_sum_s);
		begin(o, "pipetrace_step_seconds_count", &o->job[i]);
		value(o->f, sum);
	}
}

static void verdicts(const struct out *o)
{
	size_t i, k;

	family(o, "pipetrace_verdict", "gauge", NULL,
	       "1 for each verdict of the job's last sample.");
	for (i = 0; i < o->n; i++) {
		const struct pt_sample *s = &o->job[i].t->last;

		for (k = 0; k < s->n_verdicts && k < VERDICTS_SHOWN; k++) {
			const struct pt_sample_verdict *v = &s->verdict[k];

			begin(o, "pipetrace_verdict", &o->job[i]);
			label(o->f, "id", v->id);
			label(o->f, "severity",
			      pt_severity_name((enum pt_severity)v->severity));
			label(o->f, "root", v->root ? "true" : "false");
			value(o->f, 1);
		}
	}
}

#define OF(name, expr)                                                         \
	static double of_##name(const struct pt_tally *t)                      \
	{                                                                      \
		return (expr);                                                 \
	}
OF(gpu, t->gpu_s)
OF(covered, t->covered_s)
OF(observed, t->observed_s)
OF(low, t->busy_low_s)
OF(high, t->busy_high_s)
OF(bytes, t->read_bytes)
OF(reading, t->read_s)
OF(samples, t->samples)
OF(failed, t->failed)
OF(lost, t->lost_events)
OF(tracer, t->tracer_cpu_s)
OF(waiting, t->has_last ? t->last.data_wait_share : NAN)
OF(slowdown, t->has_last ? t->last.slowdown : NAN)

static void singles(const struct out *o)
{
	static const struct {
		const char *name, *unit, *help;
		bool counter;
		double (*of)(const struct pt_tally *);
	} all[] = {
		{ "gpu_seconds", "seconds", "GPU-seconds of the job that samples stand for.", true, of_gpu },
		{ "gpu_busy_low_seconds", "seconds", "GPU-seconds busy, low end of what is likely (estimated).", true, of_low },
		{ "gpu_busy_high_seconds", "seconds", "GPU-seconds busy, high end of what is likely (estimated).", true, of_high },
		{ "covered_seconds", "seconds", "Time of the job that samples stand for.", true, of_covered },
		{ "observed_seconds", "seconds", "Time of the job that samples saw.", true, of_observed },
		{ "data_wait_ratio", "ratio", "Share of its time that the trainer waited for data, in the last sample.", false, of_waiting },
		{ "worker_slowdown_ratio", "ratio", "How much slower the slowest loader worker is than its peers, in the last sample.", false, of_slowdown },
		{ "read_bytes", "bytes", "Bytes that loaders read (estimated).", true, of_bytes },
		{ "read_seconds", "seconds", "Time inside read calls (estimated).", true, of_reading },
		{ "samples", NULL, "Samples taken.", true, of_samples },
		{ "failed_samples", NULL, "Samples that gave no report.", true, of_failed },
		{ "lost_events", NULL, "Events that were lost in samples.", true, of_lost },
		{ "tracer_cpu_seconds", "seconds", "CPU time of taking samples of the job.", true, of_tracer },
	};
	char name[64];
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++) {
		snprintf(name, sizeof(name), "pipetrace_%s", all[i].name);
		family(o, name, all[i].counter ? "counter" : "gauge",
		       all[i].unit, all[i].help);
		snprintf(name, sizeof(name), "pipetrace_%s%s", all[i].name,
			 all[i].counter ? "_total" : "");
		each(o, name, all[i].of);
	}
}

static void own(const struct out *o, const struct pt_prom_agent *a)
{
	family(o, "pipetrace_agent", "info", NULL, "The agent of this node.");
	fputs("pipetrace_agent_info{version=\"", o->f);
	pt_prom_value(o->f, a->version);
	fputs("\"} 1\n", o->f);
	family(o, "pipetrace_agent_cpu_seconds", "counter", "seconds",
	       "CPU time of the agent, its samples included.");
	fprintf(o->f, "pipetrace_agent_cpu_seconds_total %.17g\n", a->cpu_s);
	family(o, "pipetrace_agent_resident_memory_bytes", "gauge", "bytes",
	       "Resident memory of the agent.");
	fprintf(o->f, "pipetrace_agent_resident_memory_bytes %.17g\n",
		a->resident_bytes);
	family(o, "pipetrace_agent_jobs", "gauge", NULL, "Jobs that are sampled.");
	fprintf(o->f, "pipetrace_agent_jobs %.17g\n", a->jobs);
	family(o, "pipetrace_agent_jobs_left_out", "gauge", NULL,
	       "Jobs that were found and are not sampled: the budget is spent.");
	fprintf(o->f, "pipetrace_agent_jobs_left_out %.17g\n", a->dropped_jobs);
	family(o, "pipetrace_agent_interval_seconds", "gauge", "seconds",
	       "Time from one sample of a job to its next, as it is now.");
	fprintf(o->f, "pipetrace_agent_interval_seconds %.17g\n", a->interval_s);
	family(o, "pipetrace_agent_sample_seconds", "gauge", "seconds",
	       "Length of a sample.");
	fprintf(o->f, "pipetrace_agent_sample_seconds %.17g\n", a->sample_s);
}

int pt_prom_write(FILE *f, const struct pt_prom_agent *a,
		  const struct pt_prom_job *jobs, size_t n, bool openmetrics)
{
	struct out o = { .f = f, .openmetrics = openmetrics, .job = jobs, .n = n };

	own(&o, a);
	info(&o);
	lost(&o);
	busy(&o);
	steps(&o);
	verdicts(&o);
	singles(&o);
	if (openmetrics)
		fputs("# EOF\n", f);
	return ferror(f) ? -EIO : 0;
}
