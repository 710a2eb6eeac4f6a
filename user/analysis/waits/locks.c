/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/locks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/waits/feed.h"
#include "analysis/waits/host.h"
#include "base/hash.h"

/*
 * What threads sleep on, as one process sees it: who slept on it, and who ended that.
 * Of a futex the two words of a condition variable lie in eight bytes (glibc since
 * 2.25).
 */
enum answer { NOT_ASKED, NO, YES };
struct wakeup {
	uint64_t ts;
	uint32_t sleeper, waker;
	uint8_t lock, room; /* enum answer: what was slept for, by what is around it */
};
struct word {
	uint64_t key[2]; /* process, or a kind of object; address or object */
	PT_VEC(struct wakeup) wakeups; /* by ts, once all are in */
	/* sleeps with a look at their Python; at a `with`; at the lock of a condition */
	size_t looked, entering, conditions;
	size_t near; /* which was asked for last: the next one is not far */
	UT_hash_handle hh;
};

/* An interpreter's lock: mutexes and conditions in one structure. */
struct interpreter {
	uint32_t tgid, seen;
	uint64_t address; /* of a word in it */
};

struct pt_paths {
	const struct pt_model *m;
	const struct pt_proc *consumer;
	struct pt_feed feed;
	struct word *words; /* uthash, by key */
	PT_VEC(struct interpreter) interpreters;
};

/* ---- words ------------------------------------------------------------------- */

/* What may be a lock of the job's own making: a futex, a semaphore, a token that is
 * taken out of a pipe or an eventfd and put back. */
static bool may_lock(const struct pt_iv *iv)
{
	return iv->wait == PT_WAIT_FUTEX || iv->wait == PT_WAIT_SEM ||
	       iv->wait == PT_WAIT_EVENT || iv->wait == PT_WAIT_PIPE_IN;
}

static void sleep_key(const struct pt_thread *th, const struct pt_iv *iv,
		      uint64_t key[2])
{
	bool futex = iv->wait == PT_WAIT_FUTEX;

	key[0] = futex ? th->tgid : (uint64_t)iv->wait << 32;
	key[1] = futex ? iv->arg0 >> 3 : iv->object;
}

/* A futex has an address in each process. */
static void wake_key(const struct pt_thread *th, const struct pt_iv *iv,
		     uint64_t key[2])
{
	sleep_key(th, iv, key);
	if (iv->wait != PT_WAIT_FUTEX)
		return;
	key[0] = iv->waker_tgid;
	if (iv->waker_object)
		key[1] = iv->waker_object >> 3;
}

static struct word *word_of(const struct pt_paths *p, const uint64_t key[2])
{
	struct word *w;

	HASH_FIND(hh, p->words, key, 2 * sizeof(*key), w);
	return w;
}

/* CPython asks for its lock again and again: a sleep of 5 ms (sys.setswitchinterval
 * is hardly ever used) that nobody ends, and the next one at once. */
#define SWITCH_MIN_NS 4900000ull
#define SWITCH_MAX_NS 7000000ull
#define AT_ONCE_NS 200000ull
#define SWITCHES_MIN 3
/* The lock's structure is so large (3.8 to 3.13: 200 bytes and less). */
#define INTERPRETER_SIZE 256

static bool is_near(uint64_t a, uint64_t b)
{
	return a < b ? b - a < INTERPRETER_SIZE : a - b < INTERPRETER_SIZE;
}

static int note_switch(struct pt_paths *p, uint32_t tgid, uint64_t address)
{
	struct interpreter fresh = { tgid, 1, address };
	size_t i;

	for (i = 0; i < p->interpreters.n; i++) {
		struct interpreter *x = &p->interpreters.v[i];

		if (x->tgid != tgid || !is_near(x->address, address))
			continue;
		x->seen++;
		return 0;
	}
	return pt_vec_push(&p->interpreters, fresh);
}

static int find_switches(struct pt_paths *p, const struct pt_thread *th)
{
	size_t i;
	int err = 0;

	for (i = 0; i + 1 < th->iv.n && !err; i++) {
		const struct pt_iv *x = &th->iv.v[i], *y = x + 1;
		uint64_t ns = x->ready - x->begin;

		if (x->wait == PT_WAIT_FUTEX && !x->valid_wake &&
		    ns >= SWITCH_MIN_NS && ns <= SWITCH_MAX_NS &&
		    y->wait == PT_WAIT_FUTEX && y->begin <= x->end + AT_ONCE_NS &&
		    x->arg0 >> 4 == y->arg0 >> 4)
			err = note_switch(p, th->tgid, x->arg0);
	}
	return err;
}

