/* SPDX-License-Identifier: BSD-2-Clause */
/* From the passes' results to the report's figures. */
#include <errno.h>
#include <math.h>

#include "analysis/io/disks.h"
#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/parts/part.h"
#include "analysis/verdicts/verdict.h"

static double share(uint64_t part, uint64_t whole)
{
	return whole ? fmin(1, (double)part / (double)whole) : NAN;
}

/* Whole steps: those whose begin and end lie in the capture. */
static size_t whole_steps(const struct pt_trainer *t)
{
	size_t i, n = 0;

	for (i = 0; i < t->steps.n; i++)
		n += !t->steps.v[i].partial;
	return n;
}

static int fill_steps(struct pt_an *an, struct pt_trainer *t)
{
	struct pt_r_steps *r = &an->r->steps;
	size_t n = whole_steps(t), i, k = 0;
	struct pt_r_step *list = pt_arena_calloc(an->a, t->steps.n,
						 sizeof(*list));
	double *ms = malloc((n + 1) * sizeof(*ms));

	if (!ms || (t->steps.n && !list)) {
		free(ms);
		return -ENOMEM;
	}
	for (i = 0; i < t->steps.n; i++) {
		const struct pt_step *s = &t->steps.v[i];
		struct pt_r_step *o = &list[i];

		o->index = (int64_t)(an->step0 + i);
		o->begin_ns = (int64_t)s->begin;
		o->end_ns = (int64_t)s->end;
		o->period_ms = pt_ms(s->end - s->begin);
		o->data_wait_ms = pt_ms(s->wait_ns);
		o->gpu_wait_ms = pt_ms(s->gpu_wait_ns);
		o->cause = s->cause;
		o->worker = s->worker >= 0 ?
				    t->workers.v[s->worker].proc->tgid : PT_NULL;
		o->blocked = s->blocked_ns > 0;
		if (!s->partial)
			ms[k++] = o->period_ms;
	}
	r->list = list;
	r->n_list = t->steps.n;
	r->count = (int64_t)t->steps.n;
	r->batches = 0;
	for (i = 0; i < t->steps.n; i++)
		r->batches += t->steps.v[i].batches;
	r->optimizer_steps = t->optimizer_steps;
	r->source = t->handoffs ? "handoff" : "gpu_gap";
	r->certainty = n < 3 ? PT_CONF_LOW :
		       t->handoffs ? PT_CONF_HIGH : PT_CONF_MEDIUM;
	pt_dist_of(ms, k, &r->period_ms);
	free(ms);
	if (pt_fill_step_parts(t, &r->parts))
		return -ENOMEM;
	if (k && r->period_ms.mean > 0) {
		r->per_second = 1000 / r->period_ms.mean;
	}
	if (an->o->batch_size > 0 && r->count > 0) {
		r->batch_size = an->o->batch_size;
		/* a step may take several batches */
		r->samples_per_second = r->per_second *
					(double)an->o->batch_size *
					(double)r->batches / (double)r->count;
	}
	return 0;
}

static void part(struct pt_r_part *p, uint64_t ns, uint64_t wall)
{
	p->seconds = pt_sec(ns);
	p->share = wall ? (double)ns / (double)wall : 0;
}

static void fill_breakdown(struct pt_r_breakdown *b, const struct pt_trainer *t,
			   uint64_t wall)
{
	uint64_t used = t->data_wait_ns + t->gpu_wait_ns + t->transfer_ns +
			t->collective_ns;
	uint64_t sync, launch, writing, rest = wall > used ? wall - used : 0;
	size_t i;

	writing = pt_min64(t->checkpoint_ns, rest);
	rest -= writing;
	sync = pt_min64(pt_idle_by_syncs(t), rest);
	rest -= sync;
	launch = pt_min64(t->launch_ns, rest);
	rest -= launch;
	b->known = true;
	part(&b->data_wait, t->data_wait_ns, wall);
	part(&b->gpu_wait, t->gpu_wait_ns, wall);
	part(&b->transfer, t->transfer_ns, wall);
	part(&b->sync, sync, wall);
	part(&b->launch, launch, wall);
	part(&b->collective, t->collective_ns, wall);
	part(&b->checkpoint, writing, wall);
	part(&b->other, rest, wall);
	for (i = 0; i < PT_HOST_NR; i++)
		part(&b->host[i], t->host_ns[i], wall);
}

