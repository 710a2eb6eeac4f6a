/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who is the job? Process trees, GPU libraries and trainers, from /proc.
 *
 * A forked loader worker inherits the mapping of libcudart, so a mapping
 * alone does not make a trainer: the trainer is the process whose image a
 * worker was forked (or spawned by multiprocessing) from.
 */
#ifndef PT_DISCOVER_H
#define PT_DISCOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/capture.h"
#include "gpu/api.h"

enum pt_gpulib_kind {
	PT_GPULIB_CUDART = PT_LIB_RUNTIME, /* libcudart.so* */
	PT_GPULIB_CUDA = PT_LIB_DRIVER,	   /* libcuda.so* */
	PT_GPULIB_HIP = PT_LIB_HIP,	   /* libamdhip64.so* */
	PT_GPULIB_NCCL = PT_LIB_NCCL,	   /* libnccl.so*, librccl.so* */
};
#define PT_GPULIB_PATH 512

struct pt_gpulib { /* one executable mapping of a GPU library */
	enum pt_gpulib_kind kind;
	char path_display[PT_GPULIB_PATH]; /* as the target named it */
	pid_t pid;
	uint32_t dev; /* (major << 20) | minor */
	uint64_t inode;
	uint64_t start, end, offset; /* of the executable mapping */
	bool deleted;		     /* removed or replaced on disk */
	bool by_symbols; /* exports the functions under another name */
	bool inside;	 /* linked into a program, see gpulib.c */
};

/*
 * GPU libraries mapped in one process, each file once: under any name, and
 * runtimes linked into a program that has the driver. One that only exports the
 * functions is left out where a library of the right name is mapped: it may
 * call that one. Returns how many were
 * stored (at most max), or -errno (-ESRCH gone, -EACCES not allowed).
 */
ssize_t pt_gpulibs(pid_t pid, struct pt_gpulib *out, size_t max);

/* The same for every file that is mapped for execution; `kind` is 0 where it
 * is no GPU library. */
ssize_t pt_exec_files(pid_t pid, struct pt_gpulib *out, size_t max);

/* The mapping of a file that holds `addr`, whatever may be done with it; `kind`
 * as above. 0; -ENOENT: no file's, or -errno. */
int pt_mapping_at(pid_t pid, uint64_t addr, struct pt_gpulib *out);

/* A mapping as an event told it (start, end, dev, inode, path_display): fills
 * the rest. `driver`: the process has the CUDA driver. True: a GPU library. */
bool pt_gpulib_mapped(pid_t pid, struct pt_gpulib *g, bool driver);

/* The mapped file, to be read and probed through this descriptor, which the
 * caller closes; see pt_mapped_open(). */
int pt_gpulib_open(const struct pt_gpulib *g);

/* What a file is by its name; 0: no GPU library. */
enum pt_gpulib_kind pt_gpulib_kind(const char *path);

/*
 * Is this line of /proc/PID/maps an executable mapping of a GPU library?
 * Fills all of `out` but pid. Separate for its unit test.
 */
bool pt_gpulib_parse(const char *line, struct pt_gpulib *out);

struct pt_process {
	pid_t pid, ppid;
	uint64_t start_ticks;
	uint64_t start_code, start_stack;
	char comm[PT_COMM_LEN];
};

struct pt_tree { /* a snapshot of every process of this pid namespace */
	struct pt_process *p; /* ascending by pid */
	size_t *by_parent;    /* indices into p, ascending by ppid */
	size_t n;
};

/* Free with pt_tree_free(), also after an error. 0 or -errno. */
int pt_tree_snapshot(struct pt_tree *t);
void pt_tree_free(struct pt_tree *t);
const struct pt_process *pt_tree_find(const struct pt_tree *t, pid_t pid);

/*
 * `root` and its descendants, parents before children; a child that started
 * before its parent is a reused pid and left out. Returns how many there
 * are, of which at most max were stored.
 */
size_t pt_tree_descendants(const struct pt_tree *t, pid_t root, pid_t *out,
			   size_t max);

#define PT_MAX_TRAINERS 64

struct pt_job {
	pid_t given;   /* what the user asked for */
	pid_t root;    /* the tree to follow: trainer or launcher */
	pid_t trainer; /* the first trainer (lowest rank), 0: none known */
	pid_t trainers[PT_MAX_TRAINERS]; /* one per rank, by rank then pid */
	size_t n_trainers;
	bool unreadable; /* a process of the tree did not let us see its maps */
	char note[256];	 /* how `given` was resolved, or "" */
};

/*
 * Resolve a thread, worker, trainer or launcher to its job. 0, or -errno with
 * `err` filled (-ESRCH: no such process). No GPU library is not an error:
 * n_trainers is 0 then.
 */
int pt_discover(pid_t given, struct pt_job *out, struct pt_err *err);
/* The same on a snapshot that the caller has. */
int pt_discover_in(const struct pt_tree *t, pid_t given, struct pt_job *out,
		   struct pt_err *err);

/*
 * Trainers within the tree under `root`: processes with a GPU library that
 * are neither loader workers nor launchers. Returns how many (stored up to
 * max); sets *unreadable when some process could not be looked at.
 */
size_t pt_trainers(const struct pt_tree *t, pid_t root, pid_t *out, size_t max,
		   bool *unreadable);

/* The same for the whole machine, each once. */
size_t pt_all_trainers(const struct pt_tree *t, pid_t *out, size_t max,
		       bool *unreadable);

/* Does the process have a GPU's device node open, as one that computes there
 * has? (A simulated GPU has none.) */
bool pt_owns_gpu(pid_t pid);

/* Global rank from RANK, those of MPI, SLURM_PROCID or LOCAL_RANK of
 * the environment; -1 unknown. */
int pt_rank_of(pid_t pid);
struct pt_env;
int pt_rank_in(const struct pt_env *e); /* its environment */

#endif
