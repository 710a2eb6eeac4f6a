/* SPDX-License-Identifier: BSD-2-Clause */
/* What the judges share: evidence, severities, bounds on what can be won. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "analysis/io/disks.h"
#include "analysis/lines/lines.h"
#include "analysis/verdicts/verdict.h"
#include "analysis/waits/fed.h"
#include "analysis/whatif/whatif.h"

const char *pt_cause_words(enum pt_cause c)
{
	static const char *const words[PT_CAUSE_NR] = {
		[PT_CAUSE_CPU] = "computing",
		[PT_CAUSE_RUN_QUEUE] = "waiting for a core",
		[PT_CAUSE_THROTTLE] = "throttling by a CPU quota",
		[PT_CAUSE_DISK] = "waiting for storage",
		[PT_CAUSE_PAGE_FAULT] = "page faults",
		[PT_CAUSE_NETWORK] = "waiting for the network",
		[PT_CAUSE_LOCK] = "waiting for locks",
		[PT_CAUSE_IPC] = "handing data over",
		[PT_CAUSE_CHECKPOINT] = "the training thread writing files",
		[PT_CAUSE_NO_DEMAND] = "waiting for requests",
		[PT_CAUSE_OTHER_HOST] = "host work between GPU calls",
		[PT_CAUSE_SLEEP] = "sleeping",
		[PT_CAUSE_UNKNOWN] = "waits whose cause was not seen",
	};

	return (unsigned)c < PT_CAUSE_NR && words[c] ? words[c] : pt_cause_name(c);
}

const char *pt_sentence(struct pt_an *an, const char *fmt, ...)
{
	const char *s;
	va_list ap;

	va_start(ap, fmt);
	s = pt_arena_vprintf(an->a, fmt, ap);
	va_end(ap);
	return s ? s : "";
}

void pt_evidence_add(struct pt_r_verdict *v, const char *metric, double value,
		     const char *unit, double threshold, enum pt_certainty certainty)
{
	struct pt_r_evidence *e = (struct pt_r_evidence *)&v->evidence[v->n_evidence];

	assert(v->n_evidence < PT_EVIDENCE_MAX);
	if (v->n_evidence >= PT_EVIDENCE_MAX)
		return;
	v->n_evidence++;
	*e = (struct pt_r_evidence){ metric, value, unit, threshold, certainty };
}

void pt_evidence_against(struct pt_r_verdict *v, const char *metric, double value,
			 const char *unit, double threshold)
{
	pt_evidence_add(v, metric, value, unit, threshold, PT_MEASURED);
}

void pt_evidence(struct pt_r_verdict *v, const char *metric, double value,
		 const char *unit)
{
	pt_evidence_against(v, metric, value, unit, NAN);
}

void pt_evidence_starved(const struct pt_facts *f, struct pt_r_verdict *v)
{
	pt_evidence_add(v, "gpu.starved_share", f->starved_shown, "share",
			f->th->starved_info, f->bounded ? PT_BOUNDED : PT_ESTIMATED);
	pt_evidence(v, "breakdown.data_wait.share", f->wait_share, "share");
}

void pt_evidence_calm(const struct pt_facts *f, struct pt_r_verdict *v)
{
	pt_evidence_add(v, "gpu.starved_share", f->starved, "share", f->th->starved_info,
			PT_ESTIMATED);
	pt_evidence(v, "breakdown.data_wait.share", f->wait_share, "share");
	pt_evidence_add(v, "gpu.idle_share", f->idle, "share", f->th->idle_bad,
			PT_ESTIMATED);
}

void pt_speedup_share(double share, struct pt_range *out)
{
	out->low = 1;
	out->value = NAN;
	out->high = 1 / (1 - fmin(share, 0.999));
}

enum pt_severity pt_severity_of(const struct pt_facts *f, double share)
{
	return share >= f->th->starved_critical ? PT_CRITICAL :
	       share >= f->th->starved_warning	? PT_WARNING :
						  PT_INFO;
}

void pt_verdict_costs(const struct pt_facts *f, struct pt_r_verdict *v, double share)
{
	*f->lost = share;
	v->severity = pt_severity_of(f, share);
	pt_speedup_share(share, &v->expected_speedup);
}

void pt_replayed_speedup(const struct pt_an *an, const char *change,
			 struct pt_r_verdict *v)
{
	pt_speedup_of(an, change, PT_NULL, &v->expected_speedup);
}

int64_t pt_better_workers(const struct pt_an *an, const struct pt_facts *f)
{
	struct pt_range gain;

	if (!pt_speedup_of(an, "workers", PT_NULL, &gain) || !(gain.low > 1) ||
	    an->r->best_workers <= (int64_t)f->t->concurrent)
		return 0;
	return an->r->best_workers;
}

bool pt_gains_nothing(const struct pt_an *an, const char *change)
{
	struct pt_range gain;

	return pt_speedup_of(an, change, PT_NULL, &gain) && gain.value < PT_LEAST_GAIN;
}

const struct pt_worker *pt_served_by(const struct pt_facts *f)
{
	const struct pt_worker *most = NULL;
	size_t i;

	for (i = 0; f->t && !f->t->concurrent && i < f->t->workers.n; i++) {
		const struct pt_worker *w = &f->t->workers.v[i];

		if (w->role == PT_ROLE_OUTSIDE && (!most || w->charged_ns > most->charged_ns))
			most = w;
	}
	return most;
}

const struct pt_worker *pt_fed_worker(const struct pt_facts *f)
{
	const struct pt_worker *most = NULL;

	if (!f->t)
		return NULL;
	pt_each(const struct pt_worker, w, &f->t->workers)
		if (!most || w->charged_ns > most->charged_ns)
			most = w;
	return most && pt_is_fed(most) ? most : NULL;
}

const struct pt_worker *pt_lone_helper(const struct pt_facts *f)
{
	uint64_t all = 0;

	if (!f->t)
		return NULL;
	pt_each(const struct pt_worker, w, &f->t->workers)
		all += w->charged_ns;
	pt_each(const struct pt_worker, w, &f->t->workers)
		if (w->role == PT_ROLE_HELPER && w->proc != f->t->proc && 2 * w->charged_ns > all)
			return w;
	return NULL;
}

void pt_blame_helper(struct pt_an *an, const struct pt_facts *f, const struct pt_worker *helper,
		     struct pt_r_verdict *v)
{
	static const struct pt_line_ask ask = { PT_LINES_SUBJECT, 1u << PT_CAUSE_CPU, "" };
	uint32_t id = pt_real_id(helper->proc->tgid);
	struct pt_r_line l;

	v->subject_pid = helper->proc->tgid;
	v->advice = pt_top_line(an, &ask, v->subject_pid, &l) ?
		pt_sentence(an,
			"Make %s in process %u cheaper, or let several processes do it: the workers wait "
			"for that one, and more of them would, too.", pt_line_place(an, &l), id) :
		pt_sentence(an,
			"Make what process %u computes cheaper, or let several processes do it: the "
			"workers wait for that one, and more of them would, too.", id);
	/* who rests meanwhile may wait for something else, too */
	if (pt_sec(pt_run_ns(an, helper->main)) < f->th->pool_busy * f->wall_s)
		pt_at_most(&v->certainty, PT_CONF_MEDIUM);
}

