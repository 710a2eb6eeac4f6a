// SPDX-License-Identifier: BSD-2-Clause
#include <stdlib.h>

#include "report/rowsort.h"
#include "view/top/pane.h"

static const struct pt_col cols[] = {
	{ "bytes", 11, true, PT_FILE_BYTES },   { "reads", 9, true, PT_FILE_READS },
	{ "blocked", 10, true, PT_FILE_BLOCKED }, { "p99 ms", 9, true, PT_FILE_P99 },
	{ "again", 11, true, PT_FILE_AGAIN },   { "cached", 8, true, -1 },
	{ "  path", 0, false, PT_FILE_PATH },
};

static int cmp(const struct pt_report *r, size_t sort, size_t x, size_t y)
{
	return pt_file_cmp((enum pt_file_sort)sort, &r->files[x], &r->files[y]);
}

static double bytes(int64_t v)
{
	return v == PT_NULL ? NAN : (double)v;
}

static void row(struct pt_tx *t, const struct pt_r_file *f)
{
	pt_tx_cell(t, pt_tx_bytes(t, bytes(f->bytes)), 11, true);
	pt_tx_cell(t, pt_tx_int(t, f->reads), 9, true);
	pt_tx_cell(t, pt_tx_sec(t, f->blocked_s), 10, true);
	pt_tx_cell(t, pt_tx_ms(t, f->p99_ms), 9, true);
	pt_tx_cell(t, pt_tx_bytes(t, bytes(f->reread_bytes)), 11, true);
	pt_tx_cell(t, pt_tx_pct(t, f->cached_share), 8, true);
	pt_tx_printf(t, "  %s\n", pt_tx_path(t, f->path, (size_t)t->width - 60));
}

static size_t draw(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_report *r = v->report;
	size_t *order;

	if (!r->n_files) {
		pt_tx_put(t, "No read of a file was seen in this window. "
			     "(doctor says which reads can be seen here.)\n");
		return 0;
	}
	pt_top_titles(t, v, PT_TOP_FILES, cols, sizeof(cols) / sizeof(*cols));
	order = pt_top_order(v, PT_TOP_FILES, r->n_files, cmp);
	for (size_t i = 0; i < r->n_files; i++)
		row(t, &r->files[order ? order[i] : i]);
	free(order);
	return 1;
}

const struct pt_pane pt_pane_files = { "Files", draw, pt_file_sorts,
				       PT_FILE_SORTS, false };
