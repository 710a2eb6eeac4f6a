/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Record streams made by hand, for tests of the model and the analysis: what
 * a capture would have written of threads whose every move is known.
 *
 * A thread is on a CPU unless an interval says otherwise. st_seal() orders the
 * records, numbers them per thread and adds up the totals, as the kernel
 * programs do. Running out of memory ends the test program.
 */
#ifndef PT_TEST_STREAM_H
#define PT_TEST_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/records.h"
#include "base/vec.h"
#include "model/model.h"
#include "report/report.h"

#define ST_US 1000ull
#define ST_MS 1000000ull
#define ST_S 1000000000ull
#define ST_NEVER UINT64_MAX /* an interval that nobody ends */

struct st_rec {
	union pt_rec_any r;
	uint64_t order;	       /* ties keep the order of making */
	uint64_t rchar, wchar; /* bytes since the thread's record before */
};

struct stream {
	PT_VEC(struct st_rec) recs;
};

void st_free(struct stream *s);
/* Append an empty record of this size; valid until the next one is made. */
union pt_rec_any *st_add(struct stream *s, uint16_t kind, size_t size, uint64_t ts,
		     uint32_t tgid, uint32_t tid);
/* Bytes that the thread of the latest record read or wrote before it. */
void st_bytes(struct stream *s, uint64_t rchar, uint64_t wchar);

void st_task(struct stream *s, uint64_t ts, uint32_t tgid, uint32_t tid,
	     uint32_t ppid, const char *comm);
void st_fork(struct stream *s, uint64_t ts, uint32_t tgid, uint32_t tid,
	     uint32_t child_tgid, uint32_t child_tid);
void st_exit(struct stream *s, uint64_t ts, uint32_t tgid, uint32_t tid,
	     bool last);
void st_exec(struct stream *s, uint64_t ts, uint32_t tgid, uint32_t old_tid);
void st_mark(struct stream *s, uint64_t ts, uint32_t mark);
void st_host(struct stream *s, uint64_t ts, uint32_t cores, uint32_t pid);
void st_file(struct stream *s, uint64_t ts, uint32_t dev, uint64_t inode,
	     const char *name, const char *dir);
/* A GPU call by symbol; end 0: its return is not watched. */
void st_gpu(struct stream *s, const char *symbol, uint32_t tgid, uint32_t tid,
	    uint64_t begin, uint64_t end, uint64_t stream, uint64_t v0,
	    uint64_t v1, uint64_t v2);
uint32_t st_api(const char *symbol);

/* ---- off-CPU intervals: asleep from `begin`, woken at `wake`, on a CPU again
 * at `end`. The result may be changed until the next record is made. -------- */
struct pt_rec_off *st_off(struct stream *s, uint32_t tgid, uint32_t tid,
			  uint64_t begin, uint64_t wake, uint64_t end);
/* Preempted: on the run queue all along. */
struct pt_rec_off *st_preempted(struct stream *s, uint32_t tgid, uint32_t tid,
				uint64_t begin, uint64_t end);
/* Waits for data in a pipe (poll), and a write of `from` brings it. */
struct pt_rec_off *st_pipe_in(struct stream *s, uint32_t tgid, uint32_t tid,
			      uint64_t begin, uint64_t wake, uint64_t end,
			      uint64_t inode, uint32_t from_tgid,
			      uint32_t from_tid);
struct pt_rec_off *st_futex(struct stream *s, uint32_t tgid, uint32_t tid,
			    uint64_t begin, uint64_t wake, uint64_t end,
			    uint64_t addr, uint32_t from_tgid,
			    uint32_t from_tid);
/* Waits for a socket that a thread of this machine answers (from 0: nobody
 * here). */
struct pt_rec_off *st_sock(struct stream *s, uint32_t tgid, uint32_t tid,
			   uint64_t begin, uint64_t wake, uint64_t end,
			   uint64_t inode, uint32_t from_tgid,
			   uint32_t from_tid);
/* Reads a file from storage; an interrupt ends it, while `victim` runs. */
struct pt_rec_off *st_disk(struct stream *s, uint32_t tgid, uint32_t tid,
			   uint64_t begin, uint64_t wake, uint64_t end,
			   uint32_t dev, uint64_t inode, uint32_t victim);
/* A call that reads a file, without a sleep. */
struct pt_rec_read *st_read(struct stream *s, uint32_t tgid, uint32_t tid,
			    uint64_t begin, uint64_t end, uint32_t dev,
			    uint64_t inode, int64_t bytes);
struct pt_rec_off *st_fault(struct stream *s, uint32_t tgid, uint32_t tid,
			    uint64_t begin, uint64_t wake, uint64_t end);

/* Keep what a capture of [t0,t1) would have recorded: intervals and calls that
 * straddle an end are cut like the kernel programs cut them, and marks are
 * put at both. */
void st_window(struct stream *s, uint64_t t0, uint64_t t1);
/* Order, number, add up. */
void st_seal(struct stream *s);

/* Feed everything; how many records were refused. */
size_t st_feed(const struct stream *s, struct pt_model *m);
/* Feed a new model, finish and analyse it. The caller frees both. */
struct pt_report *st_analyze(const struct stream *s, struct pt_model **m);
/* Without what a change would win, which takes most of the time. */
struct pt_report *st_figures(const struct stream *s, struct pt_model **m);

/* ---- a generator that is the same everywhere (SplitMix64) ---------------- */
static inline uint64_t st_rand(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}
/* In [lo, hi]. */
static inline uint64_t st_between(uint64_t *state, uint64_t lo, uint64_t hi)
{
	return lo + st_rand(state) % (hi - lo + 1);
}

#endif
