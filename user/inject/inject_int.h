/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of the injector; for user/gpu/inject*.c only. */
#ifndef PT_INJECT_INT_H
#define PT_INJECT_INT_H

#include <signal.h>
#include <stddef.h>
#include <sys/user.h>

#include "base/clock.h"
#include "inject/inject.h"

void pt_inj_sleep_us(unsigned us);

/* ---- maps.c: what is mapped where, and functions in it ------------------- */

struct pt_map {
	uint64_t start, end, offset, inode;
	uint32_t dev; /* (major << 20) | minor */
	bool r, w, x;
	uint32_t path; /* into `names`; 0: none */
};

struct pt_maps {
	struct pt_map *v; /* ascending */
	size_t n, cap;
	char *names; /* NUL-separated; the first is empty */
	size_t names_len, names_cap;
};

/* 0, -ESRCH, -EACCES, -ENOMEM, -E2BIG. Free with pt_maps_free(), also after an
 * error. */
int pt_maps_read(pid_t pid, struct pt_maps *m);
void pt_maps_free(struct pt_maps *m);
/* The mapping that holds the address, or NULL. */
const struct pt_map *pt_maps_at(const struct pt_maps *m, uint64_t addr);
const char *pt_maps_path(const struct pt_maps *m, const struct pt_map *at);
/* The base name of a path is one of glibc's (libc.so.6, libc-2.31.so). */
bool pt_is_glibc(const char *path);
bool pt_is_musl(const char *path);
/*
 * Addresses in the process of functions of the file that is mapped for execution
 * at `x`; 0: absent, or not within the mapping. How many were found, or -errno.
 */
int pt_maps_symbols(pid_t pid, const struct pt_maps *m, const struct pt_map *x,
		    const char *const *names, size_t n, uint64_t *addr);

/* What of the C library is needed; addresses in the process. */
struct pt_libc {
	uint64_t begin, end; /* its text */
	uint64_t restorer;   /* calls rt_sigreturn() */
	uint64_t back;	     /* a function that does nothing but return; 0: not needed */
	uint64_t sys;	     /* syscall(), whose arguments are those of the call */
	uint64_t errno_at;   /* __errno_location() */
	uint64_t dlopen, dlclose;
	uint64_t dlerror; /* 0: none */
	bool old_dlopen;     /* __libc_dlopen_mode(): its mode has a bit more */
	uint64_t wait[8];    /* functions that wait; 0 absent */
};
extern const char *const pt_libc_waits[8];
/* 0 or -EOPNOTSUPP/-errno with a sentence. */
int pt_libc_find(pid_t pid, const struct pt_maps *m, struct pt_libc *out,
		 struct pt_err *err);

/* GPU functions to stop at, the best first; name[i] are constants. */
#define PT_GPU_POINTS 12
size_t pt_gpu_points(pid_t pid, uint64_t addr[PT_GPU_POINTS],
		     const char *name[PT_GPU_POINTS]);

/* ---- check.c: processes that are refused --------------------------------- */
/* Everything that can be told from /proc. 0 or -errno with a sentence. */
int pt_inj_allowed(pid_t pid, struct pt_err *err);
/* The process uses seccomp, so that its filter must be asked. */
bool pt_inj_filtered(pid_t pid);
/* The thread's filters allow every call that we need. */
struct pt_seccomp;
int pt_inj_filter_allows(struct pt_seccomp *s, pid_t tid, struct pt_err *err);

struct sock_filter;
struct seccomp_data;
/* What a filter returns (SECCOMP_RET_*); a program that is not sound kills. */
uint32_t pt_cbpf_run(const struct sock_filter *f, size_t n,
		     const struct seccomp_data *d);

/* ---- arch_*.c: what differs between processors --------------------------- */

#define PT_XSTATE_MAX 16384
#define PT_FRAME_MAX (PT_XSTATE_MAX + 2048)
#define PT_SCRATCH 256 /* bytes for names, between the red zone and the frame */

struct pt_frame {
	unsigned char bytes[PT_FRAME_MAX];
	size_t len;
	uint64_t at;	  /* where they belong: what the stack pointer is when a call begins */
	uint64_t scratch; /* address of the room for names */
};

/*
 * The signal frame from which rt_sigreturn() restores `regs`, `xstate` (as
 * PTRACE_GETREGSET gives it) and `mask`, below `regs->rsp`. Pure. 0, -E2BIG, or
 * -EINVAL: the state is not one that this knows.
 */
int pt_frame_make(struct pt_frame *f, const struct user_regs_struct *regs,
		  const void *xstate, size_t xlen, uint64_t mask,
		  const struct pt_libc *libc);

