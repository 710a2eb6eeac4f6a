/* SPDX-License-Identifier: BSD-2-Clause */
/* Where malloc() takes its memory from. */
#ifndef PT_HEAP_H
#define PT_HEAP_H

/*
 * Ask for huge pages for all that malloc() will hand out, but for what is larger
 * than 32 MiB. To be called once. What timelines and analysis cost is to a large
 * part the first touch of their pages, most of all in a virtual machine. Nothing is
 * taken until it is touched. Where the machine gives no huge pages, or no address
 * space, all is as without.
 */
void pt_heap_huge_pages(void);

#endif
