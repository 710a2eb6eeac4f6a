// SPDX-License-Identifier: BSD-2-Clause
#include "job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S 240

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

pid_t job_start(char **argv, int *to, int *from)
{
	int in[2], out[2];
	pid_t pid;

	if (pipe(in) || pipe(out))
		return -1;
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[1]);
		close(out[0]);
		execv(argv[0], argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	*to = in[1];
	*from = out[0];
	return pid;
}

int job_await(int fd, const char *word, struct pt_capture *c, pt_job_fn on_record)
{
	double end = now() + LIMIT_S, tick = now() + 1;
	char buf[64] = "";
	size_t n = 0;
	ssize_t r;

	while (now() < end) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (poll(&p, 1, 20) > 0) {
			r = read(fd, buf + n, 1);
			if (r <= 0)
				return -EPIPE;
			if (buf[n] == '\n') {
				buf[n] = 0;
				return strcmp(buf, word) ? -EPROTO : 0;
			}
			if (n < sizeof(buf) - 1)
				n++;
			continue;
		}
		if (c)
			pt_capture_drain(c, on_record, NULL);
		if (c && now() >= tick) {
			pt_capture_tick(c, on_record, NULL);
			tick += 1;
		}
	}
	return -ETIMEDOUT;
}
