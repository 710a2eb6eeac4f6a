// SPDX-License-Identifier: BSD-2-Clause
/* The timelines' tables: a row for each thing that was seen. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/demangle.h"
#include "model/acts.h"
#include "model/names.h"
#include "view/tables/tables.h"
#include "view/timeline/stacks.h"
#include "view/timeline/trace.h"

#define I pt_cell_int
#define U pt_cell_id
#define D pt_cell_real
#define S pt_cell_text
#define INT(name) { name, PT_COL_INT }
#define ID(name) { name, PT_COL_ID }
#define REAL(name) { name, PT_COL_REAL }
#define TEXT(name) { name, PT_COL_TEXT }

/* A time; 0 stands for one that is not known. */
static struct pt_cell T(uint64_t ns)
{
	return ns ? I((int64_t)ns) : pt_cell_null();
}

static const struct pt_col waits_cols[] = {
	INT("trainer_pid"), INT("step"), INT("part"), INT("begin_ns"),
	INT("end_ns"), TEXT("cause"), INT("batches"), INT("worker_pid"),
	INT("worker_tid"), INT("made_ns"),
};
static int waits_of(const struct pt_lane_trainer *t, struct pt_rows *to)
{
	size_t i;
	unsigned j;
	int err = 0;

	for (i = 0; i < t->n_steps; i++) {
		const struct pt_lane_step *s = &t->steps[i];
		const struct pt_lane_worker *w =
			s->worker >= 0 && (size_t)s->worker < t->n_workers ?
				&t->workers[s->worker] : NULL;

		for (j = 0; j < s->n_wait && !err; j++)
			err = PT_ROW(to, I(pt_real_id(t->tgid)), I((int64_t)i),
				     I(j), T(s->wait[j].begin), T(s->wait[j].end),
				     S(pt_cause_name(s->cause)), I(s->batches),
				     w ? I(pt_real_id(w->tgid)) : pt_cell_null(),
				     w ? I(pt_real_id(w->tid)) : pt_cell_null(),
				     s->made == UINT64_MAX ? pt_cell_null() :
							     T(s->made));
	}
	return err;
}
static int waits_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->lanes->n_trainers && !err; i++)
		err = waits_of(&x->lanes->trainers[i], to);
	return err;
}

static const struct pt_col processes_cols[] = {
	INT("pid"), INT("parent_pid"), TEXT("name"), INT("born_ns"),
	INT("died_ns"), INT("rank"), INT("outside"),
};
static int processes_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->m->all_procs.n && !err; i++) {
		const struct pt_proc *p = x->m->all_procs.v[i];
		bool rank = p->facts.hdr.size && p->facts.rank >= 0;

		err = PT_ROW(to, I(pt_real_id(p->tgid)),
			     p->ppid ? I(pt_real_id(p->ppid)) : pt_cell_null(),
			     S(p->comm), T(p->born), T(p->died),
			     rank ? I(p->facts.rank) : pt_cell_null(),
			     I(p->outside));
	}
	return err;
}

static const struct pt_col threads_cols[] = {
	INT("pid"), INT("tid"), TEXT("name"), INT("first_ns"), INT("last_ns"),
	INT("exited"), REAL("run_s"), REAL("run_queue_s"), REAL("io_wait_s"),
	REAL("blocked_s"), INT("off_cpu"), INT("gpu_calls"),
	INT("lost_records"),
};
static int threads_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->m->all_threads.n && !err; i++) {
		const struct pt_thread *t = x->m->all_threads.v[i];
		const struct pt_totals *a = &t->t0, *b = &t->t1;
		double s = t->totals_known ? 1e-9 : NAN;

		err = PT_ROW(to, I(pt_real_id(t->tgid)), I(pt_real_id(t->tid)),
			     S(t->comm), T(t->first), T(t->last), I(t->exited),
			     D((double)(b->run_ns - a->run_ns) * s),
			     D((double)(b->runq_ns - a->runq_ns) * s),
			     D((double)(b->iowait_ns - a->iowait_ns) * s),
			     D((double)(b->block_ns - a->block_ns) * s),
			     I((int64_t)t->iv.n), I((int64_t)t->calls),
			     I((int64_t)t->lost));
	}
	return err;
}

