// SPDX-License-Identifier: BSD-2-Clause
/*
 * When a trace records: --at and --schedule.
 *
 * --schedule: wait, warm up, be active, again and again, as torch.profiler does.
 * In the waits the hooks are quiet. Nothing can be counted then, so a wait that
 * is given in steps lasts as long as so many of those took that were seen last;
 * before any was seen, the first wait is watched to count them.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "cmd/session.h"

#define NS 1000000000ull

/* "20": steps; "20s": time. */
static int span_opt(const char *text, struct pt_span_opt *out)
{
	*out = (struct pt_span_opt){ 0 };
	if (!pt_parse_int(text, 0, 1000000000, &out->steps))
		return 0;
	return pt_parse_span(text, &out->ns);
}

int pt_parse_schedule(const char *text, struct pt_schedule_opt *out)
{
	const struct {
		const char *key;
		struct pt_span_opt *span;
	} keys[] = { { "wait=", &out->wait }, { "warmup=", &out->warmup },
		     { "active=", &out->active } };
	char one[48];
	size_t i, n;

	memset(out, 0, sizeof(*out));
	for (;; text += n + 1) {
		n = strcspn(text, ",");
		if (n >= sizeof(one))
			return -EINVAL;
		memcpy(one, text, n);
		one[n] = '\0';
		for (i = 0; i < 3; i++)
			if (!strncmp(one, keys[i].key, strlen(keys[i].key)))
				break;
		if (i < 3 ? span_opt(one + strlen(keys[i].key), keys[i].span) :
			    strncmp(one, "repeat=", 7) ||
				    pt_parse_int(one + 7, 0, 1000000,
						 &out->repeat))
			return -EINVAL;
		if (!text[n])
			break;
	}
	out->set = true;
	return out->active.ns || out->active.steps ? 0 : -EINVAL;
}

static const struct pt_span_opt *span_of(const struct pt_session *s)
{
	const struct pt_schedule_opt *o = &s->o->schedule;

	switch (s->sched.phase) {
	case PT_PHASE_WAIT:
		return &o->wait;
	case PT_PHASE_WARMUP:
		return &o->warmup;
	default:
		return &o->active;
	}
}

/* The steps of the phase that ends were counted while it was watched. */
static void learn(struct pt_session *s)
{
	uint64_t took = s->newest_step_ns > s->sched.since ?
				s->newest_step_ns - s->sched.since : 0;

	if (s->steps_begun > 1 && took)
		s->sched.step_ns = took / (uint64_t)s->steps_begun;
}

static bool is_over(const struct pt_session *s, uint64_t now)
{
	const struct pt_span_opt *p = span_of(s);
	uint64_t gone = now > s->sched.since ? now - s->sched.since : 0;

	if (!p->steps)
		return gone >= p->ns;
	if (s->sched.phase == PT_PHASE_WAIT && s->sched.step_ns)
		return gone / s->sched.step_ns >= (uint64_t)p->steps;
	return s->steps_begun > p->steps;
}

/* A wait in steps that cannot be timed yet is watched. */
bool pt_schedule_quiet(const struct pt_session *s)
{
	return s->o->schedule.set && s->sched.phase == PT_PHASE_WAIT &&
	       (!s->o->schedule.wait.steps || s->sched.step_ns);
}

static int enter(struct pt_session *s, enum pt_phase phase, uint64_t now)
{
	int ret;

	learn(s);
	s->sched.phase = phase;
	s->sched.since = s->newest_step_ns = now;
	s->steps_begun = 0;
	/* what was on its way belongs to the phase before */
	ret = pt_capture_drain(s->cap, pt_session_record, s);
	if (ret >= 0)
		ret = pt_capture_quiet(s->cap, pt_schedule_quiet(s));
	if (!ret && phase == PT_PHASE_ACTIVE)
		ret = pt_capture_window(s->cap, (uint32_t)s->sched.cycle, false,
					pt_session_record, s);
	return ret < 0 ? ret : 0;
}

/* The phase behind this one that is not empty. */
static enum pt_phase next_phase(const struct pt_session *s)
{
	const struct pt_schedule_opt *o = &s->o->schedule;
	bool waits = o->wait.steps || o->wait.ns;
	bool warms = o->warmup.steps || o->warmup.ns;

	if (s->sched.phase == PT_PHASE_ACTIVE && waits)
		return PT_PHASE_WAIT;
	if (s->sched.phase != PT_PHASE_WARMUP && warms)
		return PT_PHASE_WARMUP;
	return PT_PHASE_ACTIVE;
}

int pt_schedule_begin(struct pt_session *s)
{
	if (!s->o->schedule.set)
		return 0;
	s->sched.phase = PT_PHASE_ACTIVE; /* behind one comes the first */
	return enter(s, next_phase(s), pt_now_ns());
}

int pt_schedule_end(struct pt_session *s)
{
	int ret;

	if (!s->o->schedule.set || s->sched.phase != PT_PHASE_ACTIVE)
		return 0;
	ret = pt_capture_window(s->cap, (uint32_t)s->sched.cycle, true,
				pt_session_record, s);
	return ret < 0 ? ret : 0;
}

int pt_schedule_step(struct pt_session *s)
{
	uint64_t now = pt_now_ns();
	int ret;

	if (!s->o->schedule.set || s->stop || !is_over(s, now))
		return 0;
	ret = pt_schedule_end(s);
	if (ret)
		return ret;
	if (s->sched.phase == PT_PHASE_ACTIVE &&
	    ++s->sched.cycle == s->o->schedule.repeat) {
		s->sched.phase = PT_PHASE_WAIT; /* nothing is active any more */
		s->stop = PT_STOP_TIME;
		return 0;
	}
	return enter(s, next_phase(s), now);
}

int pt_wait_at(const struct pt_opts *o)
{
	clockid_t clock = o->at_aligned ? CLOCK_REALTIME : CLOCK_MONOTONIC;
	uint64_t now = pt_clock_ns(clock), at;
	sigset_t set;

	if (!o->at_ns)
		return 0;
	at = o->at_aligned ? (now / o->at_ns + 1) * o->at_ns : now + o->at_ns;
	pt_stop_signals(&set);
	pt_note("the trace begins in %.1f s", (double)(at - now) / 1e9);
	while (now < at) {
		/* in small parts: the clock of the day may be set meanwhile */
		uint64_t left = at - now < NS / 2 ? at - now : NS / 2;
		struct timespec t = { 0, (long)left };

		if (sigtimedwait(&set, NULL, &t) > 0) {
			pt_note("interrupted before the trace began");
			return -EINTR;
		}
		now = pt_clock_ns(clock);
		if (o->at_aligned && at > now + o->at_ns) /* it was set back */
			at = (now / o->at_ns + 1) * o->at_ns;
	}
	return 0;
}
