// SPDX-License-Identifier: BSD-2-Clause
/*
 * A borrowed thread of x86-64: how it makes a call, and its way back, a signal frame as
 * the kernel itself would lay it. Layouts are those of Linux's asm/ucontext.h and
 * asm/sigcontext.h for x86-64, which are part of its stable interface.
 */
#ifdef __x86_64__
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <linux/audit.h>
#include <string.h>

#include "inject/inject_int.h"

const struct pt_arch pt_arch = {
	.audit = AUDIT_ARCH_X86_64, .rseq = 334, .state = NT_X86_XSTATE,
	.points = PT_POINT_GPU | PT_POINT_LIBC | PT_POINT_BLOCKED,
	/* mov $15,%rax; syscall: the C library has it */
	.restorer = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 }, .restorer_len = 9,
	.address_bits = 47,
	/* its result is gone once the restorer has begun */
	.back = "_dl_debug_state",
};

int pt_arch_bad(struct pt_thread_hold *h, const char **why)
{
	if (h->regs.cs != 0x33)
		*why = "it runs 32-bit code";
	return 0;
}

uint64_t pt_arch_tls(struct pt_thread_hold *h)
{
	return h->regs.fs_base;
}

/* Of the jumps that a function may begin with, those whose target can be told. */
static bool jumps_to(const unsigned char code[16], uint64_t addr, uint64_t ip)
{
	int32_t far;

	if ((code[0] & 0xf0) == 0x70 || code[0] == 0xeb)
		return ip == addr + 2 + (uint64_t)(int64_t)(int8_t)code[1];
	if (code[0] == 0x0f && (code[1] & 0xf0) == 0x80) {
		memcpy(&far, code + 2, sizeof(far));
		return ip == addr + 6 + (uint64_t)(int64_t)far;
	}
	memcpy(&far, code + 1, sizeof(far));
	return code[0] == 0xe9 && ip == addr + 5 + (uint64_t)(int64_t)far;
}

bool pt_arch_behind(const unsigned char code[16], uint64_t addr, uint64_t ip)
{
	return (ip > addr && ip - addr < 16) || jumps_to(code, addr, ip);
}

int pt_arch_caller(struct pt_thread_hold *h, const unsigned char code[16], uint64_t *out)
{
	uint64_t at = h->regs.rsp;
	int32_t far;

	/* what the first instruction has put on the stack: push, or sub from rsp */
	if ((code[0] & 0xf8) == 0x50 || (code[0] == 0x41 && (code[1] & 0xf8) == 0x50))
		at += 8;
	if (code[0] == 0x48 && code[1] == 0x83 && code[2] == 0xec)
		at += code[3] & 0x7f;
	memcpy(&far, code + 3, sizeof(far));
	if (code[0] == 0x48 && code[1] == 0x81 && code[2] == 0xec && far > 0)
		at += (uint64_t)far;
	return pt_hold_read(h, at, out, sizeof(*out));
}

/* ---- calls ------------------------------------------------------------------- */

void pt_arch_call(struct user_regs_struct *r, uint64_t fn, const uint64_t *arg, size_t n,
		  const struct pt_frame *frame, const struct pt_libc *libc)
{
	unsigned long long *const to[] = { &r->rdi, &r->rsi, &r->rdx,
					   &r->rcx, &r->r8, &r->r9 };
	size_t i;

	(void)libc; /* the way back is in the frame */
	for (i = 0; i < n && i < 6; i++)
		*to[i] = arg[i];
	r->rip = fn;
	r->rsp = frame->at; /* the return address */
	r->rax = 0;	    /* no vector arguments */
	r->orig_rax = ~0ull;   /* no system call to begin again */
	r->eflags = 0x202;     /* no direction, no trap */
}

/* Behind the first instruction of the function that does nothing: in it, or, where that
 * was its return, behind it. */
bool pt_arch_returned(const struct pt_thread_hold *h, const struct pt_frame *frame,
		      const struct pt_libc *libc, int64_t *out)
{
	const struct user_regs_struct *r = &h->regs;

	*out = (int64_t)r->rax;
	return !h->in_syscall &&
	       ((r->rip == libc->restorer && r->rsp == frame->at + 16) ||
		(r->rip > libc->back && r->rip - libc->back < 16 &&
		 r->rsp == frame->at + 8));
}

