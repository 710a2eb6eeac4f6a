/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that appears whole or not at all: it has no name until the end (where the
 * file system knows no such files, a temporary one beside its own). Opened before
 * the capture, so that what cannot be written is known at once. Under sudo all of
 * it is done with the rights of the user who called: pt_give_up(), pt_privileges_reach().
 */
#ifndef PT_OUTFILE_H
#define PT_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"

/* Opens the folder of "dir/base" (`path` is as it was behind it). A descriptor; -EISDIR:
 * nothing in it can have that name; -errno. */
int pt_out_folder(char *path, const char **base);
/* A name for the time until it has its own. 0 or -EIO. */
int pt_out_temp(char name[64]);
/* A file without a name in the folder, so that a killed writer leaves nothing. A
 * descriptor; -EOPNOTSUPP: the file system knows no such files; -errno. */
int pt_out_unnamed(int folder);
/* Gives it one. 0 or -errno. */
int pt_out_name(int fd, int folder, const char *name);

struct pt_outfile {
	FILE *f; /* NULL: not open */
	char *path;
	const char *base; /* last component, inside path */
	char tmp[64];	/* temporary name; "": none */
	bool pending;	/* it is to get its name; else written in place */
	int dir;
	bool is_stdout;
	bool keep; /* do not replace a file of this name */
};

/*
 * "-" is standard output. Under sudo the file belongs to the invoking user;
 * its mode is 0600. An existing regular file of who asks is only replaced by
 * pt_outfile_commit(); a character device is written in place; anything else
 * that exists, a file of another user, and one that pt_open_regular() opened, is refused.
 * 0, or -errno with `err` filled.
 */
int pt_outfile_open(struct pt_outfile *o, const char *path, struct pt_err *err);
/* After pt_outfile_open(): a regular file that exists is not to be replaced,
 * nor one that appears until the commit. 0, or -errno with `err` filled and the
 * file given up. */
int pt_outfile_keep(struct pt_outfile *o, struct pt_err *err);
/* Give the file its name now, for one that is worth having though it may be
 * cut: what had the name is gone. 0, or -errno with `err` filled. */
int pt_outfile_publish(struct pt_outfile *o, struct pt_err *err);
/* 0, or -errno with `err` filled; the file is closed either way. */
int pt_outfile_commit(struct pt_outfile *o, struct pt_err *err);
/* The same behind whoever wrote `what` ("the report") with `ret`: a file that is not
 * whole is given up. 0, or -errno after a sentence. */
int pt_outfile_end(struct pt_outfile *o, const char *what, int ret);
/* A regular file to read, its size in *size (may be NULL): a fifo that nobody
 * writes would keep us waiting, a device may never end. Opened before the outputs, so that
 * none of them replaces it. NULL after a sentence. */
FILE *pt_open_regular(const char *path, off_t *size);

/* Give up: leave nothing behind. Harmless when not open. */
void pt_outfile_abandon(struct pt_outfile *o);

#endif
