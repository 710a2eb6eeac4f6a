// SPDX-License-Identifier: BSD-2-Clause
/*
 * Samples of the kernel's become looks. They come every 10 ms of a thread that runs, and
 * what made sense a moment ago still does: neither its code objects nor the stack above
 * the frames that changed are read again for half a second.
 */
#include "base/clock.h"
#include "python/looks_int.h"

#define KNOWN_MAX 16384
/* A code object may be freed, and another one come to its address. Which of them ran when
 * the sample was taken nobody knows; one that ran there within so short a time before is it. */
#define FRESH_NS 500000000u

/* NULL: there is no code object, or no memory. */
static const struct known *known_of(struct pt_py_looks *l, struct process *p,
				    const struct pt_py_frame_at *at, uint64_t now)
{
	struct pt_py_frame f;
	struct known *x;

	HASH_FIND(hh, p->known, at, sizeof(*at), x);
	if (x && now - x->ns < FRESH_NS)
		return x;
	if (!pt_py_frame_of(p->py, at, &f))
		return NULL;
	if (!x && HASH_COUNT(p->known) >= KNOWN_MAX)
		pt_hash_free(p->known);
	if (!x)
		x = pt_hash_make(p->known, at, at);
	if (!x)
		return NULL;
	x->f = (struct frame){ pt_py_line_id(l, &f), (uint16_t)f.flags, f.instr };
	x->ns = now;
	return x;
}

/* Of its last sample, if that is young; NULL: no memory. */
static struct recent *recent_of(struct pt_py_looks *l, const struct pt_py_sample *s, uint64_t now)
{
	const struct id id = { (pid_t)s->tgid, (pid_t)s->tid };
	struct thread *t = pt_hash_make(l->threads, id, &id);

	if (t && !t->recent)
		t->recent = calloc(1, sizeof(*t->recent));
	if (!t || !t->recent)
		return NULL;
	t->met = l->round;
	if (now - t->recent->since >= FRESH_NS) {
		t->recent->since = now;
		t->recent->n = 0;
	}
	return t->recent;
}

/* 0: a frame has no code object, or there is no room. */
static uint32_t sampled_stack(struct pt_py_looks *l, struct process *p, const struct pt_py_sample *s,
			      uint32_t n)
{
	uint64_t now = pt_now_ns();
	struct recent *r = recent_of(l, s, now);
	uint32_t was = r ? r->n : 0, stack = 0, k;
	const struct known *x;

	if (!r)
		return 0;
	pt_py_sample_begin(p->py);
	for (k = 0; k < n; k++) {
		const struct pt_py_frame_at *at = &s->at[n - 1 - k];

		if (k < was && !memcmp(&r->f[k].at, at, sizeof(*at))) {
			stack = r->f[k].node;
			continue;
		}
		was = 0;
		x = known_of(l, p, at, now);
		stack = x ? pt_py_node_id(l, stack, &x->f, k ? r->f[k - 1].instr : 0) : 0;
		if (!stack)
			break;
		r->f[k].at = *at;
		r->f[k].node = stack;
		r->f[k].instr = x->f.instr;
	}
	r->n = k;
	return k == n ? stack : 0;
}

bool pt_py_looks_sample(struct pt_py_looks *l, const struct pt_py_sample *s, uint32_t n,
			pt_py_look_fn fn, void *ctx)
{
	struct process *p = pt_py_process_of(l, (pid_t)s->tgid);
	struct pt_py_look look = { .pid = (pid_t)s->tgid, .tid = (pid_t)s->tid, .begin_ns = s->ts,
				   .end_ns = s->ts, .running = true };
	struct frame native = { .flags = PT_PY_NATIVE };
	uint32_t leaf, place = 0;

	if (!p || !p->py || n > PT_PY_FRAMES)
		return false;
	look.stack = sampled_stack(l, p, s, n);
	if (!look.stack)
		return false;
	native.line = pt_py_native_line(l, p, s->ip, &place);
	leaf = pt_py_node_id(l, look.stack, &native, 0);
	if (leaf) {
		look.stack = leaf;
		look.place = place;
	}
	fn(ctx, &look);
	return true;
}
