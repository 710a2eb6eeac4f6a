/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the model holds, for the analysis to read: processes, their threads,
 * off-CPU intervals, GPU calls, reads, files, samples. Times are
 * CLOCK_MONOTONIC nanoseconds.
 */
#ifndef PT_TIMELINE_H
#define PT_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi.h"
#include "base/hash.h"
#include "base/vec.h"
#include "gpu/api.h"

/* Why a thread was off the CPU, as far as its own record tells. Who fed the
 * pipe, or whom the futex belongs to, is the analysis' business. */
enum pt_wait {
	PT_WAIT_RUNQ = 0,   /* runnable all along (preempted) */
	PT_WAIT_DISK,	    /* read, open, stat, ... of a file */
	PT_WAIT_DISK_WRITE, /* write, fsync */
	PT_WAIT_FAULT,	    /* page fault with I/O or a lock; object: the
			     * mapped file, or none */
	PT_WAIT_PIPE_IN,    /* read or poll of a pipe */
	PT_WAIT_PIPE_OUT,   /* write to a full pipe */
	PT_WAIT_SOCK,	    /* socket, either way */
	PT_WAIT_FUTEX,
	PT_WAIT_SLEEP,	    /* nanosleep */
	PT_WAIT_POLL,	    /* poll, epoll, select on something else */
	PT_WAIT_STOPPED,    /* SIGSTOP, ptrace */
	PT_WAIT_OTHER,
	PT_WAIT_FLOCK,	    /* flock(), or a lock by fcntl() */
	PT_WAIT_CHILD,	    /* the end of a child, or of its vfork() */
	PT_WAIT_MSGQ,	    /* System V's or POSIX' message queue, either way */
	PT_WAIT_SEM,	    /* System V semaphores; POSIX' are futexes */
	PT_WAIT_EVENT,	    /* read or write of an eventfd, timerfd, signalfd, ... */
	PT_WAIT_INODE_LOCK, /* a file call, while another thread's call on that
			     * file (or in that folder) had it locked */
	PT_WAIT_RECLAIM,    /* memory had to be freed first */
	PT_WAIT_URING,	    /* completions of an io_uring; of reads from a disk
			     * that an interrupt completed: DISK */
	PT_WAIT_SIGNAL,	    /* pause, sigsuspend, sigtimedwait */
	PT_WAIT_NR
};

/* What ended a wait. Of the first group the waker in the interval did it. */
enum pt_wake {
	PT_WAKE_NONE = 0, /* not seen, not over, or nobody can tell */
	PT_WAKE_DATA,	  /* it put something where the thread waits: bytes, a
			   * message, a connection, or their end */
	PT_WAKE_ROOM,	  /* it took something away: there is room to write, or
			   * it read what the thread had written. Ends no wait
			   * for data: half of a socket's wake-ups are such */
	PT_WAKE_LOCK,	  /* it gave a lock back: of a file, an inode, memory */
	PT_WAKE_FUTEX,	  /* it woke a futex or posted a semaphore */
	PT_WAKE_CHILD,	  /* it ended (a child, a joined thread), or a child by
			   * vfork() gave the memory back */
	PT_WAKE_SIGNAL,	  /* it sent a signal: says nothing of data */
	PT_WAKE_OTHER,	  /* it did it, in a call that is none of these */
	/* ... here nobody of this machine did, or nobody knows who. */
	PT_WAKE_TIMER,	  /* the sleep was over, or its time-out */
	PT_WAKE_DEVICE,	  /* an interrupt, or a thread of the kernel: a disk's
			   * completion or the network's, as the wait says */
	PT_WAKE_NR
};

/* One off-CPU interval: blocked in [begin, ready), on the run queue in
 * [ready, end). ready == begin when preempted; ready == end when the wake-up
 * was not seen. */
struct pt_iv {
	uint64_t begin, ready, end;
	uint64_t object;
	uint64_t waker_object;
	uint64_t arg0;
	uint32_t dev;
	uint32_t waker_tid, waker_tgid;
	int16_t syscall, waker_syscall;
	uint8_t wait; /* enum pt_wait */
	uint8_t wake; /* enum pt_wake */
	uint8_t obj_kind, waker_obj_kind;
	bool open : 1;		/* not over when the capture ended */
	bool since_unknown : 1; /* began before begin */
	bool gap_before : 1; /* records of this thread are missing before it */
	bool valid_wake : 1; /* the waker did it; else it is only whoever ran
			      * where an interrupt came */
	uint8_t sock;	     /* PT_IV_SOCK_* */
	uint64_t rchar, read_bytes, wchar; /* cumulative, at `end` */
};

