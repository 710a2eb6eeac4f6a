/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES 32
#define DIGITS (2 * BYTES)

/* One that we made, whole, and that nobody else can read. */
static bool is_good(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISREG(st.st_mode) &&
	       st.st_uid == geteuid() && !(st.st_mode & 077) &&
	       st.st_size == DIGITS + 1;
}

static int make_token(const char *path)
{
	unsigned char random[BYTES];
	char text[DIGITS + 2];
	int fd, i, ret = 0;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	for (i = 0; i < BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	text[DIGITS] = '\n';
	if (unlink(path) && errno != ENOENT)
		return -errno;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		  0600);
	if (fd < 0)
		return -errno;
	if (write(fd, text, DIGITS + 1) != DIGITS + 1)
		ret = -EIO;
	if (close(fd) && !ret)
		ret = -errno;
	explicit_bzero(text, sizeof(text));
	return ret;
}

int pt_agent_token(const char *state, char *path, size_t size, struct pt_err *err)
{
	int n = snprintf(path, size, "%s/token", state), ret = 0;

	if (n < 0 || (size_t)n >= size)
		return pt_err_set(err, -ENAMETOOLONG, "the state folder's name is "
				  "too long");
	if (is_good(path))
		return 0;
	if (mkdir(state, 0700) && errno != EEXIST)
		ret = -errno;
	ret = ret ?: make_token(path);
	return ret ? pt_err_set(err, ret, "cannot make %s: %s", path,
				strerror(-ret)) : 0;
}
