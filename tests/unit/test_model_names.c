/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of kernels: whose they are, which holds, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/internal.h"
#include "model/model.h"
#include "model/names.h"

static int feed(struct pt_model *m, uint32_t tgid, uint32_t space, uint64_t key,
		const char *name)
{
	struct pt_rec_name r;

	memset(&r, 0, sizeof(r));
	r.hdr.size = sizeof(r);
	r.hdr.kind = PT_REC_NAME;
	r.hdr.ts = 1000;
	r.hdr.tid = r.hdr.tgid = tgid;
	r.key = key;
	r.space = space;
	memcpy(r.name, name, strnlen(name, sizeof(r.name)));
	return pt_model_feed(m, &r, sizeof(r));
}

static void by_process_and_space(void **state)
{
	struct pt_model *m = pt_model_new();
	const struct pt_proc *p, *q;

	(void)state;
	assert_non_null(m);
	assert_int_equal(feed(m, 10, PT_NAME_FUNCTION, 0x1000, "_Z3addPf"), 0);
	assert_int_equal(feed(m, 10, PT_NAME_ACT, 0x1000, "gemm"), 0);
	assert_int_equal(feed(m, 11, PT_NAME_FUNCTION, 0x1000, "other"), 0);
	p = pt_model_proc(m, 10);
	q = pt_model_proc(m, 11);
	assert_string_equal(pt_kernel_name(m, p, 0x1000), "_Z3addPf");
	assert_string_equal(pt_act_name(m, p, 0x1000), "gemm");
	assert_string_equal(pt_kernel_name(m, q, 0x1000), "other");
	assert_null(pt_act_name(m, q, 0x1000));
	assert_null(pt_kernel_name(m, p, 0x1001));
	/* a handle that was given out again */
	assert_int_equal(feed(m, 10, PT_NAME_FUNCTION, 0x1000, "mul"), 0);
	assert_string_equal(pt_kernel_name(m, p, 0x1000), "mul");
	pt_model_free(m);
}

static void through_other_handles(void **state)
{
	struct pt_model *m = pt_model_new();
	struct pt_proc *p;

	(void)state;
	assert_non_null(m);
	p = pt_proc_make(m, 10);
	assert_non_null(p);
	/* the name comes after the handles */
	assert_int_equal(pt_name_alias(m, p, 2, 1), 0);
	assert_int_equal(pt_name_alias(m, p, 3, 2), 0);
	assert_null(pt_kernel_name(m, p, 3));
	assert_int_equal(feed(m, 10, PT_NAME_FUNCTION, 1, "k"), 0);
	assert_string_equal(pt_kernel_name(m, p, 3), "k");
	/* rings end */
	assert_int_equal(pt_name_alias(m, p, 5, 6), 0);
	assert_int_equal(pt_name_alias(m, p, 6, 5), 0);
	assert_int_equal(pt_name_alias(m, p, 7, 7), 0);
	assert_null(pt_kernel_name(m, p, 5));
	assert_null(pt_kernel_name(m, p, 7));
	pt_model_free(m);
}

static void damaged_ones(void **state)
{
	struct pt_model *m = pt_model_new();
	char full[PT_NAME_LEN + 1];

	(void)state;
	assert_non_null(m);
	memset(full, 'x', sizeof(full) - 1);
	full[PT_NAME_LEN] = 0;
	assert_int_equal(feed(m, 10, 3, 1, "k"), -EINVAL);
	assert_int_equal(feed(m, 10, 0, 1, "k"), -EINVAL);
	assert_int_equal(feed(m, 10, PT_NAME_FUNCTION, 1, ""), -EINVAL);
	/* not terminated: all of it, and no more */
	assert_int_equal(feed(m, 10, PT_NAME_FUNCTION, 1, full), 0);
	assert_int_equal(strlen(pt_kernel_name(m, pt_model_proc(m, 10), 1)),
			 PT_NAME_LEN);
	pt_model_free(m);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(by_process_and_space),
	cmocka_unit_test(through_other_handles),
	cmocka_unit_test(damaged_ones),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
