// SPDX-License-Identifier: BSD-2-Clause
#include "view/timeline/stacks.h"

#include <errno.h>

/* What is shorter between two records of one sleep, which comes as one a second while it is
 * open, is no running. */
#define SEAM_NS 1000

struct walk {
	const struct pt_model *m;
	const struct pt_thread *th;
	struct pt_stack_times out; /* of this thread */
	uint64_t begin, end;	   /* asked for */
	size_t look;
	uint64_t from, until; /* a stretch in one state; equal: none is open */
	uint32_t state;
	uint64_t looks; /* running */
	uint64_t slept[PT_WAIT_NR], seen[PT_WAIT_NR]; /* ns; seen: a look met it */
	bool failed;	/* no memory */
};

static void meet(struct walk *k, uint64_t ns)
{
	const struct pt_code_look *l = &k->th->looks.v[k->look];
	const struct pt_stack_key key = { l->leaf, pt_model_function(k->m, l), k->state };
	struct pt_stack_time *t = pt_hash_make(k->out.all, key, &key);

	k->failed |= !t;
	if (!t)
		return;
	t->ns += ns;
	t->looks += k->state == PT_PAST_RUNNING;
	k->looks += k->state == PT_PAST_RUNNING;
}

static bool look_in(const struct walk *k)
{
	return k->look < k->th->looks.n && k->th->looks.v[k->look].end < k->until;
}

/* The stretch is over. A look that began before it was torn, and tells nothing. */
static void close_stretch(struct walk *k)
{
	const struct pt_code_look *l = k->th->looks.v;
	uint64_t ns = k->until - k->from;

	while (k->look < k->th->looks.n && l[k->look].begin < k->from)
		k->look++;
	if (k->state == PT_PAST_RUNNING) {
		k->out.ran_ns += ns;
		for (; look_in(k); k->look++)
			meet(k, 0);
	} else {
		k->slept[k->state] += ns;
		if (k->look < k->th->looks.n && l[k->look].end <= k->until) {
			k->seen[k->state] += ns;
			meet(k, ns);
		}
	}
	k->from = k->until;
}

static void state_in(void *ctx, uint64_t begin, uint64_t end, unsigned state)
{
	struct walk *k = ctx;

	if (state == PT_WAIT_RUNQ)
		state = PT_PAST_RUNNING;
	if (state > PT_PAST_RUNNING)
		state = PT_WAIT_OTHER;
	begin = begin > k->begin ? begin : k->begin;
	end = end < k->end ? end : k->end;
	if (end <= begin)
		return;
	if (state == PT_PAST_RUNNING && end - begin <= SEAM_NS && k->state != state)
		return;
	if (k->from < k->until && (k->state != state || begin > k->until + SEAM_NS))
		close_stretch(k);
	if (k->from == k->until)
		k->from = begin;
	k->state = state;
	k->until = end;
}

static uint64_t part_of(uint64_t all, uint64_t part, uint64_t parts)
{
	return (uint64_t)((double)all * (double)part / (double)parts);
}

/* What it ran, by the looks, and the sleeps that none met, by those for the same that some
 * did; into the sums. */
static void take(struct walk *k, struct pt_stack_times *to)
{
	struct pt_stack_time *t, *sum;
	int i;

	for (t = k->out.all; t && !k->failed; t = t->hh.next) {
		sum = pt_hash_make(to->all, key, &t->key);
		k->failed = !sum;
		if (!sum)
			break;
		sum->looks += t->looks;
		sum->ns += t->key.state == PT_PAST_RUNNING ?
				   part_of(k->out.ran_ns, t->looks, k->looks) :
				   part_of(k->slept[t->key.state], t->ns,
					   k->seen[t->key.state]);
	}
	to->ran_ns += k->out.ran_ns;
	to->ran_unseen_ns += k->looks ? 0 : k->out.ran_ns;
	for (i = 0; i < PT_WAIT_NR; i++) {
		to->slept_ns += k->slept[i];
		to->slept_unseen_ns += k->seen[i] ? 0 : k->slept[i];
	}
}

int pt_stacks_add(struct pt_stack_times *to, const struct pt_model *m,
		  const struct pt_thread *th, uint64_t begin, uint64_t end)
{
	struct walk k = { .m = m, .th = th, .begin = begin, .end = end };

	if (!th->looks.n)
		return 0;
	pt_thread_states(th, NULL, state_in, &k);
	if (k.from < k.until)
		close_stretch(&k);
	take(&k, to);
	pt_hash_free(k.out.all);
	return k.failed ? -ENOMEM : 0;
}

void pt_stacks_free(struct pt_stack_times *t)
{
	pt_hash_free(t->all);
	*t = (struct pt_stack_times){ NULL };
}
