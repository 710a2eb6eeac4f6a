/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/session.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "capture/discover.h"
#include "capture/disks.h"
#include "capture/hostinfo.h"
#include "capture/kernels.h"
#include "capture/ktypes.h"
#include "capture/sampler.h"
#include "capture/selftest.h"

#define PT_MAX_SAMPLED 512 /* processes that are sampled */
/* A sample reads five files. Of more processes each is sampled every second, third, ... time. */
#define SAMPLED_AT_ONCE 128
#define PT_MAX_QUEUE (4u << 20)
#define NAMES_MS 300 /* at the end, for the names of the last kernels */

static const char *const modes[] = { [PT_MODE_LIGHT] = "light",
				     [PT_MODE_STANDARD] = "standard",
				     [PT_MODE_FULL] = "full" };

const char *pt_mode_name(enum pt_mode m)
{
	return m <= PT_MODE_FULL ? modes[m] : "unknown";
}

int pt_mode_parse(const char *name, enum pt_mode *out)
{
	unsigned m;

	for (m = PT_MODE_LIGHT; m <= PT_MODE_FULL; m++) {
		if (!strcmp(name, modes[m])) {
			*out = (enum pt_mode)m;
			return 0;
		}
	}
	return -EINVAL;
}

void pt_warn(struct pt_capture *c, const char *fmt, ...)
{
	char msg[PT_ERR_LEN];
	va_list ap;

	if (!c->warn)
		return;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	c->warn(c->warn_ctx, msg);
}

struct pt_hook_state *pt_hook(struct pt_capture *c, const char *need)
{
	size_t i;

	for (i = 0; i < c->n_hooks; i++)
		if (!strcmp(c->hooks[i].need, need))
			return &c->hooks[i];
	if (c->n_hooks < PT_MAX_HOOKS)
		c->n_hooks++;
	c->hooks[c->n_hooks - 1] = (struct pt_hook_state){ .need = need,
							   .door = "none" };
	return &c->hooks[c->n_hooks - 1];
}

void pt_hook_set(struct pt_capture *c, const char *need, const char *door,
		 const char *note, ...)
{
	struct pt_hook_state *h = pt_hook(c, need);
	va_list ap;

	h->door = door;
	va_start(ap, note);
	vsnprintf(h->note, sizeof(h->note), note, ap);
	va_end(ap);
}

/* ---- records made on this side ------------------------------------------- */

void pt_queue_record(struct pt_capture *c, const void *rec, size_t len)
{
	if (c->queue_len + len > c->queue_cap) {
		size_t cap = c->queue_cap ? 2 * c->queue_cap : 4096;
		unsigned char *p;

		p = cap <= PT_MAX_QUEUE ? realloc(c->queue, cap) : NULL;
		if (!p) {
			c->loss[PT_LOSS_MEMORY]++;
			return;
		}
		c->queue = p;
		c->queue_cap = cap;
	}
	memcpy(c->queue + c->queue_len, rec, len);
	c->queue_len += len;
}

void pt_flush_queue(struct pt_capture *c, pt_record_fn fn, void *ctx)
{
	size_t at = 0;
	struct pt_hdr h;

	while (at + sizeof(h) <= c->queue_len) {
		memcpy(&h, c->queue + at, sizeof(h));
		fn(ctx, c->queue + at, h.size);
		c->events++;
		at += h.size;
	}
	c->queue_len = 0;
}

static void queue_mark(struct pt_capture *c, uint32_t mark, uint64_t ts)
{
	uint64_t unix_ns = pt_clock_ns(CLOCK_REALTIME), now = pt_now_ns();
	struct pt_rec_mark m;

	pt_rec_begin(&m, sizeof(m), PT_REC_MARK, ts ? ts : now, (uint32_t)c->trainer);
	m.mark = mark;
	m.unix_ns = unix_ns - (now - m.hdr.ts);
	pt_queue_record(c, &m, sizeof(m));
}

void pt_queue_loss(struct pt_capture *c)
{
	struct pt_rec_loss l;

	pt_rec_begin(&l, sizeof(l), PT_REC_LOSS, pt_now_ns(), 0);
	pt_capture_loss(c, (uint64_t *)l.count);
	pt_queue_record(c, &l, sizeof(l));
}

