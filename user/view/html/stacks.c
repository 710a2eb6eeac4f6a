// SPDX-License-Identifier: BSD-2-Clause
/*
 * The page's stacks of Python: a tree for the trainers' main threads, one for the workers, one
 * for all others, and of each what ran and what slept. Nodes are triples: the node that called
 * it, from 1 on (0: none), its line's index, and us of its own. Below 0 is no line: -1 stands for
 * smaller ones, -2 - W for what a thread slept for.
 */
#include <stdlib.h>

#include "base/minmax.h"
#include "view/html/html_int.h"
#include "view/timeline/stacks.h"
#include "view/timeline/trace.h"

#define NODES 1000 /* of a tree; the smaller ones beyond are put together */

enum { TRAINERS, WORKERS, OTHERS, GROUPS };

struct texts {
	const struct pt_model *m;
	json_t *lines, *files;
	uint32_t *of_line; /* 1 + its index, by id - 1; 0: not told yet */
	const char *file;  /* that was told last */
	uint64_t first;	   /* look that is held */
};

/* One tree; by the stack's id - 1. */
struct tree {
	uint64_t *own, *total;
	uint32_t *node; /* 1 + its index; 0: it is none */
	uint16_t *depth;
	uint64_t *rest;	 /* of smaller ones, by the node's place from 1 on */
	uint32_t n;	 /* nodes */
	json_t *nodes;
};

/* ---- lines ---------------------------------------------------------------------- */

/* Its index. Lines of a file mostly come together. */
static int line_of(struct pt_jb *b, struct texts *k, uint32_t id)
{
	const struct pt_code_line *l = pt_model_line(k->m, id);
	json_t *o;

	if (!l)
		return -1;
	if (k->of_line[id - 1])
		return (int)k->of_line[id - 1] - 1;
	if (!k->file || strcmp(k->file, l->file))
		pt_j_add(b, k->files, pt_j_string(l->file));
	k->file = l->file;
	o = json_array();
	pt_j_add(b, o, pt_j_string(l->name));
	pt_j_add(b, o, json_integer((json_int_t)json_array_size(k->files) - 1));
	pt_j_add(b, o, json_integer(l->line));
	pt_j_add(b, o, json_integer(l->library));
	pt_j_add(b, k->lines, o);
	k->of_line[id - 1] = (uint32_t)json_array_size(k->lines);
	return (int)k->of_line[id - 1] - 1;
}

/* ---- a tree ---------------------------------------------------------------------- */

static void put_node(struct pt_jb *b, struct tree *t, uint32_t parent, int line, uint64_t ns)
{
	pt_j_add(b, t->nodes, json_integer(parent));
	pt_j_add(b, t->nodes, json_integer(line));
	pt_j_add(b, t->nodes, json_integer((json_int_t)(ns / 1000)));
	t->n++;
}

PT_ORDER(by_size, uint64_t, pt_cmp(*y, *x))

/* Of a tree as large as may be, what its smallest node has. 0: no memory. */
static uint64_t least_of(const struct tree *t, size_t n)
{
	uint64_t *v = malloc((n + 1) * sizeof(*v)), least;
	size_t i, k = 0;

	if (!v)
		return 0;
	for (i = 0; i < n; i++)
		if (t->total[i] >= 1000)
			v[k++] = t->total[i];
	qsort(v, k, sizeof(*v), by_size);
	least = k > NODES ? v[NODES] + 1 : 1000;
	free(v);
	return least;
}

/* Who called it, if that was told: a lower one. */
static uint32_t caller_of(const struct pt_model *m, size_t i)
{
	const struct pt_code_stack *s = pt_model_stack(m, (uint32_t)i + 1);

	return s && pt_model_stack(m, s->caller) ? s->caller : 0;
}

static void sum_up(const struct pt_model *m, struct tree *t)
{
	size_t n = m->code_stacks.n, i;
	uint32_t by;

	for (i = n; i-- > 0;)
		if ((by = caller_of(m, i)))
			t->total[by - 1] += t->total[i];
	for (i = 0; i < n; i++) {
		by = caller_of(m, i);
		t->depth[i] = !by ? 1 : (uint16_t)(t->depth[by - 1] +
						   (t->depth[by - 1] < UINT16_MAX));
	}
}

/* Callers before those that they call: that is how the ids are. */
static void put_nodes(struct pt_jb *b, struct texts *k, struct tree *t, uint64_t least)
{
	size_t i, n = k->m->code_stacks.n;
	uint32_t by, at;

	for (i = 0; i < n; i++) {
		by = caller_of(k->m, i);
		at = by ? t->node[by - 1] : 0;
		if (!t->total[i] || (by && !at))
			continue;
		if (t->total[i] < least || t->depth[i] > PT_STACK_DEPTH) {
			t->rest[at] += t->total[i];
			continue;
		}
		put_node(b, t, at, line_of(b, k, pt_model_stack(k->m, (uint32_t)i + 1)->line),
			 t->own[i]);
		t->node[i] = t->n;
	}
	for (i = 0, at = t->n; i <= at; i++)
		if (t->rest[i] >= 1000)
			put_node(b, t, (uint32_t)i, -1, t->rest[i]);
}

/* Of a library, and with enough for a node of its own? */
static bool is_function(const struct pt_model *m, const struct pt_stack_time *e, uint64_t least)
{
	return e->key.state == PT_PAST_RUNNING && e->key.function &&
	       pt_model_stack(m, e->key.stack) && e->ns >= least;
}

