/* SPDX-License-Identifier: BSD-2-Clause */
/* Files by device and inode, with the name that their record told. */
#include <errno.h>
#include <string.h>

#include "model/internal.h"

const struct pt_file *pt_model_file(const struct pt_model *m, uint32_t dev,
				    uint64_t inode)
{
	struct pt_file_key key = { inode, dev };
	struct pt_file *f;

	HASH_FIND(hh, m->files, &key, sizeof(key), f);
	return f;
}

int pt_feed_file(struct pt_model *m, const struct pt_rec_file *r)
{
	struct pt_thread *t = pt_thread_find(m, r->hdr.tid, r->hdr.tgid,
					     r->hdr.start);
	struct pt_file_key key = { r->inode, r->dev };
	const char *part[8];
	struct pt_file *f;
	size_t i, n = 0, pos = 0, len = 0;
	char *path;

	/* it takes a number of the thread that met the file; a name from
	 * before the thread's first record does not begin its numbering */
	if (t && t->seq_known)
		pt_take_seq(m, t, r->hdr.seq);
	HASH_FIND(hh, m->files, &key, sizeof(key), f);
	if (f)
		return 0;
	while (n < r->parts && n < 8 && pos < sizeof(r->path)) {
		size_t l = strnlen(r->path + pos, sizeof(r->path) - pos);

		if (!l || pos + l == sizeof(r->path))
			break;
		part[n++] = r->path + pos;
		pos += l + 1;
		len += l + 1;
	}
	f = pt_arena_alloc(m->arena, sizeof(*f));
	path = n ? pt_arena_alloc(m->arena, len + 5) : NULL;
	if (!f || (n && !path))
		return -ENOMEM;
	f->key = key;
	f->size = r->size;
	f->mode = r->mode;
	f->fs_magic = r->fs_magic;
	f->truncated = r->truncated || r->hdr.flags & PT_F_READ_FAILED;
	if (path) {
		/* innermost first in the record; the mount's own place in the
		 * tree is not known here */
		if (f->truncated)
			strcat(path, "...");
		for (i = n; i-- > 0;) {
			strcat(path, "/");
			strcat(path, part[i]);
		}
		f->path = path;
	}
	HASH_ADD(hh, m->files, key, sizeof(f->key), f);
	if (!PT_HASHED(f))
		return -ENOMEM;
	return 0;
}