PT_ORDER(by_ns, struct pt_charge, pt_cmp(y->ns, x->ns))

#define MAX_CHARGES 64

static const char *charge_what(struct pt_an *an, const struct pt_trainer *t,
			       const struct pt_charge *c)
{
	const struct pt_file *f;

	if (c->inode) {
		f = pt_model_file(an->m, c->dev, c->inode);
		if (f && f->path)
			return pt_arena_strdup(an->a, f->path);
	}
	if (c->peer)
		return pt_peer_name(an, c->peer - 1);
	/* nanosleep, clock_nanosleep */
	if (c->cause == PT_CAUSE_UNKNOWN && (c->syscall == 35 || c->syscall == 230))
		return "sleeping (timer)";
	if (c->cause == PT_CAUSE_UNKNOWN && c->syscall >= 0)
		return pt_arena_printf(an->a, "system call %d", c->syscall);
	if (c->syscall == PT_CHARGE_STOPPED)
		return "stopped (signal, debugger)";
	if (c->tid == t->main->tid)
		return t->handoffs && !t->computes_too ? "hand-over in the trainer" :
							  "loading in the trainer";
	return NULL;
}

PT_ORDER(by_seconds, struct pt_r_charge, pt_cmp(y->seconds, x->seconds))

/* On what most of the waiting rests, and what starting the loader took of it. */
static void fill_evidence(const struct pt_trainer *t, struct pt_r_data_wait *d)
{
	uint64_t supplied = 0, named = 0, all = 0, restart = 0;

	pt_each(const struct pt_fetch, w, &t->waits) {
		all += w->end - w->begin;
		supplied += w->supplied ? w->end - w->begin : 0;
		named += w->named ? w->end - w->begin : 0;
		restart += w->restart_ns;
	}
	d->restart = pt_sec(restart);
	d->evidence = !all ? NULL : named * 2 >= all	     ? "named" :
		      supplied * 2 >= all ? "supplied" :
					    "read";
}

static int fill_data_wait(struct pt_an *an, struct pt_trainer *t,
			  struct pt_r_data_wait *d)
{
	struct pt_r_charge *out;
	uint64_t rest[PT_CAUSE_NR] = { 0 }, sum = 0;
	size_t i, n;
	int cause;

	d->blocked = pt_sec(t->blocked_ns);
	d->own_read = pt_sec(t->own_read_ns);
	d->own_cpu = pt_sec(t->own_cpu_ns);
	d->handover = pt_sec(t->handover_ns);
	d->lead = NAN;
	fill_evidence(t, d);
	pt_join_charges(&t->charges);
	pt_vec_sort(&t->charges, by_ns);
	n = t->charges.n > MAX_CHARGES ? MAX_CHARGES : t->charges.n;
	out = pt_arena_calloc(an->a, n + PT_CAUSE_NR, sizeof(*out));
	if (!out)
		return -ENOMEM;
	for (i = 0; i < t->charges.n; i++)
		sum += t->charges.v[i].ns;
	for (i = 0; i < t->charges.n; i++) {
		const struct pt_charge *c = &t->charges.v[i];

		if (i >= n) {
			rest[c->cause] += c->ns;
			continue;
		}
		out[i].cause = c->cause;
		out[i].seconds = pt_sec(c->ns);
		out[i].share = share(c->ns, sum);
		out[i].subject_pid = c->pid ? c->pid : PT_NULL;
		out[i].subject_tid = c->tid ? c->tid : PT_NULL;
		out[i].what = charge_what(an, t, c);
		if (c->inode)
			out[i].fs_class = pt_fs_class_of(an, c->dev, c->inode);
	}
	/* so that charges still sum to the wait, and each cause to its own */
	for (cause = 0; cause < PT_CAUSE_NR; cause++) {
		if (!rest[cause])
			continue;
		out[n].cause = cause;
		out[n].seconds = pt_sec(rest[cause]);
		out[n].share = share(rest[cause], sum);
		out[n].subject_pid = out[n].subject_tid = PT_NULL;
		out[n].what = "many short waits";
		n++;
	}
	if (n > MAX_CHARGES)
		qsort(out, n, sizeof(*out), by_seconds);
	d->causes = out;
	d->n_causes = n;
	return 0;
}

