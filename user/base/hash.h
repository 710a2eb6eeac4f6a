/* SPDX-License-Identifier: BSD-2-Clause */
/* uthash, told to leave an element out when memory runs out rather than to
 * end the program: check PT_HASHED(elt) after an add. */
#ifndef PT_HASH_H
#define PT_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define PT_HASHED(elt) ((elt)->hh.tbl != NULL)

#endif
