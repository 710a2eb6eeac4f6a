// SPDX-License-Identifier: BSD-2-Clause
/* The live view: what a job does now, on the whole screen. */
#include "view/top/top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/follow.h"
#include "cmd/guard.h"
#include "cmd/jobs.h"
#include "cmd/session.h"
#include "cmd/sudo.h"
#include "view/top/term.h"

#define DRAIN_MS 100
#define JOBS_NS 5000000000ull
#define SECOND_NS 1000000000ull
#define WAIT_NS (60 * SECOND_NS) /* with nothing to do but for keys and signals */
#define FDS_MAX 300
/* A diagnosis may take this share of the time; where it takes more, it is made
 * less often. */
#define LOOK_SHARE 0.1

static const char doc[] =
	"Watch a GPU job live: verdict, GPU, data wait, workers, files and "
	"operations of its last seconds, on the whole screen. Without -p it "
	"lists the jobs of this machine to choose from. ? shows the keys. "
	"Without a terminal it prints plain text at each interval.";

struct live {
	const struct pt_opts *o;
	struct pt_top v;
	struct pt_jobs jobs;
	struct pt_follow *watch;
	bool screen; /* else plain text */
	bool stop, dirty;
	int status; /* PT_EXIT_* */
	int signals;
	uint64_t end_ns, tick_ns, look_ns, jobs_ns; /* when the next is due */
	uint64_t cpu_at, wall_at; /* for the own CPU */
};

static uint64_t own_cpu_ns(void)
{
	struct rusage u;

	return getrusage(RUSAGE_SELF, &u) ? 0 : (uint64_t)(pt_cpu_s(&u) * 1e9);
}

static void say(struct live *l, const char *text)
{
	if (l->screen)
		snprintf(l->v.status, sizeof(l->v.status), "%s", text);
	else
		pt_note("%s", text);
	l->dirty = true;
}

static void draw(struct live *l)
{
	int cols = 80, rows = 0;
	char *s;

	if (l->screen)
		pt_term_size(&cols, &rows);
	else if (pt_terminal_width())
		cols = pt_terminal_width();
	s = pt_top_draw(&l->v, cols, rows);
	if (s && l->screen) {
		pt_term_paint(s);
	} else if (s) {
		printf("%s\n", s);
		/* a reader that went away ends it */
		l->stop |= fflush(stdout) || ferror(stdout);
	}
	free(s);
	l->dirty = false;
}

/* ---- the job --------------------------------------------------------------- */

static void leave(struct live *l)
{
	pt_follow_free(l->watch);
	l->watch = NULL;
	l->v.report = NULL;
	l->v.traced = 0;
	l->v.ended = l->v.paused = false;
	l->v.n_history = 0;
	l->v.window_s = NAN;
	l->dirty = true;
}

static int trace(struct live *l, pid_t pid)
{
	struct pt_err err = { "" };
	uint64_t now;
	int ret;

	leave(l);
	if (l->screen) { /* the attach takes a moment */
		snprintf(l->v.status, sizeof(l->v.status),
			 "attaching to process %d ...", pid);
		draw(l);
	}
	l->v.status[0] = '\0';
	ret = pt_follow_open(&l->watch, pid, l->o, &err);
	if (ret) {
		say(l, err.msg);
		return ret;
	}
	l->v.traced = pt_follow_pid(l->watch);
	l->v.pane = PT_TOP_OVERVIEW;
	if (pt_follow_note(l->watch)[0])
		say(l, pt_follow_note(l->watch));
	now = pt_now_ns();
	l->tick_ns = now + SECOND_NS;
	l->look_ns = now + SECOND_NS; /* of one second already something shows */
	l->cpu_at = own_cpu_ns();
	l->wall_at = now;
	l->dirty = true;
	return 0;
}

