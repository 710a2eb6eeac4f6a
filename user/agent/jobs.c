// SPDX-License-Identifier: BSD-2-Clause
#include "agent/jobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/child.h"
#include "agent/rule.h"
#include "agent/say.h"
#include "agent/schedule.h"
#include "capture/procfs.h"

#define FULL_SEARCH_S 600.0
#define CHAIN_MAX 64 /* processes between a worker and its job */

int pt_ajobs_init(struct pt_ajobs *j)
{
	ssize_t n;

	memset(j, 0, sizeof(*j));
	n = pt_file_read("/proc/sys/kernel/random/boot_id", j->boot,
			 sizeof(j->boot));
	if (n < 0)
		return (int)n;
	j->boot[strcspn(j->boot, "\n")] = '\0';
	if (gethostname(j->host, sizeof(j->host)))
		return -errno;
	j->host[sizeof(j->host) - 1] = '\0';
	return 0;
}

static void free_one(struct pt_ajob *a)
{
	if (a->pidfd >= 0)
		close(a->pidfd);
	free(a);
}

void pt_ajobs_free(struct pt_ajobs *j)
{
	struct pt_ajob *a, *next;

	for (a = j->first; a; a = next) {
		next = a->next;
		free_one(a);
	}
	pt_seen_free(&j->seen);
	memset(j, 0, sizeof(*j));
}

static bool known(const struct pt_ajobs *j, pid_t root, uint64_t start)
{
	const struct pt_ajob *a;

	for (a = j->first; a; a = a->next)
		if (a->root == root && a->start_ticks == start)
			return true;
	return false;
}

struct facts { /* what rules are asked about, and where it lies */
	char comm[PT_PROC_COMM], cmdline[4096], user[64], cgroup[8192];
};

static void read_facts(pid_t pid, const char *comm, struct facts *f)
{
	uid_t uid;

	snprintf(f->comm, sizeof(f->comm), "%s", comm);
	if (pt_proc_cmdline(pid, f->cmdline, sizeof(f->cmdline)) < 0)
		f->cmdline[0] = '\0';
	f->user[0] = '\0';
	if (!pt_proc_uid(pid, &uid))
		pt_user_name(uid, f->user, sizeof(f->user));
	if (pt_proc_read(pid, "cgroup", f->cgroup, sizeof(f->cgroup)) < 0)
		f->cgroup[0] = '\0';
}

static enum pt_rule_verdict decide(const struct pt_config *c, pid_t pid,
				   const char *comm)
{
	struct pt_rule_facts r;
	enum pt_rule_verdict v;
	struct facts *f;

	if (!c->n_rules)
		return PT_RULE_NONE;
	f = malloc(sizeof(*f));
	if (!f)
		return PT_RULE_NONE;
	read_facts(pid, comm, f);
	r = (struct pt_rule_facts){ f->comm, f->cmdline, f->user, f->cgroup };
	v = pt_rule_decide(c, &r);
	free(f);
	return v;
}

static void name_it(const struct pt_ajobs *j, struct pt_ajob *a)
{
	char text[128];

	snprintf(text, sizeof(text), "%s %d %" PRIu64, j->boot, a->root,
		 a->start_ticks);
	a->hash = pt_schedule_hash(text);
	snprintf(a->id, sizeof(a->id), "%016" PRIx64, a->hash);
}

/* Whose places count together. A group that a user named himself does not make
 * another owner of him. */
static uint64_t whose(const struct pt_ajob *a)
{
	char text[128];
	uid_t uid = 0;

	if (pt_proc_uid(a->trainer, &uid))
		uid = (uid_t)-1;
	snprintf(text, sizeof(text), "%u %s %s", (unsigned)uid,
		 a->owner.pod_uid, a->owner.slurm_job);
	return pt_schedule_hash(text);
}

/* Names and labels, of the first rank where there are several. */
static void describe(const struct pt_ajobs *j, const struct pt_config *c,
		     struct pt_ajob *a)
{
	struct pt_proc_stat st;
	uid_t uid;

