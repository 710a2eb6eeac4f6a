/* SPDX-License-Identifier: BSD-2-Clause */
/* Formatting for what is read on a terminal: the text report and `top`. */
#ifndef PT_VIEW_TEXT_FMT_H
#define PT_VIEW_TEXT_FMT_H

#include <stddef.h>
#include <stdint.h>

#include "view/text/text.h"

#define PT_TX_SLOTS 24
#define PT_TX_SLOT 1024
#define PT_TX_LABEL 10 /* columns before the text of a labelled line */

/* A space that a line is not broken at; shown as a space. Outside strings
 * cannot hold it, since every control byte of theirs is escaped. */
#define NB "\x01"

struct pt_tx {
	FILE *out;
	struct pt_text_opts o;
	int width;
	unsigned next; /* slot handed out next */
	char slot[PT_TX_SLOTS][PT_TX_SLOT];
};

/* A line under construction; too long is cut, not overrun. */
struct pt_line {
	char s[4096];
	size_t n;
};
void pt_line_add(struct pt_line *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same as a new item: a separator goes before it unless it is first. */
void pt_line_item(struct pt_tx *t, struct pt_line *l, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A renderer to `out`, the width of `o` (may be NULL) put within bounds; NULL:
 * out of memory. The caller ends it with pt_tx_end(). */
struct pt_tx *pt_tx_begin(FILE *out, const struct pt_text_opts *o);
/* Flush and free: 0, or -EIO when `out` did not take everything. */
int pt_tx_end(struct pt_tx *t);

/* Write; NB becomes a space. */
void pt_tx_put(struct pt_tx *t, const char *s);
void pt_tx_printf(struct pt_tx *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Write and fill up to `cols` columns; `right`: fill in front. */
void pt_tx_cell(struct pt_tx *t, const char *s, int cols, bool right);

enum pt_tx_style {
	PT_ST_NONE = 0,
	PT_ST_BOLD,
	PT_ST_DIM,
	PT_ST_RED,
	PT_ST_YELLOW,
	PT_ST_GREEN,
	PT_ST_CYAN,
	PT_ST_BLUE,
	PT_ST_MAGENTA,
	PT_ST_REVERSE,
};
/* Text of our own in a style; plain without colour. */
void pt_tx_styled(struct pt_tx *t, enum pt_tx_style st, const char *s);
/* The same for what is written between. */
void pt_tx_style_on(struct pt_tx *t, enum pt_tx_style st);
void pt_tx_style_off(struct pt_tx *t);

/* "WARNING" */
const char *pt_tx_severity(enum pt_severity s);
/* The label of a line, bold, PT_TX_LABEL columns; NULL: as many blanks. */
void pt_tx_label(struct pt_tx *t, const char *label);
/* `s` broken at spaces; the cursor is at column `indent`, which continuation
 * lines start at too. Ends the line. */
void pt_tx_wrap(struct pt_tx *t, int indent, const char *s);
/* A labelled line, broken likewise; nothing where it is empty. */
void pt_tx_line(struct pt_tx *t, const char *label, const struct pt_line *l);

/*
 * Short texts for the next PT_TX_SLOTS - 1 calls: an outside string made safe
 * (cut to `cols` columns, 0: not), and figures with their unit. Unknown is a
 * dash.
 */
const char *pt_tx_esc(struct pt_tx *t, const char *s, size_t cols);
/* Columns for a name behind `taken` ones: on the narrowest terminal still enough to tell it
 * by, though the line may break. */
size_t pt_tx_room(const struct pt_tx *t, int taken);
const char *pt_tx_path(struct pt_tx *t, const char *s, size_t cols);
/* ... cut in its middle: the ends of a C++ name tell the most. */
const char *pt_tx_middle(struct pt_tx *t, const char *s, size_t cols);
/* Text of our own, printf-style. */
const char *pt_tx_fmt(struct pt_tx *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
const char *pt_tx_dash(const struct pt_tx *t);
const char *pt_tx_pct(struct pt_tx *t, double share);
const char *pt_tx_sec(struct pt_tx *t, double seconds);
const char *pt_tx_ms(struct pt_tx *t, double ms); /* no unit, for tables */
const char *pt_tx_num(struct pt_tx *t, double v); /* 3 digits, no unit */
const char *pt_tx_bytes(struct pt_tx *t, double bytes);
const char *pt_tx_size(struct pt_tx *t, int64_t bytes);
const char *pt_tx_int(struct pt_tx *t, int64_t v); /* 12,345 */
const char *pt_tx_id(struct pt_tx *t, int64_t v);  /* pids: 12345 */

/* A column of a table: one description of its title and of what stands below it. */
enum pt_tx_kind { PT_TX_INT, PT_TX_SIZE, PT_TX_SEC, PT_TX_MS, PT_TX_PCT, PT_TX_NUM, PT_TX_TEXT };
struct pt_tx_col {
	const char *title;
	int cols; /* width; below 0: at the left; 0: the rest of the line, no cell */
	enum pt_tx_kind kind;
	size_t at;   /* where in the row the figure is */
	size_t dist; /* of one of a struct pt_dist: 1 + where that begins; else 0 */
	int sort;    /* `top`: 1 + the sort key that it is; 0: none */
};
#define PT_TX_COL(head, width, how, member, ...)                               \
	{ .title = head, .cols = width, .kind = PT_TX_##how,                   \
	  .at = offsetof(row_t, member), __VA_ARGS__ }
#define PT_TX_STAT(head, width, member, what)                                  \
	PT_TX_COL(head, width, MS, member.what, .dist = 1 + offsetof(row_t, member))
#define PT_TX_TITLE(head, width, ...) { .title = head, .cols = width, __VA_ARGS__ }
#define PT_TX_COLS(c) c, sizeof(c) / sizeof(*(c))
/* The titles, and a row's cells; neither ends the line. */
void pt_tx_titles(struct pt_tx *t, const struct pt_tx_col *c, size_t n);
void pt_tx_cells(struct pt_tx *t, const struct pt_tx_col *c, size_t n, const void *row);

struct pt_bar_part {
	double share;		/* of the bar; unknown or below 0: nothing */
	const char *unicode;	/* one column */
	char ascii;
	enum pt_tx_style style;
};
/* A stacked bar of `cols` columns. Parts that sum to less leave blanks. */
void pt_tx_bar(struct pt_tx *t, const struct pt_bar_part *p, size_t n,
	       int cols);

#endif
