/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of the JSON document that describe what the job did. */
#include <math.h>

#include "report/json_int.h"

static json_t *pid_subject(struct pt_jb *b, int64_t pid, int64_t tid)
{
	json_t *o;

	if (pid == PT_NULL)
		return json_null();
	o = json_object();
	pt_j_put(b, o, "pid", pt_j_int(pid));
	pt_j_put(b, o, "tid", pt_j_int(tid));
	return o;
}

static json_t *charges(struct pt_jb *b, const struct pt_r_charge *c, size_t n)
{
	json_t *a = json_array();

	for (size_t i = 0; i < n; i++) {
		json_t *o = json_object();

		pt_j_put(b, o, "cause", json_string(pt_cause_name(c[i].cause)));
		pt_j_put(b, o, "seconds", pt_j_num(c[i].seconds, PT_J_STD));
		pt_j_put(b, o, "share", pt_j_num(c[i].share, PT_J_STD));
		pt_j_put(b, o, "subject",
			 pid_subject(b, c[i].subject_pid, c[i].subject_tid));
		pt_j_text(b, o, "what", c[i].what);
		pt_j_put(b, o, "fs_class", pt_j_name(c[i].fs_class));
		pt_j_add(b, a, o);
	}
	return a;
}

static json_t *epochs(struct pt_jb *b, const struct pt_r_steps *s)
{
	json_t *a = json_array();

	for (size_t i = 0; i < s->n_epochs; i++) {
		const struct pt_r_epoch *e = &s->epochs[i];
		bool rate = e->batches != PT_NULL && e->total > 0;
		json_t *o = json_object();

		pt_j_put(b, o, "index", pt_j_int(e->index));
		pt_j_put(b, o, "batches", pt_j_int(e->batches));
		pt_j_put(b, o, "total", pt_j_num(e->total, PT_J_STD));
		pt_j_put(b, o, "period_ms", pt_j_dist(&e->period_ms));
		pt_j_put(b, o, "per_second",
			 rate ? pt_j_num((double)e->batches / e->total,
					 PT_J_STD) :
				json_null());
		pt_j_put(b, o, "first_ms", pt_j_num(e->first_ms, PT_J_FINE));
		pt_j_add(b, a, o);
	}
	return a;
}

static json_t *outliers(struct pt_jb *b, const struct pt_r_steps *s)
{
	json_t *a = json_array();

	for (size_t i = 0; i < s->n_outliers; i++) {
		const struct pt_r_outlier *x = &s->outliers[i];
		json_t *o = json_object();

		pt_j_put(b, o, "index", pt_j_int(x->index));
		pt_j_put(b, o, "ms", pt_j_num(x->ms, PT_J_FINE));
		pt_j_put(b, o, "cause", json_string(pt_cause_name(x->cause)));
		pt_j_add(b, a, o);
	}
	return a;
}

static json_t *step_list(struct pt_jb *b, const struct pt_r_steps *s, size_t n)
{
	json_t *a = json_array();

	for (size_t i = 0; i < n; i++) {
		const struct pt_r_step *x = &s->list[i];
		json_t *o = json_object();

		pt_j_put(b, o, "index", pt_j_int(x->index));
		pt_j_put(b, o, "begin_ns", pt_j_int(x->begin_ns));
		pt_j_put(b, o, "end_ns", pt_j_int(x->end_ns));
		pt_j_put(b, o, "period_ms", pt_j_num(x->period_ms, PT_J_STD));
		pt_j_put(b, o, "data_wait_ms",
			 pt_j_num(x->data_wait_ms, PT_J_STD));
		pt_j_put(b, o, "gpu_wait_ms",
			 pt_j_num(x->gpu_wait_ms, PT_J_STD));
		pt_j_put(b, o, "cause", json_string(pt_cause_name(x->cause)));
		pt_j_put(b, o, "worker", pt_j_int(x->worker));
		pt_j_put(b, o, "blocked", json_boolean(x->blocked));
		pt_j_add(b, a, o);
	}
	return a;
}

