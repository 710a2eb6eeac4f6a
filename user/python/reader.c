// SPDX-License-Identifier: BSD-2-Clause
#include "python/reader.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "capture/discover.h"
#include "capture/elf.h"
#include "capture/procfs.h"
#include "python/lines.h"

#define NONE UINT16_MAX
#define MAX_FILES 512
#define TABLE_MAX (1u << 20) /* bytes of a line table */
#define CODE_SIZE 256	     /* of a code object, whatever is read of it */
#define FRAME_SIZE 128	     /* what is read of a frame lies in that much */
#define CODES_MAX 8192
#define KNOWN 4		     /* instructions of a code object that are remembered */
#define GENERATORS 0x220     /* co_flags: CO_GENERATOR, CO_ASYNC_GENERATOR */
/* Of all stacks together: frames, and per frame each so many bytes of a line table. A
 * job whose chains go in circles costs no more than that. */
#define WORK_MAX 65536
#define WORK_BYTES 256
#define TABLES_MAX (16u << 20) /* bytes of the line tables that are kept */
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
	uint32_t flags, instructions;
};

static const struct layout layouts[] = {
#define PT_PY(minor, ...) { minor, __VA_ARGS__ },
#include "python/layout.def"
#undef PT_PY
};

/* A code object as it was met; the same one as long as all that it points to is. */
struct code {
	uint64_t addr, file, name, lines;
	int32_t first;
	char file_text[PT_PY_TEXT], name_text[PT_PY_TEXT];
	uint64_t bytecode; /* its first instruction */
	bool is_next; /* PT_PY_NEXT */
	struct {
		long at;
		bool iter; /* PT_PY_ITER */
	} known[KNOWN]; /* of its instructions, the latest */
	unsigned next_known;
	unsigned char *table; /* NULL: it could not be read */
	size_t n;
	UT_hash_handle hh;
};

/* A thread of a process in a PID name space of its own: the interpreter knows it by its
 * number there. */
struct inner {
	pid_t inner, tid;
	UT_hash_handle hh;
};

struct pt_py {
	pid_t pid;
	bool apart; /* it is in one */
	struct inner *inner;
	uint64_t listed_ns; /* its threads were, then */
	struct layout at;
	uint64_t runtime;
	uint64_t code_type; /* 0: not met yet */
	size_t frame_size;
	char version[16];
	struct code *codes;
	size_t tables; /* bytes of theirs */
	size_t work;   /* of this walk */
};

/* ---- memory of the target ---------------------------------------------------------- */

static bool get_from(pid_t pid, uint64_t addr, void *out, size_t len)
{
	struct iovec to = { out, len }, from = { (void *)(uintptr_t)addr, len };

	return addr && process_vm_readv(pid, &to, 1, &from, 1, 0) == (ssize_t)len;
}

