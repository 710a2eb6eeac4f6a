/* SPDX-License-Identifier: BSD-2-Clause */
/* The text report's order, and its labelled lines. */
#include "view/text/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "view/text/blocks.h"

#define CAUSE_MIN 0.005 /* of the data wait */

const char *pt_tx_cause(enum pt_cause c)
{
	switch (c) {
	case PT_CAUSE_CPU:
		return "CPU";
	case PT_CAUSE_RUN_QUEUE:
		return "run queue";
	case PT_CAUSE_PAGE_FAULT:
		return "page fault";
	case PT_CAUSE_IPC:
		return "IPC";
	case PT_CAUSE_WORKER_IDLE:
		return "worker idle";
	case PT_CAUSE_PREFETCH_FULL:
		return "prefetch full";
	case PT_CAUSE_NO_DEMAND:
		return "no demand";
	case PT_CAUSE_OTHER_HOST:
		return "other host work";
	default:
		return pt_cause_name(c);
	}
}

/* Whose id a reader knows: a thread that works in its own right goes by its
 * own; its role, or NULL. */
static const char *known_id(const struct pt_report *r, int64_t pid, int64_t tid,
			    int64_t *id)
{
	*id = pid;
	for (size_t i = 0; tid != PT_NULL && i < r->n_workers; i++)
		if (r->workers[i].role && r->workers[i].tid == tid) {
			*id = tid;
			return r->workers[i].role;
		}
	return NULL;
}

const char *pt_tx_who(struct pt_tx *t, const struct pt_report *r, int64_t pid,
		      int64_t tid)
{
	int64_t id;
	const char *role = known_id(r, pid, tid, &id);

	if (pid == PT_NULL)
		return pt_tx_dash(t);
	if (!role && pid == r->target.pid)
		role = "trainer";
	for (size_t i = 0; !role && i < r->n_workers; i++)
		if (r->workers[i].pid == pid)
			role = r->workers[i].role;
	for (size_t i = 0; !role && i < r->n_ranks; i++)
		if (r->ranks[i].pid == pid)
			role = "trainer"; /* of another rank than the first */
	return pt_tx_fmt(t, "%s" NB "%s", pt_tx_path(t, role ? role : "pid", 10), pt_tx_id(t, id));
}

static void target_line(struct pt_tx *t, const struct pt_report *r)
{
	const struct pt_r_target *g = &r->target;
	const char *cmd = g->cmdline ? g->cmdline : g->comm;
	struct pt_line l = { .n = 0 };

	pt_line_add(&l, "pid" NB "%s", pt_tx_id(t, g->pid));
	if (cmd)
		pt_line_add(&l, "  %s",
			    pt_tx_esc(t, cmd, (size_t)t->width - 26));
	if (g->user)
		pt_line_item(t, &l, "user" NB "%s", pt_tx_esc(t, g->user, 32));
	if (g->container)
		pt_line_item(t, &l, "container" NB "%s",
			     pt_tx_esc(t, g->container, 24));
	if (g->job_id)
		pt_line_item(t, &l, "%s job" NB "%s",
			     pt_tx_esc(t, g->job_kind ? g->job_kind : "", 16),
			     pt_tx_esc(t, g->job_id, 32));
	if (g->resolved_from != PT_NULL && g->resolved_from != g->pid)
		pt_line_item(t, &l, "trainer of" NB "%s",
			     pt_tx_id(t, g->resolved_from));
	pt_tx_line(t, "Trainer", &l);
}

static void setting(struct pt_tx *t, struct pt_line *l, const char *name,
		    const struct pt_sourced *s)
{
	if (s->value)
		pt_line_item(t, l, "%s" NB "%s", name,
			     pt_tx_esc(t, s->value, 40));
}

static void loader_line(struct pt_tx *t, const struct pt_r_loader *d)
{
	struct pt_line l = { .n = 0 };

	if (d->kind.value)
		pt_line_item(t, &l, "%s", pt_tx_esc(t, d->kind.value, 40));
	setting(t, &l, "workers", &d->workers);
	setting(t, &l, "prefetch", &d->prefetch);
	setting(t, &l, "pinned", &d->pinned);
	setting(t, &l, "persistent", &d->persistent);
	setting(t, &l, "start", &d->start_method);
	setting(t, &l, "sharing", &d->sharing);
	pt_tx_line(t, "Loader", &l);
}

static void thresholds_line(struct pt_tx *t, const struct pt_report *r)
{
	struct pt_line l = { .n = 0 };

	for (size_t i = 0; i < r->n_thresholds; i++)
		pt_line_item(t, &l, "%s %g (default %g)",
			     r->thresholds[i].name, r->thresholds[i].value,
			     r->thresholds[i].usual);
	pt_tx_line(t, "Judged by", &l);
}

