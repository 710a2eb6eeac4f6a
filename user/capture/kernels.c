/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/kernels.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/vec.h"
#include "capture/discover.h"
#include "capture/elf.h"
#include "capture/session.h"
#include "gpu/api.h"

#define MAX_SEEN 8192 /* kernels of a session; a power of two */
#define MAX_BATCH 256
#define MAX_MAPS 64   /* mappings remembered */
#define MAPS_NS 2000000000u /* ... so long: an exec draws new addresses */
#define FREE_MS 1000

struct func {
	uint64_t addr;
	uint64_t key; /* by which launches know it: the address, or the driver's handle */
	uint32_t tgid;
};

struct mapping {
	pid_t pid;
	uint64_t seen_ns;
	struct pt_gpulib g;
};

struct pt_kernels {
	/* Used by the caller's thread alone. */
	struct func seen[2 * MAX_SEEN]; /* open addressing; addr 0: free */
	struct func last;
	size_t n_seen;

	/* Used by both, under the lock. */
	pthread_mutex_t lock;
	pthread_cond_t work, idle; /* idle: on CLOCK_MONOTONIC */
	PT_VEC(struct func) todo;
	PT_VEC(struct pt_rec_name) done;
	bool busy, stop, left; /* left: nobody waits for the thread any more */

	/* Used by the thread that reads names alone. */
	struct mapping map[MAX_MAPS];
	size_t n_maps;
	pthread_t thread;
};

static void release(struct pt_kernels *k)
{
	pthread_cond_destroy(&k->work);
	pthread_cond_destroy(&k->idle);
	pthread_mutex_destroy(&k->lock);
	pt_vec_free(&k->todo);
	pt_vec_free(&k->done);
	free(k);
}

/* ---- the thread ---------------------------------------------------------- */

static const struct pt_gpulib *mapping_of(struct pt_kernels *k,
					  const struct func *f)
{
	uint64_t now = pt_now_ns();
	struct mapping *m;
	size_t i;

	for (i = 0; i < k->n_maps; i++) {
		m = &k->map[i];
		if (m->pid == (pid_t)f->tgid && now - m->seen_ns < MAPS_NS &&
		    f->addr >= m->g.start && f->addr < m->g.end)
			return &m->g;
	}
	i = k->n_maps < MAX_MAPS ? k->n_maps : (size_t)(now % MAX_MAPS);
	m = &k->map[i];
	m->seen_ns = 0;
	if (pt_mapping_at((pid_t)f->tgid, f->addr, &m->g))
		return NULL;
	m->pid = (pid_t)f->tgid;
	m->seen_ns = now;
	if (i == k->n_maps)
		k->n_maps++;
	return &m->g;
}

static void deliver(struct pt_kernels *k, uint32_t tgid,
		    const struct pt_elf_place *p)
{
	struct pt_rec_name r;

	pt_rec_begin(&r, sizeof(r), PT_REC_NAME, pt_now_ns(), tgid);
	r.key = p->key;
	r.space = PT_NAME_FUNCTION;
	r.truncated = p->truncated;
	memcpy(r.name, p->name, sizeof(r.name));
	pthread_mutex_lock(&k->lock);
	(void)pt_vec_push(&k->done, r); /* no memory: no name */
	pthread_mutex_unlock(&k->lock);
}

/* All of `f` that lie in the file of the first one; takes them out. */
static void name_file(struct pt_kernels *k, struct func *f, size_t *n)
{
	const struct pt_gpulib *g = mapping_of(k, &f[0]), *other;
	struct pt_elf_place *v;
	uint32_t tgid = f[0].tgid;
	struct pt_gpulib first;
	size_t i, kept = 0, m = 0;
	int fd;

	v = g ? calloc(*n, sizeof(*v)) : NULL;
	if (!v) { /* not in a file: not to be named */
		memmove(f, f + 1, --*n * sizeof(*f));
		return;
	}
	first = *g;
	for (i = 0; i < *n; i++) {
		other = f[i].tgid == tgid ? mapping_of(k, &f[i]) : NULL;
		if (i && (!other || other->inode != first.inode ||
			  other->dev != first.dev)) {
			f[kept++] = f[i];
			continue;
		}
		if (!i)
			other = &first;
		v[m].key = f[i].key;
		v[m++].offset = f[i].addr - other->start + other->offset;
	}
	*n = kept;
	fd = pt_gpulib_open(&first);
	if (fd >= 0) {
		(void)pt_elf_names(fd, v, m);
		close(fd);
	}
	for (i = 0; i < m; i++)
		if (v[i].found)
			deliver(k, tgid, &v[i]);
	free(v);
}

