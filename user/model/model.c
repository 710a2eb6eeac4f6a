/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/classify.h"
#include "model/internal.h"

struct pt_model *pt_model_new(void)
{
	struct pt_model *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->arena = pt_arena_new();
	if (!m->arena) {
		free(m);
		return NULL;
	}
	return m;
}

void pt_model_free(struct pt_model *m)
{
	size_t i;

	if (!m)
		return;
	for (i = 0; i < m->all_threads.n; i++) {
		pt_vec_free(&m->all_threads.v[i]->iv);
		pt_vec_free(&m->all_threads.v[i]->reads);
	}
	for (i = 0; i < m->all_procs.n; i++) {
		pt_vec_free(&m->all_procs.v[i]->threads);
		pt_vec_free(&m->all_procs.v[i]->gpu);
		pt_vec_free(&m->all_procs.v[i]->samples);
	}
	HASH_CLEAR(hh, m->threads);
	HASH_CLEAR(hh, m->procs);
	HASH_CLEAR(hh, m->files);
	pt_vec_free(&m->all_threads);
	pt_vec_free(&m->all_procs);
	pt_arena_free(m->arena); /* threads, processes, files, paths */
	free(m);
}

struct pt_thread *pt_model_thread(const struct pt_model *m, uint32_t tid)
{
	struct pt_thread *t;

	HASH_FIND(hh, m->threads, &tid, sizeof(tid), t);
	return t;
}

struct pt_proc *pt_model_proc(const struct pt_model *m, uint32_t tgid)
{
	struct pt_proc *p;

	HASH_FIND(hh, m->procs, &tgid, sizeof(tgid), p);
	return p;
}

const struct pt_file *pt_model_file(const struct pt_model *m, uint32_t dev,
				    uint64_t inode)
{
	struct pt_file_key key = { inode, dev };
	struct pt_file *f;

	HASH_FIND(hh, m->files, &key, sizeof(key), f);
	return f;
}

struct pt_proc *pt_proc_make(struct pt_model *m, uint32_t tgid, bool fresh)
{
	struct pt_proc *old = pt_model_proc(m, tgid), *p;

	if (old && !fresh)
		return old;
	p = pt_arena_alloc(m->arena, sizeof(*p));
	if (!p || pt_vec_push(&m->all_procs, p))
		return NULL;
	p->tgid = tgid;
	if (old)
		HASH_DEL(m->procs, old);
	p->older = old;
	HASH_ADD(hh, m->procs, tgid, sizeof(p->tgid), p);
	return PT_HASHED(p) ? p : NULL;
}

/* The thread that a record is about: a tid with another start time or in
 * another process is another thread. */
struct pt_thread *pt_thread_make(struct pt_model *m, uint32_t tid,
				 uint32_t tgid, uint32_t start, uint64_t ts)
{
	struct pt_thread *old = pt_model_thread(m, tid), *t;
	struct pt_proc *p;

	if (old && old->tgid == tgid &&
	    (!start || !old->start || start == old->start)) {
		if (!old->start)
			old->start = start;
		return old;
	}
	p = pt_model_proc(m, tgid);
	/* The leader of a new process under an old id. */
	p = pt_proc_make(m, tgid, p && tid == tgid && old && old->tgid == tgid);
	t = p ? pt_arena_alloc(m->arena, sizeof(*t)) : NULL;
	if (!t || pt_vec_push(&m->all_threads, t))
		return NULL;
	if (pt_vec_push(&p->threads, t)) {
		m->all_threads.n--;
		return NULL;
	}
	t->tid = tid;
	t->tgid = tgid;
	t->start = start;
	t->proc = p;
	t->first = ts;
	if (old) {
		HASH_DEL(m->threads, old);
		if (!old->exited) {
			old->exited = true;
			old->last = ts;
		}
	}
	t->older = old;
	HASH_ADD(hh, m->threads, tid, sizeof(t->tid), t);
	return PT_HASHED(t) ? t : NULL;
}

