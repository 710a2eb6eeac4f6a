// SPDX-License-Identifier: BSD-2-Clause
/* Where the threads of a job spend their time, by line of Python: "pipetrace stack -d". */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "capture/discover.h"
#include "cmd/cmd.h"
#include "cmd/session.h"
#include "cmd/stack.h"
#include "python/sampler.h"

#define TREE_S 0.5    /* how often new processes are looked for, at the most often */
#define LEAST 0.01    /* of a thread's time: below, a line is not shown without -v */
#define TOP_LINES 10
#define TEXT (4 * PT_PY_TEXT)

static void put_line(const struct pt_py_share *r, unsigned flags)
{
	const struct pt_py_line *f = &r->place.at;
	char name[TEXT];

	pt_str_term(name, sizeof(name), f->name, flags, 0);
	printf("    %-7s %5.1f %% (%.0f to %.0f)  %s  ", r->place.running ? "running" : "asleep",
	       100 * r->share, 100 * r->low, 100 * r->high, name);
	pt_put_place(f->file, f->line, flags);
}

static void put_thread(const struct pt_py_share *r, size_t n, double least, unsigned flags)
{
	double running = 0, rest = 0;
	size_t i, few = 0;

	for (i = 0; i < n; i++)
		if (r[i].place.running)
			running += r[i].share;
	printf("  thread %d: running %.1f %%; %llu looks\n", (int)r->place.tid, 100 * running,
	       (unsigned long long)r->looks);
	for (i = 0; i < n; i++) {
		if (r[i].share >= least) {
			put_line(&r[i], flags);
			continue;
		}
		few++;
		rest += r[i].share;
	}
	if (few)
		printf("    %zu more, %.1f %% together\n", few, 100 * rest);
}

static int by_line(const void *a, const void *b)
{
	const struct pt_py_share *x = a, *y = b;
	const struct pt_py_line *f = &x->place.at, *g = &y->place.at;
	int ret = strcmp(f->file, g->file);

	if (!ret && f->line != g->line)
		ret = f->line < g->line ? -1 : 1;
	return ret ? ret : strcmp(f->name, g->name);
}

static int by_seconds(const void *a, const void *b)
{
	const struct pt_py_share *x = a, *y = b;

	return x->seconds != y->seconds ? (x->seconds > y->seconds ? -1 : 1) : by_line(a, b);
}

/* Where the CPU goes, all threads together. `v` is sorted and its rows are joined. */
static void put_sums(struct pt_py_share *v, size_t n, double seconds, unsigned flags)
{
	char name[TEXT];
	double all = 0;
	size_t i, k = 0;

	qsort(v, n, sizeof(*v), by_line);
	for (i = 0; i < n; i++) {
		if (!v[i].place.running)
			continue;
		all += v[i].seconds;
		if (k && !by_line(&v[k - 1], &v[i]))
			v[k - 1].seconds += v[i].seconds;
		else
			v[k++] = v[i];
	}
	if (!k || seconds <= 0)
		return;
	qsort(v, k, sizeof(*v), by_seconds);
	printf("All threads ran on %.2f cores or were ready to:\n", all / seconds);
	for (i = 0; i < k && i < TOP_LINES && v[i].seconds >= LEAST * all; i++) {
		const struct pt_py_line *f = &v[i].place.at;

		pt_str_term(name, sizeof(name), f->name, flags, 0);
		printf("  %5.1f %%  %s  ", 100 * v[i].seconds / all, name);
		pt_put_place(f->file, f->line, flags);
	}
}

static int put_summary(struct pt_py_sampler *s, double seconds, unsigned flags)
{
	size_t n;
	const struct pt_py_share *r = pt_py_sampler_shares(s, &n);
	struct pt_py_share *v = n ? malloc(n * sizeof(*v)) : NULL;

	if (!v)
		return n ? -ENOMEM : 0;
	memcpy(v, r, n * sizeof(*v));
	put_sums(v, n, seconds, flags);
	free(v);
	return 0;
}

