/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process that is killed in the middle of taking out a probe leaves its break point
 * in the target: the kernel breaks off the walk over the processes that have it, and
 * does not come back. One that ends is not killed any more. So everything is held by
 * children, too, our closing takes nothing out, and their ends do. Several, each with a
 * part of it: for each probe the kernel waits until nobody runs it any more, and waits
 * for several at once as long as for one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capture/session.h"

#define DETACH_MS 60000
#define DETACH_NAP_MS 2

static int highest_fd(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int highest = 2;

	while (d && (e = readdir(d)))
		highest = atoi(e->d_name) > highest ? atoi(e->d_name) : highest;
	if (d)
		closedir(d);
	return highest;
}

static void hold(int k, int ready, int highest)
{
	char byte;
	int fd;

	for (fd = 0; fd <= highest; fd++)
		if (fd != ready && fd % PT_HOLDERS != k)
			close(fd);
	while (read(ready, &byte, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

void pt_hold_all(struct pt_holders *h)
{
	int p[2], k, highest;

	*h = (struct pt_holders){ .go = -1 };
	if (pipe2(p, O_CLOEXEC))
		return;
	h->go = p[1];
	highest = highest_fd();
	for (k = 0; k < PT_HOLDERS; k++) {
		h->pid[k] = fork();
		if (!h->pid[k]) {
			close(p[1]);
			hold(k, p[0], highest);
		}
	}
	close(p[0]);
}

void pt_let_go(struct pt_holders *h, unsigned probes,
	       void (*pending)(void *ctx, unsigned probes), void *ctx)
{
	const struct timespec nap = { 0, DETACH_NAP_MS * 1000000l };
	int i, k = 0;

	if (h->go >= 0)
		close(h->go);
	for (i = 0; i < DETACH_MS / DETACH_NAP_MS; i++) {
		while (k < PT_HOLDERS && (h->pid[k] <= 0 || waitpid(h->pid[k], NULL, WNOHANG)))
			k++;
		if (k == PT_HOLDERS)
			return;
		if (pending && probes && i == 200 / DETACH_NAP_MS)
			pending(ctx, probes);
		nanosleep(&nap, NULL);
	}
}
