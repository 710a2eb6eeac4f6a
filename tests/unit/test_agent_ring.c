/* SPDX-License-Identifier: BSD-2-Clause */
/* The tracer's side of the agent's ring: whatever the target writes there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi.h"
#include "inject/ring.h"

#define PID 4321u
#define RING PT_AGENT_RING

struct end { /* both ends */
	int fd;
	struct pt_agent_shm *shm;
	uint8_t *ring;
	struct pt_ring *r;
};

static int memory(void)
{
	int fd = memfd_create(PT_AGENT_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	return fd;
}

/* As the tracer opens it: a description of its own. */
static int reopen(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void begin(struct end *e)
{
	int fd;

	e->fd = memory();
	assert_int_equal(pt_ring_setup(e->fd, NULL), 0);
	e->shm = mmap(NULL, PT_AGENT_RING_AT + RING, PROT_READ | PROT_WRITE,
		      MAP_SHARED, e->fd, 0);
	assert_ptr_not_equal(e->shm, MAP_FAILED);
	e->ring = (uint8_t *)e->shm + PT_AGENT_RING_AT;
	fd = reopen(e->fd);
	assert_int_equal(pt_ring_open(fd, PID, &e->r), 0);
	close(fd);
}

static void end(struct end *e)
{
	pt_ring_close(e->r);
	munmap(e->shm, PT_AGENT_RING_AT + RING);
	close(e->fd);
}

static struct pt_rec_act act(uint64_t ts)
{
	struct pt_rec_act a = {
		.hdr = { .size = sizeof(a), .kind = PT_REC_ACT, .ts = ts,
			 .tid = 1, .tgid = 1 },
		.begin = ts, .end = ts + 10, .what = PT_ACT_KERNEL,
	};

	return a;
}

static void put(struct end *e, const void *rec, size_t n)
{
	uint64_t head = e->shm->head, at = head & (RING - 1);

	memcpy(e->ring + at, rec, n);
	e->shm->head = head + n;
}

struct got {
	size_t n;
	uint64_t last;
	int stop_at;
};

static int take(void *ctx, const void *rec, size_t len)
{
	struct got *g = ctx;
	const struct pt_hdr *h = rec;

	assert_true(len == h->size && len >= sizeof(*h) && len <= PT_REC_MAX);
	assert_true(h->kind == PT_REC_ACT || h->kind == PT_REC_NAME);
	assert_int_equal(h->tgid, PID);
	assert_int_equal(h->tid, PID);
	if (h->kind == PT_REC_ACT) {
		const struct pt_rec_act *a = rec;

		assert_true(a->begin <= a->end);
		g->last = a->begin;
	} else {
		const struct pt_rec_name *n = rec;

		assert_non_null(memchr(n->name, 0, sizeof(n->name)));
	}
	g->n++;
	return g->stop_at && (int)g->n == g->stop_at ? 7 : 0;
}

static void test_records(void **state)
{
	struct pt_ring_status st;
	struct got g = { 0 };
	struct pt_rec_name n = {
		.hdr = { .size = sizeof(n), .kind = PT_REC_NAME, .ts = 5 },
		.key = 9, .space = PT_NAME_ACT, .name = "k",
	};
	struct pt_rec_act a;
	struct end e;

	(void)state;
	begin(&e);
	for (uint64_t i = 1; i <= 3; i++) {
		a = act(i);
		put(&e, &a, sizeof(a));
	}
	put(&e, &n, sizeof(n));
	g.stop_at = 2;
	assert_int_equal(pt_ring_drain(e.r, take, &g), 7);
	assert_int_equal(g.n, 2);
	g.stop_at = 0;
	assert_int_equal(pt_ring_drain(e.r, take, &g), 0);
	assert_int_equal(g.n, 4);
	assert_int_equal(e.shm->tail, e.shm->head);
	/* what is not right is left out, and counted */
	a = act(4);
	a.begin = 100;
	put(&e, &a, sizeof(a));
	a = act(UINT64_MAX / 2); /* the future */
	put(&e, &a, sizeof(a));
	a = act(5);
	a.what = 99;
	put(&e, &a, sizeof(a));
	memset(n.name, 'x', sizeof(n.name));
	put(&e, &n, sizeof(n));
	a = act(6);
	a.hdr.kind = PT_REC_EXIT;
	put(&e, &a, sizeof(a));
	a = act(7);
	put(&e, &a, sizeof(a));
	assert_int_equal(pt_ring_drain(e.r, take, &g), 0);
	assert_int_equal(g.n, 5);
	assert_int_equal(g.last, 7);
	pt_ring_status(e.r, &st);
	assert_int_equal(st.bad, 5);
	assert_int_equal(st.taken, 5);
	e.shm->dropped = UINT64_MAX;
	assert_true(pt_ring_lost(e.r) >= 5);
	end(&e);
}

/* Round and round: a record that does not fit before the end is preceded by
 * what fills it. */
static void test_wraps(void **state)
{
	struct got g = { 0 };
	struct end e;
	size_t sent = 0;

	(void)state;
	begin(&e);
	while (e.shm->head < 3ull * RING) {
		struct pt_rec_act a = act(sent + 1);
		uint32_t room = RING - (uint32_t)(e.shm->head & (RING - 1));
		struct pt_hdr fill = { .size = (uint16_t)room };

		if (room < sizeof(a)) {
			if (room >= sizeof(fill))
				memcpy(e.ring + (e.shm->head & (RING - 1)),
				       &fill, sizeof(fill));
			e.shm->head += room;
		}
		put(&e, &a, sizeof(a));
		sent++;
		if (sent % 1000 == 0)
			assert_int_equal(pt_ring_drain(e.r, take, &g), 0);
	}
	assert_int_equal(pt_ring_drain(e.r, take, &g), 0);
	assert_int_equal(g.n, sent);
	assert_int_equal(g.last, sent);
	end(&e);
}

static void test_nonsense(void **state)
{
	struct pt_ring_status st;
	struct got g = { 0 };
	struct end e;

	(void)state;
	begin(&e);
	srand(1);
	for (int round = 0; round < 3000; round++) {
		uint64_t head = e.shm->head;
		uint32_t n = (uint32_t)rand() % 4096;

		for (uint32_t i = 0; i < n; i++)
			e.ring[(head + i) & (RING - 1)] =
				rand() % 4 ? 0 : (uint8_t)rand();
		switch (rand() % 8) {
		case 0:
			e.shm->head = (uint64_t)rand() << 32 | (uint32_t)rand();
			break;
		case 1:
			e.shm->head -= 8;
			break;
		case 2:
			e.shm->tail = (uint64_t)rand() << 20;
			break;
		case 3: { /* among them a good one */
			struct pt_rec_act a = act(3);

			e.shm->head = (head + 7) & ~7ull;
			if ((e.shm->head & (RING - 1)) + sizeof(a) <= RING)
				put(&e, &a, sizeof(a));
			break;
		}
		default:
			e.shm->head += n;
		}
		assert_int_equal(pt_ring_drain(e.r, take, &g), 0);
	}
	for (size_t i = 0; i < PT_AGENT_RING_AT; i++)
		((uint8_t *)e.shm)[i] = (uint8_t)rand();
	pt_ring_status(e.r, &st);
	assert_true(st.state <= PT_AGENT_REFUSED && st.why <= PT_AGENT_FORKED);
	assert_non_null(memchr(st.said, 0, sizeof(st.said)));
	assert_non_null(pt_agent_why_text(st.why));
	/* and it still works */
	e.shm->head = (uint64_t)RING * 5;
	pt_ring_drain(e.r, take, &g);
	g.n = 0;
	e.shm->head = (uint64_t)RING * 5;
	struct pt_rec_act a = act(3);
	put(&e, &a, sizeof(a));
	assert_int_equal(pt_ring_drain(e.r, take, &g), 0);
	assert_int_equal(g.n, 1);
	end(&e);
}

static void test_claim_and_shape(void **state)
{
	struct pt_ring *two;
	struct end e;
	int fd;

	(void)state;
	begin(&e);
	fd = reopen(e.fd);
	assert_int_equal(pt_ring_open(fd, PID, &two), -EBUSY);
	assert_null(two);
	pt_ring_close(e.r);
	assert_int_equal(pt_ring_open(fd, PID, &e.r), 0);
	close(fd);
	/* it cannot shrink under the tracer */
	assert_int_equal(ftruncate(e.fd, 4096), -1);
	end(&e);

	fd = memory(); /* empty */
	assert_int_equal(pt_ring_open(fd, PID, &two), -EPROTO);
	close(fd);
	fd = memory(); /* large enough, and all zero */
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_int_equal(pt_ring_open(fd, PID, &two), -EPROTO);
	close(fd);
	fd = memfd_create("x", MFD_CLOEXEC); /* cannot be sealed */
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_int_equal(pt_ring_open(fd, PID, &two), -EPROTO);
	close(fd);
	fd = open("/dev/null", O_RDWR);
	assert_int_equal(pt_ring_open(fd, PID, &two), -EPROTO);
	close(fd);
	begin(&e); /* a ring larger than the file */
	pt_ring_close(e.r);
	e.shm->ring = 1u << 30;
	fd = reopen(e.fd);
	assert_int_equal(pt_ring_open(fd, PID, &e.r), -EPROTO);
	e.shm->ring = 12345;
	assert_int_equal(pt_ring_open(fd, PID, &e.r), -EPROTO);
	close(fd);
	end(&e);
}

static void test_wants(void **state)
{
	struct got g = { 0 };
	struct pt_rec_act a = act(1);
	struct end e;
	char path[300];

	(void)state;
	begin(&e);
	assert_int_equal(e.shm->want, PT_AGENT_RUN);
	pt_ring_want(e.r, PT_AGENT_QUIET);
	assert_int_equal(e.shm->want, PT_AGENT_QUIET);
	put(&e, &a, sizeof(a)); /* of the use before */
	pt_ring_want(e.r, PT_AGENT_RUN);
	assert_int_equal(pt_ring_drain(e.r, take, &g), 0);
	assert_int_equal(g.n, 0);
	memset(path, 'p', sizeof(path));
	path[sizeof(path) - 1] = 0;
	struct pt_ring_opts o = { .cupti_path = path };
	assert_int_equal(pt_ring_setup(e.fd, &o), -ENAMETOOLONG);
	o.cupti_path = "/x/libcupti.so.13";
	o.flush_ms = 50;
	assert_int_equal(pt_ring_setup(e.fd, &o), 0);
	assert_string_equal(e.shm->cupti_path, "/x/libcupti.so.13");
	assert_int_equal(e.shm->flush_ms, 50);
	end(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records),
		cmocka_unit_test(test_wraps),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_claim_and_shape),
		cmocka_unit_test(test_wants),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
