/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libbpf maps all of a ring, and that twice over, so that no record is cut at its end:
 * 32 MB of our address space filled for a ring of 16, which is the kernel's memory and
 * there once. Here a part of it is mapped, and moves along.
 */
#include "capture/ringbuf.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW (1u << 20)

struct pt_ringbuf {
	int map, epoll;
	size_t bytes, page;
	unsigned long *consumer; /* how far it was read */
	unsigned long *producer; /* ... and written; neither begins anew at the end */
	unsigned char *window;
	size_t at, size; /* of the window in the ring, that comes twice there */
	pt_ringbuf_fn fn;
	void *ctx;
};

static int unmap(void *p, size_t size)
{
	return p && p != MAP_FAILED ? munmap(p, size) : 0;
}

void pt_ringbuf_free(struct pt_ringbuf *r)
{
	if (!r)
		return;
	unmap(r->consumer, r->page);
	unmap(r->producer, r->page);
	unmap(r->window, r->size);
	if (r->epoll >= 0)
		close(r->epoll);
	free(r);
}

/* The window at the page of `offset`. In place of the one before: it costs no more of
 * a limited address space. */
static int look_at(struct pt_ringbuf *r, size_t offset)
{
	size_t at = offset & ~(r->page - 1);
	void *p;

	p = mmap(r->window, r->size, PROT_READ, MAP_SHARED | (r->window ? MAP_FIXED : 0),
		 r->map, (off_t)(2 * r->page + at));
	if (p == MAP_FAILED)
		return -errno;
	r->window = p;
	r->at = at;
	return 0;
}

struct pt_ringbuf *pt_ringbuf_open(int map, size_t bytes, pt_ringbuf_fn fn, void *ctx)
{
	struct epoll_event e = { .events = EPOLLIN };
	struct pt_ringbuf *r = calloc(1, sizeof(*r));
	int saved;

	if (!r)
		return NULL;
	r->map = map;
	r->bytes = bytes;
	r->page = (size_t)sysconf(_SC_PAGESIZE);
	/* of one that is so small all, which needs `map` no more */
	r->size = 2 * bytes < WINDOW ? 2 * bytes : WINDOW;
	r->fn = fn;
	r->ctx = ctx;
	/* A ring that is polled itself is readable when anything is in it. */
	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (r->epoll < 0 || epoll_ctl(r->epoll, EPOLL_CTL_ADD, map, &e))
		goto fail;
	r->consumer = mmap(NULL, r->page, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
	if (r->consumer == MAP_FAILED)
		goto fail;
	r->producer = mmap(NULL, r->page, PROT_READ, MAP_SHARED, map, (off_t)r->page);
	if (r->producer == MAP_FAILED)
		goto fail;
	if (!look_at(r, 0))
		return r;
fail:
	saved = errno;
	pt_ringbuf_free(r);
	errno = saved;
	return NULL;
}

int pt_ringbuf_fd(const struct pt_ringbuf *r)
{
	return r->epoll;
}

size_t pt_ringbuf_waiting(const struct pt_ringbuf *r)
{
	return __atomic_load_n(r->producer, __ATOMIC_ACQUIRE) - *r->consumer;
}

/* A record that begins there, of which `len` bytes are looked at; NULL with errno. */
static unsigned char *record(struct pt_ringbuf *r, size_t offset, size_t len)
{
	int ret;

	if (offset < r->at || offset + len > r->at + r->size) {
		ret = offset + len > (offset & ~(r->page - 1)) + r->size ?
		      -EMSGSIZE : look_at(r, offset);
		if (ret) {
			errno = -ret;
			return NULL;
		}
	}
	return r->window + (offset - r->at);
}

int pt_ringbuf_read(struct pt_ringbuf *r)
{
	unsigned long pos = *r->consumer, end;
	size_t offset, size;
	unsigned char *p;
	uint32_t len;
	int ret = 0;

	while (!ret && pos < (end = __atomic_load_n(r->producer, __ATOMIC_ACQUIRE))) {
		while (!ret && pos < end) {
			offset = pos & (r->bytes - 1);
			p = record(r, offset, BPF_RINGBUF_HDR_SZ);
			if (!p)
				return -errno;
			len = __atomic_load_n((uint32_t *)p, __ATOMIC_ACQUIRE);
			if (len & BPF_RINGBUF_BUSY_BIT)
				return 0;
			size = len & ~BPF_RINGBUF_DISCARD_BIT;
			p = record(r, offset, BPF_RINGBUF_HDR_SZ + size);
			if (!p)
				return -errno;
			if (!(len & BPF_RINGBUF_DISCARD_BIT))
				ret = r->fn(r->ctx, p + BPF_RINGBUF_HDR_SZ, size);
			ret = ret < 0 ? ret : 0;
			pos += (BPF_RINGBUF_HDR_SZ + size + 7) & ~7ul;
			__atomic_store_n(r->consumer, pos, __ATOMIC_RELEASE);
		}
	}
	return ret;
}
