/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A record stream in a file, for developers: what the model was fed, to feed
 * it again. No promise of stability between versions; users' recordings will
 * have a format of their own.
 *
 * Layout: struct pt_raw_head, then records back to back, each with its size
 * in its header.
 */
#ifndef PT_RAWSTREAM_H
#define PT_RAWSTREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/records.h"

#define PT_RAW_MAGIC "PTRAWST" /* and its NUL: 8 bytes */
#define PT_RAW_VERSION 1

struct pt_raw_head {
	char magic[8];
	uint32_t version; /* of this layout */
	uint32_t abi;	  /* PT_ABI_VERSION of the writer */
};

/* Write the head, one record. 0 or -EIO. */
int pt_raw_begin(FILE *f);
int pt_raw_put(FILE *f, const void *rec, size_t len);

struct pt_raw_reader {
	FILE *f; /* the caller's */
	uint64_t records;
	bool truncated; /* the file ends inside a record */
	bool damaged;	/* a size that no record can have: reading stopped */
	union pt_rec_any rec;
};

/* 0; -ENOEXEC: not such a file; -EPROTO: another version; -EIO. */
int pt_raw_open(struct pt_raw_reader *r, FILE *f);
/* Size of the next record, left in r->rec; 0 at the end (also when truncated
 * or damaged: see the flags), -EIO. */
int pt_raw_next(struct pt_raw_reader *r);

#endif