static void look(struct live *l, uint64_t now)
{
	uint64_t cost, interval = (uint64_t)(l->o->interval_s * 1e9);
	uint64_t cpu = own_cpu_ns();

	/* the last one has the taking away of hooks in it */
	if (now > l->wall_at && !l->v.ended)
		l->v.own_cpu = (double)(cpu - l->cpu_at) /
			       (double)(now - l->wall_at);
	l->cpu_at = cpu;
	l->wall_at = now;
	/* what the old report holds goes with it */
	l->v.report = pt_follow_look(l->watch, &l->v.window_s);
	if (!l->v.report)
		say(l, "out of memory: no diagnosis this time");
	else
		pt_top_note_share(&l->v, l->v.report->breakdown.known ?
			l->v.report->breakdown.data_wait.share : NAN);
	cost = own_cpu_ns() - cpu;
	if ((double)cost > LOOK_SHARE * (double)interval)
		interval = (uint64_t)((double)cost / LOOK_SHARE);
	l->look_ns = now + interval;
	l->dirty = true;
}

static void on_end(struct live *l)
{
	l->v.ended = true;
	l->v.paused = false;
	look(l, pt_now_ns());
	say(l, l->screen ? "The job has ended. This is the last of it; q quits, "
			   "Esc goes back to the jobs." : "the job has ended");
	if (!l->screen) {
		draw(l);
		l->stop = true;
	}
}

/* What is due of the job. */
static void serve(struct live *l, uint64_t now)
{
	int ret;

	if (!l->watch || l->v.ended)
		return;
	ret = pt_follow_drain(l->watch);
	if (!ret && now >= l->tick_ns) {
		ret = pt_follow_tick(l->watch);
		l->tick_ns = now + SECOND_NS;
	}
	if (ret) {
		leave(l);
		say(l, "the capture broke off");
		l->status = PT_EXIT_FAILED;
		l->stop |= !l->screen;
		return;
	}
	if (pt_follow_ended(l->watch))
		on_end(l);
	else if (now >= l->look_ns && !l->v.paused)
		look(l, now);
}

static void find_jobs(struct live *l, uint64_t now)
{
	struct pt_jobs found;
	pid_t chosen = 0;
	size_t *at = &l->v.p[PT_TOP_JOBS].chosen, i;

	l->jobs_ns = now + JOBS_NS;
	if (*at < l->jobs.n)
		chosen = l->jobs.v[*at].pid;
	if (pt_jobs_find(&found, &l->jobs)) {
		pt_jobs_free(&found);
		return;
	}
	pt_jobs_free(&l->jobs);
	l->jobs = found;
	l->v.jobs = found.v;
	l->v.n_jobs = found.n;
	l->v.jobs_hidden = found.hidden && geteuid();
	*at = 0;
	for (i = 0; i < found.n; i++)
		if (found.v[i].pid == chosen)
			*at = i;
	l->dirty = true;
}

/* ---- events ------------------------------------------------------------------ */

static void on_signals(struct live *l)
{
	struct signalfd_siginfo si;

	while (read(l->signals, &si, sizeof(si)) == sizeof(si)) {
		if (si.ssi_signo != SIGWINCH) {
			l->stop = true;
		} else if (l->screen) {
			pt_term_resize();
			l->dirty = true;
		}
	}
}

static void on_keys(struct live *l)
{
	int cols, rows, k;

	pt_term_size(&cols, &rows);
	while (!l->stop && (k = pt_term_key()) >= 0) {
		switch (pt_top_key(&l->v, k, rows)) {
		case PT_TOP_QUIT:
			l->stop = true;
			break;
		case PT_TOP_TRACE:
			trace(l, l->jobs.v[l->v.p[PT_TOP_JOBS].chosen].pid);
			break;
		case PT_TOP_LEAVE:
			leave(l);
			l->v.pane = PT_TOP_JOBS;
			break;
		case PT_TOP_DRAW:
			l->dirty = true;
			break;
		case PT_TOP_NOTHING:
			break;
		}
	}
}

/* Are jobs looked for? On the screen only: a plain listing shows one job. */
static bool lists_jobs(const struct live *l)
{
	return l->screen && (!l->watch || l->v.pane == PT_TOP_JOBS);
}

