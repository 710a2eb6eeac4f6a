/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports that the tests of the report room share. Every number is invented;
 * the arithmetic between them holds (shares sum to 1, parts to the whole). */
#ifndef TEST_REPORT_FIXTURE_H
#define TEST_REPORT_FIXTURE_H

#include <string.h>

#include "report/report.h"

#define NR(a) (sizeof(a) / sizeof((a)[0]))

/* Escape sequence, newline, bell, bidi override, C1, invalid UTF-8, and a
 * backslash that must not pass for one of ours. */
#define NASTY "\x1b]0;owned\x07\nrm -rf\r\xe2\x80\xae"                         \
	      "gpj.exe\xc2\x9b" "2J\xff\xc0\xaf\xed\xa0\x80 a\\x1b \x7f"

/* What a text says. */
static inline void has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in:\n%s", part, text);
}

static inline void lacks(const char *text, const char *part)
{
	if (strstr(text, part))
		fail_msg("\"%s\" is in:\n%s", part, text);
}

static void fixture_verdicts(struct pt_report *r)
{
	static const struct pt_r_evidence cpu[] = {
		{ "workers.cpu_share", 0.94, "share", 0.8, PT_MEASURED },
		{ "workers.disk_share", 0.004, "share", NAN, PT_MEASURED },
		{ "host.idle_cores", 2, "count", NAN, PT_ESTIMATED },
	};
	static const struct pt_r_evidence starved[] = {
		{ "gpu.starved_share", 0.41, "share", 0.3, PT_BOUNDED },
		{ "data_wait.share", 0.613, "share", 0.3, PT_MEASURED },
	};
	static const struct pt_r_evidence slow[] = {
		{ "slowdown", 3.1, "ratio", 2, PT_MEASURED },
	};
	static const struct pt_r_verdict v[] = {
		{ .id = "cpu_bound", .severity = PT_CRITICAL,
		  .certainty = PT_CONF_HIGH,
		  .title = "Preparing batches takes more CPU than two workers have: both compute nearly all the time, and two cores are free.",
		  .subject_pid = 4243, .subject_rank = PT_NULL,
		  .subject_file = "/home/ann/train/dataset.py",
		  .subject_line = 88,
		  .evidence = cpu, .n_evidence = NR(cpu),
		  .advice = "Raise num_workers from 2 to 4, or make __getitem__ cheaper.",
		  .expected_speedup = { 1.82, 1.64, 2.05 } },
		{ .id = "gpu_starved", .severity = PT_CRITICAL,
		  .certainty = PT_CONF_MEDIUM,
		  .title = "The GPU starves for input: it is idle 41 % of the time while the trainer waits for data.",
		  .consequence_of = "cpu_bound",
		  .subject_pid = 4242, .subject_rank = PT_NULL,
		  .subject_line = PT_NULL,
		  .evidence = starved, .n_evidence = NR(starved),
		  .expected_speedup = { NAN, NAN, NAN } },
		{ .id = "slow_worker", .severity = PT_WARNING,
		  .certainty = PT_CONF_MEDIUM,
		  .title = "Worker 4244 takes 3.1 times as long per batch as its peers.",
		  .subject_pid = 4244, .subject_rank = PT_NULL,
		  .subject_line = PT_NULL,
		  .evidence = slow, .n_evidence = NR(slow),
		  .advice = "Look at what its files have in common.",
		  .expected_speedup = { NAN, NAN, NAN } },
	};

	r->verdicts = v;
	r->n_verdicts = NR(v);
}

static void fixture_steps(struct pt_report *r)
{
	static const struct pt_r_epoch epochs[] = {
		{ 0, 200, 14.6,
		  { 200, 73.004, 4.1, 61.2, 72.1, 80.2, 92.1, 140.25 },
		  200 / 14.6, 812.5 },
		{ 1, 212, 15.4, { 212, 72.6, 3.9, 60.9, 72, 79, 90, 101 },
		  212 / 15.4, 77 },
	};
	static const struct pt_r_outlier outliers[] = {
		{ 131, 140.25, PT_CAUSE_CPU },
	};
	static const struct pt_r_step list[] = {
		{ 0, 900123456789012, 900123529789012, 73.0, 44.7, 22.1,
		  PT_CAUSE_CPU, 4243, true },
		{ 1, 900123529789012, 900123600789012, 71.0, 1.25, 61.0,
		  PT_CAUSE_UNKNOWN, PT_NULL, false },
		{ 2, 900123600789012, 900123674789012, 74.0, 45.1, NAN,
		  PT_CAUSE_RUN_QUEUE, 4244, true },
	};

	r->steps = (struct pt_r_steps){
		.count = 412, .batches = 413, .optimizer_steps = PT_NULL,
		.certainty = PT_CONF_HIGH, .source = "handoff",
		.period_ms = { 411, 72.815, 4.0, 60.9, 72.05, 79.9, 92.1,
			       140.25 },
		.per_second = 13.733, .batch_size = 64,
		.samples_per_second = 878.9, .first_ms = 812.5,
		.max_over_min = 2.303,
		.epochs = epochs, .n_epochs = NR(epochs),
		.outliers = outliers, .n_outliers = NR(outliers),
		.list = list, .n_list = NR(list),
	};
}

