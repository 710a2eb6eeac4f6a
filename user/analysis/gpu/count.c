/* SPDX-License-Identifier: BSD-2-Clause */
/* What a device was given to do, as numbers. */
#include "analysis/gpu/passes.h"

static void count_graph(struct pt_dev_counts *t, const struct pt_graph_work *w)
{
	t->graph_launches++;
	if (!w) {
		t->graphs_unknown++;
		return;
	}
	t->graph_kernels += w->kernels;
	t->h2d += w->h2d;
	t->d2h += w->d2h;
	t->other_copies += w->other_copies;
	t->copy_bytes += w->copy_bytes;
}

void pt_count_call(struct pt_dev_counts *t, const struct pt_graphs *g,
		   const struct pt_gpu_call *c)
{
	switch (c->cls) {
	case PT_API_LAUNCH:
		t->kernels++;
		break;
	case PT_API_GRAPH_LAUNCH:
		count_graph(t, pt_graphs_work(g, c));
		break;
	case PT_API_COLLECTIVE:
		t->collectives++;
		t->collective_bytes += c->v[1];
		break;
	case PT_API_COPY_SYNC:
	case PT_API_COPY_ASYNC:
		if (c->v[2] == PT_COPY_H2D)
			t->h2d++;
		else if (c->v[2] == PT_COPY_D2H)
			t->d2h++;
		else
			t->other_copies++;
		t->copy_bytes += c->v[1];
		break;
	case PT_API_COPY_BATCH:
		if (c->v[0] <= PT_BATCH_MAX)
			t->other_copies += c->v[0];
		break;
	case PT_API_SYNC_DEVICE:
	case PT_API_SYNC_STREAM:
	case PT_API_SYNC_EVENT:
		t->syncs++;
		break;
	case PT_API_ALLOC:
		t->failed_allocs += c->ret > 0;
		break;
	}
}
