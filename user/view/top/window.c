// SPDX-License-Identifier: BSD-2-Clause
#include "view/top/window.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/records.h"

#define FACTS_MAX 32768 /* the oldest go first */
#define PROCESSES 8192	/* lists of facts, by process: few have two's in them */
#define FIRST_CAP (1u << 20)

#define FACT_KEYS 2 /* beside the process */

struct fact_key {
	uint64_t v[FACT_KEYS];
	uint32_t kind, tgid; /* tgid 0: not of a process */
};

struct fact { /* the last record that says it */
	struct fact_key key;
	UT_hash_handle hh;
	struct fact *next, **at; /* of a process, in its list */
	uint16_t len;
	unsigned char rec[];
};

struct pt_window {
	uint64_t span, held; /* held: twice that, so that it can still end a while ago */
	size_t max, cap, head, tail; /* of buf */
	unsigned char *buf;
	uint64_t begin, begin_unix; /* of the capture */
	uint64_t kept_from; /* later records were never let go for want of room */
	struct pt_rec_loss loss; /* what was lost before the window */
	struct fact *facts;	 /* uthash, in the order in which they were said */
	struct fact *of[PROCESSES]; /* ... by process, so that one's end finds its own */
	size_t fact_bytes;
};

struct pt_window *pt_window_new(uint64_t span_ns, size_t max_bytes)
{
	struct pt_window *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->span = span_ns;
	w->held = 2 * span_ns;
	w->max = max_bytes > FIRST_CAP ? max_bytes : FIRST_CAP;
	w->cap = FIRST_CAP;
	w->buf = malloc(w->cap);
	if (!w->buf) {
		free(w);
		return NULL;
	}
	return w;
}

void pt_window_reach(struct pt_window *w, uint64_t span_ns)
{
	w->span = span_ns < w->held ? span_ns : w->held;
}

uint64_t pt_window_kept_from(const struct pt_window *w)
{
	return w->kept_from;
}

static void drop_fact(struct pt_window *w, struct fact *f)
{
	HASH_DEL(w->facts, f);
	if (f->at)
		*f->at = f->next;
	if (f->next)
		f->next->at = f->at;
	w->fact_bytes -= sizeof(*f) + f->len;
	free(f);
}

void pt_window_free(struct pt_window *w)
{
	struct fact *f, *next;

	if (!w)
		return;
	HASH_ITER(hh, w->facts, f, next)
		drop_fact(w, f);
	free(w->buf);
	free(w);
}

size_t pt_window_bytes(const struct pt_window *w)
{
	return w->cap + w->fact_bytes;
}

/* ---- what holds until something else is said ------------------------------- */

static struct fact *find_fact(const struct pt_window *w,
			      const struct fact_key *key)
{
	struct fact *f;

	HASH_FIND(hh, w->facts, key, sizeof(*key), f);
	return f;
}

static void link_fact(struct pt_window *w, struct fact *f)
{
	struct fact **at = &w->of[f->key.tgid % PROCESSES];

	f->next = NULL;
	f->at = NULL;
	if (!f->key.tgid)
		return;
	f->next = *at;
	f->at = at;
	if (f->next)
		f->next->at = &f->next;
	*at = f;
}

/* Without memory the fact is missing, which costs a name, not the window. */
static void set_fact(struct pt_window *w, const struct fact_key *key,
		     const void *rec, uint16_t len)
{
	struct fact *f = find_fact(w, key);

	if (f)
		drop_fact(w, f);
	else if (HASH_COUNT(w->facts) >= FACTS_MAX)
		drop_fact(w, w->facts);
	f = malloc(sizeof(*f) + len);
	if (!f)
		return;
	f->key = *key;
	f->len = len;
	memcpy(f->rec, rec, len);
	HASH_ADD(hh, w->facts, key, sizeof(f->key), f);
	if (!PT_HASHED(f)) {
		free(f);
		return;
	}
	link_fact(w, f);
	w->fact_bytes += sizeof(*f) + len;
}

static struct fact_key task_key(uint32_t tid, uint32_t tgid)
{
	return (struct fact_key){ .v = { tid }, .kind = PT_REC_TASK, .tgid = tgid };
}

static void set_task(struct pt_window *w, struct pt_rec_task *r)
{
	struct fact_key key = task_key(r->hdr.tid, r->hdr.tgid);
	const struct fact *old = find_fact(w, &key);
	struct pt_rec_task was;

	if (old && !r->ppid) { /* a new name only: its parent is the same */
		memcpy(&was, old->rec, sizeof(was));
		r->ppid = was.ppid;
	}
	r->hdr.kind = PT_REC_TASK;
	r->hdr.size = sizeof(*r);
	r->hdr.flags = 0;
	r->old_tid = 0;
	set_fact(w, &key, r, sizeof(*r));
}

