// SPDX-License-Identifier: BSD-2-Clause
/* Filters of system calls. */
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/privileges.h"

/* What no command of this program does. */
static const int harm[] = {
	SCMP_SYS(process_vm_writev), SCMP_SYS(process_madvise), SCMP_SYS(init_module),
	SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load), SCMP_SYS(reboot), SCMP_SYS(swapon), SCMP_SYS(swapoff),
	SCMP_SYS(acct), SCMP_SYS(quotactl), SCMP_SYS(mount), SCMP_SYS(umount2),
	SCMP_SYS(move_mount), SCMP_SYS(open_tree), SCMP_SYS(fsopen), SCMP_SYS(fsconfig),
	SCMP_SYS(fsmount), SCMP_SYS(fspick), SCMP_SYS(mount_setattr), SCMP_SYS(pivot_root),
	SCMP_SYS(chroot), SCMP_SYS(setns), SCMP_SYS(unshare), SCMP_SYS(settimeofday),
	SCMP_SYS(clock_settime), SCMP_SYS(clock_adjtime), SCMP_SYS(adjtimex), SCMP_SYS(iopl),
	SCMP_SYS(ioperm), SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(keyctl),
	SCMP_SYS(userfaultfd), SCMP_SYS(io_uring_setup), SCMP_SYS(open_by_handle_at),
	SCMP_SYS(mknod), SCMP_SYS(mknodat), SCMP_SYS(sethostname), SCMP_SYS(setdomainname),
	SCMP_SYS(vhangup), SCMP_SYS(personality), SCMP_SYS(setuid), SCMP_SYS(setreuid),
	SCMP_SYS(setresuid), SCMP_SYS(setgid), SCMP_SYS(setregid), SCMP_SYS(setresgid),
	SCMP_SYS(setgroups), SCMP_SYS(setfsuid), SCMP_SYS(setfsgid), SCMP_SYS(ioprio_set),
	SCMP_SYS(move_pages), SCMP_SYS(migrate_pages),
};
static const int trace[] __attribute__((unused)) = { SCMP_SYS(ptrace) };
/* What turning files into files, and looking at a process from outside, do not need. */
static const int reach[] = {
	SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(execve), SCMP_SYS(execveat),
	SCMP_SYS(socket), SCMP_SYS(pidfd_open), SCMP_SYS(pidfd_getfd),
	SCMP_SYS(pidfd_send_signal), SCMP_SYS(sched_setscheduler), SCMP_SYS(sched_setattr),
	SCMP_SYS(fanotify_init),
};
/* ... and only looking does */
static const int looking[] = { SCMP_SYS(process_vm_readv), SCMP_SYS(capset) };
/* Other ways than open() to make or change a file. */
static const int change[] = {
	SCMP_SYS(creat), SCMP_SYS(openat2), SCMP_SYS(truncate), SCMP_SYS(rename),
	SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(link), SCMP_SYS(linkat),
	SCMP_SYS(symlink), SCMP_SYS(symlinkat), SCMP_SYS(unlink), SCMP_SYS(unlinkat),
	SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir), SCMP_SYS(chmod),
	SCMP_SYS(fchmod), SCMP_SYS(fchmodat), SCMP_SYS(chown), SCMP_SYS(lchown),
	SCMP_SYS(fchown), SCMP_SYS(fchownat), SCMP_SYS(setxattr), SCMP_SYS(lsetxattr),
	SCMP_SYS(fsetxattr), SCMP_SYS(removexattr), SCMP_SYS(lremovexattr),
	SCMP_SYS(fremovexattr), SCMP_SYS(utime), SCMP_SYS(utimes), SCMP_SYS(futimesat),
	SCMP_SYS(utimensat), SCMP_SYS(bind) /* a socket's name */,
	/* younger than the headers that we build with; the same number on every machine */
	452 /* fchmodat2 */, 463 /* setxattrat */, 466 /* removexattrat */, 469 /* file_setattr */,
};
/* Signals to others; abort() sends its own by tgkill(). */
static const int signals[] = {
	SCMP_SYS(kill), SCMP_SYS(tkill), SCMP_SYS(rt_sigqueueinfo), SCMP_SYS(rt_tgsigqueueinfo),
};
/* What a parser of open files needs. */
static const int parser[] = {
	SCMP_SYS(read), SCMP_SYS(pread64), SCMP_SYS(write), SCMP_SYS(recvmsg),
	SCMP_SYS(sendmsg), SCMP_SYS(sendto), SCMP_SYS(recvfrom), SCMP_SYS(close),
	SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(lseek), SCMP_SYS(brk),
	SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(futex),
	SCMP_SYS(clock_gettime), SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(sched_yield), SCMP_SYS(restart_syscall), SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

#define N(v) (sizeof(v) / sizeof(*(v)))

static int each(scmp_filter_ctx c, uint32_t action, const int *v, size_t n)
{
	size_t i;
	int ret = 0;

	/* a call that this machine's kind does not have needs no rule */
	for (i = 0; i < n && !ret; i++)
		if (v[i] >= 0)
			ret = seccomp_rule_add(c, action, v[i], 0);
	return ret;
}

static int allow(scmp_filter_ctx c)
{
	int ret = each(c, SCMP_ACT_ALLOW, parser, N(parser));

	/* memory, but none that is run */
	return ret ?: seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
				       SCMP_A2(SCMP_CMP_MASKED_EQ, 4 /* PROT_EXEC */, 0));
}

