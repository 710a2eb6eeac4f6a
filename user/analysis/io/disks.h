/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_DISKS_ANALYSIS_H
#define PT_DISKS_ANALYSIS_H

#include "analysis/internal.h"

/* disks of the report. 0 or -ENOMEM. */
int pt_fill_disks(struct pt_an *an);
/* Where a file lies: fs, fs_class, device of `o`, whose dev is set. `f` is what
 * is known of it, or NULL. */
void pt_file_place(struct pt_an *an, const struct pt_file *f,
		   struct pt_r_file *o);
/* What the reads of a file had fetched from storage (bytes, or PT_NULL), into
 * fetched_bytes and cached_share; behind pt_file_place(). */
void pt_file_cached(struct pt_r_file *o, int64_t fetched);
/* "local", "network", ...: where a file lies; NULL unknown. Static. */
const char *pt_fs_class_of(const struct pt_an *an, uint32_t dev, uint64_t inode);
/* The disk that most of the target's requests went to, behind pt_fill_disks();
 * NULL: none that it read from. */
const struct pt_r_disk *pt_main_disk(const struct pt_an *an);

/* writes of the report. 0 or -ENOMEM. */
int pt_fill_writes(struct pt_an *an);
/* The file whose writing takes a process longest, behind pt_fill_writes(); NULL:
 * none was seen. */
const struct pt_r_write *pt_worst_write(const struct pt_an *an, int64_t pid);

#endif