json_t *pt_j_steps(struct pt_jb *b, const struct pt_r_steps *s, size_t max)
{
	json_t *o = json_object();

	pt_j_put(b, o, "count", pt_j_int(s->count));
	pt_j_put(b, o, "batches", pt_j_int(s->batches));
	pt_j_put(b, o, "optimizer_steps", pt_j_int(s->optimizer_steps));
	pt_j_put(b, o, "certainty",
		 pt_j_name(pt_confidence_name(s->certainty)));
	pt_j_text(b, o, "source", s->source);
	pt_j_put(b, o, "period_ms", pt_j_dist(&s->period_ms));
	pt_j_put(b, o, "parts_ms", pt_j_step_parts(b, &s->parts));
	pt_j_put(b, o, "per_second", pt_j_num(s->per_second, PT_J_STD));
	pt_j_put(b, o, "batch_size", pt_j_int(s->batch_size));
	pt_j_put(b, o, "samples_per_second",
		 pt_j_num(s->samples_per_second, PT_J_STD));
	pt_j_put(b, o, "first_ms", pt_j_num(s->first_ms, PT_J_FINE));
	pt_j_put(b, o, "max_over_min", pt_j_num(s->max_over_min, PT_J_STD));
	pt_j_put(b, o, "epochs", epochs(b, s));
	pt_j_put(b, o, "outliers", outliers(b, s));
	if (max)
		pt_j_put(b, o, "list",
			 step_list(b, s, max < s->n_list ? max : s->n_list));
	return o;
}

static json_t *part(struct pt_jb *b, const struct pt_r_part *p, bool known)
{
	json_t *v = json_object();

	pt_j_put(b, v, "seconds", pt_j_num(known ? p->seconds : NAN, PT_J_STD));
	pt_j_put(b, v, "share", pt_j_num(known ? p->share : NAN, PT_J_STD));
	return v;
}

json_t *pt_j_breakdown(struct pt_jb *b, const struct pt_r_breakdown *p)
{
	const struct {
		const char *key;
		const struct pt_r_part *part;
	} parts[] = {
		{ "data_wait", &p->data_wait },	  { "gpu_wait", &p->gpu_wait },
		{ "transfer", &p->transfer },	  { "sync", &p->sync },
		{ "launch", &p->launch },	  { "collective", &p->collective },
		{ "checkpoint", &p->checkpoint }, { "other", &p->other },
	};
	json_t *o = json_object(), *host = json_object();

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		pt_j_put(b, o, parts[i].key, part(b, parts[i].part, p->known));
	for (int k = 0; k < PT_HOST_NR; k++)
		pt_j_put(b, host, pt_host_kind_name((enum pt_host_kind)k),
			 part(b, &p->host[k], p->known));
	pt_j_put(b, o, "host", host);
	return o;
}

json_t *pt_j_data_wait(struct pt_jb *b, const struct pt_r_data_wait *w)
{
	json_t *o = json_object();

	pt_j_put(b, o, "blocked", pt_j_num(w->blocked, PT_J_STD));
	pt_j_put(b, o, "own_read", pt_j_num(w->own_read, PT_J_STD));
	pt_j_put(b, o, "own_cpu", pt_j_num(w->own_cpu, PT_J_STD));
	pt_j_put(b, o, "handover", pt_j_num(w->handover, PT_J_STD));
	pt_j_put(b, o, "lead", pt_j_num(w->lead, PT_J_STD));
	pt_j_put(b, o, "restart", pt_j_num(w->restart, PT_J_STD));
	pt_j_text(b, o, "evidence", w->evidence);
	pt_j_put(b, o, "causes", charges(b, w->causes, w->n_causes));
	return o;
}

static json_t *gpu_shares(struct pt_jb *b, const struct pt_r_gpu *g, bool busy)
{
	json_t *o = json_object();

	pt_j_put(b, o, "share",
		 pt_j_num(busy ? g->busy_share : g->idle_share, PT_J_STD));
	pt_j_put(b, o, "hard",
		 pt_j_pair(busy ? g->busy_hard : g->idle_hard, PT_J_STD));
	pt_j_put(b, o, "likely",
		 pt_j_pair(busy ? g->busy_likely : g->idle_likely, PT_J_STD));
	pt_j_put(b, o, "certainty",
		 pt_j_name(pt_certainty_name(g->certainty)));
	if (!busy) {
		pt_j_put(b, o, "starved",
			 pt_j_pair(g->starved_share, PT_J_STD));
		return o;
	}
	pt_j_put(b, o, "compute", pt_j_num(g->compute, PT_J_STD));
	pt_j_put(b, o, "copy", pt_j_num(g->copy, PT_J_STD));
	pt_j_put(b, o, "collective", pt_j_num(g->collective, PT_J_STD));
	return o;
}

