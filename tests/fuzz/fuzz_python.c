/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * python: the memory of a job that is, or plays, a CPython. A byte of the version, and
 * then changes of a memory in which all fits: where, how, what. Or a byte of 255, one of
 * the version, and what /proc/PID/maps says: "@" is the mapping that this memory is of.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "python/looks.h"
#include "python/reader_int.h"

#define WORDS 4096

static uint64_t memory[WORDS];

static const struct layout layouts[] = {
#define PT_PY(minor, ...) { minor, __VA_ARGS__ },
#include "python/layout.def"
#undef PT_PY
};
#define LAYOUTS (sizeof(layouts) / sizeof(*layouts))

/* Words of it. */
enum { INTERPRETER = 200, THREAD = 1300, CFRAME = 1500, FRAME = 1600, FRAMES = 3, NEXT = 40,
       CODE = 1800, TYPE = 2100, TYPE_NAME = 2150, FILE_TEXT = 2200, NAME_TEXT = 2300,
       TABLE = 2400, PTHREAD = 2600 };

struct change {
	uint16_t word;
	uint8_t how, shift;
	uint8_t value[8];
};

static uint64_t at(unsigned word)
{
	return (uint64_t)(uintptr_t)&memory[word % WORDS];
}

static void put(unsigned word, uint32_t offset, uint64_t v)
{
	if (offset != NONE)
		memcpy((char *)&memory[word] + offset, &v, sizeof(v));
}

static void put_str(const struct layout *l, unsigned word, unsigned kind, const char *s)
{
	size_t n = strlen(s), i;

	put(word, 16, n);
	put(word, 32, kind << 2 | 32 | (kind == 1 ? 64 : 0));
	for (i = 0; i < n; i++)
		((char *)&memory[word])[(kind == 1 ? l->ascii : l->compact) + i * kind] = s[i];
}

static void make_true(const struct layout *l)
{
	static const uint8_t table[] = { 0x80 | 12 << 3 | 7, 0, 0, 0x80 | 13 << 3, 0x41, 2,
					 0x80 | 14 << 3, 8, 0, 1, 2, 0x80 | 15 << 3, 4, 1 };
	unsigned i;

	memset(memory, 0, sizeof(memory));
	put(0, l->interpreters, at(INTERPRETER));
	put(INTERPRETER, l->threads, at(THREAD));
	if (l->native_id)
		put(THREAD, l->native_id, (uint64_t)syscall(SYS_gettid));
	else
		put(THREAD, l->thread_id, at(PTHREAD));
	put(PTHREAD, 720, (uint64_t)syscall(SYS_gettid)); /* struct pthread's, of glibc */
	put(THREAD, l->frame, l->cframe_frame == NONE ? at(FRAME) : at(CFRAME));
	put(CFRAME, l->cframe_frame, at(FRAME));
	for (i = 0; i < FRAMES; i++) {
		put(FRAME + NEXT * i, l->code, at(CODE));
		put(FRAME + NEXT * i, l->previous, i + 1 < FRAMES ? at(FRAME + NEXT * (i + 1)) : 0);
		if (l->bytecode != NONE)
			put(FRAME + NEXT * i, l->instr, at(CODE) + l->bytecode + 4);
		else
			put(FRAME + NEXT * i, l->instr, 4);
	}
	put(CODE, 8, at(TYPE));
	put(TYPE, 24, at(TYPE_NAME));
	memcpy(&memory[TYPE_NAME], "code", 5);
	put(CODE, l->first_line, 40);
	put(CODE, l->file, at(FILE_TEXT));
	put(CODE, l->qualname != NONE ? l->qualname : l->name, at(NAME_TEXT));
	put(CODE, l->lines, at(TABLE));
	put_str(l, FILE_TEXT, 1, "/job/train.py");
	put_str(l, NAME_TEXT, 2, "Data.load");
	put(TABLE, 16, sizeof(table));
	memcpy((char *)&memory[TABLE] + 32, table, sizeof(table));
}

static void change(const struct change *c)
{
	uint64_t v;

	memcpy(&v, c->value, sizeof(v));
	memory[c->word % WORDS] = c->how % 4 == 0 ? at((unsigned)v % WORDS) :
				  c->how % 4 == 1 ? v >> c->shift % 64 :
				  c->how % 4 == 2 ? UINT64_MAX - (v >> 60) : v;
}

struct seen {
	unsigned threads, frames;
};