int pt_arch_no_call(struct pt_thread_hold *h)
{
	(void)h; /* no result is looked for in one */
	return -EOPNOTSUPP;
}

/* ---- an interrupted wait ------------------------------------------------------- */

/* What an interrupted call holds in its result while the thread is stopped
 * (the kernel's linux/errno.h). */
#define ERESTARTNOHAND (-514)
#define ERESTART_RESTARTBLOCK (-516)

/*
 * The thread had left its wait for another call, just begun, which our interrupt
 * cut short with EINTR. No signal came: it is begun again, as if nothing had been.
 */
static void undo_eintr(struct pt_thread_hold *h)
{
	struct user_regs_struct r = h->regs;

	if ((long)r.rax != -EINTR)
		return;
	r.rax = r.orig_rax;
	r.orig_rax = ~0ull;
	r.rip -= 2;
	pt_hold_set(h, &r);
}

int pt_arch_rewind(struct pt_thread_hold *h, uint64_t nr, const uint64_t arg[6])
{
	struct user_regs_struct *r = &h->regs;
	const uint64_t now[6] = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 };
	unsigned char code[2];
	long ax = (long)r->rax;

	if ((long)r->orig_rax < 0 || pt_hold_read(h, r->rip - 2, code, 2) ||
	    code[0] != 0x0f || code[1] != 0x05)
		return -EAGAIN;
	if (r->orig_rax != nr || !pt_safe_wait(nr, now) ||
	    memcmp(now, arg, 3 * sizeof(*arg)) ||
	    (ax != -EINTR && ax != ERESTARTNOHAND &&
	     ax != ERESTART_RESTARTBLOCK)) {
		undo_eintr(h);
		return -EAGAIN;
	}
	r->rip -= 2;
	r->rax = nr;
	r->orig_rax = ~0ull;
	/* now, so that letting go at any later moment begins the wait anew */
	return pt_hold_set(h, r);
}

/* ---- the way back -------------------------------------------------------------- */

#define RED_ZONE 128 /* bytes below rsp that belong to the function */

#define UC_FP_XSTATE 1
#define UC_SIGCONTEXT_SS 2
#define UC_STRICT_RESTORE_SS 4

#define FP_MAGIC1 0x46505853u
#define FP_MAGIC2 0x46505845u
#define FX_SW_OFF 464	   /* software bytes in the FXSAVE area */
#define XSTATE_BV_OFF 512  /* of the XSAVE header */
#define XSTATE_HEAD 576	   /* FXSAVE area and header */
#define XFEATURE_AMX 18	   /* tile data: room for it is granted on request */
#define XFEATURES 63

struct k_sigcontext {
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
	uint64_t di, si, bp, bx, dx, ax, cx, sp, ip, flags;
	uint16_t cs, gs, fs, ss;
	uint64_t err, trapno, oldmask, cr2, fpstate, reserved[8];
};

struct k_frame {
	uint64_t back; /* of ours: the return address of a call, and of that the next */
	uint64_t restorer;
	uint64_t uc_flags, uc_link;
	uint64_t stack_sp;
	uint32_t stack_flags, pad;
	uint64_t stack_size;
	struct k_sigcontext mc;
	uint64_t mask;
};
_Static_assert(sizeof(struct k_sigcontext) == 256, "sigcontext_64");
_Static_assert(sizeof(struct k_frame) == 8 + 8 + 40 + 256 + 8, "rt_sigframe");

struct fx_sw {
	uint32_t magic1, extended_size;
	uint64_t xfeatures;
	uint32_t xstate_size, padding[7];
};
_Static_assert(sizeof(struct fx_sw) == 48, "_fpx_sw_bytes");

/*
 * How much of the state a signal frame of this thread holds: the kernel takes no
 * more than the thread's own buffer has. AMX tiles are part of it only for a
 * process that asked for them; one whose tiles hold something has.
 */
