/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fsname.h"

#include <stddef.h>
#include <string.h>

#include "abi.h"

static const struct {
	uint32_t magic;
	uint16_t cls;
	const char *name;
} kinds[] = {
	{ 0xef53, PT_FS_LOCAL, "ext4" },
	{ 0x58465342, PT_FS_LOCAL, "xfs" },
	{ 0x9123683e, PT_FS_LOCAL, "btrfs" },
	{ 0xf2f52010, PT_FS_LOCAL, "f2fs" },
	{ 0x2fc12fc1, PT_FS_LOCAL, "zfs" },
	{ 0xca451a4e, PT_FS_LOCAL, "bcachefs" },
	{ 0x73717368, PT_FS_LOCAL, "squashfs" },
	{ 0xe0f5e1e2, PT_FS_LOCAL, "erofs" },
	{ 0x9660, PT_FS_LOCAL, "iso9660" },
	{ 0x4d44, PT_FS_LOCAL, "vfat" },
	{ 0x2011bab0, PT_FS_LOCAL, "exfat" },
	{ 0x7366746e, PT_FS_LOCAL, "ntfs3" },
	{ 0x3153464a, PT_FS_LOCAL, "jfs" },
	{ 0x52654973, PT_FS_LOCAL, "reiserfs" },
	{ 0x6969, PT_FS_NETWORK, "nfs" },
	{ 0xff534d42, PT_FS_NETWORK, "cifs" },
	{ 0xfe534d42, PT_FS_NETWORK, "smb3" },
	{ 0x00c36400, PT_FS_NETWORK, "ceph" },
	{ 0x01021997, PT_FS_NETWORK, "9p" },
	{ 0x0bd00bd0, PT_FS_NETWORK, "lustre" },
	{ 0x47504653, PT_FS_NETWORK, "gpfs" },
	{ 0x6b414653, PT_FS_NETWORK, "afs" },
	{ 0x5346414f, PT_FS_NETWORK, "afs" },
	{ 0x19830326, PT_FS_NETWORK, "beegfs" },
	{ 0x20030528, PT_FS_NETWORK, "orangefs" },
	{ 0x01161970, PT_FS_LOCAL, "gfs2" },
	{ 0x7461636f, PT_FS_LOCAL, "ocfs2" },
	{ 0x01021994, PT_FS_MEMORY, "tmpfs" },
	{ 0x858458f6, PT_FS_MEMORY, "ramfs" },
	{ 0x958458f6, PT_FS_MEMORY, "hugetlbfs" },
	{ 0x9fa0, PT_FS_MEMORY, "proc" },
	{ 0x62656572, PT_FS_MEMORY, "sysfs" },
	{ 0x65735546, PT_FS_USER, "fuse" },
	{ 0x794c7630, PT_FS_UNKNOWN, "overlay" },
};

/* Types that go by another name in mountinfo. */
static const struct {
	const char *name;
	uint16_t cls;
} types[] = {
	{ "ext2", PT_FS_LOCAL },    { "ext3", PT_FS_LOCAL },
	{ "msdos", PT_FS_LOCAL },   { "ntfs", PT_FS_LOCAL },
	{ "udf", PT_FS_LOCAL },	    { "nilfs2", PT_FS_LOCAL },
	{ "nfs4", PT_FS_NETWORK },  { "smbfs", PT_FS_NETWORK },
	{ "ncpfs", PT_FS_NETWORK }, { "virtiofs", PT_FS_NETWORK },
	{ "devtmpfs", PT_FS_MEMORY }, { "fuseblk", PT_FS_USER },
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

const char *pt_fs_name(uint32_t magic)
{
	size_t i;

	for (i = 0; i < COUNT(kinds); i++)
		if (kinds[i].magic == magic)
			return kinds[i].name;
	return NULL;
}

unsigned pt_fs_class(const char *type)
{
	size_t i;

	if (!type)
		return PT_FS_UNKNOWN;
	if (!strncmp(type, "fuse.", 5))
		return PT_FS_USER;
	for (i = 0; i < COUNT(kinds); i++)
		if (!strcmp(kinds[i].name, type))
			return kinds[i].cls;
	for (i = 0; i < COUNT(types); i++)
		if (!strcmp(types[i].name, type))
			return types[i].cls;
	return PT_FS_UNKNOWN;
}

const char *pt_fs_class_name(unsigned cls)
{
	switch (cls) {
	case PT_FS_LOCAL: return "local";
	case PT_FS_NETWORK: return "network";
	case PT_FS_MEMORY: return "memory";
	case PT_FS_USER: return "user";
	default: return NULL;
	}
}
