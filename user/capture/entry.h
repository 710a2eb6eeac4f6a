/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where at the beginning of a function a probe costs least.
 *
 * The kernel emulates some instructions within the probe's trap; any other one it
 * runs elsewhere, one step, and takes a second trap for it: several times the price
 * (docs/performance.md). Where a function begins with one of the others, a probe may as
 * well stand a few instructions later, if nothing that the program reads has changed
 * by then and each call comes by there exactly once.
 */
#ifndef PT_ENTRY_H
#define PT_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PT_ENTRY_RUN 64 /* bytes behind the entry that a place is looked for in */

/* What the programs read at the place, beside memory. */
struct pt_entry_use {
	uint8_t args; /* bits of PT_ENTRY_ARG */
	uint8_t stack; /* 1: the stack pointer, what lies above it, or the return's own probe */
};
#define PT_ENTRY_ARG(slot) ((uint8_t)(1u << (slot))) /* 0 rdi ... 5 r9; 0 x0 ... 7 x7 */

struct pt_entry_place {
	uint8_t skip;	 /* bytes from the entry */
	uint8_t stepped; /* 1: nothing there that the kernel emulates */
};

/* A function, and how its code is read. */
struct pt_entry_code {
	uint64_t at, size; /* size 0: not known */
	/* up to `len` bytes at an address; how many there were */
	size_t (*get)(void *ctx, uint64_t at, void *out, size_t len);
	void *ctx;
};

struct pt_decoder;

struct pt_decoder *pt_decoder_new(void); /* NULL: out of memory */
void pt_decoder_free(struct pt_decoder *d);

/* The code is not trusted. Where it cannot be told the place is the entry. */
struct pt_entry_place pt_entry_place(struct pt_decoder *d, const struct pt_entry_code *c,
				     struct pt_entry_use use);

#endif