extern const struct pt_arch {
	uint32_t audit; /* AUDIT_ARCH_* */
	int rseq;	/* its number, which older headers do not have */
	int state;	/* set of registers that a signal frame has beside the common ones */
	unsigned points; /* PT_POINT_* that there are */
	const char *back; /* a function of the loader that does nothing: calls return to it,
			   * where they can be stopped with their result. NULL: they are
			   * stopped in rt_sigreturn(), which leaves the result alone */
	unsigned char restorer[16]; /* code of the way back from a signal handler */
	size_t restorer_len;
	bool restorer_in_vdso; /* else in the C library */
	unsigned address_bits; /* of a program's */
} pt_arch;

#ifdef __aarch64__
/* An address that a program has kept may be signed above its bits. */
#define PT_ADDRESS(word) ((word) & ((1ull << 48) - 1))
#define PT_REGS_IP(r) ((r)->pc)
#define PT_REGS_SP(r) ((r)->sp)
#else
#define PT_ADDRESS(word) (word)
#define PT_REGS_IP(r) ((r)->rip)
#define PT_REGS_SP(r) ((r)->rsp)
/* ---- inject.c to job.c: the work itself, in the process that ends with it ---- */

/* *touched becomes 1 when a thread is borrowed. */
int pt_inject_work(const struct pt_inject_opts *o, bool retract,
		   struct pt_injected *io, struct pt_err *err, uint32_t *touched);

/* ---- agent_blob.c: the agent library's bytes, as built: to be written into a memfd ---- */

/* Static; *len in bytes. An ELF shared object for this processor. */
const void *pt_agent_blob(size_t *len);

#endif

struct pt_thread_hold;
/* No call may be placed on the thread as it is now: why. -errno: it cannot be told. */
int pt_arch_bad(struct pt_thread_hold *h, const char **why);
uint64_t pt_arch_tls(struct pt_thread_hold *h); /* its control block; 0: not known */
/* `ip` is where the first instruction of the function at `addr` leads. */
bool pt_arch_behind(const unsigned char code[16], uint64_t addr, uint64_t ip);
/* Where the function goes back to behind whose first instruction it is. 0 or -errno. */
int pt_arch_caller(struct pt_thread_hold *h, const unsigned char code[16], uint64_t *out);
/* `regs` as they are when `fn` begins, to go back into the frame. */
void pt_arch_call(struct user_regs_struct *regs, uint64_t fn, const uint64_t *arg, size_t n,
		  const struct pt_frame *frame, const struct pt_libc *libc);
/* Is it back, with which result? */
bool pt_arch_returned(const struct pt_thread_hold *h, const struct pt_frame *frame,
		      const struct pt_libc *libc, int64_t *out);
/* Stopped at the beginning of a system call: it is not made. Its registers are set
 * before. 0 or -errno. */
int pt_arch_no_call(struct pt_thread_hold *h);
/* Stopped inside of a wait that returned only for us: the registers are set back to
 * where it begins. -EAGAIN: it is not that wait any more. */
int pt_arch_rewind(struct pt_thread_hold *h, uint64_t nr, const uint64_t arg[6]);

/* ---- stop.c: places where a thread is stopped ------------------------------ */

#define PT_STOPS 24 /* fewer than the bits of a mask */

struct pt_stop {
	uint64_t addr; /* entry of a function in the process */
	const char *name;
	bool libc;  /* a waiting function of the C library */
	bool there; /* it has a probe */
	unsigned char code[16]; /* how it begins, in the file */
};

struct pt_stop_cell;
struct pt_stops {
	struct pt_stop v[PT_STOPS];
	size_t n;
	int prog, map, sig;
	bool multi; /* by multi-uprobe links; else by perf events */
	struct pt_stop_cell *cell;
	int fd[2 * PT_STOPS];
	size_t n_fd;
};

/* 0 or -errno with a sentence; pt_stops_close() also after an error. */
int pt_stops_open(struct pt_stops *s, int sig, struct pt_err *err);
/* The new point's index, or -E2BIG. */
int pt_stops_point(struct pt_stops *s, uint64_t addr, const char *name, bool libc);
/* Put the probes there. Until they are armed they do nothing. 0 or -errno. */
int pt_stops_attach(struct pt_stops *s, pid_t pid, const struct pt_maps *m);
/* From now on the points with these bits count: of the thread `only` (as the kernel counts
 * it; 0: of all). `stop`: it gets the signal; else it is only noted. */
