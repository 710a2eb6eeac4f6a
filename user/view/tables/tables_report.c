// SPDX-License-Identifier: BSD-2-Clause
/* The report's tables: of each row of report.def the fields that have a column. */
#include "view/tables/tables.h"

#include <stdio.h>
#include <string.h>

#include "report/fields.h"

/* ---- a field's columns ---------------------------------------------------------- */

/* Columns, or a row's cells: the other is NULL. */
struct out {
	struct pt_col *cols;
	struct pt_cell *cells;
	size_t n; /* up to the last one */
	bool null; /* the cells are of an object that is null */
};

static void put(struct out *o, unsigned place, const char *name, const char *end,
		enum pt_col_type type, struct pt_cell cell)
{
	if (place > o->n)
		o->n = place;
	if (o->cells) {
		o->cells[place - 1] = o->null ? pt_cell_null() : cell;
		return;
	}
	o->cols[place - 1].type = type;
	snprintf(o->cols[place - 1].name, sizeof(o->cols->name), "%s%s", name, end);
}

static void put_real(struct out *o, unsigned place, const char *name,
		     const char *end, double v)
{
	put(o, place, name, end, PT_COL_REAL, pt_cell_real(v));
}

static void put_int(struct out *o, const struct pt_field *f, int64_t v)
{
	put(o, f->place, f->col, "", PT_COL_INT, pt_cell_int(v));
}

static void put_text(struct out *o, const struct pt_field *f, const char *v)
{
	put(o, f->place, f->col, "", PT_COL_TEXT, pt_cell_text(v));
}

static void put_dist(struct out *o, const struct pt_field *f,
		     const struct pt_dist *d)
{
	const struct {
		unsigned stat;
		const char *end;
		double v;
	} all[] = {
		{ PT_STAT_MEAN, "_mean_ms", d->mean }, { PT_STAT_P50, "_p50_ms", d->p50 },
		{ PT_STAT_P95, "_p95_ms", d->p95 },    { PT_STAT_P99, "_p99_ms", d->p99 },
		{ PT_STAT_MAX, "_max_ms", d->max },
	};
	unsigned place = f->place;
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (f->stats & all[i].stat)
			put_real(o, place++, f->col, all[i].end,
				 d->n ? all[i].v : NAN);
}

static void put_field(struct out *o, const struct pt_field *f, const void *m)
{
	const struct pt_range *range = m;
	const double *real = m;

	switch (f->cls) {
	case PT_FIELD_REAL:
		put_real(o, f->place, f->col, "", *real);
		break;
	case PT_FIELD_INT:
	case PT_FIELD_TRI:
		put_int(o, f, *(const int64_t *)m);
		break;
	case PT_FIELD_NUMBER32:
		put_int(o, f, *(const uint32_t *)m);
		break;
	case PT_FIELD_NUMBER64:
		put(o, f->place, f->col, "", PT_COL_ID,
		    pt_cell_id(*(const uint64_t *)m));
		break;
	case PT_FIELD_BOOL:
		put_int(o, f, *(const bool *)m);
		break;
	case PT_FIELD_TEXT:
		put_text(o, f, *(const char *const *)m);
		break;
	case PT_FIELD_ENUM:
		put_text(o, f, pt_enum_name(f->names, *(const unsigned *)m));
		break;
	case PT_FIELD_SHARES:
		put_real(o, f->place, f->col, "_low", real[0]);
		put_real(o, f->place + 1, f->col, f->col_2, real[1]);
		break;
	case PT_FIELD_PART:
		put_real(o, f->place, f->col, "_s", real[0]);
		put_real(o, f->place + 1, f->col, "_share", real[1]);
		break;
	case PT_FIELD_RANGE:
		put_real(o, f->place, f->col, "", range->value);
		put_real(o, f->place + 1, f->col, "_low", range->low);
		put_real(o, f->place + 2, f->col, "_high", range->high);
		break;
	default:
		put_dist(o, f, m);
		break;
	}
}

/* ... and those of the objects whose columns are of the same table. */
static void put_fields(struct out *o, const struct pt_field *f, const char *row)
{
	for (; f->cls != PT_FIELD_END; f++) {
		const struct pt_row *sub = f->table ? f->row() : NULL;
		bool null = o->null;

		if (f->place)
			put_field(o, f, row + f->off);
		if (!sub)
			continue;
		o->null |= f->first && pt_field_is_null(sub->fields, row + f->off);
		put_fields(o, sub->fields, row + f->off);
		o->null = null;
	}
}

void pt_rows_begin(struct pt_rows *to, const struct pt_table *t)
{
	static const struct pt_report none; /* the largest row: of zeroes */
	struct out o = { .cols = to->cols };

	to->table = t;
	to->n_cols = t->n_cols;
	if (t->cols) {
		memcpy(to->cols, t->cols, t->n_cols * sizeof(*t->cols));
		return;
	}
	if (t->row)
		put_fields(&o, pt_row_find(t->row)->fields,
			   (const char *)&none);
	if (t->more_place)
		to->cols[t->more_place - 1] = t->more;
	to->n_cols = o.n > t->more_place ? o.n : t->more_place;
}

