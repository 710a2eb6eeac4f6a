/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each kind of operation took, where that can be told apart: of kernels that
 * always run together a sync shows only the sum, however it is then divided for
 * the device's busy time. A kind of which some stretch showed nothing else has a
 * time of its own; so have copies that held their caller.
 */
#include <errno.h>

#include "analysis/gpu_replay.h"

static double own_ns(const struct pt_gclass *c)
{
	if (c->fixed)
		return c->ns[PT_REPLAY_MID];
	return c->alone_n ? c->alone_ns / (double)c->alone_n : -1;
}

int pt_replay_costs(const struct pt_replay *r, struct pt_trainer *t)
{
	const struct pt_gqueue *q = r->q;
	struct pt_op_cost none = { 0 };
	size_t i;

	t->costs.n = 0;
	for (i = 0; i < r->classes.n; i++)
		if (pt_vec_push(&t->costs, none))
			return -ENOMEM;
	for (i = 0; i < q->ops.n; i++) {
		const struct pt_gop *op = &q->ops.v[i];
		const struct pt_gclass *c;
		struct pt_op_cost *to;

		if (op->kind > PT_GOP_MEMSET || op->at < q->an->t0 ||
		    op->at >= q->an->t1)
			continue;
		c = r->classes.v[r->cls[i]];
		if (own_ns(c) < 0)
			continue;
		to = &t->costs.v[c->index];
		to->kind = op->kind;
		to->key = op->key;
		to->n++;
		to->ns += own_ns(c) * pt_gop_nominal(op);
	}
	return 0;
}
