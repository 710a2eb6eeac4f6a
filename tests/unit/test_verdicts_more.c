/* SPDX-License-Identifier: BSD-2-Clause */
/* Verdicts about several ranks, loaders that start, workers that hang in other
 * ways than by being stopped; and the thresholds that a user sets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>

#include "analysis/analysis.h"
#include "analysis/verdicts/thresholds.h"
#include "stream_case.h"

#define NR_READ 0
#define NR_WRITE 1
#define NR_FUTEX 202

/* ---- ranks -------------------------------------------------------------------- */

#define SHIFT 20000u

static void shift_id(__u32 *id)
{
	*id += *id ? SHIFT : 0;
}

static void shift_object(__u64 *object, __u16 kind)
{
	if (kind == PT_OBJ_PIPE || kind == PT_OBJ_SOCK)
		*object += SHIFT;
}

/* The records of `from` as those of another job, behind the records of `to`. */
static void add_rank(struct job *to, const struct job *from)
{
	size_t i;

	for (i = 0; i < from->s.recs.n; i++) {
		struct st_rec rec = from->s.recs.v[i];
		struct pt_rec_off *o = &rec.r.off;

		if (rec.r.hdr.kind == PT_REC_HOST)
			continue;
		rec.order = to->s.recs.n;
		shift_id(&rec.r.hdr.tgid);
		shift_id(&rec.r.hdr.tid);
		rec.r.hdr.start = rec.r.hdr.tid + 1;
		if (rec.r.hdr.kind == PT_REC_TASK && rec.r.task.ppid > 1)
			shift_id(&rec.r.task.ppid);
		if (rec.r.hdr.kind == PT_REC_OFF) {
			shift_id(&o->waker_tid);
			shift_id(&o->waker_tgid);
			shift_object(&o->object, o->obj_kind);
			shift_object(&o->waker_object, o->waker_obj_kind);
		}
		assert_int_equal(pt_vec_push(&to->s.recs, rec), 0);
	}
}

/* What the process `pid` of a stream that is still to be cut was started with. */
static struct pt_rec_proc *add_facts(struct job *j, uint32_t pid)
{
	struct pt_rec_proc *p = &st_add(&j->s, PT_REC_PROC, sizeof(*p),
					JOB_BEGIN + 900 * ST_MS, pid, pid)->proc;

	p->rank = p->world = p->omp_threads = PT_PROC_UNKNOWN;
	p->cpus_allowed = p->mem_nodes = PT_PROC_UNKNOWN;
	return p;
}

static bool with_facts;

/* Two ranks, the second as `b` says. */
static void open_ranks(struct st_case *c, const struct job_opts *a,
		       const struct job_opts *b)
{
	struct job other;

	memset(c, 0, sizeof(*c));
	job_run(&c->j, a);
	job_run(&other, b);
	add_rank(&c->j, &other);
	job_free(&other);
	if (with_facts) {
		add_facts(&c->j, JOB_TRAINER)->rank = 3;
		add_facts(&c->j, JOB_TRAINER + SHIFT)->rank = 5;
	}
	job_window(&c->j, JOB_BEGIN + 400 * ST_MS,
		   JOB_BEGIN + a->run_s_x10 * (ST_S / 10) - 100 * ST_MS);
	c->r = st_analyze(&c->j.s, &c->m);
}

/* A step of some 42 ms, all of it the device's. */
static struct job_opts fast_rank(void)
{
	struct job_opts o = job_defaults();

	o.cores = 8;
	o.workers = 1;
	o.batch_ns = 10 * ST_MS;
	o.kernel_ns = 2 * ST_MS;
	o.jitter = 0;
	o.run_s_x10 = 60;
	return o;
}

/* As long a step: this one waits for its batch, the device has 10 ms of work.
 * In a real job the first rank spends the difference in a collective. */
static struct job_opts late_rank(void)
{
	struct job_opts o = fast_rank();

	o.batch_ns = 40 * ST_MS;
	o.kernel_ns = ST_MS / 2;
	return o;
}

