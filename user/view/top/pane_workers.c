// SPDX-License-Identifier: BSD-2-Clause
#include <stdlib.h>
#include <string.h>

#include "report/rowsort.h"
#include "view/top/pane.h"

/* In a narrow terminal the bar says what the columns of reads do. */
#define NARROW 100
#define STATE_COLS 13
#define READS_COLS 18
#define BAR_AT (57 + READS_COLS) /* columns before the bars */

typedef struct pt_r_worker row_t;
static const struct pt_tx_col cols[] = {
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

static int cmp(const struct pt_report *r, size_t sort, size_t x, size_t y)
{
	return pt_worker_cmp((enum pt_worker_sort)sort, &r->workers[x],
			     &r->workers[y]);
}

static void row(struct pt_tx *t, const struct pt_r_worker *w)
{
	bool bad = w->state == PT_WORKER_SLOW || w->state == PT_WORKER_HUNG;
	bool narrow = t->width < NARROW;
	int bar = t->width - BAR_AT + (narrow ? READS_COLS : 0);
	char state[32];

	pt_tx_cell(t, pt_tx_id(t, w->tid != PT_NULL ? w->tid : w->pid), 9, false);
	pt_tx_cell(t, pt_tx_esc(t, w->role ? w->role : "?", 8), 8, false);
	pt_tx_cells(t, cols + FIGURES_AT, READS_AT - FIGURES_AT + !narrow, w);
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

static size_t draw(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_report *r = v->report;
	struct pt_tx_col few[sizeof(cols) / sizeof(*cols) + READS_AT - STATE_AT];
	size_t *order;

	if (!r->n_workers) {
		pt_tx_put(t, "No loader worker was seen in this window: the "
			     "trainer loads its data itself, or no batch "
			     "came.\n");
		return 0;
	}
	pt_tx_worker_legend(t);
	memcpy(few, cols, READS_AT * sizeof(*cols));
	memcpy(few + READS_AT, cols + STATE_AT, sizeof(cols) - STATE_AT * sizeof(*cols));
	if (t->width < NARROW)
		pt_top_titles(t, v, PT_TOP_WORKERS, PT_TX_COLS(few));
	else
		pt_top_titles(t, v, PT_TOP_WORKERS, PT_TX_COLS(cols));
	order = pt_top_order(v, PT_TOP_WORKERS, r->n_workers, cmp);
	for (size_t i = 0; i < r->n_workers; i++)
		row(t, &r->workers[order ? order[i] : i]);
	free(order);
	return 2;
}

const struct pt_pane pt_pane_workers = { "Workers", draw, pt_worker_sorts,
					 PT_WORKER_SORTS, false };
