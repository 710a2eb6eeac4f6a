/* SPDX-License-Identifier: BSD-2-Clause */
/* What the verdicts are judged by. */
#include <math.h>
#include <string.h>

#include "analysis/lines/lines.h"
#include "analysis/parts/part.h"
#include "analysis/verdicts/verdict.h"
#include "analysis/waits/look.h"

static enum pt_root_group group_of(int cause)
{
	switch (cause) {
	case PT_CAUSE_CPU:
	case PT_CAUSE_RUN_QUEUE:
	case PT_CAUSE_THROTTLE:
		return PT_GROUP_CPU;
	case PT_CAUSE_DISK:
	case PT_CAUSE_PAGE_FAULT:
		return PT_GROUP_IO;
	case PT_CAUSE_IPC:
		return PT_GROUP_IPC;
	case PT_CAUSE_NETWORK:
		return PT_GROUP_NETWORK;
	case PT_CAUSE_LOCK:
		return PT_GROUP_LOCK;
	case PT_CAUSE_SLEEP:
		return PT_GROUP_SLEEP;
	case PT_CAUSE_WORKER_IDLE:
		return PT_GROUP_IDLE;
	case PT_CAUSE_UNKNOWN:
		return PT_GROUP_UNKNOWN;
	default:
		return PT_GROUP_NR; /* explained elsewhere */
	}
}

/* Do the waits of both halves of the time have the same largest group? */
static bool halves_agree(const struct pt_an *an, const struct pt_trainer *t)
{
	uint64_t ns[2][PT_GROUP_NR + 1] = { { 0 } };
	uint64_t mid = an->t0 + (an->t1 - an->t0) / 2;
	int most[2] = { PT_GROUP_UNKNOWN, PT_GROUP_UNKNOWN }, h, g;
	size_t i;

	for (i = 0; i < t->waits.n; i++)
		ns[t->waits.v[i].begin >= mid][group_of(t->waits.v[i].cause)] +=
			t->waits.v[i].end - t->waits.v[i].begin;
	for (h = 0; h < 2; h++)
		for (g = 0; g < PT_GROUP_NR; g++)
			if (ns[h][g] > ns[h][most[h]])
				most[h] = g;
	return most[0] == most[1];
}

/* A core that the consumer lacks while it takes a batch is the hand-over's. */
static void fill_groups(struct pt_facts *f, double handover_queue, double unadopted)
{
	bool reads;
	double most;
	int g;

	for (g = 0; g < PT_CAUSE_NR; g++)
		if (group_of(g) < PT_GROUP_NR)
			f->group[group_of(g)] += f->cause[g];
	f->queue = f->cause[PT_CAUSE_RUN_QUEUE] - handover_queue;
	f->group[PT_GROUP_CPU] -= handover_queue;
	f->group[PT_GROUP_IPC] += handover_queue;
	/* who computes in the kernel, and else sleeps for storage, is reading */
	reads = f->group[PT_GROUP_IO] >= f->th->root_share &&
		f->kernel >= PT_KERNEL_READS * f->cause[PT_CAUSE_CPU];
	if (reads || (f->group[PT_GROUP_IO] >= PT_KERNEL_WAITS * f->th->root_share &&
		      f->kernel_reads)) {
		f->reads_decide = !reads && f->group[PT_GROUP_IO] <
					fmax(f->th->root_share, f->group[PT_GROUP_CPU]);
		f->group[PT_GROUP_IO] += f->kernel;
		f->group[PT_GROUP_CPU] -= f->kernel;
	}
	/* of that the end is not known, but what it was */
	f->group[PT_GROUP_STOPPED] = fmin(f->stopped, f->group[PT_GROUP_UNKNOWN]);
	f->group[PT_GROUP_UNKNOWN] -= f->group[PT_GROUP_STOPPED];
	if (f->pool.sending >= f->th->pool_sending) {
		f->group[PT_GROUP_IPC] += f->group[PT_GROUP_IDLE];
		f->group[PT_GROUP_IDLE] = 0;
	}
	/* what a supplier did before it was followed is likely what it did then */
	f->largest = PT_GROUP_UNKNOWN;
	most = f->group[PT_GROUP_UNKNOWN] - unadopted;
	for (g = 0; g < PT_GROUP_NR; g++)
		if (g != PT_GROUP_UNKNOWN && f->group[g] > most) {
			f->largest = g;
			most = f->group[g];
		}
}

