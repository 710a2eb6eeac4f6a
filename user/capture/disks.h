/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What device numbers stand for: the file system where the target sees it, the
 * disk below, and that disk's counters. From /proc/PID/mountinfo and /sys; no
 * path of the target is ever touched, for one on a dead server would hang.
 */
#ifndef PT_DISKS_H
#define PT_DISKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi.h"

struct pt_capture;
struct pt_disks;

struct pt_disks *pt_disks_new(void); /* NULL: out of memory; allowed below */
/* Any record that came: remembers the device number of a file. Cheap. */
void pt_disks_see(struct pt_disks *d, const void *rec);
/* A disk that the target's requests went to. */
void pt_disks_note(struct pt_disks *d, uint32_t disk);
/* Queue what is new, and the counters of disks. */
void pt_disks_tick(struct pt_capture *c, struct pt_disks *d);
void pt_disks_free(struct pt_disks *d);

/*
 * One line of mountinfo: true if it is of file system `dev`, with fstype,
 * mount and cls filled, and its options' `upperdir` (or "") in `upper`.
 * Separate for its unit test.
 */
bool pt_mountinfo_line(const char *line, uint32_t dev, struct pt_rec_disk *out,
		       char *upper, size_t size);
/* Counters of a disk's "stat" text. Separate for its unit test. */
void pt_disk_stat(const char *text, struct pt_rec_disk *out);

#endif
