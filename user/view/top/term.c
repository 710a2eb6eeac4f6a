// SPDX-License-Identifier: BSD-2-Clause
#include "view/top/term.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* its names must not become macros of ours */
#define NCURSES_NOMACROS 1
#include <ncursesw/ncurses.h>

#include "base/str.h"
#include "view/top/top.h"

#define ESC_WAIT_MS 25 /* a lone Esc is told from a key's sequence by then */

static SCREEN *screen_; /* ncurses' state is the process's, so this is too */

static void begin_colors(void)
{
	static const short color[] = { COLOR_RED, COLOR_GREEN, COLOR_YELLOW,
				       COLOR_BLUE, COLOR_MAGENTA, COLOR_CYAN };
	size_t i;

	if (!has_colors() || start_color() == ERR)
		return;
	use_default_colors();
	for (i = 0; i < sizeof(color) / sizeof(*color); i++)
		init_pair((short)(i + 1), color[i], -1);
}

int pt_term_open(bool color)
{
	const char *term = getenv("TERM");

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !term || !*term ||
	    !strcmp(term, "dumb"))
		return -ENOTTY;
	setlocale(LC_CTYPE, "");
	/* initscr() would end the program where this only says no */
	screen_ = newterm(NULL, stdout, stdin);
	if (!screen_)
		return -ENOTTY;
	if (!tigetstr("cup") || tigetstr("cup") == (char *)-1) {
		pt_term_close();
		return -ENOTTY;
	}
	cbreak();
	noecho();
	nonl();
	intrflush(stdscr, FALSE);
	keypad(stdscr, TRUE);
	set_escdelay(ESC_WAIT_MS);
	nodelay(stdscr, TRUE);
	curs_set(0);
	if (color)
		begin_colors();
	return 0;
}

void pt_term_close(void)
{
	if (!screen_)
		return;
	endwin();
	delscreen(screen_);
	screen_ = NULL;
}

void pt_term_size(int *cols, int *rows)
{
	getmaxyx(stdscr, *rows, *cols);
}

void pt_term_resize(void)
{
	struct winsize ws;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) || !ws.ws_col || !ws.ws_row)
		return;
	resizeterm(ws.ws_row, ws.ws_col);
	clear();
}

/* "1;31" of the text report's styles, as attributes. */
static attr_t attributes(const char *s)
{
	attr_t a = A_NORMAL;
	long v;
	char *end;

	for (;; s = end + 1) {
		v = strtol(s, &end, 10);
		if (v == 1)
			a |= A_BOLD;
		else if (v == 2)
			a |= A_DIM;
		else if (v == 7)
			a |= A_REVERSE;
		else if (v >= 31 && v <= 36 && COLOR_PAIRS > 6)
			a |= COLOR_PAIR(v - 30);
		if (*end != ';')
			return a;
	}
}

/* Each character at its own place, so that a terminal that thinks it wider or
 * narrower than we do shifts nothing. */
static void paint_line(int y, const char *s, const char *end)
{
	char one[8];
	uint32_t cp;
	size_t len;
	int x = 0;

	while (s < end) {
		if (*s == '\033') {
			attrset((int)attributes(s + 2));
			while (s < end && *s++ != 'm')
				;
			continue;
		}
		len = pt_utf8_decode(s, (size_t)(end - s), &cp);
		if (!len) { /* not of our making */
			s++;
			continue;
		}
		memcpy(one, s, len);
		one[len] = '\0';
		s += len;
		if (!pt_cp_cols(cp))
			continue;
		mvaddstr(y, x, one);
		x += (int)pt_cp_cols(cp);
	}
	attrset(A_NORMAL);
}

void pt_term_paint(const char *s)
{
	const char *end;
	int y;

	erase();
	for (y = 0; *s; y++, s = end + 1) {
		end = strchr(s, '\n');
		if (!end)
			end = s + strlen(s);
		if (y < LINES)
			paint_line(y, s, end);
		if (!*end)
			break;
	}
	refresh();
}

int pt_term_key(void)
{
	int k = getch();

	switch (k) {
	case ERR:
		return -1;
	case KEY_UP:
		return PT_KEY_UP;
	case KEY_DOWN:
		return PT_KEY_DOWN;
	case KEY_LEFT:
		return PT_KEY_LEFT;
	case KEY_RIGHT:
		return PT_KEY_RIGHT;
	case KEY_PPAGE:
		return PT_KEY_PAGE_UP;
	case KEY_NPAGE:
		return PT_KEY_PAGE_DOWN;
	case KEY_HOME:
		return PT_KEY_HOME;
	case KEY_END:
		return PT_KEY_END;
	case KEY_BTAB:
		return PT_KEY_BACK_TAB;
	case KEY_ENTER:
	case '\r':
		return PT_KEY_ENTER;
	default:
		return k;
	}
}
