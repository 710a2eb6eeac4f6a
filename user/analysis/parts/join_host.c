/* SPDX-License-Identifier: BSD-2-Clause */
/* The report's tables of the whole target, from those of the parts; part.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/io/disks.h"
#include "analysis/parts/part.h"
#include "base/hash.h"
#include "report/fields.h"

#define MAX_ROWS 50

static void sum_count(int64_t *to, int64_t n)
{
	*to = *to == PT_NULL || n == PT_NULL ? PT_NULL : *to + n;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

/* ---- files -------------------------------------------------------------------- */

struct file_row {
	struct {
		uint64_t inode, dev, path; /* path: a hash of it */
	} key;
	struct pt_r_file f;
	int64_t most_distinct; /* in one piece, at least */
	bool fetched_unknown;
	UT_hash_handle hh;
};

static uint64_t hash_of(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */

	for (; s && *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}

static void add_pattern(const struct pt_row *row, struct pt_r_pattern *o, double n,
			const struct pt_r_pattern *p, double m)
{
	struct pt_join_weights w = { { n }, { m } };

	if (!p->kind && !isfinite(p->sequential))
		return;
	pt_join_row(row, o, p, &w);
	if (!o->kind)
		o->kind = p->kind;
	else if (p->kind && strcmp(o->kind, p->kind))
		o->kind = "mixed";
	if (o->stride != p->stride)
		o->stride = PT_NULL;
}

static double reads_of(const struct pt_r_file *f)
{
	return f->reads > 0 ? (double)f->reads : 0;
}

struct files {
	struct file_row *all;
	const struct pt_row *file, *pattern;
};

static void add_file(const struct files *j, struct file_row *to,
		     const struct pt_r_file *f)
{
	add_pattern(j->pattern, &to->f.pattern, reads_of(&to->f), &f->pattern,
		    reads_of(f));
	pt_join_row(j->file, &to->f, f, NULL);
	sum_count(&to->f.reread_lo, f->reread_lo);
	if (to->f.text == PT_NULL)
		to->f.text = f->text;
}

static int take_file(struct files *j, const struct pt_r_file *f)
{
	struct file_row *row, *x = calloc(1, sizeof(*x));
	int64_t distinct = 0;

	if (!x)
		return -ENOMEM;
	x->key.inode = f->inode;
	x->key.dev = f->dev;
	x->key.path = hash_of(f->path);
	HASH_FIND(hh, j->all, &x->key, sizeof(x->key), row);
	if (row) {
		add_file(j, row, f);
		free(x);
	} else {
		row = x;
		row->f = *f;
		row->f.fetched_bytes = 0;
		HASH_ADD(hh, j->all, key, sizeof(row->key), row);
		if (!PT_HASHED(row)) {
			free(row);
			return -ENOMEM;
		}
	}
	if (f->bytes > 0 && f->reread_hi != PT_NULL)
		distinct = f->bytes - f->reread_hi;
	if (distinct > row->most_distinct)
		row->most_distinct = distinct;
	row->fetched_unknown |= f->bytes > 0 && f->fetched_bytes == PT_NULL;
	if (f->fetched_bytes > 0)
		row->f.fetched_bytes += f->fetched_bytes;
	return 0;
}

/* Read again: all but what is different. No more of it differs than the pieces
 * say in all, nor than the file is long; no less than one of them says. */
static void finish_file(const struct pt_an *an, struct file_row *row)
{
	struct pt_r_file *f = &row->f;
	const struct pt_file *name;
	int64_t over;

	pt_file_cached(f, row->fetched_unknown ? PT_NULL : f->fetched_bytes);
	f->reread_bytes = f->reread_hi = PT_NULL;
	if (f->reread_lo == PT_NULL || f->bytes == PT_NULL)
		return;
	name = pt_model_file(an->m, f->dev, f->inode);
	over = name && name->size && name->size < (uint64_t)f->bytes &&
			       same_text(name->path, f->path) ?
		       f->bytes - (int64_t)name->size : 0;
	f->reread_hi = f->bytes - row->most_distinct;
	if (over > f->reread_lo && over <= f->reread_hi)
		f->reread_lo = over;
	if (f->reread_lo == f->reread_hi)
		f->reread_bytes = f->reread_lo;
}

static int by_cost(const struct file_row *x, const struct file_row *y)
{
	double a = x->f.blocked_s + (x->f.fault_s > 0 ? x->f.fault_s : 0);
	double b = y->f.blocked_s + (y->f.fault_s > 0 ? y->f.fault_s : 0);
	int64_t m = x->f.bytes + (x->f.fault_bytes > 0 ? x->f.fault_bytes : 0);
	int64_t n = y->f.bytes + (y->f.fault_bytes > 0 ? y->f.fault_bytes : 0);

	if (a < b || a > b)
		return a > b ? -1 : 1;
	return m > n ? -1 : m < n;
}

static int join_files(struct pt_an *an, const struct pt_parts_of *all)
{
	struct pt_r_file *o = pt_arena_calloc(an->a, PT_PART_FILES, sizeof(*o));
	struct files j = { NULL, pt_row_find("file"), pt_row_find("pattern") };
	struct file_row *row, *tmp;
	bool cut = false;
	size_t i, k, n = 0;
	int err = o ? 0 : -ENOMEM;

	for (i = 0; i < all->n; i++) {
		const struct pt_report *r = all->v[i]->r;

		cut |= r->n_files == PT_PART_FILES;
		for (k = 0; k < r->n_files && !err; k++)
			err = take_file(&j, &r->files[k]);
	}
	HASH_SORT(j.all, by_cost);
	HASH_ITER(hh, j.all, row, tmp) {
		if (!err && n < PT_PART_FILES) {
			finish_file(an, row);
			o[n++] = row->f;
		}
		HASH_DEL(j.all, row);
		free(row);
	}
	an->r->files = o;
	an->r->n_files = err ? 0 : n;
	if (!err && cut)
		err = pt_report_limit(an->r, "files", "A piece of the capture read more files "
						      "than are kept of it (%d): the figures "
						      "of a file are lower bounds.",
				      PT_PART_FILES);
	return err;
}

/* ---- disks -------------------------------------------------------------------- */

static double requests(const struct pt_r_disk *d)
{
	return (double)(d->reads + d->writes);
}

static double all_requests(const struct pt_r_disk *d)
{
	return d->all_reads == PT_NULL ? 0 : (double)(d->all_reads +
						      d->all_writes);
}

static void add_disk(const struct pt_row *row, struct pt_r_disk *o, double ns,
		     const struct pt_r_disk *d, double m)
{
	struct pt_join_weights w = { { requests(o), all_requests(o), ns },
				     { requests(d), all_requests(d), m } };

	pt_join_row(row, o, d, &w);
}

PT_ORDER(by_bytes, struct pt_r_disk,
	 pt_cmp(y->read_bytes + y->write_bytes, x->read_bytes + x->write_bytes) ?:
	 pt_cmp(x->dev, y->dev))

static int join_disks(struct pt_an *an, const struct pt_parts_of *all)
{
	struct pt_r_disk *o = pt_arena_calloc(an->a, MAX_ROWS, sizeof(*o));
	const struct pt_row *row = pt_row_find("disk");
	size_t i, j, n = 0;
	double moved, ns[MAX_ROWS] = { 0 };

	if (!o)
		return -ENOMEM;
	for (i = 0; i < all->n; i++) {
		const struct pt_part *p = all->v[i];

		pt_each_of(const struct pt_r_disk, d, p->r->disks, p->r->n_disks) {
			for (j = 0; j < n && o[j].dev != d->dev; j++)
				;
			if (j == MAX_ROWS)
				continue;
			if (j == n)
				o[n++] = *d;
			else
				add_disk(row, &o[j], ns[j], d,
					 (double)pt_part_ns(p));
			ns[j] += (double)pt_part_ns(p);
		}
	}
	for (i = 0; i < n; i++) {
		moved = o[i].all_read_bytes == PT_NULL ? 0 :
			(double)(o[i].all_read_bytes + o[i].all_write_bytes);
		o[i].target_share = moved > 0 ?
			fmin(1, (double)(o[i].read_bytes + o[i].write_bytes) /
					moved) : NAN;
	}
	qsort(o, n, sizeof(*o), by_bytes);
	an->r->disks = o;
	an->r->n_disks = n;
	return 0;
}

/* ---- writes ------------------------------------------------------------------- */

static double write_time(const struct pt_r_write *w)
{
	double s = (isfinite(w->write_s) ? w->write_s : 0) +
		   (isfinite(w->fsync_s) ? w->fsync_s : 0);

	return fmax(s, w->blocked_s);
}

PT_ORDER(by_time, struct pt_r_write,
	 pt_cmp(write_time(y), write_time(x)) ?: pt_cmp(y->bytes, x->bytes) ?:
	 pt_cmp(x->inode, y->inode))

static int join_writes(struct pt_an *an, const struct pt_parts_of *all)
{
	const struct pt_row *row = pt_row_find("write");
	size_t i, j, n = 0, max = 1;
	struct pt_r_write *o;

	for (i = 0; i < all->n; i++)
		max += all->v[i]->r->n_writes;
	o = pt_arena_calloc(an->a, max, sizeof(*o));
	if (!o)
		return -ENOMEM;
	for (i = 0; i < all->n; i++) {
		const struct pt_report *r = all->v[i]->r;

		pt_each_of(const struct pt_r_write, w, r->writes, r->n_writes) {
			for (j = 0; j < n; j++)
				if (o[j].inode == w->inode &&
				    o[j].dev == w->dev && o[j].pid == w->pid &&
				    same_text(o[j].path, w->path))
					break;
			if (j < n)
				pt_join_row(row, &o[j], w, NULL);
			else
				o[n++] = *w;
		}
	}
	qsort(o, n, sizeof(*o), by_time);
	an->r->writes = o;
	an->r->n_writes = n < MAX_ROWS ? n : MAX_ROWS;
	return 0;
}

/* ---- peers -------------------------------------------------------------------- */

/* Its round trips and losses are of all its life, by the kernel's own counters. */
static void add_peer(const struct pt_row *row, struct pt_r_peer *o,
		     const struct pt_r_peer *p)
{
	struct pt_join_weights w = { { o->wait_s, (double)o->connections },
				     { p->wait_s, (double)p->connections } };

	pt_join_row(row, o, p, &w);
	o->connections += p->opened; /* the others were there before */
	if (o->connections < p->connections)
		o->connections = p->connections;
}

static bool same_peer(const struct pt_r_peer *a, const struct pt_r_peer *b)
{
	return a->port == b->port && same_text(a->address, b->address) &&
	       same_text(a->protocol, b->protocol);
}

PT_ORDER(by_wait, struct pt_r_peer,
	 pt_cmp(y->data_wait_s, x->data_wait_s) ?: pt_cmp(y->wait_s, x->wait_s) ?:
	 pt_cmp(y->bytes, x->bytes))

/* What the trainer's waits are charged to, by the peer's name. */
static int charge_peers(struct pt_an *an, struct pt_r_peer *o, size_t n)
{
	double wall = (double)(an->t1 - an->t0) / NS_PER_S;
	size_t i, k;

	for (i = 0; i < n; i++) {
		o[i].data_wait_s = an->top ? 0 : NAN;
		o[i].rate_bps = o[i].bytes != PT_NULL ?
					(double)o[i].bytes / wall : NAN;
	}
	for (i = 0; an->top && i < an->top->charges.n; i++) {
		const struct pt_charge *c = &an->top->charges.v[i];
		struct pt_r_peer p = { 0 };

		if (!c->peer)
			continue;
		if (pt_peer_row(an, c->peer - 1, &p))
			return -ENOMEM;
		for (k = 0; k < n && !same_peer(&o[k], &p); k++)
			;
		if (k < n)
			o[k].data_wait_s += (double)c->ns / NS_PER_S;
	}
	return 0;
}

static int join_peers(struct pt_an *an, const struct pt_parts_of *all)
{
	const struct pt_row *row = pt_row_find("peer");
	size_t i, k, j, n = 0, max = 1;
	struct pt_r_peer *o;
	int err;

	for (i = 0; i < all->n; i++)
		max += all->v[i]->r->n_peers;
	o = pt_arena_calloc(an->a, max, sizeof(*o));
	if (!o)
		return -ENOMEM;
	for (i = 0; i < all->n; i++) {
		const struct pt_report *r = all->v[i]->r;

		for (k = 0; k < r->n_peers; k++) {
			for (j = 0; j < n && !same_peer(&o[j], &r->peers[k]); j++)
				;
			if (j < n)
				add_peer(row, &o[j], &r->peers[k]);
			else
				o[n++] = r->peers[k];
		}
	}
	err = charge_peers(an, o, n);
	if (err)
		return err;
	qsort(o, n, sizeof(*o), by_wait);
	an->r->peers = o;
	an->r->n_peers = n < MAX_ROWS ? n : MAX_ROWS;
	return 0;
}

/* ---- what is read --------------------------------------------------------------- */

/* No less is different than in one part, no more than in all together. */
static void join_set(struct pt_an *an, const struct pt_parts_of *all)
{
	struct pt_r_working_set *o = &an->r->memory.set;
	size_t i;

	for (i = 0; i < all->n; i++) {
		const struct pt_r_working_set *s = &all->v[i]->r->memory.set;

		if (s->read_bytes == PT_NULL)
			continue;
		if (o->read_bytes == PT_NULL) {
			*o = *s;
			continue;
		}
		sum_count(&o->read_bytes, s->read_bytes);
		if (s->files > o->files)
			o->files = s->files;
		if (s->seen[0] > o->seen[0])
			o->seen[0] = s->seen[0];
		sum_count(&o->seen[1], s->seen[1]);
		/* one that went round has shown all of it */
		if (s->whole[1] != PT_NULL &&
		    (o->whole[1] == PT_NULL || s->whole[1] < o->whole[1]))
			o->whole[1] = s->whole[1];
		o->certainty = PT_BOUNDED;
	}
	if (o->read_bytes == PT_NULL)
		return;
	o->whole[0] = o->seen[0];
	pt_report_limit(an->r, "memory.working_set", "The capture was analysed in %zu pieces: "
						     "the number of distinct bytes and files "
						     "that were read lies between the most of "
						     "one piece and the sum of all; files is "
						     "the former.",
			all->n);
}

int pt_join_host(struct pt_an *an, const struct pt_parts_of *all)
{
	size_t i;
	int err = join_files(an, all);

	pt_measure_memory(an);
	join_set(an, all);
	err = err ?: join_disks(an, all);
	err = err ?: join_writes(an, all);
	err = err ?: join_peers(an, all);
	for (i = all->n; i-- > 0 && !err;)
		err = pt_join_limits(an->r, all->v[i]->r);
	return err;
}
