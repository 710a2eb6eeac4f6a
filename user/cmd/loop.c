// SPDX-License-Identifier: BSD-2-Clause
/* The event loop of a trace: signals, clocks, the target's end, the ring. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "cmd/session.h"

#define DRAIN_MS 100
#define AUTO_SECONDS 120
#define MAX_CAPTURE_FDS 1024

/* epoll data: the kind above, an index below */
enum event { EV_SIGNAL, EV_TICK, EV_DRAIN, EV_TIME, EV_TARGET, EV_CAPTURE };

struct loop {
	struct pt_session *s;
	int ep, signals, tick, drain, time;
	size_t alive;
	unsigned seconds;
};

void pt_stop_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
}

int pt_block_signals(void)
{
	sigset_t set;

	/* a reader of our output that goes away must not end us half-way */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return -errno;
	pt_stop_signals(&set);
	return sigprocmask(SIG_BLOCK, &set, NULL) ? -errno : 0;
}

static int watch(struct loop *l, int fd, enum event kind, size_t index)
{
	struct epoll_event ev = { .events = EPOLLIN };

	ev.data.u64 = (uint64_t)kind << 32 | (uint32_t)index;
	return epoll_ctl(l->ep, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

/* A timer that fires after `first` seconds, then each `every`. */
static int timer(struct loop *l, double first, double every, enum event kind)
{
	struct itimerspec it = { 0 };
	int fd, ret;

	it.it_value.tv_sec = (time_t)first;
	it.it_value.tv_nsec = (long)((first - (double)(time_t)first) * 1e9);
	it.it_interval.tv_sec = (time_t)every;
	it.it_interval.tv_nsec = (long)((every - (double)(time_t)every) * 1e9);
	if (!it.it_value.tv_sec && !it.it_value.tv_nsec)
		it.it_value.tv_nsec = 1;
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	ret = timerfd_settime(fd, 0, &it, NULL) ? -errno : watch(l, fd, kind, 0);
	if (ret) {
		close(fd);
		return ret;
	}
	return fd;
}

static int loop_open(struct loop *l)
{
	const struct pt_opts *o = l->s->o;
	double limit = o->auto_duration ? AUTO_SECONDS : o->duration;
	int fds[MAX_CAPTURE_FDS], ret;
	sigset_t set;
	size_t i, n;

	l->ep = epoll_create1(EPOLL_CLOEXEC);
	if (l->ep < 0)
		return -errno;
	pt_stop_signals(&set);
	l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (l->signals < 0)
		return -errno;
	ret = watch(l, l->signals, EV_SIGNAL, 0);
	if (ret)
		return ret;
	l->tick = timer(l, 1, 1, EV_TICK);
	l->drain = timer(l, DRAIN_MS / 1e3, DRAIN_MS / 1e3, EV_DRAIN);
	if (l->tick < 0 || l->drain < 0)
		return l->tick < 0 ? l->tick : l->drain;
	if (limit > 0) {
		l->time = timer(l, limit, 0, EV_TIME);
		if (l->time < 0)
			return l->time;
	}
	for (i = 0; i < l->s->n_roots; i++) {
		if (l->s->pidfds[i] < 0)
			continue;
		ret = watch(l, l->s->pidfds[i], EV_TARGET, i);
		if (ret)
			return ret;
		l->alive++;
	}
	n = pt_capture_fds(l->s->cap, fds, MAX_CAPTURE_FDS);
	for (i = 0; i < n && i < MAX_CAPTURE_FDS; i++) {
		ret = watch(l, fds[i], EV_CAPTURE, 0);
		if (ret && ret != -EEXIST)
			return ret;
	}
	return 0;
}

static void loop_close(struct loop *l)
{
	int *fds[] = { &l->signals, &l->tick, &l->drain, &l->time, &l->ep };
	size_t i;

	for (i = 0; i < sizeof(fds) / sizeof(*fds); i++)
		if (*fds[i] >= 0)
			close(*fds[i]);
}

static void clear_timer(int fd)
{
	uint64_t n;

	/* EAGAIN only means that it was cleared already */
	if (read(fd, &n, sizeof(n)) < 0)
		return;
}

/*
 * Ctrl-C reaches the command that we started by itself; other signals are for
 * us alone, so they are passed on. It gets to end in its own way, and its end
 * stops the trace; a second signal stops the trace at once.
 */
static void on_signal(struct loop *l)
{
	struct pt_session *s = l->s;
	struct signalfd_siginfo si;

	while (read(l->signals, &si, sizeof(si)) == sizeof(si)) {
		if (!s->cmd || s->cmd_is_ours || s->interrupted ||
		    pt_spawn_done(s->cmd)) {
			s->stop = PT_STOP_SIGNAL;
			continue;
		}
		s->interrupted = true;
		if (si.ssi_code <= 0) /* sent by a process, not a terminal */
			kill(s->cmd->pid, (int)si.ssi_signo);
		pt_note("waiting for the command to end; once more stops the "
			"trace and leaves it running");
	}
}

static void on_target(struct loop *l, size_t i)
{
	struct pt_session *s = l->s;

	if (s->pidfds[i] < 0)
		return;
	epoll_ctl(l->ep, EPOLL_CTL_DEL, s->pidfds[i], NULL);
	close(s->pidfds[i]);
	s->pidfds[i] = -1;
	if (!--l->alive && !s->stop)
		s->stop = PT_STOP_TARGET;
}

/* The replay does here what is done now. */
static void put_mark(struct pt_session *s, uint32_t what)
{
	struct pt_rec_mark m = { .hdr = { .size = sizeof(m), .kind = PT_REC_MARK,
					  .ts = pt_now_ns() },
				 .mark = what };

	pt_session_record(s, &m, sizeof(m));
}

/* Of a schedule's parts the report is of the last; what that cannot hold is dropped. */
static int bound_schedule(struct pt_session *s)
{
	uint64_t most = s->o->piece_bytes ? s->o->piece_bytes : PT_MAX_MODEL_BYTES;

	if (pt_model_bytes(s->model) <= most)
		return 0;
	if (pt_model_halves(s->model, most))
		put_mark(s, PT_MARK_HALF);
	return pt_model_trim(s->model, most);
}

/* A trace that nobody stops must not eat the memory of the machine that it watches:
 * what is older is looked at and dropped, and a mark says where, for the replay. */
static int bound_memory(struct pt_session *s)
{
	struct pt_analysis_opts a = pt_opts_analysis(s->o);
	bool more = pt_model_bytes(s->model) > PT_MAX_LIVE_BYTES;
	uint64_t most = PT_MAX_LIVE_BYTES;

	if (s->saving.marks && s->o->schedule.set)
		return bound_schedule(s);
	if (!s->saving.marks)
		return pt_model_trim(s->model, PT_MAX_MODEL_BYTES);
	if (s->o->piece_bytes)
		most = s->o->piece_bytes;
	else if (s->pieces.n)
		most = PT_PIECE_BYTES;
	if (pt_model_timelines(s->model) <= most || (!more && pt_long_busy(&s->pieces)))
		return 0;
	s->pieces.at_once = 1; /* beside the job */
	s->pieces.ask_every = PT_ASK_MARKED;
	s->pieces.past = s->html.f ? &s->past : NULL;
	put_mark(s, PT_MARK_PART);
	return pt_long_cut(&s->pieces, s->model, &a);
}

static int on_tick(struct loop *l)
{
	struct pt_session *s = l->s;
	int ret;

	clear_timer(l->tick);
	ret = pt_capture_tick(s->cap, pt_session_record, s);
	if (ret < 0)
		return ret;
	ret = bound_memory(s);
	if (ret < 0)
		return ret;
	pt_session_exact_tick(s);
	pt_session_lines_tick(s);
	pt_saving_tick(&s->saving);
	pt_session_find_trainer(s);
	pt_live_tick(s, ++l->seconds);
	/* the capture sees the end even where there are no pidfds */
	if (!s->stop && pt_capture_target_gone(s->cap))
		s->stop = PT_STOP_TARGET;
	return 0;
}

static int dispatch(struct loop *l, uint64_t data)
{
	int ret = 0;

	switch ((enum event)(data >> 32)) {
	case EV_SIGNAL:
		on_signal(l);
		break;
	case EV_TICK:
		ret = on_tick(l);
		break;
	case EV_TIME:
		clear_timer(l->time);
		if (!l->s->stop)
			l->s->stop = PT_STOP_TIME;
		break;
	case EV_TARGET:
		on_target(l, (uint32_t)data);
		break;
	case EV_DRAIN:
		clear_timer(l->drain);
		if (l->s->cupti)
			pt_cupti_poll(l->s->cupti);
		pt_session_lines_drain(l->s);
		/* fall through */
	case EV_CAPTURE:
		ret = pt_capture_drain(l->s->cap, pt_session_record, l->s);
		if (ret >= 0)
			ret = pt_schedule_step(l->s);
		break;
	}
	return ret < 0 ? ret : 0;
}

int pt_session_loop(struct pt_session *s, struct pt_err *err)
{
	struct loop l = { .s = s, .ep = -1, .signals = -1, .tick = -1,
			  .drain = -1, .time = -1 };
	struct epoll_event ev[16];
	int ret, i, n;

	ret = loop_open(&l);
	ret = ret ?: pt_schedule_begin(s);
	if (!ret && !pt_live_possible())
		pt_note("attached to process %d; Ctrl-C stops and reports", s->job.root);
	while (!ret && !s->stop) {
		n = epoll_wait(l.ep, ev, 16, -1);
		if (n < 0 && errno != EINTR)
			ret = -errno;
		for (i = 0; i < n && !ret; i++)
			ret = dispatch(&l, ev[i].data.u64);
	}
	if (ret) {
		s->stop = PT_STOP_ERROR;
		pt_err_set(err, ret, "the capture broke off: %s",
			   strerror(-ret));
	}
	loop_close(&l);
	return ret;
}
