/* SPDX-License-Identifier: BSD-2-Clause */
/* What a program says about itself through NVTX: the events as they came, their
 * texts kept once. Which ends belong to which begins the analysis decides. */
#include <errno.h>
#include <string.h>

#include "model/budget.h"
#include "model/internal.h"

#define MAX_TEXTS 4096	/* different ones; later ones have no text */
#define MAX_STRINGS 1024 /* registered in one process */
#define LOOK_BACK 256	/* events between a start and its handle */

/* The text, kept once; *out is NULL for an empty one. 0 or -ENOMEM. */
static int keep_text(struct pt_model *m, const char *s, size_t len,
		     const char **out)
{
	struct pt_text_once *t;

	*out = NULL;
	if (!len)
		return 0;
	HASH_FIND(hh, m->texts, s, len, t);
	if (!t && HASH_COUNT(m->texts) >= MAX_TEXTS)
		return 0;
	if (!t) {
		t = pt_held_new(&m->held.names, sizeof(*t) + len + 1);
		if (!t)
			return -ENOMEM;
		memcpy(t->text, s, len);
		HASH_ADD(hh, m->texts, text, len, t);
		if (!PT_HASHED(t)) {
			pt_held_drop(&m->held.names, t, sizeof(*t) + len + 1);
			return -ENOMEM;
		}
	}
	*out = t->text;
	return 0;
}

static const char *registered(const struct pt_proc *p, uint64_t handle)
{
	size_t i;

	for (i = p->strings.n; handle && i-- > 0;)
		if (p->strings.v[i].handle == handle)
			return p->strings.v[i].text;
	return NULL;
}

/* The handle that the thread's last start or registration gave back. */
static int take_handle(struct pt_model *m, struct pt_thread *t, uint64_t id)
{
	struct pt_proc *p = t->proc;
	struct pt_nvtx_string s = { id, t->nvtx_text };
	uint8_t wanted = t->nvtx_wants;
	size_t i, n = 0;

	t->nvtx_wants = 0;
	if (wanted == PT_NVTX_STRING)
		return id && p->strings.n < MAX_STRINGS ?
			       pt_held_push(&m->held.tasks, &p->strings, s) :
			       0;
	for (i = p->nvtx.n; wanted == PT_NVTX_START && i-- > 0 &&
			    n++ < LOOK_BACK;) {
		if (p->nvtx.v[i].tid != t->tid ||
		    p->nvtx.v[i].op != PT_NVTX_START)
			continue;
		p->nvtx.v[i].id = id;
		break;
	}
	return 0;
}

/* After a loss nobody knows what is still open. */
static int note_gap(struct pt_model *m, struct pt_thread *t, uint64_t ts)
{
	struct pt_nvtx_event gap = { .ts = ts, .tid = t->tid,
				     .op = PT_NVTX_GAP };

	if (t->lost == t->nvtx_lost)
		return 0;
	t->nvtx_lost = t->lost;
	t->nvtx_wants = 0;
	return t->nvtx_seen ? pt_held_push(&m->held.time, &t->proc->nvtx, gap) : 0;
}

int pt_feed_nvtx(struct pt_model *m, const struct pt_rec_nvtx *r)
{
	struct pt_nvtx_event e = { .ts = r->hdr.ts, .id = r->id,
				   .domain = r->domain, .op = (uint8_t)r->op };
	struct pt_thread *t;
	int err;

	if (r->op < PT_NVTX_PUSH)
		return -EINVAL;
	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, r->hdr.ts);
	if (!t)
		return -ENOMEM;
	if (!pt_take_seq(m, t, r->hdr.seq) || r->op > PT_NVTX_ID)
		return 0; /* seen already, or a later version's */
	err = note_gap(m, t, r->hdr.ts);
	if (err)
		return err;
	t->nvtx_seen = true;
	if (r->op == PT_NVTX_ID)
		return take_handle(m, t, r->id);
	err = keep_text(m, r->text, strnlen(r->text, sizeof(r->text)), &e.text);
	if (err)
		return err;
	if (r->text_id)
		e.text = registered(t->proc, r->text_id);
	e.tid = t->tid;
	if (r->op == PT_NVTX_START || r->op == PT_NVTX_STRING)
		t->nvtx_wants = (uint8_t)r->op;
	t->nvtx_text = e.text;
	return r->op == PT_NVTX_STRING ? 0 :
					 pt_held_push(&m->held.time,
						      &t->proc->nvtx, e);
}