static void fixture_session(struct pt_report *r)
{
	static const struct pt_r_hook hooks[] = {
		{ "sched", "tp_btf", NULL },
		{ "gpu", "uprobe_multi", NULL },
		{ "reads", "none", "no fexit, no kprobe on this kernel" },
	};
	static const struct pt_r_loss lost[] = {
		{ "ring_full", 12 }, { "clock", 0 },
	};

	r->host = (struct pt_r_host){
		.version = "0.1.0", .hostname = "node7",
		.boot_id = "2f6c63a0-1111-4222-8333-444455556666",
		.kernel = "6.12.9", .numa = "1 node", .lockdown = "none",
		.cores = 4, .quota_cores = NAN,
		.memory = 16LL << 30, .shm_size = 8LL << 30,
	};
	r->target = (struct pt_r_target){
		.pid = 4242, .cmdline = "python3 train.py --epochs 3",
		.comm = "python3", .user = "ann", .started = 1735689600.25,
		.resolved_from = 4243,
	};
	r->loader.kind = (struct pt_sourced){ "torch DataLoader", "observed" };
	r->loader.workers = (struct pt_sourced){ "2", "observed" };
	r->loader.prefetch = (struct pt_sourced){ "2", "observed" };
	r->loader.pinned = (struct pt_sourced){ "false", "observed" };
	r->capture.duration = 30.0;
	r->capture.begin_ns = 900123456000000;
	r->capture.end_ns = 900153456000000;
	r->capture.begin_unix_ns = 1735689630123456789;
	r->capture.mode = "standard";
	r->capture.hooks = hooks;
	r->capture.n_hooks = NR(hooks);
	r->capture.events = 184220;
	r->capture.lost_total = 12;
	r->capture.lost = lost;
	r->capture.n_lost = NR(lost);
	r->capture.tracer_cpu_s = 0.41;
	r->capture.complete = true;
}

static void fixture_work(struct pt_report *r)
{
	static const struct pt_r_charge causes[] = {
		{ PT_CAUSE_CPU, 15.1, 0.8211, 4243, 4243, NULL, NULL },
		{ PT_CAUSE_RUN_QUEUE, 1.9, 0.1033, 4244, 4244, NULL, NULL },
		{ PT_CAUSE_DISK, 0.9, 0.0489, 4244, 4244,
		  "/data/imagenet/train/n01440764/n01440764_10026.JPEG",
		  "network" },
		{ PT_CAUSE_IPC, 0.39, 0.0212, PT_NULL, PT_NULL, "hand-over",
		  NULL },
		{ PT_CAUSE_UNKNOWN, 0.1, 0.0055, PT_NULL, PT_NULL, NULL,
		  NULL },
	};
	static const struct pt_r_gpu gpu[] = {
		{ .uuid = NULL, .index = 0, .certainty = PT_BOUNDED,
		  .busy_share = 0.38, .busy_hard = { 0.31, 0.45 },
		  .busy_likely = { 0.36, 0.41 }, .compute = NAN, .copy = NAN,
		  .collective = NAN, .idle_share = 0.62,
		  .idle_hard = { 0.55, 0.69 }, .idle_likely = { 0.59, 0.64 },
		  .starved_share = { 0.38, 0.41 },
		  .idle_causes = causes, .n_idle_causes = 1,
		  .kernels = 51912, .copies_h2d = 826, .copies_d2h = 412,
		  .copies_other = 0, .copy_bytes = 5049942016,
		  .pageable_share = 1.0, .syncs = 412,
		  .failed_allocations = 0, .mem_reserved = PT_NULL,
		  .mem_peak = 2147483648, .mem_growth_per_min = 0,
		  .mem_total = PT_NULL },
	};
	static const struct pt_r_worker workers[] = {
		{ 4243, 4243, "loader", PT_NULL, 206,
		  { 206, 139.1, 6, 120, 138.2, 151.4, 160, 171.3 },
		  28.2, 0.9, 0, 0.1, 0, 0, 0.2, 0.3, 0.2, 0, 0.1, 30.0,
		  1288490188, 206000, NAN, PT_WORKER_OK, NULL, 0 },
		{ 4244, 4244, "loader", PT_NULL, 207,
		  { 207, 431.2, 6, 120, 430.1, 466.9, 480, 512 },
		  20.1, 3.1, 0, 5.2, 0.3, 0, 0.2, 0.4, 0.6, 0, 0.1, 30.0,
		  1290000000, 206400, 3.1, PT_WORKER_SLOW, NULL, 0 },
		{ 4242, 4250, "helper", PT_NULL, PT_NULL, { .n = 0 },
		  NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN,
		  PT_NULL, PT_NULL, NAN, PT_WORKER_EXITED, NULL, 0 },
	};

	r->breakdown = (struct pt_r_breakdown){
		.known = true,
		.data_wait = { 18.39, 0.613 }, .gpu_wait = { 6.6, 0.22 },
		.transfer = { 0.9, 0.03 }, .sync = { 0, 0 },
		.launch = { 1.2, 0.04 }, .collective = { 0, 0 },
		.checkpoint = { 0, 0 }, .other = { 2.91, 0.097 },
		.host = { [PT_HOST_COMPUTING] = { 1.8, 0.06 },
			  [PT_HOST_SLEEPING] = { 0.9, 0.03 },
			  [PT_HOST_WRITING] = { 0.03, 0.001 } },
	};
	r->data_wait = (struct pt_r_data_wait){
		.blocked = 15.3, .own_read = 0, .own_cpu = 1.09,
		.handover = 2.0, .lead = 0.8, .restart = 0.4,
		.evidence = "supplied",
		.causes = causes, .n_causes = NR(causes),
	};
	r->gpu = gpu;
	r->n_gpu = NR(gpu);
	r->workers = workers;
	r->n_workers = NR(workers);
}

