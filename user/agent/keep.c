// SPDX-License-Identifier: BSD-2-Clause
/* What is kept of a sample in which something was wrong, and who is told. */
#include "agent/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/str.h"
#include "report/json.h"

#define PAGE_S 60.0 /* that the page of one sample may take */
#define FREE_MIN (64 * 1048576ull)

static const char *folder(const struct pt_agent *a, char *buf, size_t cap)
{
	if (*a->c.evidence_dir)
		return a->c.evidence_dir;
	snprintf(buf, cap, "%.500s/evidence", a->c.state);
	return buf;
}

int pt_agent_keep_open(struct pt_agent *a, struct pt_err *err)
{
	char buf[PT_CONFIG_TEXT + 16];
	const char *path = folder(a, buf, sizeof(buf));
	struct pt_evidence e;
	int ret;

	if (!a->c.evidence || (a->keeps && strcmp(a->kept.path, path))) {
		if (a->keeps)
			pt_evidence_close(&a->kept);
		a->keeps = false;
		a->n_pages = 0;
	}
	if (!a->c.evidence || a->keeps)
		return 0;
	if (!*a->c.evidence_dir && mkdir(a->c.state, 0700) && errno != EEXIST)
		return pt_err_set(err, -errno, "cannot make the folder %s: %s",
				  a->c.state, strerror(errno));
	ret = pt_evidence_open(&e, path, err);
	if (ret)
		return ret;
	a->kept = e;
	a->keeps = true;
	return 0;
}

/* Is there room for a recording? A disk that is full costs the evidence, not the
 * sample. */
static bool has_room(struct pt_agent *a)
{
	struct statvfs st;
	bool full = fstatvfs(a->kept.dir, &st) ||
		    (uint64_t)st.f_bavail * st.f_frsize <
			    FREE_MIN + a->c.sample_size;

	if (full && !a->disk_is_full)
		pt_say(PT_SAY_WARNING, "the disk of %s is nearly full: samples are "
		       "not kept until there is room", a->kept.path);
	else if (!full && a->disk_is_full)
		pt_say(PT_SAY_INFO, "samples are kept again");
	a->disk_is_full = full;
	return !full;
}

void pt_agent_keep_path(struct pt_agent *a, struct pt_slot *s)
{
	s->recording[0] = '\0';
	if (a->keeps && has_room(a))
		snprintf(s->recording, sizeof(s->recording), "%.4000s/.sample-%d",
			 a->kept.path, (int)(s - a->slot));
}

static void want_page(struct pt_agent *a, const char *id)
{
	if (a->n_pages == PT_PAGES) /* the oldest one goes without */
		memmove(a->pages, a->pages + 1, --a->n_pages * sizeof(*a->pages));
	snprintf(a->pages[a->n_pages++], sizeof(*a->pages), "%s", id);
}

int pt_agent_keep_sample(struct pt_agent *a, struct pt_ajob *j, const struct pt_sample *s,
			 const char *what, const char *text, size_t len,
			 const char *recording, char id[PT_EVIDENCE_ID])
{
	struct pt_kept k = { .unix_s = (uint64_t)pt_agent_realtime() };
	size_t i;
	int ret;

	for (i = 0; i < s->n_verdicts; i++) {
		if (s->verdict[i].severity < PT_WARNING)
			continue;
		k.verdict[k.n_verdicts].severity = s->verdict[i].severity;
		snprintf(k.verdict[k.n_verdicts++].id, sizeof(k.verdict->id), "%s",
			 s->verdict[i].id);
	}
	snprintf(k.watch, sizeof(k.watch), "%s", what);
	pt_evidence_id(k.id, k.unix_s, j->id);
	snprintf(k.job, sizeof(k.job), "%s", j->id);
	pt_str_term(k.comm, sizeof(k.comm), j->comm, 0, 0);
	ret = pt_evidence_keep(&a->kept, &k, text, len, recording);
	if (ret)
		return ret;
	snprintf(id, PT_EVIDENCE_ID, "%s", k.id);
	if (recording)
		want_page(a, k.id);
	pt_evidence_bound(&a->kept, a->c.evidence_size, a->c.evidence_age_s,
			  k.unix_s);
	pt_evidence_save(&a->kept);
	return 0;
}

static bool is_wrong(const struct pt_sample *s)
{
	size_t i;

	for (i = 0; i < s->n_verdicts; i++)
		if (s->verdict[i].severity >= PT_WARNING)
			return true;
	return false;
}

