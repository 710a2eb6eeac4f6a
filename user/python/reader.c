// SPDX-License-Identifier: BSD-2-Clause
#include "python/reader.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "capture/discover.h"
#include "capture/elf.h"
#include "python/lines.h"

#define NONE UINT16_MAX
#define MAX_FILES 512
#define TABLE_MAX (1u << 20) /* bytes of a line table */
#define CODE_SIZE 256	     /* of a code object, whatever is read of it */
#define TLS_TID 720	     /* struct pthread of glibc: the kernel's number */
#define OWNED_BY_C 3	     /* the frame between C and Python, which has no code of its own */
/* Any published offset is below; a bound, not a size. */
#define OFFSET_MAX (1u << 20)

struct layout {
	int minor;
	uint32_t interpreters, threads;
	uint32_t thread_next, thread_id, native_id, frame, cframe_frame;
	uint32_t code, previous, instr, owner;
	uint32_t file, name, qualname, first_line, lines, bytecode;
	uint32_t ascii, compact;
};

static const struct layout layouts[] = {
#define PT_PY(minor, ...) { minor, __VA_ARGS__ },
#include "python/layout.def"
#undef PT_PY
};

struct pt_py {
	pid_t pid;
	struct layout at;
	uint64_t runtime;
	uint64_t code_type; /* 0: not met yet */
	char version[16];
	unsigned char *table; /* TABLE_MAX */
};

/* ---- memory of the target ---------------------------------------------------------- */

static bool get(const struct pt_py *p, uint64_t addr, void *out, size_t len)
{
	struct iovec to = { out, len }, from = { (void *)(uintptr_t)addr, len };

	return addr && process_vm_readv(p->pid, &to, 1, &from, 1, 0) == (ssize_t)len;
}

static bool get_ptr(const struct pt_py *p, uint64_t addr, uint64_t *out)
{
	return get(p, addr, out, sizeof(*out)) && !(*out & 7);
}

static size_t put_utf8(char *out, uint32_t c)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 63));
		out[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | (c >> 18 & 7));
	out[1] = (char)(0x80 | (c >> 12 & 63));
	out[2] = (char)(0x80 | (c >> 6 & 63));
	out[3] = (char)(0x80 | (c & 63));
	return 4;
}

/* A str. Of a long one the end: a path's file name is there. "?": it cannot be read. */
static void get_text(const struct pt_py *p, uint64_t addr, char out[PT_PY_TEXT])
{
	struct {
		uint64_t refs, type, length, hash;
		uint32_t state;
	} head;
	unsigned char raw[4 * PT_PY_TEXT];
	uint64_t data, skip = 0, n, i;
	unsigned kind;
	size_t at = 0;

	memcpy(out, "?", 2);
	if (!get(p, addr, &head, sizeof(head)) || head.length > INT32_MAX)
		return;
	kind = head.state >> 2 & 7;
	if ((kind != 1 && kind != 2 && kind != 4) || !(head.state & 32) /* compact */)
		return;
	data = addr + (head.state & 64 ? p->at.ascii : p->at.compact);
	n = head.length;
	if (n > PT_PY_TEXT / 4) {
		skip = n > PT_PY_TEXT - 1 ? n - (PT_PY_TEXT - 1) : 0;
		n -= skip;
	}
	if (!get(p, data + skip * kind, raw, (size_t)n * kind))
		return;
	for (i = 0; i < n && at + 5 < PT_PY_TEXT; i++) {
		uint32_t c = raw[i];
		uint16_t two;

		if (kind == 2) {
			memcpy(&two, raw + 2 * i, 2);
			c = two;
		} else if (kind == 4) {
			memcpy(&c, raw + 4 * i, 4);
		}
		at += put_utf8(out + at, c && c < 0x110000 ? c : '?');
	}
	out[at] = '\0';
}

/* ---- one stack ---------------------------------------------------------------------- */

/* Objects of this type are code objects; the first is asked for its name. */
static bool is_code(struct pt_py *p, uint64_t addr)
{
	uint64_t type, name;
	char text[5];

	if (!get_ptr(p, addr + 8, &type))
		return false;
	if (p->code_type)
		return type == p->code_type;
	if (!get(p, type + 24, &name, sizeof(name)) || !get(p, name, text, sizeof(text)) ||
	    memcmp(text, "code", 5))
		return false;
	p->code_type = type;
	return true;
}