/* The one ioctl() that looking needs: capture/maps.c asks for a mapping. Others set a file's
 * flags. */
#define PROCMAP_QUERY 0xc0686611u

/* Opening is for reading. */
static int only_read(scmp_filter_ctx c)
{
	static const uint64_t ways[][2] = { { O_ACCMODE, O_WRONLY }, { O_ACCMODE, O_RDWR },
					    { O_ACCMODE, O_ACCMODE }, { O_CREAT, O_CREAT },
					    { O_TRUNC, O_TRUNC } };
	uint32_t no = SCMP_ACT_ERRNO(EPERM);
	int ret = each(c, no, change, N(change));
	size_t i;

	ret = ret ?: seccomp_rule_add(c, no, SCMP_SYS(ioctl), 1,
				      SCMP_A1(SCMP_CMP_NE, PROCMAP_QUERY));
	for (i = 0; i < N(ways) && !ret; i++) {
		ret = seccomp_rule_add(c, no, SCMP_SYS(openat), 1,
				       SCMP_A2(SCMP_CMP_MASKED_EQ, ways[i][0], ways[i][1]));
		if (!ret && SCMP_SYS(open) >= 0)
			ret = seccomp_rule_add(c, no, SCMP_SYS(open), 1,
					       SCMP_A1(SCMP_CMP_MASKED_EQ, ways[i][0], ways[i][1]));
	}
	return ret;
}

/* A signal is for this process itself: not by asking a descriptor to send one, either. */
static int only_itself(scmp_filter_ctx c)
{
	static const int owner[] = { F_SETOWN, F_SETOWN_EX };
	uint32_t no = SCMP_ACT_ERRNO(EPERM);
	int ret = each(c, no, signals, N(signals));
	size_t i;

	for (i = 0; i < N(owner) && !ret; i++)
		ret = seccomp_rule_add(c, no, SCMP_SYS(fcntl), 1,
				       SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, (uint64_t)owner[i]));
	return ret ?: seccomp_rule_add(c, no, SCMP_SYS(tgkill), 1,
				       SCMP_A0(SCMP_CMP_NE, (uint64_t)getpid()));
}

/* When and where others run: a thread decides it of itself only, and so by a zero. */
static int only_own_turn(scmp_filter_ctx c)
{
	static const int of[] = { SCMP_SYS(sched_setscheduler), SCMP_SYS(sched_setattr),
				  SCMP_SYS(sched_setparam), SCMP_SYS(sched_setaffinity) };
	uint32_t no = SCMP_ACT_ERRNO(EPERM);
	int ret = seccomp_rule_add(c, no, SCMP_SYS(setpriority), 1,
				   SCMP_A0(SCMP_CMP_NE, PRIO_PROCESS));
	size_t i;

	ret = ret ?: seccomp_rule_add(c, no, SCMP_SYS(setpriority), 1, SCMP_A1(SCMP_CMP_NE, 0));
	for (i = 0; i < N(of) && !ret; i++)
		ret = seccomp_rule_add(c, no, of[i], 1, SCMP_A0(SCMP_CMP_NE, 0));
	return ret;
}

static int refuse(scmp_filter_ctx c, enum pt_filter f)
{
	uint32_t no = SCMP_ACT_ERRNO(EPERM);
	int ret = each(c, no, harm, N(harm)) ?: only_own_turn(c);

#ifndef __SANITIZE_ADDRESS__ /* whose search for leaks stops threads by it */
	if (!ret && f != PT_FILTER_INJECT)
		ret = each(c, no, trace, N(trace));
#endif
	if (!ret && (f == PT_FILTER_FILES || f == PT_FILTER_LOOK))
		ret = each(c, no, reach, N(reach));
	if (!ret && f == PT_FILTER_FILES)
		ret = each(c, no, looking, N(looking));
	if (!ret && f == PT_FILTER_LOOK)
		ret = only_read(c) ?: only_itself(c);
	return ret;
}

char *pt_syscall_name(int nr)
{
	return seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);
}

int pt_filter_set(enum pt_filter f, struct pt_err *err)
{
	bool strict = f == PT_FILTER_PARSER;
	scmp_filter_ctx c = seccomp_init(strict ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_ALLOW);
	int ret = -ENOMEM;

	if (!c)
		goto out;
	ret = strict ? allow(c) : refuse(c, f);
	ret = ret ?: seccomp_attr_set(c, SCMP_FLTATR_API_SYSRAWRC, 1);
	if (!ret) {
		ret = seccomp_load(c);
		if (ret == -EINVAL || ret == -ENOSYS) /* a kernel without it */
			ret = 0;
	}
	seccomp_release(c);
out:
	return ret ? pt_err_set(err, ret, "cannot filter system calls: %s", strerror(-ret)) : 0;
}
