/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of the text report. */
#include <math.h>
#include <string.h>

#include "view/text/blocks.h"

#define WORKERS_SHOWN 12
#define ROWS_SHOWN 10
/* Lines from here on have room for the order in which a file is read. */
#define ORDER_WIDTH 92
#define BAR_MIN 12
#define BAR_MAX 60

enum { W_CPU, W_RUNQ, W_DISK, W_OTHER, W_IDLE, W_PARTS };

static const struct {
	const char *name, *unicode;
	char ascii;
	enum pt_tx_style style;
} worker_parts[W_PARTS] = {
	[W_CPU] = { "CPU", "\xe2\x96\x88", '#', PT_ST_GREEN },
	[W_RUNQ] = { "run queue", "\xe2\x96\x93", 'r', PT_ST_YELLOW },
	[W_DISK] = { "disk", "\xe2\x96\x92", 'd', PT_ST_RED },
	[W_OTHER] = { "other waits", "\xe2\x96\x9e", 'o', PT_ST_MAGENTA },
	[W_IDLE] = { "idle", "\xe2\x96\x91", '.', PT_ST_DIM },
};

size_t pt_tx_rows(const struct pt_tx *t, size_t usual, size_t n)
{
	if (t->o.top)
		usual = t->o.top < 0 ? n : (size_t)t->o.top;
	return usual < n ? usual : n;
}

void pt_tx_more(struct pt_tx *t, size_t shown, size_t n)
{
	if (n > shown)
		pt_tx_printf(t, "%*sand %zu more\n", PT_TX_LABEL + 2, "", n - shown);
}

/* Sum of what is known; NAN when nothing is. */
static double known_sum(const double *v, size_t n)
{
	double sum = NAN;

	for (size_t i = 0; i < n; i++)
		if (isfinite(v[i]))
			sum = (isfinite(sum) ? sum : 0) + v[i];
	return sum;
}

void pt_tx_worker_bar(struct pt_tx *t, const struct pt_r_worker *w, int cols)
{
	const double disk[] = { w->disk, w->page_fault };
	const double waits[] = { w->throttle, w->network, w->lock, w->ipc,
				 w->other };
	const double idle[] = { w->worker_idle, w->prefetch_full };
	const double parts[W_PARTS] = {
		[W_CPU] = w->cpu,	    [W_RUNQ] = w->run_queue,
		[W_DISK] = known_sum(disk, 2),
		[W_OTHER] = known_sum(waits, 5),
		[W_IDLE] = known_sum(idle, 2),
	};
	double window = w->window, sum = known_sum(parts, W_PARTS);
	struct pt_bar_part bar[W_PARTS];

	if (!isfinite(window) || window <= 0)
		window = sum;
	if (!isfinite(sum) || !(window > 0)) {
		pt_tx_cell(t, "unknown", cols, false);
		return;
	}
	for (size_t i = 0; i < W_PARTS; i++)
		bar[i] = (struct pt_bar_part){ parts[i] / window,
					       worker_parts[i].unicode,
					       worker_parts[i].ascii,
					       worker_parts[i].style };
	pt_tx_bar(t, bar, W_PARTS, cols);
}

static bool is_bad(const struct pt_r_worker *w)
{
	return w->state == PT_WORKER_SLOW || w->state == PT_WORKER_HUNG;
}

static const char *worker_id(struct pt_tx *t, const struct pt_r_worker *w)
{
	if (w->tid == PT_NULL || w->tid == w->pid)
		return pt_tx_id(t, w->pid);
	return pt_tx_esc(t, pt_tx_fmt(t, "%s/%s", pt_tx_id(t, w->pid), pt_tx_id(t, w->tid)), 24);
}