	/* what cannot be read stays empty: a job without a label is one */
	if (!pt_proc_stat(a->trainer, &st))
		snprintf(a->comm, sizeof(a->comm), "%.15s", st.comm);
	if (!pt_proc_uid(a->trainer, &uid))
		pt_user_name(uid, a->user, sizeof(a->user));
	pt_owner_of(a->trainer, c->logs, &a->owner);
	a->whose = whose(a);
	pt_ranks_of(a->trainer, j->host, &a->ranks);
	if (a->n_trainers > 1)
		a->ranks.rank = -1;
	/* the kernel's word goes before the environment's */
	if (!*a->owner.slurm_job) {
		memcpy(a->owner.slurm_job, a->ranks.slurm_job,
		       sizeof(a->owner.slurm_job));
		memcpy(a->owner.slurm_step, a->ranks.slurm_step,
		       sizeof(a->owner.slurm_step));
	}
}

/* A descriptor of this very process: one that took over its number since has
 * another start. */
static int open_job(const struct pt_process *p)
{
	struct pt_proc_stat st;
	int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);

	if (fd < 0)
		return -errno;
	if (!pt_proc_stat(p->pid, &st) && st.start_ticks == p->start_ticks)
		return fd;
	close(fd);
	return -ESRCH;
}

/* NULL: it has ended already, or there is no memory. */
static struct pt_ajob *make_job(struct pt_ajobs *j, const struct pt_config *c,
				const struct pt_process *p, const struct pt_job *job,
				double now)
{
	struct pt_ajob *a = calloc(1, sizeof(*a));
	size_t i;

	if (!a)
		return NULL;
	a->pidfd = open_job(p);
	if (a->pidfd < 0) {
		free(a);
		return NULL;
	}
	a->root = p->pid;
	a->start_ticks = p->start_ticks;
	a->trainer = job->trainer ? job->trainer : p->pid;
	a->n_trainers = job->n_trainers;
	a->seen = now;
	a->sample_s = c->sample_s;
	a->device = pt_owns_gpu(a->trainer);
	for (i = 0; i < job->n_trainers && i < PT_MAX_TRAINERS; i++)
		a->device |= pt_owns_gpu(job->trainers[i]);
	name_it(j, a);
	describe(j, c, a);
	return a;
}

/* Behind the last one. */
static void append_job(struct pt_ajobs *j, struct pt_ajob *a)
{
	struct pt_ajob **end = &j->first;

	while (*end)
		end = &(*end)->next;
	*end = a;
	j->n++;
	j->n_live++;
}

static size_t places_of(const struct pt_ajobs *j, uint64_t owner)
{
	const struct pt_ajob *a;
	size_t n = 0;

	for (a = j->first; a; a = a->next)
		n += !a->ended && a->whose == owner;
	return n;
}

/* Who gives up a place for `a`, where all are taken: of the owner with the most
 * places, and more than `a`'s has with this one, or one without a device for one
 * that has. NULL: nobody. */
static struct pt_ajob *gives_way(struct pt_ajobs *j, const struct pt_ajob *a)
{
	size_t mine = places_of(j, a->whose) + 1, most = 0, n;
	struct pt_ajob *v, *best = NULL;

	for (v = j->first; v; v = v->next) {
		if (v->ended)
			continue;
		n = places_of(j, v->whose);
		if (n <= mine &&
		    !(a->device && !v->device &&
		      (n == mine || v->whose == a->whose)))
			continue;
		/* the newest of the worst: what was there first stays */
		if (!best || v->device < best->device ||
		    (v->device == best->device && n >= most)) {
			best = v;
			most = n;
		}
	}
	return best;
}

struct search {
	struct pt_ajobs *j;
	const struct pt_config *c;
	const struct pt_tree *t;
	double now;
	void (*on_new)(void *ctx, struct pt_ajob *a);
	void *ctx;
	size_t max;   /* processes that there are: of each of these */
	pid_t *roots; /* of jobs that there are */
	size_t n_roots;
	pid_t *covered; /* trainers of those */
	size_t n_covered;
};

