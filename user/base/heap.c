// SPDX-License-Identifier: BSD-2-Clause
#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/heap.h"

#define MIB (1 << 20)
/* Address space that is asked for at once: madvise() holds for what is there. */
#define AHEAD (1024 * MIB)
/* ... and by what the heap grows beyond it. */
#define LATER (8 * MIB)
#define HUGE_PAGE (2 * MIB)
/* The most that glibc takes from the heap, not from pages of their own. */
#define LARGEST (32 * MIB)

void pt_heap_huge_pages(void)
{
	uintptr_t from, to;
	void *first, *end;

	/* free() gives the end back to the kernel where it is larger than this */
	if (!mallopt(M_TRIM_THRESHOLD, INT_MAX) ||
	    !mallopt(M_MMAP_THRESHOLD, LARGEST) || !mallopt(M_TOP_PAD, AHEAD))
		return;
	/* more than is left at the heap's end, which makes it grow */
	first = malloc(HUGE_PAGE);
	end = sbrk(0);
	mallopt(M_TOP_PAD, LATER);
	from = ((uintptr_t)first + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
	to = (uintptr_t)end & ~(uintptr_t)(HUGE_PAGE - 1);
	/* of another allocator's place, a sanitizer's say, nothing is known */
	if (first && end != (void *)-1 && from < to && to - from <= AHEAD + LATER)
		madvise((void *)from, to - from, MADV_HUGEPAGE);
	free(first);
}
