/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records by columns: the same records, lossless and in the same order, laid
 * out so that a general compressor makes them small. What a thread's next
 * record can be told from the last one is left out, the rest is cut into
 * planes of equal bytes. docs/recording.md has the layout.
 *
 * Pure functions over memory; the caller compresses.
 */
#ifndef PT_STORE_COLUMNS_H
#define PT_STORE_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

typedef PT_VEC(unsigned char) pt_bytes;

/* No block of records is larger, before or behind. */
#define PT_COL_MAX_RAW (16u << 20)
/* Record forms (kind and size) in one block. */
#define PT_COL_MAX_SHAPES 64

/* Room for `n` more bytes, to be written by the caller; NULL: none. */
unsigned char *pt_bytes_extend(pt_bytes *b, size_t n);

/*
 * Append the columns of the records that lie back to back in raw[0..len) to
 * `out`. 0; -EINVAL: not whole records, or too many forms or bytes; -ENOMEM.
 * When it fails `out` may have grown.
 */
int pt_columns_encode(const void *raw, size_t len, pt_bytes *out);

/*
 * The reverse: append the records to `out`, and their number to *n. `in` may
 * hold anything. 0; -EBADMSG: these are no columns; -ENOMEM.
 */
int pt_columns_decode(const void *in, size_t len, pt_bytes *out, uint64_t *n);

#endif
