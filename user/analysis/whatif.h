/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: the observed job as a small queueing model, and its replay with one
 * thing changed. whatif_observe.c takes the model from the trace,
 * whatif_replay.c runs it, whatif.c asks the questions and fills the report.
 *
 * All times here are milliseconds, as doubles.
 */
#ifndef PT_ANALYSIS_WHATIF_H
#define PT_ANALYSIS_WHATIF_H

#include "analysis/internal.h"

/* What PyTorch's DataLoader keeps in flight per worker unless told otherwise. */
#define PT_WI_PREFETCH 2
#define PT_WI_MAX_WORKERS 32
/* Fewer than this many samples make no distribution. */
#define PT_WI_MIN_SAMPLES 8

/* A loader's hand-over costs a trainer that loads by itself nothing today. With
 * workers: between these, and a copy of the batch at 1 GB/s on top of the upper
 * one (measured on PyTorch's hand-overs of batches of 0.6 MB that were there:
 * means of 1.1 to 1.6 ms on an idle machine). */
#define PT_WI_HANDOVER_LOW_MS 0.8
#define PT_WI_HANDOVER_MS 1.2
#define PT_WI_HANDOVER_BYTES_MS 1e6
/* ... and the maker a copy into shared memory, and its sender's work. */
#define PT_WI_SEND_LOW_MS 0.4
#define PT_WI_SEND_MS 1.0

/* One batch made: what its maker did meanwhile. `lock` is sleep for a lock
 * that another worker had; `other` is the rest of its sleep. */
struct pt_wi_batch {
	double cpu, runq, disk, lock, other;
};
typedef PT_VEC(struct pt_wi_batch) pt_wi_batches;

/* One step of the trainer, the sleep for its batch left out. */
struct pt_wi_step {
	double cpu;	  /* of the host part */
	double take;	  /* CPU of the hand-over */
	double runq;	  /* in both */
	double blocked;	  /* asleep in the host part, the device aside */
	double handover;  /* asleep while a batch that was there is obtained */
	double gpu_wait;  /* asleep in a call that waits for the device */
};
typedef PT_VEC(struct pt_wi_step) pt_wi_steps;

/* The samples that each worker draws from. */
struct pt_wi_pool {
	pt_wi_batches b;
	bool slow; /* of a worker that is slower than its peers */
	double share; /* of a core that its thread had when it wanted one */
	double aux;   /* CPU of its process's other threads, per batch */
	double phase; /* of its quota's period: where in it one begins */
};

/* CPU quotas of the workers (whatif_quota.c). */
enum pt_wi_quota_of {
	PT_WI_QUOTA_NONE,
	PT_WI_QUOTA_EACH, /* each worker has one of its own */
	PT_WI_QUOTA_ALL,  /* the workers share one */
};
struct pt_wi_quota {
	enum pt_wi_quota_of of;
	double period, budget; /* CPU time in each period */
};

struct pt_wi_obs {
	PT_VEC(struct pt_wi_pool) pools; /* a worker each; one when the
					  * trainer loads by itself */
	pt_wi_steps steps;
	bool own_loading;   /* the trainer loads by itself */
	size_t workers;	    /* today; 0 with own_loading */
	double mean_ms;	    /* observed step time, restarts left out */
	double cores;	    /* 0: unknown */
	double extra_cpu;   /* other threads of the job, CPU per step */
	double pin;	    /* of the pin thread per batch; 0: none */
	double gpu[3];	    /* device work per step: likely, low, high */
	bool gpu_known;	    /* the first of these is known */
	bool sync_each;	    /* nearly every step ends with a wait for it */
	double launches;    /* per step */
	double transfer;    /* host blocked in copies, device idle; per step */
	double handed_bytes; /* moved to the device, per step */
	double blocked;	    /* of the steps, mean */
	double handover;    /* asleep while a batch is taken, per step */
	double waited;	    /* share of steps that slept for their batch */
	double answers;	    /* of workers that the trainer sleeps for while it
			     * takes a batch, per step */
	double hold;	    /* rest of a worker's stretch on the CPU, seen from
			     * any moment of it */
	double readers;	    /* mean number that read from disk at once */
	double lock_taken;  /* share of time in which a worker waits for a lock
			     * that another has */
	double throttled;   /* share of run-queue time that ends on a quota's
			     * period */
	struct pt_wi_quota quota;
	bool quota_hidden;  /* workers were throttled, too little to see how */
	unsigned prefetch;  /* batches in flight per worker; 0 not seen */
	bool shared_quota;  /* a quota for the whole job is known */
	bool restarted;	    /* workers were born in the window */
	const char *unfit;  /* why it cannot be replayed, or NULL */
};

enum pt_wi_runq {
	PT_WI_SHARED,  /* queueing comes of sharing `cores` alone */
	PT_WI_PRIVATE, /* each thread has its own small share of a core */
	PT_WI_QUOTAS,  /* the observed quotas, on top of sharing */
};

