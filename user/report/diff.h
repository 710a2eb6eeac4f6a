/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The comparison of two or more reports: what the analysis found, and the only
 * thing that a renderer of it sees. Field names follow the JSON contract
 * ("pipetrace.diff/1", docs/diff.schema.json).
 *
 * Units and "not observed" as in report.h. Ownership: everything lies in the
 * arena and dies with pt_diff_free(), but the reports, which are the caller's
 * and must live as long.
 */
#ifndef PT_DIFF_H
#define PT_DIFF_H

#include "report/report.h"

#define PT_DIFF_SCHEMA "pipetrace.diff/1"
#define PT_D_INPUTS_MAX 26 /* they go by letters */

/* Parts of a step, as in the report's breakdown. */
#define PT_D_PARTS(X)                                                          \
	X(DATA_WAIT, data_wait) X(GPU_WAIT, gpu_wait) X(TRANSFER, transfer)    \
	X(SYNC, sync) X(LAUNCH, launch) X(COLLECTIVE, collective)              \
	X(CHECKPOINT, checkpoint) X(OTHER, other)
enum pt_d_part {
#define X(id, name) PT_D_##id,
	PT_D_PARTS(X)
#undef X
	PT_D_PART_NR
};
const char *pt_d_part_name(enum pt_d_part p);

/* What is ranked and compared: samples per second where every input knows its
 * batch size, else steps per second. */
enum pt_d_by { PT_D_BY_STEPS = 0, PT_D_BY_SAMPLES };
const char *pt_d_by_name(enum pt_d_by by);

enum pt_d_result {
	PT_D_UNKNOWN = 0,
	PT_D_FASTER,	   /* more than noise, and not tiny */
	PT_D_SLOWER,
	PT_D_NO_DIFFERENCE, /* within noise, or tiny */
};
const char *pt_d_result_name(enum pt_d_result r);

enum pt_d_idle { /* GPU idle of the other against the base */
	PT_D_IDLE_UNKNOWN = 0, /* one of them does not know it */
	PT_D_IDLE_CANNOT_TELL, /* the bounds overlap */
	PT_D_IDLE_LOWER,
	PT_D_IDLE_HIGHER,
};
const char *pt_d_idle_name(enum pt_d_idle i);

struct pt_d_input {
	const struct pt_report *r;
	const char *path; /* as given */
	const char *name; /* its labels, else its file name */
	bool recording;	  /* a record stream; else a JSON report */
	double step_ms;	  /* mean period of whole steps */
	double per_second, samples_per_second;
	int64_t batch_size;
	double batches_per_step;   /* 1 but for loops that fetch several */
	double data_wait_share;	   /* of trainer wall */
	double idle_share;	   /* of the GPU; mean over the GPUs */
	double idle_hard[2];	   /* its bounds */
	double part_ms[PT_D_PART_NR]; /* per step; they sum to step_ms */
	double cause_ms[PT_CAUSE_NR]; /* per step; they sum to data_wait */
	const double *period_ms;   /* of whole steps, in order; NULL: unknown */
	size_t n_periods;
	const char *untested;	   /* why significance cannot be told, or NULL */
};

struct pt_d_setting { /* something that is not the same in both */
	const char *name, *base, *other; /* values; NULL: not there */
};

struct pt_d_pair {
	size_t base, other; /* indexes of inputs */
	/* throughput of the other / of the base; bounds NAN when not tested */
	struct pt_range speedup;
	const char *untested; /* why, or NULL: tested */
	bool significant;     /* the interval leaves out 1 */
	enum pt_d_result result;
	double block[2], freedom; /* of the bootstrap: see bootstrap.h */
	enum pt_d_idle idle;
	const struct pt_d_setting *settings;
	size_t n_settings;
};

struct pt_d_rank {
	size_t input;
	double value;	      /* samples/s or steps/s */
	enum pt_d_result against_best; /* SLOWER, NO_DIFFERENCE or UNKNOWN */
};

struct pt_diff {
	struct pt_arena *arena;
	enum pt_d_by by;
	double level, small; /* of the intervals; a difference below is tiny */
	size_t replicates;
	uint64_t seed;
	const struct pt_d_input *inputs;
	size_t n_inputs;
	const struct pt_d_pair *pairs; /* each later input with the first */
	size_t n_pairs;
	const struct pt_d_rank *ranking; /* best first; unknown last */
	const char *const *notes;	 /* what weakens the comparison */
	size_t n_notes;
};

void pt_diff_free(struct pt_diff *d);

#endif
