/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_GPU_NVML_INT_H
#define PT_GPU_NVML_INT_H

#include <stddef.h>

/* Both ends are the same program; this tells an answer from chatter that a
 * library may write. */
#define PT_NVML_MAGIC 0x314c564eu

/* A program that does as `pipetrace __nvml`; NULL: this one can do it itself. */
const void *pt_nvml_blob(size_t *len);

#endif
