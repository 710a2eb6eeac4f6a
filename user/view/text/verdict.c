/* SPDX-License-Identifier: BSD-2-Clause */
/* The head of the text report: verdicts, root causes first, consequences
 * beneath them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/verdicts.h"
#include "view/text/blocks.h"

#define DEPTH_MAX 4

/* What it is called; a name that no verdict of this version has reads as it is written. */
static const char *metric(struct pt_tx *t, const struct pt_r_evidence *e)
{
	const char *words = pt_evidence_words(e->metric);

	return pt_tx_esc(t, words ? words : e->metric ? e->metric : "?", 48);
}

/* A factor: 1.8x, but 1.04x. */
static const char *times(struct pt_tx *t, double v)
{
	if (!isfinite(v))
		return pt_tx_dash(t);
	return pt_tx_fmt(t, fabs(v) < 1.095 || fabs(v) > 999 ? "%.3gx" : "%.1fx", v);
}

static const char *amount(struct pt_tx *t, double v, const char *unit)
{
	char text[96];

	if (!unit || !*unit || !strcmp(unit, "count"))
		return pt_tx_num(t, v);
	if (!strcmp(unit, "share"))
		return pt_tx_pct(t, v);
	if (!strcmp(unit, "s"))
		return pt_tx_sec(t, v);
	if (!strcmp(unit, "ms"))
		return pt_tx_sec(t, v / 1e3);
	if (!strcmp(unit, "us"))
		return pt_tx_sec(t, v / 1e6);
	if (!strcmp(unit, "ns"))
		return pt_tx_sec(t, v / 1e9);
	if (!strcmp(unit, "bytes"))
		return pt_tx_bytes(t, v);
	if (!strcmp(unit, "bytes/s"))
		return pt_tx_fmt(t, "%s/s", pt_tx_bytes(t, v));
	if (!strcmp(unit, "per_second"))
		return pt_tx_fmt(t, "%s/s", pt_tx_num(t, v));
	if (!strcmp(unit, "ratio") || !strcmp(unit, "x"))
		return times(t, v);
	snprintf(text, sizeof(text), "%s %s", pt_tx_num(t, v), unit);
	return pt_tx_esc(t, text, 0);
}

/* What says nothing to who only wants the reasons: a figure that is unknown, or
 * 0 where a threshold is to be reached, and the probability that a test of
 * chance gave. */
static bool is_detail(const struct pt_r_evidence *e)
{
	return !isfinite(e->value) ||
	       (e->value == 0 && isfinite(e->threshold)) ||
	       (e->metric && strstr(e->metric, "chance"));
}

static void evidence(struct pt_tx *t, const struct pt_r_verdict *v, int indent)
{
	struct pt_line l = { .n = 0 };

	for (size_t i = 0; i < v->n_evidence; i++) {
		const struct pt_r_evidence *e = &v->evidence[i];

		if (is_detail(e) && !t->o.verbose)
			continue;
		pt_line_item(t, &l, "%s" NB "%s%s", metric(t, e),
			     e->certainty == PT_ESTIMATED ? "~" : "",
			     amount(t, e->value, e->unit));
		if (e->certainty == PT_BOUNDED)
			pt_line_add(&l, " (bounded%s", isfinite(e->threshold) ?
				    ", " : ")");
		if (isfinite(e->threshold))
			pt_line_add(&l, "%sthreshold" NB "%s)",
				    e->certainty == PT_BOUNDED ? "" : " (",
				    amount(t, e->threshold, e->unit));
	}
	if (!l.n)
		return;
	pt_tx_printf(t, "%*s", indent, "");
	pt_tx_wrap(t, indent, l.s);
}

#define FIELD 15 /* columns of "Expected gain" and what parts it from its text */

static void field(struct pt_tx *t, int indent, const char *name,
		  const char *text)
{
	pt_tx_printf(t, "%*s", indent, "");
	pt_tx_styled(t, PT_ST_DIM, name);
	pt_tx_printf(t, "%*s", FIELD - (int)strlen(name), "");
	pt_tx_wrap(t, indent + FIELD, text);
}

static void subject(struct pt_tx *t, const struct pt_report *r,
		    const struct pt_r_verdict *v, int indent, bool child)
{
	size_t room = (size_t)(t->width - indent - FIELD);
	struct pt_line l = { .n = 0 };

	/* that the trainer bears the consequences goes without saying */
	if (v->subject_pid != PT_NULL &&
	    !(child && v->subject_pid == r->target.pid))
		pt_line_item(t, &l, "%s",
			     pt_tx_who(t, r, v->subject_pid, PT_NULL));
	if (v->subject_rank != PT_NULL)
		pt_line_item(t, &l, "rank" NB "%s",
			     pt_tx_id(t, v->subject_rank));
	if (v->subject_file) {
		pt_line_item(t, &l, "%s",
			     pt_tx_path(t, v->subject_file, room - 8));
		if (v->subject_line != PT_NULL)
			pt_line_add(&l, ":%s", pt_tx_id(t, v->subject_line));
	}
	if (v->subject_peer)
		pt_line_item(t, &l, "%s",
			     pt_tx_path(t, v->subject_peer, room - 8));
	if (l.n)
		field(t, indent, "Subject", l.s);
}

#define FRAMES 12

