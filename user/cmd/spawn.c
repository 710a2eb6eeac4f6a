// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/spawn.h"
#include "cmd/sudo.h"

/* Only async-signal-safe calls would be needed after fork in a threaded
 * program; this one has a single thread when it starts a command. */
static int child(char *const argv[], const struct pt_spawn_opts *o,
		 const struct pt_invoker *who, int go, pid_t parent)
{
	sigset_t none;
	char c;
	int fd, ret;

	if (o->own_group && setpgid(0, 0))
		return errno;
	if (o->no_stdin) {
		fd = open("/dev/null", O_RDONLY);
		if (fd < 0 || dup2(fd, STDIN_FILENO) < 0)
			return errno;
		close(fd);
	}
	if (who) {
		ret = pt_become(who);
		if (ret)
			return -ret;
	}
	/* after the change of user, which clears it */
	if (o->own_group && (prctl(PR_SET_PDEATHSIG, SIGKILL) ||
			     getppid() != parent))
		return errno ? errno : ESRCH;
	do {
		ret = (int)read(go, &c, 1);
	} while (ret < 0 && errno == EINTR);
	if (ret != 1)
		return 0; /* the tracer gave up */
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(argv[0], argv);
	return errno;
}

int pt_spawn(struct pt_spawn *s, char *const argv[],
	     const struct pt_spawn_opts *o, struct pt_err *err)
{
	int go[2] = { -1, -1 }, failed[2] = { -1, -1 }, code, ret = 0;
	pid_t parent = getpid();
	struct pt_invoker who;
	int other;

	memset(s, 0, sizeof(*s));
	s->go = s->failed = -1;
	other = o->as_root ? 0 : pt_invoker(&who, err);
	if (other < 0)
		return other;
	if (o->own_group && prctl(PR_SET_CHILD_SUBREAPER, 1)) {
		ret = -errno;
		goto fail;
	}
	if (pipe2(go, O_CLOEXEC) || pipe2(failed, O_CLOEXEC)) {
		ret = -errno;
		goto fail;
	}
	s->pid = fork();
	if (s->pid < 0) {
		ret = -errno;
		s->pid = 0;
		goto fail;
	}
	if (!s->pid) {
		close(go[1]);
		close(failed[0]);
		code = child(argv, o, other ? &who : NULL, go[0], parent);
		if (code && write(failed[1], &code, sizeof(code)) < 0)
			_exit(126);
		_exit(127);
	}
	close(go[0]);
	close(failed[1]);
	s->go = go[1];
	s->failed = failed[0];
	return 0;
fail:
	if (go[0] >= 0) {
		close(go[0]);
		close(go[1]);
	}
	if (failed[0] >= 0) {
		close(failed[0]);
		close(failed[1]);
	}
	return pt_err_set(err, ret, "cannot start %s: %s", argv[0],
			  strerror(-ret));
}

int pt_spawn_go(struct pt_spawn *s, const char *name, struct pt_err *err)
{
	int code = 0;
	ssize_t n;

	/* a child that is gone has told why through the other pipe */
	if (write(s->go, "g", 1) < 0 && errno != EPIPE)
		return pt_err_set(err, -errno, "cannot start %s", name);
	close(s->go);
	s->go = -1;
	do {
		/* ends without a byte when exec closes the child's copy */
		n = read(s->failed, &code, sizeof(code));
	} while (n < 0 && errno == EINTR);
	close(s->failed);
	s->failed = -1;
	if (n != sizeof(code) || !code)
		return 0;
	return pt_err_set(err, -code, "cannot run %s: %s", name,
			  strerror(code));
}

/* Without reaping: its number, and its group's, stay its own meanwhile. */
bool pt_spawn_done(struct pt_spawn *s)
{
	siginfo_t si = { .si_pid = 0 };

	if (!s->pid)
		return true;
	if (!s->ended && !waitid(P_PID, (id_t)s->pid, &si,
				 WEXITED | WNOHANG | WNOWAIT) && si.si_pid)
		s->ended = true;
	return s->ended;
}

static void reap(struct pt_spawn *s)
{
	while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
	s->pid = 0;
}

void pt_spawn_release(struct pt_spawn *s)
{
	bool waits = s->go >= 0;

	if (s->go >= 0)
		close(s->go);
	if (s->failed >= 0)
		close(s->failed);
	s->go = s->failed = -1;
	if (s->pid && (waits || pt_spawn_done(s)))
		reap(s);
}

void pt_spawn_kill(struct pt_spawn *s)
{
	pid_t group = s->pid;

	if (s->pid) {
		/* the group outlives its leader */
		kill(-s->pid, SIGKILL);
		kill(s->pid, SIGKILL);
	}
	pt_spawn_release(s);
	if (s->pid)
		reap(s);
	/* its orphans have become our children (PR_SET_CHILD_SUBREAPER) */
	while (group && (waitpid(-group, NULL, 0) > 0 || errno == EINTR))
		;
}