/* One replay. `pools` may point into an observation or be made up. */
struct pt_wi_run {
	const struct pt_wi_obs *o;
	const struct pt_wi_pool *const *pool; /* one per worker */
	size_t workers;		/* 0: the trainer loads, from pool[0] */
	unsigned prefetch;	/* batches in flight per worker */
	enum pt_wi_runq runq;
	double cores;		/* 0: as many as wanted */
	double others;		/* threads of somebody else that compute */
	bool disk_shared;	/* disk time is a share of one disk's rate */
	bool no_disk;
	bool device_queue;	/* replay the device as a queue, syncs as told */
	bool no_sync;		/* with device_queue: never wait for it */
	double gpu;		/* device work per step, with device_queue */
	bool copies_block;	/* until the device has done all before them */
	bool launch_late;	/* ... and nothing is launched ahead of them */
	double ready; /* taking a batch that is there: times what it takes
		       * today */
	double held_up; /* ... of which the sleep: times that of today */
	bool pinned;	/* a pin thread takes them over; today there is none */
	double cut_transfer;	/* taken out of each step's blocked time */
	double add_cpu;		/* hand-over that is not there today, per step */
	double add_sleep;	/* ... and the sleep in it */
	double add_made;	/* of a worker per batch, likewise */
	double lock_hold;	/* a lock that workers share: held per batch */
	bool any_phase;		/* quotas' periods begin anywhere, by `seed` */
	uint64_t seed;		/* of the block bootstrap; 0: as observed */
	size_t n;		/* steps to replay */
	double *queued;		/* NULL, or for the time that threads waited
				 * for a core, per step */
};

/* Take the model from the trace. 0 or -ENOMEM; unfit says why it cannot be
 * used. pt_wi_obs_free() afterwards in any case. */
int pt_wi_observe(const struct pt_an *an, const struct pt_trainer *t,
		  struct pt_wi_obs *o);
void pt_wi_obs_free(struct pt_wi_obs *o);
/* Parts of it: o->prefetch; and o->throttled and o->quota, and of each pool aux
 * and phase. 0 or -ENOMEM. */
int pt_wi_observe_prefetch(const struct pt_an *an, const struct pt_trainer *t,
			   struct pt_wi_obs *o);
int pt_wi_observe_quota(const struct pt_an *an, const struct pt_trainer *t,
			struct pt_wi_obs *o);

/* Mean step time in ms; NAN when nothing can be replayed; a negative errno in
 * *err (-ENOMEM). */
double pt_wi_replay(const struct pt_wi_run *r, int *err);

/* ---- the study: every question about one job ------------------------------- */
#define PT_WI_SEEDS 8
#define PT_WI_MAX_VARIANTS 8
#define PT_WI_MAX_ROWS 24
/* A part of a step below this is not worth a question. */
#define PT_WI_WORTH 0.02

/* One way of running the model that fits what was seen. */
struct pt_wi_variant {
	enum pt_wi_runq runq;
	double cores, others;
	bool disk_shared;
	double lock_hold;
	double gpu;
	double miss; /* of the observed step time, 0.03: by 3 % */
	double base; /* mean over the seeds, nothing changed */
};

struct pt_wi_study {
	struct pt_an *an;
	struct pt_wi_obs o;
	struct pt_wi_variant v[PT_WI_MAX_VARIANTS];
	size_t n_variants;
	struct pt_wi_pool all, peers; /* of every worker; of those not slow */
	const struct pt_wi_pool *pool[PT_WI_MAX_WORKERS];
	struct pt_r_whatif row[PT_WI_MAX_ROWS];
	size_t n_rows;
	const char *unfit;
};

/* Today's job in one variant; the caller changes one thing. */
struct pt_wi_run pt_wi_base_run(const struct pt_wi_study *s,
				const struct pt_wi_variant *v, uint64_t seed);
/* Let every worker draw from its own samples again. */
void pt_wi_todays_pools(struct pt_wi_study *s);
/* Each 0 or -ENOMEM; find_variants says in unfit when nothing fits. */
int pt_wi_make_pools(struct pt_wi_study *s);
int pt_wi_find_variants(struct pt_wi_study *s);
int pt_wi_replay_bases(struct pt_wi_study *s);
struct pt_wi_batch pt_wi_mean_batch(const struct pt_wi_study *s);

/* Makes one change to a run; `way` tells apart what it may cost. */
typedef struct pt_wi_run (*pt_wi_change_fn)(struct pt_wi_study *,
					    struct pt_wi_run, int64_t value,
					    int way);
/* Fill a row (change and value given): speedup and step_ms, or a note of why
 * not. 0 or -ENOMEM. */
int pt_wi_ask(struct pt_wi_study *s, struct pt_r_whatif *row,
	      pt_wi_change_fn change, int ways);

#endif
