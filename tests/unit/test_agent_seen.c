/* SPDX-License-Identifier: BSD-2-Clause */
/* Which processes a search for jobs looks into, and how often; who is told of jobs' ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/jobs.h"
#include "agent/seen.h"

struct look {
	pid_t job, of_job; /* interesting; of a job that is known */
	unsigned looked;
};

static bool known(void *ctx, const struct pt_process *p)
{
	return p->pid == ((struct look *)ctx)->of_job;
}

static bool interesting(void *ctx, const struct pt_process *p)
{
	struct look *l = ctx;

	l->looked++;
	return p->pid == l->job;
}

static int news(struct pt_seen *s, struct pt_process *p, size_t n, double boot,
		struct look *l)
{
	struct pt_tree t = { .p = p, .n = n };

	l->looked = 0;
	return pt_seen_news(s, &t, boot, known, interesting, l);
}

static void once_and_again(void **state)
{
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
	struct pt_process p[4] = { { .pid = 10, .start_ticks = 1 * hz },
				   { .pid = 20, .start_ticks = 2000 * hz },
				   { .pid = 30, .start_ticks = 2000 * hz },
				   { .pid = 40, .start_ticks = 2100 * hz } };
	struct look l = { .job = 30, .of_job = 20 };
	struct pt_seen s = { 0 };

	(void)state;
	assert_int_equal(news(&s, p, 3, 2010, &l), 1);
	assert_int_equal(l.looked, 2); /* not at the known job's */
	/* the old one was looked at, the other one was told */
	assert_int_equal(news(&s, p, 3, 2020, &l), 0);
	assert_int_equal(l.looked, 0);
	/* a young one each time: it may load a library yet */
	assert_int_equal(news(&s, p, 4, 2110, &l), 0);
	assert_int_equal(l.looked, 1);
	l.job = 40;
	assert_int_equal(news(&s, p, 4, 2120, &l), 1);
	assert_int_equal(news(&s, p, 4, 2130, &l), 0);
	/* the job is not known any more: its processes are looked at again */
	l.of_job = 0;
	assert_int_equal(news(&s, p, 4, 2140, &l), 0);
	assert_int_equal(l.looked, 1);
	/* until they are old */
	assert_int_equal(news(&s, p, 4, 2800, &l), 0);
	assert_int_equal(l.looked, 1);
	assert_int_equal(news(&s, p, 4, 2810, &l), 0);
	assert_int_equal(l.looked, 0);
	/* another process with the number of one that was told */
	l.job = 30;
	p[2].start_ticks = 2805 * hz;
	assert_int_equal(news(&s, p, 4, 2815, &l), 1);
	/* all are gone, and come back as others */
	assert_int_equal(news(&s, p, 0, 2820, &l), 0);
	assert_int_equal(news(&s, p, 4, 2820, &l), 1);
	assert_int_equal(l.looked, 4);
	pt_seen_free(&s);
}

#define NAME "pt-test-job"

struct told {
	struct pt_ajob *ended;
	unsigned ends, news;
};

static void on_end(void *ctx, struct pt_ajob *a)
{
	struct told *t = ctx;

	assert_true(a->ended > 0);
	t->ended = a;
	t->ends++;
}

static void on_new(void *ctx, struct pt_ajob *a)
{
	struct told *t = ctx;

	assert_string_equal(a->comm, NAME);
	t->news++;
}

/* Of somebody who has all places. */
static struct pt_ajob *add_job(struct pt_ajobs *j)
{
	struct pt_ajob *a = calloc(1, sizeof(*a));

	assert_non_null(a);
	*a = (struct pt_ajob){ .root = 1, .trainer = 1, .comm = "x", .whose = 1,
			       .pidfd = dup(0), .next = j->first };
	j->first = a;
	j->n++;
	j->n_live++;
	return a;
}

/* A job ends for whoever asks also where it gives way, and where a new configuration does
 * not want it: what was said of it holds no more. */
static void ends_are_told(void **state)
{
	static struct pt_config c = { .max_jobs = 3, .n_rules = 1, .rules = { { .comm = NAME } } };
	struct pt_ajob *last;
	struct pt_ajobs j;
	struct told t = { 0 };
	int ready[2], i;
	pid_t pid;
	char x;

	(void)state;
	assert_int_equal(pt_ajobs_init(&j), 0);
	j.on_end = on_end;
	j.ctx = &t;
	last = add_job(&j);
	for (i = 1; i < 3; i++)
		add_job(&j);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, NAME);
		_exit(write(ready[1], "", 1) != 1 || pause());
	}
	assert_int_equal(read(ready[0], &x, 1), 1);
	assert_int_equal(pt_ajobs_search(&j, &c, 5, on_new, &t), 0);
	assert_int_equal(t.news, 1);
	assert_int_equal(t.ends, 1);
	assert_ptr_equal(t.ended, last);
	c.rules[0].exclude = true;
	pt_ajobs_recheck(&j, &c, 6);
	assert_int_equal(t.ends, 2);
	assert_int_equal(t.ended->root, pid);
	pt_ajobs_recheck(&j, &c, 7);
	assert_int_equal(t.ends, 2);
	pt_ajobs_free(&j);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(once_and_again),
					    cmocka_unit_test(ends_are_told) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
