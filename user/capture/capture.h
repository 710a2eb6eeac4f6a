/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One tracing session: probe the kernel, open the doors, read the ring, and
 * leave nothing behind. The only room that uses libbpf.
 */
#ifndef PT_CAPTURE_H
#define PT_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi.h"
#include "base/err.h"
#include "pystack.h"

enum pt_mode { PT_MODE_LIGHT, PT_MODE_STANDARD, PT_MODE_FULL };
const char *pt_mode_name(enum pt_mode m);
int pt_mode_parse(const char *name, enum pt_mode *out); /* 0 or -EINVAL */

#define PT_READS_AUTO 0
#define PT_READS(door) (1 + (door)) /* this door (PT_DOOR_*) or fail */
/* PT_READS_* of a door's name (auto, fexit, kprobe, pages, syscall, none);
 * -EINVAL: there is none of that name. */
int pt_reads_parse(const char *name, unsigned *out);
const char *pt_door_name(unsigned door); /* never NULL */

struct pt_capture_opts {
	const pid_t *pids; /* roots; every descendant is followed */
	size_t n_pids;
	pid_t trainer;	   /* what the user asked for, resolved; 0 unknown */
	enum pt_mode mode;
	unsigned ring_mb;  /* 0: default (16) */
	const char *step_marker; /* [LIBRARY:]FUNCTION, or NULL; must outlive
				  * the session */
	bool marker_later;	 /* the job's program does not run yet */
	bool no_uprobe_multi; /* take the perf door even where multi works */
	bool no_gpu_probes;   /* nothing is hooked in GPU libraries */
	bool python;	      /* what samples Python's stacks is to be there */
	const char *refused;  /* tests: a program that the kernel is to refuse */
	double budget; /* of the target's time, that the hooks may take; 0: no limit */
	unsigned reads; /* PT_READS_*: another door than the ladder's, for tests */
	void (*warn)(void *ctx, const char *msg); /* progress and warnings */
	void *ctx;
};

typedef void (*pt_record_fn)(void *ctx, const void *rec, size_t len);

struct pt_hook_state { /* one need and the door that it got */
	const char *need;
	const char *door; /* "none" when closed */
	char note[160];	  /* what is lost and why, or "" */
};

struct pt_capture;

/*
 * Load, attach, seed the threads that run already. On return every hook that
 * could open is open. 0 or -errno with `err` filled; on error nothing stays
 * loaded.
 */
int pt_capture_open(struct pt_capture **out, const struct pt_capture_opts *o,
		    struct pt_err *err);

/* Descriptors to poll (ring, mapping events); returns how many. */
size_t pt_capture_fds(struct pt_capture *c, int *fds, size_t max);

/* Hand every record that is ready to `fn`, up to those made meanwhile; never blocks. Count
 * or -errno. */
int pt_capture_drain(struct pt_capture *c, pt_record_fn fn, void *ctx);

/*
 * Once a second: write still-open intervals (task iterator), sample the
 * tree's memory and CPU, emit loss counters, look for libraries that were
 * mapped since. Records go to `fn`.
 */
int pt_capture_tick(struct pt_capture *c, pt_record_fn fn, void *ctx);

/*
 * A schedule. Quiet: the hooks stay attached and return at once, but for those
 * that follow the process tree; a thread's waits begin anew behind it. An active
 * part begins or has ended: what belongs to it goes to `fn`, then a record that
 * says so. 0 or -errno.
 */
int pt_capture_quiet(struct pt_capture *c, bool quiet);
int pt_capture_window(struct pt_capture *c, uint32_t index, bool ended,
		      pt_record_fn fn, void *ctx);

/*
 * Stop: final open intervals, final drain, loss counters, END mark. The hooks
 * are silent afterwards, though detaching may still be under way.
 */
int pt_capture_stop(struct pt_capture *c, pt_record_fn fn, void *ctx);

/* Detach everything and free; where that takes long, `pending` (may be NULL) is told once how
 * many perf events there are. */
void pt_capture_close(struct pt_capture *c,
		      void (*pending)(void *ctx, unsigned probes), void *ctx);

/*
 * A process outside of the tree that was seen to end waits of `waiter`: follow it
 * from the end of this drain on, if it is one to be followed. Not to be are: the
 * tracer, init, the kernel's; who ends waits of one outside and is no part of the
 * same service; and, unless it supplies `surely`, who started the job, shells,
 * loggers and their like. No more than 64 are.
 */
struct pt_supplier {
	pid_t pid, waiter;
	uint32_t wakes;
	uint64_t slept_ns; /* in the waits that these ended */
	bool surely;
};
void pt_capture_adopt(struct pt_capture *c, const struct pt_supplier *s);

size_t pt_capture_hooks(const struct pt_capture *c,
			const struct pt_hook_state **out);
/* A need that is met outside of this room: how. `need` and `door` are constants;
 * the note is copied. */
