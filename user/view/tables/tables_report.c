// SPDX-License-Identifier: BSD-2-Clause
/* The report's tables. */
#include "view/tables/tables.h"

#include <string.h>

#define I pt_cell_int
#define D pt_cell_real
#define S pt_cell_text
#define INT(name) { name, PT_COL_INT }
#define ID(name) { name, PT_COL_ID }
#define REAL(name) { name, PT_COL_REAL }
#define TEXT(name) { name, PT_COL_TEXT }

static const struct pt_col capture_cols[] = {
	TEXT("version"), TEXT("hostname"), TEXT("kernel"), INT("cores"),
	INT("target_pid"), TEXT("cmdline"), TEXT("mode"), REAL("duration_s"),
	INT("begin_ns"), INT("end_ns"), INT("begin_unix_ns"), INT("events"),
	INT("lost"), INT("complete"),
};
static int capture_rows(const struct pt_export *x, struct pt_rows *to)
{
	const struct pt_report *r = x->r;
	const struct pt_r_capture *c = &r->capture;

	return PT_ROW(to, S(r->host.version), S(r->host.hostname),
		      S(r->host.kernel), I(r->host.cores), I(r->target.pid),
		      S(r->target.cmdline), S(c->mode), D(c->duration),
		      I(c->begin_ns), I(c->end_ns), I(c->begin_unix_ns),
		      I(c->events), I(c->lost_total), I(c->complete));
}

/* The lanes' step at this place; NULL where the user marked the steps, which
 * then have no lanes. */
static const struct pt_lane_step *lane_step(const struct pt_export *x, size_t i)
{
	const struct pt_lanes *l = x->lanes;
	const struct pt_r_steps *r = &x->r->steps;
	size_t k;

	for (k = 0; k < l->n_trainers; k++) {
		const struct pt_lane_trainer *t = &l->trainers[k];

		if (t->top && t->n_steps == r->n_list &&
		    t->steps[i].begin == (uint64_t)r->list[i].begin_ns)
			return &t->steps[i];
	}
	return NULL;
}

static const struct pt_col steps_cols[] = {
	INT("step"), INT("begin_ns"), INT("end_ns"), REAL("period_ms"),
	REAL("data_wait_ms"), REAL("gpu_wait_ms"), TEXT("cause"),
	INT("worker_pid"), INT("blocked"), INT("whole"),
};
static int steps_rows(const struct pt_export *x, struct pt_rows *to)
{
	const struct pt_r_steps *r = &x->r->steps;
	size_t i;
	int err = 0;

	for (i = 0; i < r->n_list && !err; i++) {
		const struct pt_r_step *s = &r->list[i];
		const struct pt_lane_step *l = lane_step(x, i);
		/* of marked ones the last is cut */
		bool whole = l ? !l->partial : i + 1 < r->n_list;

		err = PT_ROW(to, I(s->index), I(s->begin_ns), I(s->end_ns),
			     D(s->period_ms), D(s->data_wait_ms),
			     D(s->gpu_wait_ms), S(pt_cause_name(s->cause)),
			     I(s->worker), I(s->blocked), I(whole));
	}
	return err;
}

static const struct pt_col causes_cols[] = {
	TEXT("cause"), REAL("seconds"), REAL("share"), INT("pid"), INT("tid"),
	TEXT("what"),
};
static int causes_rows(const struct pt_export *x, struct pt_rows *to)
{
	const struct pt_r_data_wait *w = &x->r->data_wait;
	size_t i;
	int err = 0;

	for (i = 0; i < w->n_causes && !err; i++) {
		const struct pt_r_charge *c = &w->causes[i];

		err = PT_ROW(to, S(pt_cause_name(c->cause)), D(c->seconds),
			     D(c->share), I(c->subject_pid), I(c->subject_tid),
			     S(c->what));
	}
	return err;
}

static const struct pt_col breakdown_cols[] = {
	TEXT("part"), REAL("seconds"), REAL("share"),
};
static int breakdown_rows(const struct pt_export *x, struct pt_rows *to)
{
	const struct pt_r_breakdown *b = &x->r->breakdown;
	const struct {
		const char *name;
		const struct pt_r_part *p;
	} parts[] = {
		{ "data_wait", &b->data_wait }, { "gpu_wait", &b->gpu_wait },
		{ "transfer", &b->transfer },	{ "sync", &b->sync },
		{ "launch", &b->launch },	{ "collective", &b->collective },
		{ "checkpoint", &b->checkpoint }, { "other", &b->other },
	};
	size_t i;
	int err = 0;

	for (i = 0; b->known && i < sizeof(parts) / sizeof(*parts) && !err; i++)
		err = PT_ROW(to, S(parts[i].name), D(parts[i].p->seconds),
			     D(parts[i].p->share));
	return err;
}

