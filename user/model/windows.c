/* SPDX-License-Identifier: BSD-2-Clause */
/* The active parts of a scheduled capture. */
#include "model/budget.h"
#include "model/internal.h"

#include <errno.h>

int pt_feed_window(struct pt_model *m, const struct pt_rec_window *r)
{
	struct pt_window *last = m->windows.n ?
					 &m->windows.v[m->windows.n - 1] : NULL;
	struct pt_window w = { .begin = r->hdr.ts, .index = r->index };

	if (r->ended) {
		if (!last || last->end || last->index != r->index ||
		    r->hdr.ts <= last->begin)
			return -EINVAL;
		last->end = r->hdr.ts;
		return pt_close_part(m, last->end);
	}
	if (m->windows.n == PT_WINDOWS_MAX ||
	    (last && r->hdr.ts < (last->end ? last->end : last->begin)))
		return -EINVAL;
	return pt_held_push(&m->held.tasks, &m->windows, w);
}

void pt_model_resume(struct pt_model *m, uint64_t ts)
{
	size_t i;

	m->gone.lost = 0;
	for (i = 0; i < m->all_threads.n; i++) {
		struct pt_thread *t = m->all_threads.v[i];

		t->seq_known = t->totals_known = t->gap = false;
		t->lost = t->stack_lost = 0;
		t->open.hdr.kind = 0;
		t->depth = 0;
		if (t->first < ts)
			t->first = ts;
	}
	if (!m->begin || ts <= m->begin)
		return;
	if (m->begin_unix_ns)
		m->begin_unix_ns += ts - m->begin;
	m->trimmed_ns += ts - m->begin;
	m->begin = ts;
	m->cut = true;
}
