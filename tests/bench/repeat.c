/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/repeat.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/records.h"
#include "base/vec.h"
#include "store/rawstream.h"

struct thread { /* of the recording; processes by their leaders */
	uint32_t tid;
	uint32_t first_seq, last_seq;
	bool counted, ends; /* ends: it is not there all along */
	struct pt_totals first, last;
	bool has_totals;
	struct pt_rec_sample sample[2];
	UT_hash_handle hh;
};

struct entry {
	size_t at; /* in bytes */
	struct thread *t;
	bool seed; /* a file's name from before the recording's begin */
};

struct pt_repeat {
	PT_VEC(unsigned char) bytes;
	PT_VEC(struct entry) recs;
	struct thread *threads;
	uint64_t begin, end;
};

static void must(bool ok)
{
	if (ok)
		return;
	fprintf(stderr, "bench: out of memory\n");
	abort();
}

static struct thread *thread_of(struct pt_repeat *r, uint32_t tid)
{
	struct thread *t;

	HASH_FIND(hh, r->threads, &tid, sizeof(tid), t);
	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	must(t != NULL);
	t->tid = tid;
	HASH_ADD(hh, r->threads, tid, sizeof(t->tid), t);
	must(PT_HASHED(t));
	return t;
}

static const struct pt_totals *totals_of(const struct pt_hdr *h)
{
	if (h->kind == PT_REC_OFF)
		return &((const struct pt_rec_off *)h)->tot;
	if (h->kind == PT_REC_EXIT)
		return &((const struct pt_rec_exit *)h)->tot;
	return NULL;
}

static void learn(struct pt_repeat *r, struct thread *t, const struct pt_hdr *h)
{
	const struct pt_totals *tot = totals_of(h);

	switch (h->kind) {
	case PT_REC_MARK:
		if (((const struct pt_rec_mark *)h)->mark == PT_MARK_BEGIN)
			r->begin = h->ts;
		else
			r->end = h->ts;
		return;
	case PT_REC_FORK:
		thread_of(r, ((const struct pt_rec_fork *)h)->child_tid)->ends = true;
		break;
	case PT_REC_EXIT:
		t->ends = true;
		break;
	case PT_REC_SAMPLE:
		if (!t->sample[0].hdr.size)
			t->sample[0] = *(const struct pt_rec_sample *)h;
		t->sample[1] = *(const struct pt_rec_sample *)h;
		return;
	}
	if (h->kind >= PT_REC_USER || h->kind == PT_REC_TASK)
		return;
	if (!t->counted)
		t->first_seq = h->seq;
	t->counted = true;
	t->last_seq = h->seq;
	if (!tot)
		return;
	if (!t->has_totals)
		t->first = *tot;
	t->has_totals = true;
	t->last = *tot;
}

static void take(struct pt_repeat *r, const void *rec, size_t len)
{
	struct entry e = { .at = r->bytes.n };
	const struct pt_hdr *h = rec;
	size_t i, room = (len + 7) & ~(size_t)7;

	for (i = 0; i < room; i++) {
		unsigned char c = i < len ? ((const unsigned char *)rec)[i] : 0;

		must(!pt_vec_push(&r->bytes, c));
	}
	e.t = thread_of(r, h->tid);
	e.seed = h->kind == PT_REC_FILE && !e.t->counted;
	if (!e.seed)
		learn(r, e.t, h);
	must(!pt_vec_push(&r->recs, e));
}

struct pt_repeat *pt_repeat_open(const char *path)
{
	struct pt_repeat *r = calloc(1, sizeof(*r));
	FILE *f = fopen(path, "re");
	struct pt_raw_reader in;
	int len;

	must(r != NULL);
	if (!f || pt_raw_open(&in, f)) {
		fprintf(stderr, "bench: %s cannot be read\n", path);
		if (f)
			fclose(f);
		free(r);
		return NULL;
	}
	while ((len = pt_raw_next(&in)) > 0)
		take(r, &in.rec, (size_t)len);
	fclose(f);
	if (r->begin && r->end > r->begin)
		return r;
	fprintf(stderr, "bench: %s has no begin and end\n", path);
	pt_repeat_close(r);
	return NULL;
}

