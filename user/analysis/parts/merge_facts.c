/* SPDX-License-Identifier: BSD-2-Clause */
/* What the judges ask of the records themselves, from the pieces' answers:
 * means by what each rests on, or the worst. */
#include <math.h>

#include "analysis/parts/piece.h"

static const struct pt_piece_rank *rank_at(const struct pt_an *an, size_t i)
{
	return pt_piece_rank_of(an->merge->v[i], an->top->proc);
}

/* A mean by weight; unknown ones are left out. */
struct mean {
	double sum, weight;
};

static void add(struct mean *m, double v, double weight)
{
	if (!isfinite(v) || !(weight > 0))
		return;
	m->sum += v * weight;
	m->weight += weight;
}

static double mean_of(const struct mean *m)
{
	return m->weight > 0 ? m->sum / m->weight : NAN;
}

static void merge_pool(const struct pt_an *an, struct pt_pool *out)
{
	struct mean busy = { 0 }, cpu = { 0 }, queue = { 0 }, sending = { 0 },
		    cores = { 0 };
	size_t i;

	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece_rank *k = rank_at(an, i);
		double ns = (double)pt_piece_ns(an->merge->v[i]), all;

		if (!k)
			continue;
		all = ns * (double)k->t.workers.n;
		add(&busy, k->f.pool.busy, all);
		add(&cpu, k->f.pool.cpu, all);
		add(&queue, k->f.pool.run_queue, all);
		add(&sending, k->f.pool.sending, all);
		add(&cores, k->f.pool.cores_used, ns);
	}
	out->busy = busy.weight > 0 ? mean_of(&busy) : 0;
	out->cpu = cpu.weight > 0 ? mean_of(&cpu) : 0;
	out->run_queue = queue.weight > 0 ? mean_of(&queue) : 0;
	out->sending = sending.weight > 0 ? mean_of(&sending) : 0;
	out->cores_used = mean_of(&cores);
}

static void merge_item(const struct pt_an *an, struct pt_item *out)
{
	struct mean median = { 0 }, slow = { 0 };
	double most = -1;
	size_t i, visits = 0;

	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece_rank *k = rank_at(an, i);
		double cost;

		if (!k)
			continue;
		/* the file that costs most in one of them, by its longest visit */
		cost = k->f.item.slow_share * (double)k->t.data_wait_ns;
		if (cost > most || (cost >= most && k->f.item.ms > out->ms)) {
			most = cost;
			*out = k->f.item;
		}
		visits += k->f.item.visits;
		add(&median, k->f.item.median_ms, (double)k->f.item.visits);
		add(&slow, k->f.item.slow_share, (double)k->t.data_wait_ns);
	}
	out->visits = visits;
	out->median_ms = mean_of(&median);
	out->slow_share = slow.weight > 0 ? mean_of(&slow) : 0;
}

/* The pieces stand where they lie in the whole. */
static void merge_balance(const struct pt_an *an, struct pt_gpu_balance *out)
{
	uint64_t wall = an->t1 - an->t0;
	size_t i, n, at;

	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece *p = an->merge->v[i];
		const struct pt_piece_rank *k = rank_at(an, i);

		if (!k)
			continue;
		out->allocs += k->f.gpu_balance.allocs;
		out->frees += k->f.gpu_balance.frees;
		out->bytes += k->f.gpu_balance.bytes;
		for (n = 0; n < PT_GPU_PARTS; n++) {
			at = (size_t)((double)(p->t0 - an->t0 +
					       (2 * n + 1) * pt_piece_ns(p) /
						       (2 * PT_GPU_PARTS)) *
				      PT_GPU_PARTS / (double)wall);
			out->net[at < PT_GPU_PARTS ? at : PT_GPU_PARTS - 1] +=
				k->f.gpu_balance.net[n];
		}
	}
}

void pt_merge_facts(struct pt_an *an, struct pt_facts *f)
{
	const struct pt_piece_rank *last = rank_at(an, an->merge->n - 1);

	if (last) /* what hung before, and went on, did not hang */
		f->hung = last->f.hung;
	merge_pool(an, &f->pool);
	merge_item(an, &f->item);
	merge_balance(an, &f->gpu_balance);
	f->gpu_growth = pt_gpu_growth_of(&f->gpu_balance, an->t1 - an->t0);
}

void pt_merge_steady(const struct pt_an *an, struct pt_steady *out)
{
	struct mean ahead = { 0 }, rho = { 0 };
	size_t i;

	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece_rank *k = rank_at(an, i);

		if (!k)
			continue;
		add(&ahead, k->f.steady.ahead, (double)k->f.steady.n);
		add(&rho, k->f.steady.size_rho, (double)k->f.steady.n);
	}
	out->ahead = ahead.weight > 0 && mean_of(&ahead) > 0.5;
	out->size_rho = mean_of(&rho);
}

/* What is said of the file in the table. Single waits are not known any more. */
void pt_merge_faults(const struct pt_an *an, struct pt_fault_facts *out)
{
	uint32_t dev = pt_model_dev(an->m, out->dev, out->inode);
	size_t i;

	for (i = 0; i < an->r->n_files; i++) {
		const struct pt_r_file *f = &an->r->files[i];

		if (f->inode != out->inode || f->dev != dev || f->faults < 0)
			continue;
		out->faults = (uint64_t)f->faults;
		out->bytes = f->fault_bytes > 0 ? (uint64_t)f->fault_bytes : 0;
		return;
	}
}

/* ---- storage ------------------------------------------------------------------ */

struct io_means {
	struct mean wait, depth, bytes, fetched, busy, read, by_bytes, se_bytes,
		by_share, se_share, opening, visits, visit, random, refault, held;
	double kind[PT_IO_CACHE + 1]; /* waiting by kind, s */
};

static void add_io(struct io_means *m, const struct pt_io *io, double ns)
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
	add(&m->refault, io->refault, s);
	add(&m->held, io->held, s);
	if (isfinite(s))
		m->kind[io->kind] += s;
}

static void put_io(const struct io_means *m, struct pt_io *out)
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
	out->refault = mean_of(&m->refault);
	out->held = mean_of(&m->held);
}

/* The kind that most of the waiting is of, as the pieces say. */
void pt_merge_io(struct pt_an *an, struct pt_io *out)
{
	struct io_means m = { 0 };
	double most = -1;
	size_t i, kind, best = 0;

	*out = (struct pt_io){ .stride = PT_NULL, .certainty = PT_CONF_LOW };
	for (i = 0; i < an->merge->n; i++) {
		const struct pt_piece_rank *k = rank_at(an, i);

		if (!k || !k->io_known)
			continue;
		add_io(&m, &k->io, (double)pt_piece_ns(an->merge->v[i]));
		out->waits += k->io.waits;
	}
	for (kind = 0; kind <= PT_IO_CACHE; kind++)
		if (m.kind[kind] > m.kind[best])
			best = kind;
	put_io(&m, out);
	out->kind = (enum pt_io_kind)best;
	for (i = 0; i < an->merge->n; i++) { /* what is said of that kind */
		const struct pt_piece_rank *k = rank_at(an, i);
		double s = k && k->io_known ?
				   (double)k->io.waits * k->io.wait_ms : 0;

		if (!(s > most) || !k || !k->io_known || k->io.kind != out->kind)
			continue;
		most = s;
		out->certainty = k->io.certainty;
		out->long_runs = k->io.long_runs;
		out->limit = k->io.limit;
		out->files = k->io.files;
		out->where = k->io.where;
		out->where_folder = k->io.where_folder;
		out->stride = k->io.stride;
	}
}
