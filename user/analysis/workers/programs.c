/* SPDX-License-Identifier: BSD-2-Clause */
/* What a sleep of a worker is for: also what programs do meanwhile that it has started. */
#include "analysis/waits/givers.h"
#include "analysis/waits/look.h"

struct others {
	const struct pt_proc *own;
	uint64_t computed; /* ns, or ready to */
};

static int on_leg(void *ctx, const struct pt_leg *l)
{
	struct others *o = ctx;

	if ((l->kind == PT_LEG_RUN || l->kind == PT_LEG_QUEUE) && l->th->proc != o->own)
		o->computed += l->end - l->begin;
	return 0;
}

/* Does `w` sleep in `iv` while a program that it has started computes (gzip, ffmpeg), until that
 * has ended, or has written something? */
static bool program_computes(const struct pt_an *an, const struct pt_trainer *t,
			     const struct pt_worker *w, const struct pt_iv *iv)
{
	const struct pt_thread *by = iv->valid_wake && t->look ?
					     pt_model_thread(an->m, iv->waker_tid) : NULL;
	struct others o = { .own = w->proc };

	return by && by->proc != o.own && !pt_worker_index(t, by, NULL) &&
	       pt_descends_from(an->m, by->proc, o.own->tgid) &&
	       !pt_walk_cause(an, t->look->paths, w->main, iv->begin, iv->ready, on_leg, &o) &&
	       2 * o.computed > iv->ready - iv->begin;
}

enum pt_cause pt_piece_cause(const struct pt_an *an, const struct pt_trainer *t,
			     const struct pt_worker *w, const struct pt_iv *iv)
{
	enum pt_cause c = pt_rests(w, iv) ? PT_CAUSE_WORKER_IDLE : pt_sleep_cause(an, iv);

	return w && (c == PT_CAUSE_UNKNOWN || c == PT_CAUSE_IPC) && program_computes(an, t, w, iv) ?
		       PT_CAUSE_CPU : c;
}