static void test_straggler(void **state)
{
	struct job_opts a = fast_rank(), b = late_rank();
	const struct pt_r_verdict *v;
	struct st_case c;

	(void)state;
	with_facts = true;
	open_ranks(&c, &a, &b);
	with_facts = false;
	assert_int_equal(c.r->ranks[0].rank, 3);
	assert_int_equal(c.r->ranks[1].rank, 5);
	assert_int_equal(c.r->verdicts[0].subject_rank, 5);
	assert_int_equal(c.r->workers[0].rank, 5);
	case_close(&c);
	open_ranks(&c, &a, &b);
	assert_int_equal(c.r->ranks[0].rank, PT_NULL);
	assert_int_equal(c.r->verdicts[0].subject_rank, PT_NULL);
	assert_int_equal(c.r->n_ranks, 2);
	v = &c.r->verdicts[0];
	assert_string_equal(v->id, "rank_straggler");
	assert_null(v->consequence_of);
	assert_int_equal(v->subject_pid, JOB_TRAINER + SHIFT);
	assert_int_equal(v->severity, PT_CRITICAL);
	/* why it is late comes next, with what to do about it */
	v = &c.r->verdicts[1];
	assert_string_equal(v->id, "too_few_workers");
	assert_null(v->consequence_of);
	assert_non_null(v->advice);
	v = case_verdict(c.r, "gpu_starved");
	assert_string_equal(v->consequence_of, "too_few_workers");
	case_close(&c);
}

static void feed(struct pt_model *m, void *rec, uint16_t kind, uint16_t size, uint64_t ts,
		 uint32_t tid)
{
	const struct pt_hdr h = { .size = size, .kind = kind, .ts = ts, .tid = tid, .tgid = tid };

	memcpy(rec, &h, sizeof(h));
	assert_int_equal(pt_model_feed(m, rec, size), 0);
}

/* The late rank's main thread is in line 7 while it waits for data, else in line 12. */
static void test_straggler_stack(void **state)
{
	static const char text[] = "train\0/job/train.py";
	const struct pt_analysis_opts opts = { .batch_size = 0 };
	struct job_opts a = fast_rank(), b = late_rank();
	const struct pt_r_verdict *v;
	struct st_case c;
	struct job other;
	uint64_t ts;
	size_t k = 0;
	uint32_t id;

	(void)state;
	memset(&c, 0, sizeof(c));
	job_run(&c.j, &a);
	job_run(&other, &b);
	add_rank(&c.j, &other);
	job_window(&c.j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + 5900 * ST_MS);
	c.m = pt_model_new();
	assert_non_null(c.m);
	st_feed(&c.j.s, c.m);
	for (id = 1; id <= 2; id++) {
		struct pt_rec_pyline l = { .id = id, .line = id == 1 ? 7 : 12 };
		struct pt_rec_pystack s = { .id = id, .line = id };

		memcpy(l.text, text, sizeof(text));
		feed(c.m, &l, PT_REC_PYLINE, sizeof(l), JOB_BEGIN, 0);
		feed(c.m, &s, PT_REC_PYSTACK, sizeof(s), JOB_BEGIN, 0);
	}
	for (ts = c.j.t0; ts + ST_MS < c.j.t1; ts += 3 * ST_MS) {
		struct pt_rec_pylook l = { .begin_ts = ts };

		while (k + 1 < other.steps.n && other.steps.v[k].wait_end <= ts)
			k++;
		l.stack = other.steps.v[k].wait_begin <= ts ? 1 : 2;
		feed(c.m, &l, PT_REC_PYLOOK, sizeof(l), ts + 50 * ST_US, JOB_TRAINER + SHIFT);
	}
	assert_int_equal(pt_model_finish(c.m), 0);
	c.r = pt_report_new();
	assert_non_null(c.r);
	assert_int_equal(pt_analyze(c.m, &opts, c.r), 0);
	v = case_verdict(c.r, "rank_straggler");
	assert_non_null(strstr(v->title, "% of that rank's waiting for data is in train "
					 "(train.py:7)."));
	assert_int_equal(v->n_stack, 1);
	assert_int_equal(v->stack[0].line, 7);
	assert_int_equal(v->subject_line, 7);
	job_free(&other);
	case_close(&c);
}

static double evidence(const struct pt_r_verdict *v, const char *metric)
{
	size_t i;

	for (i = 0; i < v->n_evidence; i++)
		if (!strcmp(v->evidence[i].metric, metric))
			return v->evidence[i].value;
	return NAN;
}

