// SPDX-License-Identifier: BSD-2-Clause
#include "python/sampler.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/vec.h"
#include "capture/procfs.h"

#define PLACES_MAX 65536
#define TRIES 5 /* a process that begins may have no Python yet */
#define LONG_NS 1000000000ull	/* the scheduler's count of so long is a share */
#define Z_95 1.96		/* of the normal distribution, two-sided */

struct place {
	struct pt_py_place key; /* all of its bytes: made from zeros */
	uint64_t seen;
	uint64_t ns; /* charged to it */
	UT_hash_handle hh;
};

struct id {
	pid_t pid, tid;
};

struct ran { /* /proc/PID/task/TID/schedstat */
	uint64_t run, ready; /* ns */
	uint64_t slices;     /* 0: the kernel does not say */
};

struct thread {
	struct id id;
	uint64_t n, running;  /* looks; of these it was on a core or ready for one */
	uint64_t begin, end;  /* of what the scheduler has counted, ns; 0: nothing */
	struct ran first, last;
	uint64_t gap[2];      /* since the last look: ns asleep, running */
	uint64_t charged[2];  /* of all gaps, to a place */
	struct place *at;     /* at the last look; NULL: it was none */
	UT_hash_handle hh;
};

struct process {
	pid_t pid;
	struct pt_py *py; /* NULL: it has none that can be read, or it has ended */
	int tries;
	char version[8], cmdline[PT_PY_TEXT];
};

struct pt_py_sampler {
	PT_VEC(struct process) processes;
	struct place *places;
	struct thread *threads;
	PT_VEC(struct pt_py_share) shares;
	/* the look under way; thread NULL: there is none */
	pid_t pid;
	struct thread *thread;
	bool running, any, own; /* any: `at` is set; own: it is of the job's own code */
	struct pt_py_frame at;
};

struct pt_py_sampler *pt_py_sampler_new(void)
{
	return calloc(1, sizeof(struct pt_py_sampler));
}

void pt_py_sampler_free(struct pt_py_sampler *s)
{
	struct place *p, *next;
	struct thread *t, *after;
	size_t i;

	if (!s)
		return;
	HASH_ITER(hh, s->places, p, next) {
		HASH_DEL(s->places, p);
		free(p);
	}
	HASH_ITER(hh, s->threads, t, after) {
		HASH_DEL(s->threads, t);
		free(t);
	}
	for (i = 0; i < s->processes.n; i++)
		pt_py_close(s->processes.v[i].py);
	free(s->processes.v);
	free(s->shares.v);
	free(s);
}

static struct process *process_of(const struct pt_py_sampler *s, pid_t pid)
{
	size_t i;

	for (i = 0; i < s->processes.n; i++)
		if (s->processes.v[i].pid == pid)
			return &s->processes.v[i];
	return NULL;
}

int pt_py_sampler_watch(struct pt_py_sampler *s, pid_t pid, struct pt_err *err)
{
	const struct process new = { .pid = pid };
	struct process *p = process_of(s, pid);
	int ret;

	if (!p) {
		if (pt_vec_push(&s->processes, new))
			return pt_err_set(err, -ENOMEM, "out of memory");
		p = &s->processes.v[s->processes.n - 1];
	}
	if (p->py || p->tries >= TRIES)
		return 0;
	p->tries++;
	ret = pt_py_open(&p->py, pid, err);
	if (!ret) {
		snprintf(p->version, sizeof(p->version), "%s", pt_py_version(p->py));
		if (pt_proc_cmdline(pid, p->cmdline, sizeof(p->cmdline)) <= 0)
			snprintf(p->cmdline, sizeof(p->cmdline), "?");
	}
	return p->tries == TRIES ? ret : 0;
}

bool pt_py_sampler_process(const struct pt_py_sampler *s, pid_t pid, const char **version,
			   const char **cmdline)
{
	const struct process *p = process_of(s, pid);

	if (!p || !p->version[0])
		return false;
	*version = p->version;
	*cmdline = p->cmdline;
	return true;
}

