/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What goes to the devices, and whether what comes in from somebody can be that.
 * Whoever ends sleeps of a training thread need not supply it: a logger that
 * acknowledges, a server that keeps the parameters, a compiler's processes, or whoever
 * reads its output do so, too.
 */
#ifndef PT_WAITS_FEED_H
#define PT_WAITS_FEED_H

#include "analysis/internal.h"

struct pt_feed {
	uint64_t up_bytes, down_bytes; /* to the devices, and back */
	uint64_t own_bytes; /* ... that the consumer's own process sends up */
	uint64_t ups; /* copies to the devices */
	uint64_t result_bytes; /* ... of that in copies of more than a loss */
	bool known; /* every upload was seen, as far as calls tell */
	/* payload of all connections to a peer, by its index */
	struct pt_traffic {
		double in, out;
	} *peers;
	double little; /* that came in from peers which sent too little, together */
};

/* Of all processes, as long as the model knows; `own`: the consumer's. 0 or -ENOMEM; free in any case. */
int pt_find_feed(const struct pt_model *m, const struct pt_proc *own, struct pt_feed *out);
void pt_feed_free(struct pt_feed *f);

/* Nothing at all goes to a device. */
bool pt_feeds_nothing(const struct pt_feed *f);
/* ... or no more than a learning rate or a few, each time. */
bool pt_feeds_numbers(const struct pt_feed *f);

/* So many bytes cannot become what goes to the devices. */
bool pt_feeds_too_little(const struct pt_feed *f, uint64_t bytes);

/* May the maker hand batches over in memory that both have? By the most that each was seen to have of
 * it: as much as one of many makers of a batch fills, at least. */
bool pt_may_share(const struct pt_feed *f, const struct pt_proc *maker,
		  const struct pt_proc *consumer);
/* ... or has it filled no more than locks and flags take? Neither of the two where nobody looked. The
 * consumer need not have touched what the device fetches there. */
bool pt_shares_nothing(const struct pt_feed *f, const struct pt_proc *maker);

/* Neither can what came from the other end of this connection be what goes to a device:
 * it is too little, a few numbers, or the answer to what came from there. What hands over descriptors or
 * names of shared memory is small, too: only ends with an address are told. */
bool pt_sock_feeds_nothing(const struct pt_feed *f, const struct pt_sock *s);

#endif
