/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/records.h"
#include "model/budget.h"
#include "model/callclass.h"
#include "model/classify.h"
#include "model/internal.h"
#include "model/names.h"
#include "model/socks.h"

struct pt_model *pt_model_new(void)
{
	return calloc(1, sizeof(struct pt_model));
}

void pt_model_free(struct pt_model *m)
{
	size_t i;

	if (!m)
		return;
	pt_hash_free(m->aliases);
	HASH_CLEAR(hh, m->threads);
	HASH_CLEAR(hh, m->procs);
	for (i = 0; i < m->all_threads.n; i++)
		pt_thread_free(m, m->all_threads.v[i]);
	for (i = 0; i < m->all_procs.n; i++)
		pt_proc_free(m, m->all_procs.v[i]);
	pt_files_free(m);
	pt_names_free(m);
	pt_lines_free(m);
	pt_hash_free(m->texts);
	pt_socks_free(m);
	pt_vec_free(&m->devices);
	pt_vec_free(&m->memory);
	pt_vec_free(&m->costs);
	pt_vec_free(&m->missed);
	pt_vec_free(&m->blocks);
	pt_vec_free(&m->disks);
	pt_vec_free(&m->windows);
	pt_vec_free(&m->all_threads);
	pt_vec_free(&m->all_procs);
	free(m);
}

static void note_totals(struct pt_thread *t, const struct pt_totals *tot)
{
	if (!t->totals_known)
		t->t0 = *tot;
	t->totals_known = true;
	t->t1 = *tot;
}

/* Wakers by their ids here: a waker's id may have another owner by now. */
static void set_waker(const struct pt_model *m, struct pt_iv *iv,
		      const struct pt_rec_off *r)
{
	const struct pt_thread *w;
	const struct pt_proc *p;

	iv->waker_tid = r->waker_tid;
	iv->waker_tgid = r->waker_tgid;
	if (!m->aliases || !r->waker_tid)
		return;
	w = pt_thread_at(m, r->waker_tid, r->wake_ts);
	if (w && pt_real_id(w->tgid) == r->waker_tgid &&
	    !(w->exited && w->last < r->wake_ts)) {
		iv->waker_tid = w->tid;
		iv->waker_tgid = w->tgid;
		return;
	}
	p = pt_model_proc(m, pt_model_id(m, r->waker_tgid));
	if (w && w->exited && w->last < r->wake_ts) {
		/* the next owner, of whom nothing is known yet */
		iv->waker_tid = w->tid + (1u << PT_ID_BITS);
		iv->waker_tgid = p ? p->tgid : r->waker_tgid;
	} else if (p) {
		iv->waker_tgid = p->tgid;
	}
}

/*
 * What a poll waits on is its first descriptor, or not known (a select; a sleep
 * that was under way at attach): a valid waker's pipe is it. Where it is known
 * that the waker made the wake-up, it is also where another pipe came first.
 */
static void take_object(struct pt_iv *iv, const struct pt_rec_off *r)
{
	bool sure = r->waker_in & PT_WAKER_KNOWN &&
		    pt_call_class(r->syscall) & PT_C_POLL;

	if (iv->waker_obj_kind != PT_OBJ_PIPE ||
	    (iv->wait != PT_WAIT_POLL && iv->wait != PT_WAIT_PIPE_IN) ||
	    (iv->obj_kind != PT_OBJ_NONE && !sure))
		return;
	iv->wait = PT_WAIT_PIPE_IN;
	iv->obj_kind = PT_OBJ_PIPE;
	iv->object = iv->waker_object;
	iv->dev = r->waker_dev;
}

static void iv_from_record(const struct pt_model *m, struct pt_iv *iv,
			   const struct pt_rec_off *r)
{
	bool valid;

	memset(iv, 0, sizeof(*iv));
	iv->begin = r->off_ts;
	iv->end = r->hdr.ts;
	iv->wait = (uint8_t)pt_classify(r);
	if (iv->wait == PT_WAIT_RUNQ)
		iv->ready = iv->begin;
	else if (r->wake_ts >= iv->begin && r->wake_ts <= iv->end)
		iv->ready = r->wake_ts;
	else
		iv->ready = iv->end;
	iv->object = r->object;
	iv->waker_object = r->waker_object;
	iv->arg0 = r->arg[0];
	iv->dev = r->dev;
	set_waker(m, iv, r);
	iv->syscall = (int16_t)r->syscall;
	iv->waker_syscall = (int16_t)r->waker_syscall;
	iv->obj_kind = (uint8_t)r->obj_kind;
	iv->waker_obj_kind = (uint8_t)r->waker_obj_kind;
	iv->since_unknown = r->hdr.flags & PT_F_SINCE_UNKNOWN;
	if (r->obj_kind == PT_OBJ_SOCK)
		iv->sock = (r->hdr.flags & PT_F_AWAITED ? PT_IV_SOCK_AWAITED : 0) |
			   (r->hdr.flags & PT_F_AGAIN ? PT_IV_SOCK_AGAIN : 0) |
			   (r->hdr.flags & PT_F_READY_FIRST ?
				    PT_IV_SOCK_FIRST_READY : 0) |
			   (r->hdr.flags & PT_F_INSIDE ? PT_IV_SOCK_INSIDE : 0);
	iv->wake = (uint8_t)pt_wake_of(r, &valid);
	iv->valid_wake = valid;
	if (valid)
		take_object(iv, r);
	iv->rchar = r->tot.rchar;
	iv->read_bytes = r->tot.read_bytes;
	iv->wchar = r->tot.wchar;
}

