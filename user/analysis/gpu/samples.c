/* SPDX-License-Identifier: BSD-2-Clause */
/* What the driver's own samples (NVML) add to the report: each device's name,
 * utilisation, memory, clocks and what held them down; and the series. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/gpu/passes.h"
#include "analysis/health.h"
#include "analysis/internal.h"
#include "analysis/verdicts/thresholds.h"

#define NONE UINT32_MAX

/* nvmlClocksThrottleReasons bits; the first (idle) holds nothing down. */
static const char *const reasons[] = {
	NULL, "applications_clocks_setting", "sw_power_cap", "hw_slowdown",
	"sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown",
	"hw_power_brake_slowdown", "display_clock_setting",
};
#define N_REASONS (sizeof(reasons) / sizeof(reasons[0]))

static bool in_window(const struct pt_an *an, const struct pt_rec_device *d)
{
	return d->hdr.ts >= an->t0 && d->hdr.ts < an->t1;
}

/* What tells which of the driver's devices is meant: what the process calls it, what any
 * does, that a traced one uses it, that it is there. */
enum sign { BY_PROCESS, BY_ORDINAL, BY_USE, BY_BEING };

static bool fits(const struct pt_rec_device *d, enum sign by, uint32_t pid, int64_t o)
{
	if (by == BY_USE || by == BY_BEING)
		return by == BY_BEING || d->traced > 0;
	return o >= 0 && pt_device_is(d, (uint32_t)o) && (by == BY_ORDINAL || d->pid == pid);
}

/*
 * The one device that fits in some sample; NONE: there is none, or there are
 * several, and which is meant nobody knows.
 */
static uint32_t only(const struct pt_an *an, enum sign by, uint32_t pid, int64_t ordinal)
{
	uint32_t index = NONE;

	pt_each(const struct pt_rec_device, d, &an->m->devices) {
		if (!in_window(an, d) || !fits(d, by, pid, ordinal))
			continue;
		if (index != NONE && index != d->index)
			return NONE;
		index = d->index;
	}
	return index;
}

/* The driver's number of a device of the report. */
static uint32_t index_of(const struct pt_an *an, const struct pt_r_gpu *g)
{
	int64_t o = g->index == PT_NULL ? -1 : g->index;
	uint32_t pid = pt_real_id(an->top->proc->tgid), i = NONE;
	/* one device of the job, and one that is used, or there, whoever uses it */
	enum sign by, last = an->r->n_gpu == 1 ? BY_BEING : BY_ORDINAL;

	for (by = BY_PROCESS; by <= last && i == NONE; by++)
		i = only(an, by, pid, o);
	return i;
}

struct sums {
	double *util, *mhz, *x, *mem;
	size_t n_util, n_mhz, n_mem;
	uint64_t reasons; /* in any sample */
	bool alone; /* one process, a traced one, in every sample */
	const struct pt_rec_device *last;
};

static void add_sample(const struct pt_an *an, struct sums *s,
		       const struct pt_rec_device *d)
{
	if (d->util != PT_DEVICE_UNKNOWN)
		s->util[s->n_util++] = d->util / 100.0;
	if (d->sm_mhz != PT_DEVICE_UNKNOWN)
		s->mhz[s->n_mhz++] = d->sm_mhz;
	if (d->mem_used != UINT64_MAX) {
		s->x[s->n_mem] = pt_sec(d->hdr.ts - an->t0);
		s->mem[s->n_mem++] = (double)d->mem_used;
	}
	if (d->throttle != UINT64_MAX)
		s->reasons |= d->throttle;
	s->alone &= d->procs == 1 && d->traced == 1;
	s->last = d;
}

static int fill_memory(const struct sums *s, struct pt_r_gpu *g)
{
	size_t i;
	double peak = 0, slope;
	int err;

	if (!s->n_mem)
		return 0;
	for (i = 0; i < s->n_mem; i++)
		peak = fmax(peak, s->mem[i]);
	g->mem_reserved = (int64_t)s->mem[s->n_mem - 1];
	g->mem_peak = (int64_t)peak;
	/* of the job only when nobody else is there */
	if (!s->alone || s->n_mem < PT_GROWTH_SURE_POINTS)
		return 0;
	err = pt_theil_sen(s->x, s->mem, s->n_mem, &slope);
	if (!err)
		g->mem_growth_per_min = 60 * slope;
	return err;
}

