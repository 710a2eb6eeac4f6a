// SPDX-License-Identifier: BSD-2-Clause
/* The answer at a glance: verdict, time, GPU, waits, steps, workers. */
#include <string.h>

#include "view/top/pane.h"

#define OTHER_VERDICTS 3
#define WORKERS 8
#define ROWS 5 /* of files and operations */

static enum pt_tx_style style_of(enum pt_severity s)
{
	return s == PT_CRITICAL ? PT_ST_RED :
	       s == PT_WARNING	? PT_ST_YELLOW :
				  PT_ST_GREEN;
}

static void verdicts(struct pt_tx *t, const struct pt_report *r)
{
	if (!r->n_verdicts) {
		pt_tx_label(t, "Now");
		pt_tx_put(t, "nothing was concluded yet\n");
	}
	for (size_t i = 0; i < r->n_verdicts && i <= OTHER_VERDICTS; i++) {
		const struct pt_r_verdict *x = &r->verdicts[i];
		const char *word = pt_tx_severity(x->severity);
		char text[PT_TX_SLOT + 64];

		pt_tx_styled(t, style_of(x->severity), word);
		pt_tx_cell(t, "", PT_TX_LABEL - (int)strlen(word), false);
		if (i) { /* the others in a line each */
			pt_tx_printf(t, "%s\n", pt_tx_esc(t, x->title,
				     (size_t)(t->width - PT_TX_LABEL)));
			continue;
		}
		snprintf(text, sizeof(text), "%s [%s]", pt_tx_esc(t, x->title, 0),
			 pt_tx_esc(t, x->id, 40));
		pt_tx_wrap(t, PT_TX_LABEL, text);
	}
	if (r->n_verdicts > OTHER_VERDICTS + 1)
		pt_tx_printf(t, "%*sand %zu more (2)\n", PT_TX_LABEL, "",
			     r->n_verdicts - OTHER_VERDICTS - 1);
}

static void gpu(struct pt_tx *t, const struct pt_r_gpu *g)
{
	struct pt_bar_part bar[2] = {
		{ g->busy_share, "\xe2\x96\x88", '#', PT_ST_GREEN },
		{ g->starved_share[1], "\xe2\x96\x91", '.', PT_ST_RED },
	};
	int cols = t->width - PT_TX_LABEL - 46;
	char label[16] = "GPU";
	struct pt_line l = { .n = 0 };

	if (g->index != PT_NULL)
		snprintf(label, sizeof(label), "GPU %.5s",
			 pt_tx_id(t, g->index));
	pt_tx_label(t, label);
	pt_tx_bar(t, bar, 2, cols);
	pt_line_add(&l, " busy %s (%s to %s)", pt_tx_pct(t, g->busy_share),
		    pt_tx_pct(t, g->busy_hard[0]),
		    pt_tx_pct(t, g->busy_hard[1]));
	pt_line_add(&l, ", starved %s", pt_tx_pct(t, g->starved_share[1]));
	pt_tx_printf(t, "%s\n", l.s);
}

/* Data-wait shares of past windows, one column each, the last at the right. */
static void history(struct pt_tx *t, const struct pt_top *v)
{
	static const char *const tall[] = {
		" ", "\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83",
		"\xe2\x96\x84", "\xe2\x96\x85", "\xe2\x96\x86", "\xe2\x96\x87",
		"\xe2\x96\x88"
	};
	static const char low[] = " .:-=+*#%";
	size_t room = (size_t)(t->width - PT_TX_LABEL - 16), from, i;
	double now = NAN;

	from = v->n_history > room ? v->n_history - room : 0;
	pt_tx_label(t, "Wait");
	for (i = from; i < v->n_history; i++) {
		double s = now = v->history[i];
		int level = isfinite(s) ? (int)(s * 8 + 0.5) : -1;
		char one[2] = { level < 0 ? '?' : low[level > 8 ? 8 : level] };

		if (level > 8)
			level = 8;
		pt_tx_put(t, level < 0 || !t->o.unicode ? one : tall[level]);
	}
	pt_tx_printf(t, " %s for data\n", pt_tx_pct(t, now));
}

