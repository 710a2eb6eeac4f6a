// SPDX-License-Identifier: BSD-2-Clause
/* The asking side: a child that may get stuck, and must never hold us up. */
#include "gpu/nvml.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "gpu/nvml_int.h"

#define REAP_MS 100
#define NAP_MS 5
#define STEP_MS 100
#define HELPER_FD 20
#define HELPER_PATH "/proc/self/fd/20"

struct pt_nvml {
	pid_t pid; /* 0: gone, and reaped or left */
	int ask, answer;
	bool asked;
	uint64_t asked_ns;
	size_t got;
	struct pt_nvml_answer a;
};

const char *pt_nvml_state_text(enum pt_nvml_state s)
{
	switch (s) {
	case PT_NVML_OK:
		return "";
	case PT_NVML_NO_LIBRARY:
		return "libnvidia-ml.so.1 is not there: the devices' own "
		       "utilisation, memory and clocks are not known";
	case PT_NVML_NO_DRIVER:
		return "libnvidia-ml finds no working driver: the devices' own "
		       "utilisation, memory and clocks are not known";
	case PT_NVML_STUCK:
		return "the driver did not answer NVML in time: the devices' "
		       "utilisation, memory and clocks are not known from then "
		       "on";
	default:
		return "asking NVML failed: the devices' utilisation, memory "
		       "and clocks are not known from then on";
	}
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* The helper of a static build, as a file in memory. *out is -1 where this
 * program is its own helper. 0 or -errno. */
static int helper_file(int *out)
{
	size_t len, at = 0;
	const char *blob = pt_nvml_blob(&len);
	ssize_t r;
	int fd;

	*out = -1;
	if (!blob)
		return 0;
	fd = memfd_create("pipetrace-nvml", MFD_CLOEXEC);
	for (; fd >= 0 && at < len; at += (size_t)r) {
		r = write(fd, blob + at, len - at);
		if (r <= 0) {
			close(fd);
			return -EIO;
		}
	}
	if (fd < 0)
		return -errno;
	*out = fd;
	return 0;
}

static int spawn_it(struct pt_nvml *n, int in, int out, int helper)
{
	static char name[] = "pipetrace", command[] = PT_NVML_COMMAND;
	char *argv[] = { name, command, NULL };
	posix_spawn_file_actions_t fa;
	int err = posix_spawn_file_actions_init(&fa);

	if (err)
		return -err;
	err = err ?: posix_spawn_file_actions_adddup2(&fa, in, STDIN_FILENO);
	err = err ?: posix_spawn_file_actions_adddup2(&fa, out, STDOUT_FILENO);
	if (!err)
		err = posix_spawn_file_actions_addopen(&fa, STDERR_FILENO,
						       "/dev/null", O_WRONLY, 0);
	/* behind the others: it may take the place of a pipe's end */
	if (!err && helper >= 0)
		err = posix_spawn_file_actions_adddup2(&fa, helper, HELPER_FD);
	if (!err)
		err = posix_spawn_file_actions_addclosefrom_np(
			&fa, helper >= 0 ? HELPER_FD + 1 : STDERR_FILENO + 1);
	if (!err)
		err = posix_spawn(&n->pid,
				  helper >= 0 ? HELPER_PATH : "/proc/self/exe",
				  &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	if (err)
		n->pid = 0;
	return -err;
}

static int spawn(struct pt_nvml *n, int in, int out)
{
	int helper, err = helper_file(&helper);

	if (err)
		return err;
	err = spawn_it(n, in, out, helper);
	close_fd(&helper);
	return err;
}

int pt_nvml_start(struct pt_nvml **out)
{
	struct pt_nvml *n = calloc(1, sizeof(*n));
	int to[2] = { -1, -1 }, from[2] = { -1, -1 }, err = 0;

	*out = NULL;
	if (!n)
		return -ENOMEM;
	n->ask = n->answer = -1;
	/* a socket: writing to one whose other end has gone raises no signal */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to) ||
	    pipe2(from, O_CLOEXEC))
		err = -errno;
	/* the child's ends block, ours never */
	if (!err && (fcntl(to[1], F_SETFL, O_NONBLOCK) ||
		     fcntl(from[0], F_SETFL, O_NONBLOCK)))
		err = -errno;
	err = err ?: spawn(n, to[0], from[1]);
	close_fd(&to[0]);
	close_fd(&from[1]);
	n->ask = to[1];
	n->answer = from[0];
	if (err) {
		pt_nvml_free(n);
		return err;
	}
	*out = n;
	return 0;
}

