// SPDX-License-Identifier: BSD-2-Clause
/* The process that does an injection, beside whoever asked for it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/privileges.h"
#include "capture/elf.h"
#include "capture/selftest.h"
#include "inject/inject_int.h"

struct shared {
	struct pt_injected io;
	struct pt_err err;
	int result;
	uint32_t done, touched;
};

struct pt_inject_job {
	pid_t pid;
	bool reaped, cancelled;
	struct shared *s;
};

/*
 * Before Linux 6.6 the end of a process takes a tenth of a second for each of its probes,
 * and our end is waited for. A copy of us, which holds them as well, ends after us.
 */
static void leave_probes(void)
{
	pid_t us = getpid();
	int i;

	if (pt_selftest(true)->works || fork())
		return;
	for (i = 0; i < 1000 && getppid() == us; i++)
		pt_inj_sleep_us(1000);
	_exit(0);
}

static void child(const struct pt_inject_opts *o, bool retract,
		  struct shared *s)
{
	/* the asker's: later its number here would be another descriptor's */
	pt_elf_child_end();
	/* Descriptors of the asker, its probes above all, end with the
	 * asker: none is kept beyond standard error. */
	syscall(SYS_close_range, 3, ~0u, 0);
	prctl(PR_SET_NAME, "pipetrace-inj");
	pt_privileges_wake();
	/* On a busy machine a stopped thread waits for us at each step. */
	setpriority(PRIO_PROCESS, 0, -20);
	s->result = pt_inject_work(o, retract, &s->io, &s->err, &s->touched);
	__atomic_store_n(&s->done, 1, __ATOMIC_RELEASE);
	leave_probes();
	_exit(0);
}

struct pt_inject_job *pt_inject_begin(const struct pt_inject_opts *o,
				      const struct pt_injected *left)
{
	struct pt_inject_job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->s = mmap(NULL, sizeof(*j->s), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (j->s == MAP_FAILED) {
		free(j);
		return NULL;
	}
	j->s->io.fd = -1;
	if (left)
		j->s->io = *left;
	j->pid = fork();
	if (!j->pid)
		child(o, left != NULL, j->s);
	if (j->pid > 0)
		return j;
	munmap(j->s, sizeof(*j->s));
	free(j);
	return NULL;
}

int pt_inject_result(struct pt_inject_job *j, struct pt_injected *out,
		     struct pt_err *err)
{
	pid_t got = 0;

	/* it must be gone: its end is what lets the last thread go */
	if (!j->reaped) {
		got = waitpid(j->pid, NULL, WNOHANG);
		if (!got || (got < 0 && errno == EINTR))
			return -EINPROGRESS;
		j->reaped = true;
	}
	*out = j->s->io;
	if (j->cancelled && !__atomic_load_n(&j->s->touched, __ATOMIC_ACQUIRE))
		return -ECANCELED;
	if (!__atomic_load_n(&j->s->done, __ATOMIC_ACQUIRE))
		return pt_err_set(err, -EPIPE,
				  "the process that loads the agent was ended");
	*err = j->s->err;
	return j->s->result;
}

void pt_inject_cancel(struct pt_inject_job *j)
{
	/* One that touches the target just now is ended there: the thread comes
	 * back by itself, and what is left is cleared by the next. */
	if (j->reaped || __atomic_load_n(&j->s->touched, __ATOMIC_ACQUIRE))
		return;
	j->cancelled = true;
	kill(j->pid, SIGKILL);
}

void pt_inject_kill(struct pt_inject_job *j)
{
	if (!j->reaped)
		kill(j->pid, SIGKILL);
}

void pt_inject_free(struct pt_inject_job *j)
{
	if (!j)
		return;
	munmap(j->s, sizeof(*j->s));
	free(j);
}
