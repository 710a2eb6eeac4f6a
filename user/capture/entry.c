/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/entry.h"

#include <stdlib.h>

#ifdef __x86_64__
#include <capstone/capstone.h>

#define MAX_CODE (64u << 10) /* bytes of a function; a longer one is not looked through */
#define MAX_AROUND 4096	     /* instructions elsewhere that it jumps to */
#define MAX_JUMPS 64	     /* ... and places */
#define PIECE 512

struct pt_decoder {
	csh handle;
	cs_insn *insn;
	uint8_t code[MAX_CODE];
};

/* Capstone's archive has every processor that it knows. Without these only the one
 * that is asked for gets into the program (1.6 MB instead of 6.7). */
#define NO_OTHER(arch)                                                                   \
	int arch##_global_init(void *);                                                  \
	int arch##_option(void *, int, size_t);                                          \
	int arch##_global_init(void *ud) { return ud ? CS_ERR_ARCH : CS_ERR_HANDLE; }    \
	int arch##_option(void *ud, int type, size_t value)                              \
	{                                                                                \
		return ud && type + value ? CS_ERR_ARCH : CS_ERR_HANDLE;                 \
	}
NO_OTHER(ARM)
NO_OTHER(AArch64)
NO_OTHER(Mips)
NO_OTHER(PPC)
NO_OTHER(Sparc)
NO_OTHER(SystemZ)
NO_OTHER(XCore)
NO_OTHER(M68K)
NO_OTHER(TMS320C64x)
NO_OTHER(M680X)
NO_OTHER(EVM)

struct pt_decoder *pt_decoder_new(void)
{
	struct pt_decoder *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	if (!cs_open(CS_ARCH_X86, CS_MODE_64, &d->handle)) {
		cs_option(d->handle, CS_OPT_DETAIL, CS_OPT_ON);
		d->insn = cs_malloc(d->handle);
	}
	if (d->insn)
		return d;
	pt_decoder_free(d);
	return NULL;
}

void pt_decoder_free(struct pt_decoder *d)
{
	if (!d)
		return;
	if (d->insn)
		cs_free(d->insn, 1);
	if (d->handle)
		cs_close(&d->handle);
	free(d);
}

/* ---- single instructions ------------------------------------------------------- */

/*
 * Does the kernel emulate it? arch/x86/kernel/uprobes.c, branch_setup_xol_ops(): nop
 * (90), jmp (eb, e9), call (e8), conditional jumps (70-7f, 0f 80-8f);
 * push_setup_xol_ops(): push of a register (50-57, 41 50-57), since 5.0. Debian's
 * 6.1.192 and 6.12.117 have this list; 6.18 also has the long nops.
 *
 * Not of these: call, because the kernel puts the return address on the stack and not
 * on the shadow stack of a process that has one; nops of several bytes, which older
 * kernels step; and what has a prefix, which they refuse in part.
 */
static bool is_cheap(const cs_insn *i)
{
	const uint8_t *b = i->bytes;

	switch (i->size) {
	case 1:
		return b[0] == 0x90 || (b[0] & 0xf8) == 0x50;
	case 2:
		return b[0] == 0xeb || (b[0] & 0xf0) == 0x70 ||
		       (b[0] == 0x41 && (b[1] & 0xf8) == 0x50);
	case 5:
		return b[0] == 0xe9;
	case 6:
		return b[0] == 0x0f && (b[1] & 0xf0) == 0x80;
	}
	return false;
}

