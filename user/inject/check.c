// SPDX-License-Identifier: BSD-2-Clause
/* Processes that are refused, as far as /proc tells, and seccomp filters. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/procfs.h"
#include "capture/seccomp.h"
#include "inject/inject_int.h"

static int check_exe(pid_t pid, struct pt_err *err)
{
	unsigned char e[EI_NIDENT];
	char path[32];
	int fd, ret;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		ret = errno == ENOENT ? -ESRCH : -errno;
		return pt_err_set(err, ret, ret == -EACCES ?
				  "process %d may not be looked at: run as root" :
				  "process %d has no program any more",
				  (int)pid);
	}
	ret = pread(fd, e, sizeof(e), 0) == sizeof(e) &&
	      !memcmp(e, ELFMAG, SELFMAG) && e[EI_CLASS] != ELFCLASS64;
	close(fd);
	return ret ? pt_err_set(err, -EOPNOTSUPP, "it is a 32-bit program") : 0;
}

int pt_inj_allowed(pid_t pid, struct pt_err *err)
{
	struct pt_proc_stat st;
	char text[8192], *at;
	uint64_t tracer;
	int ret;

	ret = pt_proc_stat(pid, &st);
	if (!ret && (st.kthread || st.state == 'Z' || st.state == 'X'))
		ret = -ESRCH;
	if (ret || pt_proc_read(pid, "status", text, sizeof(text)) < 0)
		return pt_err_set(err, -ESRCH, "process %d has ended", (int)pid);
	if (st.state == 'T')
		return pt_err_set(err, -EAGAIN, "process %d is stopped",
				  (int)pid);
	if (!pt_proc_field(text, "TracerPid", &tracer) && tracer)
		return pt_err_set(err, -EBUSY,
				  "process %d is traced by process %d already, "
				  "and there can be only one tracer", (int)pid,
				  (int)tracer);
	at = strstr(text, "\nx86_Thread_features:");
	if (at && memmem(at + 1, strcspn(at + 1, "\n"), "shstk", 5))
		return pt_err_set(err, -EOPNOTSUPP,
				  "it runs with a shadow stack, on which no call "
				  "can be placed");
	at = strstr(text, "\nSeccomp:");
	if (at && strtol(at + 9, NULL, 10) == 1)
		return pt_err_set(err, -EOPNOTSUPP,
				  "seccomp allows it no system call that is "
				  "needed");
	return check_exe(pid, err);
}

int pt_inject_check(pid_t pid, struct pt_err *err)
{
	struct pt_maps m = { 0 };
	struct pt_libc libc;
	int ret = pt_inj_allowed(pid, err);

	if (ret)
		return ret;
	ret = pt_maps_read(pid, &m);
	ret = ret ? pt_err_set(err, ret, "process %d cannot be looked at: %s",
			       (int)pid, strerror(-ret)) :
		    pt_libc_find(pid, &m, &libc, err);
	pt_maps_free(&m);
	return ret;
}

bool pt_inj_filtered(pid_t pid)
{
	char text[8192], *at;

	if (pt_proc_read(pid, "status", text, sizeof(text)) < 0)
		return true;
	at = strstr(text, "\nSeccomp:");
	return at && strtol(at + 9, NULL, 10) != 0;
}

/* ---- seccomp's classic BPF --------------------------------------------------- */

static bool alu(uint16_t code, uint32_t *a, uint32_t v)
{
	switch (BPF_OP(code)) {
	case BPF_ADD:
		*a += v;
		return true;
	case BPF_SUB:
		*a -= v;
		return true;
	case BPF_MUL:
		*a *= v;
		return true;
	case BPF_DIV:
		if (!v)
			return false;
		*a /= v;
		return true;
	case BPF_OR:
		*a |= v;
		return true;
	case BPF_AND:
		*a &= v;
		return true;
	case BPF_XOR:
		*a ^= v;
		return true;
	case BPF_LSH:
		*a = v < 32 ? *a << v : 0;
		return true;
	case BPF_RSH:
		*a = v < 32 ? *a >> v : 0;
		return true;
	case BPF_NEG:
		*a = 0u - *a;
		return true;
	default:
		return false;
	}
}