/* Waits on sockets: began between a request and its answer; as the one before;
 * of the socket that was ready first when an epoll wait ended. */
#define PT_IV_SOCK_AWAITED 1
#define PT_IV_SOCK_AGAIN 2
#define PT_IV_SOCK_FIRST_READY 4
#define PT_IV_SOCK_INSIDE 8 /* a Unix socket to a process of the target */

struct pt_gpu_call {
	uint64_t begin, end; /* end == begin where the return is not watched */
	uint64_t stream;
	uint64_t v[3];
	int64_t ret;   /* INT64_MIN: not watched or not seen */
	uint32_t tid;
	uint16_t api;
	uint8_t cls;   /* enum pt_api_class */
	bool open;     /* has not returned when the capture ended */
	bool late;     /* entered before the capture: begin and arguments are
			* not known */
	bool implied;  /* none that was made: a sleep until a function of the host
			* ran on a stream (hostfuncs.c) */
};

/* In pt_nvtx_event.op beside PT_NVTX_*: records of the thread are missing. */
#define PT_NVTX_GAP 0xff
struct pt_nvtx_event {
	uint64_t ts;
	uint64_t id;	  /* of a range, by START and END; 0 unknown */
	uint64_t domain;
	const char *text; /* the model's, each text once; NULL none, or unknown */
	uint32_t tid;
	uint8_t op;	  /* PT_NVTX_*, but for STRING and ID */
};

struct pt_nvtx_string {
	uint64_t handle;
	const char *text;
};

struct pt_read { /* one read call, or several short ones of one file */
	uint64_t begin, end, inode, offset;
	uint64_t busy; /* ns inside the calls; 0 where the door shows none */
	int64_t ret;   /* bytes of all; of a single call -errno, too */
	uint32_t dev, count;
	uint32_t fetched; /* from storage, sectors of 512; UINT32_MAX unknown */
	uint8_t obj_kind, door;
	uint8_t empty; /* calls without data (255: or more) */
	bool timed : 1;  /* busy is known */
	bool bound : 1;  /* ret is an upper bound */
	bool placed : 1; /* offset is known; what returned data was one run of
			  * bytes from there on ... */
	uint32_t more;	 /* ... but where this is not 0: scatters.v[more - 1] */
};

/* Where summed reads were that did not follow each other. */
struct pt_scatter {
	uint64_t low, high; /* all lie in [low, high) */
	uint64_t last;	    /* the last one ended there */
	int64_t stride;	    /* see struct pt_rec_reads, as the counts */
	uint32_t placed, contiguous, forward, backward, again, strided;
};

struct pt_write { /* write and fsync calls of one file, several at once */
	uint64_t begin, end, inode;
	uint64_t bytes, write_ns, fsync_ns, max_ns;
	uint32_t dev, writes, fsyncs;
	uint8_t door;
};

struct pt_fault_sum { /* page faults on one mapped file */
	uint64_t begin, end, inode, offset; /* offset: of the first's page */
	uint64_t bytes; /* brought into the page cache */
	uint32_t dev, count, major; /* major: brought pages in, or waited */
	bool text; /* of a program or library */
};

/* A runtime call inside a driver call inside ...; deeper ones lose their
 * return, not their entry. */
#define PT_INFLIGHT_MAX 8

/*
 * Ids. The kernel hands an id out again when its owner has gone. Here the
 * first owner has the kernel's id, the next one that and a number in the bits
 * that no id reaches (PID_MAX_LIMIT is 2^22): two threads never share a tid,
 * nor two processes a tgid, and wakers are told apart likewise. What is shown
 * to people is pt_real_id().
 */
#define PT_ID_BITS 22
#define PT_ID_REUSE_MAX ((1u << (32 - PT_ID_BITS)) - 1)
static inline uint32_t pt_real_id(uint32_t id)
{
	return id & ((1u << PT_ID_BITS) - 1);
}

