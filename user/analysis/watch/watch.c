// SPDX-License-Identifier: BSD-2-Clause
/* A capture of days, of which a model holds what the next look needs. */
#include "analysis/watch/watch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/minmax.h"
#include "model/model.h"
#include "model/timeline.h"

/* A job that makes more records in the time that is looked at is looked at for less. */
#define MODEL_BYTES (96ull << 20)
/* The older part goes when it is so much of what is needed. */
#define CUT_PART 4

struct pt_watch {
	struct pt_trigger_opts o;
	struct pt_trigger *g;
	struct pt_model *m;
	unsigned ask;
	uint64_t worker_ns;
};

struct pt_watch *pt_watch_new(const struct pt_trigger_opts *o)
{
	struct pt_watch *w = calloc(1, sizeof(*w));
	size_t i;

	if (!w)
		return NULL;
	w->o = *o;
	w->worker_ns = UINT64_MAX;
	for (i = 0; i < o->n; i++) {
		w->ask |= 1u << o->when[i].of;
		if (o->when[i].of == PT_WHEN_WORKER)
			w->worker_ns = pt_min64(w->worker_ns, (uint64_t)o->when[i].limit);
	}
	w->g = pt_trigger_new(o);
	w->m = pt_model_new();
	if (w->g && w->m)
		return w;
	pt_watch_free(w);
	return NULL;
}

void pt_watch_free(struct pt_watch *w)
{
	if (!w)
		return;
	pt_trigger_free(w->g);
	pt_model_free(w->m);
	free(w);
}

void pt_watch_feed(struct pt_watch *w, const void *rec, size_t len)
{
	pt_model_feed(w->m, rec, len); /* it counts what it cannot take */
}

/* What lies before `from` is not looked at again. */
static int drop_old(struct pt_watch *w, uint64_t from, uint64_t until)
{
	struct pt_model *m = w->m;
	uint64_t begin = m->begin ? m->begin : m->first_ts;
	int err = 0;

	if (from > begin && from - begin > (until - from) / CUT_PART)
		err = pt_model_cut(m, from);
	err = err ?: pt_model_trim(m, MODEL_BYTES);
	if (!err)
		pt_model_fold(m);
	return err;
}

int pt_watch_round(struct pt_watch *w, uint64_t now, struct pt_event *out)
{
	struct pt_model *m = w->m;
	struct pt_arena *a = pt_arena_new();
	uint64_t until = pt_min64(now, m->last_ts), from;
	struct pt_seen seen;
	int ret = a ? 0 : -ENOMEM, err;

	from = pt_max64(pt_trigger_from(w->g, until), m->begin ? m->begin : m->first_ts);
	if (!ret && until > from) {
		ret = pt_watch_look(m, from, until, w->ask, w->worker_ns, a, &seen);
		ret = ret ?: pt_trigger_see(w->g, &seen, out);
		from = pt_trigger_from(w->g, until);
		err = ret < 0 ? 0 : drop_old(w, from, until);
		ret = err ? err : ret;
	}
	pt_arena_free(a);
	return ret;
}

const struct pt_event *pt_watch_last(const struct pt_watch *w)
{
	return pt_trigger_last(w->g);
}

void pt_watch_state(const struct pt_watch *w, struct pt_trigger_state *out)
{
	pt_trigger_state(w->g, out);
}

uint64_t pt_watch_bytes(const struct pt_watch *w)
{
	return pt_model_bytes(w->m);
}
