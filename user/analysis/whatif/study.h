/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: the questions about one job. fit.c finds the ways of running the model
 * that fit what was seen, range.c asks one question of all of them, ask.c has the
 * questions.
 */
#ifndef PT_WHATIF_STUDY_H
#define PT_WHATIF_STUDY_H

#include "analysis/whatif/job.h"

#define PT_WI_SEEDS 6
#define PT_WI_MAX_VARIANTS 8
#define PT_WI_MAX_ROWS 24
/* A part of a step below this is not worth a question. */
#define PT_WI_WORTH 0.02

/* One way of running the model that fits what was seen. */
struct pt_wi_variant {
	double cores, others;
	bool private_share;
	bool unknown_in_turn; /* where it is not known, one at a time */
	double gpu;
	double miss; /* of the observed step time, 0.03: by 3 % */
	double base[PT_WI_SEEDS]; /* nothing changed, with each seed */
};

struct pt_wi_study {
	struct pt_an *an;
	struct pt_wi_job o;
	struct pt_wi_variant v[PT_WI_MAX_VARIANTS];
	size_t n_variants;
	bool open; /* there are places of which it is not known */
	bool held; /* the data is held back above the disk */
	struct pt_wi_pool all, peers; /* of every worker; of those not slow */
	const struct pt_wi_pool *pool[PT_WI_MAX_WORKERS];
	struct pt_r_whatif row[PT_WI_MAX_ROWS];
	size_t n_rows;
	size_t waited; /* of the last question: steps whose batch was not there, in all runs */
	const char *unfit;
};

/* Today's job in one variant; the caller changes one thing. */
struct pt_wi_run pt_wi_base_run(const struct pt_wi_study *s,
				const struct pt_wi_variant *v, uint64_t seed);
/* Let every worker draw from its own samples again. */
void pt_wi_todays_pools(struct pt_wi_study *s);
/* 0 or -ENOMEM; says in unfit when nothing fits. */
int pt_wi_fit(struct pt_wi_study *s);

/* A question: what is changed. */
struct pt_wi_change {
	const char *name; /* the row's */
	int64_t value;
	int ways;	  /* it may cost this or that */
	bool workers, slow_fixed, no_locks, no_tail, no_pause, any_order, core,
		overlapped, no_syncs;
	bool may_be_none; /* ... or nothing is won: a limit may leave no room */
	uint32_t gone;	  /* causes (1 << enum pt_cause) that take no time */
};
/* Fill a row: speedup and step_ms, or a note of why not. 0 or -ENOMEM. */
int pt_wi_ask(struct pt_wi_study *s, struct pt_r_whatif *row,
	      const struct pt_wi_change *c);
/* ask.c: make the change, in one of its ways. */
void pt_wi_apply(struct pt_wi_study *s, struct pt_wi_run *r,
		 const struct pt_wi_change *c, int way);

#endif
