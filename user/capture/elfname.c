/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/elf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/demangle.h"
#include "base/minmax.h"
#include "base/vec.h"
#include "capture/elffile.h"

#define RAW_MAX 2048 /* bytes of a function's name in its file */

struct names {
	struct pt_elf e;
	struct pt_elf_place *v;
	size_t n;
	bool functions; /* alone */
	bool whole; /* in .symtab, which has the file's own functions, too */
	uint32_t table;
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

/* Of two that hold it the inner one, of aliases the one that others may call. */
static bool is_better(const struct pt_elf_place *p, const Elf64_Sym *s, uint32_t rank)
{
	if (rank >> 1 != p->rank >> 1 || s->st_value == p->at)
		return rank > p->rank;
	return s->st_value > p->at;
}

static void note_below(struct names *k, struct pt_elf_place *p, const Elf64_Sym *s,
		       const Elf64_Shdr *str)
{
	k->whole |= ELF64_ST_BIND(s->st_info) == STB_LOCAL;
	if (s->st_value < p->below || (s->st_value == p->below && s->st_size <= p->below_size))
		return;
	p->below = s->st_value;
	p->below_size = s->st_size;
	p->below_str = str->sh_offset + s->st_name;
	p->below_section = s->st_shndx;
}

static void insert_symbol(void *ctx, const Elf64_Sym *s, const Elf64_Shdr *str)
{
	struct names *k = ctx;
	/* the first place at or behind the symbol */
	size_t lo = pt_bisect(k->n, i, k->v[i].vaddr < s->st_value);

	if (k->functions && ELF64_ST_TYPE(s->st_info) != STT_FUNC)
		return;
	if (lo < k->n && k->table == SHT_SYMTAB)
		note_below(k, &k->v[lo], s, str);
	for (; lo < k->n; lo++) {
		struct pt_elf_place *p = &k->v[lo];
		uint32_t rank = rank_of(s, p->vaddr);

		if (!rank)
			break;
		if (!is_better(p, s, rank))
			continue;
		p->rank = rank;
		p->str = str->sh_offset + s->st_name;
		p->at = s->st_value;
		p->size = s->st_size;
	}
}

/* Does the section of the function below go on to there? */
static bool is_behind(struct names *k, const struct pt_elf_place *p)
{
	Elf64_Shdr sh;

	return p->below_str && !p->below_size && pt_elf_section(&k->e, p->below_section, &sh) &&
	       sh.sh_flags & SHF_EXECINSTR && p->below >= sh.sh_addr &&
	       p->vaddr - sh.sh_addr < sh.sh_size;
}

/* What no function's size reaches, by functions that have none. */
static void insert_sizeless(struct names *k)
{
	size_t i;

	for (i = 0; i < k->n && k->whole; i++) {
		struct pt_elf_place *p = &k->v[i];

		/* of the place before, where nothing begins in between */
		if (i && p[-1].below_str && p[-1].below >= p->below) {
			p->below = p[-1].below;
			p->below_size = p[-1].below_size;
			p->below_str = p[-1].below_str;
			p->below_section = p[-1].below_section;
		}
		if (p->rank || !is_behind(k, p))
			continue;
		p->rank = 1;
		p->str = p->below_str;
		p->at = p->below;
		p->size = 0;
	}
}

/* "f(int)" as "f", "v<int, 3>::g" as "v<>::g". In place. */
static void shorten(char *name)
{
	static const char operator[] = "operator";
	unsigned depth = 0;
	char *to = name;
	const char *s;

	for (s = name; *s; s++) {
		if (!depth && !strncmp(s, operator, sizeof(operator) - 1)) {
			size_t n = sizeof(operator) - 1;

			/* <, <<, <=>, >, ->: no brackets */
			n += strspn(s + n, "<=>-");
			memmove(to, s, n);
			to += n;
			s += n - 1;
			continue;
		}
		depth -= *s == '>' && depth;
		if (!depth)
			*to++ = *s;
		depth += *s == '<';
	}
	*to = '\0';
}

/* As the source has it. */
static void name_in_source(char *raw)
{
	char *name;

	raw[strcspn(raw, "@")] = '\0'; /* a version's */
	name = pt_demangle_name(raw);
	if (!name)
		return;
	shorten(name);
	if (strlen(name) < RAW_MAX)
		strcpy(raw, name);
	free(name);
}

static void read_name(const struct names *k, struct pt_elf_place *p)
{
	char raw[RAW_MAX] = "";
	ssize_t n = pread(k->e.fd, raw, k->functions ? sizeof(raw) : sizeof(p->name),
			  (off_t)p->str);
	size_t len = n > 0 ? strnlen(raw, (size_t)n) : 0;

	p->truncated = len == (k->functions ? sizeof(raw) : sizeof(p->name));
	raw[len < sizeof(raw) ? len : sizeof(raw) - 1] = '\0';
	if (k->functions) {
		name_in_source(raw);
		len = strlen(raw);
		p->truncated |= len >= sizeof(p->name);
	}
	memset(p->name, 0, sizeof(p->name));
	memcpy(p->name, raw, len < sizeof(p->name) ? len : sizeof(p->name) - 1);
	/* the begin of a symbol is no name of its source's */
	p->found = p->name[0] && !(k->functions && p->truncated);
}

static int read_places(int fd, struct pt_elf_place *v, size_t n, bool functions)
{
	struct names k = { .v = v, .n = n, .functions = functions, .table = SHT_SYMTAB };
	int ret = pt_elf_open(&k.e, fd);
	size_t i;

	for (i = 0; i < n; i++) {
		v[i] = (struct pt_elf_place){ .offset = v[i].offset, .key = v[i].key };
		v[i].vaddr = ret ? 0 : vaddr_of(&k.e, v[i].offset);
	}
	if (ret)
		return ret;
	qsort(v, n, sizeof(*v), by_vaddr);
	ret = pt_elf_symbols_of(&k.e, SHT_SYMTAB, insert_symbol, &k);
	k.table = SHT_DYNSYM;
	ret = ret ?: pt_elf_symbols_of(&k.e, SHT_DYNSYM, insert_symbol, &k);
	if (ret)
		return ret;
	if (functions && !pt_elf_spent(&k.e))
		insert_sizeless(&k);
	for (i = 0; i < n; i++) {
		if (v[i].rank && v[i].vaddr)
			read_name(&k, &v[i]);
		if (v[i].found)
			v[i].begin = v[i].offset - (v[i].vaddr - v[i].at);
		ret += v[i].found;
	}
	return ret;
}

int pt_elf_read_names(int fd, struct pt_elf_place *v, size_t n)
{
	return read_places(fd, v, n, false);
}

int pt_elf_read_functions(int fd, struct pt_elf_place *v, size_t n)
{
	return read_places(fd, v, n, true);
}
