/* SPDX-License-Identifier: BSD-2-Clause */
/* Verdicts beyond plain starvation: what else keeps the device waiting, what
 * hangs, varies or grows; each with its near miss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "analysis/health.h"
#include "stream_case.h"

#define NR_FSYNC 74
#define NR_POLL 7
#define NR_EPOLL_WAIT 232
#define STATE_STOPPED 4
#define JOB_HELPER 1090

typedef void (*edit_fn)(struct job *j);

/* Like case_open(), with the stream changed before it is cut. */
static void open_edited(struct st_case *c, const struct job_opts *o,
			edit_fn edit, uint64_t t1)
{
	memset(c, 0, sizeof(*c));
	job_run(&c->j, o);
	if (edit)
		edit(&c->j);
	if (!t1)
		t1 = o->run_s_x10 * (ST_S / 10) - 100 * ST_MS;
	job_window(&c->j, JOB_BEGIN + 400 * ST_MS, JOB_BEGIN + t1);
	c->r = st_analyze(&c->j.s, &c->m);
}

static void expect_root(const struct job_opts *o, edit_fn edit, const char *id)
{
	struct st_case c;
	char buf[160];
	const char *trouble;

	open_edited(&c, o, edit, 0);
	trouble = case_trouble(c.r, buf, sizeof(buf));
	if (trouble)
		fail_msg("%s", trouble);
	if (strcmp(case_root(c.r), id))
		fail_msg("%s, expected %s: %s", case_root(c.r), id,
			 c.r->verdicts[0].title);
	case_close(&c);
}

/* One worker on a host without another core, by what its batches are. */
static struct job_opts one_worker(void)
{
	struct job_opts o = job_defaults();

	o.workers = 1;
	o.cores = 1;
	o.slices = 40;
	return o;
}

static void test_causes(void **state)
{
	struct job_opts o = one_worker();

	(void)state;
	o.mix[JOB_NET] = 0.55;
	expect_root(&o, NULL, "network_bound");
	o.mix[JOB_NET] = 0.40; /* not the largest */
	expect_root(&o, NULL, "cpu_bound");
	o = one_worker();
	o.mix[JOB_FAULT] = 0.40;
	o.mix[JOB_DISK] = 0.25;
	expect_root(&o, NULL, "page_fault_io");
	o.mix[JOB_FAULT] = 0.25;
	o.mix[JOB_DISK] = 0.40;
	expect_root(&o, NULL, "io_bound");
	o = one_worker();
	o.mix[JOB_LOCK] = 0.60;
	expect_root(&o, NULL, "lock_bound");
	o = one_worker();
	o.batch_ns = 8 * ST_MS;
	o.send_ns = 30 * ST_MS;
	expect_root(&o, NULL, "ipc_bound");
	o.batch_ns = 60 * ST_MS;
	o.send_ns = 15 * ST_MS; /* a quarter of the wait */
	expect_root(&o, NULL, "cpu_bound");
}

/* A helper thread of the trainer that computes: this share of the time, in
 * pieces of 10 ms. */
static void add_helper(struct job *j, unsigned percent)
{
	uint64_t at, end = JOB_BEGIN + j->o.run_s_x10 * (ST_S / 10);

	st_task(&j->s, JOB_BEGIN, JOB_TRAINER, JOB_HELPER, 1, "helper");
	for (at = JOB_BEGIN; at < end; at += 10 * ST_MS) {
		struct pt_rec_off *r = st_off(&j->s, JOB_TRAINER, JOB_HELPER,
					      at + percent * ST_MS / 10,
					      at + 10 * ST_MS, at + 10 * ST_MS);

		r->syscall = NR_EPOLL_WAIT;
		r->obj_kind = PT_OBJ_OTHER;
		r->state = 1;
	}
}

static void busy_trainer(struct job *j)
{
	add_helper(j, 15);
}

static void busier_trainer(struct job *j)
{
	add_helper(j, 45);
}

