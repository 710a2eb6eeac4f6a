/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A job can make processes, threads and names by the million. Those that have ended before
 * the begin of what is held, and names that nothing held refers to, become sums where
 * they are many; a few thousand stay, so that ordinary traces never come to this.
 */
#include <string.h>

#include "model/budget.h"
#include "model/internal.h"
#include "model/model.h"
#include "model/names.h"

#define ENDED_KEPT 4096

void pt_thread_free(struct pt_model *m, struct pt_thread *t)
{
	uint64_t *sum = &m->held.time;

	pt_held_cut(sum, &t->iv, t->iv.n);
	pt_held_cut(sum, &t->reads, t->reads.n);
	pt_held_cut(sum, &t->scatters, t->scatters.n);
	pt_held_cut(sum, &t->writes, t->writes.n);
	pt_held_cut(sum, &t->faults, t->faults.n);
	pt_held_cut(sum, &t->looks, t->looks.n);
	pt_held_drop(&m->held.tasks, t, sizeof(*t));
}

void pt_proc_free(struct pt_model *m, struct pt_proc *p)
{
	uint64_t *sum = &m->held.time, *tasks = &m->held.tasks;

	pt_held_cut(tasks, &p->threads, p->threads.n);
	pt_held_cut(sum, &p->gpu, p->gpu.n);
	pt_held_cut(sum, &p->acts, p->acts.n);
	pt_held_cut(tasks, &p->covers, p->covers.n);
	pt_held_cut(sum, &p->samples, p->samples.n);
	pt_held_cut(sum, &p->markers, p->markers.n);
	pt_held_cut(sum, &p->nvtx, p->nvtx.n);
	pt_held_cut(tasks, &p->strings, p->strings.n);
	pt_held_drop(tasks, p, sizeof(*p));
}

void pt_proc_keep(const struct pt_proc *p)
{
	if (p)
		((struct pt_proc *)p)->kept = true;
}

void pt_thread_keep(struct pt_model *m, const struct pt_thread *t)
{
	if (!t || t->kept)
		return;
	m->ended -= t->exited;
	((struct pt_thread *)t)->kept = true;
	pt_proc_keep(t->proc);
}

static bool is_over(const struct pt_model *m, const struct pt_thread *t)
{
	return t->exited && t->last < m->begin && !t->kept && !t->iv.n &&
	       !t->reads.n && !t->writes.n && !t->faults.n && !t->looks.n;
}

/* Samples tell by their differences; of calls a cut leaves the last one. */
static bool proc_is_over(const struct pt_model *m, const struct pt_proc *p)
{
	size_t i;

	if (p->kept || p->acts.n || p->nvtx.n || p->markers.n ||
	    p->samples.n > 1 || (!p->threads.n && p->facts.hdr.size) ||
	    (p->gpu.n && p->gpu.v[p->gpu.n - 1].begin >= m->begin))
		return false;
	for (i = 0; i < p->threads.n; i++)
		if (!is_over(m, p->threads.v[i]))
			return false;
	return true;
}

/* A process' first thread goes with the process. */
static void choose(struct pt_model *m)
{
	size_t i, k;

	for (i = 0; i < m->all_procs.n; i++) {
		struct pt_proc *p = m->all_procs.v[i];

		p->folded = proc_is_over(m, p);
		for (k = 0; k < p->threads.n; k++) {
			struct pt_thread *t = p->threads.v[k];

			t->folded = p->folded || (t->tid != t->tgid &&
						  is_over(m, t));
		}
	}
}

static void unlink_folded(struct pt_model *m)
{
	size_t i, k, n;

	for (i = 0; i < m->all_threads.n; i++) {
		struct pt_thread *t = m->all_threads.v[i];

		if (t->parent && t->parent->folded)
			t->parent = NULL;
		while (t->older && t->older->folded)
			t->older = t->older->older;
	}
	for (i = 0; i < m->all_procs.n; i++) {
		struct pt_proc *p = m->all_procs.v[i];

		while (p->older && p->older->folded)
			p->older = p->older->older;
		for (k = n = 0; k < p->threads.n && !p->folded; k++)
			if (!p->threads.v[k]->folded)
				p->threads.v[n++] = p->threads.v[k];
		p->threads.n = p->folded ? p->threads.n : n;
	}
	memset(m->newest, 0, sizeof(m->newest));
	m->last = NULL;
}

static void drop_folded(struct pt_model *m)
{
	struct pt_thread *t;
	struct pt_proc *p;
	size_t i, n = 0;

	for (i = 0; i < m->all_threads.n; i++) {
		t = m->all_threads.v[i];
		if (!t->folded) {
			m->all_threads.v[n++] = t;
			continue;
		}
		m->ended--;
		m->gone.run_ns += t->t1.run_ns - t->t0.run_ns;
		m->gone.lost += t->lost;
		pt_forget_id(m, t);
		HASH_DEL(m->threads, t);
		pt_thread_free(m, t);
	}
	m->gone.threads += m->all_threads.n - n;
	m->all_threads.n = n;
	for (i = n = 0; i < m->all_procs.n; i++) {
		p = m->all_procs.v[i];
		if (!p->folded) {
			m->all_procs.v[n++] = p;
			continue;
		}
		HASH_DEL(m->procs, p);
		pt_proc_free(m, p);
	}
	m->gone.procs += m->all_procs.n - n;
	m->all_procs.n = n;
}

bool pt_model_foldable(const struct pt_model *m)
{
	return m->ended > ENDED_KEPT || m->namings > 2 * PT_NAMES_KEPT ||
	       HASH_COUNT(m->names) > 2 * PT_NAMES_KEPT;
}

void pt_model_fold(struct pt_model *m)
{
	if (!pt_model_foldable(m))
		return;
	if (m->ended > ENDED_KEPT) {
		choose(m);
		unlink_folded(m);
	}
	pt_forget_kernels(m);
	pt_forget_files(m);
	drop_folded(m);
}

uint64_t pt_model_timelines(const struct pt_model *m)
{
	size_t ended = m->ended > ENDED_KEPT ? m->ended - ENDED_KEPT : 0;

	return m->held.time + ended * (pt_chunk(sizeof(struct pt_thread)) +
				       pt_chunk(sizeof(struct pt_proc)));
}
