/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/elfname.h"

#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SYMBOLS (8u << 20)
#define MAX_PHDRS 4096
#define CHUNK 4096 /* symbols read at once */

struct names {
	int fd;
	Elf *elf;
	uint64_t size; /* of the file */
	struct pt_elf_place *v;
	size_t n;
	Elf64_Sym *buf;
};

/* The address that the file's own headers give this byte; 0: none. */
static uint64_t vaddr_of(const struct names *k, size_t n_phdrs, uint64_t off)
{
	GElf_Phdr ph;
	uint64_t at;
	size_t i;

	for (i = 0; i < n_phdrs; i++) {
		if (!gelf_getphdr(k->elf, (int)i, &ph) || ph.p_type != PT_LOAD)
			continue;
		if (off < ph.p_offset || off - ph.p_offset >= ph.p_filesz)
			continue;
		if (__builtin_add_overflow(off - ph.p_offset, ph.p_vaddr, &at))
			return 0;
		return at;
	}
	return 0;
}

static int by_vaddr(const void *a, const void *b)
{
	const struct pt_elf_place *x = a, *y = b;

	return x->vaddr < y->vaddr ? -1 : x->vaddr > y->vaddr;
}

/* 0: not this place; more is better: begins there, is a function, and not a
 * file's own. */
static uint32_t rank_of(const Elf64_Sym *s, uint64_t vaddr)
{
	unsigned type = ELF64_ST_TYPE(s->st_info);

	if (vaddr != s->st_value && vaddr - s->st_value >= s->st_size)
		return 0;
	return 1 + 4 * (vaddr == s->st_value) + 2 * (type == STT_FUNC) +
	       (ELF64_ST_BIND(s->st_info) != STB_LOCAL);
}

static void insert_symbol(struct names *k, const Elf64_Sym *s, const GElf_Shdr *str)
{
	unsigned type = ELF64_ST_TYPE(s->st_info);
	size_t lo = 0, hi = k->n;

	if ((type != STT_FUNC && type != STT_OBJECT) || !s->st_value ||
	    s->st_shndx == SHN_UNDEF || s->st_name >= str->sh_size)
		return;
	while (lo < hi) { /* the first place at or behind the symbol */
		size_t mid = (lo + hi) / 2;

		if (k->v[mid].vaddr < s->st_value)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < k->n; lo++) {
		struct pt_elf_place *p = &k->v[lo];
		uint32_t rank = rank_of(s, p->vaddr);

		if (!rank)
			break;
		if (rank <= p->rank)
			continue;
		p->rank = rank;
		p->str = str->sh_offset + s->st_name;
	}
}

static bool inside(const struct names *k, const GElf_Shdr *sh)
{
	return sh->sh_type != SHT_NOBITS && sh->sh_offset <= k->size &&
	       sh->sh_size <= k->size - sh->sh_offset;
}

static void scan(struct names *k, const GElf_Shdr *sh)
{
	uint64_t at = sh->sh_offset, left = sh->sh_size / sizeof(Elf64_Sym);
	GElf_Shdr str;
	Elf_Scn *scn;

	scn = elf_getscn(k->elf, sh->sh_link);
	if (sh->sh_entsize != sizeof(Elf64_Sym) || !inside(k, sh) || !scn ||
	    !gelf_getshdr(scn, &str) || !inside(k, &str))
		return;
	if (left > MAX_SYMBOLS)
		left = MAX_SYMBOLS;
	while (left) {
		size_t want = left < CHUNK ? left : CHUNK, i;
		ssize_t got = pread(k->fd, k->buf, want * sizeof(*k->buf),
				    (off_t)at);

		if (got < (ssize_t)sizeof(*k->buf))
			return;
		got /= (ssize_t)sizeof(*k->buf);
		for (i = 0; i < (size_t)got; i++)
			insert_symbol(k, &k->buf[i], &str);
		at += (uint64_t)got * sizeof(*k->buf);
		left -= (uint64_t)got;
	}
}

static void scan_type(struct names *k, uint32_t type)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr sh;

	while ((scn = elf_nextscn(k->elf, scn)))
		if (gelf_getshdr(scn, &sh) && sh.sh_type == type)
			scan(k, &sh);
}

static void read_name(int fd, struct pt_elf_place *p)
{
	ssize_t n = pread(fd, p->name, sizeof(p->name), (off_t)p->str);
	size_t len = n > 0 ? strnlen(p->name, (size_t)n) : 0;

	p->truncated = len == sizeof(p->name);
	memset(p->name + len, 0, sizeof(p->name) - len);
	p->name[sizeof(p->name) - 1] = 0;
	p->found = len > 0;
}

int pt_elf_names(int fd, struct pt_elf_place *v, size_t n)
{
	struct names k = { .fd = fd, .v = v, .n = n };
	size_t n_phdrs, i;
	struct stat st;
	GElf_Ehdr eh;
	int ret = 0;

	for (i = 0; i < n; i++) {
		v[i].found = v[i].truncated = false;
		v[i].rank = 0;
		v[i].vaddr = 0;
	}
	if (elf_version(EV_CURRENT) == EV_NONE)
		return -EINVAL;
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	k.size = (uint64_t)st.st_size;
	k.buf = malloc(CHUNK * sizeof(*k.buf));
	if (!k.buf)
		return -ENOMEM;
	/* READ, not MMAP: a file truncated meanwhile must not raise SIGBUS */
	k.elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!k.elf || elf_kind(k.elf) != ELF_K_ELF ||
	    !gelf_getehdr(k.elf, &eh) || gelf_getclass(k.elf) != ELFCLASS64 ||
	    eh.e_ident[EI_DATA] != ELFDATA2LSB ||
	    elf_getphdrnum(k.elf, &n_phdrs) || n_phdrs > MAX_PHDRS) {
		ret = -ENOEXEC;
		goto out;
	}
	for (i = 0; i < n; i++)
		v[i].vaddr = vaddr_of(&k, n_phdrs, v[i].offset);
	qsort(v, n, sizeof(*v), by_vaddr);
	scan_type(&k, SHT_SYMTAB);
	scan_type(&k, SHT_DYNSYM);
	for (i = 0; i < n; i++) {
		if (v[i].rank && v[i].vaddr)
			read_name(fd, &v[i]);
		ret += v[i].found;
	}
out:
	if (k.elf)
		elf_end(k.elf);
	free(k.buf);
	return ret;
}
