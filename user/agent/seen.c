// SPDX-License-Identifier: BSD-2-Clause
#include "agent/seen.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int pt_seen_news(struct pt_seen *s, const struct pt_tree *t, double boot_s,
		 bool (*known)(void *, const struct pt_process *),
		 bool (*interesting)(void *, const struct pt_process *), void *ctx)
{
	struct pt_seen_one *v = calloc(t->n + 1, sizeof(*v));
	double hz = (double)sysconf(_SC_CLK_TCK);
	size_t i, k = 0;
	int news = 0;

	if (!v)
		return -ENOMEM;
	for (i = 0; i < t->n; i++) {
		const struct pt_process *p = &t->p[i];

		v[i] = (struct pt_seen_one){ p->pid, p->start_ticks, false };
		while (k < s->n && s->v[k].pid < p->pid)
			k++;
		if (k < s->n && s->v[k].pid == p->pid &&
		    s->v[k].start_ticks == p->start_ticks)
			v[i].settled = s->v[k].settled;
		if (v[i].settled || known(ctx, p))
			continue;
		if (interesting(ctx, p)) {
			v[i].settled = true;
			news = 1;
		} else if (boot_s - (double)p->start_ticks / hz >
			   PT_SEEN_YOUNG_S) {
			v[i].settled = true;
		}
	}
	free(s->v);
	s->v = v;
	s->n = t->n;
	return news;
}

void pt_seen_free(struct pt_seen *s)
{
	free(s->v);
	s->v = NULL;
	s->n = 0;
}
