/* SPDX-License-Identifier: BSD-2-Clause */
/* Files by device and inode, with the names that their records told. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* The record's path in the arena; NULL in *out: it has none. 0 or -ENOMEM. */
static int path_of(struct pt_model *m, const struct pt_rec_file *r, bool truncated,
		   const char **out)
{
	const char *text = (const char *)r + offsetof(struct pt_rec_file, path);
	size_t max = PT_PATH_LEN, i, n = 0, pos = 0, len = 0, l;
	const char *part[PARTS_MAX];
	char *path;

	if (r->hdr.size > sizeof(*r))
		max = (r->hdr.size < PT_REC_MAX ? r->hdr.size : PT_REC_MAX) -
		      offsetof(struct pt_rec_file, path);
	while (n < r->parts && n < PARTS_MAX && pos < max) {
		l = strnlen(text + pos, max - pos);
		if (!l || pos + l == max)
			break;
		part[n++] = text + pos;
		pos += l + 1;
		len += l + 1;
	}
	*out = NULL;
	if (!n)
		return 0;
	path = pt_arena_alloc(m->arena, len + 5);
	if (!path)
		return -ENOMEM;
	/* innermost first in the record */
	if (truncated)
		strcat(path, "...");
	for (i = n; i-- > 0;) {
		strcat(path, "/");
		strcat(path, part[i]);
	}
	*out = path;
	return 0;
}

static bool same_name(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static int add_naming(struct pt_model *m, struct pt_file *first,
		      struct pt_file *f, uint64_t ts)
{
	struct pt_naming *n = pt_arena_alloc(m->arena, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->ts = ts;
	n->file = f;
	n->next = first->namings;
	first->namings = n;
	first->n_namings++;
	return 0;
}

/* A file that has a name was met again. */
static int name_again(struct pt_model *m, struct pt_file *first,
		      struct pt_file *f, uint64_t ts)
{
	struct pt_naming *n;
	int i;

	for (n = first->namings, i = 0; n && i < LOOK_BACK; n = n->next, i++)
		if (same_name(n->file->path, f->path))
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
	first->renamed = true;
	f->key.dev = PT_DEV_RENAMED + m->renamed;
	HASH_ADD(hh, m->files, key, sizeof(f->key), f);
	if (!PT_HASHED(f))
		return -ENOMEM;
	m->renamed++;
	return add_naming(m, first, f, ts);
}

int pt_feed_file(struct pt_model *m, const struct pt_rec_file *r)
{
	struct pt_thread *t = pt_thread_find(m, r->hdr.tid, r->hdr.tgid,
					     r->hdr.start);
	struct pt_file *f, *first;
	int err;

	/* it takes a number of the thread that met the file; a name from
	 * before the thread's first record does not begin its numbering */
	if (t && t->seq_known && !pt_take_seq(m, t, r->hdr.seq))
		return 0;
	f = pt_arena_alloc(m->arena, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->key = (struct pt_file_key){ r->inode, r->dev };
	f->dev = r->dev;
	f->size = r->size;
	f->mode = r->mode;
	f->fs_magic = r->fs_magic;
	f->truncated = r->truncated || r->hdr.flags & PT_F_READ_FAILED;
	err = path_of(m, r, f->truncated, &f->path);
	if (err)
		return err;
	first = find(m, r->dev, r->inode);
	if (first)
		return name_again(m, first, f, r->hdr.ts);
	err = add_naming(m, f, f, r->hdr.ts);
	if (err)
		return err;
	HASH_ADD(hh, m->files, key, sizeof(f->key), f);
	return PT_HASHED(f) ? 0 : -ENOMEM;
}

static int by_ts(const void *a, const void *b)
{
	const struct pt_naming *x = a, *y = b;

	return pt_cmp(x->ts, y->ts);
}

static int order_namings(struct pt_model *m, struct pt_file *f)
{
	struct pt_naming *v = pt_arena_calloc(m->arena, f->n_namings, sizeof(*v));
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

static void settle_thread(const struct pt_model *m, struct pt_thread *t)
{
	size_t i;

	for (i = 0; i < t->reads.n; i++)
		if (t->reads.v[i].obj_kind == PT_OBJ_FILE)
			settle(m, &t->reads.v[i].dev, t->reads.v[i].inode,
			       t->reads.v[i].end);
	for (i = 0; i < t->writes.n; i++)
		settle(m, &t->writes.v[i].dev, t->writes.v[i].inode,
		       t->writes.v[i].end);
	for (i = 0; i < t->faults.n; i++)
		settle(m, &t->faults.v[i].dev, t->faults.v[i].inode,
		       t->faults.v[i].end);
	for (i = 0; i < t->iv.n; i++)
		if (t->iv.v[i].obj_kind == PT_OBJ_FILE)
			settle(m, &t->iv.v[i].dev, t->iv.v[i].object,
			       t->iv.v[i].begin);
}

static void mark_text(struct pt_model *m)
{
	size_t i, k;

	for (i = 0; i < m->all_threads.n; i++) {
		const struct pt_thread *t = m->all_threads.v[i];

		for (k = 0; k < t->faults.n; k++) {
			const struct pt_fault_sum *s = &t->faults.v[k];
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
			settle_thread(m, m->all_threads.v[i]);
	}
	mark_text(m);
	return 0;
}