static void test_too_few_workers(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.cores = 8;
	expect_root(&o, NULL, "too_few_workers");
	o.cores = 2; /* none is left */
	expect_root(&o, NULL, "cpu_bound");
	/* A core that the trainer uses a little is as good as a free one, and
	 * one that polls the device yields it. */
	o.workers = 1;
	expect_root(&o, busy_trainer, "too_few_workers");
	expect_root(&o, busier_trainer, "cpu_bound");
	o.batch_ns = 60 * ST_MS;
	o.kernel_ns = 2 * ST_MS; /* 40 ms of it in a sync, on a CPU */
	expect_root(&o, NULL, "too_few_workers");
	o.cores = 1;
	expect_root(&o, NULL, "cpu_bound");
	/* one worker has a harder batch now and then, the other runs out of
	 * indices meanwhile: not busy, and yet more of them would help */
	o = job_defaults();
	o.cores = 8;
	o.batch_ns = 30 * ST_MS;
	o.heavy_every = 6;
	o.heavy = 3.5;
	expect_root(&o, NULL, "too_few_workers");
	o = job_defaults();
	o.workers = 2;
	o.cores = 8; /* cores, but not for this job */
	o.mix[JOB_RUNQ] = 0.4;
	expect_root(&o, NULL, "cpu_oversubscribed");
}

/* A few batches of many times the usual, and most of the waiting for them. */
static void test_slow_item(void **state)
{
	struct job_opts o = job_defaults();

	(void)state;
	o.cores = 8;
	o.batch_ns = 30 * ST_MS;
	o.run_s_x10 = 60;
	o.heavy_every = 6; /* of worker 0: a twelfth of all */
	o.heavy = 12;
	expect_root(&o, NULL, "slow_item");
	o.heavy = 3.5; /* times the usual: below four */
	expect_root(&o, NULL, "too_few_workers");
	o.heavy = 12;
	o.workers = 1; /* a sixth of all, and a quarter: that is how this data is */
	expect_root(&o, NULL, "slow_item");
	o.heavy_every = 4;
	expect_root(&o, NULL, "too_few_workers");
	o.workers = 2;
	o.heavy_every = 12; /* as slow, and hardly anything else */
	o.heavy = 5;
	o.kernel_ns = 100 * ST_US; /* ... is waited for: all are */
	expect_root(&o, NULL, "too_few_workers");
}

/* The device has all it needs but for `host_ns` behind each sync. */
static struct job_opts pausing(uint64_t host_ns)
{
	struct job_opts o = job_defaults();

	o.batch_ns = 5 * ST_MS;
	o.kernel_ns = ST_MS; /* 20 ms in all */
	o.host_ns = host_ns;
	return o;
}

/* Those pauses are spent in fsync. */
static void flush_files(struct job *j)
{
	size_t i;

	for (i = 1; i < j->steps.n; i++) {
		uint64_t e = j->steps.v[i].wait_begin, b = e - j->o.host_ns;
		struct pt_rec_off *r = st_off(&j->s, JOB_TRAINER, JOB_TRAINER,
					      b + 50 * ST_US, e - 50 * ST_US,
					      e - 40 * ST_US);

		r->syscall = NR_FSYNC;
		r->obj_kind = PT_OBJ_FILE;
		r->object = 77;
		r->state = 2;
	}
}

/* ... in pieces of 1 ms, with 1 ms of serialising before each. */
static void flush_pieces(struct job *j)
{
	size_t i;
	uint64_t at;

	for (i = 1; i < j->steps.n; i++) {
		uint64_t e = j->steps.v[i].wait_begin;

		for (at = e - j->o.host_ns + ST_MS; at + ST_MS < e;
		     at += 2 * ST_MS) {
			struct pt_rec_off *r = st_off(&j->s, JOB_TRAINER,
						      JOB_TRAINER, at,
						      at + ST_MS, at + ST_MS);

			r->syscall = NR_FSYNC;
			r->obj_kind = PT_OBJ_FILE;
			r->object = 77;
			r->state = 2;
		}
	}
}

/* ... two of them, with a kernel launched in between. */
static void flush_and_launch(struct job *j)
{
	size_t i;

	flush_pieces(j);
	for (i = 1; i < j->steps.n; i++) {
		uint64_t b = j->steps.v[i].wait_begin - j->o.host_ns;

		for (uint64_t at = b + 2500 * ST_US; at < b + j->o.host_ns;
		     at += 2 * ST_MS)
			st_gpu(&j->s, "cudaLaunchKernel", JOB_TRAINER,
			       JOB_TRAINER, at, at, 0, 0xeeee, 0, 0);
	}
}

