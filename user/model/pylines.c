/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines and stacks of Python, and who was in which when. */
#include <errno.h>
#include <string.h>

#include "model/budget.h"
#include "model/internal.h"

static uint64_t *sum_of(struct pt_model *m)
{
	return &m->held.names;
}

int pt_feed_pyline(struct pt_model *m, const struct pt_rec_pyline *r)
{
	size_t name = strnlen(r->text, sizeof(r->text)), file;
	const struct pt_code_line none = { NULL };
	struct pt_code_line *l;
	char *text;

	if (!r->id || r->id >= PT_PY_IDS || name + 2 > sizeof(r->text))
		return -EINVAL;
	file = strnlen(r->text + name + 1, sizeof(r->text) - name - 1);
	if (name + file + 2 > sizeof(r->text) || r->line < 0)
		return -EINVAL;
	while (m->code_lines.n < r->id)
		if (pt_held_push(sum_of(m), &m->code_lines, none))
			return -ENOMEM;
	l = &m->code_lines.v[r->id - 1];
	if (l->name)
		return 0;
	text = pt_held_new(sum_of(m), name + file + 2);
	if (!text)
		return -ENOMEM;
	memcpy(text, r->text, name + file + 2);
	*l = (struct pt_code_line){ .name = text, .file = text + name + 1, .line = r->line,
				    .library = r->flags & PT_PYLINE_LIBRARY,
				    .native = r->flags & PT_PYLINE_NATIVE };
	return 0;
}

int pt_feed_pystack(struct pt_model *m, const struct pt_rec_pystack *r)
{
	const struct pt_code_stack none = { 0 };

	/* callers come first: no stack goes in a circle */
	if (!r->id || r->id >= PT_PY_IDS || r->caller >= r->id || !r->line ||
	    r->line >= PT_PY_IDS)
		return -EINVAL;
	while (m->code_stacks.n < r->id)
		if (pt_held_push(sum_of(m), &m->code_stacks, none))
			return -ENOMEM;
	m->code_stacks.v[r->id - 1] = (struct pt_code_stack){
		.caller = r->caller, .line = r->line, .flags = (uint16_t)r->flags,
		.called_at = (uint16_t)(r->flags >> PT_PYSTACK_AT) };
	return 0;
}

int pt_feed_pyplace(struct pt_model *m, const struct pt_rec_pyplace *r)
{
	if (!r->id || r->id >= PT_PY_PLACES || !r->line || r->line >= PT_PY_IDS)
		return -EINVAL;
	while (m->code_places.n < r->id)
		if (pt_held_push(sum_of(m), &m->code_places, (uint32_t){ 0 }))
			return -ENOMEM;
	m->code_places.v[r->id - 1] = r->line;
	return 0;
}

int pt_feed_python(struct pt_model *m, const struct pt_rec_python *r)
{
	struct pt_proc *p;

	if (!r->state || r->bytes > PT_PY_STATE_MAX)
		return -EINVAL;
	p = pt_model_proc(m, pt_model_id(m, r->hdr.tgid));
	if (!p) /* only of processes that are followed */
		return 0;
	p->python = r->state;
	p->python_bytes = r->bytes;
	return 0;
}

int pt_feed_pylook(struct pt_model *m, const struct pt_rec_pylook *r)
{
	struct pt_code_look l = { .begin = r->begin_ts, .end = r->hdr.ts, .stack = r->stack,
				  .leaf = r->stack, .place = r->place, .running = r->running };
	const struct pt_code_stack *s = pt_model_stack(m, r->stack);
	const struct pt_code_line *line = s ? pt_model_line(m, s->line) : NULL;
	struct pt_thread *t;

	if (!r->stack || r->stack >= PT_PY_IDS || r->running > 1 || l.begin > l.end ||
	    r->place >= PT_PY_PLACES)
		return -EINVAL;
	if (line && line->native && s->caller)
		l.stack = s->caller;
	else
		l.place = 0;
	t = pt_thread_at(m, r->hdr.tid, l.begin);
	/* only of threads that are followed; a damaged file may say one twice */
	if (!t || pt_real_id(t->tgid) != r->hdr.tgid ||
	    (t->looks.n && t->looks.v[t->looks.n - 1].end > l.begin))
		return 0;
	return pt_held_push(&m->held.time, &t->looks, l);
}

const struct pt_code_line *pt_model_line(const struct pt_model *m, uint32_t id)
{
	return id && id <= m->code_lines.n && m->code_lines.v[id - 1].name ?
		       &m->code_lines.v[id - 1] : NULL;
}

const struct pt_code_stack *pt_model_stack(const struct pt_model *m, uint32_t id)
{
	return id && id <= m->code_stacks.n && m->code_stacks.v[id - 1].line ?
		       &m->code_stacks.v[id - 1] : NULL;
}

uint32_t pt_model_function(const struct pt_model *m, const struct pt_code_look *l)
{
	uint32_t line = l->place && l->place <= m->code_places.n ?
				m->code_places.v[l->place - 1] : 0;

	return pt_model_line(m, line) ? line : 0;
}

size_t pt_model_unfold(const struct pt_model *m, uint32_t id, uint32_t *out)
{
	const struct pt_code_stack *s;
	size_t n = 0;

	for (; n < PT_STACK_DEPTH && (s = pt_model_stack(m, id)); id = s->caller)
		out[n++] = id;
	return n;
}

void pt_lines_free(struct pt_model *m)
{
	pt_each(const struct pt_code_line, l, &m->code_lines) {
		if (l->name)
			pt_held_drop(sum_of(m), (char *)l->name,
				     (size_t)(l->file - l->name) + strlen(l->file) + 1);
	}
	pt_held_cut(sum_of(m), &m->code_lines, m->code_lines.n);
	pt_held_cut(sum_of(m), &m->code_stacks, m->code_stacks.n);
	pt_held_cut(sum_of(m), &m->code_places, m->code_places.n);
}
