// SPDX-License-Identifier: BSD-2-Clause
/* A job is watched for days, and the moments at which it steps out are saved. */
#include "analysis/watch/watch.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/minmax.h"
#include "cmd/cmd.h"
#include "cmd/follow.h"
#include "cmd/keep.h"
#include "cmd/session.h"
#include "cmd/sudo.h"

#define DRAIN_MS 100
#define SECOND_NS 1000000000ull
#define FDS_MAX 300
/* Looks take this share of a core at most, but for one so often. */
#define LOOK_SHARE 0.03
#define LOOK_LEAST_NS (2 * SECOND_NS)
#define LOOK_MOST_NS (10 * SECOND_NS)
/* A job in which no steps are found is told of, once. */
#define NO_STEPS_NS (60 * SECOND_NS)
/* At the end a window that is being written is waited for. */
#define WRITE_MS 60000

static const char doc[] =
	"Watch a job for days, and save the moments at which a step, a wait, a worker or "
	"a rank is unusual. The last seconds are held in memory; what happened around such "
	"a moment is saved in a folder, as a recording and its report.\v"
	"Conditions: step > 3x median, step > 500ms (or s, m, h), wait > 2s (of one step), "
	"wait > 20% (of 10 s), worker silent > 10s, rank late > 500ms.\n\n"
	"Exit status: 0 watched, 1 failed, or a window could not be saved, 2 bad usage.";

struct watching {
	const struct pt_opts *o;
	struct pt_follow *f;
	struct pt_watch *w;
	struct pt_keep keep;
	uint64_t save_ns; /* when the last event's window is; 0: none is to come */
	int signals, ep;
	bool stop, warm, cold; /* it was told which the usual step is; that none is found */
	int status; /* PT_EXIT_* */
	uint64_t begin_ns, end_ns, tick_ns, look_ns;
};

static void on_record(void *ctx, const void *rec, size_t len)
{
	pt_watch_feed(((struct watching *)ctx)->w, rec, len);
}

/* ---- words --------------------------------------------------------------------- */

/* "31 ms", "2.03 s", "12 min". */
static void put_ns(char *out, size_t size, double ns)
{
	double ms = ns / 1e6;

	if (ms < 1000)
		snprintf(out, size, ms < 10 ? "%.1f ms" : "%.0f ms", ms);
	else if (ms < 180e3)
		snprintf(out, size, ms < 10e3 ? "%.2f s" : "%.0f s", ms / 1e3);
	else
		snprintf(out, size, "%.0f min", ms / 60e3);
}

static void describe(const struct pt_event *e, char *out, size_t size)
{
	char took[24], usual[24] = "";

	put_ns(took, sizeof(took), e->value);
	put_ns(usual, sizeof(usual), (double)e->usual_ns);
	switch ((enum pt_when_of)e->when->of) {
	case PT_WHEN_STEP:
		snprintf(out, size, "a step of process %u %s %s; the usual is %s", e->pid,
			 e->running ? "has run for" : "took", took, usual);
		break;
	case PT_WHEN_WAIT:
		if (e->when->unit == PT_WHEN_SHARE)
			snprintf(out, size, "process %u waited for data %.0f %% of the last 10 s",
				 e->pid, e->value * 100);
		else
			snprintf(out, size, "process %u %s for data for %s; a step's usual "
				 "time is %s", e->pid, e->running ? "has waited" : "waited",
				 took, usual);
		break;
	case PT_WHEN_WORKER:
		snprintf(out, size, "worker %u has delivered nothing for %s", e->pid, took);
		break;
	default:
		snprintf(out, size, "the rank of process %u came %s late to a collective",
			 e->pid, took);
		break;
	}
}

/* When it began, by the clock of the day. */
static uint64_t unix_of(const struct pt_event *e)
{
	uint64_t now = pt_now_ns(), unix_ns = pt_clock_ns(CLOCK_REALTIME);

	return unix_ns - (now > e->begin ? now - e->begin : 0);
}

/* ---- what is due ---------------------------------------------------------------- */

static void save(struct watching *k)
{
	uint64_t keep = (uint64_t)(k->o->last_s * 1e9), ago;
	char words[PT_KEEP_WORDS], what[120], when[32] = "";
	const struct pt_event *e = pt_watch_last(k->w);
	uint64_t unix_ns = unix_of(e);
	time_t t = (time_t)(unix_ns / SECOND_NS);
	struct tm tm = { 0 };

	k->save_ns = 0;
	localtime_r(&t, &tm);
	strftime(when, sizeof(when), "%F %T", &tm);
	describe(e, what, sizeof(what));
	snprintf(words, sizeof(words), "%s %s", when, what);
	/* what came before is in it, also where it was noticed late */
	ago = pt_now_ns() - e->begin;
	pt_keep_save(&k->keep, k->f, pt_max64(keep, ago + keep / 4),
		     (enum pt_when_of)e->when->of, unix_ns, words);
}

