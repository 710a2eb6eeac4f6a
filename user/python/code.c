// SPDX-License-Identifier: BSD-2-Clause
/* Code objects: names, lines, instructions. Each is read once. */
#include <stdlib.h>
#include <sys/uio.h>

#include "python/lines.h"
#include "python/reader_int.h"

#define TABLE_MAX (1u << 20)   /* bytes of a line table */
#define TABLES_MAX (16u << 20) /* ... of those that are kept */
#define CODES_MAX 8192
#define GENERATORS 0x220       /* co_flags: CO_GENERATOR, CO_ASYNC_GENERATOR */

bool pt_py_get_from(pid_t pid, uint64_t addr, void *out, size_t len)
{
	struct iovec to = { out, len }, from = { (void *)(uintptr_t)addr, len };

	return addr && process_vm_readv(pid, &to, 1, &from, 1, 0) == (ssize_t)len;
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

/* ---- code objects ------------------------------------------------------------------- */

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

static void forget(struct pt_py *p, struct code *c)
{
	HASH_DEL(p->codes, c);
	p->tables -= c->n;
	free(c->table);
	free(c);
}

void pt_py_forget_codes(struct pt_py *p)
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

/* SETUP_WITH, from 3.11 on BEFORE_WITH, which call __enter__() themselves; from 3.14 on a call
 * like any other does. */
static bool is_with(int minor, unsigned op)
{
	switch (minor) {
	case 11:
	case 12:
		return op == 53;
	case 13:
		return op == 2;
	default:
		return minor <= 10 && op == 143;
	}
}

/* PT_PY_ITER or PT_PY_WITH, if its instruction there is one. */
static unsigned kind_of(struct pt_py *p, struct code *c, long at)
{
	unsigned char op[2];
	unsigned i;

	if (at < 0 || !c->bytecode)
		return 0;
	for (i = 0; i < KNOWN; i++)
		if (c->known[i].at == at)
			return c->known[i].kind;
	if (!get(p, c->bytecode + (uint64_t)at, op, sizeof(op)))
		return 0;
	i = c->next_known++ % KNOWN;
	c->known[i].at = at;
	c->known[i].kind = is_for_iter(p->at.minor, op[0]) ? PT_PY_ITER :
			   is_with(p->at.minor, op[0])	   ? PT_PY_WITH : 0;
	return c->known[i].kind;
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
		pt_py_forget_codes(p);
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
static long instr_of(const struct pt_py *p, uint64_t code, uint64_t word)
{
	uint64_t begin = code + p->at.bytecode;
	int32_t last;

	if (p->at.minor >= 11)
		return word < begin || word - begin > INT32_MAX ? -1 : (long)(word - begin);
	memcpy(&last, &word, sizeof(last));
	return p->at.minor == 10 ? 2l * last : last; /* units of code, or bytes */
}

void pt_py_sample_begin(struct pt_py *p)
{
	p->work = WORK_MAX - WORK_SAMPLE;
}

bool pt_py_frame_of(struct pt_py *p, const struct pt_py_frame_at *f, struct pt_py_frame *out)
{
	struct code *c = f->code & 7 || p->work >= WORK_MAX ? NULL : code_at(p, f->code);
	long at;

	if (!c)
		return false;
	at = instr_of(p, f->code, f->instr);
	p->work += c->n / WORK_BYTES;
	memcpy(out->file, c->file_text, sizeof(out->file));
	memcpy(out->name, c->name_text, sizeof(out->name));
	out->line = c->table ? pt_py_line(p->at.minor, c->table, c->n, c->first, at) : 0;
	out->flags = kind_of(p, c, at) | (c->is_next ? PT_PY_NEXT : 0);
	out->instr = at >= 0 && at / 2 < UINT16_MAX ? (uint16_t)(at / 2 + 1) : 0;
	return true;
}