static bool on_thread(void *ctx, pid_t tid)
{
	struct seen *s = ctx;

	FUZZ_HOLDS(tid > 0 && ++s->threads <= PT_PY_THREADS);
	s->frames = 0;
	return true;
}

static void on_frame(void *ctx, const struct pt_py_frame *f)
{
	struct seen *s = ctx;

	FUZZ_HOLDS(memchr(f->file, 0, sizeof(f->file)) && memchr(f->name, 0, sizeof(f->name)));
	FUZZ_HOLDS(f->line >= 0 && ++s->frames <= PT_PY_DEPTH);
}

/* It is no waiting that is to be found. */
int __wrap_usleep(useconds_t us);
int __wrap_usleep(useconds_t us)
{
	(void)us;
	return 0;
}

/* The text with `put` for each "@"; the caller frees it. */
static char *filled(const uint8_t *data, size_t size, const char *with, size_t *len)
{
	char *text = malloc(size * 40 + 1);
	size_t i;

	if (!text)
		abort();
	*len = 0;
	for (i = 0; i < size; i++) {
		if (data[i] == '@')
			*len += (size_t)sprintf(text + *len, "%s", with);
		else
			text[(*len)++] = (char)data[i];
	}
	return text;
}

static void on_look(void *ctx, const struct pt_py_look *l)
{
	const struct pt_py_looks *looks = ctx;
	uint32_t id = l->stack, depth = 0;

	for (; id; id = pt_py_node_of(looks, id)->caller) {
		FUZZ_HOLDS(id <= pt_py_nodes_known(looks) && ++depth <= PT_PY_DEPTH);
		FUZZ_HOLDS(pt_py_node_of(looks, id)->line - 1 < pt_py_lines_known(looks));
	}
	FUZZ_HOLDS(pt_py_telling(looks, l->stack) <= pt_py_lines_known(looks));
}

/* Frames of whatever is in the memory, as the kernel samples them; and what it is to be
 * told of the process. */
static void sample(struct pt_py_looks *l)
{
	struct pt_py_sample s = { .ts = 1, .tgid = (uint32_t)getpid(), .tid = 1 };
	const struct pt_py *py;
	struct pt_py_found f;
	pid_t pid;

	for (s.n = 0; s.n < 8; s.n++) {
		s.at[s.n].code = s.n % 3 ? at(CODE) : memory[FRAME + 4 * s.n];
		s.at[s.n].instr = memory[FRAME + NEXT + 4 * s.n];
	}
	pt_py_looks_sample(l, &s, s.n, on_look, l);
	py = pt_py_looks_opened(l, &pid);
	if (py && pt_py_where(py, &f) && pt_py_found_check(&f))
		FUZZ_HOLDS(f.where.size <= PT_PY_RAW && f.where.code < f.where.size);
}

/* The same process looked at again and again, as a trace does. */
static void look(void)
{
	struct pt_py_looks *l = pt_py_looks_new();
	const char *version, *cmdline;
	struct pt_err err = { "" };
	pid_t self = getpid();
	int i;

	if (!l)
		abort();
	fake_file("schedstat", "7 8 9\n", 6);
	for (i = 0; i < 3; i++) {
		pt_py_looks_watch(l, self, &err);
		pt_py_looks_at(l, on_look, l);
		sample(l);
		if (pt_py_looks_process(l, self, &version, &cmdline))
			FUZZ_HOLDS(version[0] == '3');
		memory[NAME_TEXT + 5]++; /* another function */
	}
	pt_py_looks_keep(l, &self, 1);
	pt_py_looks_keep(l, &self, 0);
	FUZZ_HOLDS(!pt_py_looks_process(l, self, &version, &cmdline));
	pt_py_looks_free(l);
}

/* A library's first symbol lies at 0x1000 (fake.c). */
static void find(const uint8_t *maps, size_t size)
{
	const unsigned long long start = at(0) - 0x1000;
	struct pt_err err = { "" };
	char with[40], *text;
	struct pt_py *p;
	size_t len;

	if (!size)
		return;
	make_true(&layouts[maps[0] % LAYOUTS]);
	snprintf(with, sizeof(with), "%llx-%llx", start, start + 0x100000);
	text = filled(maps + 1, size - 1, with, &len);
	fake_file("maps", text, len);
	fake_library = true;
	if (pt_py_open(&p, getpid(), &err)) {
		FUZZ_HOLDS(!p && err.msg[0]);
	} else {
		FUZZ_HOLDS(!strncmp(pt_py_version(p), "3.", 2));
		pt_py_close(p);
		look();
	}
	fake_library = false;
	fake_clear();
	free(text);
}

