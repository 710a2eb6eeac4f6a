/* SPDX-License-Identifier: BSD-2-Clause */
/* Files by device and inode, with the names that their records told. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/budget.h"
#include "model/internal.h"

#define PARTS_MAX 32
#define RENAMED_MAX (UINT32_MAX - PT_DEV_RENAMED)
/* A name that was not met for so many others counts as a new one. */
#define LOOK_BACK 16

static struct pt_file *find(const struct pt_model *m, uint32_t dev,
			    uint64_t inode)
{
	struct pt_file_key key = { inode, dev };
	struct pt_file *f;

	HASH_FIND(hh, m->files, &key, sizeof(key), f);
	return f;
}

const struct pt_file *pt_model_file(const struct pt_model *m, uint32_t dev,
				    uint64_t inode)
{
	return find(m, dev, inode);
}

uint32_t pt_model_dev(const struct pt_model *m, uint32_t dev, uint64_t inode)
{
	const struct pt_file *f = dev >= PT_DEV_RENAMED ? find(m, dev, inode) :
							  NULL;

	return f ? f->dev : dev;
}

struct told { /* what a record says */
	const struct pt_rec_file *r;
	bool truncated;
	size_t len; /* 0: it has no name */
	char path[PT_REC_MAX + 8];
};

static void take_path(struct told *o)
{
	const struct pt_rec_file *r = o->r;
	const char *text = (const char *)r + offsetof(struct pt_rec_file, path);
	size_t max = PT_PATH_LEN, i, n = 0, pos = 0, l;
	const char *part[PARTS_MAX];
	char *at = o->path;

	if (r->hdr.size > sizeof(*r))
		max = (r->hdr.size < PT_REC_MAX ? r->hdr.size : PT_REC_MAX) -
		      offsetof(struct pt_rec_file, path);
	while (n < r->parts && n < PARTS_MAX && pos < max) {
		l = strnlen(text + pos, max - pos);
		if (!l || pos + l == max)
			break;
		part[n++] = text + pos;
		pos += l + 1;
	}
	if (n && o->truncated)
		at = stpcpy(at, "...");
	for (i = n; i-- > 0;) { /* innermost first in the record */
		*at++ = '/';
		at = stpcpy(at, part[i]);
	}
	*at = 0;
	o->len = (size_t)(at - o->path);
}

static bool is_named(const struct pt_file *f, const struct told *o)
{
	return f->path ? !strcmp(f->path, o->path) : !o->len;
}

/* Not one of the other names of a renamed file. */
static bool is_first(const struct pt_file *f)
{
	return f->key.dev == f->dev;
}

static void drop_file(struct pt_model *m, struct pt_file *f)
{
	if (PT_HASHED(f))
		HASH_DEL(m->files, f);
	pt_held_drop(is_first(f) ? &m->held.names : &m->held.time, f,
		     sizeof(*f) + (f->path ? strlen(f->path) : 0) + 1);
}

/* Of a renamed file's names each goes with the last that says so. */
static void drop_naming(struct pt_model *m, struct pt_file *first,
			struct pt_naming *n)
{
	if (n->file != first && !--n->file->n_namings)
		drop_file(m, n->file);
	pt_held_drop(&m->held.time, n, sizeof(*n));
	first->n_namings--;
	m->namings--;
}

static void drop_namings(struct pt_model *m, struct pt_file *first)
{
	struct pt_naming *n;

	while ((n = first->namings)) {
		first->namings = n->next;
		drop_naming(m, first, n);
	}
}