/* A piece of work that a device did, measured there. */
#define PT_ACT_DEVICES 256 /* more ordinals are nonsense */
#define PT_ACT_NO_CALL UINT32_MAX
struct pt_act {
	uint64_t begin, end;
	uint64_t bytes;
	uint64_t name; /* KERNEL: for pt_act_name(); 0 none */
	uint32_t stream, correlation, graph;
	uint32_t call; /* index in pt_proc.gpu; PT_ACT_NO_CALL: not known */
	uint16_t device;
	uint8_t what; /* PT_ACT_KERNEL, COPY, MEMSET */
	uint8_t detail, flags;
};

/* While it lasted all work of the process' devices was recorded, but for what
 * was lost. Work that was submitted before its begin was not. */
struct pt_act_cover {
	uint64_t begin, end, lost;
	bool whole; /* nothing is on its way any more */
};

/* A line of the job's Python, in a function. */
struct pt_code_line {
	const char *name, *file; /* the model's */
	int line;		 /* 0: none is known */
	bool library; /* comes with the interpreter, or is installed beside it */
	bool native;  /* no Python: a library */
};

/* A stack is its innermost line and the stack that called it; ids. */
struct pt_code_stack {
	uint32_t caller, line; /* caller 0: none; else a lower one */
	uint16_t flags;	       /* PT_PYSTACK_* */
	uint16_t called_at;    /* the caller's instruction; see PT_PYSTACK_AT */
};

/* A thread's stack, read from outside between `begin` and `end`. */
struct pt_code_look {
	uint64_t begin, end;
	uint32_t stack;
	uint32_t leaf; /* the stack with the native library below it, if there is one; or it */
	uint32_t place; /* in that library; pt_model_function() */
	bool running; /* at `begin`, by what /proc said */
};

struct pt_thread {
	uint32_t tid, tgid, start;
	struct pt_proc *proc;
	char comm[PT_COMM_LEN];
	uint64_t first, last; /* observed within; last = exit or end mark */
	const struct pt_thread *parent; /* that made it at `first`; NULL: not seen */
	bool exited;
	bool kept;   /* somebody points to it: it is not folded */
	bool folded; /* ... is about to be */
	uint32_t first_seq, next_seq;
	uint64_t seq_seen; /* bit i: next_seq - 1 - i has come */
	bool seq_known;
	bool gap;	/* records are missing since the last interval */
	uint64_t lost;	/* records missing by sequence number */
	uint64_t stack_lost; /* ... when `stack` was last sure */
	struct pt_totals t0, t1; /* totals at the first and the last record */
	bool totals_known;
	PT_VEC(struct pt_iv) iv;     /* by begin, not overlapping */
	PT_VEC(struct pt_read) reads; /* by end */
	PT_VEC(struct pt_scatter) scatters; /* of some of them */
	PT_VEC(struct pt_write) writes; /* by end */
	PT_VEC(struct pt_fault_sum) faults; /* by end */
	PT_VEC(struct pt_code_look) looks; /* by begin, not overlapping */
	struct pt_rec_off open;	     /* latest open interval; hdr.kind 0: none */
	size_t settled; /* this many of iv are in order */
	bool lent;	/* the last of iv is the open one, for a while */
	size_t near;	/* where pt_iv_after() was last */
	struct pt_inflight {	     /* GPU calls, innermost last */
		uint64_t begin;
		uint16_t api;
	} stack[PT_INFLIGHT_MAX];
	uint32_t depth;
	uint64_t calls;		 /* of the GPU library, seen so far */
	uint64_t host_waits;	 /* sleeps until then were looked at by hostfuncs.c */
	uint64_t nvtx_lost;	 /* `lost` at its last NVTX record */
	const char *nvtx_text;	 /* of its last */
	uint8_t nvtx_wants;	 /* PT_NVTX_START or _STRING: its handle comes */
	bool nvtx_seen;
	UT_hash_handle hh;	 /* by tid */
	struct pt_thread *older; /* an earlier one with the same kernel's id */
};

static inline bool pt_is_driver_thread(const struct pt_thread *th)
{
	return pt_api_driver_thread(th->comm);
}

