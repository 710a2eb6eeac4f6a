/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Strings from outside (process names, paths, command lines) made safe for
 * the place that they are shown in. Nothing here depends on the locale.
 */
#ifndef PT_STR_H
#define PT_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decode the code point at `s` (at most `n` bytes). Its length in bytes; 0
 * when it is not strict UTF-8 (overlong, surrogate, cut, above 10FFFF). */
size_t pt_utf8_decode(const char *s, size_t n, uint32_t *cp);

/*
 * A copy of `s` that is valid UTF-8: every byte that is not becomes \xHH. Only
 * then are its backslashes doubled, so that the bytes can be had back, and
 * *escaped (may be NULL) is set. The caller frees it; NULL: out of memory.
 */
char *pt_str_utf8(const char *s, bool *escaped);

#define PT_TERM_UNICODE 0x1 /* the terminal shows UTF-8; else ASCII only */
#define PT_TERM_TAIL 0x2    /* cut from the front: keep a path's file name */

/*
 * Write `src` to `dst` (at most `cap` bytes with the NUL) so that a terminal
 * can only show it: control bytes, escape sequences, invalid UTF-8, invisible
 * characters and those that reorder text come out as \n, \t, \xHH or
 * \u{HHHH}, with backslashes doubled in that case. Cut to `max_cols` columns
 * with an ellipsis (0: as long as `cap` allows). Returns the columns written.
 */
size_t pt_str_term(char *dst, size_t cap, const char *src, unsigned flags,
		   size_t max_cols);

/* Columns that text made by pt_str_term() takes. */
size_t pt_str_cols(const char *s);
/* ... and one code point: 0, 1 or 2. */
unsigned pt_cp_cols(uint32_t cp);

#endif