/* ... or in copies that block. */
static void copy_more(struct job *j)
{
	size_t i;

	for (i = 1; i < j->steps.n; i++) {
		uint64_t e = j->steps.v[i].wait_begin, b = e - j->o.host_ns;

		st_gpu(&j->s, "cudaMemcpy", JOB_TRAINER, JOB_TRAINER,
		       b + 50 * ST_US, e - 50 * ST_US, 0, 0xd000, 1 << 24, 1);
	}
}

/* ... block by block, as a cache that is swapped: what lies between them is no launching. */
static void copy_blocks(struct job *j)
{
	size_t i;

	for (i = 1; i < j->steps.n; i++) {
		uint64_t e = j->steps.v[i].wait_begin, at = e - j->o.host_ns + 20 * ST_US;

		for (; at + 250 * ST_US < e; at += 250 * ST_US)
			st_gpu(&j->s, "cudaMemcpy", JOB_TRAINER, JOB_TRAINER, at,
			       at + 240 * ST_US, 0, 0xd000, 1 << 19, 1);
	}
}

/* The causes of the device's idle time sum to it, and this is the largest. */
static void expect_idle(const struct job_opts *o, void (*edit)(struct job *),
			enum pt_cause cause)
{
	const struct pt_r_gpu *g;
	double sum = 0;
	struct st_case c;
	size_t i;

	open_edited(&c, o, edit, 0);
	assert_int_equal(c.r->n_gpu, 1);
	g = c.r->gpu;
	assert_true(g->n_idle_causes > 0);
	for (i = 0; i < g->n_idle_causes; i++) {
		sum += g->idle_causes[i].share;
		assert_true(g->idle_causes[i].share <= g->idle_causes[0].share);
	}
	assert_true(fabs(sum - g->idle_share) < 1e-6);
	assert_string_equal(pt_cause_name(g->idle_causes[0].cause),
			    pt_cause_name(cause));
	case_close(&c);
}

static void test_idle_causes(void **state)
{
	struct job_opts o = pausing(12 * ST_MS);
	struct st_case c;

	(void)state;
	expect_idle(&o, NULL, PT_CAUSE_SYNC);
	expect_idle(&o, flush_files, PT_CAUSE_CHECKPOINT);
	expect_idle(&o, copy_more, PT_CAUSE_TRANSFER);
	expect_root(&o, NULL, "sync_bound");
	expect_root(&o, flush_files, "checkpoint_stall");
	expect_root(&o, copy_more, "transfer_bound");
	open_edited(&c, &o, copy_blocks, 0);
	assert_string_equal(case_root(c.r), "transfer_bound");
	assert_null(case_verdict(c.r, "launch_bound"));
	case_close(&c);
	/* copies that keep the host awake cost it as much */
	open_edited(&c, &o, copy_more, 0);
	assert_string_equal(c.r->whatif[0].change, "transfers_overlapped");
	assert_true(c.r->whatif[0].speedup.low > 1.2);
	case_close(&c);
	expect_root(&o, flush_pieces, "checkpoint_stall");
	open_edited(&c, &o, flush_pieces, 0);
	assert_true(c.r->breakdown.checkpoint.share >
		    3 * c.r->breakdown.sync.share);
	case_close(&c);
	open_edited(&c, &o, flush_and_launch, 0);
	assert_true(c.r->breakdown.checkpoint.share <
		    1.5 * (c.r->breakdown.sync.share +
			   c.r->breakdown.other.share));
	case_close(&c);
	open_edited(&c, &o, flush_files, 0);
	assert_null(case_verdict(c.r, "sync_bound"));
	assert_int_equal(c.r->verdicts[0].severity, PT_CRITICAL);
	case_close(&c);
	/* syncs as often, but the host is back at once */
	o = pausing(0);
	expect_root(&o, NULL, "balanced");
	o = pausing(15 * ST_MS / 10); /* 7 % */
	expect_root(&o, NULL, "balanced");
	expect_root(&o, flush_files, "balanced");
	expect_root(&o, copy_more, "balanced");
}

/* Each launch has to wait for room in the device's queue. */
static void wait_for_room(struct job *j)
{
	size_t i, n = j->s.recs.n;

	st_task(&j->s, JOB_BEGIN, JOB_TRAINER, JOB_GRAD + 5, 1, "cuda-EvtHandlr");
	for (i = 0; i < n; i++) {
		const struct pt_rec_gpu *r = &j->s.recs.v[i].r.gpu;
		uint64_t ts = r->hdr.ts;

		if (r->hdr.kind == PT_REC_GPU_ENTER && r->hdr.tid == JOB_TRAINER &&
		    r->api == st_api("cudaLaunchKernel"))
			st_futex(&j->s, JOB_TRAINER, JOB_TRAINER, ts + ST_US, ts + 36 * ST_US,
				 ts + 37 * ST_US, 0xf00, JOB_TRAINER, JOB_GRAD + 5);
	}
}

