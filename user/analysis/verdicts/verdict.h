/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verdicts: one file each, one line in table.c each. A judge looks at the
 * facts and says yes (1), no (0) or -ENOMEM; on yes it fills `v`.
 */
#ifndef PT_VERDICT_H
#define PT_VERDICT_H

#include "analysis/internal.h"

/* PRACTICE: above 30 % idle is bad, below 10 % is the goal. */
#define PT_STARVED_INFO 0.10
#define PT_STARVED_WARNING 0.20
#define PT_STARVED_CRITICAL 0.30
/* A cause is the root from this share of the data wait, when no other group
 * has more. */
#define PT_ROOT_SHARE 0.30
/* CPU-bound loading whose wait is a quarter run queue lacks cores. */
#define PT_RUNQ_SHARE 0.25
/* One worker has to hold this share of the blocked waiting. */
#define PT_SLOW_SHARE 0.50
#define PT_MIN_STEPS 3

enum pt_root_group {
	PT_GROUP_CPU, /* cpu and run queue */
	PT_GROUP_IO,
	PT_GROUP_IPC,
	PT_GROUP_NETWORK,
	PT_GROUP_LOCK,
	PT_GROUP_IDLE,
	PT_GROUP_UNKNOWN,
	PT_GROUP_NR
};

struct pt_facts {
	struct pt_trainer *t; /* NULL: no GPU job was seen */
	double wall_s;
	double wait_share;		/* data wait of wall */
	double starved_lo, starved, starved_hi; /* share of wall */
	double starved_shown; /* what the verdict rests on */
	bool bounded;	      /* ... is the lower bound, not the likely value */
	bool is_starved;      /* from PT_STARVED_INFO */
	enum pt_severity severity;
	enum pt_confidence confidence;
	double cause[PT_CAUSE_NR];	/* share of the data wait */
	double group[PT_GROUP_NR];
	enum pt_root_group largest;
	double idle_hard;		/* share of wall */
	double idle;			/* likely; NAN unknown */
	const struct pt_worker *slow;	/* the slow worker that matters */
	double slow_charge;		/* share of blocked waiting charged to it */
	size_t whole_steps;
	const char *insufficient;	/* reason, or NULL */
	double step_ms;
	int64_t cores;			/* 0 unknown */
};

struct pt_verdict_def {
	const char *id;
	bool root; /* explains starvation; the first root that says yes wins */
	int (*judge)(struct pt_an *an, const struct pt_facts *f,
		     struct pt_r_verdict *v);
};
extern const struct pt_verdict_def pt_verdicts[];
extern const size_t pt_verdict_count;

int pt_judge_insufficient_data(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_main_thread_loading(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_slow_worker(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_io_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_cpu_oversubscribed(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_cpu_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_gpu_starved(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_balanced(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);

/* ---- for the judges ----------------------------------------------------- */
/* Room for `max` pieces of evidence; then add them. -ENOMEM or 0. */
int pt_evidence_start(struct pt_an *an, struct pt_r_verdict *v, size_t max);
void pt_evidence_add(struct pt_r_verdict *v, const char *metric, double value,
		     const char *unit, double threshold,
		     enum pt_certainty certainty);
/* The evidence that every verdict about starvation carries. */
int pt_evidence_starved(struct pt_an *an, const struct pt_facts *f,
			struct pt_r_verdict *v, size_t more);
/* Old step time over new: at least 1, at most that without the starved time.
 * What a change would win of it is for a replay of the loader to say. */
void pt_speedup_bound(const struct pt_facts *f, struct pt_range *out);
/* The same for one change (a row of the report's what-if), as its replay tells;
 * the bound where it cannot. Whether it could be told. */
bool pt_expected_speedup(const struct pt_an *an, const struct pt_facts *f,
			 const char *change, struct pt_range *out);
/* The best worker count by the replay, if it is told to win something. 0 */
int64_t pt_better_workers(const struct pt_an *an, const struct pt_facts *f);
/* Workers that would hide the loading at today's cost of a batch. */
int pt_workers_needed(const struct pt_facts *f);

#endif
