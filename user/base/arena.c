/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_SIZE (64 * 1024)
#define ALIGN 16

struct block {
	struct block *next;
	size_t used, size;
	_Alignas(ALIGN) unsigned char data[];
};

struct pt_arena {
	struct block *head;
};

struct pt_arena *pt_arena_new(void)
{
	return calloc(1, sizeof(struct pt_arena));
}

void pt_arena_free(struct pt_arena *a)
{
	struct block *b, *next;

	if (!a)
		return;
	for (b = a->head; b; b = next) {
		next = b->next;
		free(b);
	}
	free(a);
}

void *pt_arena_alloc(struct pt_arena *a, size_t size)
{
	struct block *b = a->head;
	size_t need, cap;

	if (size > SIZE_MAX / 2)
		return NULL;
	need = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	if (!b || b->size - b->used < need) {
		cap = need > BLOCK_SIZE ? need : BLOCK_SIZE;
		b = calloc(1, sizeof(*b) + cap);
		if (!b)
			return NULL;
		b->size = cap;
		b->next = a->head;
		a->head = b;
	}
	b->used += need;
	return b->data + b->used - need;
}

void *pt_arena_calloc(struct pt_arena *a, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		return NULL;
	return pt_arena_alloc(a, bytes);
}

char *pt_arena_strndup(struct pt_arena *a, const char *s, size_t max)
{
	size_t n = strnlen(s, max);
	char *d = pt_arena_alloc(a, n + 1);

	if (d)
		memcpy(d, s, n);
	return d;
}

char *pt_arena_strdup(struct pt_arena *a, const char *s)
{
	return pt_arena_strndup(a, s, SIZE_MAX / 4);
}

char *pt_arena_vprintf(struct pt_arena *a, const char *fmt, va_list ap)
{
	va_list again;
	char *s = NULL;
	int n;

	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	if (n >= 0)
		s = pt_arena_alloc(a, (size_t)n + 1);
	if (s)
		vsnprintf(s, (size_t)n + 1, fmt, again);
	va_end(again);
	return s;
}

char *pt_arena_printf(struct pt_arena *a, const char *fmt, ...)
{
	va_list ap;
	char *s;

	va_start(ap, fmt);
	s = pt_arena_vprintf(a, fmt, ap);
	va_end(ap);
	return s;
}
