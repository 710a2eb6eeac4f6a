/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A family's points must come together, so each is visited for all jobs in turn.
 * Names follow the practice of Prometheus: base units.
 */
#include "agent/series.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define VERDICTS_SHOWN 5
#define MOUNTS_SHOWN 3
#define JOB_ID "job_id"

struct out {
	const struct pt_series_visitor *v;
	const struct pt_prom_job *job;
	size_t n;
	const struct pt_series_family *family; /* the one under way */
	struct pt_series_label label[PT_SERIES_LABELS];
	char *value[PT_SERIES_LABELS]; /* of `label`; to free */
	size_t n_labels;
	int err;
};

char *pt_series_value(const char *s)
{
	char *clean = pt_str_utf8(s ? s : "", NULL);
	size_t i, len = 0, n;
	uint32_t cp;

	if (!clean)
		return NULL;
	while (clean[len]) {
		n = pt_utf8_decode(clean + len, strlen(clean + len), &cp);
		if (!n || len + n > PT_PROM_LABEL)
			break;
		len += n;
	}
	clean[len] = '\0';
	for (i = 0; i < len; i++) {
		unsigned char c = (unsigned char)clean[i];

		if ((c < 0x20 && c != '\n') || c == 0x7f)
			clean[i] = '?'; /* a log or a browser may run it */
	}
	return clean;
}

static void family(struct out *o, const struct pt_series_family *f)
{
	o->family = f;
	o->v->family(o->v->ctx, f);
}

/* The labels after the first `n` are done with. */
static void cut(struct out *o, size_t n)
{
	while (o->n_labels > n)
		free(o->value[--o->n_labels]);
}

static void label(struct out *o, const char *name, const char *value)
{
	char *clean;

	if (!value || !*value || o->n_labels == PT_SERIES_LABELS)
		return;
	clean = pt_series_value(value);
	if (!clean) {
		o->err = -ENOMEM;
		return;
	}
	o->value[o->n_labels] = clean;
	o->label[o->n_labels++] = (struct pt_series_label){ name, clean };
}

/* Below 0: not known. */
static void label_int(struct out *o, const char *name, long x)
{
	char num[24];

	snprintf(num, sizeof(num), "%ld", x);
	if (x >= 0)
		label(o, name, num);
}

/* Begins the points of one job, or of the agent itself (NULL). */
static void job(struct out *o, const struct pt_prom_job *j)
{
	cut(o, 0);
	if (j)
		label(o, JOB_ID, j->job && *j->job ? j->job : "?");
}

/* Gives the point and drops what labels it has beside the job's own. */
static void point(struct out *o, const struct pt_prom_job *j,
		  struct pt_series_point p)
{
	p.job = j;
	p.label = o->label;
	p.n_labels = o->n_labels;
	if (!o->err)
		o->v->point(o->v->ctx, o->family, &p);
	cut(o, j ? 1 : 0);
}

static void value(struct out *o, const struct pt_prom_job *j, double x)
{
	point(o, j, (struct pt_series_point){ .value = x });
}

/* ---- families of which a job has several points, or that are no plain figure ---- */

/* A job's own labels in pipetrace_job_info: j is it, w whose it is. No label of the
 * configuration may have such a name: two of a kind make Prometheus refuse the page. */
#define OWN_LABELS(TEXT, INT)				\
	TEXT("comm", j->comm)				\
	TEXT("user", j->user)				\
	TEXT("group", j->group)				\
	INT("pid", j->pid)				\
	INT("rank", j->rank)				\
	INT("world_size", j->world)			\
	TEXT("runtime", w->runtime)			\
	TEXT("container_id", w->container)		\
	TEXT("pod_uid", w->pod_uid)			\
	TEXT("pod", w->pod)				\
	TEXT("namespace", w->pod_namespace)		\
	TEXT("container", w->container_name)		\
	TEXT("slurm_job", w->slurm_job)			\
	TEXT("slurm_step", w->slurm_step)

#define NAME(name, value) name,
static const char *const own_labels[] = { JOB_ID, OWN_LABELS(NAME, NAME) };
#undef NAME

