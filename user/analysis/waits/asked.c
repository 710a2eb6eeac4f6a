/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks that those who make batches share: for how much of the waiting for data one
 * of them waits for a lock while another has it and works. Where that is nearly
 * always, what is under the lock is done in turn, and no other worker helps: the lock
 * is the root, whatever its holder does.
 */

#include "analysis/health.h"
#include "analysis/waits/look.h"

static bool makes(const struct pt_trainer *t, const struct pt_thread *th, int *w)
{
	return pt_worker_index(t, th, w) && t->workers.v[*w].main == th &&
	       t->workers.v[*w].role != PT_ROLE_HELPER;
}

/* Did who ended the sleep work for most of it? Makers that wait for work in turn share
 * a lock, too. Another rank's maker had the lock, in any case. */
static bool holder_works(const struct pt_trainer *t, const struct pt_thread *th,
			 const struct pt_thread *who, const struct pt_iv *iv)
{
	int w;

	if (!makes(t, who, &w))
		return who->proc != t->proc && who->proc != th->proc;
	return 2 * pt_rest_ns(&t->workers.v[w], iv->begin, iv->ready) <
	       iv->ready - iv->begin;
}

static int take_sleeps(const struct pt_an *an, const struct pt_trainer *t,
		       const struct pt_worker *w, pt_spans *out)
{
	const struct pt_thread *th = w->main, *who;
	int err = 0;

	pt_each_iv(iv, th, an->t0, an->t1) {
		struct pt_span s = { iv->begin, iv->ready };

		who = iv->valid_wake ? pt_model_thread(an->m, iv->waker_tid) : NULL;
		if (iv->wait == PT_WAIT_RUNQ || pt_rests(w, iv) ||
		    !pt_is_lock(t->look->paths, th, iv) ||
		    (who ? !holder_works(t, th, who, iv) :
			   iv->wait == PT_WAIT_FUTEX))
			continue;
		err = err ?: pt_vec_push(out, s);
	}
	return err;
}

int pt_sum_asked(const struct pt_an *an, struct pt_trainer *t)
{
	pt_spans asked = { 0 }, waits = { 0 };
	size_t i;
	int err = pt_wait_spans(an, t, &waits);

	for (i = 0; i < t->workers.n && !err; i++)
		if (t->workers.v[i].role != PT_ROLE_HELPER)
			err = take_sleeps(an, t, &t->workers.v[i], &asked);
	pt_spans_tidy(&asked, 0, UINT64_MAX);
	if (!err)
		t->lock_asked_ns = pt_spans_overlap(&asked, &waits);
	pt_vec_free(&asked);
	pt_vec_free(&waits);
	return err;
}
