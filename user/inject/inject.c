// SPDX-License-Identifier: BSD-2-Clause
/* Bring the agent in and take it out: the order of the borrowed calls. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "capture/mapped.h"
#include "capture/procfs.h"
#include "capture/seccomp.h"
#include "inject/inject_int.h"
#include "inject/memfd.h"

#define MFD_FLAGS (MFD_CLOEXEC | MFD_ALLOW_SEALING)
#define RTLD_NOW_LAZY 2		      /* RTLD_NOW */
#define OLD_DLOPEN_MODE 0x80000000ull /* __RTLD_DLOPEN */
#define MAX_LIB (16u << 20)
#define MAX_FD_LOOKED 1024 /* descriptors that may be ours */

struct work {
	const struct pt_inject_opts *o;
	struct pt_injected *out;
	struct pt_err *err;
	struct pt_place place;
	struct pt_frame frame;
	struct pt_calls c;
	uint32_t *touched;
	struct pt_seccomp *filters; /* NULL: the process has none */
	uint64_t names[3]; /* addresses: two memfd names, room for a path */
	int lib_fd;	   /* in the target; -1 none */
};

static int gave_up(struct work *w, int ret, const char *what)
{
	if (ret == -ETIMEDOUT)
		return pt_err_set(w->err, ret,
				  "%s has not returned in time: the thread "
				  "was let go and finishes it by itself", what);
	if (ret == -ESRCH)
		return pt_err_set(w->err, ret, "process %d ended or became "
				  "another program meanwhile", (int)w->o->pid);
	return pt_err_set(w->err, ret, "%s failed: %s", what, strerror(-ret));
}

/* A system call by the C library's syscall(): its result, or -1. */
static int remote_syscall(struct work *w, uint64_t nr, uint64_t a, uint64_t b,
			  int64_t *out)
{
	const uint64_t arg[] = { nr, a, b };

	return pt_call(&w->c, w->place.libc.sys, arg, 3, out);
}

/* The thread's errno, which our calls may change. */
static int note_errno(struct work *w)
{
	int64_t at;
	int ret = pt_call(&w->c, w->place.libc.errno_at, NULL, 0, &at);

	if (ret)
		return gave_up(w, ret, "a call on the borrowed thread");
	if (!pt_hold_read(&w->place.hold, (uint64_t)at, &w->c.saved_errno,
			  sizeof(w->c.saved_errno)))
		w->c.errno_addr = (uint64_t)at;
	return 0;
}

/* The memory file that the thread has just made: whoever answers for its C
 * library may have named another descriptor. */
static int take_fd(struct work *w, int fd)
{
	char name[32], text[4096], *p;
	uid_t owner;
	ssize_t n;

	snprintf(name, sizeof(name), "task/%d/status", (int)w->place.hold.tid);
	n = pt_proc_read(w->o->pid, name, text, sizeof(text));
	p = n > 0 ? strstr(text, "\nUid:") : NULL;
	/* the last of four is the one that files are made with */
	if (!p || sscanf(p, "\nUid: %*u %*u %*u %u", &owner) != 1)
		return -ESRCH;
	return pt_memfd_take(w->o->pid, fd, true, owner);
}

static int not_taken(struct work *w, int err)
{
	if (err != -EMEDIUMTYPE && err != -EBADF)
		return gave_up(w, err, "opening the memory file");
	return pt_err_set(w->err, -EPERM, "the memory file that it returned is "
			  "not its own: nothing was written to it");
}

/* A memfd in the target: its number there. */
static int remote_memfd(struct work *w, uint64_t name)
{
	int64_t fd;
	int ret = remote_syscall(w, SYS_memfd_create, name, MFD_FLAGS, &fd);

	if (ret)
		return gave_up(w, ret, "memfd_create()");
	if (fd < 0 || fd > INT32_MAX)
		return pt_err_set(w->err, -ENOSPC,
				  "it cannot make a memory file (out of "
				  "descriptors?)");
	return (int)fd;
}

static void remote_close(struct work *w, int *fd)
{
	int64_t r;

	if (*fd >= 0 && w->place.hold.stopped)
		remote_syscall(w, SYS_close, (uint64_t)*fd, 0, &r);
	*fd = -1;
}