static bool jump(uint16_t code, uint32_t a, uint32_t v)
{
	switch (BPF_OP(code)) {
	case BPF_JEQ:
		return a == v;
	case BPF_JGT:
		return a > v;
	case BPF_JGE:
		return a >= v;
	default:
		return (a & v) != 0;
	}
}

uint32_t pt_cbpf_run(const struct sock_filter *f, size_t n,
		     const struct seccomp_data *d)
{
	uint32_t a = 0, x = 0, mem[BPF_MEMWORDS] = { 0 }, v;
	size_t pc;

	/* jumps only go forward: it ends */
	for (pc = 0; pc < n; pc++) {
		const struct sock_filter *i = &f[pc];

		v = BPF_SRC(i->code) == BPF_X ? x : i->k;
		switch (BPF_CLASS(i->code)) {
		case BPF_LD:
		case BPF_LDX:
			if (BPF_MODE(i->code) == BPF_ABS &&
			    i->k <= sizeof(*d) - 4 && !(i->k & 3))
				memcpy(&v, (const char *)d + i->k, 4);
			else if (BPF_MODE(i->code) == BPF_IMM)
				v = i->k;
			else if (BPF_MODE(i->code) == BPF_LEN)
				v = sizeof(*d);
			else if (BPF_MODE(i->code) == BPF_MEM &&
				 i->k < BPF_MEMWORDS)
				v = mem[i->k];
			else
				return SECCOMP_RET_KILL_PROCESS;
			*(BPF_CLASS(i->code) == BPF_LD ? &a : &x) = v;
			break;
		case BPF_ST:
		case BPF_STX:
			if (i->k >= BPF_MEMWORDS)
				return SECCOMP_RET_KILL_PROCESS;
			mem[i->k] = BPF_CLASS(i->code) == BPF_ST ? a : x;
			break;
		case BPF_ALU:
			if (!alu(i->code, &a, v))
				return SECCOMP_RET_KILL_PROCESS;
			break;
		case BPF_JMP:
			if (BPF_OP(i->code) == BPF_JA)
				pc += i->k;
			else
				pc += jump(i->code, a, v) ? i->jt : i->jf;
			break;
		case BPF_RET:
			return BPF_RVAL(i->code) == BPF_A ? a : i->k;
		default: /* BPF_MISC */
			if (BPF_MISCOP(i->code) == BPF_TAX)
				x = a;
			else
				a = x;
		}
	}
	return SECCOMP_RET_KILL_PROCESS;
}

/*
 * What loading, running and ending the agent takes, with arguments as they will be. It is
 * what a trace of these calls shows, and what the C library does at times: a filter that lists
 * what is allowed may kill for anything else.
 */