/* Count missing records; one that comes late gives its count back. */
static bool note_seq(struct pt_thread *t, uint32_t seq)
{
	bool gap = false;

	if (!t->seq_known) {
		t->seq_known = true;
		t->next_seq = seq + 1;
		return false;
	}
	if ((int32_t)(seq - t->next_seq) > 0) {
		t->lost += seq - t->next_seq;
		gap = true;
	} else if (seq != t->next_seq) {
		if (t->lost)
			t->lost--;
		return false;
	}
	t->next_seq = seq + 1;
	return gap;
}

static void note_totals(struct pt_thread *t, const struct pt_totals *tot)
{
	if (!t->totals_known)
		t->t0 = *tot;
	t->totals_known = true;
	t->t1 = *tot;
}

static void iv_from_record(struct pt_iv *iv, const struct pt_rec_off *r)
{
	memset(iv, 0, sizeof(*iv));
	iv->begin = r->off_ts;
	iv->end = r->hdr.ts;
	iv->wait = (uint8_t)pt_classify(r);
	if (iv->wait == PT_WAIT_RUNQ)
		iv->ready = iv->begin;
	else if (r->wake_ts >= iv->begin && r->wake_ts <= iv->end)
		iv->ready = r->wake_ts;
	else
		iv->ready = iv->end;
	iv->object = r->object;
	iv->waker_object = r->waker_object;
	iv->arg0 = r->arg[0];
	iv->dev = r->dev;
	iv->waker_tid = r->waker_tid;
	iv->waker_tgid = r->waker_tgid;
	iv->syscall = (int16_t)r->syscall;
	iv->waker_syscall = (int16_t)r->waker_syscall;
	iv->obj_kind = (uint8_t)r->obj_kind;
	iv->waker_obj_kind = (uint8_t)r->waker_obj_kind;
	iv->since_unknown = r->hdr.flags & PT_F_SINCE_UNKNOWN;
	iv->valid_wake = iv->wait != PT_WAIT_RUNQ && pt_waker_valid(r);
	/* The descriptor that a poll waits on could not be read (a sleep that
	 * was under way at attach): a valid waker's pipe is it. */
	if (iv->wait == PT_WAIT_POLL && iv->obj_kind == PT_OBJ_NONE &&
	    iv->valid_wake && iv->waker_obj_kind == PT_OBJ_PIPE) {
		iv->wait = PT_WAIT_PIPE_IN;
		iv->obj_kind = PT_OBJ_PIPE;
		iv->object = iv->waker_object;
	}
	iv->rchar = r->tot.rchar;
	iv->read_bytes = r->tot.read_bytes;
	iv->wchar = r->tot.wchar;
}

static int feed_off(struct pt_model *m, const struct pt_rec_off *r)
{
	struct pt_thread *t;
	struct pt_iv iv;
	bool gap;

	if (r->off_ts > r->hdr.ts)
		return -EINVAL;
	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, r->off_ts);
	if (!t)
		return -ENOMEM;
	gap = note_seq(t, r->hdr.seq);
	note_totals(t, &r->tot);
	if (r->hdr.flags & PT_F_OPEN) {
		/* off_ts == ts: on a CPU, only its totals are meant */
		if (r->off_ts < r->hdr.ts)
			t->open = *r;
		return 0;
	}
	if (t->open.hdr.kind && t->open.off_ts <= r->off_ts)
		t->open.hdr.kind = 0;
	iv_from_record(&iv, r);
	iv.gap_before = gap;
	return pt_vec_push(&t->iv, iv);
}

static int feed_fork(struct pt_model *m, const struct pt_rec_fork *r)
{
	bool process = r->child_tgid == r->child_tid;
	struct pt_thread *t;
	struct pt_proc *p;

	/* a reused id has another start time, and that makes it another one */
	t = pt_thread_make(m, r->child_tid, r->child_tgid, r->child_start,
			   r->hdr.ts);
	if (!t)
		return -ENOMEM;
	memcpy(t->comm, r->comm, sizeof(t->comm) - 1);
	p = t->proc;
	if (process) {
		p->ppid = r->hdr.tgid;
		p->born = r->hdr.ts;
		memcpy(p->comm, r->comm, sizeof(p->comm) - 1);
	}
	return 0;
}