/* ---- open ------------------------------------------------------------------- */

static void hand_on(struct pt_capture *c, const void *rec, size_t len)
{
	c->events++;
	pt_kernels_see(c->kernels, rec, len);
	pt_disks_see(c->disks, rec);
	c->fn(c->fn_ctx, rec, len);
}

/* A record of its own for each call. */
static void hand_on_calls(struct pt_capture *c, const struct pt_ring_calls *r, size_t len)
{
	size_t n = (len - offsetof(struct pt_ring_calls, call)) / sizeof(r->call[0]), i;
	struct pt_rec_gpu one = { .hdr = r->hdr };

	one.hdr.size = sizeof(one);
	one.hdr.kind = PT_REC_GPU_ENTER;
	for (i = 0; i < n && i < PT_CALLS_MAX; i++) {
		const struct pt_ring_call *k = &r->call[i];

		one.hdr.ts = r->begin_ts + (k->after & ~PT_CALL_UNREAD);
		one.hdr.seq = r->hdr.seq + (uint32_t)i;
		one.hdr.flags = k->after & PT_CALL_UNREAD ? PT_F_READ_FAILED : 0;
		one.api = PT_COOKIE_API(k->id);
		one.lib = PT_COOKIE_LIB(k->id);
		one.stream = k->stream;
		one.v[0] = k->v;
		hand_on(c, &one, sizeof(one));
	}
}

static int on_record(void *ctx, void *data, size_t len)
{
	struct pt_capture *c = ctx;
	const struct pt_hdr *h = data;

	/* A slot may be larger than its record (file names), never smaller. */
	if (len < sizeof(*h) || h->size < sizeof(*h) || h->size > len ||
	    h->size > PT_REC_MAX) {
		c->loss[PT_LOSS_MALFORMED]++;
		return 0;
	}
	if (h->kind != PT_REC_CALLS)
		hand_on(c, data, h->size);
	else if (h->size >= offsetof(struct pt_ring_calls, call))
		hand_on_calls(c, data, h->size);
	else
		c->loss[PT_LOSS_MALFORMED]++;
	return h->ts > c->drain_until ? -EAGAIN : 0;
}

static int open_roots(struct pt_capture *c, const struct pt_capture_opts *o,
		      struct pt_err *err)
{
	size_t i;

	if (!o->n_pids || o->n_pids > PT_MAX_ROOTS)
		return pt_err_set(err, -EINVAL,
				  "between 1 and %d processes can be traced at once",
				  PT_MAX_ROOTS);
	for (i = 0; i < o->n_pids; i++) {
		int fd = (int)syscall(SYS_pidfd_open, o->pids[i], 0);

		if (fd < 0)
			return pt_err_set(err, -errno,
					  "there is no process %d",
					  (int)o->pids[i]);
		c->roots[i] = o->pids[i];
		c->root_fd[i] = fd;
		c->n_roots = i + 1;
	}
	return 0;
}

static int check_features(struct pt_capture *c, struct pt_err *err)
{
	int r = pt_features_probe(&c->feat);

	if (r)
		return pt_err_set(err, r, "cannot find out what this kernel "
				  "allows: %s", strerror(-r));
	if (c->feat.missing[0])
		return pt_err_set(err, c->feat.cap_bpf ? -EOPNOTSUPP : -EPERM,
				  "pipetrace needs %s", c->feat.missing);
	return 0;
}

