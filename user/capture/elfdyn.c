/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/elfdyn.h"

#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define MAX_PHDRS 64
#define MAX_DYN 512
#define MAX_CHAIN 4096 /* symbols of one bucket that are looked at */
#define MAX_SECTIONS 512
#define NAME_MAX_LEN 64

struct file {
	int fd;
	Elf64_Phdr ph[MAX_PHDRS];
	size_t n_ph;
	uint64_t symtab, strtab, strsz, hash, soname; /* addresses; 0: none */
};

static bool get(int fd, uint64_t at, void *out, size_t len)
{
	return at <= INT64_MAX - len &&
	       pread(fd, out, len, (off_t)at) == (ssize_t)len;
}

/* Bytes at an address of the loaded file. */
static bool get_at(const struct file *f, uint64_t vaddr, void *out, size_t len)
{
	size_t i;

	for (i = 0; i < f->n_ph; i++) {
		const Elf64_Phdr *p = &f->ph[i];
		uint64_t off = vaddr - p->p_vaddr;

		if (p->p_type != PT_LOAD || vaddr < p->p_vaddr ||
		    off >= p->p_filesz || len > p->p_filesz - off ||
		    off > UINT64_MAX - p->p_offset)
			continue;
		return get(f->fd, p->p_offset + off, out, len);
	}
	return false;
}

/* Both tables' sizes; a size that is not true only says "too large". */
static uint64_t table_bytes(int fd, const Elf64_Ehdr *eh, const Elf64_Shdr *sh)
{
	Elf64_Shdr str;

	if (sh->sh_link >= MAX_SECTIONS ||
	    !get(fd, eh->e_shoff + sh->sh_link * sizeof(str), &str, sizeof(str)))
		return 0;
	return sh->sh_size > UINT64_MAX - str.sh_size ? UINT64_MAX :
						       sh->sh_size + str.sh_size;
}

static bool read_headers(struct file *f, struct pt_elf_dyn *out)
{
	Elf64_Ehdr eh;
	Elf64_Shdr sh;
	size_t i;

	if (!get(f->fd, 0, &eh, sizeof(eh)) ||
	    memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
	    eh.e_ident[EI_CLASS] != ELFCLASS64 ||
	    eh.e_ident[EI_DATA] != ELFDATA2LSB || eh.e_machine != EM_X86_64 ||
	    eh.e_phentsize != sizeof(f->ph[0]) || !eh.e_phnum ||
	    eh.e_phnum > MAX_PHDRS)
		return false;
	f->n_ph = eh.e_phnum;
	if (!get(f->fd, eh.e_phoff, f->ph, f->n_ph * sizeof(f->ph[0])))
		return false;
	for (i = 0; i < eh.e_shnum && i < MAX_SECTIONS &&
		    eh.e_shentsize == sizeof(sh) &&
		    eh.e_shoff < UINT64_MAX / 2; i++) {
		if (!get(f->fd, eh.e_shoff + i * sizeof(sh), &sh, sizeof(sh)))
			break;
		if (sh.sh_type == SHT_SYMTAB)
			out->symtab_bytes = table_bytes(f->fd, &eh, &sh);
	}
	return true;
}

static bool read_dynamic(struct file *f)
{
	Elf64_Dyn d[MAX_DYN];
	size_t i, n = 0;

	for (i = 0; i < f->n_ph && !n; i++)
		if (f->ph[i].p_type == PT_DYNAMIC) {
			n = f->ph[i].p_filesz / sizeof(*d);
			n = n < MAX_DYN ? n : MAX_DYN;
			if (!get(f->fd, f->ph[i].p_offset, d, n * sizeof(*d)))
				return false;
		}
	for (i = 0; i < n && d[i].d_tag != DT_NULL; i++) {
		uint64_t v = d[i].d_un.d_val;

		switch (d[i].d_tag) {
		case DT_SYMTAB: f->symtab = v; break;
		case DT_STRTAB: f->strtab = v; break;
		case DT_STRSZ: f->strsz = v; break;
		case DT_GNU_HASH: f->hash = v; break;
		case DT_SONAME: f->soname = v; break;
		}
	}
	return n && f->strtab;
}

/* The string at `off` of the string table; cut to what fits. */
static void get_string(const struct file *f, uint64_t off, char *out, size_t max)
{
	size_t len = max - 1;

	memset(out, 0, max);
	if (off >= f->strsz)
		return;
	if (len > f->strsz - off)
		len = f->strsz - off;
	if (!get_at(f, f->strtab + off, out, len))
		memset(out, 0, max);
}

static uint32_t gnu_hash(const char *s)
{
	uint32_t h = 5381;

	while (*s)
		h = h * 33 + (unsigned char)*s++;
	return h;
}

struct gnu {
	uint32_t buckets, first, bloom, shift;
};

static bool defines(const struct file *f, const struct gnu *g, const char *name)
{
	uint64_t bucket = f->hash + sizeof(*g) + 8ull * g->bloom;
	uint64_t chain = bucket + 4ull * g->buckets;
	uint32_t want = gnu_hash(name), i, h;
	char got[NAME_MAX_LEN];
	Elf64_Sym sym;
	int n;

	if (!get_at(f, bucket + 4ull * (want % g->buckets), &i, sizeof(i)) ||
	    i < g->first)
		return false;
	for (n = 0; n < MAX_CHAIN; n++, i++) {
		if (!get_at(f, chain + 4ull * (i - g->first), &h, sizeof(h)))
			return false;
		if ((h | 1) == (want | 1) &&
		    get_at(f, f->symtab + 24ull * i, &sym, sizeof(sym)) &&
		    sym.st_shndx != SHN_UNDEF && sym.st_value &&
		    ELF64_ST_TYPE(sym.st_info) == STT_FUNC) {
			get_string(f, sym.st_name, got, sizeof(got));
			if (!strcmp(got, name))
				return true;
		}
		if (h & 1)
			return false;
	}
	return false;
}

int pt_elf_dyn(int fd, const char *const *names, size_t n, bool *exports,
	       struct pt_elf_dyn *out)
{
	struct file f = { .fd = fd };
	struct gnu g;
	size_t i;

	memset(out, 0, sizeof(*out));
	memset(exports, 0, n * sizeof(*exports));
	if (!read_headers(&f, out) || !read_dynamic(&f))
		return -ENOEXEC;
	if (f.soname)
		get_string(&f, f.soname, out->soname, sizeof(out->soname));
	if (!f.hash || !f.symtab || !get_at(&f, f.hash, &g, sizeof(g)) ||
	    !g.buckets)
		return 0;
	for (i = 0; i < n; i++)
		exports[i] = defines(&f, &g, names[i]);
	return 0;
}
