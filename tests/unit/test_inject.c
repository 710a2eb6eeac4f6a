// SPDX-License-Identifier: BSD-2-Clause
/* The injector's parts that need no target: seccomp filters, the frame, what is
 * where in a process. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/inject_int.h"

#define KILL SECCOMP_RET_KILL_PROCESS
#define ALLOW SECCOMP_RET_ALLOW
#define LOAD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)
#define RET(v) BPF_STMT(BPF_RET | BPF_K, v)
#define NR offsetof(struct seccomp_data, nr)

static uint32_t run(const struct sock_filter *f, size_t n, int nr, uint64_t arg0)
{
	struct seccomp_data d = { .nr = nr, .arch = AUDIT_ARCH_X86_64,
				  .args = { arg0 } };

	return pt_cbpf_run(f, n, &d);
}
#define RUN(f, nr, arg) run(f, sizeof(f) / sizeof(*(f)), nr, arg)

static void filters_are_evaluated(void **state)
{
	const struct sock_filter above[] = {
		LOAD(NR), BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 335, 0, 1),
		RET(KILL), RET(ALLOW),
	};
	/* clone without namespaces, as a container's filter has it */
	const struct sock_filter clone[] = {
		LOAD(NR), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
		LOAD(offsetof(struct seccomp_data, args)),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x7e020000, 1, 0),
		RET(ALLOW), RET(SECCOMP_RET_ERRNO | EPERM),
	};
	const struct sock_filter sums[] = {
		BPF_STMT(BPF_LD | BPF_IMM, 6), BPF_STMT(BPF_MISC | BPF_TAX, 0),
		BPF_STMT(BPF_ST, 3), LOAD(NR),
		BPF_STMT(BPF_ALU | BPF_MUL | BPF_X, 0),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_K, 2),
		BPF_STMT(BPF_LDX | BPF_MEM, 3),
		BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0),
		BPF_STMT(BPF_RET | BPF_A, 0),
	};

	(void)state;
	assert_int_equal(RUN(above, 334, 0), ALLOW);
	assert_int_equal(RUN(above, 335, 0), KILL);
	assert_int_equal(RUN(clone, SYS_clone, 0x3d0f00), ALLOW);
	assert_int_equal(RUN(clone, SYS_clone, 0x10000000 | 0x20000000),
			 SECCOMP_RET_ERRNO | EPERM);
	assert_int_equal(RUN(sums, 7, 0), 7 * 6 - 2 + 6);
}

static void unsound_filters_kill(void **state)
{
	const struct sock_filter no_end[] = { LOAD(NR) };
	const struct sock_filter far[] = { BPF_STMT(BPF_JMP | BPF_JA, 1u << 31),
					   RET(ALLOW) };
	const struct sock_filter outside[] = { LOAD(sizeof(struct seccomp_data)),
					       RET(ALLOW) };
	const struct sock_filter zero[] = {
		BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0), RET(ALLOW) };
	const struct sock_filter memory[] = { BPF_STMT(BPF_ST, BPF_MEMWORDS),
					      RET(ALLOW) };
	const struct sock_filter packet[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_IND, 0), RET(ALLOW) };

	(void)state;
	assert_int_equal(RUN(no_end, 1, 0), KILL);
	assert_int_equal(RUN(far, 1, 0), KILL);
	assert_int_equal(RUN(outside, 1, 0), KILL);
	assert_int_equal(RUN(zero, 1, 0), KILL);
	assert_int_equal(RUN(memory, 1, 0), KILL);
	assert_int_equal(RUN(packet, 1, 0), KILL);
	assert_int_equal(pt_cbpf_run(NULL, 0, &(struct seccomp_data){ 0 }),
			 KILL);
}

/* Only waits that begin anew exactly as they were. */
static void waits_without_end(void **state)
{
	const uint64_t none[6] = { 0 };
	uint64_t a[6] = { 1, 1, 0xffffffff };

	(void)state;
	assert_true(pt_safe_wait(SYS_poll, a));
	a[2] = 5000;
	assert_false(pt_safe_wait(SYS_poll, a));
	a[3] = ~0ull;
	assert_true(pt_safe_wait(SYS_epoll_wait, a));
	a[3] = 10;
	assert_false(pt_safe_wait(SYS_epoll_wait, a));
	assert_true(pt_safe_wait(SYS_ppoll, none));
	assert_true(pt_safe_wait(SYS_select, none));
	assert_false(pt_safe_wait(SYS_clock_nanosleep, none));
	a[1] = 1; /* TIMER_ABSTIME */
	assert_true(pt_safe_wait(SYS_clock_nanosleep, a));
	assert_false(pt_safe_wait(SYS_nanosleep, none));
	assert_false(pt_safe_wait(SYS_brk, none));
	assert_false(pt_safe_wait(SYS_mmap, none));
	assert_false(pt_safe_wait(SYS_futex, none));
	assert_false(pt_safe_wait(SYS_read, none));
}

