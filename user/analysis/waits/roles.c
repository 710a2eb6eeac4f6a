/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/roles.h"

#include "analysis/waits/host.h"

#include <errno.h>
#include <string.h>

/* A role takes so many sleeps. */
#define SLEEPS_MIN 3
/* Of the way back from a giver's wake-ups; more of another kind decides. */
#define ROLE_SHARE 0.5
/* A supplier's own part of the way back may be small: it relays. */
#define MADE_SHARE 0.1
/* ... of its sleeps: a supplier works ahead, a helper when it is asked. */
#define AHEAD_SHARE 0.5
/* Not even one upload in so many gaps: it would have come. Where none comes at all, fewer. */
#define GAPS_MIN 4
#define GAPS_FEW 2
/* A thread that writes so much for each sleep that it ends, and reads less than a part of
 * it, writes what it was given: it logs. */
#define WRITTEN_MIN 512
#define READ_PART 4
/* Of the gaps, that end with results which come down: as good as all. */
#define RESULTS_SHARE 0.9
/* Who supplies is waited for before most uploads, or works ahead of them. */
#define SELDOM 4
/* ... and in the other gaps it rests: a worker sleeps once for each batch and more. */
#define RESTS 2

static bool only_writes(const struct pt_givers *g, const struct pt_giver *x)
{
	const struct pt_thread *th = x->th;
	size_t first = pt_iv_after(th, g->an->t0), last = pt_iv_after(th, g->an->t1);
	uint64_t in, out;

	if (last <= first + 1)
		return false;
	last--;
	in = th->iv.v[last].rchar - th->iv.v[first].rchar;
	out = th->iv.v[last].wchar - th->iv.v[first].wchar;
	return out >= x->sleeps * WRITTEN_MIN && out > in * READ_PART;
}

static bool rests(const struct pt_giver *x)
{
	return x->stays <= x->stays_there + RESTS * x->gaps;
}

/* Had it begun before the gap for no more than this part of the time? By the gaps whose begin was
 * seen, if there are any. */
static bool begins_behind(const struct pt_giver *x, double part)
{
	bool cut = x->ns <= x->cut_ns;

	return (double)(x->ahead_ns - (cut ? 0 : x->cut_ahead_ns)) <=
	       part * (double)(x->ns - (cut ? 0 : x->cut_ns));
}

/* It works when it is asked: where it was waited for, it had begun in the same gap. */
static bool is_asked(const struct pt_giver *x)
{
	return begins_behind(x, MADE_SHARE);
}

/* ... as far as the way back shows: a pool's process that takes its next task by itself was
 * asked for that, too. Who works ahead has begun each time. */
static bool is_mostly_asked(const struct pt_giver *x)
{
	return begins_behind(x, AHEAD_SHARE / 2);
}

/* Made by the loop itself meanwhile: it begins when it is asked in any case. */
static bool is_newborn(const struct pt_giver *x)
{
	return x->th && (x->th->parent || x->th->proc->born);
}

/* ... and does nothing else. */
static bool is_seldom(const struct pt_givers *g, const struct pt_giver *x,
		      const struct pt_giver *kin)
{
	return x->gaps >= GAPS_FEW && rests(x) && !is_newborn(x) &&
	       kin->gaps * SELDOM <= g->uploads;
}

/* What came from it, and what it had read that was not the consumer's own: who is told more than
 * it answers works on that. */
static uint64_t comes_from(const struct pt_giver *kin)
{
	return kin->sent < kin->got ? kin->bytes :
				      kin->bytes - pt_min64(kin->sent, kin->bytes - kin->got);
}

/* Neither it and its kin nor what it read can be what goes to a device, nor what lies in memory that
 * it, or who it waits for, shares with the consumer. Nothing at all was read where the kernel does
 * not count it. */
static bool hands_over_little(const struct pt_givers *g, const struct pt_giver *x,
			      const struct pt_giver *kin)
{
	return x->gaps >= GAPS_MIN && !kin->unsized && kin->bytes &&
	       2 * kin->shared_ns <= kin->made_ns &&
	       pt_feeds_too_little(&g->feed, comes_from(kin));
}

/* It lets the consumer go on, again and again, and neither writes anything nor has memory in common
 * with it where a batch could lie: that is a lock, or a permission. */