static const struct pt_col workers_cols[] = {
	INT("pid"), INT("tid"), INT("rank"), TEXT("role"), TEXT("state"),
	INT("batches"), REAL("batch_mean_ms"), REAL("batch_p50_ms"),
	REAL("batch_p95_ms"), REAL("batch_max_ms"), REAL("window_s"),
	REAL("cpu_s"), REAL("run_queue_s"), REAL("throttle_s"), REAL("disk_s"),
	REAL("page_fault_s"), REAL("network_s"), REAL("lock_s"), REAL("ipc_s"),
	REAL("worker_idle_s"), REAL("prefetch_full_s"), REAL("other_s"),
	INT("read_bytes"), INT("reads"), REAL("slowdown"),
};
static int workers_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_workers && !err; i++) {
		const struct pt_r_worker *w = &x->r->workers[i];
		double none = w->batch_ms.n ? 0 : NAN;

		err = PT_ROW(to, I(w->pid), I(w->tid), I(w->rank), S(w->role),
			     S(pt_worker_state_name(w->state)), I(w->batches),
			     D(w->batch_ms.mean + none),
			     D(w->batch_ms.p50 + none),
			     D(w->batch_ms.p95 + none),
			     D(w->batch_ms.max + none), D(w->window), D(w->cpu),
			     D(w->run_queue), D(w->throttle), D(w->disk),
			     D(w->page_fault), D(w->network), D(w->lock),
			     D(w->ipc), D(w->worker_idle), D(w->prefetch_full),
			     D(w->other), I(w->read_bytes), I(w->reads),
			     D(w->slowdown));
	}
	return err;
}

static const struct pt_col files_cols[] = {
	TEXT("path"), INT("dev"), ID("inode"), INT("opens"), INT("reads"),
	INT("bytes"), INT("reread_bytes"), REAL("read_s"), REAL("blocked_s"),
	REAL("p99_ms"), REAL("cached_share"), INT("faults"), INT("fault_bytes"),
	REAL("fault_s"), INT("text"), TEXT("pattern"), REAL("sequential_share"),
	REAL("run_bytes"), INT("stride_bytes"), INT("readers"),
	INT("fetched_bytes"), TEXT("fs"), TEXT("fs_class"), TEXT("device"),
};
static int files_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_files && !err; i++) {
		const struct pt_r_file *f = &x->r->files[i];
		const struct pt_r_pattern *p = &f->pattern;
		double none = p->kind ? 0 : NAN;

		err = PT_ROW(to, S(f->path), I(f->dev), pt_cell_id(f->inode),
			     I(f->opens), I(f->reads), I(f->bytes),
			     I(f->reread_bytes), D(f->read_s), D(f->blocked_s),
			     D(f->p99_ms), D(f->cached_share), I(f->faults),
			     I(f->fault_bytes), D(f->fault_s), I(f->text),
			     S(p->kind), D(p->sequential + none),
			     D(p->run_bytes + none),
			     I(p->kind ? p->stride : PT_NULL),
			     I(p->kind ? p->readers : PT_NULL),
			     I(f->fetched_bytes), S(f->fs), S(f->fs_class),
			     S(f->device));
	}
	return err;
}

static const struct pt_col disks_cols[] = {
	TEXT("name"), INT("dev"), TEXT("kind"), TEXT("model"), INT("reads"),
	INT("read_bytes"), INT("writes"), INT("write_bytes"), INT("failed"),
	REAL("latency_mean_ms"), REAL("latency_p50_ms"),
	REAL("latency_p99_ms"), REAL("latency_max_ms"), REAL("queue_depth"),
	INT("queue_depth_max"), REAL("target_share"), REAL("busy_share"),
};
static int disks_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_disks && !err; i++) {
		const struct pt_r_disk *d = &x->r->disks[i];
		double seen = d->latency_ms.n ? 0 : NAN;

		err = PT_ROW(to, S(d->name), I(d->dev), S(d->kind), S(d->model),
			     I(d->reads), I(d->read_bytes), I(d->writes),
			     I(d->write_bytes), I(d->failed),
			     D(d->latency_ms.mean + seen),
			     D(d->latency_ms.p50 + seen),
			     D(d->latency_ms.p99 + seen),
			     D(d->latency_ms.max + seen), D(d->depth_mean),
			     I(d->depth_max), D(d->target_share),
			     D(d->busy_share));
	}
	return err;
}

