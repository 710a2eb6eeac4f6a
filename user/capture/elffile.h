/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading an ELF file that nobody vouches for: a job's library, whose headers may
 * say anything, and whose size too (a sparse file of 12 KiB claims a gigabyte).
 * Everything is read in small pieces from where it lies; nothing is as large as
 * the file says. One look at a file is bounded in bytes, symbols and time.
 */
#ifndef PT_ELFFILE_H
#define PT_ELFFILE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PT_ELF_PHDRS 128
#define PT_ELF_SECTIONS 65536
#define PT_ELF_SYMBOLS (4u << 20) /* the largest real libraries have some 500,000 */
#define PT_ELF_BYTES (1ull << 30) /* that are read */
#define PT_ELF_MS 2000

struct pt_elf {
	int fd; /* the caller's */
	uint64_t size;
	Elf64_Ehdr eh;
	Elf64_Phdr ph[PT_ELF_PHDRS];
	size_t n_ph, n_sh;
	/* what is left of the bounds */
	uint64_t bytes, until_ns;
	uint32_t symbols;
};

/* 0; -EINVAL: no regular file; -ENOEXEC: no ELF file of this processor, or one with
 * damaged program headers; or -errno. */
int pt_elf_open(struct pt_elf *e, int fd);
/* A bound was met: what was found so far is not all. */
bool pt_elf_spent(const struct pt_elf *e);
/* `len` bytes at `at` of the file. False: not there, or a bound was met. */
bool pt_elf_get(struct pt_elf *e, uint64_t at, void *out, size_t len);
bool pt_elf_section(struct pt_elf *e, size_t i, Elf64_Shdr *out);
/* Offset in the file of the byte at `vaddr` of a segment with these flags
 * (PF_X; 0: any). False: none. */
bool pt_elf_offset(const struct pt_elf *e, uint64_t vaddr, uint32_t flags,
		   uint64_t *out);

/* One defined function or object, and its string table, which lies in the file
 * whole, as its name's begin does. */
typedef void (*pt_elf_symbol)(void *ctx, const Elf64_Sym *s,
			      const Elf64_Shdr *strings);
/* Each of the tables of `type` (SHT_DYNSYM, SHT_SYMTAB). 0 or -ENOMEM. */
int pt_elf_symbols_of(struct pt_elf *e, uint32_t type, pt_elf_symbol fn,
		      void *ctx);

#endif
