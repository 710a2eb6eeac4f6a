/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's types are what libbpf finds them to be, and programs fit to them alike. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

#include "abi.h"
#include "config.h"
#include "capture/ktypes.h"
#include "pipetrace.skel.h"

#define EVERY 997 /* libbpf looks through all of them each time */

static const struct pt_ktypes *types(void)
{
	const struct pt_ktypes *k = pt_ktypes_get();

	if (!k && access("/sys/kernel/btf/vmlinux", R_OK))
		skip();
	assert_non_null(k);
	return k;
}

static void as_libbpf(void **state)
{
	const struct pt_ktypes *k = types();
	struct btf *btf = btf__load_vmlinux_btf();
	uint32_t id, named = 0;

	(void)state;
	assert_int_equal(libbpf_get_error(btf), 0);
	assert_int_equal(pt_ktypes_count(k) + 1, btf__type_cnt(btf));
	for (id = 1; id < btf__type_cnt(btf); id++) {
		const struct btf_type *a = btf__type_by_id(btf, id), *b = pt_ktypes_at(k, id);
		const char *name = btf__name_by_offset(btf, a->name_off);

		assert_memory_equal(a, b, sizeof(*a));
		assert_string_equal(name, pt_ktypes_name(k, b->name_off));
		if (id % EVERY || !*name)
			continue;
		named++;
		assert_int_equal(pt_ktypes_find(k, name, btf_kind(a)),
				 btf__find_by_name_kind(btf, name, btf_kind(a)));
	}
	assert_true(named > 10);
	assert_int_equal(pt_ktypes_find(k, "no_such_type", BTF_KIND_STRUCT), 0);
	assert_null(pt_ktypes_at(k, 0));
	assert_null(pt_ktypes_at(k, btf__type_cnt(btf)));
	btf__free(btf);
	pt_ktypes_put(k);
}

static void attach_ids(void **state)
{
	static const struct {
		const char *name;
		enum bpf_attach_type at;
	} of[] = { { "sched_switch", BPF_TRACE_RAW_TP }, { "task", BPF_TRACE_ITER },
		   { "vfs_read", BPF_TRACE_FENTRY }, { "vfs_read", BPF_TRACE_FEXIT } };
	const struct pt_ktypes *k = types();
	char longest[200];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		assert_int_equal(pt_ktypes_attach_id(k, of[i].name, of[i].at),
				 libbpf_find_vmlinux_btf_id(of[i].name, of[i].at));
	assert_int_equal(pt_ktypes_attach_id(k, "vfs_read", BPF_TRACE_RAW_TP), 0);
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	assert_int_equal(pt_ktypes_attach_id(k, longest, BPF_TRACE_RAW_TP), 0);
	pt_ktypes_put(k);
}

static int silent(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level;
	(void)fmt;
	(void)ap;
	return 0;
}

/* Maps' descriptors are this load's own. */
static bool same(const struct bpf_insn *a, const struct bpf_insn *b)
{
	return !memcmp(a, b, sizeof(*a)) ||
	       (a->code == (BPF_LD | BPF_IMM | BPF_DW) && a->code == b->code &&
		a->src_reg == b->src_reg && a->dst_reg == b->dst_reg &&
		(a->src_reg == BPF_PSEUDO_MAP_FD || a->src_reg == BPF_PSEUDO_MAP_VALUE));
}

/* How many of its instructions the fitting changed. */
static size_t changed(const struct pipetrace_bpf *s)
{
	struct pipetrace_bpf *raw = pipetrace_bpf__open();
	struct bpf_program *p, *q = NULL;
	size_t n = 0, i;

	assert_non_null(raw);
	bpf_object__for_each_program(p, raw->obj) {
		q = bpf_object__next_program(s->obj, q);
		for (i = 0; i < bpf_program__insn_cnt(p); i++)
			n += !same(&bpf_program__insns(p)[i], &bpf_program__insns(q)[i]);
	}
	pipetrace_bpf__destroy(raw);
	return n;
}

/* Fitted to this kernel, all of the programs; that it does not load all is not asked. */
static struct pipetrace_bpf *fitted(const char *types_path, const struct pt_ktypes *k, int fd)
{
	LIBBPF_OPTS(bpf_object_open_opts, o, .btf_custom_path = types_path);
	struct pipetrace_bpf *s = pipetrace_bpf__open_opts(&o);
	libbpf_print_fn_t old = libbpf_set_print(silent);

	assert_non_null(s);
	if (k)
		assert_int_equal(pt_ktypes_write(k, bpf_object__btf(s->obj), fd), 0);
	if (pipetrace_bpf__load(s))
		errno = 0;
	libbpf_set_print(old);
	return s;
}

static void same_instructions(void **state)
{
	int fd = memfd_create("types", MFD_CLOEXEC);
	const struct pt_ktypes *k = types();
	struct bpf_program *p, *q = NULL;
	struct pipetrace_bpf *a, *b;
	size_t i, n = 0;
	char path[32];

	(void)state;
	if (geteuid()) {
		print_message("# needs root\n");
		skip();
	}
	assert_true(fd >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	a = fitted(NULL, NULL, -1);
	b = fitted(path, k, fd);
	print_message("# %jd bytes of types\n", (intmax_t)lseek(fd, 0, SEEK_END));
	bpf_object__for_each_program(p, a->obj) {
		q = bpf_object__next_program(b->obj, q);
		assert_string_equal(bpf_program__name(p), bpf_program__name(q));
		assert_int_equal(bpf_program__insn_cnt(p), bpf_program__insn_cnt(q));
		for (i = 0; i < bpf_program__insn_cnt(p); i++)
			if (!same(&bpf_program__insns(p)[i], &bpf_program__insns(q)[i]))
				fail_msg("%s: instruction %zu", bpf_program__name(p), i);
		n += i;
	}
	i = changed(b);
	print_message("# %zu instructions, of which %zu were fitted\n", n, i);
	assert_true(i > 500 && n > i);
	pipetrace_bpf__destroy(a);
	pipetrace_bpf__destroy(b);
	close(fd);
	pt_ktypes_put(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_libbpf),
		cmocka_unit_test(attach_ids),
		cmocka_unit_test(same_instructions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
