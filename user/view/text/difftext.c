/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/text/text.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "report/diff.h"
#include "view/text/blocks.h"

#define NAME_COLS 24
#define VALUE_COLS 11
#define SHOWN_MS 0.05 /* a part that rounds to nothing is left out */
#define NAME_MAX_COLS 60

static const char *letter(size_t input)
{
	static const char names[PT_D_INPUTS_MAX][2] = {
		"A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K", "L", "M",
		"N", "O", "P", "Q", "R", "S", "T", "U", "V", "W", "X", "Y", "Z",
	};

	return input < PT_D_INPUTS_MAX ? names[input] : "?";
}

static const char *unit(const struct pt_diff *d)
{
	return d->by == PT_D_BY_SAMPLES ? "samples/s" : "steps/s";
}

/* ---- the answer ----------------------------------------------------------- */

static const char *interval(struct pt_tx *t, const struct pt_diff *d,
			    const struct pt_range *r)
{
	return pt_tx_fmt(t, "(%.0f" NB "%% interval %.3f to %.3f)", 100 * d->level, r->low, r->high);
}

static void answer(struct pt_tx *t, const struct pt_diff *d,
		   const struct pt_d_pair *p)
{
	const char *a = letter(p->base), *b = letter(p->other);
	const struct pt_range *s = &p->speedup;
	struct pt_line l = { .n = 0 };

	if (!isfinite(s->value))
		pt_line_add(&l, "The throughput of %s against %s is unknown.",
			    b, a);
	else if (p->untested)
		pt_line_add(&l, "%s has %.3f times the %s of %s. Whether that "
			    "is more than noise cannot be told: %s.", b,
			    s->value, unit(d), a, pt_tx_esc(t, p->untested, 0));
	else if (p->result == PT_D_NO_DIFFERENCE && p->significant)
		pt_line_add(&l, "%s and %s differ by less than %g" NB "%%: %s "
			    "has %.3f times the %s of %s %s.", a, b,
			    100 * d->small, b, s->value, unit(d), a,
			    interval(t, d, s));
	else if (p->result == PT_D_NO_DIFFERENCE)
		pt_line_add(&l, "No difference beyond noise: %s has %.3f times "
			    "the %s of %s %s.", b, s->value, unit(d), a,
			    interval(t, d, s));
	else
		pt_line_add(&l, "%s is %s: %.3f times the %s of %s %s, more "
			    "than noise.", b,
			    p->result == PT_D_FASTER ? "faster" : "slower",
			    s->value, unit(d), a, interval(t, d, s));
	pt_tx_wrap(t, PT_TX_LABEL, l.s);
}

static void answers(struct pt_tx *t, const struct pt_diff *d)
{
	for (size_t i = 0; i < d->n_pairs; i++) {
		pt_tx_label(t, i ? NULL : "Result");
		answer(t, d, &d->pairs[i]);
	}
}

static void legend(struct pt_tx *t, const struct pt_diff *d)
{
	for (size_t i = 0; i < d->n_inputs; i++) {
		const struct pt_d_input *in = &d->inputs[i];
		struct pt_line l = { .n = 0 };

		pt_line_add(&l, "%s", pt_tx_esc(t, in->name, NAME_MAX_COLS));
		if (strcmp(in->name, in->path))
			pt_line_item(t, &l, "%s",
				     pt_tx_path(t, in->path, NAME_MAX_COLS));
		pt_line_item(t, &l, "%s steps in %s",
			     pt_tx_int(t, in->r->steps.count),
			     pt_tx_sec(t, in->r->capture.duration));
		pt_tx_line(t, letter(i), &l);
	}
}

/* ---- two side by side ----------------------------------------------------- */

static void row(struct pt_tx *t, int indent, const char *name, const char *a,
		const char *b, const char *change)
{
	pt_tx_printf(t, "%*s", indent, "");
	pt_tx_cell(t, name, NAME_COLS - indent, false);
	pt_tx_cell(t, a, VALUE_COLS, true);
	pt_tx_cell(t, b, VALUE_COLS, true);
	pt_tx_printf(t, "%s%s\n", *change ? "   " : "", change);
}

/* "+12.3", always with its sign */
static const char *signed_ms(struct pt_tx *t, double ms)
{
	return isfinite(ms) ? pt_tx_fmt(t, "%+.*f", fabs(ms) < 9.995 ? 2 : 1, ms) : pt_tx_dash(t);
}

static const char *signed_pct(struct pt_tx *t, double v, const char *what)
{
	return isfinite(v) ? pt_tx_fmt(t, "%+.1f" NB "%s", 100 * v, what) : pt_tx_dash(t);
}

