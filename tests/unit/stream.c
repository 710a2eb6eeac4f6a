/* SPDX-License-Identifier: BSD-2-Clause */
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/analysis.h"
#include "analysis/parts/part.h"
#include "base/hash.h"
#include "gpu/api.h"
#include "model/syscalls.h"

static void must(int err)
{
	if (!err)
		return;
	fprintf(stderr, "stream: out of memory\n");
	abort();
}

void st_free(struct stream *s)
{
	pt_vec_free(&s->recs);
}

union pt_rec_any *st_add(struct stream *s, uint16_t kind, size_t size, uint64_t ts,
		     uint32_t tgid, uint32_t tid)
{
	struct st_rec rec = { .order = s->recs.n };

	rec.r.hdr.size = (uint16_t)size;
	rec.r.hdr.kind = kind;
	rec.r.hdr.ts = ts;
	rec.r.hdr.tgid = tgid;
	rec.r.hdr.tid = tid;
	rec.r.hdr.start = tid + 1;
	must(pt_vec_push(&s->recs, rec));
	return &s->recs.v[s->recs.n - 1].r;
}

void st_bytes(struct stream *s, uint64_t rchar, uint64_t wchar)
{
	s->recs.v[s->recs.n - 1].rchar += rchar;
	s->recs.v[s->recs.n - 1].wchar += wchar;
}

void st_task(struct stream *s, uint64_t ts, uint32_t tgid, uint32_t tid,
	     uint32_t ppid, const char *comm)
{
	struct pt_rec_task *r = &st_add(s, PT_REC_TASK, sizeof(*r), ts, tgid,
					tid)->task;

	r->ppid = ppid;
	memcpy(r->comm, comm, strnlen(comm, sizeof(r->comm) - 1));
}

void st_fork(struct stream *s, uint64_t ts, uint32_t tgid, uint32_t tid,
	     uint32_t child_tgid, uint32_t child_tid)
{
	struct pt_rec_fork *r = &st_add(s, PT_REC_FORK, sizeof(*r), ts, tgid,
					tid)->fork;

	r->hdr.flags = child_tgid == child_tid ? 0 : PT_F_THREAD;
	r->child_tgid = child_tgid;
	r->child_tid = child_tid;
	r->child_start = child_tid + 1;
	memcpy(r->comm, "child", 5);
}

void st_exit(struct stream *s, uint64_t ts, uint32_t tgid, uint32_t tid,
	     bool last)
{
	struct pt_rec_exit *r = &st_add(s, PT_REC_EXIT, sizeof(*r), ts, tgid,
					tid)->exit;

	r->hdr.flags = last ? PT_F_GROUP_DEAD : 0;
}

void st_exec(struct stream *s, uint64_t ts, uint32_t tgid, uint32_t old_tid)
{
	struct pt_rec_task *r = &st_add(s, PT_REC_EXEC, sizeof(*r), ts, tgid,
					tgid)->task;

	r->old_tid = old_tid;
	memcpy(r->comm, "execed", 6);
}

void st_mark(struct stream *s, uint64_t ts, uint32_t mark)
{
	struct pt_rec_mark *r = &st_add(s, PT_REC_MARK, sizeof(*r), ts, 0, 0)->mark;

	r->mark = mark;
	r->unix_ns = ts + 1700000000ull * ST_S;
}

void st_host(struct stream *s, uint64_t ts, uint32_t cores, uint32_t pid)
{
	struct pt_rec_host *r = &st_add(s, PT_REC_HOST, sizeof(*r), ts, 0, 0)->host;

	r->cores = cores;
	r->target_pid = pid;
}

void st_file(struct stream *s, uint64_t ts, uint32_t dev, uint64_t inode,
	     const char *name, const char *dir)
{
	struct pt_rec_file *r = &st_add(s, PT_REC_FILE, sizeof(*r), ts, 1, 1)->file;
	size_t n = strlen(name) + 1;

	r->dev = dev;
	r->inode = inode;
	r->parts = 2;
	memcpy(r->path, name, n);
	memcpy(r->path + n, dir, strlen(dir) + 1);
}