/* Of the ways back from the waits, while batches were made in the place of `w`. */
static uint64_t made_in_slot(const struct pt_trainer *t, const struct pt_worker *w)
{
	uint64_t ns = 0;
	size_t i;

	for (i = 0; i < t->workers.n; i++)
		if (t->workers.v[i].role == w->role && t->workers.v[i].slot == w->slot)
			ns += t->workers.v[i].making_ns;
	return ns;
}

/* Is this one worse than the slow worker so far? It is charged with more of the waiting, or
 * with as much and slower; of those that had one place the last one is shown. */
static bool is_worse(const struct pt_facts *f, const struct pt_worker *w, double share)
{
	if (!f->slow || share != f->slow_charge)
		return share > f->slow_charge;
	return w->slowdown > f->slow->slowdown ||
	       (w->role == f->slow->role && w->slot == f->slow->slot);
}

/* Is there another one of whose batches too few were noticed? Then it may be the faster one. */
static bool has_unknown_peer(const struct pt_trainer *t, const struct pt_worker *w)
{
	pt_each(const struct pt_worker, x, &t->workers) {
		if (x != w && x->role == w->role && !t->respawned &&
		    x->service_ms.n < PT_SLOW_BATCHES)
			return true;
	}
	return false;
}

static void find_slow(struct pt_facts *f)
{
	uint64_t sum = 0;
	size_t i;

	for (i = 0; i < f->t->workers.n; i++)
		sum += f->t->workers.v[i].charged_ns;
	for (i = 0; i < f->t->workers.n && sum; i++) {
		const struct pt_worker *w = &f->t->workers.v[i];
		/* a batch that is stuck on its way is no slow worker's */
		double share = (double)made_in_slot(f->t, w) / (double)sum;

		if (share < f->th->slow_share)
			continue;
		f->lonely |= has_unknown_peer(f->t, w);
		if (!w->slow || !is_worse(f, w, share))
			continue;
		f->slow = w;
		f->slow_charge = share;
	}
}

/* Of the idle time at a place, what passes with work of this kind. Writing has a verdict
 * of its own, and is not in that time. */
static double idle_with(const struct pt_host_place *p, int kind)
{
	uint64_t all = 0;
	int k;

	for (k = 0; k < PT_HOST_NR; k++)
		all += k == PT_HOST_WRITING ? 0 : p->ns[k];
	if (kind == PT_HOST_WRITING)
		return 0;
	return (double)p->idle_ns * (double)p->ns[kind] / (double)pt_max64(all, 1);
}

/* The kind of work that most of the idle time passes with, and where it does. */
static void find_host_place(struct pt_facts *f)
{
	const struct pt_trainer *t = f->t;
	double sum, most = -1;
	int k;

	for (k = 0; k < PT_HOST_NR; k++) {
		sum = 0;
		pt_each(const struct pt_host_place, p, &t->host_places)
			sum += idle_with(p, k);
		if (sum > most)
			f->host_what = (enum pt_host_kind)k;
		most = fmax(most, sum);
	}
	k = (int)f->host_what;
	f->host_once = (k == PT_HOST_LOCK || k == PT_HOST_PEER || k == PT_HOST_OTHER) &&
		       2 * t->host_longest[k] > t->host_ns[k];
	pt_each(const struct pt_host_place, p, &t->host_places)
		if (p->n && (!f->host_place || idle_with(p, (int)f->host_what) >
						       idle_with(f->host_place, (int)f->host_what)))
			f->host_place = p;
}

