/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the passes of the device model hand to each other:
 *
 *   devices      which device a call goes to, as far as the calls tell
 *   certain      until when a wait for the device shows it at work
 *   streams      what each stream holds: the hard bounds
 *   queue        calls, events and syncs, the operations, and their numbers
 *   likely       the operations replayed (replay) with fitted costs
 *                (costs): the likely bounds
 *   exact        measured times, where there are, in place of the bounds
 *   idle         the likely idle time by its causes
 */
#ifndef PT_ANALYSIS_GPU_PASSES_H
#define PT_ANALYSIS_GPU_PASSES_H

#include "analysis/gpu/graphs.h"
#include "analysis/internal.h"

/* A wait that returns sooner found the device empty: a call and its two probes
 * take a few microseconds. */
#define PT_BLOCKED_NS 30000ull
/* A host that spins is slower to find that: on an H100 a sync of an empty stream took up to
 * 31 us and a small copy up to 138 (docs/real-gpu.md). Longer, and it waited. */
#define PT_SPUN_NS 150000ull

/* ---- devices (devices.c) ------------------------------------------------- */
#define PT_NODES_MAX 64
#define PT_NODE_NONE UINT16_MAX
enum pt_node_kind {
	PT_NODE_ORDINAL, /* chosen by number */
	PT_NODE_CONTEXT, /* the driver's context: a device of its own */
	PT_NODE_THREAD,	 /* that of a thread which was not seen to choose */
};
struct pt_node {
	uint64_t value; /* ordinal, context, or tid */
	uint16_t same;	/* the node that it was found to be; itself */
	uint8_t kind;
	bool used;
	bool waited; /* somebody waits for its work at times */
	uint64_t chosen_ns; /* CONTEXT: last */
};

struct pt_gpu_thread {
	uint32_t tid;
	uint16_t own;	 /* node of the device that it worked on without a choice */
	uint16_t choice; /* the first that it chose; PT_NODE_NONE: never */
	uint16_t now;	 /* current one */
	uint64_t ordinal_ns; /* it has chosen an ordinal, and done nothing since */
	bool many;	 /* it chose several */
	bool waits;	 /* it waits for its own device at times */
};

struct pt_handle { /* of a stream: which device it is of */
	uint64_t handle;
	uint16_t node;
	UT_hash_handle hh;
};

struct pt_devices {
	struct pt_node node[PT_NODES_MAX];
	size_t n;
	bool overflow; /* more devices than nodes: nothing is certain */
	bool chosen;   /* some thread chose a device */
	uint64_t ordinal_ns; /* when one first chose an ordinal; 0 never */
	unsigned roots; /* devices, as far as they can be told apart */
	PT_VEC(struct pt_gpu_thread) threads;
	struct pt_handle *handles;
};

/* Read all of the process' calls once: who chooses what. 0 or -ENOMEM. */
int pt_devices_learn(struct pt_devices *d, const struct pt_proc *p, uint64_t t1);
void pt_devices_free(struct pt_devices *d);
/* In the order of time: before the first call, and at each SET_DEVICE. */
void pt_devices_rewind(struct pt_devices *d);
void pt_devices_take(struct pt_devices *d, const struct pt_gpu_call *c);
/* The node that a call works on; PT_NODE_NONE: out of memory. */
uint16_t pt_devices_of(struct pt_devices *d, const struct pt_gpu_call *c);
/* Work on this node may be on any of the process' devices. */
bool pt_devices_unsure(const struct pt_devices *d, uint16_t node);

/* ---- certainty (certain.c) ----------------------------------------------- */
/* How late an interrupt that ends a wait may reach its thread: so much of
 * every wait is not claimed. Timers and interrupts on busy machines were seen
 * up to that late, mostly a sixth of it. */
#define PT_LATE_NS 100000ull
/*
 * The host waited in call `c` for the device. Until when, at the latest, the
 * device can have been at work for it: the moment at which the one who woke
 * the host was woken himself, or the last look of a host that spins. 0: it
 * cannot be told (the host waited for a core, a lock, a page).
 */
uint64_t pt_wait_end(const struct pt_an *an, const struct pt_proc *p,
		     const struct pt_gpu_call *c, bool spins, uint64_t *likely);

/* ---- operations (queue.c) ------------------------------------------------ */
enum pt_gop_kind {
	PT_GOP_LAUNCH, PT_GOP_GRAPH, PT_GOP_COPY, PT_GOP_MEMSET,
	PT_GOP_RECORD, PT_GOP_WAIT, PT_GOP_SYNC,
};
#define PT_GOP_ALL UINT32_MAX
struct pt_gop {
	uint64_t at;	/* the call began */
	union {
		uint64_t key;  /* LAUNCH function, GRAPH executable, COPY direction */
		uint64_t done; /* SYNC: when the device was done, most likely */
	};
	union {
		uint64_t bytes; /* COPY, MEMSET; GRAPH: kernels, 0 unknown */
		uint64_t told;	/* SYNC: when the host was told of it */
	};
	uint32_t stream; /* index; SYNC: PT_GOP_ALL: the whole device */
	uint32_t event; /* WAIT, SYNC of an event: its RECORD's index + 1 */
	uint16_t dev;	/* node */
	uint8_t kind;
	bool blocked;	/* SYNC: the host had to wait: done is near the truth */
	bool collective; /* LAUNCH: within a collective's call */
};
typedef PT_VEC(struct pt_gop) pt_gops;

