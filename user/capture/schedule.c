/* SPDX-License-Identifier: BSD-2-Clause */
/* Times in which the hooks are quiet, and the parts between them. */

#include "capture/session.h"

static void queue_window(struct pt_capture *c, uint32_t index, bool ended,
			 uint64_t ts)
{
	struct pt_rec_window w;

	pt_rec_begin(&w, sizeof(w), PT_REC_WINDOW, ts, (uint32_t)c->trainer);
	w.index = index;
	w.ended = ended;
	pt_queue_record(c, &w, sizeof(w));
}

int pt_capture_quiet(struct pt_capture *c, bool quiet)
{
	int r = 0;

	if (c->stopped || c->quiet == quiet)
		return 0;
	if (!quiet)
		r = pt_run_pass(c, PT_PASS_AGAIN, 0);
	c->skel->bss->pt_armed = quiet ? PT_QUIET : PT_ARMED;
	c->quiet = quiet;
	return r;
}

int pt_capture_window(struct pt_capture *c, uint32_t index, bool ended,
		      pt_record_fn fn, void *ctx)
{
	uint64_t ts = pt_now_ns();
	int r = 0, d;

	if (c->stopped)
		return 0;
	/* what is open at its end belongs to it */
	r = pt_run_pass(c, ended ? PT_PASS_OPEN : PT_PASS_COUNT, ended ? ts : 0);
	if (!r)
		pt_cost_tick(c);
	pt_sample_tree(c);
	d = pt_capture_drain(c, fn, ctx);
	pt_missed_tick(c, ts);
	pt_queue_loss(c);
	queue_window(c, index, ended, ts);
	pt_flush_queue(c, fn, ctx);
	return r ? r : d < 0 ? d : 0;
}