uint32_t st_api(const char *symbol)
{
	uint32_t i;

	for (i = 0; i < pt_api_count; i++)
		if (!strcmp(pt_apis[i].symbol, symbol))
			return i;
	fprintf(stderr, "stream: no GPU call named %s\n", symbol);
	abort();
}

void st_gpu(struct stream *s, const char *symbol, uint32_t tgid, uint32_t tid,
	    uint64_t begin, uint64_t end, uint64_t stream, uint64_t v0,
	    uint64_t v1, uint64_t v2)
{
	uint32_t api = st_api(symbol);
	struct pt_rec_gpu *r = &st_add(s, PT_REC_GPU_ENTER, sizeof(*r), begin,
				       tgid, tid)->gpu;

	r->api = api;
	r->stream = stream;
	r->v[0] = v0;
	r->v[1] = v1;
	r->v[2] = v2;
	if (!end)
		return;
	r = &st_add(s, PT_REC_GPU_RETURN, sizeof(*r), end, tgid, tid)->gpu;
	r->api = api;
}

/* ---- intervals ----------------------------------------------------------- */

struct pt_rec_off *st_off(struct stream *s, uint32_t tgid, uint32_t tid,
			  uint64_t begin, uint64_t wake, uint64_t end)
{
	struct pt_rec_off *r = &st_add(s, PT_REC_OFF, sizeof(*r), end, tgid,
				       tid)->off;

	r->off_ts = begin;
	r->wake_ts = wake;
	r->state = 1;
	r->syscall = PT_SYSCALL_NONE;
	r->waker_syscall = PT_SYSCALL_NONE;
	return r;
}

struct pt_rec_off *st_preempted(struct stream *s, uint32_t tgid, uint32_t tid,
				uint64_t begin, uint64_t end)
{
	struct pt_rec_off *r = st_off(s, tgid, tid, begin, 0, end);

	r->hdr.flags = PT_F_PREEMPTED;
	r->state = 0;
	return r;
}

static void woken_by(struct pt_rec_off *r, uint32_t tgid, uint32_t tid,
		     int nr, uint16_t kind, uint64_t object)
{
	r->waker_tgid = tgid;
	r->waker_tid = tid;
	r->waker_syscall = nr;
	r->waker_obj_kind = kind;
	r->waker_object = object;
}

struct pt_rec_off *st_pipe_in(struct stream *s, uint32_t tgid, uint32_t tid,
			      uint64_t begin, uint64_t wake, uint64_t end,
			      uint64_t inode, uint32_t from_tgid,
			      uint32_t from_tid)
{
	struct pt_rec_off *r = st_off(s, tgid, tid, begin, wake, end);

	r->syscall = PT_NR_poll;
	r->obj_kind = PT_OBJ_PIPE;
	r->object = inode;
	woken_by(r, from_tgid, from_tid, PT_NR_write, PT_OBJ_PIPE, inode);
	return r;
}

struct pt_rec_off *st_futex(struct stream *s, uint32_t tgid, uint32_t tid,
			    uint64_t begin, uint64_t wake, uint64_t end,
			    uint64_t addr, uint32_t from_tgid,
			    uint32_t from_tid)
{
	struct pt_rec_off *r = st_off(s, tgid, tid, begin, wake, end);

	r->syscall = PT_NR_futex;
	r->arg[0] = addr;
	/* FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, private unless another
	 * process wakes it */
	r->arg[1] = from_tgid && from_tgid != tgid ? 0x109 : 0x189;
	r->obj_kind = PT_OBJ_FUTEX;
	r->object = addr;
	woken_by(r, from_tgid, from_tid, PT_NR_futex, PT_OBJ_FUTEX, addr);
	r->waker_arg0 = addr;
	return r;
}

