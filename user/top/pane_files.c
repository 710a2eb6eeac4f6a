// SPDX-License-Identifier: BSD-2-Clause
#include <stdlib.h>

#include "top/pane.h"

enum { BY_BYTES, BY_READS, BY_BLOCKED, BY_P99, BY_AGAIN, BY_PATH, SORTS };
static const char *const sorts[SORTS] = { "bytes", "reads", "blocked", "p99",
					  "again", "path" };

static const struct pt_col cols[] = {
	{ "bytes", 11, true, BY_BYTES },   { "reads", 9, true, BY_READS },
	{ "blocked", 10, true, BY_BLOCKED }, { "p99 ms", 9, true, BY_P99 },
	{ "again", 11, true, BY_AGAIN },   { "cached", 8, true, -1 },
	{ "  path", 0, false, BY_PATH },
};

static int cmp(const struct pt_report *r, size_t sort, size_t x, size_t y)
{
	const struct pt_r_file *a = &r->files[x], *b = &r->files[y];

	switch (sort) {
	case BY_READS:
		return pt_top_by_int(a->reads, b->reads);
	case BY_BLOCKED:
		return pt_top_by_double(a->blocked_s, b->blocked_s);
	case BY_P99:
		return pt_top_by_double(a->p99_ms, b->p99_ms);
	case BY_AGAIN:
		return pt_top_by_int(a->reread_bytes, b->reread_bytes);
	case BY_PATH:
		return pt_top_by_text(a->path, b->path);
	default:
		return pt_top_by_int(a->bytes, b->bytes);
	}
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

const struct pt_pane pt_pane_files = { "Files", draw, sorts, SORTS, false };