static void test_launch_bound(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;

	(void)state;
	o.batch_ns = ST_MS;
	o.launches = 400;
	o.kernel_ns = 3 * ST_US;
	o.launch_gap_ns = 40 * ST_US;
	open_edited(&c, &o, NULL, 0);
	assert_string_equal(case_root(c.r), "launch_bound");
	/* how much it idles is not seen, and the verdict says so */
	assert_int_equal(c.r->verdicts[0].certainty, PT_CONF_LOW);
	case_close(&c);
	expect_root(&o, wait_for_room, "balanced");
	o.kernel_ns = 60 * ST_US;
	expect_root(&o, NULL, "balanced");
}

/* The job ends after two seconds; worker 1 is stopped then, worker 0 waits
 * for an index. */
static void stop_worker(struct job *j)
{
	size_t i;

	for (i = 0; i < j->s.recs.n; i++) {
		struct pt_rec_off *r = &j->s.recs.v[i].r.off;

		if (r->hdr.kind != PT_REC_OFF ||
		    r->hdr.ts < JOB_BEGIN + 1000 * ST_S)
			continue;
		if (r->hdr.tid == JOB_WORKER(1)) {
			r->state = STATE_STOPPED;
		} else if (r->hdr.tid == JOB_WORKER(0)) {
			r->syscall = NR_POLL;
			r->obj_kind = PT_OBJ_PIPE;
			r->object = JOB_INDEX_PIPE(0);
		}
	}
}

static void test_hung_worker(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;
	size_t i;

	(void)state;
	o.run_s_x10 = 20;
	open_edited(&c, &o, stop_worker, 6 * ST_S);
	assert_string_equal(case_root(c.r), "hung_worker");
	assert_int_equal(c.r->verdicts[0].subject_pid, JOB_WORKER(1));
	assert_int_equal(c.r->verdicts[0].severity, PT_CRITICAL);
	for (i = 0; i < c.r->n_workers; i++)
		assert_int_equal(c.r->workers[i].state,
				 c.r->workers[i].pid == JOB_WORKER(1) ?
				 PT_WORKER_HUNG : PT_WORKER_OK);
	case_close(&c);
	/* only just stopped */
	open_edited(&c, &o, stop_worker, 2500 * ST_MS);
	assert_null(case_verdict(c.r, "hung_worker"));
	case_close(&c);
}

#define CLIENT 9000 /* not of the job's tree */
#define NR_SENDTO 44

/* Each wait of the trainer's is for a client of this host that speaks first. */
static void serve(struct job *j)
{
	size_t i;

	for (i = 0; i < j->s.recs.n; i++) {
		struct pt_rec_off *r = &j->s.recs.v[i].r.off;

		if (r->hdr.kind == PT_REC_OFF && r->obj_kind == PT_OBJ_SOCK) {
			r->syscall = NR_EPOLL_WAIT;
			r->waker_tgid = r->waker_tid = CLIENT;
			r->waker_syscall = NR_SENDTO;
			r->waker_obj_kind = PT_OBJ_SOCK;
			r->waker_object = r->object + 1;
		}
	}
}

static void test_no_demand(void **state)
{
	struct job_opts o = job_defaults();
	struct st_case c;

	(void)state;
	o.workers = 0;
	o.no_reads = true;
	o.mix[JOB_NET] = 0.9;
	open_edited(&c, &o, serve, 0);
	assert_string_equal(case_root(c.r), "no_demand");
	assert_int_equal(c.r->n_verdicts, 1);
	assert_int_equal(c.r->verdicts[0].severity, PT_INFO);
	case_close(&c);
	/* a client that fetches its data */
	open_edited(&c, &o, NULL, 0);
	assert_string_equal(case_root(c.r), "main_thread_loading");
	assert_non_null(strstr(c.r->verdicts[0].title, "waits for the answer"));
	case_close(&c);
	/* ... and computes most of the time */
	o.mix[JOB_NET] = 0.3;
	open_edited(&c, &o, NULL, 0);
	assert_string_equal(case_root(c.r), "main_thread_loading");
	assert_null(strstr(c.r->verdicts[0].title, "waits for the answer"));
	case_close(&c);
}