struct pt_rec_off *st_sock(struct stream *s, uint32_t tgid, uint32_t tid,
			   uint64_t begin, uint64_t wake, uint64_t end,
			   uint64_t inode, uint32_t from_tgid,
			   uint32_t from_tid)
{
	struct pt_rec_off *r = st_off(s, tgid, tid, begin, wake, end);

	r->syscall = PT_NR_recvmsg;
	r->obj_kind = PT_OBJ_SOCK;
	r->object = inode;
	if (from_tid)
		woken_by(r, from_tgid, from_tid, PT_NR_sendmsg, PT_OBJ_SOCK,
			 inode);
	return r;
}

struct pt_rec_off *st_disk(struct stream *s, uint32_t tgid, uint32_t tid,
			   uint64_t begin, uint64_t wake, uint64_t end,
			   uint32_t dev, uint64_t inode, uint32_t victim)
{
	struct pt_rec_off *r = st_off(s, tgid, tid, begin, wake, end);

	r->hdr.flags = PT_F_IOWAIT;
	r->state = 2;
	r->syscall = PT_NR_read;
	r->obj_kind = PT_OBJ_FILE;
	r->dev = dev;
	r->object = inode;
	/* in the middle of its own arithmetic, or of an unrelated call */
	woken_by(r, victim, victim, victim % 2 ? PT_SYSCALL_NONE : PT_NR_write,
		 victim % 2 ? PT_OBJ_NONE : PT_OBJ_PIPE, 77);
	return r;
}

struct pt_rec_off *st_fault(struct stream *s, uint32_t tgid, uint32_t tid,
			    uint64_t begin, uint64_t wake, uint64_t end)
{
	struct pt_rec_off *r = st_off(s, tgid, tid, begin, wake, end);

	r->hdr.flags = PT_F_IOWAIT;
	r->state = 2;
	return r;
}

struct pt_rec_read *st_read(struct stream *s, uint32_t tgid, uint32_t tid,
			    uint64_t begin, uint64_t end, uint32_t dev,
			    uint64_t inode, int64_t bytes)
{
	struct pt_rec_read *r = &st_add(s, PT_REC_READ, sizeof(*r), end, tgid,
					tid)->read;

	r->begin_ts = begin;
	r->ret = bytes;
	r->dev = dev;
	r->inode = inode;
	r->obj_kind = PT_OBJ_FILE;
	r->door = PT_DOOR_FEXIT;
	r->fetched = UINT64_MAX;
	return r;
}

/* ---- window and order ---------------------------------------------------- */

/* False: not in the window. */
static bool cut(union pt_rec_any *r, uint64_t t0, uint64_t t1)
{
	struct pt_rec_off *o = &r->off;

	if (r->hdr.kind == PT_REC_TASK || r->hdr.kind == PT_REC_HOST) {
		r->hdr.ts = t0;
		return true;
	}
	if (r->hdr.kind != PT_REC_OFF)
		return r->hdr.ts >= t0 && r->hdr.ts < t1;
	if (r->hdr.ts <= t0 || o->off_ts >= t1)
		return false;
	if (o->off_ts < t0) {
		o->off_ts = t0;
		r->hdr.flags |= PT_F_SINCE_UNKNOWN;
		if (o->wake_ts && o->wake_ts < t0)
			o->wake_ts = t0;
	}
	if (r->hdr.ts <= t1)
		return true;
	r->hdr.ts = t1;
	r->hdr.flags |= PT_F_OPEN;
	if (o->wake_ts <= t1)
		return true;
	o->wake_ts = 0; /* has not happened yet */
	o->waker_tid = o->waker_tgid = 0;
	o->waker_syscall = PT_SYSCALL_NONE;
	o->waker_obj_kind = 0;
	o->waker_object = o->waker_arg0 = 0;
	return true;
}

void st_window(struct stream *s, uint64_t t0, uint64_t t1)
{
	size_t i, n = 0;

	for (i = 0; i < s->recs.n; i++)
		if (cut(&s->recs.v[i].r, t0, t1))
			s->recs.v[n++] = s->recs.v[i];
	s->recs.n = n;
	st_mark(s, t0, PT_MARK_BEGIN);
	st_mark(s, t1, PT_MARK_END);
}

