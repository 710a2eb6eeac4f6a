// SPDX-License-Identifier: BSD-2-Clause
/*
 * A borrowed thread of arm64: how it makes a call, and its way back, a signal frame as
 * the kernel itself would lay it. Layouts are those of Linux's asm/ucontext.h and
 * asm/sigcontext.h for arm64, which are part of its stable interface.
 */
#ifdef __aarch64__
#include <elf.h>
#include <errno.h>
#include <linux/audit.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "inject/inject_int.h"

#define BELOW 128 /* bytes below sp that are left alone; the ABI lays nothing there */
#define PSR_32BIT 0x10
#define PSR_BTYPE 0xc00	     /* an indirect branch was the last instruction */
#define PSR_STEP (1u << 21)
#define SET_TLS 0x401	     /* NT_ARM_TLS */
#define SET_CALL 0x404	     /* NT_ARM_SYSTEM_CALL */
#define SET_STREAMING 0x40b  /* NT_ARM_SSVE */
#define SET_SHADOW 0x410     /* NT_ARM_GCS */
#define STREAMING_ON 1	     /* SVE_PT_REGS_SVE: it has such registers now */
#define FPSIMD_MAGIC 0x46508001

/*
 * A wait is not interrupted here: the first argument of a call that was cut short with
 * EINTR is lost, so that another one than the wait could not be begun anew.
 */
const struct pt_arch pt_arch = {
	.audit = AUDIT_ARCH_AARCH64, .rseq = 293, .state = NT_PRFPREG,
	.points = PT_POINT_GPU | PT_POINT_LIBC,
	/* mov x8, #139; svc #0: the kernel has it */
	.restorer = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 }, .restorer_len = 8,
	.restorer_in_vdso = true, .address_bits = 48,
};

/* -errno, or how much there is of a set of registers; 0: this machine has none. */
static int get_set(struct pt_thread_hold *h, int set, void *to, size_t size)
{
	struct iovec io = { to, size };

	memset(to, 0, size);
	if (!ptrace(PTRACE_GETREGSET, h->tid, set, &io))
		return (int)io.iov_len;
	return errno == EINVAL || errno == EIO || errno == ENODEV ? 0 : -errno;
}

int pt_arch_bad(struct pt_thread_hold *h, const char **why)
{
	struct {
		uint32_t size, max_size;
		uint16_t vl, max_vl, flags, pad;
	} streaming;
	uint64_t shadow[3];
	int ret;

	if (h->regs.pstate & PSR_32BIT)
		*why = "it runs 32-bit code";
	ret = get_set(h, SET_STREAMING, &streaming, sizeof(streaming));
	if (ret > 0 && streaming.flags & STREAMING_ON)
		*why = "its vector registers are in streaming mode";
	if (ret < 0)
		return ret;
	ret = get_set(h, SET_SHADOW, shadow, sizeof(shadow));
	if (ret > 0 && shadow[0])
		*why = "it runs with a shadow stack, on which no call can be placed";
	return ret < 0 ? ret : 0;
}

uint64_t pt_arch_tls(struct pt_thread_hold *h)
{
	uint64_t tls[2];

	return get_set(h, SET_TLS, tls, sizeof(tls)) > 0 ? tls[0] : 0;
}

bool pt_arch_behind(const unsigned char code[16], uint64_t addr, uint64_t ip)
{
	uint32_t insn;

	memcpy(&insn, code, sizeof(insn));
	if (insn >> 26 == 5) /* b: a function that is another one */
		return ip == addr + (uint64_t)((int64_t)((uint64_t)insn << 38) >> 36);
	return ip == addr + 4;
}

int pt_arch_caller(struct pt_thread_hold *h, const unsigned char code[16], uint64_t *out)
{
	(void)code; /* no instruction that a function begins with takes it away */
	*out = PT_ADDRESS(h->regs.regs[30]);
	return 0;
}

/* ---- calls ------------------------------------------------------------------- */

