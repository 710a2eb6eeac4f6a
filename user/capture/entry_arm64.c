// SPDX-License-Identifier: BSD-2-Clause
/* arm64's instructions: a word each, told by a mask and a value. */
#include <string.h>

#include "capture/entry_int.h"

#define SP 31 /* in some places; a register that is always 0 in others */
#define LR 30

static bool is(uint32_t w, uint32_t mask, uint32_t value)
{
	return (w & mask) == value;
}

/* The place that a number of `bits` at `shift`, in words, leads to. */
static uint64_t target(uint64_t at, uint32_t w, unsigned shift, unsigned bits)
{
	int64_t words = (int64_t)((uint64_t)(w >> shift) << (64 - bits)) >> (64 - bits);

	return at + (uint64_t)words * 4;
}

/*
 * Does the kernel simulate it? arch/arm64/kernel/probes/decode-insn.c,
 * arm_probe_decode_insn(): b, bl, b.cond, cbz, cbnz, tbz, tbnz, adr, adrp, br, blr and ret,
 * since uprobes came with 4.10; nop since 6.13. Loads of a literal, which it also
 * knew, are refused since 6.12, as are exclusive loads, most system instructions and
 * hints that are not known. Anything else (bti and paciasp, too) is stepped.
 *
 * Not of the cheap ones: bl and blr, for what of it is done for a process with a shadow
 * stack (GCS) came with 6.18 only; ret, which is no beginning; nop.
 */
static void decode(struct pt_insn *o, uint64_t at, uint32_t w)
{
	*o = (struct pt_insn){ .jump = PT_JUMP_NONE };
	if (is(w, 0x7c000000, 0x14000000)) { /* b, bl */
		o->calls = w >> 31;
		o->ends = !o->calls;
		o->to = target(at, w, 0, 26);
	} else if (is(w, 0xff000000, 0x54000000) || is(w, 0x7e000000, 0x34000000)) {
		o->to = target(at, w, 5, 19); /* b.cond, cbz, cbnz */
	} else if (is(w, 0x7e000000, 0x36000000)) {
		o->to = target(at, w, 5, 14); /* tbz, tbnz */
	} else if (is(w, 0x1f000000, 0x10000000)) { /* adr, adrp */
		o->cheap = o->emulated = true;
		return;
	} else if (is(w, 0xff9ffc1f, 0xd61f0000)) { /* br, blr, (reserved), ret */
		unsigned reg = w >> 5 & 31, kind = w >> 21 & 3;

		o->emulated = true;
		o->calls = kind == 1;
		o->ends = kind != 1;
		/* the two registers of linkers' stubs and of calls at the end */
		if (kind == 0)
			o->jump = reg == 16 || reg == 17 ? PT_JUMP_AWAY : PT_JUMP_UNKNOWN;
		return;
	} else if (is(w, 0xfe000000, 0xd6000000)) { /* with signatures: braa, retaa, ... */
		o->calls = is(w, 0x00600000, 0x00200000);
		o->ends = !o->calls;
		if (is(w, 0x00600000, 0))
			o->jump = PT_JUMP_UNKNOWN;
		return;
	} else {
		o->ends = is(w, 0xffff0000, 0) || is(w, 0xffe0001f, 0xd4200000); /* udf, brk */
		o->emulated = w == 0xd503201f; /* nop */
		return;
	}
	o->jump = PT_JUMP_KNOWN;
	o->emulated = true;
	o->cheap = !o->calls;
}

static bool arm64_next(struct pt_decoder *d, const uint8_t **p, size_t *len, uint64_t *at)
{
	if (*len < sizeof(d->word))
		return false;
	memcpy(&d->word, *p, sizeof(d->word));
	decode(&d->now, *at, d->word);
	*p += sizeof(d->word);
	*len -= sizeof(d->word);
	*at += sizeof(d->word);
	return true;
}

/* The register that it writes, for what writes nothing else (but flags): SP too; -1: it is
 * not of these, or the register is the one that is always 0: -2. */
static int written(uint32_t w)
{
	int rd = (int)(w & 31);
	bool flags = w >> 29 & 1, sp_there = false;

	if (is(w, 0x1f800000, 0x11000000) || is(w, 0x1fe00000, 0x0b200000))
		sp_there = !flags; /* add, sub: a number; a part of a register */
	else if (is(w, 0x1f800000, 0x12000000))
		sp_there = (w >> 29 & 3) != 3; /* and, orr, eor, ands: a number */
	else if (!is(w, 0x1f800000, 0x12800000) && /* mov: a number */
		 !is(w, 0x1f000000, 0x13000000) && /* parts of a register, moved */
		 !is(w, 0x0e000000, 0x0a000000) && /* of registers */
		 !is(w, 0x3fc00000, 0x39400000) && /* loads, up to 64 bits */
		 !is(w, 0xfff00000, 0xd5300000))   /* of the processor's own registers */
		return -1;
	return rd == SP && !sp_there ? -2 : rd;
}

/* It saves registers in the frame: stp or str, of numbers or vectors, at sp; `pre`: and
 * moves sp down first. */
static bool saves(uint32_t w, bool *pre)
{
	bool pair = is(w, 0xfe400000, 0xa8000000) || is(w, 0x3e400000, 0x2c000000);

	if ((w >> 5 & 31) != SP)
		return false;
	*pre = pair ? (w >> 23 & 3) == 3 : is(w, 0xffe00c00, 0xf8000c00);
	return pair ? (w >> 23 & 3) >= 2 : *pre || is(w, 0xffc00000, 0xf9000000);
}

static bool arm64_is_harmless(const struct pt_decoder *d, struct pt_entry_use use)
{
	uint32_t w = d->word;
	int reg = written(w);
	bool pre;

	switch (w) {
	case 0xd503201f: /* nop */
	case 0xd503241f: /* bti */
	case 0xd503245f: /* bti c */
	case 0xd503249f: /* bti j */
	case 0xd50324df: /* bti jc */
		return true;
	case 0xd503233f: /* paciasp */
	case 0xd503237f: /* pacibsp: they sign the way back, which a return's probe changes */
		return !use.stack;
	}
	if (saves(w, &pre)) /* ... or it was saved before that */
		return !use.stack;
	if (reg == SP || reg == LR)
		return !use.stack;
	return reg == -2 || (reg >= 0 && (reg > 7 || !(use.args >> reg & 1)));
}

static bool arm64_open(struct pt_decoder *d)
{
	(void)d;
	return true;
}

static void arm64_close(struct pt_decoder *d)
{
	(void)d;
}

const struct pt_insns pt_insns_arm64 = { arm64_open, arm64_close, arm64_next,
					 arm64_is_harmless };
