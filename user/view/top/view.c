// SPDX-License-Identifier: BSD-2-Clause
/* The screen around the panes: first line, tabs, what scrolls, keys. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "view/top/pane.h"

#define FRAME 3 /* lines that are not the pane's: head, tabs, foot */

static const struct pt_pane *const panes[PT_TOP_PANES] = {
	[PT_TOP_OVERVIEW] = &pt_pane_overview,
	[PT_TOP_VERDICTS] = &pt_pane_verdicts,
	[PT_TOP_WORKERS] = &pt_pane_workers,
	[PT_TOP_FILES] = &pt_pane_files,
	[PT_TOP_OPERATIONS] = &pt_pane_operations,
	[PT_TOP_JOBS] = &pt_pane_jobs,
};

void pt_top_init(struct pt_top *v, bool unicode, bool color)
{
	memset(v, 0, sizeof(*v));
	v->unicode = unicode;
	v->color = color;
	v->window_s = v->own_cpu = NAN;
}

void pt_top_note_share(struct pt_top *v, double share)
{
	if (v->n_history == PT_TOP_HISTORY) {
		memmove(v->history, v->history + 1,
			(PT_TOP_HISTORY - 1) * sizeof(*v->history));
		v->n_history--;
	}
	v->history[v->n_history++] = share;
}

/* ---- text ------------------------------------------------------------------- */

static void help(struct pt_tx *t)
{
	static const struct {
		const char *key, *what;
	} keys[] = {
		{ "1 ... 6", "choose a pane; so do Tab, Left and Right" },
		{ "Up, Down", "scroll; in Jobs: choose a job" },
		{ "PgUp, PgDn", "scroll by a screen; Home, End: to the ends" },
		{ "Enter", "in Jobs: trace the chosen job" },
		{ "s, S", "sort by the next, the last column" },
		{ "r", "sort the other way round" },
		{ "p, Space", "pause; the trace goes on, the picture stays" },
		{ "Esc", "leave the job: nothing is traced any more" },
		{ "?, h", "this help; any key closes it" },
		{ "q, Ctrl-C", "quit; the job keeps running" },
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		pt_tx_put(t, "  ");
		pt_tx_cell(t, keys[i].key, 14, false);
		pt_tx_printf(t, "%s\n", keys[i].what);
	}
	pt_tx_put(t, "\n");
	pt_tx_wrap(t, 0, "Everything shown is of the last seconds alone (the "
		   "window, in the first line), diagnosed anew each time as "
		   "`pipetrace report` would. A short window sees rare things "
		   "rarely: `pipetrace -p PID` looks longer.");
	pt_tx_wrap(t, 0, "busy 40 % (35 % to 45 %): the best guess, and the "
		   "bounds that are certain. A dash is what is not known. own "
		   "CPU: of this program, in shares of one core.");
}

static void body(struct pt_tx *t, const struct pt_top *v, size_t *fixed)
{
	const struct pt_pane *p = panes[v->pane];

	*fixed = 0;
	if (v->help)
		help(t);
	else if (v->report || p->bare)
		*fixed = p->draw(t, v);
	else if (v->traced)
		pt_tx_put(t, "Looking at the first seconds ...\n");
	else
		pt_tx_put(t, "No job is traced: choose one in Jobs (6, then "
			     "Enter).\n");
}

static void head(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_r_target *g = v->report ? &v->report->target : NULL;
	const char *cmd = !g ? NULL : g->cmdline ? g->cmdline : g->comm;
	int room = t->width - 66;

	pt_tx_styled(t, PT_ST_BOLD, "pipetrace top");
	if (v->traced)
		pt_tx_printf(t, "  pid %d", v->traced);
	if (cmd && room >= 8)
		pt_tx_printf(t, " %s", pt_tx_esc(t, cmd, (size_t)room));
	if (isfinite(v->window_s))
		pt_tx_printf(t, "  last %.1f s", v->window_s);
	if (isfinite(v->own_cpu))
		pt_tx_printf(t, "  own CPU %s", pt_tx_pct(t, v->own_cpu));
	if (v->report && v->report->capture.lost_total > 0)
		pt_tx_printf(t, "  %s LOST",
			     pt_tx_int(t, v->report->capture.lost_total));
	if (v->ended)
		pt_tx_styled(t, PT_ST_RED, "  ENDED");
	else if (v->paused)
		pt_tx_styled(t, PT_ST_YELLOW, "  PAUSED");
	pt_tx_put(t, "\n");
}

