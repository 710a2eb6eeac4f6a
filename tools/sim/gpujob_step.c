/* SPDX-License-Identifier: BSD-2-Clause */
/* gpujob: the feeder, and one step on one device. */
#include "gpujob_lane.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull

/* Kernels: a program knows each by the address of a function of its own. */
#define KERNEL(n) \
	void gpujob_kernel_##n(void); \
	__attribute__((noinline)) void gpujob_kernel_##n(void) \
	{ \
		__asm__ volatile("" ::"i"(n)); \
	}
#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
ALL(KERNEL)
static void (*const kernels[GJ_KERNELS])(void) = {
#define NAME(n) gpujob_kernel_##n,
	ALL(NAME)
};

static void sleep_ns(uint64_t ns)
{
	struct timespec ts = { (time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S) };

	nanosleep(&ts, NULL);
}

/* CPU time of the calling thread. */
static void spin_ns(uint64_t ns)
{
	uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;

	while (!stop && clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

/* ---- the feeder: a process that has a batch ready some time after each ask ---- */

static void feeder(int ask, int answer)
{
	unsigned char which;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(ask, &which, 1) == 1) {
		uint64_t ns = plan.phase[which % 2].host_ns;

		if (plan.seed % 2)
			sleep_ns(ns);
		else
			spin_ns(ns);
		if (write(answer, &which, 1) != 1)
			break;
	}
	_exit(0);
}

/* Before the GPU library is opened: a child could not use it. */
int start_feeder(struct lane *l)
{
	unsigned depth = 1 + (unsigned)(gj_rand(&l->rng) % 3);
	int to[2], from[2];
	pid_t pid;

	if (pipe(to) || pipe(from))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		close(to[1]);
		close(from[0]);
		feeder(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	l->ask = to[1];
	l->answer = from[0];
	while (depth--)
		if (write(l->ask, "", 1) != 1)
			return -EPIPE;
	return 0;
}

void gap(struct lane *l)
{
	const struct gj_phase *f = l->phase;
	unsigned char c, which = (unsigned char)(f - plan.phase);

	switch (f->gap) {
	case GJ_SPIN:
		spin_ns(f->host_ns);
		break;
	case GJ_SLEEP:
		sleep_ns(f->host_ns);
		break;
	case GJ_FEEDER:
		if (read(l->answer, &c, 1) != 1 ||
		    write(l->ask, &which, 1) != 1)
			stop = 1; /* a signal, or the feeder is gone */
		break;
	}
}

/* ---- a step on one device ------------------------------------------------------ */

static cudaStream_t stream_for(const struct lane *l, unsigned i)
{
	unsigned n = plan.streams - plan.copy_stream;

	return l->streams[n > 1 ? i % n : 0];
}

static int launch(struct lane *l, uint64_t *rng, unsigned i, cudaStream_t s)
{
	static const dim3 grid = { 64, 1, 1 }, block = { 128, 1, 1 };
	const struct gj_phase *f = l->phase;
	unsigned k = f->seq[i];
	double ns = (double)f->ns[k];

	if (plan.vary[k])
		ns *= 0.9 + 0.2 * gj_unit(rng);
	gpu.kernel_ns((uint64_t)ns);
	return gpu.launch((const void *)(uintptr_t)kernels[k], grid, block,
			  NULL, 0, s);
}

static int launch_part(struct lane *l, uint64_t *rng, unsigned from, unsigned to)
{
	int err = 0;

	for (unsigned i = from; i < to && !err; i++) {
		if (l->phase->launch_ns)
			spin_ns(l->phase->launch_ns);
		err = launch(l, rng, i, stream_for(l, i));
	}
	return err;
}

static void *helper_main(void *arg)
{
	struct lane *l = arg;
	uint64_t rng = l->rng ^ 1;

	for (;;) {
		while (sem_wait(&l->go))
			;
		if (!l->phase)
			return NULL;
		if (plan.devices > 1)
			gpu.set_device((int)l->device);
		l->helper_err = launch_part(l, &rng, l->phase->launches / 2,
					    l->phase->launches);
		sem_post(&l->ready);
	}
}

int start_helper(struct lane *l)
{
	if (!plan.helper)
		return 0;
	if (sem_init(&l->go, 0, 0) || sem_init(&l->ready, 0, 0) ||
	    pthread_create(&l->helper, NULL, helper_main, l))
		return -EAGAIN;
	l->has_helper = true;
	return 0;
}

void stop_helper(struct lane *l)
{
	if (!l->has_helper)
		return;
	l->phase = NULL;
	sem_post(&l->go);
	pthread_join(l->helper, NULL);
}

static int upload(struct lane *l)
{
	cudaStream_t s = l->streams[plan.copy_stream ? plan.streams - 1 : 0];
	const struct gj_phase *f = l->phase;
	int err = 0;

	for (unsigned i = 0; i < f->copies && !err; i++)
		err = gpu.copy(l->dev, l->host, f->copy_bytes,
			       cudaMemcpyHostToDevice, s);
	if (f->copies && plan.copy_stream && !err) {
		err = gpu.event_record(l->fork, s);
		if (!err)
			err = gpu.stream_wait(l->streams[0], l->fork, 0);
	}
	return err;
}

/* The side streams behind the first one (`out`), or it behind them. */
static int join(struct lane *l, bool out)
{
	unsigned n = plan.streams - plan.copy_stream;
	int err = 0;

	if (n < 2 || !plan.join)
		return 0;
	if (out)
		err = gpu.event_record(l->fork, l->streams[0]);
	for (unsigned i = 1; i < n && !err; i++) {
		if (out) {
			err = gpu.stream_wait(l->streams[i], l->fork, 0);
		} else {
			err = gpu.event_record(l->joined[i], l->streams[i]);
			if (!err)
				err = gpu.stream_wait(l->streams[0],
						      l->joined[i], 0);
		}
	}
	return err;
}

int submit(struct lane *l)
{
	const struct gj_phase *f = l->phase;
	unsigned half = l->has_helper ? f->launches / 2 : f->launches;
	int err = upload(l);

	if (!err && f->memset)
		err = gpu.memset(l->dev, 0, 4096, l->streams[0]);
	if (!err && plan.graph)
		err = gpu.graph_launch(l->graph[f - plan.phase], l->streams[0]);
	if (err || plan.graph)
		return err ? err : gpu.event_record(l->done, l->streams[0]);
	err = join(l, true);
	if (!err)
		err = launch_part(l, &l->rng, 0, half);
	if (!err && l->has_helper) {
		sem_post(&l->go);
		while (sem_wait(&l->ready))
			;
		err = l->helper_err;
	}
	if (!err)
		err = join(l, false);
	return err ? err : gpu.event_record(l->done, l->streams[0]);
}

static int item(struct lane *l)
{
	int err = gpu.copy(l->item, l->dev, 8, cudaMemcpyDeviceToHost,
			   l->streams[0]);

	/* into pageable memory the copy itself has waited */
	if (!err && plan.pinned)
		err = gpu.stream_sync(l->streams[0]);
	return err;
}

static int poll_done(struct lane *l, bool event)
{
	int err;

	for (;;) {
		err = event ? gpu.event_query(l->done) :
			      gpu.stream_query(l->streams[0]);
		if (err != cudaErrorNotReady || stop)
			return err == cudaErrorNotReady ? 0 : err;
		if (l->phase->poll_ns)
			sleep_ns(l->phase->poll_ns);
		else
			sched_yield();
	}
}

int synchronise(struct lane *l)
{
	enum gj_sync how = l->phase->sync;

	if (how == GJ_NEVER || ++l->since_sync < l->phase->every)
		return 0;
	l->since_sync = 0;
	if (how == GJ_MIX)
		how = (enum gj_sync)(gj_rand(&l->rng) % 4);
	switch (how) {
	case GJ_DEVICE_SYNC:
		return gpu.device_sync();
	case GJ_STREAM_SYNC:
		return gpu.stream_sync(l->streams[0]);
	case GJ_EVENT_SYNC:
		return gpu.event_sync(l->done);
	case GJ_ITEM:
		return item(l);
	default:
		return poll_done(l, how == GJ_POLL_EVENT);
	}
}

int make_graphs(struct lane *l)
{
	cudaGraph_t graph;
	cudaStream_t s;
	int err = gpu.stream_new(&s, cudaStreamNonBlocking);

	for (unsigned p = 0; p < plan.phases && !err; p++) {
		l->phase = &plan.phase[p];
		err = gpu.capture(s, 0);
		for (unsigned i = 0; i < l->phase->launches && !err; i++)
			err = launch(l, &l->rng, i, s);
		if (!err)
			err = gpu.capture_end(s, &graph);
		if (!err)
			err = gpu.instantiate(&l->graph[p], graph, 0);
	}
	return err;
}