static void labels_line(struct pt_tx *t, const struct pt_report *r)
{
	struct pt_line l = { .n = 0 };

	for (size_t i = 0; i < r->n_labels; i++)
		pt_line_item(t, &l, "%s=%s",
			     pt_tx_esc(t, r->labels[i].key, 40),
			     pt_tx_esc(t, r->labels[i].value, 60));
	pt_tx_line(t, "Labels", &l);
}

/* Where the trainer's time went: a bar, then its parts, largest shares only
 * when they round to something. */
void pt_tx_time(struct pt_tx *t, const struct pt_r_breakdown *d)
{
	const struct {
		const struct pt_r_part *part;
		const char *name, *glyph;
		char ascii;
		enum pt_tx_style style;
	} p[] = {
		{ &d->data_wait, "data wait", "\xe2\x96\x88", '#', PT_ST_RED },
		{ &d->gpu_wait, "GPU wait", "\xe2\x96\x92", '=', PT_ST_GREEN },
		{ &d->transfer, "transfer", "\xe2\x96\x9a", 't', PT_ST_YELLOW },
		{ &d->sync, "sync", "\xe2\x96\x9e", 's', PT_ST_MAGENTA },
		{ &d->launch, "launch", "\xe2\x96\x99", 'l', PT_ST_BLUE },
		{ &d->collective, "collective", "\xe2\x96\x9b", 'c',
		  PT_ST_CYAN },
		{ &d->checkpoint, "checkpoint", "\xe2\x96\x9c", 'k',
		  PT_ST_YELLOW },
		{ &d->other, "other", "\xe2\x96\x91", '.', PT_ST_DIM },
	};
	enum { N = sizeof(p) / sizeof(p[0]) };
	struct pt_bar_part bar[N];
	struct pt_line l = { .n = 0 };

	pt_tx_label(t, "Time");
	if (!d->known) {
		pt_tx_put(t, "unknown\n");
		return;
	}
	for (size_t i = 0; i < N; i++) {
		char ascii[2] = { p[i].ascii, '\0' };

		bar[i] = (struct pt_bar_part){ p[i].part->share, p[i].glyph,
					       p[i].ascii, p[i].style };
		if (i >= 2 && i + 1 < N && p[i].part->share == 0)
			continue;
		pt_line_item(t, &l, "%s" NB "%s" NB "%s",
			     t->o.unicode ? p[i].glyph : ascii, p[i].name,
			     pt_tx_pct(t, p[i].part->share));
	}
	pt_tx_bar(t, bar, N, t->width - PT_TX_LABEL);
	pt_tx_printf(t, "\n%*s", PT_TX_LABEL, "");
	pt_tx_wrap(t, PT_TX_LABEL, l.s);
}

/* Less of it all than this is any loop's; a kind is named from the second on. */
#define HOST_MIN 0.05
#define HOST_KIND_MIN 0.01

/* What the loop itself does between its GPU calls. What waits for other ranks is in
 * the line above. */
static void host_line(struct pt_tx *t, const struct pt_r_breakdown *d)
{
	static const struct {
		enum pt_host_kind kind;
		const char *name;
	} kinds[] = {
		{ PT_HOST_COMPUTING, "computing" },
		{ PT_HOST_QUEUED, "waiting for a core" },
		{ PT_HOST_SLEEPING, "sleeping" },
		{ PT_HOST_WRITING, "writing" },
		{ PT_HOST_LOCK, "waiting for a lock" },
		{ PT_HOST_CHILD, "waiting for a child" },
		{ PT_HOST_CLIENT, "waiting for requests" },
		{ PT_HOST_PEER, "waiting for others" },
		{ PT_HOST_OTHER, "waiting for something else" },
	};
	struct pt_line l = { .n = 0 };
	double all = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		double share = d->host[kinds[i].kind].share;

		if (!d->known || !isfinite(share))
			continue;
		all += share;
		if (share >= HOST_KIND_MIN || (t->o.verbose && share > 0))
			pt_line_item(t, &l, "%s" NB "%s", kinds[i].name,
				     pt_tx_pct(t, share));
	}
	if (all >= HOST_MIN || t->o.verbose)
		pt_tx_line(t, "Host work", &l);
}

/* Only where more is known than the breakdown shows. */
static void phases_line(struct pt_tx *t, const struct pt_report *r)
{
	struct pt_line l = { .n = 0 };
	bool more = false;

	for (size_t i = 0; i < r->n_phases; i++) {
		const struct pt_r_phase *p = &r->phases[i];

		more |= !strcmp(p->name, "backward") ||
			!strcmp(p->name, "optimizer");
		pt_line_item(t, &l, "%s" NB "%s",
			     !strcmp(p->name, "gpu_wait") ? "GPU wait" : p->name,
			     pt_tx_pct(t, p->share));
	}
	if (more)
		pt_tx_line(t, "Phases", &l);
}

