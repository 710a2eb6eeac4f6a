/* SPDX-License-Identifier: BSD-2-Clause */
/* A verdict says in which line what it speaks of happens, where looks tell it. */
#include <math.h>
#include <string.h>

#include "analysis/lines/lines.h"

/* Of what the verdict speaks of, at least: so much in that line, and, by the interval, not
 * much less. */
#define SHARE_MIN 0.2
#define LOW_MIN 0.1
#define LOOKS_MIN 10

static bool is_asked(const struct pt_line_ask *ask, const struct pt_r_line *l, int64_t pid)
{
	if (!(ask->causes & 1u << l->cause))
		return false;
	switch (ask->of) {
	case PT_LINES_WORKERS:
		return !strcmp(l->who, "worker") && l->pid == PT_NULL;
	case PT_LINES_SUBJECT:
		return !strcmp(l->who, "worker") && l->pid == pid;
	case PT_LINES_LOADING:
		return l->data_wait == 1;
	case PT_LINES_LOOP:
		return l->data_wait == 0;
	default:
		return false;
	}
}

static bool same(const struct pt_r_line *a, const struct pt_r_line *b)
{
	return a->line == b->line && !strcmp(a->file, b->file) &&
	       !strcmp(a->function, b->function);
}

bool pt_top_line(const struct pt_an *an, const struct pt_line_ask *ask, int64_t pid,
		 struct pt_r_line *out)
{
	const struct pt_report *r = an->r;
	double all = 0, seconds, low;
	size_t i, k;

	*out = (struct pt_r_line){ .seconds = 0 };
	for (i = 0; i < r->n_lines; i++) {
		const struct pt_r_line *l = &r->lines[i];

		if (!is_asked(ask, l, pid))
			continue;
		all += l->seconds;
		seconds = low = 0;
		for (k = 0; k < r->n_lines; k++)
			if (is_asked(ask, &r->lines[k], pid) && same(l, &r->lines[k])) {
				seconds += r->lines[k].seconds;
				low += r->lines[k].low;
			}
		if (seconds <= out->seconds)
			continue;
		*out = *l;
		out->seconds = seconds;
		out->low = low;
	}
	out->share = all > 0 ? fmin(1, out->seconds / all) : 0;
	return out->share >= SHARE_MIN && out->low >= LOW_MIN * all &&
	       (out->looks == PT_NULL || out->looks >= LOOKS_MIN);
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

const char *pt_line_place(struct pt_an *an, const struct pt_r_line *l)
{
	return l->line == PT_NULL ?
		       pt_sentence(an, "%s (%s)", l->function, base_of(l->file)) :
		       pt_sentence(an, "%s (%s:%lld)", l->function, base_of(l->file),
				   (long long)l->line);
}

void pt_name_line(struct pt_an *an, const struct pt_line_ask *ask, struct pt_r_verdict *v)
{
	struct pt_r_line l;
	size_t n = strlen(v->title);

	if (!ask->what || !pt_top_line(an, ask, v->subject_pid, &l))
		return;
	n -= n && v->title[n - 1] == '.';
	v->title = pt_sentence(an, "%.*s; %.0f %% of %s is in %s.", (int)n, v->title,
			       100 * l.share, ask->what, pt_line_place(an, &l));
	pt_evidence_add(v, "lines.share", l.share, "share", NAN, PT_ESTIMATED);
	if (v->subject_file)
		return; /* of the data */
	v->subject_file = l.file;
	v->subject_line = l.line;
}