static size_t state_size(uint64_t features)
{
	size_t size = XSTATE_HEAD;
	unsigned i, a, b, c, d;

	for (i = 2; i < XFEATURES; i++) {
		if (!(features >> i & 1))
			continue;
		if (!__get_cpuid_count(0xd, i, &a, &b, &c, &d) || !a || (c & 1))
			continue; /* unknown, or the kernel's own */
		if ((size_t)a + b > size)
			size = (size_t)a + b;
	}
	return size;
}

/* The state with its software bytes and the closing magic; its length or 0. */
static size_t make_state(unsigned char *to, const void *xstate, size_t xlen)
{
	struct fx_sw sw = { .magic1 = FP_MAGIC1 };
	uint32_t magic2 = FP_MAGIC2;
	uint64_t features, in_use;
	size_t size;

	if (xlen < XSTATE_HEAD || xlen > PT_XSTATE_MAX)
		return 0;
	/* what the kernel enabled, as PTRACE_GETREGSET tells it */
	memcpy(&features, (const char *)xstate + FX_SW_OFF, sizeof(features));
	memcpy(&in_use, (const char *)xstate + XSTATE_BV_OFF, sizeof(in_use));
	if (!(in_use >> XFEATURE_AMX & 1))
		features &= ~(1ull << XFEATURE_AMX);
	size = state_size(features);
	if (size > xlen)
		return 0;
	memcpy(to, xstate, size);
	sw.xfeatures = features;
	sw.xstate_size = (uint32_t)size;
	sw.extended_size = (uint32_t)(size + sizeof(magic2));
	memcpy(to + FX_SW_OFF, &sw, sizeof(sw));
	memcpy(to + size, &magic2, sizeof(magic2));
	return size + sizeof(magic2);
}

static void fill(struct k_frame *k, const struct user_regs_struct *r,
		 uint64_t mask, const struct pt_libc *libc, uint64_t fpstate)
{
	memset(k, 0, sizeof(*k));
	k->back = libc->back;
	k->restorer = libc->restorer;
	k->uc_flags = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS;
	/*
	 * Which alternate stack the thread has cannot be seen from here. The
	 * kernel takes over none that is not valid, and keeps the thread's.
	 */
	k->stack_flags = 3;
	k->mc = (struct k_sigcontext){
		.r8 = r->r8, .r9 = r->r9, .r10 = r->r10, .r11 = r->r11,
		.r12 = r->r12, .r13 = r->r13, .r14 = r->r14, .r15 = r->r15,
		.di = r->rdi, .si = r->rsi, .bp = r->rbp, .bx = r->rbx,
		.dx = r->rdx, .ax = r->rax, .cx = r->rcx, .sp = r->rsp,
		.ip = r->rip, .flags = r->eflags, .cs = (uint16_t)r->cs,
		.ss = (uint16_t)r->ss, .fpstate = fpstate,
	};
	k->mask = mask;
}

int pt_frame_make(struct pt_frame *f, const struct user_regs_struct *regs,
		  const void *xstate, size_t xlen, uint64_t mask,
		  const struct pt_libc *libc)
{
	static __thread unsigned char state[PT_XSTATE_MAX + 64];
	size_t len = make_state(state, xstate, xlen);
	uint64_t top, fp, at;
	struct k_frame k;

	if (!len)
		return -EINVAL;
	if (regs->rsp < PT_FRAME_MAX + RED_ZONE)
		return -EINVAL;
	/* from the thread's stack pointer down: red zone, names, state, frame */
	f->scratch = ((regs->rsp - RED_ZONE - PT_SCRATCH) & ~15ull);
	fp = (f->scratch - len) & ~63ull;
	at = ((fp - sizeof(k)) & ~15ull) - 8;
	top = f->scratch + PT_SCRATCH;
	if (top - at > sizeof(f->bytes))
		return -E2BIG;
	fill(&k, regs, mask, libc, fp);
	memset(f->bytes, 0, sizeof(f->bytes));
	memcpy(f->bytes, &k, sizeof(k));
	memcpy(f->bytes + (fp - at), state, len);
	f->at = at;
	f->len = (size_t)(top - at);
	return 0;
}
#endif
