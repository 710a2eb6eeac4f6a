/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the program says on standard error: one line per message, made safe
 * for a terminal, and one live line that later messages do not tear.
 */
#ifndef PT_LOG_H
#define PT_LOG_H

#include <stdbool.h>

enum pt_loudness { PT_QUIET = -1, PT_NORMAL = 0, PT_VERBOSE = 1 };

/* Before the first message; `unicode`: the terminal shows UTF-8. */
void pt_log_init(enum pt_loudness loud, bool unicode);

/* Always shown. */
void pt_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same; returns `ret`. */
int pt_fail(int ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Shown unless --quiet. */
void pt_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Replace the live line. On a terminal only; elsewhere nothing happens. */
void pt_live(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void pt_live_clear(void);
bool pt_live_possible(void);

#endif
