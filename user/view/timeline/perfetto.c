// SPDX-License-Identifier: BSD-2-Clause
/*
 * Perfetto's trace format: one packet after the other, each written as soon as
 * it is made. Names, categories and texts are sent once and referred to by
 * number ("interned"). Field numbers: perfetto.proto, beside this file.
 */
#include "view/export.h"

#include <errno.h>
#include <stdlib.h>

#include "base/str.h"
#include "view/timeline/perfetto_int.h"

/* ---- events --------------------------------------------------------------- */

/*
 * Readers take for a flow's source what begins first, and the batch of a wait
 * is made while the wait lasts: its flow ends in a moment behind the wait.
 */
static int batch_obtained(struct perfetto *p, uint64_t ts, uint64_t flow)
{
	track_event e = PERFETTO__PROTOS__TRACK_EVENT__INIT;
	uint64_t cat;
	int err = pt_pf_number(p, PT_PF_CATS, "batch", &cat);

	err = err ?: pt_pf_number(p, PT_PF_NAMES, "batch obtained", &e.name_iid);
	if (err)
		return err;
	e.has_name_iid = 1;
	e.n_category_iids = e.n_terminating_flow_ids = 1;
	e.category_iids = &cat;
	e.terminating_flow_ids = &flow;
	e.track_uuid = p->track;
	e.type = PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_INSTANT;
	return pt_pf_event(p, ts, &e);
}

/* End the slices that are over at `ts`. */
static int end_until(struct perfetto *p, uint64_t ts)
{
	track_event e = PERFETTO__PROTOS__TRACK_EVENT__INIT;
	int err = 0;

	e.track_uuid = p->track;
	e.type = PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_SLICE_END;
	while (p->depth && p->nest[p->depth - 1].end <= ts && !err) {
		p->depth--;
		err = pt_pf_event(p, p->nest[p->depth].end, &e);
		if (!err && p->nest[p->depth].got)
			err = batch_obtained(p, p->nest[p->depth].end,
					     p->nest[p->depth].got);
	}
	return err;
}

static const char *const cat_names[] = {
#define X(id, perfetto, chrome) perfetto,
	PT_TRACE_CATS(X)
#undef X
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
		err = pt_pf_number(p, PT_PF_KEYS, x->key, &a[i].name_iid);
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
			err = err ?: pt_pf_number(p, PT_PF_TEXTS, x->s, &a[i].string_value_iid);
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
	bool wait = from->cat == PT_CAT_WAIT && from->end > from->begin;
	uint64_t cat, out = from->flow_out, in = wait ? 0 : from->flow_in;
	unsigned i;
	int err = set_args(p, from, args);

	err = err ?: pt_pf_number(p, PT_PF_CATS, cat_names[from->cat], &cat);
	if (!err && !from->name_once)
		err = pt_pf_number(p, PT_PF_NAMES, from->name, &e.name_iid);
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
	return pt_pf_event(p, from->begin, &e);
}

static int put_slice(struct pt_trace_writer *w, const struct pt_trace_event *e)
{
	struct perfetto *p = (struct perfetto *)w;
	int err = end_until(p, e->begin);

	err = err ?: begin_event(p, e, PERFETTO__PROTOS__TRACK_EVENT__TYPE__TYPE_SLICE_BEGIN);
	if (err || p->depth == NEST_MAX)
		return err ? err : -E2BIG;
	p->nest[p->depth].got = e->cat == PT_CAT_WAIT ? e->flow_in : 0;
	p->nest[p->depth++].end = e->end;
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
	return pt_pf_event(p, ts, &e);
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
	err = pt_pf_packet(p, &pk);
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
	err = pt_pf_packet(p, &pk);
	d.has_timestamp_clock_id = 1;
	d.timestamp_clock_id = CLOCK_ID_MONOTONIC;
	first.trace_packet_defaults = &d;
	first.has_sequence_flags = 1;
	first.sequence_flags = STATE_CLEARED;
	return err ? err : pt_pf_packet(p, &first);
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
	int i;

	pt_pf_forget(p);
	for (i = 0; i < PT_PF_SPACES; i++)
		pt_hash_free(p->texts[i]);
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
	err = err ?: pt_trace_walk(x, &p->w);
	err = err ?: end_until(p, UINT64_MAX);
	release(p);
	return err;
}