bool pt_idle_then(const struct pt_facts *f, double share)
{
	return share + f->idle_driver - 1 >= f->th->starved_info;
}

/* By the lower bound where that alone gives the severity; else by the likely
 * value, with less certainty. */
static void judge_starvation(struct pt_facts *f)
{
	f->starved_shown = f->starved_lo;
	f->bounded = f->starved_lo >= f->th->starved_info &&
		     pt_severity_of(f, f->starved_lo) == pt_severity_of(f, f->starved);
	f->confidence = PT_CONF_HIGH;
	if (!f->bounded) {
		f->starved_shown = f->starved;
		f->confidence = f->t->gpu_known || pt_idle_then(f, f->wait_share) ?
					PT_CONF_MEDIUM : PT_CONF_LOW;
	}
	f->is_starved = f->starved_shown >= f->th->starved_info;
	f->severity = pt_severity_of(f, f->starved_shown);
}

static const char *insufficient(struct pt_an *an, const struct pt_facts *f)
{
	const struct pt_r_capture *c = &an->r->capture;

	if (!f->t)
		return "no call of a GPU library was seen";
	if (f->wall_s < PT_MIN_S)
		return "the capture is shorter than half a second";
	if (f->whole_steps < PT_MIN_STEPS)
		return "fewer than three whole steps were seen";
	if (c->events > 0 && (double)pt_lost_events(an) > PT_LOST_SHARE * (double)c->events)
		return "more than 1 % of the events were lost";
	return NULL;
}

static double share_of(uint64_t part, uint64_t wall)
{
	return fmin(1, (double)part / (double)wall);
}

/* Writing a checkpoint can fall into the gap that is taken for a data wait:
 * that part is not the loader's. */
static void leave_out_checkpoints(struct pt_facts *f)
{
	double written = f->cause[PT_CAUSE_CHECKPOINT];
	int c;

	if (written <= 0 || written >= 1)
		return;
	f->starved_lo *= 1 - written;
	f->starved *= 1 - written;
	f->starved_hi *= 1 - written;
	for (c = 0; c < PT_CAUSE_NR; c++)
		f->cause[c] /= 1 - written;
	f->kernel /= 1 - written;
	f->stopped /= 1 - written;
	f->cause[PT_CAUSE_CHECKPOINT] = 0;
}

/* What was charged to somebody else who waited for something nameless, or had been stopped. */
static void sum_nameless(struct pt_facts *f)
{
	const struct pt_trainer *t = f->t;
	uint64_t all = 0, waits = 0, stopped = 0;

	pt_each(const struct pt_charge, c, &t->charges) {
		all += c->ns;
		if (c->cause != PT_CAUSE_UNKNOWN)
			continue;
		if (c->syscall == PT_CHARGE_STOPPED)
			stopped += c->ns;
		else if (c->pid && c->pid != t->proc->tgid)
			waits += c->ns;
	}
	f->worker_waits = (double)waits / (double)pt_max64(all, 1);
	f->stopped = (double)stopped / (double)pt_max64(all, 1);
}

/* Most of what the host does behind its syncs is in one function: that is what to mend, whether
 * a loop without the sync would hide it or not. Not told of the function that waits for the device
 * itself: all of a loop that is written down in one is there. */
static bool is_one_function(const struct pt_an *an, const struct pt_trainer *t)
{
	static const struct pt_line_ask work = { PT_LINES_LOOP, PT_LINES_ALL, NULL };
	static const struct pt_line_ask waiting = { PT_LINES_LOOP, 1u << PT_CAUSE_SYNC, NULL };
	struct pt_r_line l, w;

	if (!pt_top_line(an, &work, PT_NULL, &l) || 2 * l.seconds < pt_sec(t->host_idle_ns))
		return false;
	return !(pt_top_line(an, &waiting, PT_NULL, &w) && !strcmp(l.file, w.file) &&
		 !strcmp(l.function, w.function));
}