/* False: there is nothing. */
static bool put_all(struct pt_py_sampler *s, double least, unsigned flags)
{
	size_t n, i, k;
	const struct pt_py_share *r = pt_py_sampler_shares(s, &n);
	const char *version, *cmdline;

	for (i = 0; i < n; i = k) {
		const struct pt_py_place *p = &r[i].place;

		for (k = i; k < n && r[k].place.pid == p->pid && r[k].place.tid == p->tid;)
			k++;
		if ((!i || r[i - 1].place.pid != p->pid) &&
		    pt_py_looks_process(pt_py_sampler_looks(s), p->pid, &version, &cmdline)) {
			pt_put_process(p->pid, cmdline, flags);
			printf("  Python %s\n", version);
		}
		put_thread(r + i, k - i, least, flags);
	}
	return n > 0;
}

/* Who is below them now; *cost: the CPU that finding them took, s. 0 or -errno. */
static int watch(struct pt_py_sampler *s, const struct pt_opts *o, bool *any, double *cost)
{
	pid_t *pids = calloc(PT_STACK_PROCESSES, sizeof(*pids));
	struct pt_tree t = { 0 };
	struct pt_err err = { "" };
	size_t i, k, n;
	int ret;

	*any = false;
	if (!pids)
		return -ENOMEM;
	*cost = pt_clock(CLOCK_PROCESS_CPUTIME_ID);
	ret = pt_tree_snapshot(&t);
	*cost = pt_clock(CLOCK_PROCESS_CPUTIME_ID) - *cost;
	for (i = 0; !ret && i < o->n_pids; i++) {
		if (!pt_tree_find(&t, o->pids[i]))
			continue;
		*any = true;
		n = pt_tree_descendants(&t, o->pids[i], pids, PT_STACK_PROCESSES);
		for (k = 0; k < n && k < PT_STACK_PROCESSES; k++) {
			int no = pt_py_looks_watch(pt_py_sampler_looks(s), pids[k], &err);

			if (no && no != -ENOENT && no != -ESRCH)
				pt_note("process %d: %s", (int)pids[k], err.msg);
		}
	}
	pt_tree_free(&t);
	free(pids);
	return ret;
}

/* 0: the time is over; 1: a signal. */
static int pause_for(double s)
{
	struct timespec t;
	sigset_t stop;

	t.tv_sec = (time_t)s;
	t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
	pt_stop_signals(&stop);
	return sigtimedwait(&stop, NULL, &t) > 0;
}

int pt_stack_sample(const struct pt_opts *o)
{
	struct pt_py_sampler *s = pt_py_sampler_new();
	double begin = pt_now(), again = 0, cost, spent = 0;
	int ret = s ? pt_block_signals() : -ENOMEM, looks = 0;
	bool any = true;

	while (!ret && pt_now() - begin < o->duration) {
		if (pt_now() >= again) {
			ret = watch(s, o, &any, &cost);
			if (ret || !any)
				break;
			spent += cost;
			again = pt_now() + fmax(TREE_S, cost / PT_PY_BUDGET);
		}
		cost = pt_clock(CLOCK_PROCESS_CPUTIME_ID);
		pt_py_sampler_look(s);
		looks++;
		cost = pt_clock(CLOCK_PROCESS_CPUTIME_ID) - cost;
		spent += cost;
		if (pause_for(pt_py_pause(cost, PT_PY_BUDGET)))
			break;
	}
	if (!ret && looks)
		ret = put_summary(s, pt_now() - begin, o->ascii ? 0 : PT_TERM_UNICODE);
	if (ret)
		pt_error("cannot look at the job: %s", strerror(-ret));
	else if (!any && !looks)
		pt_error("there is no process %d", (int)o->pids[0]);
	else if (!put_all(s, o->loud == PT_VERBOSE ? 0 : LEAST, o->ascii ? 0 : PT_TERM_UNICODE))
		pt_note("no Python stack could be read in these processes; stack without -d "
			"says why, and what their threads are doing");
	if (!ret && looks)
		pt_note("%d samples in %.1f s took %.0f ms of CPU", looks, pt_now() - begin,
			1000 * spent);
	pt_py_sampler_free(s);
	return ret || !looks ? PT_EXIT_FAILED : PT_EXIT_OK;
}
