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

/* So many looks at its Python in such sleeps, and so many of them there, are no chance. */
#define LOOKS_MIN 4
#define LOOKS_SHARE 0.8

/* Does its Python sleep for others in the job's own functions (with lock:), not in what hands over
 * (a queue's get(), a condition)? A lock that its holder takes again at once, many times before
 * somebody else has it, looks like a hand-over from outside. */
static bool sleeps_in_own_code(const struct pt_an *an, const struct pt_thread *th)
{
	size_t n = 0, own = 0;

	pt_each(const struct pt_code_look, l, &th->looks) {
		size_t i = pt_iv_after(th, l->begin);
		const struct pt_iv *iv = i < th->iv.n ? &th->iv.v[i] : NULL;
		const struct pt_code_stack *s = pt_model_stack(an->m, l->stack);
		const struct pt_code_line *line = s ? pt_model_line(an->m, s->line) : NULL;

		if (l->running || !line || !iv || iv->begin > l->begin ||
		    (iv->wait != PT_WAIT_FUTEX && iv->wait != PT_WAIT_SEM))
			continue;
		n++;
		own += !line->library && !line->native;
	}
	return n >= LOOKS_MIN && (double)own >= LOOKS_SHARE * (double)n;
}

static bool is_for_lock(const struct pt_trainer *t, const struct pt_thread *th,
			const struct pt_thread *who, const struct pt_iv *iv, bool own)
{
	int w;

	return pt_is_lock(t->look->paths, th, iv) ||
	       (own && who && who->proc == th->proc && makes(t, who, &w));
}

static int take_sleeps(const struct pt_an *an, const struct pt_trainer *t,
		       const struct pt_worker *w, pt_spans *out)
{
	const struct pt_thread *th = w->main, *who;
	bool own = sleeps_in_own_code(an, th);
	int err = 0;

	pt_each_iv(iv, th, an->t0, an->t1) {
		struct pt_span s = { iv->begin, iv->ready };

		who = iv->valid_wake ? pt_model_thread(an->m, iv->waker_tid) : NULL;
		if (iv->wait == PT_WAIT_RUNQ || pt_rests(w, iv) ||
		    !is_for_lock(t, th, who, iv, own) ||
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
