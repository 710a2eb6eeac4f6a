/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whoever queues encodes and compresses; the thread here only sends. Log records and
 * metrics are tried again each for themselves, since a receiver may want but one of
 * them.
 */
#include "agent/otlp.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "agent/gzip.h"
#include "agent/otlp_encode.h"
#include "agent/otlp_post.h"
#include "agent/otlp_queue.h"
#include "base/clock.h"

#define BATCH (256 << 10) /* bytes of records in one request, before gzip */
/* Seconds to wait before another attempt: doubled each time, a random share of up to
 * a half more or less, so that a thousand nodes do not come back at once. */
#define FIRST_S 0.5
#define MOST_S 30
#define AFTER_MOST_S 300   /* of what a receiver asks for */
#define LAST_S 0.2	   /* between attempts while we end */
#define TELL_AGAIN_S 60	   /* a loss that could not be told */
#define QUEUE_LEAST (64 << 10)

struct lane { /* of one signal */
	unsigned failed; /* attempts in a row */
	double next;	 /* s, monotonic: not before */
};

struct pt_otlp {
	struct pt_otlp_post *post;
	char *host, *version;
	pthread_t thread;
	bool threaded;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t changed;
	struct pt_otlp_queue queue;
	struct lane lane[PT_OTLP_SIGNALS];
	uint64_t sent, retries;
	uint64_t rejected[PT_OTLP_SIGNALS]; /* in part, by the receiver */
	uint64_t told[PT_OTLP_SIGNALS];	    /* of queue.lost */
	bool reached;			    /* the last request was answered well */
	double tell;			    /* s: not before */
	double end;			    /* s: all ends; INFINITY: not soon */
};

static const struct pt_otlp_who *who(const struct pt_otlp *o, struct pt_otlp_who *w)
{
	w->host = o->host;
	w->version = o->version;
	return w;
}

/* 0.5 to 1.5 */
static double jitter(void)
{
	uint32_t x = 1u << 31;

	if (getrandom(&x, sizeof(x), GRND_NONBLOCK) != sizeof(x))
		x = (uint32_t)pt_clock_ns(CLOCK_REALTIME) * 2654435761u;
	return 0.5 + x / 4294967296.0;
}

/* ---- the thread (all of it with the lock, but while it sends) ------------------- */

static bool to_tell(const struct pt_otlp *o)
{
	return o->queue.lost[PT_OTLP_LOGS] > o->told[PT_OTLP_LOGS] ||
	       o->queue.lost[PT_OTLP_METRICS] > o->told[PT_OTLP_METRICS];
}

/* Which signal is next, and when; -1: none before something changes. */
static int choose(const struct pt_otlp *o, double *when)
{
	const struct lane *l = o->lane;
	double log_at = INFINITY, metrics_at = INFINITY;
	double now = pt_now();

	if (o->queue.first[PT_OTLP_LOGS])
		log_at = l[PT_OTLP_LOGS].next;
	else if (to_tell(o) && o->reached)
		log_at = fmax(l[PT_OTLP_LOGS].next, o->tell);
	if (o->queue.first[PT_OTLP_METRICS])
		metrics_at = l[PT_OTLP_METRICS].next;
	*when = fmin(log_at, metrics_at);
	if (isinf(*when))
		return -1;
	return log_at <= now || log_at <= metrics_at ? PT_OTLP_LOGS : PT_OTLP_METRICS;
}

/* Until something can be sent. The signal; -1: it is time to end. */
static int await(struct pt_otlp *o)
{
	for (;;) {
		double when, now = pt_now();
		struct timespec ts;
		int s = choose(o, &when);

		if (now >= o->end || (s < 0 && !isinf(o->end)))
			return -1;
		if (s >= 0 && when <= now)
			return s;
		if (when > o->end)
			return -1; /* it would come too late */
		if (s < 0) {
			pthread_cond_wait(&o->changed, &o->lock);
			continue;
		}
		ts.tv_sec = (time_t)when;
		ts.tv_nsec = (long)((when - (double)ts.tv_sec) * 1e9);
		pthread_cond_timedwait(&o->changed, &o->lock, &ts);
	}
}

struct request {
	enum pt_otlp_signal s;
	void *data; /* gzip'd; to free unless it is an item's */
	size_t len;
	bool borrowed;
	uint64_t tells[PT_OTLP_SIGNALS]; /* losses that it tells of */
};