static void worker_row(struct pt_tx *t, const struct pt_r_worker *w, int id_cols,
		       int bar_cols)
{
	const double nothing = NAN;
	bool timed = w->batch_ms.n > 0;

	pt_tx_put(t, "  ");
	pt_tx_cell(t, worker_id(t, w), id_cols, false);
	pt_tx_put(t, " ");
	pt_tx_cell(t, pt_tx_esc(t, w->role ? w->role : "?", 8), 8, false);
	pt_tx_cell(t, pt_tx_int(t, w->batches), 8, true);
	pt_tx_cell(t, pt_tx_ms(t, timed ? w->batch_ms.p50 : nothing), 8, true);
	pt_tx_cell(t, pt_tx_ms(t, timed ? w->batch_ms.p95 : nothing), 8, true);
	pt_tx_put(t, "  ");
	pt_tx_worker_bar(t, w, bar_cols);
	pt_tx_put(t, " ");
	pt_tx_styled(t, is_bad(w) ? PT_ST_RED : PT_ST_NONE,
		     pt_worker_state_name(w->state));
	if (isfinite(w->slowdown) && w->state == PT_WORKER_SLOW)
		pt_tx_printf(t, " %.1fx", w->slowdown);
	pt_tx_put(t, "\n");
}

void pt_tx_worker_legend(struct pt_tx *t)
{
	struct pt_line l = { .n = 0 };

	for (size_t i = 0; i < W_PARTS; i++) {
		char ascii[2] = { worker_parts[i].ascii, '\0' };

		pt_line_item(t, &l, "%s" NB "%s",
			     t->o.unicode ? worker_parts[i].unicode : ascii,
			     worker_parts[i].name);
	}
	pt_tx_line(t, "Workers", &l);
}

void pt_tx_workers(struct pt_tx *t, const struct pt_report *r)
{
	size_t max = pt_tx_rows(t, t->o.verbose ? r->n_workers : WORKERS_SHOWN,
				r->n_workers), bad = 0;
	size_t good, left_bad, left_good, hidden;
	int id_cols = 6, bar_cols;

	if (!r->n_workers)
		return;
	for (size_t i = 0; i < r->n_workers; i++) {
		int n = (int)strlen(worker_id(t, &r->workers[i]));

		bad += is_bad(&r->workers[i]);
		if (n > id_cols)
			id_cols = n;
	}
	/* where not all fit, those in trouble come before healthy ones */
	left_bad = bad < max ? bad : max;
	good = r->n_workers - bad;
	left_good = good < max - left_bad ? good : max - left_bad;
	hidden = r->n_workers - left_bad - left_good;

	bar_cols = t->width - id_cols - 47;
	bar_cols = bar_cols < BAR_MIN ? BAR_MIN :
		   bar_cols > BAR_MAX ? BAR_MAX : bar_cols;
	pt_tx_worker_legend(t);
	pt_tx_put(t, "  ");
	pt_tx_cell(t, "pid", id_cols, false);
	pt_tx_put(t, " role     batches  p50 ms  p95 ms  ");
	pt_tx_cell(t, "time", bar_cols, false);
	pt_tx_put(t, " state\n");
	for (size_t i = 0; i < r->n_workers; i++) {
		size_t *left = is_bad(&r->workers[i]) ? &left_bad : &left_good;

		if (!*left)
			continue;
		(*left)--;
		worker_row(t, &r->workers[i], id_cols, bar_cols);
	}
	if (hidden)
		pt_tx_printf(t, "  and %zu more\n", hidden);
}

/* In few words; nothing where it is nobody's business. */
static const char *late_reason(const struct pt_r_meetings *m, double wall)
{
	if (!m->reason || !(m->lost >= 0.01 * wall))
		return "";
	return !strcmp(m->reason, "data_wait") ? "data wait" :
	       !strcmp(m->reason, "gpu") ? "GPU work" : m->reason;
}

