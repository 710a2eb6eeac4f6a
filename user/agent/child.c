// SPDX-License-Identifier: BSD-2-Clause
#include "agent/child.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NICENESS 10
#define KILL_AFTER_S 10.0 /* of having been asked to end */
#define OUT_MAX (32u << 20)
#define REAP_MS 2000

static void limit(int what, uint64_t value)
{
	struct rlimit r = { .rlim_cur = value, .rlim_max = value };

	/* a lower one that is there already stays */
	if (setrlimit(what, &r))
		return;
}

/* Between fork and exec of a program with threads: system calls only. */
static int become(char *const argv[], const struct pt_child *c,
		  const struct pt_child_limits *l, pid_t parent)
{
	struct sched_param batch = { 0 };
	sigset_t none;
	int null;

	if (setpgid(0, 0) || prctl(PR_SET_PDEATHSIG, SIGKILL) ||
	    getppid() != parent)
		return 126;
	null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(c->out, STDOUT_FILENO) < 0 || dup2(c->err, STDERR_FILENO) < 0)
		return 126;
	/* libcurl's sockets are not closed by exec by themselves; where this kernel
	 * cannot do it, the child has a few descriptors that it does not use */
	if (close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC))
		errno = 0;
	/* both only make it yield to the job: without them it goes on */
	if (setpriority(PRIO_PROCESS, 0, NICENESS) ||
	    sched_setscheduler(0, SCHED_BATCH, &batch))
		errno = 0;
	limit(RLIMIT_AS, l->memory);
	limit(RLIMIT_FSIZE, l->file_size);
	limit(RLIMIT_CORE, 0);
	/* a file that grew too large is an error to tell, not an end */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv("/proc/self/exe", argv);
	return 127;
}

static void close_all(struct pt_child *c)
{
	int *fds[] = { &c->pidfd, &c->out, &c->err };
	size_t i;

	for (i = 0; i < sizeof(fds) / sizeof(*fds); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
	c->pid = 0;
}

int pt_child_start(struct pt_child *c, char *const argv[],
		   const struct pt_child_limits *l, struct pt_err *err)
{
	pid_t parent = getpid();
	int ret;

	memset(c, 0, sizeof(*c));
	c->pidfd = -1;
	c->out = memfd_create("pipetrace-out", MFD_CLOEXEC);
	c->err = memfd_create("pipetrace-err", MFD_CLOEXEC);
	if (c->out < 0 || c->err < 0)
		goto fail;
	c->started = pt_now();
	c->soft = c->started + l->soft_s;
	c->hard = c->started + l->hard_s;
	c->pid = fork();
	if (c->pid < 0)
		goto fail;
	if (!c->pid)
		_exit(become(argv, c, l, parent));
	/* by both, so that the group is there before anybody needs it */
	if (setpgid(c->pid, c->pid) && errno != EACCES)
		goto fail;
	c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	if (c->pidfd >= 0)
		return 0;
fail:
	ret = -errno;
	if (c->pid > 0)
		pt_child_kill(c);
	close_all(c);
	return pt_err_set(err, ret, "cannot start a process: %s",
			  strerror(-ret));
}

void pt_child_ask(struct pt_child *c, double now)
{
	if (!c->pid || c->asked)
		return;
	c->asked = true;
	c->hard = fmin(c->hard, now + KILL_AFTER_S);
	kill(c->pid, SIGTERM);
}

double pt_child_tick(struct pt_child *c, double now)
{
	if (!c->pid)
		return INFINITY;
	if (now >= c->hard && !c->killed) {
		c->killed = true;
		kill(-c->pid, SIGKILL);
	}
	if (now >= c->soft)
		pt_child_ask(c, now);
	return c->killed ? now + 1 : c->asked ? c->hard : fmin(c->soft, c->hard);
}

/* Without reaping: its number, and its group's, stay its own meanwhile. */
bool pt_child_done(const struct pt_child *c)
{
	siginfo_t si = { .si_pid = 0 };

	return c->pid && !waitid(P_PID, (id_t)c->pid, &si,
				 WEXITED | WNOHANG | WNOWAIT) && si.si_pid;
}

/* Waits for what was killed; one that the kernel does not let go is left to who
 * comes after us. */
static bool wait_for(pid_t pid, int *status, struct rusage *u)
{
	struct timespec ms = { 0, 1000000 };
	int i;
	pid_t got;

	for (i = 0; i < REAP_MS; i++) {
		got = wait4(pid, status, WNOHANG, u);
		if (got > 0)
			return true;
		if (got < 0 && errno != EINTR)
			return false;
		nanosleep(&ms, NULL);
	}
	return false;
}

/* The group is ended before its leader is reaped; orphans of it became ours
 * (PR_SET_CHILD_SUBREAPER). */
static void reap(struct pt_child *c, struct pt_child_result *r)
{
	struct rusage u = { 0 };
	pid_t group = c->pid;

	kill(-group, SIGKILL);
	r->status = -1;
	wait_for(group, &r->status, &u);
	r->cpu_s = pt_cpu_s(&u);
	r->resident = (double)u.ru_maxrss * 1024;
	while (wait_for(-group, NULL, &u))
		r->cpu_s += pt_cpu_s(&u);
}

static char *read_all(int fd, size_t max, size_t *len)
{
	off_t size = lseek(fd, 0, SEEK_END);
	size_t n = size > 0 ? (size_t)size : 0, at = 0;
	ssize_t got;
	char *s;

	if (n > max)
		n = max;
	s = malloc(n + 1);
	if (!s)
		return NULL;
	for (; at < n; at += (size_t)got) {
		got = pread(fd, s + at, n - at, (off_t)at);
		if (got <= 0)
			break;
	}
	s[at] = '\0';
	*len = at;
	return s;
}

static void last_line(int fd, char *out, size_t cap)
{
	char text[2048], *line;
	off_t size = lseek(fd, 0, SEEK_END);
	off_t from = size > (off_t)sizeof(text) - 1 ?
			     size - (off_t)sizeof(text) + 1 : 0;
	ssize_t n = pread(fd, text, sizeof(text) - 1, from);

	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n > 0 ? n : 0] = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	if (!strncmp(line, "pipetrace: ", 11))
		line += 11;
	snprintf(out, cap, "%.200s", line);
}

bool pt_child_says(struct pt_child *c, char *out, size_t cap)
{
	off_t size = c->pid ? lseek(c->err, 0, SEEK_END) : 0;

	if (size <= c->heard)
		return false;
	c->heard = size;
	last_line(c->err, out, cap);
	return true;
}

int pt_child_finish(struct pt_child *c, struct pt_child_result *r)
{
	memset(r, 0, sizeof(*r));
	reap(c, r);
	last_line(c->err, r->last, sizeof(r->last));
	r->out = read_all(c->out, OUT_MAX, &r->out_len);
	close_all(c);
	return r->out ? 0 : -ENOMEM;
}

void pt_child_result_free(struct pt_child_result *r)
{
	free(r->out);
	r->out = NULL;
}

void pt_child_kill(struct pt_child *c)
{
	struct pt_child_result r;

	if (!c->pid)
		return;
	kill(-c->pid, SIGKILL);
	kill(c->pid, SIGKILL);
	reap(c, &r);
	close_all(c);
}