static int by_time(const void *a, const void *b)
{
	const struct st_rec *x = a, *y = b;

	if (x->r.hdr.ts != y->r.hdr.ts)
		return x->r.hdr.ts < y->r.hdr.ts ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

struct st_sum {
	uint32_t tid, seq;
	uint64_t in; /* on a CPU since; 0 unknown */
	struct pt_totals tot;
	UT_hash_handle hh;
};

static void add_up(struct st_sum *t, struct st_rec *rec)
{
	struct pt_rec_off *o = &rec->r.off;
	uint64_t off, ready;

	t->tot.rchar += rec->rchar;
	t->tot.wchar += rec->wchar;
	if (rec->r.hdr.kind == PT_REC_EXIT) {
		rec->r.exit.tot = t->tot;
		return;
	}
	if (rec->r.hdr.kind != PT_REC_OFF)
		return;
	if (t->in && o->off_ts > t->in)
		t->tot.run_ns += o->off_ts - t->in;
	if (!(o->hdr.flags & PT_F_OPEN)) { /* open time is not in the totals */
		ready = o->state == 0 ? o->off_ts :
			o->wake_ts ? o->wake_ts : o->hdr.ts;
		off = ready - o->off_ts;
		if (o->hdr.flags & PT_F_IOWAIT)
			t->tot.iowait_ns += off;
		else
			t->tot.block_ns += off;
		t->tot.runq_ns += o->hdr.ts - ready;
	}
	t->in = o->hdr.ts;
	o->tot = t->tot;
}

void st_seal(struct stream *s)
{
	struct st_sum *all = NULL, *t, *tmp;
	size_t i;

	if (s->recs.n)
		qsort(s->recs.v, s->recs.n, sizeof(*s->recs.v), by_time);
	for (i = 0; i < s->recs.n; i++) {
		struct st_rec *rec = &s->recs.v[i];
		uint32_t tid = rec->r.hdr.tid;

		HASH_FIND(hh, all, &tid, sizeof(tid), t);
		if (!t) {
			t = calloc(1, sizeof(*t));
			must(t ? 0 : -ENOMEM);
			t->tid = tid;
			HASH_ADD(hh, all, tid, sizeof(t->tid), t);
		}
		/* file names and the like count for no thread */
		if (rec->r.hdr.kind < PT_REC_USER &&
		    rec->r.hdr.kind != PT_REC_FILE &&
		    rec->r.hdr.kind != PT_REC_SOCK)
			rec->r.hdr.seq = t->seq++;
		add_up(t, rec);
	}
	HASH_ITER(hh, all, t, tmp) {
		HASH_DEL(all, t);
		free(t);
	}
}

size_t st_feed(const struct stream *s, struct pt_model *m)
{
	size_t i, refused = 0;

	for (i = 0; i < s->recs.n; i++)
		if (pt_model_feed(m, &s->recs.v[i].r, s->recs.v[i].r.hdr.size))
			refused++;
	return refused;
}

static struct pt_model *model_of(const struct stream *s)
{
	struct pt_model *m = pt_model_new();

	must(m ? 0 : -ENOMEM);
	st_feed(s, m);
	must(pt_model_finish(m));
	return m;
}

struct pt_report *st_analyze(const struct stream *s, struct pt_model **m)
{
	struct pt_analysis_opts o = { 0 };
	struct pt_report *r = pt_report_new();

	must(r ? 0 : -ENOMEM);
	*m = model_of(s);
	must(pt_analyze(*m, &o, r));
	return r;
}

struct pt_report *st_figures(const struct stream *s, struct pt_model **m)
{
	struct pt_part_ask ask = { .tables = true };
	struct pt_analysis_opts o = { 0 };
	struct pt_report *r = pt_report_new();
	struct pt_part *p;

	must(r ? 0 : -ENOMEM);
	*m = model_of(s);
	must(pt_part_make(*m, &o, &ask, r->arena, &p));
	must(pt_finish(*m, &o, p, NULL, r));
	pt_part_drop(p);
	return r;
}
