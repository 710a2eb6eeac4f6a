// SPDX-License-Identifier: BSD-2-Clause
/* Agents in the trainers of a trace: brought in, drained, taken out. */
#include "inject/cupti.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/vec.h"
#include "inject/inject_int.h"
#include "inject/memfd.h"

#define QUIET_MS 2000
#define OUT_MS 3000
#define RETRIES 5
#define RETRY_NS 1500000000ull
#define START_NS 10000000000ull /* for an agent to get going: CUPTI is large */

enum phase {
	P_WAITING,  /* for the next try */
	P_LOADING,
	P_RUNNING,  /* the agent is there, whatever its state */
	P_REMOVING,
	P_OUT,	    /* nothing to do any more */
};

struct agent {
	pid_t pid;
	int pidfd; /* -1: this kernel has none, or the process has ended */
	enum phase phase;
	bool ended;	/* its place is free for another one */
	bool dormant;	/* the program brought it along: not ours to take out */
	bool quiet;	/* asked to be */
	bool started;	/* has recorded */
	bool stays;	/* the library stays mapped */
	int tries;
	uint64_t next_ns, since_ns;
	struct pt_inject_job *job;
	struct pt_injected in;
	struct pt_ring *ring;
	struct pt_ring_status st; /* as last seen */
	uint64_t lost;
	char why[PT_ERR_LEN];  /* without it: why */
	char last[PT_ERR_LEN]; /* what the last try came to */
};

struct pt_cupti {
	struct pt_cupti_opts o;
	struct agent v[PT_CUPTI_MAX];
	size_t n;
	bool too_many, ending;
	uint64_t past_lost; /* of those whose place another one has */
	bool past_started;
};