/* A process in a name space of its own. */
static void apart(const uint8_t *status, size_t size)
{
	struct seen s = { 0, 0 };
	const struct pt_py_sink to = { on_thread, on_frame, &s };
	const struct layout *l;
	struct pt_err err;
	struct pt_py *p;
	char with[16], *text;
	size_t len;

	if (!size)
		return;
	l = &layouts[status[0] % LAYOUTS];
	make_true(l);
	snprintf(with, sizeof(with), "%ld", syscall(SYS_gettid));
	text = filled(status + 1, size - 1, with, &len);
	fake_file("status", text, len);
	if (pt_py_open_at(&p, getpid(), at(0), l->minor, &err))
		abort();
	pt_py_stacks(p, &to);
	s.threads = 0;
	pt_py_stacks(p, &to);
	pt_py_close(p);
	fake_clear();
	free(text);
}

void python_run(const uint8_t *data, size_t size)
{
	const struct layout *l;
	struct seen s = { 0, 0 };
	const struct pt_py_sink to = { on_thread, on_frame, &s };
	struct pt_err err = { "" };
	struct pt_py *p;
	struct change c;
	size_t i;
	int k;

	if (!size)
		return;
	if (*data == 255) {
		find(data + 1, size - 1);
		return;
	}
	if (*data == 254) {
		apart(data + 1, size - 1);
		return;
	}
	l = &layouts[*data % LAYOUTS];
	make_true(l);
	if (pt_py_open_at(&p, getpid(), at(0), l->minor, &err))
		abort();
	FUZZ_HOLDS(pt_py_stacks(p, &to) == 1 && s.frames == FRAMES);
	for (i = 1; i + sizeof(c) <= size; i += sizeof(c)) {
		memcpy(&c, data + i, sizeof(c));
		change(&c);
	}
	for (k = 0; k < 3; k++) { /* what was met before is met again; by one that met nothing */
		s.threads = 0;
		pt_py_stacks(p, &to);
		if (k != 1)
			continue;
		pt_py_close(p);
		if (pt_py_open_at(&p, getpid(), at(0), l->minor, &err))
			break;
	}
	pt_py_close(p);
	/* and with what it publishes of itself */
	if (pt_py_open_at(&p, getpid(), at(0), 13, &err)) {
		FUZZ_HOLDS(!p && err.msg[0]);
		return;
	}
	s.threads = 0;
	pt_py_stacks(p, &to);
	pt_py_close(p);
}

static void seed_of(uint8_t version, const char *name, const struct change *c, size_t n)
{
	fuzz_seed_as(name, version, c, n * sizeof(*c));
}

static void maps_seeds_of(const char *name, const char *text)
{
	fuzz_seed_as(name, 255, text, strlen(text));
}

/* A frame that is far behind its code's begin: all of the line table. */
static void far_seeds(void)
{
	const struct layout *l;
	struct change c = { 0 };
	uint64_t v;
	unsigned i, k;
	char name[16];

	for (i = 0; i < LAYOUTS; i++) {
		l = &layouts[i];
		for (k = 0; k < 4; k++) {
			c.word = (uint16_t)(FRAME + l->instr / 8);
			c.how = l->bytecode != NONE ? 0 : 3;
			v = l->bytecode != NONE ? CODE + l->bytecode / 8 + 2 + k :
						  (uint64_t)(240 + 500 * k) << l->instr % 8 * 8;
			memcpy(c.value, &v, sizeof(v));
			snprintf(name, sizeof(name), "far-%c%u", 'a' + (char)i, k);
			seed_of((uint8_t)i, name, &c, 1);
		}
	}
}

/* Letters of two, three and four bytes, and texts that are long or cannot be. */
static void text_seeds(void)
{
	static const uint64_t letters[] = { 0xe9004e2d00e90041, 0x1f6000000041, 0x11000000004e2d };
	struct change c[3] = { { .how = 3 }, { .how = 3 }, { .how = 3 } };
	uint64_t state, length;
	unsigned i, kind;
	char name[16];

	for (i = 0; i < 12; i++) {
		kind = i < 4 ? 2 : 4;
		state = kind << 2 | (i == 11 ? 0 : 32);
		length = i == 3 || i == 7 ? 200 : i == 10 ? 3000 : 2;
		c[0].word = NAME_TEXT + 4;
		memcpy(c[0].value, &state, 8);
		c[1].word = NAME_TEXT + 2;
		memcpy(c[1].value, &length, 8);
		c[2].word = (uint16_t)(NAME_TEXT + layouts[3].compact / 8);
		memcpy(c[2].value, &letters[i % 3], 8);
		snprintf(name, sizeof(name), "text-%u", i);
		seed_of(3, name, c, 3);
	}
}

