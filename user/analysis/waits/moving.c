/* SPDX-License-Identifier: BSD-2-Clause */
/* What a maker computes for, beside its batches: it moves them, or reads. */
#include "analysis/waits/look.h"

#include "analysis/verdicts/thresholds.h"

#include <math.h>
#include <string.h>

double pt_kernel_part(const struct pt_proc *p)
{
	size_t n = p->samples.n;
	const struct pt_rec_sample *a, *b;
	double user, kernel;

	if (n < 2)
		return 0;
	a = &p->samples.v[0];
	b = &p->samples.v[n - 1];
	user = (double)(b->utime_ns - a->utime_ns);
	kernel = (double)(b->stime_ns - a->stime_ns);
	return kernel > 0 && user >= 0 ? kernel / (kernel + user) : 0;
}

double pt_fetching_part(const struct pt_an *an, const struct pt_worker *w)
{
	double ran = (double)pt_cpu_ns(w->main, an->t0, an->t1);
	double bytes = (double)pt_fetched_between(w->main, an->t0, an->t1);

	return ran > 0 ? fmin(pt_kernel_part(w->proc), PT_KERNEL_BYTE_NS * bytes / ran) : 0;
}

double pt_reading_part(const struct pt_trainer *t)
{
	return t->kernel_ns &&
	       t->kernel_ns <= t->storage_waits * PT_KERNEL_EACH_NS + t->fetching_ns ?
		       (double)t->kernel_ns / (double)t->cause_ns[PT_CAUSE_CPU] : 0;
}

/* A program that writes all that it reads, but for this part, only copies (cat, dd, a relay):
 * its time in the kernel. It gives and takes at least so many bytes. */
#define COPIES_PART 0.02
#define COPIES_MIN (1u << 20)

static double copying_part(const struct pt_an *an, const struct pt_thread *th)
{
	double in = (double)pt_read_between(th, an->t0, an->t1);
	double out = (double)pt_written_between(th, an->t0, an->t1);

	return out < COPIES_MIN || fabs(in - out) > COPIES_PART * out ? 0 : pt_kernel_part(th->proc);
}

/* It is in the C library's call that sends bytes over a socket: in the kernel, which copies them. */
static bool sends_bytes(const struct pt_model *m, const struct pt_code_look *l)
{
	static const char *const names[] = { "send", "sendto", "sendmsg" };
	const struct pt_code_line *leaf = pt_stack_line(m, l->leaf);
	const struct pt_code_line *f = pt_model_line(m, pt_model_function(m, l));
	const char *name = f ? f->name : NULL;
	size_t i;

	if (!name || !leaf || !leaf->native || strncmp(leaf->name, "libc.", 5) != 0)
		return false;
	name += strspn(name, "_");
	name += strncmp(name, "libc_", 5) != 0 ? 0 : 5;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return true;
	return false;
}

struct pt_mover pt_mover_of(const struct pt_an *an, const struct pt_trainer *t,
			    const struct pt_worker *w)
{
	const struct pt_thread *th = w->main;
	size_t n = 0, all = 0, made = w->done.n - w->earlier;
	struct pt_mover m = { .part = 0 };

	pt_each(const struct pt_code_look, l, &th->looks) {
		if (!l->running || l->begin < an->t0 || l->begin >= an->t1)
			continue;
		all++;
		n += pt_moves_batch(an->m, l->stack) || sends_bytes(an->m, l);
	}
	if (all < PT_LOOKS_MIN) {
		m.part = copying_part(an, th);
		return m;
	}
	m.part = (double)n / (double)all;
	/* not where few of them are noticed: what it makes for one wakes nobody as a rule */
	if (2 * made * t->workers.n >= t->steps.n && made)
		m.each = (uint64_t)(m.part * (double)pt_cpu_ns(th, an->t0, an->t1) / (double)made);
	return m;
}

/* While it moves it may want a core; in a long wait it moves more batches than one. */
uint64_t pt_mover_ns(struct pt_mover *m, const struct pt_leg *l)
{
	uint64_t ns = l->end - l->begin, due;

	if (l->kind == PT_LEG_QUEUE)
		return m->moved < m->each ? ns : (uint64_t)(m->part * (double)ns);
	m->ran += ns;
	due = pt_max64((uint64_t)(m->part * (double)m->ran), pt_min64(m->ran, m->each)) - m->moved;
	m->moved += due;
	return due;
}