bool pt_series_owns(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(own_labels) / sizeof(*own_labels); i++)
		if (!strcmp(own_labels[i], name))
			return true;
	return false;
}

static void info(struct out *o, const struct pt_prom_job *j)
{
	static const struct pt_owner nobody;
	const struct pt_owner *w = j->owner ? j->owner : &nobody;
	size_t k;

#define TEXT(name, value) label(o, name, value);
#define INT(name, value) label_int(o, name, value);
	OWN_LABELS(TEXT, INT)
#undef TEXT
#undef INT
	for (k = 0; k < j->n_labels && k < PT_PROM_FREE; k++)
		label(o, j->labels[k].name, j->labels[k].value);
	value(o, j, 1);
}

/* A cause keeps its counter, and what is in the common rest stays there: a counter
 * that falls is taken for a restart. */
static void lost(struct out *o, const struct pt_prom_job *j)
{
	const struct pt_tally *t = j->t;
	double other = pt_tally_other_s(t);
	size_t k;

	for (k = 0; k < t->n_causes; k++) {
		label(o, "cause", pt_cause_name((enum pt_cause)t->cause[k]));
		value(o, j, t->lost_s[t->cause[k]]);
	}
	if (t->lost_s[PT_CAUSE_NO_DEMAND] > 0) {
		label(o, "cause", pt_cause_name(PT_CAUSE_NO_DEMAND));
		value(o, j, t->lost_s[PT_CAUSE_NO_DEMAND]);
	}
	if (other > 0) {
		label(o, "cause", "other");
		value(o, j, other);
	}
}

static void phases(struct out *o, const struct pt_prom_job *j)
{
	int k;

	for (k = 0; k < PT_PHASE_NR && j->t->steps > 0; k++) {
		label(o, "phase", pt_phase_name((enum pt_phase)k));
		value(o, j, j->t->phase_s[k]);
	}
}

/* The mounts that were waited for the longest. */
static void mounts(struct out *o, const struct pt_prom_job *j, bool bytes)
{
	size_t top[MOUNTS_SHOWN], n = pt_tally_top_mounts(j->t, top, MOUNTS_SHOWN), k;

	for (k = 0; k < n; k++) {
		const struct pt_sample_mount *m = &j->t->mount[top[k]];

		label(o, "mount", m->name);
		value(o, j, bytes ? m->bytes : m->read_s);
	}
}

static void mount_seconds(struct out *o, const struct pt_prom_job *j)
{
	mounts(o, j, false);
}

static void mount_bytes(struct out *o, const struct pt_prom_job *j)
{
	mounts(o, j, true);
}

static void busy(struct out *o, const struct pt_prom_job *j)
{
	static const char *const bound[] = { "hard_low", "likely_low", "estimate",
					     "likely_high", "hard_high" };
	const struct pt_sample *s = &j->t->last;
	const double v[] = { s->busy_hard_s[0], s->busy_likely_s[0], s->busy_s,
			     s->busy_likely_s[1], s->busy_hard_s[1] };
	double of = s->duration * s->gpus;
	size_t k;

	for (k = 0; j->t->has_last && !j->ended && of > 0 && k < 5; k++) {
		if (isnan(v[k]))
			continue;
		label(o, "bound", bound[k]);
		value(o, j, v[k] / of);
	}
}

static void steps(struct out *o, const struct pt_prom_job *j)
{
	point(o, j, (struct pt_series_point){ .value = j->t->step_sum_s,
					      .bound = pt_tally_bucket,
					      .count = j->t->step_bucket,
					      .n_bounds = PT_TALLY_BUCKETS });
}

/* What is worst comes first. */
static int weight(const struct pt_sample_verdict *v)
{
	return (pt_verdict_is(v->id, PT_VERDICT_ALWAYS) ? 100 : 0) + 2 * v->severity +
	       v->root;
}

/* The places of those that are shown. */
static size_t choose(const struct pt_sample *s, size_t *shown)
{
	size_t i, k, n = 0;

	for (i = 0; i < s->n_verdicts; i++) {
		for (k = n; k > 0 && weight(&s->verdict[shown[k - 1]]) <
					     weight(&s->verdict[i]); k--)
			if (k < VERDICTS_SHOWN)
				shown[k] = shown[k - 1];
		if (k < VERDICTS_SHOWN) {
			shown[k] = i;
			n += n < VERDICTS_SHOWN;
		}
	}
	return n;
}