/* Workers that lack cores: as many as there are, or fewer by an affinity. */
static void open_crowd(struct st_case *c, unsigned cores, int allowed, int omp)
{
	struct job_opts o = job_defaults();
	unsigned w;

	memset(c, 0, sizeof(*c));
	o.cores = cores;
	o.mix[JOB_RUNQ] = 0.4;
	job_run(&c->j, &o);
	for (w = 0; allowed && w < o.workers; w++) {
		struct pt_rec_proc *p = add_facts(&c->j, JOB_WORKER(w));

		p->cpus_allowed = allowed;
		p->omp_threads = omp;
		p->mem_nodes = 2;
	}
	job_window(&c->j, JOB_BEGIN + 400 * ST_MS,
		   JOB_BEGIN + o.run_s_x10 * (ST_S / 10) - 100 * ST_MS);
	c->r = st_analyze(&c->j.s, &c->m);
	assert_string_equal(case_root(c->r), "cpu_oversubscribed");
}

static void test_crowd(void **state)
{
	const struct pt_r_verdict *v;
	struct st_case c;

	(void)state;
	open_crowd(&c, 8, 2, 4);
	v = &c.r->verdicts[0];
	assert_true(evidence(v, "workers.cpus_allowed") == 2);
	assert_true(evidence(v, "workers.omp_num_threads") == 4);
	assert_true(evidence(v, "host.memory_nodes") == 2);
	assert_true(evidence(v, "workers.computing_threads") == 1);
	assert_non_null(strstr(v->advice, "affinity"));
	case_close(&c);
	open_crowd(&c, 8, 8, 1);
	v = &c.r->verdicts[0];
	assert_true(isnan(evidence(v, "workers.cpus_allowed")));
	assert_null(strstr(v->advice, "affinity"));
	case_close(&c);
	open_crowd(&c, 2, 0, 0);
	v = &c.r->verdicts[0];
	assert_true(isnan(evidence(v, "workers.omp_num_threads")));
	assert_non_null(strstr(v->advice, "More workers will hardly help"));
	case_close(&c);
}

static void test_ranks_without_straggler(void **state)
{
	struct job_opts a = fast_rank(), b = fast_rank();
	struct st_case c;

	(void)state;
	b.seed = 7;
	open_ranks(&c, &a, &b);
	assert_string_equal(case_root(c.r), "balanced");
	assert_int_equal(c.r->n_verdicts, 1);
	case_close(&c);
	/* both wait */
	a = b = late_rank();
	b.seed = 7;
	open_ranks(&c, &a, &b);
	assert_string_equal(case_root(c.r), "too_few_workers");
	assert_null(case_verdict(c.r, "rank_straggler"));
	case_close(&c);
	/* one more than the other, but not as much as they have in common */
	a.kernel_ns = ST_MS;
	open_ranks(&c, &a, &b);
	assert_string_equal(case_root(c.r), "too_few_workers");
	assert_int_equal(c.r->verdicts[0].subject_pid, JOB_TRAINER + SHIFT);
	assert_non_null(case_verdict(c.r, "rank_straggler"));
	case_close(&c);
	/* one waits, but at a pace of its own: two jobs */
	a = fast_rank();
	b.batch_ns = 60 * ST_MS;
	open_ranks(&c, &a, &b);
	assert_string_equal(case_root(c.r), "too_few_workers");
	assert_null(case_verdict(c.r, "rank_straggler"));
	case_close(&c);
}

/* ---- loaders that start ---------------------------------------------------------- */

/* The capture sees the job begin: its workers are born in the first wait. */
static void open_started(struct st_case *c, const struct job_opts *o)
{
	size_t i;
	unsigned w;

	memset(c, 0, sizeof(*c));
	job_run(&c->j, o);
	for (i = 0; i < c->j.s.recs.n; i++) {
		struct pt_hdr *h = &c->j.s.recs.v[i].r.hdr;

		for (w = 0; w < o->workers; w++)
			if (h->kind == PT_REC_TASK && h->tgid == JOB_WORKER(w) &&
			    h->tid == JOB_WORKER(w))
				h->kind = PT_REC_COMM;
	}
	for (w = 0; w < o->workers; w++)
		st_fork(&c->j.s, JOB_BEGIN - ST_MS, JOB_TRAINER, JOB_TRAINER,
			JOB_WORKER(w), JOB_WORKER(w));
	/* the model goes to the device first */
	for (w = 0; w < 4; w++)
		st_gpu(&c->j.s, "cudaMemcpy", JOB_TRAINER, JOB_TRAINER,
		       JOB_BEGIN - (10 - w) * ST_MS,
		       JOB_BEGIN - (10 - w) * ST_MS + ST_US, 0, 0xd000, 64, 1);
	job_window(&c->j, JOB_BEGIN - 20 * ST_MS,
		   JOB_BEGIN + o->run_s_x10 * (ST_S / 10) - 100 * ST_MS);
	c->r = st_analyze(&c->j.s, &c->m);
}

