/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/sample.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define DURATION_MAX 86400.0
#define DEVICES_MAX 1024
#define STEP_MAX_S 86400.0

/* A number in [0, max], or NAN. */
static double number(const json_t *o, const char *key, double max)
{
	const json_t *v = json_object_get(o, key);
	double x = json_is_number(v) ? json_number_value(v) : NAN;

	return x >= 0 && x <= max ? x : NAN;
}

static double or_zero(double x)
{
	return isnan(x) ? 0 : x;
}

static void pair(const json_t *o, const char *key, double out[2])
{
	const json_t *v = json_object_get(o, key);
	size_t i;

	for (i = 0; i < 2; i++) {
		double x = json_number_value(json_array_get(v, i));

		out[i] = json_array_size(v) == 2 && x >= 0 && x <= 1 ? x : NAN;
	}
}

static int cause_of(const char *name)
{
	int i;

	for (i = 0; name && i < PT_CAUSE_NR; i++)
		if (!strcmp(name, pt_cause_name((enum pt_cause)i)))
			return i;
	return PT_CAUSE_UNKNOWN; /* one of a later version */
}

/* Shares of the window become GPU-seconds; what one device does not know is not
 * known of the sum. */
static void add_device(struct pt_sample *s, const json_t *g)
{
	const json_t *busy = json_object_get(g, "busy"), *c;
	const json_t *idle = json_object_get(g, "idle");
	double hard[2], likely[2], starved[2];
	size_t i;

	pair(busy, "hard", hard);
	pair(busy, "likely", likely);
	pair(idle, "starved", starved);
	s->gpus++;
	s->busy_s += number(busy, "share", 1) * s->duration;
	for (i = 0; i < 2; i++) {
		s->busy_hard_s[i] += hard[i] * s->duration;
		s->busy_likely_s[i] += likely[i] * s->duration;
		s->starved_s[i] += starved[i] * s->duration;
	}
	json_array_foreach(json_object_get(g, "idle_causes"), i, c) {
		int cause = cause_of(json_string_value(json_object_get(c, "cause")));

		s->idle_s[cause] += or_zero(number(c, "seconds", DURATION_MAX));
	}
}

static int severity_of(const char *name)
{
	int i;

	for (i = PT_INFO; name && i <= PT_CRITICAL; i++)
		if (!strcmp(name, pt_severity_name((enum pt_severity)i)))
			return i;
	return -1;
}

/* Ids become labels: nothing but the letters that they are made of. */
static bool take_id(char *dst, size_t cap, const char *id)
{
	size_t n = id ? strspn(id, "abcdefghijklmnopqrstuvwxyz_0123456789") : 0;

	if (!n || id[n] || n >= cap)
		return false;
	memcpy(dst, id, n + 1);
	return true;
}

static void add_verdict(struct pt_sample *s, const json_t *v)
{
	struct pt_sample_verdict x = { 0 };
	int severity = severity_of(json_string_value(json_object_get(v, "severity")));

	if (severity < 0 || s->n_verdicts == PT_SAMPLE_VERDICTS ||
	    !take_id(x.id, sizeof(x.id),
		     json_string_value(json_object_get(v, "id"))))
		return;
	x.severity = (uint8_t)severity;
	x.root = json_is_null(json_object_get(v, "consequence_of"));
	s->verdict[s->n_verdicts++] = x;
}

static void add_steps(struct pt_sample *s, const json_t *steps)
{
	const json_t *one;
	size_t i;

	s->steps = number(steps, "count", 1e12);
	json_array_foreach(json_object_get(steps, "list"), i, one) {
		double b = json_number_value(json_object_get(one, "begin_ns"));
		double e = json_number_value(json_object_get(one, "end_ns"));
		double sec = (e - b) / 1e9;

		if (s->n_step_s < PT_SAMPLE_STEPS && sec > 0 && sec < STEP_MAX_S)
			s->step_s[s->n_step_s++] = (float)sec;
	}
}

