// SPDX-License-Identifier: BSD-2-Clause
/* The panes that are tables: workers, files, operations, jobs. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "report/rowsort.h"
#include "view/top/pane.h"

typedef int (*row_cmp)(const struct pt_report *r, size_t sort, size_t a, size_t b);

struct order {
	const struct pt_report *r;
	size_t sort;
	row_cmp cmp;
	bool reverse;
};

static int by_order(const void *a, const void *b, void *ctx)
{
	const struct order *o = ctx;
	size_t x = *(const size_t *)a, y = *(const size_t *)b;
	int d = o->cmp(o->r, o->sort, x, y);

	if (d)
		return o->reverse ? -d : d;
	return x < y ? -1 : x > y;
}

/* The order of `n` rows: indices, by `cmp` of two rows for a sort key, the pane's
 * direction applied; equal rows stay in the report's order. The caller frees it;
 * NULL: no memory. */
static size_t *order_of(const struct pt_top *v, enum pt_top_pane pane, size_t n,
			row_cmp cmp)
{
	struct order o = { v->report, v->p[pane].sort, cmp, v->p[pane].reverse };
	size_t *rows = n ? calloc(n, sizeof(*rows)) : NULL;
	size_t i;

	if (!rows)
		return NULL;
	for (i = 0; i < n; i++)
		rows[i] = i;
	qsort_r(rows, n, sizeof(*rows), by_order, &o);
	return rows;
}

/* From A to Z, unknown last. */
static int by_text(const char *a, const char *b)
{
	if (!a || !b)
		return !a - !b;
	return strcmp(a, b);
}

/* The line of titles, the one sorted by marked. */
static void titles(struct pt_tx *t, const struct pt_top *v,
		   enum pt_top_pane pane, const struct pt_tx_col *c, size_t n)
{
	const char *down = t->o.unicode ? "\xe2\x96\xbe" : "v";
	const char *up = t->o.unicode ? "\xe2\x96\xb4" : "^";

	for (size_t i = 0; i < n; i++) {
		bool mark = c[i].sort && v->p[pane].sort + 1 == (size_t)c[i].sort;
		int blanks = abs(c[i].cols) - (int)pt_str_cols(c[i].title) - mark;

		pt_tx_cell(t, "", c[i].cols > 0 ? blanks : 0, false);
		pt_tx_styled(t, mark ? PT_ST_BOLD : PT_ST_DIM,
			     pt_tx_fmt(t, "%s%s", c[i].title,
				       !mark ? "" : v->p[pane].reverse ? up : down));
		pt_tx_cell(t, "", c[i].cols > 0 ? 0 : blanks, false);
	}
	pt_tx_put(t, "\n");
}

/* ---- workers --------------------------------------------------------------- */

/* In a narrow terminal the bar says what the columns of reads do. */
#define NARROW 100
#define STATE_COLS 13
#define READS_COLS 18
#define BAR_AT (57 + READS_COLS) /* columns before the bars */

typedef struct pt_r_worker row_t;
static const struct pt_tx_col worker_cols[] = {
	PT_TX_TITLE("pid", -9, .sort = 1 + PT_WORKER_PID), PT_TX_TITLE("role", -8),
	PT_TX_COL("batches", 9, INT, batches, .sort = 1 + PT_WORKER_BATCHES),
	PT_TX_COL("p50 ms", 9, MS, batch_ms.p50, .dist = 1 + offsetof(row_t, batch_ms),
		  .sort = 1 + PT_WORKER_P50),
	PT_TX_STAT("p95 ms", 9, batch_ms, p95),
	PT_TX_COL("read", 11, SIZE, read_bytes, .sort = 1 + PT_WORKER_READ),
	PT_TX_TITLE("disk", 7, .sort = 1 + PT_WORKER_DISK),
	PT_TX_TITLE("  state", -STATE_COLS, .sort = 1 + PT_WORKER_SLOWDOWN), PT_TX_TITLE("time", 0),
};
#define FIGURES_AT 2
#define READS_AT 5
#define STATE_AT 7

static int worker_cmp(const struct pt_report *r, size_t sort, size_t x, size_t y)
{
	return pt_worker_cmp((enum pt_worker_sort)sort, &r->workers[x],
			     &r->workers[y]);
}