int pt_feed_off(struct pt_model *m, const struct pt_rec_off *r)
{
	struct pt_thread *t;
	struct pt_iv iv;

	if (r->off_ts > r->hdr.ts)
		return -EINVAL;
	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, r->off_ts);
	if (!t)
		return -ENOMEM;
	if (!pt_take_seq(m, t, r->hdr.seq))
		return 0;
	note_totals(t, &r->tot);
	if (r->hdr.flags & PT_F_OPEN) {
		/* off_ts == ts: on a CPU, only its totals are meant */
		if (r->off_ts < r->hdr.ts)
			t->open = *r;
		return 0;
	}
	if (t->open.hdr.kind && t->open.off_ts <= r->off_ts)
		t->open.hdr.kind = 0;
	iv_from_record(m, &iv, r);
	iv.gap_before = t->gap;
	t->gap = false;
	return pt_held_push(&m->held.time, &t->iv, iv);
}

int pt_feed_fork(struct pt_model *m, const struct pt_rec_fork *r)
{
	bool process = r->child_tgid == r->child_tid;
	struct pt_thread *t = pt_thread_find(m, r->hdr.tid, r->hdr.tgid,
					     r->hdr.start);
	const struct pt_thread *parent = t;
	struct pt_proc *p;

	if ((r->child_tid | r->child_tgid) >> PT_ID_BITS)
		return -EINVAL;
	if (t && !pt_take_seq(m, t, r->hdr.seq))
		return 0;
	/* a reused id has another start time, and that makes it another one */
	t = pt_thread_make(m, r->child_tid, r->child_tgid, r->child_start,
			   r->hdr.ts);
	if (!t)
		return -ENOMEM;
	memcpy(t->comm, r->comm, sizeof(t->comm) - 1);
	if (r->hdr.ts < t->first) /* the child's own records came before */
		t->first = r->hdr.ts;
	t->parent = parent;
	p = t->proc;
	if (process) {
		const struct pt_proc *from;

		p->ppid = pt_model_id(m, r->hdr.tgid);
		from = pt_model_proc(m, p->ppid);
		p->outside |= from && from->outside;
		p->born = r->hdr.ts;
		memcpy(p->comm, r->comm, sizeof(p->comm) - 1);
	}
	return 0;
}

/* An exec by another thread than the leader: it goes on under the leader's id,
 * with a numbering and a start time of its own. */
static void take_over(struct pt_model *m, const struct pt_rec_task *r)
{
	struct pt_thread *old = pt_model_thread(m, pt_model_id(m, r->old_tid));
	struct pt_thread *t = pt_model_thread(m, pt_model_id(m, r->hdr.tid));

	if (old && !old->exited && pt_real_id(old->tgid) == r->hdr.tgid)
		pt_thread_ends(m, old, r->hdr.ts);
	if (t && pt_real_id(t->tgid) == r->hdr.tgid) {
		t->start = r->hdr.start;
		t->seq_known = false;
	}
}

int pt_feed_outside(struct pt_model *m, const struct pt_rec_outside *r)
{
	struct pt_thread *t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid,
					     r->hdr.start, r->hdr.ts);
	struct pt_proc *p;

	if (!t)
		return -ENOMEM;
	p = t->proc;
	p->outside = true;
	p->adopted = *r;
	p->adopted.comm[PT_COMM_LEN - 1] = 0;
	if (r->ppid)
		p->ppid = pt_model_id(m, r->ppid);
	if (!p->comm[0])
		memcpy(p->comm, r->comm, sizeof(p->comm) - 1);
	return 0;
}

