// SPDX-License-Identifier: BSD-2-Clause
/*
 * Jobs that are watched all the time ([watch] when = ...): for each a `pipetrace watch` of
 * our own program, which saves windows into a folder beside the evidence. A window that is
 * there becomes evidence, so that the same bounds hold for it and the same pages show it.
 */
#include "agent/agent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/str.h"
#include "base/vec.h"
#include "base/when.h"
#include "report/readjson.h"

#define MIB (1024 * 1024ull)
#define RETRY_S 600.0 /* after a watch that failed */
#define STAGED "8"    /* windows that may wait to be taken */
/* Beside the records: what is looked at, a window that is written, libraries, stacks. */
#define ADDRESS_SPACE (768 * MIB)
#define REPORT_MAX (32 * MIB)
#define ARGS_MAX (20 + 2 * PT_WHEN_MAX)

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	if (remove(path)) /* its folder stays, too; the next agent tries again */
		errno = 0;
	return 0;
}

static void remove_tree(const char *path)
{
	nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void stage_of(const struct pt_agent *a, size_t slot, char *out, size_t cap)
{
	snprintf(out, cap, "%.4000s/.watch-%zu", a->kept.path, slot);
}

void pt_agent_watch_sweep(const struct pt_agent *a)
{
	char path[PATH_MAX];
	size_t i;

	for (i = 0; a->keeps && i < PT_WATCHES; i++) {
		stage_of(a, i, path, sizeof(path));
		remove_tree(path);
	}
}

/* ---- a window becomes evidence --------------------------------------------------- */

static char *read_report(const char *path, size_t *len)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char *text = NULL;
	struct stat st;
	ssize_t n = -1;

	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size <= REPORT_MAX)
		text = malloc((size_t)st.st_size + 1);
	if (text)
		n = read(fd, text, (size_t)st.st_size);
	if (fd >= 0)
		close(fd);
	if (n < 0) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	*len = (size_t)n;
	return text;
}

/* What stepped out, as the watch has put it. */
static const char *words_of(const struct pt_report *r)
{
	pt_each_of(const struct pt_r_label, l, r->labels, r->n_labels)
		if (!strcmp(l->key, "watch"))
			return l->value;
	return "";
}

static int keep_window(struct pt_agent *a, struct pt_ajob *j, const char *folder)
{
	struct pt_sample *s = malloc(sizeof(*s));
	struct pt_report *r = pt_report_new();
	char path[PATH_MAX], id[PT_EVIDENCE_ID], words[160];
	struct pt_read_error bad = { "" };
	const char *why;
	char *text = NULL;
	size_t len = 0;
	int ret = s && r ? 0 : -ENOMEM;

	snprintf(path, sizeof(path), "%.4060s/report.json", folder);
	if (!ret)
		text = read_report(path, &len);
	ret = ret ?: text ? pt_report_read_json(text, len, r, &bad) : -EIO;
	ret = ret ?: pt_sample_of(r, s, &why);
	snprintf(path, sizeof(path), "%.4060s/window.ptrace", folder);
	if (!ret) {
		pt_str_term(words, sizeof(words), words_of(r), 0, 0);
		ret = pt_agent_keep_sample(a, j, s, words, text, len, path, id);
	}
	if (!ret) {
		j->tally.windows++;
		pt_say(PT_SAY_WARNING, "job %s (%s): %s: kept as %s", j->id, j->comm,
		       words, id);
		a->changed = true;
	}
	free(text);
	pt_report_free(r);
	free(s);
	return ret;
}

/* Those that are there. A folder appears as a whole. */
static void take_windows(struct pt_agent *a, struct pt_awatch *w)
{
	DIR *d = a->keeps ? opendir(w->stage) : NULL;
	char path[PATH_MAX];
	struct dirent *de;
	int ret;

	while (d && (de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%.3900s/%.64s", w->stage, de->d_name);
		ret = keep_window(a, w->job, path);
		if (ret == -EEXIST) /* there is one of this very second */
			continue;
		if (ret)
			pt_say(PT_SAY_WARNING, "a window of job %s is not kept: %s",
			       w->job->id, strerror(-ret));
		remove_tree(path);
	}
	if (d)
		closedir(d);
}

/* ---- the processes --------------------------------------------------------------- */

/* Its conditions as arguments; they were checked when the configuration was read. */
static size_t conditions(const struct pt_config *c, char *buf, char **argv, size_t n)
{
	char *save, *one;

	strcpy(buf, c->watch);
	for (one = strtok_r(buf, ",", &save); one; one = strtok_r(NULL, ",", &save)) {
		argv[n++] = (char *)"--when";
		argv[n++] = one;
	}
	return n;
}

static void start(struct pt_agent *a, struct pt_awatch *w, struct pt_ajob *j, double now)
{
	char pid[16], keep[24], cool[24], memory[24], bytes[24], when[PT_CONFIG_TEXT];
	char *argv[ARGS_MAX] = { (char *)"pipetrace", (char *)"watch", (char *)"-q",
				 (char *)"-p", pid, (char *)"-o", w->stage,
				 (char *)"--keep", keep, (char *)"--cooldown", cool,
				 (char *)"--memory", memory, (char *)"--max-bytes", bytes,
				 (char *)"--max-windows", (char *)STAGED };
	const struct pt_child_limits l = {
		.memory = 2 * a->c.watch_memory + ADDRESS_SPACE,
		.file_size = 2 * a->c.watch_memory + 32 * MIB,
		.soft_s = INFINITY, .hard_s = INFINITY,
	};
	struct pt_err err = { "" };
	size_t n = conditions(&a->c, when, argv, 17);

	snprintf(pid, sizeof(pid), "%d", j->root);
	snprintf(keep, sizeof(keep), "%.0fms", 1e3 * a->c.watch_keep_s);
	snprintf(cool, sizeof(cool), "%.0fms", 1e3 * a->c.watch_cooldown_s);
	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)a->c.watch_memory);
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)a->c.evidence_size);
	if (!a->c.adopt)
		argv[n++] = (char *)"--no-adopt";
	argv[n] = NULL;
	j->watch_due = now + RETRY_S;
	stage_of(a, (size_t)(w - a->watch), w->stage, sizeof(w->stage));
	if (pt_child_start(&w->child, argv, &l, &err)) {
		pt_say(PT_SAY_WARNING, "job %s is not watched: %s", j->id, err.msg);
		return;
	}
	w->job = j;
	j->tally.watched = true;
}

