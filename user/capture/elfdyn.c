/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/elf.h"

#include <errno.h>
#include <string.h>

#include "capture/elffile.h"

#define MAX_DYN 512
#define MAX_CHAIN 4096 /* symbols of one bucket that are looked at */
#define MAX_SECTIONS 512
#define NAME_MAX_LEN 64

struct file {
	struct pt_elf e;
	uint64_t symtab, strtab, strsz, hash, soname; /* addresses; 0: none */
};

/* Bytes at an address of the loaded file. */
static bool get_at(struct file *f, uint64_t vaddr, void *out, size_t len)
{
	uint64_t off;

	return pt_elf_offset(&f->e, vaddr, 0, &off) &&
	       pt_elf_get(&f->e, off, out, len);
}

/* Both tables' sizes; a size that is not true only says "too large". */
static uint64_t table_bytes(struct pt_elf *e, const Elf64_Shdr *sh)
{
	Elf64_Shdr str;

	if (!pt_elf_section(e, sh->sh_link, &str))
		return 0;
	return sh->sh_size > UINT64_MAX - str.sh_size ? UINT64_MAX :
						       sh->sh_size + str.sh_size;
}

static void read_sections(struct file *f, struct pt_elf_dyn *out)
{
	Elf64_Shdr sh;
	size_t i;

	for (i = 0; i < f->e.n_sh && i < MAX_SECTIONS &&
		    pt_elf_section(&f->e, i, &sh); i++)
		if (sh.sh_type == SHT_SYMTAB)
			out->symtab_bytes = table_bytes(&f->e, &sh);
}

static bool read_dynamic(struct file *f)
{
	Elf64_Dyn d[MAX_DYN];
	size_t i, n = 0;

	for (i = 0; i < f->e.n_ph && !n; i++)
		if (f->e.ph[i].p_type == PT_DYNAMIC) {
			n = f->e.ph[i].p_filesz / sizeof(*d);
			n = n < MAX_DYN ? n : MAX_DYN;
			if (!pt_elf_get(&f->e, f->e.ph[i].p_offset, d,
					n * sizeof(*d)))
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
static void get_string(struct file *f, uint64_t off, char *out, size_t max)
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

static bool defines(struct file *f, const struct gnu *g, const char *name)
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

int pt_elf_read_dyn(int fd, const char *const *names, size_t n, bool *exports,
		    struct pt_elf_dyn *out)
{
	struct file f = { 0 };
	struct gnu g;
	size_t i;

	memset(out, 0, sizeof(*out));
	memset(exports, 0, n * sizeof(*exports));
	if (pt_elf_open(&f.e, fd))
		return -ENOEXEC;
	read_sections(&f, out);
	if (!read_dynamic(&f))
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
