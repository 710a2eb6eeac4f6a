// SPDX-License-Identifier: BSD-2-Clause
#include "store/recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/records.h"
#include "store/recording.h"
#include "store/shrink.h"

/* Large enough for the compressor to find what repeats, small enough for a cut
 * file to lose little: under a second of a busy job. */
#define BLOCK (4u << 20)
/* Blocks that wait for the disk, at most: 64 MiB. */
#define QUEUE 16

struct block {
	pt_bytes b;
	uint64_t records;
	uint64_t dropped; /* right before it */
	bool about;	  /* not records, but what is known beside them */
};

struct pt_recorder {
	struct block now; /* the caller's: no lock */
	struct block queue[QUEUE], spare;
	size_t first, n;
	pthread_mutex_t lock;
	pthread_cond_t more, done;
	pthread_t thread;
	bool closing, finished;
	bool abandoned; /* the thread frees it when it ends */
	struct pt_rf_writer w;
	struct pt_shrink shrink;
	struct pt_recorder_state state;
};

/* ---- the writing thread ------------------------------------------------------ */

static int write_block(struct pt_recorder *r, struct block *b)
{
	int err;

	r->w.dropped += b->dropped;
	if (b->about) {
		if (r->shrink.max) { /* the old one is this function's to free */
			pt_vec_free(&r->shrink.about);
			r->shrink.about = b->b;
			b->b = (pt_bytes){ 0 };
			return pt_rf_about(&r->w, r->shrink.about.v,
					   r->shrink.about.n);
		}
		return pt_rf_about(&r->w, b->b.v, b->b.n);
	}
	err = pt_shrink_see(&r->shrink, b->b.v, b->b.n);
	err = err ?: pt_rf_put(&r->w, b->b.v, b->b.n);
	return err ? err : pt_shrink_step(&r->shrink, &r->w);
}

static int write_end(struct pt_recorder *r)
{
	int err = pt_shrink_step(&r->shrink, &r->w), end; /* the report's last words */

	r->w.dropped += r->now.dropped; /* behind the last block */
	end = pt_rf_end(&r->w); /* of the old file where there is no new one */
	return err ? err : end;
}

/* errno says more of a failed write than -EIO. */
static int reason(int err)
{
	return err == -EIO && errno ? -errno : err;
}

static void note(struct pt_recorder *r, int err)
{
	pthread_mutex_lock(&r->lock);
	if (err && !r->state.error)
		r->state.error = err;
	r->state.bytes = r->w.at;
	r->state.gone = r->shrink.gone;
	pthread_mutex_unlock(&r->lock);
}

/* The next block, moved to *b; false: all is written and none will come. */
static bool next_block(struct pt_recorder *r, struct block *b)
{
	bool got;

	pthread_mutex_lock(&r->lock);
	while (!r->n && !r->closing)
		pthread_cond_wait(&r->more, &r->lock);
	got = r->n > 0;
	if (got) {
		*b = r->queue[r->first];
		memset(&r->queue[r->first], 0, sizeof(*b));
		r->first = (r->first + 1) % QUEUE;
		r->n--;
	}
	pthread_mutex_unlock(&r->lock);
	return got;
}

/* Memory for the next block to gather in. */
static void give_back(struct pt_recorder *r, struct block *b)
{
	pthread_mutex_lock(&r->lock);
	if (!r->spare.b.v && b->b.cap >= BLOCK) {
		r->spare.b = b->b;
		b->b.v = NULL;
	}
	pthread_mutex_unlock(&r->lock);
	free(b->b.v);
}

static void destroy(struct pt_recorder *r)
{
	size_t i;

	for (i = 0; i < QUEUE; i++)
		pt_vec_free(&r->queue[i].b);
	pt_vec_free(&r->now.b);
	pt_vec_free(&r->spare.b);
	pt_rf_writer_free(&r->w);
	pt_shrink_free(&r->shrink);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->more);
	pthread_cond_destroy(&r->done);
	free(r);
}

static void *writer(void *arg)
{
	struct pt_recorder *r = arg;
	struct block b;
	bool mine;
	int err = 0;

	while (next_block(r, &b)) {
		errno = 0;
		err = err ?: reason(write_block(r, &b));
		note(r, err);
		give_back(r, &b);
	}
	errno = 0;
	err = err ?: reason(write_end(r));
	note(r, err);
	pthread_mutex_lock(&r->lock);
	r->finished = true;
	mine = r->abandoned;
	pthread_cond_signal(&r->done);
	pthread_mutex_unlock(&r->lock);
	if (mine)
		destroy(r);
	return NULL;
}