static int make_ring(struct work *w)
{
	int fd = remote_memfd(w, w->names[0]), mine, ret;

	if (fd < 0)
		return fd;
	w->out->fd = fd;
	mine = take_fd(w, fd);
	if (mine < 0)
		return not_taken(w, mine);
	ret = pt_ring_setup(mine, w->o->ring);
	close(mine);
	return ret ? gave_up(w, ret, "preparing the memory file") : 0;
}

static int write_all(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* The library's bytes into a memfd of the target; its inode. */
static int send_lib(struct work *w, struct stat *st)
{
	int mine, ret;

	w->lib_fd = remote_memfd(w, w->names[1]);
	if (w->lib_fd < 0)
		return w->lib_fd;
	mine = take_fd(w, w->lib_fd);
	if (mine < 0)
		return not_taken(w, mine);
	ret = write_all(mine, w->o->so, w->o->so_len);
	if (!ret && fstat(mine, st))
		ret = -errno;
	close(mine);
	return ret ? gave_up(w, ret, "writing the memory file") : 0;
}

/* The library's mapping for execution, by its file. */
static const struct pt_map *mapped(const struct pt_maps *m, uint64_t inode,
				   uint32_t dev)
{
	size_t i;

	for (i = 0; i < m->n; i++)
		if (m->v[i].x && m->v[i].inode == inode && m->v[i].dev == dev)
			return &m->v[i];
	return NULL;
}

/* The loader's own words, as far as they can be shown. */
static int refused(struct work *w)
{
	char text[200] = "";
	int64_t at = 0;
	size_t i = 0;

	if (w->place.libc.dlerror &&
	    !pt_call(&w->c, w->place.libc.dlerror, NULL, 0, &at) && at)
		for (i = 0; i < sizeof(text) - 1; i++) {
			/* byte by byte: its end may be that of a page */
			if (pt_hold_read(&w->place.hold, (uint64_t)at + i,
					 &text[i], 1) || !text[i])
				break;
			if (text[i] < ' ' || text[i] > '~')
				text[i] = '?';
		}
	text[i] = '\0';
	return pt_err_set(w->err, -ELIBACC,
			  "its loader did not take the agent library%s%s",
			  text[0] ? ": " : "", text);
}

static int open_lib(struct work *w)
{
	struct stat st = { 0 };
	const struct pt_map *x;
	uint64_t arg[2];
	char path[32];
	int64_t handle;
	int ret;

	ret = send_lib(w, &st);
	if (ret)
		return ret;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", w->lib_fd);
	ret = pt_hold_write(&w->place.hold, w->names[2], path,
			    strlen(path) + 1);
	if (ret)
		return gave_up(w, ret, "writing to its stack");
	arg[0] = w->names[2];
	arg[1] = RTLD_NOW_LAZY |
		 (w->place.libc.old_dlopen ? OLD_DLOPEN_MODE : 0);
	w->c.inside = PT_STAGE_IN_DLOPEN;
	ret = pt_call(&w->c, w->place.libc.dlopen, arg, 2, &handle);
	if (ret)
		return gave_up(w, ret, "dlopen()");
	if (!handle)
		return refused(w);
	w->out->handle = (uint64_t)handle;
	pt_stage(w->o, PT_STAGE_OPENED);
	remote_close(w, &w->lib_fd);
	pt_maps_free(&w->place.maps);
	ret = pt_maps_read(w->o->pid, &w->place.maps);
	if (ret)
		return gave_up(w, ret, "looking at its memory");
	x = mapped(&w->place.maps, st.st_ino,
		   major(st.st_dev) << 20 | minor(st.st_dev));
	if (!x)
		return pt_err_set(w->err, -ELIBACC,
				  "the agent library is not where it should be");
	w->out->base = x->start;
	return 0;
}

static int entry_points(struct work *w, uint64_t addr[2])
{
	static const char *const names[] = { PT_AGENT_START, PT_AGENT_STOP };
	const struct pt_map *x = pt_maps_at(&w->place.maps, w->out->base);
	int n = x && x->x ? pt_maps_symbols(w->o->pid, &w->place.maps, x,
					    names, 2, addr) : 0;

	return n == 2 ? 0 : pt_err_set(w->err, -ELIBACC,
				       "the agent library lacks its entry "
				       "points");
}

/* Undo what was begun, on the thread that we still hold. */
static void undo(struct work *w)
{
	uint64_t arg = w->out->handle;
	int64_t r;

	if (!w->place.hold.stopped || !w->c.sent)
		return;
	if (w->out->handle &&
	    !pt_call(&w->c, w->place.libc.dlclose, &arg, 1, &r) && !r)
		w->out->handle = w->out->base = 0;
	remote_close(w, &w->lib_fd);
	remote_close(w, &w->out->fd);
}

/* A library that an earlier injection had to leave: the same file? */
static int find_left(struct work *w)
{
	const struct pt_maps *m = &w->place.maps;
	const uint32_t dev = pt_memfd_dev();
	struct pt_mapped file = { .pid = w->o->pid, .dev = dev, .name = "" };
	struct stat st;
	int fd, ret = 0;
	char *now;
	size_t i;

	for (i = 0; i < m->n; i++)
		if (m->v[i].x && m->v[i].dev == dev &&
		    strstr(pt_maps_path(m, &m->v[i]), "memfd:" PT_INJECT_LIB))
			break;
	if (i == m->n) {
		/* one that the program brought along itself is not ours */
		for (i = 0; i < m->n; i++)
			if (!strcmp(pt_maps_path(m, &m->v[i]),
				    "/memfd:" PT_AGENT_MEMFD " (deleted)"))
				return pt_err_set(w->err, -EBUSY,
						  "an agent is in this process "
						  "already");
		return 0;
	}
	file.start = m->v[i].start;
	file.end = m->v[i].end;
	file.inode = m->v[i].inode;
	fd = pt_mapped_open(&file);
	now = malloc(w->o->so_len + 1);
	if (fd >= 0 && now && !fstat(fd, &st) &&
	    (size_t)st.st_size == w->o->so_len &&
	    pread(fd, now, w->o->so_len, 0) == (ssize_t)w->o->so_len &&
	    !memcmp(now, w->o->so, w->o->so_len))
		w->out->base = m->v[i].start;
	else
		ret = pt_err_set(w->err, -EBUSY,
				 "another version's agent is still mapped there");
	free(now);
	if (fd >= 0)
		close(fd);
	return ret;
}

/*
 * What a tracer that was ended left: an agent that has retired, and descriptors.
 * -EBUSY: it is at work, for somebody.
 */
static int clear_left(struct work *w)
{
	char path[64], link[96];
	int64_t r = 0;
	uint64_t addr[2];
	int ret, fd;
	ssize_t n;

	if (w->out->base) {
		ret = entry_points(w, addr);
		ret = ret ?: pt_call(&w->c, addr[1], NULL, 0, &r);
		if (ret)
			return gave_up(w, ret, "stopping an agent that was left");
		if ((int)r < 0)
			return pt_err_set(w->err, (int)r,
					  "another pipetrace is at work in this "
					  "process");
	}
	for (fd = 0; fd < MAX_FD_LOOKED; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)w->o->pid,
			 fd);
		n = readlink(path, link, sizeof(link) - 1);
		if (n <= 0)
			continue;
		link[n] = '\0';
		if (!strcmp(link, "/memfd:" PT_AGENT_MEMFD " (deleted)") ||
		    !strcmp(link, "/memfd:" PT_INJECT_LIB " (deleted)")) {
			int own = fd;

			remote_close(w, &own);
		}
	}
	return 0;
}

