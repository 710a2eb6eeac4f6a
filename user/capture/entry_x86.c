// SPDX-License-Identifier: BSD-2-Clause
/* x86-64's instructions. */
#include <stdlib.h>

#include "capture/entry_int.h"

#ifdef __x86_64__
#include <capstone/capstone.h>

struct own {
	csh handle;
	cs_insn *insn;
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

static void x86_close(struct pt_decoder *d)
{
	struct own *own = d->own;

	if (!own)
		return;
	if (own->insn)
		cs_free(own->insn, 1);
	if (own->handle)
		cs_close(&own->handle);
	free(own);
}

static bool x86_open(struct pt_decoder *d)
{
	struct own *own = calloc(1, sizeof(*own));

	d->own = own;
	if (!own || cs_open(CS_ARCH_X86, CS_MODE_64, &own->handle))
		return false;
	cs_option(own->handle, CS_OPT_DETAIL, CS_OPT_ON);
	own->insn = cs_malloc(own->handle);
	return own->insn;
}

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

static bool x86_is_harmless(const struct pt_decoder *d, struct pt_entry_use use)
{
	const struct own *own = d->own;
	const cs_insn *i = own->insn;
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

/* Where does it go beside the next instruction? PT_JUMP_AWAY: through a pointer at a
 * fixed place, to another function. */
static enum pt_jump jump_of(csh h, const cs_insn *i, uint64_t *to)
{
	const cs_x86 *x = &i->detail->x86;
	const cs_x86_op *op = x->operands;

	if (i->id == X86_INS_CALL && op->type != X86_OP_IMM)
		return PT_JUMP_NONE;
	if (i->id != X86_INS_CALL && i->id != X86_INS_XBEGIN &&
	    !cs_insn_group(h, i, CS_GRP_JUMP) &&
	    !cs_insn_group(h, i, CS_GRP_BRANCH_RELATIVE))
		return PT_JUMP_NONE;
	if (x->op_count != 1)
		return PT_JUMP_UNKNOWN;
	if (op->type == X86_OP_IMM) {
		*to = (uint64_t)op->imm;
		return PT_JUMP_KNOWN;
	}
	return op->type == X86_OP_MEM && op->mem.base == X86_REG_RIP &&
	       op->mem.index == X86_REG_INVALID ? PT_JUMP_AWAY : PT_JUMP_UNKNOWN;
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

static bool x86_next(struct pt_decoder *d, const uint8_t **p, size_t *len, uint64_t *at)
{
	struct own *own = d->own;
	const cs_insn *i = own->insn;

	if (!cs_disasm_iter(own->handle, p, len, at, own->insn))
		return false;
	d->now = (struct pt_insn){
		.cheap = is_cheap(i), .calls = i->id == X86_INS_CALL, .ends = is_end(i),
	};
	d->now.emulated = d->now.cheap || i->id == X86_INS_NOP || i->bytes[0] == 0xe8;
	d->now.jump = jump_of(own->handle, i, &d->now.to);
	return true;
}

const struct pt_insns pt_insns_x86 = { x86_open, x86_close, x86_next, x86_is_harmless };
#endif