static int line_of(struct pt_py *p, const unsigned char *code, uint64_t addr, long at)
{
	uint64_t table, n;
	int32_t first;

	memcpy(&first, code + p->at.first_line, sizeof(first));
	memcpy(&table, code + p->at.lines, sizeof(table));
	(void)addr;
	if (!get(p, table + 16, &n, sizeof(n)) || n > TABLE_MAX ||
	    (n && !get(p, table + 32, p->table, (size_t)n)))
		return 0;
	return pt_py_line(p->at.minor, p->table, (size_t)n, first, at);
}

/* The instruction, bytes from the begin of the code. */
static bool instr_of(const struct pt_py *p, uint64_t frame, uint64_t code, long *out)
{
	uint64_t ptr, begin = code + p->at.bytecode;
	int32_t last;

	if (p->at.minor >= 11) {
		if (!get(p, frame + p->at.instr, &ptr, sizeof(ptr)))
			return false;
		*out = ptr < begin ? -1 : ptr - begin > INT32_MAX ? -1 : (long)(ptr - begin);
		return true;
	}
	if (!get(p, frame + p->at.instr, &last, sizeof(last)))
		return false;
	*out = p->at.minor == 10 ? 2l * last : last; /* units of code, or bytes */
	return true;
}

static bool frame_at(struct pt_py *p, uint64_t frame, struct pt_py_frame *out)
{
	unsigned char code[CODE_SIZE];
	uint64_t addr, text;
	uint32_t name = p->at.qualname != NONE ? p->at.qualname : p->at.name;
	long at;

	if (!get_ptr(p, frame + p->at.code, &addr) || !is_code(p, addr) ||
	    !get(p, addr, code, sizeof(code)) || !instr_of(p, frame, addr, &at))
		return false;
	memcpy(&text, code + p->at.file, sizeof(text));
	get_text(p, text, out->file);
	memcpy(&text, code + name, sizeof(text));
	get_text(p, text, out->name);
	out->line = line_of(p, code, addr, at);
	return true;
}

static bool first_frame(const struct pt_py *p, uint64_t thread, uint64_t *out)
{
	return get_ptr(p, thread + p->at.frame, out) &&
	       (p->at.cframe_frame == NONE ||
		get_ptr(p, *out + p->at.cframe_frame, out));
}

/* Frames that were told. */
static int stack_of(struct pt_py *p, uint64_t thread, const struct pt_py_sink *to)
{
	struct pt_py_frame f;
	uint64_t frame;
	unsigned char owner;
	int n = 0, depth;

	if (!first_frame(p, thread, &frame))
		return 0;
	for (depth = 0; frame && depth < 2 * PT_PY_DEPTH && n < PT_PY_DEPTH; depth++) {
		bool c = p->at.owner != NONE &&
			 get(p, frame + p->at.owner, &owner, 1) && owner == OWNED_BY_C;

		if (!c && !frame_at(p, frame, &f))
			break;
		if (!c && ++n && to->frame)
			to->frame(to->ctx, &f);
		if (!get_ptr(p, frame + p->at.previous, &frame))
			break;
	}
	return n;
}

/* ---- threads ------------------------------------------------------------------------ */

static pid_t tid_of(const struct pt_py *p, uint64_t thread)
{
	uint64_t id;
	int32_t tid;

	if (p->at.native_id)
		return get(p, thread + p->at.native_id, &id, sizeof(id)) &&
		       id <= INT32_MAX ? (pid_t)id : 0;
	return get(p, thread + p->at.thread_id, &id, sizeof(id)) &&
	       get(p, id + TLS_TID, &tid, sizeof(tid)) && tid > 0 ? tid : 0;
}

static bool is_thread(pid_t pid, pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, (int)tid);
	return tid > 0 && !access(path, F_OK);
}

/* Of all interpreters; *frames: of all stacks together. */
static int walk(struct pt_py *p, const struct pt_py_sink *to, int *frames)
{
	uint64_t interp, thread;
	int n = 0, guard = 0;
	pid_t tid;

	*frames = 0;
	if (!get_ptr(p, p->runtime + p->at.interpreters, &interp))
		return -EIO;
	/* only the first's offset to the next is the same in all versions: 0 */
	if (!interp || !get_ptr(p, interp + p->at.threads, &thread))
		return -EIO;
	for (; thread && guard < PT_PY_THREADS; guard++) {
		tid = tid_of(p, thread);
		if (is_thread(p->pid, tid)) {
			n++;
			if (to->thread)
				to->thread(to->ctx, tid);
			*frames += stack_of(p, thread, to);
		}
		if (!get_ptr(p, thread + p->at.thread_next, &thread))
			break;
	}
	return n;
}

