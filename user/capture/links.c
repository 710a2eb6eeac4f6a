/* SPDX-License-Identifier: BSD-2-Clause */
/* Multi-uprobe links, for which libbpf 1.1 has no wrapper, and perf events. */
#include "capture/links.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAKING_STACK 32768

/* The kernel's layout of BPF_LINK_CREATE for multi-uprobe links, which the
 * headers of a 6.1 system do not have. Part of the stable interface. */
struct link_create_uprobe_multi {
	uint32_t prog_fd;
	uint32_t target_fd;
	uint32_t attach_type;
	uint32_t flags;
	uint64_t path;
	uint64_t offsets;
	uint64_t ref_ctr_offsets;
	uint64_t cookies;
	uint32_t cnt;
	uint32_t multi_flags;
	uint32_t pid;
	uint32_t pad;
};

struct making {
	struct link_create_uprobe_multi a;
	long fd;
	int err;
};

static int make_link(void *arg)
{
	struct making *m = arg;

	m->fd = syscall(SYS_bpf, BPF_LINK_CREATE, &m->a, sizeof(m->a));
	m->err = errno;
	return 0;
}

/*
 * One that is killed in the middle takes out what it has put in so far, and the kernel
 * gives up on that as well, as it is being killed: it forgets break points. So a process
 * does it that nobody kills, with our memory and our descriptors: it ends after the call.
 */
static void make_apart(struct making *m)
{
	_Alignas(16) char stack[MAKING_STACK];
	pid_t pid = clone(make_link, stack + sizeof(stack),
			  CLONE_VM | CLONE_FILES | CLONE_VFORK | SIGCHLD, m);

	if (pid < 0)
		make_link(m);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

int pt_uprobe_multi(int prog_fd, const char *path, const uint64_t *offsets,
		    const uint64_t *cookies, uint32_t n, uint32_t flags,
		    pid_t pid)
{
	struct making m;

	memset(&m, 0, sizeof(m));
	m.a.prog_fd = (uint32_t)prog_fd;
	m.a.attach_type = PT_ATTACH_UPROBE_MULTI;
	m.a.path = (uint64_t)(uintptr_t)path;
	m.a.offsets = (uint64_t)(uintptr_t)offsets;
	m.a.cookies = (uint64_t)(uintptr_t)cookies;
	m.a.cnt = n;
	m.a.multi_flags = flags;
	m.a.pid = (uint32_t)pid;
	make_apart(&m);
	return m.fd < 0 ? -m.err : (int)m.fd;
}

int pt_uprobe_perf(const char *path, uint64_t offset, pid_t pid)
{
	struct perf_event_attr a = { .size = sizeof(a), .disabled = 1 };
	FILE *f = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	unsigned type;
	int found;
	long fd;

	if (!f)
		return -errno;
	found = fscanf(f, "%u", &type);
	fclose(f);
	if (found != 1)
		return -ENOENT;
	a.type = type;
	a.uprobe_path = (uint64_t)(uintptr_t)path;
	a.probe_offset = offset;
	fd = syscall(SYS_perf_event_open, &a, pid, pid < 0 ? 0 : -1, -1,
		     PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : (int)fd;
}

int pt_uprobe_perf_link(int prog_fd, int event, uint64_t cookie)
{
	LIBBPF_OPTS(bpf_link_create_opts, o, .perf_event.bpf_cookie = cookie);
	int fd = bpf_link_create(prog_fd, event, BPF_PERF_EVENT, &o), ret;

	if (fd < 0 || !ioctl(event, PERF_EVENT_IOC_ENABLE, 0))
		return fd;
	ret = -errno;
	close(fd);
	return ret;
}

#define PT_CLOSERS 8

struct closer {
	int *fd;
	size_t n, step;
};

static void *close_some(void *arg)
{
	struct closer *k = arg;
	size_t i;

	for (i = 0; i < k->n; i += k->step)
		if (k->fd[i] >= 0)
			close(k->fd[i]);
	return NULL;
}

void pt_close_links(int *fd, size_t n)
{
	size_t threads = n < PT_CLOSERS ? n : PT_CLOSERS, i;
	struct closer k[PT_CLOSERS];
	pthread_t t[PT_CLOSERS];
	bool started[PT_CLOSERS];

	for (i = 0; i < threads; i++) {
		k[i] = (struct closer){ fd + i, n - i, threads };
		started[i] = pthread_create(&t[i], NULL, close_some, &k[i]) == 0;
		if (!started[i])
			close_some(&k[i]);
	}
	for (i = 0; i < threads; i++)
		if (started[i])
			pthread_join(t[i], NULL);
}
