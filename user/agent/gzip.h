/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_AGENT_GZIP_H
#define PT_AGENT_GZIP_H

#include <stddef.h>

/* 0 or -ENOMEM (-EFBIG: 2 GiB and more); the caller frees *to. */
int pt_gzip(const void *from, size_t len, void **to, size_t *to_len);

#endif