/* ---- rows ------------------------------------------------------------------------ */

/* One row; `more` is the column that is no field. */
static int put_row(struct pt_rows *to, const struct pt_row *r, const void *row,
		   int64_t more)
{
	struct pt_cell cells[PT_COLS_MAX] = { { 0 } };
	struct out o = { .cells = cells };

	put_fields(&o, r->fields, row);
	if (to->table->more_place)
		cells[to->table->more_place - 1] = pt_cell_int(more);
	return to->row(to, cells, to->n_cols);
}

/* The lanes' step at this place; NULL where the user marked the steps, which
 * then have no lanes. */
static const struct pt_lane_step *lane_step(const struct pt_export *x, size_t i)
{
	const struct pt_lanes *l = x->lanes;
	const struct pt_r_steps *r = &x->r->steps;

	pt_each_of(const struct pt_lane_trainer, t, l->trainers, l->n_trainers) {
		if (t->top && t->n_steps == r->n_list &&
		    t->steps[i].begin == (uint64_t)r->list[i].begin_ns)
			return &t->steps[i];
	}
	return NULL;
}

/* Of steps: was it whole? Of marked ones the last is cut. */
static bool is_whole(const struct pt_export *x, size_t i)
{
	const struct pt_lane_step *l = lane_step(x, i);

	return l ? !l->partial : i + 1 < x->r->steps.n_list;
}

static int rows_of(const struct pt_export *x, struct pt_rows *to)
{
	const struct pt_table *t = to->table;
	const struct pt_row *r = pt_row_find(t->row);
	const char *base = (const char *)x->r;
	const char *v = t->off_n ? *(const char *const *)(base + t->off) : base;
	size_t n = t->off_n ? *(const size_t *)(base + t->off_n) : 1, i;
	bool steps = v == (const char *)x->r->steps.list;
	int err = 0;

	for (i = 0; i < n && !err; i++)
		err = put_row(to, r, v + i * r->size,
			      steps ? is_whole(x, i) : (int64_t)i + 1);
	return err;
}

static int evidence_rows(const struct pt_export *x, struct pt_rows *to)
{
	const struct pt_row *r = pt_row_find(to->table->row);
	size_t i, k;
	int err = 0;

	for (i = 0; i < x->r->n_verdicts; i++)
		for (k = 0; k < x->r->verdicts[i].n_evidence && !err; k++)
			err = put_row(to, r, &x->r->verdicts[i].evidence[k],
				      (int64_t)i + 1);
	return err;
}

static const struct pt_col breakdown_cols[] = {
	{ "part", PT_COL_TEXT }, { "seconds", PT_COL_REAL },
	{ "share", PT_COL_REAL },
};
static int breakdown_rows(const struct pt_export *x, struct pt_rows *to)
{
	const struct pt_field *f = pt_row_find("breakdown")->fields;
	const struct pt_r_breakdown *b = &x->r->breakdown;
	int err = 0;

	for (; f->cls != PT_FIELD_OPEN && b->known && !err; f++) {
		const struct pt_r_part *p =
			(const void *)((const char *)b + f->off);

		if (f->cls == PT_FIELD_PART)
			err = PT_ROW(to, pt_cell_text(f->key),
				     pt_cell_real(p->seconds),
				     pt_cell_real(p->share));
	}
	return err;
}

#define MORE(at, col) .more_place = at, .more = { col, PT_COL_INT }
#define OF(id, from, ...)                                                      \
	{ .name = #id, .row = #from, .rows = rows_of, __VA_ARGS__ }
#define ROWS(id, from, before, member, ...)                                    \
	OF(id, from, .off = offsetof(struct pt_report, before member),         \
	   .off_n = offsetof(struct pt_report, before n_##member), __VA_ARGS__)
const struct pt_table pt_report_tables[] = {
	OF(capture, report),
	ROWS(steps, step, steps., list, MORE(10, "whole")),
	{ .name = "breakdown", .cols = breakdown_cols, .n_cols = 3,
	  .rows = breakdown_rows },
	ROWS(causes, charge, data_wait., causes),
	ROWS(workers, worker, , workers),
	ROWS(files, file, , files),
	ROWS(disks, disk, , disks),
	ROWS(writes, write, , writes),
	ROWS(peers, peer, , peers),
	ROWS(ranks, rank, , ranks),
	ROWS(verdicts, verdict, , verdicts, MORE(1, "place")),
	{ .name = "evidence", .row = "evidence", .rows = evidence_rows,
	  MORE(1, "verdict_place") },
	ROWS(operations, operation, , operations),
	ROWS(gpu, gpu, , gpu),
	ROWS(series, point, , series),
	ROWS(lines, line, , lines),
};
const size_t pt_report_table_count =
	sizeof(pt_report_tables) / sizeof(*pt_report_tables);

const struct pt_table *pt_table_at(size_t i)
{
	if (i < pt_report_table_count)
		return &pt_report_tables[i];
	i -= pt_report_table_count;
	return i < pt_model_table_count ? &pt_model_tables[i] : NULL;
}
