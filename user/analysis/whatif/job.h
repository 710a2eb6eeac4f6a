/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What-if: the observed job as workers that make batches out of phases, and a
 * trainer that takes them. timeline.c and steps.c take it from the trace, sim.c runs it,
 * ask.c asks what a change would win. Times are milliseconds.
 */
#ifndef PT_WHATIF_JOB_H
#define PT_WHATIF_JOB_H

#include "analysis/internal.h"
#include "analysis/whatif/places.h"

#define PT_WI_PLACES 32
#define PT_WI_MAX_WORKERS 32
/* What PyTorch's DataLoader keeps in flight per worker unless told otherwise. */
#define PT_WI_PREFETCH 2
/* Fewer than this many samples make no distribution. */
#define PT_WI_MIN_SAMPLES 8

/* Where workers may hold each other up. Place 0 is none, place 1 the cores. */
#define PT_WI_NOWHERE 0
#define PT_WI_CORES 1
struct pt_wi_place {
	uint8_t cause;	/* enum pt_cause */
	uint64_t object; /* file, lock, peer, call: by cause */
	bool is_lock;	 /* pieces wait for it; who has it may be seen */
	bool is_giver;	 /* another stage, which serves the makers in turn */
	struct pt_wi_verdict v;
	double ms;	 /* in it, or asleep for it, of all workers */
	double held_ms;	 /* is_lock: seen to be held */
};

struct pt_wi_phase {
	uint8_t place;
	uint8_t lock;	/* held meanwhile; 0: none is known */
	bool cpu;
	double ms, own; /* own: without the others' turns before it */
};

struct pt_wi_item { /* one batch made */
	size_t first, n; /* of phases */
	double runq;	 /* on the run queue meanwhile */
	double ms;	 /* of the phases */
};

struct pt_wi_pool { /* of one worker, or of several */
	PT_VEC(struct pt_wi_phase) phases;
	PT_VEC(struct pt_wi_item) items;
	double usual;	/* ms of its median batch */
	bool slow;	/* of a worker that is slower than its peers */
	double share;	/* of a core that its thread had when it wanted one */
};

struct pt_wi_step { /* one of the trainer, the sleep for its batch left out */
	double cpu;	  /* of the host part */
	double take;	  /* CPU of the hand-over */
	double runq;	  /* in both */
	double blocked;	  /* asleep in the host part, the device aside ... */
	double pause;	  /* ... of which by a timer */
	double handover;  /* asleep while a batch that was there is obtained */
	bool slept;	  /* ... for this one, before it was there */
	double gpu_wait;  /* asleep in a call that waits for the device */
};

struct pt_wi_job {
	PT_VEC(struct pt_wi_pool) pools; /* one per worker; one when the trainer
					  * loads by itself */
	PT_VEC(struct pt_wi_step) steps;
	struct pt_wi_place place[PT_WI_PLACES];
	size_t n_places;
	bool own_loading; /* the trainer loads by itself */
	bool fed;	  /* another stage decides how fast batches come */
	bool in_order;	  /* batches are taken from the workers in turn */
	size_t workers;	  /* today; 0 with own_loading */
	double work_ms;	  /* of all workers */
	double reading;	  /* of their computing, this part goes with waits for storage */
	double full_ms;	  /* ... in which they had no room for a batch */
	double batch_bytes; /* handed to the device per step; 0: unknown */
	double mean_ms;	  /* observed step time, restarts left out */
	double cores;	  /* of the host or its quota; 0: unknown */
	double cores_had; /* while a thread of the job wanted one more; NAN never */
	double cpu, queued; /* on a CPU, and the run queue for one, per step */
	bool throttled;	  /* each worker has a quota of its own */
	double extra_cpu; /* other threads of the job, CPU per step */
	double programs_cpu; /* ... of these: what a job without workers starts as it goes */
	double pin;	  /* of the pin thread per batch; 0: none */
	double gpu[3];	  /* device work per step: likely, low, high */
	bool gpu_known;	  /* the first of these is known */
	double kernels;	  /* of these at least, by the driver's counter; 0: unknown */
	bool sync_each;	  /* nearly every step ends with a wait for it */
	double launches, transfer, blocked, pause, gpu_wait; /* per step */
	unsigned prefetch; /* batches in flight per worker */
	double handover;   /* of the sleep in it, what is not for want of cores */
	const char *unfit; /* why it cannot be replayed, or NULL */
};

/* A batch that takes so many times the usual is the tail. */
#define PT_WI_TAIL 2.5
/* Fills usual. 0 or -ENOMEM. */
int pt_wi_find_usual(struct pt_wi_pool *p);

/* 0 or -ENOMEM; free in any case. */
int pt_wi_observe(const struct pt_an *an, const struct pt_trainer *t,
		  struct pt_wi_job *o);
void pt_wi_job_free(struct pt_wi_job *o);
/* cut.c: the workers', and the places where they were. */
int pt_wi_observe_workers(const struct pt_an *an, const struct pt_trainer *t,
			  struct pt_wi_job *o);

/* ---- one run of it ---------------------------------------------------------- */

struct pt_wi_run {
	const struct pt_wi_job *o;
	const struct pt_wi_pool *const *pool; /* one per worker; [0] of a trainer
					       * that loads by itself */
	size_t workers;	   /* 0: the trainer loads */
	unsigned prefetch; /* batches in flight per worker */
	double cores;	   /* 0: as many as wanted */
	double others;	   /* threads of somebody else that compute */
	bool private_share; /* each worker has its own share of a core */
	bool in_turn[PT_WI_PLACES]; /* one at a time is in it */
	uint32_t gone;	   /* causes (1 << enum pt_cause) that take no time */
	bool no_locks;	   /* those that are seen to be held do not count */
	bool in_order;
	bool no_tail;	   /* no batch takes much longer than others */
	bool no_pause;
	bool device_queue; /* the device as a queue, syncs as told */
	bool no_sync;	   /* with device_queue: never wait for it */
	double gpu;	   /* device work per step, with device_queue */
	bool copies_block; /* until the device has done all before them */
	bool launch_late;  /* ... and nothing is launched ahead of them */
	double cut_transfer; /* taken out of each step's blocked time */
	double add_cpu, add_made; /* of the trainer, of a maker, per batch */
	double handover;   /* of the sleep while a batch is taken: this part */
	double warm;	   /* of what taking a batch costs, this part: one that was slept
			    * for today, and is there */
	uint64_t seed;	   /* of the block bootstrap; 0: as observed */
	size_t n;	   /* steps to run */
	double *queued;	   /* NULL, or for the wait for a core, per step */
	size_t *ready;	   /* NULL, or for the steps that `warm` is for */
	size_t *waited;	   /* NULL, or for the steps whose batch was not there; added to */
};

/* Mean step in ms; NAN when there is none; *err 0 or -ENOMEM. */
double pt_wi_simulate(const struct pt_wi_run *r, int *err);

#endif