/* What NVML tells; null without it. */
static void device(struct pt_jb *b, json_t *o, const struct pt_r_device *d)
{
	json_t *clocks = json_object(), *list = json_array();

	pt_j_text(b, o, "name", d->known ? d->name : NULL);
	pt_j_put(b, o, "utilization", pt_j_dist(&d->util));
	pt_j_put(b, clocks, "sm_mhz", pt_j_dist(&d->sm_mhz));
	pt_j_put(b, clocks, "sm_max_mhz",
		 pt_j_int(d->known ? d->sm_max_mhz : PT_NULL));
	pt_j_put(b, o, "clocks", clocks);
	for (size_t i = 0; i < d->n_throttle; i++)
		pt_j_add(b, list, json_string(d->throttle[i]));
	if (!d->known) {
		json_decref(list);
		list = json_null();
	}
	pt_j_put(b, o, "throttle", list);
	pt_j_put(b, o, "processes",
		 pt_j_int(d->known ? d->processes : PT_NULL));
	pt_j_put(b, o, "traced_processes",
		 pt_j_int(d->known ? d->traced : PT_NULL));
}

static json_t *gpu(struct pt_jb *b, const struct pt_r_gpu *g)
{
	json_t *o = json_object(), *copies = json_object();
	json_t *memory = json_object(), *collectives = json_object();

	pt_j_text(b, o, "uuid", g->uuid);
	device(b, o, &g->device);
	pt_j_put(b, o, "index", pt_j_int(g->index));
	pt_j_put(b, o, "busy", gpu_shares(b, g, true));
	pt_j_put(b, o, "idle", gpu_shares(b, g, false));
	pt_j_put(b, o, "idle_causes",
		 charges(b, g->idle_causes, g->n_idle_causes));
	pt_j_put(b, o, "kernels", pt_j_int(g->kernels));
	pt_j_put(b, o, "graph_launches", pt_j_int(g->graph_launches));
	pt_j_put(b, copies, "h2d", pt_j_int(g->copies_h2d));
	pt_j_put(b, copies, "d2h", pt_j_int(g->copies_d2h));
	pt_j_put(b, copies, "other", pt_j_int(g->copies_other));
	pt_j_put(b, copies, "bytes", pt_j_int(g->copy_bytes));
	pt_j_put(b, copies, "pageable_share",
		 pt_j_num(g->pageable_share, PT_J_STD));
	pt_j_put(b, o, "copies", copies);
	pt_j_put(b, collectives, "calls", pt_j_int(g->collectives));
	pt_j_put(b, collectives, "bytes", pt_j_int(g->collective_bytes));
	pt_j_put(b, o, "collectives", collectives);
	pt_j_put(b, o, "syncs", pt_j_int(g->syncs));
	pt_j_put(b, o, "failed_allocations", pt_j_int(g->failed_allocations));
	pt_j_put(b, o, "allocation_failures", pt_j_alloc_failures(b, g));
	pt_j_put(b, memory, "reserved", pt_j_int(g->mem_reserved));
	pt_j_put(b, memory, "peak", pt_j_int(g->mem_peak));
	pt_j_put(b, memory, "growth_per_min",
		 pt_j_num(g->mem_growth_per_min, PT_J_WHOLE));
	pt_j_put(b, memory, "total",
		 pt_j_int(g->device.known ? g->device.mem_total : PT_NULL));
	pt_j_put(b, o, "memory", memory);
	return o;
}

json_t *pt_j_gpus(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_gpu; i++)
		pt_j_add(b, a, gpu(b, &r->gpu[i]));
	return a;
}

static json_t *worker(struct pt_jb *b, const struct pt_r_worker *w)
{
	const struct {
		const char *key;
		double seconds;
	} parts[] = {
		{ "cpu", w->cpu },
		{ "run_queue", w->run_queue },
		{ "throttle", w->throttle },
		{ "disk", w->disk },
		{ "page_fault", w->page_fault },
		{ "network", w->network },
		{ "lock", w->lock },
		{ "ipc", w->ipc },
		{ "worker_idle", w->worker_idle },
		{ "prefetch_full", w->prefetch_full },
		{ "other", w->other },
		{ "window", w->window },
	};
	json_t *o = json_object();

	pt_j_put(b, o, "pid", pt_j_int(w->pid));
	pt_j_put(b, o, "tid", pt_j_int(w->tid));
	pt_j_text(b, o, "role", w->role);
	pt_j_put(b, o, "rank", pt_j_int(w->rank));
	pt_j_put(b, o, "batches", pt_j_int(w->batches));
	pt_j_put(b, o, "batch_ms", pt_j_dist(&w->batch_ms));
	pt_j_put(b, o, "item_ms", json_null());
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		pt_j_put(b, o, parts[i].key,
			 pt_j_num(parts[i].seconds, PT_J_STD));
	pt_j_put(b, o, "read_bytes", pt_j_int(w->read_bytes));
	pt_j_put(b, o, "reads", pt_j_int(w->reads));
	pt_j_put(b, o, "slowdown", pt_j_num(w->slowdown, PT_J_STD));
	pt_j_put(b, o, "state", json_string(pt_worker_state_name(w->state)));
	pt_j_put(b, o, "lines", json_null());
	return o;
}