/* Of more than there is room for the first: a hundred files that cost 1 % each are one
 * line. */
size_t pt_tx_charges(const struct pt_report *r, struct pt_tx_charge out[PT_TX_CHARGES])
{
	const struct pt_r_data_wait *w = &r->data_wait;
	size_t n = 0, i, k;
	int64_t id;

	/* the largest of each comes first: what is beyond `max` is small */
	for (i = 0; i < w->n_causes; i++) {
		const struct pt_r_charge *c = &w->causes[i];

		known_id(r, c->subject_pid, c->subject_tid, &id);
		for (k = 0; k < n; k++)
			if (out[k].c.cause == c->cause && out[k].id == id &&
			    !out[k].c.what == !c->what)
				break;
		if (k == n && n == PT_TX_CHARGES)
			continue;
		if (k == n)
			out[n++] = (struct pt_tx_charge){ .c = *c, .id = id };
		else
			out[k].c.share += c->share;
		out[k].files += c->what != NULL;
	}
	for (i = 1; i < n; i++) /* a few, nearly in order */
		for (k = i; k && out[k].c.share > out[k - 1].c.share; k--) {
			struct pt_tx_charge x = out[k];

			out[k] = out[k - 1];
			out[k - 1] = x;
		}
	return n;
}

const char *pt_tx_storage(const struct pt_r_charge *c)
{
	if (c->cause == PT_CAUSE_DISK && c->fs_class) {
		if (!strcmp(c->fs_class, "network"))
			return "network disk";
		if (!strcmp(c->fs_class, "user"))
			return "FUSE";
	}
	return pt_tx_cause(c->cause);
}

static void charge_row(struct pt_tx *t, const struct pt_report *r,
		       const struct pt_tx_charge *x)
{
	const struct pt_r_charge *c = &x->c;
	const char *who = pt_tx_who(t, r, c->subject_pid, c->subject_tid);
	size_t taken = pt_str_cols(who);
	char more[48] = "";

	if (x->files > 1)
		snprintf(more, sizeof(more), " and %s more",
			 pt_tx_int(t, (int64_t)x->files - 1));
	taken = PT_TX_LABEL + 24 + (taken < 16 ? 16 : taken) + strlen(more);
	pt_tx_printf(t, "%*s", PT_TX_LABEL, "");
	pt_tx_cell(t, pt_tx_pct(t, c->share), 7, true);
	pt_tx_put(t, "  ");
	pt_tx_cell(t, pt_tx_storage(c), 14, false);
	pt_tx_cell(t, who, c->what ? 16 : 0, false);
	if (c->what && (size_t)t->width > taken + 8)
		pt_tx_printf(t, " %s%s",
			     pt_tx_path(t, c->what, (size_t)t->width - taken),
			     more);
	pt_tx_put(t, "\n");
}

static void charge_rows(struct pt_tx *t, const struct pt_report *r)
{
	const struct pt_r_data_wait *w = &r->data_wait;
	struct pt_tx_charge all[PT_TX_CHARGES];
	size_t n, i, shown = 0;

	if (t->o.verbose) { /* one by one */
		for (i = 0; i < w->n_causes; i++) {
			struct pt_tx_charge one = { .c = w->causes[i] };

			charge_row(t, r, &one);
		}
		return;
	}
	n = pt_tx_charges(r, all);
	/* the first one shows however small it is */
	for (i = 0; i < n && i < PT_CAUSES_SHOWN; i++)
		if (!i || all[i].c.share >= CAUSE_MIN) {
			charge_row(t, r, &all[i]);
			shown++;
		}
	if (n > shown)
		pt_tx_printf(t, "%*sand smaller shares (-v lists all)\n",
			     PT_TX_LABEL + 9, "");
}

static void wait_lines(struct pt_tx *t, const struct pt_report *r)
{
	const struct pt_r_data_wait *w = &r->data_wait;
	const struct {
		double seconds;
		const char *name;
	} parts[] = {
		{ w->blocked, "blocked" },     { w->own_read, "own reads" },
		{ w->own_cpu, "own CPU" },     { w->handover, "hand-over" },
		{ w->lead, "lead" },	       { w->restart, "starting the loader" },
	};
	struct pt_line l = { .n = 0 };

	if (r->breakdown.known && isfinite(r->breakdown.data_wait.seconds))
		pt_line_item(t, &l, "%s in total",
			     pt_tx_sec(t, r->breakdown.data_wait.seconds));
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (isfinite(parts[i].seconds) &&
		    (parts[i].seconds > 0 || t->o.verbose))
			pt_line_item(t, &l, "%s" NB "%s", parts[i].name,
				     pt_tx_sec(t, parts[i].seconds));
	if (!l.n && !w->n_causes)
		return;
	pt_tx_label(t, "Data wait");
	pt_tx_wrap(t, PT_TX_LABEL, l.n ? l.s : "caused by");
	charge_rows(t, r);
}