static void rate_row(struct pt_tx *t, const char *name, double a, double b)
{
	if (isfinite(a) || isfinite(b))
		row(t, 0, name, pt_tx_num(t, a), pt_tx_num(t, b),
		    signed_pct(t, b / a - 1, "%"));
}

static void ms_row(struct pt_tx *t, int indent, const char *name, double a,
		   double b)
{
	if (fabs(a) < SHOWN_MS && fabs(b) < SHOWN_MS)
		return;
	row(t, indent, name, pt_tx_ms(t, a), pt_tx_ms(t, b),
	    signed_ms(t, b - a));
}

static const char *part_words(enum pt_d_part p)
{
	switch (p) {
	case PT_D_DATA_WAIT:
		return "data wait";
	case PT_D_GPU_WAIT:
		return "GPU wait";
	default:
		return pt_d_part_name(p);
	}
}

static void step_rows(struct pt_tx *t, const struct pt_d_input *a,
		      const struct pt_d_input *b)
{
	row(t, 0, "ms per step", pt_tx_ms(t, a->step_ms),
	    pt_tx_ms(t, b->step_ms), signed_ms(t, b->step_ms - a->step_ms));
	for (int p = 0; p < PT_D_PART_NR; p++) {
		ms_row(t, 2, part_words((enum pt_d_part)p), a->part_ms[p],
		       b->part_ms[p]);
		for (int c = 0; p == PT_D_DATA_WAIT && c < PT_CAUSE_NR; c++)
			ms_row(t, 4, pt_tx_cause((enum pt_cause)c),
			       a->cause_ms[c], b->cause_ms[c]);
	}
}

static const char *idle_value(struct pt_tx *t, const struct pt_d_input *in)
{
	if (isfinite(in->idle_share) || !isfinite(in->idle_hard[0]))
		return pt_tx_pct(t, in->idle_share);
	return pt_tx_fmt(t, "%.0f-%.0f" NB "%%", 100 * in->idle_hard[0], 100 * in->idle_hard[1]);
}

static const char *idle_words(enum pt_d_idle i)
{
	switch (i) {
	case PT_D_IDLE_LOWER:
		return "lower";
	case PT_D_IDLE_HIGHER:
		return "higher";
	case PT_D_IDLE_CANNOT_TELL:
		return "cannot tell: the bounds overlap";
	case PT_D_IDLE_UNKNOWN:
		break;
	}
	return "unknown";
}

static void idle_rows(struct pt_tx *t, const struct pt_d_input *a,
		      const struct pt_d_input *b, enum pt_d_idle idle)
{
	row(t, 0, "GPU idle", idle_value(t, a), idle_value(t, b),
	    idle_words(idle));
	if (idle == PT_D_IDLE_UNKNOWN)
		return;
	row(t, 2, "at least", pt_tx_pct(t, a->idle_hard[0]),
	    pt_tx_pct(t, b->idle_hard[0]), "");
	row(t, 2, "at most", pt_tx_pct(t, a->idle_hard[1]),
	    pt_tx_pct(t, b->idle_hard[1]), "");
}

static void side_by_side(struct pt_tx *t, const struct pt_diff *d)
{
	const struct pt_d_pair *p = &d->pairs[0];
	const struct pt_d_input *a = &d->inputs[p->base];
	const struct pt_d_input *b = &d->inputs[p->other];

	row(t, 0, "", letter(p->base), letter(p->other), "change");
	rate_row(t, "samples/s", a->samples_per_second, b->samples_per_second);
	rate_row(t, "steps/s", a->per_second, b->per_second);
	row(t, 0, "data wait share", pt_tx_pct(t, a->data_wait_share),
	    pt_tx_pct(t, b->data_wait_share),
	    signed_pct(t, b->data_wait_share - a->data_wait_share, "points"));
	idle_rows(t, a, b, p->idle);
	step_rows(t, a, b);
}

/* ---- several, best first -------------------------------------------------- */

static const char *standing(const struct pt_diff *d, size_t place)
{
	const struct pt_d_rank *k = &d->ranking[place];

	if (isnan(k->value))
		return "unknown";
	if (!place)
		return "best";
	switch (k->against_best) {
	case PT_D_SLOWER:
		return "slower";
	case PT_D_NO_DIFFERENCE:
		return "as good";
	default:
		return "?";
	}
}

static const char *root_id(const struct pt_d_input *in)
{
	return in->r->n_verdicts ? in->r->verdicts[0].id : NULL;
}

