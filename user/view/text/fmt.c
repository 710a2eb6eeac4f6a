/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/text/fmt.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#define WIDTH_DEFAULT 80
#define WIDTH_MIN 60
#define WIDTH_MAX 200
#define NAME_MIN 8

struct pt_tx *pt_tx_begin(FILE *out, const struct pt_text_opts *o)
{
	struct pt_tx *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->out = out;
	if (o)
		t->o = *o;
	t->width = t->o.width ? t->o.width : WIDTH_DEFAULT;
	if (t->width < WIDTH_MIN)
		t->width = WIDTH_MIN;
	if (t->width > WIDTH_MAX)
		t->width = WIDTH_MAX;
	return t;
}

int pt_tx_end(struct pt_tx *t)
{
	int err = fflush(t->out) || ferror(t->out) ? -EIO : 0;

	free(t);
	return err;
}

#define BAR_PARTS_MAX 16

static void add(struct pt_line *l, const char *fmt, va_list ap)
{
	size_t room = sizeof(l->s) - l->n;
	int n = vsnprintf(l->s + l->n, room, fmt, ap);

	if (n > 0)
		l->n += (size_t)n < room ? (size_t)n : room - 1;
}

void pt_line_add(struct pt_line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(l, fmt, ap);
	va_end(ap);
}

void pt_line_item(struct pt_tx *t, struct pt_line *l, const char *fmt, ...)
{
	va_list ap;

	if (l->n)
		pt_line_add(l, "%s", t->o.unicode ? NB "\xc2\xb7 " : ", ");
	va_start(ap, fmt);
	add(l, fmt, ap);
	va_end(ap);
}

void pt_tx_put(struct pt_tx *t, const char *s)
{
	for (; *s; s++)
		putc(*s == *NB ? ' ' : *s, t->out);
}

