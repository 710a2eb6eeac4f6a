/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Drives the injector for the tests: bring an agent into a process and take it
 * out again, some times over, or end in the middle.
 *
 *   injector PID AGENT.so [cycles=N] [hold=MS] [points=MASK] [point=MS] [call=MS]
 *            [kill=STAGE] [killms=MS] [pause=MS] [keep=1]
 *
 * kill: the process that does the work ends itself with SIGKILL at that stage;
 * killms: so many milliseconds after it began. keep: do not take it out. One line
 * of JSON for each cycle; exit status 0 unless the command line is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "capture/selftest.h"
#include "inject/inject.h"
#include "inject/memfd.h"
#include "inject/ring.h"

static struct {
	int cycles, hold, points, point, call, kill, killms, pause, keep;
} a = { .cycles = 1, .hold = 20, .kill = -1, .killms = -1 };

static const struct {
	const char *name;
	int *v;
} args[] = {
	{ "cycles", &a.cycles }, { "hold", &a.hold }, { "points", &a.points },
	{ "point", &a.point },	 { "call", &a.call }, { "kill", &a.kill },
	{ "killms", &a.killms }, { "pause", &a.pause }, { "keep", &a.keep },
};

static void rest(int ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

static void on_stage(void *ctx, enum pt_inject_stage s)
{
	(void)ctx;
	if ((int)s == a.kill) {
		if (s == PT_STAGE_LET_GO)
			rest(1);
		raise(SIGKILL);
	}
}

static const char *quoted(const char *s)
{
	static char buf[4][1024];
	static unsigned which;
	char *p = buf[++which & 3], *o = p;

	for (; *s && o < p + 1000; s++)
		if ((unsigned char)*s >= ' ' && *s != '"' && *s != '\\')
			*o++ = *s;
	*o = '\0';
	return p;
}

static int count(void *ctx, const void *rec, size_t len)
{
	(void)rec;
	(void)len;
	++*(int *)ctx;
	return 0;
}

/* What the agent did; it is asked to be quiet, and must be, in 3 s. */
static void use(const struct pt_injected *in, int *records, int *state)
{
	struct pt_ring_status st;
	struct pt_ring *r = NULL;
	int fd = pt_memfd_take(in->pid, in->fd, false, PT_MEMFD_ANY), i;

	if (fd < 0 || pt_ring_open(fd, (uint32_t)in->pid, &r)) {
		*state = -1;
		goto out;
	}
	for (i = 0; i < a.hold; i += 10) {
		pt_ring_beat(r);
		rest(a.hold < 10 ? a.hold : 10);
	}
	pt_ring_drain(r, count, records);
	pt_ring_want(r, PT_AGENT_QUIET);
	for (i = 0; i < 3000; i++) {
		pt_ring_status(r, &st);
		if (st.state == PT_AGENT_STOPPED || st.state == PT_AGENT_REFUSED)
			break;
		pt_ring_beat(r);
		rest(1);
	}
	*state = (int)st.state;
out:
	pt_ring_close(r);
	if (fd >= 0)
		close(fd);
}

/* Its result, within a minute. */
static int wait_for(struct pt_inject_job *j, struct pt_injected *out, struct pt_err *err)
{
	int ret, i;

	for (i = 0; i < 60000; i++) {
		ret = pt_inject_result(j, out, err);
		if (ret != -EINPROGRESS)
			break;
		rest(1);
	}
	return ret;
}

static void cycle(const struct pt_inject_opts *o)
{
	struct pt_err err = { "" }, err2 = { "" };
	struct pt_injected in = { 0 };
	struct pt_inject_job *j;
	int ret, out = 99, records = 0, state = -1;
	uint32_t us;

	j = pt_inject_begin(o, NULL);
	if (!j)
		exit(2);
	if (a.killms >= 0) {
		rest(a.killms);
		pt_inject_kill(j);
	}
	ret = wait_for(j, &in, &err);
	pt_inject_free(j);
	us = in.stopped_us;
	in.stopped_us = 0;
	if (!ret && !a.keep) {
		use(&in, &records, &state);
		for (int tries = 0; tries < 3; tries++) {
			j = pt_inject_begin(o, &in);
			if (!j)
				exit(2);
			out = wait_for(j, &in, &err2);
			pt_inject_free(j);
			if (out != -EAGAIN)
				break;
		}
	}
	printf("{\"inject\": %d, \"said\": \"%s\", \"point\": \"%s\", "
	       "\"tid\": %d, \"us\": %u, \"us_out\": %u, \"records\": %d, \"state\": %d, "
	       "\"retract\": %d, \"retract_said\": \"%s\", \"fd\": %d, "
	       "\"handle\": %d}\n", ret, quoted(err.msg), quoted(in.point),
	       (int)in.tid, us, in.stopped_us, records, state, out,
	       quoted(err2.msg), in.fd, in.handle != 0);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct pt_inject_opts o = { .stage = on_stage };
	struct stat st;
	int i, k, fd;

	if (argc < 3)
		return 2;
	pt_selftest(true); /* as a trace has done by then */
	for (i = 3; i < argc; i++)
		for (k = 0; k < (int)(sizeof(args) / sizeof(*args)); k++) {
			size_t n = strlen(args[k].name);

			if (!strncmp(argv[i], args[k].name, n) &&
			    argv[i][n] == '=')
				*args[k].v = atoi(argv[i] + n + 1);
		}
	fd = open(argv[2], O_RDONLY);
	if (fd < 0 || fstat(fd, &st))
		return 2;
	o.pid = (pid_t)atoi(argv[1]);
	o.so_len = (size_t)st.st_size;
	o.so = mmap(NULL, o.so_len, PROT_READ, MAP_PRIVATE, fd, 0);
	o.points = (unsigned)a.points;
	o.point_ms = (unsigned)a.point;
	o.call_ms = (unsigned)a.call;
	for (i = 0; i < a.cycles; i++) {
		cycle(&o);
		if (a.pause)
			rest(a.pause);
	}
	return 0;
}