static void gather_host(const struct pt_an *an, struct pt_facts *f, uint64_t wall)
{
	const struct pt_trainer *t = f->t;
	/* the same steps, replayed without the syncs, take as long: it is not they */
	bool host = pt_is_hosts(t) || pt_gains_nothing(an, "fewer_syncs") || is_one_function(an, t);

	f->sync = share_of(t->sync_ns - pt_min64(t->sync_ns, host ? t->host_idle_ns : 0), wall);
	/* what is idle behind syncs by the estimate alone is told as the host's */
	host |= f->sync < f->th->starved_info;
	f->host = host ? share_of(t->host_idle_ns, wall) : 0;
	find_host_place(f);
}

/* From the best guess to the likely bound, of the device where that is widest. */
static double idle_open(const struct pt_trainer *t, uint64_t wall)
{
	uint64_t most = 0;

	pt_each(const struct pt_dev, d, &t->devs) {
		uint64_t least = wall - pt_min64(wall, d->busy_hi_ns);

		if (d->known && d->idle_likely_ns > least)
			most = pt_max64(most, d->idle_likely_ns - least);
	}
	return share_of(most, wall);
}

/* So much at most is likely idle, of the device where that is most; 1: not known. */
static double idle_most(const struct pt_trainer *t, uint64_t wall)
{
	uint64_t most = 0;

	if (!t->devs.n)
		return 1;
	pt_each(const struct pt_dev, d, &t->devs)
		most = pt_max64(most, d->known ? wall - pt_min64(wall, d->busy_lo_ns) : wall);
	return share_of(most, wall);
}

/* Copies for each step, but no worker, no read and no wait worth the name: what the training
 * thread computes may be how its batches are made. */
static bool is_unfed(const struct pt_facts *f)
{
	return !f->t->workers.n && f->wait_share < PT_FED_SHARE && f->whole_steps &&
	       f->t->counts.h2d >= f->whole_steps;
}

/* How long the device does nothing but copy; 0 where that cannot be told of all of its work. */
static double copies_alone(const struct pt_trainer *t, uint64_t wall)
{
	const struct pt_dev *d = t->devs.n == 1 ? &t->devs.v[0] : NULL;
	uint64_t busy, other;

	if (!d || !d->known || d->compute_ns == UINT64_MAX)
		return 0;
	busy = wall - pt_min64(wall, d->idle_likely_ns);
	other = d->compute_ns + d->collective_ns;
	return share_of(busy - pt_min64(busy, other), wall);
}