const char *pt_phase_name(enum pt_phase p)
{
	static const char *const name[] = { "data_wait", "host", "gpu_wait",
					    "collective" };

	return name[p];
}

/* Several ranks: the breakdown is that of the worst. */
static void add_phases(struct pt_sample *s, const json_t *breakdown)
{
	static const struct {
		const char *key;
		enum pt_phase phase;
	} all[] = { { "data_wait", PT_PHASE_DATA_WAIT },
		    { "gpu_wait", PT_PHASE_GPU_WAIT },
		    { "sync", PT_PHASE_GPU_WAIT },
		    { "collective", PT_PHASE_COLLECTIVE },
		    { "transfer", PT_PHASE_HOST },
		    { "launch", PT_PHASE_HOST },
		    { "checkpoint", PT_PHASE_HOST },
		    { "other", PT_PHASE_HOST } };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		s->phase_s[all[i].phase] +=
			number(json_object_get(breakdown, all[i].key), "seconds",
			       DURATION_MAX);
}

static void add_files(struct pt_sample *s, const json_t *files)
{
	double bytes = 0;
	const json_t *f;
	size_t i;

	json_array_foreach(files, i, f) {
		s->read_s += or_zero(number(f, "read_s", 1e9));
		s->reads += or_zero(number(f, "reads", 1e15));
		bytes += or_zero(number(f, "bytes", 1e18));
	}
	/* a job without workers reads, too */
	s->read_bytes = fmax(s->read_bytes, bytes);
}

static void add_workers(struct pt_sample *s, const json_t *workers)
{
	const json_t *w;
	size_t i;

	json_array_foreach(workers, i, w) {
		double x = number(w, "slowdown", 1e9);

		if (!isnan(x))
			s->slowdown = isnan(s->slowdown) ? x : fmax(s->slowdown, x);
		s->read_bytes += or_zero(number(w, "read_bytes", 1e18));
	}
}

int pt_sample_read(const json_t *r, struct pt_sample *s, const char **why)
{
	const json_t *c = json_object_get(r, "capture"), *gpu, *v;
	const char *schema = json_string_value(json_object_get(r, "schema"));
	size_t i;

	memset(s, 0, sizeof(*s));
	*why = "it is no report";
	if (!schema || strcmp(schema, "pipetrace.report/1"))
		return -EINVAL;
	s->duration = number(c, "duration", DURATION_MAX);
	*why = "it says not how long it watched";
	if (isnan(s->duration))
		return -EINVAL;
	gpu = json_object_get(r, "gpu");
	*why = "it has too many devices";
	if (json_array_size(gpu) > DEVICES_MAX)
		return -EINVAL;
	json_array_foreach(gpu, i, v)
		add_device(s, v);
	if (!s->gpus)
		s->busy_s = s->busy_hard_s[0] = s->busy_hard_s[1] =
			s->busy_likely_s[0] = s->busy_likely_s[1] =
				s->starved_s[0] = s->starved_s[1] = NAN;
	s->data_wait_share = number(
		json_object_get(json_object_get(r, "breakdown"), "data_wait"),
		"share", 1);
	s->slowdown = NAN;
	add_workers(s, json_object_get(r, "workers"));
	add_files(s, json_object_get(r, "files"));
	add_phases(s, json_object_get(r, "breakdown"));
	pt_sample_mounts(r, NULL, s);
	add_steps(s, json_object_get(r, "steps"));
	json_array_foreach(json_object_get(r, "verdicts"), i, v)
		add_verdict(s, v);
	s->events = or_zero(number(c, "events", 1e18));
	s->lost = or_zero(number(json_object_get(c, "lost"), "total", 1e18));
	s->tracer_cpu_s = or_zero(number(c, "tracer_cpu_s", DURATION_MAX));
	s->complete = json_is_true(json_object_get(c, "complete"));
	*why = NULL;
	return 0;
}