static void say(struct pt_cupti *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct pt_cupti *c, const char *fmt, ...)
{
	char text[PT_ERR_LEN + 128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (c->o.say)
		c->o.say(c->o.ctx, text);
}

struct pt_cupti *pt_cupti_new(const struct pt_cupti_opts *o)
{
	struct pt_cupti *c = calloc(1, sizeof(*c));

	if (c)
		c->o = *o;
	return c;
}

static void give_up(struct pt_cupti *c, struct agent *a, const char *why)
{
	snprintf(a->why, sizeof(a->why), "%s", why);
	a->phase = P_OUT;
	say(c, "no exact GPU times of process %d: %s", (int)a->pid, why);
}

/* ---- an agent that is there ---------------------------------------------------- */

static int on_record(void *ctx, const void *rec, size_t len)
{
	struct pt_cupti *c = ctx;

	c->o.record(c->o.ctx, rec, len);
	return 0;
}

static int open_ring(struct agent *a, int fd)
{
	int mine = pt_memfd_take(a->pid, fd, false, PT_MEMFD_ANY), ret;

	if (mine < 0)
		return mine;
	ret = pt_ring_open(mine, (uint32_t)a->pid, &a->ring);
	close(mine);
	return ret;
}

/* The descriptor of an agent that the program brought along
 * (CUDA_INJECTION64_PATH); -1: none. One that an injection left is not. */
static int find_dormant(pid_t pid)
{
	char path[64], link[96];
	struct pt_maps m;
	struct dirent *e;
	int fd = -1;
	size_t i;
	ssize_t n;
	DIR *d;

	if (!pt_maps_read(pid, &m))
		for (i = 0; i < m.n && fd == -1; i++)
			if (strstr(pt_maps_path(&m, &m.v[i]),
				   "memfd:" PT_INJECT_LIB))
				fd = -2;
	pt_maps_free(&m);
	if (fd != -1)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	while (d && fd < 0 && (e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", (int)pid,
			 e->d_name);
		n = readlink(path, link, sizeof(link) - 1);
		if (n <= 0)
			continue;
		link[n] = '\0';
		if (!strcmp(link, "/memfd:" PT_AGENT_MEMFD " (deleted)"))
			fd = atoi(e->d_name);
	}
	if (d)
		closedir(d);
	return fd < 0 ? -1 : fd;
}

static void wake_dormant(struct pt_cupti *c, struct agent *a, int fd)
{
	int ret = open_ring(a, fd);

	a->dormant = true;
	if (ret == -EBUSY) {
		give_up(c, a, "another pipetrace uses its agent");
		return;
	}
	if (ret) {
		give_up(c, a, "the agent that it was started with is of another "
			      "version");
		return;
	}
	pt_ring_want(a->ring, PT_AGENT_RUN);
	a->phase = P_RUNNING;
	a->since_ns = pt_now_ns();
}

/* ---- bringing it in ---------------------------------------------------------------- */

/* Where a thread may be stopped (PT_POINT_*); 0: anywhere. */
static unsigned points_of(const struct pt_cupti *c)
{
	return c->o.no_gpu_probes ? PT_POINT_LIBC | PT_POINT_BLOCKED : 0;
}

static void begin_load(struct pt_cupti *c, struct agent *a)
{
	struct pt_inject_opts o = { .pid = a->pid, .points = points_of(c) };
	int fd = find_dormant(a->pid);

	if (fd >= 0) {
		wake_dormant(c, a, fd);
		return;
	}
	o.so = pt_agent_blob(&o.so_len);
	a->tries++;
	a->job = pt_inject_begin(&o, NULL);
	if (a->job)
		a->phase = P_LOADING;
	else
		give_up(c, a, "out of memory or processes");
}

/* Of the job under way; once there is one, that is done with. */
static int result(struct agent *a, struct pt_err *err)
{
	int ret = pt_inject_result(a->job, &a->in, err);

	if (ret != -EINPROGRESS) {
		pt_inject_free(a->job);
		a->job = NULL;
	}
	return ret;
}

static void on_loaded(struct pt_cupti *c, struct agent *a)
{
	struct pt_err err = { "" };
	int ret = result(a, &err);

	if (ret == -EINPROGRESS)
		return;
	a->stays = a->in.base != 0;
	if (!ret)
		ret = open_ring(a, a->in.fd);
	else if (ret == -EAGAIN && a->tries < RETRIES && !c->ending) {
		snprintf(a->last, sizeof(a->last), "%s", err.msg);
		a->phase = P_WAITING;
		a->next_ns = pt_now_ns() + RETRY_NS;
		return;
	}
	if (ret == -ECANCELED) {
		a->phase = P_OUT;
		return;
	}
	if (ret) {
		give_up(c, a, err.msg[0] ? err.msg : strerror(-ret));
		return;
	}
	a->phase = P_RUNNING;
	a->since_ns = pt_now_ns();
}

/* A place for another one, or NULL. */
static struct agent *place(struct pt_cupti *c)
{
	if (c->n < PT_CUPTI_MAX)
		return &c->v[c->n++];
	pt_each(struct agent, a, c) {
		if (!a->ended)
			continue;
		c->past_lost += a->lost;
		c->past_started |= a->started;
		*a = (struct agent){ 0 };
		return a;
	}
	return NULL;
}

void pt_cupti_add(struct pt_cupti *c, pid_t pid)
{
	struct agent *a;
	size_t i;

	for (i = 0; i < c->n; i++)
		if (c->v[i].pid == pid)
			return;
	a = place(c);
	if (!a) {
		if (!c->too_many)
			say(c, "exact GPU times of the first %d processes only",
			    PT_CUPTI_MAX);
		c->too_many = true;
		return;
	}
	a->pid = pid;
	a->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	a->in.fd = -1;
	begin_load(c, a);
}

/* ---- while it is there -------------------------------------------------------------- */

static bool stopped(const struct agent *a)
{
	return a->st.state == PT_AGENT_STOPPED ||
	       a->st.state == PT_AGENT_REFUSED;
}

static void on_running(struct pt_cupti *c, struct agent *a)
{
	char why[PT_ERR_LEN];

	if (!a->quiet)
		pt_ring_beat(a->ring);
	pt_ring_status(a->ring, &a->st);
	pt_ring_drain(a->ring, on_record, c);
	a->lost = pt_ring_lost(a->ring);
	a->started |= a->st.state == PT_AGENT_RUNNING;
	if (a->why[0] || a->quiet)
		return;
	if (stopped(a)) {
		snprintf(why, sizeof(why), "%s%s%s",
			 pt_agent_why_text(a->st.why), a->st.said[0] ? ": " : "",
			 a->st.said);
	} else if (!a->started && pt_now_ns() - a->since_ns > START_NS) {
		snprintf(why, sizeof(why), "its agent has not got going in "
			 "%d s", (int)(START_NS / 1000000000u));
	} else {
		return;
	}
	snprintf(a->why, sizeof(a->why), "%s", why);
	say(c, "no exact GPU times of process %d: %s", (int)a->pid, why);
}

static void begin_remove(struct pt_cupti *c, struct agent *a)
{
	struct pt_inject_opts o = { .pid = a->pid, .points = points_of(c) };

	pt_ring_close(a->ring);
	a->ring = NULL;
	a->phase = P_OUT;
	if (a->dormant)
		return;
	if (!stopped(a)) {
		/* it retires by itself for want of a sign of life */
		snprintf(a->why, sizeof(a->why),
			 "its agent did not become quiet in time and retires by "
			 "itself");
		return;
	}
	a->job = pt_inject_begin(&o, &a->in);
	if (a->job)
		a->phase = P_REMOVING;
}

static void on_removed(struct agent *a)
{
	struct pt_err err = { "" };
	int ret = result(a, &err);

	if (ret == -EINPROGRESS)
		return;
	a->phase = P_OUT;
	a->stays = ret != 0 && ret != -ESRCH;
}

static bool has_ended(const struct agent *a)
{
	struct pollfd p = { .fd = a->pidfd, .events = POLLIN };

	return a->pidfd >= 0 && poll(&p, 1, 0) == 1;
}

/* Nobody is there to become quiet, or to be taken out of. What it left is in the ring. */
static void on_ended(struct pt_cupti *c, struct agent *a)
{
	if (a->phase == P_RUNNING) {
		on_running(c, a);
		pt_ring_close(a->ring);
		a->ring = NULL;
	}
	if (!a->started && !a->why[0])
		snprintf(a->last, sizeof(a->last), "it ended before its agent had got going");
	a->phase = P_OUT;
	a->stays = false;
	a->ended = true;
	close(a->pidfd);
	a->pidfd = -1;
}

void pt_cupti_poll(struct pt_cupti *c)
{
	uint64_t now = pt_now_ns();

	pt_each(struct agent, a, c) {
		/* what is under way there comes to its own end */
		if (!a->job && has_ended(a))
			on_ended(c, a);
		switch (a->phase) {
		case P_WAITING:
			if (now >= a->next_ns && !c->ending)
				begin_load(c, a);
			break;
		case P_LOADING:
			on_loaded(c, a);
			break;
		case P_RUNNING:
			on_running(c, a);
			break;
		case P_REMOVING:
			on_removed(a);
			break;
		case P_OUT:
			break;
		}
	}
}

/* ---- the end ---------------------------------------------------------------------------- */

static bool any(const struct pt_cupti *c, enum phase phase)
{
	size_t i;

	for (i = 0; i < c->n; i++)
		if (c->v[i].phase == phase &&
		    (phase != P_RUNNING || !stopped(&c->v[i])))
			return true;
	return false;
}

static void want_quiet(struct pt_cupti *c)
{
	pt_each(struct agent, a, c) {
		if (a->phase == P_WAITING)
			a->phase = P_OUT;
		if (a->phase == P_LOADING)
			pt_inject_cancel(a->job);
		if (a->phase != P_RUNNING || a->quiet)
			continue;
		pt_ring_want(a->ring, PT_AGENT_QUIET);
		a->quiet = true;
	}
}

void pt_cupti_quiet(struct pt_cupti *c, void (*meanwhile)(void *ctx), void *ctx)
{
	uint64_t end = pt_now_ns() + QUIET_MS * 1000000ull;
	size_t i;

	c->ending = true;
	for (;;) {
		pt_cupti_poll(c);
		/* one that is being loaded only now: as soon as it is there */
		want_quiet(c);
		if ((!any(c, P_RUNNING) && !any(c, P_LOADING)) ||
		    pt_now_ns() >= end)
			break;
		if (meanwhile)
			meanwhile(ctx);
		pt_inj_sleep_us(2000);
	}
	for (i = 0; i < c->n; i++) {
		if (c->v[i].phase != P_RUNNING)
			continue;
		on_running(c, &c->v[i]); /* the last records */
		begin_remove(c, &c->v[i]);
	}
}

void pt_cupti_settle(struct pt_cupti *c, unsigned ms)
{
	uint64_t end = pt_now_ns() + ms * 1000000ull;

	for (;;) {
		pt_cupti_poll(c);
		if (!any(c, P_REMOVING) || pt_now_ns() >= end)
			return;
		pt_inj_sleep_us(1000);
	}
}

static const char *reason(const struct agent *a)
{
	if (a->why[0])
		return a->why;
	return a->last[0] ? a->last :
			    "the trace ended before the agent was there";
}

const char *pt_cupti_state(const struct pt_cupti *c, char *note, size_t size)
{
	const struct agent *bad = NULL, *stays = NULL;
	size_t i, good = c->past_started;

	note[0] = '\0';
	for (i = 0; i < c->n; i++) {
		if (c->v[i].started)
			good++;
		else if (!bad)
			bad = &c->v[i];
		if (c->v[i].stays)
			stays = &c->v[i];
	}
	if (!c->n)
		snprintf(note, size, "no process of the job has a GPU library");
	else if (bad && c->n == 1)
		snprintf(note, size, "%s", reason(bad));
	else if (bad)
		snprintf(note, size, "not of process %d: %s", (int)bad->pid,
			 reason(bad));
	else if (c->too_many)
		snprintf(note, size, "of the first %d processes only",
			 PT_CUPTI_MAX);
	else if (stays)
		snprintf(note, size, "the agent's library stays mapped, quiet, "
			 "in process %d until it ends", (int)stays->pid);
	return good ? "cupti" : "none";
}

uint64_t pt_cupti_lost(const struct pt_cupti *c)
{
	uint64_t n = c->past_lost;
	size_t i;

	for (i = 0; i < c->n; i++)
		n += c->v[i].lost;
	return n;
}

void pt_cupti_free(struct pt_cupti *c)
{
	if (!c)
		return;
	if (!c->ending)
		pt_cupti_quiet(c, NULL, NULL);
	pt_cupti_settle(c, OUT_MS);
	pt_each(struct agent, a, c) {
		if (a->phase == P_LOADING || a->phase == P_REMOVING)
			say(c, "the agent could not be taken out of process %d "
			    "yet; it is quiet", (int)a->pid);
		pt_inject_free(a->job);
		pt_ring_close(a->ring);
		if (a->pidfd >= 0)
			close(a->pidfd);
	}
	free(c);
}

int pt_cupti_check(pid_t pid, char *text, size_t size)
{
	struct pt_err err = { "" };
	int ret;

	if (find_dormant(pid) >= 0) {
		snprintf(text, size, "yes: it was started with an agent");
		return 0;
	}
	ret = pt_inject_check(pid, &err);
	if (!ret && pt_inj_filtered(pid))
		snprintf(text, size, "perhaps: it is filtered by seccomp, whose "
			 "filter is asked when it comes to it");
	else if (!ret)
		snprintf(text, size, "yes, as far as it can be told without "
			 "stopping a thread");
	else
		snprintf(text, size, "no: %s", err.msg);
	return ret;
}
