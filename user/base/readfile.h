/* SPDX-License-Identifier: BSD-2-Clause */
/* Small files, whole: of /proc, and those that somebody configured (secrets,
 * certificates, headers). */
#ifndef PT_READFILE_H
#define PT_READFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* What there is, up to `size` bytes. 0 or -errno; *len holds what came either way. */
int pt_read_fd(int fd, char *buf, size_t size, size_t *len);

/* Reads the whole of a regular file of at most `most` bytes; a NUL is put behind
 * it. 0; -errno, -EINVAL (no regular file), -EFBIG. The caller frees it. */
int pt_read_file(const char *path, size_t most, char **text, size_t *len);

/* A bearer token: what can stand in a header, in one line of at most `most` bytes.
 * As above; -EINVAL: it holds none. The caller clears and frees it. */
int pt_read_token(const char *path, size_t most, char **text, size_t *len);

/* Nothing says that the file was written between the two. */
bool pt_stat_same(const struct stat *a, const struct stat *b);

#endif