static void test_slow_file(void **state)
{
	struct job_opts o = one_worker();

	(void)state;
	o.slices = 1;
	o.jitter = 0.02;
	o.mix[JOB_DISK] = 0.9;
	o.run_s_x10 = 120;
	o.batch_ns = 1300 * ST_MS;
	expect_root(&o, NULL, "slow_file");
	o.batch_ns = 1000 * ST_MS; /* 900 ms */
	expect_root(&o, NULL, "io_bound");
	/* One file is not in memory: what its reads have in common is that no
	 * other batch has any. */
	o = one_worker();
	o.batch_ns = 20 * ST_MS;
	o.run_s_x10 = 120;
	o.mix[JOB_DISK] = 0.9;
	o.heavy_mix = true;
	o.heavy_every = 40;
	o.heavy = 80;
	expect_root(&o, NULL, "slow_file");
	/* ... or all batches are read from one file */
	o.heavy_mix = false;
	o.heavy = 1;
	o.batch_ns = 1300 * ST_MS;
	expect_root(&o, NULL, "io_bound");
}

static void test_unstable(void **state)
{
	struct job_opts o = one_worker();
	const struct pt_r_verdict *v;
	struct st_case c;

	(void)state;
	o.heavy_every = 10;
	o.heavy = 6;
	o.run_s_x10 = 60;
	open_edited(&c, &o, NULL, 0);
	assert_string_equal(case_root(c.r), "cpu_bound");
	v = case_verdict(c.r, "unstable_steps");
	assert_non_null(v);
	assert_string_equal(v->consequence_of, "cpu_bound");
	assert_true(c.r->steps.n_outliers >= 3);
	assert_int_equal(c.r->steps.outliers[0].cause, PT_CAUSE_CPU);
	assert_true(c.r->steps.max_over_min > 4);
	case_close(&c);
	o.heavy_every = 0;
	open_edited(&c, &o, NULL, 0);
	assert_null(case_verdict(c.r, "unstable_steps"));
	assert_int_equal(c.r->steps.n_outliers, 0);
	case_close(&c);
}

/* ---- memory ----------------------------------------------------------------- */

static uint64_t (*rss_at)(unsigned s);

static uint64_t rising(unsigned s)
{
	return 1000000000 + s * 4000000ull + (s * 2654435761u) % 3000000;
}

static uint64_t warming_up(unsigned s)
{
	return 1000000000 + (s < 15 ? s : 15) * 20000000ull +
	       (s * 2654435761u) % 3000000;
}

static uint64_t level(unsigned s)
{
	return 1000000000 + (s * 2654435761u) % 30000000;
}

static void sample(struct job *j)
{
	unsigned s;

	for (s = 0; s < 40; s++) {
		union pt_rec_any *r = st_add(&j->s, PT_REC_SAMPLE,
					 sizeof(r->sample),
					 JOB_BEGIN + s * ST_S + 900 * ST_MS,
					 JOB_TRAINER, JOB_TRAINER);

		r->sample.rss_anon = rss_at(s);
	}
}

static bool grows(uint64_t (*rss)(unsigned), double *per_min)
{
	struct job_opts o = pausing(0);
	struct st_case c;
	bool yes;

	o.run_s_x10 = 400;
	rss_at = rss;
	open_edited(&c, &o, sample, 0);
	yes = case_verdict(c.r, "host_memory_growth") != NULL;
	*per_min = c.r->mem_growth_per_min;
	assert_string_equal(case_root(c.r), "balanced");
	case_close(&c);
	return yes;
}

static void test_host_memory(void **state)
{
	double per_min;

	(void)state;
	assert_true(grows(rising, &per_min));
	assert_true(fabs(per_min / 240e6 - 1) < 0.05);
	assert_false(grows(warming_up, &per_min));
	assert_false(grows(level, &per_min));
}