static void step_lines(struct pt_tx *t, const struct pt_r_steps *s)
{
	const char *sure = pt_confidence_name(s->certainty);
	const struct pt_dist *d = &s->period_ms;
	struct pt_line l = { .n = 0 };

	pt_tx_label(t, "Steps");
	if (s->count == PT_NULL && !d->n) {
		pt_tx_put(t, "unknown\n");
		return;
	}
	pt_line_add(&l, "%s", pt_tx_int(t, s->count));
	if (isfinite(s->per_second))
		pt_line_item(t, &l, "%s/s", pt_tx_num(t, s->per_second));
	if (isfinite(s->samples_per_second))
		pt_line_item(t, &l, "%s" NB "samples/s",
			     pt_tx_num(t, s->samples_per_second));
	if (s->batches != PT_NULL && s->batches != s->count)
		pt_line_item(t, &l, "%s" NB "batches",
			     pt_tx_int(t, s->batches));
	if (s->source)
		pt_line_item(t, &l, "found by %s%s%s%s",
			     pt_tx_esc(t, s->source, 24), sure ? " (" : "",
			     sure ? sure : "", sure ? NB "confidence)" : "");
	pt_tx_wrap(t, PT_TX_LABEL, l.s);
	if (d->n) {
		l.n = 0;
		pt_line_add(&l, "ms: mean" NB "%s" NB "%s" NB "%s",
			    pt_tx_ms(t, d->mean),
			    t->o.unicode ? "\xc2\xb1" : "+-",
			    pt_tx_ms(t, d->std));
		pt_line_item(t, &l, "p50" NB "%s", pt_tx_ms(t, d->p50));
		pt_line_item(t, &l, "p95" NB "%s", pt_tx_ms(t, d->p95));
		pt_line_item(t, &l, "p99" NB "%s", pt_tx_ms(t, d->p99));
		pt_line_item(t, &l, "max" NB "%s", pt_tx_ms(t, d->max));
		if (isfinite(s->first_ms))
			pt_line_item(t, &l, "first" NB "%s",
				     pt_tx_ms(t, s->first_ms));
		pt_tx_line(t, NULL, &l);
	}
}

static void memory_line(struct pt_tx *t, const struct pt_report *r)
{
	const char *how = pt_certainty_name(r->mem_growth_certainty);

	if (!isfinite(r->mem_growth_per_min))
		return;
	pt_tx_label(t, "Memory");
	pt_tx_printf(t, "%s%s a minute on the host%s%s\n",
		     r->mem_growth_per_min > 0 ? "+" : "",
		     pt_tx_bytes(t, r->mem_growth_per_min), how ? ", " : "",
		     how ? how : "");
}

int pt_report_text(const struct pt_report *r, FILE *out,
		   const struct pt_text_opts *o)
{
	struct pt_tx *t = pt_tx_begin(out, o);

	if (!t)
		return -ENOMEM;

	pt_tx_verdicts(t, r);
	if (t->o.quiet)
		return pt_tx_end(t);
	pt_tx_put(t, "\n");
	target_line(t, r);
	labels_line(t, r);
	thresholds_line(t, r);
	loader_line(t, &r->loader);
	pt_tx_time(t, &r->breakdown);
	host_line(t, &r->breakdown);
	for (size_t i = 0; i < r->n_gpu; i++)
		pt_tx_gpu(t, &r->gpu[i]);
	if (!r->n_gpu) {
		pt_tx_label(t, "GPU");
		pt_tx_put(t, "unknown: no GPU call was seen\n");
	}
	wait_lines(t, r);
	step_lines(t, &r->steps);
	phases_line(t, r);
	if (t->o.verbose)
		memory_line(t, r);
	pt_tx_windows(t, r);
	pt_tx_ranks(t, r);
	pt_tx_workers(t, r);
	pt_tx_lines(t, r);
	pt_tx_disks(t, r);
	pt_tx_peers(t, r);
	pt_tx_whatif(t, r);
	if (t->o.print_steps > 0)
		pt_tx_step_table(t, r);
	if (t->o.verbose)
		pt_tx_epochs(t, r);
	if (t->o.verbose || t->o.files) {
		pt_tx_files(t, r);
		pt_tx_mapped(t, r);
	}
	if (t->o.verbose)
		pt_tx_writes(t, r);
	if (t->o.verbose || t->o.operations)
		pt_tx_operations(t, r);
	pt_tx_put(t, "\n");
	pt_tx_capture(t, r);
	return pt_tx_end(t);
}