static void worker_row(struct pt_tx *t, const struct pt_r_worker *w)
{
	bool bad = w->state == PT_WORKER_SLOW || w->state == PT_WORKER_HUNG;
	bool narrow = t->width < NARROW;
	int bar = t->width - BAR_AT + (narrow ? READS_COLS : 0);
	char state[32];

	pt_tx_cell(t, pt_tx_id(t, w->tid != PT_NULL ? w->tid : w->pid), 9, false);
	pt_tx_cell(t, pt_tx_esc(t, w->role ? w->role : "?", 8), 8, false);
	pt_tx_cells(t, worker_cols + FIGURES_AT, READS_AT - FIGURES_AT + !narrow, w);
	if (!narrow)
		pt_tx_cell(t, pt_tx_pct(t, w->window > 0 ? w->disk / w->window : NAN), 7, true);
	snprintf(state, sizeof(state), "%s", pt_worker_state_name(w->state));
	if (w->state == PT_WORKER_SLOW && isfinite(w->slowdown))
		snprintf(state, sizeof(state), "slow %.1fx", w->slowdown);
	pt_tx_put(t, "  ");
	pt_tx_styled(t, bad ? PT_ST_RED : PT_ST_NONE, state);
	pt_tx_cell(t, "", STATE_COLS - 2 - (int)strlen(state), false);
	if (bar >= 4)
		pt_tx_worker_bar(t, w, bar);
	pt_tx_put(t, "\n");
}

static size_t worker_draw(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_report *r = v->report;
	struct pt_tx_col few[sizeof(worker_cols) / sizeof(*worker_cols) + READS_AT - STATE_AT];
	size_t *order;

	if (!r->n_workers) {
		pt_tx_put(t, "No loader worker was seen in this window: the "
			     "trainer loads its data itself, or no batch "
			     "came.\n");
		return 0;
	}
	pt_tx_worker_legend(t);
	memcpy(few, worker_cols, READS_AT * sizeof(*worker_cols));
	memcpy(few + READS_AT, worker_cols + STATE_AT,
	       sizeof(worker_cols) - STATE_AT * sizeof(*worker_cols));
	if (t->width < NARROW)
		titles(t, v, PT_TOP_WORKERS, PT_TX_COLS(few));
	else
		titles(t, v, PT_TOP_WORKERS, PT_TX_COLS(worker_cols));
	order = order_of(v, PT_TOP_WORKERS, r->n_workers, worker_cmp);
	for (size_t i = 0; i < r->n_workers; i++)
		worker_row(t, &r->workers[order ? order[i] : i]);
	free(order);
	return 2;
}

const struct pt_pane pt_pane_workers = { "Workers", worker_draw, pt_worker_sorts,
					 PT_WORKER_SORTS, false };

/* ---- files ----------------------------------------------------------------- */

static int file_cmp(const struct pt_report *r, size_t sort, size_t x, size_t y)
{
	return pt_file_cmp((enum pt_file_sort)sort, &r->files[x], &r->files[y]);
}

static size_t file_draw(struct pt_tx *t, const struct pt_top *v)
{
	typedef struct pt_r_file row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("bytes", 11, SIZE, bytes, .sort = 1 + PT_FILE_BYTES),
		PT_TX_COL("reads", 9, INT, reads, .sort = 1 + PT_FILE_READS),
		PT_TX_COL("blocked", 10, SEC, blocked_s, .sort = 1 + PT_FILE_BLOCKED),
		PT_TX_COL("p99 ms", 9, MS, p99_ms, .sort = 1 + PT_FILE_P99),
		PT_TX_COL("again", 11, SIZE, reread_bytes, .sort = 1 + PT_FILE_AGAIN),
		PT_TX_COL("cached", 8, PCT, cached_share),
		PT_TX_TITLE("  path", 0, .sort = 1 + PT_FILE_PATH),
	};
	const struct pt_report *r = v->report;
	const struct pt_r_file *f;
	size_t *order;

	if (!r->n_files) {
		pt_tx_put(t, "No read of a file was seen in this window. "
			     "(doctor says which reads can be seen here.)\n");
		return 0;
	}
	titles(t, v, PT_TOP_FILES, PT_TX_COLS(cols));
	order = order_of(v, PT_TOP_FILES, r->n_files, file_cmp);
	for (size_t i = 0; i < r->n_files; i++) {
		f = &r->files[order ? order[i] : i];
		pt_tx_cells(t, PT_TX_COLS(cols), f);
		pt_tx_printf(t, "  %s\n", pt_tx_path(t, f->path, pt_tx_room(t, 60)));
	}
	free(order);
	return 1;
}

const struct pt_pane pt_pane_files = { "Files", file_draw, pt_file_sorts,
				       PT_FILE_SORTS, false };

/* ---- operations ------------------------------------------------------------ */

enum { BY_TOTAL, BY_CALLS, BY_MEAN, BY_P99, BY_NAME, SORTS };
static const char *const operation_sorts[SORTS] = { "total", "calls", "mean", "p99",
					  "name" };

