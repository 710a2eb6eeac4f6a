// SPDX-License-Identifier: BSD-2-Clause
/*
 * Chrome's trace event format (JSON), dressed as torch.profiler dresses it:
 * the categories, the steps' names and the data loader's operator are those
 * that its analysers look for. Times are microseconds from a base that a double
 * holds exactly; whatever may pass 2^53 is a text.
 */
#include "view/export.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"
#include "view/timeline/trace.h"

#define NS_PER_S 1000000000ull
/* The operator that analysers take for waiting for data. */
#define DATA_WAIT "enumerate(DataLoader)#pipetrace.__next__"

struct chrome {
	struct pt_trace_writer w;
	FILE *out;
	uint64_t begin;	 /* of the capture, monotonic */
	uint64_t offset; /* what it is behind the base */
	bool any;
};

/* ---- JSON ----------------------------------------------------------------- */

static int put_text(FILE *f, const char *raw)
{
	char *text = pt_str_utf8(raw, NULL), *c;

	if (!text)
		return -ENOMEM;
	putc_unlocked('"', f);
	for (c = text; *c; c++) {
		if (*c == '"' || *c == '\\') {
			putc_unlocked('\\', f);
			putc_unlocked(*c, f);
		} else if ((unsigned char)*c < ' ' || *c == 0x7f) {
			fprintf(f, "\\u%04x", *c);
		} else {
			putc_unlocked(*c, f);
		}
	}
	putc_unlocked('"', f);
	free(text);
	return 0;
}

/*
 * Times go out as whole multiples of 1/1024 us. A thousandth of a microsecond is
 * none that a double holds: readers that add a length, or take the first time
 * off, would see neighbours overlap by the rounding, and nest them. These sums
 * are exact, and rounded to nanoseconds they are what was recorded.
 */
static int64_t units_of(int64_t ns)
{
	const int64_t most = 1ll << 52; /* only damage goes beyond */
	int64_t v, q;

	ns = ns > most ? most : ns < -most ? -most : ns;
	v = ns * 1024 + 500;
	q = v / 1000;

	return v % 1000 < 0 ? q - 1 : q;
}

static void put_units(FILE *f, int64_t units)
{
	uint64_t v = units < 0 ? 0 - (uint64_t)units : (uint64_t)units;
	uint64_t rest = (v & 1023) * 9765625; /* 1e10 / 1024 */
	int digits = 10;

	fprintf(f, "%s%" PRIu64, units < 0 ? "-" : "", v >> 10);
	if (!rest)
		return;
	for (; rest % 10 == 0; rest /= 10)
		digits--;
	fprintf(f, ".%0*" PRIu64, digits, rest);
}

/* Nanoseconds as microseconds. */
static void put_us(FILE *f, int64_t ns)
{
	put_units(f, units_of(ns));
}

static void next(struct chrome *c)
{
	fputs(c->any ? ",\n" : "\n", c->out);
	c->any = true;
}

static int64_t since_base(const struct chrome *c, uint64_t ts)
{
	return (int64_t)(ts - c->begin + c->offset);
}

/* ---- tracks --------------------------------------------------------------- */

/* A lane is a thread of its own to these viewers: a number above all ids. */
static uint32_t lane_tid(const struct pt_trace_track *t)
{
	if (t->kind == PT_TRACK_LANE)
		return t->lane << 24 | (t->number ? t->number : t->tid);
	return t->kind == PT_TRACK_PROCESS ? t->pid : t->tid;
}

static int put_meta(struct chrome *c, const struct pt_trace_track *t,
		    const char *what, const char *name)
{
	int err;

	next(c);
	fprintf(c->out, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%" PRIu32
		",\"tid\":%" PRIu32 ",\"args\":{\"name\":", what, t->pid,
		lane_tid(t));
	err = put_text(c->out, name);
	fputs("}}", c->out);
	return err ? err : pt_err_written(c->out);
}

static int put_track(struct pt_trace_writer *w, const struct pt_trace_track *t)
{
	struct chrome *c = (struct chrome *)w;
	char name[32];

	switch (t->kind) {
	case PT_TRACK_PROCESS:
		return put_meta(c, t, "process_name", t->name);
	case PT_TRACK_THREAD:
		return put_meta(c, t, "thread_name", t->name);
	case PT_TRACK_LANE:
		if (!t->tid)
			return put_meta(c, t, "thread_name", t->name);
		snprintf(name, sizeof(name), "%" PRIu32 " %s", t->tid, t->name);
		return put_meta(c, t, "thread_name", name);
	default:
		return 0; /* counters are told with their values */
	}
}

/* ---- events --------------------------------------------------------------- */

static const char *const cat_names[] = {
#define X(id, perfetto, chrome) chrome,
	PT_TRACE_CATS(X)
#undef X
};

static int put_arg(FILE *f, const struct pt_trace_arg *a)
{
	fprintf(f, "\"%s\":", a->key);
	switch (a->type) {
	case PT_ARG_INT:
		fprintf(f, "%" PRId64, a->i);
		break;
	case PT_ARG_ID: /* beyond 2^53 a number would not stay what it is */
		if (a->id >> 53)
			fprintf(f, "\"%" PRIu64 "\"", a->id);
		else
			fprintf(f, "%" PRIu64, a->id);
		break;
	case PT_ARG_REAL:
		if (isfinite(a->d))
			fprintf(f, "%.17g", a->d);
		else
			fputs("null", f);
		break;
	case PT_ARG_STR:
		return put_text(f, a->s);
	}
	return 0;
}

