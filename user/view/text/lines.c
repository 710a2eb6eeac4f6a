/* SPDX-License-Identifier: BSD-2-Clause */
/* The lines of the job's Python in which time went. */
#include <math.h>
#include <string.h>

#include "view/text/blocks.h"

#define SHOWN 4	       /* of each kind */
#define KIND_MIN 0.02  /* of the capture, per thread; less is no kind of its own */
#define SHARE_MIN 0.03 /* of the kind */

static bool alike(const struct pt_r_line *a, const struct pt_r_line *b)
{
	return !strcmp(a->who, b->who) && a->pid == b->pid && a->tid == b->tid &&
	       a->cause == b->cause && a->data_wait == b->data_wait;
}

void pt_tx_lines_of(struct pt_tx *t, const struct pt_r_line *l)
{
	bool trainer = !strcmp(l->who, "trainer");
	const char *who = trainer ? "training thread" : "all workers";

	if (!trainer && l->pid != PT_NULL)
		who = pt_tx_fmt(t, "worker %s", pt_tx_id(t, l->pid));
	pt_tx_printf(t, "%s, %s%s", who,
		     l->cause == PT_CAUSE_CPU ? "running or ready to run" :
		     l->cause == PT_CAUSE_SYNC ? "in GPU calls" :
		     pt_tx_fmt(t, "asleep (%s)", pt_tx_cause(l->cause)),
		     l->data_wait == 1 ? ", during data waits" : "");
}

#define NATIVE_MIN 0.2 /* of a line: less is not worth a word */

/* "75 % of it in libz.so.1 deflate"; where that is a part alone, "..., 50 % in its deflate". */
static void put_native(struct pt_tx *t, const struct pt_r_line *l)
{
	bool all = l->native_symbol_share > 0.95 * l->native_share;

	pt_tx_printf(t, ", %.0f %% of it in %s", 100 * l->native_share,
		     pt_tx_path(t, l->native, 40));
	if (!l->native_symbol || l->native_symbol_share < NATIVE_MIN)
		return;
	if (all)
		pt_tx_printf(t, " %s", pt_tx_path(t, l->native_symbol, 40));
	else
		pt_tx_printf(t, ", %.0f %% in its %s", 100 * l->native_symbol_share,
			     pt_tx_path(t, l->native_symbol, 40));
}

static void row(struct pt_tx *t, const struct pt_r_line *l, double seconds)
{
	pt_tx_label(t, NULL);
	pt_tx_cell(t, pt_tx_pct(t, l->seconds / seconds), 6, true);
	if (l->cause == PT_CAUSE_CPU)
		pt_tx_printf(t, " (%.0f%s%.0f)", 100 * l->low / seconds, pt_tx_dash(t),
			     100 * fmin(1, l->high / seconds));
	pt_tx_printf(t, "  %s  ", pt_tx_path(t, l->function, 40));
	pt_tx_printf(t, "%s", pt_tx_path(t, l->file, 60));
	if (l->line != PT_NULL)
		pt_tx_printf(t, ":%s", pt_tx_id(t, l->line));
	if (l->native && l->native_share >= NATIVE_MIN)
		put_native(t, l);
	pt_tx_put(t, "\n");
}

/* Those that are no thread's own matter first; each worker's are for the curious. */
static bool is_shown(const struct pt_tx *t, const struct pt_report *r, const struct pt_r_line *l,
		     double seconds)
{
	size_t of = l->pid == PT_NULL && r->n_workers ? r->n_workers : 1;

	if (l->cause == PT_CAUSE_WORKER_IDLE || l->cause == PT_CAUSE_PREFETCH_FULL)
		return false;
	if (!strcmp(l->who, "worker") && l->pid != PT_NULL && !t->o.verbose)
		return false;
	return seconds >= KIND_MIN * r->capture.duration * (double)of;
}

/* Rows of less than a hundredth are not there: the first one's share tells of all. */
static double seconds_of(const struct pt_r_line *first)
{
	return first->seconds / first->share;
}

const struct pt_r_line *pt_tx_worst_line(const struct pt_tx *t, const struct pt_report *r,
					 double *seconds)
{
	const struct pt_r_line *worst = NULL;
	bool works = false, ours;
	size_t i;

	for (i = 0; i < r->n_lines; i++) {
		const struct pt_r_line *l = &r->lines[i];
		double all = seconds_of(l);

		/* the first row of a kind is its largest */
		if ((i && alike(l, l - 1)) || !is_shown(t, r, l, all))
			continue;
		ours = !strcmp(l->who, "worker");
		if (worst && (works > ours || (works == ours && l->seconds <= worst->seconds)))
			continue;
		worst = l;
		works = ours;
		*seconds = all;
	}
	return worst;
}

void pt_tx_lines(struct pt_tx *t, const struct pt_report *r)
{
	size_t max = pt_tx_rows(t, SHOWN, r->n_lines), b, e, i;
	bool any = false;

	for (b = 0; b < r->n_lines; b = e) {
		double seconds = seconds_of(&r->lines[b]);

		for (e = b; e < r->n_lines && alike(&r->lines[b], &r->lines[e]); e++)
			;
		if (!is_shown(t, r, &r->lines[b], seconds))
			continue;
		pt_tx_label(t, any ? NULL : "Lines");
		any = true;
		pt_tx_lines_of(t, &r->lines[b]);
		pt_tx_printf(t, ": %s\n", pt_tx_sec(t, seconds));
		for (i = b; i < e && i - b < max && r->lines[i].share >= SHARE_MIN; i++)
			row(t, &r->lines[i], seconds);
	}
}
