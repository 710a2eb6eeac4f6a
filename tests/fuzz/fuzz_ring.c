/* SPDX-License-Identifier: BSD-2-Clause */
/* ring: what a target writes into the memory that it shares with --cupti. */
#include "fuzz.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi.h"
#include "inject/ring.h"

struct input { /* and behind it what lies in the ring, from `tail` on */
	uint64_t head, tail;
	uint32_t ring, magic; /* 0: as they should be */
	uint32_t state, why;
	uint64_t dropped, made;
	char said[8];
};

static int sink(void *ctx, const void *rec, size_t len)
{
	const struct pt_rec_act *a = rec;
	const struct pt_rec_name *n = rec;
	unsigned *count = ctx;

	FUZZ_HOLDS(a->hdr.size == len && a->hdr.tgid == 7);
	if (a->hdr.kind == PT_REC_ACT)
		FUZZ_HOLDS(len == sizeof(*a) && a->begin <= a->end &&
			   a->what >= PT_ACT_KERNEL && a->what <= PT_ACT_LAST);
	else
		FUZZ_HOLDS(a->hdr.kind == PT_REC_NAME && len == sizeof(*n) &&
			   memchr(n->name, 0, sizeof(n->name)));
	return ++*count == 100; /* no more, for now */
}

static void fill(struct pt_agent_shm *shm, const struct input *in, const uint8_t *data,
		 size_t size)
{
	uint8_t *ring = (uint8_t *)shm + PT_AGENT_RING_AT;
	uint32_t mask = (in->ring && in->ring <= PT_AGENT_RING ? in->ring :
								 PT_AGENT_RING) - 1;
	size_t i;

	if (in->ring)
		shm->ring = in->ring;
	if (in->magic)
		shm->magic = in->magic;
	shm->head = in->head;
	shm->tail = in->tail;
	shm->state = in->state;
	shm->why = in->why;
	shm->dropped = shm->no_room = in->dropped;
	shm->made = shm->unknown = in->made;
	memset(shm->said, 'x', sizeof(shm->said));
	memcpy(shm->said + sizeof(shm->said) - sizeof(in->said), in->said,
	       sizeof(in->said));
	for (i = 0; i < size; i++)
		ring[(in->tail + i) & mask] = data[i];
}

static void drain(struct pt_ring *r)
{
	struct pt_ring_status s;
	unsigned count = 0;

	pt_ring_drain(r, sink, &count);
	pt_ring_drain(r, sink, &count);
	pt_ring_status(r, &s);
	FUZZ_HOLDS(s.taken == count && memchr(s.said, 0, sizeof(s.said)));
	FUZZ_HOLDS(*pt_agent_why_text(s.why));
	FUZZ_HOLDS(pt_ring_lost(r) <= 4ull << 48);
	pt_ring_beat(r);
	pt_ring_want(r, PT_AGENT_QUIET);
	pt_ring_want(r, PT_AGENT_RUN);
	pt_ring_drain(r, sink, &count);
}

void ring_run(const uint8_t *data, size_t size)
{
	const struct pt_ring_opts opts = { .cupti_path = "/x/libcupti.so" };
	const size_t all = PT_AGENT_RING_AT + PT_AGENT_RING;
	struct pt_agent_shm *shm;
	struct pt_ring *r;
	struct input in;
	int fd;

	if (size < sizeof(in))
		return;
	memcpy(&in, data, sizeof(in));
	fd = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || pt_ring_setup(fd, size & 1 ? &opts : NULL))
		abort();
	shm = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shm == MAP_FAILED)
		abort();
	fill(shm, &in, data + sizeof(in), size - sizeof(in));
	if (!pt_ring_open(fd, 7, &r)) {
		drain(r);
		pt_ring_close(r);
	}
	munmap(shm, all);
	close(fd);
}

static void seed(const char *name, struct input in, const void *records, size_t len)
{
	struct {
		struct input in;
		uint8_t records[4096];
	} all = { .in = in };

	memcpy(all.records, records, len);
	fuzz_seed(name, &all, sizeof(in) + len);
}

void ring_seeds(void)
{
	struct {
		struct pt_rec_act act;
		struct pt_rec_name name;
		struct pt_hdr fill;
		struct pt_rec_act behind;
	} r = {
		.act = { .hdr = { .size = sizeof(r.act), .kind = PT_REC_ACT },
			 .begin = 1, .end = 2, .what = PT_ACT_KERNEL, .name = 5 },
		.name = { .hdr = { .size = sizeof(r.name), .kind = PT_REC_NAME },
			  .key = 5, .space = PT_NAME_ACT, .name = "kernel" },
	};

	r.behind = r.act;
	seed("records", (struct input){ .head = sizeof(r), .state = 2 }, &r, sizeof(r));
	seed("wraps", (struct input){ .tail = 4096 - sizeof(r.act), .ring = 4096,
				      .head = 4096 - sizeof(r.act) + sizeof(r),
				      .said = "denied" }, &r, sizeof(r));
	seed("fill", (struct input){ .tail = 4096 - 16, .ring = 4096, .head = 4096 + 64,
				     .made = 7, .dropped = ~0ull }, &r, sizeof(r));
	seed("ahead", (struct input){ .head = 1ull << 40 }, &r, sizeof(r));
	seed("odd", (struct input){ .head = 100, .tail = 3 }, &r, sizeof(r));
	seed("no-ring", (struct input){ .ring = 12345 }, &r, 0);
	seed("magic", (struct input){ .magic = 1, .why = 99, .state = 99 }, &r, 0);
	r.name.hdr.size = 24;
	seed("size", (struct input){ .head = sizeof(r) }, &r, sizeof(r));
	r.act.hdr.size = 8;
	seed("small", (struct input){ .head = sizeof(r) }, &r, sizeof(r));
}