static void put_flow(struct chrome *c, const struct pt_trace_event *e,
		     uint64_t id, const char *ph, uint64_t ts)
{
	/* from a call to its work on the device, as torch.profiler calls it */
	const char *cat = e->cat == PT_CAT_BATCH || e->cat == PT_CAT_WAIT ?
				  "batch" : "ac2g";

	next(c);
	fprintf(c->out, "{\"ph\":%s,\"cat\":\"%s\",\"name\":\"%s\","
		"\"id\":\"%" PRIu64 "\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32
		",\"ts\":", ph, cat, cat, id, e->track->pid,
		lane_tid(e->track));
	put_us(c->out, since_base(c, ts));
	putc_unlocked('}', c->out);
}

static int put_slice(struct pt_trace_writer *w, const struct pt_trace_event *e)
{
	struct chrome *c = (struct chrome *)w;
	bool wait = e->cat == PT_CAT_WAIT;
	unsigned i;
	int err;

	next(c);
	fprintf(c->out, "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":",
		cat_names[e->cat]);
	err = put_text(c->out, wait ? DATA_WAIT : e->name);
	fprintf(c->out, ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"ts\":",
		e->track->pid, lane_tid(e->track));
	put_us(c->out, since_base(c, e->begin));
	fputs(",\"dur\":", c->out);
	put_units(c->out, units_of(since_base(c, e->end)) -
				  units_of(since_base(c, e->begin)));
	if (e->n_args || wait)
		fputs(",\"args\":{", c->out);
	if (wait) {
		fputs("\"cause\":", c->out);
		err = err ? err : put_text(c->out, e->name);
	}
	for (i = 0; i < e->n_args && !err; i++) {
		if (i || wait)
			putc_unlocked(',', c->out);
		err = put_arg(c->out, &e->arg[i]);
	}
	fputs(e->n_args || wait ? "}}" : "}", c->out);
	if (e->flow_out)
		put_flow(c, e, e->flow_out, "\"s\"", e->begin);
	if (e->flow_in)
		put_flow(c, e, e->flow_in, "\"f\",\"bp\":\"e\"",
			 e->end - (e->end > e->begin)); /* still inside */
	return err ? err : pt_err_written(c->out);
}

static int put_value(struct pt_trace_writer *w, const struct pt_trace_track *t,
		     uint64_t ts, double v)
{
	struct chrome *c = (struct chrome *)w;
	int err;

	if (!isfinite(v))
		return 0;
	next(c);
	fputs("{\"ph\":\"C\",\"name\":", c->out);
	err = put_text(c->out, t->name);
	fprintf(c->out, ",\"pid\":%" PRIu32 ",\"ts\":", t->pid);
	put_us(c->out, since_base(c, ts));
	fprintf(c->out, ",\"args\":{\"value\":%.17g}}", v);
	return err ? err : pt_err_written(c->out);
}

/* ---- the document --------------------------------------------------------- */

/* What torch.profiler says about ranks. */
static void put_ranks(struct chrome *c, const struct pt_export *x)
{
	const struct pt_lanes *l = x->lanes;
	const struct pt_proc *p;
	size_t i;

	for (i = 0; i < l->n_trainers; i++) {
		const struct pt_lane_trainer *t = &l->trainers[i];

		p = pt_model_proc(x->m, t->tgid);
		if (!t->top || t->rank == PT_NULL || !p ||
		    !p->facts.hdr.size)
			continue;
		fprintf(c->out, "\"distributedInfo\":{\"rank\":%" PRId64, t->rank);
		if (p->facts.world > 0)
			fprintf(c->out, ",\"world_size\":%d", p->facts.world);
		fputs("},\n", c->out);
	}
}

static int put_head(struct chrome *c, const struct pt_export *x)
{
	const struct pt_r_capture *r = &x->r->capture;
	uint64_t unix_ns = r->begin_unix_ns > 0 ? (uint64_t)r->begin_unix_ns : 0;
	int err;

	c->begin = (uint64_t)r->begin_ns;
	c->offset = unix_ns % NS_PER_S;
	fprintf(c->out, "{\"schemaVersion\":1,\n\"displayTimeUnit\":\"ms\",\n"
		"\"baseTimeNanoseconds\":%" PRIu64 ",\n\"deviceProperties\":[],\n",
		unix_ns - c->offset);
	put_ranks(c, x);
	fputs("\"otherData\":{\"tool\":\"pipetrace\",\"version\":", c->out);
	err = put_text(c->out, x->r->host.version ? x->r->host.version : "");
	fprintf(c->out, ",\"begin_ns\":\"%" PRId64 "\",\"end_ns\":\"%" PRId64
		"\",\"begin_unix_ns\":\"%" PRIu64 "\",\"lost_records\":%" PRId64
		",\"complete\":%s},\n\"traceEvents\":[", r->begin_ns, r->end_ns,
		unix_ns, r->lost_total, r->complete ? "true" : "false");
	return err ? err : pt_err_written(c->out);
}

int pt_export_chrome(const struct pt_export *x, FILE *out)
{
	struct chrome c = {
		.w = { .track = put_track, .slice = put_slice,
		       /* calls of no known length among them */
		       .instant = put_slice, .value = put_value },
		.out = out,
	};
	int err;

	errno = 0;
	err = put_head(&c, x);
	err = err ?: pt_trace_walk(x, &c.w);
	fputs("\n]}\n", out);
	return err ? err : pt_err_written(out);
}