static void gather_shares(struct pt_an *an, struct pt_facts *f)
{
	struct pt_trainer *t = f->t;
	uint64_t wall = an->t1 - an->t0, sum = 0;
	size_t i;

	f->wait_share = share_of(t->data_wait_ns, wall);
	f->taken = t->steps.n && (double)t->taken_beside >= PT_TAKEN * (double)t->steps.n;
	f->own = share_of(t->own_read_ns + t->own_cpu_ns,
			  pt_max64(t->data_wait_ns, 1));
	f->starved_lo = share_of(t->starved_lo_ns, wall);
	f->starved = share_of(t->starved_likely_ns, wall);
	f->starved_hi = share_of(t->starved_hi_ns, wall);
	f->idle_hard = share_of(t->idle_hard_ns, wall);
	f->busy_sure = share_of(pt_max64(t->busy_hard_ns, t->busy_driver_ns), wall);
	f->idle = t->gpu_known ? share_of(t->idle_likely_ns, wall) : NAN;
	f->idle_open = idle_open(t, wall);
	f->idle_driver = share_of(t->idle_driver_ns, wall);
	gather_host(an, f, wall);
	f->launch = share_of(t->launch_ns, wall);
	f->transfer = share_of(t->transfer_ns, wall);
	f->copying = copies_alone(t, wall);
	f->checkpoint = share_of(t->checkpoint_idle_ns, wall);
	f->writing = share_of(t->checkpoint_ns + t->checkpoint_wait_ns, wall);
	/* a device that is likely at work for most of the time sets the pace itself; unless less of
	 * that is certain than it kept up for: one just as fast as the host looks the same */
	f->host_bound = share_of(t->host_bound_ns, wall);
	if (f->busy_sure >= f->host_bound)
		f->host_bound = fmin(f->host_bound, idle_most(t, wall));
	for (i = 0; i < PT_CAUSE_NR; i++)
		sum += t->cause_ns[i];
	for (i = 0; i < PT_CAUSE_NR && sum; i++)
		f->cause[i] = (double)t->cause_ns[i] / (double)sum;
	for (i = 0; i < t->steps.n; i++)
		f->whole_steps += !t->steps.v[i].partial;
	f->step_ms = an->r->steps.period_ms.mean;
	f->unfed = is_unfed(f);
	sum_nameless(f);
	f->vain = pt_vain_share(t);
	f->kernel = sum ? (double)t->kernel_ns / (double)sum : 0;
	f->kernel_reads = pt_reading_part(t) > 0;
	leave_out_checkpoints(f);
	f->halted = share_of(t->stopped_ns, wall);
	fill_groups(f, sum ? (double)t->handover_queue_ns / (double)sum : 0,
		    sum ? (double)t->unadopted_ns / (double)sum : 0);
	f->setup = share_of(t->setup_ns, pt_max64(t->data_wait_ns, 1));
	f->asked = share_of(t->lock_asked_ns, pt_max64(t->data_wait_ns, 1));
	f->halves_agree = halves_agree(an, t);
	find_slow(f);
	judge_starvation(f);
	f->demand = share_of(t->host_ns[PT_HOST_CLIENT],
			     t->host_ns[PT_HOST_CLIENT] + t->data_wait_ns + 1);
	f->client = share_of(t->host_ns[PT_HOST_CLIENT], wall);
	f->no_demand = f->demand >= f->th->demand_share &&
		       f->client >= f->th->starved_info;
}

int pt_gather_facts(struct pt_an *an, const struct pt_measured *k,
		    struct pt_facts *f)
{
	uint64_t wall = an->t1 - an->t0;
	int err = 0;

	f->th = an->th;
	f->t = an->top;
	f->wall_s = pt_sec(wall);
	f->cores = an->m->host_known ? an->m->host.cores : 0;
	if (an->m->host_known && an->m->host.quota_mcores >= 1000)
		f->cores = (int64_t)pt_min64((uint64_t)f->cores,
					     an->m->host.quota_mcores / 1000);
	f->hung = k->hung;
	f->gpu_growth = NAN;
	if (f->t && wall) {
		pt_fill_pool(&k->pool, wall, &f->pool);
		f->in_turn = f->pool.busy >= f->th->pool_busy &&
			     f->pool.chance >= PT_TURNS_CHANCE &&
			     f->pool.together < PT_TURNS * f->pool.chance;
		f->programs = k->pool.programs / (double)pt_max64(f->t->data_wait_ns, 1);
		f->silent = k->pool.silent / (double)pt_max64(f->t->data_wait_ns, 1);
		f->item = k->item;
		f->io = k->io;
		f->faults = k->faults;
		f->gpu_balance = k->balance;
		f->gpu_growth = pt_gpu_growth(&k->balance, wall);
		gather_shares(an, f);
		err = pt_measure_steady(an, f->t, &f->steady);
		err = err ?: pt_measure_tail(an, f->t, &f->tail);
		err = err ?: pt_measure_growth(an, &f->growth);
		f->first_lost = fmin(f->steady.first_share, isnan(f->idle) ? 1 : f->idle);
		f->mostly_first = f->wait_share > 0 &&
				  f->steady.first_share >=
					  f->th->slow_share * f->wait_share;
	}
	f->insufficient = insufficient(an, f);
	return err;
}
