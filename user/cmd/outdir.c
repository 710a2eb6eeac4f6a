// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/outdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/privileges.h"
#include "cmd/outfile.h"

static int cannot(struct pt_outdir *o, int err, struct pt_err *e)
{
	if (err == -EEXIST || err == -ENOTEMPTY)
		pt_err_set(e, err, "%s exists already: another name for the "
			   "folder", o->path);
	else
		pt_err_set(e, err, "cannot make the folder %s: %s", o->path,
			   strerror(-err));
	pt_outdir_abandon(o);
	return err;
}

static int make_folder(struct pt_outdir *o)
{
	int ret = pt_out_temp(o->tmp);

	if (ret)
		return ret;
	if (mkdirat(o->parent, o->tmp, 0700)) {
		o->tmp[0] = '\0';
		return -errno;
	}
	o->dir = openat(o->parent, o->tmp,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return o->dir < 0 ? -errno : 0;
}

/* What cannot be made is to be known at once. */
static int begin(struct pt_outdir *o)
{
	size_t n = strlen(o->path);
	struct stat st;
	int fd;

	while (n > 1 && o->path[n - 1] == '/')
		o->path[--n] = '\0';
	o->parent = pt_out_folder(o->path, &o->base);
	if (o->parent < 0)
		return o->parent == -EISDIR ? -EEXIST : o->parent;
	if (!fstatat(o->parent, o->base, &st, AT_SYMLINK_NOFOLLOW))
		return -EEXIST;
	fd = pt_out_unnamed(o->parent);
	if (fd < 0)
		return fd == -EOPNOTSUPP ? make_folder(o) : fd;
	close(fd);
	return 0;
}

int pt_outdir_open(struct pt_outdir *o, const char *path, struct pt_err *err)
{
	int ret;

	memset(o, 0, sizeof(*o));
	o->parent = o->dir = -1;
	o->path = strdup(path);
	if (!o->path)
		return pt_err_set(err, -ENOMEM, "out of memory");
	pt_privileges_reach(false);
	ret = begin(o);
	pt_privileges_reach(true);
	return ret ? cannot(o, ret, err) : 0;
}

static int open_file(struct pt_outdir *o, const char *name)
{
	int fd;

	if (o->dir >= 0) {
		fd = openat(o->dir, name,
			    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		return fd < 0 ? -errno : fd;
	}
	fd = pt_out_unnamed(o->parent);
	if (fd < 0)
		return fd;
	/* the caller closes his, so that it can tell of errors */
	o->fds[o->n - 1] = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (o->fds[o->n - 1] >= 0)
		return fd;
	close(fd);
	return -EMFILE;
}

FILE *pt_outdir_file(struct pt_outdir *o, const char *name)
{
	FILE *f;
	int fd;

	if (o->n == PT_OUTDIR_FILES) {
		errno = ENOSPC;
		return NULL;
	}
	o->names[o->n] = strdup(name);
	if (!o->names[o->n])
		return NULL;
	o->fds[o->n++] = -1;
	fd = open_file(o, name);
	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	f = fdopen(fd, "w");
	if (!f)
		close(fd);
	return f;
}

/* The folder with what has no name so far. */
static int fill_folder(struct pt_outdir *o)
{
	size_t i;
	int ret;

	if (o->dir >= 0)
		return 0;
	ret = make_folder(o);
	for (i = 0; i < o->n && !ret; i++)
		ret = pt_out_name(o->fds[i], o->dir, o->names[i]);
	return ret;
}

static int name_folder(struct pt_outdir *o)
{
	int ret = fill_folder(o);

	/* an empty folder that appeared since would be replaced by rename() */
	if (!ret &&
	    renameat2(o->parent, o->tmp, o->parent, o->base, RENAME_NOREPLACE) &&
	    ((errno != EINVAL && errno != ENOSYS) ||
	     renameat(o->parent, o->tmp, o->parent, o->base)))
		ret = -errno;
	if (!ret)
		o->tmp[0] = '\0';
	return ret;
}

/*
 * There is no folder without a name: from the first link to the rename a temporary one
 * can be seen. A child of its own session does that, so that whoever kills us or our
 * group in this moment finds the folder whole and no other. 0, -errno; 1: no child.
 */
static int name_by_child(struct pt_outdir *o)
{
	int status, ret;
	pid_t pid;

	if (o->dir >= 0)
		return 1;
	pid = fork();
	if (pid < 0)
		return 1;
	if (!pid) {
		setsid();
		ret = name_folder(o);
		if (ret)
			pt_outdir_abandon(o);
		_exit(-ret);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

int pt_outdir_commit(struct pt_outdir *o, struct pt_err *err)
{
	int ret = name_by_child(o);

	if (ret > 0)
		ret = name_folder(o);
	if (ret)
		return cannot(o, ret, err);
	pt_outdir_abandon(o);
	return 0;
}

void pt_outdir_abandon(struct pt_outdir *o)
{
	size_t i;

	if (!o->path)
		return;
	for (i = 0; i < o->n; i++) {
		if (o->tmp[0])
			unlinkat(o->dir, o->names[i], 0);
		if (o->fds[i] >= 0)
			close(o->fds[i]);
		free(o->names[i]);
	}
	if (o->tmp[0])
		unlinkat(o->parent, o->tmp, AT_REMOVEDIR);
	if (o->dir >= 0)
		close(o->dir);
	if (o->parent >= 0)
		close(o->parent);
	free(o->path);
	memset(o, 0, sizeof(*o));
	o->parent = o->dir = -1;
}
