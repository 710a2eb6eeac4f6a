// SPDX-License-Identifier: BSD-2-Clause
#include "base/demangle.h"

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

static char *demangle(const char *symbol, int options)
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
		ok = cplus_demangle_v3_callback(symbol, options, append_demangled, k);
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

char *pt_demangle(const char *symbol)
{
	return demangle(symbol, DMGL_PARAMS | DMGL_ANSI);
}

char *pt_demangle_name(const char *symbol)
{
	return demangle(symbol, DMGL_ANSI);
}