static int feed_task(struct pt_model *m, const struct pt_rec_task *r)
{
	struct pt_thread *t, *old;

	if (r->hdr.kind == PT_REC_EXEC && r->old_tid && r->old_tid != r->hdr.tid) {
		old = pt_model_thread(m, r->old_tid);
		if (old && !old->exited) {
			old->exited = true;
			old->last = r->hdr.ts;
		}
	}
	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, r->hdr.ts);
	if (!t)
		return -ENOMEM;
	note_seq(t, r->hdr.seq);
	memcpy(t->comm, r->comm, sizeof(t->comm) - 1);
	if (t->tid == t->tgid)
		memcpy(t->proc->comm, r->comm, sizeof(t->comm) - 1);
	if (r->hdr.kind == PT_REC_TASK && r->ppid)
		t->proc->ppid = r->ppid;
	if (r->hdr.kind == PT_REC_EXEC)
		t->proc->execed = true;
	return 0;
}

static int feed_exit(struct pt_model *m, const struct pt_rec_exit *r)
{
	struct pt_thread *t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid,
					     r->hdr.start, r->hdr.ts);

	if (!t)
		return -ENOMEM;
	note_seq(t, r->hdr.seq);
	note_totals(t, &r->tot);
	t->exited = true;
	t->last = r->hdr.ts;
	t->open.hdr.kind = 0;
	if (r->hdr.flags & PT_F_GROUP_DEAD)
		t->proc->died = r->hdr.ts;
	return 0;
}

static int feed_read(struct pt_model *m, const struct pt_rec_read *r)
{
	struct pt_thread *t;
	struct pt_read rd = {
		.begin = r->begin_ts, .end = r->hdr.ts, .inode = r->inode,
		.offset = r->offset, .ret = r->ret, .dev = r->dev,
		.obj_kind = (uint8_t)r->obj_kind, .door = (uint8_t)r->door,
	};

	if (rd.begin > rd.end)
		return -EINVAL;
	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, rd.begin);
	if (!t)
		return -ENOMEM;
	note_seq(t, r->hdr.seq);
	return pt_vec_push(&t->reads, rd);
}

static int feed_file(struct pt_model *m, const struct pt_rec_file *r)
{
	struct pt_file_key key = { r->inode, r->dev };
	const char *part[8];
	struct pt_file *f;
	size_t i, n = 0, pos = 0, len = 0;
	char *path;

	HASH_FIND(hh, m->files, &key, sizeof(key), f);
	if (f)
		return 0;
	while (n < r->parts && n < 8 && pos < sizeof(r->path)) {
		size_t l = strnlen(r->path + pos, sizeof(r->path) - pos);

		if (!l || pos + l == sizeof(r->path))
			break;
		part[n++] = r->path + pos;
		pos += l + 1;
		len += l + 1;
	}
	f = pt_arena_alloc(m->arena, sizeof(*f));
	path = n ? pt_arena_alloc(m->arena, len + 5) : NULL;
	if (!f || (n && !path))
		return -ENOMEM;
	f->key = key;
	f->size = r->size;
	f->mode = r->mode;
	f->fs_magic = r->fs_magic;
	f->truncated = r->truncated || r->hdr.flags & PT_F_READ_FAILED;
	if (path) {
		/* innermost first in the record; the mount's own place in the
		 * tree is not known here */
		if (f->truncated)
			strcat(path, "...");
		for (i = n; i-- > 0;) {
			strcat(path, "/");
			strcat(path, part[i]);
		}
		f->path = path;
	}
	HASH_ADD(hh, m->files, key, sizeof(f->key), f);
	if (!PT_HASHED(f))
		return -ENOMEM;
	return 0;
}

