/* SPDX-License-Identifier: BSD-2-Clause */
/* Multi-uprobe links: libbpf 1.1 has no wrapper for making them. */
#include <errno.h>
#include <linux/bpf.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/session.h"

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

int pt_uprobe_multi(int prog_fd, const char *path, const uint64_t *offsets,
		    const uint64_t *cookies, uint32_t n, uint32_t flags,
		    pid_t pid)
{
	struct link_create_uprobe_multi a;
	long fd;

	memset(&a, 0, sizeof(a));
	a.prog_fd = (uint32_t)prog_fd;
	a.attach_type = PT_ATTACH_UPROBE_MULTI;
	a.path = (uint64_t)(uintptr_t)path;
	a.offsets = (uint64_t)(uintptr_t)offsets;
	a.cookies = (uint64_t)(uintptr_t)cookies;
	a.cnt = n;
	a.multi_flags = flags;
	a.pid = (uint32_t)pid;
	fd = syscall(SYS_bpf, BPF_LINK_CREATE, &a, sizeof(a));
	return fd < 0 ? -errno : (int)fd;
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