static void put64(unsigned char *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

static uint64_t get64(const unsigned char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Positions are those of the kernel's struct rt_sigframe. */
static void a_frame_holds_the_thread(void **state)
{
	struct user_regs_struct r = { .rip = 0x1111, .rsp = 0x7ffff000123,
				      .rax = 7, .rbx = 8, .r15 = 9,
				      .eflags = 0x246, .cs = 0x33, .ss = 0x2b };
	const struct pt_libc c = { .restorer = 0xabcd, .back = 0xef01 };
	static unsigned char x[PT_XSTATE_MAX];
	static struct pt_frame f;
	const unsigned char *fp, *b = f.bytes + 8;
	uint64_t fpstate;
	uint32_t size;

	(void)state;
	put64(x + 464, 3); /* x87 and SSE */
	put64(x + 512, 3);
	x[160] = 0x5a; /* xmm0 */
	assert_int_equal(pt_frame_make(&f, &r, x, 2696, 0x800, &c), 0);
	assert_int_equal(f.at % 16, 8); /* as behind a call */
	assert_true(f.at + f.len <= r.rsp - 128); /* the red zone is kept */
	assert_true(f.scratch + PT_SCRATCH <= f.at + f.len);
	assert_int_equal(get64(f.bytes), 0xef01);
	assert_int_equal(get64(b), 0xabcd);
	assert_int_equal(get64(b + 8), 7); /* uc_flags */
	assert_int_equal(b[32], 3); /* no valid alternate stack */
	assert_int_equal(get64(b + 48 + 7 * 8), 9);	/* r15 */
	assert_int_equal(get64(b + 48 + 11 * 8), 8);	/* rbx */
	assert_int_equal(get64(b + 48 + 13 * 8), 7);	/* rax */
	assert_int_equal(get64(b + 48 + 15 * 8), r.rsp);
	assert_int_equal(get64(b + 48 + 16 * 8), r.rip);
	assert_int_equal(get64(b + 48 + 17 * 8), r.eflags);
	assert_int_equal(get64(b + 304), 0x800); /* the mask */
	fpstate = get64(b + 48 + 23 * 8);
	assert_int_equal(fpstate % 64, 0);
	assert_true(fpstate >= f.at + 320 && fpstate < f.scratch);
	fp = f.bytes + (fpstate - f.at);
	assert_int_equal(fp[160], 0x5a);
	assert_int_equal((uint32_t)get64(fp + 464), 0x46505853);
	assert_int_equal(get64(fp + 472), 3);
	size = (uint32_t)get64(fp + 480);
	assert_int_equal(size, 576);
	assert_int_equal(get64(fp + 464) >> 32, size + 4);
	assert_memory_equal(fp + size, "EXPF", 4);
}

static void an_odd_state_is_refused(void **state)
{
	struct user_regs_struct r = { .rsp = 0x7ffff000 };
	static unsigned char x[PT_XSTATE_MAX + 1];
	const struct pt_libc c = { .restorer = 1 };
	static struct pt_frame f;

	(void)state;
	put64(x + 464, 7);
	assert_int_equal(pt_frame_make(&f, &r, x, 512, 0, &c), -EINVAL);
	assert_int_equal(pt_frame_make(&f, &r, x, sizeof(x), 0, &c), -EINVAL);
	/* features that the length has no room for */
	assert_int_equal(pt_frame_make(&f, &r, x, 576, 0, &c), -EINVAL);
	r.rsp = 4096;
	assert_int_equal(pt_frame_make(&f, &r, x, 2696, 0, &c), -EINVAL);
}

static void functions_are_where_they_are(void **state)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	struct pt_err err = { "" };
	const struct pt_map *x;
	struct pt_maps m;
	struct pt_libc c;
	int i;

	(void)state;
	assert_non_null(libc);
	assert_int_equal(pt_maps_read(getpid(), &m), 0);
	assert_int_equal(pt_libc_find(getpid(), &m, &c, &err), 0);
	assert_ptr_equal((void *)c.dlopen, dlsym(libc, "dlopen"));
	assert_ptr_equal((void *)c.dlclose, dlsym(libc, "dlclose"));
	assert_ptr_equal((void *)c.sys, dlsym(libc, "syscall"));
	for (i = 0; i < 8; i++)
		assert_ptr_equal((void *)c.wait[i],
				 dlsym(libc, pt_libc_waits[i]));
	assert_memory_equal((void *)c.restorer, "\x48\xc7\xc0\x0f\0\0\0\x0f\x05",
			    9);
	x = pt_maps_at(&m, c.restorer);
	assert_true(x && x->x && pt_is_glibc(pt_maps_path(&m, x)));
	assert_ptr_equal((void *)c.back, dlsym(RTLD_DEFAULT, "_dl_debug_state"));
	assert_null(pt_maps_at(&m, 0));
	assert_null(pt_maps_at(&m, UINT64_MAX));
	pt_maps_free(&m);
	dlclose(libc);
}

static void where_a_first_instruction_leads(void **state)
{
	const unsigned char endbr[16] = { 0xf3, 0x0f, 0x1e, 0xfa, 0x55 };
	const unsigned char je[16] = { 0x74, 0x10, 0x48 };
	const unsigned char back[16] = { 0xeb, 0xf0 };
	const unsigned char jmp[16] = { 0xe9, 0x00, 0x01, 0, 0 };
	const unsigned char far_je[16] = { 0x0f, 0x84, 0x00, 0x10, 0, 0 };

	(void)state;
	assert_true(pt_arch_behind(endbr, 0x1000, 0x1004));
	assert_false(pt_arch_behind(endbr, 0x1000, 0x1000));
	assert_false(pt_arch_behind(endbr, 0x1000, 0x1010));
	assert_true(pt_arch_behind(je, 0x1000, 0x1002));
	assert_true(pt_arch_behind(je, 0x1000, 0x1012));
	assert_true(pt_arch_behind(back, 0x1000, 0xff2));
	assert_true(pt_arch_behind(jmp, 0x1000, 0x1105));
	assert_true(pt_arch_behind(far_je, 0x1000, 0x2006));
	assert_false(pt_arch_behind(far_je, 0x1000, 0x2005));
}

static void who_called(void **state)
{
	static const struct {
		unsigned char code[16];
		size_t words; /* the return address lies so many above the stack pointer */
	} of[] = {
		{ { 0xf3, 0x0f, 0x1e, 0xfa }, 0 }, { { 0x55 }, 1 }, { { 0x41, 0x57 }, 1 },
		{ { 0x48, 0x83, 0xec, 0x18 }, 3 }, { { 0x48, 0x81, 0xec, 0x10 }, 2 },
		{ { 0xe9 }, 0 },
	};
	const uint64_t stack[4] = { 10, 11, 12, 13 };
	struct pt_thread_hold h = { .regs.rsp = (uintptr_t)stack };
	uint64_t ra;
	size_t i;

	(void)state;
	h.mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	assert_true(h.mem >= 0);
	for (i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		assert_int_equal(pt_arch_caller(&h, of[i].code, &ra), 0);
		assert_int_equal(ra, stack[of[i].words]);
	}
	close(h.mem);
}

static void libraries_by_name(void **state)
{
	(void)state;
	assert_true(pt_is_glibc("/usr/lib/x86_64-linux-gnu/libc.so.6"));
	assert_true(pt_is_glibc("/lib/x86_64-linux-gnu/libc-2.31.so"));
	assert_false(pt_is_glibc("/usr/lib/libcuda.so.1"));
	assert_false(pt_is_glibc("/usr/lib/libc.so.6.d/x"));
	assert_true(pt_is_musl("/lib/ld-musl-x86_64.so.1"));
	assert_true(pt_is_musl("/usr/lib/x86_64-linux-musl/libc.so"));
	assert_false(pt_is_musl("/usr/lib/x86_64-linux-gnu/libc.so.6"));
}

static void no_such_process(void **state)
{
	struct pt_err err = { "" };
	struct pt_maps m;

	(void)state;
	assert_int_equal(pt_maps_read(0x7ffffffe, &m), -ESRCH);
	pt_maps_free(&m);
	assert_int_equal(pt_inject_check(0x7ffffffe, &err), -ESRCH);
	assert_true(err.msg[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filters_are_evaluated),
		cmocka_unit_test(unsound_filters_kill),
		cmocka_unit_test(waits_without_end),
		cmocka_unit_test(a_frame_holds_the_thread),
		cmocka_unit_test(an_odd_state_is_refused),
		cmocka_unit_test(functions_are_where_they_are),
		cmocka_unit_test(where_a_first_instruction_leads),
		cmocka_unit_test(who_called),
		cmocka_unit_test(libraries_by_name),
		cmocka_unit_test(no_such_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
