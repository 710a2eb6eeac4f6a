/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of the decoder; for user/capture/entry*.c only. */
#ifndef PT_ENTRY_INT_H
#define PT_ENTRY_INT_H

#include "capture/entry.h"

#define PT_ENTRY_CODE (64u << 10) /* bytes of a function; a longer one is not looked through */

enum pt_jump {
	PT_JUMP_NONE,
	PT_JUMP_KNOWN,
	PT_JUMP_AWAY, /* through a pointer at a fixed place, to another function */
	PT_JUMP_UNKNOWN,
};

/* What the walk must know of an instruction. */
struct pt_insn {
	bool emulated; /* by some kernels at least: an entry there costs no step */
	bool cheap;    /* by all of them, and a probe may be put there */
	bool calls, ends;
	enum pt_jump jump; /* where to, beside the next instruction */
	uint64_t to;	   /* PT_JUMP_KNOWN */
};

/* A processor. */
struct pt_insns {
	bool (*open)(struct pt_decoder *d);
	void (*close)(struct pt_decoder *d);
	/* Decode one at *at, as cs_disasm_iter(); false: there is none. */
	bool (*next)(struct pt_decoder *d, const uint8_t **p, size_t *len, uint64_t *at);
	/* The last one writes nothing but a register, one that is not used. */
	bool (*is_harmless)(const struct pt_decoder *d, struct pt_entry_use use);
};
extern const struct pt_insns pt_insns_x86, pt_insns_arm64;

struct pt_decoder {
	const struct pt_insns *of;
	struct pt_insn now;
	void *own; /* the processor's */
	uint32_t word;
	uint8_t code[PT_ENTRY_CODE];
};

/* For another processor than this one; for tests. */
struct pt_decoder *pt_decoder_for(const struct pt_insns *of);

#endif
