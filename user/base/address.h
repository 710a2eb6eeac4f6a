/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses of sockets as text. */
#ifndef PT_ADDRESS_H
#define PT_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

/* An Internet address of 4 bytes, or of 16 (as RFC 5952 has it). `size`: 46 at
 * least. */
void pt_address_text(const uint8_t *a, unsigned bytes, char *out, size_t size);

/* A Unix socket's path of at most `n` bytes; '@' for the NUL that begins an
 * abstract name, \xHH for what is not printable. `size`: 4 n + 1 at least. */
void pt_address_path(const char *path, size_t n, char *out, size_t size);

#endif
