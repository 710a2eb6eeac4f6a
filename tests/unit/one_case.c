/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PT_TEST_CASE=NAME runs those of a unit test's cases that match it (* and ?).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* The linker is told to take this one (-u). */
__attribute__((constructor)) void unit_case(void);
void unit_case(void)
{
	const char *name = getenv("PT_TEST_CASE");

	if (name)
		cmocka_set_test_filter(name);
}
