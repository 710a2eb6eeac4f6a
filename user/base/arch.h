/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The processor that this is built for, in constants. What else differs has files of
 * its own: bpf/arch.bpf.h, user/capture/entry_*.c, user/inject/arch_*.c.
 */
#ifndef PT_ARCH_H
#define PT_ARCH_H

#if defined(__x86_64__)
#define PT_ARCH_NAME "x86-64"
#define PT_ARCH_ELF 62 /* EM_X86_64 */
#define PT_ARCH_ARG_SLOTS 6 /* arguments that are in registers */
#define PT_ARCH_COUNT_OF_TASK 0 /* the count of preemptions is a task's, not a CPU's */
#define PT_ARCH_TRY_ATTACH 0 /* what the kernel takes it may not attach (fentry) */
#elif defined(__aarch64__)
#define PT_ARCH_NAME "arm64"
#define PT_ARCH_ELF 183 /* EM_AARCH64 */
#define PT_ARCH_ARG_SLOTS 8
#define PT_ARCH_COUNT_OF_TASK 1
#define PT_ARCH_TRY_ATTACH 1
#else
#error "pipetrace knows x86-64 and arm64"
#endif

#endif