static bool get(const struct pt_py *p, uint64_t addr, void *out, size_t len)
{
	return get_from(p->pid, addr, out, len);
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
static bool is_code(struct pt_py *p, uint64_t type)
{
	uint64_t name;
	char text[5];

	if (p->code_type)
		return type == p->code_type;
	if (!get(p, type + 24, &name, sizeof(name)) || !get(p, name, text, sizeof(text)) ||
	    memcmp(text, "code", 5))
		return false;
	p->code_type = type;
	return true;
}

static uint64_t word_at(const unsigned char *bytes, uint32_t offset)
{
	uint64_t v;

	memcpy(&v, bytes + offset, sizeof(v));
	return v;
}

static void forget(struct pt_py *p, struct code *c)
{
	HASH_DEL(p->codes, c);
	p->tables -= c->n;
	free(c->table);
	free(c);
}

static void forget_all(struct pt_py *p)
{
	struct code *c, *next;

	HASH_ITER(hh, p->codes, c, next)
		forget(p, c);
}

static void get_table(struct pt_py *p, struct code *c)
{
	uint64_t n;

	if (!get(p, c->lines + 16, &n, sizeof(n)) || n > TABLE_MAX)
		return;
	c->table = malloc(n ? (size_t)n : 1);
	if (!c->table)
		return;
	if (n && !get(p, c->lines + 32, c->table, (size_t)n)) {
		free(c->table);
		c->table = NULL;
		return;
	}
	c->n = (size_t)n;
	p->tables += c->n;
}

/* FOR_ITER, as it was compiled, specialised or instrumented (opcode.h of each version). */
static bool is_for_iter(int minor, unsigned op)
{
	switch (minor) {
	case 12:
		return op == 93 || op == 248 || (op >= 62 && op <= 65);
	case 13:
		return op == 72 || op == 243 || (op >= 187 && op <= 190);
	default:
		return op == 93;
	}
}

static bool is_iter(struct pt_py *p, struct code *c, long at)
{
	unsigned char op[2];
	unsigned i;

	if (at < 0 || !c->bytecode)
		return false;
	for (i = 0; i < KNOWN; i++)
		if (c->known[i].at == at)
			return c->known[i].iter;
	if (!get(p, c->bytecode + (uint64_t)at, op, sizeof(op)))
		return false;
	i = c->next_known++ % KNOWN;
	c->known[i].at = at;
	c->known[i].iter = is_for_iter(p->at.minor, op[0]);
	return c->known[i].iter;
}

static void get_kind(const struct pt_py *p, const unsigned char *raw, struct code *c)
{
	uint32_t flags, i;

	memcpy(&flags, raw + p->at.flags, sizeof(flags));
	c->is_next = flags & GENERATORS || !strcmp(c->name_text, "__next__") ||
		     (strlen(c->name_text) > 9 &&
		      !strcmp(c->name_text + strlen(c->name_text) - 9, ".__next__"));
	c->bytecode = p->at.instructions == NONE ? c->addr + p->at.bytecode :
						   word_at(raw, p->at.instructions) + 32;
	for (i = 0; i < KNOWN; i++)
		c->known[i].at = -1;
	c->next_known = 0;
}

/* The code object there; NULL: there is none, or no memory for it. */
static struct code *code_at(struct pt_py *p, uint64_t addr)
{
	uint32_t name = p->at.qualname != NONE ? p->at.qualname : p->at.name;
	unsigned char raw[CODE_SIZE];
	struct code now = { .addr = addr }, *c;

	if (!get(p, addr, raw, sizeof(raw)) || !is_code(p, word_at(raw, 8)))
		return NULL;
	now.file = word_at(raw, p->at.file);
	now.name = word_at(raw, name);
	now.lines = word_at(raw, p->at.lines);
	memcpy(&now.first, raw + p->at.first_line, sizeof(now.first));
	HASH_FIND(hh, p->codes, &addr, sizeof(addr), c);
	if (c && c->file == now.file && c->name == now.name && c->lines == now.lines &&
	    c->first == now.first)
		return c;
	if (c)
		forget(p, c);
	if (HASH_COUNT(p->codes) >= CODES_MAX || p->tables > TABLES_MAX)
		forget_all(p);
	c = malloc(sizeof(*c));
	if (!c)
		return NULL;
	*c = now;
	get_text(p, c->file, c->file_text);
	get_text(p, c->name, c->name_text);
	get_table(p, c);
	get_kind(p, raw, c);
	HASH_ADD(hh, p->codes, addr, sizeof(c->addr), c);
	return c;
}

/* The instruction, bytes from the begin of the code; -1: none yet. */
static long instr_of(const struct pt_py *p, const unsigned char *frame, uint64_t code)
{
	uint64_t ptr, begin = code + p->at.bytecode;
	int32_t last;

	if (p->at.minor >= 11) {
		ptr = word_at(frame, p->at.instr);
		return ptr < begin || ptr - begin > INT32_MAX ? -1 : (long)(ptr - begin);
	}
	memcpy(&last, frame + p->at.instr, sizeof(last));
	return p->at.minor == 10 ? 2l * last : last; /* units of code, or bytes */
}

static bool frame_at(struct pt_py *p, const unsigned char *raw, struct pt_py_frame *out)
{
	uint64_t addr = word_at(raw, p->at.code);
	struct code *c = addr & 7 ? NULL : code_at(p, addr);
	long at;

	if (!c)
		return false;
	at = instr_of(p, raw, addr);
	p->work += c->n / WORK_BYTES;
	memcpy(out->file, c->file_text, sizeof(out->file));
	memcpy(out->name, c->name_text, sizeof(out->name));
	out->line = c->table ? pt_py_line(p->at.minor, c->table, c->n, c->first, at) : 0;
	out->flags = (is_iter(p, c, at) ? PT_PY_ITER : 0) | (c->is_next ? PT_PY_NEXT : 0);
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
	unsigned char raw[FRAME_SIZE];
	struct pt_py_frame f;
	uint64_t frame;
	int n = 0, depth;

	if (!first_frame(p, thread, &frame))
		return 0;
	for (depth = 0; frame && depth < 2 * PT_PY_DEPTH && n < PT_PY_DEPTH && p->work < WORK_MAX;
	     depth++) {
		bool c;

		p->work++;
		if (!get(p, frame, raw, p->frame_size))
			break;
		c = p->at.owner != NONE && raw[p->at.owner] == OWNED_BY_C;
		if (!c && !frame_at(p, raw, &f))
			break;
		if (!c && ++n && to->frame)
			to->frame(to->ctx, &f);
		frame = word_at(raw, p->at.previous);
		if (frame & 7)
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

/* The last number of "NSpid: 4711 12": the innermost name space's; *n: how many there are. */
static pid_t ns_pid(const char *status, int *n)
{
	const char *line = strstr(status, "\nNSpid:");
	pid_t last = 0;
	char *end;

	*n = 0;
	for (line = line ? line + 7 : NULL; line; line = end) {
		long v = strtol(line, &end, 10);

		if (end == line || v <= 0 || v > INT32_MAX)
			break;
		last = (pid_t)v;
		++*n;
		if (*end == '\n')
			break;
	}
	return last;
}

static void forget_inner(struct pt_py *p)
{
	struct inner *x, *next;

	HASH_ITER(hh, p->inner, x, next) {
		HASH_DEL(p->inner, x);
		free(x);
	}
}

static void add_inner(struct pt_py *p, pid_t tid)
{
	char name[64], text[4096];
	struct inner *x, *have;
	int n;

	snprintf(name, sizeof(name), "task/%d/status", (int)tid);
	if (pt_proc_read(p->pid, name, text, sizeof(text)) <= 0)
		return;
	x = calloc(1, sizeof(*x));
	if (!x)
		return;
	x->tid = tid;
	x->inner = ns_pid(text, &n);
	HASH_FIND(hh, p->inner, &x->inner, sizeof(x->inner), have);
	if (have) {
		free(x);
		return;
	}
	HASH_ADD(hh, p->inner, inner, sizeof(x->inner), x);
}

#define LIST_NS 500000000u /* no sooner again */

static void list_threads(struct pt_py *p)
{
	char path[64];
	struct dirent *e;
	int n = 0;
	DIR *d;

	p->listed_ns = pt_now_ns();
	forget_inner(p);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)p->pid);
	d = opendir(path);
	while (d && n < PT_PY_THREADS && (e = readdir(d)))
		if (e->d_name[0] != '.') {
			add_inner(p, (pid_t)strtol(e->d_name, NULL, 10));
			n++;
		}
	if (d)
		closedir(d);
}

/* Its number outside. 0: there is none. */
static pid_t outer_tid(struct pt_py *p, pid_t tid)
{
	struct inner *x;

	if (!p->apart || tid <= 0)
		return tid;
	HASH_FIND(hh, p->inner, &tid, sizeof(tid), x);
	if (!x && pt_now_ns() - p->listed_ns > LIST_NS) {
		list_threads(p);
		HASH_FIND(hh, p->inner, &tid, sizeof(tid), x);
	}
	return x ? x->tid : 0;
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
	p->work = 0;
	if (!get_ptr(p, p->runtime + p->at.interpreters, &interp))
		return -EIO;
	/* only the first's offset to the next is the same in all versions: 0 */
	if (!interp || !get_ptr(p, interp + p->at.threads, &thread))
		return -EIO;
	for (; thread && guard < PT_PY_THREADS && p->work < WORK_MAX; guard++) {
		tid = outer_tid(p, tid_of(p, thread));
		if (is_thread(p->pid, tid)) {
			n++;
			if (!to->thread || to->thread(to->ctx, tid))
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

static int take_layout(struct pt_py *p, int minor, struct pt_err *err)
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

/* Where it is, and 3.`minor`. */
static int find(pid_t pid, uint64_t *runtime, int *version, struct pt_err *err)
{
	struct pt_gpulib *files = calloc(MAX_FILES, sizeof(*files));
	uint64_t at[2] = { 0, 0 };
	int minor = -1;
	ssize_t n, i;
	uint32_t hex;

	if (!files)
		return pt_err_set(err, -ENOMEM, "out of memory");
	n = pt_exec_files(pid, files, MAX_FILES);
	/* the library first: a program that is linked with it defines nothing */
	for (i = 0; i < n && !at[0]; i++)
		if (strstr(files[i].path_display, "libpython3"))
			addresses(&files[i], at);
	for (i = 0; i < n && !at[0]; i++)
		if (strstr(files[i].path_display, "python"))
			addresses(&files[i], at);
	for (i = 0; i < n && !at[0] && i < 4; i++) /* a program that has it inside */
		addresses(&files[i], at);
	if (at[1] && get_from(pid, at[1], &hex, sizeof(hex)) && hex >> 24 == 3)
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

int pt_py_open_at(struct pt_py **out, pid_t pid, uint64_t runtime, int minor,
		  struct pt_err *err)
{
	struct pt_py *p = calloc(1, sizeof(*p));
	char status[4096];
	int ret, spaces;

	*out = NULL;
	if (!p)
		return pt_err_set(err, -ENOMEM, "out of memory");
	p->pid = pid;
	p->runtime = runtime;
	if (pt_proc_read(pid, "status", status, sizeof(status)) > 0 && ns_pid(status, &spaces))
		p->apart = spaces > 1;
	ret = take_layout(p, minor, err);
	if (ret)
		pt_py_close(p);
	else
		*out = p;
	return ret;
}

int pt_py_open(struct pt_py **out, pid_t pid, struct pt_err *err)
{
	const struct pt_py_sink nobody = { 0 };
	uint64_t runtime = 0, word;
	int minor = -1, frames, i, ret;

	*out = NULL;
	ret = find(pid, &runtime, &minor, err);
	if (ret)
		return ret;
	errno = 0;
	if (!get_from(pid, runtime, &word, sizeof(word)))
		return pt_err_set(err, errno == EPERM ? -EPERM : -EIO,
				  "the memory of process %d cannot be read: %s", (int)pid,
				  strerror(errno ? errno : EIO));
	ret = pt_py_open_at(out, pid, runtime, minor, err);
	if (ret)
		return ret;
	/* a thread may be in between; a chain that never fits is not one */
	for (i = 0; i < 20; i++) {
		ret = walk(*out, &nobody, &frames);
		if (ret > 0 && frames)
			return 0;
		usleep(5000);
	}
	ret = pt_err_set(err, -EOPNOTSUPP, "what was found of its Python %s does not fit",
			 (*out)->version);
	pt_py_close(*out);
	*out = NULL;
	return ret;
}

void pt_py_close(struct pt_py *p)
{
	if (!p)
		return;
	forget_all(p);
	forget_inner(p);
	free(p);
}

const char *pt_py_version(const struct pt_py *p)
{
	return p->version;
}