/* ---- one look ------------------------------------------------------------------ */

/* What comes with the interpreter or is installed beside it. */
static bool is_library(const char *file)
{
	return !strncmp(file, "<frozen", 7) || strstr(file, "/site-packages/") ||
	       strstr(file, "/dist-packages/") || strstr(file, "/lib/python3");
}

static bool is_running(pid_t pid, pid_t tid)
{
	struct pt_proc_stat stat;

	return !pt_proc_thread_stat(pid, tid, &stat) && stat.state == 'R';
}

static bool read_ran(const struct id *id, struct ran *out)
{
	char name[64], text[128];

	snprintf(name, sizeof(name), "task/%d/schedstat", (int)id->tid);
	return pt_proc_read(id->pid, name, text, sizeof(text)) > 0 &&
	       sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &out->run, &out->ready,
		      &out->slices) == 3 && out->slices;
}

/* What it did since the last look. True: it slept, so that its stack is the same, too. */
static bool slept_on(struct thread *t)
{
	uint64_t at = pt_now_ns(), wall = at - t->end, busy;
	struct ran now;
	bool same;

	t->gap[0] = t->gap[1] = 0;
	if (!read_ran(&t->id, &now)) {
		t->at = NULL;
		return false;
	}
	if (t->begin) {
		busy = now.run + now.ready - t->last.run - t->last.ready;
		t->gap[1] = busy < wall ? busy : wall;
		t->gap[0] = wall - t->gap[1];
	} else {
		t->begin = at;
		t->first = now;
	}
	same = now.slices == t->last.slices && now.run == t->last.run;
	t->end = at;
	t->last = now;
	return same && t->at && !t->at->key.running;
}

static void charge_gap(struct thread *t, struct place *p, uint64_t ns)
{
	p->ns += ns;
	t->charged[p->key.running] += ns;
}

/* It is at `p` now. What it slept since the last look it did where it sleeps now and where
 * it slept then, to equal parts, and so for running; what is neither stays uncharged. */
static void charge(struct thread *t, struct place *p)
{
	bool now = p->key.running;
	uint64_t half = t->gap[now] / 2;

	p->seen++;
	t->n++;
	t->running += now;
	if (t->at && t->at->key.running == now) {
		charge_gap(t, p, half);
		charge_gap(t, t->at, t->gap[now] - half);
	} else {
		charge_gap(t, p, t->gap[now]);
		if (t->at)
			charge_gap(t, t->at, t->gap[!now]);
	}
	t->at = p;
}

static struct thread *thread_of(struct pt_py_sampler *s, const struct id *id)
{
	struct thread *t;

	HASH_FIND(hh, s->threads, id, sizeof(*id), t);
	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->id = *id;
	HASH_ADD(hh, s->threads, id, sizeof(t->id), t);
	return t;
}

static struct place *place_of(struct pt_py_sampler *s)
{
	struct pt_py_place key;
	struct place *p;

	memset(&key, 0, sizeof(key));
	key.pid = s->thread->id.pid;
	key.tid = s->thread->id.tid;
	key.running = s->running;
	key.at.line = s->at.line;
	snprintf(key.at.file, sizeof(key.at.file), "%s", s->at.file);
	snprintf(key.at.name, sizeof(key.at.name), "%s", s->at.name);
	HASH_FIND(hh, s->places, &key, sizeof(key), p);
	if (p || HASH_COUNT(s->places) >= PLACES_MAX)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	memcpy(&p->key, &key, sizeof(key));
	HASH_ADD(hh, s->places, key, sizeof(p->key), p);
	return p;
}

/* The stack that was read is counted. Without room for its place the look is none. */
static void count(struct pt_py_sampler *s)
{
	struct thread *t = s->thread;
	struct place *p = t && s->any ? place_of(s) : NULL;

	s->thread = NULL;
	if (p)
		charge(t, p);
	else if (t)
		t->at = NULL;
}