static void fill_loader(struct pt_an *an, struct pt_trainer *t)
{
	struct pt_r_loader *l = &an->r->loader;
	char *n = pt_arena_printf(an->a, "%zu", t->concurrent);

	if (!t->steps.n)
		return;
	l->kind.value = t->thread_loader ? "threads" :
			t->handoffs ? "processes" : "in_trainer";
	l->workers.value = n;
	if (t->handoffs && !t->thread_loader) {
		l->pinned.value = t->relays.n ? "pin_thread" : NULL;
		l->sharing.value = t->fd_sharing ? "file_descriptor" : NULL;
	}
	if (t->respawned)
		l->persistent.value = "false";
	l->kind.source = l->workers.source = "observed";
	if (l->persistent.value)
		l->persistent.source = "observed";
	if (l->pinned.value)
		l->pinned.source = "observed";
	if (l->sharing.value)
		l->sharing.source = "observed";
}

static int fill_ranks(struct pt_an *an)
{
	struct pt_r_rank *r;
	size_t i;
	int err;

	if (an->trainers.n < 2)
		return 0;
	r = pt_arena_calloc(an->a, an->trainers.n, sizeof(*r));
	if (!r)
		return -ENOMEM;
	for (i = 0; i < an->trainers.n; i++) {
		struct pt_trainer *t = &an->trainers.v[i];

		r[i].pid = t->proc->tgid;
		r[i].rank = pt_rank_of_proc(t->proc);
		r[i].steps = (int64_t)t->steps.n;
		fill_breakdown(&r[i].breakdown, t, an->t1 - an->t0);
		err = fill_data_wait(an, t, &r[i].data_wait);
		if (err)
			return err;
		r[i].gpu_busy_share = t->gpu_known ?
			1 - share(t->idle_likely_ns, an->t1 - an->t0) : NAN;
		err = pt_fill_step_parts(t, &r[i].parts);
		if (err)
			return err;
		pt_fill_meetings(an, i, &r[i].meetings);
	}
	an->r->ranks = r;
	an->r->n_ranks = an->trainers.n;
	return 0;
}

/* What the measured device times do not tell, if there are any. */
static void limit_measured(struct pt_an *an, const struct pt_trainer *t)
{
	uint64_t lost = 0, covered = UINT64_MAX;
	bool split = false, shared = false;
	size_t i;

	for (i = 0; i < t->devs.n; i++) {
		lost = pt_max64(lost, t->devs.v[i].act_lost);
		covered = pt_min64(covered, t->devs.v[i].covered_ns);
		split |= t->devs.v[i].known && t->devs.v[i].compute_ns != UINT64_MAX;
		shared |= t->devs.v[i].shared;
	}
	if (shared)
		pt_report_limit(an->r, "gpu.shared", "Other processes use a GPU of this machine, "
				"perhaps this one: it may work for them while this job leaves it idle, so "
				"no idle time is certain.");
	if (!split)
		pt_report_limit(an->r, "gpu.compute", "Busy time is not split into compute, copy and collective: that needs exact device times.");
	if (lost)
		pt_report_limit(an->r, "gpu.activity", "%llu records of GPU work were lost: measured busy time is a lower bound.",
				(unsigned long long)lost);
	else if (t->proc->acts.n && t->devs.n && covered < an->t1 - an->t0)
		pt_report_limit(an->r, "gpu.activity", "GPU times were measured in %.2f s of %.2f; outside of that they are bounds.",
				pt_sec(covered), pt_sec(an->t1 - an->t0));
}