static const struct pt_col writes_cols[] = {
	TEXT("path"), INT("dev"), ID("inode"), INT("pid"), INT("calls"),
	INT("fsyncs"), INT("bytes"), REAL("write_s"), REAL("fsync_s"),
	REAL("blocked_s"), TEXT("fs"), TEXT("fs_class"), TEXT("device"),
};
static int writes_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_writes && !err; i++) {
		const struct pt_r_write *w = &x->r->writes[i];

		err = PT_ROW(to, S(w->path), I(w->dev), pt_cell_id(w->inode),
			     I(w->pid), I(w->calls), I(w->fsyncs), I(w->bytes),
			     D(w->write_s), D(w->fsync_s), D(w->blocked_s),
			     S(w->fs), S(w->fs_class), S(w->device));
	}
	return err;
}

static const struct pt_col peers_cols[] = {
	TEXT("address"), INT("port"), TEXT("protocol"), INT("connections"),
	INT("opened"), INT("bytes"), REAL("rate_bps"), REAL("wait_s"),
	REAL("first_byte_share"), REAL("data_wait_s"), REAL("connect_p50_ms"),
	REAL("first_byte_p50_ms"), REAL("first_byte_p99_ms"),
	REAL("round_trip_ms"), INT("retransmits"), INT("out_of_order"),
	INT("workers"), TEXT("certainty"),
};
static int peers_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_peers && !err; i++) {
		const struct pt_r_peer *p = &x->r->peers[i];
		double open = p->connect_ms.n ? 0 : NAN;
		double first = p->first_byte_ms.n ? 0 : NAN;

		err = PT_ROW(to, S(p->address), I(p->port), S(p->protocol),
			     I(p->connections), I(p->opened), I(p->bytes),
			     D(p->rate_bps), D(p->wait_s),
			     D(p->first_byte_share), D(p->data_wait_s),
			     D(p->connect_ms.p50 + open),
			     D(p->first_byte_ms.p50 + first),
			     D(p->first_byte_ms.p99 + first),
			     D(p->round_trip_ms), I(p->retransmits),
			     I(p->out_of_order), I(p->workers),
			     S(pt_certainty_name(p->certainty)));
	}
	return err;
}

static const struct pt_col ranks_cols[] = {
	INT("rank"), INT("pid"), INT("steps"), REAL("data_wait_s"),
	REAL("data_wait_share"), REAL("gpu_busy_share"), REAL("own_p50_ms"),
	REAL("data_wait_p50_ms"), REAL("gpu_wait_p50_ms"),
	REAL("collective_p50_ms"), INT("collectives"), INT("late_count"),
	REAL("last_share"), REAL("late_p50_ms"), REAL("waits_for_others_s"),
	REAL("held_others_s"), REAL("lost_s"), TEXT("reason"),
	TEXT("certainty"),
};

static double median(const struct pt_dist *d)
{
	return d->n ? d->p50 : NAN;
}

static int ranks_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_ranks && !err; i++) {
		const struct pt_r_rank *k = &x->r->ranks[i];
		const struct pt_r_meetings *m = &k->meetings;
		bool met = m->count > 0;
		double some = met ? 0 : NAN;

		err = PT_ROW(to, I(k->rank), I(k->pid), I(k->steps),
			     D(k->breakdown.data_wait.seconds),
			     D(k->breakdown.data_wait.share),
			     D(k->gpu_busy_share), D(median(&k->parts.own)),
			     D(median(&k->parts.data_wait)),
			     D(median(&k->parts.gpu_wait)),
			     D(median(&k->parts.collective)),
			     I(met ? m->count : PT_NULL),
			     I(met ? m->late_count : PT_NULL),
			     D(m->last_share + some), D(median(&m->late_ms)),
			     D(m->waits_for_others + some),
			     D(m->held_others + some), D(m->lost + some),
			     S(met ? m->reason : NULL),
			     S(met ? pt_confidence_name(m->certainty) : NULL));
	}
	return err;
}

static const struct pt_col verdicts_cols[] = {
	INT("place"), TEXT("id"), TEXT("severity"), TEXT("certainty"),
	TEXT("title"), TEXT("consequence_of"), INT("pid"), INT("rank"),
	TEXT("file"), INT("line"), TEXT("advice"), REAL("speedup"),
	REAL("speedup_low"), REAL("speedup_high"),
};
static int verdicts_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_verdicts && !err; i++) {
		const struct pt_r_verdict *v = &x->r->verdicts[i];

		err = PT_ROW(to, I((int64_t)i + 1), S(v->id),
			     S(pt_severity_name(v->severity)),
			     S(pt_confidence_name(v->certainty)), S(v->title),
			     S(v->consequence_of), I(v->subject_pid),
			     I(v->subject_rank), S(v->subject_file),
			     I(v->subject_line), S(v->advice),
			     D(v->expected_speedup.value),
			     D(v->expected_speedup.low),
			     D(v->expected_speedup.high));
	}
	return err;
}