static const struct pt_col off_cpu_cols[] = {
	INT("pid"), INT("tid"), INT("begin_ns"), INT("ready_ns"),
	INT("end_ns"), TEXT("state"), INT("syscall"), ID("object"), INT("dev"),
	TEXT("file"), INT("waker_pid"), INT("waker_tid"), INT("not_over"),
};
static int off_cpu_of(const struct pt_export *x, const struct pt_thread *t,
		      struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < t->iv.n && !err; i++) {
		const struct pt_iv *v = &t->iv.v[i];
		bool w = v->valid_wake, o = v->obj_kind != PT_OBJ_NONE;
		struct pt_cell none = pt_cell_null();

		err = PT_ROW(to, I(pt_real_id(t->tgid)), I(pt_real_id(t->tid)),
			     T(v->begin), T(v->ready), T(v->end),
			     S(pt_wait_name(v->wait)),
			     v->syscall >= 0 ? I(v->syscall) : none,
			     o ? U(v->object) : none, o ? I(v->dev) : none,
			     S(pt_iv_path(x->m, v)),
			     w ? I(pt_real_id(v->waker_tgid)) : none,
			     w ? I(pt_real_id(v->waker_tid)) : none, I(v->open));
	}
	return err;
}
static int off_cpu_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->m->all_threads.n && !err; i++)
		err = off_cpu_of(x, x->m->all_threads.v[i], to);
	return err;
}

static const struct pt_col gpu_calls_cols[] = {
	INT("pid"), INT("tid"), INT("begin_ns"), INT("end_ns"), TEXT("name"),
	ID("stream"), ID("bytes"), INT("returned"), INT("not_over"),
	INT("begun_before"),
};
static bool has_bytes(const struct pt_gpu_call *c)
{
	return c->cls == PT_API_COPY_SYNC || c->cls == PT_API_COPY_ASYNC ||
	       c->cls == PT_API_MEMSET || c->cls == PT_API_ALLOC ||
	       c->cls == PT_API_HOST_ALLOC || c->cls == PT_API_COLLECTIVE;
}
static int gpu_calls_of(const struct pt_proc *p, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < p->gpu.n && !err; i++) {
		const struct pt_gpu_call *c = &p->gpu.v[i];
		const struct pt_api *a = pt_api_get(c->api);
		/* its end is only known where the return is watched */
		bool end = c->ret != INT64_MIN && !c->open;

		if (c->implied)
			continue;
		err = PT_ROW(to, I(pt_real_id(p->tgid)), I(pt_real_id(c->tid)),
			     T(c->begin), end ? T(c->end) : pt_cell_null(),
			     S(a ? a->symbol : NULL), U(c->stream),
			     has_bytes(c) ? U(c->v[1]) : pt_cell_null(),
			     I(c->ret), I(c->open), I(c->late));
	}
	return err;
}
static int gpu_calls_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->m->all_procs.n && !err; i++)
		err = gpu_calls_of(x->m->all_procs.v[i], to);
	return err;
}

static const struct pt_col device_work_cols[] = {
	INT("pid"), INT("tid"), INT("device"), INT("stream"), INT("begin_ns"),
	INT("end_ns"), TEXT("kind"), TEXT("name"), ID("bytes"),
	INT("correlation"), INT("graph"),
};
static int work_row(const struct pt_export *x, const struct pt_proc *p,
		    const struct pt_act *a, struct pt_rows *to)
{
	static const char *const copies[] = { "HtoH", "HtoD", "DtoH", "DtoD" };
	const char *kind = a->what == PT_ACT_COPY ? "copy" :
			   a->what == PT_ACT_MEMSET ? "memset" : "kernel";
	const char *raw = a->what == PT_ACT_COPY && a->detail < 4 ?
				  copies[a->detail] :
			  a->what == PT_ACT_KERNEL && a->name ?
				  pt_act_name(x->m, p, a->name) : NULL;
	char *name = raw ? pt_demangle(raw) : NULL;
	uint32_t tid = pt_act_tid(p, a);
	int err = PT_ROW(to, I(pt_real_id(p->tgid)),
			 tid ? I(pt_real_id(tid)) : pt_cell_null(),
			 I(a->device), I(a->stream), T(a->begin), T(a->end),
			 S(kind), S(name ? name : raw),
			 a->what == PT_ACT_KERNEL ? pt_cell_null() :
						    U(a->bytes),
			 I(a->correlation),
			 a->graph ? I(a->graph) : pt_cell_null());

	free(name);
	return err;
}
static int device_work_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i, j;
	int err = 0;

	for (i = 0; i < x->m->all_procs.n; i++) {
		const struct pt_proc *p = x->m->all_procs.v[i];

		for (j = 0; j < p->acts.n && !err; j++)
			err = work_row(x, p, &p->acts.v[j], to);
	}
	return err;
}

