// SPDX-License-Identifier: BSD-2-Clause
/* What devices did, as it was measured there: a lane for each stream. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/names.h"
#include "view/timeline/trace_int.h"

struct device_walk {
	struct pt_walk *k;
	const struct pt_proc *p;
	struct pt_trace_track track;
	char name[64];
	uint32_t tracks; /* told so far */
};

static int begin_track(void *ctx, const struct pt_spread *s)
{
	struct device_walk *d = ctx;
	const struct pt_act *a = &d->p->acts.v[s->at];

	snprintf(d->name, sizeof(d->name), s->lane ?
			 "GPU %u stream %" PRIu32 " (%u)" :
			 "GPU %u stream %" PRIu32,
		 a->device, a->stream, s->lane + 1u);
	d->track = (struct pt_trace_track){
		.id = pt_track_id(PT_SPACE_STREAM + d->tracks, d->p->tgid),
		.parent = pt_track_id(PT_SPACE_PROCESS, d->p->tgid),
		.kind = PT_TRACK_LANE,
		.cat = PT_CAT_KERNEL,
		.pid = pt_real_id(d->p->tgid),
		/* lanes' numbers have eight bits in some formats */
		.lane = PT_LANE_STREAM,
		.number = d->tracks + 1,
		.name = d->name,
	};
	d->tracks++;
	return d->k->w->track(d->k->w, &d->track);
}

static const char *copy_name(uint8_t kind)
{
	static const char *const names[] = {
		"Memcpy HtoH", "Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD",
	};

	return kind < sizeof(names) / sizeof(*names) ? names[kind] : "Memcpy";
}

static int put_work(void *ctx, const struct pt_spread *s)
{
	struct device_walk *d = ctx;
	const struct pt_act *a = &d->p->acts.v[s->at];
	struct pt_trace_event e = {
		.track = &d->track, .begin = s->begin, .end = s->end,
	};
	const char *name;

	switch (a->what) {
	case PT_ACT_COPY:
		e.name = copy_name(a->detail);
		e.cat = PT_CAT_COPY;
		break;
	case PT_ACT_MEMSET:
		e.name = "Memset";
		e.cat = PT_CAT_MEMSET;
		break;
	default:
		name = a->name ? pt_act_name(d->k->x->m, d->p, a->name) : NULL;
		e.name = name ? pt_shown_name(d->k, name) : "kernel";
		e.cat = PT_CAT_KERNEL;
		break;
	}
	if (!e.name)
		return -ENOMEM;
	pt_arg_int(&e, "device", a->device);
	pt_arg_int(&e, "stream", a->stream);
	pt_arg_int(&e, "correlation", a->correlation);
	if (a->what != PT_ACT_KERNEL)
		pt_arg_id(&e, "bytes", a->bytes);
	if (a->graph)
		pt_arg_int(&e, "graph", a->graph);
	/* from the call: to the first of what it began */
	if (pt_first_act(d->k, a->call) == s->at)
		e.flow_in = pt_call_flow(d->p, a->call);
	return e.end > e.begin ? d->k->w->slice(d->k->w, &e) :
				 d->k->w->instant(d->k->w, &e);
}

int pt_walk_device(struct pt_walk *k, const struct pt_proc *p)
{
	struct device_walk d = { .k = k, .p = p };
	struct pt_spread *v;
	size_t i;
	int err;

	if (!p->acts.n)
		return 0;
	if (p->acts.n > UINT32_MAX)
		return -EOVERFLOW;
	v = calloc(p->acts.n, sizeof(*v));
	if (!v)
		return -ENOMEM;
	for (i = 0; i < p->acts.n; i++) {
		const struct pt_act *a = &p->acts.v[i];

		v[i].group = (uint64_t)a->device << 32 | a->stream;
		v[i].begin = a->begin;
		v[i].end = a->end > a->begin ? a->end : a->begin;
		v[i].at = (uint32_t)i;
	}
	err = pt_spread(v, p->acts.n, begin_track, put_work, &d);
	free(v);
	return err;
}
