/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_MODEL_INTERNAL_H
#define PT_MODEL_INTERNAL_H

#include "base/minmax.h"
#include "model/timeline.h"

/*
 * Find or make; NULL when out of memory. Ids are the kernel's. A tid with
 * another start time or in another process is another thread; a late record
 * still finds an earlier owner. A reused leader's id makes a new process.
 */
struct pt_proc *pt_proc_make(struct pt_model *m, uint32_t tgid);
struct pt_thread *pt_thread_make(struct pt_model *m, uint32_t tid,
				 uint32_t tgid, uint32_t start, uint64_t ts);
/* It has ended. */
void pt_thread_ends(struct pt_model *m, struct pt_thread *t, uint64_t ts);
/* fold.c: with all that they hold; they are in no list any more. */
void pt_thread_free(struct pt_model *m, struct pt_thread *t);
void pt_proc_free(struct pt_model *m, struct pt_proc *p);
/* It is about to go: its id is the one of the owner before again. */
void pt_forget_id(struct pt_model *m, const struct pt_thread *t);
/* Records between the begin and `ts` are not there: what follows is counted and
 * timed from then on. */
void pt_model_resume(struct pt_model *m, uint64_t ts);
/* A part of a schedule ended: what was open then lasted until `end`, as far as is
 * known. 0 or -ENOMEM. */
int pt_close_part(struct pt_model *m, uint64_t end);
/* The thread of a record, if it is known. */
struct pt_thread *pt_thread_find(const struct pt_model *m, uint32_t tid,
				 uint32_t tgid, uint32_t start);
/* Who had the kernel's id `tid` at `ts`; NULL unknown. */
struct pt_thread *pt_thread_at(const struct pt_model *m, uint32_t tid,
			       uint64_t ts);

/* Take a record's number: counts what is missing, and gives the count of one
 * that comes late back. False: it had come before. */
bool pt_take_seq(struct pt_model *m, struct pt_thread *t, uint32_t seq);

/*
 * Take a record in, one of its longest version whose members, where it is older or
 * cut, are 0 (a FILE's path goes on behind it up to hdr.size). 0; -ENOMEM; -EINVAL: it
 * makes no sense. By their names in records.def.
 */
#define PT_KIND(kind, number, name, life, feed)                                \
	int pt_feed_##feed(struct pt_model *m, const struct pt_rec_##name *r);
#include "records.def"
/* Drop counters of disks from before this moment, but for the last ones. */
void pt_trim_disks(struct pt_model *m, uint64_t before);
/* Where there are very many files: the oldest that nothing held refers to go, and what
 * names the others had before the begin. */
void pt_forget_files(struct pt_model *m);
void pt_files_free(struct pt_model *m);
void pt_lines_free(struct pt_model *m);
/* Every read, wait and fault to the name that its file had then. 0 or -ENOMEM. */
int pt_settle_files(struct pt_model *m);
/* Sleeps that end with a function of the host on a stream become calls of `p`, whose calls and
 * threads are in order; all of them, or those that are long enough ago for all of their
 * records to have come. 0 or -ENOMEM. */
int pt_find_host_waits(struct pt_model *m, struct pt_proc *p, bool all);
/* Forget which calls a thread is in when records of it are missing: they may
 * have returned. */
void pt_check_stack(struct pt_thread *t);

#endif
