// SPDX-License-Identifier: BSD-2-Clause
/*
 * Perfetto's trace format: one packet after the other, each written as soon as
 * it is made. Names, categories and texts are sent once and referred to by
 * number ("interned"). Field numbers: perfetto.proto, beside this file.
 */
#include "export/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "export/trace.h"
#include "perfetto.pb-c.h"

#define SEQUENCE 1	 /* all packets are of one sequence */
#define CLOCK_ID_REALTIME 1
#define CLOCK_ID_MONOTONIC 3
#define STATE_CLEARED 1
#define NEEDS_STATE 2
#define NEST_MAX 32
#define CACHE 1024 /* strings found by their address; a power of two */

typedef Perfetto__Protos__TracePacket packet;
typedef Perfetto__Protos__TrackEvent track_event;

enum space { NAMES, CATS, KEYS, TEXTS, SPACES };

struct text {
	uint64_t iid;
	UT_hash_handle hh;
	char raw[];
};

struct seen { /* texts live as long as the walk, so an address is a text */
	const char *at;
	uint64_t iid;
};

struct perfetto {
	struct pt_trace_writer w;
	FILE *out;
	uint8_t *buf;
	size_t cap;
	struct text *texts[SPACES];
	uint64_t last_iid[SPACES];
	struct seen cache[SPACES][CACHE];
	/* what the next packet is the first to name */
	Perfetto__Protos__EventName names[1], *names_at[1];
	Perfetto__Protos__EventCategory cats[1], *cats_at[1];
	Perfetto__Protos__DebugAnnotationName keys[PT_TRACE_ARGS],
		*keys_at[PT_TRACE_ARGS];
	Perfetto__Protos__InternedString strs[PT_TRACE_ARGS],
		*strs_at[PT_TRACE_ARGS];
	char *made[2 * PT_TRACE_ARGS + 2]; /* escaped copies of them */
	size_t n_made;
	Perfetto__Protos__InternedData fresh;
	/* slices of this track that have not ended */
	uint64_t track;
	uint64_t nest[NEST_MAX]; /* when they end */
	size_t depth;
};

/* ---- packets -------------------------------------------------------------- */

