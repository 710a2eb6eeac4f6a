/* SPDX-License-Identifier: BSD-2-Clause */
/* What a shared library says to the loader: its name, and what it exports. */
#ifndef PT_ELFDYN_H
#define PT_ELFDYN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
/* The same in this process, see elf.h. */
int pt_elf_read_dyn(int fd, const char *const *names, size_t n, bool *exports,
		    struct pt_elf_dyn *out);

#endif
