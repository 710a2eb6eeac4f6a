/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A recorded file of limited size: when it is full, its newest chunks go into a
 * new one that takes its name, so that there is a whole file at any moment. What
 * names things and follows the process tree is kept from the part that goes.
 */
#ifndef PT_STORE_SHRINK_H
#define PT_STORE_SHRINK_H

#include "store/recording.h"

/* A new file beside the old one, and giving it the name; 0 or -errno. */
struct pt_again {
	int (*open)(void *ctx, FILE **f);
	int (*publish)(void *ctx);
	void *ctx;
};

struct pt_shrink {
	uint64_t max; /* bytes; 0: no limit */
	struct pt_again again;
	pt_bytes names; /* the records to keep, so far */
	pt_bytes about; /* the latest */
	uint64_t unix_ns;
	uint64_t gone; /* records that went */
};

/* What a block of records has to keep. 0 or -ENOMEM. */
int pt_shrink_see(struct pt_shrink *s, const void *records, size_t len);
/* Behind a chunk: where `w` has grown past the limit, go on in a new file with
 * the newest half. 0 or -errno; then the old one is whole still, and ends. */
int pt_shrink_step(struct pt_shrink *s, struct pt_rf_writer *w);
void pt_shrink_free(struct pt_shrink *s);

#endif
