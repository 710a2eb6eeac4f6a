// SPDX-License-Identifier: BSD-2-Clause
#include "python/looks.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "capture/procfs.h"
#include "python/looks_int.h"

#define LINES_MAX 32768
#define NODES_MAX 131072
#define TRIES 5 /* a process that begins may have no Python yet */

struct pt_py_looks *pt_py_looks_new(void)
{
	return calloc(1, sizeof(struct pt_py_looks));
}

static void shut(struct process *p)
{
	pt_hash_free(p->known);
	pt_vec_free(&p->mapped);
	pt_py_close(p->py);
	p->py = NULL;
	p->sampled = p->told = false;
}

static void forget(struct pt_py_looks *l, struct thread *t)
{
	HASH_DEL(l->threads, t);
	free(t->recent);
	free(t);
}

void pt_py_looks_free(struct pt_py_looks *l)
{
	struct thread *t, *next;
	size_t i;

	if (!l)
		return;
	HASH_ITER(hh, l->threads, t, next)
		forget(l, t);
	pt_py_functions_free(l);
	pt_hash_free(l->by_text);
	pt_hash_free(l->by_key);
	for (i = 0; i < l->processes.n; i++)
		shut(&l->processes.v[i]);
	free(l->lines.v);
	free(l->nodes.v);
	free(l->processes.v);
	free(l);
}

/* ---- processes ------------------------------------------------------------------- */

struct process *pt_py_process_of(const struct pt_py_looks *l, pid_t pid)
{
	size_t i;

	for (i = 0; i < l->processes.n; i++)
		if (l->processes.v[i].pid == pid)
			return &l->processes.v[i];
	return NULL;
}

static uint64_t pages_of(pid_t pid)
{
	char text[64];

	return pt_proc_read(pid, "statm", text, sizeof(text)) > 0 ? strtoull(text, NULL, 10) : 0;
}

int pt_py_looks_watch(struct pt_py_looks *l, pid_t pid, struct pt_err *err)
{
	const struct process new = { .pid = pid };
	struct process *p = pt_py_process_of(l, pid);
	uint64_t pages;
	int ret;

	if (!p) {
		if (pt_vec_push(&l->processes, new))
			return pt_err_set(err, -ENOMEM, "out of memory");
		p = &l->processes.v[l->processes.n - 1];
	}
	if (p->py || p->tries >= TRIES)
		return 0;
	p->tries++;
	/* it had no Python, and has mapped nothing since */
	pages = pages_of(pid);
	if (pages && pages == p->pages)
		return 0;
	ret = pt_py_open(&p->py, pid, err);
	p->pages = ret == -ENOENT ? pages : 0;
	if (!ret) {
		snprintf(p->version, sizeof(p->version), "%s", pt_py_version(p->py));
		if (pt_proc_cmdline(pid, p->cmdline, sizeof(p->cmdline)) <= 0)
			snprintf(p->cmdline, sizeof(p->cmdline), "?");
	}
	return p->tries == TRIES ? ret : 0;
}

void pt_py_looks_keep(struct pt_py_looks *l, const pid_t *pids, size_t n)
{
	struct thread *t, *next;
	size_t i, k = 0;

	for (i = 0; i < l->processes.n; i++) {
		struct process *p = &l->processes.v[i];

		if (bsearch(&p->pid, pids, n, sizeof(*pids), pt_by_pid))
			l->processes.v[k++] = *p;
		else
			shut(p);
	}
	if (k == l->processes.n)
		return;
	l->processes.n = k;
	HASH_ITER(hh, l->threads, t, next) {
		if (pt_py_process_of(l, t->id.pid))
			continue;
		forget(l, t);
	}
}

bool pt_py_looks_process(const struct pt_py_looks *l, pid_t pid, const char **version,
			 const char **cmdline)
{
	const struct process *p = pt_py_process_of(l, pid);

	if (!p || !p->version[0])
		return false;
	*version = p->version;
	*cmdline = p->cmdline;
	return true;
}

void pt_py_looks_sampled(struct pt_py_looks *l, pid_t pid, bool sampled)
{
	struct process *p = pt_py_process_of(l, pid);

	if (p)
		p->sampled = sampled && p->py;
}

