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
#include <sys/stat.h>
#include <unistd.h>

#include "capture/procfs.h"
#include "inject/inject_int.h"

#define MAX_THREADS 128
#define FIRST_PID_NS 0xeffffffc /* its inode (PROC_PID_INIT_INO) */
#define LOOK_US 500
#define ROUND_MS 250 /* for a kind of point to be passed */
#define TRIES 12     /* stops that were not safe, then a pause: each costs the
		      * target a millisecond */
#define PAUSE_US 100000

struct search {
	const struct pt_inject_opts *o;
	struct pt_place *p;
	uint32_t gpu, libc; /* points, a bit each */
	pid_t tids[MAX_THREADS];
	size_t n_tids, turn;
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
			   (s->p->stops.sig - 1) & 1))
			s->tids[s->n_tids++] = tid;
	}
	closedir(d);
	return ret;
}

static uint32_t add_points(struct search *s, const uint64_t *addr,
			   const char *const *name, size_t n, bool libc)
{
	uint32_t points = 0;
	size_t i;
	int k;

	for (i = 0; i < n; i++) {
		k = addr[i] ? pt_stops_point(&s->p->stops, addr[i], name[i], libc) : -1;
		if (k >= 0)
			points |= 1u << k;
	}
	return points;
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
static int judge(struct search *s, const struct pt_stop *at)
{
	struct pt_place *p = s->p;
	int ret;

	pt_maps_free(&p->maps);
	ret = pt_maps_read(s->o->pid, &p->maps);
	return ret ? ret : pt_safe_here(&p->hold, &p->maps, &p->libc, at, &s->why);
}

/* The kernel counts threads anew in each PID name space: in one of ours, its numbers say
 * nothing to us. */
static bool counts_as_kernel(void)
{
	struct stat st;

	return !stat("/proc/self/ns/pid", &st) && st.st_ino == FIRST_PID_NS;
}

static int seize(struct search *s, pid_t tid, struct pt_err *err)
{
	struct pt_thread_hold *h = &s->p->hold;
	int ret;

	s->p->kernel_tid = counts_as_kernel() ? tid : 0;
	*h = (struct pt_thread_hold){ .pid = s->o->pid, .tid = tid, .mem = -1,
				      .sig = s->p->stops.sig };
	ret = pt_hold_seize(h, err);
	if (ret) {
		pt_hold_release(h);
		/* a thread that ended is no reason to give up */
		return ret == -EPERM || ret == -EBUSY ? ret : -EAGAIN;
	}
	pt_stage(s->o, PT_STAGE_SEIZED);
	return 0;
}

/* The seized thread runs towards one of the points. */
static int catch_at(struct search *s, uint32_t points, uint64_t until)
{
	struct pt_thread_hold *h = &s->p->hold;
	const struct pt_stop *at;
	int ret, tries;

	for (tries = 0; tries < TRIES; tries++) {
		ret = pt_hold_wait(h, until, false);
		if (ret)
			return ret;
		at = pt_stops_at(&s->p->stops, points, PT_REGS_IP(&h->regs));
		if (at) {
			ret = judge(s, at);
			if (!ret) {
				snprintf(s->p->name, sizeof(s->p->name), "%s", at->name);
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

/* Which of the threads that can be stopped has passed a point; where its number says
 * nothing, they are tried in turn. 0: one that blocks the signal. */
static pid_t which_thread(struct search *s, pid_t kernel_tid)
{
	size_t i;

	if (!counts_as_kernel())
		return s->n_tids ? s->tids[s->turn++ % s->n_tids] : 0;
	for (i = 0; i < s->n_tids; i++)
		if (s->tids[i] == kernel_tid)
			return kernel_tid;
	return 0;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* These points, for a while. 0 caught; -EAGAIN. */
static int try_points(struct search *s, uint32_t points, struct pt_err *err)
{
	uint64_t until = sooner(s->deadline,
				pt_now_ns() + ROUND_MS * 1000000ull);
	struct pt_stops *st = &s->p->stops;
	pid_t hit, tid = 0;
	int ret = list_threads(s);

	if (ret)
		return ret;
	pt_stops_arm(st, points, 0, false);
	pt_stage(s->o, PT_STAGE_WATCHED);
	while (!tid && pt_now_ns() < until) {
		hit = pt_stops_hit(st);
		if (hit)
			tid = which_thread(s, hit);
		else
			pt_inj_sleep_us(LOOK_US);
	}
	pt_stops_arm(st, 0, 0, false);
	if (!tid)
		return -EAGAIN;
	/* This thread calls them: it alone is stopped and held now. */
	s->ever_hit = true;
	ret = seize(s, tid, err);
	if (ret)
		return ret;
	pt_stops_arm(st, points, s->p->kernel_tid, true);
	/* among several, its turn comes again soon enough */
	ret = catch_at(s, points, s->p->kernel_tid ? s->deadline : until);
	pt_stops_arm(st, 0, 0, false);
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

	return ret ? ret : judge(s, NULL);
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

static int search(struct search *s, struct pt_err *err)
{
	unsigned points = pt_arch.points & (s->o->points ? s->o->points : ~0u);
	size_t round = 0;
	uint32_t now;
	int ret;

	while (pt_now_ns() < s->deadline) {
		/* GPU functions twice as often as the others */
		now = (s->gpu && (!s->libc || round % 3 != 2)) ? s->gpu : s->libc;
		if (now) {
			ret = try_points(s, now, err);
			if (ret != -EAGAIN)
				return ret;
		}
		if (points & PT_POINT_BLOCKED && round >= 2) {
			ret = try_blocked(s, err);
			if (ret != -EAGAIN)
				return ret;
		}
		if (!now)
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
	ret = pt_stops_open(&p->stops, sig, err);
	if (ret)
		return ret;
	if (points & PT_POINT_GPU)
		s->gpu = add_points(s, addr, name,
				    pt_gpu_points(s->o->pid, addr, name), false);
	if (points & PT_POINT_LIBC)
		s->libc = add_points(s, p->libc.wait, pt_libc_waits, 8, true);
	if (p->libc.back)
		p->back = pt_stops_point(&p->stops, p->libc.back, pt_arch.back, false);
	ret = pt_stops_attach(&p->stops, s->o->pid, &p->maps);
	if (ret)
		return pt_err_set(err, ret, "no probe can be put into process %d: %s",
				  (int)s->o->pid, strerror(-ret));
	return 0;
}

int pt_place_find(const struct pt_inject_opts *o, struct pt_place *p,
		  struct pt_err *err)
{
	unsigned ms = o->point_ms ? o->point_ms : PT_INJECT_POINT_MS;
	struct search s = { .o = o, .p = p };
	int ret;

	memset(p, 0, sizeof(*p));
	p->hold.mem = p->back = -1;
	p->stops.prog = p->stops.map = -1;
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
	/* probes first: nothing may stop a thread that nobody holds */
	pt_stops_close(&p->stops);
	pt_hold_release(&p->hold);
	pt_maps_free(&p->maps);
}