void pt_agent_keep(struct pt_agent *a, struct pt_ajob *j, const char *text,
		   size_t len, const char *recording, char id[PT_EVIDENCE_ID])
{
	int ret;

	id[0] = '\0';
	if (!is_wrong(&j->tally.last) || a->disk_is_full)
		return;
	ret = pt_agent_keep_sample(a, j, &j->tally.last, "", text, len, recording, id);
	if (ret)
		pt_say(PT_SAY_WARNING, "a sample of job %s is not kept: %s", j->id,
		       strerror(-ret));
}

static void start_page(struct pt_agent *a)
{
	char from[PATH_MAX + 64], to[PATH_MAX + 64];
	char *argv[] = { (char *)"pipetrace", (char *)"export", (char *)"--html", to,
			 from, NULL };
	struct pt_child_limits l = {
		.memory = a->c.memory + (256ull << 20),
		.file_size = a->c.sample_size + (32ull << 20),
		.soft_s = PAGE_S, .hard_s = PAGE_S + 5,
	};
	struct pt_err err = { "" };

	memcpy(a->page_id, a->pages[0], sizeof(a->page_id));
	memmove(a->pages, a->pages + 1, --a->n_pages * sizeof(*a->pages));
	pt_evidence_path(&a->kept, a->page_id, PT_KEPT_PTRACE, from, sizeof(from));
	pt_evidence_path(&a->kept, a->page_id, PT_KEPT_HTML, to, sizeof(to));
	if (pt_child_start(&a->page, argv, &l, &err))
		pt_say(PT_SAY_WARNING, "evidence %s has no page: %s", a->page_id,
		       err.msg);
}

void pt_agent_keep_pages(struct pt_agent *a)
{
	struct pt_child_result r;

	if (pt_child_done(&a->page)) {
		pt_child_finish(&a->page, &r);
		if (r.status && !a->stopping)
			pt_say(PT_SAY_WARNING, "evidence %s has no page: %s",
			       a->page_id, *r.last ? r.last : "it was ended");
		pt_child_result_free(&r);
		if (a->keeps) {
			pt_evidence_page_made(&a->kept, a->page_id);
			pt_evidence_bound(&a->kept, a->c.evidence_size,
					  a->c.evidence_age_s,
					  (uint64_t)pt_agent_realtime());
			pt_evidence_save(&a->kept);
		}
		a->changed = true;
	}
	if (!a->page.pid && a->n_pages && a->keeps && !a->stopping)
		start_page(a);
}

static const struct pt_sample_verdict *find(const struct pt_sample *s,
					    const char *id)
{
	size_t i;

	for (i = 0; s && i < s->n_verdicts; i++)
		if (!strcmp(s->verdict[i].id, id))
			return &s->verdict[i];
	return NULL;
}

/* The report's own words on a verdict. */
static void tell(struct pt_agent *a, const struct pt_ajob *j,
		 const struct pt_sample_verdict *v, const struct pt_report *r,
		 bool ended, const char *kept)
{
	struct pt_prom_job job;
	struct pt_otlp_change c = {
		.job = &job, .id = v->id, .ended = ended,
		.severity = pt_severity_name(v->severity), .title = "",
		.advice = "", .kept = kept,
		.unix_ns = (uint64_t)(pt_agent_realtime() * 1e9),
	};
	char *evidence = NULL;
	size_t i;

	pt_agent_prom_job(a, j, &job);
	for (i = 0; !ended && i < r->n_verdicts && !evidence; i++) {
		const struct pt_r_verdict *one = &r->verdicts[i];

		if (strcmp(one->id, v->id))
			continue;
		c.title = one->title;
		c.advice = one->advice ? one->advice : "";
		c.subject = one->subject_file;
		c.evidence = evidence = pt_report_evidence_json(one);
	}
	if (pt_otlp_change(a->otlp, &c))
		pt_say(PT_SAY_WARNING, "a change of %s is not sent: no memory",
		       v->id);
	free(evidence);
}

void pt_agent_changes(struct pt_agent *a, struct pt_ajob *j,
		      const struct pt_sample *was, const struct pt_report *r,
		      const char *kept)
{
	const struct pt_sample *is = r ? &j->tally.last : NULL;
	const struct pt_sample_verdict *old;
	size_t i;

	if (!a->otlp)
		return;
	for (i = 0; is && i < is->n_verdicts; i++) {
		old = find(was, is->verdict[i].id);
		if (!old || old->severity != is->verdict[i].severity)
			tell(a, j, &is->verdict[i], r, false, kept);
	}
	for (i = 0; was && i < was->n_verdicts; i++)
		if (!find(is, was->verdict[i].id))
			tell(a, j, &was->verdict[i], r, true, NULL);
}
