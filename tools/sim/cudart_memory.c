/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory and pinned host memory. Device memory is address space only:
 * a range reserved without access, so that no host pointer can fall into it
 * and code that dereferences a device pointer faults as it would on a GPU.
 */
#include "cudart_device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEV_ALIGN 512ull
/* More addresses than memory: fragmentation must not look like exhaustion. */
#define SPACE_FACTOR 4

struct range {
	uint64_t base, len;
	bool ours; /* pinned by allocation, not by registration */
};

struct ranges { /* sorted by base, disjoint */
	struct range *v;
	size_t n, cap;
};

static struct ranges device_ranges, pinned_ranges;
static uint64_t space, space_len, used;

/* Index of the first range whose end is above `addr`. */
static size_t lookup(const struct ranges *r, uint64_t addr)
{
	size_t lo = 0, hi = r->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (r->v[mid].base + r->v[mid].len > addr)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

static int insert(struct ranges *r, size_t at, struct range what)
{
	if (r->n == r->cap) {
		size_t cap = r->cap ? r->cap * 2 : 64;
		struct range *v = realloc(r->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		r->v = v;
		r->cap = cap;
	}
	memmove(&r->v[at + 1], &r->v[at], (r->n - at) * sizeof(*r->v));
	r->v[at] = what;
	r->n++;
	return 0;
}

static void erase(struct ranges *r, size_t at)
{
	r->n--;
	memmove(&r->v[at], &r->v[at + 1], (r->n - at) * sizeof(*r->v));
}

int sim_mem_init(void)
{
	void *p;

	space_len = sim_cfg.mem_bytes * SPACE_FACTOR;
	p = mmap(NULL, space_len, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	space = (uint64_t)(uintptr_t)p;
	return 0;
}

void *sim_mem_alloc(size_t size)
{
	uint64_t len, at = space;
	size_t i;

	if (size > sim_cfg.mem_bytes)
		return NULL;
	len = (size + DEV_ALIGN - 1) & ~(DEV_ALIGN - 1);
	if (len > sim_cfg.mem_bytes - used)
		return NULL;
	for (i = 0; i < device_ranges.n; i++) { /* first fit */
		const struct range *r = &device_ranges.v[i];

		if (r->base - at >= len)
			break;
		at = r->base + r->len;
	}
	if (at + len > space + space_len ||
	    insert(&device_ranges, i, (struct range){ at, len, true }))
		return NULL;
	used += len;
	return (void *)(uintptr_t)at;
}

int sim_mem_free(void *ptr)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	size_t i = lookup(&device_ranges, addr);

	if (i == device_ranges.n || device_ranges.v[i].base != addr)
		return -EINVAL;
	used -= device_ranges.v[i].len;
	erase(&device_ranges, i);
	return 0;
}

bool sim_mem_is_device(const void *ptr)
{
	return (uint64_t)(uintptr_t)ptr - space < space_len;
}

bool sim_mem_is_allocated(const void *ptr)
{
	uint64_t addr = (uint64_t)(uintptr_t)ptr;
	size_t i = lookup(&device_ranges, addr);

	return i < device_ranges.n && device_ranges.v[i].base == addr;
}

void sim_mem_info(size_t *free_bytes, size_t *total)
{
	*free_bytes = sim_cfg.mem_bytes - used;
	*total = sim_cfg.mem_bytes;
}

void sim_mem_reset(void)
{
	device_ranges.n = 0;
	used = 0;
}

int sim_pin_add(void *ptr, size_t size, bool ours)
{
	uint64_t base = (uint64_t)(uintptr_t)ptr;
	size_t i = lookup(&pinned_ranges, base);

	if (!size || base + size < base)
		return -EINVAL;
	if (i < pinned_ranges.n && pinned_ranges.v[i].base < base + size)
		return -EEXIST;
	return insert(&pinned_ranges, i, (struct range){ base, size, ours });
}

int sim_pin_del(void *ptr, bool ours, size_t *size)
{
	uint64_t base = (uint64_t)(uintptr_t)ptr;
	size_t i = lookup(&pinned_ranges, base);

	if (i == pinned_ranges.n || pinned_ranges.v[i].base != base ||
	    pinned_ranges.v[i].ours != ours)
		return -ENOENT;
	*size = pinned_ranges.v[i].len;
	erase(&pinned_ranges, i);
	return 0;
}

bool sim_pin_covers(const void *ptr, size_t size)
{
	uint64_t base = (uint64_t)(uintptr_t)ptr;
	size_t i = lookup(&pinned_ranges, base);

	return i < pinned_ranges.n && pinned_ranges.v[i].base <= base &&
	       pinned_ranges.v[i].base + pinned_ranges.v[i].len - base >= size;
}