static int wait_ms(const struct live *l, uint64_t now)
{
	uint64_t next = lists_jobs(l) ? l->jobs_ns : UINT64_MAX;

	if (l->watch && !l->v.ended)
		return DRAIN_MS;
	if (l->end_ns && l->end_ns < next)
		next = l->end_ns;
	if (next <= now)
		return 0;
	return next - now < WAIT_NS ? (int)((next - now) / 1000000) + 1 : (int)(WAIT_NS / 1000000);
}

static void one_round(struct live *l)
{
	struct pollfd fds[FDS_MAX];
	uint64_t now = pt_now_ns();
	size_t n = 2;

	fds[0] = (struct pollfd){ .fd = l->signals, .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = l->screen ? STDIN_FILENO : -1,
				  .events = POLLIN };
	if (l->watch && !l->v.ended)
		n += pt_follow_fds(l->watch, fds + n, FDS_MAX - n);
	if (poll(fds, n, wait_ms(l, now)) < 0 && errno != EINTR) {
		l->stop = true;
		l->status = PT_EXIT_FAILED;
		return;
	}
	on_signals(l);
	if (fds[1].revents & (POLLHUP | POLLERR | POLLNVAL))
		l->stop = true; /* the terminal is gone */
	else if (fds[1].revents)
		on_keys(l);
	now = pt_now_ns();
	if (l->end_ns && now >= l->end_ns)
		l->stop = true;
	if (l->stop)
		return;
	serve(l, now);
	if (lists_jobs(l) && now >= l->jobs_ns)
		find_jobs(l, now);
	if (l->dirty && (l->screen || l->v.report))
		draw(l);
}

/* The job to begin with. 0: none yet, or it is traced; else the exit status. */
static int begin(struct live *l)
{
	pid_t pid = l->o->n_pids ? l->o->pids[0] : 0;

	find_jobs(l, pt_now_ns());
	if (!pid && l->jobs.n == 1)
		pid = l->jobs.v[0].pid;
	l->v.pane = PT_TOP_JOBS;
	if (pid && trace(l, pid) && (l->o->n_pids || !l->screen))
		return PT_EXIT_FAILED;
	if (pid || l->screen)
		return 0;
	draw(l);
	return pt_fail(PT_EXIT_FAILED, "without a terminal nothing can be chosen: give -p PID");
}

static int open_signals(void)
{
	sigset_t set;

	pt_stop_signals(&set);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGWINCH);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -1;
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int top_loop(void *ctx)
{
	struct live *l = ctx;
	char why[sizeof(l->v.status)] = "";

	l->signals = open_signals();
	if (l->signals < 0)
		return pt_fail(PT_EXIT_FAILED, "cannot watch for signals: %s", strerror(errno));
	l->screen = !pt_term_open(pt_want_color());
	pt_top_init(&l->v, !l->o->ascii, l->screen && pt_want_color());
	l->status = begin(l);
	/* from the attach on, which may have taken its time */
	if (l->o->duration > 0)
		l->end_ns = pt_now_ns() + (uint64_t)(l->o->duration * 1e9);
	if (l->status) /* the screen goes, the sentence must not */
		memcpy(why, l->v.status, sizeof(why));
	else
		while (!l->stop)
			one_round(l);
	pt_term_close();
	if (why[0] && l->screen)
		pt_error("%s", why);
	leave(l);
	pt_jobs_free(&l->jobs);
	close(l->signals);
	return l->status;
}

int pt_cmd_top(int argc, char **argv)
{
	struct live l = { .status = PT_EXIT_OK };
	struct pt_opts o;
	int status;

	if (pt_opts_done(&o, PT_OPTS_TOP, doc, argc, argv, &status))
		return status;
	if (o.n_pids > 1 || o.auto_duration)
		return pt_fail(PT_EXIT_USAGE, o.auto_duration ? "top takes -d SEC" :
			       "top watches one job: give one pid");
	if (pt_block_signals())
		return pt_fail(PT_EXIT_FAILED, "cannot block signals");
	if (pt_give_up(PT_RIGHTS_TRACE, 0))
		return PT_EXIT_FAILED;
	l.o = &o;
	return pt_guard(top_loop, &l);
}