static bool is_interpreter(const struct pt_paths *p, uint32_t tgid, uint64_t address)
{
	size_t i;

	for (i = 0; i < p->interpreters.n; i++)
		if (p->interpreters.v[i].tgid == tgid &&
		    p->interpreters.v[i].seen >= SWITCHES_MIN &&
		    is_near(p->interpreters.v[i].address, address))
			return true;
	return false;
}

static int add_wakeup(struct pt_paths *p, const uint64_t key[2],
		      const struct pt_thread *th, const struct pt_iv *iv)
{
	struct wakeup x = { .ts = iv->ready, .sleeper = th->tid, .waker = iv->waker_tid };
	struct word *w = pt_hash_make(p->words, key, key);

	return !w || pt_vec_push(&w->wakeups, x) ? -ENOMEM : 0;
}

static int take_words(struct pt_paths *p, const struct pt_thread *th)
{
	size_t i;
	int err = 0;

	for (i = 0; i < th->iv.n && !err; i++) {
		const struct pt_iv *iv = &th->iv.v[i];
		uint64_t slept[2], woken[2];

		if (!may_lock(iv) || !iv->valid_wake || iv->waker_tid == th->tid)
			continue;
		sleep_key(th, iv, slept);
		wake_key(th, iv, woken);
		err = add_wakeup(p, slept, th, iv);
		if (!err && memcmp(slept, woken, sizeof(slept)))
			err = add_wakeup(p, woken, th, iv);
	}
	return err;
}

PT_ORDER(by_time, struct wakeup, pt_cmp(x->ts, y->ts))

/* An address is a lock now and something else later (CPython makes a lock for each
 * wait for a condition): what so many wake-ups around one say. */
#define LOCK_AROUND 8
/* ... or so many: in a burst one thread asks for it again and again, and all others have it. */
#define LOCK_FAR 32
/* A few sleeps of each kind are chance. */
#define LOCK_MIN 3
#define LOCK_PART 5

/* Does who ended a sleep sleep on the same word as it did? */
static bool same_word(const struct pt_iv *slept, const struct pt_iv *waker)
{
	if (slept->wait != waker->wait)
		return false;
	return slept->wait == PT_WAIT_FUTEX ?
		       waker->arg0 == (slept->waker_object ? slept->waker_object : slept->arg0) :
		       waker->object == slept->object;
}

/*
 * Did whoever ended the sleep sleep on other words for most of it? Who has a lock hardly
 * does that: it was room that was waited for. (Each place of a ring is a word that its
 * maker and its taker sleep on, for it to be empty or full.)
 */
static bool was_for_room(const struct pt_paths *p, struct wakeup *x)
{
	const struct pt_thread *th = pt_model_thread(p->m, x->sleeper);
	const struct pt_thread *by = pt_model_thread(p->m, x->waker);
	size_t i = th ? pt_iv_after(th, x->ts) : 0;
	const struct pt_iv *iv;
	uint64_t asleep = 0;

	if (x->room)
		return x->room == YES;
	x->room = NO;
	if (i && (i == th->iv.n || th->iv.v[i].ready != x->ts))
		i--;
	if (!by || !th || i == th->iv.n || th->iv.v[i].ready != x->ts)
		return false;
	iv = &th->iv.v[i];
	for (i = pt_iv_after(by, x->ts); i-- > 0 && by->iv.v[i].end > iv->begin;)
		if (may_lock(&by->iv.v[i]) && !same_word(iv, &by->iv.v[i]))
			asleep += pt_overlap(by->iv.v[i].begin, by->iv.v[i].ready,
					     iv->begin, x->ts);
	x->room = 2 * asleep > x->ts - iv->begin ? YES : NO;
	return x->room == YES;
}

/* Does `tid` sleep there, and end others' sleeps there? The smaller count; exact: without those
 * that were for room. */