static int feed_gpu_enter(struct pt_model *m, const struct pt_rec_gpu *r)
{
	const struct pt_api *api = pt_api_get(r->api);
	struct pt_gpu_call c;
	struct pt_thread *t;

	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, r->hdr.ts);
	if (!t)
		return -ENOMEM;
	note_seq(t, r->hdr.seq);
	if (!api)
		return 0; /* a later version's entry point */
	memset(&c, 0, sizeof(c));
	c.begin = c.end = r->hdr.ts;
	c.stream = r->stream;
	memcpy(c.v, r->v, sizeof(c.v));
	c.ret = INT64_MIN;
	c.tid = r->hdr.tid;
	c.api = (uint16_t)r->api;
	c.cls = (uint8_t)api->cls;
	if (pt_vec_push(&t->proc->gpu, c))
		return -ENOMEM;
	m->gpu_calls++;
	if (api->ret && t->depth < PT_INFLIGHT_MAX) {
		t->stack[t->depth].begin = c.begin;
		t->stack[t->depth++].api = c.api;
	}
	return 0;
}

static struct pt_gpu_call *find_call(struct pt_proc *p, uint32_t tid,
				     uint16_t api, uint64_t begin)
{
	size_t i;

	for (i = p->gpu.n; i-- > 0;) {
		struct pt_gpu_call *c = &p->gpu.v[i];

		if (c->tid == tid && c->api == api && c->begin == begin)
			return c;
	}
	return NULL;
}

static int feed_gpu_return(struct pt_model *m, const struct pt_rec_gpu *r)
{
	const struct pt_api *api = pt_api_get(r->api);
	struct pt_gpu_call *c = NULL, late;
	struct pt_thread *t;

	t = pt_thread_make(m, r->hdr.tid, r->hdr.tgid, r->hdr.start, r->hdr.ts);
	if (!t)
		return -ENOMEM;
	note_seq(t, r->hdr.seq);
	if (!api)
		return 0;
	while (t->depth && !c) {
		struct pt_inflight *f = &t->stack[--t->depth];

		/* An entry whose return never came (longjmp, a throw, a lost
		 * record) is dropped on the way. */
		if (f->api == r->api)
			c = find_call(t->proc, t->tid, f->api, f->begin);
	}
	if (c) {
		c->end = r->hdr.ts > c->begin ? r->hdr.ts : c->begin;
		c->ret = (int64_t)r->v[0];
		return 0;
	}
	/* Entered before the hooks were there. */
	memset(&late, 0, sizeof(late));
	late.begin = t->first < r->hdr.ts ? t->first : r->hdr.ts;
	if (t->proc->gpu.n)
		return 0; /* its entry was lost in the middle: no guess */
	late.end = r->hdr.ts;
	late.late = true;
	late.ret = (int64_t)r->v[0];
	late.tid = t->tid;
	late.api = (uint16_t)r->api;
	late.cls = (uint8_t)api->cls;
	m->gpu_calls++;
	return pt_vec_push(&t->proc->gpu, late);
}

static int feed_sample(struct pt_model *m, const struct pt_rec_sample *r)
{
	struct pt_proc *p = pt_proc_make(m, r->hdr.tgid, false);

	return p ? pt_vec_push(&p->samples, *r) : -ENOMEM;
}

static void feed_mark(struct pt_model *m, const struct pt_rec_mark *r)
{
	switch (r->mark) {
	case PT_MARK_BEGIN:
		m->begin = r->hdr.ts;
		m->begin_unix_ns = r->unix_ns;
		break;
	case PT_MARK_END:
		m->end = r->hdr.ts;
		m->complete = true;
		break;
	case PT_MARK_TARGET_EXIT:
		m->target_exited = true;
		break;
	}
}

/* More than this no counter reaches; percentages of their sum fit in 64 bits. */
#define LOSS_MAX (1ull << 48)

static void feed_loss(struct pt_model *m, const struct pt_rec_loss *r)
{
	size_t i;

	for (i = 0; i < PT_LOSS_NR; i++)
		m->lost[i] = r->count[i] < LOSS_MAX ? r->count[i] : LOSS_MAX;
}

/* The largest record known, so that a shorter or longer one can be copied
 * into aligned, zero-filled memory. */
union any_rec {
	struct pt_hdr hdr;
	struct pt_rec_fork fork;
	struct pt_rec_task task;
	struct pt_rec_exit exit;
	struct pt_rec_off off;
	struct pt_rec_gpu gpu;
	struct pt_rec_read read;
	struct pt_rec_file file;
	struct pt_rec_sample sample;
	struct pt_rec_loss loss;
	struct pt_rec_lib lib;
	struct pt_rec_mark mark;
	struct pt_rec_host host;
};