static void open_gpu(struct pt_capture *c, const struct pt_capture_opts *o)
{
	bool multi = c->feat.uprobe_multi && !o->no_uprobe_multi;
	char found[120];

	if (!c->feat.uprobe) {
		pt_hook_set(c, "gpu", "none",
			    "this kernel has no uprobes with cookies (5.15): GPU "
			    "calls are not seen");
		return;
	}
	if (o->no_gpu_probes) {
		pt_hook_set(c, "gpu", "none", "--no-gpu-probes: GPU calls are not seen");
		return;
	}
	if (!pt_selftest(multi)->works) {
		pt_selftest_text(pt_selftest(multi), found, sizeof(found));
		pt_hook_set(c, "gpu", "none", "the self-test failed: %s", found);
		return;
	}
	if (pt_uprobes_new(c, multi)) {
		pt_hook_set(c, "gpu", "none", "out of memory");
		return;
	}
	if (pt_selftest(true)->opened && !pt_selftest(true)->works) {
		pt_selftest_text(pt_selftest(true), found, sizeof(found));
		pt_warn(c, "GPU calls are hooked by perf events: by multi-uprobe links %s", found);
	}
	c->nvtx = pt_nvtx_new(multi);
	pt_devwatch_open(c);
	/* Watch for new mappings before looking at those that are there. */
	c->maps = pt_mapwatch_new();
	if (c->maps)
		pt_hook_set(c, "libs", "mmap2", "%s", "");
	else
		pt_hook_set(c, "libs", "poll",
			    "GPU libraries mapped later are noticed up to a "
			    "second late");
	c->kernels = pt_kernels_new();
	pt_uprobes_scan(c);
}

static void queue_host(struct pt_capture *c)
{
	struct pt_rec_host h;

	memset(&h, 0, sizeof(h));
	pt_host_record(c->trainer, pt_now_ns(), &h);
	c->cores = h.cores;
	h.read_door = c->read_door;
	h.read_more = c->read_more;
	h.fault_door = c->fault_door;
	pt_queue_record(c, &h, sizeof(h));
}

int pt_capture_open(struct pt_capture **out, const struct pt_capture_opts *o,
		    struct pt_err *err)
{
	struct pt_capture *c = calloc(1, sizeof(*c));
	const struct pt_ktypes *k;
	size_t i;
	int r;

	*out = NULL;
	if (!c)
		return pt_err_set(err, -ENOMEM, "out of memory");
	for (i = 0; i < PT_MAX_ROOTS; i++)
		c->root_fd[i] = -1;
	c->mode = o->mode;
	c->warn = o->warn;
	c->warn_ctx = o->ctx;
	c->trainer = o->trainer ? o->trainer : o->n_pids ? o->pids[0] : 0;

	c->disks = pt_disks_new();
	pt_haste_open(&c->haste);
	r = open_roots(c, o, err);
	k = pt_ktypes_get(); /* once for all of it */
	if (!r)
		r = check_features(c, err);
	if (!r)
		r = pt_load(c, o, err);
	pt_ktypes_put(k);
	if (r)
		goto out;
	r = pt_records_open(c, on_record, err);
	if (r)
		goto out;
	queue_host(c);
	/* from here there are records, and a crowd fills the ring before somebody reads */
	pt_haste_read(&c->haste, pt_haste_starved(), pt_now_ns());
	r = pt_targets_fill(c, err);
	if (r)
		goto out;
	pt_socks_pass(c, PT_PASS_SEED, 0);
	pt_pyclock_new(c);
	open_gpu(c, o);
	if (o->step_marker)
		r = pt_marker_open(c, o, err);
	if (r)
		goto out;
	pt_neighbours(c);
	pt_memory(c);
	pt_blocks_tick(c); /* what was before is not of the capture */
	c->cost.budget = o->budget;
	/* every system call pays there, which nobody counts */
	c->cost.unknown = c->read_door == PT_DOOR_SYSCALL;
	if (!pt_run_pass(c, PT_PASS_COUNT, 0))
		pt_cost_tick(c);
	queue_mark(c, PT_MARK_BEGIN, 0);
	*out = c;
out:
	if (r)
		pt_capture_close(c, NULL, NULL);
	return r;
}

/* ---- running ------------------------------------------------------------------ */

size_t pt_capture_fds(struct pt_capture *c, int *fds, size_t max)
{
	size_t n = 0;

	if (n < max)
		fds[n++] = pt_ringbuf_fd(c->ring);
	if (c->maps && n < max)
		fds[n++] = pt_mapwatch_fd(c->maps);
	return n;
}

