/* SPDX-License-Identifier: BSD-2-Clause */
/* A rank's collectives in order. */
#include <errno.h>
#include <string.h>

#include "analysis/ranks/meets.h"
#include "model/acts.h"
#include "model/names.h"

#define STREAMS 64
#define COMMS 16

/* Which collectives are over once the work of a stream, or an event, is. */
struct covered {
	uint64_t handle;
	size_t until; /* those before this one of the list */
	UT_hash_handle hh;
};

struct cover {
	struct covered stream[STREAMS];
	size_t n_streams;
	struct covered *events; /* uthash, by handle */
	size_t done;		/* of the list: their end was seen */
};

static struct covered *stream_of(struct cover *c, uint64_t handle)
{
	for (size_t i = 0; i < c->n_streams; i++)
		if (c->stream[i].handle == handle)
			return &c->stream[i];
	if (c->n_streams == STREAMS)
		return NULL; /* then nothing is known of it */
	c->stream[c->n_streams].handle = handle;
	c->stream[c->n_streams].until = 0;
	return &c->stream[c->n_streams++];
}

static struct covered *event_of(struct cover *c, uint64_t handle)
{
	struct covered *e;

	HASH_FIND(hh, c->events, &handle, sizeof(handle), e);
	return e;
}

static int record(struct cover *c, uint64_t handle, size_t until)
{
	struct covered *e = pt_hash_make(c->events, handle, &handle);

	if (!e)
		return -ENOMEM;
	e->until = until;
	return 0;
}

static void over(struct cover *c, pt_meets_list *out, size_t until, uint64_t ts)
{
	for (; c->done < until; c->done++)
		out->v[c->done].done = ts;
}

/* What a call says about the collectives before it. 0 or -ENOMEM. */
static int follow(struct cover *c, pt_meets_list *out,
		  const struct pt_gpu_call *call)
{
	struct covered *s = stream_of(c, call->stream), *e;
	bool returned = call->end > call->begin && !call->open && !call->late;

	switch (call->cls) {
	case PT_API_EVENT_RECORD:
		return record(c, call->v[0], s ? s->until : 0);
	case PT_API_STREAM_WAIT:
		e = event_of(c, call->v[0]);
		if (s && e)
			s->until = e->until > s->until ? e->until : s->until;
		return 0;
	case PT_API_SYNC_EVENT:
		e = event_of(c, call->v[0]);
		if (e && returned)
			over(c, out, e->until, call->end);
		return 0;
	case PT_API_SYNC_STREAM:
		if (s && returned)
			over(c, out, s->until, call->end);
		return 0;
	case PT_API_SYNC_DEVICE:
		if (returned)
			over(c, out, out->n, call->end);
		return 0;
	}
	return 0;
}

/* A meeting of all ranks; what goes from one to another is none. */
static bool is_meeting(const struct pt_gpu_call *c)
{
	const struct pt_api *a;

	if (c->cls != PT_API_COLLECTIVE || c->late)
		return false;
	a = pt_api_get(c->api);
	return !a || (strcmp(a->symbol, "ncclSend") &&
		      strcmp(a->symbol, "ncclRecv"));
}

/* The communicator with most calls; 0: there are none. */
static uint64_t most_used(const struct pt_an *an, const struct pt_proc *p,
			  bool *several)
{
	struct {
		uint64_t comm;
		size_t n;
	} used[COMMS];
	size_t k, n = 0, best = 0, all = 0;

	pt_each_call(c, p, an->t0, an->t1) {
		if (!is_meeting(c))
			continue;
		all++;
		for (k = 0; k < n && used[k].comm != c->v[0]; k++)
			;
		if (k == COMMS)
			continue;
		if (k == n) {
			used[n].comm = c->v[0];
			used[n++].n = 0;
		}
		used[k].n++;
	}
	for (k = 1; k < n; k++)
		if (used[k].n > used[best].n)
			best = k;
	*several = n && (all - used[best].n) * 5 >= all;
	return n ? used[best].comm : 0;
}

int pt_meets_calls(const struct pt_an *an, const struct pt_proc *p,
		   pt_meets_list *out, bool *several)
{
	uint64_t comm = most_used(an, p, several);
	struct cover c = { 0 };
	int err = 0;

	pt_each_call(call, p, an->t0, comm ? an->t1 : 0) {
		struct covered *s;

		if (err)
			break;
		if (!is_meeting(call) || call->v[0] != comm) {
			err = follow(&c, out, call);
			continue;
		}
		err = pt_vec_push(out, ((struct pt_meet){
			.at = call->begin, .done = UINT64_MAX,
			.sig = ((uint64_t)call->api << 48) ^
			       (call->v[2] << 40) ^ call->v[1] }));
		s = stream_of(&c, call->stream);
		if (s)
			s->until = out->n;
	}
	pt_hash_free(c.events);
	return err;
}

bool pt_meets_measured(const struct pt_proc *p, uint64_t *begin, uint64_t *end)
{
	size_t i, best = 0;

	if (!p->acts.n || !p->covers.n)
		return false;
	for (i = 0; i < p->covers.n; i++) {
		if (p->covers.v[i].lost)
			return false;
		if (p->covers.v[i].end - p->covers.v[i].begin >
		    p->covers.v[best].end - p->covers.v[best].begin)
			best = i;
	}
	*begin = p->covers.v[best].begin;
	*end = p->covers.v[best].end;
	return true;
}

int pt_meets_kernels(const struct pt_an *an, const struct pt_proc *p,
		     pt_meets_list *out)
{
	uint64_t key = 0, sig = 0; /* of the name that was last */
	uint64_t begin, end;
	bool is = false;
	int err = 0, device = -1;

	if (!pt_meets_measured(p, &begin, &end))
		return 0;
	begin = pt_max64(begin, an->t0);
	end = pt_min64(end, an->t1);
	pt_each_ok(const struct pt_act, a, &p->acts, err) {
		const char *name;

		if (a->what != PT_ACT_KERNEL || a->begin < begin ||
		    a->begin >= end)
			continue;
		if (a->name != key) {
			key = a->name;
			name = pt_act_name(an->m, p, key);
			is = pt_name_is_collective(name) &&
			     !strstr(name, "SendRecv");
			sig = is ? pt_text_hash(name) : 0;
		}
		if (!is)
			continue;
		if (device >= 0 && device != a->device) {
			out->n = 0; /* several ranks in one process */
			return 0;
		}
		device = a->device;
		err = pt_vec_push(out, ((struct pt_meet){
			.at = a->begin, .done = a->end, .sig = sig }));
	}
	return err;
}