static bool only_lets_go_on(const struct pt_givers *g, const struct pt_giver *x,
			    const struct pt_giver *kin)
{
	return x->gaps >= GAPS_MIN && x->apart == x->sleeps && kin->apart == kin->sleeps &&
	       pt_feeds_too_little(&g->feed, x->wrote);
}

/* Another program, that is started meanwhile, and ends. */
static bool is_program(const struct pt_givers *g, const struct pt_giver *x)
{
	return x->th && x->th->exited && is_newborn(x) &&
	       strncmp(x->th->proc->comm, g->own->comm, sizeof(g->own->comm));
}

/* A program that is run until it ends, and that checks, draws, compiles or saves something:
 * nothing is read of it, and behind it the device goes on with what it has, or with a batch
 * of others. */
static bool is_just_run(const struct pt_givers *g, const struct pt_giver *x,
			const struct pt_giver *kin)
{
	if (kin->gaps < GAPS_MIN)
		return false;
	/* nor can what the consumer reads in all be what others have written for it; 0: it may
	 * not be counted */
	if (is_program(g, x) && g->own_read && pt_feeds_too_little(&g->feed, g->own_read))
		return true;
	return (double)kin->ends >= ROLE_SHARE * (double)kin->sleeps &&
	       (double)kin->uploads < MADE_SHARE * (double)kin->gaps &&
	       pt_feeds_too_little(&g->feed, kin->got);
}

/* By what was seen of it alone, if that is enough: its kin may do both. */
static bool takes_output(const struct pt_giver *x, const struct pt_giver *kin)
{
	const struct pt_giver *by = x->looked >= PT_TELLS_MIN ? x : kin;

	return pt_looks_tell(by->handed_out, by->looked);
}

/* What the consumer writes fills its pipe again and again: it is handed more than it hands
 * back. Whoever is asked for a batch is written a few bytes. */
static bool takes_more(const struct pt_giver *x, const struct pt_giver *kin)
{
	const struct pt_giver *by = x->sleeps >= SLEEPS_MIN ? x : kin;

	return (double)by->puts > ROLE_SHARE * (double)by->sleeps;
}

/* It is outside of the job, whose processes never end a sleep of its: it sends when it likes. */
static bool comes_unasked(const struct pt_givers *g, const struct pt_giver *x)
{
	return x->th && x->th->proc->outside && !x->answers && !pt_times_asked(g->an, g->own, x->th);
}

/* Works as a supplier does; but what it hands over goes to no device, as far as can be
 * seen, or it takes what the consumer made. */
static bool is_peer(const struct pt_givers *g, const struct pt_giver *x,
		    const struct pt_giver *kin)
{
	bool own = x->th && x->th->proc == g->own;
	bool asked = is_asked(x);

	if (takes_output(x, kin) || takes_more(x, kin))
		return true;
	/* nothing goes to a device, and it works when it is asked, or in the consumer's own
	 * memory, out of which a few numbers go (others may share theirs with the device); or
	 * most batches come without it */
	if (x->gaps >= (pt_feeds_nothing(&g->feed) ? GAPS_FEW : GAPS_MIN) &&
	    ((asked && pt_feeds_nothing(&g->feed)) || (own && pt_feeds_numbers(&g->feed))))
		return true;
	if (is_mostly_asked(x) && is_seldom(g, x, kin))
		return true;
	if (is_just_run(g, x, kin) || only_lets_go_on(g, x, kin))
		return true;
	if (!own)
		return (asked || comes_unasked(g, x)) && hands_over_little(g, x, kin);
	return (double)x->made_ns < MADE_SHARE * (double)x->ns && only_writes(g, x);
}

/* The consumer fetches by itself: it asks, and only then somebody outside begins, who has
 * what is asked for and waits for nobody. */
static bool may_be_store(const struct pt_giver *x)
{
	return x->th && x->th->proc->outside && 2 * x->answers > x->sleeps &&
	       (double)x->beyond_ns <= MADE_SHARE * (double)x->made_ns;
}

/* What the consumer reads of pipes and files is what goes up, to a little: as much as names and
 * sizes of batches are, and no more. What is answered by calls that count no reading goes up
 * in no part. */
#define NAMES_PART 50

