/* SPDX-License-Identifier: BSD-2-Clause */
/* What the waiting in page faults was for: which file, and of which kind. */
#include <math.h>

#include "analysis/health.h"

PT_ORDER(by_file, struct pt_charge, pt_cmp(x->dev, y->dev) ?: pt_cmp(x->inode, y->inode))

/* One file's share of the waiting. */
static void take_file(const struct pt_an *an, const struct pt_charge *c,
		      struct pt_fault_facts *out)
{
	const struct pt_file *f = pt_model_file(an->m, c->dev, c->inode);

	if (f && f->text) {
		out->text_ns += c->ns;
	} else if (c->ns > out->file_ns) {
		out->file_ns = c->ns;
		out->file = f;
		out->on.dev = c->dev;
		out->on.inode = c->inode;
	}
}

/* Charged waiting of the trainer by kind of file, and the data file with most
 * of it. */
static int charged(const struct pt_an *an, const struct pt_trainer *t,
		   struct pt_fault_facts *out)
{
	pt_charges files = { 0 };
	size_t i, n = 0;
	int err = 0;

	pt_each_ok(const struct pt_charge, c, &t->charges, err) {
		if (c->cause != PT_CAUSE_PAGE_FAULT)
			continue;
		out->wait_ns += c->ns;
		if (c->inode)
			err = pt_vec_push(&files, *c);
		else
			out->nameless_ns += c->ns;
	}
	pt_vec_sort(&files, by_file);
	for (i = 1; i < files.n; i++) { /* join what is of one file */
		if (by_file(&files.v[n], &files.v[i]))
			files.v[++n] = files.v[i];
		else
			files.v[n].ns += files.v[i].ns;
	}
	for (i = 0; files.n && i <= n; i++)
		take_file(an, &files.v[i], out);
	pt_vec_free(&files);
	return err;
}

/* Faults on that file, by whomever: what they fetched and how long each
 * waited. */
static int faults_on(const struct pt_an *an, struct pt_fault_file *out)
{
	pt_doubles ms = { 0 };
	struct pt_dist d;
	size_t i;
	int err = 0;

	for (i = 0; i < an->m->all_threads.n && !err; i++) {
		const struct pt_thread *th = an->m->all_threads.v[i];

		pt_each(const struct pt_fault_sum, s, &th->faults) {
			if (s->inode != out->inode || s->dev != out->dev ||
			    s->end < an->t0 || s->end > an->t1)
				continue;
			out->faults += s->major;
			out->bytes += s->bytes;
		}
		pt_each_iv(iv, th, an->t0, an->t1) {
			if (err)
				break;
			if (iv->wait == PT_WAIT_FAULT &&
			    iv->obj_kind == PT_OBJ_FILE &&
			    iv->object == out->inode && iv->dev == out->dev)
				err = pt_vec_push(&ms, pt_ms(iv->ready - iv->begin));
		}
	}
	if (!err && ms.n) {
		pt_dist_of(ms.v, ms.n, &d);
		out->p99_ms = d.p99;
	}
	pt_vec_free(&ms);
	return err;
}

int pt_measure_faults(const struct pt_an *an, const struct pt_trainer *t,
		      struct pt_fault_file *out)
{
	struct pt_fault_facts x = { .on.p99_ms = NAN };
	int err = charged(an, t, &x);

	*out = x.on;
	return err || !x.file_ns ? err : faults_on(an, out);
}

int pt_fault_facts_of(const struct pt_an *an, const struct pt_trainer *t,
		      const struct pt_fault_file *on, struct pt_fault_facts *out)
{
	int err;

	*out = (struct pt_fault_facts){ .on.p99_ms = NAN };
	err = charged(an, t, out);
	if (out->on.inode == on->inode && out->on.dev == on->dev)
		out->on = *on;
	return err;
}
