/* SPDX-License-Identifier: BSD-2-Clause */
/* Who a record is about: ids that are handed out again, threads that change
 * process, and the numbering that tells what never came. */
#include <errno.h>

#include "model/budget.h"
#include "model/internal.h"
#include "model/timeline.h"

/* A record this many owners late is taken for a new one's. */
#define OWNERS_BACK 8

static struct pt_alias *alias(const struct pt_model *m, uint32_t real)
{
	struct pt_alias *a = NULL;

	if (m->aliases)
		HASH_FIND(hh, m->aliases, &real, sizeof(real), a);
	return a;
}

uint32_t pt_model_id(const struct pt_model *m, uint32_t real)
{
	const struct pt_alias *a = alias(m, real);

	return a ? a->id : real;
}

static int set_alias(struct pt_model *m, uint32_t real, uint32_t id)
{
	struct pt_alias *a = alias(m, real);

	if (!a) {
		a = pt_held_new(&m->held.tasks, sizeof(*a));
		if (!a)
			return -ENOMEM;
		a->real = real;
		HASH_ADD(hh, m->aliases, real, sizeof(a->real), a);
		if (!PT_HASHED(a)) {
			pt_held_drop(&m->held.tasks, a, sizeof(*a));
			return -ENOMEM;
		}
	}
	a->id = id;
	return 0;
}

void pt_forget_id(struct pt_model *m, const struct pt_thread *t)
{
	struct pt_alias *a = alias(m, pt_real_id(t->tid));

	if (!a || a->id != t->tid)
		return;
	if (t->older) {
		a->id = t->older->tid;
		return;
	}
	HASH_DEL(m->aliases, a);
	pt_held_drop(&m->held.tasks, a, sizeof(*a));
}

struct pt_thread *pt_model_thread(const struct pt_model *m, uint32_t tid)
{
	struct pt_thread *t;

	HASH_FIND(hh, m->threads, &tid, sizeof(tid), t);
	return t;
}

struct pt_proc *pt_model_proc(const struct pt_model *m, uint32_t tgid)
{
	struct pt_proc *p;

	HASH_FIND(hh, m->procs, &tgid, sizeof(tgid), p);
	return p;
}

static struct pt_proc *new_proc(struct pt_model *m, uint32_t id,
				struct pt_proc *older)
{
	struct pt_proc *p = pt_held_new(&m->held.tasks, sizeof(*p));

	if (!p || pt_held_push(&m->held.tasks, &m->all_procs, p)) {
		pt_held_drop(&m->held.tasks, p, sizeof(*p));
		return NULL;
	}
	p->tgid = id;
	p->older = older;
	p->facts.rank = p->facts.world = p->facts.omp_threads =
		p->facts.cpus_allowed = p->facts.mem_nodes = PT_PROC_UNKNOWN;
	HASH_ADD(hh, m->procs, tgid, sizeof(p->tgid), p);
	if (PT_HASHED(p))
		return p;
	m->all_procs.n--;
	pt_proc_free(m, p);
	return NULL;
}

struct pt_proc *pt_proc_make(struct pt_model *m, uint32_t tgid)
{
	uint32_t id = pt_model_id(m, tgid);
	struct pt_proc *p = pt_model_proc(m, id);

	return p ? p : new_proc(m, id, NULL);
}

static bool is_it(const struct pt_thread *t, uint32_t tid, uint32_t tgid,
		  uint32_t start)
{
	return pt_real_id(t->tid) == tid && pt_real_id(t->tgid) == tgid &&
	       (!start || !t->start || start == t->start);
}

/* Who has the kernel's id now: mostly without asking two tables. */
static struct pt_thread *newest(const struct pt_model *m, uint32_t tid)
{
	struct pt_thread *t = m->newest[tid % PT_NEWEST];

	if (t && pt_real_id(t->tid) == tid)
		return t;
	return pt_model_thread(m, pt_model_id(m, tid));
}

/* Among `t`, the newest owner of the id, and those before it. */
static struct pt_thread *owner(struct pt_thread *t, uint32_t tid, uint32_t tgid,
			       uint32_t start)
{
	int back;

	if (!t || is_it(t, tid, tgid, start))
		return t;
	for (t = t->older, back = 0; t && back < OWNERS_BACK;
	     t = t->older, back++)
		if (start && t->start == start && is_it(t, tid, tgid, start))
			return t;
	return NULL;
}

struct pt_thread *pt_thread_find(const struct pt_model *m, uint32_t tid,
				 uint32_t tgid, uint32_t start)
{
	return owner(newest(m, tid), tid, tgid, start);
}

struct pt_thread *pt_thread_at(const struct pt_model *m, uint32_t tid,
			       uint64_t ts)
{
	struct pt_thread *t = newest(m, tid);

	while (t && t->older && t->first > ts)
		t = t->older;
	return t;
}