/* Were samples taken of it in the kernel? One took no time. */
static inline bool pt_is_sampled(const struct pt_thread *th)
{
	pt_each(const struct pt_code_look, l, &th->looks)
		if (l->running && l->begin == l->end)
			return true;
	return false;
}

struct pt_proc {
	uint32_t tgid, ppid;
	char comm[PT_COMM_LEN];
	uint64_t born, died; /* 0: before / not seen */
	bool outside; /* not of the target's tree: it ends waits of the target */
	bool kept, folded; /* as of threads */
	struct pt_rec_outside adopted; /* ... as it was told; hdr.size 0: not */
	PT_VEC(struct pt_thread *) threads;
	PT_VEC(struct pt_gpu_call) gpu; /* by begin */
	size_t settled;
	bool host_funcs; /* streams run functions of the host */
	size_t near; /* where pt_gpu_after() was last */
	PT_VEC(struct pt_act) acts; /* by begin */
	size_t acts_settled;
	PT_VEC(struct pt_act_cover) covers; /* by begin */
	PT_VEC(struct pt_rec_sample) samples;
	uint64_t python, python_bytes; /* where its interpreter has its own state; 0: not known */
	struct pt_rec_proc facts; /* all PT_PROC_UNKNOWN until they come */
	PT_VEC(uint64_t) markers; /* calls of the step marker */
	PT_VEC(struct pt_nvtx_event) nvtx; /* by ts */
	PT_VEC(struct pt_nvtx_string) strings; /* registered with NVTX */
	UT_hash_handle hh;
	struct pt_proc *older; /* an earlier process with the same id */
};

struct pt_text_once {
	UT_hash_handle hh;
	char text[];
};

struct pt_file_key {
	uint64_t inode, dev;
};

/*
 * A file under one name. A file that was renamed, and one that got the number of
 * a deleted one, are files of their own here: the first name that was met has
 * the kernel's device number, another one a number that no device has. Which of
 * them a read or a wait is of is settled when the model is finished.
 */
#define PT_DEV_RENAMED 0xfff00000u /* and a number in the bits below */
struct pt_file {
	struct pt_file_key key;
	uint64_t size;
	uint32_t fs_magic;
	uint32_t dev; /* the kernel's number */
	uint16_t mode;
	bool truncated;
	bool text; /* mapped to be executed: a program or a library */
	const char *path; /* `name`; NULL: none */
	uint64_t latest; /* moment at which its name, or one of them, was met */
	/* of the first name: when which was met, the latest record first, and
	 * once the model is finished by time */
	struct pt_naming {
		uint64_t ts;
		struct pt_file *file;
		struct pt_naming *next;
	} *namings, *by_ts;
	size_t n_namings;
	bool renamed; /* ... there are others, which count what names them so */
	bool used;
	UT_hash_handle hh;
	char name[];
};

/* Both ends of a connection; addresses in network byte order, IPv4 in the
 * first four bytes, also where it was mapped into IPv6. */
struct pt_sock_ends {
	uint8_t local[16], remote[16];
	uint16_t local_port, remote_port;
	uint8_t family, protocol; /* AF_*, IPPROTO_*; see socks.h */
};

struct pt_peer_key {
	uint8_t address[16];
	uint16_t port;
	uint8_t family, protocol;
	char path[PT_SOCK_PATH]; /* of a Unix socket */
};

struct pt_peer { /* an address and port that sockets are connected to */
	struct pt_peer_key key;
	uint32_t index; /* 0, 1, ... */
	UT_hash_handle hh;
};

struct pt_sock_reading {
	uint64_t ts, received;
};

struct pt_sock { /* one connection; see socks.h */
	uint64_t inode;
	struct pt_sock_ends ends;
	struct pt_peer *peer;
	uint64_t first, last; /* of what is known of it */
	uint64_t opened;      /* connect() began; 0: it was open before */
	uint64_t connect_ns;  /* ... and took so long; 0 not seen */
	uint64_t sent;	      /* payload bytes; PT_SOCK_UNKNOWN */
	uint32_t tgid;	      /* who was seen with it first */
	uint32_t srtt_us, retransmits, out_of_order;
	uint32_t n_at, cap_at;
	struct pt_sock_reading *at; /* by ts */
	uint8_t state;
	bool inside; /* its other end is a socket of the target, too */
	bool accepted; /* a Unix socket that somebody connected to */
	struct pt_sock *older; /* the same socket, connected elsewhere */
	UT_hash_handle hh, by_ends;
};