static const struct pt_col evidence_cols[] = {
	INT("verdict_place"), TEXT("metric"), REAL("value"), TEXT("unit"),
	REAL("threshold"), TEXT("certainty"),
};
static int evidence_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i, j;
	int err = 0;

	for (i = 0; i < x->r->n_verdicts; i++) {
		const struct pt_r_verdict *v = &x->r->verdicts[i];

		for (j = 0; j < v->n_evidence && !err; j++) {
			const struct pt_r_evidence *e = &v->evidence[j];

			err = PT_ROW(to, I((int64_t)i + 1), S(e->metric),
				     D(e->value), S(e->unit), D(e->threshold),
				     S(pt_certainty_name(e->certainty)));
		}
	}
	return err;
}

static const struct pt_col operations_cols[] = {
	TEXT("name"), TEXT("kind"), INT("calls"), REAL("total_s"),
	REAL("mean_us"), REAL("min_us"), REAL("max_us"), REAL("p50_us"),
	REAL("p99_us"), REAL("share"), REAL("cpu_s"), REAL("gpu_s"),
	INT("bytes"),
};
static int operations_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_operations && !err; i++) {
		const struct pt_r_operation *o = &x->r->operations[i];

		err = PT_ROW(to, S(o->name), S(o->kind), I(o->calls),
			     D(o->total_s), D(o->mean_us), D(o->min_us),
			     D(o->max_us), D(o->p50_us), D(o->p99_us),
			     D(o->share), D(o->cpu_s), D(o->gpu_s), I(o->bytes));
	}
	return err;
}

static const struct pt_col gpu_cols[] = {
	INT("device"), TEXT("certainty"), REAL("busy_share"),
	REAL("busy_hard_low"), REAL("busy_hard_high"), REAL("idle_share"),
	REAL("starved_low"), REAL("starved_likely"), INT("kernels"),
	INT("copies_h2d"), INT("copies_d2h"), INT("copies_other"),
	INT("copy_bytes"), INT("syncs"), INT("collectives"),
};
static int gpu_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_gpu && !err; i++) {
		const struct pt_r_gpu *g = &x->r->gpu[i];

		err = PT_ROW(to, I(g->index), S(pt_certainty_name(g->certainty)),
			     D(g->busy_share), D(g->busy_hard[0]),
			     D(g->busy_hard[1]), D(g->idle_share),
			     D(g->starved_share[0]), D(g->starved_share[1]),
			     I(g->kernels), I(g->copies_h2d), I(g->copies_d2h),
			     I(g->copies_other), I(g->copy_bytes), I(g->syncs),
			     I(g->collectives));
	}
	return err;
}

static const struct pt_col series_cols[] = {
	REAL("t_s"), REAL("cpu_cores"), REAL("rss_bytes"), REAL("shm_bytes"),
	REAL("gpu_util"), REAL("gpu_mem_bytes"), REAL("read_bps"),
	REAL("data_wait_share"),
};
static int series_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->r->n_series && !err; i++) {
		const struct pt_r_point *p = &x->r->series[i];

		err = PT_ROW(to, D(p->t), D(p->cpu), D(p->rss), D(p->shm),
			     D(p->gpu_util), D(p->gpu_mem), D(p->read_bps),
			     D(p->data_wait_share));
	}
	return err;
}

#define TABLE(name) { #name, name##_cols,                                      \
		      sizeof(name##_cols) / sizeof(*name##_cols), name##_rows }
const struct pt_table pt_report_tables[] = {
	TABLE(capture),	 TABLE(steps),	    TABLE(breakdown), TABLE(causes),
	TABLE(workers),	 TABLE(files),	    TABLE(disks),     TABLE(writes),
	TABLE(peers),	 TABLE(ranks),	    TABLE(verdicts),  TABLE(evidence),
	TABLE(operations), TABLE(gpu),	    TABLE(series),
};
const size_t pt_report_table_count =
	sizeof(pt_report_tables) / sizeof(*pt_report_tables);

const struct pt_table *pt_table_at(size_t i)
{
	if (i < pt_report_table_count)
		return &pt_report_tables[i];
	i -= pt_report_table_count;
	return i < pt_model_table_count ? &pt_model_tables[i] : NULL;
}