static int add_naming(struct pt_model *m, struct pt_file *first,
		      struct pt_file *f, uint64_t ts)
{
	struct pt_naming *n = pt_held_new(&m->held.time, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->ts = ts;
	n->file = f;
	n->next = first->namings;
	first->namings = n;
	first->n_namings++;
	f->n_namings += f != first;
	m->namings++;
	return 0;
}

/* One more name of `first`, or (NULL) of a file that was not met before. */
static int add_file(struct pt_model *m, struct pt_file *first,
		    const struct told *o, uint64_t dev)
{
	uint64_t *sum = first ? &m->held.time : &m->held.names;
	struct pt_file *f = pt_held_new(sum, sizeof(*f) + o->len + 1);

	if (!f)
		return -ENOMEM;
	f->key = (struct pt_file_key){ o->r->inode, dev };
	f->dev = o->r->dev;
	f->size = o->r->size;
	f->mode = o->r->mode;
	f->fs_magic = o->r->fs_magic;
	f->truncated = o->truncated;
	f->latest = o->r->hdr.ts;
	memcpy(f->name, o->path, o->len);
	f->path = o->len ? f->name : NULL;
	HASH_ADD(hh, m->files, key, sizeof(f->key), f);
	if (PT_HASHED(f) && !add_naming(m, first ? first : f, f, f->latest))
		return 0;
	drop_file(m, f);
	return -ENOMEM;
}

/* A file that has a name was met again. */
static int name_again(struct pt_model *m, struct pt_file *first,
		      const struct told *o)
{
	uint64_t ts = o->r->hdr.ts;
	struct pt_naming *n;
	int i, err;

	first->latest = pt_max64(first->latest, ts);
	for (n = first->namings, i = 0; n && i < LOOK_BACK; n = n->next, i++)
		if (is_named(n->file, o))
			break;
	if (i == LOOK_BACK)
		n = NULL;
	if (n && !first->renamed) { /* it had merely been forgotten */
		if (ts < n->ts)
			n->ts = ts;
		return 0;
	}
	if (n)
		return add_naming(m, first, n->file, ts);
	if (m->renamed >= RENAMED_MAX)
		return 0;
	err = add_file(m, first, o, PT_DEV_RENAMED + m->renamed);
	if (err)
		return err;
	m->renamed++;
	first->renamed = true;
	return 0;
}

int pt_feed_file(struct pt_model *m, const struct pt_rec_file *r)
{
	struct pt_thread *t = pt_thread_find(m, r->hdr.tid, r->hdr.tgid,
					     r->hdr.start);
	struct told o;
	struct pt_file *first;

	if (r->dev >= PT_DEV_RENAMED)
		return -EINVAL;
	/* it takes a number of the thread that met the file; a name from
	 * before the thread's first record does not begin its numbering */
	if (t && t->seq_known && !pt_take_seq(m, t, r->hdr.seq))
		return 0;
	o.r = r;
	o.truncated = r->truncated || r->hdr.flags & PT_F_READ_FAILED;
	take_path(&o);
	first = find(m, r->dev, r->inode);
	return first ? name_again(m, first, &o) : add_file(m, NULL, &o, r->dev);
}

PT_ORDER(by_ts, struct pt_naming, pt_cmp(x->ts, y->ts))

static int order_namings(struct pt_model *m, struct pt_file *f)
{
	struct pt_naming *v = pt_held_new(&m->held.time,
					  f->n_namings * sizeof(*v));
	const struct pt_naming *n;
	size_t i = 0;

	if (!v)
		return -ENOMEM;
	for (n = f->namings; n && i < f->n_namings; n = n->next)
		v[i++] = *n;
	qsort(v, i, sizeof(*v), by_ts);
	f->by_ts = v;
	return 0;
}

/* The name that was met last until `ts`; where that is none, the first. */
static const struct pt_file *named_at(const struct pt_file *first, uint64_t ts)
{
	size_t lo = pt_bisect(first->n_namings, i, first->by_ts[i].ts <= ts);

	return first->by_ts[lo ? lo - 1 : 0].file;
}

static void settle(const struct pt_model *m, uint32_t *dev, uint64_t inode,
		   uint64_t ts)
{
	const struct pt_file *f = find(m, *dev, inode);

	if (f && f->renamed)
		*dev = (uint32_t)named_at(f, ts)->key.dev;
}

static void use(const struct pt_model *m, uint32_t *dev, uint64_t inode,
		uint64_t ts)
{
	struct pt_file *f = find(m, *dev, inode);

	(void)ts;
	if (f)
		f->used = true;
}

/* Each file that something held was of, and when. */
static void each_met(const struct pt_model *m, struct pt_thread *t,
		     void (*fn)(const struct pt_model *m, uint32_t *dev,
				uint64_t inode, uint64_t ts))
{
	size_t i;

	for (i = 0; i < t->reads.n; i++)
		if (t->reads.v[i].obj_kind == PT_OBJ_FILE)
			fn(m, &t->reads.v[i].dev, t->reads.v[i].inode,
			   t->reads.v[i].end);
	for (i = 0; i < t->writes.n; i++)
		fn(m, &t->writes.v[i].dev, t->writes.v[i].inode,
		   t->writes.v[i].end);
	for (i = 0; i < t->faults.n; i++)
		fn(m, &t->faults.v[i].dev, t->faults.v[i].inode,
		   t->faults.v[i].end);
	for (i = 0; i < t->iv.n; i++)
		if (t->iv.v[i].obj_kind == PT_OBJ_FILE)
			fn(m, &t->iv.v[i].dev, t->iv.v[i].object,
			   t->iv.v[i].begin);
}

static void mark_text(struct pt_model *m)
{
	size_t i;

	for (i = 0; i < m->all_threads.n; i++) {
		const struct pt_thread *t = m->all_threads.v[i];

		pt_each(const struct pt_fault_sum, s, &t->faults) {
			struct pt_file *f = s->text ? find(m, s->dev, s->inode) :
						      NULL;

			if (f)
				f->text = true;
		}
	}
}

int pt_settle_files(struct pt_model *m)
{
	struct pt_file *f, *tmp;
	size_t i;

	if (m->renamed) {
		HASH_ITER(hh, m->files, f, tmp)
			if (f->renamed && order_namings(m, f))
				return -ENOMEM;
		for (i = 0; i < m->all_threads.n; i++)
			each_met(m, m->all_threads.v[i], settle);
	}
	mark_text(m);
	return 0;
}

/* ---- memory ------------------------------------------------------------------- */

/* The name that a file had at the begin is the last one met before. */
static void trim_names_of(struct pt_model *m, struct pt_file *first)
{
	struct pt_naming **at, *n, *last = NULL;

	for (n = first->namings; n; n = n->next)
		if (n->ts < m->begin && (!last || n->ts > last->ts))
			last = n;
	for (at = &first->namings; (n = *at);) {
		if (n->ts >= m->begin || n == last) {
			at = &n->next;
			continue;
		}
		*at = n->next;
		drop_naming(m, first, n);
	}
}

/* The first of all is one: others follow theirs. */
static struct pt_file *next_first(const struct pt_file *f)
{
	struct pt_file *next = f->hh.next;

