/* SPDX-License-Identifier: BSD-2-Clause */
/* What is asked of an ELF file of a job: function symbols as file offsets, for uprobes. */
#ifndef PT_ELF_H
#define PT_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "capture/capture.h"
#include "capture/entry.h"

/*
 * Look up `names` in the file behind `fd`: .dynsym first, then .symtab; defined
 * functions only (an indirect function's address is its resolver, so it
 * counts as absent). A name matches with or without a version suffix
 * ("f@@V1"). file_offsets[i] is 0 for an absent name.
 *
 * Returns how many names were found, or -errno with `err` filled (no name of the
 * file is in it). The file is not trusted: see elffile.h. -EFBIG: nothing was
 * found within its bounds.
 */
int pt_elf_symbols(int fd, const char *const *names, size_t n,
		   uint64_t *file_offsets, struct pt_err *err);

/* One of them for a probe. */
struct pt_elf_entry {
	uint64_t offset; /* 0: absent */
	struct pt_entry_place place; /* where a probe on it costs least */
};

/* The same, and use[i] says what is read where the probe of names[i] stands. */
int pt_elf_entries(int fd, const char *const *names, const struct pt_entry_use *use,
		   size_t n, struct pt_elf_entry *out, struct pt_err *err);

/*
 * The same of objects (variables): their addresses as the file has them, and that of
 * the byte at `offset` of the file, which says where a mapping moved them.
 */
int pt_elf_objects(int fd, const char *const *names, size_t n, uint64_t offset,
		   uint64_t *addresses, uint64_t *at, struct pt_err *err);

/*
 * pt_elf_symbols(), pt_elf_entries(), pt_elf_dyn(), pt_elf_names() and pt_elf_functions() ask a
 * child that has no rights at all and limits (elfchild.c), one for each thread that asks; -EPIPE
 * or -ETIMEDOUT where it came to harm. These do it in this process.
 */
int pt_elf_read_symbols(int fd, const char *const *names, size_t n,
			uint64_t *file_offsets, struct pt_err *err);
int pt_elf_read_entries(int fd, const char *const *names, const struct pt_entry_use *use,
			size_t n, struct pt_elf_entry *out, struct pt_err *err);
int pt_elf_read_objects(int fd, const char *const *names, size_t n, uint64_t offset,
			uint64_t *addresses, uint64_t *at, struct pt_err *err);
/* A thread that asked ends. */
void pt_elf_child_end(void);
/* CPU time of the child of this thread, and of those of others that have ended, ns. */
uint64_t pt_elf_child_cpu_ns(void);

/* ---- what a shared library says to the loader: its name, and what it exports ------- */

#define PT_SONAME_LEN 128

struct pt_elf_dyn {
	char soname[PT_SONAME_LEN]; /* "" none */
	uint64_t symtab_bytes;	    /* .symtab and its strings; 0 none */
};

/*
 * Look `n` names up in the file's GNU hash table: exports[i] is set for each
 * function that it defines. A few small reads, whatever the file's size; a file
 * without such a table exports nothing here. The file is not trusted. 0 or
 * -errno (-ENOEXEC: no ELF file of this processor with a dynamic section).
 */
int pt_elf_dyn(int fd, const char *const *names, size_t n, bool *exports,
	       struct pt_elf_dyn *out);
/* The same in this process. */
int pt_elf_read_dyn(int fd, const char *const *names, size_t n, bool *exports,
		    struct pt_elf_dyn *out);

/* ---- names of what lies at given places of a file ----------------------------------- */

struct pt_elf_place {
	uint64_t offset; /* in the file, bytes: given */
	uint64_t key;	 /* the caller's; places are put in order */
	bool found;
	bool truncated; /* the name is longer than fits */
	char name[PT_NAME_LEN]; /* as in the symbol table */
	uint64_t begin, size; /* of what was found, as `offset`; size 0: not known */
	/* the inside: the best symbol so far */
	uint64_t vaddr, at;
	uint64_t str; /* where in the file its name is */
	uint32_t rank;
	/* ... and the function that begins nearest below */
	uint64_t below, below_size, below_str;
	uint32_t below_section;
};

/*
 * Name each of `n` places by the function or object that holds it: of .symtab,
 * else of .dynsym. The file is not trusted: see elffile.h; names are read from
 * where they are. Returns how many were found, or -errno.
 */
int pt_elf_names(int fd, struct pt_elf_place *v, size_t n);
/*
 * The same of functions alone. Those of assembly may have no size: in a .symtab that has what
 * the file keeps to itself, too, one holds what lies in its section up to the next function. A
 * stripped file does not tell what is behind a function, and then nothing is found there. Names
 * are as the source has them, without parameters and what templates were made for.
 */
int pt_elf_functions(int fd, struct pt_elf_place *v, size_t n);
/* These in this process. */
int pt_elf_read_names(int fd, struct pt_elf_place *v, size_t n);
int pt_elf_read_functions(int fd, struct pt_elf_place *v, size_t n);

#endif