static size_t put_varint(uint8_t *to, uint64_t v)
{
	size_t n = 0;

	while (v >= 0x80) {
		to[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	to[n++] = (uint8_t)v;
	return n;
}

/* A member of Trace: its tag, its length, itself. */
static int put_packet(struct perfetto *p, packet *pk)
{
	size_t n, head;

	pk->has_trusted_packet_sequence_id = 1;
	pk->trusted_packet_sequence_id = SEQUENCE;
	n = perfetto__protos__trace_packet__get_packed_size(pk);
	if (n + 16 > p->cap) {
		uint8_t *more = realloc(p->buf, (n + 16) * 2);

		if (!more)
			return -ENOMEM;
		p->buf = more;
		p->cap = (n + 16) * 2;
	}
	p->buf[0] = 1 << 3 | 2;
	head = 1 + put_varint(p->buf + 1, n);
	perfetto__protos__trace_packet__pack(pk, p->buf + head);
	errno = 0;
	if (fwrite(p->buf, head + n, 1, p->out) != 1)
		return errno ? -errno : -EIO;
	return 0;
}

/* ---- texts by number ------------------------------------------------------ */

static void forget_fresh(struct perfetto *p)
{
	size_t i;

	for (i = 0; i < p->n_made; i++)
		free(p->made[i]);
	p->n_made = 0;
	p->fresh.n_event_names = p->fresh.n_event_categories = 0;
	p->fresh.n_debug_annotation_names = 0;
	p->fresh.n_debug_annotation_string_values = 0;
}

/* Tell of it in the next packet; each packet's arrays are long enough. */
static int tell(struct perfetto *p, enum space in, const char *raw,
		uint64_t iid)
{
	Perfetto__Protos__InternedData *f = &p->fresh;
	char *text = pt_str_utf8(raw, NULL);
	size_t i;

	if (!text)
		return -ENOMEM;
	p->made[p->n_made++] = text;
#define TELL(list, count)                                                      \
	i = f->count++;                                                        \
	p->list[i].has_iid = 1;                                                \
	p->list[i].iid = iid;                                                  \
	p->list[i].name = text;                                                \
	break
	switch (in) {
	case NAMES:
		TELL(names, n_event_names);
	case CATS:
		TELL(cats, n_event_categories);
	case KEYS:
		TELL(keys, n_debug_annotation_names);
	default:
		i = f->n_debug_annotation_string_values++;
		p->strs[i].has_iid = 1;
		p->strs[i].iid = iid;
		p->strs[i].has_str = 1;
		p->strs[i].str.data = (uint8_t *)text;
		p->strs[i].str.len = strlen(text);
		break;
	}
	return 0;
}

static int number_of(struct perfetto *p, enum space in, const char *raw,
		     uint64_t *iid)
{
	struct seen *c = &p->cache[in][((uintptr_t)raw >> 3 ^
					(uintptr_t)raw >> 13) & (CACHE - 1)];
	size_t len;
	struct text *t;
	int err;

	if (c->at == raw) {
		*iid = c->iid;
		return 0;
	}
	len = strlen(raw);
	HASH_FIND(hh, p->texts[in], raw, len, t);
	if (!t) {
		t = malloc(sizeof(*t) + len + 1);
		if (!t)
			return -ENOMEM;
		memcpy(t->raw, raw, len + 1);
		t->iid = ++p->last_iid[in];
		HASH_ADD(hh, p->texts[in], raw[0], len, t);
		if (!PT_HASHED(t)) {
			free(t);
			return -ENOMEM;
		}
		err = tell(p, in, raw, t->iid);
		if (err)
			return err;
	}
	c->at = raw;
	c->iid = *iid = t->iid;
	return 0;
}

/* ---- events --------------------------------------------------------------- */

static int put_event(struct perfetto *p, uint64_t ts, track_event *e)
{
	packet pk = PERFETTO__PROTOS__TRACE_PACKET__INIT;
	int err;

	pk.has_timestamp = 1;
	pk.timestamp = ts;
	pk.has_sequence_flags = 1;
	pk.sequence_flags = NEEDS_STATE;
	pk.track_event = e;
	if (p->n_made)
		pk.interned_data = &p->fresh;
	e->has_type = 1;
	e->has_track_uuid = 1;
	err = put_packet(p, &pk);
	forget_fresh(p);
	return err;
}

/* End the slices that are over at `ts`. */
static int end_until(struct perfetto *p, uint64_t ts)
{
	track_event e = PERFETTO__PROTOS__TRACK_EVENT__INIT;
	int err = 0;

	e.track_uuid = p->track;
	e.type = PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_SLICE_END;
	while (p->depth && p->nest[p->depth - 1] <= ts && !err)
		err = put_event(p, p->nest[--p->depth], &e);
	return err;
}

static const char *const cat_names[PT_CAT_NR] = {
	[PT_CAT_NONE] = "",
	[PT_CAT_STATE] = "state",
	[PT_CAT_STEP] = "step",
	[PT_CAT_WAIT] = "data_wait",
	[PT_CAT_BATCH] = "batch",
	[PT_CAT_RUNTIME] = "cuda_runtime",
	[PT_CAT_DRIVER] = "cuda_driver",
	[PT_CAT_COLLECTIVE] = "collective",
	[PT_CAT_DEVICE] = "device",
	[PT_CAT_KERNEL] = "kernel",
	[PT_CAT_COPY] = "gpu_memcpy",
	[PT_CAT_MEMSET] = "gpu_memset",
	[PT_CAT_RANGE] = "nvtx",
};

static int set_args(struct perfetto *p, const struct pt_trace_event *from,
		    Perfetto__Protos__DebugAnnotation *a)
{
	unsigned i;
	int err = 0;

	for (i = 0; i < from->n_args && !err; i++) {
		const struct pt_trace_arg *x = &from->arg[i];

		perfetto__protos__debug_annotation__init(&a[i]);
		a[i].has_name_iid = 1;
		err = number_of(p, KEYS, x->key, &a[i].name_iid);
		switch (x->type) {
		case PT_ARG_INT:
			a[i].has_int_value = 1;
			a[i].int_value = x->i;
			break;
		case PT_ARG_ID:
			a[i].has_uint_value = 1;
			a[i].uint_value = x->id;
			break;
		case PT_ARG_REAL:
			a[i].has_double_value = 1;
			a[i].double_value = x->d;
			break;
		case PT_ARG_STR:
			a[i].has_string_value_iid = 1;
			if (!err)
				err = number_of(p, TEXTS, x->s,
						&a[i].string_value_iid);
			break;
		}
	}
	return err;
}

static int begin_event(struct perfetto *p, const struct pt_trace_event *from,
		       Perfetto__Protos__TrackEvent__Type type)
{
	Perfetto__Protos__DebugAnnotation args[PT_TRACE_ARGS],
		*at[PT_TRACE_ARGS];
	track_event e = PERFETTO__PROTOS__TRACK_EVENT__INIT;
	uint64_t cat, out = from->flow_out, in = from->flow_in;
	unsigned i;
	int err = set_args(p, from, args);

	if (!err)
		err = number_of(p, CATS, cat_names[from->cat], &cat);
	if (!err && !from->name_once)
		err = number_of(p, NAMES, from->name, &e.name_iid);
	if (err)
		return err;
	for (i = 0; i < from->n_args; i++)
		at[i] = &args[i];
	e.has_name_iid = !from->name_once;
	if (from->name_once)
		e.name = (char *)from->name;
	e.n_category_iids = 1;
	e.category_iids = &cat;
	e.n_debug_annotations = from->n_args;
	e.debug_annotations = at;
	e.n_flow_ids = out != 0;
	e.flow_ids = &out;
	e.n_terminating_flow_ids = in != 0;
	e.terminating_flow_ids = &in;
	e.type = type;
	e.track_uuid = p->track;
	return put_event(p, from->begin, &e);
}

static int put_slice(struct pt_trace_writer *w, const struct pt_trace_event *e)
{
	struct perfetto *p = (struct perfetto *)w;
	int err = end_until(p, e->begin);

	if (!err)
		err = begin_event(p, e,
			PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_SLICE_BEGIN);
	if (err || p->depth == NEST_MAX)
		return err ? err : -E2BIG;
	p->nest[p->depth++] = e->end;
	return 0;
}

static int put_instant(struct pt_trace_writer *w,
		       const struct pt_trace_event *e)
{
	struct perfetto *p = (struct perfetto *)w;
	int err = end_until(p, e->begin);

	return err ? err : begin_event(p, e,
			PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_INSTANT);
}

static int put_value(struct pt_trace_writer *w, const struct pt_trace_track *t,
		     uint64_t ts, double v)
{
	struct perfetto *p = (struct perfetto *)w;
	track_event e = PERFETTO__PROTOS__TRACK_EVENT__INIT;

	e.type = PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_COUNTER;
	e.track_uuid = t->id;
	e.has_double_counter_value = 1;
	e.double_counter_value = v;
	return put_event(p, ts, &e);
}

/* ---- tracks --------------------------------------------------------------- */

static void set_unit(Perfetto__Protos__CounterDescriptor *c,
		     enum pt_track_unit u)
{
	static const char *const names[] = {
		[PT_UNIT_BYTES_S] = "bytes/s",
		[PT_UNIT_CORES] = "cores",
		[PT_UNIT_SHARE] = "share",
	};

	perfetto__protos__counter_descriptor__init(c);
	if (u == PT_UNIT_BYTES || u == PT_UNIT_COUNT) {
		c->has_unit = 1;
		c->unit = u == PT_UNIT_BYTES ?
			PERFETTO__PROTOS__COUNTER_DESCRIPTOR__UNIT__UNIT_SIZE_BYTES :
			PERFETTO__PROTOS__COUNTER_DESCRIPTOR__UNIT__UNIT_COUNT;
	} else if (u != PT_UNIT_NONE) {
		c->unit_name = (char *)names[u];
	}
}

static int put_track(struct pt_trace_writer *w, const struct pt_trace_track *t)
{
	struct perfetto *p = (struct perfetto *)w;
	Perfetto__Protos__TrackDescriptor d =
		PERFETTO__PROTOS__TRACK_DESCRIPTOR__INIT;
	Perfetto__Protos__ProcessDescriptor proc =
		PERFETTO__PROTOS__PROCESS_DESCRIPTOR__INIT;
	Perfetto__Protos__ThreadDescriptor th =
		PERFETTO__PROTOS__THREAD_DESCRIPTOR__INIT;
	Perfetto__Protos__CounterDescriptor c;
	packet pk = PERFETTO__PROTOS__TRACE_PACKET__INIT;
	int err = end_until(p, UINT64_MAX);
	char *name;

	if (err)
		return err;
	name = pt_str_utf8(t->name, NULL);
	if (!name)
		return -ENOMEM;
	p->track = t->id;
	d.has_uuid = 1;
	d.uuid = t->id;
	d.has_parent_uuid = t->parent != 0;
	d.parent_uuid = t->parent;
	d.name = name;
	proc.has_pid = th.has_pid = th.has_tid = 1;
	proc.pid = th.pid = (int32_t)t->pid;
	th.tid = (int32_t)t->tid;
	proc.process_name = th.thread_name = name;
	if (t->kind == PT_TRACK_PROCESS)
		d.process = &proc;
	else if (t->kind == PT_TRACK_THREAD)
		d.thread = &th;
	if (t->kind == PT_TRACK_COUNTER) {
		set_unit(&c, t->unit);
		d.counter = &c;
	}
	pk.track_descriptor = &d;
	err = put_packet(p, &pk);
	free(name);
	return err;
}

/* Which clock the times are of, and what it showed when. */
static int put_clock(struct perfetto *p, const struct pt_report *r)
{
	Perfetto__Protos__ClockSnapshot__Clock mono =
		PERFETTO__PROTOS__CLOCK_SNAPSHOT__CLOCK__INIT, real = mono;
	Perfetto__Protos__ClockSnapshot__Clock *both[] = { &mono, &real };
	Perfetto__Protos__ClockSnapshot s = PERFETTO__PROTOS__CLOCK_SNAPSHOT__INIT;
	Perfetto__Protos__TracePacketDefaults d =
		PERFETTO__PROTOS__TRACE_PACKET_DEFAULTS__INIT;
	packet pk = PERFETTO__PROTOS__TRACE_PACKET__INIT, first = pk;
	int err;

	mono.has_clock_id = mono.has_timestamp = 1;
	mono.clock_id = CLOCK_ID_MONOTONIC;
	mono.timestamp = (uint64_t)r->capture.begin_ns;
	real = mono;
	real.clock_id = CLOCK_ID_REALTIME;
	real.timestamp = (uint64_t)r->capture.begin_unix_ns;
	s.clocks = both;
	s.n_clocks = r->capture.begin_unix_ns > 0 ? 2 : 1;
	s.has_primary_trace_clock = 1;
	s.primary_trace_clock = CLOCK_ID_MONOTONIC;
	pk.clock_snapshot = &s;
	err = put_packet(p, &pk);
	d.has_timestamp_clock_id = 1;
	d.timestamp_clock_id = CLOCK_ID_MONOTONIC;
	first.trace_packet_defaults = &d;
	first.has_sequence_flags = 1;
	first.sequence_flags = STATE_CLEARED;
	return err ? err : put_packet(p, &first);
}

static void init_fresh(struct perfetto *p)
{
	size_t i;

	perfetto__protos__interned_data__init(&p->fresh);
	perfetto__protos__event_name__init(&p->names[0]);
	perfetto__protos__event_category__init(&p->cats[0]);
	p->names_at[0] = &p->names[0];
	p->cats_at[0] = &p->cats[0];
	for (i = 0; i < PT_TRACE_ARGS; i++) {
		perfetto__protos__debug_annotation_name__init(&p->keys[i]);
		perfetto__protos__interned_string__init(&p->strs[i]);
		p->keys_at[i] = &p->keys[i];
		p->strs_at[i] = &p->strs[i];
	}
	p->fresh.event_names = p->names_at;
	p->fresh.event_categories = p->cats_at;
	p->fresh.debug_annotation_names = p->keys_at;
	p->fresh.debug_annotation_string_values = p->strs_at;
}

static void release(struct perfetto *p)
{
	struct text *t, *next;
	int i;

	forget_fresh(p);
	for (i = 0; i < SPACES; i++) {
		HASH_ITER(hh, p->texts[i], t, next) {
			HASH_DEL(p->texts[i], t);
			free(t);
		}
	}
	free(p->buf);
	free(p);
}

int pt_export_perfetto(const struct pt_export *x, FILE *out)
{
	struct perfetto *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	p->w = (struct pt_trace_writer){ .track = put_track, .slice = put_slice,
					 .instant = put_instant,
					 .value = put_value };
	p->out = out;
	init_fresh(p);
	err = put_clock(p, x->r);
	if (!err)
		err = pt_trace_walk(x, &p->w);
	if (!err)
		err = end_until(p, UINT64_MAX);
	release(p);
	return err;
}