	while (next && !is_first(next))
		next = next->hh.next;
	return next;
}

/* The oldest go first, and those that were met before the begin. */
static void forget(struct pt_model *m, uint64_t before)
{
	struct pt_file *f, *next;

	for (f = m->files; f && m->namings > PT_NAMES_KEPT; f = next) {
		next = next_first(f);
		if (f->used || f->latest >= before)
			continue;
		drop_namings(m, f);
		drop_file(m, f);
		m->gone.names++;
	}
}

void pt_forget_files(struct pt_model *m)
{
	struct pt_file *f;
	size_t i;

	if (m->namings <= 2 * PT_NAMES_KEPT)
		return;
	for (i = 0; i < m->all_threads.n; i++)
		each_met(m, m->all_threads.v[i], use);
	forget(m, m->begin);
	forget(m, UINT64_MAX);
	for (f = m->files; f; f = next_first(f)) {
		f->used = false;
		if (f->renamed)
			trim_names_of(m, f);
	}
}

void pt_files_free(struct pt_model *m)
{
	struct pt_naming *n;
	struct pt_file *f;

	for (f = m->files; f; f = f->hh.next) {
		while ((n = f->namings)) {
			f->namings = n->next;
			free(n);
		}
		free(f->by_ts);
	}
	pt_hash_free(m->files);
}