static void on_mapped(void *ctx, pid_t pid, struct pt_gpulib *g)
{
	struct pt_capture *c = ctx;

	if (c->stopped)
		return;
	if (!pt_is_target(c, pid)) {
		pt_neighbour_mapped(c, pid, g->path_display);
		return;
	}
	if (pt_nvtx_lib(g->path_display) ||
	    pt_gpulib_mapped(pid, g, pt_uprobes_driver(c, pid)))
		pt_uprobes_process(c, pid);
}

static void on_name(void *ctx, const struct pt_rec_name *rec)
{
	pt_queue_record(ctx, rec, sizeof(*rec));
}

/* Records of several CPUs are in order but for this. */
#define REORDERED_NS UINT64_C(1000000)

int pt_capture_drain(struct pt_capture *c, pt_record_fn fn, void *ctx)
{
	uint64_t before = c->events;
	int r;

	if (c->maps)
		pt_mapwatch_drain(c->maps, on_mapped, c);
	pt_devwatch_drain(c);
	pt_uprobes_names(c, false);
	pt_kernels_take(c->kernels, on_name, c);
	pt_flush_queue(c, fn, ctx);
	c->fn = fn;
	c->fn_ctx = ctx;
	/* What came up to now. A job that writes faster than a tracer reads that gets little
	 * of a core would keep it from its ticks, its time limit and its signals. */
	c->drain_until = pt_now_ns() + REORDERED_NS;
	/* it is woken at a quarter */
	pt_haste_read(&c->haste, pt_ringbuf_waiting(c->ring) > bpf_map__max_entries(c->skel->maps.pt_ring) / 2,
		      pt_now_ns());
	r = pt_ringbuf_read(c->ring);
	pt_outside_take(c);
	if (r < 0 && r != -EAGAIN)
		return r;
	return (int)(c->events - before);
}

static bool sampled_before(const struct pt_capture *c, pid_t pid)
{
	size_t i;

	for (i = 0; i < c->n_sampled; i++)
		if (c->sampled[i] == pid)
			return true;
	return false;
}

void pt_sample_tree(struct pt_capture *c)
{
	pid_t pids[PT_MAX_SAMPLED];
	size_t n = pt_capture_processes(c, pids, PT_MAX_SAMPLED), i;
	size_t turns = (n + SAMPLED_AT_ONCE - 1) / SAMPLED_AT_ONCE;
	struct pt_throttled throttled = { .ns = 0 };
	struct pt_rec_sample s;
	struct pt_rec_proc facts;
	bool before;

	pt_memory(c);
	if (!c->sampled)
		c->sampled = calloc(PT_MAX_SAMPLED, sizeof(*c->sampled));
	c->ticks++;
	for (i = 0; i < n; i++) {
		before = sampled_before(c, pids[i]);
		if ((before && ((size_t)pids[i] + c->ticks) % turns) ||
		    pt_sample_process(pids[i], pt_now_ns(), &throttled, &s))
			continue;
		pt_queue_record(c, &s, sizeof(s));
		if (!c->sampled || before)
			continue;
		pt_proc_facts(pids[i], pt_now_ns(), &facts);
		pt_queue_record(c, &facts, sizeof(facts));
	}
	if (c->sampled) {
		memcpy(c->sampled, pids, n * sizeof(*pids));
		c->n_sampled = n;
	}
}

int pt_capture_tick(struct pt_capture *c, pt_record_fn fn, void *ctx)
{
	int r, d;

	if (c->stopped)
		return 0;
	r = c->quiet ? 0 : pt_run_pass(c, PT_PASS_OPEN, 0);
	if (!c->quiet) {
		if (!r)
			pt_cost_tick(c);
		pt_sample_tree(c);
		pt_blocks_tick(c);
		pt_disks_tick(c, c->disks);
	}
	pt_outside_tick(c);
	pt_uprobes_reap(c);
	pt_marker_scan(c); /* what it lacks, its hook's note tells */
	pt_uprobes_tick(c);
	if (!c->maps || pt_mapwatch_moved(c->maps))
		pt_uprobes_scan(c);
	pt_missed_tick(c, pt_now_ns());
	pt_queue_loss(c);
	d = pt_capture_drain(c, fn, ctx);
	return r ? r : d;
}