static void finish(struct pt_agent *a, struct pt_awatch *w)
{
	struct pt_ajob *j = w->job;
	struct pt_child_result r;

	take_windows(a, w);
	pt_child_finish(&w->child, &r);
	a->watched_cpu += r.cpu_s;
	if (!j->ended && !a->stopping && !w->child.asked &&
	    (!WIFEXITED(r.status) || WEXITSTATUS(r.status)))
		pt_say(PT_SAY_WARNING, "the watch of job %s (process %d) ended: %s", j->id,
		       j->root, *r.last ? r.last : "it does not say why");
	if (w->child.asked) /* another configuration: anew at once */
		j->watch_due = 0;
	pt_child_result_free(&r);
	remove_tree(w->stage);
	w->job = NULL;
	a->changed = true;
}

static bool is_watched(const struct pt_agent *a, const struct pt_ajob *j)
{
	size_t i;

	for (i = 0; i < PT_WATCHES; i++)
		if (a->watch[i].job == j)
			return true;
	return false;
}

bool pt_agent_is_busy(void *agent, const struct pt_ajob *j)
{
	return is_watched(agent, j) || pt_agent_is_sampled(agent, j);
}

unsigned pt_agent_watches(const struct pt_agent *a)
{
	unsigned n = 0;
	size_t i;

	for (i = 0; i < PT_WATCHES; i++)
		n += a->watch[i].job != NULL;
	return n;
}

double pt_agent_watch_cpu(const struct pt_agent *a)
{
	double sum = a->watched_cpu;
	struct timespec t;
	clockid_t clock;
	size_t i;

	for (i = 0; i < PT_WATCHES; i++)
		if (a->watch[i].job && !clock_getcpuclockid(a->watch[i].child.pid, &clock) &&
		    !clock_gettime(clock, &t))
			sum += (double)t.tv_sec + (double)t.tv_nsec / 1e9;
	return sum;
}

/* The jobs that were sampled first come first. */
static void start_all(struct pt_agent *a, double now)
{
	struct pt_ajob *j;
	size_t i;

	if (!*a->c.watch || !a->keeps || a->disk_is_full || a->stopping)
		return;
	for (j = a->jobs.first; j; j = j->next) {
		if (j->ended || !j->tally.has_last || now < j->watch_due || is_watched(a, j))
			continue;
		for (i = 0; i < a->c.watch_jobs && a->watch[i].job; i++)
			;
		if (i == a->c.watch_jobs)
			return;
		start(a, &a->watch[i], j, now);
	}
}

void pt_agent_watch_end(struct pt_agent *a, double now)
{
	size_t i;

	for (i = 0; i < PT_WATCHES; i++)
		if (a->watch[i].job)
			pt_child_ask(&a->watch[i].child, now);
}

void pt_agent_watch_kill(struct pt_agent *a)
{
	size_t i;

	for (i = 0; i < PT_WATCHES; i++) {
		if (!a->watch[i].job)
			continue;
		take_windows(a, &a->watch[i]);
		pt_child_kill(&a->watch[i].child);
		remove_tree(a->watch[i].stage);
		a->watch[i].job = NULL;
	}
}

double pt_agent_watch(struct pt_agent *a)
{
	double now = pt_now(), next = INFINITY;
	char said[200];
	size_t i;

	for (i = 0; i < PT_WATCHES; i++) {
		struct pt_awatch *w = &a->watch[i];

		if (!w->job)
			continue;
		if (pt_child_says(&w->child, said, sizeof(said)))
			pt_say(PT_SAY_WARNING, "watch of job %s: %s", w->job->id, said);
		if (w->job->ended)
			pt_child_ask(&w->child, now);
		if (pt_child_done(&w->child)) {
			finish(a, w);
			continue;
		}
		take_windows(a, w);
		next = fmin(next, pt_child_tick(&w->child, now));
	}
	start_all(a, now);
	return next;
}