static bool among(const pid_t *v, size_t n, pid_t pid)
{
	while (n--)
		if (v[n] == pid)
			return true;
	return false;
}

static void found(struct search *s, const struct pt_job *job)
{
	const struct pt_process *p = pt_tree_find(s->t, job->root);
	struct pt_ajob *a, *less = NULL;
	size_t i;

	for (i = 0; i < job->n_trainers && s->n_covered < s->max; i++)
		s->covered[s->n_covered++] = job->trainers[i];
	if (!p || p->pid == getpid() ||
	    among(s->roots, s->n_roots, p->pid) || s->n_roots == s->max)
		return;
	s->roots[s->n_roots++] = p->pid;
	if (known(s->j, p->pid, p->start_ticks))
		return;
	a = make_job(s->j, s->c, p, job, s->now);
	if (!a)
		return;
	if (s->j->n_live >= s->c->max_jobs) {
		s->j->dropped++;
		less = gives_way(s->j, a);
		if (!less) {
			free_one(a);
			return;
		}
		pt_ajob_end(s->j, less, s->now);
	}
	append_job(s->j, a);
	s->on_new(s->ctx, a);
}

/* A launcher's ranks are one job; a trainer that nobody launched is its own. */
static void found_trainer(struct search *s, pid_t pid)
{
	const struct pt_process *p = pt_tree_find(s->t, pid), *up;
	struct pt_job job, above;
	struct pt_err err;
	size_t i;

	if (!p || among(s->covered, s->n_covered, pid) || decide(s->c, pid, p->comm) == PT_RULE_EXCLUDED ||
	    pt_discover_in(s->t, pid, &job, &err))
		return; /* one that is no rank of a job seen before */
	up = pt_tree_find(s->t, p->ppid);
	/* torchrun and mpirun have ranks for children, and two at least: that a
	 * shell has one is no launch */
	if (up && up->pid != 1 && job.root == pid && pt_rank_of(pid) >= 0 &&
	    !pt_discover_in(s->t, up->pid, &above, &err) &&
	    above.root == up->pid && above.n_trainers > 1) {
		for (i = 0; i < above.n_trainers; i++)
			if (pt_rank_of(above.trainers[i]) < 0)
				break;
		if (i == above.n_trainers)
			job = above;
	}
	found(s, &job);
}

static void search_gpu(struct search *s)
{
	pid_t *pids = calloc(s->max, sizeof(*pids));
	bool unreadable = false;
	size_t i, n = 0;

	if (pids)
		n = pt_all_trainers(s->t, pids, s->max, &unreadable);
	for (i = 0; i < n; i++)
		found_trainer(s, pids[i]);
	free(pids);
}

/* The topmost process that a rule names: its children are a part of it. */
static void search_rules(struct search *s)
{
	const struct pt_process *p, *up;
	struct pt_job job = { 0 };
	size_t i;

	for (i = 0; i < s->t->n; i++) {
		p = &s->t->p[i];
		if (p->pid == 1 ||
		    decide(s->c, p->pid, p->comm) != PT_RULE_JOB)
			continue;
		up = pt_tree_find(s->t, p->ppid);
		if (up && up->pid != 1 &&
		    decide(s->c, up->pid, up->comm) == PT_RULE_JOB)
			continue;
		job.root = job.trainer = p->pid;
		found(s, &job);
	}
}

static bool has_job_rules(const struct pt_config *c)
{
	size_t i;

	for (i = 0; i < c->n_rules; i++)
		if (!c->rules[i].exclude)
			return true;
	return false;
}

/* Of the agent itself, or of a job that it knows. */
static bool is_known(void *ctx, const struct pt_process *p)
{
	const struct search *s = ctx;
	const struct pt_ajob *a;
	int i;

	for (i = 0; p && i < CHAIN_MAX; i++) {
		if (p->pid == getpid())
			return true;
		for (a = s->j->first; a; a = a->next)
			if (!a->ended && a->root == p->pid)
				return true;
		p = pt_tree_find(s->t, p->ppid);
	}
	return false;
}

