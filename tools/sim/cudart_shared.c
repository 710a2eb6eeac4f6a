/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files that simulated processes share, and the device that they share by one
 * (PT_SIM_SHARED).
 *
 * A device serves processes in turn, as a driver does that slices time: a
 * process reserves the compute engine for one operation, from the end of the
 * last reservation on. So what the processes log never overlaps, and who has
 * waited longest is next. A reservation of a process that died is void.
 */
#include "cudart_device.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED_MAGIC 0x3164726873746470ull /* "pdtshrd1" */

struct shared {
	uint64_t magic; /* set last */
	pthread_mutex_t lock;
	struct {
		uint64_t free_at; /* end of the last reservation */
		int64_t holder;	  /* whose it is */
	} device[SIM_DEVICES];
};

static struct shared *shared;

void *sim_map_file(const char *path, size_t size, int (*init)(void *))
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	void *p = MAP_FAILED;
	struct stat st;
	bool fresh;

	if (fd < 0)
		return NULL;
	/* held for microseconds by whoever makes the file */
	if (flock(fd, LOCK_EX) || fstat(fd, &st) || !S_ISREG(st.st_mode))
		goto out;
	fresh = !st.st_size;
	if (!fresh && (size_t)st.st_size != size) {
		errno = EINVAL;
		goto out;
	}
	if (fresh && ftruncate(fd, (off_t)size))
		goto out;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED && init(p)) {
		munmap(p, size);
		p = MAP_FAILED;
		errno = EINVAL;
	}
out:
	flock(fd, LOCK_UN); /* the mapping keeps the file open */
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

static int shared_init(void *p)
{
	struct shared *s = p;
	pthread_mutexattr_t a;
	int err;

	if (s->magic)
		return s->magic == SHARED_MAGIC ? 0 : -EINVAL;
	err = pthread_mutexattr_init(&a);
	if (err)
		return -err;
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	err = pthread_mutex_init(&s->lock, &a);
	pthread_mutexattr_destroy(&a);
	if (!err)
		s->magic = SHARED_MAGIC;
	return -err;
}

void sim_shared_open(void)
{
	const char *path = getenv("PT_SIM_SHARED");

	if (!path || !*path)
		return;
	shared = sim_map_file(path, sizeof(*shared), shared_init);
	if (!shared)
		fprintf(stderr, "simulated GPU: PT_SIM_SHARED: %s; this "
				"process has a device of its own\n",
			strerror(errno));
}

bool sim_shared(void)
{
	return shared != NULL;
}

/* Nobody sleeps with the lock held. A holder that died leaves whole words. */
static bool lock(void)
{
	struct timespec ts;
	int err;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec++;
	err = pthread_mutex_timedlock(&shared->lock, &ts);
	if (err == EOWNERDEAD)
		err = pthread_mutex_consistent(&shared->lock);
	if (!err)
		return true;
	/* somebody was stopped in there: better alone than not at all */
	fprintf(stderr, "simulated GPU: PT_SIM_SHARED: %s; no longer shared\n",
		strerror(err));
	shared = NULL;
	return false;
}

static bool dead(int64_t pid)
{
	return pid > 0 && kill((pid_t)pid, 0) && errno == ESRCH;
}

uint64_t sim_shared_reserve(unsigned device, uint64_t from, uint64_t ns)
{
	uint64_t start = from;

	if (!shared || !lock())
		return from;
	if (shared->device[device].free_at > from) {
		if (dead(shared->device[device].holder))
			shared->device[device].free_at = sim_now();
		if (shared->device[device].free_at > start)
			start = shared->device[device].free_at;
	}
	shared->device[device].free_at = start + ns;
	shared->device[device].holder = getpid();
	pthread_mutex_unlock(&shared->lock);
	return start;
}

void sim_shared_close(uint64_t now)
{
	if (!shared || !lock())
		return;
	for (unsigned i = 0; i < SIM_DEVICES; i++)
		if (shared->device[i].holder == getpid() &&
		    shared->device[i].free_at > now)
			shared->device[i].free_at = now;
	pthread_mutex_unlock(&shared->lock);
}
