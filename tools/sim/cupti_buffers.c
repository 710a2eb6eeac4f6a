/* SPDX-License-Identifier: BSD-2-Clause */
/* CUPTI's stand-in: its thread fills the client's buffers and hands them back. */
#include "cupti_sim.h"

#include <dlfcn.h>
#include <link.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define QUEUE_MAX (1u << 20)
#define PERIOD_MS 100

/* The client's buffer that is being filled: the worker's alone. */
static struct {
	uint8_t *p;
	size_t size, used, max, n;
} buf;
static unsigned requests;

/* ---- the device's side ----------------------------------------------------- */

static const char *const devices[] = { "libcuda.so.1", "libcudart.so.13",
				       "libcudart.so.12" };
#define N_DEVICES (sizeof(devices) / sizeof(*devices))
static struct {
	void (*listen)(ptsim_listener, void *);
	void (*poll)(void);
} dev[N_DEVICES];

static uint32_t kind_of(const struct ptsim_act *a)
{
	switch (a->what) {
	case PTSIM_ACT_KERNEL: return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
	case PTSIM_ACT_COPY: return CUPTI_ACTIVITY_KIND_MEMCPY;
	case PTSIM_ACT_MEMSET: return CUPTI_ACTIVITY_KIND_MEMSET;
	default: return CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
	}
}

/* Called by the device, under its lock. */
static void on_act(void *ctx, const struct ptsim_act *a)
{
	struct ptsim_act *p;

	(void)ctx;
	pthread_mutex_lock(&cu.lock);
	if (!(cu.enabled >> kind_of(a) & 1))
		goto out;
	if (cu.n == cu.cap) {
		size_t cap = cu.cap ? cu.cap * 2 : 4096;

		p = cap <= QUEUE_MAX ? realloc(cu.queue, cap * sizeof(*p)) : NULL;
		if (!p) {
			__atomic_fetch_add(&cu.dropped, 1, __ATOMIC_RELAXED);
			goto out;
		}
		cu.queue = p;
		cu.cap = cap;
	}
	cu.queue[cu.n++] = *a;
out:
	pthread_mutex_unlock(&cu.lock);
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *ctx)
{
	(void)size;
	*(unsigned long long *)ctx = info->dlpi_adds;
	return 1;
}

/* The libraries that the process has by now. Asked after by name, one that is not there
 * would be read from its file each time. */
static void find_devices(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static unsigned long long before;
	unsigned long long loads = 0;

	dl_iterate_phdr(count_loads, &loads);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < N_DEVICES && loads != before; i++) {
		void *h;

		if (dev[i].listen)
			continue;
		h = dlopen(devices[i], RTLD_NOW | RTLD_NOLOAD);
		if (!h)
			continue;
		*(void **)&dev[i].poll = dlsym(h, "ptsim_poll");
		*(void **)&dev[i].listen = dlsym(h, "ptsim_listen");
		for (size_t j = 0; j < i; j++) /* found through a dependency */
			if (dev[j].listen == dev[i].listen)
				dev[i].listen = NULL;
		if (dev[i].listen)
			dev[i].listen(on_act, NULL);
	}
	before = loads;
	pthread_mutex_unlock(&lock);
}

/* ---- records --------------------------------------------------------------- */

size_t cu_length(uint32_t kind)
{
	switch (kind) {
	case CUPTI_ACTIVITY_KIND_KERNEL:
	case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
		return CUPTI_KERNEL_BYTES(cu.major);
	case CUPTI_ACTIVITY_KIND_MEMCPY: return CUPTI_MEMCPY_BYTES(cu.major);
	case CUPTI_ACTIVITY_KIND_MEMCPY2: return CUPTI_MEMCPY2_BYTES(cu.major);
	case CUPTI_ACTIVITY_KIND_MEMSET: return CUPTI_MEMSET_BYTES(cu.major);
	case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
		return CUPTI_SYNC_BYTES(cu.major);
	case CUPTI_ACTIVITY_KIND_OVERHEAD: return CUPTI_OVERHEAD_BYTES(cu.major);
	default: return 0;
	}
}

/* Kernels that nobody named: by their symbol, else by their address. Kept, as
 * CUPTI keeps them. */
