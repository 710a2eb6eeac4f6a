/* SPDX-License-Identifier: BSD-2-Clause */
/* elf: a byte that says how far a hole goes behind the file, and the file. */
#include "fuzz.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture/elf.h"

#define PLACES 8

static const char *const names[] = { "cudaLaunchKernel", "cuLaunchKernel", "absent" };
#define NAMES 3

static void symbols(int fd, uint64_t size)
{
	struct pt_err err = { "" };
	uint64_t off[NAMES];
	int ret = pt_elf_read_symbols(fd, names, NAMES, off, &err), n = 0, i;

	for (i = 0; i < NAMES; i++) {
		FUZZ_HOLDS(off[i] < size || !off[i]);
		n += off[i] != 0;
	}
	FUZZ_HOLDS(ret < 0 ? err.msg[0] != 0 : ret == n);
}

static void objects(int fd)
{
	struct pt_err err = { "" };
	uint64_t address[NAMES], at;
	int ret = pt_elf_read_objects(fd, names, NAMES, 0x200, address, &at, &err), n = 0, i;

	for (i = 0; i < NAMES; i++)
		n += address[i] != 0;
	FUZZ_HOLDS(ret < 0 ? err.msg[0] != 0 : ret == n);
}

static void entries(int fd, uint64_t size)
{
	static const struct pt_entry_use use[NAMES] = { { .args = 0x3f, .stack = 1 } };
	struct pt_elf_entry e[NAMES];
	struct pt_err err = { "" };
	int i;

	if (pt_elf_read_entries(fd, names, use, NAMES, e, &err) < 0)
		return;
	for (i = 0; i < NAMES; i++) {
		FUZZ_HOLDS(e[i].offset < size && e[i].place.skip < PT_ENTRY_RUN);
		FUZZ_HOLDS(!e[i].place.skip || e[i].offset + e[i].place.skip < size);
	}
}

static void places(int fd, uint64_t size,
		   int (*read_names)(int fd, struct pt_elf_place *v, size_t n))
{
	struct pt_elf_place v[PLACES];
	int ret, n = 0, i;

	memset(v, 0xff, sizeof(v));
	for (i = 0; i < PLACES; i++)
		v[i].offset = i ? (uint64_t)i * 8 + 0x1f0 : UINT64_MAX - 3;
	v[PLACES - 1].offset = size;
	ret = read_names(fd, v, PLACES);
	for (i = 0; i < PLACES; i++) {
		n += v[i].found;
		if (v[i].found)
			FUZZ_HOLDS(v[i].name[0] && memchr(v[i].name, 0, sizeof(v[i].name)));
	}
	FUZZ_HOLDS(ret < 0 || ret == n);
}

void elf_run(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct pt_elf_dyn dyn;
	bool has[NAMES];
	uint64_t all;

	if (!size)
		return;
	all = size - 1 + (1ull << *data % 22) - 1;
	if (fd < 0)
		fd = memfd_create("elf", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 0) ||
	    pwrite(fd, data + 1, size - 1, 0) != (ssize_t)size - 1 ||
	    ftruncate(fd, (off_t)all))
		abort();
	symbols(fd, all);
	objects(fd);
	entries(fd, all);
	places(fd, all, pt_elf_read_names);
	places(fd, all, pt_elf_read_functions);
	if (!pt_elf_read_dyn(fd, names, NAMES, has, &dyn))
		FUZZ_HOLDS(memchr(dyn.soname, 0, sizeof(dyn.soname)));
}

/* ---- seeds: a library of one page with two functions ------------------------------ */

#define AT 0x10000 /* where it is loaded */
#define STRINGS "\0libfuzz.so\0cudaLaunchKernel\0cuLaunchKernel@@V1\0.dynsym\0" \
	"_ZN4pack7squeezeILi3E1vIiEEEiT0_\0_ZN1vIiElsEi"
/* of them, in STRINGS */
enum { SO = 1, FIRST = 12, SECOND = 29, TEMPLATE = 56, OPERATOR = 89 };

