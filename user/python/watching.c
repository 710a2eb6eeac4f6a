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
#define TOLD_MAX 65536
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
	pid_t pids[PT_PY_PROCESSES]; /* of the last message, in rising order */
	size_t n_pids;
};

/* To find the interpreter of a process takes some milliseconds. A job that starts programs
 * all the time has them looked into only once they are seen a second time, and so much CPU
 * goes into that between two messages; but for the first. */
#define OPEN_NS 50000000u

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

	if (HASH_COUNT(w->told) >= TOLD_MAX)
		pt_hash_free(w->told); /* of threads that have ended, mostly */
	t = pt_hash_make(w->told, tid, &l->tid);
	if (!t)
		return true;
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

static void look_into(struct watch *w, const pid_t *pids, size_t n)
{
	const char *version, *cmdline;
	struct pt_err err = { "" };
	uint64_t begin = cpu_ns();
	bool first = !w->n_pids;
	size_t i;
	int no;

	w->seen.processes = 0;
	for (i = 0; i < n; i++) {
		no = 0;
		if (first || (cpu_ns() - begin < OPEN_NS &&
			      bsearch(&pids[i], w->pids, w->n_pids, sizeof(*pids), pt_by_pid)))
			no = pt_py_looks_watch(w->looks, pids[i], &err);
		if (no && no != -ENOENT && no != -ESRCH)
			memcpy(w->seen.why, err.msg, sizeof(w->seen.why));
		w->seen.processes += pt_py_looks_process(w->looks, pids[i], &version, &cmdline);
	}
}

/* The processes of the job, as the parent says; false: it says stop, or has gone. */
static bool take(struct watch *w)
{
	pid_t pids[PT_PY_PROCESSES];
	ssize_t got = recv(w->sock, pids, sizeof(pids), 0);
	size_t n = got > 0 ? (size_t)got / sizeof(*pids) : 0;

	if (!n)
		return got < 0 && errno == EINTR;
	w->resting = !pids[0];
	if (w->resting)
		return true;
	qsort(pids, n, sizeof(*pids), pt_by_pid);
	pt_py_looks_keep(w->looks, pids, n);
	look_into(w, pids, n);
	memcpy(w->pids, pids, n * sizeof(*pids));
	w->n_pids = n;
	return true;
}

void pt_py_watch(int sock)
{
	struct watch *w = calloc(1, sizeof(*w));
	struct pollfd p = { .fd = sock, .events = POLLIN };
	uint64_t was, looked;
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
		looked = cpu_ns();
		if (!w->resting)
			look(w);
		if (w->out.len || w->seen.looks % 64 == 1)
			flush(w);
		w->seen.cpu_ns += cpu_ns() - was;
		pause = pt_py_pause((double)(cpu_ns() - looked) / 1e9);
	}
	if (!w->gone)
		flush(w);
out:
	if (!w)
		return;
	pt_hash_free(w->told);
	pt_py_looks_free(w->looks);
	free(w);
}
