/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who ends the consumer's sleeps, and what that says of them: a supplier of data,
 * another rank, a client that has to ask first, a helper. Told by what the walk
 * back from those moments meets, over all of them together: one sleep may be too
 * short to show where its end came from.
 */
#ifndef PT_WAITS_GIVERS_H
#define PT_WAITS_GIVERS_H

#include "analysis/waits/feed.h"
#include "analysis/waits/gaps.h"
#include "analysis/waits/loop.h"
#include "analysis/waits/path.h"
#include "analysis/waits/taking.h"

enum pt_giver_role {
	PT_GIVER_UNKNOWN,  /* too little was seen */
	PT_GIVER_SUPPLIER, /* took input, or computed in another process */
	PT_GIVER_RANK,	   /* feeds a device of its own */
	PT_GIVER_CLIENT,   /* asks the job for something */
	PT_GIVER_HELPER,   /* computes for the consumer, and only when asked */
	PT_GIVER_PEER,	   /* not seen to hand over what goes to a device */
	PT_GIVER_STORE,	   /* outside of the job; it answers when it is asked */
};

struct pt_giver {
	uint32_t tid, tgid; /* ids of the model; it need not be traced */
	const struct pt_thread *th; /* NULL: not traced */
	uint64_t sleeps, ns; /* that it ended, of the consumer's */
	uint64_t gaps, last_gap; /* with such; when the last of them began */
	uint64_t stays, stays_there; /* its own off the CPU; those in such gaps */
	uint64_t got;	/* bytes that the consumer read in them */
	uint64_t bytes; /* ... and it itself in all */
	uint64_t wrote; /* ... that its process wrote in all; 0 for the consumer's */
	uint64_t sent;	/* bytes that the consumer wrote in them */
	uint64_t ends;	/* of the sleeps: until it ended */
	uint64_t uploads; /* of the gaps: that end with one */
	uint64_t results; /* of the gaps: that end with a copy of results from the device */
	uint64_t answers; /* of the sleeps: for what was asked for over a socket */
	uint64_t unsized; /* of the sleeps: more may have come than was read */
	uint64_t apart; /* of the sleeps: it had no memory in common to put anything into */
	uint64_t puts;	/* of the sleeps: until it had taken some of what the consumer wrote */
	/* of the sleeps: looked at in Python; there the consumer was handing something out */
	uint64_t looked, handed_out;
	uint64_t taking; /* ... it was in a function that takes batches */
	uint64_t taken_ns; /* ... it was taking something out of a queue or a pipe of Python's */
	uint64_t behind; /* ... behind all lines of the loop that call the device */
	/* where the way back from their ends leads, ns */
	uint64_t made_ns;   /* other processes, or input of this one */
	uint64_t beyond_ns; /* of these: others than its own process */
	uint64_t shared_ns; /* ... processes that may hand over in shared memory */
	uint64_t ranks_ns;
	uint64_t clients_ns;
	uint64_t peer_ns;   /* sleeps until it took something, or answered */
	uint64_t helped_ns; /* threads of the consumer's process */
	uint64_t ahead_ns; /* of ns: one of those had begun before the gap */
	/* ... of both: in a gap that the capture began in, who had asked before is not known */
	uint64_t cut_ns, cut_ahead_ns;
	enum pt_giver_role role;
	bool takes; /* a peer that takes what the consumer hands out */
	bool for_results; /* ... that is waited for behind all calls of the device */
	UT_hash_handle hh;
};

/* A thread that makes what the consumer waits for: it is met on the way back. */
struct pt_maker {
	const struct pt_thread *th;
	uint64_t ns; /* of all ways back from sleeps that suppliers ended */
	/* the consumer's thread from which such a way came to its process; NULL: it
	 * came from another process */
	const struct pt_thread *via;
	UT_hash_handle hh; /* by th */
};

