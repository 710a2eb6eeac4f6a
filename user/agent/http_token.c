/* SPDX-License-Identifier: BSD-2-Clause */
/* A bearer token in a file, which may change while we run. */
#include "agent/http_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pt_http_read_file(const char *path, size_t most, char **text, size_t *len)
{
	/* A FIFO in its place must not hold us. */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY), err = 0;
	char *buf = NULL;
	struct stat st;
	size_t n = 0;

	*text = NULL;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -EINVAL;
	else if (!(buf = malloc(most + 2)))
		err = -ENOMEM;
	while (!err && n <= most) {
		ssize_t got = read(fd, buf + n, most + 1 - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			err = -errno;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
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

static bool unchanged(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev &&
	       a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

int pt_http_token_look(struct pt_http_token *t, double now, bool force)
{
	struct stat st = { 0 };
	char *text;
	size_t i, n;
	int err;

	if (!t->path || (!force && now < t->looked + 1))
		return 0;
	t->looked = now;
	if (!stat(t->path, &st) && t->len && unchanged(&st, &t->seen))
		return 0;
	t->seen = st;
	t->len = 0;
	err = pt_http_read_file(t->path, sizeof(t->text) - 1, &text, &n);
	if (err)
		return err;
	while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	/* What no header can bear nobody could ever send. */
	for (i = 0; i < n; i++)
		if ((unsigned char)text[i] <= 0x20 || (unsigned char)text[i] >= 0x7f)
			n = 0;
	memcpy(t->text, text, n);
	t->len = n;
	explicit_bzero(text, n);
	free(text);
	return n ? 0 : -EINVAL;
}
