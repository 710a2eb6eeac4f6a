// SPDX-License-Identifier: BSD-2-Clause
/* When a job is sampled, and what becomes of a sample. */
#include "agent/agent.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capture/procfs.h"
#include "report/readjson.h"

#define MIB 1048576.0
/* Attaching takes a second or two, and detaching up to ten where probes are perf
 * events; a machine that is overloaded takes longer. */
#define ATTACH_S 20.0
#define DETACH_S 30.0
/* What a sample maps but never touches: rings, libraries, stacks. */
#define ADDRESS_SPACE (256 * 1048576ull)
/* A sample stands for so many intervals at most: what was longer ago nobody saw. */
#define STANDS_FOR 3
#define MOUNTINFO_MAX (256 * 1024)

double pt_agent_realtime(void)
{
	return pt_clock(CLOCK_REALTIME);
}

unsigned pt_agent_running(const struct pt_agent *a)
{
	unsigned n = 0;
	size_t i;

	for (i = 0; i < PT_SLOTS; i++)
		n += a->slot[i].job != NULL;
	return n;
}

bool pt_agent_is_sampled(void *agent, const struct pt_ajob *j)
{
	const struct pt_agent *a = agent;
	size_t i;

	for (i = 0; i < PT_SLOTS; i++)
		if (a->slot[i].job == j)
			return true;
	return false;
}

void pt_agent_schedule_job(struct pt_agent *a, struct pt_ajob *j)
{
	struct pt_schedule s = { .interval = pt_agent_interval(a),
				 .sample = a->c.sample_s,
				 .aligned = a->c.aligned,
				 .node = pt_schedule_hash(a->jobs.host) };

	j->due = pt_schedule_next(&s, j->hash, pt_agent_realtime());
	j->waits = false;
}

void pt_agent_reschedule(struct pt_agent *a)
{
	struct pt_ajob *j;

	for (j = a->jobs.first; j; j = j->next)
		if (!j->ended && !j->waits)
			pt_agent_schedule_job(a, j);
}

static void start(struct pt_agent *a, struct pt_slot *s, struct pt_ajob *j)
{
	char pid[16], length[24], size[24];
	char *argv[] = { (char *)"pipetrace", (char *)"-p", pid, (char *)"-d",
			 length, (char *)"--json", (char *)"-",
			 (char *)"--print-steps", (char *)"4096",
			 (char *)"--mode", (char *)pt_mode_name(a->c.mode),
			 (char *)"--max-size", size, (char *)"-o", s->recording,
			 NULL, NULL };
	size_t n = 15; /* 11 without a recording, nor a size of it */
	struct pt_child_limits l = {
		.memory = a->c.memory + ADDRESS_SPACE,
		.file_size = 2 * a->c.sample_size + (uint64_t)(32 * MIB),
		.soft_s = j->sample_s + ATTACH_S,
		.hard_s = j->sample_s + ATTACH_S + DETACH_S,
	};
	struct pt_err err = { "" };

	pt_agent_schedule_job(a, j);
	snprintf(pid, sizeof(pid), "%d", j->root);
	snprintf(length, sizeof(length), "%.3f", j->sample_s);
	snprintf(size, sizeof(size), "%llu",
		 (unsigned long long)a->c.sample_size);
	pt_agent_keep_path(a, s);
	if (!*s->recording)
		n = 11;
	if (!a->c.adopt)
		argv[n++] = (char *)"--no-adopt";
	argv[n] = NULL;
	if (pt_child_start(&s->child, argv, &l, &err)) {
		pt_say(PT_SAY_WARNING, "job %s is not sampled: %s", j->id, err.msg);
		pt_tally_failed(&j->tally);
		return;
	}
	s->job = j;
	s->length = j->sample_s;
}

static struct pt_slot *free_slot(struct pt_agent *a)
{
	size_t i;

	for (i = 0; i < PT_SLOTS; i++)
		if (!a->slot[i].job)
			return &a->slot[i];
	return NULL;
}

/* The job that waits longest for its sample. */
static struct pt_ajob *next_due(struct pt_agent *a, double now)
{
	struct pt_ajob *j, *best = NULL;

	for (j = a->jobs.first; j; j = j->next) {
		if (j->ended || j->due > now || pt_agent_is_sampled(a, j))
			continue;
		j->waits = true;
		if (!best || j->due < best->due)
			best = j;
	}
	return best;
}

/* Where whole jobs are compared, no part of one may wait for a place. */
static bool together(const struct pt_agent *a, const struct pt_ajob *j)
{
	size_t i;

	for (i = 0; a->c.aligned && *j->ranks.group && i < PT_SLOTS; i++)
		if (a->slot[i].job &&
		    !strcmp(a->slot[i].job->ranks.group, j->ranks.group))
			return true;
	return false;
}

/* With too many jobs for the places there are, each is sampled less often than the
 * metrics say; their coverage tells how much. */
static void watch_delay(struct pt_agent *a, const struct pt_ajob *j, double now)
{
	double late = now - j->due, interval = pt_agent_interval(a);

	if (late > interval && !a->is_late)
		pt_say(PT_SAY_WARNING, "job %s waited %.0f s for its sample: %zu jobs "
		       "at %u a time are more than fit into %.0f s (at-once, "
		       "interval)", j->id, late, a->jobs.n_live, a->c.at_once,
		       interval);
	a->is_late = late > interval || (a->is_late && late > interval / 2);
}

static void start_due(struct pt_agent *a)
{
	double now = pt_agent_realtime();
	struct pt_ajob *j;
	struct pt_slot *s;

	while (!a->stopping && (j = next_due(a, now))) {
		if (j->left_out) {
			j->left_out--;
			pt_agent_schedule_job(a, j);
			continue;
		}
		s = free_slot(a);
		if (!s || (pt_agent_running(a) >= a->c.at_once &&
			   !together(a, j)))
			return;
		watch_delay(a, j, now);
		start(a, s, j);
	}
}

