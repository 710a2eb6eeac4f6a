/* SPDX-License-Identifier: BSD-2-Clause */
/* The terminal of the live view, by ncurses. One at a time. */
#ifndef PT_TOP_TERM_H
#define PT_TOP_TERM_H

#include <stdbool.h>

/*
 * Take the whole screen. 0; -ENOTTY: standard input or output is no terminal,
 * or none that a screen can be drawn on (TERM). The signals that end the
 * program must be blocked: ncurses' own handlers for them must not run.
 */
int pt_term_open(bool color);
/* Give it back as it was. Harmless twice. */
void pt_term_close(void);

/* Lines and columns now; after a SIGWINCH pt_term_resize() asks anew. */
void pt_term_size(int *cols, int *rows);
void pt_term_resize(void);

/* A screen as pt_top_draw() made it. */
void pt_term_paint(const char *screen);

/* The next key (a byte, or enum pt_top_key) that was pressed; -1: none. Does
 * not wait. */
int pt_term_key(void);

#endif
