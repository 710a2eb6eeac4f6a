// SPDX-License-Identifier: BSD-2-Clause
/* --cupti: agents in the trainers of the trace. */
#include <errno.h>

#include "cmd/session.h"

static void on_sentence(void *ctx, const char *text)
{
	(void)ctx;
	pt_live_clear();
	pt_note("%s", text);
}

/* Trainers of every tree that is traced, as they are now. */
static void add_trainers(struct pt_session *s)
{
	pid_t pids[PT_MAX_TRAINERS];
	struct pt_tree t = { 0 };
	bool unreadable = false;
	size_t r, i, n;

	if (!pt_tree_snapshot(&t)) {
		for (r = 0; r < s->n_roots; r++) {
			n = pt_trainers(&t, s->roots[r], pids, PT_MAX_TRAINERS,
					&unreadable);
			for (i = 0; i < n && i < PT_MAX_TRAINERS; i++)
				if (pt_is_target(s->cap, pids[i]))
					pt_cupti_add(s->cupti, pids[i]);
		}
	}
	pt_tree_free(&t);
}

int pt_session_exact_begin(struct pt_session *s, struct pt_err *err)
{
	struct pt_cupti_opts o = { .record = pt_session_record,
				   .say = on_sentence,
				   .ctx = s,
				   .no_gpu_probes = s->o->no_gpu_probes };

	if (!s->o->cupti)
		return 0;
	s->cupti = pt_cupti_new(&o);
	if (!s->cupti)
		return pt_err_set(err, -ENOMEM, "out of memory");
	add_trainers(s);
	return 0;
}

void pt_session_exact_tick(struct pt_session *s)
{
	if (!s->cupti)
		return;
	add_trainers(s);
	pt_capture_lost_elsewhere(s->cap, PT_LOSS_ACTIVITY,
				  pt_cupti_lost(s->cupti));
}

/* The rings of the kernel must not fill while the agents become quiet. */
static void keep_draining(void *ctx)
{
	struct pt_session *s = ctx;

	pt_capture_drain(s->cap, pt_session_record, s);
}

void pt_session_exact_quiet(struct pt_session *s)
{
	if (!s->cupti)
		return;
	pt_cupti_quiet(s->cupti, keep_draining, s);
	pt_capture_lost_elsewhere(s->cap, PT_LOSS_ACTIVITY,
				  pt_cupti_lost(s->cupti));
}

void pt_session_exact_state(struct pt_session *s)
{
	const char *door;
	char note[160];

	if (!s->cupti)
		return;
	/* a report does not wait long for what is taken out beside it */
	pt_cupti_settle(s->cupti, 300);
	door = pt_cupti_state(s->cupti, note, sizeof(note));
	pt_capture_hook(s->cap, "gpu_times", door, note);
}