static int fill_reasons(const struct pt_an *an, const struct sums *s,
			struct pt_r_device *o)
{
	const char **list = pt_arena_calloc(an->a, N_REASONS, sizeof(*list));
	size_t i;

	if (!list)
		return -ENOMEM;
	for (i = 0; i < N_REASONS; i++)
		if (reasons[i] && s->reasons & 1ull << i)
			list[o->n_throttle++] = reasons[i];
	o->throttle = list;
	return 0;
}

static int64_t count_of(uint32_t n)
{
	return n == PT_DEVICE_UNKNOWN ? PT_NULL : (int64_t)n;
}

static int fill_device(const struct pt_an *an, const struct sums *s,
		       struct pt_r_gpu *g)
{
	struct pt_r_device *o = &g->device;
	const struct pt_rec_device *d = s->last;
	int err = fill_reasons(an, s, o);

	if (err)
		return err;
	o->known = true;
	o->name = d->name[0] ? pt_arena_strdup(an->a, d->name) : NULL;
	g->uuid = d->uuid[0] ? pt_arena_strdup(an->a, d->uuid) : NULL;
	if ((d->name[0] && !o->name) || (d->uuid[0] && !g->uuid))
		return -ENOMEM;
	if (s->n_util)
		pt_dist_of(s->util, s->n_util, &o->util);
	if (s->n_mhz)
		pt_dist_of(s->mhz, s->n_mhz, &o->sm_mhz);
	o->sm_max_mhz = count_of(d->sm_max_mhz);
	o->processes = count_of(d->procs);
	o->traced = d->procs == PT_DEVICE_UNKNOWN ? PT_NULL : d->traced;
	g->mem_total = d->mem_total == UINT64_MAX ? PT_NULL :
						    (int64_t)d->mem_total;
	return fill_memory(s, g);
}

/*
 * The driver's utilisation is the share of its sample period in which a kernel ran
 * (nvml.h, nvmlUtilization_t), so copies come on top. It narrows what is likely
 * where the job has the device alone; what is certain stays, and where the two
 * contradict each other the calls are believed. Of two samples a second the first
 * and the last reach over the window's edges, and the counter has its own error.
 */
#define UTIL_OFF 0.05
/* Where copies are not told apart, they take no longer than so slowly. */
#define COPY_SLOW_NS 20000.0
#define COPY_SLOW_BYTES_PER_NS 0.5
static double copies_at_most(const struct pt_an *an, const struct pt_r_gpu *g)
{
	double n = (double)(g->copies_h2d + g->copies_d2h + g->copies_other);

	if (isfinite(g->copy))
		return g->copy;
	return (n * COPY_SLOW_NS + (double)g->copy_bytes / COPY_SLOW_BYTES_PER_NS) /
	       (double)(an->t1 - an->t0);
}

static void narrow(const struct pt_an *an, const struct sums *s, struct pt_r_gpu *g)
{
	double off = UTIL_OFF + 0.5 / (double)(s->n_util ? s->n_util : 1);
	double lo = g->device.util.mean - off, hi = g->device.util.mean + off;

	if (!s->alone || s->n_util < 2 || g->certainty == PT_MEASURED)
		return;
	hi += copies_at_most(an, g);
	lo = fmax(lo, g->busy_likely[0]);
	hi = fmin(hi, g->busy_likely[1]);
	if (isfinite(g->busy_share)) { /* the guess stays inside */
		lo = fmin(lo, g->busy_share);
		hi = fmax(hi, g->busy_share);
	}
	if (lo > hi)
		return;
	g->busy_likely[0] = lo;
	g->busy_likely[1] = hi;
	g->idle_likely[0] = 1 - hi;
	g->idle_likely[1] = 1 - lo;
}

/* Samples that lie half a second apart see a part of the time: by chance their mean
 * is off by twice its standard error. */