static const char *kernel_name(const struct ptsim_act *a)
{
	static struct {
		const void *func;
		char name[64];
	} made[512];
	Dl_info info;

	if (a->name)
		return a->name;
	for (size_t i = 0; i < 512; i++) {
		if (made[i].func == a->func)
			return made[i].name;
		if (made[i].func)
			continue;
		if (dladdr(a->func, &info) && info.dli_sname &&
		    info.dli_saddr == a->func)
			snprintf(made[i].name, sizeof(made[i].name), "%s",
				 info.dli_sname);
		else
			snprintf(made[i].name, sizeof(made[i].name),
				 "kernel_%lx", (unsigned long)(uintptr_t)a->func);
		made[i].func = a->func;
		return made[i].name;
	}
	return NULL;
}

static void put_kernel(struct cupti_kernel *k, const struct ptsim_act *a)
{
	k->start = cu_stamp(a->begin);
	k->end = k->completed = cu_stamp(a->end);
	k->device = a->device;
	k->context = a->device + 1;
	k->stream = a->stream;
	k->correlation = a->correlation;
	k->name = kernel_name(a);
	k->graph_node = a->graph ? 1 : 0;
	k->graph = a->graph;
}

static void put_copy(struct cupti_memcpy *m, const struct ptsim_act *a)
{
	static const struct {
		uint8_t kind, src, dst;
	} way[] = {
		{ CUPTI_ACTIVITY_MEMCPY_KIND_HTOH, 1, 1 },
		{ CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, 1, 3 },
		{ CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 3, 1 },
		{ CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, 3, 3 },
	};
	unsigned w = a->detail & 3;

	m->copy_kind = way[w].kind;
	m->src_kind = way[w].src == 1 && !a->pageable ? 2 : way[w].src;
	m->dst_kind = way[w].dst == 1 && !a->pageable ? 2 : way[w].dst;
	m->flags = a->async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : 0;
	m->bytes = a->bytes;
	m->start = cu_stamp(a->begin);
	m->end = cu_stamp(a->end);
	m->device = a->device;
	m->context = a->device + 1;
	m->stream = a->stream;
	m->correlation = a->correlation;
	m->graph = a->graph;
}

static void put_record(uint8_t *to, uint32_t kind, const struct ptsim_act *a)
{
	struct cupti_memset *s = (void *)to;
	struct cupti_sync *y = (void *)to;

	memset(to, 0, cu_length(kind));
	((CUpti_Activity *)to)->kind = kind;
	switch (a->what) {
	case PTSIM_ACT_KERNEL:
		put_kernel((void *)to, a);
		break;
	case PTSIM_ACT_COPY:
		put_copy((void *)to, a);
		break;
	case PTSIM_ACT_MEMSET:
		s->bytes = a->bytes;
		s->start = cu_stamp(a->begin);
		s->end = cu_stamp(a->end);
		s->device = a->device;
		s->context = a->device + 1;
		s->stream = a->stream;
		s->correlation = a->correlation;
		s->memory_kind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
		s->graph = a->graph;
		break;
	default:
		y->type = a->detail;
		y->start = cu_stamp(a->begin);
		y->end = cu_stamp(a->end);
		y->correlation = a->correlation;
		y->context = a->device + 1;
		y->stream = a->stream;
		break;
	}
}

/* ---- the worker ------------------------------------------------------------ */

static void hand_back(cupti_complete_fn complete)
{
	if (!buf.p)
		return;
	complete(NULL, 0, buf.p, buf.size, buf.used);
	buf.p = NULL;
}

/* Room for a record, or false: none to be had. */
static bool room_for(size_t len, cupti_request_fn request,
		     cupti_complete_fn complete)
{
	if (buf.p && (buf.used + len > buf.size || (buf.max && buf.n == buf.max)))
		hand_back(complete);
	if (buf.p)
		return true;
	memset(&buf, 0, sizeof(buf));
	if (!request || (cu_fails("nobuffer") && requests++ % 2))
		return false;
	request(&buf.p, &buf.size, &buf.max);
	if (buf.p && buf.size < len)
		buf.p = NULL;
	return buf.p != NULL;
}

