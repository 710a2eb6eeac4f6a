/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of what lies at given places of an ELF file. */
#ifndef PT_ELFNAME_H
#define PT_ELFNAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"

struct pt_elf_place {
	uint64_t offset; /* in the file, bytes: given */
	uint64_t key;	 /* the caller's; places are put in order */
	bool found;
	bool truncated; /* the name is longer than fits */
	char name[PT_NAME_LEN]; /* as in the symbol table */
	/* the inside: the best symbol so far */
	uint64_t vaddr;
	uint64_t str; /* where in the file its name is */
	uint32_t rank;
};

/*
 * Name each of `n` places by the function or object that holds it: of .symtab,
 * else of .dynsym. The file is not trusted: see elffile.h; names are read from
 * where they are. Returns how many were found, or -errno.
 */
int pt_elf_names(int fd, struct pt_elf_place *v, size_t n);
/* The same in this process, see elf.h. */
int pt_elf_read_names(int fd, struct pt_elf_place *v, size_t n);

#endif
