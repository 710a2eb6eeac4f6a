/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A memory file that another process has open, as a descriptor of ours. Which
 * number it has is the other's word, and may be anything: another file of its
 * own, one that it cannot read, one that becomes another meanwhile. So the open
 * file itself is fetched, by pidfd_getfd() and never by a path, and looked at
 * before the first write. What passes was made by memfd_create(), and the other
 * process can write to it itself: our rights add nothing to its.
 */
#ifndef PT_INJECT_MEMFD_H
#define PT_INJECT_MEMFD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PT_MEMFD_ANY ((uid_t)-1)

/*
 * The file behind descriptor `fd` of process `pid`. `fresh`: empty and not sealed,
 * as it is just made; `owner`: the user that made it, PT_MEMFD_ANY: any.
 *
 * A descriptor of ours, read-write and with an open file description of its own,
 * so that a lock on it ends with this process; the caller closes it. Or -errno:
 * -EMEDIUMTYPE: no such memory file, -EBADF: it has no such descriptor, -ESRCH,
 * -EPERM.
 */
int pt_memfd_take(pid_t pid, int fd, bool fresh, uid_t owner);

/* The device of all memory files, as /proc/PID/maps has it: (major << 20) |
 * minor. 0: none could be made. */
uint32_t pt_memfd_dev(void);

#endif
