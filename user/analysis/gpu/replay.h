/* SPDX-License-Identifier: BSD-2-Clause */
/* A replay of the operations of a process' devices, with a cost for each. */
#ifndef PT_ANALYSIS_GPU_REPLAY_H
#define PT_ANALYSIS_GPU_REPLAY_H

#include "analysis/gpu/passes.h"

enum pt_replay_mode { PT_REPLAY_LOW, PT_REPLAY_MID, PT_REPLAY_HIGH, PT_REPLAY_NR };

struct pt_gclass { /* operations that should take the same time */
	uint64_t id[2]; /* kind and key; hashed as they are */
	uint32_t index;
	double ns[PT_REPLAY_NR]; /* a launch, or of a copy: times its nominal time */
	bool seen;  /* some stretch showed it */
	size_t apart; /* of the pass: stretches in which it had ended before a pause */
	size_t stretch; /* the last that was looked at */
	bool fixed; /* copies that held their caller: their time was seen */
	UT_hash_handle hh;
};

struct pt_gsample {
	uint32_t cls;
	double ns, weight;
	double piece; /* how long the work lasted that it was seen in, ns */
	bool less;    /* ... and it took no more than this: its end was not seen */
};

/* An operation whose end no sync has shown yet, in their order. */
struct pt_gopen {
	uint64_t at; /* may begin */
	double ns;   /* by its class; RECORD and WAIT take none */
	uint32_t op, stream;
	uint8_t kind; /* both as of the operation, which lies far away */
	bool fixed;  /* known too well to be scaled */
	bool collective;
	bool in;     /* the sync that is looked at waits for it */
};

/* One of the stretch that is looked at, all that a sync waits for, in order. */
struct pt_gwork {
	double at, ns;	 /* as of the open operation; both exact in it */
	uint32_t op;	 /* WAIT: its RECORD */
	uint32_t stream;
	uint32_t open;	 /* index of the open operation */
	uint32_t place;	 /* RECORD, WAIT: in rise; 0: ended is known */
	uint8_t kind;	 /* a RECORD that nothing of the stretch waits for lacks */
	bool fixed;
};

/* How the costs of a stretch are scaled so that it ends when it did. */
struct pt_scaling {
	size_t from;  /* open operations before this one stay as they are, ... */
	size_t at;    /* ... and those of `work` before this one */
	double scale;
	bool fixed;   /* also those whose time is known */
};
static const struct pt_scaling pt_as_is = { .scale = 1 };

/* Of numbers: fmax() is a call. */
static inline double pt_later(double a, double b)
{
	return a > b ? a : b;
}

struct pt_replay_stream {
	uint64_t free;	/* what is no longer open is over */
	uint32_t open;	/* operations */
	uint32_t limit; /* the sync waits for those before this one */
	double now;	/* of the simulation */
	double rise;	/* ... by how much it moves with the scale */
	bool shown;	/* a sync has shown an end already */
};

struct pt_replay_dev {
	pt_spans busy, compute, copy, collective;
	uint64_t unseen_ns; /* of busy: operations of which no end was seen */
};

struct pt_replay {
	const struct pt_gqueue *q;
	PT_VEC(struct pt_gclass *) classes;
	struct pt_gclass *hash;
	uint32_t *cls;	 /* of each operation */
	uint64_t *ended; /* of each RECORD: when what came before it was done */
	struct pt_replay_stream *streams;
	PT_VEC(struct pt_gopen) open;
	/* the stretch (solve.c) */
	PT_VEC(struct pt_gwork) work;
	size_t loose;	 /* behind its last open operation that is not fixed */
	bool unseen;	 /* something of which no stretch showed how long it takes */
	uint32_t *place; /* of each RECORD of it, + 1 */
	uint32_t places;
	PT_VEC(double) rise; /* by place: what its end moves by, with the scale */
	double *now;	     /* of each stream, and `before` of all: where the part ... */
	double before;	     /* ... that is scaled begins */
	PT_VEC(struct pt_gsample) samples;
	size_t ends, quick; /* stretches of the pass: their end was seen; it had come before */
	struct pt_replay_dev dev[PT_NODES_MAX];
	enum pt_replay_mode mode;
	bool learn; /* samples are asked for */
	int round; /* of the fit */
	double moved; /* ... by so much, of itself, some cost did in it at most */
	double late_ns;
	uint64_t submit_ns;
};

/* 0 or -ENOMEM each; pt_replay_close() in any case. */
int pt_replay_open(struct pt_replay *r);
/* One replay: fills dev[] (not tidy), or with `learn` the samples, for which a part
 * of very many operations is enough. `late_ns`: the device was done so long before
 * the first who was woken for it; `submit_ns`: an operation reaches the device so
 * long behind its call's begin. */
int pt_replay_pass(struct pt_replay *r, enum pt_replay_mode mode, bool learn,
		   double late_ns, uint64_t submit_ns);
/* No copy takes so many times its nominal time (240 MB/s): it waited for what was before it. */
#define PT_COPY_SLOWEST 50
/* The time of an operation whose class costs 1, ns. */
double pt_gop_nominal(const struct pt_gop *op);
/* costs.c: costs of copies that held their caller. 0 or -ENOMEM. */
int pt_replay_time_copies(struct pt_replay *r);
/* New costs from the samples of the last pass (costs.c). */
int pt_replay_learn(struct pt_replay *r);
void pt_replay_close(struct pt_replay *r);

/* ---- solve.c ------------------------------------------------------------- */
/* The stretch that sync `op`, operation `at`, waits for; work is empty where
 * there is nothing to run. 0 or -ENOMEM. */
int pt_replay_stretch(struct pt_replay *r, uint32_t at, const struct pt_gop *op);
/* Each stream to where the stretch before left it. */
void pt_replay_rewind(struct pt_replay *r);
/* Run the stretch; when it ends, ns. *last (may be NULL): where in `work` its
 * last piece of work without a pause begins. */
double pt_replay_simulate(struct pt_replay *r, const struct pt_scaling *x,
			  size_t *last);
/* The scaling with which the stretch, which is not empty, ends at `end` ns. */
struct pt_scaling pt_replay_solve(struct pt_replay *r, double end);

#endif
