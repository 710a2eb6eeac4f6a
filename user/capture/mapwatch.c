/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notice GPU libraries that a process maps after we attached: a dummy perf
 * event on each CPU whose ring gets a record for every executable mapping
 * made on the machine. Rare, and nobody's page fault or call gets slower.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/discover.h"
#include "capture/procfs.h"
#include "capture/session.h"

#define RING_PAGES 8 /* a power of two */
#define MAX_EVENT 8192
#define MAX_CPUS 4096
#define ONLINE "/sys/devices/system/cpu/online"

struct cpu_ring {
	int fd;
	struct perf_event_mmap_page *meta;
};

struct pt_mapwatch {
	int epfd;
	size_t page;
	char online[1024]; /* CPUs whose events are open, as ONLINE has them */
	size_t n;
	struct cpu_ring ring[MAX_CPUS];
};

static int open_cpu(struct pt_mapwatch *w, int cpu)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct cpu_ring *r = &w->ring[w->n];
	struct perf_event_attr a;
	void *m;
	int err;

	memset(&a, 0, sizeof(a));
	a.size = sizeof(a);
	a.type = PERF_TYPE_SOFTWARE;
	a.config = PERF_COUNT_SW_DUMMY;
	a.mmap = 1;
	a.mmap2 = 1;
	a.watermark = 1;
	a.wakeup_watermark = 1;
	r->fd = (int)syscall(SYS_perf_event_open, &a, -1, cpu, -1,
			     PERF_FLAG_FD_CLOEXEC);
	if (r->fd < 0)
		return -errno;
	m = mmap(NULL, (RING_PAGES + 1) * w->page, PROT_READ | PROT_WRITE,
		 MAP_SHARED, r->fd, 0);
	if (m == MAP_FAILED) {
		err = -errno;
		close(r->fd);
		return err;
	}
	r->meta = m;
	w->n++;
	return epoll_ctl(w->epfd, EPOLL_CTL_ADD, r->fd, &ev) ? -errno : 0;
}

static void close_all(struct pt_mapwatch *w)
{
	while (w->n) {
		struct cpu_ring *r = &w->ring[--w->n];

		munmap(r->meta, (RING_PAGES + 1) * w->page);
		close(r->fd);
	}
}

static int open_all(struct pt_mapwatch *w)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF), i;
	int r;

	if (cpus < 1 || cpus > MAX_CPUS)
		return -EINVAL;
	if (pt_file_read(ONLINE, w->online, sizeof(w->online)) < 0)
		w->online[0] = '\0';
	for (i = 0; i < cpus; i++) {
		r = open_cpu(w, (int)i);
		if (r && r != -ENODEV) { /* ENODEV: the CPU is offline */
			close_all(w);
			return r;
		}
	}
	return w->n ? 0 : -ENODEV;
}

struct pt_mapwatch *pt_mapwatch_new(void)
{
	struct pt_mapwatch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->page = (size_t)sysconf(_SC_PAGESIZE);
	w->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (w->epfd >= 0 && !open_all(w))
		return w;
	pt_mapwatch_free(w);
	return NULL;
}

bool pt_mapwatch_moved(struct pt_mapwatch *w)
{
	char now[sizeof(w->online)];

	if (pt_file_read(ONLINE, now, sizeof(now)) < 0 || !strcmp(now, w->online))
		return false;
	close_all(w);
	if (open_all(w)) /* once more, later */
		snprintf(w->online, sizeof(w->online), "?");
	return true;
}

int pt_mapwatch_fd(const struct pt_mapwatch *w)
{
	return w->epfd;
}

struct mmap2 {
	struct perf_event_header h;
	uint32_t pid, tid;
	uint64_t addr, len, pgoff;
	uint32_t maj, min;
	uint64_t ino, generation;
	uint32_t prot, flags;
	char name[];
};

/* A file's mapping as discover.h has it; false: none. */
static bool to_mapping(const struct mmap2 *m, struct pt_gpulib *g)
{
	size_t max = m->h.size - sizeof(*m), len = strnlen(m->name, max);

	if (m->name[0] != '/' || m->name[1] == '/' || !m->ino || len == max ||
	    len >= sizeof(g->path_display) || m->len > UINT64_MAX - m->addr)
		return false;
	memset(g, 0, sizeof(*g));
	memcpy(g->path_display, m->name, len);
	g->start = m->addr;
	g->end = m->addr + m->len;
	g->offset = m->pgoff;
	g->inode = m->ino;
	g->dev = m->maj << 20 | m->min;
	return true;
}

static void drain_cpu(struct pt_mapwatch *w, struct cpu_ring *r,
		     void (*fn)(void *ctx, pid_t pid,
				struct pt_gpulib *g),
		     void *ctx)
{
	uint64_t head = __atomic_load_n(&r->meta->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = r->meta->data_tail;
	uint64_t mask = RING_PAGES * w->page - 1, i;
	const unsigned char *data = (unsigned char *)r->meta + w->page;
	union {
		struct mmap2 m;
		unsigned char b[MAX_EVENT];
	} u;
	struct pt_gpulib g;

	while (tail + sizeof(u.m.h) <= head) {
		for (i = 0; i < sizeof(u.m.h); i++)
			u.b[i] = data[(tail + i) & mask];
		if (u.m.h.size < sizeof(u.m.h) || tail + u.m.h.size > head)
			break;
		if (u.m.h.type == PERF_RECORD_MMAP2 &&
		    u.m.h.size > sizeof(u.m) && u.m.h.size <= MAX_EVENT) {
			for (; i < u.m.h.size; i++)
				u.b[i] = data[(tail + i) & mask];
			if (to_mapping(&u.m, &g))
				fn(ctx, (pid_t)u.m.pid, &g);
		}
		tail += u.m.h.size;
	}
	__atomic_store_n(&r->meta->data_tail, head, __ATOMIC_RELEASE);
}

void pt_mapwatch_drain(struct pt_mapwatch *w,
		       void (*fn)(void *ctx, pid_t pid, struct pt_gpulib *g),
		       void *ctx)
{
	size_t i;

	for (i = 0; i < w->n; i++)
		drain_cpu(w, &w->ring[i], fn, ctx);
}

void pt_mapwatch_free(struct pt_mapwatch *w)
{
	if (!w)
		return;
	close_all(w);
	if (w->epfd >= 0)
		close(w->epfd);
	free(w);
}
