// SPDX-License-Identifier: BSD-2-Clause
/* ELF symbols: against this very program in memory, and against damage. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "capture/elf.h"

static char dir[64];

/* Found by name; long enough that its bytes are not somebody else's. */
int pt_test_marker(int x);
__attribute__((noinline)) int pt_test_marker(int x)
{
	return x * 31 + (x >> 3) * 17 + (x ^ 0x5a5a) * 13;
}

static int symbols(const char *path, const char *const *names, size_t n,
		   uint64_t *off, struct pt_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), ret;

	assert_true(fd >= 0);
	ret = pt_elf_symbols(fd, names, n, off, err);
	close(fd);
	return ret;
}

static void same_bytes(const char *path, uint64_t offset, const void *code)
{
	unsigned char buf[16];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, buf, sizeof(buf), (off_t)offset),
			 sizeof(buf));
	close(fd);
	assert_memory_equal(buf, code, sizeof(buf));
}

static void offsets_are_where_the_code_is(void **state)
{
	const char *names[] = { "pt_test_marker", "no_such_function",
				"pt_test_marke", "pt_test_marker_" };
	uint64_t off[4] = { 1, 1, 1, 1 };
	struct pt_err err;

	(void)state;
	assert_int_equal(symbols("/proc/self/exe", names, 4, off, &err),
			 1);
	assert_int_not_equal(off[0], 0);
	assert_int_equal(off[1], 0);
	assert_int_equal(off[2], 0);
	assert_int_equal(off[3], 0);
	same_bytes("/proc/self/exe", off[0], (void *)pt_test_marker);
}

/* strlen of glibc is chosen at run time: its symbol is the chooser. */
static void a_library_and_its_indirect_functions(void **state)
{
	const char *names[] = { "gnu_get_libc_version", "strlen", "errno",
				"__libc_start_main" };
	uint64_t off[4];
	struct pt_err err;
	Dl_info info;
	void *code = dlsym(RTLD_NEXT, "gnu_get_libc_version");

	(void)state;
	assert_non_null(code);
	assert_true(dladdr(code, &info));
	assert_int_equal(symbols(info.dli_fname, names, 4, off, &err),
			 2);
	same_bytes(info.dli_fname, off[0], code);
	assert_int_equal(off[1], 0);
	assert_int_equal(off[2], 0);
	assert_int_not_equal(off[3], 0); /* has versions */
}

static void what_is_no_library_is_refused(void **state)
{
	const char *names[] = { "f" };
	char path[128];
	struct pt_err err = { "" };
	uint64_t off = 1;
	int fd;

	(void)state;
	assert_int_equal(symbols("/tmp", names, 1, &off, &err), -EINVAL);
	assert_int_equal(off, 0);
	assert_int_equal(symbols("/dev/zero", names, 1, &off, &err),
			 -EINVAL);
	/* nobody writes to it: must not hang */
	snprintf(path, sizeof(path), "%s/fifo", dir);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(symbols(path, names, 1, &off, &err), -EINVAL);
	unlink(path);
	snprintf(path, sizeof(path), "%s/text", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "hello", 5), 5);
	close(fd);
	assert_int_equal(symbols(path, names, 1, &off, &err), -ENOEXEC);
	unlink(path);
}

/* zlib: small, stripped, and linked by libelf. */
static const char *zlib_path(void)
{
	static char path[256];
	Dl_info info;

	assert_true(dladdr(dlsym(RTLD_DEFAULT, "zlibVersion"), &info));
	snprintf(path, sizeof(path), "%s", info.dli_fname);
	return path;
}

static void places_have_names(void **state)
{
	const char *names[] = { "pt_test_marker" }, *more[] = { "crc32" };
	struct pt_elf_place v[4];
	struct pt_err err;
	uint64_t off;
	int fd;

	(void)state;
	assert_int_equal(symbols("/proc/self/exe", names, 1, &off, &err),
			 1);
	memset(v, 0xff, sizeof(v));
	v[0].offset = off;
	v[0].key = 0;
	v[1].offset = 3; /* the ELF header */
	v[1].key = 1;
	v[2].offset = off + 2; /* within it */
	v[2].key = 2;
	v[3].offset = UINT64_MAX;
	v[3].key = 3;
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pt_elf_names(fd, v, 4), 2);
	close(fd);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(v[i].found, v[i].key % 2 == 0);
		if (v[i].found)
			assert_string_equal(v[i].name, "pt_test_marker");
	}
	/* without .symtab what it exports still has its name */
	assert_int_equal(symbols(zlib_path(), more, 1, &off, &err), 1);
	v[0].offset = off;
	fd = open(zlib_path(), O_RDONLY | O_CLOEXEC);
	assert_int_equal(pt_elf_names(fd, v, 1), 1);
	assert_string_equal(v[0].name, "crc32");
	close(fd);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pt_elf_names(fd, v, 1), -EINVAL);
	close(fd);
}

