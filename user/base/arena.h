/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that is freed all at once. Every allocation is zeroed and aligned
 * for any type; NULL when out of memory. Not thread-safe. */
#ifndef PT_ARENA_H
#define PT_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct pt_arena;

struct pt_arena *pt_arena_new(void);
/* An arena that lies in `size` bytes of the caller's zeroed memory and hands out
 * no more than these; freeing it does nothing. NULL: there is no room. */
struct pt_arena *pt_arena_in(void *mem, size_t size);
void pt_arena_free(struct pt_arena *a);
/* Call drop(what) when the arena is freed; not for one of pt_arena_in(). 0 or
 * -ENOMEM. */
int pt_arena_own(struct pt_arena *a, void (*drop)(void *what), void *what);
void *pt_arena_alloc(struct pt_arena *a, size_t size);
/* Has any of its allocations come back NULL? Whoever makes many asks once, behind them. */
bool pt_arena_failed(const struct pt_arena *a);
/* n * size with an overflow check. */
void *pt_arena_calloc(struct pt_arena *a, size_t n, size_t size);
char *pt_arena_strndup(struct pt_arena *a, const char *s, size_t max);
char *pt_arena_strdup(struct pt_arena *a, const char *s);
char *pt_arena_printf(struct pt_arena *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
char *pt_arena_vprintf(struct pt_arena *a, const char *fmt, va_list ap);

#endif
