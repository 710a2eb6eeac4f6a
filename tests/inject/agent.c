/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An agent that does nothing but be there: a thread that writes a record now and
 * then, watches `want` and the tracer's beat, and ends. For tests of the injector
 * that are to show nothing but the injector. AGENT_STAYS=1 when it is built: it
 * says that it has to stay mapped.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "inject/agent/agent.h"

#ifndef AGENT_STAYS
#define AGENT_STAYS 0
#endif
#define PUBLIC __attribute__((visibility("default")))

static struct pt_agent_shm *shm;
static pthread_t thread;
static int fd = -1;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put(void)
{
	struct pt_rec_name r;
	uint64_t head = shm->head;
	char *ring = (char *)shm + PT_AGENT_RING_AT;

	memset(&r, 0, sizeof(r));
	r.hdr.size = sizeof(r);
	r.hdr.kind = PT_REC_NAME;
	r.hdr.ts = now();
	if (head - __atomic_load_n(&shm->tail, __ATOMIC_ACQUIRE) + sizeof(r) >
		    shm->ring ||
	    (head & (shm->ring - 1)) + sizeof(r) > shm->ring)
		return;
	memcpy(ring + (head & (shm->ring - 1)), &r, sizeof(r));
	__atomic_store_n(&shm->head, head + sizeof(r), __ATOMIC_RELEASE);
	shm->made++;
}

static void *run(void *arg)
{
	struct timespec nap = { 0, 1000000 };

	(void)arg;
	__atomic_store_n(&shm->state, PT_AGENT_RUNNING, __ATOMIC_RELEASE);
	while (__atomic_load_n(&shm->want, __ATOMIC_ACQUIRE) == PT_AGENT_RUN &&
	       now() - __atomic_load_n(&shm->beat_ns, __ATOMIC_ACQUIRE) <
		       PT_AGENT_ORPHAN_NS) {
		put();
		nanosleep(&nap, NULL);
	}
	__atomic_store_n(&shm->state, PT_AGENT_STOPPED, __ATOMIC_RELEASE);
	return NULL;
}

PUBLIC int pt_agent_start(int memfd)
{
	sigset_t all, old;
	int ret;

	if (shm)
		return -EBUSY;
	shm = mmap(NULL, PT_AGENT_RING_AT + PT_AGENT_RING,
		   PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	if (shm == MAP_FAILED) {
		shm = NULL;
		return -errno;
	}
	shm->state = PT_AGENT_STARTING;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret) {
		munmap(shm, PT_AGENT_RING_AT + PT_AGENT_RING);
		shm = NULL;
		return -ret;
	}
	fd = memfd;
	return 0;
}

PUBLIC int pt_agent_stop(void)
{
	if (!shm)
		return AGENT_STAYS;
	if (__atomic_load_n(&shm->state, __ATOMIC_ACQUIRE) != PT_AGENT_STOPPED)
		return -EBUSY;
	pthread_join(thread, NULL);
	munmap(shm, PT_AGENT_RING_AT + PT_AGENT_RING);
	shm = NULL;
	close(fd);
	fd = -1;
	return AGENT_STAYS;
}
