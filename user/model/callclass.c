/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/callclass.h"

#include "abi.h"
#include "model/syscalls.h"

#define CALLS 512
#define C(name, c) [PT_NR_##name] = PT_C_##c
#define CC(name, c, more) [PT_NR_##name] = PT_C_##c | PT_C_##more

static const uint32_t classes[CALLS] = {
	/* bytes, of descriptors that may be anything */
	C(write, PUT), C(pwrite64, PUT), C(writev, PUT), C(pwritev, PUT),
	C(pwritev2, PUT),
	CC(fsync, PUT, SYNC), CC(fdatasync, PUT, SYNC),
	CC(sync_file_range, PUT, SYNC), CC(ftruncate, PUT, SYNC),
	CC(truncate, PUT, SYNC), CC(fallocate, PUT, SYNC), CC(msync, PUT, SYNC),
	CC(sync, PUT, SYNC), CC(syncfs, PUT, SYNC),
	CC(sendto, PUT, SOCK), CC(sendmsg, PUT, SOCK), CC(sendmmsg, PUT, SOCK),
	C(read, TAKE), C(pread64, TAKE), C(readv, TAKE), C(preadv, TAKE),
	C(preadv2, TAKE),
	CC(recvfrom, TAKE, SOCK), CC(recvmsg, TAKE, SOCK),
	CC(recvmmsg, TAKE, SOCK),
	C(splice, MOVE), C(sendfile, MOVE), C(tee, MOVE), C(vmsplice, MOVE),
	C(copy_file_range, MOVE),
	CC(connect, CONNECT, SOCK),
	CC(accept, ACCEPT, SOCK), CC(accept4, ACCEPT, SOCK),
	CC(shutdown, CLOSE, SOCK),
	C(close, CLOSE), C(close_range, CLOSE), C(dup2, CLOSE), C(dup3, CLOSE),
	C(poll, POLL), C(ppoll, POLL), C(select, POLL), C(pselect6, POLL),
	C(epoll_wait, POLL), C(epoll_pwait, POLL), C(epoll_pwait2, POLL),
	C(io_uring_enter, URING),
	/* a ring's polling thread has the call that it came from */
	C(io_uring_setup, URING),
	C(flock, LOCK), C(fcntl, LOCK),
	/* files and memory */
	C(open, FILE), C(openat, FILE), C(openat2, FILE), C(creat, FILE),
	C(stat, FILE), C(fstat, FILE), C(lstat, FILE), C(newfstatat, FILE),
	C(statx, FILE), C(access, FILE), C(getdents, FILE), C(getdents64, FILE),
	C(readlink, FILE), C(lseek, FILE), C(unlink, FILE), C(unlinkat, FILE),
	C(rename, FILE), C(renameat, FILE), C(renameat2, FILE), C(mkdir, FILE),
	C(mkdirat, FILE), C(rmdir, FILE), C(link, FILE), C(linkat, FILE),
	C(symlink, FILE), C(symlinkat, FILE),
	C(mmap, MEMORY), C(munmap, MEMORY), C(mprotect, MEMORY),
	C(mremap, MEMORY), C(brk, MEMORY), C(madvise, MEMORY),
	/* tasks, and what is between them */
	C(exit, EXIT), C(exit_group, EXIT),
	C(execve, EXEC), C(execveat, EXEC),
	C(fork, FORK), C(vfork, FORK), C(clone, FORK), C(clone3, FORK),
	C(futex, FUTEX), C(futex_wake, FUTEX), C(futex_wait, FUTEX),
	C(futex_waitv, FUTEX), C(futex_requeue, FUTEX),
	C(semop, SEM), C(semtimedop, SEM), C(semctl, SEM),
	C(msgsnd, MSG_PUT), C(mq_timedsend, MSG_PUT),
	C(msgrcv, MSG_TAKE), C(mq_timedreceive, MSG_TAKE),
	C(msgctl, MSG_CTL),
	C(kill, KILL), C(tkill, KILL), C(tgkill, KILL),
	C(rt_sigqueueinfo, KILL), C(rt_tgsigqueueinfo, KILL),
	C(pidfd_send_signal, KILL),
	C(wait4, CHILD), C(waitid, CHILD),
	C(pause, SIGNAL), C(rt_sigtimedwait, SIGNAL), C(rt_sigsuspend, SIGNAL),
	C(nanosleep, SLEEP), C(clock_nanosleep, SLEEP),
};

uint32_t pt_call_class(int nr)
{
	if (nr == PT_SYSCALL_NONE)
		return PT_C_NONE;
	if (nr < 0 || nr >= CALLS || !classes[nr])
		return PT_C_OTHER;
	return classes[nr];
}