void pt_capture_hook(struct pt_capture *c, const char *need, const char *door,
		     const char *note);
/* Records of a cause (PT_LOSS_*) that were lost outside of this room, in all: part
 * of every loss record from now on. */
void pt_capture_lost_elsewhere(struct pt_capture *c, unsigned cause,
			       uint64_t total);
/* CPU time that helpers outside of this room took, in all. */
void pt_capture_spent_elsewhere(struct pt_capture *c, uint64_t ns);
/* PT_SAVE_*: what is done without, to keep the budget. */
uint32_t pt_capture_saved(const struct pt_capture *c);
void pt_capture_loss(struct pt_capture *c, uint64_t count[PT_LOSS_NR]);
uint64_t pt_capture_events(const struct pt_capture *c);
/* True when every root process has gone. */
bool pt_capture_target_gone(struct pt_capture *c);
/* Is it of the tree that is followed? Its number alone does not tell: another process
 * may have got it. */
bool pt_is_target(struct pt_capture *c, pid_t pid);
/* Processes of the target set now (for the sampler and the live line). */
size_t pt_capture_processes(struct pt_capture *c, pid_t *out, size_t max);

/*
 * ---- Python's stacks of threads on a core (bpf/pystack.bpf.c) -------------
 *
 * Taken in the kernel, PT_PY_HZ times a second of each core, and written as struct
 * pt_py_sample into a ring of their own; for whoever reads Python to make sense of.
 */
#define PT_PY_HZ 99
/* The ring's descriptor, and its size; -1: there is none, because nobody wanted one
 * (pt_capture_opts) or the kernel does not take the program. */
int pt_capture_py_ring(const struct pt_capture *c, size_t *bytes);
/* Sample this process of the target, whose interpreter is there; or there now. The caller
 * has seen that the numbers can be right. 0 or -errno: it is not sampled. */
int pt_capture_py_add(struct pt_capture *c, pid_t pid, const struct pt_py_where *where);
bool pt_capture_py_has(const struct pt_capture *c, pid_t pid);
void pt_capture_py_remove(struct pt_capture *c, pid_t pid);
/* No more those of which `stays` says no. */
void pt_capture_py_keep(struct pt_capture *c, bool (*stays)(void *ctx, pid_t pid), void *ctx);
/* Nobody, for the time being. */
void pt_capture_py_quiet(struct pt_capture *c, bool quiet);
/* Once a second: all samples may take so much of one core (0..1), those who make sense of
 * them included, which took `reader_ns` so far. Where they take more, there are half as many
 * from now on. */
void pt_capture_py_tick(struct pt_capture *c, uint64_t reader_ns, double most);
/* So far; and how many times a second of a core now (0: nobody is sampled). */
void pt_capture_py_counts(const struct pt_capture *c, struct pt_py_counts *out, unsigned *hz);

/* ---- what this kernel can do (doctor, and the ladder) ------------------- */
struct pt_features {
	bool btf, cap_bpf, cap_perfmon;
	bool tp_btf, fentry, kprobe, uprobe, uprobe_multi, ringbuf,
		task_storage, task_iter, attach_cookie, task_pt_regs,
		probe_read_kernel;
	bool pages;    /* the tracepoint of page ranges, Linux 6.12 */
	bool io_uring; /* that of completions, with the request's result */
	bool libaio; /* the functions of fs/aio.c that read */
	bool block;	  /* tracepoints of block requests */
	bool block_start; /* ... and of their making, Linux 6.5 */
	bool sockets, sock_state, sock_iter; /* TCP's counters; connections as
					      * they come and go; a walk */
	bool epoll; /* what ended an epoll wait can be found */
	int64_t count_off; /* see struct pt_config; 0: whether a wake-up came
			    * from an interrupt is not known */
	bool page_added;    /* that of pages added to the page cache */
	bool filemap_fault; /* that of faults on mapped files, Linux 6.12 */
	bool fault_fentry;  /* tracing programs on the function behind it */
	bool py_clock; /* programs on perf events that may look at a task's storage */
	char kernel[64];
	char lockdown[32]; /* none integrity confidentiality unknown */
	char missing[256]; /* first requirement that is not met, or "" */
};
int pt_features_probe(struct pt_features *f);
/* ... as it was found for this capture. */
const struct pt_features *pt_capture_features(const struct pt_capture *c);
/* What a capture on this kernel must keep (PT_KEEP_ bits, base/privileges.h), found by
 * trying; before it is given up. */
unsigned pt_capture_keep(bool no_uprobe_multi);
/* The door to reads (PT_DOOR_*) that a session in this mode opens first. */
unsigned pt_reads_ladder(const struct pt_features *f, enum pt_mode mode);
/* The same for page faults: PT_FAULT_DOOR_*, and a door's name (never NULL). */
unsigned pt_faults_ladder(const struct pt_features *f, enum pt_mode mode);
const char *pt_fault_door_name(unsigned door);

#endif