/* The slot of an argument, or 6 for rsp; -1: another register. */
static int slot_of(unsigned reg)
{
	static const uint16_t names[][5] = {
		{ X86_REG_RDI, X86_REG_EDI, X86_REG_DI, X86_REG_DIL },
		{ X86_REG_RSI, X86_REG_ESI, X86_REG_SI, X86_REG_SIL },
		{ X86_REG_RDX, X86_REG_EDX, X86_REG_DX, X86_REG_DL, X86_REG_DH },
		{ X86_REG_RCX, X86_REG_ECX, X86_REG_CX, X86_REG_CL, X86_REG_CH },
		{ X86_REG_R8, X86_REG_R8D, X86_REG_R8W, X86_REG_R8B },
		{ X86_REG_R9, X86_REG_R9D, X86_REG_R9W, X86_REG_R9B },
		{ X86_REG_RSP, X86_REG_ESP, X86_REG_SP, X86_REG_SPL },
	};
	int s, k;

	for (s = 0; s < 7; s++)
		for (k = 0; k < 5; k++)
			if (reg == names[s][k])
				return s;
	return -1;
}

/* Writes nothing but a register, one that is not used. */
static bool is_harmless(const cs_insn *i, struct pt_entry_use use)
{
	const cs_x86_op *op = i->detail->x86.operands;
	int slot;

	switch (i->id) {
	case X86_INS_ENDBR64:
	case X86_INS_NOP:
	case X86_INS_CMP:
	case X86_INS_TEST:
		return true;
	case X86_INS_MOV:
	case X86_INS_MOVABS:
	case X86_INS_MOVZX:
	case X86_INS_MOVSX:
	case X86_INS_MOVSXD:
	case X86_INS_LEA:
	case X86_INS_XOR:
	case X86_INS_AND:
	case X86_INS_OR:
	case X86_INS_ADD:
	case X86_INS_SUB:
	case X86_INS_PXOR:
	case X86_INS_XORPS:
	case X86_INS_MOVAPS:
	case X86_INS_MOVUPS:
	case X86_INS_MOVDQA:
	case X86_INS_MOVDQU:
	case X86_INS_MOVD:
	case X86_INS_MOVQ:
		if (!i->detail->x86.op_count || op->type != X86_OP_REG)
			return false;
		slot = slot_of(op->reg);
		return slot < 0 || (slot == 6 ? !use.stack : !(use.args >> slot & 1));
	}
	return false;
}

enum jump { JUMP_NONE, JUMP_KNOWN, JUMP_AWAY, JUMP_UNKNOWN };

/* Where does it go beside the next instruction? JUMP_AWAY: through a pointer at a
 * fixed place, to another function. */
static enum jump jump_of(csh h, const cs_insn *i, uint64_t *to)
{
	const cs_x86 *x = &i->detail->x86;
	const cs_x86_op *op = x->operands;

	if (i->id == X86_INS_CALL && op->type != X86_OP_IMM)
		return JUMP_NONE;
	if (i->id != X86_INS_CALL && i->id != X86_INS_XBEGIN &&
	    !cs_insn_group(h, i, CS_GRP_JUMP) &&
	    !cs_insn_group(h, i, CS_GRP_BRANCH_RELATIVE))
		return JUMP_NONE;
	if (x->op_count != 1)
		return JUMP_UNKNOWN;
	if (op->type == X86_OP_IMM) {
		*to = (uint64_t)op->imm;
		return JUMP_KNOWN;
	}
	return op->type == X86_OP_MEM && op->mem.base == X86_REG_RIP &&
	       op->mem.index == X86_REG_INVALID ? JUMP_AWAY : JUMP_UNKNOWN;
}

static bool is_end(const cs_insn *i)
{
	switch (i->id) {
	case X86_INS_JMP:
	case X86_INS_RET:
	case X86_INS_UD2:
	case X86_INS_INT3:
	case X86_INS_HLT:
		return true;
	}
	return false;
}

/* ---- the function -------------------------------------------------------------- */

struct around {
	const struct pt_entry_code *c;
	uint64_t place; /* (c->at, place]: nobody may jump there */
	uint64_t jump[MAX_JUMPS]; /* places outside, that the function goes to */
	unsigned n, left;
};

static bool is_inside(const struct around *a, uint64_t at)
{
	return at - a->c->at < a->c->size;
}

static bool is_forbidden(const struct around *a, uint64_t at)
{
	return at - a->c->at - 1 < a->place - a->c->at;
}

