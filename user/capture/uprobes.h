/* SPDX-License-Identifier: BSD-2-Clause */
/* What is attached; for uprobes.c and drop.c only. */
#ifndef PT_UPROBES_H
#define PT_UPROBES_H

#include <bpf/libbpf.h>

#include "capture/discover.h"
#include "capture/layers.h"

/* One library file in one process. Its number is its place in the table, so
 * an entry stays when the process has gone. */
struct attached {
	pid_t pid; /* 0: every process (perf door) */
	uint32_t dev;
	uint64_t inode;
	uint64_t start; /* of the process, to tell it from a later one */
	int fd[2];	/* multi links: return, entry; -1 none */
	enum pt_gpulib_kind kind;
	bool gone;
	bool by_symbols;
	bool dropped;	   /* closed: it would only see another's calls twice */
	uint64_t mapped_ns; /* when the process last mapped a file */
};

struct pt_uprobes {
	bool multi;
	struct attached *lib;
	uint32_t n_libs, cap_libs;
	struct bpf_link **link; /* perf links */
	size_t n_link, cap_link;
	struct pt_layers *layers; /* NULL: out of memory, nothing is dropped */
	uint32_t symbols; /* attached in all */
	uint32_t failed;  /* libraries that did not take a hook */
};

#endif