struct pt_given_at; /* an object that the consumer sleeps on */
struct pt_givers {
	const struct pt_an *an;
	struct pt_paths *paths;
	const struct pt_proc *own; /* the consumer's process */
	struct pt_feed feed;
	struct pt_loop *loop;
	struct pt_taking taking;
	uint64_t wrote; /* bytes that the givers did, each thread by itself */
	uint32_t whole_writer, whole_writers; /* a process that writes just as much as goes up;
					       * how many do */
	bool fed; /* what suppliers in other processes write is what goes up: nothing else does */
	uint64_t own_read; /* bytes that the consumer's process reads in all */
	uint64_t lead_read; /* ... and of these the thread that calls the device */
	uint64_t uploads; /* batches that go up */
	struct pt_giver *all; /* uthash, by tid */
	struct pt_given_at *at;
	struct pt_maker *makers; /* of other processes, and own suppliers */
};

/* Of all gaps of the actor. 0 or -ENOMEM; free in any case. */
int pt_find_givers(const struct pt_an *an, struct pt_paths *paths,
		   const struct pt_actor *a, struct pt_loop *loop, struct pt_givers *out);
void pt_givers_free(struct pt_givers *g);
/* Who ended this sleep of the consumer; NULL: nobody that is known. */
const struct pt_giver *pt_giver_of(const struct pt_givers *g,
				   const struct pt_iv *iv);
/* Was it on a pipe or a socket on which one process alone ends the consumer's sleeps, and many of
 * them? Or for a signal, which is its sender's? */
bool pt_is_own_channel(const struct pt_givers *g, const struct pt_iv *iv);
/* Over that socket processes of the job give it something, and in `iv` it waited until its own
 * patience was over, and did not go on waiting before `until`? That is a pause. */
bool pt_waits_in_vain(const struct pt_givers *g, const struct pt_thread *th, const struct pt_iv *iv,
		      uint64_t until);
/* The role of whoever ends sleeps like this one, as a rule: for one that the
 * capture's end or a time-out ended. */
enum pt_giver_role pt_role_at(const struct pt_givers *g, const struct pt_iv *iv);

/* The walk back from the end of a gap, on the consumer's own threads: what others
 * ended is a leg GIVEN or LOCK; and on threads that are helpers by `helpers`, NULL: on none.
 * 0, -ENOMEM, or what leg() returned. */
int pt_walk_host(const struct pt_an *an, struct pt_paths *paths,
		 const struct pt_actor *a, const struct pt_givers *helpers, const struct pt_gap *g,
		 int (*leg)(void *ctx, const struct pt_leg *leg), void *ctx);
/* The way back from `th` at `end` to `begin`, through everybody but clients and holders of
 * locks. Likewise; and what links it. */
int pt_walk_cause(const struct pt_an *an, struct pt_paths *paths,
		  const struct pt_thread *th, uint64_t begin, uint64_t end,
		  int (*leg)(void *ctx, const struct pt_leg *leg), void *ctx);
enum pt_link pt_cause_link(const struct pt_an *an, struct pt_paths *paths,
			   const struct pt_thread *th, const struct pt_iv *iv,
			   const struct pt_thread *who);

/* Does `th` sleep in `iv` for something that goes to no device, as what it sleeps on
 * shows: until somebody takes what it hands out, or answers with too little? */
bool pt_waits_for_peer(const struct pt_an *an, const struct pt_feed *f,
		       const struct pt_iv *iv);
/* How often did `by` wake the thread, outside of GPU calls, as who asks for something or
 * hands it over does? */
size_t pt_times_asked(const struct pt_an *an, const struct pt_proc *by,
		      const struct pt_thread *th);
/* Was it, or its parent, and so on, started by that process? */
bool pt_descends_from(const struct pt_model *m, const struct pt_proc *p, uint32_t ancestor);
/* Is the process another rank: does it feed a device? */
bool pt_feeds_device(const struct pt_an *an, const struct pt_proc *p);

#endif
