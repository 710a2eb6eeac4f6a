/* SPDX-License-Identifier: BSD-2-Clause */
/* A BPF ring buffer is read whole and in order, through a window that moves along. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <bpf/bpf.h>
#include <linux/bpf.h>

#include "capture/ringbuf.h"

#define BYTES (2u << 20) /* two windows */
#define WORDS 31	 /* of a record: with its header a quarter of a kilobyte */
#define IN_RING (BYTES / 256)

struct seen {
	uint64_t next, stop_at;
	unsigned wrong;
};

static int map, prog;

#define INSN(c, d, s, o, i)                                                    \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s),       \
			    .off = (o), .imm = (i) })

/* Writes a record that is its first argument, over and over. */
static int load_writer(void)
{
	struct bpf_insn p[WORDS + 16];
	int n = 0, i;

	p[n++] = INSN(BPF_LDX | BPF_MEM | BPF_DW, 6, 1, 0, 0);
	for (i = 1; i <= WORDS; i++)
		p[n++] = INSN(BPF_STX | BPF_MEM | BPF_DW, 10, 6, (int16_t)(-8 * i), 0);
	p[n++] = INSN(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map);
	p[n++] = INSN(0, 0, 0, 0, 0);
	p[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0);
	p[n++] = INSN(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -8 * WORDS);
	p[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 8 * WORDS);
	p[n++] = INSN(BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0, 0);
	p[n++] = INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_ringbuf_output);
	p[n++] = INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	return bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "writer", "GPL", p, (size_t)n,
			     NULL);
}

static int begin(void **state)
{
	(void)state;
	map = prog = -1;
	if (geteuid())
		return 0;
	map = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "ring", 0, 0, BYTES, NULL);
	prog = map < 0 ? -1 : load_writer();
	return 0;
}

static int end(void **state)
{
	(void)state;
	if (prog >= 0)
		close(prog);
	if (map >= 0)
		close(map);
	return 0;
}

static void need(void)
{
	if (prog < 0) {
		print_message("# needs root, and a kernel with BPF ring buffers\n");
		skip();
	}
}

static bool put(uint64_t n)
{
	uint64_t args[12] = { n };
	LIBBPF_OPTS(bpf_test_run_opts, o, .ctx_in = args, .ctx_size_in = sizeof(args));

	assert_int_equal(bpf_prog_test_run_opts(prog, &o), 0);
	return !o.retval;
}

static int take(void *ctx, void *data, size_t len)
{
	const uint64_t *v = data;
	struct seen *s = ctx;
	size_t i;

	s->wrong += len != 8 * WORDS;
	for (i = 0; i < WORDS; i++)
		s->wrong += v[i] != s->next;
	return ++s->next == s->stop_at ? -EAGAIN : 7;
}

/* Five times around, in portions that end anywhere. */
static void in_order(void **state)
{
	struct seen s = { .next = 0 };
	struct pt_ringbuf *r;
	uint64_t n;

	(void)state;
	need();
	r = pt_ringbuf_open(map, BYTES, take, &s);
	assert_non_null(r);
	for (n = 0; n < 5 * IN_RING; n++) {
		assert_true(put(n));
		if (n % 3001 == 3000) {
			assert_int_equal(pt_ringbuf_read(r), 0);
			assert_int_equal(s.next, n + 1);
		}
	}
	assert_int_equal(pt_ringbuf_read(r), 0);
	assert_int_equal(s.next, n);
	assert_int_equal(s.wrong, 0);
	pt_ringbuf_free(r);
}

/* Full: nothing more goes in; what is in comes out, up to where its reader stops. */
static void full_and_stopped(void **state)
{
	struct seen s = { .next = 0, .stop_at = 100 };
	struct pt_ringbuf *r;
	struct pollfd p;
	uint64_t n = 0;

	(void)state;
	need();
	r = pt_ringbuf_open(map, BYTES, take, &s);
	assert_non_null(r);
	p = (struct pollfd){ .fd = pt_ringbuf_fd(r), .events = POLLIN };
	assert_int_equal(poll(&p, 1, 0), 0);
	while (put(n))
		n++;
	assert_in_range(n, IN_RING - 2, IN_RING);
	assert_int_equal(poll(&p, 1, 0), 1);
	assert_int_equal(pt_ringbuf_read(r), -EAGAIN);
	assert_int_equal(s.next, 100);
	assert_int_equal(pt_ringbuf_read(r), 0);
	assert_int_equal(s.next, n);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	pt_ringbuf_free(r);
	assert_null(pt_ringbuf_open(prog, BYTES, take, &s));
	assert_int_not_equal(errno, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(in_order, begin, end),
		cmocka_unit_test_setup_teardown(full_and_stopped, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
