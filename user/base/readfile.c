// SPDX-License-Identifier: BSD-2-Clause
#include "base/readfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pt_read_fd(int fd, char *buf, size_t size, size_t *len)
{
	*len = 0;
	while (*len < size) {
		ssize_t got = read(fd, buf + *len, size - *len);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		*len += (size_t)got;
	}
	return 0;
}

int pt_read_file(const char *path, size_t most, char **text, size_t *len)
{
	/* A FIFO in its place must not hold us. */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY), err = 0;
	char *buf = NULL;
	struct stat st;
	size_t n = 0;

	*text = NULL;
	*len = 0;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -EINVAL;
	else if (!(buf = malloc(most + 2)))
		err = -ENOMEM;
	err = err ?: pt_read_fd(fd, buf, most + 1, &n);
	if (!err && n > most)
		err = -EFBIG;
	close(fd);
	if (err) {
		free(buf);
		return err;
	}
	buf[n] = '\0';
	*text = buf;
	*len = n;
	return 0;
}

int pt_read_token(const char *path, size_t most, char **text, size_t *len)
{
	int err = pt_read_file(path, most, text, len);
	char *t = *text;
	size_t n = *len, i;

	if (err)
		return err;
	while (n && strchr("\r\n \t", t[n - 1]))
		n--;
	for (i = 0; i < n; i++)
		if (t[i] <= ' ' || t[i] >= 0x7f)
			break;
	if (!n || i < n) {
		explicit_bzero(t, *len);
		free(t);
		*text = NULL;
		*len = 0;
		return -EINVAL;
	}
	t[n] = '\0';
	*len = n;
	return 0;
}

bool pt_stat_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
	       a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}