void pt_arch_call(struct user_regs_struct *r, uint64_t fn, const uint64_t *arg, size_t n,
		  const struct pt_frame *frame, const struct pt_libc *libc)
{
	size_t i;

	for (i = 0; i < n && i < 8; i++)
		r->regs[i] = arg[i];
	r->regs[29] = 0; /* where chains of frames end */
	r->regs[30] = libc->restorer;
	r->sp = frame->at;
	r->pc = fn;
	r->pstate &= ~(uint64_t)(PSR_BTYPE | PSR_STEP);
}

/* At the beginning of rt_sigreturn(), called where it is meant to be: x0 is still what the
 * call returned. */
bool pt_arch_returned(const struct pt_thread_hold *h, const struct pt_frame *frame,
		      const struct pt_libc *libc, int64_t *out)
{
	const struct user_regs_struct *r = &h->regs;

	*out = (int64_t)r->regs[0];
	return h->in_syscall && r->pc == libc->restorer + pt_arch.restorer_len &&
	       r->regs[8] == SYS_rt_sigreturn && r->sp == frame->at;
}

int pt_arch_no_call(struct pt_thread_hold *h)
{
	int none = -1;
	struct iovec io = { &none, sizeof(none) };

	return ptrace(PTRACE_SETREGSET, h->tid, SET_CALL, &io) ? -errno : 0;
}

int pt_arch_rewind(struct pt_thread_hold *h, uint64_t nr, const uint64_t arg[6])
{
	(void)h;
	(void)nr;
	(void)arg;
	return -EAGAIN;
}

/* ---- the way back -------------------------------------------------------------- */

struct k_fpsimd {
	uint32_t magic, size;
	uint32_t fpsr, fpcr;
	unsigned char v[32][16];
};

struct k_frame {
	unsigned char info[128];
	uint64_t uc_flags, uc_link;
	uint64_t stack_sp;
	uint32_t stack_flags, pad;
	uint64_t stack_size;
	uint64_t mask;
	unsigned char unused[120], pad2[8];
	uint64_t fault, regs[31], sp, pc, pstate, pad3;
	struct k_fpsimd fp;
	unsigned char more[4096 - sizeof(struct k_fpsimd)]; /* no more: zeros end it */
};
_Static_assert(sizeof(struct k_fpsimd) == 528, "fpsimd_context");
_Static_assert(offsetof(struct k_frame, fault) == 128 + 176, "uc_mcontext");
_Static_assert(offsetof(struct k_frame, fp) == 128 + 176 + 288, "__reserved");
_Static_assert(sizeof(struct k_frame) == 128 + 176 + 288 + 4096, "rt_sigframe");

/*
 * Of the vector registers a frame has those that a call leaves alone, or may use: at
 * the entry of a function nobody counts on what scalable ones (SVE) have beyond them.
 */
int pt_frame_make(struct pt_frame *f, const struct user_regs_struct *regs,
		  const void *xstate, size_t xlen, uint64_t mask,
		  const struct pt_libc *libc)
{
	struct {
		unsigned char v[32][16];
		uint32_t fpsr, fpcr, pad[2];
	} fp;
	struct k_frame k;

	(void)libc; /* the way back is in x30 when a call begins */
	if (xlen != sizeof(fp) || regs->sp < PT_FRAME_MAX + BELOW)
		return -EINVAL;
	memcpy(&fp, xstate, sizeof(fp));
	memset(&k, 0, sizeof(k));
	/* Which alternate stack it has cannot be seen from here. The kernel takes over
	 * none that is not valid, and keeps the thread's. */
	k.stack_flags = 3;
	k.mask = mask;
	memcpy(k.regs, regs->regs, sizeof(k.regs));
	k.sp = regs->sp;
	k.pc = regs->pc;
	k.pstate = regs->pstate;
	k.fp = (struct k_fpsimd){ .magic = FPSIMD_MAGIC, .size = sizeof(k.fp),
				  .fpsr = fp.fpsr, .fpcr = fp.fpcr };
	memcpy(k.fp.v, fp.v, sizeof(k.fp.v));
	/* from the thread's stack pointer down: names, frame */
	f->scratch = (regs->sp - BELOW - PT_SCRATCH) & ~15ull;
	f->at = f->scratch - sizeof(k);
	f->len = sizeof(k) + PT_SCRATCH;
	memset(f->bytes, 0, f->len);
	memcpy(f->bytes, &k, sizeof(k));
	return 0;
}
#endif
