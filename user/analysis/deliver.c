/* SPDX-License-Identifier: BSD-2-Clause */
/* Which worker made the batch that ended a wait, and when it had made it. */
#include <errno.h>
#include <stdlib.h>

#include "analysis/internal.h"

/* Who woke `th` last within [b,e], of the workers: over a pipe that batches
 * come through, or a socket that carries their descriptors. *last is the sleep
 * that ended so. */
static int last_waker(struct pt_trainer *t, const struct pt_thread *th,
		      uint64_t b, uint64_t e, const struct pt_iv **last)
{
	int found = -1, w;
	size_t i;

	for (i = pt_iv_after(th, b); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= e || iv->ready > e)
			break;
		if ((iv->wait != PT_WAIT_SOCK && iv->wait != PT_WAIT_PIPE_IN) ||
		    !iv->valid_wake || iv->ready < b ||
		    !pt_is_worker(t, iv->waker_tgid, &w))
			continue;
		found = w;
		*last = iv;
		t->fd_sharing |= iv->wait == PT_WAIT_SOCK;
	}
	return found;
}

/* The last wake-up of the main thread by the pin thread in [b,e]; e if none. */
static uint64_t pin_wake(const struct pt_trainer *t, uint64_t b, uint64_t e)
{
	const struct pt_thread *th = t->main;
	uint64_t at = e;
	size_t i;

	for (i = pt_iv_after(th, b); i < th->iv.n; i++) {
		const struct pt_iv *iv = &th->iv.v[i];

		if (iv->begin >= e || iv->ready > e)
			break;
		if (pt_is_batch_wait(t, th, iv))
			at = iv->ready;
	}
	return at;
}

/* Did `w`, which writes by itself, write something behind the sleep `iv` of
 * the receiver and before `e`? Its count of bytes grew from one switch to the
 * next, which may lie a little farther apart. */
static bool wrote_behind(const struct pt_worker *w, const struct pt_iv *iv,
			 uint64_t e)
{
	const struct pt_thread *th = w->main;
	size_t i = pt_iv_after(th, iv->ready);

	/* an interval tells the bytes up to its begin */
	while (i < th->iv.n && th->iv.v[i].begin <= iv->ready)
		i++;
	for (; i && i < th->iv.n && th->iv.v[i - 1].end < e; i++)
		if (th->iv.v[i].wchar > th->iv.v[i - 1].wchar)
			return true;
	return false;
}

/* Bytes that `th` read behind its sleep `iv` in the wait of `s`: until its
 * first switch behind that, if the next wait had not begun then. 0: unknown. */
static uint64_t read_behind(const struct pt_thread *th, const struct pt_iv *iv,
			    const struct pt_step *s)
{
	size_t i = pt_iv_after(th, s->wait_end);

	while (i < th->iv.n && th->iv.v[i].begin < s->wait_end)
		i++;
	return i < th->iv.n && th->iv.v[i].begin < s->end &&
			       th->iv.v[i].rchar > iv->rchar ?
		       th->iv.v[i].rchar - iv->rchar : 0;
}

/*
 * A batch may come while the receiver takes in another one, and wakes nobody.
 * Of workers that write by themselves the bytes tell: one other than `waker`
 * wrote meanwhile, and more was read than one message. Its index; -1: none,
 * or it may be one of several.
 */