static uint64_t cpu_ns(void)
{
	struct rusage u;

	return getrusage(RUSAGE_SELF, &u) ? 0 : (uint64_t)(pt_cpu_s(&u) * 1e9);
}

/* Steps are known now: say what they are held against. */
static void say_usual(struct watching *k, uint64_t now)
{
	struct pt_trigger_state s;
	char usual[24];

	pt_watch_state(k->w, &s);
	if (!k->cold && !s.steps && now > k->begin_ns + NO_STEPS_NS) {
		k->cold = true;
		pt_note("no steps have been found in this job so far, so none can be judged "
			"(pipetrace doctor -p %d says what can be seen)", pt_follow_pid(k->f));
	}
	if (k->warm || !s.usual_ns)
		return;
	k->warm = true;
	put_ns(usual, sizeof(usual), (double)s.usual_ns);
	pt_note("%" PRIu64 " steps seen, the median is %s%s", s.steps, usual,
		4 * (double)s.usual_ns > k->o->last_s * 1e9 ?
			": a window of --keep has few of them" : "");
}

/* --keep, or what there is room for. */
static uint64_t keep_of(const struct watching *k, uint64_t now)
{
	return pt_min64((uint64_t)(k->o->last_s * 1e9), now - pt_follow_kept_from(k->f));
}

static void look(struct watching *k, uint64_t now)
{
	uint64_t cpu = cpu_ns(), keep = keep_of(k, now), next;
	struct pt_event e;
	int ret = pt_watch_round(k->w, now, &e);

	if (ret < 0)
		pt_note("out of memory: this second is not analysed");
	if (ret == 1) /* of what goes on, some more is to be seen */
		k->save_ns = pt_max64(e.begin + keep / 2, now + (e.running ? keep / 4 : 0));
	say_usual(k, now);
	next = (uint64_t)((double)(cpu_ns() - cpu) / LOOK_SHARE);
	if (next < LOOK_LEAST_NS)
		next = LOOK_LEAST_NS;
	k->look_ns = now + (next < LOOK_MOST_NS ? next : LOOK_MOST_NS);
}

static void tell_live(const struct watching *k, uint64_t now)
{
	struct pt_trigger_state s;
	char usual[24] = "-", time[24];

	if (!pt_live_possible())
		return;
	pt_watch_state(k->w, &s);
	put_ns(time, sizeof(time), (double)(now - k->begin_ns));
	if (s.usual_ns)
		put_ns(usual, sizeof(usual), (double)s.usual_ns);
	pt_live("%s, steps %" PRIu64 ", median %s, windows saved %lu%s", time, s.steps, usual,
		k->keep.saved, k->save_ns ? ", one to come" : "");
}

static int serve(struct watching *k, uint64_t now)
{
	int ret = pt_follow_drain(k->f);

	if (ret || now < k->tick_ns)
		return ret;
	k->tick_ns = now + SECOND_NS;
	ret = pt_follow_tick(k->f);
	pt_keep_reap(&k->keep, 0);
	k->stop |= pt_follow_ended(k->f) || (k->end_ns && now >= k->end_ns);
	/* a second is looked at when its records are there */
	if (!ret && (now >= k->look_ns || (k->save_ns && now >= k->save_ns) || k->stop))
		look(k, now);
	if (k->save_ns && now >= k->save_ns)
		save(k);
	tell_live(k, now);
	return ret;
}

/* ---- from begin to end ------------------------------------------------------------- */

static void one_round(struct watching *k)
{
	struct epoll_event ev[16];
	struct signalfd_siginfo si;
	int ret = epoll_wait(k->ep, ev, 16, DRAIN_MS) < 0 && errno != EINTR ? -errno : 0;

	while (read(k->signals, &si, sizeof(si)) == sizeof(si))
		k->stop = true;
	ret = ret ?: serve(k, pt_now_ns());
	if (!ret)
		return;
	pt_live_clear();
	pt_error("the capture broke off: %s", strerror(-ret));
	k->status = PT_EXIT_FAILED;
	k->stop = true;
}

/* Told when something comes, not while it is there: poll() would find a record or two in
 * the ring each time. */