static bool is_interesting(void *ctx, const struct pt_process *p)
{
	const struct search *s = ctx;
	struct pt_gpulib g;

	return (s->c->gpu_jobs && pt_gpulibs(p->pid, &g, 1) > 0) ||
	       (has_job_rules(s->c) &&
		decide(s->c, p->pid, p->comm) == PT_RULE_JOB);
}

/* Has enough changed since the last search to look at every process? */
static int worth(const struct search *s)
{
	struct pt_ajobs *j = s->j;
	int news;

	news = pt_seen_news(&j->seen, s->t, pt_clock(CLOCK_BOOTTIME), is_known,
			    is_interesting, (void *)s);
	if (news || !j->scanned || s->now - j->scanned >= FULL_SEARCH_S)
		return news < 0 ? news : 1;
	/* there is room now for one that there was none for */
	return j->dropped && j->n_live < s->c->max_jobs;
}

/* Once for each new number. */
static void tell_dropped(struct pt_ajobs *j, const struct pt_config *c)
{
	const struct pt_ajob *a, *most = NULL;
	size_t n, top = 0;

	if (j->dropped == j->told)
		return;
	j->told = j->dropped;
	for (a = j->first; a; a = a->next) {
		n = a->ended ? 0 : places_of(j, a->whose);
		if (n > top) {
			top = n;
			most = a;
		}
	}
	if (j->dropped && most)
		pt_say(PT_SAY_WARNING, "%zu jobs are not sampled: there are more "
		       "than max-jobs (%u); %zu of those that are belong to user "
		       "%s", j->dropped, c->max_jobs, top, most->user);
	else if (!j->dropped)
		pt_say(PT_SAY_INFO, "all jobs can be sampled again");
}

int pt_ajobs_search(struct pt_ajobs *j, const struct pt_config *c, double now,
		    void (*on_new)(void *, struct pt_ajob *), void *ctx)
{
	struct search *s = calloc(1, sizeof(*s));
	struct pt_tree t = { 0 };
	int ret = s ? pt_tree_snapshot(&t) : -ENOMEM;

	if (ret)
		goto out;
	*s = (struct search){ .j = j, .c = c, .t = &t, .now = now,
			      .on_new = on_new, .ctx = ctx };
	ret = worth(s);
	if (ret <= 0)
		goto out;
	ret = -ENOMEM;
	s->max = t.n + 1;
	s->roots = calloc(s->max, sizeof(*s->roots));
	s->covered = calloc(s->max, sizeof(*s->covered));
	if (!s->roots || !s->covered)
		goto out;
	j->scanned = now;
	j->dropped = 0;
	if (c->gpu_jobs)
		search_gpu(s);
	if (has_job_rules(c))
		search_rules(s);
	tell_dropped(j, c);
	ret = 0;
out:
	pt_tree_free(&t);
	if (s) {
		free(s->roots);
		free(s->covered);
	}
	free(s);
	return ret;
}

void pt_ajob_end(struct pt_ajobs *j, struct pt_ajob *a, double now)
{
	if (a->ended)
		return;
	close(a->pidfd);
	a->pidfd = -1;
	a->ended = now;
	j->n_live--;
	if (j->on_end)
		j->on_end(j->ctx, a);
}

bool pt_ajobs_expire(struct pt_ajobs *j, double before,
		     bool (*busy)(void *, const struct pt_ajob *), void *ctx)
{
	struct pt_ajob **at = &j->first, *a;
	bool some = false;

	while ((a = *at)) {
		if (!a->ended || a->ended > before || busy(ctx, a)) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		free_one(a);
		j->n--;
		some = true;
	}
	return some;
}

void pt_ajobs_recheck(struct pt_ajobs *j, const struct pt_config *c, double now)
{
	struct pt_ajob *a;

	for (a = j->first; a; a = a->next)
		if (!a->ended && decide(c, a->trainer, a->comm) ==
				 PT_RULE_EXCLUDED)
			pt_ajob_end(j, a, now);
	/* new rules may name processes that were there before */
	pt_seen_free(&j->seen);
	j->scanned = 0;
}