int pt_capture_stop(struct pt_capture *c, pt_record_fn fn, void *ctx)
{
	uint64_t end;
	int r, d;

	if (c->stopped)
		return 0;
	c->stopped = true;
	c->skel->bss->pt_armed = 0;
	end = pt_now_ns();
	/* Room for the final pass. */
	d = pt_capture_drain(c, fn, ctx);
	r = pt_run_pass(c, PT_PASS_FINAL, end);
	if (!r)
		pt_cost_tick(c);
	pt_socks_pass(c, PT_PASS_FINAL, end);
	if (pt_capture_target_gone(c))
		queue_mark(c, PT_MARK_TARGET_EXIT, end);
	else
		pt_sample_tree(c);
	pt_blocks_tick(c);
	if (d >= 0)
		d = pt_capture_drain(c, fn, ctx);
	pt_disks_tick(c, c->disks);
	pt_uprobes_names(c, true);
	pt_kernels_settle(c->kernels, NAMES_MS);
	pt_kernels_take(c->kernels, on_name, c);
	/* its thread has rights that are not needed any more */
	pt_kernels_free(c->kernels);
	c->kernels = NULL;
	pt_neighbours(c);
	pt_missed_tick(c, end);
	pt_queue_loss(c);
	queue_mark(c, PT_MARK_END, end);
	pt_flush_queue(c, fn, ctx);
	pt_haste_close(&c->haste); /* an analysis may be next */
	return r ? r : d < 0 ? d : 0;
}

void pt_capture_close(struct pt_capture *c,
		      void (*pending)(void *ctx, unsigned probes), void *ctx)
{
	struct pt_holders holders;
	unsigned probes;
	size_t i;

	if (!c)
		return;
	pt_hold_all(&holders);
	probes = pt_uprobes_links(c->uprobes);
	if (c->skel && c->skel->bss)
		c->skel->bss->pt_armed = 0;
	pt_haste_close(&c->haste);
	pt_kernels_free(c->kernels);
	pt_blocks_free(c->blocks);
	pt_missed_free(c);
	pt_disks_free(c->disks);
	pt_mapwatch_free(c->maps);
	pt_marker_free(c->marker);
	pt_nvtx_free(c->nvtx);
	pt_pyclock_free(c->pyclock);
	pt_devwatch_free(c->devices);
	pt_uprobes_free(c->uprobes);
	pt_ringbuf_free(c->ring);
	pipetrace_bpf__destroy(c->skel);
	for (i = 0; i < c->n_roots; i++)
		if (c->root_fd[i] >= 0)
			close(c->root_fd[i]);
	free(c->queue);
	free(c->sampled);
	if (c->has_spare)
		close(c->spare);
	free(c);
	pt_let_go(&holders, probes, pending, ctx);
}

/* ---- asking -------------------------------------------------------------------- */

size_t pt_capture_hooks(const struct pt_capture *c,
			const struct pt_hook_state **out)
{
	*out = c->hooks;
	return c->n_hooks;
}

void pt_capture_hook(struct pt_capture *c, const char *need, const char *door,
		     const char *note)
{
	pt_hook_set(c, need, door, "%s", note);
}

void pt_capture_lost_elsewhere(struct pt_capture *c, unsigned cause,
			       uint64_t total)
{
	if (cause < PT_LOSS_NR)
		c->loss[cause] = total;
}

void pt_capture_spent_elsewhere(struct pt_capture *c, uint64_t ns)
{
	c->cost.elsewhere_ns = ns;
}

uint32_t pt_capture_saved(const struct pt_capture *c)
{
	return c->cost.saved;
}

void pt_capture_loss(struct pt_capture *c, uint64_t count[PT_LOSS_NR])
{
	const volatile __u64 *k = c->skel->bss->pt_loss;
	size_t i;

	for (i = 0; i < PT_LOSS_NR; i++)
		count[i] = c->loss[i] + k[i];
}

const struct pt_features *pt_capture_features(const struct pt_capture *c)
{
	return &c->feat;
}

uint64_t pt_capture_events(const struct pt_capture *c)
{
	return c->events;
}