static bool is_beside_feed(const struct pt_givers *g, const struct pt_giver *kin, uint64_t read)
{
	uint64_t up = g->feed.own_bytes;

	return g->feed.known && up && g->uploads >= GAPS_MIN && read >= up &&
	       read - up <= up / NAMES_PART && kin->unsized == kin->sleeps;
}

/* One process but this one writes just as much as goes up. */
static bool writes_it_all(const struct pt_givers *g, const struct pt_giver *x)
{
	return g->whole_writers > (g->whole_writer == x->tgid);
}

/* A process that writes so small a part of what goes up hands over no batches in a pipe, ... */
#define ANSWERS_PART 10

/* ... where the consumer reads as much as goes up, and others have written that: one process just so
 * much. Or those who are waited for as much, but for what was there when it all began, and the consumer
 * reads nothing beside it but names and sizes, and what this one writes. What this one answers is for
 * something else then. */
static bool is_beside_others(const struct pt_givers *g, const struct pt_giver *x)
{
	uint64_t up = g->feed.own_bytes;

	/* one of many that come and go has written little in any case */
	if (!x->wrote || x->th->exited || x->th->proc->born || x->wrote > up / ANSWERS_PART)
		return false;
	if (!g->feed.known || !up || g->uploads < GAPS_MIN || g->own_read < up)
		return false;
	return writes_it_all(g, x) || (g->own_read - up <= up / NAMES_PART + x->wrote &&
				       g->wrote >= up - up / NAMES_PART + x->wrote);
}

/* Somebody behind whose work each time results come down from the device and nothing goes up: where
 * they go to was in use. Kin in other processes may do something else. */
static bool holds_results(const struct pt_givers *g, const struct pt_giver *x,
			  const struct pt_giver *kin)
{
	const struct pt_giver *by = x->th && x->th->proc == g->own ? kin : x;

	return x->th && by->gaps >= GAPS_MIN && (by == kin || !by->uploads) &&
	       (double)by->results >= RESULTS_SHARE * (double)by->gaps;
}

/* The consumer waits for it where it takes its batches, in a function that calls no device. Only
 * where these are read by calls: what is taken so may be anything, else. */
static bool is_taken_from(const struct pt_givers *g, const struct pt_giver *x,
			  const struct pt_giver *kin)
{
	const struct pt_giver *by = x->looked >= PT_TELLS_MIN ? x : kin;

	return 2 * g->lead_read >= g->feed.own_bytes && pt_looks_tell(by->taking, by->looked) &&
	       !takes_output(x, kin);
}

/* So many looks found the loop taking something above its calls of the device. */
#define ABOVE_TAKES 3

/* The consumer waits for it behind all its calls of the device, and above them it takes a batch, or
 * another process writes all that goes up: what comes behind the last call is for results. But not who
 * may have written a part of what goes up. */
static bool is_behind_calls(const struct pt_givers *g, const struct pt_giver *x,
			    const struct pt_giver *kin)
{
	const struct pt_giver *by = x->looked >= PT_TELLS_MIN ? x : kin;
	uint64_t up = g->feed.own_bytes;

	return pt_looks_tell(by->behind, by->looked) && g->feed.known &&
	       (g->loop->takes_above >= ABOVE_TAKES || writes_it_all(g, x)) &&
	       g->own_read - pt_min64(g->own_read, x->wrote) + up / NAMES_PART >= up;
}

static enum pt_giver_role who_feeds(const struct pt_givers *g, struct pt_giver *x,
				    const struct pt_giver *kin)
{
	bool beside = is_beside_others(g, x);

	x->takes = takes_output(x, kin);
	x->for_results = is_behind_calls(g, x, kin);
	/* where a batch is taken who says unasked how far one may go holds it back, too */
	if ((x->for_results || (beside && is_mostly_asked(x)) || !is_taken_from(g, x, kin)) &&
	    (is_peer(g, x, kin) || beside))
		return comes_unasked(g, x) ? PT_GIVER_CLIENT : PT_GIVER_PEER;
	if (holds_results(g, x, kin))
		return PT_GIVER_UNKNOWN;
	if (x->for_results)
		return PT_GIVER_PEER;
	/* the thread that calls the device has read all of it by itself */
	if (x->th && x->th->proc == g->own && is_beside_feed(g, kin, g->lead_read))
		return PT_GIVER_PEER;
	if (!may_be_store(x) || !is_asked(x))
		return PT_GIVER_SUPPLIER;
	return is_beside_feed(g, kin, g->own_read) ? PT_GIVER_PEER : PT_GIVER_STORE;
}

