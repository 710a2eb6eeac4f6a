/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks of a running CPython, read from outside: nothing is stopped, loaded or
 * written. 3.8 to 3.13, however it is linked, on x86-64. Everything that is read is
 * the target's: addresses, lengths and chains are bounded, text is as it was.
 */
#ifndef PT_PYTHON_READER_H
#define PT_PYTHON_READER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "pystack.h"

#define PT_PY_TEXT 256
#define PT_PY_DEPTH 256	  /* frames of a stack that are told */
#define PT_PY_THREADS 4096

struct pt_py; /* one interpreter of one process */

struct pt_py_frame {
	char file[PT_PY_TEXT]; /* UTF-8; cut */
	char name[PT_PY_TEXT]; /* qualified from 3.11 on */
	int line; /* 0: none is known */
	unsigned flags; /* PT_PY_* */
	uint16_t instr; /* its instruction, 2 bytes each, counted from 1; 0: not known, or too far */
};

/* Its instruction fetches the next item of what a loop goes through; it is a generator, or is
 * called __next__; its instruction enters a `with`. */
#define PT_PY_ITER 1
#define PT_PY_NEXT 2
#define PT_PY_WITH 8
/* It is no function but a library that the innermost one has called: `file`. */
#define PT_PY_NATIVE 4

struct pt_py_sink {
	/* A thread that has Python state, before its stack is read. Where it says true, its
	 * frames follow, the innermost first. */
	bool (*thread)(void *ctx, pid_t tid);
	void (*frame)(void *ctx, const struct pt_py_frame *f);
	void *ctx;
};

/*
 * Find the interpreter and see that what is known of its version fits: a chain of
 * frames whose code objects are called "code". 0; -ENOENT: no CPython is mapped;
 * -EOPNOTSUPP: one that is not known; -ESRCH, -EPERM or another -errno; each with a
 * sentence. pt_py_close() it.
 */
int pt_py_open(struct pt_py **out, pid_t pid, struct pt_err *err);
/* The same of 3.`minor` with its _PyRuntime there; nothing is read but a published table. */
int pt_py_open_at(struct pt_py **out, pid_t pid, uint64_t runtime, int minor,
		  struct pt_err *err);
void pt_py_close(struct pt_py *p);
/* "3.11" */
const char *pt_py_version(const struct pt_py *p);

/* Where the interpreter has its own state, its lock among it. */
struct pt_py_state {
	uint64_t begin;
	uint32_t bytes, minor; /* 3.`minor` */
};
struct pt_py_state pt_py_state(const struct pt_py *p);

/* Where a process has what a sample in the kernel needs of its interpreter (config.h). */
struct pt_py_found {
	int32_t pid, minor;
	struct pt_py_where where;
};
/* False: of that version not on this machine. */
bool pt_py_where(const struct pt_py *p, struct pt_py_found *out);
/* A stranger says it: are all numbers such as a program may be given? Those that depend on
 * the version alone become what they are. */
bool pt_py_found_check(struct pt_py_found *f);

/* A frame of a sample, whose stack has been read: its code object is looked at now. False:
 * there is none, or what the frames since the begin took is more than a stack's. */
void pt_py_sample_begin(struct pt_py *p);
bool pt_py_frame_of(struct pt_py *p, const struct pt_py_frame_at *at, struct pt_py_frame *out);

/* All threads' stacks as they are now. A thread that runs meanwhile may be seen torn;
 * what does not fit ends its stack. How many threads, or -errno. */
int pt_py_stacks(struct pt_py *p, const struct pt_py_sink *to);

#endif
