/* SPDX-License-Identifier: BSD-2-Clause */
/* A trace that nobody stops must not eat the memory of the machine that it
 * watches: the oldest part goes, and the report says so. */
#include <string.h>

#include "model/acts.h"
#include "model/internal.h"
#include "model/model.h"
#include "model/socks.h"
#include "model/timeline.h"

uint64_t pt_model_bytes(const struct pt_model *m)
{
	uint64_t sum = pt_socks_bytes(m) +
		       m->blocks.cap * sizeof(*m->blocks.v) +
		       m->disks.cap * sizeof(*m->disks.v);
	size_t i;

	for (i = 0; i < m->all_threads.n; i++) {
		const struct pt_thread *t = m->all_threads.v[i];

		sum += sizeof(*t) + t->iv.cap * sizeof(*t->iv.v) +
		       t->reads.cap * sizeof(*t->reads.v) +
		       t->scatters.cap * sizeof(*t->scatters.v) +
		       t->writes.cap * sizeof(*t->writes.v) +
		       t->faults.cap * sizeof(*t->faults.v);
	}
	for (i = 0; i < m->all_procs.n; i++) {
		const struct pt_proc *p = m->all_procs.v[i];

		sum += sizeof(*p) + p->gpu.cap * sizeof(*p->gpu.v) +
		       p->acts.cap * sizeof(*p->acts.v) +
		       p->covers.cap * sizeof(*p->covers.v) +
		       p->samples.cap * sizeof(*p->samples.v) +
		       p->markers.cap * sizeof(*p->markers.v) +
		       p->nvtx.cap * sizeof(*p->nvtx.v);
	}
	return sum;
}

/* Move the last n - drop elements to the front and give memory back. */
static void keep_tail(void **v, size_t *n, size_t *cap, size_t drop, size_t size)
{
	void *p;

	if (!drop)
		return;
	*n -= drop;
	memmove(*v, (char *)*v + drop * size, *n * size);
	p = *n ? realloc(*v, *n * size) : NULL;
	if (p) {
		*v = p;
		*cap = *n;
	}
}

#define KEEP_TAIL(vec, drop)                                                   \
	keep_tail((void **)&(vec)->v, &(vec)->n, &(vec)->cap, drop,            \
		  sizeof(*(vec)->v))

/* Those of the reads that are left. */
static void trim_scatters(struct pt_thread *t)
{
	uint32_t first = 0;
	size_t i;

	for (i = 0; i < t->reads.n; i++)
		if (t->reads.v[i].more &&
		    (!first || t->reads.v[i].more < first))
			first = t->reads.v[i].more;
	if (!first) {
		KEEP_TAIL(&t->scatters, t->scatters.n);
		return;
	}
	for (i = 0; i < t->reads.n; i++)
		if (t->reads.v[i].more)
			t->reads.v[i].more -= first - 1;
	KEEP_TAIL(&t->scatters, first - 1);
}

/* What the totals were before interval `n`, the first that stays: of a thread
 * that is off the CPU but in its intervals, so the rest was run. */
static void rebase_totals(struct pt_thread *t, size_t n)
{
	const struct pt_iv *v = t->iv.v;
	size_t i;

	if (!n || !t->totals_known)
		return;
	for (i = 1; i < n; i++)
		t->t0.run_ns += v[i].begin - v[i - 1].end;
	for (i = 0; i < n; i++)
		t->t0.runq_ns += v[i].end - v[i].ready;
	if (t->t0.run_ns > t->t1.run_ns)
		t->t0.run_ns = t->t1.run_ns;
	if (t->t0.runq_ns > t->t1.runq_ns)
		t->t0.runq_ns = t->t1.runq_ns;
	t->t0.rchar = v[n - 1].rchar;
	t->t0.read_bytes = v[n - 1].read_bytes;
	t->t0.wchar = v[n - 1].wchar;
}

static void trim_thread(struct pt_thread *t, uint64_t before)
{
	size_t n;

	n = pt_iv_after(t, before);
	rebase_totals(t, n);
	KEEP_TAIL(&t->iv, n);
	t->settled = t->iv.n;
	for (n = 0; n < t->reads.n && t->reads.v[n].end < before; n++)
		;
	KEEP_TAIL(&t->reads, n);
	trim_scatters(t);
	for (n = 0; n < t->writes.n && t->writes.v[n].end < before; n++)
		;
	KEEP_TAIL(&t->writes, n);
	for (n = 0; n < t->faults.n && t->faults.v[n].end < before; n++)
		;
	KEEP_TAIL(&t->faults, n);
	if (t->first < before)
		t->first = before;
}

static void trim_samples(struct pt_proc *p, uint64_t before)
{
	size_t n;

	for (n = 0; n < p->samples.n && p->samples.v[n].hdr.ts < before; n++)
		;
	KEEP_TAIL(&p->samples, n);
	for (n = 0; n < p->markers.n && p->markers.v[n] < before; n++)
		;
	KEEP_TAIL(&p->markers, n);
}

static void trim_proc(struct pt_proc *p, uint64_t before)
{
	size_t n = pt_gpu_after(p, before);

	/* the last call before may still run */
	KEEP_TAIL(&p->gpu, n ? n - 1 : 0);
	p->settled = p->gpu.n;
	pt_trim_acts(p, before);
	for (n = 0; n < p->nvtx.n && p->nvtx.v[n].ts < before; n++)
		;
	KEEP_TAIL(&p->nvtx, n);
}

/* A process a second for ten minutes is 70 kB; a stream of nothing else must not
 * fill the memory. */
#define SAMPLES_MAX (32u << 20)

static uint64_t sample_bytes(const struct pt_model *m)
{
	uint64_t sum = m->devices.n * sizeof(*m->devices.v) +
		       m->memory.n * sizeof(*m->memory.v);
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

	for (i = 0; i < m->all_procs.n; i++)
		trim_samples(m->all_procs.v[i], before);
	for (i = 0; i < m->devices.n && m->devices.v[i].hdr.ts < before; i++)
		;
	KEEP_TAIL(&m->devices, i);
	for (i = 0; i < m->memory.n && m->memory.v[i].hdr.ts < before; i++)
		;
	KEEP_TAIL(&m->memory, i);
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
		trim_thread(m->all_threads.v[i], before);
	for (i = 0; i < m->all_procs.n; i++)
		trim_proc(m->all_procs.v[i], before);
	pt_trim_socks(m, before);
	if (!m->keep_samples || sample_bytes(m) > SAMPLES_MAX)
		trim_all_samples(m, before);
	for (i = 0; i < m->blocks.n && m->blocks.v[i].hdr.ts < before; i++)
		;
	KEEP_TAIL(&m->blocks, i);
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

int pt_model_trim(struct pt_model *m, uint64_t max_bytes)
{
	if (m->finished || pt_model_bytes(m) <= max_bytes)
		return 0;
	return pt_model_cut(m, pt_model_middle(m));
}
