// SPDX-License-Identifier: BSD-2-Clause
/* The child's side of a watcher: looks become records. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "python/looks.h"
#include "python/watcher_int.h"

#define NAME_MAX_SENT 160 /* of a function's name; the rest of a record is the file's */
#define AGAIN_NS 1000000000u /* a thread that sleeps on is told of so often */

struct told {
	pid_t tid;
	uint64_t ns;
	UT_hash_handle hh;
};

struct watch {
	int sock;
	struct pt_py_looks *looks;
	struct told *told; /* when a look at the thread was sent last */
	uint32_t lines, nodes; /* sent */
	struct pt_py_message out;
	struct pt_py_seen seen;
	bool gone, resting;
};

/* ---- sending ----------------------------------------------------------------------- */

static void flush(struct watch *w)
{
	size_t n = offsetof(struct pt_py_message, records) + w->out.len;

	w->out.seen = w->seen;
	if (send(w->sock, &w->out, n, MSG_NOSIGNAL) != (ssize_t)n)
		w->gone = true; /* the other end closed, and nobody is there to be told */
	w->out.len = 0;
}

static void put(struct watch *w, const void *rec, size_t len)
{
	if (w->out.len + len > sizeof(w->out.records))
		flush(w);
	memcpy(w->out.records + w->out.len, rec, len);
	w->out.len += (uint32_t)len;
}

/* The end of `s`, at most n bytes of it, not in the middle of a character. */
static const char *tail(const char *s, size_t n)
{
	size_t len = strlen(s);

	if (len <= n)
		return s;
	for (s += len - n; (*s & 0xc0) == 0x80;)
		s++;
	return s;
}

static void put_line(struct watch *w, uint32_t id)
{
	const struct pt_py_line *l = pt_py_line_of(w->looks, id);
	struct pt_rec_pyline r = { .hdr = { .size = sizeof(r), .kind = PT_REC_PYLINE,
					    .ts = pt_now_ns() },
				   .id = id, .line = l->line > 0 ? l->line : 0,
				   .flags = l->library ? PT_PYLINE_LIBRARY : 0 };
	const char *name = tail(l->name, NAME_MAX_SENT);
	size_t n = strlen(name);

	memcpy(r.text, name, n);
	name = tail(l->file, sizeof(r.text) - n - 2);
	memcpy(r.text + n + 1, name, strlen(name));
	put(w, &r, sizeof(r));
}

static void put_node(struct watch *w, uint32_t id)
{
	const struct pt_py_node *x = pt_py_node_of(w->looks, id);
	struct pt_rec_pystack r = { .hdr = { .size = sizeof(r), .kind = PT_REC_PYSTACK,
					     .ts = pt_now_ns() },
				    .id = id, .caller = x->caller, .line = x->line,
				    .flags = (x->flags & PT_PY_ITER ? PT_PYSTACK_ITER : 0) |
					     (x->flags & PT_PY_NEXT ? PT_PYSTACK_NEXT : 0) };

	put(w, &r, sizeof(r));
}

/* Is it time to say it of a thread that slept on? */
static bool again(struct watch *w, const struct pt_py_look *l)
{
	struct told *t;

	HASH_FIND(hh, w->told, &l->tid, sizeof(l->tid), t);
	if (!t) {
		t = calloc(1, sizeof(*t));
		if (!t)
			return true;
		t->tid = l->tid;
		HASH_ADD(hh, w->told, tid, sizeof(t->tid), t);
	}
	if (l->same && l->begin_ns - t->ns < AGAIN_NS)
		return false;
	t->ns = l->begin_ns;
	return true;
}

static void on_look(void *ctx, const struct pt_py_look *l)
{
	struct watch *w = ctx;
	struct pt_rec_pylook r = { .hdr = { .size = sizeof(r), .kind = PT_REC_PYLOOK,
					    .ts = l->end_ns, .tid = (uint32_t)l->tid,
					    .tgid = (uint32_t)l->pid },
				   .begin_ts = l->begin_ns, .stack = l->stack,
				   .running = l->running };

	if (l->stack >= PT_PY_IDS || !again(w, l))
		return;
	while (w->lines < pt_py_lines_known(w->looks))
		put_line(w, ++w->lines);
	while (w->nodes < pt_py_nodes_known(w->looks))
		put_node(w, ++w->nodes);
	put(w, &r, sizeof(r));
}

/* ---- looking ----------------------------------------------------------------------- */

static uint64_t cpu_ns(void)
{
	struct timespec t;

	return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) ? 0 :
	       (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void look(struct watch *w)
{
	pt_py_looks_at(w->looks, on_look, w);
	w->seen.looks++;
}

/* The processes of the job, as the parent says; false: it says stop, or has gone. */
static bool take(struct watch *w)
{
	static pid_t pids[PT_PY_PROCESSES];
	ssize_t n = recv(w->sock, pids, sizeof(pids), 0), i;
	struct pt_err err = { "" };

	if (n <= 0)
		return n < 0 && errno == EINTR;
	w->resting = !pids[0];
	w->seen.processes = 0;
	for (i = 0; !w->resting && i < n / (ssize_t)sizeof(*pids); i++) {
		const char *version, *cmdline;
		int no = pt_py_looks_watch(w->looks, pids[i], &err);

		if (no && no != -ENOENT && no != -ESRCH)
			memcpy(w->seen.why, err.msg, sizeof(w->seen.why));
		w->seen.processes += pt_py_looks_process(w->looks, pids[i], &version, &cmdline);
	}
	return n >= (ssize_t)sizeof(*pids);
}

void pt_py_watch(int sock)
{
	struct watch *w = calloc(1, sizeof(*w));
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct told *t, *next;
	uint64_t was, cost;
	double pause = 1;
	int n;

	if (w)
		w->looks = pt_py_looks_new();
	if (!w || !w->looks)
		goto out;
	w->sock = sock;
	while (!w->gone) {
		n = poll(&p, 1, (int)(1000 * pause));
		if (n < 0 && errno != EINTR)
			break;
		was = cpu_ns();
		if (n > 0 && !take(w))
			break;
		if (!w->resting)
			look(w);
		if (w->out.len || w->seen.looks % 64 == 1)
			flush(w);
		cost = cpu_ns() - was;
		w->seen.cpu_ns += cost;
		pause = pt_py_pause((double)cost / 1e9);
	}
	if (!w->gone)
		flush(w);
out:
	if (!w)
		return;
	HASH_ITER(hh, w->told, t, next) {
		HASH_DEL(w->told, t);
		free(t);
	}
	pt_py_looks_free(w->looks);
	free(w);
}
