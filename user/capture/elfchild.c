// SPDX-License-Identifier: BSD-2-Clause
/*
 * ELF files of a job are read by a child that can do nothing but read the files that
 * it is handed: no capability, no call beyond reading (pt_filter_set()), bounded
 * memory. Question and answer lie in memory that both see; a byte, with the file,
 * says that there is a question, and a byte that there is an answer. What comes back
 * is as little to be trusted as the file.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/privileges.h"
#include "capture/elf.h"
#include "capture/elffile.h"
#include "capture/points.h"

#define WAIT_MS (2 * PT_ELF_MS + 1000) /* it keeps its own time, unless it comes to harm */
#define MEMORY (256ull << 20)	       /* more than its parent has */
#define NAME_LEN 128		       /* of a symbol that is asked for */
#define PLACES 512

enum op { OP_SYMBOLS, OP_ENTRIES, OP_OBJECTS, OP_DYN, OP_NAMES, OP_FUNCTIONS };

struct room {
	uint32_t op, n;
	int32_t ret;
	char name[PT_MAX_POINTS][NAME_LEN];
	uint64_t offset[PT_MAX_POINTS];
	struct pt_entry_use use[PT_MAX_POINTS];
	struct pt_elf_entry entry[PT_MAX_POINTS];
	uint64_t at; /* in the file, and there its address */
	uint8_t exports[PT_MAX_POINTS];
	struct pt_elf_dyn dyn;
	struct pt_elf_place place[PLACES];
	char why[PT_ERR_LEN];
};

/* Of this thread; a forked process has none of its own yet. */
static _Thread_local struct {
	pid_t owner, pid;
	int sock;
	bool left; /* one hangs, and we may not kill it: there is no other */
	struct room *room;
} child = { .sock = -1 };

static _Atomic uint64_t ended_ns; /* CPU time of children that have ended */

/* CPU time of the child that this thread has, by the kernel; glibc would ask for the clock's
 * resolution first, which the reader of Python may not. */
static uint64_t child_cpu_ns(void)
{
	struct timespec t;

	if (child.pid <= 0 || child.owner != getpid() ||
	    clock_gettime((clockid_t)(~(unsigned)child.pid << 3 | 2), &t))
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t pt_elf_child_cpu_ns(void)
{
	return ended_ns + child_cpu_ns();
}

/* ---- the child --------------------------------------------------------------- */

static int take_file(int sock)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} c;
	char byte;
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &c,
			    .msg_controllen = sizeof(c) };
	struct cmsghdr *h;
	int fd;

	if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	h = CMSG_FIRSTHDR(&m);
	if (!h || h->cmsg_type != SCM_RIGHTS || h->cmsg_len != CMSG_LEN(sizeof(int)))
		return -1;
	memcpy(&fd, CMSG_DATA(h), sizeof(fd));
	return fd;
}

static void answer(struct room *r, int fd)
{
	const char *names[PT_MAX_POINTS];
	bool exports[PT_MAX_POINTS];
	struct pt_err err = { "" };
	uint32_t i;

	for (i = 0; i < r->n && i < PT_MAX_POINTS; i++)
		names[i] = r->name[i];
	switch (r->op) {
	case OP_SYMBOLS:
		r->ret = pt_elf_read_symbols(fd, names, r->n, r->offset, &err);
		break;
	case OP_ENTRIES:
		r->ret = pt_elf_read_entries(fd, names, r->use, r->n, r->entry, &err);
		break;
	case OP_OBJECTS:
		r->ret = pt_elf_read_objects(fd, names, r->n, r->at, r->offset, &r->at, &err);
		break;
	case OP_DYN:
		r->ret = pt_elf_read_dyn(fd, names, r->n, exports, &r->dyn);
		for (i = 0; i < r->n; i++)
			r->exports[i] = exports[i];
		break;
	case OP_NAMES:
		r->ret = pt_elf_read_names(fd, r->place, r->n);
		break;
	case OP_FUNCTIONS:
		r->ret = pt_elf_read_functions(fd, r->place, r->n);
		break;
	}
	memcpy(r->why, err.msg, sizeof(r->why));
}

