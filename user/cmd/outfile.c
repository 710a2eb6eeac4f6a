// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/privileges.h"
#include "cmd/outfile.h"
#include "cmd/sudo.h"

#define INPUTS_MAX 64 /* more than a command takes */

/* What was opened to be read: no output replaces it. */
static struct {
	dev_t dev;
	ino_t ino;
} inputs[INPUTS_MAX];
static size_t n_inputs;

static void remember_input(const struct stat *st)
{
	if (n_inputs == INPUTS_MAX)
		return;
	inputs[n_inputs].dev = st->st_dev;
	inputs[n_inputs++].ino = st->st_ino;
}

static bool is_input(const struct stat *st)
{
	size_t i;

	for (i = 0; i < n_inputs; i++)
		if (inputs[i].dev == st->st_dev && inputs[i].ino == st->st_ino)
			return true;
	return false;
}

static int cannot(const struct pt_outfile *o, int err, struct pt_err *e)
{
	uid_t uid;

	if ((err == -EACCES || err == -EPERM) && pt_asked_by(&uid))
		return pt_err_set(e, err, "cannot write %s with the rights of "
				  "user %u, who called sudo: %s", o->path,
				  (unsigned)uid, strerror(-err));
	return pt_err_set(e, err, "cannot write %s: %s", o->path,
			  strerror(-err));
}

int pt_out_folder(char *path, const char **base)
{
	char *slash = strrchr(path, '/');
	int fd;

	*base = slash ? slash + 1 : path;
	if (!**base || !strcmp(*base, ".") || !strcmp(*base, ".."))
		return -EISDIR;
	if (slash)
		*slash = '\0';
	/* it may be one that who asks can write into, but not list */
	fd = open(!slash ? "." : *path ? path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = fd < 0 ? -errno : fd;
	if (slash)
		*slash = '/';
	return fd;
}

int pt_out_temp(char name[64])
{
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	snprintf(name, 64, ".pipetrace-%016llx.tmp", (unsigned long long)random);
	return 0;
}

int pt_out_unnamed(int folder)
{
	int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0)
		return fd;
	return errno == EISDIR || errno == EINVAL || errno == ENOENT ? -EOPNOTSUPP : -errno;
}

int pt_out_name(int fd, int folder, const char *name)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

static int open_temp(struct pt_outfile *o)
{
	int fd = pt_out_unnamed(o->dir), ret;

	o->pending = true;
	if (fd != -EOPNOTSUPP)
		return fd;
	ret = pt_out_temp(o->tmp);
	if (ret)
		return ret;
	fd = openat(o->dir, o->tmp,
		    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		o->tmp[0] = '\0';
		return -errno;
	}
	return fd;
}

static int open_fd(struct pt_outfile *o, struct pt_err *err)
{
	struct stat st;
	int ret = o->dir = pt_out_folder(o->path, &o->base);

	if (ret < 0)
		return cannot(o, ret, err);
	if (!fstatat(o->dir, o->base, &st, AT_SYMLINK_NOFOLLOW)) {
		if (S_ISCHR(st.st_mode)) {
			ret = openat(o->dir, o->base,
				     O_WRONLY | O_NOCTTY | O_NOFOLLOW |
					     O_NONBLOCK | O_CLOEXEC);
			return ret < 0 ? cannot(o, -errno, err) : ret;
		}
		if (!S_ISREG(st.st_mode))
			return pt_err_set(err, -EEXIST,
					  "cannot write %s: something that is "
					  "not a plain file has that name",
					  o->path);
		if (is_input(&st))
			return pt_err_set(err, -EEXIST, "cannot write %s: it is what is to be "
					  "read", o->path);
		if (st.st_uid != geteuid())
			return pt_err_set(err, -EEXIST, "cannot write %s: a file "
					  "of another user has that name",
					  o->path);
	}
	ret = open_temp(o);
	return ret < 0 ? cannot(o, ret, err) : ret;
}