static void verdicts(struct out *o, const struct pt_prom_job *j)
{
	const struct pt_sample *s = &j->t->last;
	size_t shown[VERDICTS_SHOWN], k, n = j->ended ? 0 : choose(s, shown);

	for (k = 0; k < n; k++) {
		const struct pt_sample_verdict *v = &s->verdict[shown[k]];

		label(o, "id", v->id);
		label(o, "severity", pt_severity_name((enum pt_severity)v->severity));
		label(o, "root", v->root ? "true" : "false");
		value(o, j, 1);
	}
}

static void since(struct out *o, const struct pt_prom_job *j)
{
	if (j->since_unix > 0)
		value(o, j, j->since_unix);
}

static void windows(struct out *o, const struct pt_prom_job *j)
{
	if (j->t->watched)
		value(o, j, j->t->windows);
}

/* ---- plain figures: one point of each job; NAN: it has none ---------------------- */

#define AT(member) offsetof(struct pt_tally, member)
#define FAMILY(name, type, unit, help) { "pipetrace_" name, PT_SERIES_##type, unit, help }
#define C(name, unit, help, member) { FAMILY(name, COUNTER, unit, help), NULL, AT(member) },
/* ... of the last sample. */
#define G(name, unit, help, member) { FAMILY(name, GAUGE, unit, help), NULL, AT(last.member) },
#define F(name, type, unit, help, of) { FAMILY(name, type, unit, help), of, 0 },

/* Every family of a job, in the order in which they are told. */
static const struct {
	struct pt_series_family family;
	void (*points)(struct out *o, const struct pt_prom_job *j);
	size_t at; /* without `points`: of the figure in the tally */
} families[] = {
	F("job", INFO, NULL, "A job that is sampled, and whose it is.", info)
	F("gpu_lost_seconds", COUNTER, "seconds", "GPU-seconds idle, by cause (estimated: samples stand for the time between them).", lost)
	F("gpu_busy_ratio", GAUGE, "ratio", "Busy share of the job's GPUs in its last sample: bounds that always hold, likely ones, and the best guess.", busy)
	F("step_seconds", HISTOGRAM, "seconds", "Time of training steps (estimated like the counters).", steps)
	F("step_phase_seconds", COUNTER, "seconds", "Time of training steps by what the trainer did: data_wait, host, gpu_wait, collective (estimated).", phases)
	F("mount_read_seconds", COUNTER, "seconds", "Time inside read calls, of the job's three worst mounts (estimated).", mount_seconds)
	F("mount_read_bytes", COUNTER, "bytes", "Bytes read, of the job's three worst mounts (estimated).", mount_bytes)
	F("verdict", GAUGE, NULL, "1 for each verdict of the job's last sample.", verdicts)
	C("gpu_seconds", "seconds", "GPU-seconds of the job that samples stand for.", gpu_s)
	C("gpu_busy_low_seconds", "seconds", "GPU-seconds busy, low end of what is likely (estimated).", busy_low_s)
	C("gpu_busy_high_seconds", "seconds", "GPU-seconds busy, high end of what is likely (estimated).", busy_high_s)
	C("gpu_starved_low_seconds", "seconds", "GPU-seconds idle in data waits, for certain (estimated from samples).", starved_low_s)
	C("gpu_starved_high_seconds", "seconds", "GPU-seconds idle in data waits, most likely (estimated).", starved_high_s)
	C("steps", NULL, "Training steps (estimated).", steps)
	C("covered_seconds", "seconds", "Time of the job that samples stand for.", covered_s)
	C("observed_seconds", "seconds", "Time of the job that samples saw.", observed_s)
	G("data_wait_ratio", "ratio", "Share of its time that the trainer waited for data, in the last sample.", data_wait_share)
	G("worker_slowdown_ratio", "ratio", "How much slower the slowest loader worker is than its peers, in the last sample.", slowdown)
	C("read_bytes", "bytes", "Bytes that the job read (estimated).", read_bytes)
	C("read_seconds", "seconds", "Time inside read calls (estimated).", read_s)
	C("reads", NULL, "Read calls (estimated).", reads)
	F("watch_windows", COUNTER, NULL, "Windows that a watch of the job kept as evidence.", windows)
	C("samples", NULL, "Samples taken.", samples)
	C("failed_samples", NULL, "Samples that gave no report.", failed)
	C("events", NULL, "Events that samples got.", events)
	C("lost_events", NULL, "Events that were lost in samples.", lost_events)
	C("tracer_cpu_seconds", "seconds", "CPU time of taking samples of the job.", tracer_cpu_s)
	F("job_counting_start_time_seconds", GAUGE, "seconds", "Unix time at which the job's counters began at nothing.", since)
};
#undef C
#undef G
#undef F

