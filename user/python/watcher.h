/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A child that looks at a job's threads and sends what it saw as records (PYLINE, PYSTACK,
 * PYLOOK, PYPLACE, PYTHON). What it reads is the job's, so it may do nothing but look; what it
 * sends is taken as a stranger's. If it hangs or dies, there are no more lines, and that is all.
 */
#ifndef PT_PYTHON_WATCHER_H
#define PT_PYTHON_WATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct pt_py_watcher;
struct pt_py_watch;
struct pt_py_found;

typedef void (*pt_py_record_fn)(void *ctx, const void *rec, size_t len);

struct pt_py_seen {
	uint32_t processes; /* whose Python can be read */
	uint32_t looks;	    /* all threads once */
	uint32_t samples;   /* of threads on a core, that were made sense of */
	uint32_t strange;   /* ... that could not be */
	uint64_t cpu_ns;    /* that all took */
	uint64_t sample_ns; /* of it the samples */
	char why[PT_ERR_LEN]; /* why one cannot be read, the latest; or "" */
};

/* With no thread running. `ring`, of so many bytes: where samples in the kernel come (struct
 * pt_py_sample), for the child alone to read; -1: none come. pt_py_watcher_free() it. 0 or
 * -errno with a sentence. */
int pt_py_watcher_start(struct pt_py_watcher **out, int ring, size_t bytes, struct pt_err *err);
/* These are the job's processes now, negative those that are sampled; none: look at nobody,
 * for the time being. */
void pt_py_watcher_follow(struct pt_py_watcher *w, const pid_t *pids, size_t n);
/* A process that can be sampled, with numbers that may be given to the program; as they
 * came in what was drained. False: there is no more. */
bool pt_py_watcher_found(struct pt_py_watcher *w, struct pt_py_found *out);
/* Hand on what has come; never blocks. False: the child has gone. */
bool pt_py_watcher_drain(struct pt_py_watcher *w, pt_py_record_fn fn, void *ctx);
/* No more looks; what is on its way is handed on. Bounded in time. */
void pt_py_watcher_stop(struct pt_py_watcher *w, pt_py_record_fn fn, void *ctx);
/* What the child said last; zero before. */
const struct pt_py_seen *pt_py_watcher_seen(const struct pt_py_watcher *w);
void pt_py_watcher_free(struct pt_py_watcher *w);

/* The child's side, in two steps: what it is given is taken hold of (NULL: out of memory;
 * without a ring that cannot be read it only looks), then it looks until the other end
 * closes or says stop, and frees it. For its test, too. */
struct pt_py_watch *pt_py_watch_new(int sock, int ring, size_t bytes);
void pt_py_watch(struct pt_py_watch *w);

#endif