/* Where it hangs, the innermost function first. */
static void stack(struct pt_tx *t, const struct pt_r_verdict *v, int indent)
{
	size_t room = (size_t)(t->width - indent - FIELD - 8), i, n;

	for (i = 0; i < v->n_stack && i < FRAMES; i++) {
		const struct pt_r_frame *f = &v->stack[i];
		const char *name = pt_tx_path(t, f->function, room / 2);
		struct pt_line l = { .n = 0 };

		n = strlen(name);
		pt_line_add(&l, "%s %s", name, pt_tx_path(t, f->file, n + 20 < room ? room - n : 20));
		if (f->line != PT_NULL)
			pt_line_add(&l, ":%s", pt_tx_id(t, f->line));
		field(t, indent, i ? "" : "Stack", l.s);
	}
	if (i < v->n_stack)
		field(t, indent, "", pt_tx_fmt(t, "and %zu outer functions",
					       v->n_stack - i));
}

#define GAIN_LEAST 1.005 /* less is none */

void pt_tx_gain(struct pt_tx *t, struct pt_line *l, const struct pt_r_verdict *v)
{
	const struct pt_range *s = &v->expected_speedup;

	if (!isfinite(s->value) && isfinite(s->high)) {
		pt_line_add(l, "up to %s faster if the cause is removed entirely",
			    times(t, s->high));
	} else if (!isfinite(s->value)) {
		if (v->advice && v->severity != PT_INFO)
			pt_line_add(l, "cannot tell from this trace");
	} else {
		if (s->value < GAIN_LEAST)
			pt_line_add(l, "none");
		else
			pt_line_add(l, "%s faster", times(t, s->value));
		if (isfinite(s->low) && isfinite(s->high))
			pt_line_add(l, " (%s%s%s)", times(t, s->low),
				    pt_tx_dash(t), times(t, s->high));
	}
}

static enum pt_tx_style style_of(const struct pt_r_verdict *v)
{
	if (v->severity == PT_CRITICAL)
		return PT_ST_RED;
	if (v->severity == PT_WARNING)
		return PT_ST_YELLOW;
	if (pt_verdict_is(v->id, PT_VERDICT_WELL))
		return PT_ST_GREEN;
	return PT_ST_CYAN;
}

static void verdict(struct pt_tx *t, const struct pt_report *r,
		    const struct pt_r_verdict *v, int depth)
{
	const char *sure = pt_confidence_name(v->certainty), *word = pt_tx_severity(v->severity);
	int indent = PT_TX_LABEL + 2 * depth;
	struct pt_line l = { .n = 0 };

	if (!depth) {
		pt_tx_styled(t, style_of(v), word);
		pt_tx_printf(t, "%*s", PT_TX_LABEL - (int)strlen(word), "");
	} else {
		pt_tx_printf(t, "%*s%s ", indent - 2, "",
			     t->o.unicode ? "\xe2\x94\x94" : "`");
		pt_tx_styled(t, style_of(v), word);
		pt_tx_put(t, "  ");
		indent += (int)strlen(word) + 2;
	}
	pt_line_add(&l, "%s [%s", pt_tx_esc(t, v->title, 0),
		    pt_tx_esc(t, v->id, 40));
	if (sure)
		pt_line_add(&l, "," NB "%s" NB "confidence", sure);
	pt_line_add(&l, "]");
	pt_tx_wrap(t, indent, l.s);
	/* a consequence goes when its cause goes: its sentence will do */
	if (t->o.quiet || (depth && !t->o.verbose))
		return;
	evidence(t, v, indent);
	subject(t, r, v, indent, depth > 0);
	if (t->o.verbose)
		stack(t, v, indent);
	if (v->advice)
		field(t, indent, "Fix", pt_tx_esc(t, v->advice, 0));
	l.n = 0;
	pt_tx_gain(t, &l, v);
	if (l.n)
		field(t, indent, "Expected gain", l.s);
}

bool pt_tx_is_root(const struct pt_report *r, size_t i)
{
	const char *of = r->verdicts[i].consequence_of;

	if (!of)
		return true;
	for (size_t k = 0; k < r->n_verdicts; k++)
		if (k != i && r->verdicts[k].id &&
		    !strcmp(r->verdicts[k].id, of))
			return false;
	return true; /* its cause is not here: show it all the same */
}

static void tree(struct pt_tx *t, const struct pt_report *r, bool *shown,
		 size_t i, int depth)
{
	const struct pt_r_verdict *v = &r->verdicts[i];

	shown[i] = true;
	verdict(t, r, v, depth);
	if (!v->id || depth >= DEPTH_MAX)
		return;
	for (size_t k = 0; k < r->n_verdicts; k++) {
		const char *of = r->verdicts[k].consequence_of;

		if (!shown[k] && of && !strcmp(of, v->id))
			tree(t, r, shown, k, depth + 1);
	}
}

void pt_tx_verdicts(struct pt_tx *t, const struct pt_report *r)
{
	bool *shown;

	if (!r->n_verdicts) {
		pt_tx_label(t, "UNKNOWN");
		pt_tx_wrap(t, PT_TX_LABEL,
			   "No diagnosis: nothing was concluded from what was seen.");
		return;
	}
	shown = calloc(r->n_verdicts, sizeof(*shown));
	for (size_t i = 0; i < r->n_verdicts; i++)
		if (!shown || (!shown[i] && pt_tx_is_root(r, i))) {
			if (shown)
				tree(t, r, shown, i, 0);
			else /* no memory for the order: a flat list */
				verdict(t, r, &r->verdicts[i], 0);
		}
	/* two that name each other, or nested too deep */
	for (size_t i = 0; shown && i < r->n_verdicts; i++)
		if (!shown[i])
			tree(t, r, shown, i, 0);
	free(shown);
}
