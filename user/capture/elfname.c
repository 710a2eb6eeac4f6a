/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/elf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/minmax.h"
#include "base/vec.h"
#include "capture/elffile.h"

struct names {
	struct pt_elf e;
	struct pt_elf_place *v;
	size_t n;
};

/* The address that the file's own headers give this byte; 0: none. */
static uint64_t vaddr_of(const struct pt_elf *e, uint64_t off)
{
	uint64_t at;

	pt_each_of(const Elf64_Phdr, p, e->ph, e->n_ph) {
		if (p->p_type != PT_LOAD || off < p->p_offset ||
		    off - p->p_offset >= p->p_filesz)
			continue;
		if (__builtin_add_overflow(off - p->p_offset, p->p_vaddr, &at))
			return 0;
		return at;
	}
	return 0;
}

PT_ORDER(by_vaddr, struct pt_elf_place, pt_cmp(x->vaddr, y->vaddr))

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

static void insert_symbol(void *ctx, const Elf64_Sym *s, const Elf64_Shdr *str)
{
	struct names *k = ctx;
	/* the first place at or behind the symbol */
	size_t lo = pt_bisect(k->n, i, k->v[i].vaddr < s->st_value);

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

static void read_name(int fd, struct pt_elf_place *p)
{
	ssize_t n = pread(fd, p->name, sizeof(p->name), (off_t)p->str);
	size_t len = n > 0 ? strnlen(p->name, (size_t)n) : 0;

	p->truncated = len == sizeof(p->name);
	memset(p->name + len, 0, sizeof(p->name) - len);
	p->name[sizeof(p->name) - 1] = 0;
	p->found = len > 0;
}

int pt_elf_read_names(int fd, struct pt_elf_place *v, size_t n)
{
	struct names k = { .v = v, .n = n };
	int ret = pt_elf_open(&k.e, fd);
	size_t i;

	for (i = 0; i < n; i++) {
		v[i].found = v[i].truncated = false;
		v[i].rank = 0;
		v[i].vaddr = ret ? 0 : vaddr_of(&k.e, v[i].offset);
	}
	if (ret)
		return ret;
	qsort(v, n, sizeof(*v), by_vaddr);
	ret = pt_elf_symbols_of(&k.e, SHT_SYMTAB, insert_symbol, &k);
	ret = ret ?: pt_elf_symbols_of(&k.e, SHT_DYNSYM, insert_symbol, &k);
	if (ret)
		return ret;
	for (i = 0; i < n; i++) {
		if (v[i].rank && v[i].vaddr)
			read_name(fd, &v[i]);
		ret += v[i].found;
	}
	return ret;
}
