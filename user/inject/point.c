// SPDX-License-Identifier: BSD-2-Clause
/*
 * Find a safe point: a thread at the entry of a GPU function or of a waiting
 * function of the C library, or one inside a wait that can be begun anew.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/procfs.h"
#include "inject/inject_int.h"

#define MAX_THREADS 128
#define LOOK_US 500
#define ROUND_MS 250 /* for a set of break points to be hit */
#define TRIES 12     /* stops that were not safe, then a pause: each costs the
		      * target a millisecond */
#define PAUSE_US 100000
#define MAX_SETS 8

/* Up to four addresses that are watched together. */
struct set {
	uint64_t addr[4];
	const char *name[4];
	int n;
	bool libc;
};

struct search {
	const struct pt_inject_opts *o;
	struct pt_place *p;
	struct set sets[MAX_SETS];
	size_t n_sets;
	pid_t tids[MAX_THREADS];
	size_t n_tids;
	uint64_t deadline;
	const char *why; /* the last stop was not safe */
	bool ever_hit;
};

/* A set of signals of a thread's status file; all where it cannot be read. */
static uint64_t signals_of(const char *status, const char *key)
{
	const char *at = strstr(status, key);

	return at ? strtoull(at + strlen(key), NULL, 16) : UINT64_MAX;
}

static ssize_t thread_status(pid_t pid, pid_t tid, char *text, size_t size)
{
	char name[48];

	snprintf(name, sizeof(name), "task/%d/status", (int)tid);
	return pt_proc_read(pid, name, text, size);
}

/* Threads that can be stopped: a thread that blocks our signal goes on, and one
 * that blocks all of them (helpers of libraries do) is no place for a stranger's
 * call. -EBUSY: somebody else traces one. */
static int list_threads(struct search *s)
{
	char path[32], text[8192];
	uint64_t tracer;
	struct dirent *e;
	int ret = 0;
	DIR *d;

	s->n_tids = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)s->o->pid);
	d = opendir(path);
	if (!d)
		return -ESRCH;
	while (!ret && s->n_tids < MAX_THREADS && (e = readdir(d))) {
		pid_t tid = (pid_t)atoi(e->d_name);

		if (tid <= 0 || thread_status(s->o->pid, tid, text,
					      sizeof(text)) <= 0)
			continue;
		if (!pt_proc_field(text, "TracerPid", &tracer) && tracer &&
		    (pid_t)tracer != getpid())
			ret = -EBUSY;
		else if (!(signals_of(text, "\nSigBlk:") >>
			   (s->p->watch.sig - 1) & 1))
			s->tids[s->n_tids++] = tid;
	}
	closedir(d);
	return ret;
}

static void add_points(struct search *s, const uint64_t *addr,
		       const char *const *name, size_t n, bool libc)
{
	struct set *set = NULL;
	size_t i;

	for (i = 0; i < n; i++) {
		if (!addr[i])
			continue;
		if (!set || set->n == 4) {
			if (s->n_sets == MAX_SETS)
				return;
			set = &s->sets[s->n_sets++];
			set->libc = libc;
		}
		set->addr[set->n] = addr[i];
		set->name[set->n++] = name[i];
	}
}

/* A signal that the process neither handles nor blocks, and that the kernel
 * ignores by itself. 0: none. */
static int choose_signal(pid_t pid)
{
	static const int candidates[] = { SIGURG, SIGWINCH };
	char text[8192];
	uint64_t caught;
	size_t i;

	if (pt_proc_read(pid, "status", text, sizeof(text)) < 0)
		return 0;
	caught = signals_of(text, "\nSigCgt:");
	for (i = 0; i < 2; i++)
		if (!(caught >> (candidates[i] - 1) & 1))
			return candidates[i];
	return 0;
}

/* The thread has stopped at its own will: does it do? */
static int judge(struct search *s, bool at_libc)
{
	struct pt_place *p = s->p;
	int ret;

	pt_maps_free(&p->maps);
	ret = pt_maps_read(s->o->pid, &p->maps);
	return ret ? ret : pt_safe_here(&p->hold, &p->maps, &p->libc, at_libc,
					&s->why);
}

static int seize(struct search *s, pid_t tid, struct pt_err *err)
{
	struct pt_thread_hold *h = &s->p->hold;
	int ret;

	*h = (struct pt_thread_hold){ .pid = s->o->pid, .tid = tid, .mem = -1,
				      .sig = s->p->watch.sig };
	ret = pt_hold_seize(h, err);
	if (ret) {
		pt_hold_release(h);
		/* a thread that ended is no reason to give up */
		return ret == -EPERM || ret == -EBUSY ? ret : -EAGAIN;
	}
	pt_stage(s->o, PT_STAGE_SEIZED);
	return 0;
}

