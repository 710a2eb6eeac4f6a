/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that the target writes: how often, how much, and how long that takes. */
#include <errno.h>
#include <math.h>

#include "analysis/io/disks.h"
#include "base/hash.h"
#include "model/syscalls.h"

#define MAX_WRITES 50

struct key {
	uint64_t inode;
	uint32_t dev, tgid;
};

struct sum { /* of one process on one file */
	struct key key;
	uint64_t writes, fsyncs, bytes, about; /* about: by I/O accounting */
	uint64_t write_ns, fsync_ns, blocked_ns, blocked_sync_ns;
	UT_hash_handle hh;
};

struct seen { /* the file that a thread writes, by its intervals */
	struct sum *file;
	uint64_t fd;
};

static struct sum *sum_of(struct sum **all, uint32_t dev, uint64_t inode,
			  uint32_t tgid)
{
	struct key key = { inode, dev, tgid };

	return pt_hash_make(*all, key, &key);
}

static bool is_flush(int nr)
{
	return nr == PT_NR_fsync || nr == PT_NR_fdatasync ||
	       nr == PT_NR_sync_file_range;
}

static bool is_write(int nr)
{
	return nr == PT_NR_write || nr == PT_NR_pwrite64 ||
	       nr == PT_NR_writev || nr == PT_NR_pwritev ||
	       nr == PT_NR_pwritev2;
}

/*
 * What the thread wrote since the interval before goes to the file that it
 * blocks on now, or did then; the thread's other writes in between (a few bytes
 * on a pipe) go with it.
 */
static void account(struct seen *w, struct sum *now, const struct pt_iv *iv,
		    uint64_t wrote)
{
	if (now) {
		now->about += wrote;
		w->fd = iv->arg0;
	} else if (w->file) {
		w->file->about += wrote;
		if (is_write(iv->syscall) && iv->arg0 == w->fd)
			return; /* it lost its core in the middle of it */
	}
	w->file = now;
}

static int sum_blocked(struct pt_an *an, const struct pt_thread *th,
		       struct sum **all)
{
	struct seen w = { NULL, 0 };
	struct sum *s;

	pt_each_iv(iv, th, an->t0, an->t1) {
		uint64_t wrote = 0, ns;

		if (iv > th->iv.v && !iv->gap_before && iv[-1].end >= an->t0 &&
		    iv->wchar > iv[-1].wchar)
			wrote = iv->wchar - iv[-1].wchar;
		s = NULL;
		if (iv->wait == PT_WAIT_DISK_WRITE &&
		    iv->obj_kind == PT_OBJ_FILE) {
			s = sum_of(all, iv->dev, iv->object, th->tgid);
			if (!s)
				return -ENOMEM;
			ns = pt_overlap(an->t0, an->t1, iv->begin, iv->ready);
			s->blocked_ns += ns;
			if (is_flush(iv->syscall))
				s->blocked_sync_ns += ns;
		}
		account(&w, s, iv, wrote);
	}
	return 0;
}

static int sum_calls(struct pt_an *an, const struct pt_thread *th,
		     struct sum **all)
{
	struct sum *s;

	pt_each(const struct pt_write, x, &th->writes) {
		if (x->end < an->t0 || x->end > an->t1)
			continue;
		s = sum_of(all, x->dev, x->inode, th->tgid);
		if (!s)
			return -ENOMEM;
		s->writes += x->writes;
		s->fsyncs += x->fsyncs;
		s->bytes += x->bytes;
		s->write_ns += x->write_ns;
		s->fsync_ns += x->fsync_ns;
	}
	return 0;
}

static void fill_one(struct pt_an *an, const struct sum *s, bool seen,
		     struct pt_r_write *o)
{
	const struct pt_file *f = pt_model_file(an->m, s->key.dev, s->key.inode);
	struct pt_r_file place = { .dev = pt_model_dev(an->m, s->key.dev,
						       s->key.inode) };

	o->path = f && f->path ? pt_arena_strdup(an->a, f->path) : NULL;
	o->dev = place.dev;
	o->inode = s->key.inode;
	o->pid = s->key.tgid;
	o->calls = seen ? (int64_t)s->writes : PT_NULL;
	o->fsyncs = seen ? (int64_t)s->fsyncs : PT_NULL;
	o->bytes = seen ? (int64_t)s->bytes : (int64_t)s->about;
	o->write_s = seen ? pt_sec(s->write_ns) : NAN;
	/* one that never slept in it did not take long */
	o->fsync_s = pt_sec(pt_max64(s->fsync_ns, s->blocked_sync_ns));
	o->blocked_s = pt_sec(s->blocked_ns);
	pt_file_place(an, f, &place);
	o->fs = place.fs;
	o->fs_class = place.fs_class;
	o->device = place.device;
}

static int by_time(const struct sum *x, const struct sum *y)
{
	uint64_t a = pt_max64(x->write_ns + x->fsync_ns, x->blocked_ns);
	uint64_t b = pt_max64(y->write_ns + y->fsync_ns, y->blocked_ns);

	return pt_cmp(b, a) ?:
	       pt_cmp(y->bytes, x->bytes) ?:
	       pt_cmp(x->key.inode, y->key.inode);
}

int pt_fill_writes(struct pt_an *an)
{
	struct pt_r_write *out = pt_arena_calloc(an->a, MAX_WRITES, sizeof(*out));
	struct sum *all = NULL, *s;
	bool seen = false;
	size_t i, n = 0;
	int err = out ? 0 : -ENOMEM;

	for (i = 0; i < an->m->all_threads.n && !err; i++) {
		const struct pt_thread *th = an->m->all_threads.v[i];

		seen |= th->writes.n > 0;
		err = sum_blocked(an, th, &all);
		err = err ?: sum_calls(an, th, &all);
	}
	HASH_SORT(all, by_time);
	for (s = all; s && !err && n < MAX_WRITES; s = s->hh.next)
		fill_one(an, s, seen, &out[n++]);
	pt_hash_free(all);
	an->r->writes = out;
	an->r->n_writes = err ? 0 : n;
	if (n && !seen)
		pt_report_limit(an->r, "writes", "Write calls were not traced: files show only where a write or fsync of them blocked, fsync_s is the time blocked in it, and bytes are what the thread wrote around that.");
	return err;
}

const struct pt_r_write *pt_worst_write(const struct pt_an *an, int64_t pid)
{
	size_t i;

	for (i = 0; i < an->r->n_writes; i++)
		if (an->r->writes[i].pid == pid)
			return &an->r->writes[i];
	return NULL;
}