json_t *pt_j_workers(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_workers; i++)
		pt_j_add(b, a, worker(b, &r->workers[i]));
	return a;
}

json_t *pt_j_phases(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = r->n_phases ? json_array() : json_null();

	for (size_t i = 0; i < r->n_phases; i++) {
		const struct pt_r_phase *p = &r->phases[i];
		json_t *o = json_object();

		pt_j_text(b, o, "name", p->name);
		pt_j_put(b, o, "seconds", pt_j_num(p->seconds, PT_J_STD));
		pt_j_put(b, o, "share", pt_j_num(p->share, PT_J_STD));
		pt_j_put(b, o, "certainty",
			 pt_j_name(pt_certainty_name(p->certainty)));
		pt_j_add(b, a, o);
	}
	return a;
}

json_t *pt_j_operations(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_operations; i++) {
		const struct pt_r_operation *p = &r->operations[i];
		json_t *o = json_object();

		pt_j_text(b, o, "name", p->name);
		pt_j_text(b, o, "kind", p->kind);
		pt_j_put(b, o, "calls", pt_j_int(p->calls));
		pt_j_put(b, o, "total_s", pt_j_num(p->total_s, PT_J_STD));
		pt_j_put(b, o, "mean_us", pt_j_num(p->mean_us, PT_J_FINE));
		pt_j_put(b, o, "min_us", pt_j_num(p->min_us, PT_J_FINE));
		pt_j_put(b, o, "max_us", pt_j_num(p->max_us, PT_J_FINE));
		pt_j_put(b, o, "p50_us", pt_j_num(p->p50_us, PT_J_FINE));
		pt_j_put(b, o, "p99_us", pt_j_num(p->p99_us, PT_J_FINE));
		pt_j_put(b, o, "share", pt_j_num(p->share, PT_J_STD));
		pt_j_put(b, o, "cpu_s", pt_j_num(p->cpu_s, PT_J_STD));
		pt_j_put(b, o, "gpu_s", pt_j_num(p->gpu_s, PT_J_STD));
		pt_j_put(b, o, "bytes", pt_j_int(p->bytes));
		pt_j_put(b, o, "certainty",
			 pt_j_name(pt_certainty_name(p->certainty)));
		pt_j_add(b, a, o);
	}
	return a;
}

json_t *pt_j_files(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_files; i++) {
		const struct pt_r_file *f = &r->files[i];
		json_t *o = json_object();

		pt_j_text(b, o, "path", f->path);
		pt_j_put(b, o, "dev", json_integer(f->dev));
		pt_j_put(b, o, "inode", pt_j_u64(f->inode));
		pt_j_put(b, o, "opens", pt_j_int(f->opens));
		pt_j_put(b, o, "reads", pt_j_int(f->reads));
		pt_j_put(b, o, "bytes", pt_j_int(f->bytes));
		pt_j_put(b, o, "reread_bytes", pt_j_int(f->reread_bytes));
		pt_j_put(b, o, "reread_bounds", pt_j_bounds(f->reread_lo, f->reread_hi));
		pt_j_put(b, o, "pattern", pt_j_pattern(b, &f->pattern));
		pt_j_put(b, o, "read_s", pt_j_num(f->read_s, PT_J_STD));
		pt_j_put(b, o, "blocked_s", pt_j_num(f->blocked_s, PT_J_STD));
		pt_j_put(b, o, "p99_ms", pt_j_num(f->p99_ms, PT_J_FINE));
		pt_j_put(b, o, "cached_share",
			 pt_j_num(f->cached_share, PT_J_STD));
		pt_j_file_place(b, o, f);
		pt_j_put(b, o, "faults", pt_j_int(f->faults));
		pt_j_put(b, o, "fault_bytes", pt_j_int(f->fault_bytes));
		pt_j_put(b, o, "fault_s", pt_j_num(f->fault_s, PT_J_STD));
		pt_j_put(b, o, "text", f->text == PT_NULL ? json_null() :
						json_boolean(f->text));
		pt_j_add(b, a, o);
	}
	return a;
}

