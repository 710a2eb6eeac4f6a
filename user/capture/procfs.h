/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading /proc: bounded, and safe against processes that vanish, reuse a pid
 * or choose hostile names. Nothing here allocates; nothing follows a path
 * that the target chose.
 */
#ifndef PT_PROCFS_H
#define PT_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PT_PROC_COMM 64 /* kernel threads have longer names than 15 bytes */

struct pt_proc_stat {
	pid_t pid, ppid, session;
	char comm[PT_PROC_COMM];
	char state; /* R S D Z T ... */
	uint64_t utime_ns, stime_ns;
	uint64_t start_ticks; /* since boot, in 1/USER_HZ s */
	uint64_t start_code, start_stack; /* 0 when hidden from us */
	uint32_t threads;
	bool kthread;
};

/*
 * Read the file `name` of /proc/PID (e.g. "stat", "task/7/comm") into buf,
 * NUL-terminated, at most size - 1 bytes. Returns the length or -errno;
 * -ESRCH when the process is gone.
 */
ssize_t pt_proc_read(pid_t pid, const char *name, char *buf, size_t size);

/* The same for any small file of the kernel's own file systems. */
ssize_t pt_file_read(const char *path, char *buf, size_t size);
/* Its first line into buf. NULL: it cannot be read, or the line is empty. */
const char *pt_file_line(const char *path, char *buf, size_t size);

/* Of its lines "key value", that of the key; UINT64_MAX: there is none. */
uint64_t pt_file_key(const char *text, const char *key);

/* Parse the text of a stat file: separate for its unit test. 0 or -EINVAL. */
int pt_proc_parse_stat(const char *text, struct pt_proc_stat *out);
int pt_proc_stat(pid_t pid, struct pt_proc_stat *out);
/* The same of one of its threads. */
int pt_proc_thread_stat(pid_t pid, pid_t tid, struct pt_proc_stat *out);

/* Process that a thread (or process) id belongs to. 0, -ESRCH or -errno. */
int pt_proc_tgid(pid_t tid, pid_t *tgid);

/* Effective user. */
int pt_proc_uid(pid_t pid, uid_t *uid);

/* The user's name from the local password file, else the number. Never asks
 * a directory service: that may hang, and is unsafe in a static program. */
void pt_user_name(uid_t uid, char *buf, size_t size);

/*
 * Value of "Key:" lines in a status-like text, in the file's own unit
 * (kB lines give kB). 0 or -ENOENT.
 */
int pt_proc_field(const char *text, const char *key, uint64_t *out);

/*
 * The command line with secrets masked ("--token=***", "API_KEY=***"),
 * arguments separated by spaces, cut at size - 1 bytes. The bytes are still
 * the target's: escape them for the place they are printed in.
 * Length or -errno; 0 for a process without one.
 */
ssize_t pt_proc_cmdline(pid_t pid, char *buf, size_t size);

/* Mask secrets in `args` (len bytes, NUL-separated) into buf as above. */
size_t pt_cmdline_mask(const char *args, size_t len, char *buf, size_t size);

/* The environment that the process was started with, the first 256 KiB of it. To be freed in
 * any case. 0 or -errno. */
struct pt_env {
	char *text;
	size_t len;
};
int pt_env_read(pid_t pid, struct pt_env *e);
void pt_env_free(struct pt_env *e);
/* One of its variables, cut to size - 1. 0 or -ENOENT. */
int pt_env_get(const struct pt_env *e, const char *name, char *buf, size_t size);
/* Where it is but one. 0, -ENOENT or -errno. */
int pt_proc_getenv(pid_t pid, const char *name, char *buf, size_t size);

/* 64 (or 12 and more) hex digits of the container in the cgroup path, or
 * -ENOENT. `text` is the content of /proc/PID/cgroup. */
int pt_cgroup_container(const char *text, char *buf, size_t size);
int pt_proc_container(pid_t pid, char *buf, size_t size);

/*
 * Directory of the control group of a controller ("cpu", "memory", "blkio" of version 1 ...),
 * as this mount namespace sees it: version 1 or 2 as return value, or -errno (-ENOENT: none
 * mounted). `text` is the content of /proc/PID/cgroup.
 */
int pt_cgroup_dir(const char *text, const char *controller, char *buf, size_t size);
int pt_cgroup_dir_of(pid_t pid, const char *controller, char *buf, size_t size);

#endif