/* Records of the queue, and of what was lost, as one request. */
static int gather_logs(struct pt_otlp *o, struct request *r)
{
	struct pt_otlp_bytes loss = { 0 };
	struct pt_otlp_who w;
	struct pt_otlp_item *it;
	size_t bytes, n, at = 0;
	uint8_t *all;
	int err = 0;

	n = pt_otlp_queue_take(&o->queue, PT_OTLP_LOGS, BATCH, &bytes);
	if (to_tell(o) && pt_now() >= o->tell) {
		r->tells[0] = o->queue.lost[0] - o->told[0];
		r->tells[1] = o->queue.lost[1] - o->told[1];
		err = pt_otlp_encode_loss(who(o, &w), r->tells[PT_OTLP_METRICS],
					  r->tells[PT_OTLP_LOGS], pt_clock_ns(CLOCK_REALTIME), &loss);
		if (err)
			return err;
	}
	all = malloc(bytes + loss.len + 1);
	if (all) {
		if (loss.len)
			memcpy(all, loss.data, loss.len);
		at = loss.len;
		for (it = o->queue.first[PT_OTLP_LOGS]; n; it = it->next, n--) {
			memcpy(all + at, it->data, it->len);
			at += it->len;
		}
		err = pt_gzip(all, at, &r->data, &r->len);
	} else {
		err = -ENOMEM;
	}
	free(all);
	free(loss.data);
	return err;
}

static int gather(struct pt_otlp *o, struct request *r)
{
	size_t bytes;

	if (r->s == PT_OTLP_LOGS)
		return gather_logs(o, r);
	pt_otlp_queue_take(&o->queue, PT_OTLP_METRICS, 0, &bytes);
	/* What is being sent stays where it is. */
	r->data = o->queue.first[PT_OTLP_METRICS]->data;
	r->len = o->queue.first[PT_OTLP_METRICS]->len;
	r->borrowed = true;
	return 0;
}

static enum pt_otlp_fate fate_of(int err, const struct pt_otlp_answer *a)
{
	if (err || a->status == 429 || a->status == 502 || a->status == 503 ||
	    a->status == 504)
		return PT_OTLP_AGAIN;
	return a->status >= 200 && a->status < 300 ? PT_OTLP_SENT : PT_OTLP_REFUSED;
}

static void wait_longer(struct pt_otlp *o, enum pt_otlp_signal s,
			const struct pt_otlp_answer *a)
{
	struct lane *l = &o->lane[s];
	double wait = FIRST_S * exp2(l->failed < 10 ? l->failed : 10);

	l->failed++;
	o->retries++;
	wait = fmin(wait, MOST_S) * jitter();
	if (!isinf(o->end))
		wait = LAST_S;
	if (a->retry_after > 0)
		wait = fmin(a->retry_after, AFTER_MOST_S) * (0.95 + jitter() / 10);
	l->next = pt_now() + wait;
}

static void settle(struct pt_otlp *o, const struct request *r, int err,
		   const struct pt_otlp_answer *a)
{
	enum pt_otlp_fate fate = fate_of(err, a);
	uint64_t part;
	size_t n;

	n = pt_otlp_queue_done(&o->queue, r->s, fate);
	o->reached = fate == PT_OTLP_SENT;
	if (fate == PT_OTLP_AGAIN) {
		wait_longer(o, r->s, a);
		return;
	}
	o->lane[r->s].failed = 0;
	o->lane[r->s].next = 0;
	if (fate == PT_OTLP_SENT) {
		o->sent++;
		o->told[0] += r->tells[0];
		o->told[1] += r->tells[1];
		part = pt_otlp_rejected(a->body, a->len);
		o->rejected[r->s] += part < n ? part : n;
	} else if (r->tells[0] || r->tells[1]) {
		o->tell = pt_now() + TELL_AGAIN_S;
	}
}

static double until(void *ctx)
{
	struct pt_otlp *o = ctx;
	double end;

	pthread_mutex_lock(&o->lock);
	end = o->end;
	pthread_mutex_unlock(&o->lock);
	/* libcurl has a limit of its own for one request. */
	return isinf(end) ? pt_now() + 60 : end;
}

static void *sender(void *arg)
{
	struct pt_otlp_answer *a = malloc(sizeof(*a));
	struct pt_otlp *o = arg;
	int s, err;

	pthread_mutex_lock(&o->lock);
	while (a && (s = await(o)) >= 0) {
		struct request r = { .s = (enum pt_otlp_signal)s };

		memset(a, 0, sizeof(*a));
		err = gather(o, &r);
		if (!err) {
			pthread_mutex_unlock(&o->lock);
			err = pt_otlp_post(o->post, r.s, r.data, r.len, until, o, a);
			pthread_mutex_lock(&o->lock);
		}
		settle(o, &r, err, a);
		if (!r.borrowed)
			free(r.data);
	}
	pthread_mutex_unlock(&o->lock);
	free(a);
	return NULL;
}

/* ---- start, stop, queue -------------------------------------------------------- */