struct pt_gstream {
	uint64_t handle;
	uint16_t dev;
	uint64_t last_submit;
	uint64_t work_submit; /* ... but for small copies back behind it; 0 none */
	uint64_t copies_ns;   /* what these take at most by themselves */
	uint64_t done;	/* when it was found empty; pending: before that */
	bool kernels; /* had some: who waits for it learns when they end */
	bool pending;
	bool foreign; /* waits for what is not of this device, or not seen */
	bool peer;    /* has work that another device takes part in, perhaps */
	uint64_t cleared; /* unsure device: nodes synchronised since, bits */
};

struct pt_gevent {
	uint64_t handle, recorded;
	uint32_t stream, op; /* op: index of the RECORD */
	bool foreign;
	UT_hash_handle hh;
};

/* A sync of a node: what was submitted before `begin` was done by `end`; and
 * what it waited for was submitted by `submitted` and not done by `pending`. */
#define PT_PAST 8
struct pt_gpast {
	uint64_t begin, end, submitted, pending; /* pending 0: not known */
	bool all; /* of the whole device, else of its default stream */
	bool main; /* it waited for the default stream */
};

struct pt_gnode { /* a node's device */
	pt_spans idle, busy; /* certain */
	uint64_t idle_since; /* drained; 0: not known to be empty */
	struct pt_gpast past[PT_PAST]; /* its latest syncs, in turn */
	unsigned n_past;
	uint64_t apart; /* nodes that cannot be the same device, bits */
	bool known;	     /* a sync was seen */
	bool works;	     /* something was submitted */
	struct pt_dev_counts counts;
};

#define PT_COLLECTIVES_OPEN 8
struct pt_gqueue {
	struct pt_an *an;
	struct pt_trainer *t;
	struct pt_devices devices;
	struct pt_graphs graphs;
	PT_VEC(struct pt_gstream) streams;
	struct pt_gevent *events;
	struct pt_gnode node[PT_NODES_MAX];
	pt_gops ops;
	bool overflow; /* more streams or events than are kept */
	bool at_once[8]; /* asynchronous copies of this direction return so */
	struct { /* calls of collectives that run */
		uint64_t end;
		uint32_t tid;
	} collective[PT_COLLECTIVES_OPEN];
};

/* All calls of the trainer's process in the window. 0 or -ENOMEM. */
int pt_gqueue_run(struct pt_gqueue *q);
void pt_gqueue_free(struct pt_gqueue *q);

/* ---- several processes (share.c) ----------------------------------------- */
static inline bool pt_ranks_of_one_job(const struct pt_proc *a, const struct pt_proc *b)
{
	return a->facts.rank >= 0 && b->facts.rank >= 0 && a->facts.rank != b->facts.rank;
}
/* Does the driver count processes on a device of ours that are not traced? */
bool pt_gpu_others(const struct pt_an *an);
/* What other traced processes have on the devices of `t` changes its devs; the
 * sums of `t` stay its own. 0 or -ENOMEM. */
int pt_share_gpu(struct pt_an *an, struct pt_trainer *t);

/* ---- likely (likely.c) --------------------------------------------------- */
struct pt_glikely { /* of one device */
	pt_spans busy;	/* best guess, tidy */
	uint64_t lo_ns, hi_ns;
	uint64_t unseen_ns; /* of busy: of operations of which no end was ever seen */
	uint64_t compute_ns, copy_ns, collective_ns;
};
/* Into out[node], for every node that works; the caller frees the spans. */
int pt_glikely_run(const struct pt_gqueue *q, struct pt_glikely *out);

/* ---- measured devices (exact.c) ------------------------------------------ */
/* Activity records into t->devs, behind the model's bounds. 0 or -ENOMEM. */
int pt_exact_gpu(struct pt_an *an, struct pt_trainer *t);
/* ---- idle causes (idle.c) ------------------------------------------------ */
/* g->idle_causes: the device's likely idle time by cause, largest first; the
 * seconds sum to it. 0 or -ENOMEM. */
int pt_fill_idle_causes(const struct pt_an *an, const struct pt_trainer *t,
			const struct pt_dev *d, struct pt_r_gpu *g);

/* ---- allocations (alloc.c) ----------------------------------------------- */
/* Those of the window that failed, into g[i] for t->devs.v[i]; free_bytes is
 * left to whoever has the driver's samples. 0 or -ENOMEM. */
int pt_fill_alloc_failures(const struct pt_an *an, const struct pt_trainer *t,
			   struct pt_r_gpu *g);

/* samples.c: the share of the time that the job's devices were idle by the driver's
 * samples, and *least and *most, with their error; NAN: there are too few, or it is not one
 * process alone that uses a device. */
double pt_idle_by_driver(const struct pt_an *an, const struct pt_trainer *t, double *least,
			 double *most);
/* driver.c, of these two: where the calls do not tell when the device was idle, or
 * tell what the driver rules out, idle_likely is as much as the driver says. 0 or
 * -ENOMEM. */
int pt_take_driver(const struct pt_an *an, struct pt_trainer *t, double idle,
		   double least, double most);
/* ... and the trainer's sums are no more than that. */
void pt_limit_by_driver(const struct pt_an *an, struct pt_trainer *t, double idle,
			double most);

#endif