/* False: it may come back into the run. */
static bool note_jump(struct pt_decoder *d, struct around *a)
{
	uint64_t to;
	unsigned k;

	switch (jump_of(d->handle, d->insn, &to)) {
	case JUMP_UNKNOWN:
		return false;
	case JUMP_NONE:
	case JUMP_AWAY:
		return true;
	case JUMP_KNOWN:
		break;
	}
	if (is_forbidden(a, to))
		return false;
	if (d->insn->id == X86_INS_CALL || is_inside(a, to))
		return true;
	for (k = 0; k < a->n; k++)
		if (a->jump[k] == to)
			return true;
	if (a->n == MAX_JUMPS)
		return false;
	a->jump[a->n++] = to;
	return true;
}

/* All of the function's own instructions, those too that only an exception or a table
 * leads to: to its very end, or it is not what the file says. */
static bool look_inside(struct pt_decoder *d, struct around *a)
{
	const uint8_t *p = d->code;
	uint64_t at = a->c->at;
	size_t len = (size_t)a->c->size;

	if (a->c->get(a->c->ctx, at, d->code, len) != len)
		return false;
	while (cs_disasm_iter(d->handle, &p, &len, &at, d->insn))
		if (!note_jump(d, a))
			return false;
	return !len;
}

/* What it jumps to elsewhere (cold parts, other functions that end in it), as far as
 * it goes on from there without a return. */
static bool look_at(struct pt_decoder *d, struct around *a, uint64_t at)
{
	uint8_t buf[PIECE];
	const uint8_t *p;
	uint64_t begin;
	size_t len;

	for (;;) {
		p = buf;
		begin = at;
		len = a->c->get(a->c->ctx, at, buf, sizeof(buf));
		while (cs_disasm_iter(d->handle, &p, &len, &at, d->insn)) {
			if (!a->left-- || !note_jump(d, a) || is_forbidden(a, at))
				return false;
			if (is_end(d->insn) || is_inside(a, at))
				return true;
		}
		if (at == begin)
			return false;
	}
}

/* Does each call pass the place once, and only after the entry? */
static bool is_passed_once(struct pt_decoder *d, const struct pt_entry_code *c, unsigned skip)
{
	struct around a = { .c = c, .place = c->at + skip, .left = MAX_AROUND };
	unsigned i;

	if (c->size <= skip || c->size > MAX_CODE || !look_inside(d, &a))
		return false;
	for (i = 0; i < a.n; i++)
		if (!look_at(d, &a, a.jump[i]))
			return false;
	return true;
}

struct pt_entry_place pt_entry_place(struct pt_decoder *d, const struct pt_entry_code *c,
				     struct pt_entry_use use)
{
	struct pt_entry_place entry = { .stepped = 1 }, later = { 0 };
	uint8_t run[PT_ENTRY_RUN];
	const uint8_t *p = run;
	uint64_t at = c->at, begin = at;
	size_t len = c->get(c->ctx, at, run, sizeof(run));

	while (cs_disasm_iter(d->handle, &p, &len, &at, d->insn)) {
		if (begin == c->at && (is_cheap(d->insn) || d->insn->id == X86_INS_NOP ||
				       d->insn->bytes[0] == 0xe8))
			entry.stepped = 0;
		if (is_cheap(d->insn)) {
			later.skip = (uint8_t)(begin - c->at);
			break;
		}
		if (!is_harmless(d->insn, use))
			return entry;
		begin = at;
	}
	return later.skip && is_passed_once(d, c, later.skip) ? later : entry;
}

#else /* elsewhere kernels have other lists: the entry */

struct pt_decoder {
	char none;
};

struct pt_decoder *pt_decoder_new(void)
{
	return calloc(1, sizeof(struct pt_decoder));
}

void pt_decoder_free(struct pt_decoder *d)
{
	free(d);
}

struct pt_entry_place pt_entry_place(struct pt_decoder *d, const struct pt_entry_code *c,
				     struct pt_entry_use use)
{
	(void)d;
	(void)c;
	(void)use;
	return (struct pt_entry_place){ .stepped = 1 };
}
#endif
