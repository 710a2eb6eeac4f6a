/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a seed stands for. Loops as most people write them are the most likely:
 * one device, one or two streams, a sync in every step or every few; each of
 * the other habits gets its share.
 */
#include "gpujob.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define US 1000.0
#define MS 1000000.0

static const char *const api_names[] = { "runtime", "over", "driver", "hip" };
static const char *const sync_names[] = {
	"device", "stream", "event", "item", "mix", "poll_event", "poll_stream",
	"never",
};
static const char *const gap_names[] = { "spin", "sleep", "feeder" };
static const char *const stream_names[] = { "default", "blocking",
					    "nonblocking", "thread" };
static const char *const how_names[] = { "block", "spin", "yield" };

const char *gj_api_name(enum gj_api_kind api)
{
	return api_names[api];
}

uint64_t gj_rand(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

double gj_unit(uint64_t *state)
{
	return (double)(gj_rand(state) >> 11) / 9007199254740992.0;
}

static bool chance(uint64_t *r, double p)
{
	return gj_unit(r) < p;
}

static unsigned between(uint64_t *r, unsigned lo, unsigned hi)
{
	return lo + (unsigned)(gj_rand(r) % (hi - lo + 1));
}

/* Each power of ten as likely as the next. */
static double log_between(uint64_t *r, double lo, double hi)
{
	return lo * exp(gj_unit(r) * log(hi / lo));
}

/* An index by weight; the weights sum to 100. */
static unsigned pick(uint64_t *r, const unsigned *weights)
{
	unsigned x = (unsigned)(gj_rand(r) % 100), i = 0;

	while (x >= weights[i])
		x -= weights[i++];
	return i;
}

/* ---- one phase ------------------------------------------------------------- */

static void draw_kernels(const struct gj_plan *p, struct gj_phase *f,
			 uint64_t *r, double device_ns)
{
	double weight[GJ_KERNELS], sum = 0;

	for (unsigned k = 0; k < p->kernels; k++)
		weight[k] = log_between(r, 1, 50);
	for (unsigned i = 0; i < f->launches; i++) {
		f->seq[i] = (uint8_t)(gj_rand(r) % p->kernels);
		sum += weight[f->seq[i]];
	}
	for (unsigned k = 0; k < p->kernels; k++)
		f->ns[k] = (uint64_t)fmin(fmax(device_ns * weight[k] / sum,
					       5 * US), 20 * MS);
	f->device_ns = 0;
	for (unsigned i = 0; i < f->launches; i++)
		f->device_ns += f->ns[f->seq[i]];
}

/* Kind and distance of the syncs. */
static void draw_sync(struct gj_phase *f, uint64_t *r)
{
	/* every step: device, stream, event, item; every 2 to 20 steps; every
	 * 50 and more; never; polling; a mixture */
	static const unsigned weights[] = { 12, 15, 8, 25, 18, 5, 5, 6, 6 };
	unsigned x = pick(r, weights);

	f->every = 1;
	if (x < 4) {
		f->sync = (enum gj_sync)x;
	} else if (x < 6) {
		f->sync = (enum gj_sync)(gj_rand(r) % 4);
		f->every = x == 4 ? between(r, 2, 20) : between(r, 50, 100);
	} else if (x == 6) {
		f->sync = GJ_NEVER;
	} else if (x == 7) {
		f->sync = chance(r, 0.5) ? GJ_POLL_EVENT : GJ_POLL_STREAM;
		f->poll_ns = chance(r, 0.2) ?
				     0 : (uint64_t)log_between(r, 10 * US, 300 * US);
	} else {
		f->sync = GJ_MIX;
		f->every = between(r, 1, 4);
	}
}

static void draw_phase(const struct gj_plan *p, struct gj_phase *f, uint64_t *r)
{
	static const unsigned gaps[] = { 35, 30, 35 };
	double device_ns, host_ns;

	memset(f, 0, sizeof(*f));
	draw_sync(f, r);
	/* a stretch without a sync stays well below the time that is traced */
	device_ns = log_between(r, 0.3 * MS, f->every > 20 ? 6 * MS :
					     f->every > 5  ? 20 * MS : 40 * MS);
	f->launches = (unsigned)log_between(r, 1, GJ_LAUNCHES);
	draw_kernels(p, f, r, device_ns);
	f->gap = (enum gj_gap)pick(r, gaps);
	host_ns = (double)f->device_ns * log_between(r, 0.02, f->every > 20 ? 2 : 5);
	f->host_ns = (uint64_t)fmin(fmax(host_ns, 20 * US), 80 * MS);
	if (chance(r, 0.3))
		f->launch_ns = (uint64_t)log_between(r, 1 * US, 30 * US);
	f->copies = chance(r, 0.8) ? between(r, 1, 3) : 0;
	f->copy_bytes = (uint64_t)log_between(r, 4096, 8 << 20);
	f->memset = chance(r, 0.2);
}

/* ---- the whole ------------------------------------------------------------- */

static void draw_devices(struct gj_plan *p, uint64_t *r)
{
	static const unsigned weights[] = { 76, 16, 8 };

	p->devices = 1 + pick(r, weights);
	p->threads = chance(r, 0.5) && p->devices > 1;
	p->set_once = chance(r, 0.2) && p->threads;
	/* a context handle does not tell the device's number */
	if (p->api == GJ_DRIVER)
		p->devices = 1, p->threads = p->set_once = false;
}

static void draw_streams(struct gj_plan *p, uint64_t *r)
{
	static const unsigned count[] = { 58, 24, 10, 8 };
	static const unsigned kinds[] = { 60, 12, 20, 8 };

	p->streams = 1 + pick(r, count);
	p->kind = (enum gj_streams)pick(r, kinds);
	p->copy_stream = chance(r, 0.5) && p->streams > 1;
	p->join = chance(r, 0.7);
	p->graph = chance(r, 0.14);
	p->helper = chance(r, 0.15) && !p->graph && p->kind != GJ_S_THREAD;
}

void gj_draw(struct gj_plan *p, uint64_t seed, int api)
{
	static const unsigned apis[] = { 55, 20, 15, 10 };
	static const unsigned hows[] = { 60, 30, 10 };
	uint64_t mixed = seed;
	/* neighbouring seeds must not walk the same sequence */
	uint64_t rng = gj_rand(&mixed), *r = &rng;

	memset(p, 0, sizeof(*p));
	p->seed = seed;
	p->api = (enum gj_api_kind)pick(r, apis);
	if (api >= 0)
		p->api = (enum gj_api_kind)api;
	draw_devices(p, r);
	draw_streams(p, r);
	p->concurrent = chance(r, 0.2);
	p->sync_how = pick(r, hows);
	p->queue = chance(r, 0.2) ? (unsigned)log_between(r, 16, 256) : 1024;
	p->pinned = chance(r, 0.6);
	p->kernels = between(r, 1, GJ_KERNELS);
	for (unsigned k = 0; k < p->kernels; k++)
		p->vary[k] = chance(r, 0.25);
	p->phases = chance(r, 0.15) ? 2 : 1;
	for (unsigned i = 0; i < p->phases; i++)
		draw_phase(p, &p->phase[i], r);
}

static void print_phase(const struct gj_phase *f, FILE *o)
{
	fprintf(o,
		"{\"sync\": \"%s\", \"every\": %u, \"gap\": \"%s\", "
		"\"host_us\": %.0f, \"launch_us\": %.1f, \"launches\": %u, "
		"\"device_us\": %.0f, \"copies\": %u, \"copy_bytes\": %" PRIu64
		", \"poll_us\": %.0f, \"memset\": %s}",
		sync_names[f->sync], f->every, gap_names[f->gap],
		(double)f->host_ns / US, (double)f->launch_ns / US, f->launches,
		(double)f->device_ns / US, f->copies, f->copy_bytes,
		(double)f->poll_ns / US, f->memset ? "true" : "false");
}

void gj_print(const struct gj_plan *p, FILE *o)
{
	const struct { const char *name; bool value; } flags[] = {
		{ "threads", p->threads }, { "set_once", p->set_once },
		{ "concurrent", p->concurrent }, { "graph", p->graph },
		{ "helper", p->helper }, { "pinned", p->pinned },
		{ "copy_stream", p->copy_stream }, { "join", p->join },
	};
	unsigned varying = 0;

	for (unsigned k = 0; k < p->kernels; k++)
		varying += p->vary[k];
	fprintf(o, "{\"seed\": %" PRIu64 ", \"api\": \"%s\", \"devices\": %u, "
		"\"streams\": %u, \"stream_kind\": \"%s\", \"sync_how\": \"%s\", "
		"\"queue\": %u, \"kernels\": %u, \"varying\": %u",
		p->seed, api_names[p->api], p->devices, p->streams,
		stream_names[p->kind], how_names[p->sync_how], p->queue,
		p->kernels, varying);
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		fprintf(o, ", \"%s\": %s", flags[i].name,
			flags[i].value ? "true" : "false");
	fputs(", \"phases\": [", o);
	for (unsigned i = 0; i < p->phases; i++) {
		fputs(i ? ", " : "", o);
		print_phase(&p->phase[i], o);
	}
	fputs("]}\n", o);
}