static void figure(struct out *o, const struct pt_prom_job *j, size_t at)
{
	bool now = o->family->type == PT_SERIES_GAUGE;
	double x = *(const double *)(const void *)((const char *)j->t + at);

	if (!isnan(x) && !(now && (j->ended || !j->t->has_last)))
		value(o, j, x);
}

static void of_jobs(struct out *o)
{
	size_t i, k;

	for (i = 0; i < sizeof(families) / sizeof(*families); i++) {
		family(o, &families[i].family);
		for (k = 0; k < o->n; k++) {
			job(o, &o->job[k]);
			if (families[i].points)
				families[i].points(o, &o->job[k]);
			else
				figure(o, &o->job[k], families[i].at);
		}
	}
}

static void own(struct out *o, const struct pt_prom_agent *a)
{
	static const struct pt_series_family agent = {
		"pipetrace_agent", PT_SERIES_INFO, NULL, "The agent of this node."
	};
#define C(name, unit, help) FAMILY("agent_" name, COUNTER, unit, help)
#define G(name, unit, help) FAMILY("agent_" name, GAUGE, unit, help)
	static const struct pt_series_family f[] = {
		C("cpu_seconds", "seconds", "CPU time of the agent and its samples."),
		G("resident_memory_bytes", "bytes", "Resident memory of the agent."),
		G("jobs", NULL, "Jobs that are sampled."),
		G("jobs_left_out", NULL, "Jobs that were found and are not sampled: the budget is spent."),
		G("interval_seconds", "seconds", "Time from one sample of a job to its next, as it is now."),
		G("sample_seconds", "seconds", "Length of a sample."),
		G("interval_configured_seconds", "seconds", "Time from one sample of a job to its next, as configured."),
		G("cpu_budget_cores", NULL, "What the agent may use, on average."),
		G("memory_budget_bytes", "bytes", "Resident memory that the agent may use."),
		G("watches", NULL, "Jobs that are watched all the time."),
		C("watch_cpu_seconds", "seconds", "CPU time of watching them."),
	};
#undef C
#undef G
	const double v[] = { a->cpu_s, a->resident_bytes, a->jobs,
			     a->dropped_jobs, a->interval_s, a->sample_s,
			     a->interval_wanted_s > 0 ? a->interval_wanted_s : NAN,
			     a->cpu_budget > 0 ? a->cpu_budget : NAN,
			     a->memory_budget > 0 ? a->memory_budget : NAN,
			     a->watching ? a->watches : NAN,
			     a->watching ? a->watch_cpu_s : NAN };
	size_t i;

	_Static_assert(sizeof(v) / sizeof(*v) == sizeof(f) / sizeof(*f),
		       "a value for each");
	job(o, NULL);
	family(o, &agent);
	label(o, "version", a->version);
	label(o, "host", a->host);
	value(o, NULL, 1);
	for (i = 0; i < sizeof(f) / sizeof(*f); i++) {
		family(o, &f[i]);
		if (!isnan(v[i]))
			value(o, NULL, v[i]);
	}
}

int pt_series_visit(const struct pt_prom_agent *a, const struct pt_prom_job *jobs,
		    size_t n, const struct pt_series_visitor *v)
{
	struct out o = { .v = v, .job = jobs, .n = n };

	own(&o, a);
	of_jobs(&o);
	cut(&o, 0);
	return o.err;
}