/* Bounded: what hangs in the driver cannot be killed before that lets go. */
static void end_child(struct pt_nvml *n)
{
	const struct timespec nap = { 0, NAP_MS * 1000000l };
	int i;

	close_fd(&n->ask);
	close_fd(&n->answer);
	if (n->pid <= 0)
		return;
	kill(n->pid, SIGKILL);
	for (i = 0; i < REAP_MS / NAP_MS; i++) {
		if (waitpid(n->pid, NULL, WNOHANG))
			break;
		nanosleep(&nap, NULL);
	}
	n->pid = 0;
}

static int fail(struct pt_nvml *n, enum pt_nvml_state s,
		struct pt_nvml_answer *a)
{
	end_child(n);
	memset(a, 0, sizeof(*a));
	a->state = s;
	return 1;
}

void pt_nvml_ask(struct pt_nvml *n)
{
	if (n->asked || n->ask < 0)
		return;
	/* one that has gone is found by the poll */
	if (send(n->ask, "?", 1, MSG_NOSIGNAL) == 1 || errno == EPIPE) {
		n->asked = true;
		n->asked_ns = pt_now_ns();
		n->got = 0;
	}
}

/* The library could have written anything into the answer. */
static bool makes_sense(struct pt_nvml_answer *a)
{
	uint32_t i;

	if (a->magic != PT_NVML_MAGIC || a->n > PT_NVML_DEVICES ||
	    a->state > PT_NVML_DIED)
		return false;
	a->driver[sizeof(a->driver) - 1] = '\0';
	for (i = 0; i < a->n; i++) {
		struct pt_rec_device *r = &a->dev[i].rec;

		if (r->hdr.size != sizeof(*r) || r->hdr.kind != PT_REC_DEVICE ||
		    a->dev[i].n_pids > PT_NVML_PIDS)
			return false;
		r->uuid[sizeof(r->uuid) - 1] = '\0';
		r->name[sizeof(r->name) - 1] = '\0';
	}
	return true;
}

int pt_nvml_poll(struct pt_nvml *n, struct pt_nvml_answer *a)
{
	ssize_t r;

	if (!n->asked || n->answer < 0)
		return 0;
	while (n->got < sizeof(n->a)) {
		r = read(n->answer, (char *)&n->a + n->got,
			 sizeof(n->a) - n->got);
		if (r > 0) {
			n->got += (size_t)r;
			continue;
		}
		if (r < 0 && errno == EINTR)
			continue;
		if (!r || errno != EAGAIN)
			return fail(n, PT_NVML_DIED, a);
		if (pt_now_ns() - n->asked_ns > PT_NVML_WAIT_MS * 1000000ull)
			return fail(n, PT_NVML_STUCK, a);
		return 0;
	}
	n->asked = false;
	if (!makes_sense(&n->a))
		return fail(n, PT_NVML_DIED, a);
	*a = n->a;
	if (a->state != PT_NVML_OK)
		end_child(n);
	return 1;
}

int pt_nvml_wait(struct pt_nvml *n, unsigned ms, struct pt_nvml_answer *a)
{
	uint64_t until = pt_now_ns() + ms * 1000000ull, now;
	struct pollfd p = { .fd = n->answer, .events = POLLIN };
	int done;

	while (!(done = pt_nvml_poll(n, a)) && (now = pt_now_ns()) < until) {
		uint64_t left = (until - now) / 1000000 + 1;

		/* the deadline of the answer may come first */
		if (poll(&p, 1, left > STEP_MS ? STEP_MS : (int)left) < 0 &&
		    errno != EINTR)
			break;
	}
	return done;
}

void pt_nvml_free(struct pt_nvml *n)
{
	if (!n)
		return;
	end_child(n);
	free(n);
}