double pt_idle_by_driver(const struct pt_an *an, const struct pt_trainer *t, double *least,
			 double *most)
{
	double sum = 0, squares = 0, mean, off;
	size_t n = 0;

	pt_each(const struct pt_rec_device, d, &an->m->devices) {
		double util = d->util / 100.0;

		if (!in_window(an, d) || !d->traced || d->util == PT_DEVICE_UNKNOWN ||
		    (d->pid && d->pid != pt_real_id(t->proc->tgid))) /* another rank's */
			continue;
		if (d->procs != 1) /* whose kernels are they? */
			return NAN;
		sum += util;
		squares += util * util;
		n++;
	}
	if (n < 2)
		return NAN;
	mean = sum / (double)n;
	off = UTIL_OFF + 0.5 / (double)n +
	      2 * sqrt(fmax(0, squares / (double)n - mean * mean) /
		       (double)(n - 1));
	*least = fmax(0, 1 - mean - off);
	*most = fmin(1, 1 - mean + off);
	return 1 - mean;
}

/* Free memory by the last sample before `ts`; PT_NULL: unknown. */
static int64_t free_before(const struct pt_an *an, uint32_t index, uint64_t ts)
{
	int64_t bytes = PT_NULL;

	pt_each(const struct pt_rec_device, d, &an->m->devices) {
		if (d->hdr.ts > ts)
			break;
		if (d->index == index && d->mem_total != UINT64_MAX &&
		    d->mem_used <= d->mem_total &&
		    d->mem_total - d->mem_used <= INT64_MAX)
			bytes = (int64_t)(d->mem_total - d->mem_used);
	}
	return bytes;
}

static int fill_gpu(const struct pt_an *an, struct pt_r_gpu *g)
{
	uint32_t index = index_of(an, g);
	size_t n = an->m->devices.n, i;
	struct sums s = { .alone = true };
	double *room;
	int err = 0;

	if (index == NONE)
		return 0;
	room = malloc(4 * n * sizeof(*room));
	if (!room)
		return -ENOMEM;
	s.util = room;
	s.mhz = room + n;
	s.x = room + 2 * n;
	s.mem = room + 3 * n;
	for (i = 0; i < n; i++)
		if (an->m->devices.v[i].index == index &&
		    in_window(an, &an->m->devices.v[i]))
			add_sample(an, &s, &an->m->devices.v[i]);
	if (s.last)
		err = fill_device(an, &s, g);
	if (!err && s.last)
		narrow(an, &s, g);
	for (i = 0; i < g->n_alloc_failures; i++)
		g->alloc_failures[i].free_bytes =
			free_before(an, index, g->alloc_failures[i].last_ns);
	free(room);
	return err;
}

/* Mean utilisation and sum of the memory of the devices that the target uses,
 * each by its last sample in the interval. */
static void fill_point(const struct pt_an *an, size_t from, size_t to,
		       uint32_t machine, struct pt_r_point *p)
{
	double util = 0, mem = 0;
	size_t i, k, n_util = 0, n_mem = 0;

	for (i = from; i < to; i++) {
		const struct pt_rec_device *d = &an->m->devices.v[i];

		if (!d->traced && d->index != machine)
			continue;
		for (k = i + 1; k < to; k++)
			if (an->m->devices.v[k].index == d->index)
				break;
		if (k < to) /* a later one of it */
			continue;
		if (d->util != PT_DEVICE_UNKNOWN) {
			util += d->util / 100.0;
			n_util++;
		}
		if (d->mem_used != UINT64_MAX) {
			mem += (double)d->mem_used;
			n_mem++;
		}
	}
	if (n_util)
		p->gpu_util = util / (double)n_util;
	if (n_mem)
		p->gpu_mem = mem;
}

static void fill_series(const struct pt_an *an, struct pt_r_point *v, size_t n)
{
	uint32_t machine = only(an, BY_BEING, 0, 0);
	size_t i = 0, from, k;

	while (i < an->m->devices.n && an->m->devices.v[i].hdr.ts < an->t0)
		i++;
	for (k = 0; k < n; k++) {
		uint64_t end = an->t0 + (k + 1) * NS_PER_S;

		from = i;
		while (i < an->m->devices.n && an->m->devices.v[i].hdr.ts < end)
			i++;
		fill_point(an, from, i, machine, &v[k]);
	}
}

int pt_fill_devices(struct pt_an *an)
{
	size_t i;
	int err = 0;

	if (!an->m->devices.n)
		return 0;
	fill_series(an, (struct pt_r_point *)an->r->series, an->r->n_series);
	for (i = 0; i < an->r->n_gpu && an->top && !err; i++)
		err = fill_gpu(an, (struct pt_r_gpu *)&an->r->gpu[i]);
	return err;
}
