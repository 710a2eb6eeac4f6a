/* SPDX-License-Identifier: BSD-2-Clause */
/* simjob: options, the training loop, the truth log. */
#include "job.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

/* ---- options --------------------------------------------------------------- */

enum {
	O_WORKERS = 256, O_PREFETCH, O_STEPS, O_SECONDS, O_ITEMS, O_BYTES,
	O_CPU, O_SLEEP, O_DIR, O_FILES, O_COLD, O_KERNEL, O_LAUNCHES, O_SYNC,
	O_PINNED, O_THREADS, O_SLOW, O_JITTER, O_SEED, O_TRUTH, O_API, O_LATE,
	O_HOLD, O_HOLD_MS, O_GRAPH, O_NCCL, O_DEVICES, O_CLIP, O_HOST,
	O_HOST_SLEEP,
};

static const struct argp_option options[] = {
	{ "workers", O_WORKERS, "N", 0, "loader processes (2; 0: none)", 1 },
	{ "threads", O_THREADS, NULL, 0, "loader threads, not processes", 1 },
	{ "prefetch", O_PREFETCH, "N", 0, "batches in flight per worker (2)",
	  1 },
	{ "items", O_ITEMS, "N", 0, "items per batch (32)", 1 },
	{ "item-bytes", O_BYTES, "N", 0, "bytes per item (150528)", 1 },
	{ "item-cpu-us", O_CPU, "US", 0, "CPU time per item (1000)", 1 },
	{ "item-sleep-us", O_SLEEP, "US", 0, "sleep per item (0)", 1 },
	{ "read-dir", O_DIR, "DIR", 0,
	  "read each item from a file in DIR, made if missing", 1 },
	{ "files", O_FILES, "N", 0, "files in DIR (64)", 1 },
	{ "cold", O_COLD, NULL, 0, "drop each file from the page cache", 1 },
	{ "slow-worker", O_SLOW, "I:FACTOR", 0,
	  "worker I takes FACTOR times as long", 1 },
	{ "random-jitter", O_JITTER, "PCT", 0, "vary each item's cost (20)",
	  1 },
	{ "seed", O_SEED, "N", 0, "of the jitter and the file order (1)", 1 },
	{ "kernel-us", O_KERNEL, "US", 0, "device time per kernel (200)", 2 },
	{ "launches", O_LAUNCHES, "N", 0, "kernels per step (20)", 2 },
	{ "sync-every", O_SYNC, "N", 0,
	  "read the loss back every N steps (1; 0: never)", 2 },
	{ "pinned", O_PINNED, NULL, 0, "pin the batches: copies do not wait",
	  2 },
	{ "api", O_API, "NAME", 0,
	  "runtime, over (a runtime over a driver), driver, mixed or hip "
	  "(runtime)", 2 },
	{ "late", O_LATE, "N", 0,
	  "load the library, or the second of two, at step N (0: at once)", 2 },
	{ "hold", O_HOLD, NULL, 0,
	  "wait for a line on standard input before the first step", 2 },
	{ "hold-ms", O_HOLD_MS, "MS", 0,
	  "pause behind loading a library late (0)", 2 },
	{ "devices", O_DEVICES, "N", 0,
	  "devices that the runtime's launches take turns on (1)", 2 },
	{ "graph", O_GRAPH, NULL, 0, "launch a step's kernels as one graph", 2 },
	{ "collectives", O_NCCL, "N", 0, "NCCL all-reduces per step (0); of rank "
	  "RANK of WORLD_SIZE, by the file PT_SIM_NCCL", 2 },
	{ "clip", O_CLIP, NULL, 0, "wait for the device before them", 2 },
	{ "host-us", O_HOST, "US", 0, "CPU time of the trainer per step (0)", 2 },
	{ "host-sleep-us", O_HOST_SLEEP, "US", 0, "... and sleep (0)", 2 },
	{ "steps", O_STEPS, "N", 0, "stop after N steps (0: no limit)", 3 },
	{ "seconds", O_SECONDS, "S", 0, "stop after S seconds (30; 0: no limit)",
	  3 },
	{ "truth", O_TRUTH, "FILE", 0, "one JSON line per step", 3 },
	{ 0 },
};

static uint64_t number(struct argp_state *st, const char *arg, uint64_t min,
		       uint64_t max)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(arg, &end, 10);
	if (errno || end == arg || *end || *arg == '-' || v < min || v > max)
		argp_error(st, "'%s' is not a number from %" PRIu64
			   " to %" PRIu64, arg, min, max);
	return v;
}