static void test_first_batch(void **state)
{
	struct job_opts o = job_defaults();
	const struct pt_r_verdict *v;
	struct st_case c;

	(void)state;
	o.batch_ns = 10 * ST_MS;
	o.kernel_ns = ST_MS;
	o.heavy_every = 100000; /* the first one alone */
	o.heavy = 40;
	open_started(&c, &o);
	v = case_verdict(c.r, "slow_first_batch");
	assert_non_null(v);
	assert_int_equal(v->severity, PT_INFO); /* one start says little */
	assert_true(fabs(c.r->steps.first_ms - 400) < 40);
	/* kept out of the others' figures */
	assert_true(c.r->steps.max_over_min < 2);
	case_close(&c);
	o.heavy = 3; /* 30 ms and 20 of work, in steps of 20 */
	open_started(&c, &o);
	assert_null(case_verdict(c.r, "slow_first_batch"));
	case_close(&c);
}

/* ---- hanging ----------------------------------------------------------------------- */

/* From two seconds on worker 1 sits in one system call, the job waits (or computes). */
static int hang_nr, hang_kind;
static bool hang_computes;

static void open_hanging(struct st_case *c, uint64_t seconds)
{
	struct job_opts o = job_defaults();
	size_t i;

	memset(c, 0, sizeof(*c));
	o.run_s_x10 = 20;
	job_run(&c->j, &o);
	for (i = 0; i < c->j.s.recs.n; i++) {
		struct pt_rec_off *r = &c->j.s.recs.v[i].r.off;

		if (r->hdr.kind != PT_REC_OFF ||
		    r->hdr.ts < JOB_BEGIN + 1000 * ST_S)
			continue;
		if (r->hdr.tid == JOB_WORKER(0)) {
			r->syscall = NR_READ;
			r->obj_kind = PT_OBJ_PIPE;
			r->object = JOB_INDEX_PIPE(0);
		}
		if (r->hdr.tid != JOB_WORKER(1))
			continue;
		r->syscall = hang_nr;
		r->obj_kind = (uint16_t)hang_kind;
		r->object = hang_kind == PT_OBJ_FILE ? JOB_FILE(1) : 0x7f00;
		r->arg[0] = 0x7f00;
		r->state = hang_kind == PT_OBJ_FILE ? 2 : 1;
	}
	if (!hang_computes)
		st_pipe_in(&c->j.s, JOB_TRAINER, JOB_TRAINER, c->j.now + ST_MS, ST_NEVER, ST_NEVER,
			   0x77, 0, 0);
	job_window(&c->j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + seconds * ST_S);
	c->r = st_analyze(&c->j.s, &c->m);
}

static void test_hanging(void **state)
{
	static const struct {
		int nr, kind;
		const char *word;
	} ways[] = {
		{ NR_READ, PT_OBJ_FILE, "file operation" },
		{ NR_FUTEX, PT_OBJ_FUTEX, "one wait" },
		{ NR_WRITE, PT_OBJ_PIPE, "one wait" }, /* a log that nobody reads */
	};
	const struct pt_r_verdict *v;
	struct st_case c;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		hang_nr = ways[i].nr;
		hang_kind = ways[i].kind;
		open_hanging(&c, 8); /* six seconds of it */
		assert_string_equal(case_root(c.r), "hung_worker");
		assert_int_equal(c.r->verdicts[0].subject_pid, JOB_WORKER(1));
		assert_int_equal(c.r->verdicts[0].certainty, PT_CONF_MEDIUM);
		assert_non_null(strstr(c.r->verdicts[0].title, ways[i].word));
		case_close(&c);
		open_hanging(&c, 6); /* four: it may end yet */
		v = case_verdict(c.r, "hung_worker");
		assert_true(!v || v->certainty == PT_CONF_LOW);
		case_close(&c);
		open_hanging(&c, 3); /* one */
		assert_null(case_verdict(c.r, "hung_worker"));
		case_close(&c);
		/* nobody asks for anything: it may wait for that */
		hang_computes = true;
		open_hanging(&c, 8);
		assert_true(!case_verdict(c.r, "hung_worker") == (hang_kind != PT_OBJ_FILE));
		case_close(&c);
		hang_computes = false;
	}
}

