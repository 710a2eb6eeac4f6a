/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/json_int.h"

json_t *pt_j_alloc_failures(struct pt_jb *b, const struct pt_r_gpu *g)
{
	json_t *list = json_array();
	size_t i;

	for (i = 0; i < g->n_alloc_failures; i++) {
		const struct pt_r_alloc_failure *f = &g->alloc_failures[i];
		json_t *o = json_object();

		pt_j_put(b, o, "code", pt_j_int(f->code));
		pt_j_text(b, o, "name", f->name);
		pt_j_put(b, o, "count", pt_j_int(f->count));
		pt_j_put(b, o, "largest_bytes", pt_j_int(f->largest_bytes));
		pt_j_put(b, o, "smallest_bytes", pt_j_int(f->smallest_bytes));
		pt_j_put(b, o, "retried", pt_j_int(f->retried));
		pt_j_put(b, o, "recovered", pt_j_int(f->recovered));
		pt_j_put(b, o, "held_bytes", pt_j_int(f->held_bytes));
		pt_j_put(b, o, "free_bytes", pt_j_int(f->free_bytes));
		pt_j_add(b, list, o);
	}
	return list;
}
