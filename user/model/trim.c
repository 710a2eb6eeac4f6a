/* SPDX-License-Identifier: BSD-2-Clause */
/* A trace that nobody stops must not eat the memory of the machine that it
 * watches: the oldest part goes, and the report says so. */
#include <string.h>

#include "model/acts.h"
#include "model/budget.h"
#include "model/internal.h"
#include "model/model.h"
#include "model/socks.h"
#include "model/timeline.h"

#define TABLE(hh, head)                                                        \
	((head) ? (head)->hh.tbl->num_buckets * sizeof(UT_hash_bucket) +       \
			  sizeof(UT_hash_table) : 0)

uint64_t pt_model_bytes(const struct pt_model *m)
{
	return sizeof(*m) + m->held.time + m->held.tasks + m->held.names +
	       TABLE(hh, m->threads) + TABLE(hh, m->procs) +
	       TABLE(hh, m->aliases) + TABLE(hh, m->texts) +
	       TABLE(hh, m->files) + TABLE(hh, m->names) +
	       TABLE(hh, m->socks) + TABLE(by_ends, m->sock_ends) +
	       TABLE(hh, m->peers);
}

void pt_held_tail(uint64_t *sum, void **v, size_t *n, size_t *cap, size_t drop,
		  size_t size)
{
	size_t was = *cap;
	void *p;

	if (drop) {
		*n -= drop;
		memmove(*v, (char *)*v + drop * size, *n * size);
	}
	if (!*n) {
		free(*v);
		*v = NULL;
		*cap = 0;
	} else if (drop && (p = realloc(*v, *n * size))) {
		*v = p;
		*cap = *n;
	}
	*sum -= pt_chunk(was * size) - pt_chunk(*cap * size);
}

/* What is behind the first elements that all lie before. */
#define CUT(m, vec, when, before)                                              \
	do {                                                                   \
		size_t n_ = 0;                                                 \
                                                                               \
		while (n_ < (vec)->n && (vec)->v[n_] when < (before))          \
			n_++;                                                  \
		pt_held_cut(&(m)->held.time, vec, n_);                         \
	} while (0)

/* Those of the reads that are left. */
static void trim_scatters(struct pt_model *m, struct pt_thread *t)
{
	uint32_t first = 0;
	size_t i;

	for (i = 0; i < t->reads.n; i++)
		if (t->reads.v[i].more &&
		    (!first || t->reads.v[i].more < first))
			first = t->reads.v[i].more;
	if (!first) {
		pt_held_cut(&m->held.time, &t->scatters, t->scatters.n);
		return;
	}
	for (i = 0; i < t->reads.n; i++)
		if (t->reads.v[i].more)
			t->reads.v[i].more -= first - 1;
	pt_held_cut(&m->held.time, &t->scatters, first - 1);
}

/* What the totals were before interval `n`, the first that stays: of a thread
 * that is off the CPU but in its intervals, so the rest was run. */
static void rebase_totals(struct pt_model *m, struct pt_thread *t, size_t n)
{
	const struct pt_iv *v = t->iv.v;
	uint64_t ran = t->t0.run_ns;
	size_t i;

	if (!n || !t->totals_known)
		return;
	for (i = 1; i < n; i++)
		t->t0.run_ns += v[i].begin - v[i - 1].end;
	for (i = 0; i < n; i++)
		t->t0.runq_ns += v[i].end - v[i].ready;
	if (t->t0.run_ns > t->t1.run_ns)
		t->t0.run_ns = t->t1.run_ns;
	m->gone.run_ns += t->t0.run_ns - ran;
	if (t->t0.runq_ns > t->t1.runq_ns)
		t->t0.runq_ns = t->t1.runq_ns;
	t->t0.rchar = v[n - 1].rchar;
	t->t0.read_bytes = v[n - 1].read_bytes;
	t->t0.wchar = v[n - 1].wchar;
}

