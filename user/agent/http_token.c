/* SPDX-License-Identifier: BSD-2-Clause */
/* A bearer token in a file, which may change while we run. */
#include "agent/http_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/readfile.h"

int pt_http_token_look(struct pt_http_token *t, double now, bool force)
{
	struct stat st = { 0 };
	char *text;
	size_t n;
	int err;

	if (!t->path || (!force && now < t->looked + 1))
		return 0;
	t->looked = now;
	if (!stat(t->path, &st) && t->len && pt_stat_same(&st, &t->seen))
		return 0;
	t->seen = st;
	t->len = 0;
	err = pt_read_token(t->path, sizeof(t->text) - 1, &text, &n);
	if (err)
		return err;
	memcpy(t->text, text, n);
	t->len = n;
	explicit_bzero(text, n);
	free(text);
	return 0;
}