#define SUCCESSOR 4711

/* After two seconds worker 1 ends, or not; a process with its name, or another one's, is started,
 * and sits in a futex; the job waits. */
static void open_succeeded(struct st_case *c, bool ends, const char *name)
{
	struct job_opts o = job_defaults();
	struct stream *s = &c->j.s;
	struct pt_rec_fork *f;
	struct pt_rec_off *r;
	uint64_t now;
	size_t i;

	memset(c, 0, sizeof(*c));
	o.run_s_x10 = 20;
	job_run(&c->j, &o);
	now = c->j.now;
	for (i = 0; i < s->recs.n; i++) {
		r = &s->recs.v[i].r.off;
		if (r->hdr.kind != PT_REC_OFF || r->hdr.ts < JOB_BEGIN + 1000 * ST_S)
			continue;
		r->syscall = NR_READ;
		r->obj_kind = PT_OBJ_PIPE;
		r->object = JOB_INDEX_PIPE(r->hdr.tid == JOB_WORKER(1));
		if (ends && r->hdr.tid == JOB_WORKER(1))
			r->hdr.ts = r->wake_ts = now;
	}
	if (ends)
		st_exit(s, now + ST_US, JOB_WORKER(1), JOB_WORKER(1), true);
	st_fork(s, now + ST_MS, JOB_TRAINER, JOB_TRAINER, SUCCESSOR, SUCCESSOR);
	f = &s->recs.v[s->recs.n - 1].r.fork;
	memset(f->comm, 0, sizeof(f->comm));
	memcpy(f->comm, name, strlen(name));
	r = st_off(s, SUCCESSOR, SUCCESSOR, now + 2 * ST_MS, ST_NEVER, ST_NEVER);
	r->syscall = NR_FUTEX;
	r->obj_kind = PT_OBJ_FUTEX;
	r->object = r->arg[0] = 0x7f00;
	r->state = 1;
	st_pipe_in(s, JOB_TRAINER, JOB_TRAINER, now + 3 * ST_MS, ST_NEVER, ST_NEVER, 0x77, 0, 0);
	job_window(&c->j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + 8 * ST_S);
	c->r = st_analyze(s, &c->m);
}

static void test_successor(void **state)
{
	struct st_case c;

	(void)state;
	open_succeeded(&c, true, "python3");
	assert_string_equal(case_root(c.r), "hung_worker");
	assert_int_equal(c.r->verdicts[0].subject_pid, SUCCESSOR);
	case_close(&c);
	/* something else that the job has started */
	open_succeeded(&c, true, "other");
	assert_null(case_verdict(c.r, "hung_worker"));
	case_close(&c);
	/* in nobody's place */
	open_succeeded(&c, false, "python3");
	assert_null(case_verdict(c.r, "hung_worker"));
	case_close(&c);
}

/* ---- thresholds ----------------------------------------------------------------- */

static void test_threshold_values(void **state)
{
	struct pt_thresholds t = pt_thresholds_default;
	const struct pt_threshold_def *d;
	size_t i;

	(void)state;
	assert_int_equal(pt_threshold_set(&t, "starved_info=0.25", &d), 0);
	assert_true(t.starved_info == 0.25 && d->value == PT_STARVED_INFO);
	assert_true(t.starved_warning == PT_STARVED_WARNING);
	assert_int_equal(pt_threshold_set(&t, "starved_inf=0.2", &d), -ENOENT);
	assert_null(d);
	assert_int_equal(pt_threshold_set(&t, "=0.2", &d), -ENOENT);
	assert_int_equal(pt_threshold_set(&t, "starved_info", &d), -EINVAL);
	assert_int_equal(pt_threshold_set(&t, "starved_info=", &d), -EINVAL);
	assert_int_equal(pt_threshold_set(&t, "starved_info=1.1", &d), -EINVAL);
	assert_int_equal(pt_threshold_set(&t, "starved_info=-1", &d), -EINVAL);
	assert_int_equal(pt_threshold_set(&t, "starved_info=nan", &d), -EINVAL);
	assert_int_equal(pt_threshold_set(&t, "starved_info=0..2", &d), -EINVAL);
	assert_int_equal(pt_threshold_set(&t, "slow_factor=0.9", &d), -EINVAL);
	assert_true(t.starved_info == 0.25);
	for (i = 0; i < pt_threshold_count; i++) {
		d = &pt_threshold_defs[i];
		assert_true(pt_threshold_get(&pt_thresholds_default, d) ==
			    d->value);
		assert_true(d->value >= d->low && d->value <= d->high);
	}
}