void pt_tx_ranks(struct pt_tx *t, const struct pt_report *r)
{
	bool meet = false;

	if (!r->n_ranks)
		return;
	pt_tx_label(t, "Ranks");
	for (size_t i = 0; i < r->n_ranks; i++)
		meet |= r->ranks[i].meetings.count > 0;
	pt_tx_put(t, "rank  pid         steps  data wait  GPU busy");
	pt_tx_put(t, meet ? "  last  held others  why\n" : "\n");
	for (size_t i = 0; i < r->n_ranks; i++) {
		const struct pt_r_rank *k = &r->ranks[i];

		pt_tx_label(t, NULL);
		pt_tx_cell(t, pt_tx_id(t, k->rank), 6, false);
		pt_tx_cell(t, pt_tx_id(t, k->pid), 9, false);
		pt_tx_cell(t, pt_tx_int(t, k->steps), 8, true);
		pt_tx_cell(t,
			   pt_tx_pct(t, k->breakdown.known ?
						k->breakdown.data_wait.share :
						NAN),
			   11, true);
		pt_tx_cell(t, pt_tx_pct(t, k->gpu_busy_share), 10, true);
		if (k->meetings.count > 0) {
			pt_tx_cell(t, pt_tx_pct(t, k->meetings.last_share), 6,
				   true);
			pt_tx_cell(t, pt_tx_sec(t, k->meetings.lost), 13, true);
			pt_tx_printf(t, "  %s", late_reason(&k->meetings,
						  r->capture.duration));
		}
		pt_tx_put(t, "\n");
	}
}

void pt_tx_step_table(struct pt_tx *t, const struct pt_report *r)
{
	const struct pt_r_steps *s = &r->steps;
	size_t n = (size_t)t->o.print_steps;

	pt_tx_label(t, "Step list");
	if (!s->n_list) {
		pt_tx_put(t, "unknown: no step was found\n");
		return;
	}
	pt_tx_put(t, "times in ms\n");
	pt_tx_put(t, "    step   at s    period  data wait  GPU wait  blocked  "
		     "worker   cause\n");
	for (size_t i = 0; i < s->n_list && i < n; i++) {
		const struct pt_r_step *x = &s->list[i];
		bool placed = x->begin_ns != PT_NULL &&
			      r->capture.begin_ns != PT_NULL;
		double at = placed ? ((double)x->begin_ns -
				      (double)r->capture.begin_ns) / 1e9 :
				     NAN;
		char at_s[48];

		snprintf(at_s, sizeof(at_s), "%.3f", at);
		pt_tx_cell(t, pt_tx_int(t, x->index), 8, true);
		pt_tx_cell(t, placed ? at_s : pt_tx_dash(t), 8, true);
		pt_tx_cell(t, pt_tx_ms(t, x->period_ms), 9, true);
		pt_tx_cell(t, pt_tx_ms(t, x->data_wait_ms), 11, true);
		pt_tx_cell(t, pt_tx_ms(t, x->gpu_wait_ms), 10, true);
		pt_tx_cell(t, x->blocked ? "yes" : "no", 9, true);
		pt_tx_put(t, "  ");
		pt_tx_cell(t, pt_tx_id(t, x->worker), 9, false);
		pt_tx_printf(t, "%s\n", x->cause == PT_CAUSE_UNKNOWN ?
						pt_tx_dash(t) :
						pt_tx_cause(x->cause));
	}
	if (s->n_list > n)
		pt_tx_printf(t, "  and %s more\n",
			     pt_tx_int(t, (int64_t)(s->n_list - n)));
}