static void serve(int sock, struct room *r)
{
	struct pt_err err;
	int fd;

	prctl(PR_SET_NAME, "pipetrace-elf");
	if (pt_confine_child(sock, MEMORY) || pt_privileges_keep(0, NULL, false, &err) ||
	    pt_filter_set(PT_FILTER_PARSER, &err))
		return;
	while ((fd = take_file(sock)) >= 0) {
		answer(r, fd);
		close(fd);
		if (send(sock, "", 1, MSG_NOSIGNAL) != 1)
			return;
	}
}

/* ---- who asks ---------------------------------------------------------------- */

/* It has gone, or goes by itself as its socket is closed: waited for. */
static bool has_ended(void)
{
	int i;

	for (i = 0; i < 20; i++) {
		if (waitpid(child.pid, NULL, WNOHANG))
			return true;
		poll(NULL, 0, 5);
	}
	return false;
}

/* The reader of Python may send no signal: what hangs there dies with it. */
static void end_process(void)
{
	if (!kill(child.pid, SIGKILL))
		waitpid(child.pid, NULL, 0);
	else
		child.left = !has_ended();
}

void pt_elf_child_end(void)
{
	if (child.sock >= 0)
		close(child.sock);
	if (child.room)
		munmap(child.room, sizeof(*child.room));
	ended_ns += child_cpu_ns();
	if (child.pid > 0 && child.owner == getpid())
		end_process();
	child.pid = 0;
	child.sock = -1;
	child.room = NULL;
}

static int begin(void)
{
	int s[2];

	if (child.owner != getpid())
		child.left = false;
	else if (child.pid || child.left)
		return child.pid ? 0 : -EPERM;
	pt_elf_child_end(); /* it is our parent's */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s))
		return -errno;
	child.sock = s[0];
	child.room = mmap(NULL, sizeof(*child.room), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (child.room == MAP_FAILED)
		child.room = NULL;
	child.pid = child.room ? fork() : -1;
	if (!child.pid) {
		serve(s[1], child.room);
		_exit(0);
	}
	child.owner = getpid();
	close(s[1]);
	if (child.pid > 0)
		return 0;
	pt_elf_child_end();
	return -ENOMEM;
}

static bool send_file(int sock, int fd)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} c = { 0 };
	char byte = 0;
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &c,
			    .msg_controllen = sizeof(c) };

	c.h.cmsg_level = SOL_SOCKET;
	c.h.cmsg_type = SCM_RIGHTS;
	c.h.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&c.h), &fd, sizeof(fd));
	return sendmsg(sock, &m, MSG_NOSIGNAL) == 1;
}

/* The question is in the room. 0: so is the answer; or -errno, and the child is
 * gone. */
static int ask(enum op op, size_t n, int fd)
{
	struct pollfd p = { .fd = child.sock, .events = POLLIN };
	uint64_t end = pt_now_ns() + WAIT_MS * 1000000ull, now;
	char byte;
	int ret;

	child.room->op = op;
	child.room->n = (uint32_t)n;
	if (!send_file(child.sock, fd)) {
		pt_elf_child_end();
		return -EPIPE;
	}
	do {
		now = pt_now_ns();
		ret = poll(&p, 1, now < end ? (int)((end - now) / 1000000) : 0);
	} while (ret < 0 && errno == EINTR);
	if (ret == 1 && recv(child.sock, &byte, 1, MSG_DONTWAIT) == 1)
		return 0;
	pt_elf_child_end();
	return ret ? -EPIPE : -ETIMEDOUT;
}

static int ask_names(enum op op, int fd, const char *const *names, size_t n)
{
	size_t i, len;
	int ret = n > PT_MAX_POINTS ? -E2BIG : begin();

	for (i = 0; i < n && !ret; i++) {
		len = strlen(names[i]);
		if (len >= NAME_LEN)
			ret = -ENAMETOOLONG;
		else
			memcpy(child.room->name[i], names[i], len + 1);
	}
	return ret ?: ask(op, n, fd);
}