/* The report of the very process that was meant: another one may have its number
 * by now. */
static bool is_of(const struct pt_ajob *j, const struct pt_report *r)
{
	struct pollfd p = { .fd = j->pidfd, .events = POLLIN };

	if (j->pidfd >= 0 && !poll(&p, 1, 0))
		return true; /* it lives, so its number is its own */
	return r->target.started < j->found_unix + 1; /* NAN: it does not say */
}

static void failed(struct pt_ajob *j, const struct pt_child_result *r,
		   const char *why)
{
	struct pollfd p = { .fd = j->pidfd, .events = POLLIN };

	if (j->pidfd < 0 || poll(&p, 1, 0))
		return; /* the job's end is no failure */
	pt_tally_failed(&j->tally);
	if (j->failing) /* told, and counted */
		return;
	j->failing = true;
	if (WIFSIGNALED(r->status))
		pt_say(PT_SAY_WARNING, "a sample of job %s (process %d) was ended by "
		       "signal %d", j->id, j->root, WTERMSIG(r->status));
	else
		pt_say(PT_SAY_WARNING, "a sample of job %s (process %d) failed: %s",
		       j->id, j->root, *r->last ? r->last : why);
}

/* By the job's own mounts, while it lives. */
static void name_mounts(const struct pt_ajob *j, const struct pt_report *r,
			struct pt_sample *s)
{
	char *text = malloc(MOUNTINFO_MAX);

	if (text && pt_proc_read(j->trainer, "mountinfo", text, MOUNTINFO_MAX) > 0)
		pt_sample_mounts(r, text, s);
	free(text);
}

static void take_sample(struct pt_agent *a, struct pt_slot *s,
			const struct pt_report *report,
			const struct pt_child_result *r)
{
	struct pt_sample *new = malloc(sizeof(*new)), *was = malloc(sizeof(*was));
	struct pt_ajob *j = s->job;
	char kept[PT_EVIDENCE_ID] = "";
	const char *why = "no memory";
	double now = pt_now();
	bool had = j->tally.has_last;

	if (!new || !was || pt_sample_of(report, new, &why)) {
		failed(j, r, why);
		goto out;
	}
	j->failing = false;
	name_mounts(j, report, new);
	*was = j->tally.last;
	pt_tally_add(&j->tally, new, j->seen, now,
		     STANDS_FOR * pt_agent_interval(a));
	if (a->keeps)
		pt_agent_keep(a, j, r->out, r->out_len,
			      *s->recording && !WIFSIGNALED(r->status) &&
					      WEXITSTATUS(r->status) == 0 ?
				      s->recording : NULL, kept);
	pt_agent_changes(a, j, had ? was : NULL, report, *kept ? kept : NULL);
out:
	free(new);
	free(was);
}

static void finish(struct pt_agent *a, struct pt_slot *s)
{
	struct pt_child_result r;
	struct pt_ajob *j = s->job;
	struct pt_read_error why = { "it left no report" };
	struct pt_report *report = pt_report_new();
	bool read = !pt_child_finish(&s->child, &r) && r.out_len && report &&
		    !pt_report_read_json(r.out, r.out_len, report, &why);

	pt_agent_budget_memory(a, j, r.resident);
	if (read && is_of(j, report))
		take_sample(a, s, report, &r);
	else
		failed(j, &r, read ? "its report is of another process" : why.text);
	pt_report_free(report);
	if (j->ended && j->tally.has_last) /* nor do its verdicts hold any more */
		pt_agent_changes(a, j, &j->tally.last, NULL, NULL);
	/* what was kept has another name by now */
	if (*s->recording && unlink(s->recording) && errno != ENOENT)
		pt_say(PT_SAY_WARNING, "cannot remove %s: %s", s->recording,
		       strerror(errno));
	pt_child_result_free(&r);
	s->job = NULL;
	a->changed = true;
	/* a report's tree is large and short-lived: give its pages back */
	malloc_trim(0);
}

static bool is_ours(const struct pt_agent *a, pid_t pid)
{
	size_t i;

	for (i = 0; i < PT_SLOTS; i++)
		if (a->slot[i].job && a->slot[i].child.pid == pid)
			return true;
	for (i = 0; i < PT_WATCHES; i++)
		if (a->watch[i].job && a->watch[i].child.pid == pid)
			return true;
	return a->page.pid == pid;
}

/* What a sample left outside of its group became a child of ours as it ended. */
static void reap_strays(const struct pt_agent *a)
{
	siginfo_t si;
	int i;

	for (i = 0; i < 64; i++) {
		si.si_pid = 0;
		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) ||
		    !si.si_pid || is_ours(a, si.si_pid))
			return;
		waitpid(si.si_pid, NULL, WNOHANG);
	}
}

double pt_agent_sample(struct pt_agent *a)
{
	double now = pt_now(), real = pt_agent_realtime(), next = INFINITY;
	const struct pt_ajob *j;
	size_t i;

	for (i = 0; i < PT_SLOTS; i++) {
		if (!a->slot[i].job)
			continue;
		if (pt_child_done(&a->slot[i].child))
			finish(a, &a->slot[i]);
		else
			next = fmin(next, pt_child_tick(&a->slot[i].child, now));
	}
	reap_strays(a);
	start_due(a);
	for (j = a->jobs.first; j; j = j->next)
		if (!j->ended && !j->waits && !a->stopping)
			next = fmin(next, now + fmax(0, j->due - real));
	return next;
}
