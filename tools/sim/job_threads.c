/* SPDX-License-Identifier: BSD-2-Clause */
/* simjob: a pool of loader threads, as tf.data's and DALI's are: whoever is
 * free takes the next index; batches are delivered in order. */
#include "job.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STOP_LOOK_NS 200000000l /* how often a wait looks at `stop` */

struct job_pool {
	struct job_loader *l;
	pthread_mutex_t lock;
	pthread_cond_t wanted, made;
	pthread_t thread[JOB_WORKERS_MAX];
	uint64_t taken; /* next index to take; l->sent limits it */
	unsigned flight; /* batches in flight, at most */
	unsigned told;	 /* threads that have told their id */
	bool leave;
};

struct seat {
	struct job_pool *p;
	unsigned me;
};

static unsigned char *slot_of(const struct job_pool *p, uint64_t batch)
{
	return p->l->slots + batch % (p->flight + 1) * p->l->batch_bytes;
}

/* With the lock held: make one batch without it, and lay it down. */
static void make_one(struct job_pool *p, unsigned me)
{
	struct job_loader *l = p->l;
	struct job_result r = {
		.batch = p->taken++, .worker = me, .pid = (int32_t)gettid(),
	};

	pthread_mutex_unlock(&p->lock);
	r.err = job_batch_make(l->o, me, r.batch, slot_of(p, r.batch), &r.cost);
	r.done_ns = job_now();
	pthread_mutex_lock(&p->lock);
	l->stash[r.batch % p->flight] = r;
	l->have[r.batch % p->flight] = true;
	pthread_cond_broadcast(&p->made);
}

static void *pool_main(void *arg)
{
	struct seat s = *(struct seat *)arg;
	struct job_pool *p = s.p;

	free(arg);
	pthread_mutex_lock(&p->lock);
	p->l->w[s.me].pid = gettid();
	p->told++;
	pthread_cond_broadcast(&p->made);
	while (!p->leave) {
		if (p->taken < p->l->sent)
			make_one(p, s.me);
		else
			pthread_cond_wait(&p->wanted, &p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int job_pool_start(struct job_loader *l)
{
	struct job_pool *p = calloc(1, sizeof(*p));
	int err = 0;

	if (!p)
		return -ENOMEM;
	p->l = l;
	p->flight = l->o->workers * l->o->prefetch;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wanted, NULL);
	pthread_cond_init(&p->made, NULL);
	l->pool = p;
	l->sent = p->flight;
	while (l->n < l->o->workers && !err) {
		struct seat *s = malloc(sizeof(*s));

		if (!s)
			return -ENOMEM;
		*s = (struct seat){ p, l->n };
		err = -pthread_create(&p->thread[l->n], NULL, pool_main, s);
		if (err)
			free(s);
		else
			l->n++;
	}
	pthread_mutex_lock(&p->lock);
	while (p->told < l->n)
		pthread_cond_wait(&p->made, &p->lock);
	pthread_mutex_unlock(&p->lock);
	return err;
}

/* A condition's wait that returns now and then, to look at `stop`. */
static void wait_made(struct job_pool *p)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_nsec += STOP_LOOK_NS;
	if (ts.tv_nsec >= 1000000000l) {
		ts.tv_nsec -= 1000000000l;
		ts.tv_sec++;
	}
	pthread_cond_timedwait(&p->made, &p->lock, &ts);
}

int job_pool_next(struct job_loader *l, uint64_t batch, struct job_result *res,
		  const unsigned char **data, const volatile int *stop)
{
	struct job_pool *p = l->pool;
	size_t at = batch % p->flight;

	pthread_mutex_lock(&p->lock);
	while (!l->have[at] && !*stop)
		wait_made(p);
	if (!l->have[at]) {
		pthread_mutex_unlock(&p->lock);
		return -EINTR;
	}
	l->have[at] = false;
	*res = l->stash[at];
	*data = slot_of(p, batch);
	l->sent++;
	pthread_cond_signal(&p->wanted);
	pthread_mutex_unlock(&p->lock);
	if (res->err)
		fprintf(stderr, "simjob: batch %llu: %s\n",
			(unsigned long long)batch, strerror(-res->err));
	return res->err;
}

void job_pool_stop(struct job_loader *l)
{
	struct job_pool *p = l->pool;

	pthread_mutex_lock(&p->lock);
	p->leave = true;
	pthread_cond_broadcast(&p->wanted);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < l->n; i++)
		pthread_join(p->thread[i], NULL);
	pthread_cond_destroy(&p->made);
	pthread_cond_destroy(&p->wanted);
	pthread_mutex_destroy(&p->lock);
	free(p);
	l->pool = NULL;
	l->n = 0;
}
