/* SPDX-License-Identifier: BSD-2-Clause */
/* A replay of the operations of a process' devices, with a cost for each. */
#ifndef PT_ANALYSIS_GPU_REPLAY_H
#define PT_ANALYSIS_GPU_REPLAY_H

#include "analysis/gpu_int.h"

enum pt_replay_mode { PT_REPLAY_LOW, PT_REPLAY_MID, PT_REPLAY_HIGH, PT_REPLAY_NR };

struct pt_gclass { /* operations that should take the same time */
	uint64_t id[2]; /* kind and key; hashed as they are */
	uint32_t index;
	double ns[PT_REPLAY_NR]; /* a launch, or of a copy: times its nominal time */
	bool seen;  /* some stretch showed it */
	bool fixed; /* copies that held their caller: their time was seen */
	UT_hash_handle hh;
};

struct pt_gsample {
	uint32_t cls;
	double ns, weight;
};

struct pt_gunit {
	uint64_t at; /* may begin */
	double ns;   /* by its class */
	uint32_t op;
	bool fixed;  /* known too well to be scaled */
};

struct pt_replay_stream {
	PT_VEC(struct pt_gunit) open; /* whose end no sync has shown yet */
	uint64_t free;	/* what came before them is over */
	uint64_t end;	/* ... and they, as it seems */
	uint64_t waits; /* for events */
};

struct pt_replay_dev {
	pt_spans busy, compute, copy, collective;
};

struct pt_replay {
	const struct pt_gqueue *q;
	PT_VEC(struct pt_gclass *) classes;
	struct pt_gclass *hash;
	uint32_t *cls;	 /* of each operation */
	uint64_t *ended; /* of each RECORD: when what came before it was done */
	struct pt_replay_stream *streams;
	PT_VEC(struct pt_gsample) samples;
	struct pt_replay_dev dev[PT_NODES_MAX];
	enum pt_replay_mode mode;
	double late_ns;
};

/* 0 or -ENOMEM each; pt_replay_close() in any case. */
int pt_replay_open(struct pt_replay *r);
/* One replay: fills dev[] (not tidy) and the samples. */
int pt_replay_pass(struct pt_replay *r, enum pt_replay_mode mode, double late_ns);
/* New costs from the samples of the last pass. */
int pt_replay_learn(struct pt_replay *r);
void pt_replay_close(struct pt_replay *r);

#endif
