// SPDX-License-Identifier: BSD-2-Clause
/* In which library a sampled thread was, and where there, below its innermost line of Python. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "capture/discover.h"
#include "python/looks_int.h"

#define FILES_MAX 1024 /* of a process */
/* A library may have come since; but code that is in no file (a JIT's) never is: each time
 * in vain the next one waits twice as long. */
#define READ_AGAIN_NS 1000000000ull
#define READ_AGAIN_MAX_NS (64 * READ_AGAIN_NS)

PT_ORDER(by_start, struct mapped, pt_cmp(x->start, y->start))

/* What runs Python itself is none: that it runs Python, the line says. */
static bool is_interpreter(const struct process *p, const struct pt_gpulib *g)
{
	const char *base = strrchr(g->path_display, '/');

	base = base ? base + 1 : g->path_display;
	return !strncmp(base, "libpython", 9) || !strncmp(base, "python", 6) ||
	       (p->exe_inode && g->inode == p->exe_inode && g->dev == p->exe_dev);
}

static void read_maps(struct process *p)
{
	struct pt_gpulib *g = calloc(FILES_MAX, sizeof(*g));
	ssize_t n = g ? pt_exec_files(p->pid, g, FILES_MAX) : 0, i;

	p->mapped.n = 0;
	/* the program comes first: where Python is built in, it is the interpreter */
	if (n > 0 && !p->exe_inode) {
		p->exe_inode = g[0].inode;
		p->exe_dev = g[0].dev;
	}
	for (i = 0; i < n && i < FILES_MAX; i++) {
		const struct mapped m = { .start = g[i].start, .end = g[i].end,
					  .offset = g[i].offset,
					  .named = is_interpreter(p, &g[i]) };

		if (pt_vec_push(&p->mapped, m))
			break;
	}
	free(g);
	if (p->mapped.n)
		qsort(p->mapped.v, p->mapped.n, sizeof(*p->mapped.v), by_start);
}

/* Of hundreds that are mapped few are ever met. */
static void name(struct pt_py_looks *l, const struct process *p, struct mapped *m)
{
	struct pt_py_frame f = { .line = 0, .flags = PT_PY_NATIVE };
	struct pt_gpulib g;
	const char *base;

	m->named = true;
	if (pt_mapping_at(p->pid, m->start, &g))
		return;
	base = strrchr(g.path_display, '/');
	snprintf(f.name, sizeof(f.name), "%.*s", PT_PY_TEXT - 1,
		 base ? base + 1 : g.path_display);
	snprintf(f.file, sizeof(f.file), "%.*s", PT_PY_TEXT - 1, g.path_display);
	m->line = pt_py_line_id(l, &f);
	if (g.start == m->start && g.end == m->end && g.offset == m->offset)
		m->library = pt_py_library_id(l, &g, m->line);
}

static struct mapped *mapped_at(const struct process *p, uint64_t ip)
{
	size_t lo = 0, hi = p->mapped.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (p->mapped.v[mid].end <= ip)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < p->mapped.n && p->mapped.v[lo].start <= ip ? &p->mapped.v[lo] : NULL;
}

uint32_t pt_py_native_line(struct pt_py_looks *l, struct process *p, uint64_t ip,
			   uint32_t *place)
{
	struct mapped *m = mapped_at(p, ip);
	uint64_t now;

	if (!ip)
		return 0;
	now = m ? 0 : pt_now_ns();
	if (!m && (!p->mapped_ns || now - p->mapped_ns >= p->mapped_wait_ns)) {
		p->mapped_ns = now;
		read_maps(p);
		m = mapped_at(p, ip);
		p->mapped_wait_ns = m ? READ_AGAIN_NS :
				    p->mapped_wait_ns < READ_AGAIN_MAX_NS ?
					2 * p->mapped_wait_ns + READ_AGAIN_NS :
					p->mapped_wait_ns;
	}
	if (m && !m->named)
		name(l, p, m);
	if (m && m->line)
		*place = pt_py_place_id(l, p->pid, m, ip);
	return m ? m->line : 0;
}