/* The answer to ask_names(), which said `ret`: how many were found. */
static int take_count(int ret, size_t n, struct pt_err *err)
{
	char why[PT_ERR_LEN];

	if (ret)
		return pt_err_set(err, ret, "it could not be read: %s", strerror(-ret));
	ret = child.room->ret;
	if (ret < 0) {
		memcpy(why, child.room->why, sizeof(why));
		why[sizeof(why) - 1] = '\0';
		return pt_err_set(err, ret, "%s", why);
	}
	return ret <= (int)n ? ret : (int)n;
}

static int take_places(int ret, size_t n, uint64_t *places, struct pt_err *err)
{
	memset(places, 0, n * sizeof(*places));
	ret = take_count(ret, n, err);
	if (ret >= 0)
		memcpy(places, child.room->offset, n * sizeof(*places));
	return ret;
}

int pt_elf_symbols(int fd, const char *const *names, size_t n,
		   uint64_t *file_offsets, struct pt_err *err)
{
	return take_places(ask_names(OP_SYMBOLS, fd, names, n), n, file_offsets, err);
}

int pt_elf_entries(int fd, const char *const *names, const struct pt_entry_use *use,
		   size_t n, struct pt_elf_entry *out, struct pt_err *err)
{
	int ret = n > PT_MAX_POINTS ? -E2BIG : begin();
	size_t i;

	memset(out, 0, n * sizeof(*out));
	if (!ret)
		memcpy(child.room->use, use, n * sizeof(*use));
	ret = take_count(ret ?: ask_names(OP_ENTRIES, fd, names, n), n, err);
	if (ret < 0)
		return ret;
	memcpy(out, child.room->entry, n * sizeof(*out));
	for (i = 0; i < n; i++)
		if (out[i].place.skip >= PT_ENTRY_RUN)
			out[i].place = (struct pt_entry_place){ .stepped = 1 };
	return ret;
}

int pt_elf_objects(int fd, const char *const *names, size_t n, uint64_t offset,
		   uint64_t *addresses, uint64_t *at, struct pt_err *err)
{
	int ret = begin();

	if (!ret)
		child.room->at = offset;
	ret = take_places(ret ?: ask_names(OP_OBJECTS, fd, names, n), n, addresses, err);
	*at = ret < 0 ? 0 : child.room->at;
	return ret;
}

int pt_elf_dyn(int fd, const char *const *names, size_t n, bool *exports,
	       struct pt_elf_dyn *out)
{
	int ret = ask_names(OP_DYN, fd, names, n);
	size_t i;

	memset(out, 0, sizeof(*out));
	for (i = 0; i < n; i++)
		exports[i] = !ret && child.room->exports[i];
	if (ret)
		return ret;
	*out = child.room->dyn;
	out->soname[sizeof(out->soname) - 1] = '\0';
	ret = child.room->ret;
	return ret < 0 ? ret : 0;
}

/* What the child left, as one of ours. */
static void check_place(struct pt_elf_place *p)
{
	unsigned char found, truncated;

	memcpy(&found, &p->found, 1);
	memcpy(&truncated, &p->truncated, 1);
	p->found = found != 0;
	p->truncated = truncated != 0;
	p->name[sizeof(p->name) - 1] = '\0';
}

static int ask_places(enum op op, int fd, struct pt_elf_place *v, size_t n)
{
	size_t at, i, m;
	int ret, found = 0;

	for (i = 0; i < n; i++)
		v[i].found = v[i].truncated = false;
	for (at = 0; at < n; at += m) {
		m = n - at < PLACES ? n - at : PLACES;
		ret = begin();
		if (!ret)
			memcpy(child.room->place, v + at, m * sizeof(*v));
		ret = ret ?: ask(op, m, fd);
		if (!ret)
			ret = child.room->ret;
		if (ret < 0)
			return ret;
		memcpy(v + at, child.room->place, m * sizeof(*v));
		for (i = at; i < at + m; i++) {
			check_place(&v[i]);
			found += v[i].found;
		}
	}
	return found;
}

int pt_elf_names(int fd, struct pt_elf_place *v, size_t n)
{
	return ask_places(OP_NAMES, fd, v, n);
}

int pt_elf_functions(int fd, struct pt_elf_place *v, size_t n)
{
	return ask_places(OP_FUNCTIONS, fd, v, n);
}
