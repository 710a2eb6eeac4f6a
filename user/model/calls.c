/* SPDX-License-Identifier: BSD-2-Clause */
/* GPU calls: each entry with its return, where both were seen. */
#include <errno.h>
#include <string.h>

#include "model/budget.h"
#include "model/internal.h"
#include "model/names.h"
#include "model/timeline.h"

void pt_check_stack(struct pt_thread *t)
{
	if (t->lost > t->stack_lost)
		t->depth = 0;
	t->stack_lost = t->lost;
}

/* No entry point calls itself: the same call again means that the earlier one
 * ended unseen (a throw, a longjmp), and whatever it had called with it. */
static void push_call(struct pt_thread *t, const struct pt_gpu_call *c)
{
	uint32_t i;

	for (i = 0; i < t->depth; i++)
		if (t->stack[i].api == c->api)
			t->depth = i;
	if (t->depth == PT_INFLIGHT_MAX)
		return;
	t->stack[t->depth].begin = c->begin;
	t->stack[t->depth++].api = c->api;
}

int pt_feed_gpu_enter(struct pt_model *m, const struct pt_rec_gpu *r)
{
	const struct pt_api *api = pt_api_get(r->api);
	struct pt_api_args x;
	struct pt_gpu_call c;
	struct pt_thread *t;

	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, r->hdr.ts);
	if (!t)
		return -ENOMEM;
	if (!pt_take_seq(m, t, r->hdr.seq))
		return 0;
	if (t->proc->outside) /* a stranger's: another program shares its hooks */
		return 0;
	if (r->api == PT_API_STEP_MARKER)
		return pt_held_push(&m->held.time, &t->proc->markers,
				    r->hdr.ts);
	if (!api)
		return 0; /* a later version's entry point */
	memset(&c, 0, sizeof(c));
	c.begin = c.end = r->hdr.ts;
	x.stream = r->stream;
	memcpy(x.v, r->v, sizeof(x.v));
	pt_api_settle(api, r->hdr.tid, &x);
	c.stream = x.stream;
	memcpy(c.v, x.v, sizeof(c.v));
	c.ret = INT64_MIN;
	c.tid = t->tid;
	c.api = (uint16_t)r->api;
	c.cls = (uint8_t)api->cls;
	if (pt_held_push(&m->held.time, &t->proc->gpu, c))
		return -ENOMEM;
	t->calls++;
	t->proc->host_funcs |= api->cls == PT_API_HOST_FUNC;
	pt_check_stack(t);
	if (api->ret)
		push_call(t, &c);
	return 0;
}

static struct pt_gpu_call *find_call(struct pt_proc *p, uint32_t tid,
				     uint16_t api, uint64_t begin)
{
	size_t i;

	for (i = p->gpu.n; i-- > 0;) {
		struct pt_gpu_call *c = &p->gpu.v[i];

		if (c->tid == tid && c->api == api && c->begin == begin)
			return c;
	}
	return NULL;
}

int pt_feed_gpu_return(struct pt_model *m, const struct pt_rec_gpu *r)
{
	const struct pt_api *api = pt_api_get(r->api);
	struct pt_gpu_call *c = NULL, late;
	struct pt_thread *t;

	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, r->hdr.ts);
	if (!t)
		return -ENOMEM;
	if (!pt_take_seq(m, t, r->hdr.seq) || !api || t->proc->outside)
		return 0;
	pt_check_stack(t);
	while (t->depth && !c) {
		struct pt_inflight *f = &t->stack[--t->depth];

		/* An entry whose return never came (longjmp, a throw, a lost
		 * record) is dropped on the way. */
		if (f->api == r->api)
			c = find_call(t->proc, t->tid, f->api, f->begin);
	}
	if (c) {
		c->end = r->hdr.ts > c->begin ? r->hdr.ts : c->begin;
		c->ret = (int64_t)r->v[0];
		if ((api->how & 15) == PT_VIA_OUT)
			c->v[2] = r->v[1]; /* the handle that it made */
		/* made of another one, whose name is its name */
		if (api->cls == PT_API_FUNCTION && !c->ret && c->v[2])
			return pt_name_alias(m, t->proc, c->v[2], c->v[1]);
		return 0;
	}
	/* Entered before the hooks were there. */
	memset(&late, 0, sizeof(late));
	late.begin = t->first < r->hdr.ts ? t->first : r->hdr.ts;
	if (t->calls || t->lost)
		return 0; /* its entry was lost in the middle: no guess */
	late.end = r->hdr.ts;
	late.late = true;
	late.ret = (int64_t)r->v[0];
	late.tid = t->tid;
	late.api = (uint16_t)r->api;
	late.cls = (uint8_t)api->cls;
	t->calls++;
	return pt_held_push(&m->held.time, &t->proc->gpu, late);
}