static size_t min_size(uint16_t kind)
{
	switch (kind) {
	case PT_REC_FORK: return sizeof(struct pt_rec_fork);
	case PT_REC_EXEC:
	case PT_REC_COMM:
	case PT_REC_TASK: return sizeof(struct pt_rec_task);
	case PT_REC_EXIT: return sizeof(struct pt_rec_exit);
	case PT_REC_OFF: return sizeof(struct pt_rec_off);
	case PT_REC_GPU_ENTER:
	case PT_REC_GPU_RETURN: return sizeof(struct pt_rec_gpu);
	case PT_REC_READ: return sizeof(struct pt_rec_read);
	case PT_REC_FILE: return sizeof(struct pt_rec_file);
	case PT_REC_SAMPLE: return sizeof(struct pt_rec_sample);
	case PT_REC_LOSS: return sizeof(struct pt_rec_loss);
	case PT_REC_LIB: return sizeof(struct pt_rec_lib);
	case PT_REC_MARK: return sizeof(struct pt_rec_mark);
	case PT_REC_HOST: return sizeof(struct pt_rec_host);
	default: return 0;
	}
}

static int dispatch(struct pt_model *m, union any_rec *r)
{
	switch (r->hdr.kind) {
	case PT_REC_FORK: return feed_fork(m, &r->fork);
	case PT_REC_EXEC:
	case PT_REC_COMM:
	case PT_REC_TASK:
		r->task.comm[PT_COMM_LEN - 1] = 0;
		return feed_task(m, &r->task);
	case PT_REC_EXIT: return feed_exit(m, &r->exit);
	case PT_REC_OFF: return feed_off(m, &r->off);
	case PT_REC_GPU_ENTER: return feed_gpu_enter(m, &r->gpu);
	case PT_REC_GPU_RETURN: return feed_gpu_return(m, &r->gpu);
	case PT_REC_READ: return feed_read(m, &r->read);
	case PT_REC_FILE: return feed_file(m, &r->file);
	case PT_REC_SAMPLE: return feed_sample(m, &r->sample);
	case PT_REC_LOSS:
		feed_loss(m, &r->loss);
		return 0;
	case PT_REC_LIB:
		m->gpu_libs = true;
		return 0;
	case PT_REC_MARK:
		feed_mark(m, &r->mark);
		return 0;
	case PT_REC_HOST:
		m->host = r->host;
		m->host.boot_id[sizeof(m->host.boot_id) - 1] = 0;
		m->host_known = true;
		return 0;
	default:
		m->skipped_kinds++;
		return 0;
	}
}

/* 36 years after the boot: a time that is damaged, and that sums and products
 * of times need not fear. */
#define TS_MAX (1ull << 60)

int pt_model_feed(struct pt_model *m, const void *rec, size_t len)
{
	union any_rec r;
	struct pt_hdr h;
	size_t n;
	int err;

	m->records++;
	if (m->finished || len < sizeof(h))
		goto malformed;
	memcpy(&h, rec, sizeof(h));
	if (h.size < sizeof(h) || h.size > len || h.size < min_size(h.kind) ||
	    h.ts > TS_MAX)
		goto malformed;
	n = h.size < sizeof(r) ? h.size : sizeof(r);
	memset(&r, 0, sizeof(r));
	memcpy(&r, rec, n);
	if (h.kind < PT_REC_SAMPLE) {
		if (!m->first_ts || h.ts < m->first_ts)
			m->first_ts = h.ts;
		if (h.ts > m->last_ts)
			m->last_ts = h.ts;
	}
	err = dispatch(m, &r);
	if (err == -EINVAL)
		goto malformed;
	if (err)
		m->no_memory++;
	return err;

malformed:
	m->malformed++;
	return -EINVAL;
}

void pt_model_live(const struct pt_model *m, struct pt_model_live *out)
{
	out->records = m->records;
	out->malformed = m->malformed;
	out->gpu_calls = m->gpu_calls;
	out->processes = (uint32_t)HASH_COUNT(m->procs);
	out->threads = (uint32_t)HASH_COUNT(m->threads);
}