int pt_outfile_open(struct pt_outfile *o, const char *path, struct pt_err *err)
{
	int fd, ret;

	memset(o, 0, sizeof(*o));
	o->dir = -1;
	o->path = strdup(path);
	if (!o->path)
		return pt_err_set(err, -ENOMEM, "out of memory");
	o->is_stdout = !strcmp(path, "-");
	/* a copy, so that closing it tells of errors and stdout stays */
	pt_privileges_reach(false);
	fd = o->is_stdout ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3) :
			    open_fd(o, err);
	pt_privileges_reach(true);
	if (fd < 0) {
		ret = o->is_stdout ? cannot(o, -errno, err) : fd;
		pt_outfile_abandon(o);
		return ret;
	}
	o->f = fdopen(fd, "w");
	if (!o->f) {
		close(fd);
		pt_outfile_abandon(o);
		return pt_err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

static void remove_temp(const struct pt_outfile *o)
{
	if (o->tmp[0])
		unlinkat(o->dir, o->tmp, 0);
}

void pt_outfile_abandon(struct pt_outfile *o)
{
	if (o->f)
		fclose(o->f);
	if (o->path && o->dir >= 0) {
		remove_temp(o);
		close(o->dir);
	}
	free(o->path);
	memset(o, 0, sizeof(*o));
	o->dir = -1;
}

static int exists(const struct pt_outfile *o, struct pt_err *err)
{
	return pt_err_set(err, -EEXIST, "%s exists already: another name, or "
			  "--force to replace it", o->path);
}

int pt_outfile_keep(struct pt_outfile *o, struct pt_err *err)
{
	struct stat st;
	int ret;

	o->keep = true;
	if (!o->pending || fstatat(o->dir, o->base, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	ret = exists(o, err);
	pt_outfile_abandon(o);
	return ret;
}

/* What replaces another file has a name of its own for a moment. */
static int name_temp(struct pt_outfile *o)
{
	int ret;

	if (o->tmp[0])
		return 0;
	ret = pt_out_temp(o->tmp);
	ret = ret ?: pt_out_name(fileno(o->f), o->dir, o->tmp);
	if (ret)
		o->tmp[0] = '\0';
	return ret;
}

/* Not every file system can refuse to replace by itself. */
static int rename_new(const struct pt_outfile *o)
{
	struct stat st;

	if (!renameat2(o->dir, o->tmp, o->dir, o->base, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (!fstatat(o->dir, o->base, &st, AT_SYMLINK_NOFOLLOW))
		return -EEXIST;
	return renameat(o->dir, o->tmp, o->dir, o->base) ? -errno : 0;
}

static int give_name(struct pt_outfile *o)
{
	int ret;

	if (!o->tmp[0]) {
		ret = pt_out_name(fileno(o->f), o->dir, o->base);
		if (ret != -EEXIST || o->keep)
			return ret;
	}
	ret = name_temp(o);
	if (ret)
		return ret;
	ret = o->keep ? rename_new(o) :
	      renameat(o->dir, o->tmp, o->dir, o->base) ? -errno : 0;
	if (!ret)
		o->tmp[0] = '\0';
	return ret;
}

int pt_outfile_publish(struct pt_outfile *o, struct pt_err *err)
{
	int ret;

	if (!o->pending)
		return 0;
	ret = give_name(o);
	if (!ret)
		o->pending = false;
	return ret == -EEXIST ? exists(o, err) :
	       ret	      ? cannot(o, ret, err) : 0;
}

int pt_outfile_commit(struct pt_outfile *o, struct pt_err *err)
{
	int ret = 0, fd;

	errno = 0;
	if (fflush(o->f) || ferror(o->f))
		ret = errno ? -errno : -EIO;
	/* some file systems tell only now that they have no room */
	fd = ret ? -1 : dup(fileno(o->f));
	if (!ret && (fd < 0 || close(fd)))
		ret = -errno;
	if (ret)
		cannot(o, ret, err);
	else
		ret = pt_outfile_publish(o, err);
	pt_outfile_abandon(o);
	return ret;
}

int pt_outfile_end(struct pt_outfile *o, const char *what, int ret)
{
	struct pt_err err = { "" };

	if (ret) {
		pt_error("cannot write %s to %s: %s", what, o->is_stdout ? "standard output" : o->path,
			 strerror(ret == -EIO && errno ? errno : -ret));
		pt_outfile_abandon(o);
		return ret;
	}
	ret = pt_outfile_commit(o, &err);
	if (ret)
		pt_error("%s", err.msg);
	return ret;
}

FILE *pt_open_regular(const char *path, off_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	FILE *f = NULL;
	uid_t uid;

	if (fd < 0 && errno == EACCES && pt_asked_by(&uid)) {
		pt_error("cannot read %s with the rights of user %u, who called sudo: %s",
			 path, (unsigned)uid, strerror(errno));
	} else if (fd < 0 || fstat(fd, &st)) {
		pt_error("cannot read %s: %s", path, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		pt_error("%s is not a regular file", path);
	} else {
		remember_input(&st);
		if (size)
			*size = st.st_size;
		f = fdopen(fd, "r");
		if (f)
			return f;
		pt_error("cannot read %s: %s", path, strerror(errno));
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}