/* Three processes that take turns, each every third second, once all were seen. */
static void sample_by_turns(struct job *j)
{
	static const uint32_t of[] = { JOB_TRAINER, JOB_WORKER(0), JOB_WORKER(1) };
	unsigned s, k;

	for (s = 0; s < 30; s++)
		for (k = 0; k < 3; k++) {
			union pt_rec_any *r;

			if (s && s % 3 != k)
				continue;
			r = st_add(&j->s, PT_REC_SAMPLE, sizeof(r->sample),
				   JOB_BEGIN + s * ST_S + 900 * ST_MS, of[k], of[k]);
			r->sample.rss_anon = (k + 1) * 100000000;
			r->sample.utime_ns = s * ST_S / 4;
		}
}

/* Each second has all of them, up to the end. */
static void test_samples_by_turns(void **state)
{
	struct job_opts o = pausing(0);
	struct st_case c;
	size_t i;

	(void)state;
	o.workers = 2;
	o.run_s_x10 = 300;
	open_edited(&c, &o, sample_by_turns, 0);
	assert_true(c.r->n_series > 20);
	/* the first sample of each is what the next one is compared with */
	for (i = 1; i + 1 < c.r->n_series; i++) {
		if (fabs(c.r->series[i].rss / 600e6 - 1) > 1e-9 ||
		    fabs(c.r->series[i].cpu / 0.75 - 1) > 1e-9)
			fail_msg("second %zu: %g bytes, %g cores", i, c.r->series[i].rss,
				 c.r->series[i].cpu);
	}
	case_close(&c);
}

static uint64_t dipping(unsigned s)
{
	return rising(s) - (s == 3 ? 20000000 : 0);
}

static uint64_t flattening(unsigned s)
{
	return 1000000000 + (s < 3 ? s : 3) * 40000000ull + s * 100000ull;
}

static uint64_t creeping(unsigned s)
{
	return 1000000000 + s * 3000000ull;
}

/* Six seconds have five samples. */
static const struct pt_r_verdict *short_growth(uint64_t (*rss)(unsigned),
					       struct st_case *c)
{
	struct job_opts o = pausing(0);

	o.run_s_x10 = 70;
	rss_at = rss;
	open_edited(c, &o, sample, 6400 * ST_MS);
	return case_verdict(c->r, "host_memory_growth");
}

static uint64_t leaking(unsigned s)
{
	return 500000000 + s * 30000000ull + (s * 2654435761u) % 3000000;
}

static void test_short_growth(void **state)
{
	const struct pt_r_verdict *v;
	struct st_case c;

	(void)state;
	v = short_growth(leaking, &c);
	assert_non_null(v);
	assert_int_equal(v->certainty, PT_CONF_LOW);
	assert_int_equal(v->severity, PT_INFO);
	assert_true(fabs(c.r->mem_growth_per_min / 1800e6 - 1) < 0.05);
	case_close(&c);
	assert_null(short_growth(dipping, &c));
	assert_true(isnan(c.r->mem_growth_per_min)); /* noise is no slope */
	case_close(&c);
	assert_null(short_growth(flattening, &c));
	case_close(&c);
	assert_null(short_growth(creeping, &c)); /* 1.5 % */
	case_close(&c);
	assert_null(short_growth(level, &c));
	case_close(&c);
}

static unsigned alloc_until, free_too;

static void allocate(struct job *j)
{
	uint64_t t;
	unsigned k = 0;

	for (t = 0; t < alloc_until * ST_MS; t += 50 * ST_MS, k++) {
		st_gpu(&j->s, "cudaMalloc", JOB_TRAINER, JOB_GRAD,
		       JOB_BEGIN + t, JOB_BEGIN + t + 5000, 0, 0, 1 << 20, 0);
		if (free_too)
			st_gpu(&j->s, "cudaFree", JOB_TRAINER, JOB_GRAD,
			       JOB_BEGIN + t + 9000, JOB_BEGIN + t + 12000, 0,
			       0xabc000, 0, 0);
	}
}

static bool gpu_grows(unsigned until, unsigned frees)
{
	struct job_opts o = pausing(0);
	struct st_case c;
	bool yes;

	o.run_s_x10 = 60;
	alloc_until = until;
	free_too = frees;
	open_edited(&c, &o, allocate, 0);
	yes = case_verdict(c.r, "gpu_memory_growth") != NULL;
	case_close(&c);
	return yes;
}

static void test_gpu_memory(void **state)
{
	(void)state;
	assert_true(gpu_grows(6000, 0));
	assert_false(gpu_grows(6000, 1)); /* given back */
	assert_false(gpu_grows(2500, 0)); /* a warm-up */
	assert_false(gpu_grows(0, 0));
}