int pt_otlp_start(const struct pt_otlp_options *opt, struct pt_otlp **out, char *why,
		  size_t n)
{
	struct pt_otlp *o = calloc(1, sizeof(*o));
	pthread_condattr_t attr;
	sigset_t all, old;
	int err;

	*out = NULL;
	if (!o) {
		snprintf(why, n, "no memory");
		return -ENOMEM;
	}
	pthread_mutex_init(&o->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&o->changed, &attr);
	pthread_condattr_destroy(&attr);
	pt_otlp_queue_init(&o->queue, opt->queue_bytes > QUEUE_LEAST ?
					      opt->queue_bytes :
					      QUEUE_LEAST);
	o->end = INFINITY;
	o->host = strdup(opt->host ? opt->host : "");
	o->version = strdup(opt->version ? opt->version : "");
	err = o->host && o->version ? 0 : -ENOMEM;
	if (err)
		snprintf(why, n, "no memory");
	else
		err = pt_otlp_post_new(opt, &o->post, why, n);
	if (!err) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		err = -pthread_create(&o->thread, NULL, sender, o);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		o->threaded = !err;
		if (err)
			snprintf(why, n, "cannot start a thread: %s", strerror(-err));
	}
	if (err) {
		pt_otlp_stop(o, 0);
		return err;
	}
	*out = o;
	return 0;
}

void pt_otlp_stop(struct pt_otlp *o, double seconds)
{
	int s;

	if (!o)
		return;
	if (o->threaded) {
		pthread_mutex_lock(&o->lock);
		o->end = pt_now() + fmax(seconds, 0);
		for (s = 0; s < PT_OTLP_SIGNALS; s++)
			o->lane[s].next = 0;
		pthread_cond_signal(&o->changed);
		pthread_mutex_unlock(&o->lock);
		pt_otlp_post_wake(o->post);
		pthread_join(o->thread, NULL);
	}
	pt_otlp_post_free(o->post);
	pt_otlp_queue_free(&o->queue);
	pthread_cond_destroy(&o->changed);
	pthread_mutex_destroy(&o->lock);
	free(o->host);
	free(o->version);
	free(o);
}

static int put(struct pt_otlp *o, enum pt_otlp_signal s, uint8_t *data, size_t len,
	       size_t count)
{
	int err;

	pthread_mutex_lock(&o->lock);
	err = pt_otlp_queue_put(&o->queue, s, data, len, count);
	pthread_cond_signal(&o->changed);
	pthread_mutex_unlock(&o->lock);
	return err;
}

/* What has no memory to be encoded was not delivered either. */
static int lose(struct pt_otlp *o, enum pt_otlp_signal s, size_t count)
{
	pthread_mutex_lock(&o->lock);
	o->queue.dropped++;
	o->queue.lost[s] += count;
	pthread_mutex_unlock(&o->lock);
	return -ENOMEM;
}

int pt_otlp_metrics(struct pt_otlp *o, const struct pt_prom_agent *a,
		    const struct pt_prom_job *jobs, size_t n, uint64_t start_ns,
		    uint64_t unix_ns)
{
	struct pt_otlp_bytes b;
	struct pt_otlp_who w;
	void *zipped = NULL;
	size_t len;
	int err;

	err = pt_otlp_encode_metrics(who(o, &w), a, jobs, n, start_ns, unix_ns, &b);
	if (err)
		return lose(o, PT_OTLP_METRICS, 1); /* how many is not known */
	/* They wait compressed: ten times as many fit. */
	err = pt_gzip(b.data, b.len, &zipped, &len);
	free(b.data);
	if (err)
		return lose(o, PT_OTLP_METRICS, b.count);
	return put(o, PT_OTLP_METRICS, zipped, len, b.count);
}

int pt_otlp_change(struct pt_otlp *o, const struct pt_otlp_change *c)
{
	struct pt_otlp_bytes b;
	struct pt_otlp_who w;

	if (pt_otlp_encode_change(who(o, &w), c, &b))
		return lose(o, PT_OTLP_LOGS, 1);
	return put(o, PT_OTLP_LOGS, b.data, b.len, b.count);
}

void pt_otlp_stats(struct pt_otlp *o, struct pt_otlp_stats *s)
{
	pthread_mutex_lock(&o->lock);
	s->sent = o->sent;
	s->retries = o->retries;
	s->dropped = o->queue.dropped;
	s->dropped_points = o->queue.lost[PT_OTLP_METRICS] + o->rejected[PT_OTLP_METRICS];
	s->dropped_logs = o->queue.lost[PT_OTLP_LOGS] + o->rejected[PT_OTLP_LOGS];
	s->queued_bytes = o->queue.bytes;
	pthread_mutex_unlock(&o->lock);
}
