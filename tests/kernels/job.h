/* SPDX-License-Identifier: BSD-2-Clause */
/* The job that is traced: its start, and its words. */
#ifndef PT_TESTS_JOB_H
#define PT_TESTS_JOB_H

#include <stddef.h>
#include <sys/types.h>

#include "capture/capture.h"

typedef void (*pt_job_fn)(void *ctx, const void *rec, size_t len);

/* Starts argv[0] with pipes to and from it; it dies with its parent. The pid, or
 * -1. */
pid_t job_start(char **argv, int *to, int *from);
/* Waits, for 240 s at most, until the job has written the line `word`. The
 * records of `c`, unless NULL, are handed to on_record meanwhile. 0, or -errno:
 * -EPROTO is another line. */
int job_await(int fd, const char *word, struct pt_capture *c,
	      pt_job_fn on_record);

#endif
