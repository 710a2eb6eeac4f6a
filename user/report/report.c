/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/report.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

const char *pt_certainty_name(enum pt_certainty c)
{
	switch (c) {
	case PT_MEASURED:
		return "measured";
	case PT_BOUNDED:
		return "bounded";
	case PT_ESTIMATED:
		return "estimated";
	case PT_CERT_NONE:
		break;
	}
	return NULL;
}

const char *pt_confidence_name(enum pt_confidence c)
{
	switch (c) {
	case PT_CONF_LOW:
		return "low";
	case PT_CONF_MEDIUM:
		return "medium";
	case PT_CONF_HIGH:
		return "high";
	case PT_CONF_NONE:
		break;
	}
	return NULL;
}

const char *pt_severity_name(enum pt_severity s)
{
	switch (s) {
	case PT_WARNING:
		return "warning";
	case PT_CRITICAL:
		return "critical";
	case PT_INFO:
		break;
	}
	return "info";
}

const char *pt_cause_name(enum pt_cause c)
{
	static const char *const names[] = {
#define X(id, name) [PT_CAUSE_##id] = name,
		PT_CAUSES(X)
#undef X
	};

	if ((unsigned)c >= PT_CAUSE_NR)
		return names[PT_CAUSE_UNKNOWN];
	return names[c];
}

const char *pt_worker_state_name(enum pt_worker_state s)
{
	switch (s) {
	case PT_WORKER_SLOW:
		return "slow";
	case PT_WORKER_HUNG:
		return "hung";
	case PT_WORKER_DONE:
		return "done";
	case PT_WORKER_EXITED:
		return "exited";
	case PT_WORKER_OK:
		break;
	}
	return "ok";
}

const char *pt_host_kind_name(enum pt_host_kind k)
{
	static const char *const names[PT_HOST_NR] = {
#define X(id, name) [PT_HOST_##id] = name,
		PT_HOST_KINDS(X)
#undef X
	};

	return k < PT_HOST_NR ? names[k] : NULL;
}

static void null_breakdown(struct pt_r_breakdown *b)
{
	const struct pt_r_part unknown = { NAN, NAN };
	size_t i;

	for (i = 0; i < PT_HOST_NR; i++)
		b->host[i] = unknown;

	b->data_wait = b->gpu_wait = b->transfer = b->sync = b->launch =
		b->collective = b->checkpoint = b->other = unknown;
}

struct pt_report *pt_report_new(void)
{
	struct pt_arena *arena = pt_arena_new();
	struct pt_report *r = arena ? pt_report_new_in(arena) : NULL;

	if (!r)
		pt_arena_free(arena);
	return r;
}

struct pt_report *pt_report_new_in(struct pt_arena *arena)
{
	const struct pt_range no_range = { NAN, NAN, NAN };
	struct pt_report *r = pt_arena_alloc(arena, sizeof(*r));

	if (!r)
		return NULL;
	r->arena = arena;

	r->host.cores = r->host.memory = r->host.shm_size = PT_NULL;
	r->host.quota_cores = NAN;
	r->target.pid = r->target.resolved_from = PT_NULL;
	r->target.trainer = PT_NULL;
	r->target.started = NAN;

	r->capture.duration = r->capture.tracer_cpu_s = NAN;
	r->capture.begin_ns = r->capture.end_ns = PT_NULL;
	r->capture.begin_unix_ns = r->capture.events = PT_NULL;
	r->capture.lost_total = PT_NULL;
	r->capture.target_overhead = no_range;

	r->steps.count = r->steps.batches = PT_NULL;
	r->steps.optimizer_steps = r->steps.batch_size = PT_NULL;
	r->best_workers = PT_NULL;
	r->steps.per_second = r->steps.samples_per_second = NAN;
	r->steps.first_ms = r->steps.max_over_min = NAN;

	null_breakdown(&r->breakdown);
	r->data_wait.blocked = r->data_wait.own_read = NAN;
	r->data_wait.own_cpu = r->data_wait.handover = NAN;
	r->data_wait.lead = r->data_wait.restart = NAN;
	r->mem_growth_per_min = NAN;
	r->memory.total = r->memory.available = r->memory.cache = PT_NULL;
	r->memory.limit = r->memory.used = r->memory.room = PT_NULL;
	r->memory.refaulted = PT_NULL;
	r->memory.refault_s = NAN;
	r->memory.set = (struct pt_r_working_set){
		PT_NULL, PT_NULL, { PT_NULL, PT_NULL }, { PT_NULL, PT_NULL },
		-1, PT_CERT_NONE };
	return r;
}

void pt_report_free(struct pt_report *r)
{
	if (r)
		pt_arena_free(r->arena); /* the report lies in it */
}

static bool same_limit(const struct pt_limit *l, const char *what,
		       const char *reason)
{
	return !strcmp(l->what, what) && !strcmp(l->reason, reason);
}

int pt_report_limit(struct pt_report *r, const char *what, const char *fmt, ...)
{
	struct pt_r_capture *c = &r->capture;
	struct pt_limit *grown;
	char *reason, *id;
	size_t cap;
	va_list ap;

	va_start(ap, fmt);
	reason = pt_arena_vprintf(r->arena, fmt, ap);
	va_end(ap);
	if (!reason)
		return -ENOMEM;
	for (size_t i = 0; i < c->n_limits; i++)
		if (same_limit(&c->limits[i], what, reason))
			return 0;
	id = pt_arena_strdup(r->arena, what);
	if (!id)
		return -ENOMEM;
	if (c->n_limits >= c->cap_limits) {
		cap = c->cap_limits ? 2 * c->cap_limits : 8;
		grown = pt_arena_calloc(r->arena, cap, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		if (c->n_limits)
			memcpy(grown, c->limits, c->n_limits * sizeof(*grown));
		c->limits = grown;
		c->cap_limits = cap;
	}
	c->limits[c->n_limits].what = id;
	c->limits[c->n_limits++].reason = reason;
	return 0;
}

int pt_report_label(struct pt_report *r, const char *key, const char *value)
{
	char *v = pt_arena_strdup(r->arena, value), *k;

	if (!v)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_labels; i++) {
		if (strcmp(r->labels[i].key, key))
			continue;
		r->labels[i].value = v;
		return 0;
	}
	if (r->n_labels == PT_LABELS_MAX)
		return -ENOSPC;
	if (!r->labels)
		r->labels = pt_arena_calloc(r->arena, PT_LABELS_MAX,
					    sizeof(*r->labels));
	k = pt_arena_strdup(r->arena, key);
	if (!r->labels || !k)
		return -ENOMEM;
	r->labels[r->n_labels].key = k;
	r->labels[r->n_labels++].value = v;
	return 0;
}

int pt_report_severity(const struct pt_report *r)
{
	int worst = -1;

	for (size_t i = 0; i < r->n_verdicts; i++)
		if ((int)r->verdicts[i].severity > worst)
			worst = (int)r->verdicts[i].severity;
	return worst;
}
