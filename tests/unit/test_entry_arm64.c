// SPDX-License-Identifier: BSD-2-Clause
/* Where a probe stands at the beginning of a function of arm64: words by hand, as the
 * assembler makes them. Tried on any processor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "capture/entry_int.h"

#define AT 0x401000
static const struct pt_entry_use all = { .args = 0xff, .stack = 1 };
static const struct pt_entry_use none;

#define NOP 0xd503201f
#define BTI_C 0xd503245f
#define PACIASP 0xd503233f
#define STP_PRE 0xa9bf7bfd  /* stp x29, x30, [sp, #-16]! */
#define STP_OFF 0xa90153f3  /* stp x19, x20, [sp, #16] */
#define STR_X0 0xf9000020   /* str x0, [x1] */
#define LDP_POST 0xa8c17bfd /* ldp x29, x30, [sp], #16 */
#define SUB_SP 0xd10083ff   /* sub sp, sp, #32 */
#define MOV_X29_SP 0x910003fd
#define MOV_X19_X0 0xaa0003f3
#define MOV_X0_X1 0xaa0103e0
#define CMP_X0_0 0xf100001f
#define LDR_X8_X0 0xf9400008
#define MRS_X9_TLS 0xd53bd049
#define ADRP_X9 0x90000009
#define LDR_LITERAL 0x58000048
#define RET 0xd65f03c0
#define BR_X16 0xd61f0200
#define BR_X3 0xd61f0060
#define BLR_X8 0xd63f0100
#define UDF 0x00000000
#define B(words) (0x14000000 | ((uint32_t)(words) & 0x3ffffff))
#define BL(words) (0x94000000 | ((uint32_t)(words) & 0x3ffffff))
#define CBZ_X0(words) (0xb4000000 | ((uint32_t)(words) & 0x7ffff) << 5)
#define TBNZ_W0(words) (0x37000000 | ((uint32_t)(words) & 0x3fff) << 5)
#define BEQ(words) (0x54000000 | ((uint32_t)(words) & 0x7ffff) << 5)

struct text {
	uint32_t word[64];
	size_t len;
};

static size_t get(void *ctx, uint64_t at, void *out, size_t len)
{
	const struct text *t = ctx;

	if (at < AT || at - AT >= t->len)
		return 0;
	if (len > t->len - (at - AT))
		len = t->len - (at - AT);
	memcpy(out, (const char *)t->word + (at - AT), len);
	return len;
}

/* Of a function of `size` bytes at the begin of a text of `len`. */
static struct pt_entry_place place_of(const uint32_t *code, size_t len, size_t size,
				      struct pt_entry_use use)
{
	struct text t = { .len = len };
	const struct pt_entry_code c = { .at = AT, .size = size, .get = get, .ctx = &t };
	struct pt_decoder *d = pt_decoder_for(&pt_insns_arm64);
	struct pt_entry_place p;

	assert_non_null(d);
	memcpy(t.word, code, len);
	p = pt_entry_place(d, &c, use);
	pt_decoder_free(d);
	return p;
}

#define IS_AT(skip_, stepped_, use, ...)                                                 \
	do {                                                                             \
		static const uint32_t code_[] = { __VA_ARGS__ };                         \
		struct pt_entry_place p_ =                                               \
			place_of(code_, sizeof(code_), sizeof(code_), use);              \
		assert_int_equal(p_.skip, skip_);                                        \
		assert_int_equal(p_.stepped, stepped_);                                  \
	} while (0)

