/* SPDX-License-Identifier: BSD-2-Clause */
/* What looks.c (threads looked at from outside) and samples.c (samples of the kernel's) share. */
#ifndef PT_PYTHON_LOOKS_INT_H
#define PT_PYTHON_LOOKS_INT_H

#include "base/hash.h"
#include "base/vec.h"
#include "python/looks.h"

struct line {
	struct pt_py_line l; /* its texts are `text`'s */
	uint32_t id;
	UT_hash_handle hh; /* by all of `text` */
	size_t n;
	char text[]; /* name, file and line as they are compared */
};

struct node {
	struct pt_py_node key;
	uint32_t id;
	UT_hash_handle hh;
};

struct id {
	pid_t pid, tid;
};

/* Of a pt_py_frame, with its line's id. */
struct frame {
	uint32_t line;
	uint16_t flags, instr;
};

/* The last sample of a thread, outermost frame first: the next one has most of it. */
struct recent {
	uint64_t since; /* when all of it was made sense of anew */
	uint32_t n;
	struct {
		struct pt_py_frame_at at;
		uint32_t node;
		uint16_t instr; /* see pt_py_frame */
	} f[PT_PY_FRAMES];
};

struct thread {
	struct id id;
	uint32_t met; /* in this round of looks it was there, or sampled */
	struct recent *recent; /* NULL: it was not sampled yet */
	uint32_t stack; /* at the last look; 0: none */
	bool running;	/* ... it was */
	bool counts;
	struct pt_py_ran ran;
	UT_hash_handle hh;
};

/* A frame of a sample that was made sense of. */
struct known {
	struct pt_py_frame_at at;
	struct frame f;
	uint64_t ns; /* when its code object was looked at */
	UT_hash_handle hh;
};

/* A file that is mapped to be executed. */
struct mapped {
	uint64_t start, end, offset;
	uint32_t line; /* that stands for it; 0: it is the interpreter */
	uint32_t library; /* pt_py_library_id() */
	bool named;    /* ... or nobody has been there yet */
};

/* A library whose functions are asked for. */
struct asked {
	uint64_t offset; /* in the file, as all of these */
	uint32_t place;
};

struct function {
	uint64_t begin, size;
	uint32_t place; /* of one that was met in it */
};

struct library {
	uint64_t inode;
	uint32_t dev;
	uint32_t line; /* that stands for it */
	int fd;	       /* -1: not open; else since something is asked */
	int tries;
	bool given_up;
	bool seen; /* size and last change */
	off_t size;
	struct timespec changed;
	PT_VEC(struct asked) asked; /* and not looked up yet */
	PT_VEC(struct function) functions; /* that are known, by `begin` */
};

struct place {
	uint64_t key; /* offset and library */
	uint32_t id;
	UT_hash_handle hh;
};

struct process {
	pid_t pid;
	struct pt_py *py; /* NULL: it has none that can be read, or it has ended */
	struct known *known;
	bool sampled; /* whoever runs is: only who sleeps is looked at */
	bool told;    /* where its interpreter is */
	int tries;
	uint64_t pages; /* of its memory, at a try that found none; 0: not known */
	PT_VEC(struct mapped) mapped; /* by address, when they were last read */
	uint64_t mapped_ns, mapped_wait_ns;
	uint64_t exe_inode;
	uint32_t exe_dev;
	char version[8], cmdline[PT_PY_TEXT];
};

struct pt_py_looks {
	PT_VEC(struct process) processes;
	struct thread *threads;
	uint32_t round; /* of looks at all of them */
	struct line *by_text;
	struct node *by_key;
	PT_VEC(struct line *) lines; /* by id - 1, as the next */
	PT_VEC(struct node *) nodes;
	PT_VEC(struct library) libraries; /* by id - 1 */
	struct place *places;
	PT_VEC(struct pt_py_bound) bound;
	size_t n_open;
	uint64_t looked_ns; /* in all */
	/* the look under way; at NULL: there is none */
	pt_py_look_fn fn;
	void *ctx;
	pid_t pid;
	bool sampled; /* the process */
	struct thread *at;
	struct pt_py_look now;
	struct frame stack[PT_PY_DEPTH]; /* the innermost first */
	size_t depth;
};

/* NULL: it is not watched. */
struct process *pt_py_process_of(const struct pt_py_looks *l, pid_t pid);
/* Ids, made where there is none yet. 0: there is no room for more. */
uint32_t pt_py_line_id(struct pt_py_looks *l, const struct pt_py_frame *f);
uint32_t pt_py_node_id(struct pt_py_looks *l, uint32_t caller, const struct frame *f,
		       uint16_t called_at);
/* native.c: the line that stands for the library in which a thread is at `ip`, and the place
 * there. 0: the interpreter, or nobody knows. */
uint32_t pt_py_native_line(struct pt_py_looks *l, struct process *p, uint64_t ip,
			   uint32_t *place);

/* functions.c: ids of a mapped library, for which `line` stands, and of a place in it, which is
 * told later if it can be. 0: no room, or it never is. */
struct pt_gpulib;
uint32_t pt_py_library_id(struct pt_py_looks *l, const struct pt_gpulib *g, uint32_t line);
uint32_t pt_py_place_id(struct pt_py_looks *l, pid_t pid, const struct mapped *m, uint64_t ip);
void pt_py_functions_free(struct pt_py_looks *l);

#endif
