// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/pieces.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/piece.h"
#include "model/timeline.h"

/* For what a piece keeps: some hundred kilobytes, and more with many steps.
 * Address space, no memory, until it is used. */
#define ROOM (256ull << 20)

struct result { /* at the begin of the room */
	struct pt_piece *piece; /* NULL: it could not be made */
};
#define HEAD 64

static const struct pt_piece *latest(const struct pt_long *l)
{
	return l->pieces.n ? l->pieces.v[l->pieces.n - 1] : NULL;
}

static void collect(struct pt_long *l)
{
	struct result *r;
	int status;

	if (l->pid <= 0)
		return;
	while (waitpid(l->pid, &status, 0) < 0 && errno == EINTR)
		;
	l->pid = 0;
	r = l->rooms.v[l->rooms.n - 1].shared;
	if (!r->piece || pt_vec_push(&l->pieces, r->piece)) {
		l->broken = true;
		return;
	}
}

/* The piece, in memory that both processes see at the same place. */
static int make_shared(struct pt_model *m, const struct pt_analysis_opts *o,
		       const struct pt_piece *before, uint64_t cut, bool whatif,
		       void *room)
{
	struct pt_arena *a = pt_arena_in((char *)room + HEAD, ROOM - HEAD);
	struct result *r = room;
	struct pt_piece *p;

	if (!a || pt_piece_make(m, o, before, cut, whatif, a, &p))
		return -ENOMEM;
	r->piece = p;
	return 0;
}

/* No process can be had: here, then. */
static int make_here(struct pt_long *l, struct pt_model *m,
		     const struct pt_analysis_opts *o, uint64_t cut, bool whatif)
{
	struct pt_piece_room room = { .heap = pt_arena_new() };
	struct pt_piece *p;
	int err;

	if (!room.heap)
		return -ENOMEM;
	err = pt_piece_make(m, o, latest(l), cut, whatif, room.heap, &p);
	if (!err && pt_vec_push(&l->rooms, room))
		err = -ENOMEM;
	if (err) {
		pt_arena_free(room.heap);
		return err;
	}
	return pt_vec_push(&l->pieces, p);
}

static int start(struct pt_long *l, struct pt_model *m,
		 const struct pt_analysis_opts *o, uint64_t cut)
{
	bool whatif = l->ask_every && l->rooms.n % l->ask_every == l->ask_every / 2;
	struct pt_piece_room room = { 0 };
	pid_t pid;

	room.shared = mmap(NULL, ROOM, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room.shared == MAP_FAILED)
		return make_here(l, m, o, cut, whatif);
	pid = fork();
	if (pid == 0) {
		make_shared(m, o, latest(l), cut, whatif, room.shared);
		_exit(0);
	}
	if (pid < 0) {
		munmap(room.shared, ROOM);
		return make_here(l, m, o, cut, whatif);
	}
	l->pid = pid;
	if (!pt_vec_push(&l->rooms, room))
		return 0;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	l->pid = 0;
	munmap(room.shared, ROOM);
	return -ENOMEM;
}

int pt_long_spill(struct pt_long *l, struct pt_model *m,
		  const struct pt_analysis_opts *o, uint64_t max_bytes)
{
	struct pt_analysis_opts a = { .batch_size = o->batch_size,
				      .thresholds = o->thresholds };
	uint64_t from, cut;
	int err;

	if (pt_model_bytes(m) <= max_bytes)
		return 0;
	collect(l);
	from = pt_max64(l->pieces.n ? pt_piece_end(latest(l)) : 0,
			m->begin ? m->begin : m->first_ts);
	cut = from + (uint64_t)(PT_PIECE_SHARE *
				(double)(m->last_ts - pt_min64(from, m->last_ts)));
	if (l->broken || cut <= from)
		return pt_model_trim(m, max_bytes);
	pt_model_keep_samples(m);
	err = pt_model_settle(m);
	if (!err)
		err = start(l, m, &a, cut);
	if (err) {
		l->broken = true;
		return pt_model_trim(m, max_bytes);
	}
	return pt_model_cut(m, cut - (cut - from) / PT_PIECE_MARGIN);
}

bool pt_long_ready(struct pt_long *l)
{
	collect(l);
	return l->pieces.n && !l->broken;
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

int pt_long_analyze(struct pt_long *l, struct pt_model *m,
		    const struct pt_analysis_opts *o, struct pt_report *r)
{
	int err = hand_over(l, r);

	if (err)
		return err;
	return pt_analyze_pieces(m, o, l->pieces.v, l->pieces.n, r);
}

int pt_long_limit(const struct pt_long *l, const struct pt_model *m,
		  struct pt_report *r)
{
	double s = (double)(m->end > m->begin ? m->end - m->begin : 0) / NS_PER_S;

	if (l->broken)
		return pt_report_limit(r, "capture", "The capture is too long to be held at once, and a piece of it could not be looked at: the report is of the last %.1f s.",
				       s);
	if (!l->pieces.n)
		return 0;
	return pt_report_limit(r, "capture.timeline", "The capture is too long to be held at once: the report is of all of it, put together of %zu pieces; timelines, in pages and exports, have its last %.1f s.",
			       l->pieces.n + 1, s);
}

void pt_long_free(struct pt_long *l)
{
	size_t i;

	collect(l);
	for (i = 0; i < l->rooms.n; i++)
		drop_room(&l->rooms.v[i]);
	pt_vec_free(&l->rooms);
	pt_vec_free(&l->pieces);
}