struct pt_name_key {
	uint64_t key;
	uint32_t tgid, space; /* the process here; PT_NAME_* */
};

struct pt_name { /* of a kernel; see names.h */
	struct pt_name_key key;
	const char *name; /* NULL: that of `same_as` */
	uint64_t same_as;
	bool used;
	UT_hash_handle hh;
};

struct pt_alias { /* a kernel's id that had several owners */
	uint32_t real, id; /* id: of the newest */
	UT_hash_handle hh;
};

struct pt_window { /* an active part of a schedule */
	uint64_t begin, end; /* end 0: it has not ended */
	uint32_t index;
};
#define PT_WINDOWS_MAX 65536

/* Memory by what it is for, in bytes; see budget.h. */
struct pt_held {
	uint64_t time;	/* what happened when: a cut drops it */
	uint64_t tasks; /* threads, processes, and what is told of them */
	uint64_t names; /* files, texts, peers */
};

/* What is not held any more, in sums. */
struct pt_gone {
	uint64_t threads, procs; /* had ended */
	uint64_t names;	/* of files and kernels that were not met any more */
	uint64_t run_ns; /* on a CPU: of those threads, and before a cut */
	uint64_t reads, bytes; /* of read calls, likewise */
	uint64_t lost;	/* records of those threads that never came */
};

/* Of files, and of kernels, so many names are kept that nothing held refers to: twice
 * the files that the kernel's side knows to have named. */
#define PT_NAMES_KEPT 32768
#define PT_NEWEST 256 /* a power of two */
struct pt_model {
	struct pt_held held;
	struct pt_gone gone;
	size_t ended; /* of the threads, but for those that are kept */
	struct pt_thread *threads; /* uthash, by tid */
	struct pt_proc *procs;	   /* uthash, by tgid */
	struct pt_alias *aliases;  /* uthash, by real */
	struct pt_thread *last;	   /* that a record was about */
	struct pt_thread *newest[PT_NEWEST]; /* owners of ids, by their low bits */
	PT_VEC(struct pt_thread *) all_threads;
	PT_VEC(struct pt_proc *) all_procs;
	PT_VEC(struct pt_window) windows; /* by begin; dropped ones too */
	PT_VEC(struct pt_rec_device) devices; /* samples, by ts */
	PT_VEC(struct pt_rec_memory) memory;  /* samples, by ts */
	PT_VEC(struct pt_rec_cost) costs;     /* samples, by ts */
	PT_VEC(struct pt_rec_missed) missed;  /* as they came */
	bool counts_missed; /* there were some */
	PT_VEC(struct pt_rec_block) blocks; /* as they came */
	PT_VEC(struct pt_rec_disk) disks;   /* as they came */
	struct pt_text_once *texts; /* uthash, by the text */
	PT_VEC(struct pt_code_line) code_lines; /* by id - 1; name NULL: not told */
	PT_VEC(struct pt_code_stack) code_stacks; /* ... line 0: not told */
	PT_VEC(uint32_t) code_places; /* ... the function's line; 0: not told */
	struct pt_file *files; /* uthash, by (dev, inode) */
	size_t namings;	       /* of all of them */
	uint32_t renamed;      /* names beyond a file's first */
	struct pt_name *names; /* uthash, by process, space and key */
	struct pt_sock *socks; /* uthash hh, by inode: the latest each */
	struct pt_sock *sock_ends; /* ... by_ends, by both ends */
	struct pt_peer *peers; /* uthash, in order of index */
	uint64_t n_socks;
	uint8_t *listening[2]; /* bit maps of TCP ports, [1] those of processes
				* outside; NULL: none */
	uint64_t records, malformed, no_memory, skipped_kinds;
	uint64_t doubled;    /* records that had come before: left out */
	uint64_t disordered; /* records behind later ones of their thread */
	uint64_t lost[PT_LOSS_NR];
	uint64_t begin, end;	 /* marks; 0 until seen */
	uint64_t begin_unix_ns;
	bool cut; /* a file of limited size lacks its first part */
	uint64_t trimmed_ns; /* of the beginning, dropped to save memory */
	bool keep_samples; /* ... without what comes once a second: samples of
			    * processes, memory and devices, step markers */
	uint64_t first_ts, last_ts; /* of any record */
	bool complete;
	uint32_t neighbours; /* GPU users beside the target, at most at once */
	struct pt_rec_host host;
	bool host_known;
	bool finished;
};

