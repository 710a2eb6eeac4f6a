// SPDX-License-Identifier: BSD-2-Clause
/* The parent's side of a watcher. */
#include "python/watcher.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/privileges.h"
#include "base/records.h"
#include "base/vec.h"
#include "python/watcher_int.h"

#define MEMORY (256ull << 20) /* more than its parent has */
#define STOP_MS 500	      /* a look at very many threads takes some tens */
#define SOCKET_BYTES (1 << 20)

struct pt_py_watcher {
	pid_t pid; /* 0: it has been waited for */
	int sock;  /* -1: closed */
	struct pt_py_message in;
	PT_VEC(struct pt_py_found) found; /* not asked for yet */
};

/* ---- the child --------------------------------------------------------------------- */

/* All that is not said fails: it is a child that looks, or none. */
static bool confine(int sock)
{
	struct pt_err err;

	prctl(PR_SET_NAME, "pipetrace-lines");
	return !pt_confine_child(sock, MEMORY) &&
	       !pt_privileges_keep(PT_KEEP_LOOK, NULL, false, &err) &&
	       !pt_filter_set(PT_FILTER_LOOK, &err);
}

static _Noreturn void child(int sock, int ring, size_t bytes, pid_t parent)
{
	struct pt_py_watch *w;
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGINT, SIG_IGN); /* a terminal's is for its parent, which ends it */
	signal(SIGHUP, SIG_IGN);
	w = pt_py_watch_new(sock, ring, bytes); /* the ring is mapped, its descriptor goes */
	if (w && confine(sock) && getppid() == parent)
		pt_py_watch(w);
	_exit(0);
}

int pt_py_watcher_start(struct pt_py_watcher **out, int ring, size_t bytes, struct pt_err *err)
{
	struct pt_py_watcher *w = calloc(1, sizeof(*w));
	pid_t self = getpid();
	int ends[2], size = SOCKET_BYTES, ret = 0;

	*out = NULL;
	if (!w)
		return pt_err_set(err, -ENOMEM, "out of memory");
	w->sock = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) {
		ret = -errno;
		goto out;
	}
	/* a smaller one only makes the child wait more */
	if (setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)))
		size = 0;
	w->sock = ends[0];
	w->pid = fork();
	if (!w->pid)
		child(ends[1], ring, bytes, self);
	if (w->pid < 0) {
		ret = -errno;
		w->pid = 0;
	}
	close(ends[1]);
out:
	if (ret) {
		pt_err_set(err, ret, "cannot start the process that reads Python stacks: %s", strerror(-ret));
		pt_py_watcher_free(w);
		return ret;
	}
	*out = w;
	return 0;
}

/* ---- the parent -------------------------------------------------------------------- */

void pt_py_watcher_follow(struct pt_py_watcher *w, const pid_t *pids, size_t n)
{
	const pid_t nobody = 0;

	if (n > PT_PY_PROCESSES)
		n = PT_PY_PROCESSES;
	if (!n) {
		pids = &nobody;
		n = 1;
	}
	/* where the child is busy with the last ones, there are always the next ones */
	if (w->sock >= 0 && send(w->sock, pids, n * sizeof(*pids),
				      MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EPIPE) {
		close(w->sock);
		w->sock = -1;
	}
}

static bool is_ours(const struct pt_hdr *h)
{
	return (h->kind == PT_REC_PYLINE && h->size == sizeof(struct pt_rec_pyline)) ||
	       (h->kind == PT_REC_PYSTACK && h->size == sizeof(struct pt_rec_pystack)) ||
	       (h->kind == PT_REC_PYTHON && h->size == sizeof(struct pt_rec_python)) ||
	       (h->kind == PT_REC_PYPLACE && h->size == sizeof(struct pt_rec_pyplace)) ||
	       (h->kind == PT_REC_PYLOOK && h->size == sizeof(struct pt_rec_pylook));
}

/* One message; 1: there was one, 0: none is there, -1: the child has gone, or has lost its
 * mind. */
static int take(struct pt_py_watcher *w, pt_py_record_fn fn, void *ctx)
{
	const size_t head = offsetof(struct pt_py_message, records);
	ssize_t n = recv(w->sock, &w->in, sizeof(w->in), MSG_DONTWAIT);
	struct pt_hdr h;
	size_t at, i;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if ((size_t)n < head || w->in.len > (size_t)n - head || w->in.n_found > PT_PY_FOUND)
		return -1;
	for (i = 0; i < w->in.n_found; i++)
		if (!pt_py_found_check(&w->in.found[i]) ||
		    (w->found.n < PT_PY_PROCESSES && pt_vec_push(&w->found, w->in.found[i])))
			return -1;
	w->in.seen.why[sizeof(w->in.seen.why) - 1] = '\0';
	for (at = 0; at < w->in.len; at += h.size) {
		if (!pt_rec_head(w->in.records + at, w->in.len - at, &h) || !is_ours(&h))
			return -1;
		fn(ctx, w->in.records + at, h.size);
	}
	return 1;
}

bool pt_py_watcher_drain(struct pt_py_watcher *w, pt_py_record_fn fn, void *ctx)
{
	int r = 1;

	while (w->sock >= 0 && (r = take(w, fn, ctx)) > 0)
		;
	if (r < 0) {
		close(w->sock);
		w->sock = -1;
	}
	return w->sock >= 0;
}

void pt_py_watcher_stop(struct pt_py_watcher *w, pt_py_record_fn fn, void *ctx)
{
	uint64_t until = pt_now_ns() + STOP_MS * 1000000ull;
	struct pollfd p = { .fd = w->sock, .events = POLLIN };

	if (w->sock < 0)
		return;
	/* the end of what we send; what it sends still comes */
	shutdown(w->sock, SHUT_WR);
	while (pt_py_watcher_drain(w, fn, ctx) && pt_now_ns() < until)
		if (poll(&p, 1, 10) < 0 && errno != EINTR)
			break;
	if (w->sock >= 0)
		close(w->sock);
	w->sock = -1;
}

bool pt_py_watcher_found(struct pt_py_watcher *w, struct pt_py_found *out)
{
	if (!w->found.n)
		return false;
	*out = w->found.v[--w->found.n];
	return true;
}

const struct pt_py_seen *pt_py_watcher_seen(const struct pt_py_watcher *w)
{
	return &w->in.seen;
}

void pt_py_watcher_free(struct pt_py_watcher *w)
{
	int i;

	if (!w)
		return;
	if (w->sock >= 0)
		close(w->sock);
	if (w->pid > 0)
		kill(w->pid, SIGKILL);
	/* one that hangs in the kernel is left to it */
	for (i = 0; w->pid > 0 && i < 100 && !waitpid(w->pid, NULL, WNOHANG); i++)
		poll(NULL, 0, 5);
	pt_vec_free(&w->found);
	free(w);
}
