/* SPDX-License-Identifier: BSD-2-Clause */
/* The one sentence that explains an error to the user, with the remedy. */
#ifndef PT_ERR_H
#define PT_ERR_H

#include <stdio.h>

#define PT_ERR_LEN 512
struct pt_err {
	char msg[PT_ERR_LEN];
};

/* Returns `err`. `e` may be NULL. */
int pt_err_set(struct pt_err *e, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Did writing to it fail so far? 0, or why: errno, where that was 0 before, else -EIO. */
int pt_err_written(FILE *f);

#endif