static bool on_thread(void *ctx, pid_t tid)
{
	struct pt_py_sampler *s = ctx;
	const struct id id = { s->pid, tid };
	struct thread *t;

	count(s);
	t = thread_of(s, &id);
	if (!t)
		return false;
	if (slept_on(t)) {
		charge(t, t->at);
		return false;
	}
	s->thread = t;
	s->running = is_running(s->pid, tid);
	s->any = s->own = false;
	return true;
}

static void on_frame(void *ctx, const struct pt_py_frame *f)
{
	struct pt_py_sampler *s = ctx;
	bool own;

	if (s->any && s->own)
		return;
	own = !is_library(f->file);
	if (!s->any || own)
		s->at = *f;
	s->any = true;
	s->own = own;
}

int pt_py_sampler_look(struct pt_py_sampler *s)
{
	const struct pt_py_sink to = { on_thread, on_frame, s };
	struct pt_proc_stat stat;
	int seen = 0, n;
	size_t i;

	for (i = 0; i < s->processes.n; i++) {
		struct process *p = &s->processes.v[i];

		if (!p->py)
			continue;
		s->pid = p->pid;
		n = pt_py_stacks(p->py, &to);
		count(s);
		if (n > 0) {
			seen += n;
		} else if (pt_proc_stat(p->pid, &stat) || stat.state == 'Z') {
			pt_py_close(p->py);
			p->py = NULL;
			p->tries = 0; /* the number may come again */
		}
	}
	return seen;
}

/* ---- what was seen --------------------------------------------------------------- */

static int by_thread(const void *a, const void *b)
{
	const struct pt_py_share *x = a, *y = b;

	if (x->place.pid != y->place.pid)
		return x->place.pid < y->place.pid ? -1 : 1;
	if (x->place.tid != y->place.tid)
		return x->place.tid < y->place.tid ? -1 : 1;
	if (x->share != y->share)
		return x->share > y->share ? -1 : 1;
	return memcmp(&x->place, &y->place, sizeof(x->place));
}

static void judge(struct pt_py_share *r, const struct place *p, const struct thread *t)
{
	bool now = p->key.running;
	double n = (double)t->n, of = 1, share = (double)p->seen / n, wide;

	if (t->end - t->begin >= LONG_NS && t->running && t->running < t->n) {
		of = fmin(1, (double)(t->last.run + t->last.ready - t->first.run -
				      t->first.ready) / (double)(t->end - t->begin));
		of = now ? of : 1 - of;
		n = (double)(now ? t->running : t->n - t->running);
		share = t->charged[now] ? (double)p->ns / (double)t->charged[now] :
					  (double)p->seen / n;
	}
	/* Wilson's score interval (1927) of so many looks */
	wide = Z_95 * sqrt(share * (1 - share) / n + Z_95 * Z_95 / (4 * n * n));
	r->low = (share + Z_95 * Z_95 / (2 * n) - wide) / (1 + Z_95 * Z_95 / n);
	r->high = (share + Z_95 * Z_95 / (2 * n) + wide) / (1 + Z_95 * Z_95 / n);
	r->low = of * fmax(0, r->low);
	r->high = of * fmin(1, r->high);
	r->share = of * share;
	r->looks = t->n;
	r->seconds = r->share * (double)(t->end - t->begin) / 1e9;
}

const struct pt_py_share *pt_py_sampler_shares(struct pt_py_sampler *s, size_t *n)
{
	struct place *p, *next;

	s->shares.n = 0;
	HASH_ITER(hh, s->places, p, next) {
		struct id id = { p->key.pid, p->key.tid };
		struct pt_py_share row;
		struct thread *t;

		HASH_FIND(hh, s->threads, &id, sizeof(id), t);
		memcpy(&row.place, &p->key, sizeof(row.place));
		row.seen = p->seen;
		if (!t)
			continue;
		judge(&row, p, t);
		if (pt_vec_push(&s->shares, row))
			break;
	}
	if (s->shares.n)
		qsort(s->shares.v, s->shares.n, sizeof(*s->shares.v), by_thread);
	*n = s->shares.n;
	return s->shares.v;
}