static void limit_folded(struct pt_an *an)
{
	const struct pt_gone *g = &an->m->gone;

	if (g->threads)
		pt_report_limit(an->r, "capture.processes", "To save memory, %llu processes "
							    "and %llu threads that had ended "
							    "are not listed; all that was "
							    "dropped, theirs included, took "
							    "%.1f s of CPU time and read %.1f "
							    "MB in %llu calls.",
				(unsigned long long)g->procs,
				(unsigned long long)g->threads, pt_sec(g->run_ns),
				(double)g->bytes / 1e6,
				(unsigned long long)g->reads);
	if (g->names)
		pt_report_limit(an->r, "capture.names", "To save memory, the names of %llu "
							"files and kernels that were no "
							"longer in use were dropped; one that "
							"came back later may have no name.",
				(unsigned long long)g->names);
}

static void fill_limits(struct pt_an *an, const struct pt_read_calls *reads)
{
	struct pt_trainer *t = an->top;
	struct pt_report *r = an->r;

	if (!an->m->devices.n)
		pt_report_limit(r, "gpu.memory", "Device memory comes from NVML, which did "
						 "not answer.");
	pt_report_limit(r, "data_wait.lead", "This version does not measure the time from a "
					     "batch's arrival to its first use.");
	pt_limit_reads(an, reads);
	/* of parts the first begins where the model did, before that was cut */
	if (an->m->trimmed_ns && !an->part && an->t0 >= an->m->begin)
		pt_report_limit(r, "capture", an->m->cut ? "The first %.0f s are not in the "
							   "file, whose size was limited; the "
							   "figures cover the rest." :
				"The first %.0f s were dropped to save memory; the figures "
				"cover the rest.",
				pt_sec(an->m->trimmed_ns));
	limit_folded(an);
	if (!t) {
		pt_report_limit(r, "gpu", "No GPU library call was seen.");
		return;
	}
	if (t->counts.graphs_unknown)
		pt_report_limit(r, "gpu.kernels", "%llu launches were of graphs that were made before the trace began, so the number of kernels is not known.",
				(unsigned long long)t->counts.graphs_unknown);
	limit_measured(an, t);
	pt_limit_ranks(an);
	if (!t->gpu_known)
		pt_report_limit(r, "gpu.busy", "The calls do not show when the device was "
					       "idle: its idle time is only bounded.");
	if (an->m->host_known && an->m->host.read_door == PT_DOOR_NONE)
		pt_report_limit(r, "reads", "Single reads were not traced: bytes come from "
					    "I/O accounting, and files only from reads that "
					    "blocked.");
}

int pt_fill_report(struct pt_an *an, const struct pt_measured *k,
		   const struct pt_read_calls *reads)
{
	struct pt_report *r = an->r;
	struct pt_trainer *t = an->top;
	uint64_t wall = an->t1 - an->t0;
	int err = 0;

	if (t) {
		r->target.trainer = t->proc->tgid;
		err = fill_steps(an, t);
		err = err ?: pt_fill_step_health(an, t);
		err = err ?: pt_fill_phases(an, &k->phases);
		fill_breakdown(&r->breakdown, t, wall);
		err = err ?: fill_data_wait(an, t, &r->data_wait);
		err = err ?: pt_fill_gpu(an, t, k->rows);
		fill_loader(an, t);
		err = err ?: fill_ranks(an);
	}
	fill_limits(an, reads);
	return err;
}

/* ---- people know processes by the kernel's ids (see timeline.h) ---------------- */

static void real(int64_t *id)
{
	if (*id > 0)
		*id = pt_real_id((uint32_t)*id);
}

static void real_in_wait(const struct pt_r_data_wait *d)
{
	struct pt_r_charge *c = (struct pt_r_charge *)d->causes;
	size_t i;

	for (i = 0; i < d->n_causes; i++) {
		real(&c[i].subject_pid);
		real(&c[i].subject_tid);
	}
}