/* Functions of assembly: none has a size, and one is the file's own. */
__asm__(".text\n"
	".globl pt_test_bare\n.type pt_test_bare, @function\npt_test_bare:\n\tnop\n\tnop\n"
	".type pt_test_own, @function\npt_test_own:\n\tnop\n\tnop\n"
	".globl pt_test_sized\n.type pt_test_sized, @function\npt_test_sized:\n\tnop\n"
	".size pt_test_sized, 1\n\tnop\n\tnop\n"
	".globl _ZN4loop3runILi3EEEvPKci\n.type _ZN4loop3runILi3EEEvPKci, @function\n"
	"_ZN4loop3runILi3EEEvPKci:\n\tnop\n\tnop\n.size _ZN4loop3runILi3EEEvPKci, 2\n"
	".globl _ZN4loopltERKS_i\n.type _ZN4loopltERKS_i, @function\n"
	"_ZN4loopltERKS_i:\n\tnop\n\tnop\n.size _ZN4loopltERKS_i, 2\n"
	".globl pt_test_object\n.type pt_test_object, @object\npt_test_object:\n\tnop\n\tnop\n"
	".size pt_test_object, 2\n");

static struct pt_elf_place function_at(const char *path, uint64_t offset)
{
	struct pt_elf_place v = { .offset = offset };
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret;

	assert_true(fd >= 0);
	ret = pt_elf_functions(fd, &v, 1);
	assert_int_equal(ret, v.found);
	close(fd);
	return v;
}

static void is_function(uint64_t offset, const char *name, uint64_t begin, uint64_t size)
{
	struct pt_elf_place v = function_at("/proc/self/exe", offset);

	assert_int_equal(v.found, name != NULL);
	if (!name)
		return;
	assert_string_equal(v.name, name);
	assert_int_equal(v.begin, begin);
	assert_int_equal(v.size, size);
}

static void functions_hold_what_is_theirs(void **state)
{
	const char *names[] = { "pt_test_bare", "pt_test_own", "pt_test_sized",
				"_ZN4loop3runILi3EEEvPKci", "_ZN4loopltERKS_i" };
	struct pt_elf_place v;
	struct pt_err err;
	char path[128], line[256];
	uint64_t off[5];

	(void)state;
	assert_int_equal(symbols("/proc/self/exe", names, 5, off, &err), 5);
	is_function(off[0] + 1, "pt_test_bare", off[0], 0);
	is_function(off[1] + 1, "pt_test_own", off[1], 0);
	is_function(off[2], "pt_test_sized", off[2], 1);
	is_function(off[2] + 1, NULL, 0, 0); /* its size ends before */
	is_function(off[3] + 1, "loop::run<>", off[3], 2);
	is_function(off[4], "loop::operator<", off[4], 2);
	is_function(off[4] + 2, NULL, 0, 0); /* no function */
	/* with what it exports alone, nobody knows what is behind a function without a size, nor
	 * where what it keeps to itself is */
	snprintf(path, sizeof(path), "%s/stripped", dir);
	snprintf(line, sizeof(line), "strip -x -o %s /proc/%d/exe", path, (int)getpid());
	if (system(line)) /* NOLINT(cert-env33-c): of this test's own making */
		skip();
	v = function_at(path, off[0]);
	assert_true(v.found);
	assert_string_equal(v.name, "pt_test_bare");
	assert_false(function_at(path, off[0] + 1).found);
	assert_false(function_at(path, off[1]).found);
	assert_string_equal(function_at(path, off[3] + 1).name, "loop::run<>");
	unlink(path);
}