static int unseen_writer(const struct pt_trainer *t, const struct pt_step *s,
			 const struct pt_iv *iv, int waker)
{
	int found = -1;
	size_t i;

	if (!(t->message_bytes > 0) ||
	    (double)read_behind(t->receiver, iv, s) < 1.5 * t->message_bytes)
		return -1;
	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *w = &t->workers.v[i];

		if ((int)i == waker || w->feeder != w->main ||
		    !wrote_behind(w, iv, s->wait_end))
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

/* What the receiver reads for one message, as a rule: bytes behind the last
 * sleep of a wait. NAN: unknown. 0 or -ENOMEM. */
static int message_size(struct pt_trainer *t, double *size)
{
	const struct pt_iv *sleep;
	pt_doubles v = { 0 };
	size_t i;
	int err = 0;

	for (i = 0; i < t->steps.n && !err; i++) {
		const struct pt_step *s = &t->steps.v[i];
		uint64_t n = 0;

		if (last_waker(t, t->receiver, s->wait_begin, s->wait_end,
			       &sleep) >= 0)
			n = read_behind(t->receiver, sleep, s);
		if (n)
			err = pt_vec_push(&v, (double)n);
	}
	*size = pt_median(v.v, v.n);
	pt_vec_free(&v);
	return err;
}

/*
 * Who made the batch that ended this wait, by what the wait itself shows. A
 * message that arrived out of order is received, descriptors and all, before
 * the one that is delivered, so the last sender counts.
 */
static int deliverer(struct pt_trainer *t, const struct pt_step *s)
{
	uint64_t b = s->wait_begin, e = s->wait_end;
	const struct pt_iv *sleep = NULL;
	int waker, behind;

	if (t->pin) {
		e = pin_wake(t, b, e);
		/* it may have received the batch before we began to wait */
		b = b > 50 * NS_PER_MS ? b - 50 * NS_PER_MS : 0;
	}
	waker = last_waker(t, t->receiver, b, e, &sleep);
	if (waker < 0 || t->workers.v[waker].feeder != t->workers.v[waker].main)
		return waker;
	behind = unseen_writer(t, s, sleep, waker);
	return behind < 0 ? waker : behind;
}

/* Index of the first mark behind `ts`. */
static size_t mark_after(const struct pt_trainer *t, uint64_t ts)
{
	size_t lo = 0, hi = t->marks.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->marks.v[mid].ts <= ts)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct pt_step pt_wait_part(struct pt_trainer *t, const struct pt_step *s,
			    uint64_t from)
{
	bool paused = s->pause_end > s->pause_begin;
	struct pt_step p = *s;
	int refilled = -1;
	size_t i;

	if (paused && from >= s->pause_begin)
		from = pt_max64(from, s->pause_end);
	p.wait_begin = from;
	p.pause_begin = p.pause_end = 0;
	if (paused && from < s->pause_begin)
		p.wait_end = p.end = s->pause_begin;
	if (s->batches < 2)
		return p;
	i = mark_after(t, from);
	if (i < t->marks.n && t->marks.v[i].ts < p.wait_end) {
		p.wait_end = p.end = t->marks.v[i].ts;
		if (!t->marks_direct)
			refilled = t->feeders.v[t->marks.v[i].source].worker;
	}
	p.worker = refilled >= 0 ? refilled : deliverer(t, &p);
	if (p.worker < 0)
		p.worker = s->worker;
	return p;
}

/* How long the receiver slept for batches in [b,e). */
static uint64_t slept(const struct pt_trainer *t, uint64_t b, uint64_t e)
{
	const struct pt_thread *r = t->receiver;
	uint64_t sum = 0;
	size_t i;

	for (i = pt_iv_after(r, b); i < r->iv.n && r->iv.v[i].begin < e; i++)
		if (pt_is_batch_wait(t, r, &r->iv.v[i]))
			sum += pt_overlap(b, e, r->iv.v[i].begin,
					  r->iv.v[i].ready);
	return sum;
}

/* Of several batches, the one that was waited for longest counts. */
static int longest_awaited(struct pt_trainer *t, const struct pt_step *s)
{
	uint64_t from, most = 0, ns;
	int worker = s->worker;
	struct pt_step p;

	for (from = s->wait_begin; from < s->wait_end; from = p.wait_end) {
		p = pt_wait_part(t, s, from);
		ns = slept(t, p.wait_begin, p.wait_end);
		if (ns > most) {
			most = ns;
			worker = p.worker;
		}
	}
	return worker;
}

/*
 * Which worker's slot does each mark refill? A loader with bounded prefetch
 * hands the next index to the worker whose batch it has just consumed, so
 * the refilled worker and the deliverer agree if that is how this loader
 * works. Learned from the waits where the deliverer was seen, and trusted
 * only where it fits nearly always (`ok`, sources by workers).
 */
static int learn_refill(struct pt_trainer *t, int *map)
{
	size_t ns = t->marks_direct ? t->workers.n : t->feeders.n;
	size_t nw = t->workers.n, i, j;
	uint32_t *seen;

	if (!ns || !nw)
		return 0;
	seen = calloc(ns * nw, sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	for (i = 0; i < t->steps.n; i++) {
		const struct pt_step *s = &t->steps.v[i];

		if (s->worker >= 0 && s->mark_source >= 0 && s->blocked_ns)
			seen[(size_t)s->mark_source * nw + (size_t)s->worker]++;
	}
	for (i = 0; i < ns; i++) {
		uint32_t sum = 0, best = 0, second = 0;

		map[i] = -1;
		for (j = 0; j < nw; j++) {
			uint32_t n = seen[i * nw + j];

			sum += n;
			second = n > best ? best : n > second ? n : second;
			if (n > best) {
				best = n;
				map[i] = (int)j;
			}
		}
		/* what speaks for another is chance, not a second rule */
		if (sum < 4 || best < 3 * second)
			map[i] = -1;
	}
	free(seen);
	return 0;
}

/*
 * The wait that the capture's end cut: nobody has delivered. Where batches
 * have come from the workers in turn, the next in turn is waited for.
 */
static int next_in_turn(const struct pt_trainer *t)
{
	size_t n = t->concurrent, last = t->steps.n - 1, i;

	if (!n || last < 3 * n)
		return -1;
	for (i = last - 1; i >= last - 2 * n; i--)
		if (t->steps.v[i].worker < 0 ||
		    t->steps.v[i].worker != t->steps.v[i - n].worker)
			return -1;
	return t->steps.v[last - n].worker;
}

/* Does worker `w` sleep for an index when the capture ends? */
static bool ends_idle(const struct pt_an *an, const struct pt_worker *w)
{
	const struct pt_iv *iv;

	if (!w->main->iv.n)
		return false;
	iv = &w->main->iv.v[w->main->iv.n - 1];
	return iv->open && iv->ready >= an->t1 &&
	       pt_piece_cause(an, w, iv) == PT_CAUSE_WORKER_IDLE;
}

/*
 * ... and where all others have made what they were asked for and sleep, the
 * one that is still at work is waited for, whatever the order was.
 */
static int last_at_work(const struct pt_an *an, const struct pt_trainer *t)
{
	int found = -1;
	size_t i;

	for (i = 0; i < t->workers.n; i++) {
		const struct pt_worker *w = &t->workers.v[i];

		if (w->main->exited || ends_idle(an, w))
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

static int name_deliverers(const struct pt_an *an, struct pt_trainer *t)
{
	struct pt_step *last;
	size_t ns = t->marks_direct ? t->workers.n : t->feeders.n, i;
	int *map, err = message_size(t, &t->message_bytes);

	if (err)
		return err;
	for (i = 0; i < t->steps.n; i++)
		t->steps.v[i].worker = deliverer(t, &t->steps.v[i]);
	map = malloc((ns + 1) * sizeof(*map));
	if (!map)
		return -ENOMEM;
	for (i = 0; i < ns; i++)
		map[i] = -1;
	err = learn_refill(t, map);
	for (i = 0; !err && i < t->steps.n; i++) {
		struct pt_step *s = &t->steps.v[i];

		if (s->mark_source >= 0 && map[s->mark_source] >= 0)
			s->worker = map[s->mark_source];
	}
	for (i = 0; !t->marks_direct && i < ns; i++)
		t->feeders.v[i].worker = map[i];
	for (i = 0; !err && i < t->steps.n; i++)
		if (t->steps.v[i].batches > 1)
			t->steps.v[i].worker =
				longest_awaited(t, &t->steps.v[i]);
	last = t->steps.n ? &t->steps.v[t->steps.n - 1] : NULL;
	if (last && last->cut_end && !last->end_seen) {
		last->worker = last_at_work(an, t);
		if (last->worker < 0)
			last->worker = next_in_turn(t);
	}
	free(map);
	return err;
}

/* When each worker had a batch made: it wakes its sender. */
static int collect_done(struct pt_an *an, struct pt_trainer *t)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->workers.n && !err; i++) {
		struct pt_worker *w = &t->workers.v[i];
		uint64_t wakes = 0;

		if (w->feeder != w->main)
			err = pt_rest_wakes(an, w->feeder, w->main, &w->done,
					    &wakes);
	}
	return err;
}

static int cmp_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* A batch that came while the receiver was not asleep woke nobody: the worker
 * has written something, and waits for its next index. */
static int collect_unnoticed(struct pt_an *an, struct pt_worker *w)
{
	const struct pt_thread *th = w->main;
	size_t i, first = pt_iv_after(th, an->t0), known = w->done.n, k = 0;
	uint64_t written = first < th->iv.n ? th->iv.v[first].wchar : 0;

	for (i = first + 1; i < th->iv.n && th->iv.v[i].begin < an->t1; i++) {
		const struct pt_iv *iv = &th->iv.v[i];
		uint64_t since = th->iv.v[i - 1].end;

		if (pt_piece_cause(an, w, iv) != PT_CAUSE_WORKER_IDLE ||
		    iv->wchar <= written)
			continue;
		written = iv->wchar;
		while (k < known && w->done.v[k] <= since)
			k++;
		if (k < known && w->done.v[k] <= iv->begin)
			continue; /* the one whose wake-up was seen */
		if (pt_vec_push(&w->done, iv->begin))
			return -ENOMEM;
	}
	if (w->done.n > known)
		qsort(w->done.v, w->done.n, sizeof(*w->done.v), cmp_time);
	return 0;
}

/* Without a sender thread a worker's own wake-ups of the receiver tell, and
 * what it writes. */
static int collect_direct(struct pt_an *an, struct pt_trainer *t)
{
	const struct pt_thread *r = t->receiver;
	size_t i;
	int w;

	for (i = pt_iv_after(r, an->t0); i < r->iv.n; i++) {
		const struct pt_iv *iv = &r->iv.v[i];

		if (iv->begin >= an->t1)
			break;
		if (pt_is_batch_wait(t, r, iv) && iv->valid_wake &&
		    pt_is_worker(t, iv->waker_tgid, &w) &&
		    t->workers.v[w].feeder == t->workers.v[w].main &&
		    pt_vec_push(&t->workers.v[w].done, iv->ready))
			return -ENOMEM;
	}
	for (i = 0; i < t->workers.n; i++)
		if (t->workers.v[i].feeder == t->workers.v[i].main &&
		    collect_unnoticed(an, &t->workers.v[i]))
			return -ENOMEM;
	return 0;
}

/* A batch made longer ago than this had mostly come long before: its mark
 * belongs to an earlier batch, and this one's is missing ... */
#define MADE_BEFORE_NS (5 * NS_PER_MS)

/* ... unless the sender, woken at `mark` to send it, had written no item yet
 * when the batch came at `arrived`: it lacked a core, or is slow. */
static bool still_sending(const struct pt_worker *w, uint64_t mark,
			  uint64_t arrived)
{
	const struct pt_thread *th = w->feeder;
	size_t i = pt_iv_after(th, mark - 1), last = i;

	if (w->feeder == w->main || i >= th->iv.n || th->iv.v[i].ready != mark)
		return false;
	/* an interval tells the bytes up to its begin */
	while (last + 1 < th->iv.n && th->iv.v[last + 1].begin < arrived)
		last++;
	return th->iv.v[last].wchar - th->iv.v[i].wchar < PT_ITEM_BYTES;
}

uint64_t pt_made_at(const struct pt_trainer *t, const struct pt_worker *w,
		    const struct pt_step *s)
{
	const struct pt_thread *r = t->receiver;
	uint64_t arrived = s->wait_end;
	size_t i, lo;

	for (i = pt_iv_after(r, s->wait_begin); i < r->iv.n; i++) {
		if (r->iv.v[i].begin >= s->wait_end ||
		    r->iv.v[i].ready > s->wait_end)
			break;
		if (pt_is_batch_wait(t, r, &r->iv.v[i]))
			arrived = r->iv.v[i].ready;
	}
	lo = pt_times_until(&w->done, arrived);
	if (!lo || (w->done.v[lo - 1] + MADE_BEFORE_NS < s->wait_begin &&
		    !still_sending(w, w->done.v[lo - 1], arrived)))
		return UINT64_MAX;
	return w->done.v[lo - 1];
}

bool pt_waits_on_several(const struct pt_trainer *t, const struct pt_step *s)
{
	const struct pt_thread *r = t->receiver;
	uint64_t pipe = 0;
	size_t i;

	for (i = pt_iv_after(r, s->wait_begin); i < r->iv.n; i++) {
		const struct pt_iv *iv = &r->iv.v[i];

		if (iv->begin >= s->wait_end)
			break;
		if (iv->wait != PT_WAIT_PIPE_IN || !pt_is_batch_wait(t, r, iv))
			continue;
		if (pipe && iv->object != pipe)
			return true;
		pipe = iv->object;
	}
	return false;
}

int pt_sender_on(const struct pt_trainer *t, const struct pt_step *s,
		 uint64_t pipe)
{
	const struct pt_thread *r = t->receiver;
	int found = -1, w;
	size_t i;

	for (i = pt_iv_after(r, s->wait_begin); i < r->iv.n; i++) {
		const struct pt_iv *iv = &r->iv.v[i];

		if (iv->begin >= s->wait_end)
			break;
		if (iv->wait == PT_WAIT_PIPE_IN && iv->object == pipe &&
		    iv->valid_wake && pt_is_worker(t, iv->waker_tgid, &w))
			found = w;
	}
	return found;
}

int pt_name_deliverers(struct pt_an *an, struct pt_trainer *t)
{
	int err = collect_done(an, t);

	if (!err)
		err = collect_direct(an, t);
	return err ? err : name_deliverers(an, t);
}