int pt_workers_needed(const struct pt_facts *f)
{
	double left = 1 - fmin(f->starved, 0.98);

	return (int)ceil((double)f->t->concurrent / left);
}

/* ---- storage: which kind of it, and how it answers ------------------------- */

/* Waits for files of this class, share of the data wait. */
static double class_share(const struct pt_an *an, const char *cls)
{
	const struct pt_r_data_wait *w = &an->r->data_wait;
	double sum = 0;
	size_t i;

	for (i = 0; i < w->n_causes; i++)
		if (w->causes[i].fs_class && !strcmp(w->causes[i].fs_class, cls))
			sum += w->causes[i].share;
	return sum;
}

static void add_disk(const struct pt_r_disk *d, struct pt_r_verdict *v)
{
	pt_evidence(v, "disk.read_latency_ms.mean", d->read_latency_ms.mean, "ms");
	pt_evidence_add(v, "disk.read_latency_ms.p99", d->read_latency_ms.p99, "ms", NAN,
			PT_BOUNDED);
	pt_evidence(v, "disk.queue_depth.mean", d->depth_mean, "requests");
	if (!isnan(d->busy_share))
		pt_evidence(v, "disk.busy_share", d->busy_share, "share");
}

void pt_evidence_storage(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	const struct pt_r_disk *d = pt_main_disk(an);
	double blocked = f->cause[PT_CAUSE_DISK] + f->cause[PT_CAUSE_PAGE_FAULT];
	double network = class_share(an, "network"), user = class_share(an, "user");

	if (f->kernel > 0 && f->group[PT_GROUP_IO] > blocked + f->kernel / 2)
		pt_evidence(v, "data_wait.kernel_share", f->kernel, "share");
	if (network > 0)
		pt_evidence(v, "data_wait.network_fs_share", network, "share");
	if (user > 0)
		pt_evidence(v, "data_wait.fuse_share", user, "share");
	/* of a disk that was waited for, or that nothing else is known of */
	if (d && d->reads >= PT_IO_REQUESTS && class_share(an, "local") >= network + user)
		add_disk(d, v);
}
