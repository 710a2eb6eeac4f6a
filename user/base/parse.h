/* SPDX-License-Identifier: BSD-2-Clause */
/* What options and configurations say, as text: numbers, times, ids, names. Each
 * returns 0, or -EINVAL and then may have changed what it was to fill. */
#ifndef PT_PARSE_H
#define PT_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* "KEY=VALUE": a key of 1 to 64 letters, digits, '_', '-', '.' and '/', and
 * at most 256 bytes of value, of which none is a control character. */
int pt_parse_label(const char *text);
/* "function" or "library:function": neither part empty, no blanks, at most 512
 * bytes. */
int pt_parse_marker(const char *text);
/* "2.5" or "2.5%": percent from 0 to 100, as a share. */
int pt_parse_percent(const char *text, double *out);

/* "12,34": 1 to max different positive ids. Count, or -EINVAL. */
int pt_parse_pids(const char *text, pid_t *out, size_t max);
/* "2.5": more than 0, at most a year. */
int pt_parse_seconds(const char *text, double *out);
/* "20s", "500ms", "1.5m", "2h", or seconds: ns, at most a year. */
int pt_parse_span(const char *text, uint64_t *ns);
/* "500M", "2G", "64K" (of 1024), or bytes: 64 KiB to 1 PiB. */
int pt_parse_size(const char *text, uint64_t *bytes);
/* "12s..20s", "12s..", "..20s": ns; *until 0: to the end. */
int pt_parse_window(const char *text, uint64_t *from, uint64_t *until);
/* "100..200", "100..", "..200", both included. */
int pt_parse_steps(const char *text, int64_t *first, int64_t *last);
/* "+30s": in so long; "/10s": at the next multiple of it of the clock of the
 * day (*aligned). */
int pt_parse_at(const char *text, uint64_t *ns, bool *aligned);
/* A whole decimal number in [min, max]. */
int pt_parse_int(const char *text, int64_t min, int64_t max, int64_t *out);

#endif
