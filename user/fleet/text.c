/* SPDX-License-Identifier: BSD-2-Clause */
/* The fleet as text. All names come from other people: pt_tx_esc() shows them. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/vec.h"
#include "fleet/fleet.h"
#include "view/text/fmt.h"

#define CAUSES_SHOWN 3

static const char *hours(struct pt_tx *t, double seconds)
{
	return pt_tx_num(t, seconds / 3600);
}

/* A server says how many; it may say anything. */
static const char *count(struct pt_tx *t, double n)
{
	return pt_tx_int(t, (int64_t)fmin(fmax(n, 0), 1e15));
}

static void causes(struct pt_tx *t, struct pt_line *l, const double *cause_s,
		   double all, size_t shown)
{
	bool done[PT_FLEET_CAUSES] = { false };
	size_t i, k, best;

	for (k = 0; k < shown; k++) {
		best = PT_FLEET_CAUSES;
		for (i = 0; i < PT_FLEET_CAUSES; i++)
			if (!done[i] && i != PT_CAUSE_NO_DEMAND && cause_s[i] > 0 &&
			    (best == PT_FLEET_CAUSES || cause_s[i] > cause_s[best]))
				best = i;
		if (best == PT_FLEET_CAUSES || cause_s[best] < 0.01 * all)
			break;
		done[best] = true;
		pt_line_add(l, "%s%s %s", k ? ", " : "", pt_fleet_cause_name(best),
			    pt_tx_pct(t, cause_s[best] / all));
	}
}

static void head(struct pt_tx *t, const struct pt_fleet *f)
{
	struct pt_line l = { .n = 0 };

	pt_line_item(t, &l, "%s nodes", count(t, f->nodes));
	pt_line_item(t, &l, "%s jobs", count(t, f->jobs));
	pt_line_item(t, &l, "last %s", pt_tx_sec(t, f->window_s));
	pt_tx_line(t, "Fleet", &l);
	l.n = 0;
	pt_line_add(&l, "%s of %s GPU-hours", hours(t, f->wasted_s), hours(t, f->gpu_s));
	if (f->gpu_s > 0)
		pt_line_add(&l, " (%s)", pt_tx_pct(t, f->wasted_s / f->gpu_s));
	if (f->wasted_s > 0) {
		pt_line_add(&l, ": ");
		causes(t, &l, f->cause_s, f->wasted_s, 5);
	}
	pt_tx_line(t, "Wasted", &l);
	if (f->cause_s[PT_CAUSE_NO_DEMAND] > 0) {
		l.n = 0;
		pt_line_add(&l, "%s GPU-hours more were idle for want of requests",
			    hours(t, f->cause_s[PT_CAUSE_NO_DEMAND]));
		pt_tx_line(t, "Unasked", &l);
	}
}

static void one_job(struct pt_tx *t, const struct pt_fleet_job *j, size_t i)
{
	char whose[256], range[48];
	struct pt_line l = { .n = 0 };

	pt_fleet_whose(j->labels, whose, sizeof(whose));
	if (isnan(j->low_s))
		snprintf(range, sizeof(range), "%s", pt_tx_dash(t));
	else
		snprintf(range, sizeof(range), "%s..%s", hours(t, j->low_s),
			 hours(t, j->high_s));
	pt_tx_printf(t, "%3zu  ", i + 1);
	pt_tx_cell(t, hours(t, j->wasted_s), 7, true);
	pt_tx_put(t, "  ");
	pt_tx_cell(t, range, 15, false);
	pt_tx_put(t, "  ");
	pt_tx_cell(t, j->gpu_s > 0 ? pt_tx_pct(t, j->wasted_s / j->gpu_s) :
				     pt_tx_dash(t), 6, true);
	pt_tx_put(t, "  ");
	pt_tx_cell(t, pt_tx_esc(t, whose, 24), 24, false);
	pt_tx_put(t, "  ");
	pt_tx_cell(t, pt_tx_esc(t, pt_fleet_label(j->labels, "user"), 10), 10, false);
	pt_tx_put(t, "  ");
	pt_tx_put(t, pt_tx_esc(t, pt_fleet_label(j->labels, "instance"), 30));
	pt_tx_put(t, "\n     ");
	if (*j->verdict)
		pt_line_add(&l, "%s (%s, %s of the time)", pt_tx_esc(t, j->verdict, 32),
			    pt_severity_name((enum pt_severity)j->severity),
			    pt_tx_pct(t, j->verdict_share));
	else
		pt_line_add(&l, "no verdict");
	if (j->wasted_s > 0) {
		pt_line_add(&l, "; ");
		causes(t, &l, j->cause_s, j->wasted_s, CAUSES_SHOWN);
	}
	pt_tx_wrap(t, 5, l.s);
}

