/* SPDX-License-Identifier: BSD-2-Clause */
/* What the judges ask of the records themselves, from the pieces' answers:
 * means by what each rests on, or the worst. */
#include "analysis/parts/join.h"

#include <math.h>

static void add(struct pt_mean *m, double v, double weight)
{
	if (!isfinite(v) || !(weight > 0))
		return;
	m->sum += v * weight;
	m->weight += weight;
}

static double mean_of(const struct pt_mean *m)
{
	return m->weight > 0 ? m->sum / m->weight : NAN;
}

#define POOL(X, T)                                                             \
	X(T, SUM, all) X(T, SUM, cpu) X(T, SUM, run_queue) X(T, SUM, idle)      \
	X(T, SUM, sending) X(T, SUM, cores) X(T, SUM, programs) X(T, SUM, silent) \
	X(T, SUM, together) X(T, SUM, chance) X(T, SUM, woken) X(T, SUM, held)
PT_JOIN_LIST(pool, struct pt_pool_time, POOL, 0);

#define PHASES(X, T)                                                           \
	X(T, SUM, ns) X(T, SUM, steps) X(T, SUM, backward) X(T, ANY, told)
PT_JOIN_LIST(phases, struct pt_phases, PHASES, 7);

#define MEASURED(X, T)                                                         \
	X(T, OWN, phases) X(T, OWN, pool) X(T, OWN, hung) X(T, OWN, item)       \
	X(T, OWN, balance) X(T, OWN, faults) X(T, OWN, io) X(T, OWN, rows)      \
	X(T, OWN, asked)
PT_JOIN_LIST(measured, struct pt_measured, MEASURED, 0);

/* Of the file that most waiting for faults is charged to in most parts. */
static void add_faults(struct pt_fault_file *to, const struct pt_fault_file *k)
{
	if (!k->inode)
		return;
	if (!to->inode) {
		*to = *k;
		return;
	}
	if (to->inode != k->inode || to->dev != k->dev)
		return;
	to->faults += k->faults;
	to->bytes += k->bytes;
	to->p99_ms = NAN; /* single waits are not known any more */
}

/* The file that costs most in one of them, by its longest visit. */
static void add_item(struct pt_item *to, struct pt_item_means *m,
		     const struct pt_item *k, double wait_ns)
{
	double cost = k->slow_share * wait_ns;
	size_t visits = to->visits + k->visits;

	if (cost > m->most || (cost >= m->most && k->ms > to->ms)) {
		m->most = cost;
		*to = *k;
	}
	to->visits = visits;
	add(&m->median, k->median_ms, (double)k->visits);
	add(&m->slow, k->slow_share, wait_ns);
}

/* The parts stand where they lie in the whole. */
static void add_balance(struct pt_gpu_balance *to, const struct pt_an *an,
			const struct pt_stretch *s)
{
	double wall = (double)(an->t1 - an->t0);
	size_t n, at;

	to->allocs += s->balance.allocs;
	to->frees += s->balance.frees;
	to->bytes += s->balance.bytes;
	for (n = 0; n < PT_GPU_PARTS; n++) {
		at = (size_t)((double)(s->t0 - an->t0 + (2 * n + 1) * (s->t1 - s->t0) /
							(2 * PT_GPU_PARTS)) *
			      PT_GPU_PARTS / wall);
		to->net[at < PT_GPU_PARTS ? at : PT_GPU_PARTS - 1] += s->balance.net[n];
	}
}

/* ---- storage ------------------------------------------------------------------ */

static void add_io(struct pt_io_means *m, const struct pt_io *io, double ns)
{
	double waits = (double)io->waits, s = waits * io->wait_ms;

	add(&m->wait, io->wait_ms, waits);
	add(&m->depth, io->depth, s);
	add(&m->bytes, io->bytes_per_s, ns);
	add(&m->fetched, io->fetched_per_s, ns);
	add(&m->busy, io->busy_per_s, s);
	add(&m->read, io->read_bytes, waits);
	add(&m->by_bytes, io->by_bytes.value, s);
	add(&m->se_bytes, io->by_bytes.se, s);
	add(&m->by_share, io->by_share.value, s);
	add(&m->se_share, io->by_share.se, s);
	add(&m->opening, io->opening, s);
	add(&m->visits, io->visits_per_s, ns);
	add(&m->visit, io->visit_bytes, waits);
	add(&m->random, io->random, s);
	add(&m->held, io->held, s);
}

static void put_io(const struct pt_io_means *m, struct pt_io *out)
{
	out->wait_ms = mean_of(&m->wait);
	out->depth = m->depth.weight > 0 ? mean_of(&m->depth) : 0;
	out->bytes_per_s = m->bytes.weight > 0 ? mean_of(&m->bytes) : 0;
	out->fetched_per_s = mean_of(&m->fetched);
	out->busy_per_s = m->busy.weight > 0 ? mean_of(&m->busy) : 0;
	out->read_bytes = mean_of(&m->read);
	out->by_bytes.value = mean_of(&m->by_bytes);
	out->by_bytes.se = mean_of(&m->se_bytes);
	out->by_share.value = mean_of(&m->by_share);
	out->by_share.se = mean_of(&m->se_share);
	out->opening = m->opening.weight > 0 ? mean_of(&m->opening) : 0;
	out->visits_per_s = mean_of(&m->visits);
	out->visit_bytes = mean_of(&m->visit);
	out->random = m->random.weight > 0 ? mean_of(&m->random) : 0;
	out->held = mean_of(&m->held);
}

/* Of what is only said the part with most waiting says it. */
static void add_said(struct pt_join *j, struct pt_io *to, double *most,
		     const struct pt_io *k)
{
	double s = (double)k->waits * k->wait_ms;

	to->waits += k->waits;
	to->measured |= k->measured;
	to->looked |= k->looked;
	to->placed |= k->placed;
	if (!(s > *most))
		return;
	*most = s;
	to->long_runs = k->long_runs;
	to->limit = k->limit;
	to->files = k->files;
	to->where = pt_join_text(j, k->where);
	to->where_folder = k->where_folder;
	to->stride = k->stride;
}

void pt_join_facts_begin(struct pt_join_rank *r, struct pt_measured *to)
{
	r->item.most = r->io.most = -1;
	to->io = (struct pt_io){ .stride = PT_NULL, .certainty = PT_CONF_LOW };
}

void pt_join_facts_add(struct pt_join *j, size_t i, const struct pt_part *p,
		       const struct pt_trainer *t, const struct pt_measured *k)
{
	struct pt_join_rank *r = j->rank.v[i];
	struct pt_measured *to = &j->got.v[i];

	to->hung = k->hung;
	PT_JOIN(phases, &to->phases, &k->phases, NULL);
	PT_JOIN(pool, &to->pool, &k->pool, NULL);
	PT_JOIN(measured, to, k, NULL);
	add_item(&to->item, &r->item, &k->item, (double)t->data_wait_ns);
	add_faults(&to->faults, &k->faults);
	if (!k->io.waits)
		return;
	add_io(&r->io, &k->io, (double)pt_part_ns(p));
	add_said(j, &to->io, &r->io.most, &k->io);
}

void pt_join_facts_end(const struct pt_an *an, const struct pt_join_rank *r,
		       struct pt_measured *to)
{
	pt_each(const struct pt_stretch, s, &r->past) {
		add_balance(&to->balance, an, s);
	}
	to->item.median_ms = mean_of(&r->item.median);
	to->item.slow_share = r->item.slow.weight > 0 ? mean_of(&r->item.slow) : 0;
	put_io(&r->io, &to->io);
}
