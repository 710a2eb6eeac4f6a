/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "capture/session.h"

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
