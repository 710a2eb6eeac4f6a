/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The recorded file (.ptrace): what a capture saw, to be diagnosed again later
 * and elsewhere. docs/recording.md describes the format for others.
 *
 * A head, then chunks back to back. A chunk is whole or it does not count: a
 * file that was cut anywhere opens up to its last whole chunk. All numbers are
 * little-endian.
 */
#ifndef PT_STORE_RECORDING_H
#define PT_STORE_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "store/columns.h"

#define PT_RECORDING_MAGIC "\x89PTRACE\n" /* 8 bytes, no text file has them */
/* Grows when an older reader could misread the file; what such a reader may
 * skip is a new chunk type instead. */
#define PT_RECORDING_FORMAT 1

struct pt_rf_head {
	char magic[8];
	uint32_t size;	 /* of this head: a longer one is skipped over */
	uint32_t format; /* PT_RECORDING_FORMAT of the writer */
	uint32_t abi;	 /* PT_ABI_VERSION */
	uint32_t pad;
	uint64_t unix_ns; /* when the file was begun */
};
_Static_assert(sizeof(struct pt_rf_head) == 32, "pt_rf_head");

/* Chunk types: append only. Unknown ones are skipped. */
#define PT_RF_RECORDS 1 /* columns of records (store/columns.h) */
#define PT_RF_ABOUT 2	/* host, target, labels, hooks (report/about.h); a
			 * later one replaces an earlier one */
#define PT_RF_INDEX 3	/* struct pt_rf_index[], one per RECORDS chunk */
#define PT_RF_END 4	/* struct pt_rf_end: the writer ended in good order */

#define PT_RF_ZSTD 1u /* flags: the data is one zstd frame */

#define PT_RF_CHUNK_MAGIC 0x6b436350u /* "PcCk" */

struct pt_rf_chunk {
	uint32_t magic;
	uint32_t size;	/* of this head: a longer one is skipped over */
	uint32_t type;	/* PT_RF_* */
	uint32_t flags;
	uint32_t stored; /* bytes of data behind this head */
	uint32_t plain;	 /* ... once decompressed */
	uint64_t begin, end; /* RECORDS: first and last time, ns; else 0 */
	uint32_t records;
	uint32_t dropped;  /* RECORDS: lost right before this chunk, because
			    * the writer could not keep up */
	uint32_t data_crc; /* CRC-32 (zlib's) of the stored data */
	uint32_t head_crc; /* ... of this head up to here */
};
_Static_assert(sizeof(struct pt_rf_chunk) == 56, "pt_rf_chunk");

struct pt_rf_index {
	uint64_t offset, begin, end;
	uint64_t records;
};
_Static_assert(sizeof(struct pt_rf_index) == 32, "pt_rf_index");

struct pt_rf_end {
	uint64_t index; /* offset of the INDEX chunk */
	uint64_t records;
	uint64_t dropped; /* in all */
};
_Static_assert(sizeof(struct pt_rf_end) == 24, "pt_rf_end");

/* No chunk holds more, stored or plain. */
#define PT_RF_MAX_DATA PT_COL_MAX_RAW

/* ---- writing, on one thread ------------------------------------------------ */
struct pt_rf_writer {
	FILE *f; /* the caller's */
	void *zstd;
	pt_bytes columns, stored;
	PT_VEC(struct pt_rf_index) index;
	uint64_t at; /* bytes written */
	uint64_t records;
	uint64_t dropped; /* since the last chunk: for the caller to add to */
	uint64_t dropped_before;
};

/* Write the head. 0, -EIO with errno telling why, -ENOMEM. */
int pt_rf_begin(struct pt_rf_writer *w, FILE *f, uint64_t unix_ns);
/* A chunk of records that lie back to back, at most PT_RF_MAX_DATA bytes.
 * 0, -EINVAL (not records), -EIO, -ENOMEM. */
int pt_rf_put(struct pt_rf_writer *w, const void *records, size_t len);
int pt_rf_about(struct pt_rf_writer *w, const void *data, size_t len);
/* Index and end mark; the file is whole after this. */
int pt_rf_end(struct pt_rf_writer *w);
/* What that would add now. */
uint64_t pt_rf_end_bytes(const struct pt_rf_writer *w);
void pt_rf_writer_free(struct pt_rf_writer *w);

/* ---- reading --------------------------------------------------------------- */
enum pt_rf_state {
	PT_RF_READING,
	PT_RF_WHOLE,   /* the end mark was reached */
	PT_RF_CUT,     /* the file ends before it: the capture was not closed,
			* or the file is not all there */
	PT_RF_DAMAGED, /* what follows the last whole chunk is none */
};

struct pt_rf_reader {
	FILE *f; /* the caller's */
	struct pt_rf_head head;
	enum pt_rf_state state;
	uint64_t records;  /* read so far */
	uint64_t dropped;  /* records that were lost while recording */
	uint64_t skipped;  /* chunks of unknown types */
	pt_bytes about;	   /* the latest */
	pt_bytes raw;	   /* the records of the latest RECORDS chunk */
	pt_bytes stored, plain;
};

/* 0; -ENOEXEC: no recorded file; -EPROTO: of a later format; -EIO. */
int pt_rf_open(struct pt_rf_reader *r, FILE *f);
/*
 * The next chunk of records, left in r->raw. 1; 0: there is no more, r->state
 * says why; -EIO, -ENOMEM.
 */
int pt_rf_next(struct pt_rf_reader *r);
/* How many records the chunks from here on say that they hold: a quick look at
 * their heads, behind which `r` is where it was. */
uint64_t pt_rf_count(struct pt_rf_reader *r);
void pt_rf_reader_free(struct pt_rf_reader *r);

#endif