static void set_child(struct pt_window *w, const struct pt_rec_fork *r)
{
	struct pt_rec_task t = { .hdr = r->hdr };

	t.hdr.tid = r->child_tid;
	t.hdr.tgid = r->child_tgid;
	t.hdr.start = r->child_start;
	if (r->child_tid == r->child_tgid)
		t.ppid = r->hdr.tgid;
	memcpy(t.comm, r->comm, sizeof(t.comm));
	set_task(w, &t);
}

static void forget(struct pt_window *w, const struct pt_hdr *h)
{
	struct fact_key key = task_key(h->tid, h->tgid);
	struct fact *f = find_fact(w, &key), *next;

	if (f)
		drop_fact(w, f);
	if (!(h->flags & PT_F_GROUP_DEAD))
		return;
	for (f = w->of[h->tgid % PROCESSES]; f; f = next) {
		next = f->next;
		if (f->key.tgid == h->tgid)
			drop_fact(w, f);
	}
}

/* By what its kind's keys say; r: with room behind a shorter one. */
static struct fact_key key_of(const struct pt_rec_kind *k,
			      const union pt_rec_any *r)
{
	struct fact_key key = { .kind = k->number };
	unsigned n, i, at = 0;
	const struct pt_rec_line *l = k->lines(&n);

	for (i = 0; i < n; i++) {
		const unsigned char *p = r->bytes + l[i].off;

		if (l[i].says != PT_SAYS_KEY)
			continue;
		if (l[i].off == offsetof(struct pt_hdr, tgid))
			key.tgid = r->hdr.tgid;
		else if (at < FACT_KEYS) /* little-endian */
			memcpy(&key.v[at++], p, l[i].width);
	}
	return key;
}

/* Who is there. False: a kind that is kept as it is. */
static bool leave_tree(struct pt_window *w, union pt_rec_any *r)
{
	switch (r->hdr.kind) {
	case PT_REC_TASK:
	case PT_REC_EXEC:
	case PT_REC_COMM:
		set_task(w, &r->task);
		return true;
	case PT_REC_FORK:
		set_child(w, &r->fork);
		return true;
	case PT_REC_EXIT:
		forget(w, &r->hdr);
		return true;
	default:
		return false;
	}
}

/* A record leaves the window: keep what it says about the time after it. */
static void leave(struct pt_window *w, const unsigned char *rec)
{
	union pt_rec_any r = { .bytes = { 0 } };
	const struct pt_rec_kind *k;
	struct fact_key key;

	memcpy(&r.hdr, rec, sizeof(r.hdr));
	memcpy(r.bytes, rec, r.hdr.size);
	k = pt_rec_kind(r.hdr.kind);
	if (!k || (k->life != PT_LIFE_TREE && k->life != PT_LIFE_FACT &&
		   k->life != PT_LIFE_STATUS) || leave_tree(w, &r))
		return;
	key = key_of(k, &r);
	if (k->number == PT_REC_LOSS) {
		w->loss = r.loss;
		return;
	}
	/* whose it was no longer matters, and its number would only look like
	 * a gap in that thread's records */
	if (k->number == PT_REC_FILE)
		r.hdr.tid = r.hdr.tgid = 0;
	if (k->number == PT_REC_SOCK) /* that it connected is past */
		r.sock.opened = r.sock.connect_ns = 0;
	set_fact(w, &key, r.bytes, r.hdr.size);
}

/* ---- the records of the window ----------------------------------------------- */

static uint16_t size_at(const struct pt_window *w, size_t at)
{
	uint16_t size;

	memcpy(&size, w->buf + at, sizeof(size));
	return size;
}

static uint64_t ts_at(const struct pt_window *w, size_t at)
{
	struct pt_hdr h;

	memcpy(&h, w->buf + at, sizeof(h));
	return h.ts;
}

static void drop_first(struct pt_window *w)
{
	leave(w, w->buf + w->head);
	w->head += size_at(w, w->head);
}

/* Room for `len` more bytes at the tail. */
static int make_room(struct pt_window *w, size_t len)
{
	size_t cap;
	void *buf;

	while (w->tail - w->head + len > w->max) {
		if (ts_at(w, w->head) > w->kept_from)
			w->kept_from = ts_at(w, w->head);
		drop_first(w);
	}
	if (w->tail + len <= w->cap)
		return 0;
	/* by halves at least, so that a byte moves once on average */
	if (w->head < w->cap / 2 && w->cap < 2 * w->max) {
		cap = 2 * w->cap;
		buf = realloc(w->buf, cap);
		if (buf) {
			w->buf = buf;
			w->cap = cap;
			return 0;
		}
	}
	memmove(w->buf, w->buf + w->head, w->tail - w->head);
	w->tail -= w->head;
	w->head = 0;
	return w->tail + len <= w->cap ? 0 : -ENOMEM;
}