void pt_repeat_close(struct pt_repeat *r)
{
	struct thread *t, *tmp;

	HASH_ITER(hh, r->threads, t, tmp) {
		HASH_DEL(r->threads, t);
		free(t);
	}
	pt_vec_free(&r->bytes);
	pt_vec_free(&r->recs);
	free(r);
}

size_t pt_repeat_records(const struct pt_repeat *r)
{
	return r->recs.n;
}

static void add_totals(struct pt_totals *o, const struct thread *t, unsigned k)
{
	const uint64_t *a = (const uint64_t *)&t->first;
	const uint64_t *b = (const uint64_t *)&t->last;
	uint64_t *v = (uint64_t *)o;
	size_t i;

	for (i = 0; i < sizeof(*o) / sizeof(*v); i++)
		v[i] += k * (b[i] - a[i]);
}

static void add_sample(struct pt_rec_sample *o, const struct thread *t,
		       unsigned k)
{
	const struct pt_rec_sample *a = &t->sample[0], *b = &t->sample[1];

	o->utime_ns += k * (b->utime_ns - a->utime_ns);
	o->stime_ns += k * (b->stime_ns - a->stime_ns);
	o->rchar += k * (b->rchar - a->rchar);
	o->read_bytes += k * (b->read_bytes - a->read_bytes);
	o->write_bytes += k * (b->write_bytes - a->write_bytes);
}

/* Does this round have the record? */
static bool belongs(const union pt_rec_any *u, const struct thread *t, unsigned round,
		    int last)
{
	switch (u->hdr.kind) {
	case PT_REC_MARK:
		return u->mark.mark == PT_MARK_BEGIN ? !round : last != 0;
	case PT_REC_TASK:
		return !round || t->ends;
	case PT_REC_HOST:
	case PT_REC_LIB:
	case PT_REC_COST: /* counts on from the trace's begin */
		return !round;
	default:
		return true;
	}
}

static void move_times(union pt_rec_any *u, uint64_t by)
{
	u->hdr.ts += by;
	if (u->hdr.kind == PT_REC_OFF) {
		u->off.off_ts += by;
		u->off.wake_ts += u->off.wake_ts ? by : 0;
	} else if (u->hdr.kind == PT_REC_READ) {
		u->read.begin_ts += by;
	}
}

void pt_repeat_round(struct pt_repeat *r, unsigned round, int last,
		     void (*fn)(void *ctx, const void *rec, size_t len),
		     void *ctx)
{
	uint64_t by = round * (r->end - r->begin);
	size_t i;

	for (i = 0; i < r->recs.n; i++) {
		const struct thread *t = r->recs.v[i].t;
		const struct pt_hdr *h = (const void *)&r->bytes.v[r->recs.v[i].at];
		size_t len = h->size < sizeof(union pt_rec_any) ? h->size :
							   sizeof(union pt_rec_any);
		union pt_rec_any u;

		memcpy(&u, h, len);
		if (!belongs(&u, t, round, last) ||
		    (round && r->recs.v[i].seed))
			continue;
		move_times(&u, by);
		/* what was still open goes on into the next round */
		if (u.hdr.kind == PT_REC_OFF && u.hdr.flags & PT_F_OPEN &&
		    h->ts == r->end && !last)
			u.hdr.flags &= (uint16_t)~PT_F_OPEN;
		if (u.hdr.kind == PT_REC_FORK)
			u.fork.child_start += round;
		if (u.hdr.kind == PT_REC_SAMPLE) {
			add_sample(&u.sample, t, round);
		} else if (t->ends) {
			u.hdr.start += round;
		} else {
			u.hdr.seq += round * (t->last_seq + 1 - t->first_seq);
			if (u.hdr.kind == PT_REC_OFF)
				add_totals(&u.off.tot, t, round);
		}
		fn(ctx, &u, len);
	}
}