static void trim_thread(struct pt_model *m, struct pt_thread *t, uint64_t before)
{
	size_t n;

	n = pt_iv_after(t, before);
	rebase_totals(m, t, n);
	pt_held_cut(&m->held.time, &t->iv, n);
	t->settled = t->iv.n;
	for (n = 0; n < t->reads.n && t->reads.v[n].end < before; n++) {
		m->gone.reads += t->reads.v[n].count;
		m->gone.bytes += t->reads.v[n].ret > 0 ?
					 (uint64_t)t->reads.v[n].ret : 0;
	}
	pt_held_cut(&m->held.time, &t->reads, n);
	trim_scatters(m, t);
	CUT(m, &t->writes, .end, before);
	CUT(m, &t->faults, .end, before);
	CUT(m, &t->looks, .end, before);
	if (t->first < before)
		t->first = before;
}

static void trim_proc(struct pt_model *m, struct pt_proc *p, uint64_t before)
{
	size_t n = pt_gpu_after(p, before);

	/* the last call before may still run */
	pt_held_cut(&m->held.time, &p->gpu, n ? n - 1 : 0);
	p->settled = p->gpu.n;
	pt_trim_acts(m, p, before);
	CUT(m, &p->nvtx, .ts, before);
}

/* A process a second for ten minutes is 70 kB; a stream of nothing else must not
 * fill the memory. */
#define SAMPLES_MAX (32u << 20)

static uint64_t sample_bytes(const struct pt_model *m)
{
	uint64_t sum = m->devices.n * sizeof(*m->devices.v) +
		       m->memory.n * sizeof(*m->memory.v) +
		       m->costs.n * sizeof(*m->costs.v);
	size_t i;

	for (i = 0; i < m->all_procs.n; i++)
		sum += m->all_procs.v[i]->samples.n *
			       sizeof(struct pt_rec_sample) +
		       m->all_procs.v[i]->markers.n * sizeof(uint64_t);
	return sum;
}

static void trim_all_samples(struct pt_model *m, uint64_t before)
{
	size_t i;

	for (i = 0; i < m->all_procs.n; i++) {
		CUT(m, &m->all_procs.v[i]->samples, .hdr.ts, before);
		CUT(m, &m->all_procs.v[i]->markers, , before);
	}
	CUT(m, &m->devices, .hdr.ts, before);
	CUT(m, &m->memory, .hdr.ts, before);
	CUT(m, &m->costs, .hdr.ts, before);
}

int pt_model_cut(struct pt_model *m, uint64_t before)
{
	uint64_t begin = m->begin ? m->begin : m->first_ts;
	size_t i;
	int err;

	if (m->finished || before <= begin || before > m->last_ts)
		return 0;
	err = pt_model_settle(m);
	if (err)
		return err;
	for (i = 0; i < m->all_threads.n; i++)
		trim_thread(m, m->all_threads.v[i], before);
	for (i = 0; i < m->all_procs.n; i++)
		trim_proc(m, m->all_procs.v[i], before);
	pt_trim_socks(m, before);
	if (!m->keep_samples || sample_bytes(m) > SAMPLES_MAX)
		trim_all_samples(m, before);
	CUT(m, &m->blocks, .hdr.ts, before);
	CUT(m, &m->missed, .hdr.ts, before);
	pt_trim_disks(m, before);
	if (m->begin_unix_ns)
		m->begin_unix_ns += before - begin;
	m->trimmed_ns += before - begin;
	m->begin = before;
	return 0;
}

void pt_model_keep_samples(struct pt_model *m)
{
	m->keep_samples = true;
}

uint64_t pt_model_middle(const struct pt_model *m)
{
	uint64_t begin = m->begin ? m->begin : m->first_ts;

	return m->last_ts > begin ? begin + (m->last_ts - begin) / 2 : begin;
}

bool pt_model_halves(const struct pt_model *m, uint64_t max_bytes)
{
	return !m->finished && pt_model_bytes(m) > max_bytes &&
	       pt_model_timelines(m) > max_bytes / 4;
}

int pt_model_halve(struct pt_model *m)
{
	int err = pt_model_cut(m, pt_model_middle(m));

	if (!err)
		pt_model_fold(m);
	return err;
}

int pt_model_trim(struct pt_model *m, uint64_t max_bytes)
{
	if (m->finished || pt_model_bytes(m) <= max_bytes)
		return 0;
	if (pt_model_halves(m, max_bytes))
		return pt_model_halve(m);
	pt_model_fold(m);
	return 0;
}
