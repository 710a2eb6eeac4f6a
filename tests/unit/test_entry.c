// SPDX-License-Identifier: BSD-2-Clause
/* Where a probe stands at the beginning of a function: prologues by hand, byte for byte
 * as compilers make them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "capture/entry.h"

#define AT 0x401000
#define ARGS 0x3f
static const struct pt_entry_use all = { .args = ARGS, .stack = 1 };
static const struct pt_entry_use none;

struct text {
	uint8_t code[4096];
	size_t len;
};

static size_t get(void *ctx, uint64_t at, void *out, size_t len)
{
	const struct text *t = ctx;

	if (at < AT || at - AT >= t->len)
		return 0;
	if (len > t->len - (at - AT))
		len = t->len - (at - AT);
	memcpy(out, t->code + (at - AT), len);
	return len;
}

/* Of a function of `size` bytes at the begin of a text of `len`. */
static struct pt_entry_place place_of(const void *code, size_t len, uint64_t size,
				      struct pt_entry_use use)
{
	struct text t = { .len = len };
	const struct pt_entry_code c = { .at = AT, .size = size, .get = get, .ctx = &t };
	struct pt_decoder *d = pt_decoder_new();
	struct pt_entry_place p;

	assert_non_null(d);
	memcpy(t.code, code, len);
	p = pt_entry_place(d, &c, use);
	pt_decoder_free(d);
	return p;
}

#define IS_AT(skip_, stepped_, use, ...)                                                 \
	do {                                                                             \
		static const uint8_t code_[] = { __VA_ARGS__ };                          \
		struct pt_entry_place p_ =                                               \
			place_of(code_, sizeof(code_), sizeof(code_), use);              \
		assert_int_equal(p_.skip, skip_);                                        \
		assert_int_equal(p_.stepped, stepped_);                                  \
	} while (0)

#define ENDBR64 0xf3, 0x0f, 0x1e, 0xfa
#define PUSH_RBP 0x55
#define POP_RBP 0x5d
#define PUSH_R12 0x41, 0x54
#define POP_R12 0x41, 0x5c
#define MOV_RSP_RBP 0x48, 0x89, 0xe5
#define SUB_RSP 0x48, 0x83, 0xec, 0x18
#define ADD_RSP 0x48, 0x83, 0xc4, 0x18
#define MOV_RDI_RAX 0x48, 0x89, 0xf8
#define XOR_EAX 0x31, 0xc0
#define XOR_ESI 0x31, 0xf6
#define TEST_RDI 0x48, 0x85, 0xff
#define NOP 0x90
#define NOPW 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00
#define NOPL 0x0f, 0x1f, 0x44, 0x00, 0x00
#define RET 0xc3
#define JE(to) 0x74, to
#define JNE(to) 0x75, (uint8_t)(to)
#define JMP(to) 0xeb, (uint8_t)(to)
#define CMP_MEM 0x81, 0x3d, 1, 2, 3, 0, 0x00, 0xba, 0x1c, 0x32 /* cmpl $imm32,disp(%rip) */
#define JMP_MEM 0xff, 0x25, 1, 2, 3, 0			       /* jmp *disp(%rip) */
#define CALL_NEXT 0xe8, 0, 0, 0, 0
#define STORE_RDI 0x48, 0x89, 0x7c, 0x24, 0xf8 /* mov %rdi,-8(%rsp) */

static void a_cheap_entry_stays(void **state)
{
	(void)state;
	IS_AT(0, 0, all, PUSH_RBP, MOV_RSP_RBP, POP_RBP, RET);
	IS_AT(0, 0, all, PUSH_R12, POP_R12, RET);
	IS_AT(0, 0, all, NOP, RET);
	IS_AT(0, 0, all, JMP(0), RET);
	IS_AT(0, 0, all, 0x0f, 0x84, 0, 0, 0, 0, RET);
	IS_AT(0, 0, all, 0xe9, 0, 0, 0, 0, RET);
	/* the kernel does this one, too, and there is nothing behind it */
	IS_AT(0, 0, all, CALL_NEXT, RET);
}

static void the_first_cheap_one_is_taken(void **state)
{
	(void)state;
	IS_AT(4, 0, all, ENDBR64, PUSH_RBP, MOV_RSP_RBP, POP_RBP, RET);
	IS_AT(4, 0, all, ENDBR64, PUSH_R12, PUSH_RBP, POP_RBP, POP_R12, RET);
	IS_AT(3, 0, all, MOV_RDI_RAX, PUSH_RBP, POP_RBP, RET);
	IS_AT(4, 0, all, ENDBR64, NOP, RET);
	IS_AT(3, 0, all, TEST_RDI, JE(1), RET, RET);
	IS_AT(5, 0, all, XOR_EAX, TEST_RDI, 0x0f, 0x84, 1, 0, 0, 0, RET, RET);
	IS_AT(4, 0, all, ENDBR64, 0xe9, 0, 0, 0, 0, RET);
	/* as in the real libcuda */
	IS_AT(10, 0, all, CMP_MEM, JE(12), JMP_MEM, NOPW, 0xb8, 4, 0, 0, 0, RET);
}

