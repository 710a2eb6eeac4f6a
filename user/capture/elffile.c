/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/elffile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/clock.h"
#include "base/vec.h"

#define CHUNK 4096 /* symbols read at once */

bool pt_elf_spent(const struct pt_elf *e)
{
	return !e->bytes || !e->symbols || pt_now_ns() >= e->until_ns;
}

bool pt_elf_get(struct pt_elf *e, uint64_t at, void *out, size_t len)
{
	if (at > e->size || len > e->size - at)
		return false;
	if (len > e->bytes || pt_now_ns() >= e->until_ns) {
		e->bytes = 0;
		return false;
	}
	e->bytes -= len;
	return pread(e->fd, out, len, (off_t)at) == (ssize_t)len;
}

bool pt_elf_section(struct pt_elf *e, size_t i, Elf64_Shdr *out)
{
	uint64_t at;

	return i < e->n_sh &&
	       !__builtin_add_overflow(e->eh.e_shoff, i * sizeof(*out), &at) &&
	       pt_elf_get(e, at, out, sizeof(*out));
}

/* A file without section headers, or with damaged ones, has none. */
static size_t count_sections(struct pt_elf *e)
{
	Elf64_Shdr first;

	if (!e->eh.e_shoff || e->eh.e_shentsize != sizeof(first))
		return 0;
	if (e->eh.e_shnum)
		return e->eh.e_shnum;
	e->n_sh = 1; /* more than fit the field: the first says how many */
	if (!pt_elf_section(e, 0, &first))
		return 0;
	return first.sh_size < PT_ELF_SECTIONS ? first.sh_size :
						 PT_ELF_SECTIONS;
}

int pt_elf_open(struct pt_elf *e, int fd)
{
	const Elf64_Ehdr *h = &e->eh;
	struct stat st;

	*e = (struct pt_elf){
		.fd = fd, .bytes = PT_ELF_BYTES, .symbols = PT_ELF_SYMBOLS,
		.until_ns = pt_now_ns() + PT_ELF_MS * 1000000ull,
	};
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	e->size = (uint64_t)st.st_size;
	if (!pt_elf_get(e, 0, &e->eh, sizeof(e->eh)) ||
	    memcmp(h->e_ident, ELFMAG, SELFMAG) ||
	    h->e_ident[EI_CLASS] != ELFCLASS64 ||
	    h->e_ident[EI_DATA] != ELFDATA2LSB || h->e_machine != PT_ARCH_ELF)
		return -ENOEXEC;
	e->n_ph = h->e_phnum;
	if (h->e_phentsize != sizeof(e->ph[0]) || !e->n_ph ||
	    e->n_ph > PT_ELF_PHDRS ||
	    !pt_elf_get(e, h->e_phoff, e->ph, e->n_ph * sizeof(e->ph[0])))
		return -ENOEXEC;
	e->n_sh = count_sections(e);
	return 0;
}

bool pt_elf_offset(const struct pt_elf *e, uint64_t vaddr, uint32_t flags,
		   uint64_t *out)
{
	pt_each_of(const Elf64_Phdr, p, e->ph, e->n_ph) {
		if (p->p_type != PT_LOAD || (p->p_flags & flags) != flags ||
		    vaddr < p->p_vaddr || vaddr - p->p_vaddr >= p->p_filesz)
			continue;
		return !__builtin_add_overflow(vaddr - p->p_vaddr, p->p_offset,
					       out) && *out < e->size;
	}
	return false;
}

static bool inside(const struct pt_elf *e, const Elf64_Shdr *sh)
{
	return sh->sh_type != SHT_NOBITS && sh->sh_offset <= e->size &&
	       sh->sh_size <= e->size - sh->sh_offset;
}

static void scan(struct pt_elf *e, const Elf64_Shdr *sh, Elf64_Sym *buf,
		 pt_elf_symbol fn, void *ctx)
{
	uint64_t at = sh->sh_offset, left = sh->sh_size / sizeof(*buf);
	Elf64_Shdr str;
	unsigned type;
	size_t i, n;

	if (sh->sh_entsize != sizeof(*buf) || !inside(e, sh) ||
	    !pt_elf_section(e, sh->sh_link, &str) || !inside(e, &str))
		return;
	for (; left && !pt_elf_spent(e); left -= n, at += n * sizeof(*buf)) {
		n = left < CHUNK ? left : CHUNK;
		n = n < e->symbols ? n : e->symbols;
		if (!pt_elf_get(e, at, buf, n * sizeof(*buf)))
			return;
		e->symbols -= (uint32_t)n;
		for (i = 0; i < n; i++) {
			type = ELF64_ST_TYPE(buf[i].st_info);
			if ((type == STT_FUNC || type == STT_OBJECT) &&
			    buf[i].st_value && buf[i].st_shndx != SHN_UNDEF &&
			    buf[i].st_name < str.sh_size)
				fn(ctx, &buf[i], &str);
		}
	}
}

int pt_elf_symbols_of(struct pt_elf *e, uint32_t type, pt_elf_symbol fn,
		      void *ctx)
{
	Elf64_Sym *buf = malloc(CHUNK * sizeof(*buf));
	Elf64_Shdr sh;
	size_t i;

	if (!buf)
		return -ENOMEM;
	for (i = 0; i < e->n_sh && pt_elf_section(e, i, &sh); i++)
		if (sh.sh_type == type)
			scan(e, &sh, buf, fn, ctx);
	free(buf);
	return 0;
}
