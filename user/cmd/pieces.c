// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/pieces.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/parts/part.h"
#include "model/timeline.h"

/* For what a piece keeps: some hundred kilobytes, and more with many steps.
 * Address space, no memory, until it is used. */
#define ROOM (256ull << 20)

struct result { /* at the begin of the room */
	const struct pt_part_head *head;
	struct pt_part *piece; /* NULL: it could not be made */
};
#define HEAD 64
/* A part of fewer is not worth its process: a file may ask for one at each record. */
#define LEAST_RECORDS 200
/* Each takes memory of its own: what it changes, and its results. */
#define MAX_AT_ONCE 3

/* The oldest of those at work. */
static void collect(struct pt_long *l)
{
	struct pt_piece_room *x = &l->rooms.v[l->pieces.n];
	struct result *r = x->shared;
	int status;

	while (waitpid(x->pid, &status, 0) < 0 && errno == EINTR)
		;
	x->pid = 0;
	if (x->known >= 0)
		close(x->known);
	x->known = -1;
	if (!r->piece || pt_vec_push(&l->pieces, r->piece))
		l->broken = true;
}

static void collect_all(struct pt_long *l)
{
	while (!l->broken && l->pieces.n < l->rooms.n)
		collect(l);
}

/* Where the last piece ends; NULL: there is none, or it is lost. */
static const struct pt_part_head *newest(struct pt_long *l)
{
	struct pt_piece_room *x;
	ssize_t n;
	char c;

	if (!l->newest && l->rooms.n && l->pieces.n == l->rooms.n)
		l->newest = pt_part_head(l->pieces.v[l->pieces.n - 1]);
	if (l->newest || !l->rooms.n)
		return l->newest;
	x = &l->rooms.v[l->rooms.n - 1];
	while ((n = read(x->known, &c, 1)) < 0 && errno == EINTR)
		;
	if (n == 1)
		l->newest = ((struct result *)x->shared)->head;
	else
		l->broken = true;
	return l->newest;
}

static size_t at_once(struct pt_long *l)
{
	cpu_set_t cpus;
	int n;

	if (!l->at_once) {
		n = sched_getaffinity(0, sizeof(cpus), &cpus) ? 1 : CPU_COUNT(&cpus);
		l->at_once = n < MAX_AT_ONCE ? (size_t)n : MAX_AT_ONCE;
	}
	return l->at_once;
}

struct channel {
	struct result *r;
	int fd;
};

static void tell_head(void *ctx, const struct pt_part_head *h)
{
	struct channel *c = ctx;

	c->r->head = h;
	if (write(c->fd, "h", 1) != 1)
		_exit(1); /* nobody waits any more */
}

/* The piece, in memory that both processes see at the same place. */
static void make_shared(struct pt_model *m, const struct pt_analysis_opts *o,
			const struct pt_part_ask *ask, void *room, int fd)
{
	struct pt_arena *a = pt_arena_in((char *)room + HEAD, ROOM - HEAD);
	struct pt_part_ask mine = *ask;
	struct channel c = { room, fd };
	struct pt_part *p;

	mine.known = tell_head;
	mine.ctx = &c;
	if (a && !pt_part_make(m, o, &mine, a, &p) && !pt_part_keep(p, a))
		c.r->piece = p;
}

/* No process can be had: here, then. */
static int make_here(struct pt_long *l, struct pt_model *m,
		     const struct pt_analysis_opts *o,
		     const struct pt_part_ask *ask)
{
	struct pt_piece_room *x = &l->rooms.v[l->rooms.n - 1];
	struct pt_part *p;
	int err;

	l->rooms.n--;
	collect_all(l);
	l->rooms.n++;
	x->heap = pt_arena_new();
	err = x->heap && !l->broken ? pt_part_make(m, o, ask, x->heap, &p) :
				      -ENOMEM;
	err = err ?: pt_part_keep(p, x->heap);
	err = err ?: pt_vec_push(&l->pieces, p);
	if (!err)
		l->newest = pt_part_head(p);
	return err;
}