struct library {
	Elf64_Ehdr eh;
	Elf64_Phdr ph[2];
	Elf64_Sym sym[3];
	char str[sizeof(STRINGS)];
	struct {
		uint32_t buckets, first, bloom, shift;
		uint64_t filter;
		uint32_t bucket, chain[2];
	} __attribute__((packed)) hash;
	Elf64_Dyn dyn[6];
	unsigned char text[64];
	Elf64_Shdr sh[4];
};

static uint32_t gnu_hash(const char *s)
{
	uint32_t h = 5381;

	while (*s)
		h = h * 33 + (unsigned char)*s++;
	return h;
}

#define WHERE(member) (AT + offsetof(struct library, member))

static void make_library(struct library *l)
{
	*l = (struct library){
		.eh = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1 },
			.e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = 1,
			.e_phoff = offsetof(struct library, ph),
			.e_shoff = offsetof(struct library, sh),
			.e_ehsize = sizeof(l->eh), .e_phentsize = sizeof(l->ph[0]),
			.e_phnum = 2, .e_shentsize = sizeof(l->sh[0]), .e_shnum = 4 },
		.ph = { { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = AT,
			  .p_filesz = sizeof(*l), .p_memsz = sizeof(*l) },
			{ .p_type = PT_DYNAMIC,
			  .p_offset = offsetof(struct library, dyn),
			  .p_filesz = sizeof(l->dyn) } },
		.sym = { { 0 },
			 { FIRST, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 1,
			   WHERE(text), 32 },
			 { SECOND, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), 0, 1,
			   WHERE(text) + 32, 32 } },
		/* endbr64; push; test; je; pop; ret ... */
		.text = { 0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x85, 0xff, 0x74, 0x01, 0x90,
			  0x5d, 0xc3, 0x0f, 0x1f, 0x00, 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00,
			  0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x66, 0x90,
			  /* cmpl; je; jmp, as in the real driver */
			  0x81, 0x3d, 1, 2, 3, 0, 0, 0xba, 0x1c, 0x32, 0x74, 0x0c, 0xff,
			  0x25, 1, 2, 3, 0, 0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0xb8, 4, 0,
			  0, 0, 0xc3, 0x66, 0x90 },
		.str = STRINGS,
		.hash = { .buckets = 1, .first = 1, .bloom = 1, .filter = ~0ull,
			  .bucket = 1,
			  .chain = { gnu_hash("cudaLaunchKernel") & ~1u,
				     gnu_hash("cuLaunchKernel") | 1 } },
		.dyn = { { DT_SYMTAB, { WHERE(sym) } }, { DT_STRTAB, { WHERE(str) } },
			 { DT_STRSZ, { sizeof(l->str) } },
			 { DT_GNU_HASH, { WHERE(hash) } }, { DT_SONAME, { SO } },
			 { DT_NULL, { 0 } } },
		.sh = { { .sh_size = 4 },
			{ .sh_type = SHT_DYNSYM,
			  .sh_offset = offsetof(struct library, sym),
			  .sh_size = sizeof(l->sym), .sh_link = 3,
			  .sh_entsize = sizeof(l->sym[0]) },
			{ .sh_type = SHT_SYMTAB,
			  .sh_offset = offsetof(struct library, sym),
			  .sh_size = sizeof(l->sym), .sh_link = 3,
			  .sh_entsize = sizeof(l->sym[0]) },
			{ .sh_type = SHT_STRTAB,
			  .sh_offset = offsetof(struct library, str),
			  .sh_size = sizeof(l->str) } },
	};
}

/* Functions as compilers, and those who would mislead the choice of a place, begin them. The
 * first has 32 bytes; what it jumps to lies in the second. */