/* The process of a new thread that gets `id`; `old` had its kernel's id. */
static struct pt_proc *proc_of(struct pt_model *m, uint32_t tid, uint32_t tgid,
			       uint32_t id, const struct pt_thread *old)
{
	struct pt_proc *p;

	if (tid != tgid)
		return pt_proc_make(m, tgid);
	p = pt_model_proc(m, old ? old->tid : id);
	/* The leader of a new process under an old id. */
	if (p && old && pt_real_id(old->tgid) == tgid)
		return new_proc(m, id, p);
	return p ? p : new_proc(m, id, NULL);
}

void pt_thread_ends(struct pt_model *m, struct pt_thread *t, uint64_t ts)
{
	m->ended += !t->exited && !t->kept;
	t->exited = true;
	t->last = ts;
}

static struct pt_thread *new_thread(struct pt_model *m, uint32_t tid,
				    uint32_t tgid, uint32_t start, uint64_t ts,
				    struct pt_thread *old)
{
	uint32_t id = old ? old->tid + (1u << PT_ID_BITS) : tid;
	struct pt_proc *p = proc_of(m, tid, tgid, id, old);
	uint64_t *sum = &m->held.tasks;
	struct pt_thread *t = p ? pt_held_new(sum, sizeof(*t)) : NULL;

	if (!t || (old && set_alias(m, tid, id)) ||
	    pt_held_push(sum, &m->all_threads, t)) {
		pt_held_drop(sum, t, sizeof(*t));
		return NULL;
	}
	if (pt_held_push(sum, &p->threads, t))
		goto no_memory;
	t->tid = id;
	t->tgid = p->tgid;
	t->start = start;
	t->proc = p;
	t->first = ts;
	if (old && !old->exited)
		pt_thread_ends(m, old, ts);
	t->older = old;
	HASH_ADD(hh, m->threads, tid, sizeof(t->tid), t);
	if (PT_HASHED(t)) {
		m->newest[tid % PT_NEWEST] = t;
		return t;
	}
	p->threads.n--;
no_memory:
	m->all_threads.n--;
	pt_held_drop(sum, t, sizeof(*t));
	return NULL;
}

struct pt_thread *pt_thread_make(struct pt_model *m, uint32_t tid,
				 uint32_t tgid, uint32_t start, uint64_t ts)
{
	struct pt_thread *old, *t = m->last;

	/* records of one thread mostly come in a row */
	if (t && start && t->start == start && is_it(t, tid, tgid, start))
		return t;
	old = newest(m, tid);
	if (old)
		m->newest[tid % PT_NEWEST] = old;
	t = owner(old, tid, tgid, start);
	/* nobody reuses an id so often: a stream of nonsense */
	if (!t && old && old->tid >> PT_ID_BITS == PT_ID_REUSE_MAX)
		t = old;
	if (t && !t->start)
		t->start = start;
	if (!t)
		t = new_thread(m, tid, tgid, start, ts, old);
	if (t)
		m->last = t;
	return t;
}

/* ---- numbering -------------------------------------------------------------- */

#define SEEN_BITS 64

/* `back` before the latest one. */
static bool take_early(struct pt_model *m, struct pt_thread *t, uint32_t seq,
		       uint32_t back)
{
	uint32_t before = t->first_seq - seq;

	if ((int32_t)before > 0) { /* earlier than all: those between lack */
		t->lost += before - 1;
		t->first_seq = seq;
	} else if (back < SEEN_BITS ? t->seq_seen >> back & 1 : !t->lost) {
		m->doubled++;
		return false;
	} else if (t->lost) {
		t->lost--;
	}
	if (back < SEEN_BITS)
		t->seq_seen |= 1ull << back;
	m->disordered++;
	return true;
}

bool pt_take_seq(struct pt_model *m, struct pt_thread *t, uint32_t seq)
{
	uint32_t ahead = seq - t->next_seq;

	if (!t->seq_known) {
		t->seq_known = true;
		t->first_seq = seq;
		t->next_seq = seq + 1;
		t->seq_seen = 1;
		return true;
	}
	if ((int32_t)ahead < 0)
		return take_early(m, t, seq, t->next_seq - 1 - seq);
	t->seq_seen = ahead + 1 < SEEN_BITS ? t->seq_seen << (ahead + 1) | 1 : 1;
	t->lost += ahead;
	t->gap |= ahead > 0;
	t->next_seq = seq + 1;
	return true;
}

uint64_t pt_model_missing(const struct pt_model *m)
{
	uint64_t sum = m->gone.lost;
	size_t i;

	for (i = 0; i < m->all_threads.n; i++)
		sum += m->all_threads.v[i]->lost;
	return sum;
}
