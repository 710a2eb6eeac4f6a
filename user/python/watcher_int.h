/* SPDX-License-Identifier: BSD-2-Clause */
/* What the two sides of a watcher send each other: messages with their bounds kept. To
 * the child the job's processes; a 0 alone: look at nobody. Nothing: stop. */
#ifndef PT_PYTHON_WATCHER_INT_H
#define PT_PYTHON_WATCHER_INT_H


#include "abi.h"
#include "python/watcher.h"

#define PT_PY_PROCESSES 1024 /* of a job that are looked at */

struct pt_py_message {
	struct pt_py_seen seen;
	uint32_t len; /* bytes of records, whole ones */
	unsigned char records[16384];
};

#endif