static void what_a_library_exports(void **state)
{
	/* it calls malloc; deflateXX is nobody's */
	const char *names[] = { "deflate", "malloc", "deflateXX", "crc32" };
	int fd = open(zlib_path(), O_RDONLY | O_CLOEXEC);
	struct pt_elf_dyn dyn;
	bool has[4];

	(void)state;
	assert_int_equal(pt_elf_dyn(fd, names, 4, has, &dyn), 0);
	close(fd);
	assert_string_equal(dyn.soname, "libz.so.1");
	assert_true(has[0] && has[3]);
	assert_false(has[1] || has[2]);
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pt_elf_dyn(fd, names, 4, has, &dyn), 0);
	close(fd);
	assert_true(dyn.symtab_bytes > 1000);
	assert_string_equal(dyn.soname, "");
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pt_elf_dyn(fd, names, 4, has, &dyn), -ENOEXEC);
	close(fd);
}

/* ---- a file that claims what it has not --------------------------------------- */

/* Sparse: a few pages on the disk, and as many functions as `claim` bytes hold,
 * all of them named by the same byte of a string table as large. */
static void make_sparse(const char *path, uint64_t claim, uint32_t shnum)
{
	Elf64_Ehdr eh = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB,
			     EV_CURRENT },
		.e_type = ET_DYN, .e_machine = EM_X86_64, .e_phnum = 1,
		.e_version = EV_CURRENT,
		.e_ehsize = sizeof(eh), .e_phoff = sizeof(eh), .e_shoff = 4096,
		.e_phentsize = sizeof(Elf64_Phdr), .e_shnum = shnum ? 0 : 3,
		.e_shentsize = sizeof(Elf64_Shdr),
	};
	Elf64_Phdr ph = { .p_type = PT_LOAD, .p_flags = PF_X | PF_R,
			  .p_filesz = claim, .p_memsz = claim };
	Elf64_Shdr sh[3] = {
		{ .sh_size = shnum },
		{ .sh_type = SHT_DYNSYM, .sh_offset = 8192, .sh_size = claim,
		  .sh_entsize = sizeof(Elf64_Sym), .sh_link = 2 },
		{ .sh_type = SHT_STRTAB, .sh_offset = 8192 + claim,
		  .sh_size = claim },
	};
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &eh, sizeof(eh), 0), sizeof(eh));
	assert_int_equal(pwrite(fd, &ph, sizeof(ph), sizeof(eh)), sizeof(ph));
	assert_int_equal(pwrite(fd, sh, sizeof(sh), 4096), sizeof(sh));
	assert_int_equal(ftruncate(fd, (off_t)(8192 + 2 * claim)), 0);
	close(fd);
}

static long peak_kib(void)
{
	struct rusage u;

	assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
	return u.ru_maxrss;
}

static void what_a_file_claims_is_not_taken(void **state)
{
	const char *names[] = { "cudaLaunchKernel" };
	uint64_t begin = pt_now_ns(), off;
	struct pt_err err = { "" };
	long before = peak_kib();
	struct pt_elf_place v = { 0 };
	char path[128];
	int i, fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/sparse.so", dir);
	for (i = 0; i < 2; i++) {
		/* a gigabyte of symbols; a billion sections */
		make_sparse(path, 1ull << 30, i ? 1u << 30 : 0);
		assert_int_equal(symbols(path, names, 1, &off, &err), -EFBIG);
		assert_non_null(strstr(err.msg, "more symbols"));
		fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_int_equal(pt_elf_names(fd, &v, 1), 0);
		assert_int_equal(pt_elf_functions(fd, &v, 1), 0);
		close(fd);
	}
	unlink(path);
	assert_true(peak_kib() - before < 32 << 10);
	assert_true(pt_now_ns() - begin < 20000000000ull);
}

/* ---- damage -------------------------------------------------------------- */

static uint64_t rng = 0x9e3779b97f4a7c15;

static uint32_t next(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (uint32_t)(rng >> 16);
}

static unsigned char *slurp(const char *path, size_t *len)
{
	struct stat st;
	unsigned char *p;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0 && !fstat(fd, &st));
	p = malloc((size_t)st.st_size);
	assert_non_null(p);
	assert_int_equal(read(fd, p, (size_t)st.st_size), st.st_size);
	close(fd);
	*len = (size_t)st.st_size;
	return p;
}