static void test_chances(void **state)
{
	const double low[] = { 1, 2, 3, 4 }, high[] = { 5, 6, 7 };
	const double same[] = { 2, 2, 2 }, up[] = { 1, 2, 3, 4, 5 };
	const double dip[] = { 1, 2, 4, 3, 5 };
	const double mixed[] = { 4, 6, 7 }, most[] = { 1, 2, 3, 5 };
	double many[42], p;
	size_t i;

	(void)state;
	/* one order of 35, and one more with a pair exchanged */
	assert_int_equal(pt_rank_sum_chance(high, 3, low, 4, &p), 0);
	assert_true(fabs(p - 1.0 / 35) < 1e-12);
	assert_int_equal(pt_rank_sum_chance(mixed, 3, most, 4, &p), 0);
	assert_true(fabs(p - 2.0 / 35) < 1e-12);
	assert_int_equal(pt_rank_sum_chance(low, 4, high, 3, &p), 0);
	assert_true(p > 0.97);
	/* 3 ties: U = 6, mean 4.5, variance 9 / 12 * (7 - 24 / 30) */
	assert_int_equal(pt_rank_sum_chance(high, 3, same, 3, &p), 0);
	assert_true(fabs(p - 0.5 * erfc(4 / sqrt(0.75 * 6.2) / sqrt(2))) < 1e-9);
	assert_int_equal(pt_rank_sum_chance(same, 3, same, 3, &p), 0);
	assert_true(p == 1);
	assert_int_equal(pt_rank_sum_chance(same, 3, same, 0, &p), 0);
	assert_true(p == 1);
	/* of many the normal deviate: U = 221 of a mean of 220.5 and a variance of 1580.25 */
	for (i = 0; i < 42; i++)
		many[i] = i < 21 ? (double)(2 * i + (i > 10)) : (double)(2 * (i - 21) + (i < 32));
	assert_int_equal(pt_rank_sum_chance(many, 21, many + 21, 21, &p), 0);
	assert_true(p > 0.3 && p < 0.7);
	/* one order of 120, and four more with one pair exchanged */
	assert_true(fabs(pt_rise_chance(up, 5) - 1.0 / 120) < 1e-12);
	assert_true(fabs(pt_rise_chance(dip, 5) - 5.0 / 120) < 1e-12);
	assert_true(pt_rise_chance(same, 3) == 1);
	assert_true(pt_rise_chance(up, 2) == 1);
}

static void test_statistics(void **state)
{
	double x[30], y[30], v;
	size_t i;

	(void)state;
	for (i = 0; i < 30; i++) {
		x[i] = (double)i;
		y[i] = 3 * (double)i + (i % 2 ? 1 : -1);
	}
	y[7] = 1e9; /* one wild point changes nothing */
	assert_int_equal(pt_theil_sen(x, y, 30, &v), 0);
	assert_true(fabs(v - 3) < 0.2);
	assert_true(pt_mann_kendall(y, 30) > 5);
	assert_int_equal(pt_spearman(x, y, 7, &v), 0);
	assert_true(v > 0.9);
	for (i = 0; i < 30; i++)
		y[i] = (double)((i * 7) % 10);
	assert_true(fabs(pt_mann_kendall(y, 30)) < 1.96);
	/* ten rising points: S = 45, variance 125, (45 - 1) / sqrt(125) */
	assert_true(fabs(pt_mann_kendall(x, 10) - 3.9354796) < 1e-6);
	for (i = 0; i < 30; i++)
		y[i] = 1;
	assert_true(pt_mann_kendall(y, 30) == 0);
	assert_int_equal(pt_spearman(x, y, 30, &v), 0);
	assert_true(isnan(v));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_causes),
		cmocka_unit_test(test_too_few_workers),
		cmocka_unit_test(test_slow_item),
		cmocka_unit_test(test_idle_causes),
		cmocka_unit_test(test_launch_bound),
		cmocka_unit_test(test_hung_worker),
		cmocka_unit_test(test_no_demand),
		cmocka_unit_test(test_slow_file),
		cmocka_unit_test(test_unstable),
		cmocka_unit_test(test_host_memory),
		cmocka_unit_test(test_samples_by_turns),
		cmocka_unit_test(test_gpu_memory),
		cmocka_unit_test(test_short_growth),
		cmocka_unit_test(test_chances),
		cmocka_unit_test(test_statistics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
