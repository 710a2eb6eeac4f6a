/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of launched kernels. A runtime's launch passes the address of the
 * host's function for the kernel: the symbol of the mapped file that holds it
 * is the name. Found by a thread of its own, so that nobody waits for files;
 * soon after the first launch, since the process may end.
 */
#ifndef PT_KERNELS_H
#define PT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "abi.h"

struct pt_kernels;

/* NULL: no memory, or no thread; then there are no names. */
struct pt_kernels *pt_kernels_new(void);

/* Any record that came; `len` is its size. Looks at a launch's function the
 * first time. Cheap, never blocks. NULL is allowed. */
void pt_kernels_see(struct pt_kernels *k, const void *rec, size_t len);

/* A driver's handle is the kernel of this host function. As cheap. */
void pt_kernels_handle(struct pt_kernels *k, uint32_t tgid, uint64_t handle,
		       uint64_t function);

/* Hand over the names that were found, as PT_REC_NAME. Never waits. */
void pt_kernels_take(struct pt_kernels *k,
		     void (*fn)(void *ctx, const struct pt_rec_name *rec),
		     void *ctx);

/* Wait until nothing is left to find, at most `ms` milliseconds. */
void pt_kernels_settle(struct pt_kernels *k, unsigned ms);

/* Ends the thread; one that hangs in a file keeps its memory. */
void pt_kernels_free(struct pt_kernels *k);

#endif
