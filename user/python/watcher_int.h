/* SPDX-License-Identifier: BSD-2-Clause */
/* What the two sides of a watcher send each other: messages with their bounds kept. To
 * the child the job's processes, negative those that are sampled in the kernel; a 0 alone:
 * look at nobody. Nothing: stop. */
#ifndef PT_PYTHON_WATCHER_INT_H
#define PT_PYTHON_WATCHER_INT_H

#include "abi.h"
#include "python/reader.h"
#include "python/watcher.h"

#define PT_PY_PROCESSES 1024 /* of a job that are looked at */

#define PT_PY_FOUND 8		     /* in a message */

struct pt_py_message {
	struct pt_py_seen seen;
	uint32_t n_found;
	uint32_t len; /* bytes of records, whole ones */
	struct pt_py_found found[PT_PY_FOUND]; /* processes that could be sampled */
	unsigned char records[16384];
};

#endif