static json_t *tree_of(struct pt_jb *b, struct texts *k, const struct pt_stack_times *times,
		       bool asleep)
{
	size_t n = k->m->code_stacks.n;
	struct tree t = { .nodes = json_array() };
	const struct pt_stack_time *e;
	uint64_t least = 0;
	size_t i;

	t.own = calloc(n + 1, sizeof(*t.own));
	t.total = calloc(n + 1, sizeof(*t.total));
	t.node = calloc(n + 1, sizeof(*t.node));
	t.depth = calloc(n + 1, sizeof(*t.depth));
	t.rest = calloc(n + 2, sizeof(*t.rest));
	if (!t.own || !t.total || !t.node || !t.depth || !t.rest) {
		b->failed = true;
		goto out;
	}
	for (e = times->all; e; e = e->hh.next) {
		if ((e->key.state != PT_PAST_RUNNING) != asleep ||
		    !pt_model_stack(k->m, e->key.stack))
			continue;
		t.total[e->key.stack - 1] += e->ns;
	}
	for (i = 0; i < n; i++)
		t.own[i] = asleep ? 0 : t.total[i];
	sum_up(k->m, &t);
	least = least_of(&t, n);
	b->failed |= !least;
	for (e = times->all; !asleep && e; e = e->hh.next)
		if (is_function(k->m, e, least))
			t.own[e->key.stack - 1] -= e->ns;
	put_nodes(b, k, &t, least);
	/* a library's functions are below it */
	for (e = times->all; !asleep && e; e = e->hh.next)
		if (is_function(k->m, e, least) && t.node[e->key.stack - 1])
			put_node(b, &t, t.node[e->key.stack - 1], line_of(b, k, e->key.function),
				 e->ns);
	for (e = times->all; asleep && e; e = e->hh.next)
		if (e->key.state != PT_PAST_RUNNING && pt_model_stack(k->m, e->key.stack) &&
		    t.node[e->key.stack - 1] && e->ns >= 1000)
			put_node(b, &t, t.node[e->key.stack - 1], -2 - (int)e->key.state, e->ns);
out:
	free(t.own);
	free(t.total);
	free(t.node);
	free(t.depth);
	free(t.rest);
	return t.nodes;
}

static void put_side(struct pt_jb *b, json_t *group, struct texts *k,
		     const struct pt_stack_times *times, bool asleep)
{
	json_t *o = json_object();

	pt_j_std(b, o, "seconds", (double)(asleep ? times->slept_ns : times->ran_ns) / 1e9);
	pt_j_std(b, o, "unseen",
		 (double)(asleep ? times->slept_unseen_ns : times->ran_unseen_ns) / 1e9);
	pt_j_put(b, o, "nodes", tree_of(b, k, times, asleep));
	pt_j_put(b, group, asleep ? "asleep" : "running", o);
}

/* ---- the threads ------------------------------------------------------------------ */

static int group_of(const struct pt_export *x, const struct pt_thread *th)
{
	size_t i, w;

	for (i = 0; i < x->lanes->n_trainers; i++) {
		const struct pt_lane_trainer *t = &x->lanes->trainers[i];

		if (t->main_tid == th->tid)
			return TRAINERS;
		for (w = 0; w < t->n_workers; w++)
			if (t->workers[w].tid == th->tid)
				return WORKERS;
	}
	return OTHERS;
}

static json_t *groups(struct pt_jb *b, const struct pt_export *x, struct texts *k)
{
	static const char *const names[GROUPS] = { "trainer", "workers", "others" };
	const struct pt_r_capture *c = &x->r->capture;
	struct pt_stack_times times[GROUPS] = { { 0 } };
	size_t threads[GROUPS] = { 0 }, i;
	json_t *all = json_array(), *o;
	int g;

	for (i = 0; i < x->m->all_threads.n; i++) {
		const struct pt_thread *th = x->m->all_threads.v[i];

		if (!th->looks.n)
			continue;
		k->first = th->looks.v[0].begin < k->first ? th->looks.v[0].begin : k->first;
		g = group_of(x, th);
		threads[g]++;
		b->failed |= pt_stacks_add(&times[g], x->m, th,
					   (uint64_t)c->begin_ns, (uint64_t)c->end_ns) != 0;
	}
	for (g = 0; g < GROUPS; g++) {
		if (!threads[g])
			continue;
		o = json_object();
		pt_j_put(b, o, "who", json_string(names[g]));
		pt_j_put(b, o, "threads", json_integer((json_int_t)threads[g]));
		put_side(b, o, k, &times[g], false);
		put_side(b, o, k, &times[g], true);
		pt_j_add(b, all, o);
		pt_stacks_free(&times[g]);
	}
	return all;
}

json_t *pt_html_stacks(struct pt_jb *b, const struct pt_export *x)
{
	struct texts k = { .m = x->m, .first = UINT64_MAX };
	uint64_t begin = (uint64_t)x->r->capture.begin_ns;
	json_t *o, *waits;
	int i;

	k.of_line = calloc(x->m->code_lines.n + 1, sizeof(*k.of_line));
	if (!k.of_line) {
		b->failed = true;
		return NULL;
	}
	k.lines = json_array();
	k.files = json_array();
	waits = json_array();
	for (i = 0; i < PT_WAIT_NR; i++)
		pt_j_add(b, waits, json_string(pt_wait_name((enum pt_wait)i)));
	o = json_object();
	pt_j_put(b, o, "groups", groups(b, x, &k));
	/* of a long capture, only what was looked at last */
	pt_j_std(b, o, "from", k.first != UINT64_MAX && k.first > begin ?
				       (double)(k.first - begin) / 1e9 : 0);
	pt_j_put(b, o, "lines", k.lines);
	pt_j_put(b, o, "files", k.files);
	pt_j_put(b, o, "waits", waits);
	free(k.of_line);
	return o;
}