void python_seeds(void)
{
	static const char maps[] =
		"\x03" "555555000000-555555200000 r-xp 00001000 08:01 77 /usr/bin/python3.11\n"
		"7ffff0000000-7ffff0100000 r-xp 00001000 08:01 78 /opt/lib/libpython3.12.so.1.0\n"
		"7ffff1000000-7ffff1100000 r-xp 00000000 08:01 79 /x/_json.cpython-39-x86_64.so\n";
	static const char *const status[] = {
		"\3Name:\tx\nNSpid:\t4711\t@\n", "\3Name:\tx\nNSpid:\t4711\t12\n",
		"\1Name:\tx\nNSpid:\t1 2 3 @ 4 x\n", "\2Name:\tx\nNSpid:\t@\n",
		"\3Name:\tx\nNSpid:\t1\t99999999999\n", "\4NSpid:\t1\t@\n",
	};
	/* CODE: offsets that a 3.13 of 2024 publishes, with a name that begins like it */
	static const uint64_t published[] = { 0, 0x030d00f0, 0, 0, 0, 632, 0, 0, 0, 7344 };
	struct change c[16] = { { .word = FRAME + 6, .how = 0, .value = { FRAME & 255, FRAME >> 8 } } };
	char name[16];
	unsigned i;

	for (i = 0; i < LAYOUTS; i++) {
		name[0] = (char)('a' + i);
		name[1] = 0;
		seed_of((uint8_t)i, name, c, 0);
		name[1] = 'x';
		name[2] = 0;
		seed_of((uint8_t)i, name, c, 1);
	}
	memset(c, 0, sizeof(c));
	c[0].how = 3;
	memcpy(c[0].value, "xdebugpy", 8);
	for (i = 1; i < sizeof(published) / sizeof(*published); i++) {
		c[i].word = (uint16_t)i;
		c[i].how = 3;
		memcpy(c[i].value, &published[i], 8);
	}
	seed_of(LAYOUTS - 1, "published", c, i);
	c[2].value[0] = 1;
	seed_of(LAYOUTS - 1, "free-threaded", c, i);
	memset(c, 0, sizeof(c));
	c[0] = (struct change){ .word = TABLE + 2, .how = 1, .value = { 200 } };
	seed_of(3, "long-table", c, 1);
	seed_of(0, "long-steps", c, 1);
	seed_of(2, "long-ranges", c, 1);
	c[0] = (struct change){ .word = NAME_TEXT + 4, .how = 1, .value = { 4 << 2 | 32 } };
	seed_of(4, "four-bytes", c, 1);
	c[0] = (struct change){ .word = FILE_TEXT + 2, .how = 1, .value = { 0, 8 } };
	seed_of(4, "long-text", c, 1);
	c[0] = (struct change){ .word = CODE + 1, .how = 0, .value = { 7, 3 } };
	seed_of(3, "other-type", c, 1);
	far_seeds();
	text_seeds();
	fuzz_seed_as("maps", 255, maps, sizeof(maps) - 1);
	fuzz_seed_as("maps-one", 255, maps, 70);
	maps_seeds_of("maps-none", "\3x\n");
	maps_seeds_of("found", "\3@ r-xp 0 08:01 77 /usr/bin/python3.11\n");
	maps_seeds_of("found-inside", "\3@ r-xp 0 08:01 77 /job/train\n"
		      "1000-2000 r-xp 0 08:01 78 /x/_json.cpython-311-x86_64.so\n");
	maps_seeds_of("does-not-fit", "\1@ r-xp 0 08:01 77 /usr/bin/python3.11\n");
	maps_seeds_of("too-new", "\3@ r-xp 0 08:01 77 /usr/bin/python3.77\n");
	for (i = 0; i < sizeof(status) / sizeof(*status); i++) {
		snprintf(name, sizeof(name), "apart-%u", i);
		fuzz_seed_as(name, 254, status[i], strlen(status[i]));
	}
	maps_seeds_of("no-version", "\3@ r-xp 0 08:01 77 /job/train\n");
}
