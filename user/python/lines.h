/* SPDX-License-Identifier: BSD-2-Clause */
/* Which line an instruction of a code object is of, by its line table. Pure. */
#ifndef PT_PYTHON_LINES_H
#define PT_PYTHON_LINES_H

#include <stddef.h>

/*
 * `table` as CPython 3.`minor` keeps it: pairs of steps (co_lnotab) to 3.9, of ranges
 * in 3.10, location entries from 3.11 on. `first`: co_firstlineno. `at`: the
 * instruction, bytes from the begin of the code. The table is not trusted: each
 * byte is read once. 0: it has no line.
 */
int pt_py_line(int minor, const unsigned char *table, size_t n, int first, long at);

#endif
