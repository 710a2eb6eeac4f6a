/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verdicts: one file each, one line in table.c each. A judge looks at the
 * facts and says yes (1), no (0) or -ENOMEM; on yes it fills `v`.
 */
#ifndef PT_VERDICT_H
#define PT_VERDICT_H

#include "analysis/health.h"
#include "analysis/verdicts/thresholds.h"

enum pt_root_group {
	PT_GROUP_CPU, /* cpu and run queue */
	PT_GROUP_IO,
	PT_GROUP_IPC,
	PT_GROUP_NETWORK,
	PT_GROUP_LOCK,
	PT_GROUP_SLEEP,
	PT_GROUP_IDLE,
	PT_GROUP_UNKNOWN,
	PT_GROUP_NR
};

struct pt_facts {
	const struct pt_thresholds *th;
	struct pt_trainer *t; /* NULL: no GPU job was seen */
	double wall_s;
	double wait_share;		/* data wait of wall */
	double own;  /* of the data wait: the trainer loads by itself */
	double starved_lo, starved, starved_hi; /* share of wall */
	double starved_shown; /* what the verdict rests on */
	bool bounded;	      /* ... is the lower bound, not the likely value */
	bool is_starved;      /* from PT_STARVED_INFO */
	enum pt_severity severity;
	enum pt_confidence confidence;
	double cause[PT_CAUSE_NR];	/* share of the data wait */
	double group[PT_GROUP_NR];
	double asked; /* share of the data wait: makers wait for each other's lock */
	double queue; /* share of it: those who make batches lack a core */
	enum pt_root_group largest;
	double idle_hard;		/* share of wall */
	double idle;			/* likely; NAN unknown */
	const struct pt_worker *slow;	/* the slow worker that matters */
	double slow_charge;		/* share of blocked waiting charged to it */
	double worker_waits; /* share of the data wait: workers in a wait that
			      * has no name (a sleep, a device of their own) */
	/* device idle for other reasons, shares of wall */
	double sync, launch, transfer, checkpoint, host_bound;
	double host; /* its own work between GPU calls */
	double writing; /* trainer writes files, idle or not */
	double demand; /* share of what was waited for that is to be asked */
	double client; /* ... share of wall */
	bool no_demand;
	struct pt_hung hung;
	struct pt_pool pool;
	struct pt_item item;
	struct pt_tail tail;
	struct pt_steady steady;
	struct pt_growth growth;
	double gpu_growth; /* bytes a minute; NAN: none shown */
	struct pt_gpu_balance gpu_balance;
	size_t whole_steps;
	bool halves_agree; /* both halves of the capture have the same largest group */
	const char *insufficient;	/* reason, or NULL */
	double step_ms;
	int64_t cores;			/* 0 unknown */
	const char *data_root; /* the root of starvation, once found */
	double *lost; /* a judge's word: share of wall that its verdict costs;
		       * preset to the starved share for causes of starvation */
};

enum pt_verdict_kind {
	PT_V_FRONT,  /* makes the others meaningless */
	PT_V_HUNG,   /* ... and is why the device starves */
	PT_V_RANK,   /* which of several ranks the whole job waits for */
	PT_V_DATA,   /* explains starvation; the first that says yes wins */
	PT_V_RESULT, /* what a root of starvation leads to */
	PT_V_IDLE,   /* explains other idle time; several may hold */
	PT_V_CALM,   /* where nothing else was found */
	PT_V_BESIDE, /* a finding of its own */
};

struct pt_verdict_def {
	const char *id;
	enum pt_verdict_kind kind;
	int (*judge)(struct pt_an *an, const struct pt_facts *f,
		     struct pt_r_verdict *v);
	bool (*when)(const struct pt_facts *f); /* NULL: always */
};
extern const struct pt_verdict_def pt_verdicts[];
extern const size_t pt_verdict_count;

int pt_judge_insufficient_data(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_no_demand(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_hung_worker(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_main_thread_loading(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_slow_first_batch(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_slow_file(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_loader_restart(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_slow_item(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_slow_worker(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_network_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_page_fault_io(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_io_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_lock_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_ipc_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_cpu_oversubscribed(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_too_few_workers(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_cpu_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_gpu_starved(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_checkpoint_stall(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_transfer_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_host_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_host_lock(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_sync_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_launch_bound(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_balanced(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_unstable_steps(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_rank_straggler(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_host_memory_growth(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);
int pt_judge_gpu_memory_growth(struct pt_an *, const struct pt_facts *, struct pt_r_verdict *);

/* Add to a verdict on storage which kind of it the data wait was for, and how
 * its disk answers. */
void pt_evidence_storage(struct pt_an *an, struct pt_r_verdict *v);

/* certainty.c: by the evidence that the facts rest on; behind the judge. */
void pt_lower_certainty(const struct pt_facts *f, enum pt_verdict_kind kind,
			struct pt_r_verdict *v);

/* Fill `f` (zeroed before) from what the passes found. 0 or -ENOMEM. */
int pt_gather_facts(struct pt_an *an, struct pt_facts *f);
/* The verdicts by these facts, into the report. 0 or -ENOMEM. */
int pt_judge(struct pt_an *an, const struct pt_facts *f);

/* ---- for the judges ----------------------------------------------------- */
/* Room for evidence; then add it. -ENOMEM or 0. */
int pt_evidence_start(struct pt_an *an, struct pt_r_verdict *v);
void pt_evidence_add(struct pt_r_verdict *v, const char *metric, double value,
		     const char *unit, double threshold,
		     enum pt_certainty certainty);
/* The evidence that every verdict about starvation carries. */
int pt_evidence_starved(struct pt_an *an, const struct pt_facts *f,
			struct pt_r_verdict *v);
/* Old step time over new: at least 1, at most that without the starved time.
 * What a change would win of it is for a replay of the loader to say. */
void pt_speedup_bound(const struct pt_facts *f, struct pt_range *out);
/* The bound where `share` of the wall time is what can be won. */
void pt_speedup_share(double share, struct pt_range *out);
/* By the thresholds of idle time. */
enum pt_severity pt_severity_of(const struct pt_facts *f, double share);
/* The same for one change (a row of the report's what-if), as its replay tells;
 * the bound where it cannot. Whether it could be told. */
bool pt_expected_speedup(const struct pt_an *an, const struct pt_facts *f,
			 const char *change, struct pt_range *out);
/* The best worker count by the replay, if it is told to win something. 0 */
int64_t pt_better_workers(const struct pt_an *an, const struct pt_facts *f);
/* Workers that would hide the loading at today's cost of a batch. */
int pt_workers_needed(const struct pt_facts *f);

#endif
