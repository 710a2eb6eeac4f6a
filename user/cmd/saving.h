/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorded file of a trace (-o FILE), from the side of the session. */
#ifndef PT_SAVING_H
#define PT_SAVING_H

#include <stddef.h>

#include "cmd/outfile.h"
#include "report/report.h"

struct pt_recorder;

struct pt_saving {
	struct pt_outfile out;
	struct pt_outfile next; /* while the file is made smaller */
	uint64_t max; /* bytes; 0: no limit */
	bool marks;   /* marks say where the trace was cut into parts */
	struct pt_recorder *rec; /* NULL: nothing is recorded (any more) */
	bool failed;		 /* and told */
};

/* Before the attach: can the file be written? 0, or -errno with `err`. */
int pt_saving_open(struct pt_saving *s, const char *path, struct pt_err *err);
/* Behind the attach: the file gets its name, and `r`, as far as it is known. */
int pt_saving_begin(struct pt_saving *s, const struct pt_report *r,
		    struct pt_err *err);
void pt_saving_record(struct pt_saving *s, const void *rec, size_t len);
/* Once a second: hand on to the disk; a disk that fails is told of once. */
void pt_saving_tick(struct pt_saving *s);
/* All is known: finish the file. 0, or -errno after a sentence. */
int pt_saving_end(struct pt_saving *s, const struct pt_report *r);
/* Give up whatever is open. Harmless otherwise. */
void pt_saving_abandon(struct pt_saving *s);

#endif