int pt_py_stacks(struct pt_py *p, const struct pt_py_sink *to)
{
	int frames;

	return walk(p, to, &frames);
}

/* ---- finding it --------------------------------------------------------------------- */

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
	};
	*ret = l->file > CODE_SIZE - 8 || l->name > CODE_SIZE - 8 ||
	       l->qualname > CODE_SIZE - 8 || l->lines > CODE_SIZE - 8 ||
	       l->first_line > CODE_SIZE - 4 ?
		       pt_err_set(err, -EOPNOTSUPP, "its Python publishes offsets that cannot be "
				  "right") : 0;
	return true;
}

static int take_layout(struct pt_py *p, int minor, struct pt_err *err)
{
	size_t i;
	int ret;

	for (i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
		if (layouts[i].minor == minor)
			break;
	if (i == sizeof(layouts) / sizeof(*layouts))
		return pt_err_set(err, -EOPNOTSUPP, "its Python is 3.%d: pipetrace reads the stacks "
				  "of 3.8 to 3.13", minor);
	p->at = layouts[i];
	snprintf(p->version, sizeof(p->version), "3.%d", minor);
	if (minor >= 13 && take_published(p, err, &ret))
		return ret;
	return 0;
}

static int find(struct pt_py *p, struct pt_err *err)
{
	struct pt_gpulib *files = calloc(MAX_FILES, sizeof(*files));
	uint64_t at[2] = { 0, 0 };
	int minor = -1, ret;
	ssize_t n, i;
	uint32_t hex;

	if (!files)
		return pt_err_set(err, -ENOMEM, "out of memory");
	n = pt_exec_files(p->pid, files, MAX_FILES);
	/* the library first: a program that is linked with it defines nothing */
	for (i = 0; i < n && !at[0]; i++)
		if (strstr(files[i].path_display, "libpython3"))
			addresses(&files[i], at);
	for (i = 0; i < n && !at[0]; i++)
		if (strstr(files[i].path_display, "python"))
			addresses(&files[i], at);
	for (i = 0; i < n && !at[0] && i < 4; i++) /* a program that has it inside */
		addresses(&files[i], at);
	p->runtime = at[0];
	if (at[1] && get(p, at[1], &hex, sizeof(hex)) && hex >> 24 == 3)
		minor = (int)(hex >> 16 & 255);
	for (i = 0; i < n && minor < 0; i++)
		minor = minor_of_name(files[i].path_display);
	free(files);
	if (n < 0)
		return pt_err_set(err, (int)n, "the maps of process %d cannot be read: %s",
				  (int)p->pid, strerror((int)-n));
	if (!p->runtime)
		return pt_err_set(err, -ENOENT, "no CPython is mapped in process %d", (int)p->pid);
	if (minor < 0)
		return pt_err_set(err, -EOPNOTSUPP, "the version of its Python is not known");
	ret = take_layout(p, minor, err);
	return ret;
}

int pt_py_open(struct pt_py **out, pid_t pid, struct pt_err *err)
{
	struct pt_py *p = calloc(1, sizeof(*p));
	const struct pt_py_sink nobody = { 0 };
	uint64_t word;
	int ret = -ENOMEM, frames, i;

	*out = NULL;
	if (p)
		p->table = malloc(TABLE_MAX);
	if (!p || !p->table) {
		pt_err_set(err, ret, "out of memory");
		goto out;
	}
	p->pid = pid;
	ret = find(p, err);
	if (ret)
		goto out;
	errno = 0;
	if (!get(p, p->runtime, &word, sizeof(word))) {
		ret = pt_err_set(err, errno == EPERM ? -EPERM : -EIO,
				 "the memory of process %d cannot be read: %s", (int)pid,
				 strerror(errno ? errno : EIO));
		goto out;
	}
	/* a thread may be in between; a chain that never fits is not one */
	for (i = 0; i < 20; i++) {
		ret = walk(p, &nobody, &frames);
		if (ret > 0 && frames)
			break;
		usleep(5000);
	}
	ret = ret > 0 && frames ? 0 :
	      pt_err_set(err, -EOPNOTSUPP, "what was found of its Python %s does not fit",
			 p->version);
out:
	if (ret)
		pt_py_close(p);
	else
		*out = p;
	return ret;
}

void pt_py_close(struct pt_py *p)
{
	if (!p)
		return;
	free(p->table);
	free(p);
}

const char *pt_py_version(const struct pt_py *p)
{
	return p->version;
}