static void code_seeds(void)
{
	static const struct {
		const char *name, *code;
		uint8_t size;
	} codes[] = {
#define CODE(name, bytes) { name, bytes, sizeof(bytes) - 1 }
		CODE("jumps-out", "\xf3\x0f\x1e\xfa\x55\xeb\x31"),
		CODE("jumps-out-twice", "\xf3\x0f\x1e\xfa\x55\x74\x31\xeb\x2f"),
		CODE("jumps-to-data", "\xf3\x0f\x1e\xfa\x55\xeb\x38"),
		CODE("jumps-anywhere", "\xf3\x0f\x1e\xfa\x55\xff\xe0"),
		CODE("jumps-back", "\xf3\x0f\x1e\xfa\x55\xeb\xfd"),
		CODE("comes-back", "\xf3\x0f\x1e\xfa\x55\xeb\x19\x90\x90\x90\x90\x90\x90\x90\x90\x90"
				   "\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90"
				   "\xeb\xe0"),
		CODE("goes-on", "\xf3\x0f\x1e\xfa\x55\xeb\x19\xc3"),
		CODE("keeps-arguments", "\x48\x89\xf8\x41\x89\xfb\x48\x8d\x05\x01\x02\x03\x04\x55\xc3"),
		CODE("takes-an-argument", "\x48\x89\xf8\x31\xff\x55\xc3"),
		CODE("takes-a-byte", "\x88\xe0\xb2\x07\x55\xc3"),
		CODE("takes-the-stack", "\x48\x83\xec\x08\x55\xc3"),
		CODE("writes", "\x48\x89\x07\x55\xc3"),
		CODE("another", "\x0f\xa2\x55\xc3"),
		CODE("begins-cheap", "\x55\xc3"),
		CODE("long-nop", "\x0f\x1f\x44\x00\x00\x41\x54\xc3"),
		CODE("calls", "\xf3\x0f\x1e\xfa\x55\xe8\x01\x02\x03\x04\xff\xd0\xc3"),
		CODE("calls-itself", "\xf3\x0f\x1e\xfa\x55\xe8\xf8\xff\xff\xff\xc3"),
		CODE("transaction", "\xf3\x0f\x1e\xfa\x0f\x84\x01\x00\x00\x00\xc7\xf8\x00\x00\x00\x00\xc3"),
		CODE("no-code", "\xf3\x0f\x1e\xfa\x55\x06\x06"),
#undef CODE
	};
	struct library l;
	size_t i;

	for (i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		make_library(&l);
		memset(l.text, 0x90, 32);
		memcpy(l.text, codes[i].code, codes[i].size);
		fuzz_seed_as(codes[i].name, 0, &l, sizeof(l));
	}
}

void elf_seeds(void)
{
	struct library l;

	code_seeds();
	make_library(&l);
	fuzz_seed_as("library", 0, &l, sizeof(l));
	fuzz_seed_as("hole", 20, &l, sizeof(l));
	l.sym[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
	fuzz_seed_as("object", 0, &l, sizeof(l));
	l.sym[2].st_info = l.sym[1].st_info;
	fuzz_seed_as("objects", 0, &l, sizeof(l));
	l.sym[2].st_info = l.sym[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
	/* of C++, one without a size: its section goes on to there */
	l.sym[1].st_name = TEMPLATE;
	l.sym[2].st_name = OPERATOR;
	l.sym[1].st_shndx = l.sym[2].st_shndx = 1;
	fuzz_seed_as("functions", 0, &l, sizeof(l));
	l.sym[1].st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC);
	l.sym[1].st_size = l.sym[2].st_size = 0;
	l.sh[1].sh_type = SHT_PROGBITS;
	l.sh[1].sh_flags = SHF_EXECINSTR;
	l.sh[1].sh_addr = WHERE(text);
	l.sh[1].sh_size = sizeof(l.text);
	fuzz_seed_as("functions-without-sizes", 0, &l, sizeof(l));
	make_library(&l);
	l.eh.e_shnum = 0;
	fuzz_seed_as("first-section-counts", 0, &l, sizeof(l));
	l.eh.e_shoff = 0;
	fuzz_seed_as("no-sections", 0, &l, sizeof(l));
	l.ph[1].p_type = PT_NULL;
	fuzz_seed_as("static", 0, &l, sizeof(l));
	fuzz_seed_as("cut", 0, &l, sizeof(l.eh) + 20);
}