/* What has been told goes into buffers; the lock is dropped for the client. */
static void pump(bool flush)
{
	cupti_request_fn request = cu.request;
	cupti_complete_fn complete = cu.complete;
	struct ptsim_act *mine = cu.queue;
	size_t n = cu.n;

	cu.queue = NULL;
	cu.n = cu.cap = 0;
	cu_normalize();
	pthread_mutex_unlock(&cu.lock);
	for (size_t i = 0; i < n; i++) {
		uint32_t kind = kind_of(&mine[i]);
		size_t len = cu_length(kind);

		if (!complete || !room_for(len, request, complete)) {
			/* as many as a buffer holds go with it */
			size_t lost = cu_fails("nobuffer") && n - i > 64 ? 64 : n - i;

			__atomic_fetch_add(&cu.dropped, lost, __ATOMIC_RELAXED);
			i += lost - 1;
			continue;
		}
		pthread_mutex_lock(&cu.lock);
		put_record(buf.p + buf.used, kind, &mine[i]);
		pthread_mutex_unlock(&cu.lock);
		buf.used += len;
		buf.n++;
	}
	free(mine);
	if (flush && complete)
		hand_back(complete);
	pthread_mutex_lock(&cu.lock);
}

void cu_poll(void)
{
	find_devices();
	for (size_t i = 0; i < N_DEVICES; i++)
		if (dev[i].listen && dev[i].poll)
			dev[i].poll();
}

static void *worker_main(void *arg)
{
	(void)arg;
	prctl(PR_SET_NAME, "cupti-worker");
	pthread_mutex_lock(&cu.lock);
	while (!cu.stop) {
		uint64_t asked = cu.flush_asked;
		uint64_t wake;
		struct timespec ts;

		pthread_mutex_unlock(&cu.lock);
		cu_poll();
		if (cu_fails("slow"))
			usleep(300000);
		pthread_mutex_lock(&cu.lock);
		pump(asked != cu.flush_done);
		cu.flush_done = asked;
		pthread_cond_broadcast(&cu.flushed);
		if (cu.flush_asked != asked || cu.stop)
			continue;
		wake = cu_clock(CLOCK_REALTIME) +
		       (cu.period_ms ? cu.period_ms : PERIOD_MS) * 1000000ull;
		ts.tv_sec = (time_t)(wake / 1000000000ull);
		ts.tv_nsec = (long)(wake % 1000000000ull);
		pthread_cond_timedwait(&cu.work, &cu.lock, &ts);
	}
	pthread_mutex_unlock(&cu.lock);
	return NULL;
}

/* Listens to the device from here on, not only when the worker looks. */
int cu_worker_start(void)
{
	sigset_t all, old;
	int err = 0;

	find_devices();
	pthread_mutex_lock(&cu.lock);
	if (!cu.worker_up) {
		cu.stop = false;
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		err = pthread_create(&cu.worker, NULL, worker_main, NULL);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		cu.worker_up = !err;
	}
	pthread_mutex_unlock(&cu.lock);
	return -err;
}

void cu_worker_stop(void)
{
	for (size_t i = 0; i < N_DEVICES; i++) {
		if (dev[i].listen)
			dev[i].listen(NULL, NULL);
		dev[i].listen = NULL;
	}
	pthread_mutex_lock(&cu.lock);
	if (!cu.worker_up) {
		pthread_mutex_unlock(&cu.lock);
		return;
	}
	cu.stop = true;
	pthread_cond_broadcast(&cu.work);
	pthread_mutex_unlock(&cu.lock);
	pthread_join(cu.worker, NULL);
	cu.worker_up = false;
}

CUptiResult cu_flush(bool forced)
{
	uint64_t mine;

	(void)forced; /* a record here is complete before it is in a buffer */
	while (cu_fails("hang"))
		sleep(1);
	pthread_mutex_lock(&cu.lock);
	if (!cu.complete || !cu.worker_up) {
		pthread_mutex_unlock(&cu.lock);
		return cu.complete ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
	}
	mine = ++cu.flush_asked;
	pthread_cond_broadcast(&cu.work);
	while (cu.flush_done < mine && !cu.stop)
		pthread_cond_wait(&cu.flushed, &cu.lock);
	pthread_mutex_unlock(&cu.lock);
	return CUPTI_SUCCESS;
}