static void *new_room(void)
{
	void *p = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int start(struct pt_long *l, struct pt_model *m,
		 const struct pt_analysis_opts *o, struct pt_part_ask *ask)
{
	struct pt_piece_room room = { .known = -1 };
	int fds[2] = { -1, -1 };

	ask->whatif = l->ask_every &&
		      l->rooms.n % l->ask_every == l->ask_every / 2;
	if (pt_vec_push(&l->rooms, room))
		return -ENOMEM;
	l->newest = NULL;
	room.shared = new_room();
	if (room.shared && !pipe2(fds, O_CLOEXEC))
		room.pid = fork();
	if (room.shared && fds[0] >= 0 && room.pid == 0) {
		make_shared(m, o, ask, room.shared, fds[1]);
		_exit(0);
	}
	if (fds[1] >= 0)
		close(fds[1]);
	if (room.pid > 0) {
		room.known = fds[0];
		l->rooms.v[l->rooms.n - 1] = room;
		return 0;
	}
	if (fds[0] >= 0)
		close(fds[0]);
	if (room.shared)
		munmap(room.shared, ROOM);
	return make_here(l, m, o, ask);
}

bool pt_long_busy(const struct pt_long *l)
{
	const struct pt_piece_room *x;
	siginfo_t ended = { 0 };

	if (l->rooms.n <= l->pieces.n)
		return false;
	x = &l->rooms.v[l->rooms.n - 1];
	return x->pid > 0 &&
	       !waitid(P_PID, (id_t)x->pid, &ended, WEXITED | WNOHANG | WNOWAIT) &&
	       !ended.si_pid;
}

/* Who ended before the last cut becomes a sum, but for whom the pieces point to: all of
 * them must be there. */
static void fold(struct pt_long *l, struct pt_model *m)
{
	if (!pt_model_foldable(m))
		return;
	collect_all(l);
	for (; l->kept < l->pieces.n; l->kept++)
		pt_part_hold(m, l->pieces.v[l->kept]);
	pt_model_fold(m);
}

int pt_long_cut(struct pt_long *l, struct pt_model *m,
		const struct pt_analysis_opts *o)
{
	struct pt_analysis_opts a = { .batch_size = o->batch_size,
				      .thresholds = o->thresholds };
	struct pt_part_ask ask = { .tables = true, .row = true };
	uint64_t from, keep;
	int err;

	if (m->records - l->records < LEAST_RECORDS)
		return 0;
	l->records = m->records;
	while (!l->broken && l->rooms.n - l->pieces.n >= at_once(l))
		collect(l);
	fold(l, m);
	if (!l->broken)
		ask.before = newest(l);
	from = pt_max64(ask.before ? pt_part_end(ask.before) : 0,
			m->begin ? m->begin : m->first_ts);
	ask.cut = from + (uint64_t)(PT_PIECE_SHARE *
				    (double)(m->last_ts - pt_min64(from, m->last_ts)));
	if (l->broken || ask.cut <= from)
		return pt_model_cut(m, pt_model_middle(m));
	pt_model_keep_samples(m);
	err = pt_model_settle(m);
	err = err ?: start(l, m, &a, &ask);
	if (err) {
		l->broken = true;
		return pt_model_cut(m, pt_model_middle(m));
	}
	keep = ask.cut - (ask.cut - from) / PT_PART_MARGIN;
	err = l->past ? pt_past_take(l->past, m, keep) : 0;
	return err ? err : pt_model_cut(m, keep);
}

int pt_long_spill(struct pt_long *l, struct pt_model *m,
		  const struct pt_analysis_opts *o, uint64_t max_bytes)
{
	return pt_model_timelines(m) > max_bytes ? pt_long_cut(l, m, o) : 0;
}

static void drop_room(void *room)
{
	struct pt_piece_room *x = room;

	if (x->shared)
		munmap(x->shared, ROOM);
	pt_arena_free(x->heap);
}

/* The report points into the pieces: they go when it does. */
static int hand_over(struct pt_long *l, struct pt_report *r)
{
	while (l->rooms.n) {
		struct pt_piece_room *x = pt_arena_alloc(r->arena, sizeof(*x));

		if (!x)
			return -ENOMEM;
		*x = l->rooms.v[l->rooms.n - 1];
		if (pt_arena_own(r->arena, drop_room, x))
			return -ENOMEM;
		l->rooms.n--;
	}
	return 0;
}

/* What a report of parts does not show. */
static int limit(const struct pt_long *l, const struct pt_model *m,
		 struct pt_report *r)
{
	double s = (double)(m->end > m->begin ? m->end - m->begin : 0) / NS_PER_S;

	if (l->broken)
		return pt_report_limit(r, "capture", "The capture is too long to be held at once, and a piece of it could not be looked at: the report is of the last %.1f s.",
				       s);
	if (!l->pieces.n)
		return 0;
	return pt_report_limit(r, "capture.timeline", "The capture is too long to be held at once: the report is of all of it, put together of %zu pieces; before its last %.1f s the timeline of a page has averages of what threads and devices did, that of an export only steps and waits; --window shows all of any part.",
			       l->pieces.n + 1, s);
}

int pt_long_report(struct pt_long *l, struct pt_model *m,
		   const struct pt_analysis_opts *o, struct pt_report *r)
{
	size_t n;
	int err, more;

	collect_all(l);
	n = l->broken ? 0 : l->pieces.n;
	err = n ? hand_over(l, r) : 0;
	err = err ?: pt_analyze_parts(m, o, l->pieces.v, n, r);
	more = limit(l, m, r);
	return err ? err : more;
}

void pt_long_free(struct pt_long *l)
{
	pt_each(struct pt_piece_room, x, &l->rooms) {
		while (x->pid > 0 && waitpid(x->pid, NULL, 0) < 0 && errno == EINTR)
			;
		if (x->pid > 0 && x->known >= 0)
			close(x->known);
		drop_room(x);
	}
	pt_vec_free(&l->rooms);
	pt_vec_free(&l->pieces);
}
