// SPDX-License-Identifier: BSD-2-Clause
/*
 * Folded stacks, as flame graph programs read them, in no order; counts are
 * microseconds. Off the CPU, "process;thread;state;what count": no stacks of
 * functions, each interval once. Or stacks of Python, "process;thread;outermost
 * function;...;innermost count", behind which stands what a thread slept for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/str.h"
#include "view/timeline/stacks.h"
#include "view/timeline/trace.h"

struct stack_key {
	const char *state, *what; /* addresses: constants, or the model's */
};

struct stack {
	struct stack_key key;
	uint64_t ns;
	UT_hash_handle hh;
};

static int add_to_stack(struct stack **all, const char *state, const char *what,
			uint64_t ns)
{
	struct stack_key key;
	struct stack *s;

	if (!ns)
		return 0;
	memset(&key, 0, sizeof(key));
	key.state = state;
	key.what = what;
	s = pt_hash_make(*all, key, &key);
	if (!s)
		return -ENOMEM;
	s->ns += ns;
	return 0;
}

/* A frame: nothing that would end it or the line. */
static int put_frame(FILE *f, const char *raw)
{
	char *text = pt_str_utf8(raw, NULL), *c;

	if (!text)
		return -ENOMEM;
	for (c = text; *c; c++)
		putc_unlocked(*c == ';' ? ',' :
			      (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c,
			      f);
	free(text);
	return 0;
}

/* "process 12;thread 34" */
static int put_whose(FILE *f, const struct pt_thread *t)
{
	int err = put_frame(f, t->proc ? t->proc->comm : "");

	fprintf(f, " %" PRIu32 ";", pt_real_id(t->tgid));
	err = err ?: put_frame(f, t->comm);
	fprintf(f, " %" PRIu32, pt_real_id(t->tid));
	return err;
}

static int put_stacks(FILE *f, const struct pt_thread *t,
		      const struct stack *all)
{
	int err = 0;

	for (; all && !err; all = all->hh.next) {
		if (all->ns < 1000)
			continue;
		err = put_whose(f, t);
		fprintf(f, ";%s", all->key.state);
		if (all->key.what) {
			putc_unlocked(';', f);
			err = err ? err : put_frame(f, all->key.what);
		}
		fprintf(f, " %" PRIu64 "\n", all->ns / 1000);
	}
	return err ?: pt_err_written(f);
}

static int fold_thread(const struct pt_export *x, const struct pt_thread *t,
		       FILE *out)
{
	struct stack *all = NULL;
	size_t i;
	int err = 0;

	for (i = 0; i < t->iv.n && !err; i++) {
		const struct pt_iv *v = &t->iv.v[i];

		if (v->end <= v->begin || v->ready < v->begin ||
		    v->ready > v->end)
			continue;
		err = add_to_stack(&all, pt_wait_name(v->wait), pt_iv_path(x->m, v),
				   v->ready - v->begin);
		err = err ?: add_to_stack(&all, pt_wait_name(PT_WAIT_RUNQ), NULL,
					  v->end - v->ready);
	}
	err = err ?: put_stacks(out, t, all);
	pt_hash_free(all);
	return err;
}

int pt_export_folded(const struct pt_export *x, FILE *out)
{
	size_t i;
	int err = 0;

	errno = 0;
	for (i = 0; i < x->m->all_threads.n && !err; i++)
		err = fold_thread(x, x->m->all_threads.v[i], out);
	return err;
}

/* ---- stacks of Python ---------------------------------------------------------- */

static int put_line(FILE *f, const struct pt_code_line *l)
{
	int err;

	putc_unlocked(';', f);
	err = put_frame(f, l->name);
	fputs(" (", f);
	err = err ?: put_frame(f, l->file);
	if (l->line)
		fprintf(f, ":%d", l->line);
	putc_unlocked(')', f);
	return err;
}

static int put_python(FILE *f, const struct pt_model *m, const struct pt_thread *th,
		      const struct pt_stack_time *t)
{
	uint32_t id[PT_STACK_DEPTH];
	size_t n = pt_model_unfold(m, t->key.stack, id);
	const struct pt_code_line *l;
	int err = put_whose(f, th);

	while (n-- > 0 && !err) {
		l = pt_model_line(m, pt_model_stack(m, id[n])->line);
		err = l ? put_line(f, l) : 0;
	}
	l = pt_model_line(m, t->key.function);
	if (l && !err)
		err = put_line(f, l);
	if (t->key.state != PT_PAST_RUNNING)
		fprintf(f, ";%s", pt_wait_name((enum pt_wait)t->key.state));
	fprintf(f, " %" PRIu64 "\n", t->ns / 1000);
	return err;
}

static int python_of(const struct pt_export *x, const struct pt_thread *th, FILE *out)
{
	const struct pt_r_capture *c = &x->r->capture;
	struct pt_stack_times all = { 0 };
	const struct pt_stack_time *t;
	int err = pt_stacks_add(&all, x->m, th, (uint64_t)c->begin_ns, (uint64_t)c->end_ns);

	for (t = all.all; t && !err; t = t->hh.next)
		if (t->ns >= 1000)
			err = put_python(out, x->m, th, t);
	err = err ?: pt_err_written(out);
	pt_stacks_free(&all);
	return err;
}

int pt_export_stacks(const struct pt_export *x, FILE *out)
{
	size_t i;
	int err = 0;

	errno = 0;
	for (i = 0; i < x->m->all_threads.n && !err; i++)
		err = python_of(x, x->m->all_threads.v[i], out);
	return err;
}