bool pt_ahead_tells(const struct pt_givers *g)
{
	const struct pt_giver *x;

	for (x = g->all; x; x = x->hh.next)
		if (x->tgid != g->own->tgid &&
		    (pt_feeds_nothing(&g->feed) || may_be_store(x) ||
		     hands_over_little(g, x, x) || is_seldom(g, x, x) || is_beside_others(g, x)))
			return true;
	return false;
}

/* One or two sleeps tell nothing, unless the consumer's Python shows what they were for. */
static bool is_chance(const struct pt_giver *x)
{
	return x->sleeps < SLEEPS_MIN && 2 * x->taken_ns < x->ns;
}

/* kin: sums over it and its kin. */
static void find_role(const struct pt_givers *g, struct pt_giver *x,
		      const struct pt_giver *kin)
{
	double all = (double)(x->made_ns + x->ranks_ns + x->clients_ns +
			      x->peer_ns + x->helped_ns);

	if (x->th && pt_is_driver_thread(x->th))
		x->role = PT_GIVER_HELPER;
	else if (is_chance(x) || !(all > 0))
		x->role = PT_GIVER_UNKNOWN;
	else if ((double)x->clients_ns >= ROLE_SHARE * all)
		x->role = PT_GIVER_CLIENT;
	else if ((double)x->ranks_ns >= ROLE_SHARE * all)
		x->role = PT_GIVER_RANK;
	else if ((double)x->peer_ns >= ROLE_SHARE * all)
		x->role = PT_GIVER_PEER;
	else if ((double)x->made_ns >= MADE_SHARE * all ||
		 !begins_behind(x, AHEAD_SHARE))
		x->role = who_feeds(g, x, kin);
	else
		x->role = PT_GIVER_HELPER;
}

/*
 * Threads and processes that come and go (a loader started anew, a program run for each
 * item, or by a shell that is) are known by their kin: who made them, and their name. Of
 * what is not followed only the process is known.
 */
enum kinds { OF_PROCESS, NOT_FOLLOWED, OWN_THREADS, PROCESSES };
struct kin {
	struct {
		/* who works ahead is no kin of who is asked, nor of who is run until it ends */
		uint32_t kind, id, way;
		char comm[PT_COMM_LEN];
	} key;
	struct pt_giver sum;
	UT_hash_handle hh;
};

static struct kin *kin_of(struct kin **all, enum kinds kind, uint32_t id, uint32_t way,
			  const char *comm)
{
	struct kin x = { .key = { kind, id, way, "" } };

	memcpy(x.key.comm, comm, strnlen(comm, sizeof(x.key.comm)));
	return pt_hash_make(*all, key, &x.key);
}

/* ... of one that is followed. */
static struct kin *kin_of_thread(struct kin **all, const struct pt_givers *g,
				 const struct pt_giver *x)
{
	uint32_t way = is_mostly_asked(x) | (2 * x->ends > x->sleeps) << 1;
	const struct pt_proc *p = x->th->proc, *own = g->own;
	uint32_t of = p->born && pt_descends_from(g->an->m, p, own->tgid) ? own->tgid : p->ppid;

	return p == own ? kin_of(all, OWN_THREADS, x->tgid, way, x->th->comm) :
			  kin_of(all, PROCESSES, of, way, p->comm);
}