/* Find a safe point there and lay the way back. */
static int borrow(struct work *w)
{
	static const char *const text[] = { PT_AGENT_MEMFD, PT_INJECT_LIB,
					    "/proc/self/fd/2147483647" };
	struct pt_proc_stat st;
	int ret, i;

	ret = pt_inj_allowed(w->o->pid, w->err);
	if (ret)
		return ret;
	if (pt_proc_stat(w->o->pid, &st))
		return gave_up(w, -ESRCH, "");
	if (w->out->start_ticks && w->out->start_ticks != st.start_ticks)
		return gave_up(w, -ESRCH, "");
	w->out->start_ticks = st.start_ticks;
	/* before anything is stopped, as it takes its time */
	if (pt_inj_filtered(w->o->pid)) {
		w->filters = pt_seccomp_open();
		if (!w->filters)
			return pt_err_set(w->err, -EOPNOTSUPP, "it is filtered by seccomp, "
					  "and what the filter allows cannot be read: %s",
					  strerror(errno));
		ret = pt_inj_filter_allows(w->filters, w->o->pid, w->err);
		if (ret)
			return ret;
	}
	ret = pt_place_find(w->o, &w->place, w->err);
	if (ret)
		return ret;
	__atomic_store_n(w->touched, 1, __ATOMIC_RELEASE);
	w->c = (struct pt_calls){ .p = &w->place, .o = w->o,
				  .frame = &w->frame };
	snprintf(w->out->point, sizeof(w->out->point), "%s", w->place.name);
	w->out->tid = w->place.hold.tid;
	/* a thread may have more of them than the first one */
	if (w->filters && w->place.hold.tid != w->o->pid) {
		ret = pt_inj_filter_allows(w->filters, w->place.hold.tid, w->err);
		if (ret)
			goto fail;
	}
	ret = pt_calls_begin(&w->c, w->err);
	for (i = 0; !ret && i < 3; i++) {
		ret = pt_calls_name(&w->c, text[i], &w->names[i]);
		if (ret)
			ret = gave_up(w, ret, "writing to its stack");
	}
	if (!ret)
		return 0;
fail:
	pt_calls_end(&w->c);
	pt_place_close(&w->place);
	return ret;
}