/* The seized thread runs towards one of the set's addresses. */
static int catch_at(struct search *s, const struct set *set, uint64_t until)
{
	struct pt_thread_hold *h = &s->p->hold;
	int i, ret, tries;

	for (tries = 0; tries < TRIES; tries++) {
		ret = pt_hold_wait(h, until, false);
		if (ret)
			return ret;
		for (i = 0; i < set->n; i++)
			if (PT_REGS_IP(&h->regs) == set->addr[i])
				break;
		if (i < set->n) {
			ret = judge(s, set->libc);
			if (!ret) {
				snprintf(s->p->name, sizeof(s->p->name), "%s",
					 set->name[i]);
				return 0;
			}
			if (ret != -EAGAIN)
				return ret;
		}
		if (tries == TRIES - 1)
			break; /* stopped: it can be let go */
		ret = pt_hold_cont(h, false);
		if (ret)
			return ret;
	}
	return -EAGAIN;
}

static int watch_all(struct search *s, const struct set *set)
{
	size_t i, n = 0;
	int ret = 0, r;

	for (i = 0; i < s->n_tids; i++) {
		r = pt_watch_add(&s->p->watch, s->tids[i], set->addr, set->n);
		if (!r)
			n++;
		else if (r != -ESRCH)
			ret = r;
	}
	/* none that could be watched: another moment may have one */
	return n ? 0 : ret ? ret : -EAGAIN;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* One set of break points on all threads for a while. 0 caught; -EAGAIN. */
static int try_set(struct search *s, const struct set *set, struct pt_err *err)
{
	uint64_t until = sooner(s->deadline,
				pt_now_ns() + ROUND_MS * 1000000ull);
	struct pt_watch *w = &s->p->watch;
	pid_t tid = 0;
	int which, ret;

	ret = list_threads(s);
	ret = ret ?: watch_all(s, set);
	if (ret) {
		pt_watch_clear(w);
		if (ret == -ESRCH || ret == -EBUSY)
			return ret;
		if (ret == -EAGAIN)
			pt_inj_sleep_us(20000);
		return pt_err_set(err, ret == -ENOSPC ? -EAGAIN : ret,
				  "no break point can be set: %s",
				  strerror(-ret));
	}
	pt_stage(s->o, PT_STAGE_WATCHED);
	while (!(tid = pt_watch_hit(w, &which)) && pt_now_ns() < until)
		pt_inj_sleep_us(LOOK_US);
	pt_watch_clear(w);
	if (!tid)
		return -EAGAIN;
	/* This thread calls them: it alone is watched and held now. */
	s->ever_hit = true;
	ret = seize(s, tid, err);
	if (ret)
		return ret;
	ret = pt_watch_add(w, tid, set->addr, set->n);
	ret = ret ?: catch_at(s, set, s->deadline);
	pt_watch_clear(w);
	if (ret == -ETIMEDOUT)
		ret = -EAGAIN;
	if (ret)
		pt_hold_release(&s->p->hold);
	if (ret == -EAGAIN)
		pt_inj_sleep_us(PAUSE_US);
	return ret;
}

/* The system call that a thread is blocked in, as the kernel tells it. */
static bool blocked_in(pid_t pid, pid_t tid, uint64_t *nr, uint64_t arg[6])
{
	char name[48], text[256];

	snprintf(name, sizeof(name), "task/%d/syscall", (int)tid);
	if (pt_proc_read(pid, name, text, sizeof(text)) <= 0)
		return false;
	return sscanf(text, "%" SCNu64 " %" SCNx64 " %" SCNx64 " %" SCNx64
			    " %" SCNx64 " %" SCNx64 " %" SCNx64, nr, &arg[0],
		      &arg[1], &arg[2], &arg[3], &arg[4], &arg[5]) == 7;
}

/* Signals that wait for the thread and are not blocked. */
static bool signal_waits(pid_t pid, pid_t tid)
{
	char text[8192];

	if (thread_status(pid, tid, text, sizeof(text)) <= 0)
		return true;
	return ((signals_of(text, "\nSigPnd:") | signals_of(text, "\nShdPnd:")) &
		~signals_of(text, "\nSigBlk:")) != 0;
}

/* After the interrupt: still the same wait, which returned only for us? Then
 * the registers are set back to where it begins. */
static int rewind_wait(struct search *s, uint64_t nr, const uint64_t arg[6])
{
	struct pt_thread_hold *h = &s->p->hold;
	int ret = signal_waits(h->pid, h->tid) ? -EAGAIN : pt_arch_rewind(h, nr, arg);

	return ret ? ret : judge(s, false);
}

static int try_blocked(struct search *s, struct pt_err *err)
{
	uint64_t nr, arg[6];
	size_t i;
	int ret;

	ret = list_threads(s);
	if (ret)
		return ret;
	for (i = 0; i < s->n_tids; i++) {
		if (!blocked_in(s->o->pid, s->tids[i], &nr, arg) ||
		    !pt_safe_wait(nr, arg))
			continue;
		s->ever_hit = true;
		ret = seize(s, s->tids[i], err);
		if (ret == -EPERM || ret == -EBUSY)
			return ret;
		if (ret)
			continue;
		ret = pt_hold_interrupt(&s->p->hold, s->deadline);
		ret = ret ?: rewind_wait(s, nr, arg);
		if (!ret) {
			snprintf(s->p->name, sizeof(s->p->name),
				 "a wait in system call %" PRIu64, nr);
			return 0;
		}
		if (!s->p->hold.stopped) /* it does not stop: no second one */
			return ret == -ESRCH ? ret : -ETIMEDOUT;
		pt_hold_release(&s->p->hold);
		if (ret == -ESRCH)
			return ret;
	}
	return -EAGAIN;
}

/* GPU functions come first in `sets`, and twice as often as the others, each kind
 * in turn. */
static const struct set *choose_set(const struct search *s, size_t round)
{
	size_t gpu = 0, libc, i;

	for (i = 0; i < s->n_sets; i++)
		gpu += !s->sets[i].libc;
	libc = s->n_sets - gpu;
	if (gpu && (!libc || round % 3 != 2))
		return &s->sets[(round - round / 3) % gpu];
	return &s->sets[gpu + (gpu ? round / 3 : round) % libc];
}

static int search(struct search *s, struct pt_err *err)
{
	unsigned points = pt_arch.points & (s->o->points ? s->o->points : ~0u);
	size_t round = 0;
	int ret;

	while (pt_now_ns() < s->deadline) {
		if (s->n_sets) {
			ret = try_set(s, choose_set(s, round), err);
			if (ret != -EAGAIN)
				return ret;
		}
		if (points & PT_POINT_BLOCKED && round >= 2) {
			ret = try_blocked(s, err);
			if (ret != -EAGAIN)
				return ret;
		}
		if (!s->n_sets)
			pt_inj_sleep_us(20000);
		round++;
	}
	return -EAGAIN;
}

static int setup(struct search *s, struct pt_err *err)
{
	unsigned points = pt_arch.points & (s->o->points ? s->o->points : ~0u);
	uint64_t addr[PT_GPU_POINTS];
	const char *name[PT_GPU_POINTS];
	struct pt_place *p = s->p;
	int ret, sig;

	ret = pt_maps_read(s->o->pid, &p->maps);
	if (ret)
		return pt_err_set(err, ret, "process %d cannot be looked at: %s",
				  (int)s->o->pid, strerror(-ret));
	ret = pt_libc_find(s->o->pid, &p->maps, &p->libc, err);
	if (ret)
		return ret;
	sig = choose_signal(s->o->pid);
	if (!sig)
		return pt_err_set(err, -EOPNOTSUPP,
				  "it handles every signal that could stop it "
				  "unnoticed");
	ret = pt_watch_open(&p->watch, sig, err);
	if (ret)
		return ret;
	if (points & PT_POINT_GPU)
		add_points(s, addr, name,
			   pt_gpu_points(s->o->pid, addr, name), false);
	if (points & PT_POINT_LIBC)
		add_points(s, p->libc.wait, pt_libc_waits, 8, true);
	return 0;
}

int pt_place_find(const struct pt_inject_opts *o, struct pt_place *p,
		  struct pt_err *err)
{
	unsigned ms = o->point_ms ? o->point_ms : PT_INJECT_POINT_MS;
	struct search s = { .o = o, .p = p };
	int ret;

	memset(p, 0, sizeof(*p));
	p->hold.mem = -1;
	p->watch.prog = -1;
	s.deadline = pt_now_ns() + ms * 1000000ull;
	ret = setup(&s, err);
	if (ret)
		goto fail;
	ret = search(&s, err);
	if (!ret) {
		pt_stage(o, PT_STAGE_STOPPED);
		return 0;
	}
	if (ret == -EAGAIN)
		pt_err_set(err, ret, "no safe moment to load the agent within "
			   "%.1f s (%s)", ms / 1e3,
			   s.why ? s.why : s.ever_hit ?
			   "it did not come back to one" :
			   "no thread called the GPU or a waiting function");
	else if (ret == -EBUSY && !err->msg[0])
		pt_err_set(err, ret, "a thread of process %d is traced by "
			   "another program", (int)o->pid);
	else if (ret == -ESRCH)
		pt_err_set(err, ret, "process %d ended or became another "
			   "program", (int)o->pid);
fail:
	pt_place_close(p);
	return ret;
}

void pt_place_close(struct pt_place *p)
{
	/* break points first: nothing may stop a thread that nobody holds */
	pt_watch_close(&p->watch);
	pt_hold_release(&p->hold);
	pt_maps_free(&p->maps);
}
