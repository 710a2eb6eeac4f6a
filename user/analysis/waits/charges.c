/* SPDX-License-Identifier: BSD-2-Clause */
/* Charges of waiting time, kept by whom and what they name: their number grows
 * with threads, files and causes, not with waits. */
#include <errno.h>
#include <stdlib.h>

#include "analysis/internal.h"

/* So many are joined at least: sorting fewer again and again is no gain. */
#define JOIN_MIN 1024
#define LATEST 16

PT_ORDER(by_subject, struct pt_charge,
	 pt_cmp(x->cause, y->cause) ?: pt_cmp(x->pid, y->pid) ?: pt_cmp(x->tid, y->tid) ?:
	 pt_cmp(x->dev, y->dev) ?: pt_cmp(x->inode, y->inode) ?: pt_cmp(x->peer, y->peer) ?:
	 pt_cmp(x->awaited, y->awaited) ?: pt_cmp(x->syscall, y->syscall))

void pt_join_charges(pt_charges *c)
{
	size_t i, n = 0;

	if (!c->n)
		return;
	pt_vec_sort(c, by_subject);
	for (i = 1; i < c->n; i++) {
		if (by_subject(&c->v[n], &c->v[i]) == 0)
			c->v[n].ns += c->v[i].ns;
		else
			c->v[++n] = c->v[i];
	}
	c->n = n + 1;
}

int pt_add_charge(pt_charges *c, const struct pt_charge *x)
{
	struct pt_charge *v;
	size_t i;

	/* mostly one of the latest is its like */
	for (i = c->n; i > 0 && i + LATEST > c->n; i--)
		if (!by_subject(&c->v[i - 1], x)) {
			c->v[i - 1].ns += x->ns;
			return 0;
		}
	if (c->n == c->cap && c->n >= JOIN_MIN) {
		pt_join_charges(c);
		if (c->n > c->cap / 2) { /* they do differ */
			v = realloc(c->v, 2 * c->cap * sizeof(*v));
			if (!v)
				return -ENOMEM;
			c->v = v;
			c->cap *= 2;
		}
	}
	return pt_vec_push(c, *x);
}
