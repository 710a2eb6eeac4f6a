/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/arena.h"

#include <errno.h>
#include <stdbool.h>
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

struct owned {
	struct owned *next;
	void (*drop)(void *what);
	void *what;
};

struct pt_arena {
	struct block *head;
	struct owned *owned;
	bool fixed; /* the caller's memory: one block, and no other */
	bool failed;
};

struct pt_arena *pt_arena_new(void)
{
	return calloc(1, sizeof(struct pt_arena));
}

struct pt_arena *pt_arena_in(void *mem, size_t size)
{
	uintptr_t at = ((uintptr_t)mem + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
	size_t head = sizeof(struct pt_arena) + ALIGN +
		      (at - (uintptr_t)mem) + sizeof(struct block);
	struct pt_arena *a = (struct pt_arena *)at;

	if (size < head + ALIGN)
		return NULL;
	a->head = (struct block *)((at + sizeof(*a) + ALIGN - 1) &
				   ~(uintptr_t)(ALIGN - 1));
	a->head->size = (size - head) & ~(size_t)(ALIGN - 1);
	a->fixed = true;
	return a;
}

void pt_arena_free(struct pt_arena *a)
{
	struct block *b, *next;
	struct owned *o;

	if (!a || a->fixed)
		return;
	for (o = a->owned; o; o = o->next) /* they lie in it */
		o->drop(o->what);
	for (b = a->head; b; b = next) {
		next = b->next;
		free(b);
	}
	free(a);
}

int pt_arena_own(struct pt_arena *a, void (*drop)(void *what), void *what)
{
	struct owned *o = pt_arena_alloc(a, sizeof(*o));

	if (!o)
		return -ENOMEM;
	*o = (struct owned){ a->owned, drop, what };
	a->owned = o;
	return 0;
}

static void *refuse(struct pt_arena *a)
{
	a->failed = true;
	return NULL;
}

void *pt_arena_alloc(struct pt_arena *a, size_t size)
{
	struct block *b = a->head;
	size_t need, cap;

	if (size > SIZE_MAX / 2)
		return refuse(a);
	need = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	if (!b || b->size - b->used < need) {
		if (a->fixed)
			return refuse(a);
		cap = need > BLOCK_SIZE ? need : BLOCK_SIZE;
		b = calloc(1, sizeof(*b) + cap);
		if (!b)
			return refuse(a);
		b->size = cap;
		b->next = a->head;
		a->head = b;
	}
	b->used += need;
	return b->data + b->used - need;
}

bool pt_arena_failed(const struct pt_arena *a)
{
	return a->failed;
}

void *pt_arena_calloc(struct pt_arena *a, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		return refuse(a);
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
