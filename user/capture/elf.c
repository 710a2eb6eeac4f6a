// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/elf.h"

/* A hostile file may claim any number of symbols; the largest real libraries
 * have a few hundred thousand. */
#define MAX_SYMBOLS (8u << 20)
#define MAX_PHDRS 4096

struct lookup {
	Elf *elf;
	uint64_t file_size;
	size_t n_phdrs;
	const char *const *names;
	size_t n;
	uint64_t *offsets;
};

static bool name_matches(const char *sym, const char *want)
{
	size_t len = strlen(want);

	return !strncmp(sym, want, len) && (!sym[len] || sym[len] == '@');
}

/* Where in the file the byte at `vaddr` lies; 0 when no segment that is
 * mapped for execution holds it. */
static uint64_t file_offset(const struct lookup *l, uint64_t vaddr)
{
	GElf_Phdr ph;
	uint64_t off;
	size_t i;

	for (i = 0; i < l->n_phdrs; i++) {
		if (!gelf_getphdr(l->elf, (int)i, &ph))
			continue;
		if (ph.p_type != PT_LOAD || !(ph.p_flags & PF_X))
			continue;
		if (vaddr < ph.p_vaddr || vaddr - ph.p_vaddr >= ph.p_filesz)
			continue;
		off = vaddr - ph.p_vaddr;
		if (__builtin_add_overflow(off, ph.p_offset, &off))
			return 0;
		return off < l->file_size ? off : 0;
	}
	return 0;
}

static void take_symbol(struct lookup *l, const GElf_Sym *sym, const char *name)
{
	size_t i;

	if (GELF_ST_TYPE(sym->st_info) != STT_FUNC ||
	    sym->st_shndx == SHN_UNDEF || !sym->st_value)
		return;
	for (i = 0; i < l->n; i++)
		if (!l->offsets[i] && name_matches(name, l->names[i]))
			l->offsets[i] = file_offset(l, sym->st_value);
}

static void scan_table(struct lookup *l, Elf_Scn *scn, const GElf_Shdr *sh)
{
	Elf_Data *data = elf_getdata(scn, NULL);
	size_t i, count;
	GElf_Sym sym;
	const char *name;

	if (!data || !data->d_buf || !sh->sh_entsize)
		return;
	/* d_size, not sh_size: libelf has checked it against the file */
	count = data->d_size / sh->sh_entsize;
	if (count > MAX_SYMBOLS)
		count = MAX_SYMBOLS;
	for (i = 0; i < count; i++) {
		if (!gelf_getsym(data, (int)i, &sym))
			return;
		/* NULL unless the string is inside its section and ends */
		name = elf_strptr(l->elf, sh->sh_link, sym.st_name);
		if (name && *name)
			take_symbol(l, &sym, name);
	}
}

static void scan_type(struct lookup *l, uint32_t type)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr sh;

	while ((scn = elf_nextscn(l->elf, scn)))
		if (gelf_getshdr(scn, &sh) && sh.sh_type == type)
			scan_table(l, scn, &sh);
}

static size_t found(const struct lookup *l)
{
	size_t i, k = 0;

	for (i = 0; i < l->n; i++)
		k += l->offsets[i] != 0;
	return k;
}

int pt_elf_symbols(const char *path, const char *const *names, size_t n,
		   uint64_t *file_offsets, struct pt_err *err)
{
	struct lookup l = { .names = names, .n = n, .offsets = file_offsets };
	struct stat st;
	GElf_Ehdr eh;
	int fd, ret;

	memset(file_offsets, 0, n * sizeof(*file_offsets));
	if (elf_version(EV_CURRENT) == EV_NONE)
		return pt_err_set(err, -EINVAL,
				  "the ELF library is too old for this program");

	/* O_NONBLOCK: a path of the target's choice may be a FIFO by now */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		ret = -errno;
		return pt_err_set(err, ret, "cannot open library %s: %s", path,
				  strerror(-ret));
	}
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		ret = pt_err_set(err, -EINVAL, "%s is not a regular file",
				 path);
		goto out;
	}
	l.file_size = (uint64_t)st.st_size;

	/* READ, not MMAP: a file truncated meanwhile must not raise SIGBUS */
	l.elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!l.elf || elf_kind(l.elf) != ELF_K_ELF || !gelf_getehdr(l.elf, &eh)) {
		ret = pt_err_set(err, -ENOEXEC, "%s is not an ELF file", path);
		goto out;
	}
	if (eh.e_machine != EM_X86_64 || gelf_getclass(l.elf) != ELFCLASS64) {
		ret = pt_err_set(err, -ENOEXEC,
				 "%s is not a library for x86-64", path);
		goto out;
	}
	if (elf_getphdrnum(l.elf, &l.n_phdrs) || l.n_phdrs > MAX_PHDRS) {
		ret = pt_err_set(err, -ENOEXEC,
				 "%s has damaged program headers", path);
		goto out;
	}
	scan_type(&l, SHT_DYNSYM);
	if (found(&l) < n)
		scan_type(&l, SHT_SYMTAB);
	ret = (int)found(&l);
out:
	if (l.elf)
		elf_end(l.elf);
	close(fd);
	return ret;
}