static void jobs(struct pt_tx *t, const struct pt_fleet *f)
{
	size_t i;

	if (!f->n_jobs) {
		pt_tx_put(t, "\nNo agent gave this server figures of a job in that "
			     "time.\n");
		return;
	}
	pt_tx_put(t, "\n  #   GPU-h  range             share  whose"
		     "                     user        node\n");
	for (i = 0; i < f->n_jobs; i++)
		one_job(t, &f->job[i], i);
}

static void stragglers(struct pt_tx *t, const struct pt_fleet *f)
{
	struct pt_line l = { .n = 0 };

	if (f->n_stragglers || f->groups > 0)
		pt_tx_put(t, "\nRanks that are slower than their peers\n");
	pt_each_of(const struct pt_fleet_straggler, s, f->straggler, f->n_stragglers) {
		const char *rank = pt_fleet_label(s->labels, "rank");

		l.n = 0;
		pt_tx_put(t, "     ");
		pt_line_add(&l, "%s%s%s on %s of %s: ", *rank ? "rank " : "a rank",
			    pt_tx_esc(t, rank, 12), "",
			    pt_tx_esc(t, pt_fleet_label(s->labels, "instance"), 40),
			    pt_tx_esc(t, pt_fleet_label(s->labels, "group"), 40));
		pt_line_add(&l, "%s of host work and data wait in a step, %s in the "
			    "median of %zu; %s", pt_tx_sec(t, s->own_s),
			    pt_tx_sec(t, s->median_s), s->members,
			    s->by_data ? "it waits for data" : "its host is slow");
		pt_tx_wrap(t, 5, l.s);
	}
	if (f->groups > 0 && !f->n_stragglers) {
		l.n = 0;
		pt_tx_put(t, "     ");
		pt_line_add(&l, "none in %s groups", count(t, f->groups));
		pt_tx_wrap(t, 5, l.s);
	}
	if (f->small_groups > 0) {
		l.n = 0;
		pt_tx_put(t, "     ");
		pt_line_add(&l, "%s groups have fewer than %d members: nobody can tell "
			    "who is late there",
			    count(t, f->small_groups), PT_FLEET_PEERS);
		pt_tx_wrap(t, 5, l.s);
	}
}

static void mounts(struct pt_tx *t, const struct pt_fleet *f)
{
	if (f->n_mounts)
		pt_tx_put(t, "\nMounts, by time inside reads\n"
			     "     read time       bytes    jobs  mount\n");
	pt_each_of(const struct pt_fleet_mount, m, f->mount, f->n_mounts) {
		pt_tx_put(t, "     ");
		pt_tx_cell(t, pt_tx_sec(t, m->read_s), 9, true);
		pt_tx_put(t, "  ");
		pt_tx_cell(t, pt_tx_bytes(t, m->read_bytes), 10, true);
		pt_tx_put(t, "  ");
		pt_tx_cell(t, isnan(m->jobs) ? pt_tx_dash(t) :
				     count(t, m->jobs), 6, true);
		pt_tx_put(t, "  ");
		pt_tx_put(t, pt_tx_path(t, pt_fleet_label(m->labels, "mount"), 60));
		pt_tx_put(t, "\n");
	}
}

int pt_fleet_text(const struct pt_fleet *f, FILE *out, const struct pt_text_opts *o)
{
	struct pt_tx *t = pt_tx_begin(out, o);

	if (!t)
		return -ENOMEM;
	head(t, f);
	jobs(t, f);
	stragglers(t, f);
	mounts(t, f);
	return pt_tx_end(t);
}