static void add_giver(struct pt_giver *sum, const struct pt_giver *x)
{
	sum->sleeps += x->sleeps;
	sum->ns += x->ns;
	sum->gaps += x->gaps;
	sum->uploads += x->uploads;
	sum->results += x->results;
	sum->got += x->got;
	sum->bytes += x->bytes;
	sum->sent += x->sent;
	sum->ends += x->ends;
	sum->unsized += x->unsized;
	sum->apart += x->apart;
	sum->puts += x->puts;
	sum->answers += x->answers;
	sum->looked += x->looked;
	sum->handed_out += x->handed_out;
	sum->taking += x->taking;
	sum->taken_ns += x->taken_ns;
	sum->behind += x->behind;
	sum->stays += x->stays;
	sum->stays_there += x->stays_there;
	sum->ahead_ns += x->ahead_ns;
	sum->cut_ns += x->cut_ns;
	sum->cut_ahead_ns += x->cut_ahead_ns;
	sum->made_ns += x->made_ns;
	sum->shared_ns += x->shared_ns;
	sum->ranks_ns += x->ranks_ns;
	sum->clients_ns += x->clients_ns;
	sum->peer_ns += x->peer_ns;
	sum->helped_ns += x->helped_ns;
}

static int sum_kin(const struct pt_givers *g, struct kin **all)
{
	const struct pt_giver *x;

	for (x = g->all; x; x = x->hh.next) {
		struct kin *p = kin_of(all, OF_PROCESS, x->tgid, 0, "");
		struct kin *q = x->th ? kin_of_thread(all, g, x) :
					kin_of(all, NOT_FOLLOWED, x->tgid, 0, "");

		if (!p || !q)
			return -ENOMEM;
		add_giver(&p->sum, x);
		add_giver(&q->sum, x);
	}
	return 0;
}

/* Whose threads hand over batches, and answer or take something else meanwhile (PyTorch's
 * passes descriptors so), supplies with all of it. */
struct supplier {
	uint32_t tgid;
	UT_hash_handle hh;
};

static int join_peers(struct pt_givers *g)
{
	struct supplier *all = NULL, *p;
	struct pt_giver *x;
	int err = 0;

	for (x = g->all; x && !err; x = x->hh.next)
		if (x->role == PT_GIVER_SUPPLIER && x->tgid != g->own->tgid &&
		    !pt_hash_make(all, tgid, &x->tgid))
			err = -ENOMEM;
	for (x = g->all; x && !err; x = x->hh.next) {
		HASH_FIND(hh, all, &x->tgid, sizeof(x->tgid), p);
		if (p && (x->role == PT_GIVER_PEER || x->role == PT_GIVER_STORE))
			x->role = PT_GIVER_SUPPLIER;
	}
	pt_hash_free(all);
	return err;
}

/* But for this part of what goes up, which may have been written before it all began. */
#define FED_PART 20

static bool is_fed(const struct pt_givers *g)
{
	const struct pt_giver *x;
	uint64_t up = g->feed.own_bytes, wrote = 0;

	for (x = g->all; x; x = x->hh.next)
		if (x->role == PT_GIVER_SUPPLIER && x->th && x->th->proc != g->own)
			wrote += pt_written_between(x->th, g->an->t0, g->an->t1);
	return g->feed.known && up && g->uploads >= GAPS_MIN && wrote >= up - up / FED_PART;
}

void pt_find_writers(struct pt_givers *g)
{
	uint64_t up = g->feed.own_bytes, wrote;
	size_t i;

	for (i = 0; up && i < g->an->m->all_procs.n; i++) {
		const struct pt_proc *p = g->an->m->all_procs.v[i];

		wrote = p == g->own ? 0 : pt_written_by(g->an, p);
		if (wrote + up / NAMES_PART < up || wrote > up + up / NAMES_PART)
			continue;
		g->whole_writer = p->tgid;
		g->whole_writers++;
	}
}

int pt_find_roles(struct pt_givers *g)
{
	struct kin *all = NULL, *p, *q;
	struct pt_giver *x;
	int err = sum_kin(g, &all);

	for (x = g->all; x && !err; x = x->hh.next) {
		struct pt_giver sum = { .th = x->th };

		p = kin_of(&all, x->th ? NOT_FOLLOWED : OF_PROCESS, x->tgid, 0, "");
		q = x->th ? kin_of_thread(&all, g, x) : NULL;
		if (p)
			add_giver(&sum, &p->sum);
		if (q)
			add_giver(&sum, &q->sum);
		find_role(g, x, &sum);
		if (!is_chance(x))
			continue;
		/* too few were seen */
		find_role(g, &sum, &sum);
		x->role = sum.role;
	}
	pt_hash_free(all);
	err = err ?: join_peers(g);
	g->fed = !err && is_fed(g);
	return err;
}
