/* SPDX-License-Identifier: BSD-2-Clause */
/* A full-screen command in a process of its own, so that the terminal is given
 * back whatever becomes of it. */
#ifndef PT_GUARD_H
#define PT_GUARD_H

/*
 * Run `fn` in a child and wait for it; its result is the result. Signals that
 * stop a trace (pt_block_signals()) are passed on; a child that does not follow
 * is killed. Where it dies of a signal, the terminal is put back as it was, and
 * one sentence says so. The kernel takes away the hooks of a dead child.
 */
int pt_guard(int (*fn)(void *ctx), void *ctx);

#endif
