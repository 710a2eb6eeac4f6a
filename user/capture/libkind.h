/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a mapped file is, whatever its name: by its own name for the loader
 * (DT_SONAME), by the functions that it exports, and for a runtime that was
 * linked into a program by its symbol table. Each file is looked at once.
 * Not for several threads.
 */
#ifndef PT_LIBKIND_H
#define PT_LIBKIND_H

#include "capture/discover.h"

/*
 * The kind of a mapped file (its place, dev, inode and path_display are read);
 * 0: no GPU library. *by_symbols: it exports the functions and has another
 * library's name: it may be one that goes on to the real one.
 */
enum pt_gpulib_kind pt_libkind(const struct pt_gpulib *g, bool *by_symbols);

/*
 * Does this file carry a CUDA runtime or NCCL that was linked in, with its
 * symbols? Kinds as bits (1 << kind). Reads the symbol table, once; one of
 * more than 64 MiB is left alone.
 */
unsigned pt_libkind_inside(const struct pt_gpulib *g);

#endif