static double real(struct argp_state *st, const char *arg, double max)
{
	char *end;
	double v = strtod(arg, &end);

	if (end == arg || *end || !isfinite(v) || v < 0 || v > max)
		argp_error(st, "'%s' is not a number from 0 to %g", arg, max);
	return v;
}

static void slow_worker(struct argp_state *st, struct job_opts *o,
			const char *arg)
{
	const char *colon = strchr(arg, ':');
	char idx[8];

	if (!colon || (size_t)(colon - arg) >= sizeof(idx))
		argp_error(st, "--slow-worker wants I:FACTOR");
	memcpy(idx, arg, (size_t)(colon - arg));
	idx[colon - arg] = '\0';
	o->slow_worker = (unsigned)number(st, idx, 0, JOB_WORKERS_MAX - 1);
	o->slow_factor = real(st, colon + 1, 1000);
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct job_opts *o = st->input;

	switch (key) {
	case O_WORKERS:
		o->workers = (unsigned)number(st, arg, 0, JOB_WORKERS_MAX);
		break;
	case O_PREFETCH:
		o->prefetch = (unsigned)number(st, arg, 1, JOB_PREFETCH_MAX);
		break;
	case O_STEPS:
		o->steps = number(st, arg, 0, UINT64_MAX);
		break;
	case O_SECONDS:
		o->seconds = real(st, arg, 1e6);
		break;
	case O_ITEMS:
		o->items = (unsigned)number(st, arg, 1, 4096);
		break;
	case O_BYTES:
		o->item_bytes = number(st, arg, 1, 16 << 20);
		break;
	case O_CPU:
		o->item_cpu_us = (unsigned)number(st, arg, 0, 10000000);
		break;
	case O_SLEEP:
		o->item_sleep_us = (unsigned)number(st, arg, 0, 10000000);
		break;
	case O_DIR:
		o->read_dir = arg;
		break;
	case O_FILES:
		o->files = (unsigned)number(st, arg, 1, 99999);
		break;
	case O_COLD:
		o->cold = true;
		break;
	case O_KERNEL:
		o->kernel_us = (unsigned)number(st, arg, 1, 10000000);
		break;
	case O_LAUNCHES:
		o->launches = (unsigned)number(st, arg, 0, 100000);
		break;
	case O_SYNC:
		o->sync_every = (unsigned)number(st, arg, 0, UINT_MAX);
		break;
	case O_PINNED:
		o->pinned = true;
		break;
	case O_THREADS:
		o->threads = true;
		break;
	case O_SLOW:
		slow_worker(st, o, arg);
		break;
	case O_JITTER:
		o->jitter_pct = (unsigned)number(st, arg, 0, 99);
		break;
	case O_SEED:
		o->seed = number(st, arg, 0, UINT64_MAX);
		break;
	case O_TRUTH:
		o->truth = arg;
		break;
	case O_API:
		if (job_api_named(arg, &o->api))
			argp_error(st, "'%s' is no API of ours", arg);
		break;
	case O_LATE:
		o->late = number(st, arg, 0, UINT64_MAX);
		break;
	case O_HOLD:
		o->hold = true;
		break;
	case O_HOLD_MS:
		o->hold_ms = (unsigned)number(st, arg, 0, 600000);
		break;
	case O_DEVICES:
		o->devices = (unsigned)number(st, arg, 1, 8);
		break;
	case O_GRAPH:
		o->graph = true;
		break;
	case O_NCCL:
		o->collectives = (unsigned)number(st, arg, 0, 1000);
		break;
	case O_CLIP:
		o->clip = true;
		break;
	case O_HOST:
		o->host_us = (unsigned)number(st, arg, 0, 10000000);
		break;
	case O_HOST_SLEEP:
		o->host_sleep_us = (unsigned)number(st, arg, 0, 10000000);
		break;
	case ARGP_KEY_ARG:
		argp_error(st, "unexpected argument '%s'", arg);
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* ---- training ---------------------------------------------------------------- */

#define CALLS 16 /* of a step's collectives, in the log */

struct trainer {
	const struct job_opts *o;
	struct job_loader *l;
	FILE *truth;
	void *dev_batch, *dev_loss;
	float loss;
	uint64_t step, wait_ns, begin;
	bool let_go;
	uint64_t calls[CALLS]; /* when its all-reduces were called */
};

/* A kernel is known by an address; these two stand for a model's layers. */
static const char kernel_forward, kernel_backward;

static int launch_all(const struct job_opts *o)
{
	int err = 0;

	if (o->graph)
		return job_gpu_replay();
	for (unsigned i = 0; i < o->launches && !err; i++)
		err = job_gpu_launch(i < o->launches / 3 ? &kernel_forward :
							   &kernel_backward);
	return err;
}

/* What a step does on the host beside loading: CPU time, then sleep. */
static void own_work(const struct job_opts *o)
{
	struct timespec ts = { o->host_sleep_us / 1000000,
			       (long)(o->host_sleep_us % 1000000) * 1000 };
	uint64_t end = job_cpu_now() + o->host_us * 1000ull;

	while (o->host_us && job_cpu_now() < end)
		;
	while (o->host_sleep_us && nanosleep(&ts, &ts) && errno == EINTR && !stop)
		;
}

static int compute(struct trainer *t, const unsigned char *data)
{
	const struct job_opts *o = t->o;
	int err;

	if (!job_gpu_ready())
		return 0;
	err = job_gpu_upload(t->dev_batch, data, t->l->batch_bytes);
	own_work(o);
	if (!err)
		err = launch_all(o);
	if (!err && o->clip)
		err = job_gpu_sync();
	for (unsigned i = 0; i < o->collectives && !err; i++) {
		if (i < CALLS)
			t->calls[i] = job_now();
		err = job_gpu_allreduce(t->dev_batch, t->l->batch_bytes / 4);
	}
	if (err || !o->sync_every || (t->step + 1) % o->sync_every)
		return err;
	/* loss.item(): a copy to pageable memory, and a sync */
	err = job_gpu_download(&t->loss, t->dev_loss, sizeof(t->loss));
	return err ? err : job_gpu_sync();
}

static int truth_line(struct trainer *t, const struct job_result *r,
		      const uint64_t at[4])
{
	const struct job_cost *c = &r->cost;

	if (!t->truth)
		return 0;
	fprintf(t->truth,
		"{\"step\":%" PRIu64 ",\"wait_begin\":%" PRIu64
		",\"wait_end\":%" PRIu64 ",\"compute_begin\":%" PRIu64
		",\"compute_end\":%" PRIu64 ",\"worker\":%d,\"batch\":%" PRIu64
		",\"ready\":%d",
		t->step, at[0], at[1], at[2], at[3], r->pid, r->batch,
		t->l->n && r->done_ns <= at[0]);
	for (unsigned i = 0; i < t->o->collectives && i < CALLS; i++)
		fprintf(t->truth, "%s%" PRIu64, i ? "," : ",\"calls\":[",
			t->calls[i]);
	if (t->o->collectives)
		fprintf(t->truth, "]");
	fprintf(t->truth,
		",\"load_begin\":%" PRIu64 ",\"load_end\":%" PRIu64
		",\"load_cpu\":%" PRIu64 ",\"items\":[],\"totals\":{\"read\":[%" PRIu64
		",%" PRIu64 "],\"sleep\":[%" PRIu64 ",0]}}\n",
		c->begin_ns, r->done_ns, c->cpu_ns, c->read_ns, c->read_cpu_ns,
		c->sleep_ns);
	if (!ferror(t->truth))
		return 0;
	fprintf(stderr, "simjob: cannot write the truth log\n");
	return -EIO;
}

/* Who the job is: first in the log, as in the logs of the tests' other jobs. */
static void truth_header(const struct trainer *t)
{
	if (!t->truth)
		return;
	fprintf(t->truth, "{\"truth\":1,\"pid\":%d,\"args\":{},\"workers\":[]}\n",
		(int)getpid());
	fprintf(t->truth, "{\"epoch\":0,\"begin\":%" PRIu64 ",\"end\":%" PRIu64
		",\"workers\":[", t->begin, t->begin);
	for (unsigned i = 0; i < t->l->n; i++)
		fprintf(t->truth, "%s%d", i ? "," : "", (int)t->l->w[i].pid);
	fprintf(t->truth, "]}\n");
}

/* Somebody wants to watch all of it, and says when. */
static void wait_for_line(struct trainer *t)
{
	char c;

	while (t->o->hold && !t->let_go && !stop &&
	       read(STDIN_FILENO, &c, 1) < 0 && errno == EINTR)
		;
	t->let_go = true;
}

static void pause_late(const struct trainer *t)
{
	const struct job_opts *o = t->o;
	struct timespec ts = { o->hold_ms / 1000,
			       (long)(o->hold_ms % 1000) * 1000000 };

	while (t->begin && o->hold_ms && nanosleep(&ts, &ts) &&
	       errno == EINTR && !stop)
		;
}

/* What the training needs of a library that was just opened. */
static int gpu_setup(struct trainer *t)
{
	const struct job_opts *o = t->o;
	int err = 0;

	wait_for_line(t);
	pause_late(t);
	if (!job_gpu_ready() || t->dev_batch)
		return 0;
	err = job_gpu_malloc(&t->dev_batch, t->l->batch_bytes);
	if (!err)
		err = job_gpu_malloc(&t->dev_loss, sizeof(t->loss));
	if (!err && o->pinned)
		err = job_gpu_pin(t->l->slots, t->l->slots_len);
	job_gpu_kernel_ns(o->kernel_us * 1000ull);
	if (!err && o->graph)
		err = job_gpu_record(&kernel_backward, o->launches);
	return err;
}

static int load_rest(struct trainer *t)
{
	int err = job_gpu_rest();

	return err ? err : gpu_setup(t);
}

static int train(struct trainer *t)
{
	const struct job_opts *o = t->o;
	int err = 0;

	wait_for_line(t);
	t->begin = job_now();
	truth_header(t);
	while (!stop && (!o->steps || t->step < o->steps)) {
		const unsigned char *data;
		struct job_result r;
		uint64_t at[4];

		at[0] = job_now();
		if (o->seconds > 0 &&
		    (double)(at[0] - t->begin) >= o->seconds * 1e9)
			break;
		err = job_loader_next(t->l, t->step, &r, &data, &stop);
		if (err == -EINTR)
			return 0;
		if (err)
			return err;
		if (o->late && t->step == o->late)
			err = load_rest(t);
		if (err)
			return err;
		at[1] = at[2] = job_now();
		err = compute(t, data);
		if (err)
			return err;
		at[3] = job_now();
		t->wait_ns += at[1] - at[0];
		err = truth_line(t, &r, at);
		if (err)
			return err;
		t->step++;
	}
	return job_gpu_finish();
}

static void describe(const struct job_opts *o)
{
	printf("simjob: pid %d trains on a simulated GPU: %u loader worker%s, "
	       "%u items of %u us CPU%s per batch, %.3g ms of GPU work per "
	       "step\n",
	       (int)getpid(), o->workers, o->workers == 1 ? "" : "s", o->items,
	       o->item_cpu_us, o->read_dir ? " and a file read" : "",
	       o->launches * (double)o->kernel_us / 1000);
	fflush(stdout);
}

static void summary(const struct trainer *t)
{
	double wall = (double)(job_now() - t->begin);

	fprintf(stderr,
		"simjob: %" PRIu64 " steps in %.1f s, waiting for data %.0f %%, "
		"GPU busy %.0f %%\n",
		t->step, wall / 1e9, 100 * (double)t->wait_ns / wall,
		100 * (double)job_gpu_busy_ns() / wall);
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options, .parser = parse,
		.doc = "A training job on a simulated GPU. By default its two "
		       "loader workers cannot keep the GPU busy.",
	};
	struct job_opts o = {
		.workers = 2, .prefetch = 2, .items = 32,
		.item_bytes = 224 * 224 * 3, .item_cpu_us = 1000,
		.files = 64, .kernel_us = 200, .launches = 20,
		.sync_every = 1, .seconds = 30, .slow_factor = 1,
		.jitter_pct = 20, .seed = 1, .devices = 1,
	};
	struct sigaction sa = { .sa_handler = on_signal };
	static struct job_loader loader;
	struct trainer t = { .o = &o, .l = &loader };
	int err;

	argp_err_exit_status = 2;
	if (argp_parse(&argp, argc, argv, 0, NULL, &o))
		return 2;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (o.truth && !(t.truth = fopen(o.truth, "we"))) {
		fprintf(stderr, "simjob: %s: %s\n", o.truth, strerror(errno));
		return 1;
	}
	err = job_files_make(&o);
	if (!err)
		err = job_gpu_open(o.api, o.late != 0, o.devices);
	if (!err && o.collectives)
		err = job_gpu_nccl_open();
	if (err)
		goto out;
	describe(&o);
	err = job_loader_start(&loader, &o);
	if (err)
		goto out;
	err = gpu_setup(&t);
	if (!err)
		err = train(&t);
	if (!err)
		summary(&t);
	if (!err && t.truth)
		fprintf(t.truth, "{\"end\":%" PRIu64 ",\"steps\":%" PRIu64 "}\n",
			job_now(), t.step);
	job_loader_stop(&loader);
out:
	if (t.truth && fclose(t.truth))
		err = -EIO;
	return err ? 1 : 0;
}