static void causes(struct pt_tx *t, const struct pt_report *r)
{
	struct pt_line l = { .n = 0 };

	for (size_t i = 0; i < r->data_wait.n_causes && i < PT_CAUSES_SHOWN; i++) {
		const struct pt_r_charge *c = &r->data_wait.causes[i];

		pt_line_item(t, &l, "%s" NB "%s" NB "%s", pt_tx_pct(t, c->share),
			     pt_tx_cause(c->cause),
			     pt_tx_who(t, r, c->subject_pid, c->subject_tid));
		if (c->what)
			pt_line_add(&l, " %s", pt_tx_path(t, c->what, 40));
	}
	pt_tx_line(t, "Charged", &l);
}

static void steps(struct pt_tx *t, const struct pt_r_steps *s)
{
	const struct pt_dist *d = &s->period_ms;

	pt_tx_label(t, "Steps");
	if (s->count == PT_NULL && !d->n) {
		pt_tx_put(t, "unknown\n");
		return;
	}
	pt_tx_printf(t, "%s/s, ms: p50 %s, p95 %s, max %s", pt_tx_num(t,
		     s->per_second), pt_tx_ms(t, d->n ? d->p50 : NAN),
		     pt_tx_ms(t, d->n ? d->p95 : NAN),
		     pt_tx_ms(t, d->n ? d->max : NAN));
	if (isfinite(s->samples_per_second))
		pt_tx_printf(t, ", %s samples/s",
			     pt_tx_num(t, s->samples_per_second));
	pt_tx_put(t, "\n");
}

static void workers(struct pt_tx *t, const struct pt_report *r)
{
	if (!r->n_workers)
		return;
	pt_tx_worker_legend(t);
	for (size_t i = 0; i < r->n_workers && i < WORKERS; i++) {
		const struct pt_r_worker *w = &r->workers[i];
		bool bad = w->state == PT_WORKER_SLOW ||
			   w->state == PT_WORKER_HUNG;

		pt_tx_cell(t, pt_tx_id(t, w->tid != PT_NULL ? w->tid : w->pid),
			   PT_TX_LABEL, false);
		pt_tx_worker_bar(t, w, t->width - PT_TX_LABEL - 22);
		pt_tx_cell(t, pt_tx_ms(t, w->batch_ms.n ? w->batch_ms.p50 : NAN),
			   9, true);
		pt_tx_put(t, NB "ms ");
		pt_tx_styled(t, bad ? PT_ST_RED : PT_ST_NONE,
			     pt_worker_state_name(w->state));
		pt_tx_put(t, "\n");
	}
	if (r->n_workers > WORKERS)
		pt_tx_printf(t, "%*sand %zu more (3)\n", PT_TX_LABEL, "",
			     r->n_workers - WORKERS);
}

/* The largest of both, as far as the screen reaches. */
static void tables(struct pt_tx *t, const struct pt_report *r)
{
	for (size_t i = 0; i < r->n_files && i < ROWS; i++) {
		const struct pt_r_file *f = &r->files[i];

		pt_tx_label(t, i ? "" : "Files");
		pt_tx_cell(t, pt_tx_size(t, f->bytes), 10, true);
		pt_tx_cell(t, pt_tx_sec(t, f->blocked_s), 10, true);
		pt_tx_printf(t, " blocked  %s\n",
			     pt_tx_path(t, f->path, (size_t)t->width - 40));
	}
	for (size_t i = 0; i < r->n_operations && i < ROWS; i++) {
		const struct pt_r_operation *p = &r->operations[i];

		pt_tx_label(t, i ? "" : "Calls");
		pt_tx_cell(t, pt_tx_int(t, p->calls), 10, true);
		pt_tx_cell(t, pt_tx_sec(t, p->total_s), 10, true);
		pt_tx_printf(t, "  %s\n",
			     pt_tx_middle(t, p->name, (size_t)t->width - 33));
	}
}

static size_t draw(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_report *r = v->report;

	verdicts(t, r);
	pt_tx_time(t, &r->breakdown);
	for (size_t i = 0; i < r->n_gpu; i++)
		gpu(t, &r->gpu[i]);
	history(t, v);
	causes(t, r);
	steps(t, &r->steps);
	workers(t, r);
	tables(t, r);
	return 0;
}

const struct pt_pane pt_pane_overview = { "Overview", draw, NULL, 0, false };

static size_t draw_verdicts(struct pt_tx *t, const struct pt_top *v)
{
	pt_tx_verdicts(t, v->report);
	return 0;
}

const struct pt_pane pt_pane_verdicts = { "Verdicts", draw_verdicts, NULL, 0,
					  false };
