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
#include "base/minmax.h"
#include "base/records.h"
#include "base/vec.h"
#include "capture/elf.h"
#include "capture/ringbuf.h"
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

struct pt_py_watch {
	int sock;
	struct pt_py_looks *looks;
	struct told *told; /* when a look at the thread was sent last */
	uint32_t lines, nodes; /* sent */
	size_t bound;
	uint64_t names_ns; /* not before, functions of libraries are looked up again */
	struct pt_ringbuf *ring; /* samples; NULL: none come */
	/* Looks at who sleeps, made while samples came: not told yet. */
	PT_VEC(struct pt_rec_pylook) held;
	size_t n_told;
	bool holding;
	bool sampled; /* some came when they were read last */
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

/* ... of this process and of the one that reads files for it. */
static uint64_t cpu_ns(void)
{
	return pt_clock_ns(CLOCK_PROCESS_CPUTIME_ID) + pt_elf_child_cpu_ns();
}

/* ---- sending ----------------------------------------------------------------------- */

static void flush(struct pt_py_watch *w)
{
	size_t n = offsetof(struct pt_py_message, records) + w->out.len;

	w->out.seen = w->seen;
	if (send(w->sock, &w->out, n, MSG_NOSIGNAL) != (ssize_t)n)
		w->gone = true; /* the other end closed, and nobody is there to be told */
	w->out.len = w->out.n_found = 0;
}

static void put(struct pt_py_watch *w, const void *rec, size_t len)
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

static void put_line(struct pt_py_watch *w, uint32_t id)
{
	const struct pt_py_line *l = pt_py_line_of(w->looks, id);
	struct pt_rec_pyline r = { .hdr = { .size = sizeof(r), .kind = PT_REC_PYLINE,
					    .ts = pt_now_ns() },
				   .id = id, .line = l->line > 0 ? l->line : 0,
				   .flags = (l->library ? PT_PYLINE_LIBRARY : 0) |
					    (l->native ? PT_PYLINE_NATIVE : 0) };
	const char *name = tail(l->name, NAME_MAX_SENT);
	size_t n = strlen(name);

	memcpy(r.text, name, n);
	name = tail(l->file, sizeof(r.text) - n - 2);
	memcpy(r.text + n + 1, name, strlen(name));
	put(w, &r, sizeof(r));
}

static void put_node(struct pt_py_watch *w, uint32_t id)
{
	const struct pt_py_node *x = pt_py_node_of(w->looks, id);
	struct pt_rec_pystack r = { .hdr = { .size = sizeof(r), .kind = PT_REC_PYSTACK,
					     .ts = pt_now_ns() },
				    .id = id, .caller = x->caller, .line = x->line,
				    .flags = (x->flags & PT_PY_ITER ? PT_PYSTACK_ITER : 0) |
					     (x->flags & PT_PY_NEXT ? PT_PYSTACK_NEXT : 0) |
					     (x->flags & PT_PY_WITH ? PT_PYSTACK_WITH : 0) |
					     (uint32_t)x->called_at << PT_PYSTACK_AT };

	put(w, &r, sizeof(r));
}

/* Is it time to say it of a thread that slept on? */
static bool again(struct pt_py_watch *w, const struct pt_py_look *l)
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

static struct pt_rec_pylook record_of(const struct pt_py_look *l)
{
	return (struct pt_rec_pylook){ .hdr = { .size = sizeof(struct pt_rec_pylook),
						.kind = PT_REC_PYLOOK, .ts = l->end_ns,
						.tid = (uint32_t)l->tid,
						.tgid = (uint32_t)l->pid },
				       .begin_ts = l->begin_ns, .stack = l->stack,
				       .running = l->running, .place = l->place };
}

static void put_lines(struct pt_py_watch *w)
{
	while (w->lines < pt_py_lines_known(w->looks))
		put_line(w, ++w->lines);
}

static void put_look(struct pt_py_watch *w, const struct pt_rec_pylook *r)
{
	put_lines(w);
	while (w->nodes < pt_py_nodes_known(w->looks))
		put_node(w, ++w->nodes);
	put(w, r, sizeof(*r));
}

/* Those that were over by then. */
static void put_held(struct pt_py_watch *w, uint64_t until)
{
	while (w->n_told < w->held.n && w->held.v[w->n_told].hdr.ts <= until)
		put_look(w, &w->held.v[w->n_told++]);
}

static void on_look(void *ctx, const struct pt_py_look *l)
{
	struct pt_py_watch *w = ctx;
	const struct pt_rec_pylook r = record_of(l);

	if (l->stack >= PT_PY_IDS || !again(w, l))
		return;
	if (!w->holding || pt_vec_push(&w->held, r))
		put_look(w, &r);
}

/* ---- samples ----------------------------------------------------------------------- */

static void on_sampled(void *ctx, const struct pt_py_look *l)
{
	struct pt_py_watch *w = ctx;
	const struct pt_rec_pylook r = record_of(l);

	if (l->stack >= PT_PY_IDS)
		return;
	/* a thread's looks go in time's order */
	put_held(w, l->begin_ns);
	put_look(w, &r);
}

static int on_sample(void *ctx, void *data, size_t len)
{
	const size_t head = offsetof(struct pt_py_sample, at);
	const struct pt_py_sample *s = data;
	struct pt_py_watch *w = ctx;

	if (len < head || s->n > (len - head) / sizeof(s->at[0]))
		return 0;
	w->sampled = true;
	if (w->resting)
		return 0;
	if (pt_py_looks_sample(w->looks, s, s->n, on_sampled, w))
		w->seen.samples++;
	else
		w->seen.strange++;
	return w->gone ? -EPIPE : 0;
}

static void take_samples(struct pt_py_watch *w)
{
	uint64_t begin;

	if (!w->ring)
		return;
	begin = cpu_ns();
	/* what is wrong with a ring does not get better, and looks go on */
	if (pt_ringbuf_read(w->ring))
		w->seen.strange++;
	w->seen.sample_ns += cpu_ns() - begin;
}

/* ---- looking ----------------------------------------------------------------------- */

/* What it took, s of CPU. Samples have a part of their own: where they were dear, sleepers,
 * whom no sample sees, were not looked at for seconds. */
static double look(struct pt_py_watch *w)
{
	uint64_t begin = cpu_ns();

	if (w->resting)
		return 0;
	w->holding = w->ring;
	pt_py_looks_at(w->looks, on_look, w);
	w->holding = false;
	w->seen.looks++;
	return (double)(cpu_ns() - begin) / 1e9;
}

/* What came since the last time, and the looks that were held meanwhile. */
static void catch_up(struct pt_py_watch *w)
{
	w->sampled = false;
	take_samples(w);
	put_held(w, UINT64_MAX);
	w->held.n = w->n_told = 0;
}

/* ---- functions of libraries -------------------------------------------------------- */

#define NAMES_NS 1000000000u /* so long places are collected, at least */

static void put_places(struct pt_py_watch *w)
{
	const struct pt_py_bound *b;
	struct pt_rec_pyplace r;

	put_lines(w);
	for (; w->bound < pt_py_bound_known(w->looks); w->bound++) {
		b = pt_py_bound_of(w->looks, w->bound);
		pt_rec_begin(&r, sizeof(r), PT_REC_PYPLACE, pt_now_ns(), 0);
		r.id = b->place;
		r.line = b->line;
		put(w, &r, sizeof(r));
	}
}

/* At the end what is there goes first, since nobody waits for long. */
static void tell_functions(struct pt_py_watch *w, bool last)
{
	uint64_t begin = pt_now_ns(), took;

	if (w->gone || (!last && begin < w->names_ns) || !pt_py_functions_due(w->looks))
		return;
	if (last)
		flush(w);
	pt_py_functions(w->looks);
	put_places(w);
	took = pt_now_ns() - begin;
	w->names_ns = begin + took + pt_max64(NAMES_NS, (uint64_t)((double)took /
								  PT_PY_NAMES_BUDGET));
}

static void put_python(struct pt_py_watch *w, pid_t pid, const struct pt_py *py)
{
	struct pt_py_state s = pt_py_state(py);
	struct pt_rec_python r;

	pt_rec_begin(&r, sizeof(r), PT_REC_PYTHON, pt_now_ns(), (uint32_t)pid);
	r.state = s.begin;
	r.bytes = s.bytes;
	r.minor = s.minor;
	put(w, &r, sizeof(r));
}

/* Where processes have their interpreters, with or without looks; and what it takes to sample
 * those that can be. */
static void tell_opened(struct pt_py_watch *w)
{
	const struct pt_py *py;
	struct pt_py_found f;
	pid_t pid;

	while (!w->gone && (py = pt_py_looks_opened(w->looks, &pid))) {
		put_python(w, pid, py);
		if (!w->ring || !pt_py_where(py, &f))
			continue;
		if (w->out.n_found == PT_PY_FOUND)
			flush(w);
		w->out.found[w->out.n_found++] = f;
	}
}

static void look_into(struct pt_py_watch *w, const pid_t *pids, size_t n)
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
static bool take(struct pt_py_watch *w)
{
	pid_t said[PT_PY_PROCESSES], pids[PT_PY_PROCESSES];
	ssize_t got = recv(w->sock, said, sizeof(said), 0);
	size_t n = got > 0 ? (size_t)got / sizeof(*said) : 0, i;

	if (!n)
		return got < 0 && errno == EINTR;
	w->resting = !said[0];
	if (w->resting)
		return true;
	for (i = 0; i < n; i++)
		pids[i] = said[i] < 0 ? -said[i] : said[i];
	qsort(pids, n, sizeof(*pids), pt_by_pid);
	pt_py_looks_keep(w->looks, pids, n);
	look_into(w, pids, n);
	for (i = 0; i < n; i++)
		pt_py_looks_sampled(w->looks, said[i] < 0 ? -said[i] : said[i], said[i] < 0);
	memcpy(w->pids, pids, n * sizeof(*pids));
	w->n_pids = n;
	return true;
}

#define SAMPLES_NS 100000000u /* so often they are taken out of their ring */

struct pt_py_watch *pt_py_watch_new(int sock, int ring, size_t bytes)
{
	struct pt_py_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->sock = sock;
	w->looks = pt_py_looks_new();
	if (!w->looks) {
		free(w);
		return NULL;
	}
	if (ring >= 0)
		w->ring = pt_ringbuf_open(ring, bytes, on_sample, w);
	return w;
}

static void end(struct pt_py_watch *w)
{
	pt_hash_free(w->told);
	pt_vec_free(&w->held);
	pt_ringbuf_free(w->ring);
	pt_py_looks_free(w->looks);
	free(w);
}

void pt_py_watch(struct pt_py_watch *w)
{
	struct pollfd p = { .fd = w->sock, .events = POLLIN };
	uint64_t was, next = 0, caught = 0, now;
	double part;
	bool due, stop = false;
	int n, ms = 1000;

	w->names_ns = pt_now_ns() + NAMES_NS;
	while (!w->gone && !stop) {
		n = poll(&p, 1, ms);
		if (n < 0 && errno != EINTR)
			break;
		was = cpu_ns();
		stop = n > 0 && !take(w);
		now = pt_now_ns();
		due = now >= next && !stop;
		if (due) {
			part = PT_PY_BUDGET - PT_PY_NAMES_BUDGET -
			       (w->sampled ? PT_PY_SAMPLES_BUDGET : 0);
			next = now + (uint64_t)(1e9 * pt_py_pause(look(w), part));
		}
		if (stop || !w->ring || now - caught >= SAMPLES_NS) {
			catch_up(w);
			caught = now;
		}
		tell_functions(w, stop);
		tell_opened(w);
		if (w->out.len || w->out.n_found || (due && w->seen.looks % 64 == 1))
			flush(w);
		w->seen.cpu_ns += cpu_ns() - was;
		now = pt_now_ns();
		ms = next > now ? (int)((next - now) / 1000000) + 1 : 0;
		if (w->ring && ms > (int)(SAMPLES_NS / 1000000))
			ms = SAMPLES_NS / 1000000;
	}
	if (!w->gone)
		flush(w);
	end(w);
}
