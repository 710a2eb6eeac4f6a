// SPDX-License-Identifier: BSD-2-Clause
#include <stdlib.h>

#include "report/rowsort.h"
#include "view/top/pane.h"

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

static int cmp(const struct pt_report *r, size_t sort, size_t x, size_t y)
{
	return pt_file_cmp((enum pt_file_sort)sort, &r->files[x], &r->files[y]);
}

static size_t draw(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_report *r = v->report;
	const struct pt_r_file *f;
	size_t *order;

	if (!r->n_files) {
		pt_tx_put(t, "No read of a file was seen in this window. "
			     "(doctor says which reads can be seen here.)\n");
		return 0;
	}
	pt_top_titles(t, v, PT_TOP_FILES, PT_TX_COLS(cols));
	order = pt_top_order(v, PT_TOP_FILES, r->n_files, cmp);
	for (size_t i = 0; i < r->n_files; i++) {
		f = &r->files[order ? order[i] : i];
		pt_tx_cells(t, PT_TX_COLS(cols), f);
		pt_tx_printf(t, "  %s\n", pt_tx_path(t, f->path, (size_t)t->width - 60));
	}
	free(order);
	return 1;
}

const struct pt_pane pt_pane_files = { "Files", draw, pt_file_sorts,
				       PT_FILE_SORTS, false };
