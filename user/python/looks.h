/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The threads of some processes, looked at again and again from outside: in which stack
 * of Python each is, and how much it ran meanwhile. A thread that runs goes on while it
 * is read, so a look may see it torn; what does not fit is no look.
 */
#ifndef PT_PYTHON_LOOKS_H
#define PT_PYTHON_LOOKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "python/reader.h"

/* What looking may cost, of one core, and how long there is between two looks at least. */
#define PT_PY_BUDGET 0.01
#define PT_PY_SAMPLES_BUDGET (PT_PY_BUDGET / 2) /* where they come; the rest is for who sleeps */
#define PT_PY_NAMES_BUDGET (PT_PY_BUDGET / 10) /* names of functions in libraries */
#define PT_PY_PERIOD_S 0.01

struct pt_py_looks;

/* /proc/PID/task/TID/schedstat, cumulative */
struct pt_py_ran {
	uint64_t run, ready; /* ns: on a core, ready for one */
	uint64_t slices;
};

struct pt_py_look {
	pid_t pid, tid;
	uint64_t begin_ns, end_ns; /* CLOCK_MONOTONIC; it was read in between */
	uint32_t stack;		   /* pt_py_node() */
	uint32_t place;		   /* in the library that it ends in: see pt_py_functions() */
	bool running;		   /* or ready for a core */
	bool same;   /* it has not run since the look before: nothing was read */
	bool counts; /* `ran` is known, at begin_ns */
	struct pt_py_ran ran;
};

/* A line of the job's program, in a function. */
struct pt_py_line {
	const char *file, *name;
	int line;     /* 0: none is known */
	bool library; /* comes with the interpreter, or is installed beside it */
	bool native;  /* a library that is no Python; its stack's innermost, of a sample alone */
};

/* A stack is its innermost line and the stack that called it. */
struct pt_py_node {
	uint32_t caller, line; /* 0: none; pt_py_line_of() */
	uint16_t flags; /* PT_PY_ITER, _NEXT, _WITH: of its innermost function */
	uint16_t called_at; /* the caller's instruction; see pt_py_frame */
};

typedef void (*pt_py_look_fn)(void *ctx, const struct pt_py_look *look);

/* pt_py_looks_free() it. NULL: no memory. */
struct pt_py_looks *pt_py_looks_new(void);
void pt_py_looks_free(struct pt_py_looks *l);

/* From now on also this one; to be called now and then, for a process that has only
 * begun. 0; once for each process, after some calls, why there is none (-ENOENT: it has
 * no Python; what else pt_py_open() says). */
int pt_py_looks_watch(struct pt_py_looks *l, pid_t pid, struct pt_err *err);

/* For qsort() of them. */
static inline int pt_by_pid(const void *a, const void *b)
{
	const pid_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Forget all others; in rising order. */
void pt_py_looks_keep(struct pt_py_looks *l, const pid_t *pids, size_t n);

/* Look once at every thread; `fn` is told of each that has a stack. How many there were. */
int pt_py_looks_at(struct pt_py_looks *l, pt_py_look_fn fn, void *ctx);

/* Whoever of this process runs is sampled in the kernel: looks are at those who sleep. */
void pt_py_looks_sampled(struct pt_py_looks *l, pid_t pid, bool sampled);
/* One more process whose interpreter is known, each once; NULL: none. */
const struct pt_py *pt_py_looks_opened(struct pt_py_looks *l, pid_t *pid);
/* A sample with n frames; `fn` is told of it as of a look that took no time. False: it is of
 * nobody who is watched, or has frames without a code object. */
bool pt_py_looks_sample(struct pt_py_looks *l, const struct pt_py_sample *s, uint32_t n,
			pt_py_look_fn fn, void *ctx);

/* Functions of libraries. What samples have met in them is looked up all at once, which may
 * take long: is there something, and do it. */
bool pt_py_functions_due(const struct pt_py_looks *l);
void pt_py_functions(struct pt_py_looks *l);
/* What it told so far: a look's place is in the function for which the line stands. */
struct pt_py_bound {
	uint32_t place, line;
};
size_t pt_py_bound_known(const struct pt_py_looks *l);
const struct pt_py_bound *pt_py_bound_of(const struct pt_py_looks *l, size_t i);

/* Lines and stacks so far, counted from 1; they stay until the end. Of an id that there
 * is. */
uint32_t pt_py_lines_known(const struct pt_py_looks *l);
uint32_t pt_py_nodes_known(const struct pt_py_looks *l);
const struct pt_py_line *pt_py_line_of(const struct pt_py_looks *l, uint32_t id);
const struct pt_py_node *pt_py_node_of(const struct pt_py_looks *l, uint32_t id);
/* The line that a reader wants to hear of: the innermost of the job's own code; where
 * there is none, the innermost. 0: no stack. */
uint32_t pt_py_telling(const struct pt_py_looks *l, uint32_t stack);

/* "3.11" and its command line, also of one that has ended. False: it had no Python. */
bool pt_py_looks_process(const struct pt_py_looks *l, pid_t pid, const char **version,
			 const char **cmdline);

/* The pause behind a look that took so much CPU, s, for looks to take `part` of a core: it
 * varies, so that no rhythm of the job's meets that of the looks. */
double pt_py_pause(double cost_s, double part);

#endif