static void fixture_rest(struct pt_report *r)
{
	static const struct pt_r_operation ops[] = {
		{ "cudaLaunchKernel", "api", 51912, 0.9, 17.3, 5.1, 812.25, 9,
		  88, 0.03, 0.9, NAN, PT_NULL, PT_MEASURED },
	};
	static const struct pt_r_file files[] = {
		{ .path = "/data/a.bin", .dev = 0x800001,
		  .inode = 18446744073709551615ULL, .opens = PT_NULL,
		  .reads = 12, .bytes = 1 << 20, .reread_bytes = 0,
		  .read_s = 0.5, .blocked_s = 0.25, .p99_ms = 12.5,
		  .cached_share = 0.5, .faults = 40,
		  .fault_bytes = 640 << 10, .fault_s = 0.75, .text = 0,
		  .pattern = { "stride", 0.25, 87381, 87381, 1 << 20, 2 },
		  .fs = "ext4", .fs_class = "local",
		  .device = "sda" },
		{ .path = "/data/\xff\\b.bin", .dev = 7,
		  .inode = 9007199254740993ULL, .opens = 1, .reads = PT_NULL,
		  .bytes = PT_NULL, .reread_bytes = PT_NULL, .read_s = NAN,
		  .blocked_s = NAN, .p99_ms = NAN, .cached_share = NAN,
		  .pattern = { NULL, NAN, NAN, NAN, PT_NULL, PT_NULL },
		  .reread_lo = PT_NULL, .reread_hi = PT_NULL,
		  .fetched_bytes = PT_NULL, .faults = PT_NULL,
		  .fault_bytes = PT_NULL, .fault_s = NAN, .text = PT_NULL, .fs = "fuse.\x1b[31m" },
	};
	static const struct pt_r_write writes[] = {
		{ .path = "/out/\x1b]0;ckpt.pt", .dev = 0x800001,
		  .inode = 18446744073709551615ULL, .pid = 4242, .calls = 12,
		  .fsyncs = 1, .bytes = 3 << 20, .write_s = 0.25,
		  .fsync_s = 1.5, .blocked_s = 1.6, .fs = "ext4",
		  .fs_class = "local", .device = "sda" },
		{ .inode = 5, .pid = 4242, .calls = PT_NULL, .fsyncs = PT_NULL,
		  .bytes = 4096, .write_s = NAN, .fsync_s = 0, .blocked_s = 0.01 },
	};
	static const struct pt_r_disk disks[] = {
		{ .name = "sda", .model = "A \xff disk", .kind = "rotational",
		  .dev = 0x800000, .reads = 1234, .read_bytes = 5 << 20,
		  .writes = 3, .write_bytes = 4096, .failed = 1,
		  .latency_ms = { 1237, 8.5, NAN, NAN, 7.25, 20, 31.5, 88 },
		  .read_latency_ms = { 1234, 8.5, NAN, NAN, 7.25, 20, 31.5, 88 },
		  .depth_mean = 2.5, .depth_max = 9, .all_reads = 2000,
		  .all_read_bytes = 8 << 20, .all_writes = 10,
		  .all_write_bytes = 40960, .all_latency_ms = 9,
		  .all_depth = 3, .busy_share = 0.75, .target_share = 0.6 },
		{ .dev = 9, .reads = 1, .read_bytes = 512,
		  .depth_mean = NAN, .depth_max = PT_NULL, .all_reads = PT_NULL,
		  .all_read_bytes = PT_NULL, .all_writes = PT_NULL,
		  .all_write_bytes = PT_NULL, .all_latency_ms = NAN,
		  .all_depth = NAN, .busy_share = NAN, .target_share = NAN },
	};
	static const struct pt_r_point series[] = {
		{ 0, 2.9, 4.1e9, 5e8, NAN, NAN, 8.7e7, 0.6 },
		{ 1, 3.1, 4.1e9, 5e8, NAN, NAN, 8.6e7, NAN },
	};
	static struct pt_r_rank ranks[2];

	for (size_t i = 0; i < NR(ranks); i++) {
		ranks[i].pid = 4242 + 10 * (int64_t)i;
		ranks[i].rank = (int64_t)i;
		ranks[i].steps = 412;
		ranks[i].breakdown = r->breakdown;
		ranks[i].data_wait = r->data_wait;
		ranks[i].gpu_busy_share = i ? NAN : 0.38;
		ranks[i].meetings.count = PT_NULL;
	}
	r->ranks = ranks;
	r->n_ranks = NR(ranks);
	r->operations = ops;
	r->n_operations = NR(ops);
	r->writes = writes;
	r->n_writes = NR(writes);
	r->disks = disks;
	r->n_disks = NR(disks);
	r->files = files;
	r->n_files = NR(files);
	r->series = series;
	r->n_series = NR(series);
	r->mem_growth_per_min = 12.25 * (1 << 20);
	r->mem_growth_certainty = PT_ESTIMATED;
}