static void ranking(struct pt_tx *t, const struct pt_diff *d)
{
	static const struct {
		const char *head;
		int cols;
	} c[] = { { "", 3 },	    { "", 10 },	       { "", 11 },
		  { "step ms", 10 }, { "data wait", 11 }, { "GPU idle", 10 } };

	pt_tx_label(t, "Ranking");
	pt_tx_cell(t, unit(d), c[0].cols + c[1].cols + c[2].cols, true);
	for (size_t i = 3; i < sizeof(c) / sizeof(c[0]); i++)
		pt_tx_cell(t, c[i].head, c[i].cols, true);
	pt_tx_put(t, "  verdict\n");
	for (size_t i = 0; i < d->n_inputs; i++) {
		const struct pt_d_rank *k = &d->ranking[i];
		const struct pt_d_input *in = &d->inputs[k->input];

		pt_tx_printf(t, "%*zu  ", PT_TX_LABEL - 2, i + 1);
		pt_tx_cell(t, letter(k->input), c[0].cols, false);
		pt_tx_cell(t, standing(d, i), c[1].cols, false);
		pt_tx_cell(t, pt_tx_num(t, k->value), c[2].cols, true);
		pt_tx_cell(t, pt_tx_ms(t, in->step_ms), c[3].cols, true);
		pt_tx_cell(t, pt_tx_pct(t, in->data_wait_share), c[4].cols,
			   true);
		pt_tx_cell(t, idle_value(t, in), c[5].cols, true);
		pt_tx_printf(t, "  %s\n", pt_tx_esc(t, root_id(in), 24));
	}
}

/* ---- what goes with it ---------------------------------------------------- */

static void verdicts(struct pt_tx *t, const struct pt_diff *d)
{
	for (size_t i = 0; i < d->n_inputs; i++) {
		const struct pt_d_input *in = &d->inputs[i];
		const struct pt_r_verdict *v = in->r->verdicts;
		struct pt_line l = { .n = 0 };

		pt_line_add(&l, "%s: ", letter(i));
		if (!in->r->n_verdicts)
			pt_line_add(&l, "no verdict");
		else
			pt_line_add(&l, "%s (%s). %s", pt_tx_esc(t, v->id, 32),
				    pt_severity_name(v->severity),
				    pt_tx_esc(t, v->title, 400));
		pt_tx_line(t, i ? NULL : "Verdict", &l);
	}
}

static void settings(struct pt_tx *t, const struct pt_diff *d)
{
	bool first = true;

	for (size_t i = 0; i < d->n_pairs; i++) {
		const struct pt_d_pair *p = &d->pairs[i];

		for (size_t k = 0; k < p->n_settings; k++) {
			const struct pt_d_setting *s = &p->settings[k];
			struct pt_line l = { .n = 0 };

			if (d->n_pairs > 1)
				pt_line_add(&l, "%s: ", letter(p->other));
			pt_line_add(&l, "%s %s -> %s", pt_tx_esc(t, s->name, 80),
				    s->base ? pt_tx_esc(t, s->base, 100) :
					      "none",
				    s->other ? pt_tx_esc(t, s->other, 100) :
					       "none");
			pt_tx_line(t, first ? "Settings" : NULL, &l);
			first = false;
		}
	}
}

static void notes(struct pt_tx *t, const struct pt_diff *d)
{
	bool tested = false;

	for (size_t i = 0; i < d->n_pairs; i++)
		tested |= !d->pairs[i].untested;
	for (size_t i = 0; i < d->n_notes; i++) {
		pt_tx_label(t, i ? NULL : "Notes");
		pt_tx_wrap(t, PT_TX_LABEL, pt_tx_esc(t, d->notes[i], 300));
	}
	if (!tested)
		return;
	pt_tx_label(t, d->n_notes ? NULL : "Notes");
	pt_tx_wrap(t, PT_TX_LABEL,
		   "an interval tells of the steps within the captures; other "
		   "runs of the same job can differ by more");
}

int pt_diff_text(const struct pt_diff *d, FILE *out,
		 const struct pt_text_opts *o)
{
	struct pt_tx *t = pt_tx_begin(out, o);

	if (!t)
		return -ENOMEM;
	answers(t, d);
	pt_tx_put(t, "\n");
	legend(t, d);
	pt_tx_put(t, "\n");
	if (d->n_inputs == 2)
		side_by_side(t, d);
	else
		ranking(t, d);
	pt_tx_put(t, "\n");
	verdicts(t, d);
	settings(t, d);
	notes(t, d);
	return pt_tx_end(t);
}
