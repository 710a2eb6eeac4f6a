/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A folder of files that appears whole or not at all. Its files have no name until the
 * end; then it is made under a temporary name beside its own, filled and renamed, by a
 * child that outlives whoever is killed in that moment. Where the file system knows no files without a name it is made so at
 * the beginning. It never replaces anything.
 */
#ifndef PT_OUTDIR_H
#define PT_OUTDIR_H

#include <stdio.h>

#include "base/err.h"

#define PT_OUTDIR_FILES 64

struct pt_outdir {
	char *path; /* NULL: not open */
	const char *base; /* last component, inside path */
	char tmp[64]; /* "": it is not there yet */
	int parent, dir;
	char *names[PT_OUTDIR_FILES]; /* of its files */
	int fds[PT_OUTDIR_FILES]; /* of those without a name; -1: it has its own */
	size_t n;
};

/* Mode 0700; under sudo it belongs to the invoking user, and so do its files
 * (0600). 0, or -errno with `err` filled. */
int pt_outdir_open(struct pt_outdir *o, const char *path, struct pt_err *err);
/* A new file in it, to be closed by the caller; NULL with errno set. */
FILE *pt_outdir_file(struct pt_outdir *o, const char *name);
/* Give it its name. 0, or -errno with `err` filled; closed either way. */
int pt_outdir_commit(struct pt_outdir *o, struct pt_err *err);
/* Give up: leave nothing behind. Harmless when not open. */
void pt_outdir_abandon(struct pt_outdir *o);

#endif