static void give_back(struct work *w)
{
	w->out->stopped_us =
		(uint32_t)((pt_now_ns() - w->c.stopped_ns) / 1000);
	pt_calls_end(&w->c);
	pt_place_close(&w->place);
}

static int do_inject(struct work *w)
{
	uint64_t addr[2], arg;
	int64_t r = 0;
	int ret = borrow(w);

	if (ret)
		return ret;
	ret = find_left(w);
	ret = ret ?: note_errno(w);
	ret = ret ?: clear_left(w);
	ret = ret ?: make_ring(w);
	if (!ret)
		pt_stage(w->o, PT_STAGE_MEMFD);
	if (!ret && !w->out->base)
		ret = open_lib(w);
	ret = ret ?: entry_points(w, addr);
	if (!ret) {
		arg = (uint64_t)w->out->fd;
		ret = pt_call(&w->c, addr[0], &arg, 1, &r);
		if (ret)
			gave_up(w, ret, "starting the agent");
		else if ((int)r < 0)
			ret = pt_err_set(w->err, (int)r == -EBUSY ? -EBUSY : -EIO,
					 "the agent could not start: %s",
					 strerror((int)-r));
		else
			pt_stage(w->o, PT_STAGE_STARTED);
	}
	if (ret)
		undo(w);
	give_back(w);
	return ret;
}

static int do_retract(struct work *w)
{
	uint64_t addr[2], arg;
	int64_t r = 0;
	int ret = borrow(w);

	if (ret)
		return ret;
	ret = note_errno(w);
	ret = ret ?: entry_points(w, addr);
	if (ret)
		goto out;
	ret = pt_call(&w->c, addr[1], NULL, 0, &r);
	if (ret) {
		gave_up(w, ret, "stopping the agent");
		goto out;
	}
	pt_stage(w->o, PT_STAGE_STARTED);
	if ((int)r < 0) {
		ret = pt_err_set(w->err, (int)r, "the agent has not stopped: %s",
				 strerror((int)-r));
		goto out;
	}
	w->out->fd = -1;
	arg = w->out->handle;
	ret = 1;
	if (!r && arg &&
	    !pt_call(&w->c, w->place.libc.dlclose, &arg, 1, &r) && !(int)r) {
		w->out->handle = w->out->base = 0;
		ret = 0;
	}
out:
	give_back(w);
	return ret;
}

int pt_inject_work(const struct pt_inject_opts *o, bool retract,
		   struct pt_injected *io, struct pt_err *err, uint32_t *touched)
{
	struct work *w = calloc(1, sizeof(*w));
	int ret;

	if (!w)
		return pt_err_set(err, -ENOMEM, "out of memory");
	w->o = o;
	w->out = io;
	w->err = err;
	w->touched = touched;
	w->lib_fd = -1;
	io->pid = o->pid;
	if (!retract && (!o->so || !o->so_len || o->so_len > MAX_LIB))
		ret = pt_err_set(err, -EINVAL, "no agent library");
	else
		ret = retract ? do_retract(w) : do_inject(w);
	pt_seccomp_close(w->filters);
	free(w);
	return ret;
}