static int await(struct watching *k)
{
	struct pollfd fds[FDS_MAX];
	size_t i, n = 1;

	k->ep = epoll_create1(EPOLL_CLOEXEC);
	if (k->ep < 0)
		return -errno;
	fds[0].fd = k->signals;
	n += pt_follow_fds(k->f, fds + 1, FDS_MAX - 1);
	for (i = 0; i < n; i++) {
		struct epoll_event ev = { .events = EPOLLIN | EPOLLET };

		if (epoll_ctl(k->ep, EPOLL_CTL_ADD, fds[i].fd, &ev) && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* A second signal does not wait for the disk. */
static void finish(struct watching *k)
{
	struct pollfd p[2] = { { .fd = k->signals, .events = POLLIN } };
	struct pt_trigger_state s;
	char time[24];

	pt_live_clear();
	look(k, pt_now_ns());
	put_ns(time, sizeof(time), (double)(pt_now_ns() - k->begin_ns));
	pt_watch_state(k->w, &s);
	if (k->save_ns)
		save(k);
	pt_follow_free(k->f);
	k->f = NULL;
	p[1] = (struct pollfd){ .fd = k->keep.fd, .events = POLLIN };
	if (k->keep.pid && poll(p, 2, WRITE_MS) > 0)
		pt_keep_reap(&k->keep, 0);
	k->status = k->keep.lost || k->keep.pid ? PT_EXIT_FAILED : k->status;
	if (s.untold)
		pt_note("watched for %s, windows saved: %lu; events within a cool-down: %"
			PRIu64, time, k->keep.saved, s.untold);
	else
		pt_note("watched for %s, windows saved: %lu", time, k->keep.saved);
}

static int watch(struct watching *k, struct pt_err *err)
{
	const struct pt_opts *o = k->o;
	uint64_t half = (uint64_t)(o->last_s * 1e9) / 2;
	/* until a window is saved there is no other */
	const struct pt_trigger_opts t = { .when = o->when, .n = o->n_when,
					   .warmup = (unsigned)o->warmup,
					   .cooldown_ns = pt_max64((uint64_t)(o->cooldown_s * 1e9), half) };
	sigset_t set;
	int ret;

	pt_stop_signals(&set);
	k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (k->signals < 0)
		return pt_err_set(err, -errno, "cannot watch for signals: %s",
				  strerror(errno));
	k->w = pt_watch_new(&t);
	if (!k->w)
		return pt_err_set(err, -ENOMEM, "out of memory");
	ret = pt_keep_open(&k->keep, o, err);
	ret = ret ?: pt_follow_open(&k->f, o->pids[0], o, err);
	if (ret)
		return ret;
	ret = await(k);
	if (ret)
		return pt_err_set(err, ret, "cannot wait for records: %s", strerror(-ret));
	pt_follow_tap(k->f, on_record, k);
	if (pt_follow_note(k->f)[0])
		pt_note("%s", pt_follow_note(k->f));
	pt_note("watching process %d; windows go to %s; Ctrl-C stops", pt_follow_pid(k->f),
		o->output);
	k->begin_ns = pt_now_ns();
	k->tick_ns = k->begin_ns + SECOND_NS;
	k->end_ns = o->duration > 0 ? k->begin_ns + (uint64_t)(o->duration * 1e9) : 0;
	while (!k->stop)
		one_round(k);
	finish(k);
	return 0;
}

int pt_cmd_watch(int argc, char **argv)
{
	struct watching k = { .signals = -1, .ep = -1, .keep.fd = -1 };
	struct pt_err err = { "" };
	struct pt_opts o;
	int status;

	if (pt_opts_done(&o, PT_OPTS_WATCH, doc, argc, argv, &status))
		return status;
	if (o.n_pids != 1 || !o.output || o.auto_duration)
		return pt_fail(PT_EXIT_USAGE, o.auto_duration ? "watch takes -d SEC" :
			       o.n_pids > 1 ? "watch takes one job: give one pid" :
			       !o.n_pids ? "nothing to watch: give -p PID" :
			       "watch needs -o DIR, the folder to save windows in");
	o.memory /= 2; /* its buffer is twice what lies in it */
	if (!o.n_when)
		o.when[o.n_when++] = (struct pt_when){ PT_WHEN_STEP, PT_WHEN_MEDIANS, 3 };
	if (pt_block_signals())
		return pt_fail(PT_EXIT_FAILED, "cannot block signals");
	if (pt_give_up(PT_RIGHTS_TRACE, 0))
		return PT_EXIT_FAILED;
	k.o = &o;
	if (watch(&k, &err)) {
		pt_error("%s", err.msg);
		k.status = PT_EXIT_FAILED;
	}
	pt_follow_free(k.f);
	pt_keep_close(&k.keep);
	pt_watch_free(k.w);
	if (k.signals >= 0)
		close(k.signals);
	if (k.ep >= 0)
		close(k.ep);
	return k.status;
}
