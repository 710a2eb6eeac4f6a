/* SPDX-License-Identifier: BSD-2-Clause */
/* The report's tables of the whole target, from those of the parts; part.h. */
#include "analysis/parts/join.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/io/disks.h"
#include "report/fields.h"

#define MAX_ROWS 50

static void sum_count(int64_t *to, int64_t n)
{
	*to = *to == PT_NULL || n == PT_NULL ? PT_NULL : *to + n;
}

/* ---- files -------------------------------------------------------------------- */

static void add_pattern(struct pt_join *j, struct pt_r_pattern *o, double n,
			const struct pt_r_pattern *p, double m)
{
	struct pt_join_weights w = { { n }, { m } };

	if (!p->kind && !isfinite(p->sequential))
		return;
	pt_join_row(pt_row_find("pattern"), o, p, &w);
	if (!o->kind)
		o->kind = pt_join_text(j, p->kind);
	else if (p->kind && strcmp(o->kind, p->kind))
		o->kind = "mixed";
	if (o->stride != p->stride)
		o->stride = PT_NULL;
}

static double reads_of(const struct pt_r_file *f)
{
	return f->reads > 0 ? (double)f->reads : 0;
}

static void add_file(struct pt_join *j, struct pt_join_file *to, const struct pt_r_file *f)
{
	add_pattern(j, &to->f.pattern, reads_of(&to->f), &f->pattern, reads_of(f));
	pt_join_row(pt_row_find("file"), &to->f, f, NULL);
	sum_count(&to->f.reread_lo, f->reread_lo);
	if (to->f.text == PT_NULL)
		to->f.text = f->text;
}

static void drop_file(struct pt_join_host *h, struct pt_join_file *row)
{
	HASH_DEL(h->files, row);
	free(row->path);
	free(row);
}

/* Names come and go with the files: they are no texts of the join. */
static struct pt_join_file *new_file(struct pt_join *j, const struct pt_join_file *like,
				     const struct pt_r_file *f)
{
	struct pt_join_file *row = calloc(1, sizeof(*row));
	char *path = f->path ? strdup(f->path) : NULL;

	if (!row || (f->path && !path)) {
		free(path);
		free(row);
		return NULL;
	}
	row->key = like->key;
	row->f = *f;
	row->f.path = NULL;
	pt_join_own(j, pt_row_find("file"), &row->f);
	row->f.path = row->path = path;
	row->f.fetched_bytes = 0;
	HASH_ADD(hh, j->host.files, key, sizeof(row->key), row);
	if (PT_HASHED(row))
		return row;
	free(path);
	free(row);
	return NULL;
}

static int take_file(struct pt_join *j, const struct pt_r_file *f)
{
	struct pt_join_file *row, like;
	int64_t distinct = 0;

	memset(&like, 0, sizeof(like));
	like.key.inode = f->inode;
	like.key.dev = f->dev;
	like.key.path = pt_text_hash(f->path);
	HASH_FIND(hh, j->host.files, &like.key, sizeof(like.key), row);
	if (row)
		add_file(j, row, f);
	else
		row = new_file(j, &like, f);
	if (!row)
		return -ENOMEM;
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
static void finish_file(const struct pt_an *an, struct pt_join_file *row)
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
			       pt_same_text(name->path, f->path) ?
		       f->bytes - (int64_t)name->size : 0;
	f->reread_hi = f->bytes - row->most_distinct;
	if (over > f->reread_lo && over <= f->reread_hi)
		f->reread_lo = over;
	if (f->reread_lo == f->reread_hi)
		f->reread_bytes = f->reread_lo;
}

static int by_cost(const struct pt_join_file *x, const struct pt_join_file *y)
{
	double a = x->f.blocked_s + (x->f.fault_s > 0 ? x->f.fault_s : 0);
	double b = y->f.blocked_s + (y->f.fault_s > 0 ? y->f.fault_s : 0);
	int64_t m = x->f.bytes + (x->f.fault_bytes > 0 ? x->f.fault_bytes : 0);
	int64_t n = y->f.bytes + (y->f.fault_bytes > 0 ? y->f.fault_bytes : 0);

	if (a < b || a > b)
		return a > b ? -1 : 1;
	return m > n ? -1 : m < n;
}