void pt_tx_epochs(struct pt_tx *t, const struct pt_report *r)
{
	typedef struct pt_r_epoch row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("epoch", 8, INT, index), PT_TX_COL("batches", 8, INT, batches),
		PT_TX_COL("total", 10, SEC, total), PT_TX_STAT("mean", 9, period_ms, mean),
		PT_TX_STAT("std", 9, period_ms, std), PT_TX_STAT("min", 9, period_ms, min),
		PT_TX_STAT("max", 9, period_ms, max), PT_TX_COL("first", 9, MS, first_ms),
	};

	if (!r->steps.n_epochs)
		return;
	pt_tx_label(t, "Epochs");
	pt_tx_put(t, "times in ms\n");
	pt_tx_titles(t, PT_TX_COLS(cols));
	pt_tx_put(t, "\n");
	for (size_t i = 0; i < r->steps.n_epochs; i++) {
		pt_tx_cells(t, PT_TX_COLS(cols), &r->steps.epochs[i]);
		pt_tx_put(t, "\n");
	}
}

void pt_tx_files(struct pt_tx *t, const struct pt_report *r)
{
	typedef struct pt_r_file row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("opens", 8, INT, opens), PT_TX_COL("reads", 9, INT, reads),
		PT_TX_COL("bytes", 12, SIZE, bytes), PT_TX_COL("read s", 10, SEC, read_s),
		PT_TX_COL("blocked", 9, SEC, blocked_s), PT_TX_COL("order", 12, TEXT, pattern.kind),
	};
	size_t n = pt_tx_rows(t, ROWS_SHOWN, r->n_files);
	/* the path is worth more than the order of its reads */
	bool order = t->width >= ORDER_WIDTH;
	size_t shown = order ? 6 : 5;

	if (!n)
		return;
	pt_tx_label(t, "Files");
	pt_tx_titles(t, cols, shown);
	pt_tx_put(t, "  path\n");
	for (size_t i = 0; i < n; i++) {
		pt_tx_label(t, NULL);
		pt_tx_cells(t, cols, shown, &r->files[i]);
		pt_tx_printf(t, "  %s\n", pt_tx_path(t, r->files[i].path,
						     pt_tx_room(t, order ? 72 : 60)));
	}
	pt_tx_more(t, n, r->n_files);
}

/* A program's or library's own code beside the data. */
static bool is_text(const struct pt_r_file *f)
{
	return f->text != PT_NULL && f->text;
}

/* Mapped files: what page faults on them fetched and how long they waited. */
void pt_tx_mapped(struct pt_tx *t, const struct pt_report *r)
{
	typedef struct pt_r_file row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("faults", 8, INT, faults), PT_TX_COL("fetched", 13, SIZE, fault_bytes),
		PT_TX_COL("waited", 9, SEC, fault_s),
	};
	size_t shown = 0, n = 0;

	for (size_t i = 0; i < r->n_files; i++) {
		const struct pt_r_file *f = &r->files[i];

		if (f->faults == PT_NULL || !f->faults || n++ >= ROWS_SHOWN)
			continue;
		if (!shown++) {
			pt_tx_label(t, "Mapped");
			pt_tx_titles(t, PT_TX_COLS(cols));
			pt_tx_put(t, "  path\n");
		}
		pt_tx_label(t, NULL);
		pt_tx_cells(t, PT_TX_COLS(cols), f);
		pt_tx_printf(t, "  %s%s\n", pt_tx_path(t, f->path, pt_tx_room(t, 52)),
			     is_text(f) ? " (program)" : "");
	}
	pt_tx_more(t, shown, n);
}

#define NAME_AT 56 /* columns before the names */

