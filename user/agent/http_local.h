/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The socket in the file system by which this machine's root reads all pages without a
 * token. Mode 0600 from its first moment, in a folder that nobody else may write.
 */
#ifndef PT_AGENT_HTTP_LOCAL_H
#define PT_AGENT_HTTP_LOCAL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct pt_http_local {
	int fd;	 /* listens; -1: none. Whoever takes it sets it to -1 */
	int dir; /* the folder, or -1 */
	char name[256];
	dev_t dev; /* of the file that we made */
	ino_t ino;
};

#define PT_HTTP_LOCAL_NONE { .fd = -1, .dir = -1 }

/*
 * Listens at `path`. A socket that an agent of the same user left there, and where
 * nobody answers any more, is replaced; anything else that has the name stays as it is.
 * The folder must be there. 0; -errno with a sentence in `why`, and `l` is NONE.
 */
int pt_http_local_open(struct pt_http_local *l, const char *path, char *why, size_t n);

/* Removes the file, if it is still ours, and closes what is open. */
void pt_http_local_close(struct pt_http_local *l);

/* Whether root, or the user that we are, is at the other end. */
bool pt_http_local_trusts(int connection);

#endif
