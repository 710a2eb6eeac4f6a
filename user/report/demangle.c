// SPDX-License-Identifier: BSD-2-Clause
#include "report/demangle.h"

#include <errno.h>
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 8192

struct sink {
	jmp_buf full;
	char *text;
	size_t n;
};

/* A few hundred bytes of substitutions can stand for gigabytes of text, and
 * the library has no bound of its own: it is left by a jump. It holds no memory
 * then, since this way of calling it keeps everything on its stack. */
static void append_demangled(const char *s, size_t n, void *ctx)
{
	struct sink *k = ctx;

	if (n >= NAME_MAX_BYTES - k->n)
		longjmp(k->full, 1);
	memcpy(k->text + k->n, s, n);
	k->n += n;
}

char *pt_demangle(const char *symbol)
{
	struct sink *k;
	char *volatile text = NULL;
	volatile int ok = 0;

	if (strncmp(symbol, "_Z", 2) || strlen(symbol) >= NAME_MAX_BYTES)
		return NULL;
	k = malloc(sizeof(*k));
	text = malloc(NAME_MAX_BYTES);
	if (!k || !text)
		goto out;
	k->text = text;
	k->n = 0;
	if (!setjmp(k->full))
		ok = cplus_demangle_v3_callback(symbol, DMGL_PARAMS | DMGL_ANSI,
						append_demangled, k);
	text[k->n] = '\0';
	ok = ok && k->n;
out:
	if (!ok) {
		free(text);
		text = NULL;
	}
	free(k);
	return text;
}

int pt_report_demangle(struct pt_report *r)
{
	struct pt_r_operation *v = (struct pt_r_operation *)r->operations;
	char *name;
	size_t i;

	for (i = 0; i < r->n_operations; i++) {
		if (!v[i].name || !v[i].kind || strcmp(v[i].kind, "kernel"))
			continue;
		name = pt_demangle(v[i].name);
		if (!name)
			continue;
		v[i].name = pt_arena_strdup(r->arena, name);
		free(name);
		if (!v[i].name)
			return -ENOMEM;
	}
	return 0;
}