static void not_behind_what_changes_what_is_read(void **state)
{
	(void)state;
	IS_AT(0, 1, all, SUB_RSP, TEST_RDI, JE(4), ADD_RSP, RET);
	IS_AT(0, 1, all, ENDBR64, SUB_RSP, PUSH_RBP, POP_RBP, ADD_RSP, RET);
	IS_AT(0, 1, all, XOR_ESI, PUSH_RBP, POP_RBP, RET);
	IS_AT(0, 1, all, 0x40, 0xb7, 1, PUSH_RBP, POP_RBP, RET); /* mov $1,%dil */
	IS_AT(0, 1, all, 0xb5, 1, PUSH_RBP, POP_RBP, RET);	 /* mov $1,%ch */
	IS_AT(0, 1, all, 0x45, 0x31, 0xc9, PUSH_RBP, POP_RBP, RET); /* xor %r9d,%r9d */
	IS_AT(0, 1, all, 0x48, 0x87, 0xf7, PUSH_RBP, POP_RBP, RET); /* xchg %rsi,%rdi */
	IS_AT(0, 1, all, 0xf7, 0xe6, PUSH_RBP, POP_RBP, RET);	   /* mul: rdx */
	IS_AT(0, 1, all, STORE_RDI, PUSH_RBP, POP_RBP, RET);
	IS_AT(0, 1, all, 0x0f, 0x05, PUSH_RBP, POP_RBP, RET); /* syscall */
	/* where nobody reads it, it may */
	IS_AT(2, 0, ((struct pt_entry_use){ .args = PT_ENTRY_ARG(0), .stack = 1 }), XOR_ESI,
	      PUSH_RBP, POP_RBP, RET);
	IS_AT(7, 0, ((struct pt_entry_use){ .args = PT_ENTRY_ARG(0) }), SUB_RSP, TEST_RDI,
	      JE(4), ADD_RSP, RET, ADD_RSP, RET);
	IS_AT(0, 1, ((struct pt_entry_use){ .args = PT_ENTRY_ARG(1) }), XOR_ESI, PUSH_RBP,
	      POP_RBP, RET);
}

static void a_jump_back_keeps_the_entry(void **state)
{
	(void)state;
	/* endbr64; 1: push; pop; test; jne 1b */
	IS_AT(0, 1, all, ENDBR64, PUSH_RBP, POP_RBP, TEST_RDI, JNE(-7), RET);
	/* xor; 1: test; je 2f; jmp 1b; 2: a loop whose place is in it */
	IS_AT(0, 1, all, XOR_EAX, TEST_RDI, JE(2), JMP(-7), RET);
	/* a call of its own middle, a loop instruction, a transaction */
	IS_AT(0, 1, all, ENDBR64, PUSH_RBP, POP_RBP, 0xe8, 0xf9, 0xff, 0xff, 0xff, RET);
	IS_AT(0, 1, all, ENDBR64, PUSH_RBP, POP_RBP, 0xe2, 0xfc, RET);
	IS_AT(0, 1, all, ENDBR64, PUSH_RBP, POP_RBP, 0xe3, 0xfc, RET);
	IS_AT(0, 1, all, ENDBR64, PUSH_RBP, POP_RBP, 0xc7, 0xf8, 0xf8, 0xff, 0xff, 0xff, RET);
	/* to the entry itself: that is a call, as ever */
	IS_AT(4, 0, all, ENDBR64, PUSH_RBP, POP_RBP, TEST_RDI, JNE(-11), RET);
	/* to what lies behind the place */
	IS_AT(4, 0, all, ENDBR64, PUSH_RBP, TEST_RDI, JNE(-5), POP_RBP, RET);
	/* who knows where to */
	IS_AT(0, 1, all, ENDBR64, PUSH_RBP, POP_RBP, 0xff, 0xe0);
	IS_AT(0, 1, all, ENDBR64, PUSH_RBP, POP_RBP, 0x3e, 0xff, 0x24, 0xc5, 0, 0, 0, 0);
	IS_AT(4, 0, all, ENDBR64, PUSH_RBP, 0xff, 0xd0, POP_RBP, RET); /* call *%rax */
}

/* A cold part behind it, and another function in which it ends. */
static void what_it_jumps_to_elsewhere(void **state)
{
	static const uint8_t back[] = { ENDBR64, PUSH_RBP, POP_RBP, TEST_RDI, JNE(1), RET,
					/* cold */ XOR_EAX, JMP(-12) };
	static const uint8_t onward[] = { ENDBR64, PUSH_RBP, POP_RBP, TEST_RDI, JNE(1), RET,
					  /* cold */ XOR_EAX, JMP(-10) };
	static const uint8_t tail[] = { ENDBR64, PUSH_RBP, POP_RBP, JMP(0),
					/* another */ TEST_RDI, JE(1), RET, RET };
	static const uint8_t cut[] = { ENDBR64, PUSH_RBP, POP_RBP, JMP(0), TEST_RDI };
	static const uint8_t out[] = { ENDBR64, PUSH_RBP, POP_RBP, JMP(127) };

	(void)state;
	assert_int_equal(place_of(back, sizeof(back), 12, all).skip, 0);
	assert_int_equal(place_of(onward, sizeof(onward), 12, all).skip, 4);
	assert_int_equal(place_of(tail, sizeof(tail), 8, all).skip, 4);
	assert_int_equal(place_of(cut, sizeof(cut), 8, all).skip, 0);
	assert_int_equal(place_of(out, sizeof(out), 8, all).skip, 0);
}

