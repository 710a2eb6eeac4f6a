/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verdicts: a line in report/verdicts.def each, and a file here of the same name,
 * which looks at the facts, decides, and writes sentence, evidence and advice.
 */
#ifndef PT_VERDICT_H
#define PT_VERDICT_H

#include "analysis/health.h"
#include "analysis/io/kind.h"
#include "analysis/verdicts/thresholds.h"
#include "report/verdicts.h"

enum pt_root_group {
	PT_GROUP_CPU, /* cpu and run queue */
	PT_GROUP_IO,
	PT_GROUP_IPC,
	PT_GROUP_NETWORK,
	PT_GROUP_LOCK,
	PT_GROUP_SLEEP,
	PT_GROUP_IDLE,
	PT_GROUP_STOPPED,
	PT_GROUP_UNKNOWN,
	PT_GROUP_NR
};

struct pt_facts {
	const struct pt_thresholds *th;
	struct pt_trainer *t; /* NULL: no GPU job was seen */
	double wall_s;
	double wait_share;		/* data wait of wall */
	bool unfed; /* batches go up, and nobody was seen to make them */
	double own;  /* of the data wait: the trainer loads by itself */
	double programs; /* ... it waits for a program that it has just started */
	double silent;	 /* ... and of which it reads nothing */
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
	double busy_sure; /* at least, by the calls or by the driver's counter, share of wall */
	double idle;			/* likely; NAN unknown */
	double idle_open; /* so much of that may be work all the same, share of wall */
	double idle_driver; /* idle at least, by the driver's counter; 0: unknown */
	const struct pt_worker *slow;	/* the slow worker that matters */
	double slow_charge;		/* share of blocked waiting charged to it */
	bool lonely; /* most is charged to one, and how fast its peers are is not known */
	double stopped; /* share of the data wait: somebody had been stopped */
	double vain; /* ... the trainer itself slept until its own time was over */
	double halted; /* share of wall: the training thread had been */
	double kernel; /* share of the data wait: who makes batches computes in the kernel */
	bool kernel_reads; /* ... no longer than so many waits for storage take */
	bool reads_decide; /* ... and without that storage would not be the largest cause */
	double worker_waits; /* share of the data wait: workers in a wait that
			      * has no name (a sleep, a device of their own) */
	/* device idle for other reasons, shares of wall */
	double sync, launch, transfer, checkpoint, host_bound;
	double copying; /* share of wall: the device only copies, by the costs that fit */
	bool taken; /* each step it takes something of a thread that it never waits for */
	double host; /* its own work between GPU calls ... */
	const struct pt_host_place *host_place; /* where it costs most; NULL none */
	enum pt_host_kind host_what; /* ... and what most of that is */
	bool host_once; /* ... which is a single wait for others: what for is a guess */
	double writing; /* trainer writes files, idle or not */
	double demand; /* share of what was waited for that is to be asked */
	double client; /* ... share of wall */
	bool no_demand;
	struct pt_hung hung;
	struct pt_pool pool;
	bool in_turn; /* hardly two workers compute at once */
	struct pt_item item;
	struct pt_io io; /* what storage was waited for; see pt_io_decide() */
	struct pt_fault_file faults;
	struct pt_tail tail;
	struct pt_steady steady;
	bool mostly_first; /* the data wait is, for first batches */
	double first_lost; /* share of wall that these cost: no more than the device idles */
	double setup; /* share of it: what workers do once, before their first batch */
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

/* When a judge is asked, in this order; of those asked together, in the list's. */
enum pt_verdict_stage {
	PT_V_NEVER,
	PT_V_HUNG,   /* makes the others meaningless, and is why the device starves */
	PT_V_FRONT,  /* makes the others meaningless */
	PT_V_RANK,   /* which of several ranks the whole job waits for */
	PT_V_WHERE,  /* explains starvation by a part of the loading: the trainer itself,
		      * one batch, file or worker; the first that says yes wins */
	PT_V_WHAT,   /* ... by what all of it lacks; likewise, behind those */
	PT_V_RESULT, /* what a root of starvation leads to */
	PT_V_IDLE,   /* explains other idle time; several may hold */
	PT_V_CALM,   /* where nothing else was found */
	PT_V_BESIDE, /* a finding of its own */
	PT_V_STAGES
};

/* 1: yes, and `v` has sentence, evidence, advice and what differs from the presets
 * (see try_one()); 0: no, and `v` is dropped; -ENOMEM, for memory that is not from the
 * report's arena, which is looked at behind every judge. */
typedef int pt_judge_fn(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v);

/* The time that a verdict is about, to be told by line. */
struct pt_line_ask {
	enum {
		PT_LINES_NONE,
		PT_LINES_WORKERS, /* all of them together */
		PT_LINES_SUBJECT, /* the worker that is the verdict's subject */
		PT_LINES_LOADING, /* the training thread's, while it obtains data */
		PT_LINES_LOOP,	  /* ... the rest of it */
	} of;
	uint32_t causes;  /* 1 << PT_CAUSE_* */
	const char *what; /* "67 % of ... is in"; NULL: the judge says it himself */
};
#define PT_LINES_ALL (~0u & ~(1u << PT_CAUSE_WORKER_IDLE) & ~(1u << PT_CAUSE_SYNC))
#define PT_LINES_STORAGE (1u << PT_CAUSE_DISK | 1u << PT_CAUSE_PAGE_FAULT)

struct pt_verdict {
	struct {
		enum pt_verdict_stage stage;
		pt_judge_fn *judge;
	} asked[3]; /* one stage each; in no order, the rest zero */
	struct pt_line_ask lines;
};
#define PT_VERDICT(id, flags, limits) extern const struct pt_verdict pt_verdict_##id;
#include "report/verdicts.def"

/* certainty.c: by the evidence that the facts rest on; behind the judge. */
void pt_lower_certainty(const struct pt_facts *f, enum pt_verdict_stage stage,
			struct pt_r_verdict *v);
static inline bool pt_explains_starving(enum pt_verdict_stage stage)
{
	return stage == PT_V_WHERE || stage == PT_V_WHAT;
}

/* Fill `f` (zeroed before) from what the passes found. 0 or -ENOMEM. */
struct pt_measured; /* analysis/parts/part.h */
int pt_gather_facts(struct pt_an *an, const struct pt_measured *k,
		    struct pt_facts *f);
/* ... and judge by them. */
int pt_issue_verdicts(struct pt_an *an, const struct pt_measured *k);

/* ---- for the judges (evidence.c) ------------------------------------------ */
/* What is said, as by printf; in the report's arena, which knows when it had no room:
 * never NULL. */
const char *pt_sentence(struct pt_an *an, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A cause inside a sentence: "most of it is waiting for a core". */
const char *pt_cause_words(enum pt_cause c);
#define PT_EVIDENCE_MAX 32 /* of one verdict: a judge's and all that is added */
/* A figure that was measured; one held against a threshold; any. */
void pt_evidence(struct pt_r_verdict *v, const char *metric, double value,
		 const char *unit);
void pt_evidence_against(struct pt_r_verdict *v, const char *metric, double value,
			 const char *unit, double threshold);
void pt_evidence_add(struct pt_r_verdict *v, const char *metric, double value,
		     const char *unit, double threshold, enum pt_certainty certainty);
/* The evidence that every verdict about starvation carries. */
void pt_evidence_starved(const struct pt_facts *f, struct pt_r_verdict *v);
/* ... that nothing was found. */
void pt_evidence_calm(const struct pt_facts *f, struct pt_r_verdict *v);
/* ... on storage: which kind of it the data wait was for, how its disk answers. */
void pt_evidence_storage(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v);
/* It costs this share of the wall time: its place among the roots, its severity by the
 * thresholds of idle time, and what can be won at most. */
void pt_verdict_costs(const struct pt_facts *f, struct pt_r_verdict *v, double share);
/* By the driver's counter, is the device idle in so much of what takes that share of the wall?
 * (What takes a, and what takes b, meet for a + b - 1 at least.) */
bool pt_idle_then(const struct pt_facts *f, double share);
/* It is no surer than that. */
static inline void pt_at_most(enum pt_confidence *c, enum pt_confidence most)
{
	if (*c > most)
		*c = most;
}
enum pt_severity pt_severity_of(const struct pt_facts *f, double share);
/* Old step time over new: at least 1, at most that without this share of wall. */
void pt_speedup_share(double share, struct pt_range *out);
/* ... for one change (a row of the report's what-if), as its replay tells; where it
 * cannot, what `v` says stays. */
void pt_replayed_speedup(const struct pt_an *an, const char *change,
			 struct pt_r_verdict *v);
/* The best worker count by the replay, if it is told to win something. 0 */
int64_t pt_better_workers(const struct pt_an *an, const struct pt_facts *f);
/* The same steps, replayed with this change, take as long as they did. */
bool pt_gains_nothing(const struct pt_an *an, const char *change);
/* Workers that would hide the loading at today's cost of a batch. */
int pt_workers_needed(const struct pt_facts *f);
/* The process outside of the job that makes the batches, of several the one that was waited for
 * most; NULL: the job makes its own. */
const struct pt_worker *pt_served_by(const struct pt_facts *f);
/* The worker with most of the wait, where another stage feeds it (waits/fed.h); else NULL. */
const struct pt_worker *pt_fed_worker(const struct pt_facts *f);
/* One process that the workers ask, which makes up more than half of the wait; NULL: none does. */
const struct pt_worker *pt_lone_helper(const struct pt_facts *f);
/* Names it and says what to do about it; the certainty is medium at most where it does not compute all
 * the time. */
void pt_blame_helper(struct pt_an *an, const struct pt_facts *f, const struct pt_worker *helper,
		     struct pt_r_verdict *v);

#endif
