// SPDX-License-Identifier: BSD-2-Clause
#include "view/top/pane.h"

static const struct pt_tx_col cols[] = {
	PT_TX_TITLE("  pid", -10), PT_TX_TITLE("user", -13), PT_TX_TITLE("GPU library", -23), PT_TX_TITLE("GPU", -5), PT_TX_TITLE("rank", -6),
	PT_TX_TITLE("command", 0),
};

/* What is known of the job that is traced: its first verdict. */
static void verdict(struct pt_tx *t, const struct pt_top *v)
{
	const struct pt_report *r = v->report;

	if (!r || !r->n_verdicts)
		return;
	pt_tx_put(t, "          ");
	pt_tx_put(t, pt_tx_esc(t, r->verdicts[0].title, (size_t)t->width - 10));
	pt_tx_put(t, "\n");
}

static size_t draw(struct pt_tx *t, const struct pt_top *v)
{
	if (!v->n_jobs) {
		pt_tx_put(t, "No process has a GPU library (CUDA, HIP, NCCL) "
			     "mapped. Jobs show up here as they start.\n");
		return 0;
	}
	pt_top_titles(t, v, PT_TOP_JOBS, PT_TX_COLS(cols));
	for (size_t i = 0; i < v->n_jobs; i++) {
		const struct pt_top_job *j = &v->jobs[i];
		bool here = i == v->p[PT_TOP_JOBS].chosen;
		char id[16];

		/* the mark shows without colours too */
		snprintf(id, sizeof(id), "%c%c%d", here ? '>' : ' ',
			 j->pid == v->traced ? '*' : ' ', j->pid);
		if (here)
			pt_tx_style_on(t, PT_ST_REVERSE);
		pt_tx_cell(t, id, 10, false);
		pt_tx_cell(t, pt_tx_esc(t, j->user, 12), 13, false);
		pt_tx_cell(t, pt_tx_esc(t, j->lib, 22), 23, false);
		pt_tx_cell(t, pt_tx_esc(t, j->devices, 4), 5, false);
		pt_tx_cell(t, pt_tx_esc(t, j->rank, 5), 6, false);
		pt_tx_cell(t, pt_tx_esc(t, j->cmd, (size_t)t->width - 57),
			   t->width - 57, false);
		if (here)
			pt_tx_style_off(t);
		pt_tx_put(t, "\n");
		if (j->pid == v->traced)
			verdict(t, v);
	}
	if (v->jobs_hidden)
		pt_tx_put(t, "Processes of other users could not be looked at.\n");
	return 1;
}

const struct pt_pane pt_pane_jobs = { "Jobs", draw, NULL, 0, true };