static void *name_kernels(void *arg)
{
	struct func batch[MAX_BATCH];
	struct pt_kernels *k = arg;
	bool left;
	size_t n;

	pthread_mutex_lock(&k->lock);
	while (!k->stop) {
		if (!k->todo.n) {
			k->busy = false;
			pthread_cond_broadcast(&k->idle);
			pthread_cond_wait(&k->work, &k->lock);
			continue;
		}
		k->busy = true;
		n = k->todo.n < MAX_BATCH ? k->todo.n : MAX_BATCH;
		memcpy(batch, k->todo.v, n * sizeof(*batch));
		k->todo.n -= n;
		memmove(k->todo.v, k->todo.v + n, k->todo.n * sizeof(*batch));
		pthread_mutex_unlock(&k->lock);
		while (n)
			name_file(k, batch, &n);
		pthread_mutex_lock(&k->lock);
	}
	k->busy = false;
	left = k->left;
	pthread_cond_broadcast(&k->idle);
	pthread_mutex_unlock(&k->lock);
	pt_elf_child_end();
	if (left)
		release(k);
	return NULL;
}

/* ---- the caller ---------------------------------------------------------- */

struct pt_kernels *pt_kernels_new(void)
{
	struct pt_kernels *k = calloc(1, sizeof(*k));
	pthread_condattr_t a;
	sigset_t all, old;
	int r;

	if (!k)
		return NULL;
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->work, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&k->idle, &a);
	pthread_condattr_destroy(&a);
	k->busy = true; /* until it waits for work */
	/* Signals are the main thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&k->thread, NULL, name_kernels, k);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!r)
		return k;
	release(k);
	return NULL;
}

/* True the first time. */
static bool is_new(struct pt_kernels *k, uint32_t tgid, uint64_t addr)
{
	uint64_t h = (addr ^ (uint64_t)tgid << 40) * 0x9e3779b97f4a7c15ull;
	size_t mask = sizeof(k->seen) / sizeof(k->seen[0]) - 1;
	size_t i = (size_t)(h >> 40) & mask;

	if (k->last.addr == addr && k->last.tgid == tgid)
		return false;
	k->last = (struct func){ .addr = addr, .tgid = tgid };
	for (; k->seen[i].addr; i = (i + 1) & mask)
		if (k->seen[i].addr == addr && k->seen[i].tgid == tgid)
			return false;
	if (k->n_seen == MAX_SEEN)
		return false;
	k->seen[i] = k->last;
	k->n_seen++;
	return true;
}

static void look_for(struct pt_kernels *k, const struct func *f)
{
	if (!f->key || !is_new(k, f->tgid, f->key))
		return;
	pthread_mutex_lock(&k->lock);
	if (!pt_vec_push(&k->todo, *f))
		pthread_cond_signal(&k->work);
	pthread_mutex_unlock(&k->lock);
}

void pt_kernels_see(struct pt_kernels *k, const void *rec, size_t len)
{
	const struct pt_rec_gpu *r = rec;
	const struct pt_api *a;
	struct func f;
	enum pt_api_lib lib;

	if (!k || len < sizeof(*r) || r->hdr.kind != PT_REC_GPU_ENTER)
		return;
	a = pt_api_get(r->api);
	if (!a || (a->cls != PT_API_LAUNCH && a->cls != PT_API_FUNCTION))
		return;
	lib = pt_api_lib(a); /* the driver's are handles, not addresses */
	if ((lib != PT_LIB_RUNTIME && lib != PT_LIB_HIP) ||
	    (a->cls == PT_API_FUNCTION && (a->how & 15) != PT_VIA_OUT))
		return;
	f = (struct func){ .addr = r->v[a->cls == PT_API_FUNCTION], .tgid = r->hdr.tgid };
	f.key = f.addr;
	look_for(k, &f);
}

void pt_kernels_handle(struct pt_kernels *k, uint32_t tgid, uint64_t handle,
		       uint64_t function)
{
	struct func f = { .addr = function, .key = handle, .tgid = tgid };

	if (k && function)
		look_for(k, &f);
}

void pt_kernels_take(struct pt_kernels *k,
		     void (*fn)(void *ctx, const struct pt_rec_name *rec),
		     void *ctx)
{
	size_t i;

	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	for (i = 0; i < k->done.n; i++)
		fn(ctx, &k->done.v[i]);
	k->done.n = 0;
	pthread_mutex_unlock(&k->lock);
}

/* Until the thread waits for work, or has ended. Locked; 0 or ETIMEDOUT. */
static int wait_idle(struct pt_kernels *k, unsigned ms)
{
	struct timespec t;
	int r = 0;

	pt_deadline(&t, ms);
	while ((k->busy || (k->todo.n && !k->stop)) && !r)
		r = pthread_cond_timedwait(&k->idle, &k->lock, &t);
	return r;
}

void pt_kernels_settle(struct pt_kernels *k, unsigned ms)
{
	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	wait_idle(k, ms);
	pthread_mutex_unlock(&k->lock);
}

void pt_kernels_free(struct pt_kernels *k)
{
	bool left;

	if (!k)
		return;
	pthread_mutex_lock(&k->lock);
	k->stop = true;
	pthread_cond_signal(&k->work);
	left = k->left = wait_idle(k, FREE_MS) != 0;
	if (left) /* a file that does not answer: it frees all by itself */
		pthread_detach(k->thread);
	pthread_mutex_unlock(&k->lock);
	if (left)
		return;
	pthread_join(k->thread, NULL);
	release(k);
}
