/* SPDX-License-Identifier: BSD-2-Clause */
/* The device's life: clock, start, its thread, fork and exit. */
#include "cudart_state.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct sim_device dev = { .lock = PTHREAD_MUTEX_INITIALIZER };
pthread_key_t sim_thread_key;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t init_err;
static _Atomic bool started, forked, unloaded;
static bool thread_key_ok;
static __thread int32_t cached_tid;
static __thread unsigned current;

unsigned sim_current(void)
{
	return current;
}

void sim_set_current(unsigned device)
{
	current = device;
}

uint64_t sim_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SIM_NS_PER_S + (uint64_t)ts.tv_nsec;
}

int32_t sim_tid(void)
{
	if (!cached_tid)
		cached_tid = (int32_t)syscall(SYS_gettid);
	return cached_tid;
}

void sim_lock(void)
{
	pthread_mutex_lock(&dev.lock);
}

void sim_unlock(void)
{
	pthread_mutex_unlock(&dev.lock);
}

/* ---- the device thread --------------------------------------------------- */

void device_wake_by(uint64_t when)
{
	if (when < dev.wake) {
		dev.wake = when;
		pthread_cond_signal(&dev.cv);
	}
}

static void *device_main(void *arg)
{
	uint64_t next_flush = 0;

	(void)arg;
	/* the driver's own notification thread has this name */
	prctl(PR_SET_NAME, "cuda-EvtHandlr");
	prctl(PR_SET_TIMERSLACK, 1);
	sim_lock();
	while (!dev.stop) {
		uint64_t now = sim_now();
		struct timespec ts;

		sched_advance(now);
		if (sim_log_pending() && now >= next_flush) {
			next_flush = now + FLUSH_NS;
			sim_log_flush();
			continue;
		}
		sim_nvml_publish(now);
		dev.wake = sim_nvml_due();
		if ((sim_shared() || sim_meets()) && sched_next_end() < dev.wake)
			dev.wake = sched_next_end();
		if (sim_log_pending() || (dev.n_run && sim_log_enabled()))
			device_wake_by(next_flush > now ? next_flush :
							  now + FLUSH_NS);
		for (struct waiter *w = dev.first; w; w = w->next) {
			uint64_t t = waiter_bound(w);

			if (t < dev.wake)
				dev.wake = t;
		}
		if (dev.wake == NEVER) {
			pthread_cond_wait(&dev.cv, &dev.lock);
			continue;
		}
		ts.tv_sec = (time_t)(dev.wake / SIM_NS_PER_S);
		ts.tv_nsec = (long)(dev.wake % SIM_NS_PER_S);
		pthread_cond_timedwait(&dev.cv, &dev.lock, &ts);
	}
	/* the process's end destroys the context: what runs is cut short */
	sched_advance(sim_now());
	for (unsigned i = 0; i < dev.n_run; i++)
		if (dev.run[i]->start < dev.vt)
			sched_log_op(dev.run[i], dev.vt);
	sim_meet_leave();
	sim_shared_close(dev.vt);
	sim_nvml_close();
	sim_log_flush();
	sim_unlock();
	return NULL;
}

static void in_child(void)
{
	cached_tid = 0;
	if (atomic_load(&started))
		atomic_store(&forked, true);
}

static void thread_gone(void *streams)
{
	struct sim_stream **v = streams;

	if (atomic_load(&forked) || atomic_load(&unloaded))
		return;
	sim_lock();
	for (unsigned i = 0; i < SIM_DEVICES; i++)
		if (v[i])
			sim_stream_close(v[i]);
	sim_unlock();
	free(v);
}

static int start_thread(void)
{
	pthread_condattr_t ca;
	sigset_t all, old;
	int err;

	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	err = pthread_cond_init(&dev.cv, &ca);
	pthread_condattr_destroy(&ca);
	if (err)
		return -err;
	/* signals are the application's business */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&dev.thread, NULL, device_main, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	dev.thread_up = !err;
	return -err;
}

static void init(void)
{
	init_err = cudaErrorInitializationError;
	sim_config_read();
	dev.pool = calloc(sim_cfg.queue, sizeof(*dev.pool));
	if (!dev.pool || sim_mem_init()) {
		init_err = cudaErrorMemoryAllocation;
		return;
	}
	for (unsigned i = 0; i < sim_cfg.queue; i++) {
		dev.pool[i].next = dev.free_ops;
		dev.free_ops = &dev.pool[i];
	}
	for (unsigned i = 0; i < sim_cfg.devices; i++)
		dev.legacy[i] = (struct sim_stream){
			.refs = 1, .legacy = true, .blocking = true,
			.device = i,
			.prev = i ? &dev.legacy[i - 1] : NULL,
			.next = i + 1 < sim_cfg.devices ? &dev.legacy[i + 1] :
							  NULL,
		};
	dev.streams = &dev.legacy[0];
	dev.owner = getpid();
	dev.vt = sim_now();
	dev.wake = NEVER;
	if (pthread_atfork(NULL, NULL, in_child))
		return;
	thread_key_ok = !pthread_key_create(&sim_thread_key, thread_gone);
	sim_log_open();
	sim_shared_open();
	sim_nvml_open();
	if (!thread_key_ok || start_thread())
		return;
	atomic_store(&started, true);
	init_err = cudaSuccess;
}

cudaError_t sim_enter(void)
{
	if (atomic_load(&forked))
		return cudaErrorInitializationError;
	if (atomic_load(&unloaded))
		return cudaErrorCudartUnloading;
	pthread_once(&once, init);
	if (!init_err)
		sim_inject();
	return init_err;
}

__attribute__((destructor)) static void fini(void)
{
	/* a forked child owns neither the thread nor the log */
	if (!dev.thread_up || atomic_load(&forked) || dev.owner != getpid())
		return;
	atomic_store(&unloaded, true);
	sim_lock();
	dev.stop = true;
	pthread_cond_signal(&dev.cv);
	sim_unlock();
	pthread_join(dev.thread, NULL);
	pthread_key_delete(sim_thread_key);
	sim_log_close();
}
