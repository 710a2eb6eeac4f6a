// SPDX-License-Identifier: BSD-2-Clause
/*
 * In which function of a library a place is, by the library's symbols. To look into a file may
 * take long, so places are collected, and a file is looked into for all of its own at once. It
 * is opened where somebody has it mapped, and only read as long as it is what it was then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi.h"
#include "base/clock.h"
#include "base/minmax.h"
#include "capture/discover.h"
#include "capture/elf.h"
#include "capture/mapped.h"
#include "python/looks_int.h"

#define LIBRARIES_MAX 1024
#define OPEN_MAX 64
#define TRIES 3 /* to open one */
/* A file that took longer is not looked into again, nor is any when all took so long. */
#define SLOW_NS 500000000u
#define ALL_NS 5000000000u

static void shut(struct pt_py_looks *l, struct library *b)
{
	if (b->fd >= 0) {
		close(b->fd);
		l->n_open--;
	}
	b->fd = -1;
	b->asked.n = 0;
}

void pt_py_functions_free(struct pt_py_looks *l)
{
	size_t i;

	for (i = 0; i < l->libraries.n; i++) {
		shut(l, &l->libraries.v[i]);
		pt_vec_free(&l->libraries.v[i].asked);
		pt_vec_free(&l->libraries.v[i].functions);
	}
	pt_vec_free(&l->libraries);
	pt_vec_free(&l->bound);
	pt_hash_free(l->places);
}

uint32_t pt_py_library_id(struct pt_py_looks *l, const struct pt_gpulib *g, uint32_t line)
{
	const struct library new = { .inode = g->inode, .dev = g->dev, .line = line, .fd = -1 };
	size_t i;

	for (i = 0; i < l->libraries.n; i++)
		if (l->libraries.v[i].inode == g->inode && l->libraries.v[i].dev == g->dev)
			return (uint32_t)i + 1;
	if (!line || i >= LIBRARIES_MAX || pt_vec_push(&l->libraries, new))
		return 0;
	return (uint32_t)i + 1;
}

/* Is it, behind its descriptor, what it was at first? */
static bool unchanged(struct library *b)
{
	struct stat st;

	if (fstat(b->fd, &st))
		return false;
	if (!b->seen) {
		b->size = st.st_size;
		b->changed = st.st_mtim;
		b->seen = true;
	}
	return st.st_size == b->size && st.st_mtim.tv_sec == b->changed.tv_sec &&
	       st.st_mtim.tv_nsec == b->changed.tv_nsec;
}

static bool open_library(struct pt_py_looks *l, struct library *b, pid_t pid,
			 const struct mapped *m)
{
	const struct pt_mapped file = { .pid = pid, .start = m->start, .end = m->end,
					.dev = b->dev, .inode = b->inode,
					.name = pt_py_line_of(l, b->line)->file };

	if (b->fd >= 0)
		return true;
	if (b->given_up || l->n_open >= OPEN_MAX)
		return false;
	b->fd = pt_mapped_open(&file);
	l->n_open += b->fd >= 0;
	if (b->fd >= 0 && unchanged(b))
		return true;
	b->given_up = b->fd >= 0 || ++b->tries >= TRIES;
	shut(l, b);
	return false;
}

static const struct function *function_at(const struct library *b, uint64_t offset)
{
	size_t at = pt_bisect(b->functions.n, i, b->functions.v[i].begin <= offset);
	const struct function *f = at ? &b->functions.v[at - 1] : NULL;

	return f && offset - f->begin < f->size ? f : NULL;
}

uint32_t pt_py_place_id(struct pt_py_looks *l, pid_t pid, const struct mapped *m, uint64_t ip)
{
	struct library *b = m->library ? &l->libraries.v[m->library - 1] : NULL;
	uint64_t offset = ip - m->start + m->offset, key = offset << 16 | m->library;
	const struct function *f = b ? function_at(b, offset) : NULL;
	struct place *x;

	if (!b || f)
		return f ? f->place : 0;
	HASH_FIND(hh, l->places, &key, sizeof(key), x);
	if (x)
		return x->id;
	if (HASH_COUNT(l->places) + 1 >= PT_PY_PLACES || offset >> 48 ||
	    !open_library(l, b, pid, m))
		return 0;
	x = pt_hash_make(l->places, key, &key);
	if (!x)
		return 0;
	x->id = HASH_COUNT(l->places);
	if (pt_vec_push(&b->asked, ((struct asked){ offset, x->id })))
		return 0; /* it is never told */
	return x->id;
}

/* ---- what the symbols say ----------------------------------------------------------- */

/* What comes back is as little to be trusted as the file. */
static void note_function(struct library *b, const struct pt_elf_place *p, uint32_t place)
{
	const struct function new = { p->begin, p->size, place };
	size_t at = pt_bisect(b->functions.n, i, b->functions.v[i].begin < p->begin);

	if (p->begin > p->offset || p->offset - p->begin >= p->size ||
	    (at < b->functions.n && b->functions.v[at].begin == p->begin) ||
	    pt_vec_push(&b->functions, new))
		return;
	memmove(&b->functions.v[at + 1], &b->functions.v[at],
		(b->functions.n - 1 - at) * sizeof(new));
	b->functions.v[at] = new;
}

static void bind(struct pt_py_looks *l, struct library *b, const struct pt_elf_place *p)
{
	struct pt_py_frame f = { .line = 0, .flags = PT_PY_NATIVE };
	struct pt_py_bound new = { .place = (uint32_t)p->key };

	snprintf(f.name, sizeof(f.name), "%.*s", PT_PY_TEXT - 1, p->name);
	snprintf(f.file, sizeof(f.file), "%s", pt_py_line_of(l, b->line)->file);
	new.line = pt_py_line_id(l, &f);
	if (new.line && !pt_vec_push(&l->bound, new))
		note_function(b, p, new.place);
}

static void look_into(struct pt_py_looks *l, struct library *b)
{
	size_t n = b->asked.n, i;
	struct pt_elf_place *v = calloc(n, sizeof(*v));
	uint64_t begin = pt_now_ns(), took;

	for (i = 0; v && i < n; i++) {
		v[i].offset = b->asked.v[i].offset;
		v[i].key = b->asked.v[i].place;
	}
	/* changed while it was read, too, it is not believed */
	if (v && unchanged(b) && pt_elf_functions(b->fd, v, n) > 0 && unchanged(b))
		for (i = 0; i < n; i++)
			if (v[i].found)
				bind(l, b, &v[i]);
	took = pt_now_ns() - begin;
	l->looked_ns += took;
	b->given_up |= took >= SLOW_NS;
	free(v);
}

bool pt_py_functions_due(const struct pt_py_looks *l)
{
	return l->n_open;
}

void pt_py_functions(struct pt_py_looks *l)
{
	size_t i;

	for (i = 0; i < l->libraries.n; i++) {
		struct library *b = &l->libraries.v[i];

		if (b->asked.n && l->looked_ns < ALL_NS)
			look_into(l, b);
		b->given_up |= l->looked_ns >= ALL_NS;
		shut(l, b);
	}
}

size_t pt_py_bound_known(const struct pt_py_looks *l)
{
	return l->bound.n;
}

const struct pt_py_bound *pt_py_bound_of(const struct pt_py_looks *l, size_t i)
{
	return &l->bound.v[i];
}
