/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clocks that ask threads on a core for their stack of Python (bpf/pystack.bpf.c): one
 * perf event on each core, from the moment that the job has a Python which can be read. The
 * program belongs to the event itself, without a link of its own: half as many
 * descriptors, and what is left of a killed tracer is as little, nothing.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "capture/procfs.h"
#include "capture/session.h"

#define MAX_CPUS 4096
#define ONLINE "/sys/devices/system/cpu/online"

struct pt_pyclock {
	unsigned hz, over; /* seconds in a row in which all took too much */
	bool open, quiet;
	struct pt_py_counts was; /* at the last tick, as the next two */
	uint64_t reader_ns, at;
	char online[1024]; /* CPUs whose events are open, as ONLINE has them */
	size_t n;
	int fd[MAX_CPUS];
};

/* ---- the events --------------------------------------------------------------------- */

static int open_cpu(struct pt_pyclock *k, int prog, int cpu)
{
	struct perf_event_attr a = {
		.size = sizeof(a), .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_CPU_CLOCK,
		.freq = 1, .sample_freq = k->hz, .exclude_idle = 1, .disabled = k->quiet,
	};
	int fd = (int)syscall(SYS_perf_event_open, &a, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (ioctl(fd, PERF_EVENT_IOC_SET_BPF, prog)) {
		int err = -errno;

		close(fd);
		return err;
	}
	k->fd[k->n++] = fd;
	return 0;
}

/* ---- what an interrupt takes -------------------------------------------------------- */

#define TICK_PERIOD_NS 50000
#define TICK_TURNS 5
#define TICK_WORK_NS 300000 /* of a turn */
#define TICK_UNKNOWN_NS 5000
#define TICK_MAX_NS 100000

static uint64_t work(unsigned long n)
{
	uint64_t begin = pt_now_ns();
	volatile unsigned long i;

	for (i = 0; i < n; i++)
		;
	return pt_now_ns() - begin;
}

/*
 * ns of this thread's time: one microsecond on a plain machine, twenty on a virtual machine
 * inside of another. The same work with interrupts and without, in turns; the shortest of
 * each are those that nobody else had a part of the core in.
 */
static uint32_t measure_tick(void)
{
	struct perf_event_attr a = {
		.size = sizeof(a), .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = TICK_PERIOD_NS, .disabled = 1,
	};
	int fd = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC), i;
	uint64_t with = UINT64_MAX, without = UINT64_MAX;
	unsigned long n = 20000;

	if (fd < 0)
		return TICK_UNKNOWN_NS;
	without = work(n); /* and it is warm */
	n = (unsigned long)((double)n * TICK_WORK_NS / (double)(without + 1));
	without = UINT64_MAX;
	for (i = 0; i < TICK_TURNS; i++) {
		without = pt_min64(without, work(n));
		ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
		with = pt_min64(with, work(n));
		ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	}
	close(fd);
	with = pt_max64(with, without + 1);
	return (uint32_t)fmin((double)(with - without) * TICK_PERIOD_NS / (double)with, TICK_MAX_NS);
}

static void close_all(struct pt_pyclock *k)
{
	while (k->n)
		close(k->fd[--k->n]);
	k->open = false;
}

static int open_all(struct pt_capture *c)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF), i;
	struct pt_pyclock *k = c->pyclock;
	int r;

	if (cpus < 1 || cpus > MAX_CPUS)
		return -EINVAL;
	if (pt_file_read(ONLINE, k->online, sizeof(k->online)) < 0)
		k->online[0] = '\0';
	for (i = 0; i < cpus; i++) {
		r = open_cpu(k, bpf_program__fd(c->skel->progs.pt_py_clock), (int)i);
		if (r && r != -ENODEV) { /* ENODEV: the CPU is offline */
			close_all(k);
			return r;
		}
	}
	k->open = k->n;
	return k->n ? 0 : -ENODEV;
}

/* The event of a CPU that went offline is dead, and one that comes has none. */
static void follow_cpus(struct pt_capture *c)
{
	struct pt_pyclock *k = c->pyclock;
	char now[sizeof(k->online)];

	if (pt_file_read(ONLINE, now, sizeof(now)) < 0 || !strcmp(now, k->online))
		return;
	close_all(k);
	if (open_all(c)) /* once more, later */
		snprintf(k->online, sizeof(k->online), "?");
}

/* Each core in a rhythm of its own that changes every second, by a tenth at most: no loop of
 * the job's keeps step with it for long. */
static void set_rhythm(struct pt_pyclock *k)
{
	size_t i;

	for (i = 0; i < k->n; i++) {
		uint64_t period = (uint64_t)(1e9 / k->hz * (0.9 + 0.2 * (double)random() / RAND_MAX));

		/* one that does not take it goes on as before, and is met again */
		if (ioctl(k->fd[i], PERF_EVENT_IOC_PERIOD, &period))
			continue;
	}
}

/* ---- which processes ---------------------------------------------------------------- */

