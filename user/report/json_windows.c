/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of a capture that were judged each by itself. */
#include "report/json_int.h"

json_t *pt_j_windows(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_windows; i++) {
		const struct pt_r_window *w = &r->windows[i];
		json_t *o = json_object(), *v = json_array();

		pt_j_put(b, o, "at", pt_j_num(w->at, PT_J_STD));
		pt_j_put(b, o, "duration", pt_j_num(w->duration, PT_J_STD));
		pt_j_put(b, o, "begin_ns", pt_j_int(w->begin_ns));
		pt_j_put(b, o, "end_ns", pt_j_int(w->end_ns));
		pt_j_put(b, o, "steps", pt_j_int(w->steps));
		pt_j_put(b, o, "step_ms", pt_j_num(w->step_ms, PT_J_FINE));
		pt_j_put(b, o, "step_p95_ms",
			 pt_j_num(w->step_p95_ms, PT_J_FINE));
		pt_j_put(b, o, "data_wait_share",
			 pt_j_num(w->data_wait_share, PT_J_STD));
		pt_j_put(b, o, "starved_share",
			 pt_j_num(w->starved_share, PT_J_STD));
		pt_j_put(b, o, "gpu_busy_share",
			 pt_j_num(w->gpu_busy_share, PT_J_STD));
		for (size_t k = 0; k < w->n_verdicts; k++)
			if (w->verdicts[k])
				pt_j_add(b, v, pt_j_name(w->verdicts[k]));
		pt_j_put(b, o, "verdicts", v);
		pt_j_put(b, o, "reported", json_boolean(w->reported));
		pt_j_add(b, a, o);
	}
	return a;
}
