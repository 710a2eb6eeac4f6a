// SPDX-License-Identifier: BSD-2-Clause
/* Where a process has its interpreter, and where that has what a stack is made of. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/discover.h"
#include "capture/elf.h"
#include "python/reader_int.h"

#define MAX_FILES 512
/* Any published offset is below; a bound, not a size. */
#define OFFSET_MAX (1u << 20)

static const struct layout layouts[] = {
#define PT_PY(minor, ...) { minor, __VA_ARGS__ },
#include "python/layout.def"
#undef PT_PY
};

/* "libpython3.11.so.1.0", "python3.11", "x.cpython-311-x86_64-linux-gnu.so": 11; -1. */
static int minor_of_name(const char *path)
{
	const char *base = strrchr(path, '/'), *s;
	int minor;

	base = base ? base + 1 : path;
	s = strstr(base, "python3.");
	if (s && sscanf(s + 8, "%2d", &minor) == 1)
		return minor;
	s = strstr(base, ".cpython-3");
	if (s && sscanf(s + 10, "%2d", &minor) == 1)
		return minor;
	return -1;
}

/* Addresses in the process of what the file defines; 0: it does not. */
static bool addresses(const struct pt_gpulib *g, uint64_t out[2])
{
	static const char *const names[] = { "_PyRuntime", "Py_Version" };
	uint64_t vaddr[2] = { 0, 0 }, at = 0;
	int fd = pt_gpulib_open(g), i, n;
	struct pt_err err;

	n = fd < 0 ? 0 : pt_elf_objects(fd, names, 2, g->offset, vaddr, &at, &err);
	if (fd >= 0)
		close(fd);
	for (i = 0; i < 2; i++)
		out[i] = n > 0 && vaddr[i] ? g->start - at + vaddr[i] : 0;
	return out[0];
}

/* The published table from 3.13 on; a stranger's word: each number is bounded. */
static bool take_published(struct pt_py *p, struct pt_err *err, int *ret)
{
	enum { COOKIE, VERSION, FREE_THREADED, INTERPRETERS = 5, THREADS = 9, NEXT = 21, FRAME = 23,
	       ID, NATIVE, PREVIOUS = 29, CODE, INSTR, OWNER = 33, FILE_NAME = 35, NAME, QUALNAME,
	       LINES, FIRST_LINE, BYTECODE = 43, NR };
	uint64_t v[NR];
	struct layout *l = &p->at;
	int i;

	if (!get(p, p->runtime, v, sizeof(v)) || memcmp(&v[COOKIE], "xdebugpy", 8))
		return false;
	if (v[FREE_THREADED]) {
		*ret = pt_err_set(err, -EOPNOTSUPP, "its Python is a free-threaded build, whose "
				  "stacks pipetrace cannot read");
		return true;
	}
	for (i = INTERPRETERS; i < NR; i++)
		if (v[i] >= OFFSET_MAX && i != 20)
			return false;
	*l = (struct layout){
		.minor = l->minor, .interpreters = (uint32_t)v[INTERPRETERS],
		.threads = (uint32_t)v[THREADS], .thread_next = (uint32_t)v[NEXT],
		.frame = (uint32_t)v[FRAME], .thread_id = (uint32_t)v[ID],
		.native_id = (uint32_t)v[NATIVE], .cframe_frame = NONE,
		.previous = (uint32_t)v[PREVIOUS], .code = (uint32_t)v[CODE],
		.instr = (uint32_t)v[INSTR], .owner = (uint32_t)v[OWNER],
		.file = (uint32_t)v[FILE_NAME], .name = (uint32_t)v[NAME],
		.qualname = (uint32_t)v[QUALNAME], .lines = (uint32_t)v[LINES],
		.first_line = (uint32_t)v[FIRST_LINE], .bytecode = (uint32_t)v[BYTECODE],
		.ascii = l->ascii, .compact = l->compact,
		.flags = l->flags, .instructions = NONE,
	};
	*ret = l->file > CODE_SIZE - 8 || l->name > CODE_SIZE - 8 ||
	       l->qualname > CODE_SIZE - 8 || l->lines > CODE_SIZE - 8 ||
	       l->first_line > CODE_SIZE - 4 || l->code > FRAME_SIZE - 8 ||
	       l->previous > FRAME_SIZE - 8 || l->instr > FRAME_SIZE - 8 ||
	       l->owner > FRAME_SIZE - 1 ?
		       pt_err_set(err, -EOPNOTSUPP, "its Python publishes offsets that cannot be "
				  "right") : 0;
	return true;
}

static size_t up_to(size_t have, uint32_t offset, size_t size)
{
	return offset != NONE && offset + size > have ? offset + size : have;
}

int pt_py_take_layout(struct pt_py *p, int minor, struct pt_err *err)
{
	size_t i;
	int ret = 0;

	for (i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (layouts[i].minor == minor)
			break;
	if (i == sizeof(layouts) / sizeof(*layouts))
		return pt_err_set(err, -EOPNOTSUPP, "its Python is 3.%d: pipetrace reads the stacks "
				  "of 3.8 to 3.13", minor);
	p->at = layouts[i];
	snprintf(p->version, sizeof(p->version), "3.%d", minor);
	if (minor >= 13 && !take_published(p, err, &ret))
		ret = 0; /* none that could be: the version's own */
	p->frame_size = up_to(0, p->at.code, 8);
	p->frame_size = up_to(p->frame_size, p->at.previous, 8);
	p->frame_size = up_to(p->frame_size, p->at.instr, p->at.minor >= 11 ? 8 : 4);
	p->frame_size = up_to(p->frame_size, p->at.owner, 1);
	return ret;
}

/* All files of a process together: one may have hundreds that take long to read. */
#define FIND_NS 2000000000u

/* Those whose path has `part` in it. */
static void search(const struct pt_gpulib *files, ssize_t n, const char *part, uint64_t at[2],
		   uint64_t until)
{
	ssize_t i;

	for (i = 0; i < n && !at[0] && pt_now_ns() < until; i++)
		if (strstr(files[i].path_display, part))
			addresses(&files[i], at);
}

/* Where it is, and 3.`minor`. */
int pt_py_find(pid_t pid, uint64_t *runtime, int *version, struct pt_err *err)
{
	struct pt_gpulib *files = calloc(MAX_FILES, sizeof(*files));
	uint64_t at[2] = { 0, 0 }, until = pt_now_ns() + FIND_NS;
	int minor = -1;
	ssize_t n, i;
	uint32_t hex;

	if (!files)
		return pt_err_set(err, -ENOMEM, "out of memory");
	n = pt_exec_files(pid, files, MAX_FILES);
	/* the library first: a program that is linked with it defines nothing */
	search(files, n, "libpython3", at, until);
	search(files, n, "python", at, until);
	search(files, n < 4 ? n : 4, "", at, until); /* a program that has it inside */
	if (at[1] && pt_py_get_from(pid, at[1], &hex, sizeof(hex)) && hex >> 24 == 3)
		minor = (int)(hex >> 16 & 255);
	for (i = 0; i < n && minor < 0; i++)
		minor = minor_of_name(files[i].path_display);
	free(files);
	if (n < 0)
		return pt_err_set(err, (int)n, "the maps of process %d cannot be read: %s",
				  (int)pid, strerror((int)-n));
	if (!at[0])
		return pt_err_set(err, -ENOENT, "no CPython is mapped in process %d", (int)pid);
	if (minor < 0)
		return pt_err_set(err, -EOPNOTSUPP, "the version of its Python is not known");
	*runtime = at[0];
	*version = minor;
	return 0;
}