int pt_capture_py_ring(const struct pt_capture *c, size_t *bytes)
{
	const struct bpf_map *m = c->skel->maps.pt_py_ring;

	*bytes = bpf_map__max_entries(m);
	return c->pyclock ? bpf_map__fd(m) : -1;
}

int pt_capture_py_add(struct pt_capture *c, pid_t pid, const struct pt_py_where *where)
{
	uint32_t key = (uint32_t)pid;
	int r = 0;

	if (!c->pyclock || c->stopped || !pt_is_target(c, pid))
		return -EOPNOTSUPP;
	if (!c->pyclock->open) {
		if (!c->skel->bss->pt_py_tick)
			c->skel->bss->pt_py_tick = measure_tick();
		r = open_all(c);
	}
	if (!r && bpf_map_update_elem(bpf_map__fd(c->skel->maps.pt_py_processes), &key, where, BPF_ANY))
		r = -errno;
	return r;
}

bool pt_capture_py_has(const struct pt_capture *c, pid_t pid)
{
	uint32_t key = (uint32_t)pid;
	struct pt_py_where w;

	return c->pyclock && c->pyclock->open &&
	       !bpf_map_lookup_elem(bpf_map__fd(c->skel->maps.pt_py_processes), &key, &w);
}

void pt_capture_py_remove(struct pt_capture *c, pid_t pid)
{
	uint32_t key = (uint32_t)pid;

	/* -ENOENT: it was none of them, as most are not */
	if (c->pyclock && bpf_map_delete_elem(bpf_map__fd(c->skel->maps.pt_py_processes), &key))
		return;
}

void pt_capture_py_keep(struct pt_capture *c, bool (*stays)(void *ctx, pid_t pid), void *ctx)
{
	int map = c->pyclock ? bpf_map__fd(c->skel->maps.pt_py_processes) : -1;
	uint32_t key, next;
	bool more = map >= 0 && !bpf_map_get_next_key(map, NULL, &key);

	while (more) {
		more = !bpf_map_get_next_key(map, &key, &next);
		if (!stays(ctx, (pid_t)key))
			pt_capture_py_remove(c, (pid_t)key);
		key = next;
	}
}

void pt_capture_py_quiet(struct pt_capture *c, bool quiet)
{
	struct pt_pyclock *k = c->pyclock;
	size_t i;

	if (!k || k->quiet == quiet)
		return;
	k->quiet = quiet;
	for (i = 0; i < k->n; i++)
		ioctl(k->fd[i], quiet ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE, 0);
}

/* ---- what it costs ------------------------------------------------------------------ */

void pt_capture_py_counts(const struct pt_capture *c, struct pt_py_counts *out, unsigned *hz)
{
	const volatile struct pt_py_counts *k = &c->skel->bss->pt_py_counts;

	*out = (struct pt_py_counts){ k->samples, k->ns, k->tried, k->unread, k->no_stack, k->full };
	*hz = c->pyclock && c->pyclock->open ? c->pyclock->hz : 0;
}

#define OVER 2 /* one alone may have had its core taken away */

/* Of one core, since the last tick. More than its part: half as often from now on, for all
 * threads alike, so that no thread's looks weigh less than another's. */
void pt_capture_py_tick(struct pt_capture *c, uint64_t reader_ns, double most)
{
	struct pt_pyclock *k = c->pyclock;
	uint64_t now = pt_now_ns();
	struct pt_py_counts n;
	unsigned hz;
	double ns;

	if (!k || !k->open)
		return;
	follow_cpus(c);
	pt_capture_py_counts(c, &n, &hz);
	ns = (double)(n.ns - k->was.ns) + (double)(reader_ns - k->reader_ns);
	k->over = k->at && ns > most * (double)(now - k->at) ? k->over + 1 : 0;
	if (k->over >= OVER && k->hz > 1) {
		k->hz /= 2;
		k->over = 0;
	}
	set_rhythm(k);
	k->was = n;
	k->reader_ns = reader_ns;
	k->at = now;
}

/* ---- all of it ---------------------------------------------------------------------- */

void pt_pyclock_choose(struct pt_capture *c, bool wanted)
{
	struct pipetrace_bpf *s = c->skel;

	bpf_program__set_autoload(s->progs.pt_py_clock, wanted && c->feat.py_clock);
	if (wanted && c->feat.py_clock)
		return;
	bpf_map__set_autocreate(s->maps.pt_py_ring, false);
	bpf_map__set_autocreate(s->maps.pt_py_processes, false);
	bpf_map__set_autocreate(s->maps.pt_py_scratch, false);
}

void pt_pyclock_new(struct pt_capture *c)
{
	if (bpf_program__fd(c->skel->progs.pt_py_clock) < 0)
		return;
	c->pyclock = calloc(1, sizeof(*c->pyclock));
	if (c->pyclock)
		c->pyclock->hz = PT_PY_HZ;
}

void pt_pyclock_free(struct pt_pyclock *k)
{
	if (!k)
		return;
	close_all(k);
	free(k);
}