static void take_mark(struct pt_window *w, const void *rec, size_t size)
{
	struct pt_rec_mark m = { .mark = 0 };

	memcpy(&m, rec, size < sizeof(m) ? size : sizeof(m));
	if (m.mark != PT_MARK_BEGIN)
		return;
	w->begin = m.hdr.ts;
	w->begin_unix = m.unix_ns;
}

int pt_window_put(struct pt_window *w, const void *rec, size_t len)
{
	struct pt_hdr h;
	uint64_t from;

	if (!pt_rec_head(rec, len, &h))
		return -EINVAL;
	if (h.kind == PT_REC_MARK) {
		take_mark(w, rec, h.size);
		return 0;
	}
	from = h.ts > w->held ? h.ts - w->held : 0;
	while (w->head < w->tail && ts_at(w, w->head) < from)
		drop_first(w);
	if (make_room(w, h.size))
		return -ENOMEM;
	memcpy(w->buf + w->tail, rec, h.size);
	w->tail += h.size;
	return 0;
}

/* ---- out again ----------------------------------------------------------------- */

struct feed {
	uint64_t from;
	void (*fn)(void *ctx, const void *rec, size_t len);
	void *ctx;
	const struct pt_rec_loss *before;
};

static void put_mark(const struct feed *f, const struct pt_window *w,
		     uint32_t mark, uint64_t ts)
{
	struct pt_rec_mark m = { .mark = mark };

	m.hdr.size = sizeof(m);
	m.hdr.kind = PT_REC_MARK;
	m.hdr.ts = ts;
	if (w->begin_unix && ts >= w->begin)
		m.unix_ns = w->begin_unix + (ts - w->begin);
	f->fn(f->ctx, &m, sizeof(m));
}

/* An interval that began before the window, as one that began before attach. */
static void put_off(const struct feed *f, struct pt_rec_off *r)
{
	if (r->off_ts < f->from) {
		r->off_ts = f->from;
		r->hdr.flags |= PT_F_SINCE_UNKNOWN;
		if (r->wake_ts && r->wake_ts < f->from)
			r->wake_ts = f->from;
	}
	f->fn(f->ctx, r, r->hdr.size);
}

static void put_loss(const struct feed *f, struct pt_rec_loss *r)
{
	size_t i;

	for (i = 0; i < PT_LOSS_NR; i++)
		r->count[i] -= r->count[i] > f->before->count[i] ?
				       f->before->count[i] : r->count[i];
	f->fn(f->ctx, r, r->hdr.size);
}

static void put_one(const struct feed *f, const unsigned char *rec)
{
	union pt_rec_any r = { .bytes = { 0 } };

	memcpy(&r.hdr, rec, sizeof(r.hdr));
	memcpy(r.bytes, rec, r.hdr.size);
	if (r.hdr.kind == PT_REC_OFF && r.hdr.size >= sizeof(r.off))
		put_off(f, &r.off);
	else if (r.hdr.kind == PT_REC_LOSS)
		put_loss(f, &r.loss);
	else
		f->fn(f->ctx, r.bytes, r.hdr.size);
}

static void put_facts(const struct feed *f, struct pt_window *w)
{
	struct fact *x, *next;
	struct pt_hdr h;

	HASH_ITER(hh, w->facts, x, next) {
		memcpy(&h, x->rec, sizeof(h));
		h.ts = f->from; /* it held then */
		memcpy(x->rec, &h, sizeof(h));
		f->fn(f->ctx, x->rec, x->len);
	}
}

uint64_t pt_window_feed(struct pt_window *w, uint64_t now_ns,
			void (*fn)(void *ctx, const void *rec, size_t len),
			void *ctx)
{
	uint64_t from = now_ns > w->span ? now_ns - w->span : 0;
	struct feed f = { .fn = fn, .ctx = ctx, .before = &w->loss };
	size_t at;

	if (from < w->begin)
		from = w->begin;
	if (from < w->kept_from)
		from = w->kept_from;
	if (from > now_ns)
		from = now_ns;
	f.from = from;
	/* what is older than the window now will be so for ever */
	while (w->head < w->tail && ts_at(w, w->head) < from)
		drop_first(w);
	put_mark(&f, w, PT_MARK_BEGIN, from);
	put_facts(&f, w);
	for (at = w->head; at < w->tail; at += size_at(w, at))
		if (ts_at(w, at) >= from)
			put_one(&f, w->buf + at);
	put_mark(&f, w, PT_MARK_END, now_ns);
	return now_ns - from;
}