static void tabs(struct pt_tx *t, const struct pt_top *v)
{
	for (size_t i = 0; i < PT_TOP_PANES; i++) {
		char text[32];

		snprintf(text, sizeof(text), " %zu %s ", i + 1, panes[i]->name);
		/* without colours brackets say which it is */
		if (i == v->pane && !v->color) {
			text[0] = '[';
			text[strlen(text) - 1] = ']';
		}
		pt_tx_styled(t, i == v->pane ? PT_ST_REVERSE : PT_ST_NONE, text);
	}
	pt_tx_put(t, "\n");
}

static void foot(struct pt_tx *t, const struct pt_top *v)
{
	if (v->status[0])
		pt_tx_put(t, pt_tx_esc(t, v->status, (size_t)t->width));
	else if (v->help)
		pt_tx_styled(t, PT_ST_DIM, "any key closes the help");
	else
		pt_tx_printf(t, "q quit  ? help  Tab pane%s  p %s%s",
			     panes[v->pane]->n_sorts ? "  s sort  r reverse" : "",
			     v->paused ? "go on" : "pause",
			     v->pane == PT_TOP_JOBS ? "  Enter trace" : "");
}

struct text {
	char *s;
	size_t n;
};

/* One part drawn into memory of its own; .s NULL: no memory. */
static struct text part(const struct pt_top *v, int cols,
			void (*draw)(struct pt_tx *t, const struct pt_top *v),
			size_t *fixed)
{
	struct pt_text_opts o = { .color = v->color, .unicode = v->unicode,
				  .width = cols, .verbose = true };
	struct text x = { NULL, 0 };
	FILE *f = open_memstream(&x.s, &x.n);
	struct pt_tx *t;
	int err = -1;

	if (!f)
		return x;
	t = pt_tx_begin(f, &o);
	if (t) {
		if (draw)
			draw(t, v);
		else
			body(t, v, fixed);
		err = pt_tx_end(t);
	}
	if (fclose(f) || err) {
		free(x.s);
		x.s = NULL;
	}
	return x;
}

/* ---- lines -------------------------------------------------------------------- */

/* Copy a line, at most `cols` columns of it; colours pass, and end with it. */
static void put_line(FILE *out, const char *s, size_t n, int cols)
{
	bool styled = false;
	size_t at = 0, len;
	uint32_t cp;

	while (at < n) {
		if (s[at] == '\033') {
			len = 1;
			while (at + len < n && s[at + len - 1] != 'm')
				len++;
			styled = true;
		} else {
			len = pt_utf8_decode(s + at, n - at, &cp);
			cols -= len ? (int)pt_cp_cols(cp) : 1;
			if (cols < 0)
				break;
			len = len ? len : 1;
		}
		fwrite(s + at, 1, len, out);
		at += len;
	}
	if (styled)
		fputs("\033[0m", out);
	putc('\n', out);
}

static size_t count_lines(const struct text *x)
{
	size_t n = 0, i;

	for (i = 0; i < x->n; i++)
		n += x->s[i] == '\n';
	return n;
}

/* The body's lines: those that stay, then the others from `top` on. `rows`
 * lines in all, empty ones at the end; 0: all there are. */
static void put_body(FILE *out, const struct text *x, size_t fixed, size_t top,
		     size_t rows, int cols)
{
	size_t line = 0, put = 0;
	const char *s = x->s, *end;

	for (; *s && (!rows || put < rows); s = end + 1, line++) {
		end = strchr(s, '\n');
		if (!end)
			break;
		if (line >= fixed && line < fixed + top)
			continue;
		put_line(out, s, (size_t)(end - s), cols);
		put++;
	}
	for (; put < rows; put++)
		putc('\n', out);
}

/* What scrolls stays within what there is, and a chosen job on the screen. */
static size_t settle_scroll(struct pt_top *v, size_t lines, size_t fixed,
			    size_t rows)
{
	size_t moving = lines > fixed ? lines - fixed : 0;
	size_t room = rows > fixed ? rows - fixed : 1;
	size_t *top = &v->p[v->pane].top;
	size_t at = v->p[PT_TOP_JOBS].chosen;

	if (v->pane == PT_TOP_JOBS && !v->help) {
		if (at < *top)
			*top = at;
		else if (at >= *top + room)
			*top = at - room + 1;
	}
	if (*top + room > moving)
		*top = moving > room ? moving - room : 0;
	return v->help ? 0 : *top;
}

