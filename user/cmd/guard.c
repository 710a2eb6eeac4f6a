// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/guard.h"

#include <curses.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <term.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "capture/elf.h"
#include "cmd/cmd.h"

/* Detaching hundreds of perf events takes seconds on old kernels. */
#define PATIENCE_S 20
#define LAST_PATIENCE_S 2 /* after a second signal */

struct guard {
	pid_t child;
	bool tty; /* standard input is a terminal, in this state */
	struct termios was;
};

/* Out of the other screen, cursor on, colours off, as terminfo has it. */
static void give_back(const struct guard *g)
{
	static const char *const leave[] = { "rmcup", "cnorm", "sgr0" };
	int err;

	if (!g->tty)
		return;
	tcsetattr(STDIN_FILENO, TCSANOW, &g->was);
	if (!isatty(STDOUT_FILENO) || setupterm(NULL, STDOUT_FILENO, &err))
		return;
	for (size_t i = 0; i < sizeof(leave) / sizeof(*leave); i++) {
		const char *s = tigetstr(leave[i]);

		if (s && s != (const char *)-1)
			putp(s);
	}
	fflush(stdout);
}

/* The child's wait status, once it has one; until then signals are passed on. */
static int await(const struct guard *g)
{
	struct timespec left = { .tv_sec = PATIENCE_S };
	bool stopping = false;
	int status = 0, sig;
	siginfo_t si;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGCHLD);
	for (;;) {
		if (waitpid(g->child, &status, WNOHANG) == g->child)
			return status;
		sig = stopping ? sigtimedwait(&set, &si, &left) :
				 sigwaitinfo(&set, &si);
		if (sig < 0 && errno == EAGAIN)
			kill(g->child, SIGKILL);
		else if (sig > 0 && sig != SIGCHLD) {
			if (stopping)
				left.tv_sec = LAST_PATIENCE_S;
			stopping = true;
			kill(g->child, sig);
		}
	}
}

static int child(pid_t parent, int (*fn)(void *ctx), void *ctx)
{
	sigset_t set;
	int ret;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	/* a parent that is killed takes nobody's terminal with it */
	if (sigprocmask(SIG_UNBLOCK, &set, NULL) ||
	    prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent)
		return PT_EXIT_FAILED;
	ret = fn(ctx);
	pt_elf_child_end();
	return fflush(stdout) ? PT_EXIT_FAILED : ret;
}

int pt_guard(int (*fn)(void *ctx), void *ctx)
{
	struct guard g = { .child = -1 };
	pid_t self = getpid();
	sigset_t set;
	int status;

	g.tty = !tcgetattr(STDIN_FILENO, &g.was);
	sigemptyset(&set);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return pt_fail(PT_EXIT_FAILED, "cannot block signals");
	fflush(stdout);
	g.child = fork();
	if (g.child < 0)
		return pt_fail(PT_EXIT_FAILED, "cannot start a process: %s", strerror(errno));
	if (!g.child)
		_exit(child(self, fn, ctx));
	status = await(&g);
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	give_back(&g);
	return pt_fail(PT_EXIT_FAILED,
		       "the live view was ended by signal %d (%s); it left nothing in "
		       "the kernel, and the job keeps running", WTERMSIG(status),
		       strsignal(WTERMSIG(status)));
}
