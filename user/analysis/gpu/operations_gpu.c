/* SPDX-License-Identifier: BSD-2-Clause */
/* Device time of the operations' rows. */
#include <errno.h>

#include "analysis/gpu/operations.h"
#include "model/names.h"

/* Ids of kernels that only activity records tell of; a function's address lies
 * below, a name's key is any number. */
#define ID_OF_NAME(name) ((name) | 1ull << 63)

/* The call in the window that it is of, or NULL. */
static const struct pt_gpu_call *call_of(const struct pt_proc *p,
					 const struct pt_act *a)
{
	return a->call < p->gpu.n ? &p->gpu.v[a->call] : NULL;
}

static struct pt_op *kernel_row(struct pt_ops *o, const struct pt_proc *p,
				const struct pt_act *a)
{
	const struct pt_gpu_call *c = call_of(p, a);
	struct pt_op *row, *graphs;

	if (c && c->cls == PT_API_LAUNCH && !(a->flags & PT_ACT_F_GRAPH)) {
		row = pt_op_row(o, PT_OP_KERNEL, p->tgid, c->v[0]);
	} else {
		/* counted by the calls, if its call is not known */
		row = pt_op_row(o, PT_OP_KERNEL, p->tgid, ID_OF_NAME(a->name));
		if (row && a->flags & PT_ACT_F_GRAPH) {
			row->calls++;
			/* counted so far among those that graphs ran */
			graphs = pt_op_row(o, PT_OP_KERNEL, 0, PT_OP_GRAPHS);
			if (!graphs)
				return NULL;
			if (graphs->calls)
				graphs->calls--;
		}
	}
	if (row && !row->name)
		row->name = a->name ? pt_act_name(o->an->m, p, a->name) : NULL;
	if (row && !row->name && row->key.id >> 63)
		row->name = "(kernel without a name)";
	return row;
}

static struct pt_op *row_of(struct pt_ops *o, const struct pt_proc *p,
			    const struct pt_act *a)
{
	if (a->what == PT_ACT_KERNEL)
		return kernel_row(o, p, a);
	if (a->what == PT_ACT_COPY)
		return pt_op_row(o, PT_OP_COPY, 0, a->detail < PT_COPY_ANY ?
							   a->detail :
							   PT_COPY_ANY);
	return pt_op_row(o, PT_OP_MEMSET, 0, 0);
}

int pt_op_measured(struct pt_ops *o, const struct pt_proc *p)
{
	pt_each(const struct pt_act, a, &p->acts) {
		struct pt_op *row;

		if (a->begin < o->an->t0 || a->begin >= o->an->t1)
			continue;
		row = row_of(o, p, a);
		if (!row)
			return -ENOMEM;
		row->timed++;
		o->timed = true;
		row->total_ns += (double)(a->end - a->begin);
		if (pt_vec_push(&row->us, (double)(a->end - a->begin) / 1000))
			return -ENOMEM;
	}
	return 0;
}