static unsigned both_sides(const struct pt_paths *p, const struct word *w, size_t lo,
			   size_t hi, uint32_t tid, bool exact)
{
	unsigned slept = 0, woke = 0;
	size_t i;

	for (i = lo; i < hi; i++) {
		slept += w->wakeups.v[i].sleeper == tid;
		woke += w->wakeups.v[i].waker == tid;
	}
	for (i = lo; i < hi && exact && slept && woke; i++)
		if (w->wakeups.v[i].sleeper == tid || w->wakeups.v[i].waker == tid) {
			bool room = was_for_room(p, &w->wakeups.v[i]);

			slept -= room && w->wakeups.v[i].sleeper == tid;
			woke -= room && w->wakeups.v[i].waker == tid;
		}
	return slept < woke ? slept : woke;
}

/* The first that is not before `ts`, else the last. */
static size_t wakeup_at(struct word *w, uint64_t ts)
{
	size_t n = w->wakeups.n;
	size_t at = pt_bisect_near(n, w->near, i, w->wakeups.v[i].ts < ts);

	return w->near = at - (at == n);
}

/* In the wake-ups lo to hi, how many tell of a lock: those who sleep there and end others'
 * sleeps. */
static unsigned lock_signs(const struct pt_paths *p, const struct word *w, size_t lo, size_t hi,
			   bool exact)
{
	unsigned both = 0;
	size_t i, k;

	for (i = lo; i < hi; i++) {
		uint32_t tid = w->wakeups.v[i].sleeper;

		for (k = lo; k < i && w->wakeups.v[k].sleeper != tid; k++)
			;
		if (k == i)
			both += both_sides(p, w, lo, hi, tid, exact);
	}
	return both;
}

static bool tell_of_lock(unsigned signs, size_t wakeups)
{
	return signs >= LOCK_MIN && signs * LOCK_PART >= wakeups;
}

static bool is_lock_around(const struct pt_paths *p, const struct word *w, size_t at, size_t n)
{
	size_t lo = at > n ? at - n : 0;
	size_t hi = at + n < w->wakeups.n ? at + n + 1 : w->wakeups.n;

	/* what was for room takes longest to tell: not asked where there are too few anyway */
	return tell_of_lock(lock_signs(p, w, lo, hi, false), hi - lo) &&
	       tell_of_lock(lock_signs(p, w, lo, hi, true), hi - lo);
}

static bool is_lock_at(const struct pt_paths *p, struct word *w, uint64_t ts)
{
	size_t at;
	bool lock;

	if (!w || !w->wakeups.n)
		return false;
	at = wakeup_at(w, ts);
	if (w->wakeups.v[at].lock)
		return w->wakeups.v[at].lock == YES;
	lock = is_lock_around(p, w, at, LOCK_AROUND) ||
	       (w->wakeups.n > 2 * LOCK_AROUND && is_lock_around(p, w, at, LOCK_FAR));
	w->wakeups.v[at].lock = lock ? YES : NO;
	return lock;
}

/* ---- locks by their Python -------------------------------------------------------- */

const struct pt_code_look *pt_look_in(const struct pt_thread *th, const struct pt_iv *iv)
{
	size_t at = pt_bisect(th->looks.n, i, th->looks.v[i].begin < iv->begin);
	const struct pt_code_look *l = at < th->looks.n ? &th->looks.v[at] : NULL;

	return l && l->end <= iv->ready ? l : NULL;
}

/* A lock between processes is entered through a function in Python. So is a condition between
 * them, by way of its own: whoever waits for that waits for what is told by the condition. */
static bool enters_by_call(const struct pt_model *m, const struct pt_code_stack *s)
{
	const struct pt_code_line *l = pt_model_line(m, s->line), *by;
	const struct pt_code_stack *caller = pt_model_stack(m, s->caller);

	if (!l || !l->library || !strstr(l->file, "multiprocessing/synchronize.py") ||
	    strcmp(pt_own_name(l), "__enter__"))
		return false;
	by = caller ? pt_model_line(m, caller->line) : NULL;
	return by && !by->library;
}

/* It sleeps in an instruction that enters a `with`, and in no function of Python's: that is a
 * plain lock of the interpreter's. Conditions and semaphores are written in Python. Or in the
 * function that enters a lock, which the job's own code calls, and no queue. */
static bool enters(const struct pt_model *m, const struct pt_code_look *l)
{
	const struct pt_code_stack *s = pt_model_stack(m, l->stack);

	return s && (s->flags & PT_PYSTACK_WITH || enters_by_call(m, s));
}

