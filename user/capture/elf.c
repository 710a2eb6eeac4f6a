// SPDX-License-Identifier: BSD-2-Clause
#include "capture/elf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arch.h"
#include "capture/elffile.h"

#define NAME_MAX_LEN 256 /* bytes of a symbol's name that are looked at */
/* Pieces of the string table that are kept: symbols next to each other mostly
 * have names near each other. */
#define PIECE 4096
#define PIECES 1024

struct piece {
	uint64_t at; /* in the file, + 1; 0: empty */
	size_t len;
};

struct wanted {
	const char *name;
	uint64_t *offset;
	struct code *code; /* NULL: not asked for */
};

struct code {
	uint64_t at, size;
};

struct lookup {
	struct pt_elf e;
	struct wanted *v; /* by name */
	size_t n, found;
	bool objects; /* not functions; their addresses, not offsets */
	struct piece *piece;
	char (*text)[PIECE + NAME_MAX_LEN]; /* of each piece; not cleared, as it is 4 MiB */
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct wanted *)a)->name,
		      ((const struct wanted *)b)->name);
}

/* The name at `at` of the file without its version; false: none that counts. */
static bool name_at(struct lookup *l, uint64_t at, char out[NAME_MAX_LEN])
{
	uint64_t begin = at & ~(uint64_t)(PIECE - 1);
	size_t slot = begin / PIECE % PIECES;
	struct piece *p = &l->piece[slot];
	size_t off = (size_t)(at - begin), i;

	if (p->at != begin + 1) {
		p->at = begin + 1;
		p->len = sizeof(l->text[slot]);
		if (p->len > l->e.size - begin)
			p->len = (size_t)(l->e.size - begin);
		if (!pt_elf_get(&l->e, begin, l->text[slot], p->len))
			p->len = 0;
	}
	for (i = 0; i < NAME_MAX_LEN && off + i < p->len; i++) {
		out[i] = l->text[slot][off + i];
		if (out[i] == '@')
			out[i] = '\0';
		if (!out[i])
			return i > 0;
	}
	return false;
}

static void note_symbol(void *ctx, const Elf64_Sym *s, const Elf64_Shdr *strings)
{
	char name[NAME_MAX_LEN];
	struct lookup *l = ctx;
	struct wanted key = { .name = name }, *w;
	uint64_t off;

	if (ELF64_ST_TYPE(s->st_info) != (l->objects ? STT_OBJECT : STT_FUNC) ||
	    !name_at(l, strings->sh_offset + s->st_name, name))
		return;
	w = bsearch(&key, l->v, l->n, sizeof(*l->v), by_name);
	off = s->st_value;
	if (!w || (!l->objects && !pt_elf_offset(&l->e, s->st_value, PF_X, &off)))
		return;
	/* a name may be wanted twice */
	while (w > l->v && !strcmp(w[-1].name, name))
		w--;
	for (; w < l->v + l->n && !strcmp(w->name, name); w++) {
		if (*w->offset || !off)
			continue;
		*w->offset = off;
		if (w->code)
			*w->code = (struct code){ s->st_value, s->st_size };
		l->found++;
	}
	if (l->found == l->n)
		l->e.symbols = 0; /* there is no more to look for */
}

static int open_file(struct lookup *l, int fd, struct pt_err *err)
{
	int ret = pt_elf_open(&l->e, fd);

	if (ret == -EINVAL)
		return pt_err_set(err, ret, "it is not a regular file");
	if (ret == -ENOEXEC)
		return pt_err_set(err, ret, "it is not a valid ELF file for " PT_ARCH_NAME);
	return ret ? pt_err_set(err, ret, "it cannot be read: %s",
				strerror(-ret)) : 0;
}

/* In the file that `l` has open; `code` may be NULL. */
static int look_up(struct lookup *l, const char *const *names, uint64_t *out,
		   struct code *code, struct pt_err *err)
{
	size_t i;
	int ret;