int pt_feed_task(struct pt_model *m, const struct pt_rec_task *r)
{
	bool exec = r->hdr.kind == PT_REC_EXEC;
	struct pt_thread *t;

	if (exec && r->old_tid && r->old_tid != r->hdr.tid)
		take_over(m, r);
	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, r->hdr.ts);
	if (!t)
		return -ENOMEM;
	/* An introduction is not counted: what came before it was not traced. */
	if (r->hdr.kind != PT_REC_TASK && !pt_take_seq(m, t, r->hdr.seq))
		return 0;
	memcpy(t->comm, r->comm, sizeof(t->comm) - 1);
	if (t->tid == t->tgid)
		memcpy(t->proc->comm, r->comm, sizeof(t->comm) - 1);
	if (r->hdr.kind == PT_REC_TASK && r->ppid)
		t->proc->ppid = pt_model_id(m, r->ppid);
	if (exec) { /* the program that made the calls is gone, and its interpreter */
		t->depth = 0;
		t->proc->python_bytes = 0;
	}
	return 0;
}

int pt_feed_exit(struct pt_model *m, const struct pt_rec_exit *r)
{
	struct pt_thread *t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid,
					     r->hdr.start, r->hdr.ts);

	if (!t)
		return -ENOMEM;
	if (!pt_take_seq(m, t, r->hdr.seq))
		return 0;
	note_totals(t, &r->tot);
	pt_thread_ends(m, t, r->hdr.ts);
	t->open.hdr.kind = 0;
	if (r->hdr.flags & PT_F_GROUP_DEAD)
		t->proc->died = r->hdr.ts;
	return 0;
}

int pt_feed_proc(struct pt_model *m, const struct pt_rec_proc *r)
{
	struct pt_proc *p = pt_proc_make(m, r->hdr.tgid);

	if (!p)
		return -ENOMEM;
	p->facts = *r;
	return 0;
}

int pt_feed_mark(struct pt_model *m, const struct pt_rec_mark *r)
{
	switch (r->mark) {
	case PT_MARK_BEGIN:
		m->begin = r->hdr.ts;
		m->begin_unix_ns = r->unix_ns;
		break;
	case PT_MARK_END:
		m->end = r->hdr.ts;
		m->complete = true;
		break;
	case PT_MARK_CUT:
		pt_model_resume(m, r->hdr.ts);
		break;
	}
	return 0;
}

/* More than this no counter reaches; percentages of their sum fit in 64 bits. */
#define LOSS_MAX (1ull << 48)

int pt_feed_loss(struct pt_model *m, const struct pt_rec_loss *r)
{
	size_t i;

	for (i = 0; i < PT_LOSS_NR; i++) {
		uint64_t n = r->count[i] < LOSS_MAX ? r->count[i] : LOSS_MAX;

		if (n > m->lost[i]) /* an older one may come late */
			m->lost[i] = n;
	}
	return 0;
}

int pt_feed_lib(struct pt_model *m, const struct pt_rec_lib *r)
{
	(void)m;
	(void)r;
	return 0; /* the steps do not rest on it */
}

int pt_feed_host(struct pt_model *m, const struct pt_rec_host *r)
{
	m->host = *r;
	m->host.boot_id[sizeof(m->host.boot_id) - 1] = 0;
	m->host_known = true;
	return 0;
}

int pt_feed_neighbours(struct pt_model *m, const struct pt_rec_neighbours *r)
{
	if (r->procs > m->neighbours)
		m->neighbours = r->procs;
	return 0;
}

static int dispatch(struct pt_model *m, const union pt_rec_any *r)
{
	switch (r->hdr.kind) {
#define PT_KIND(kind, number, name, life, feed)                                \
	case PT_REC_##kind:                                                    \
		return pt_feed_##feed(m, &r->name);
#include "records.def"
	default:
		m->skipped_kinds++;
		return 0;
	}
}

/* 36 years after the boot: a time that is damaged, and that sums and products
 * of times need not fear. */
#define TS_MAX (1ull << 60)

int pt_model_feed(struct pt_model *m, const void *rec, size_t len)
{
	const struct pt_rec_kind *k;
	union pt_rec_any r;
	struct pt_hdr h;
	size_t n, known;
	int err;

	m->records++;
	if (m->finished || len < sizeof(h))
		goto malformed;
	memcpy(&h, rec, sizeof(h));
	k = pt_rec_kind(h.kind);
	if (h.size < sizeof(h) || h.size > len || (k && h.size < k->oldest) ||
	    h.ts > TS_MAX || (h.tid | h.tgid) >> PT_ID_BITS)
		goto malformed;
	known = k ? k->longest : sizeof(h);
	n = h.size < known ? h.size : known;
	memcpy(&r, rec, n);
	if (n < known) /* of an older version: its fields end earlier */
		memset(r.bytes + n, 0, known - n);
	if (h.kind < PT_REC_USER) {
		if (!m->first_ts || h.ts < m->first_ts)
			m->first_ts = h.ts;
		if (h.ts > m->last_ts)
			m->last_ts = h.ts;
	}
	err = dispatch(m, &r);
	if (err == -EINVAL)
		goto malformed;
	if (err)
		m->no_memory++;
	return err;

malformed:
	m->malformed++;
	return -EINVAL;
}
