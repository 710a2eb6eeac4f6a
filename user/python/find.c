// SPDX-License-Identifier: BSD-2-Clause
/* Where a process has its interpreter, and where that has what a stack is made of. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
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

static const struct layout *layout_of(int minor)
{
	size_t i;

	for (i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (layouts[i].minor == minor)
			return &layouts[i];
	return NULL;
}

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

/* What a file said is kept: a job has the same ones in each of its processes. A slot may be lost
 * to another file, which is then read again. */
#define CACHE 256

struct defined {
	struct { /* of the file as it is, and of the part that is mapped */
		uint64_t dev, inode, size, changed_ns, offset;
	} key;
	uint64_t at, vaddr[2]; /* 0: it does not define that */
	bool used;
};

static struct defined *defined_in(int fd, uint64_t offset)
{
	static const char *const names[] = { "_PyRuntime", "Py_Version" };
	static struct defined cache[CACHE];
	struct defined now = { .used = false }, *k;
	struct pt_err err;
	struct stat st;

	if (fstat(fd, &st))
		return NULL;
	now.key.dev = st.st_dev;
	now.key.inode = st.st_ino;
	now.key.size = (uint64_t)st.st_size;
	now.key.changed_ns = (uint64_t)st.st_ctim.tv_sec * 1000000000ull +
			     (uint64_t)st.st_ctim.tv_nsec;
	now.key.offset = offset;
	k = &cache[pt_hash_of(&now.key, sizeof(now.key)) % CACHE];
	if (k->used && !memcmp(&k->key, &now.key, sizeof(now.key)))
		return k;
	/* what could not be read now may be the next time */
	now.used = pt_elf_objects(fd, names, 2, offset, now.vaddr, &now.at, &err) >= 0;
	*k = now;
	return now.used ? k : NULL;
}

/* Addresses in the process of what the file defines; 0: it does not. */
static void addresses(const struct pt_gpulib *g, uint64_t out[2])
{
	int fd = pt_gpulib_open(g), i;
	const struct defined *k = fd < 0 ? NULL : defined_in(fd, g->offset);

	for (i = 0; i < 2; i++)
		out[i] = k && k->vaddr[i] ? g->start - k->at + k->vaddr[i] : 0;
	if (fd >= 0)
		close(fd);
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
		.flags = l->flags, .instructions = NONE, .state = l->state,
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

/* Whole words: f_lasti, of four bytes up to 3.10, has another number behind it. */
static size_t frame_size(const struct layout *l)
{
	size_t n = up_to(0, l->code, 8);

	n = up_to(n, l->previous, 8);
	n = up_to(n, l->instr, 8);
	return up_to(n, l->owner, 1);
}

int pt_py_take_layout(struct pt_py *p, int minor, struct pt_err *err)
{
	const struct layout *l = layout_of(minor);
	int ret = 0;

	if (!l)
		return pt_err_set(err, -EOPNOTSUPP, "its Python is 3.%d: pipetrace reads the stacks "
				  "of 3.8 to 3.13", minor);
	p->at = *l;
	snprintf(p->version, sizeof(p->version), "3.%d", minor);
	if (minor >= 13 && !take_published(p, err, &ret))
		ret = 0; /* none that could be: the version's own */
	p->frame_size = frame_size(&p->at);
	return ret;
}

/* Not x86-64 alone has the thread pointer in a register, but elsewhere it is not pthread_t. */
#ifdef __x86_64__
#define BY_POINTER true
#else
#define BY_POINTER false
#endif

static uint32_t or_nowhere(uint32_t offset)
{
	return offset == NONE ? PT_PY_NOWHERE : offset;
}

static bool fill_where(const struct layout *l, size_t frame_size, struct pt_py_where *w)
{
	w->interpreters = l->interpreters;
	w->threads = l->threads;
	w->next = l->thread_next;
	w->native = l->native_id != 0;
	w->id = w->native ? l->native_id : l->thread_id;
	w->frame = l->frame;
	w->cframe = or_nowhere(l->cframe_frame);
	w->code = l->code;
	w->previous = l->previous;
	w->instr = l->instr;
	w->owner = or_nowhere(l->owner);
	w->size = (uint32_t)frame_size;
	return w->native || BY_POINTER;
}

struct pt_py_state pt_py_state(const struct pt_py *p)
{
	return (struct pt_py_state){ p->runtime, p->at.state, (uint32_t)p->at.minor };
}

bool pt_py_where(const struct pt_py *p, struct pt_py_found *out)
{
	*out = (struct pt_py_found){ .pid = p->pid, .minor = p->at.minor };
	out->where.runtime = p->runtime;
	out->where.apart = p->apart;
	return fill_where(&p->at, p->frame_size, &out->where);
}

/* Offsets that a program may be given: they lie in what it reads, and so do the words of a
 * frame whole. */
static bool in_bounds(const struct pt_py_where *w)
{
	const uint32_t of_frame[] = { w->code, w->previous, w->instr };
	size_t i;

	for (i = 0; i < sizeof(of_frame) / sizeof(*of_frame); i++)
		if (of_frame[i] % 8 || of_frame[i] + 8 > w->size)
			return false;
	return w->size <= PT_PY_RAW && (w->owner == PT_PY_NOWHERE || w->owner < w->size) &&
	       w->interpreters < OFFSET_MAX && w->threads < OFFSET_MAX && w->next < OFFSET_MAX &&
	       w->id < OFFSET_MAX && w->frame < OFFSET_MAX &&
	       (w->cframe == PT_PY_NOWHERE || w->cframe < OFFSET_MAX);
}

bool pt_py_found_check(struct pt_py_found *f)
{
	const struct layout *l = layout_of(f->minor);
	struct pt_py_where *w = &f->where;

	if (!l || w->runtime % 8 || w->apart > 1)
		return false;
	w->pad = 0;
	/* before 3.13 it depends on the version alone: whatever was said of it */
	if (f->minor < 13)
		return fill_where(l, frame_size(l), w) && in_bounds(w);
	return w->native == 1 && in_bounds(w);
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