/* ---- the tracer's side -------------------------------------------------------- */

int pt_recorder_open(struct pt_recorder **out, FILE *f, uint64_t unix_ns,
		     uint64_t max, const struct pt_again *again)
{
	struct pt_recorder *r = calloc(1, sizeof(*r));
	pthread_condattr_t clock;
	int err;

	*out = NULL;
	if (!r)
		return -ENOMEM;
	if (max && again) {
		r->shrink.max = max;
		r->shrink.again = *again;
		r->shrink.unix_ns = unix_ns;
	}
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->more, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&r->done, &clock);
	pthread_condattr_destroy(&clock);
	errno = 0;
	err = reason(pt_rf_begin(&r->w, f, unix_ns));
	err = err ?: -pthread_create(&r->thread, NULL, writer, r);
	if (err) {
		destroy(r);
		return err;
	}
	*out = r;
	return 0;
}

void pt_recorder_flush(struct pt_recorder *r)
{
	struct block *b = &r->now;

	if (!b->b.n)
		return;
	pthread_mutex_lock(&r->lock);
	if (r->n == QUEUE || r->state.error) {
		r->state.dropped += b->records;
		b->dropped += b->records;
		b->records = b->b.n = 0;
	} else {
		r->queue[(r->first + r->n++) % QUEUE] = *b;
		r->state.records += b->records;
		*b = r->spare;
		b->b.n = 0;
		memset(&r->spare, 0, sizeof(r->spare));
		pthread_cond_signal(&r->more);
	}
	pthread_mutex_unlock(&r->lock);
}

static void lose_one(struct pt_recorder *r)
{
	r->now.dropped++;
	pthread_mutex_lock(&r->lock);
	r->state.dropped++;
	pthread_mutex_unlock(&r->lock);
}

void pt_recorder_put(struct pt_recorder *r, const void *rec, size_t len)
{
	pt_bytes *b = &r->now.b;
	struct pt_hdr h;

	if (!pt_rec_head(rec, len, &h))
		return; /* the model has counted it as malformed */
	if (b->n + h.size > BLOCK)
		pt_recorder_flush(r);
	if (!b->v) {
		b->v = malloc(BLOCK);
		b->cap = b->v ? BLOCK : 0;
	}
	if (!b->v) {
		lose_one(r);
		return;
	}
	memcpy(b->v + b->n, rec, h.size);
	b->n += h.size;
	r->now.records++;
}

void pt_recorder_state(struct pt_recorder *r, struct pt_recorder_state *out)
{
	pthread_mutex_lock(&r->lock);
	*out = r->state;
	pthread_mutex_unlock(&r->lock);
}

int pt_recorder_about(struct pt_recorder *r, const void *data, size_t len)
{
	struct block b = { .about = true };
	bool room;

	pt_recorder_flush(r);
	b.b.v = malloc(len ? len : 1);
	if (!b.b.v)
		return -ENOMEM;
	memcpy(b.b.v, data, len);
	b.b.n = b.b.cap = len;
	pthread_mutex_lock(&r->lock);
	room = r->n < QUEUE;
	if (room) {
		r->queue[(r->first + r->n++) % QUEUE] = b;
		pthread_cond_signal(&r->more);
	}
	pthread_mutex_unlock(&r->lock);
	if (!room)
		free(b.b.v); /* the disk does not answer: no use waiting */
	return 0;
}

int pt_recorder_close(struct pt_recorder *r, unsigned timeout_ms,
		      struct pt_recorder_state *last)
{
	struct timespec until;
	pthread_t thread;
	bool finished;
	int err = 0;

	pt_recorder_flush(r);
	pthread_mutex_lock(&r->lock);
	r->closing = true;
	pthread_cond_signal(&r->more);
	pt_deadline(&until, timeout_ms);
	while (!r->finished && err != ETIMEDOUT)
		err = pthread_cond_timedwait(&r->done, &r->lock, &until);
	finished = r->finished;
	r->abandoned = !finished;
	if (last)
		*last = r->state;
	thread = r->thread;
	pthread_mutex_unlock(&r->lock);
	if (!finished) {
		/* it sits in a write that may never end: what it uses is its own now */
		pthread_detach(thread);
		return -ETIMEDOUT;
	}
	pthread_join(thread, NULL);
	err = r->state.error;
	destroy(r);
	return err;
}