const struct pt_py *pt_py_looks_opened(struct pt_py_looks *l, pid_t *pid)
{
	size_t i;

	for (i = 0; i < l->processes.n; i++) {
		struct process *p = &l->processes.v[i];

		if (!p->py || p->told)
			continue;
		p->told = true;
		*pid = p->pid;
		return p->py;
	}
	return NULL;
}

/* ---- lines and stacks ------------------------------------------------------------ */

/* What comes with the interpreter or is installed beside it; code that a library made as
 * it ran ("<__array_function__ internals>" of numpy, "<frozen ...>"), too. What somebody
 * typed or gave with -c is theirs. */
static bool is_library(const char *file)
{
	static const char *const typed[] = { "<stdin>", "<string>", "<ipython-input" };

	for (size_t i = 0; *file == '<' && i < sizeof(typed) / sizeof(typed[0]); i++)
		if (!strncmp(file, typed[i], strlen(typed[i])))
			return false;
	return *file == '<' || strstr(file, "/site-packages/") ||
	       strstr(file, "/dist-packages/") || strstr(file, "/lib/python3");
}

uint32_t pt_py_line_id(struct pt_py_looks *l, const struct pt_py_frame *f)
{
	char text[2 * PT_PY_TEXT + 16];
	size_t name = strlen(f->name);
	size_t n = (size_t)snprintf(text, sizeof(text), "%s%c%s%c%d", f->name, 0, f->file, 0,
				    f->line);
	struct line *x;

	HASH_FIND(hh, l->by_text, text, n, x);
	if (x)
		return x->id;
	x = l->lines.n < LINES_MAX ? malloc(sizeof(*x) + n + 1) : NULL;
	if (!x)
		return 0;
	*x = (struct line){ .id = (uint32_t)l->lines.n + 1, .n = n };
	memcpy(x->text, text, n + 1);
	x->l = (struct pt_py_line){ .name = x->text, .file = x->text + name + 1,
				    .line = f->line, .library = is_library(f->file) };
	x->l.native = f->flags & PT_PY_NATIVE;
	x->l.library |= x->l.native;
	HASH_ADD(hh, l->by_text, text, n, x);
	if (PT_HASHED(x) && !pt_vec_push(&l->lines, x))
		return x->id;
	if (PT_HASHED(x))
		HASH_DEL(l->by_text, x);
	free(x);
	return 0;
}

uint32_t pt_py_node_id(struct pt_py_looks *l, uint32_t caller, const struct frame *f,
		       uint16_t called_at)
{
	const struct pt_py_node key = { caller, f->line, f->flags, called_at };
	struct node *x = f->line ? pt_hash_make(l->by_key, key, &key) : NULL;

	if (!x || x->id)
		return x ? x->id : 0;
	if (l->nodes.n < NODES_MAX && !pt_vec_push(&l->nodes, x)) {
		x->id = (uint32_t)l->nodes.n;
		return x->id;
	}
	HASH_DEL(l->by_key, x);
	free(x);
	return 0;
}

uint32_t pt_py_lines_known(const struct pt_py_looks *l)
{
	return (uint32_t)l->lines.n;
}

uint32_t pt_py_nodes_known(const struct pt_py_looks *l)
{
	return (uint32_t)l->nodes.n;
}

const struct pt_py_line *pt_py_line_of(const struct pt_py_looks *l, uint32_t id)
{
	return &l->lines.v[id - 1]->l;
}

const struct pt_py_node *pt_py_node_of(const struct pt_py_looks *l, uint32_t id)
{
	return &l->nodes.v[id - 1]->key;
}

uint32_t pt_py_telling(const struct pt_py_looks *l, uint32_t stack)
{
	uint32_t at;

	if (stack && pt_py_line_of(l, pt_py_node_of(l, stack)->line)->native)
		stack = pt_py_node_of(l, stack)->caller;
	for (at = stack; at; at = pt_py_node_of(l, at)->caller)
		if (!pt_py_line_of(l, pt_py_node_of(l, at)->line)->library)
			return pt_py_node_of(l, at)->line;
	return stack ? pt_py_node_of(l, stack)->line : 0;
}

/* ---- one look -------------------------------------------------------------------- */

static bool is_running(pid_t pid, pid_t tid)
{
	struct pt_proc_stat stat;

	return !pt_proc_thread_stat(pid, tid, &stat) && stat.state == 'R';
}