void pt_stops_arm(struct pt_stops *s, uint32_t points, pid_t only, bool stop);
/* A thread that has passed one, as the kernel counts; 0 none since the last call. */
pid_t pt_stops_hit(struct pt_stops *s);
/* The point behind whose first instruction a thread is. */
const struct pt_stop *pt_stops_at(const struct pt_stops *s, uint32_t points, uint64_t ip);
/* They count no more; the end of this process takes them out. */
void pt_stops_close(struct pt_stops *s);

/* ---- thread.c: one thread, seized ---------------------------------------- */

struct pt_thread_hold {
	pid_t pid, tid;
	int mem; /* /proc/PID/mem */
	bool seized, stopped, gone;
	int sig;	  /* ours */
	int pass;	  /* a signal to deliver when it goes on */
	bool in_group_stop;
	bool in_syscall;  /* stopped inside a call, by the interrupt */
	uint64_t stopped_ns; /* when that was seen */
	struct user_regs_struct regs;
};

int pt_hold_seize(struct pt_thread_hold *h, struct pt_err *err);
/*
 * Wait until it stops with our signal, passing on everything else. 0 stopped;
 * -ETIMEDOUT; -ESRCH.
 */
int pt_hold_wait(struct pt_thread_hold *h, uint64_t deadline, bool trace_calls);
/* Stop it where it is. 0 stopped (h->regs), or -errno. */
int pt_hold_interrupt(struct pt_thread_hold *h, uint64_t deadline);
int pt_hold_cont(struct pt_thread_hold *h, bool trace_calls);
int pt_hold_set(struct pt_thread_hold *h, const struct user_regs_struct *regs);
/* Let it go as it is; a running one is let go by the end of this process. */
void pt_hold_release(struct pt_thread_hold *h);
int pt_hold_read(struct pt_thread_hold *h, uint64_t at, void *buf, size_t len);
int pt_hold_write(struct pt_thread_hold *h, uint64_t at, const void *buf,
		  size_t len);

/* ---- safe.c: is this a safe point? --------------------------------------- */
/*
 * 0; or -EAGAIN, where another moment may be: `why` says (static text).
 * `at`: the function that it has just entered, NULL none. Of a waiting one the caller
 * counts.
 */
int pt_safe_here(struct pt_thread_hold *h, const struct pt_maps *m,
		 const struct pt_libc *libc, const struct pt_stop *at, const char **why);
/* The wait that the thread is in may be begun anew: without end, or until an
 * absolute time. By its number and arguments. */
bool pt_safe_wait(uint64_t nr, const uint64_t arg[6]);

/* ---- point.c: find one --------------------------------------------------- */
struct pt_place {
	struct pt_thread_hold hold;
	struct pt_maps maps; /* as of the stop */
	struct pt_libc libc;
	struct pt_stops stops; /* none is armed again */
	pid_t kernel_tid;      /* the thread, as the kernel counts; 0: not known */
	int back;	       /* the point that a call returns to; -1: a system call is */
	char name[64];
};
int pt_place_find(const struct pt_inject_opts *o, struct pt_place *p,
		  struct pt_err *err);
void pt_place_close(struct pt_place *p);

/* ---- call.c: borrowed calls ---------------------------------------------- */
struct pt_calls {
	struct pt_place *p;
	const struct pt_inject_opts *o;
	struct pt_frame *frame;
	uint64_t stopped_ns;
	int saved_errno;
	uint64_t errno_addr;
	bool sent; /* the first call's registers have been set */
	size_t names; /* bytes of the room for names that are taken */
	enum pt_inject_stage inside; /* told once a call has begun; 0: none */
};
/* Lay the way back. */
int pt_calls_begin(struct pt_calls *c, struct pt_err *err);
/* Call `fn` with up to six arguments. 0; -ETIMEDOUT: it goes on by itself;
 * -ESRCH. */
int pt_call(struct pt_calls *c, uint64_t fn, const uint64_t *arg, size_t n,
	    int64_t *ret);
/* Put a name where a call's argument can point; its address. */
int pt_calls_name(struct pt_calls *c, const char *text, uint64_t *addr);
void pt_calls_end(struct pt_calls *c);

static inline void pt_stage(const struct pt_inject_opts *o,
			    enum pt_inject_stage s)
{
	if (o->stage)
		o->stage(o->ctx, s);
}

/* ---- inject.c to job.c: the work itself, in the process that ends with it ---- */

/* *touched becomes 1 when a thread is borrowed. */
int pt_inject_work(const struct pt_inject_opts *o, bool retract,
		   struct pt_injected *io, struct pt_err *err, uint32_t *touched);

/* ---- agent_blob.c: the agent library's bytes, as built: to be written into a memfd ---- */

/* Static; *len in bytes. An ELF shared object for this processor. */
const void *pt_agent_blob(size_t *len);

#endif
