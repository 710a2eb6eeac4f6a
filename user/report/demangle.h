/* SPDX-License-Identifier: BSD-2-Clause */
/* C++ symbols as their source has them. */
#ifndef PT_REPORT_DEMANGLE_H
#define PT_REPORT_DEMANGLE_H

#include "report/report.h"

/*
 * The name behind a C++ symbol ("_Z..."), which the caller frees; NULL: it is
 * none, it would take more than 8 KiB, or memory ran out. The symbol may hold
 * anything.
 */
char *pt_demangle(const char *symbol);

/* Kernels of the operations table by their names. 0 or -ENOMEM. */
int pt_report_demangle(struct pt_report *r);

#endif
