/* SPDX-License-Identifier: BSD-2-Clause */
/* Kinds of file system: what one is called, and where its files are. */
#ifndef PT_FSNAME_H
#define PT_FSNAME_H

#include <stdint.h>

/* Name for a super block's magic number (statfs(2), linux/magic.h); NULL:
 * not known. "ext4" stands for ext2 and ext3 as well, "fuse" for every kind. */
const char *pt_fs_name(uint32_t magic);

/* PT_FS_* of a type as /proc/PID/mountinfo names it ("ext4", "fuse.sshfs");
 * PT_FS_UNKNOWN for NULL, stacked and unknown ones. */
unsigned pt_fs_class(const char *type);

/* "local", "network", "memory", "user"; NULL for PT_FS_UNKNOWN. */
const char *pt_fs_class_name(unsigned cls);

#endif