static void test_first(void **state)
{
	(void)state;
	/* simulated: the entry is the place */
	IS_AT(0, 0, all, ADRP_X9, STP_PRE, LDP_POST, RET);
	IS_AT(0, 0, all, CBZ_X0(2), RET, RET);
	IS_AT(0, 0, all, B(1), RET);
	/* stepped, and nothing better behind it */
	IS_AT(0, 1, all, STP_PRE, MOV_X29_SP, BL(8), LDP_POST, RET);
	IS_AT(0, 1, all, BTI_C, STP_PRE, RET);
	IS_AT(0, 1, all, RET + 1, RET);
	/* a call is no place, nor is what kernels refuse since 6.12 */
	IS_AT(0, 1, all, BTI_C, LDR_LITERAL, ADRP_X9, RET);
	IS_AT(0, 1, all, BTI_C, BLR_X8, RET);
	/* kernels since 6.13 simulate a nop */
	IS_AT(0, 0, all, NOP, RET);
}

static void test_later(void **state)
{
	const struct pt_entry_use x0 = { .args = PT_ENTRY_ARG(0) },
				  x7 = { .args = PT_ENTRY_ARG(7) };

	(void)state;
	IS_AT(4, 0, all, BTI_C, ADRP_X9, RET);
	IS_AT(12, 0, all, LDR_X8_X0, MRS_X9_TLS, CMP_X0_0, BEQ(2), RET, RET);
	IS_AT(4, 0, all, CMP_X0_0, TBNZ_W0(2), RET, RET);
	/* where only arguments are read a frame may be made before that */
	IS_AT(12, 0, x7, PACIASP, STP_PRE, STP_OFF, ADRP_X9, RET);
	IS_AT(12, 0, x0, SUB_SP, MOV_X29_SP, MOV_X19_X0, ADRP_X9, RET);
	/* ... but not where the way back is: the return's probe changes x30 */
	IS_AT(0, 1, all, PACIASP, ADRP_X9, RET);
	IS_AT(0, 1, all, STP_PRE, ADRP_X9, RET);
	IS_AT(0, 1, all, STP_OFF, ADRP_X9, RET);
	IS_AT(0, 1, all, SUB_SP, ADRP_X9, RET);
	/* an argument that is read must still be there, and memory of others' */
	IS_AT(0, 1, x0, MOV_X0_X1, ADRP_X9, RET);
	IS_AT(4, 0, x7, MOV_X0_X1, ADRP_X9, RET);
	IS_AT(0, 1, none, STR_X0, ADRP_X9, RET);
	/* what pops a frame is no beginning */
	IS_AT(0, 1, none, LDP_POST, ADRP_X9, RET);
}

static void test_jumps(void **state)
{
	static const uint32_t outside[] = { BTI_C, ADRP_X9, B(2), UDF, B(-3) };

	(void)state;
	/* a loop to the place, or into what is passed before it */
	IS_AT(0, 1, all, BTI_C, ADRP_X9, CBZ_X0(-1), RET);
	IS_AT(4, 0, all, BTI_C, ADRP_X9, CBZ_X0(1), RET);
	IS_AT(0, 1, all, MOV_X19_X0, BTI_C, ADRP_X9, B(-2), RET);
	/* back to the entry is a call of its own */
	IS_AT(4, 0, all, BTI_C, ADRP_X9, B(-2));
	/* where to cannot be told */
	IS_AT(0, 1, all, BTI_C, ADRP_X9, BR_X3);
	IS_AT(4, 0, all, BTI_C, ADRP_X9, BR_X16);
	IS_AT(4, 0, all, BTI_C, ADRP_X9, BLR_X8, RET);
	/* what it jumps to outside comes back to the place */
	assert_int_equal(place_of(outside, sizeof(outside), 12, all).skip, 0);
}

static void test_damaged(void **state)
{
	static const uint32_t code[] = { BTI_C, ADRP_X9, RET };

	(void)state;
	assert_int_equal(place_of(code, sizeof(code), 0, all).skip, 0);
	assert_int_equal(place_of(code, sizeof(code), 1u << 20, all).skip, 0);
	assert_int_equal(place_of(code, sizeof(code), 10, all).skip, 0);
	assert_int_equal(place_of(code, 6, 12, all).skip, 0);
	assert_int_equal(place_of(code, 0, 12, all).stepped, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first),
		cmocka_unit_test(test_later),
		cmocka_unit_test(test_jumps),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