static int assemble(struct pt_top *v, FILE *out, int cols, int rows)
{
	size_t fixed = 0, room = rows > FRAME ? (size_t)(rows - FRAME) : 1;
	struct text h = part(v, cols, head, NULL);
	struct text b = part(v, cols, NULL, &fixed);
	struct text t = part(v, cols, tabs, NULL);
	struct text f = part(v, cols, foot, NULL);
	int ret = h.s && b.s && t.s && f.s ? 0 : -1;

	if (!ret && rows < 1) {
		put_line(out, h.s, strcspn(h.s, "\n"), cols);
		put_body(out, &b, fixed, 0, 0, cols);
	} else if (!ret) {
		size_t top = settle_scroll(v, count_lines(&b), fixed, room);

		put_line(out, h.s, strcspn(h.s, "\n"), cols);
		if (rows > 1)
			put_line(out, t.s, strcspn(t.s, "\n"), cols);
		if (rows > FRAME)
			put_body(out, &b, fixed, top, room, cols);
		if (rows > 2)
			put_line(out, f.s, f.n, cols);
	}
	free(h.s);
	free(b.s);
	free(t.s);
	free(f.s);
	return ret;
}

char *pt_top_draw(struct pt_top *v, int cols, int rows)
{
	char *s = NULL;
	size_t n;
	FILE *out = open_memstream(&s, &n);
	int err;

	if (!out)
		return NULL;
	err = assemble(v, out, cols < 1 ? 1 : cols, rows);
	if (fclose(out) || err) {
		free(s);
		return NULL;
	}
	return s;
}

/* ---- keys ----------------------------------------------------------------------- */

static void move(struct pt_top *v, long by)
{
	bool choose = v->pane == PT_TOP_JOBS;
	size_t *at = choose ? &v->p[PT_TOP_JOBS].chosen : &v->p[v->pane].top;
	size_t last = choose ? (v->n_jobs ? v->n_jobs - 1 : 0) : 1u << 24;

	if (by < 0)
		*at = *at > (size_t)-by ? *at - (size_t)-by : 0;
	else
		*at = *at + (size_t)by < last ? *at + (size_t)by : last;
}

static void sort_by(struct pt_top *v, int by)
{
	size_t n = panes[v->pane]->n_sorts;

	if (!n)
		return;
	v->p[v->pane].sort = (v->p[v->pane].sort + n + (size_t)by) % n;
	v->p[v->pane].top = 0;
}

static void turn(struct pt_top *v, int by)
{
	v->pane = (enum pt_top_pane)(((int)v->pane + PT_TOP_PANES + by) %
				     PT_TOP_PANES);
}

enum pt_top_act pt_top_key(struct pt_top *v, int key, int rows)
{
	long page = rows > FRAME + 2 ? rows - FRAME - 1 : 1;

	v->status[0] = '\0';
	if (key == 'q')
		return PT_TOP_QUIT;
	if (v->help) {
		v->help = false;
		return PT_TOP_DRAW;
	}
	switch (key) {
	case '?':
	case 'h':
		v->help = true;
		break;
	case '1' ... '0' + PT_TOP_PANES:
		v->pane = (enum pt_top_pane)(key - '1');
		break;
	case '\t':
	case PT_KEY_RIGHT:
		turn(v, 1);
		break;
	case PT_KEY_BACK_TAB:
	case PT_KEY_LEFT:
		turn(v, -1);
		break;
	case PT_KEY_UP:
	case 'k':
		move(v, -1);
		break;
	case PT_KEY_DOWN:
	case 'j':
		move(v, 1);
		break;
	case PT_KEY_PAGE_UP:
		move(v, -page);
		break;
	case PT_KEY_PAGE_DOWN:
		move(v, page);
		break;
	case PT_KEY_HOME:
		move(v, -(1l << 24));
		break;
	case PT_KEY_END:
		move(v, 1l << 24);
		break;
	case 's':
		sort_by(v, 1);
		break;
	case 'S':
		sort_by(v, -1);
		break;
	case 'r':
		v->p[v->pane].reverse = !v->p[v->pane].reverse;
		break;
	case 'p':
	case ' ':
		v->paused = !v->paused;
		break;
	case PT_KEY_ENTER:
	case '\r':
		return v->pane == PT_TOP_JOBS && v->n_jobs ? PT_TOP_TRACE :
							     PT_TOP_NOTHING;
	case PT_KEY_ESC:
		return v->traced ? PT_TOP_LEAVE : PT_TOP_NOTHING;
	default:
		return PT_TOP_NOTHING;
	}
	return PT_TOP_DRAW;
}