	l->v = calloc(l->n + 1, sizeof(*l->v));
	l->piece = calloc(PIECES, sizeof(*l->piece));
	l->text = malloc(PIECES * sizeof(*l->text));
	if (!l->v || !l->piece || !l->text) {
		ret = pt_err_set(err, -ENOMEM, "out of memory");
		goto out;
	}
	for (i = 0; i < l->n; i++)
		l->v[i] = (struct wanted){ names[i], &out[i], code ? &code[i] : NULL };
	qsort(l->v, l->n, sizeof(*l->v), by_name);
	ret = pt_elf_symbols_of(&l->e, SHT_DYNSYM, note_symbol, l);
	if (!ret && l->found < l->n)
		ret = pt_elf_symbols_of(&l->e, SHT_SYMTAB, note_symbol, l);
	if (ret)
		pt_err_set(err, ret, "out of memory");
	else if (!l->found && pt_elf_spent(&l->e))
		ret = pt_err_set(err, -EFBIG, "it claims more symbols than are "
				 "looked at");
	else
		ret = (int)l->found;
out:
	free(l->text);
	free(l->piece);
	free(l->v);
	return ret;
}

int pt_elf_read_symbols(int fd, const char *const *names, size_t n,
			uint64_t *file_offsets, struct pt_err *err)
{
	struct lookup l = { .n = n };
	int ret;

	memset(file_offsets, 0, n * sizeof(*file_offsets));
	ret = open_file(&l, fd, err);
	return ret ? ret : look_up(&l, names, file_offsets, NULL, err);
}

/* Bytes at an address that lie in the file, of one segment. */
static size_t get_code(void *ctx, uint64_t at, void *out, size_t len)
{
	struct pt_elf *e = ctx;
	const Elf64_Phdr *p;
	uint64_t off;

	if (!pt_elf_offset(e, at, PF_X, &off))
		return 0;
	for (p = e->ph; p < e->ph + e->n_ph; p++)
		if (p->p_type == PT_LOAD && p->p_flags & PF_X && at >= p->p_vaddr &&
		    at - p->p_vaddr < p->p_filesz && len > p->p_filesz - (at - p->p_vaddr))
			len = (size_t)(p->p_filesz - (at - p->p_vaddr));
	if (len > e->size - off)
		len = (size_t)(e->size - off);
	return pt_elf_get(e, off, out, len) ? len : 0;
}

int pt_elf_read_entries(int fd, const char *const *names, const struct pt_entry_use *use,
			size_t n, struct pt_elf_entry *out, struct pt_err *err)
{
	struct code *code = calloc(n + 1, sizeof(*code));
	uint64_t *offset = calloc(n + 1, sizeof(*offset));
	struct pt_decoder *d = pt_decoder_new();
	struct lookup l = { .n = n };
	size_t i;
	int ret;

	memset(out, 0, n * sizeof(*out));
	ret = code && offset && d ? open_file(&l, fd, err) :
				    pt_err_set(err, -ENOMEM, "out of memory");
	ret = ret ?: look_up(&l, names, offset, code, err);
	for (i = 0; ret > 0 && i < n; i++) {
		const struct pt_entry_code c = { .at = code[i].at, .size = code[i].size,
						 .get = get_code, .ctx = &l.e };

		if (!offset[i])
			continue;
		out[i].offset = offset[i];
		out[i].place = pt_entry_place(d, &c, use[i]);
	}
	pt_decoder_free(d);
	free(offset);
	free(code);
	return ret;
}

int pt_elf_read_objects(int fd, const char *const *names, size_t n, uint64_t offset,
			uint64_t *addresses, uint64_t *at, struct pt_err *err)
{
	struct lookup l = { .n = n, .objects = true };
	const Elf64_Phdr *p;
	int ret;

	memset(addresses, 0, n * sizeof(*addresses));
	*at = 0;
	ret = open_file(&l, fd, err);
	if (ret)
		return ret;
	for (p = l.e.ph; p < l.e.ph + l.e.n_ph; p++)
		if (p->p_type == PT_LOAD && offset >= (p->p_offset & ~4095ull) &&
		    offset < p->p_offset + p->p_filesz)
			*at = p->p_vaddr - p->p_offset + offset;
	return look_up(&l, names, addresses, NULL, err);
}
