/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kernels of several processes that wait for each other on their devices, as
 * those of a collective do: each begins when its own stream comes to it, spins,
 * and ends so long after the last of them has begun. The processes share a file.
 *
 * The k-th meeting of a group needs all of its ranks, and none begins its next
 * one before that: two are under way at most. A rank that is gone ends the
 * group's meetings, for its peers would wait for ever.
 */
#include "cudart_state.h"
#include "ptsim.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MEET_MAGIC 0x3174656d73746470ull /* "pdtsmet1" */
#define GROUPS 4
#define RANKS_MAX 64
#define SLOTS 8
#define ALONE_NS (2 * SIM_NS_PER_S) /* then look whether a peer has died */

struct meeting {
	_Atomic uint64_t number; /* 1 + k; another one's: not begun yet */
	_Atomic uint64_t latest; /* when the last of those here began */
	_Atomic uint32_t here;
	uint32_t pad;
};

struct meet_file {
	uint64_t magic;
	struct {
		_Atomic uint32_t gone; /* a rank has left */
		uint32_t pad;
		_Atomic int64_t pid[RANKS_MAX];
		struct meeting at[SLOTS];
	} group[GROUPS];
};

static struct meet_file *file;
static struct {
	unsigned ranks, rank;
	uint64_t next; /* its next meeting, counted from 0 */
} mine[GROUPS];
static __thread int next_launch = -1;

static int file_init(void *p)
{
	struct meet_file *f = p;

	if (!f->magic)
		f->magic = MEET_MAGIC;
	return f->magic == MEET_MAGIC ? 0 : -EINVAL;
}

SIM_API int ptsim_meet_join(const char *path, unsigned group, unsigned ranks,
			    unsigned rank)
{
	int err = 0;

	if (group >= GROUPS || ranks < 2 || ranks > RANKS_MAX || rank >= ranks)
		return -EINVAL;
	sim_lock();
	if (!file)
		file = sim_map_file(path, sizeof(*file), file_init);
	if (!file) {
		err = -errno;
		goto out;
	}
	mine[group].ranks = ranks;
	mine[group].rank = rank;
	atomic_store(&file->group[group].pid[rank], getpid());
out:
	sim_unlock();
	return err;
}

SIM_API void ptsim_meet_next(unsigned group)
{
	next_launch = group < GROUPS && mine[group].ranks ? (int)group : -1;
}

unsigned sim_meet_taken(void)
{
	int g = next_launch;

	next_launch = -1;
	return g < 0 ? 0 : (unsigned)g + 1;
}

bool sim_meets(void)
{
	return file != NULL;
}

static struct meeting *meeting_of(const struct sim_op *op)
{
	return &file->group[op->work.meet - 1].at[op->meet_number % SLOTS];
}

void sim_meet_begin(struct sim_op *op)
{
	struct meeting *m;
	uint64_t was;

	op->meet_number = mine[op->work.meet - 1].next++;
	m = meeting_of(op);
	was = atomic_load(&m->number);
	/* the first one clears what a meeting long over has left */
	if (was != op->meet_number + 1 && was != UINT64_MAX &&
	    atomic_compare_exchange_strong(&m->number, &was, UINT64_MAX)) {
		atomic_store(&m->here, 0);
		atomic_store(&m->latest, 0);
		atomic_store(&m->number, op->meet_number + 1);
	}
	while (atomic_load(&m->number) == UINT64_MAX)
		; /* for as long as three stores take */
	was = atomic_load(&m->latest);
	while (was < op->start &&
	       !atomic_compare_exchange_weak(&m->latest, &was, op->start))
		;
	atomic_fetch_add(&m->here, 1);
}

static bool peer_died(unsigned group)
{
	for (unsigned i = 0; i < mine[group].ranks; i++) {
		int64_t pid = atomic_load(&file->group[group].pid[i]);

		if (pid > 0 && kill((pid_t)pid, 0) && errno == ESRCH)
			return true;
	}
	return false;
}

bool sim_meet_over(const struct sim_op *op, uint64_t now, uint64_t *end)
{
	unsigned group = op->work.meet - 1;
	const struct meeting *m = meeting_of(op);

	if (atomic_load(&m->here) >= mine[group].ranks) {
		*end = atomic_load(&m->latest) + op->work.ns;
		return true;
	}
	if (now > op->start + ALONE_NS && peer_died(group))
		atomic_store(&file->group[group].gone, 1);
	*end = now;
	return atomic_load(&file->group[group].gone) != 0;
}

void sim_meet_leave(void)
{
	for (unsigned i = 0; file && i < GROUPS; i++)
		if (mine[i].ranks)
			atomic_store(&file->group[i].gone, 1);
}