json_t *pt_j_series(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_series; i++) {
		const struct pt_r_point *p = &r->series[i];
		json_t *o = json_object();

		pt_j_put(b, o, "t", pt_j_num(p->t, PT_J_STD));
		pt_j_put(b, o, "cpu", pt_j_num(p->cpu, PT_J_STD));
		pt_j_put(b, o, "rss", pt_j_num(p->rss, PT_J_WHOLE));
		pt_j_put(b, o, "shm", pt_j_num(p->shm, PT_J_WHOLE));
		pt_j_put(b, o, "gpu_util", pt_j_num(p->gpu_util, PT_J_STD));
		pt_j_put(b, o, "gpu_mem", pt_j_num(p->gpu_mem, PT_J_WHOLE));
		pt_j_put(b, o, "read_bps", pt_j_num(p->read_bps, PT_J_WHOLE));
		pt_j_put(b, o, "data_wait_share",
			 pt_j_num(p->data_wait_share, PT_J_STD));
		pt_j_add(b, a, o);
	}
	return a;
}

json_t *pt_j_whatif(struct pt_jb *b, const struct pt_report *r)
{
	json_t *o = json_object(), *a = json_array();

	for (size_t i = 0; i < r->n_whatif; i++) {
		const struct pt_r_whatif *w = &r->whatif[i];
		json_t *x = json_object();

		pt_j_text(b, x, "change", w->change);
		pt_j_put(b, x, "value", pt_j_int(w->value));
		pt_j_put(b, x, "step_ms", pt_j_num(w->step_ms, PT_J_FINE));
		pt_j_put(b, x, "speedup", pt_j_range(&w->speedup));
		pt_j_text(b, x, "note", w->note);
		pt_j_add(b, a, x);
	}
	pt_j_put(b, o, "best_workers", pt_j_int(r->best_workers));
	pt_j_put(b, o, "changes", a);
	return o;
}

static json_t *evidence(struct pt_jb *b, const struct pt_r_verdict *v)
{
	json_t *a = json_array();

	for (size_t i = 0; i < v->n_evidence; i++) {
		const struct pt_r_evidence *e = &v->evidence[i];
		json_t *o = json_object();

		pt_j_text(b, o, "metric", e->metric);
		pt_j_put(b, o, "value", pt_j_num(e->value, PT_J_STD));
		pt_j_text(b, o, "unit", e->unit);
		pt_j_put(b, o, "threshold", pt_j_num(e->threshold, PT_J_STD));
		pt_j_put(b, o, "certainty",
			 pt_j_name(pt_certainty_name(e->certainty)));
		pt_j_add(b, a, o);
	}
	return a;
}

json_t *pt_j_verdicts(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_verdicts; i++) {
		const struct pt_r_verdict *v = &r->verdicts[i];
		json_t *o = json_object(), *subject = json_object();

		pt_j_text(b, o, "id", v->id);
		pt_j_put(b, o, "kind", pt_j_name(v->kind));
		pt_j_put(b, o, "severity",
			 json_string(pt_severity_name(v->severity)));
		pt_j_put(b, o, "certainty",
			 pt_j_name(pt_confidence_name(v->certainty)));
		pt_j_text(b, o, "title", v->title);
		pt_j_text(b, o, "consequence_of", v->consequence_of);
		pt_j_put(b, subject, "pid", pt_j_int(v->subject_pid));
		pt_j_put(b, subject, "rank", pt_j_int(v->subject_rank));
		pt_j_text(b, subject, "file", v->subject_file);
		pt_j_put(b, subject, "line", pt_j_int(v->subject_line));
		pt_j_text(b, subject, "peer", v->subject_peer);
		pt_j_put(b, o, "subject", subject);
		pt_j_put(b, o, "evidence", evidence(b, v));
		pt_j_text(b, o, "advice", v->advice);
		pt_j_put(b, o, "expected_speedup",
			 pt_j_range(&v->expected_speedup));
		pt_j_add(b, a, o);
	}
	return a;
}