void pt_tx_operations(struct pt_tx *t, const struct pt_report *r)
{
	typedef struct pt_r_operation row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("kind", -7, TEXT, kind), PT_TX_COL("calls", 10, INT, calls),
		PT_TX_COL("total", 9, SEC, total_s), PT_TX_COL("mean us", 9, MS, mean_us),
		PT_TX_COL("p99 us", 9, MS, p99_us), PT_TX_COL("share", 7, PCT, share),
	};
	size_t n = pt_tx_rows(t, ROWS_SHOWN, r->n_operations);

	if (!n)
		return;
	pt_tx_styled(t, PT_ST_BOLD, "Operations");
	if (n < r->n_operations)
		pt_tx_printf(t, "  %zu of %zu", n, r->n_operations);
	pt_tx_printf(t, "%sby %s\n", n < r->n_operations ? ", " : "  ",
		     pt_op_sort_name(t->o.sort));
	pt_tx_put(t, "  api and nvtx: time on the host; other rows: time on the device; "
		     "~: estimated\n  ");
	pt_tx_titles(t, PT_TX_COLS(cols));
	pt_tx_put(t, "   name\n");
	for (size_t i = 0; i < n; i++) {
		const struct pt_r_operation *p = &r->operations[i];
		/* an estimate is marked, so that nobody takes it for a measurement */
		bool guess = isfinite(p->total_s) && p->certainty != PT_MEASURED;

		pt_tx_put(t, "  ");
		pt_tx_cells(t, PT_TX_COLS(cols), p);
		pt_tx_printf(t, "%s %s\n", guess ? "~ " : "  ",
			     pt_tx_middle(t, p->name, (size_t)t->width - NAME_AT));
	}
	if (r->n_operations > n)
		pt_tx_printf(t, "  and %zu more (--top 0 lists all)\n", r->n_operations - n);
}

/* ---- the parts of a capture that were judged each by itself, a line each ---------- */

#define WINDOWS_SHOWN 24

struct all { /* over the parts; times weigh them */
	double seconds, waited, starved;
	int64_t steps;
	bool waits, starves;
};

static void add_window(struct all *k, const struct pt_r_window *w)
{
	k->seconds += w->duration;
	k->steps += w->steps > 0 ? w->steps : 0;
	k->waits &= isfinite(w->data_wait_share);
	k->starves &= isfinite(w->starved_share);
	k->waited += w->duration * w->data_wait_share;
	k->starved += w->duration * w->starved_share;
}

void pt_tx_windows(struct pt_tx *t, const struct pt_report *r)
{
	typedef struct pt_r_window row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("from", 10, SEC, at), PT_TX_COL("long", 9, SEC, duration),
		PT_TX_COL("steps", 8, INT, steps), PT_TX_COL("mean ms", 9, MS, step_ms),
		PT_TX_COL("p95 ms", 9, MS, step_p95_ms),
		PT_TX_COL("data wait", 10, PCT, data_wait_share),
		PT_TX_COL("starved", 9, PCT, starved_share),
		PT_TX_COL("GPU busy", 9, PCT, gpu_busy_share),
	};
	struct all k = { .waits = true, .starves = true };
	size_t i, from = r->n_windows > WINDOWS_SHOWN ? r->n_windows - WINDOWS_SHOWN : 0;
	size_t reported = 0;

	if (!r->n_windows)
		return;
	for (i = 0; i < r->n_windows; i++) {
		add_window(&k, &r->windows[i]);
		reported += r->windows[i].reported;
	}
	pt_tx_label(t, "Parts");
	pt_tx_printf(t, "%zu, %s, %s steps; waiting for data %s, GPU starved "
		     "~%s of it\n", r->n_windows, pt_tx_sec(t, k.seconds),
		     pt_tx_int(t, k.steps),
		     pt_tx_pct(t, k.waits ? k.waited / k.seconds : NAN),
		     pt_tx_pct(t, k.starves ? k.starved / k.seconds : NAN));
	pt_tx_titles(t, PT_TX_COLS(cols));
	pt_tx_put(t, "  first verdict\n");
	if (from)
		pt_tx_printf(t, "%*sthe first %zu are in the JSON\n",
			     PT_TX_LABEL + 2, "", from);
	for (i = from; i < r->n_windows; i++) {
		const struct pt_r_window *w = &r->windows[i];

		pt_tx_cells(t, PT_TX_COLS(cols), w);
		pt_tx_printf(t, "  %s%s\n", w->n_verdicts && w->verdicts[0] ? w->verdicts[0] : "-",
			     w->reported && reported < r->n_windows ? " (this report)" : "");
	}
}
