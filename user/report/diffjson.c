/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "report/diff.h"
#include "report/json.h"
#include "report/json_build.h"

static json_t *root(struct pt_jb *b, const struct pt_report *r)
{
	const struct pt_r_verdict *v = r->verdicts;
	json_t *o;

	if (!r->n_verdicts)
		return json_null();
	o = json_object();
	pt_j_text(b, o, "id", v->id);
	pt_j_put(b, o, "severity", json_string(pt_severity_name(v->severity)));
	pt_j_put(b, o, "certainty", pt_j_name(pt_confidence_name(v->certainty)));
	pt_j_text(b, o, "title", v->title);
	return o;
}

/* Values of two inputs subtracted, or of one: base NULL. */
static json_t *parts(struct pt_jb *b, const struct pt_d_input *base,
		     const struct pt_d_input *in)
{
	json_t *o = json_object();

	for (int i = 0; i < PT_D_PART_NR; i++)
		pt_j_std(b, o, pt_d_part_name((enum pt_d_part)i),
			 in->part_ms[i] - (base ? base->part_ms[i] : 0));
	return o;
}

static json_t *causes(struct pt_jb *b, const struct pt_d_input *base,
		      const struct pt_d_input *in)
{
	json_t *o = json_object();

	for (int i = 0; i < PT_CAUSE_NR; i++)
		pt_j_std(b, o, pt_cause_name((enum pt_cause)i),
			 in->cause_ms[i] - (base ? base->cause_ms[i] : 0));
	return o;
}

static json_t *input(struct pt_jb *b, const struct pt_d_input *in)
{
	const struct pt_r_steps *s = &in->r->steps;
	json_t *o = json_object(), *idle = json_object();

	pt_j_text(b, o, "path", in->path);
	pt_j_text(b, o, "name", in->name);
	pt_j_put(b, o, "kind",
		 json_string(in->recording ? "recording" : "report"));
	pt_j_put(b, o, "labels", pt_j_labels(b, in->r));
	pt_j_put(b, o, "steps", pt_j_int(s->count));
	pt_j_put(b, o, "steps_tested", json_integer((json_int_t)in->n_periods));
	pt_j_std(b, o, "step_ms", in->step_ms);
	pt_j_std(b, o, "steps_per_second", in->per_second);
	pt_j_put(b, o, "batch_size", pt_j_int(in->batch_size));
	pt_j_std(b, o, "batches_per_step", in->batches_per_step);
	pt_j_std(b, o, "samples_per_second", in->samples_per_second);
	pt_j_std(b, o, "data_wait_share", in->data_wait_share);
	pt_j_std(b, idle, "share", in->idle_share);
	pt_j_put(b, idle, "hard", pt_j_pair(in->idle_hard, PT_J_STD));
	pt_j_put(b, o, "gpu_idle", idle);
	pt_j_put(b, o, "parts_ms", parts(b, NULL, in));
	pt_j_put(b, o, "causes_ms", causes(b, NULL, in));
	pt_j_put(b, o, "root_verdict", root(b, in->r));
	return o;
}

static json_t *settings(struct pt_jb *b, const struct pt_d_pair *p)
{
	json_t *a = json_array();

	for (size_t i = 0; i < p->n_settings; i++) {
		json_t *o = json_object();

		pt_j_text(b, o, "name", p->settings[i].name);
		pt_j_text(b, o, "base", p->settings[i].base);
		pt_j_text(b, o, "other", p->settings[i].other);
		pt_j_add(b, a, o);
	}
	return a;
}

static json_t *comparison(struct pt_jb *b, const struct pt_diff *d,
			  const struct pt_d_pair *p)
{
	const struct pt_d_input *x = &d->inputs[p->base];
	const struct pt_d_input *y = &d->inputs[p->other];
	json_t *o = json_object(), *blocks = json_array();

	pt_j_put(b, o, "base", json_integer((json_int_t)p->base));
	pt_j_put(b, o, "other", json_integer((json_int_t)p->other));
	pt_j_put(b, o, "speedup", pt_j_range(&p->speedup));
	pt_j_put(b, o, "significant",
		 p->untested ? json_null() : json_boolean(p->significant));
	pt_j_text(b, o, "untested", p->untested);
	pt_j_put(b, o, "result", json_string(pt_d_result_name(p->result)));
	pt_j_add(b, blocks, pt_j_num(p->block[0], PT_J_WHOLE));
	pt_j_add(b, blocks, pt_j_num(p->block[1], PT_J_WHOLE));
	pt_j_put(b, o, "block_lengths", blocks);
	pt_j_put(b, o, "degrees_of_freedom", pt_j_num(p->freedom, PT_J_FINE));
	pt_j_put(b, o, "gpu_idle", json_string(pt_d_idle_name(p->idle)));
	pt_j_std(b, o, "gpu_idle_change", y->idle_share - x->idle_share);
	pt_j_std(b, o, "data_wait_share_change", y->data_wait_share - x->data_wait_share);
	pt_j_std(b, o, "step_ms_change", y->step_ms - x->step_ms);
	pt_j_put(b, o, "parts_ms_change", parts(b, x, y));
	pt_j_put(b, o, "causes_ms_change", causes(b, x, y));
	pt_j_put(b, o, "settings", settings(b, p));
	return o;
}

static json_t *ranking(struct pt_jb *b, const struct pt_diff *d)
{
	json_t *a = json_array();

	for (size_t i = 0; i < d->n_inputs; i++) {
		const struct pt_d_rank *k = &d->ranking[i];
		json_t *o = json_object();

		pt_j_put(b, o, "input", json_integer((json_int_t)k->input));
		pt_j_std(b, o, "value", k->value);
		pt_j_put(b, o, "against_best",
			 json_string(pt_d_result_name(k->against_best)));
		pt_j_add(b, a, o);
	}
	return a;
}

static json_t *method(struct pt_jb *b, const struct pt_diff *d)
{
	json_t *o = json_object();

	pt_j_put(b, o, "name", json_string("circular block bootstrap"));
	pt_j_std(b, o, "level", d->level);
	pt_j_put(b, o, "replicates", json_integer((json_int_t)d->replicates));
	pt_j_put(b, o, "seed", pt_j_u64(d->seed));
	pt_j_std(b, o, "no_difference_below", d->small);
	return o;
}

static json_t *document(struct pt_jb *b, const struct pt_diff *d)
{
	json_t *o = json_object(), *inputs = json_array();
	json_t *pairs = json_array(), *notes = json_array();

	for (size_t i = 0; i < d->n_inputs; i++)
		pt_j_add(b, inputs, input(b, &d->inputs[i]));
	for (size_t i = 0; i < d->n_pairs; i++)
		pt_j_add(b, pairs, comparison(b, d, &d->pairs[i]));
	for (size_t i = 0; i < d->n_notes; i++)
		pt_j_add(b, notes, pt_j_string(d->notes[i]));
	pt_j_put(b, o, "schema", json_string(PT_DIFF_SCHEMA));
	pt_j_put(b, o, "tool", json_string("pipetrace"));
	pt_j_put(b, o, "by", json_string(pt_d_by_name(d->by)));
	pt_j_put(b, o, "method", method(b, d));
	pt_j_put(b, o, "inputs", inputs);
	pt_j_put(b, o, "comparisons", pairs);
	pt_j_put(b, o, "ranking", ranking(b, d));
	pt_j_put(b, o, "notes", notes);
	return o;
}

int pt_diff_json(const struct pt_diff *d, FILE *out, unsigned indent)
{
	struct pt_jb b = { 0 };
	json_t *o = document(&b, d);

	return pt_j_write(&b, o, out, indent);
}
