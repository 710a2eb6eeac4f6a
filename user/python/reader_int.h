/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of a reader share: find.c (where it is, and its layout), code.c (code objects,
 * instructions and text), reader.c (threads and their stacks). */
#ifndef PT_PYTHON_READER_INT_H
#define PT_PYTHON_READER_INT_H

#include <stddef.h>
#include <string.h>

#include "base/hash.h"
#include "python/reader.h"

#define NONE UINT16_MAX
#define CODE_SIZE 256	/* of a code object, whatever is read of it */
#define FRAME_SIZE PT_PY_RAW /* what is read of a frame lies in that much */
#define WORK_BYTES 256
/* Of all stacks together: frames, and per frame each so many bytes of a line table. A
 * job whose chains go in circles costs no more than that. */
#define WORK_MAX 65536
#define WORK_SAMPLE (WORK_MAX / 16) /* of one sample */
#define KNOWN 4		/* instructions of a code object that are remembered */

struct layout {
	int minor;
	uint32_t interpreters, threads;
	uint32_t thread_next, thread_id, native_id, frame, cframe_frame;
	uint32_t code, previous, instr, owner;
	uint32_t file, name, qualname, first_line, lines, bytecode;
	uint32_t ascii, compact;
	uint32_t flags, instructions, state;
};

/* A code object as it was met; the same one as long as all that it points to is. */
struct code {
	uint64_t addr, file, name, lines;
	int32_t first;
	char file_text[PT_PY_TEXT], name_text[PT_PY_TEXT];
	uint64_t bytecode; /* its first instruction */
	bool is_next; /* PT_PY_NEXT */
	struct {
		long at;
		unsigned kind; /* PT_PY_ITER, _WITH; 0 another */
	} known[KNOWN]; /* of its instructions, the latest */
	unsigned next_known;
	unsigned char *table; /* NULL: it could not be read */
	size_t n;
	UT_hash_handle hh;
};

/* A thread of a process in a PID name space of its own: the interpreter knows it by its
 * number there. */
struct inner {
	pid_t inner, tid;
	UT_hash_handle hh;
};

struct pt_py {
	pid_t pid;
	bool apart; /* it is in one */
	struct inner *inner;
	uint64_t listed_ns; /* its threads were, then */
	struct layout at;
	uint64_t runtime;
	uint64_t code_type; /* 0: not met yet */
	size_t frame_size;
	char version[16];
	struct code *codes;
	size_t tables; /* bytes of theirs */
	size_t work;   /* of this walk */
};

/* code.c: from the process' memory. False: not all of it can be read. */
bool pt_py_get_from(pid_t pid, uint64_t addr, void *out, size_t len);
static inline bool get(const struct pt_py *p, uint64_t addr, void *out, size_t len)
{
	return pt_py_get_from(p->pid, addr, out, len);
}
static inline bool get_ptr(const struct pt_py *p, uint64_t addr, uint64_t *out)
{
	return get(p, addr, out, sizeof(*out)) && !(*out & 7);
}
static inline uint64_t word_at(const unsigned char *bytes, uint32_t offset)
{
	uint64_t v;

	memcpy(&v, bytes + offset, sizeof(v));
	return v;
}
void pt_py_forget_codes(struct pt_py *p);

/* find.c: the interpreter's state, and 3.`minor`. 0, or as pt_py_open() with a sentence. */
int pt_py_find(pid_t pid, uint64_t *runtime, int *minor, struct pt_err *err);
int pt_py_take_layout(struct pt_py *p, int minor, struct pt_err *err);

#endif