static void try_bytes(const char *path, const unsigned char *p, size_t len)
{
	const char *names[] = { "dlopen", "dlsym", "deflate", "inflate",
				"crc32", "adler32" };
	uint64_t off[6];
	struct pt_elf_place v[8];
	struct pt_elf_dyn dyn;
	struct pt_err err = { "" };
	bool has[6];
	int fd, ret, i, n = 0;

	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, p, len), len);
	close(fd);
	ret = symbols(path, names, 6, off, &err);
	if (ret < 0)
		assert_true(err.msg[0]);
	for (i = 0; i < 6; i++) {
		assert_true(off[i] < len || !off[i]);
		n += off[i] != 0;
	}
	if (ret >= 0)
		assert_int_equal(ret, n);

	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	memset(v, 0xff, sizeof(v));
	for (i = 0; i < 8; i++)
		v[i].offset = i ? next() % (2 * len + 1) : UINT64_MAX - 3;
	ret = pt_elf_names(fd, v, 8);
	for (i = n = 0; i < 8; i++) {
		n += v[i].found;
		if (v[i].found)
			assert_true(strnlen(v[i].name, sizeof(v[i].name)) <
				    sizeof(v[i].name));
	}
	if (ret >= 0)
		assert_int_equal(ret, n);
	ret = pt_elf_functions(fd, v, 8);
	for (i = n = 0; i < 8; i++) {
		n += v[i].found;
		assert_true(!v[i].found ||
			    strnlen(v[i].name, sizeof(v[i].name)) < sizeof(v[i].name));
	}
	if (ret >= 0)
		assert_int_equal(ret, n);
	(void)pt_elf_dyn(fd, names, 6, has, &dyn);
	assert_true(strnlen(dyn.soname, sizeof(dyn.soname)) <
		    sizeof(dyn.soname));
	close(fd);
}

static void damage_is_survived(void **state)
{
	unsigned char *orig, *p;
	char path[128];
	size_t len, i, k, at;
	Elf64_Ehdr eh;

	(void)state;
	orig = slurp(zlib_path(), &len);
	p = malloc(len);
	assert_non_null(p);
	snprintf(path, sizeof(path), "%s/damaged.so", dir);
	memcpy(&eh, orig, sizeof(eh));
	for (i = 0; i < 64; i++)
		try_bytes(path, orig, i < 32 ? i * 5 : next() % len);
	for (i = 0; i < 600; i++) {
		memcpy(p, orig, len);
		for (k = 0; k < 1 + i % 8; k++) {
			/* where the structure is: header, program headers,
			 * section headers, hash table and symbols, the
			 * dynamic section at the end of the data; now and
			 * then anywhere */
			at = i % 6 == 0 ? next() % sizeof(eh) :
			     i % 6 == 1 ? eh.e_phoff + next() % 512 :
			     i % 6 == 2 ? eh.e_shoff + next() % 2048 :
			     i % 6 == 3 ? next() % 8192 :
			     i % 6 == 4 ? len - 1 - next() % 8192 :
					  next() % len;
			if (at < len)
				p[at] = next() % 3 ? (unsigned char)next() :
						     0xff;
		}
		memcpy(p, ELFMAG, SELFMAG);
		try_bytes(path, p, len);
	}
	unlink(path);
	free(p);
	free(orig);
}

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/pt-elf-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

/* What the child took is told while it lives, and once it has ended. */
static void test_child_cpu(void **state)
{
	static const char *const names[] = { "malloc" };
	uint64_t before = pt_elf_child_cpu_ns(), lives, offset;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), i;
	struct pt_err err;

	(void)state;
	assert_true(fd >= 0);
	for (i = 0; i < 50; i++)
		(void)pt_elf_symbols(fd, names, 1, &offset, &err);
	lives = pt_elf_child_cpu_ns();
	assert_true(lives > before);
	pt_elf_child_end();
	assert_true(pt_elf_child_cpu_ns() >= lives);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_child_cpu),
		cmocka_unit_test(offsets_are_where_the_code_is),
		cmocka_unit_test(a_library_and_its_indirect_functions),
		cmocka_unit_test(what_is_no_library_is_refused),
		cmocka_unit_test(places_have_names),
		cmocka_unit_test(functions_hold_what_is_theirs),
		cmocka_unit_test(what_a_library_exports),
		cmocka_unit_test(what_a_file_claims_is_not_taken),
		cmocka_unit_test(damage_is_survived),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
