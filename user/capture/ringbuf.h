/* SPDX-License-Identifier: BSD-2-Clause */
/* The reader's side of a BPF ring buffer. */
#ifndef PT_RINGBUF_H
#define PT_RINGBUF_H

#include <stddef.h>

struct pt_ringbuf;

/* A negative value ends the reading, behind this record; it is what reading returns. */
typedef int (*pt_ringbuf_fn)(void *ctx, void *data, size_t len);

/* `map` is the ring's descriptor, of that many bytes. NULL with errno. */
struct pt_ringbuf *pt_ringbuf_open(int map, size_t bytes, pt_ringbuf_fn fn, void *ctx);
/* To be polled: readable when the programs asked for a wake-up. */
int pt_ringbuf_fd(const struct pt_ringbuf *r);
/* Bytes that are there. */
size_t pt_ringbuf_waiting(const struct pt_ringbuf *r);
/* All that is there. 0, -errno, or what `fn` returned. */
int pt_ringbuf_read(struct pt_ringbuf *r);
void pt_ringbuf_free(struct pt_ringbuf *r);

#endif