void pt_tx_printf(struct pt_tx *t, const char *fmt, ...)
{
	char buf[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	pt_tx_put(t, buf);
}

static void blanks(struct pt_tx *t, int n)
{
	for (; n > 0; n--)
		putc(' ', t->out);
}

void pt_tx_cell(struct pt_tx *t, const char *s, int cols, bool right)
{
	int fill = cols - (int)pt_str_cols(s);

	if (right)
		blanks(t, fill);
	pt_tx_put(t, s);
	if (!right)
		blanks(t, fill);
}

void pt_tx_style_on(struct pt_tx *t, enum pt_tx_style st)
{
	static const char *const codes[] = {
		[PT_ST_NONE] = "",	 [PT_ST_BOLD] = "1",
		[PT_ST_DIM] = "2",	 [PT_ST_RED] = "1;31",
		[PT_ST_YELLOW] = "1;33", [PT_ST_GREEN] = "32",
		[PT_ST_CYAN] = "36",	 [PT_ST_BLUE] = "34",
		[PT_ST_MAGENTA] = "35",	 [PT_ST_REVERSE] = "7",
	};

	if (t->o.color && st != PT_ST_NONE)
		pt_tx_printf(t, "\033[%sm", codes[st]);
}

void pt_tx_style_off(struct pt_tx *t)
{
	if (t->o.color)
		pt_tx_put(t, "\033[0m");
}

void pt_tx_styled(struct pt_tx *t, enum pt_tx_style st, const char *s)
{
	pt_tx_style_on(t, st);
	pt_tx_put(t, s);
	if (st != PT_ST_NONE)
		pt_tx_style_off(t);
}

const char *pt_tx_severity(enum pt_severity s)
{
	static const char *const words[] = { "INFO", "WARNING", "CRITICAL" };

	return words[(unsigned)s > PT_CRITICAL ? PT_INFO : s];
}

void pt_tx_label(struct pt_tx *t, const char *label)
{
	if (label)
		pt_tx_styled(t, PT_ST_BOLD, label);
	blanks(t, PT_TX_LABEL - (label ? (int)strlen(label) : 0));
}

/* Bytes of `s` that fit `cols` columns; at least one code point. */
static size_t fitting(const char *s, size_t n, int cols)
{
	size_t at = 0, len;
	uint32_t cp;

	while (at < n) {
		len = pt_utf8_decode(s + at, n - at, &cp);
		cols -= len ? (int)pt_cp_cols(cp) : 1;
		if (cols < 0 && at)
			break;
		at += len ? len : 1;
	}
	return at;
}

void pt_tx_wrap(struct pt_tx *t, int indent, const char *s)
{
	int width = t->width - indent, col = 0, cols;
	char word[4096];
	size_t n, cut;

	if (width < 20)
		width = 20;
	while (*s) {
		n = strcspn(s, " ");
		if (s[n] == ' ' && s[n + 1] == '%') /* stays with its number */
			n += 1 + strcspn(s + n + 1, " ");
		if (n >= sizeof(word))
			n = sizeof(word) - 1;
		memcpy(word, s, n);
		word[n] = '\0';
		cols = (int)pt_str_cols(word);
		if (col && col + 1 + cols > width) {
			putc('\n', t->out);
			blanks(t, indent);
			col = 0;
		} else if (col) {
			putc(' ', t->out);
			col++;
		}
		if (cols > width) { /* a word longer than a line is cut up */
			cut = fitting(word, n, width);
			word[cut] = '\0';
			pt_tx_put(t, word);
			s += cut;
			col = width;
			continue;
		}
		pt_tx_put(t, word);
		col += cols;
		s += n;
		while (*s == ' ')
			s++;
	}
	putc('\n', t->out);
}

void pt_tx_line(struct pt_tx *t, const char *label, const struct pt_line *l)
{
	if (!l->n)
		return;
	pt_tx_label(t, label);
	pt_tx_wrap(t, PT_TX_LABEL, l->s);
}

static char *slot(struct pt_tx *t)
{
	return t->slot[t->next++ % PT_TX_SLOTS];
}

static unsigned term_flags(const struct pt_tx *t)
{
	return t->o.unicode ? PT_TERM_UNICODE : 0;
}

const char *pt_tx_esc(struct pt_tx *t, const char *s, size_t cols)
{
	char *b = slot(t);

	if (!s)
		return pt_tx_dash(t);
	pt_str_term(b, PT_TX_SLOT, s, term_flags(t), cols);
	return b;
}

size_t pt_tx_room(const struct pt_tx *t, int taken)
{
	return t->width - taken > NAME_MIN ? (size_t)(t->width - taken) : NAME_MIN;
}

const char *pt_tx_path(struct pt_tx *t, const char *s, size_t cols)
{
	char *b = slot(t);

	if (!s)
		return pt_tx_dash(t);
	pt_str_term(b, PT_TX_SLOT, s, term_flags(t) | PT_TERM_TAIL, cols);
	/* a name with spaces stays one word */
	for (char *c = b; *c; c++)
		if (*c == ' ')
			*c = *NB;
	return b;
}

const char *pt_tx_middle(struct pt_tx *t, const char *s, size_t cols)
{
	const char *dots = t->o.unicode ? "\xe2\x80\xa6" : "...";
	size_t skip = pt_str_cols(dots), tail = cols * 2 / 5, n;
	char *b = slot(t), end[PT_TX_SLOT];

	if (!s)
		return pt_tx_dash(t);
	/* one column more than there is room for shows that it does not fit */
	if (pt_str_term(b, PT_TX_SLOT, s, term_flags(t), cols + 1) <= cols)
		return b;
	if (tail < skip + 1 || cols - tail < skip + 1)
		return pt_tx_esc(t, s, cols);
	/* the first part ends in dots, and so does the second begin */
	pt_str_term(b, PT_TX_SLOT, s, term_flags(t), cols - tail);
	pt_str_term(end, sizeof(end), s, term_flags(t) | PT_TERM_TAIL,
		    tail + skip);
	n = strlen(b);
	snprintf(b + n, PT_TX_SLOT - n, "%s",
		 strncmp(end, dots, strlen(dots)) ? end : end + strlen(dots));
	return b;
}

const char *pt_tx_fmt(struct pt_tx *t, const char *fmt, ...)
{
	char *b = slot(t);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(b, PT_TX_SLOT, fmt, ap);
	va_end(ap);
	return b;
}

const char *pt_tx_dash(const struct pt_tx *t)
{
	return t->o.unicode ? "\xe2\x80\x93" : "-";
}

const char *pt_tx_pct(struct pt_tx *t, double share)
{
	double p = 100 * share;

	if (!isfinite(p))
		return pt_tx_dash(t);
	if (p > 0 && p < 0.05)
		return "<0.1" NB "%";
	if (p > 99.9 && p < 100)
		return ">99.9" NB "%";
	if (p != 0 && (fabs(p) < 9.95 || (p > 99 && p < 100)))
		return pt_tx_fmt(t, "%.1f" NB "%%", p);
	return pt_tx_fmt(t, "%.0f" NB "%%", p);
}

const char *pt_tx_num(struct pt_tx *t, double v)
{
	double a = fabs(v);

	if (!isfinite(v))
		return pt_tx_dash(t);
	if (a >= 1e15)
		return pt_tx_fmt(t, "%.3g", v);
	if (a >= 99.95 || v == floor(v))
		return pt_tx_fmt(t, "%.0f", v);
	if (a >= 0.01)
		return pt_tx_fmt(t, a >= 9.995 ? "%.1f" : "%.2f", v);
	return pt_tx_fmt(t, "%.2g", v);
}

const char *pt_tx_ms(struct pt_tx *t, double ms)
{
	if (!isfinite(ms))
		return pt_tx_dash(t);
	if (fabs(ms) >= 9999.5)
		return pt_tx_fmt(t, "%.0f", ms);
	return pt_tx_fmt(t, fabs(ms) >= 9.995 || ms == 0 ? "%.1f" : "%.2f", ms);
}

const char *pt_tx_sec(struct pt_tx *t, double s)
{
	if (!isfinite(s))
		return pt_tx_dash(t);
	if (s == 0)
		return "0" NB "s";
	if (fabs(s) < 0.001)
		return pt_tx_fmt(t, "%.0f" NB "us", 1e6 * s);
	if (fabs(s) < 0.9995)
		return pt_tx_fmt(t, fabs(s) < 0.09995 ? "%.1f" NB "ms" : "%.0f" NB "ms", 1e3 * s);
	if (fabs(s) < 599.95)
		return pt_tx_fmt(t, "%.1f" NB "s", s);
	if (fabs(s) < 86400)
		return pt_tx_fmt(t, "%.1f" NB "min", s / 60);
	return pt_tx_fmt(t, "%.1f" NB "h", s / 3600);
}

const char *pt_tx_bytes(struct pt_tx *t, double bytes)
{
	static const char *const units[] = { "B",   "KiB", "MiB", "GiB",
					     "TiB", "PiB", "EiB" };
	size_t u = 0;

	if (!isfinite(bytes))
		return pt_tx_dash(t);
	while (fabs(bytes) >= 1023.5 && u < 6) {
		bytes /= 1024;
		u++;
	}
	return pt_tx_fmt(t, u && fabs(bytes) < 99.95 ? "%.1f" NB "%s" : "%.0f" NB "%s", bytes,
			 units[u]);
}

const char *pt_tx_size(struct pt_tx *t, int64_t bytes)
{
	return pt_tx_bytes(t, bytes == PT_NULL ? NAN : (double)bytes);
}

const char *pt_tx_id(struct pt_tx *t, int64_t v)
{
	return v == PT_NULL ? pt_tx_dash(t) : pt_tx_fmt(t, "%" PRId64, v);
}

const char *pt_tx_int(struct pt_tx *t, int64_t v)
{
	char digits[24], *b = slot(t);
	size_t n, at = 0;

	if (v == PT_NULL)
		return pt_tx_dash(t);
	n = (size_t)snprintf(digits, sizeof(digits), "%" PRId64, v);
	for (size_t i = 0; i < n; i++) {
		if (i && digits[i - 1] != '-' && (n - i) % 3 == 0)
			b[at++] = ',';
		b[at++] = digits[i];
	}
	b[at] = '\0';
	return b;
}

static const char *figure(struct pt_tx *t, const struct pt_tx_col *c, const char *row)
{
	const void *at = row + c->at;
	bool none = c->dist && !((const struct pt_dist *)(const void *)(row + c->dist - 1))->n;
	double v = none ? NAN : c->kind >= PT_TX_SEC && c->kind < PT_TX_TEXT ? *(const double *)at : 0;

	switch (c->kind) {
	case PT_TX_INT:
		return pt_tx_int(t, *(const int64_t *)at);
	case PT_TX_SIZE:
		return pt_tx_size(t, *(const int64_t *)at);
	case PT_TX_SEC:
		return pt_tx_sec(t, v);
	case PT_TX_MS:
		return pt_tx_ms(t, v);
	case PT_TX_PCT:
		return pt_tx_pct(t, v);
	case PT_TX_NUM:
		return pt_tx_num(t, v);
	default:
		return pt_tx_esc(t, *(const char *const *)at, (size_t)abs(c->cols));
	}
}

void pt_tx_titles(struct pt_tx *t, const struct pt_tx_col *c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		pt_tx_cell(t, c[i].title, abs(c[i].cols), c[i].cols > 0);
}

void pt_tx_cells(struct pt_tx *t, const struct pt_tx_col *c, size_t n, const void *row)
{
	for (size_t i = 0; i < n; i++)
		if (c[i].cols)
			pt_tx_cell(t, figure(t, &c[i], row), abs(c[i].cols), c[i].cols > 0);
}

void pt_tx_bar(struct pt_tx *t, const struct pt_bar_part *p, size_t n, int cols)
{
	double want[BAR_PARTS_MAX], sum = 0;
	int cells[BAR_PARTS_MAX], left;

	if (n > BAR_PARTS_MAX)
		n = BAR_PARTS_MAX;
	for (size_t i = 0; i < n; i++) {
		want[i] = isfinite(p[i].share) && p[i].share > 0 ? p[i].share :
								   0;
		sum += want[i];
	}
	/* cells by largest remainder, so that they add up to the whole */
	left = (int)lround((sum > 1 ? 1 : sum) * cols);
	for (size_t i = 0; i < n; i++) {
		want[i] = want[i] / (sum > 1 ? sum : 1) * cols;
		cells[i] = (int)want[i];
		want[i] -= cells[i];
		left -= cells[i];
	}
	while (left-- > 0) {
		size_t best = 0;

		for (size_t i = 1; i < n; i++)
			if (want[i] > want[best])
				best = i;
		cells[best]++;
		want[best] = -1;
	}
	for (size_t i = 0; i < n; i++) {
		char ascii[2] = { p[i].ascii, '\0' };
		char run[1024] = "";
		size_t at = 0;

		for (int c = 0; c < cells[i] && at + 8 < sizeof(run); c++)
			at += (size_t)snprintf(run + at, sizeof(run) - at, "%s",
					       t->o.unicode ? p[i].unicode :
							      ascii);
		if (cells[i])
			pt_tx_styled(t, p[i].style, run);
		cols -= cells[i];
	}
	blanks(t, cols);
}
