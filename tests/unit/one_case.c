/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What all unit tests begin with: PT_TEST_CASE=NAME runs those of a test's cases that match
 * it (* and ?); and a test that traces is started anew for NVML, as pipetrace is. It would
 * run its cases a second time in that process, and outlive the first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gpu/nvml.h"

/* Where a test has one, that plays NVML's process instead. */
__attribute__((weak)) int unit_nvml(void);

/* The linker is told to take this one (-u). */
__attribute__((constructor)) void unit_case(int argc, char **argv);
void unit_case(int argc, char **argv)
{
	const char *name = getenv("PT_TEST_CASE");

	if (argc == 2 && !strcmp(argv[1], PT_NVML_COMMAND))
		_exit(unit_nvml ? unit_nvml() : pt_nvml_child(STDIN_FILENO, STDOUT_FILENO));
	if (name)
		cmocka_set_test_filter(name);
}
