/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From a trainer's calls and sleeps to its steps and waits, in this order:
 *
 *   gaps     the host's time between its GPU calls
 *   loop     where in its loop the thread is when it is looked at
 *   givers   who ends its sleeps in them, and what they are to it
 *   loader   who makes the batches, and when more was asked for
 *   host     what it did in each gap, with evidence of obtaining data
 *   period   which gaps begin a step
 *   bounds   where in a gap a wait begins and ends
 *   fetching which of the thread's own time in a gap is for its batches
 *   obtain   when data was being obtained
 *   charge   what that waited for
 */
#ifndef PT_WAITS_LOOK_H
#define PT_WAITS_LOOK_H

#include "analysis/steps/period.h"
#include "analysis/waits/host.h"

struct pt_look {
	struct pt_paths *paths;
	struct pt_actor actor;
	struct pt_loop loop;
	struct pt_givers givers;
	struct pt_host host;
	struct pt_period period;
	pt_asks asks;
};

/* All but the charges, into `t`, whose proc is known; t->look keeps the rest. 0 or
 * -ENOMEM. */
int pt_look_at(struct pt_an *an, struct pt_trainer *t);
void pt_look_free(struct pt_look *l);

/* obtain.c: fills t->steps and t->waits. 0 or -ENOMEM. */
int pt_find_obtaining(const struct pt_an *an, struct pt_trainer *t,
		      const struct pt_host *h, const struct pt_period *p);
/* charge.c: fills t->charges, cause_ns, and of the waits, steps and workers what they
 * are charged with. 0 or -ENOMEM. */
int pt_charge_waits(struct pt_an *an, struct pt_trainer *t,
		    const struct pt_actor *a, struct pt_paths *paths);
/* refill.c: t->look's asks that pass through a thread of the trainer get the worker
 * that they are for, where that can be learned. 0 or -ENOMEM. */
int pt_learn_refills(const struct pt_an *an, struct pt_trainer *t);
/* causes.c: what a sleep is for, by itself. */
enum pt_cause pt_sleep_cause(const struct pt_an *an, const struct pt_iv *iv);
/* An event loop's time-out: what it was to do then sleeps until then. */
static inline bool pt_timed_out(const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_POLL && iv->obj_kind != PT_OBJ_SOCK &&
	       iv->wake == PT_WAKE_TIMER;
}
/* Is what it waits for a core then only the way from a device's interrupt to its running? */
bool pt_is_wakeup(const struct pt_iv *iv);
/* Did it give up? It looked for what another process may write, and nobody wrote by the time
 * that it gave itself; unless it goes on to look at the same again before `until`, having written
 * nothing: then it waits for that. */
bool pt_gives_up(const struct pt_thread *th, const struct pt_iv *iv, uint64_t until);
/* moving.c: of what a process computes, the part in the kernel; 0 unknown. */
double pt_kernel_part(const struct pt_proc *p);
/* ... the part that goes with the bytes that a maker fetches from storage. */
double pt_fetching_part(const struct pt_an *an, const struct pt_worker *w);
/* Of what makers compute in data waits: their kernel's part, where it is no more than goes with
 * so many waits for storage (PT_KERNEL_EACH_NS), and what comes from it (PT_KERNEL_BYTE_NS); else 0. */
double pt_reading_part(const struct pt_trainer *t);
/* A maker that moves its batches itself (it pickles them, and writes them into a pipe) does so when
 * they are made, last of what it does; so does one that sends them over a socket. A program that
 * only copies moves all the time. */
struct pt_mover {
	double part;	     /* of its computing */
	uint64_t each;	     /* ns for a batch; 0 not known, or it moves all the time */
	uint64_t ran, moved; /* ns on the way back that is under way; 0 at its begin */
};
struct pt_mover pt_mover_of(const struct pt_an *an, const struct pt_trainer *t,
			    const struct pt_worker *w);
/* How much of this leg moves the batch, ns. Legs come last first. */
uint64_t pt_mover_ns(struct pt_mover *m, const struct pt_leg *l);
/* Makes the worker no batch in `iv`: does it rest, or wait for its turn? */
bool pt_is_idle(const struct pt_an *an, const struct pt_worker *w, const struct pt_iv *iv);

#endif