static int add_files(struct pt_join *j, const struct pt_report *r)
{
	struct pt_join_host *h = &j->host;
	struct pt_join_file *row, *tmp;
	size_t i, n = 0;
	int err = 0;

	h->files_cut |= r->n_files == PT_PART_FILES;
	for (i = 0; i < r->n_files && !err; i++)
		err = take_file(j, &r->files[i]);
	if (err || HASH_COUNT(h->files) <= 2 * PT_JOIN_FILES)
		return err;
	HASH_SORT(h->files, by_cost);
	HASH_ITER(hh, h->files, row, tmp) {
		if (n++ >= PT_JOIN_FILES)
			drop_file(h, row);
	}
	h->files_dropped = true;
	return 0;
}

static int end_files(struct pt_an *an, struct pt_join_host *h)
{
	struct pt_r_file *o = pt_arena_calloc(an->a, PT_PART_FILES, sizeof(*o));
	struct pt_join_file *row, *tmp;
	size_t n = 0;

	if (!o)
		return -ENOMEM;
	HASH_SORT(h->files, by_cost);
	HASH_ITER(hh, h->files, row, tmp) {
		if (n == PT_PART_FILES)
			break;
		finish_file(an, row);
		o[n++] = row->f;
	}
	an->r->files = o;
	an->r->n_files = n;
	if (h->files_cut)
		return pt_report_limit(an->r, "files", "A piece of the capture read more files "
						       "than are kept of it (%d): the figures "
						       "of a file are lower bounds.",
				       PT_PART_FILES);
	return !h->files_dropped ? 0 :
	       pt_report_limit(an->r, "files", "More files were read than are kept (%d): the "
					       "figures of a file are lower bounds.",
			       PT_JOIN_FILES);
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

static int take_disk(struct pt_join *j, const struct pt_r_disk *d, double ns)
{
	const struct pt_row *row = pt_row_find("disk");
	struct pt_join_host *h = &j->host;
	struct pt_r_disk x = *d;
	size_t k;

	for (k = 0; k < h->disks.n && h->disks.v[k].dev != d->dev; k++)
		;
	if (k == PT_JOIN_DISKS)
		return 0;
	if (k < h->disks.n) {
		add_disk(row, &h->disks.v[k], h->disk_ns[k], d, ns);
	} else {
		pt_join_own(j, row, &x);
		if (pt_vec_push(&h->disks, x))
			return -ENOMEM;
	}
	h->disk_ns[k] += ns;
	return 0;
}

static void end_disks(struct pt_an *an, struct pt_join_host *h)
{
	double moved;

	pt_each(struct pt_r_disk, o, &h->disks) {
		moved = o->all_read_bytes == PT_NULL ? 0 :
			(double)(o->all_read_bytes + o->all_write_bytes);
		o->target_share = moved > 0 ?
			fmin(1, (double)(o->read_bytes + o->write_bytes) / moved) : NAN;
	}
	pt_vec_sort(&h->disks, by_bytes);
	an->r->disks = h->disks.v;
	an->r->n_disks = h->disks.n;
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

/* Of more than twice as many as are held those stay that cost most. */
#define BOUND_ROWS(vec, order)                                                 \
	do {                                                                   \
		if ((vec)->n > 2 * PT_JOIN_ROWS) {                             \
			qsort((vec)->v, (vec)->n, sizeof(*(vec)->v), order);   \
			(vec)->n = PT_JOIN_ROWS;                               \
		}                                                              \
	} while (0)

static int take_write(struct pt_join *j, const struct pt_r_write *w)
{
	const struct pt_row *row = pt_row_find("write");
	struct pt_r_write x = *w;

	pt_each(struct pt_r_write, o, &j->host.writes) {
		if (o->inode != w->inode || o->dev != w->dev || o->pid != w->pid ||
		    !pt_same_text(o->path, w->path))
			continue;
		pt_join_row(row, o, w, NULL);
		return 0;
	}
	pt_join_own(j, row, &x);
	return pt_vec_push(&j->host.writes, x);
}

static void end_writes(struct pt_an *an, struct pt_join_host *h)
{
	if (h->writes.n)
		qsort(h->writes.v, h->writes.n, sizeof(*h->writes.v), by_time);
	an->r->writes = h->writes.v;
	an->r->n_writes = h->writes.n < MAX_ROWS ? h->writes.n : MAX_ROWS;
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
	return a->port == b->port && pt_same_text(a->address, b->address) &&
	       pt_same_text(a->protocol, b->protocol);
}

PT_ORDER(by_wait, struct pt_r_peer,
	 pt_cmp(y->data_wait_s, x->data_wait_s) ?: pt_cmp(y->wait_s, x->wait_s) ?:
	 pt_cmp(y->bytes, x->bytes))

/* What the trainer's waits are charged to, by the peer's name. */
static int charge_peers(struct pt_an *an, struct pt_r_peer *o, size_t n)
{
	double wall = pt_sec(an->t1 - an->t0);
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
			o[k].data_wait_s += pt_sec(c->ns);
	}
	return 0;
}

PT_ORDER(by_any_wait, struct pt_r_peer,
	 pt_cmp(y->wait_s, x->wait_s) ?: pt_cmp(y->bytes, x->bytes))

static int take_peer(struct pt_join *j, const struct pt_r_peer *p)
{
	const struct pt_row *row = pt_row_find("peer");
	struct pt_r_peer x = *p;

	pt_each(struct pt_r_peer, o, &j->host.peers) {
		if (!same_peer(o, p))
			continue;
		add_peer(row, o, p);
		return 0;
	}
	pt_join_own(j, row, &x);
	return pt_vec_push(&j->host.peers, x);
}

static int end_peers(struct pt_an *an, struct pt_join_host *h)
{
	int err = charge_peers(an, h->peers.v, h->peers.n);

	if (err)
		return err;
	if (h->peers.n)
		qsort(h->peers.v, h->peers.n, sizeof(*h->peers.v), by_wait);
	an->r->peers = h->peers.v;
	an->r->n_peers = h->peers.n < MAX_ROWS ? h->peers.n : MAX_ROWS;
	return 0;
}

/* ---- what is read --------------------------------------------------------------- */

/* No less is different than in one part, no more than in all together. */
static void add_set(struct pt_r_working_set *o, const struct pt_r_working_set *s)
{
	if (s->read_bytes == PT_NULL)
		return;
	if (o->read_bytes == PT_NULL) {
		*o = *s;
		return;
	}
	sum_count(&o->read_bytes, s->read_bytes);
	if (s->files > o->files)
		o->files = s->files;
	if (s->seen[0] > o->seen[0])
		o->seen[0] = s->seen[0];
	sum_count(&o->seen[1], s->seen[1]);
	/* one that went round has shown all of it */
	if (s->whole[1] != PT_NULL && (o->whole[1] == PT_NULL || s->whole[1] < o->whole[1]))
		o->whole[1] = s->whole[1];
	o->certainty = PT_BOUNDED;
}

static int end_set(struct pt_an *an, const struct pt_join *j)
{
	struct pt_r_working_set *o = &an->r->memory.set;

	if (j->host.set.read_bytes == PT_NULL)
		return 0;
	*o = j->host.set;
	o->whole[0] = o->seen[0];
	return pt_report_limit(an->r, "memory.working_set", "The capture was analysed in %zu pieces: "
							    "the number of distinct bytes and files "
							    "that were read lies between the most of "
							    "one piece and the sum of all; files is "
							    "the former.",
			       j->n);
}

int pt_join_host_add(struct pt_join *j, const struct pt_part *p)
{
	const struct pt_report *r = p->r;
	size_t i;
	int err = add_files(j, r);

	add_set(&j->host.set, &r->memory.set);
	for (i = 0; i < r->n_disks && !err; i++)
		err = take_disk(j, &r->disks[i], (double)pt_part_ns(p));
	for (i = 0; i < r->n_writes && !err; i++)
		err = take_write(j, &r->writes[i]);
	for (i = 0; i < r->n_peers && !err; i++)
		err = take_peer(j, &r->peers[i]);
	BOUND_ROWS(&j->host.writes, by_time);
	BOUND_ROWS(&j->host.peers, by_any_wait);
	return err ?: pt_join_limits_add(&j->host.limits, r);
}

int pt_join_host_end(struct pt_an *an, struct pt_join *j)
{
	int err = end_files(an, &j->host);

	pt_measure_memory(an);
	err = err ?: end_set(an, j);
	end_disks(an, &j->host);
	end_writes(an, &j->host);
	err = err ?: end_peers(an, &j->host);
	return err ?: pt_join_limits_end(an->r, &j->host.limits);
}

void pt_join_host_free(struct pt_join_host *h)
{
	struct pt_join_file *row, *tmp;

	HASH_ITER(hh, h->files, row, tmp) {
		drop_file(h, row);
	}
	pt_vec_free(&h->disks);
	pt_vec_free(&h->writes);
	pt_vec_free(&h->peers);
	pt_join_limits_free(&h->limits);
}