static const struct pt_col samples_cols[] = {
	INT("pid"), INT("t_ns"), INT("rss_anon_bytes"), INT("rss_file_bytes"),
	INT("rss_shmem_bytes"), REAL("user_s"), REAL("system_s"), INT("rchar"),
	INT("read_bytes"), INT("write_bytes"), INT("fds"), INT("threads"),
	REAL("throttled_s"),
};
static int samples_of(const struct pt_proc *p, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < p->samples.n && !err; i++) {
		const struct pt_rec_sample *s = &p->samples.v[i];

		err = PT_ROW(to, I(pt_real_id(p->tgid)), T(s->hdr.ts),
			     I((int64_t)s->rss_anon), I((int64_t)s->rss_file),
			     I((int64_t)s->rss_shmem),
			     D((double)s->utime_ns * 1e-9),
			     D((double)s->stime_ns * 1e-9), I((int64_t)s->rchar),
			     I((int64_t)s->read_bytes),
			     I((int64_t)s->write_bytes),
			     s->fds == ~0u ? pt_cell_null() : I(s->fds),
			     I(s->threads),
			     D(s->throttled_ns == ~0ull ? NAN :
				       (double)s->throttled_ns * 1e-9));
	}
	return err;
}
static int samples_rows(const struct pt_export *x, struct pt_rows *to)
{
	size_t i;
	int err = 0;

	for (i = 0; i < x->m->all_procs.n && !err; i++)
		err = samples_of(x->m->all_procs.v[i], to);
	return err;
}

static const struct pt_col stacks_cols[] = {
	INT("pid"), INT("tid"), TEXT("state"), REAL("seconds"), INT("looks"),
	TEXT("function"), TEXT("file"), INT("line"), TEXT("stack"),
};
/* "outermost;...;innermost", the functions' names alone. NULL: no memory. */
static char *names_of(const struct pt_model *m, const struct pt_stack_key *key)
{
	uint32_t id[PT_STACK_DEPTH];
	size_t n = pt_model_unfold(m, key->stack, id), len;
	const struct pt_code_line *l;
	char *text = NULL;
	FILE *f = open_memstream(&text, &len);

	while (f && n-- > 0) {
		l = pt_model_line(m, pt_model_stack(m, id[n])->line);
		fprintf(f, "%s%s", l ? l->name : "?", n ? ";" : "");
	}
	l = pt_model_line(m, key->function);
	if (f && l)
		fprintf(f, ";%s", l->name);
	if (f && !fclose(f))
		return text;
	free(text);
	return NULL;
}
static int stack_row(const struct pt_model *m, const struct pt_thread *th,
		     const struct pt_stack_time *t, struct pt_rows *to)
{
	const struct pt_code_stack *s = pt_model_stack(m, t->key.stack);
	const struct pt_code_line *l = s ? pt_model_line(m, t->key.function ?: s->line) : NULL;
	bool ran = t->key.state == PT_PAST_RUNNING;
	char *names = names_of(m, &t->key);
	int err = !names ? -ENOMEM :
		  PT_ROW(to, I(pt_real_id(th->tgid)), I(pt_real_id(th->tid)),
			 S(ran ? "running" : pt_wait_name((enum pt_wait)t->key.state)),
			 D((double)t->ns * 1e-9), ran ? I((int64_t)t->looks) : pt_cell_null(),
			 S(l ? l->name : NULL), S(l ? l->file : NULL),
			 l && l->line ? I(l->line) : pt_cell_null(), S(names));

	free(names);
	return err;
}
static int stacks_rows(const struct pt_export *x, struct pt_rows *to)
{
	const struct pt_r_capture *c = &x->r->capture;
	const struct pt_stack_time *t;
	size_t i;
	int err = 0;

	for (i = 0; i < x->m->all_threads.n && !err; i++) {
		const struct pt_thread *th = x->m->all_threads.v[i];
		struct pt_stack_times all = { 0 };

		err = pt_stacks_add(&all, x->m, th, (uint64_t)c->begin_ns, (uint64_t)c->end_ns);
		for (t = all.all; t && !err; t = t->hh.next)
			err = stack_row(x->m, th, t, to);
		pt_stacks_free(&all);
	}
	return err;
}

#define TABLE(id) { .name = #id, .cols = id##_cols, .rows = id##_rows,         \
		    .n_cols = sizeof(id##_cols) / sizeof(*id##_cols) }
const struct pt_table pt_model_tables[] = {
	TABLE(waits),	TABLE(processes), TABLE(threads),
	TABLE(off_cpu), TABLE(gpu_calls), TABLE(device_work),
	TABLE(samples), TABLE(stacks),
};
const size_t pt_model_table_count =
	sizeof(pt_model_tables) / sizeof(*pt_model_tables);