/* The root with one threshold changed, and what the report says of it. */
static void expect_with(const struct st_case *c, const char *text,
			const char *root, const char *metric)
{
	struct pt_thresholds t = pt_thresholds_default;
	struct pt_analysis_opts o = { .thresholds = &t };
	struct pt_report *r = pt_report_new();
	const struct pt_threshold_def *d;
	const struct pt_r_verdict *v;
	bool told = false;
	size_t i;

	assert_non_null(r);
	assert_int_equal(pt_threshold_set(&t, text, &d), 0);
	assert_int_equal(pt_analyze(c->m, &o, r), 0);
	v = &r->verdicts[0];
	assert_string_equal(v->id, root);
	for (i = 0; i < v->n_evidence; i++)
		if (!strcmp(v->evidence[i].metric, metric))
			told = v->evidence[i].threshold ==
			       pt_threshold_get(&t, d);
	assert_true(told || !*metric);
	assert_int_equal(r->n_thresholds, 1);
	assert_string_equal(r->thresholds[0].name, d->name);
	assert_true(r->thresholds[0].value == pt_threshold_get(&t, d));
	assert_true(r->thresholds[0].usual == d->value);
	pt_report_free(r);
}

static void test_thresholds(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;

	(void)state;
	o.workers = 3;
	o.jitter = 0.05;
	o.kernel_ns = 100 * ST_US;
	o.run_s_x10 = 50;
	o.cores = 4;
	o.factor[1] = 3;
	case_open(&c, &o, 0, 0);
	assert_string_equal(case_root(c.r), "slow_worker");
	assert_int_equal(c.r->n_thresholds, 0);
	expect_with(&c, "slow_factor=2", "slow_worker", "worker.slowdown");
	expect_with(&c, "starved_info=0.99", "balanced", "gpu.starved_share");
	case_close(&c);
	o.factor[1] = 1; /* 3 of 4 cores */
	case_open(&c, &o, 0, 0);
	assert_string_equal(case_root(c.r), "too_few_workers");
	expect_with(&c, "core_free=0.5", "too_few_workers",
		    "host.cores_not_used_by_job");
	expect_with(&c, "core_free=2", "cpu_bound", "");
	case_close(&c);
}

/* Two slow workers hold the others up: the one that is waited for longer is named. Of two
 * alike that is the first in the round, though the second is waited for, too. */
static void test_worst_of_two(void **state)
{
	static const double factors[2][2] = { { 5, 5 }, { 5, 7 } };
	struct pt_thresholds t = pt_thresholds_default;
	struct pt_analysis_opts with = { .thresholds = &t };
	struct job_opts o = job_defaults();
	const struct pt_threshold_def *d;
	size_t i;

	(void)state;
	o.workers = 5;
	o.jitter = 0.3;
	o.kernel_ns = 100 * ST_US;
	o.run_s_x10 = 60;
	assert_int_equal(pt_threshold_set(&t, "slow_share=0.01", &d), 0);
	for (i = 0; i < 2; i++) {
		struct pt_report *r = pt_report_new();
		struct st_case c;
		size_t k, slow = 0;

		assert_non_null(r);
		o.factor[1] = factors[i][0];
		o.factor[3] = factors[i][1];
		case_open(&c, &o, 0, 0);
		assert_int_equal(pt_analyze(c.m, &with, r), 0);
		for (k = 0; k < r->n_workers; k++)
			slow += r->workers[k].state == PT_WORKER_SLOW;
		assert_int_equal(slow, 2);
		assert_string_equal(case_root(r), "slow_worker");
		assert_int_equal(r->verdicts[0].subject_pid, JOB_WORKER(i ? 3 : 1));
		case_close(&c);
		pt_report_free(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worst_of_two),
		cmocka_unit_test(test_straggler),
		cmocka_unit_test(test_straggler_stack),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_ranks_without_straggler),
		cmocka_unit_test(test_first_batch),
		cmocka_unit_test(test_hanging),
		cmocka_unit_test(test_successor),
		cmocka_unit_test(test_threshold_values),
		cmocka_unit_test(test_thresholds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