/* Thread or process with this id (see pt_real_id()), or NULL. */
struct pt_thread *pt_model_thread(const struct pt_model *m, uint32_t tid);
struct pt_proc *pt_model_proc(const struct pt_model *m, uint32_t tgid);
/* The id here of the latest owner of a kernel's id. */
uint32_t pt_model_id(const struct pt_model *m, uint32_t real);
/* Records that the threads' numbering says were made and that never came. */
uint64_t pt_model_missing(const struct pt_model *m);
/* A file seen by (dev, inode), or NULL. */
const struct pt_file *pt_model_file(const struct pt_model *m, uint32_t dev,
				    uint64_t inode);

/* By their ids; NULL: it was not told. */
const struct pt_code_line *pt_model_line(const struct pt_model *m, uint32_t id);
const struct pt_code_stack *pt_model_stack(const struct pt_model *m, uint32_t id);
/* The line of the library's function in which a look found the thread; 0: it was not told. */
uint32_t pt_model_function(const struct pt_model *m, const struct pt_code_look *l);

#define PT_STACK_DEPTH 256
/* The stack's ids, the innermost first, into room for PT_STACK_DEPTH. How many. */
size_t pt_model_unfold(const struct pt_model *m, uint32_t id, uint32_t *out);
static inline bool pt_same_function(const struct pt_code_line *a, const struct pt_code_line *b)
{
	return a && b && !strcmp(a->name, b->name) && !strcmp(a->file, b->file);
}

/* Of `Class.method`, as of a plain function: its own name. */
static inline const char *pt_own_name(const struct pt_code_line *l)
{
	const char *dot = strrchr(l->name, '.');

	return dot ? dot + 1 : l->name;
}

static inline bool pt_same_line(const struct pt_code_line *a, const struct pt_code_line *b)
{
	return pt_same_function(a, b) && a->line == b->line;
}

/* The last that was told of this device number; NULL: nothing. */
const struct pt_rec_disk *pt_model_disk(const struct pt_model *m, uint32_t dev);
/* Is this sample of the device that traced processes call `ordinal`? */
bool pt_device_is(const struct pt_rec_device *d, uint32_t ordinal);

/* The kernel's number of a device that is named in a read, wait or fault. */
uint32_t pt_model_dev(const struct pt_model *m, uint32_t dev, uint64_t inode);

/* Order what has come so far, so that a running capture can be analysed.
 * 0 or -ENOMEM. */
int pt_model_settle(struct pt_model *m);

/* A settled, running model: what is open now counts as an interval until the last
 * record, until it is taken back. Nothing may be fed in between. 0 or -ENOMEM. */
int pt_model_lend_open(struct pt_model *m);
void pt_model_take_back(struct pt_model *m);

/* Index of the first interval of `t` that ends after `ts`. */
size_t pt_iv_after(const struct pt_thread *t, uint64_t ts);
/* The last one that ended at or before `ts`; NULL. */
static inline const struct pt_iv *pt_iv_before(const struct pt_thread *t, uint64_t ts)
{
	size_t i = pt_iv_after(t, ts);

	return i ? &t->iv.v[i - 1] : NULL;
}
/* Index of the first GPU call of `p` that begins at or after `ts`. */
size_t pt_gpu_after(const struct pt_proc *p, uint64_t ts);
/* In order: each interval of `th` that ends behind `from` and begins before `until`;
 * each GPU call of `p` that begins in [from,until). */
#define pt_each_iv(iv, th, from, until)                                        \
	for (const struct pt_iv *iv = (th)->iv.v + pt_iv_after(th, from);      \
	     iv < (th)->iv.v + (th)->iv.n && iv->begin < (until); iv++)
#define pt_each_call(c, p, from, until)                                        \
	for (const struct pt_gpu_call *c = (p)->gpu.v + pt_gpu_after(p, from); \
	     c < (p)->gpu.v + (p)->gpu.n && c->begin < (until); c++)

#endif