/* The report's parts are const for its readers; it is still being made. */
void pt_show_real_ids(struct pt_report *r)
{
	struct pt_r_step *s = (struct pt_r_step *)r->steps.list;
	struct pt_r_worker *w = (struct pt_r_worker *)r->workers;
	struct pt_r_rank *k = (struct pt_r_rank *)r->ranks;
	struct pt_r_verdict *v = (struct pt_r_verdict *)r->verdicts;
	struct pt_r_write *o = (struct pt_r_write *)r->writes;
	struct pt_r_line *l = (struct pt_r_line *)r->lines;
	size_t i;

	real_in_wait(&r->data_wait);
	for (i = 0; i < r->steps.n_list; i++)
		real(&s[i].worker);
	for (i = 0; i < r->n_workers; i++) {
		real(&w[i].pid);
		real(&w[i].tid);
	}
	for (i = 0; i < r->n_lines; i++) {
		real(&l[i].pid);
		real(&l[i].tid);
	}
	for (i = 0; i < r->n_writes; i++)
		real(&o[i].pid);
	for (i = 0; i < r->n_ranks; i++) {
		real(&k[i].pid);
		real_in_wait(&k[i].data_wait);
	}
	for (i = 0; i < r->n_verdicts; i++)
		real(&v[i].subject_pid);
}

/* ---- records that lack ------------------------------------------------------- */

/* A thread numbers its records, so one that never came is known even where nobody counted
 * it. What rests on damaged records is said with less certainty. */
/* Missing by their numbers, and in no counter: a stream that was damaged on
 * its way, not by a full ring. */
int64_t pt_uncounted_losses(const struct pt_model *m)
{
	uint64_t missing = pt_model_missing(m);
	uint64_t counted = m->lost[PT_LOSS_RING_FULL] +
			   m->lost[PT_LOSS_FILES_FULL];

	return missing > counted ? (int64_t)(missing - counted) : 0;
}

int64_t pt_lost_events(const struct pt_an *an)
{
	return an->r->capture.lost_total -
	       (int64_t)(an->m->lost[PT_LOSS_TARGETS_FULL] + an->m->lost[PT_LOSS_ACTIVITY]);
}

int pt_judge_damage(struct pt_an *an)
{
	struct pt_report *r = an->r;
	/* const is for those who read the report; this is still its making */
	struct pt_r_verdict *v = (struct pt_r_verdict *)r->verdicts;
	int64_t alone = (int64_t)an->m->lost[PT_LOSS_TARGETS_FULL];
	int64_t lost = pt_lost_events(an);
	int64_t late = (int64_t)an->m->disordered;
	bool counted = an->m->counts_missed && !an->m->lost[PT_LOSS_NO_STORAGE];
	double share;
	size_t i;
	int err = 0;

	if (alone > 0) {
		for (i = 0; i < r->n_verdicts; i++)
			pt_at_most(&v[i].certainty, PT_CONF_MEDIUM);
		err = pt_report_limit(r, "processes", "%lld processes of the job were not followed: more were alive at once than there is room for. What they do is not in this report.",
				      (long long)alone);
	}
	if (err || r->capture.events <= 0 || !(lost > 0 || late > 0))
		return err;
	share = (double)(lost + late) / (double)r->capture.events;
	if (share > PT_DAMAGE_UNSURE) {
		enum pt_confidence most = share > PT_DAMAGE_WRONG ? PT_CONF_LOW :
							  PT_CONF_MEDIUM;

		pt_at_most(&r->steps.certainty, most);
		for (i = 0; i < r->n_verdicts; i++)
			pt_at_most(&v[i].certainty, most);
	}
	return pt_report_limit(r, "records", "%lld records were lost and %lld arrived out of "
					     "order, of %lld: times around them are off.%s",
			       (long long)lost, (long long)late, (long long)r->capture.events,
			       counted ? " Calls of the GPU's library and bytes read are counted "
					 "all the same." : "");
}