static void nothing_to_choose(void **state)
{
	uint8_t many[PT_ENTRY_RUN + 16];

	(void)state;
	IS_AT(0, 1, all, RET);
	IS_AT(0, 1, all, ENDBR64, RET);
	IS_AT(0, 1, all, ENDBR64, JMP_MEM);
	IS_AT(0, 1, all, MOV_RDI_RAX, RET);
	/* a call is not taken, and nothing behind one */
	IS_AT(0, 1, all, ENDBR64, CALL_NEXT, PUSH_RBP, POP_RBP, RET);
	/* a nop of several bytes is passed over; at the entry it is as good */
	IS_AT(0, 0, all, NOPL, RET);
	IS_AT(5, 0, all, NOPL, PUSH_RBP, POP_RBP, RET);
	/* prefixes that the kernel refuses at a jump */
	IS_AT(0, 1, all, TEST_RDI, 0x2e, JE(0), RET);
	IS_AT(0, 1, all, TEST_RDI, 0x66, JE(0), RET);
	/* xchg %r8,%rax and pause look like a nop */
	IS_AT(0, 1, all, MOV_RDI_RAX, 0x49, 0x90, RET);
	memset(many, 0x89, sizeof(many)); /* mov %ecx,%ecx, again and again */
	for (size_t i = 1; i < sizeof(many); i += 2)
		many[i] = 0xc0;
	many[sizeof(many) - 2] = PUSH_RBP;
	many[sizeof(many) - 1] = RET;
	assert_int_equal(place_of(many, sizeof(many), sizeof(many), all).skip, 0);
}

static void cut_off_and_unsound(void **state)
{
	static const uint8_t sound[] = { ENDBR64, PUSH_RBP, MOV_RSP_RBP, POP_RBP, RET };
	uint8_t long_one[2048] = { ENDBR64, PUSH_RBP, POP_RBP };
	size_t len;

	(void)state;
	/* of every length that the file may have left, and that the symbol may say */
	for (len = 0; len < sizeof(sound); len++) {
		assert_int_equal(place_of(sound, len, sizeof(sound), all).skip, 0);
		assert_true(place_of(sound, sizeof(sound), len, all).skip <= 4);
	}
	assert_int_equal(place_of(sound, sizeof(sound), 5, all).skip, 4);
	assert_int_equal(place_of(sound, sizeof(sound), 4, all).skip, 0);
	assert_int_equal(place_of(sound, sizeof(sound), 6, all).skip, 0);
	assert_int_equal(place_of(sound, sizeof(sound), 0, all).skip, 0);
	assert_int_equal(place_of(sound, sizeof(sound), 1u << 20, all).skip, 0);
	assert_int_equal(place_of(sound, sizeof(sound), UINT64_MAX, all).skip, 0);
	IS_AT(0, 1, all, ENDBR64, PUSH_RBP, 0x06, POP_RBP, RET); /* no instruction */
	IS_AT(0, 1, all, 0x06);
	memset(long_one + 6, 0x90, sizeof(long_one) - 6);
	assert_int_equal(place_of(long_one, sizeof(long_one), sizeof(long_one), all).skip, 4);
	memset(long_one + 6, 0x70, sizeof(long_one) - 6); /* jo, out of it at last */
	assert_int_equal(place_of(long_one, sizeof(long_one), sizeof(long_one), all).skip, 0);
}

/* Whatever the bytes are, it stays within its bounds. */
static void by_chance(void **state)
{
	uint8_t code[512];
	int turn;

	(void)state;
	srand(1);
	for (turn = 0; turn < 3000; turn++) {
		size_t len = 1 + (size_t)rand() % sizeof(code), i;
		struct pt_entry_place p;

		for (i = 0; i < len; i++)
			code[i] = (uint8_t)rand();
		p = place_of(code, len, (uint64_t)rand() % (2 * len), turn & 1 ? all : none);
		assert_true(p.skip < PT_ENTRY_RUN && p.skip < len);
		assert_true(!p.skip || !p.stepped);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cheap_entry_stays),
		cmocka_unit_test(the_first_cheap_one_is_taken),
		cmocka_unit_test(not_behind_what_changes_what_is_read),
		cmocka_unit_test(a_jump_back_keeps_the_entry),
		cmocka_unit_test(what_it_jumps_to_elsewhere),
		cmocka_unit_test(nothing_to_choose),
		cmocka_unit_test(cut_off_and_unsound),
		cmocka_unit_test(by_chance),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