enum else_ok { NEEDED, OR_NOSYS /* the C library does without */, OR_ERROR /* nobody looks */ };
static const struct need {
	const char *name;
	int nr;
	uint64_t arg[6];
	enum else_ok other;
} needs[] = {
	{ "memfd_create", SYS_memfd_create, { 0, 3 }, NEEDED },
	{ "openat", SYS_openat, { (uint32_t)-100, 0, 0x80000 }, NEEDED },
	{ "read", SYS_read, { 3, 0, 832 }, NEEDED },
	{ "pread64", SYS_pread64, { 3, 0, 784, 64 }, NEEDED },
	{ "fstat", SYS_fstat, { 3 }, OR_NOSYS },
	{ "newfstatat", SYS_newfstatat, { 3, 0, 0, 0x1000 }, OR_NOSYS },
	{ "mmap", SYS_mmap, { 0, 65536, 1, 2, 3 }, NEEDED },
	{ "mmap", SYS_mmap, { 4096, 65536, 5, 0x812, 3 }, NEEDED },
	{ "mmap", SYS_mmap, { 0, 65536, 3, 1, 3 }, NEEDED },
	{ "mmap", SYS_mmap, { 0, 65536, 3, 0x22, (uint32_t)-1 }, NEEDED },
	{ "mmap", SYS_mmap, { 0, 524288, 0, 0x20022, (uint32_t)-1 }, NEEDED }, /* a stack */
	{ "mmap", SYS_mmap, { 0, 1 << 27, 0, 0x4022, (uint32_t)-1 }, OR_ERROR }, /* a heap */
	{ "mprotect", SYS_mprotect, { 4096, 4096, 1 }, NEEDED },
	{ "mprotect", SYS_mprotect, { 4096, 4096, 3 }, NEEDED },
	{ "munmap", SYS_munmap, { 4096, 4096 }, NEEDED },
	{ "brk", SYS_brk, { 0 }, NEEDED },
	{ "close", SYS_close, { 3 }, NEEDED },
	{ "rt_sigaction", SYS_rt_sigaction, { 33, 4096, 0, 8 }, OR_ERROR },
	{ "rt_sigreturn", SYS_rt_sigreturn, { 0 }, NEEDED },
	{ "rt_sigprocmask", SYS_rt_sigprocmask, { 0, 0, 0, 8 }, NEEDED },
	{ "rt_sigprocmask", SYS_rt_sigprocmask, { 2, 4096, 0, 8 }, NEEDED },
	{ "clone", SYS_clone, { 0x3d0f00 }, NEEDED },
	{ "clone3", SYS_clone3, { 0, 88 }, OR_NOSYS },
	{ "set_robust_list", SYS_set_robust_list, { 0, 24 }, OR_NOSYS },
	{ "rseq", -1 /* pt_arch.rseq */, { 0, 32, 0, 0x53053053 }, OR_NOSYS },
	{ "futex", SYS_futex, { 0, 0x80 }, NEEDED },
	{ "futex", SYS_futex, { 0, 0x81, 1 }, NEEDED },
	{ "futex", SYS_futex, { 4096, 0, 1, 4096 }, NEEDED }, /* the agent's wait */
	{ "futex", SYS_futex, { 4096, 0x109 }, NEEDED }, /* pthread_join()'s */
	{ "madvise", SYS_madvise, { 4096, 4096, 4 }, NEEDED },
	{ "madvise", SYS_madvise, { 4096, 4096, 10 }, OR_ERROR },
	{ "gettid", SYS_gettid, { 0 }, NEEDED },
	{ "getpid", SYS_getpid, { 0 }, NEEDED },
	{ "nanosleep", SYS_clock_nanosleep, { 1 }, NEEDED },
	{ "fcntl", SYS_fcntl, { 3, 1 }, NEEDED },
	{ "fcntl", SYS_fcntl, { 3, 1034 }, NEEDED },
	{ "prctl", SYS_prctl, { 15, 4096 }, OR_ERROR },
	{ "sched_yield", SYS_sched_yield, { 0 }, OR_ERROR },
	{ "tgkill", SYS_tgkill, { 2, 2, 0 }, NEEDED },
	{ "exit", SYS_exit, { 0 }, NEEDED },
};

static bool allows(const struct sock_filter *f, size_t n, const struct need *w)
{
	struct seccomp_data d = { .nr = w->nr < 0 ? pt_arch.rseq : w->nr, .arch = pt_arch.audit };
	uint32_t ret;

	memcpy(d.args, w->arg, sizeof(d.args));
	ret = pt_cbpf_run(f, n, &d);
	if (w->other == OR_NOSYS && ret == (SECCOMP_RET_ERRNO | ENOSYS))
		return true;
	if (w->other == OR_ERROR && (ret & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO)
		return true;
	return ret == SECCOMP_RET_ALLOW;
}

static int check_filter(const struct sock_filter *f, size_t n, struct pt_err *err)
{
	size_t i;

	for (i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
		if (!allows(f, n, &needs[i]))
			return pt_err_set(err, -EOPNOTSUPP, "its seccomp filter does not "
					  "allow the system call %s", needs[i].name);
	return 0;
}

int pt_inj_filter_allows(struct pt_seccomp *s, pid_t tid, struct pt_err *err)
{
	const struct sock_filter *f;
	unsigned k;
	int n = 1;

	for (k = 0; n > 0; k++) {
		n = pt_seccomp_filter(s, tid, k, &f);
		if (n > 0 && check_filter(f, (size_t)n, err))
			return -EOPNOTSUPP;
	}
	if (!n && k > 1)
		return 0; /* that was the last */
	if (n == -E2BIG)
		return pt_err_set(err, -EOPNOTSUPP, "it has too many seccomp filters");
	return pt_err_set(err, -EOPNOTSUPP, "it is filtered by seccomp, and what the filter "
			  "allows cannot be read: %s", strerror(n ? -n : ENODATA));
}
