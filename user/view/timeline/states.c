// SPDX-License-Identifier: BSD-2-Clause
/* Words for what a thread waits for. */
#include "view/timeline/trace.h"

const char *pt_wait_name(enum pt_wait w)
{
	static const char *const names[PT_WAIT_NR] = {
		[PT_WAIT_RUNQ] = "run queue",
		[PT_WAIT_DISK] = "disk",
		[PT_WAIT_DISK_WRITE] = "disk write",
		[PT_WAIT_FAULT] = "page fault",
		[PT_WAIT_PIPE_IN] = "pipe",
		[PT_WAIT_PIPE_OUT] = "pipe full",
		[PT_WAIT_SOCK] = "socket",
		[PT_WAIT_FUTEX] = "futex",
		[PT_WAIT_SLEEP] = "sleep",
		[PT_WAIT_POLL] = "poll",
		[PT_WAIT_STOPPED] = "stopped",
		[PT_WAIT_OTHER] = "blocked",
		[PT_WAIT_FLOCK] = "file lock",
		[PT_WAIT_CHILD] = "child",
		[PT_WAIT_MSGQ] = "message queue",
		[PT_WAIT_SEM] = "semaphore",
		[PT_WAIT_EVENT] = "event",
		[PT_WAIT_INODE_LOCK] = "inode lock",
		[PT_WAIT_RECLAIM] = "memory reclaim",
		[PT_WAIT_URING] = "io_uring",
		[PT_WAIT_SIGNAL] = "signal",
	};

	return (unsigned)w < PT_WAIT_NR ? names[w] : names[PT_WAIT_OTHER];
}

const char *pt_iv_path(const struct pt_model *m, const struct pt_iv *iv)
{
	const struct pt_file *f;

	if (iv->obj_kind != PT_OBJ_FILE && iv->obj_kind != PT_OBJ_DIR)
		return NULL;
	f = pt_model_file(m, iv->dev, iv->object);
	return f ? f->path : NULL;
}
