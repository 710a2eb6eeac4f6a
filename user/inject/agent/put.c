/* SPDX-License-Identifier: BSD-2-Clause */
/* The ring's writing side. CUPTI's thread and the agent's may both write. */
#include "agent_int.h"

#include <string.h>
#include <sys/syscall.h>

#define NAMES 8192 /* a power of two; more kernels go without a name */

static uint32_t busy; /* somebody writes */
static uint64_t names[NAMES];
static uint32_t n_names;

/* Held for a copy of some hundred bytes. Spinning only until the holder, which
 * may have lost its CPU, is through. */
static void lock(void)
{
	while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE))
		ag_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}

static void unlock(void)
{
	__atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

static bool put_locked(const struct pt_hdr *h)
{
	uint64_t used = ag.head - AG_GET(tail);
	uint32_t at = (uint32_t)(ag.head & (ag.ring_size - 1));
	uint32_t to_end = ag.ring_size - at;
	uint32_t fill = h->size > to_end ? to_end : 0;
	struct pt_hdr pad = { .kind = 0 };

	/* the reader's position is the reader's word: it is only compared */
	if (used > ag.ring_size || h->size + fill > ag.ring_size - used)
		return false;
	if (fill) {
		pad.size = (uint16_t)(fill < 65528 ? fill : 65528);
		if (fill >= sizeof(pad))
			memcpy(ag.ring + at, &pad, sizeof(pad));
		ag.head += fill;
		at = 0;
	}
	memcpy(ag.ring + at, h, h->size);
	ag.head += h->size;
	AG_PUT(head, ag.head);
	return true;
}

bool ag_put(const void *rec)
{
	bool ok;

	lock();
	ok = put_locked(rec);
	unlock();
	if (ok)
		AG_COUNT(made, 1);
	else
		AG_COUNT(no_room, 1);
	return ok;
}

void ag_names_forget(void)
{
	lock();
	memset(names, 0, sizeof(names));
	n_names = 0;
	unlock();
}

/* Where `key` is, or would be. Under the lock. */
static uint32_t slot_of(uint64_t key)
{
	uint32_t i = (uint32_t)key & (NAMES - 1);

	while (names[i] && names[i] != key)
		i = (i + 1) & (NAMES - 1);
	return i;
}

static bool is_known(uint64_t key)
{
	bool known;

	lock();
	known = names[slot_of(key)] || n_names >= NAMES / 2;
	unlock();
	return known;
}

/* In one piece: two threads tell a name once, and what had no room is not
 * remembered, so that it is told later. */
static void tell(const struct pt_rec_name *r)
{
	uint32_t i;

	lock();
	i = slot_of(r->key);
	if (!names[i] && n_names < NAMES / 2 && put_locked(&r->hdr)) {
		names[i] = r->key;
		n_names++;
		AG_COUNT(made, 1);
	}
	unlock();
}

uint64_t ag_name(const char *name)
{
	struct pt_rec_name r;
	uint64_t key = 0xcbf29ce484222325ull; /* FNV-1a */
	size_t n = 0;

	if (!name || !*name)
		return 0;
	for (; name[n] && n < 65536; n++)
		key = (key ^ (uint8_t)name[n]) * 0x100000001b3ull;
	if (!key)
		key = 1;
	if (is_known(key))
		return key;
	memset(&r, 0, sizeof(r));
	r.hdr.size = sizeof(r);
	r.hdr.kind = PT_REC_NAME;
	r.hdr.ts = ag_now();
	r.hdr.tid = r.hdr.tgid = (uint32_t)ag.pid;
	r.key = key;
	r.space = PT_NAME_ACT;
	r.truncated = n >= sizeof(r.name);
	memcpy(r.name, name, n < sizeof(r.name) ? n : sizeof(r.name) - 1);
	tell(&r);
	return key;
}