/* It sleeps where the lock of a condition is taken, before it looks at what that guards: somebody
 * has the lock, and holds up all who hand over by the condition. */
static bool enters_condition(const struct pt_model *m, const struct pt_code_look *look)
{
	const struct pt_code_stack *s = pt_model_stack(m, look->stack);
	const struct pt_code_line *l = s ? pt_model_line(m, s->line) : NULL;

	return l && l->library && strstr(l->file, "/threading.py") &&
	       !strcmp(pt_own_name(l), "__enter__");
}

static void count_looks(struct pt_paths *p, const struct pt_thread *th)
{
	const struct pt_code_look *l;
	uint64_t key[2];
	struct word *w;
	size_t i;

	for (i = 0; th->looks.n && i < th->iv.n; i++) {
		if (th->iv.v[i].wait != PT_WAIT_FUTEX)
			continue;
		l = pt_look_in(th, &th->iv.v[i]);
		sleep_key(th, &th->iv.v[i], key);
		w = l ? word_of(p, key) : NULL;
		if (!w)
			continue;
		w->looked++;
		w->entering += enters(p->m, l);
		w->conditions += enters_condition(p->m, l);
	}
}

static const struct word *futex_of(const struct pt_paths *p, const struct pt_thread *th,
				   const struct pt_iv *iv)
{
	uint64_t key[2];

	sleep_key(th, iv, key);
	return iv->wait == PT_WAIT_FUTEX ? word_of(p, key) : NULL;
}

/* Of a sleep that nobody looked at, the others there tell. */
bool pt_is_plain_lock(const struct pt_paths *p, const struct pt_thread *th,
		      const struct pt_iv *iv)
{
	const struct pt_code_look *l = th->looks.n ? pt_look_in(th, iv) : NULL;
	const struct word *w;

	if (iv->wait != PT_WAIT_FUTEX)
		return false;
	if (l)
		return enters(p->m, l);
	w = futex_of(p, th, iv);
	return w && pt_looks_tell(w->entering, w->looked);
}

bool pt_is_condition(const struct pt_paths *p, const struct pt_thread *th, const struct pt_iv *iv)
{
	const struct pt_code_look *l = th->looks.n ? pt_look_in(th, iv) : NULL;
	const struct word *w = futex_of(p, th, iv);

	return w && (l ? enters_condition(p->m, l) : pt_looks_tell(w->conditions, w->looked));
}

/* ---- all of them -------------------------------------------------------------------- */

struct pt_paths *pt_paths_new(const struct pt_model *m, const struct pt_proc *consumer)
{
	struct pt_paths *p = calloc(1, sizeof(*p));
	struct word *w;
	size_t i;

	if (!p)
		return NULL;
	p->m = m;
	p->consumer = consumer;
	if (pt_find_feed(m, consumer, &p->feed)) {
		pt_paths_free(p);
		return NULL;
	}
	for (i = 0; i < m->all_threads.n; i++)
		if (take_words(p, m->all_threads.v[i]) ||
		    find_switches(p, m->all_threads.v[i])) {
			pt_paths_free(p);
			return NULL;
		}
	for (w = p->words; w; w = w->hh.next)
		pt_vec_sort(&w->wakeups, by_time);
	for (i = 0; i < m->all_threads.n; i++)
		count_looks(p, m->all_threads.v[i]);
	return p;
}

const struct pt_model *pt_paths_model(const struct pt_paths *p)
{
	return p->m;
}

void pt_paths_free(struct pt_paths *p)
{
	struct word *w, *tmp;

	if (!p)
		return;
	HASH_ITER(hh, p->words, w, tmp) {
		HASH_DEL(p->words, w);
		pt_vec_free(&w->wakeups);
		free(w);
	}
	pt_vec_free(&p->interpreters);
	pt_feed_free(&p->feed);
	free(p);
}

/* What the consumer and another process wait for of each other is a batch, or room for one: a
 * condition's semaphore has two sides, too. But not where that process has filled no memory that others
 * may have, too; a pipe holds what is handed over itself. */
static bool is_hand_over(const struct pt_paths *p, const struct pt_thread *th,
			 const struct pt_iv *iv)
{
	const struct pt_thread *by;

	if (!iv->valid_wake || iv->waker_tgid == th->tgid ||
	    (th->proc != p->consumer && iv->waker_tgid != p->consumer->tgid))
		return false;
	if (iv->wait == PT_WAIT_PIPE_IN)
		return true;
	by = th->proc == p->consumer ? pt_model_thread(p->m, iv->waker_tid) : th;
	return !by || !pt_shares_nothing(&p->feed, by->proc);
}

