/* SPDX-License-Identifier: BSD-2-Clause */
/* C++ symbols as their source has them. */
#ifndef PT_DEMANGLE_H
#define PT_DEMANGLE_H

/*
 * The name behind a C++ symbol ("_Z..."), which the caller frees; NULL: it is
 * none, it would take more than 8 KiB, or memory ran out. The symbol may hold
 * anything.
 */
char *pt_demangle(const char *symbol);
/* ... without a function's parameters. */
char *pt_demangle_name(const char *symbol);

#endif
