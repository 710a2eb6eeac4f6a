// SPDX-License-Identifier: BSD-2-Clause
/* What every thread of a job is doing right now: its system call and its Python stack. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/privileges.h"
#include "base/str.h"
#include "base/vec.h"
#include "capture/discover.h"
#include "capture/procfs.h"
#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/stack.h"
#include "cmd/sudo.h"
#include "python/reader.h"

static const char doc[] =
	"Print once what every thread of a process, and of its descendants, is doing: "
	"its state, its system call and the Python lines that led there. Nothing is "
	"stopped or loaded. With -d, sample for that long, and say in which lines of the "
	"job's own code each thread spent its time, running or asleep.\v"
	"A thread that runs may have moved on while its stack was read.";

#define TEXT 512

struct frame {
	pid_t tid;
	struct pt_py_frame f;
};

struct stacks {
	PT_VEC(struct frame) v; /* by thread, the innermost first */
	pid_t tid;
	int err;
};

static bool on_thread(void *ctx, pid_t tid)
{
	((struct stacks *)ctx)->tid = tid;
	return true;
}

static void on_frame(void *ctx, const struct pt_py_frame *f)
{
	struct stacks *s = ctx;
	struct frame x = { .tid = s->tid, .f = *f };

	if (!s->err)
		s->err = pt_vec_push(&s->v, x);
}

/* The first argument of these is a descriptor. */
static bool takes_fd(const char *call)
{
	static const char *const names[] = {
		"read", "pread64", "readv", "preadv", "preadv2", "write", "pwrite64", "writev",
		"recvfrom", "recvmsg", "sendto", "sendmsg", "accept", "accept4", "connect", "ioctl",
		"epoll_wait", "epoll_pwait", "fsync", "fdatasync", "flock", "getdents64", "lseek",
	};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i], call))
			return true;
	return false;
}

static void put_fd(pid_t pid, unsigned long fd, unsigned flags)
{
	char path[64], to[TEXT], shown[TEXT];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%lu", (int)pid, fd);
	n = readlink(path, to, sizeof(to) - 1);
	if (n <= 0)
		return;
	to[n] = '\0';
	pt_str_term(shown, sizeof(shown), to, flags, 0);
	printf(" (descriptor %lu: %s)", fd, shown);
}

/* " in futex", by /proc; nothing where it runs. */
static void put_call(pid_t pid, pid_t tid, unsigned flags)
{
	char name[64], text[256];
	unsigned long arg = 0;
	char *call;
	int nr;

	snprintf(name, sizeof(name), "task/%d/syscall", (int)tid);
	if (pt_proc_read(pid, name, text, sizeof(text)) <= 0 ||
	    sscanf(text, "%d %lx", &nr, &arg) < 1)
		return;
	call = nr < 0 ? NULL : pt_syscall_name(nr);
	if (call) {
		printf(" in %s", call);
		if (takes_fd(call))
			put_fd(pid, arg, flags);
	} else if (nr >= 0) {
		printf(" in system call %d", nr);
	}
	free(call);
}

static const char *state_name(char state)
{
	switch (state) {
	case 'R': return "running";
	case 'S': return "asleep";
	case 'D': return "blocked";
	case 'T': return "stopped";
	case 't': return "stopped by a debugger";
	case 'Z': return "ended";
	default: return "idle";
	}
}

void pt_put_place(const char *file, int line, unsigned flags)
{
	char shown[4 * PT_PY_TEXT];

	pt_str_term(shown, sizeof(shown), file, flags, 0);
	printf(line ? "%s:%d\n" : "%s\n", shown, line);
}

static void put_thread(const struct stacks *s, pid_t pid, pid_t tid, unsigned flags)
{
	char shown[4 * PT_PY_TEXT];
	struct pt_proc_stat stat;
	size_t i;

	if (pt_proc_thread_stat(pid, tid, &stat))
		return; /* it has ended */
	pt_str_term(shown, sizeof(shown), stat.comm, flags, 0);
	printf("  thread %d %s: %s", (int)tid, shown, state_name(stat.state));
	if (stat.state != 'R')
		put_call(pid, tid, flags);
	printf("\n");
	for (i = 0; i < s->v.n; i++) {
		if (s->v.v[i].tid != tid)
			continue;
		pt_str_term(shown, sizeof(shown), s->v.v[i].f.name, flags, 0);
		printf("      %-28s ", shown);
		pt_put_place(s->v.v[i].f.file, s->v.v[i].f.line, flags);
	}
}

void pt_put_process(pid_t pid, const char *cmdline, unsigned flags)
{
	char shown[TEXT];

	pt_str_term(shown, sizeof(shown), cmdline, flags, 100);
	printf("process %d %s\n", (int)pid, shown);
}

static void put_process(pid_t pid, unsigned flags)
{
	struct stacks s = { .tid = 0 };
	const struct pt_py_sink sink = { on_thread, on_frame, &s };
	char path[64], cmdline[TEXT];
	struct pt_err err = { "" };
	struct pt_py *py = NULL;
	struct dirent *e;
	DIR *d;
	int ret = pt_py_open(&py, pid, &err);

	if (!ret)
		pt_py_stacks(py, &sink);
	if (pt_proc_cmdline(pid, cmdline, sizeof(cmdline)) <= 0)
		snprintf(cmdline, sizeof(cmdline), "?");
	pt_put_process(pid, cmdline, flags);
	if (!ret)
		printf("  Python %s\n", pt_py_version(py));
	else if (ret != -ENOENT)
		printf("  no Python lines: %s\n", err.msg);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			put_thread(&s, pid, (pid_t)atoi(e->d_name), flags);
	if (d)
		closedir(d);
	pt_py_close(py);
	free(s.v.v);
}

int pt_cmd_stack(int argc, char **argv)
{
	static pid_t pids[PT_STACK_PROCESSES];
	struct pt_tree t = { 0 };
	struct pt_opts o;
	size_t i, k, n;
	int status, ret;

	if (pt_opts_done(&o, PT_OPTS_STACK, doc, argc, argv, &status))
		return status;
	if (!o.n_pids)
		return pt_fail(PT_EXIT_USAGE, "stack needs a process: pipetrace stack -p PID");
	if (o.auto_duration)
		return pt_fail(PT_EXIT_USAGE, "stack takes -d SEC");
	if (pt_give_up(PT_RIGHTS_LOOK, 0))
		return PT_EXIT_FAILED;
	if (o.duration > 0)
		return pt_stack_sample(&o);
	ret = pt_tree_snapshot(&t);
	if (ret) {
		pt_error("cannot read /proc: %s", strerror(-ret));
		pt_tree_free(&t);
		return PT_EXIT_FAILED;
	}
	status = PT_EXIT_OK;
	for (i = 0; i < o.n_pids; i++) {
		if (!pt_tree_find(&t, o.pids[i])) {
			pt_error("there is no process %d", (int)o.pids[i]);
			status = PT_EXIT_FAILED;
			continue;
		}
		n = pt_tree_descendants(&t, o.pids[i], pids, PT_STACK_PROCESSES);
		for (k = 0; k < n && k < PT_STACK_PROCESSES; k++)
			put_process(pids[k], o.ascii ? 0 : PT_TERM_UNICODE);
	}
	pt_tree_free(&t);
	return status;
}
