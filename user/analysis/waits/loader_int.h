/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the parts of the search for workers: loader.c, unwaited.c, senders.c. */
#ifndef PT_WAITS_LOADER_INT_H
#define PT_WAITS_LOADER_INT_H

#include "analysis/waits/loader.h"
#include "base/hash.h"

/* Who has less of the way back from the consumer's sleeps is no worker, unless it ends them itself;
 * who writes less of what its loader does makes none of that. */
#define PT_MAKER_SHARE 0.05

/* The worker of a thread of the trainer, or of another process: its number. */
struct pt_known_worker {
	const void *who;
	size_t worker;
	UT_hash_handle hh;
};

/* A thread that ended sleeps of the trainer's own threads, for so long. */
struct pt_sender {
	const struct pt_thread *th;
	uint64_t ns;
	UT_hash_handle hh;
};

/* Processes of one parent and one name: what they sent, and made of what is waited
 * for. The trainer is by itself in its own eyes. */
struct pt_sent_kin {
	struct {
		uint32_t ppid, self;
		char comm[PT_COMM_LEN];
	} key;
	uint64_t sent, made;
	UT_hash_handle hh;
};

struct pt_loader_finder {
	struct pt_an *an;
	struct pt_trainer *t;
	const struct pt_givers *g;
	uint64_t made_ns;    /* by all makers */
	struct pt_known_worker *known; /* uthash each, in the order in which they were met */
	struct pt_sender *sent;
	struct pt_sent_kin *kin;
};

/* The worker that this thread, or another process, is; NULL: none yet. */
struct pt_worker *pt_worker_of(const struct pt_loader_finder *k, const struct pt_proc *p,
			       const struct pt_thread *th);
/* A new one, whose batches `th` makes. NULL: out of memory. */
struct pt_worker *pt_worker_make(struct pt_loader_finder *k, struct pt_proc *p,
				 struct pt_thread *th);

/* senders.c: does a thread of the trainer run programs for what it hands on, or ask somebody
 * outside for it who works on that only then? It makes batches of what it fetches, as other
 * processes' workers do. 1, 0 or -ENOMEM. */
int pt_fetches(const struct pt_loader_finder *k, const struct pt_thread *th);
/* unwaited.c: adds those that work for the trainer though it never waited for them. 0 or
 * -ENOMEM. */
int pt_take_unwaited(struct pt_loader_finder *k);
/* senders.c: which thread of each worker hands over what it has made. 0 or -ENOMEM. */
int pt_find_senders(struct pt_loader_finder *k);

#endif