static bool is_lock_word(const struct pt_paths *p, const struct pt_thread *th,
			 const struct pt_iv *iv)
{
	uint64_t key[2];

	if (!may_lock(iv) || is_hand_over(p, th, iv))
		return false;
	sleep_key(th, iv, key);
	if (is_lock_at(p, word_of(p, key), iv->ready))
		return true;
	if (!iv->valid_wake || iv->waker_tgid == th->tgid || !iv->waker_object)
		return false;
	wake_key(th, iv, key);
	return is_lock_at(p, word_of(p, key), iv->ready);
}

/* Did whoever ended the sleep wait for something itself for most of that time, other
 * than this lock? Then it did not have it, and hands on what it was given. */
static bool hands_on(const struct pt_paths *p, const struct pt_thread *th,
		     const struct pt_iv *iv)
{
	const struct pt_thread *x = pt_model_thread(p->m, iv->waker_tid);
	uint64_t given_ns = 0, word[2], other[2];
	size_t i;

	sleep_key(th, iv, word);

	for (i = x ? pt_iv_after(x, iv->ready) : 0; i-- > 0;) {
		const struct pt_iv *o = &x->iv.v[i];

		if (o->ready <= iv->begin)
			break;
		if (o->ready > iv->ready || !o->valid_wake)
			continue;
		sleep_key(x, o, other);
		if (!memcmp(word, other, sizeof(word)))
			break;
		if (o->wake == PT_WAKE_LOCK || is_lock_word(p, x, o))
			continue;
		if (o->wake == PT_WAKE_DATA || o->wake == PT_WAKE_FUTEX)
			given_ns += pt_overlap(o->begin, o->ready, iv->begin,
					       iv->ready);
	}
	return 2 * given_ns > iv->ready - iv->begin;
}

/* From a thread's being woken for a lock to its saying that it has it, on a CPU. */
#define TAKEN_NS 30000ull

/* Who gives CPython's lock up because it is asked to sleeps until the other one has
 * it: whoever ended the sleep had just been given a lock by the sleeper. */
static bool took_over(const struct pt_paths *p, const struct pt_thread *th,
		      const struct pt_iv *iv)
{
	const struct pt_thread *x = pt_model_thread(p->m, iv->waker_tid);
	size_t i = x && x != th ? pt_iv_after(x, iv->ready) : 0;
	const struct pt_iv *o;

	while (i-- > 0 && x->iv.v[i].end > iv->ready)
		;
	o = i + 1 ? &x->iv.v[i] : NULL;
	return o && o->valid_wake && o->waker_tid == th->tid &&
	       o->end + TAKEN_NS >= iv->ready && is_lock_word(p, x, o);
}

bool pt_is_interpreter_lock(const struct pt_paths *p, const struct pt_thread *th,
			    const struct pt_iv *iv)
{
	const struct pt_proc *x = th->proc;

	if (iv->wait != PT_WAIT_FUTEX)
		return false;
	return iv->arg0 - x->python < x->python_bytes || is_interpreter(p, th->tgid, iv->arg0);
}

bool pt_asks_interpreter(const struct pt_paths *p, const struct pt_thread *th,
			 const struct pt_iv *iv)
{
	size_t i;

	for (i = 0; i < p->interpreters.n; i++)
		if (iv->arg0 >> 4 == p->interpreters.v[i].address >> 4 &&
		    pt_is_interpreter_lock(p, th, iv))
			return true;
	return false;
}

bool pt_is_lock(const struct pt_paths *p, const struct pt_thread *th,
		const struct pt_iv *iv)
{
	if (iv->valid_wake && iv->wake == PT_WAKE_LOCK)
		return true;
	if (pt_is_interpreter_lock(p, th, iv))
		return true;
	if (pt_is_plain_lock(p, th, iv))
		return true;
	if (iv->wait != PT_WAIT_FUTEX || !iv->valid_wake)
		return is_lock_word(p, th, iv);
	return is_lock_word(p, th, iv) ? !hands_on(p, th, iv) : took_over(p, th, iv);
}
