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

static void drop_room(struct pt_piece_room *x)
{
	while (x->pid > 0 && waitpid(x->pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (x->known >= 0)
		close(x->known);
	if (x->shared)
		munmap(x->shared, ROOM);
}

static int join(struct pt_long *l, struct pt_part *p)
{
	if (!l->done)
		l->done = pt_join_new();
	return l->done ? pt_join_add(l->done, p) : -ENOMEM;
}

/* The oldest of those at work. */
static void collect(struct pt_long *l)
{
	struct pt_piece_room x = l->rooms.v[0];
	struct result *r = x.shared;

	memmove(l->rooms.v, l->rooms.v + 1, --l->rooms.n * sizeof(x));
	while (waitpid(x.pid, NULL, 0) < 0 && errno == EINTR)
		;
	x.pid = 0;
	if (!r->piece || join(l, r->piece))
		l->broken = true;
	drop_room(&x);
}

static void collect_all(struct pt_long *l)
{
	while (!l->broken && l->rooms.n)
		collect(l);
}

/* Where the last piece ends; NULL: there is none, or it is lost. */
static const struct pt_part_head *newest(struct pt_long *l)
{
	struct pt_piece_room *x;
	ssize_t n = 1;
	char c;

	if (!l->rooms.n)
		return l->done ? pt_join_head(l->done) : NULL;
	x = &l->rooms.v[l->rooms.n - 1];
	while (x->known >= 0 && (n = read(x->known, &c, 1)) < 0 && errno == EINTR)
		;
	if (x->known >= 0)
		close(x->known);
	x->known = -1;
	l->broken = n != 1;
	return l->broken ? NULL : ((struct result *)x->shared)->head;
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
		     struct pt_part_ask *ask)
{
	struct pt_arena *a = pt_arena_new();
	struct pt_part *p = NULL;
	int err;

	collect_all(l);
	ask->before = newest(l); /* it may have been in a room */
	err = a && !l->broken ? pt_part_make(m, o, ask, a, &p) : -ENOMEM;
	if (err)
		pt_part_drop(p);
	err = err ?: pt_part_keep(p, a) ?: join(l, p);
	pt_arena_free(a);
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
	struct pt_piece_room room = { .shared = new_room() };
	int fds[2] = { -1, -1 };

	ask->whatif = l->ask_every && l->n % l->ask_every == l->ask_every / 2;
	l->n++;
	if (room.shared && !pipe2(fds, O_CLOEXEC))
		room.pid = fork();
	if (room.shared && fds[0] >= 0 && room.pid == 0) {
		make_shared(m, o, ask, room.shared, fds[1]);
		_exit(0);
	}
	if (fds[1] >= 0)
		close(fds[1]);
	room.known = fds[0];
	if (room.pid > 0 && !pt_vec_push(&l->rooms, room))
		return 0;
	drop_room(&room);
	return make_here(l, m, o, ask);
}

bool pt_long_busy(const struct pt_long *l)
{
	const struct pt_piece_room *x;
	siginfo_t ended = { 0 };

	if (!l->rooms.n)
		return false;
	x = &l->rooms.v[l->rooms.n - 1];
	return !waitid(P_PID, (id_t)x->pid, &ended, WEXITED | WNOHANG | WNOWAIT) &&
	       !ended.si_pid;
}

/* Who ended before the last cut becomes a sum, but for whom the pieces point to: all of
 * them must be there. */
static void fold(struct pt_long *l, struct pt_model *m)
{
	if (!pt_model_foldable(m))
		return;
	collect_all(l);
	if (l->done)
		pt_join_hold(m, l->done);
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
	while (!l->broken && l->rooms.n >= at_once(l))
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

/* What a report of parts does not show. */
static int limit(const struct pt_long *l, const struct pt_model *m,
		 struct pt_report *r)
{
	double s = (double)(m->end > m->begin ? m->end - m->begin : 0) / NS_PER_S;

	if (l->broken)
		return pt_report_limit(r, "capture", "The capture is too long to be held at once, and a piece of it could not be looked at: the report is of the last %.1f s.",
				       s);
	if (!l->n)
		return 0;
	return pt_report_limit(r, "capture.timeline", "The capture is too long to be held at once: the report is of all of it, put together of %zu pieces; before its last %.1f s the timeline of a page has averages of what threads and devices did, that of an export only steps and waits; --window shows all of any part.",
			       l->n + 1, s);
}

int pt_long_report(struct pt_long *l, struct pt_model *m,
		   const struct pt_analysis_opts *o, struct pt_report *r)
{
	struct pt_join *j;
	int err = 0, more;

	collect_all(l);
	j = l->broken ? NULL : l->done;
	if (j) { /* the report points into it */
		err = pt_arena_own(r->arena, pt_join_free, j);
		l->done = err ? j : NULL;
	}
	err = err ?: pt_analyze_parts(m, o, j, r);
	more = limit(l, m, r);
	return err ? err : more;
}

void pt_long_free(struct pt_long *l)
{
	pt_each(struct pt_piece_room, x, &l->rooms) {
		drop_room(x);
	}
	pt_vec_free(&l->rooms);
	pt_join_free(l->done);
}