/* A starving job, as one would meet it. */
static inline struct pt_report *fixture_full(void)
{
	struct pt_report *r = pt_report_new();

	if (!r)
		return NULL;
	fixture_session(r);
	fixture_steps(r);
	fixture_work(r);
	fixture_verdicts(r);
	fixture_rest(r);
	if (pt_report_limit(r, "reads",
			    "single reads are not seen on this kernel; bytes come from I/O accounting") ||
	    pt_report_limit(r, "gpu.busy.compute",
			    "compute and copies are told apart only with CUPTI")) {
		pt_report_free(r);
		return NULL;
	}
	return r;
}

/* The same with NASTY wherever a string comes from outside. */
static inline struct pt_report *fixture_hostile(void)
{
	static const struct pt_r_hook hooks[] = { { NASTY, NASTY, NASTY },
						  { NASTY, "x", NULL } };
	static const struct pt_r_loss lost[] = { { NASTY, 3 }, { NULL, 2 } };
	static const struct pt_r_evidence ev[] = {
		{ NASTY, 1, NASTY, 2, PT_MEASURED },
	};
	static struct pt_r_verdict v;
	static struct pt_r_worker w;
	static struct pt_r_charge c;
	static struct pt_r_file f;
	static struct pt_r_operation op;
	static struct pt_r_gpu g;
	struct pt_report *r = fixture_full();

	if (!r)
		return NULL;
	r->host.version = r->host.hostname = r->host.boot_id = NASTY;
	r->host.kernel = r->host.numa = r->host.driver = NASTY;
	r->host.lockdown = NASTY;
	r->target.cmdline = r->target.comm = r->target.user = NASTY;
	r->target.container = r->target.job_kind = r->target.job_id = NASTY;
	r->target.job_name = NASTY;
	r->loader.kind = (struct pt_sourced){ NASTY, NASTY };
	r->loader.workers = (struct pt_sourced){ NASTY, NASTY };
	r->capture.mode = NASTY;
	r->capture.hooks = hooks;
	r->capture.n_hooks = NR(hooks);
	r->capture.lost = lost;
	r->capture.n_lost = NR(lost);
	r->steps.source = NASTY;
	v = r->verdicts[0];
	v.title = v.advice = v.subject_file = NASTY;
	v.evidence = ev;
	v.n_evidence = NR(ev);
	r->verdicts = &v;
	r->n_verdicts = 1;
	w = r->workers[0];
	w.role = NASTY;
	r->workers = &w;
	r->n_workers = 1;
	c = r->data_wait.causes[0];
	c.what = NASTY;
	r->data_wait.causes = &c;
	r->data_wait.n_causes = 1;
	f = r->files[0];
	f.path = NASTY;
	r->files = &f;
	r->n_files = 1;
	op = r->operations[0];
	op.name = NASTY;
	r->operations = &op;
	r->n_operations = 1;
	g = r->gpu[0];
	g.uuid = NASTY;
	r->gpu = &g;
	if (pt_report_limit(r, NASTY, "%s", NASTY)) {
		pt_report_free(r);
		return NULL;
	}
	return r;
}

#endif