static bool read_ran(const struct id *id, struct pt_py_ran *out)
{
	char name[64], text[128];

	snprintf(name, sizeof(name), "task/%d/schedstat", (int)id->tid);
	return pt_proc_read(id->pid, name, text, sizeof(text)) > 0 &&
	       sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &out->run, &out->ready,
		      &out->slices) == 3 && out->slices;
}

/* What was read, innermost first. 0: there is none, or no room for it. */
static uint32_t stack_id(struct pt_py_looks *l)
{
	uint32_t stack = 0;
	size_t i;

	for (i = l->depth; i-- > 0;) {
		stack = pt_py_node_id(l, stack, &l->stack[i], stack ? l->stack[i + 1].instr : 0);
		if (!stack)
			break;
	}
	return stack;
}

/* The stack that was read is a look, if there was room for it. */
static void tell(struct pt_py_looks *l)
{
	struct thread *t = l->at;
	uint32_t stack;

	l->at = NULL;
	if (!t)
		return;
	l->now.end_ns = pt_now_ns();
	stack = stack_id(l);
	l->now.stack = t->stack = stack;
	t->running = l->now.running;
	if (stack)
		l->fn(l->ctx, &l->now);
}

static bool on_thread(void *ctx, pid_t tid)
{
	struct pt_py_looks *l = ctx;
	const struct id id = { l->pid, tid };
	struct thread *t;
	bool slept;

	tell(l);
	t = pt_hash_make(l->threads, id, &id);
	if (!t)
		return false;
	t->met = l->round;
	l->now = (struct pt_py_look){ .pid = l->pid, .tid = tid, .begin_ns = pt_now_ns(),
				      .stack = t->stack };
	l->now.end_ns = l->now.begin_ns;
	l->now.counts = read_ran(&t->id, &l->now.ran);
	/* it slept on, so that its stack is the same, too */
	slept = l->now.counts && t->counts && t->stack && !t->running &&
		l->now.ran.slices == t->ran.slices && l->now.ran.run == t->ran.run;
	t->counts = l->now.counts;
	t->ran = l->now.ran;
	if (slept) {
		l->now.same = true;
		l->fn(l->ctx, &l->now);
		return false;
	}
	l->now.running = is_running(l->pid, tid);
	if (l->now.running && l->sampled) {
		t->running = true;
		t->stack = 0;
		return false;
	}
	l->at = t;
	l->depth = 0;
	return true;
}

static void on_frame(void *ctx, const struct pt_py_frame *f)
{
	struct pt_py_looks *l = ctx;

	if (l->depth == PT_PY_DEPTH)
		return;
	l->stack[l->depth++] = (struct frame){ pt_py_line_id(l, f), (uint16_t)f->flags, f->instr };
}

/* A job may have a thread for each request. One that was not there twice has ended: a list
 * that changes while it is read may leave out others. */
static void forget_ended(struct pt_py_looks *l)
{
	struct thread *t, *next;

	HASH_ITER(hh, l->threads, t, next)
		if (l->round - t->met > 1)
			forget(l, t);
}

int pt_py_looks_at(struct pt_py_looks *l, pt_py_look_fn fn, void *ctx)
{
	const struct pt_py_sink to = { on_thread, on_frame, l };
	struct pt_proc_stat stat;
	int seen = 0, n;
	size_t i;

	l->fn = fn;
	l->ctx = ctx;
	l->round++;
	for (i = 0; i < l->processes.n; i++) {
		struct process *p = &l->processes.v[i];

		if (!p->py)
			continue;
		l->pid = p->pid;
		l->sampled = p->sampled;
		n = pt_py_stacks(p->py, &to);
		tell(l);
		if (n > 0) {
			seen += n;
		} else if (n < 0 || pt_proc_stat(p->pid, &stat) || stat.state == 'Z') {
			/* it has ended, or runs another program */
			shut(p);
			p->tries = 0; /* the number may come again */
		}
	}
	forget_ended(l);
	return seen;
}

double pt_py_pause(double cost_s, double part)
{
	return fmax(PT_PY_PERIOD_S, cost_s / part) *
	       (0.5 + (double)random() / (double)RAND_MAX);
}