static int operation_cmp(const struct pt_report *r, size_t sort, size_t x, size_t y)
{
	const struct pt_r_operation *a = &r->operations[x];
	const struct pt_r_operation *b = &r->operations[y];

	switch (sort) {
	case BY_CALLS:
		return pt_larger((double)a->calls, (double)b->calls);
	case BY_MEAN:
		return pt_larger(a->mean_us, b->mean_us);
	case BY_P99:
		return pt_larger(a->p99_us, b->p99_us);
	case BY_NAME:
		return by_text(a->name, b->name);
	default:
		return pt_larger(a->total_s, b->total_s);
	}
}

static size_t operation_draw(struct pt_tx *t, const struct pt_top *v)
{
	typedef struct pt_r_operation row_t;
	static const struct pt_tx_col cols[] = {
		PT_TX_COL("kind", -7, TEXT, kind),
		PT_TX_COL("calls", 10, INT, calls, .sort = 1 + BY_CALLS),
		PT_TX_COL("total", 10, SEC, total_s, .sort = 1 + BY_TOTAL),
		PT_TX_COL("mean us", 10, MS, mean_us, .sort = 1 + BY_MEAN),
		PT_TX_COL("p99 us", 10, MS, p99_us, .sort = 1 + BY_P99),
		PT_TX_COL("share", 8, PCT, share),
		PT_TX_TITLE("   name", 0, .sort = 1 + BY_NAME),
	};
	const struct pt_report *r = v->report;
	const struct pt_r_operation *p;
	size_t *order;

	if (!r->n_operations) {
		pt_tx_put(t, "No GPU call was seen in this window.\n");
		return 0;
	}
	titles(t, v, PT_TOP_OPERATIONS, PT_TX_COLS(cols));
	order = order_of(v, PT_TOP_OPERATIONS, r->n_operations, operation_cmp);
	for (size_t i = 0; i < r->n_operations; i++) {
		p = &r->operations[order ? order[i] : i];
		pt_tx_cells(t, PT_TX_COLS(cols), p);
		pt_tx_printf(t, " %c %s\n",
			     isfinite(p->total_s) && p->certainty != PT_MEASURED ? '~' : ' ',
			     pt_tx_middle(t, p->name, pt_tx_room(t, 58)));
	}
	free(order);
	pt_tx_put(t, "api and nvtx: time on the host; other rows: time on the device; "
		     "~: estimated\n");
	return 1;
}

const struct pt_pane pt_pane_operations = { "Operations", operation_draw, operation_sorts, SORTS,
					    false };

/* ---- jobs ------------------------------------------------------------------ */

static const struct pt_tx_col job_cols[] = {
	PT_TX_TITLE("  pid", -10), PT_TX_TITLE("user", -13), PT_TX_TITLE("GPU library", -23), PT_TX_TITLE("GPU", -5), PT_TX_TITLE("rank", -6),
	PT_TX_TITLE("command", 0),
};

/* What is known of the job that is traced: its first verdict. */
static void job_verdict(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_report *r = v->report;

	if (!r || !r->n_verdicts)
		return;
	pt_tx_put(t, "          ");
	pt_tx_put(t, pt_tx_esc(t, r->verdicts[0].title, (size_t)t->width - 10));
	pt_tx_put(t, "\n");
}

static size_t job_draw(struct pt_tx *t, const struct pt_top *v)
{
	if (!v->n_jobs) {
		pt_tx_put(t, "No process has a GPU library (CUDA, HIP, NCCL) "
			     "mapped. Jobs show up here as they start.\n");
		return 0;
	}
	titles(t, v, PT_TOP_JOBS, PT_TX_COLS(job_cols));
	for (size_t i = 0; i < v->n_jobs; i++) {
		const struct pt_top_job *j = &v->jobs[i];
		bool here = i == v->p[PT_TOP_JOBS].chosen;
		char id[16];

		/* the mark shows without colours too */
		snprintf(id, sizeof(id), "%c%c%d", here ? '>' : ' ',
			 j->pid == v->traced ? '*' : ' ', j->pid);
		if (here)
			pt_tx_style_on(t, PT_ST_REVERSE);
		pt_tx_cell(t, id, 10, false);
		pt_tx_cell(t, pt_tx_esc(t, j->user, 12), 13, false);
		pt_tx_cell(t, pt_tx_esc(t, j->lib, 22), 23, false);
		pt_tx_cell(t, pt_tx_esc(t, j->devices, 4), 5, false);
		pt_tx_cell(t, pt_tx_esc(t, j->rank, 5), 6, false);
		pt_tx_cell(t, pt_tx_esc(t, j->cmd, (size_t)t->width - 57),
			   t->width - 57, false);
		if (here)
			pt_tx_style_off(t);
		pt_tx_put(t, "\n");
		if (j->pid == v->traced)
			job_verdict(t, v);
	}
	if (v->jobs_hidden)
		pt_tx_put(t, "Processes of other users could not be looked at.\n");
	return 1;
}

const struct pt_pane pt_pane_jobs = { "Jobs", job_draw, NULL, 0, true };
