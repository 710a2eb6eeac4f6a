/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/http_local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 16
#define MODE 0600

/* The folder, of our own and closed to others, so that what is looked at there is what
 * is then replaced. */
static int open_folder(const char *path, size_t len)
{
	char folder[4096];
	struct stat st;
	int fd;

	if (len >= sizeof(folder))
		return -ENAMETOOLONG;
	memcpy(folder, path, len);
	folder[len] = '\0';
	fd = open(len ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || st.st_uid != geteuid() || (st.st_mode & 022)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

/* By way of the folder that is open: no link on the way matters, and a long path is as
 * good as a short one. */
static int address(const struct pt_http_local *l, struct sockaddr_un *sa)
{
	int n;

	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(sa->sun_path, sizeof(sa->sun_path), "/proc/self/fd/%d/%s", l->dir,
		     l->name);
	return n < 0 || (size_t)n >= sizeof(sa->sun_path) ? -ENAMETOOLONG : 0;
}

/* Removes what an agent that was killed left. */
static int clear(const struct pt_http_local *l, const struct sockaddr_un *sa)
{
	struct stat st;
	int fd, err;

	if (fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid())
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	err = connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) ? errno : 0;
	close(fd);
	if (err != ECONNREFUSED) /* it lives, or is too busy to answer */
		return -EADDRINUSE;
	return unlinkat(l->dir, l->name, 0) ? -errno : 0;
}

static int listen_there(struct pt_http_local *l, const struct sockaddr_un *sa)
{
	struct stat st;

	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* the file gets the mode that the socket has */
	if (l->fd < 0 || fchmod(l->fd, MODE) ||
	    bind(l->fd, (const struct sockaddr *)sa, sizeof(*sa)))
		return -errno;
	if (fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	l->dev = st.st_dev;
	l->ino = st.st_ino;
	if (!S_ISSOCK(st.st_mode) || st.st_mode & 0777 & ~MODE)
		return -EPERM;
	return listen(l->fd, BACKLOG) ? -errno : 0;
}

int pt_http_local_open(struct pt_http_local *l, const char *path, char *why, size_t n)
{
	const char *slash = strrchr(path, '/');
	struct sockaddr_un sa;
	int err = -EINVAL;

	*l = (struct pt_http_local)PT_HTTP_LOCAL_NONE;
	if (!slash || !slash[1])
		goto out;
	err = -ENAMETOOLONG;
	if (strlen(slash + 1) >= sizeof(l->name))
		goto out;
	strcpy(l->name, slash + 1);
	l->dir = err = open_folder(path, (size_t)(slash - path));
	if (err < 0)
		goto out;
	err = address(l, &sa);
	err = err ?: clear(l, &sa);
	err = err ?: listen_there(l, &sa);
out:
	if (!err)
		return 0;
	snprintf(why, n, "no socket at %s: %s", path,
		 err == -EPERM ? "others may write its folder" :
		 err == -EEXIST ? "something else has this name" :
		 err == -EADDRINUSE ? "another agent listens there" : strerror(-err));
	pt_http_local_close(l);
	return err;
}

void pt_http_local_close(struct pt_http_local *l)
{
	struct stat st;

	if (l->ino && !fstatat(l->dir, l->name, &st, AT_SYMLINK_NOFOLLOW) &&
	    st.st_dev == l->dev && st.st_ino == l->ino)
		unlinkat(l->dir, l->name, 0);
	if (l->fd >= 0)
		close(l->fd);
	if (l->dir >= 0)
		close(l->dir);
	*l = (struct pt_http_local)PT_HTTP_LOCAL_NONE;
}

bool pt_http_local_trusts(int connection)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return !getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
	       len == sizeof(peer) && (!peer.uid || peer.uid == geteuid());
}
