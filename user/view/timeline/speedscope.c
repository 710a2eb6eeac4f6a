// SPDX-License-Identifier: BSD-2-Clause
/*
 * Stacks of Python as they were looked at, in speedscope's format
 * (https://www.speedscope.app/file-format-schema.json): a sampled profile for each
 * thread, in its order of time, the outermost frame first. A sample weighs until the
 * thread's next one. Behind a thread's frames stands what it slept for.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "report/json_build.h"
#include "view/timeline/trace.h"

struct speedscope {
	const struct pt_model *m;
	uint64_t begin, end; /* asked for, ns */
	json_t *frames;
	uint32_t frame_of_wait[PT_WAIT_NR]; /* 1 + its index; 0: not yet */
	uint32_t *frame_of_line;	    /* ... by id - 1 */
};

/* 1 + the index of the frame; 0: no memory. */
static uint32_t add_frame(struct speedscope *k, const char *name, const char *file, int line)
{
	json_t *f = json_object();
	int err = json_object_set_new(f, "name", pt_j_string(name));

	if (file)
		err |= json_object_set_new(f, "file", pt_j_string(file));
	if (line)
		err |= json_object_set_new(f, "line", json_integer(line));
	if (json_array_append_new(k->frames, f) || err)
		return 0;
	return (uint32_t)json_array_size(k->frames);
}

static uint32_t frame_of(struct speedscope *k, uint32_t line)
{
	const struct pt_code_line *l = pt_model_line(k->m, line);
	uint32_t *at = l ? &k->frame_of_line[line - 1] : NULL;

	if (at && !*at)
		*at = add_frame(k, l->name, l->file, l->line);
	return at ? *at : 0;
}

/* What the thread slept for while it was looked at; PT_WAIT_NR: it ran. */
static unsigned wait_at(const struct pt_thread *th, const struct pt_code_look *l)
{
	size_t i = pt_iv_after(th, l->begin);
	const struct pt_iv *iv = i < th->iv.n ? &th->iv.v[i] : NULL;

	return iv && iv->begin <= l->begin && iv->ready >= l->end ? iv->wait : PT_WAIT_NR;
}

static json_t *sample_of(struct speedscope *k, const struct pt_thread *th,
			 const struct pt_code_look *l)
{
	uint32_t stack[PT_STACK_DEPTH], f;
	size_t n = pt_model_unfold(k->m, l->leaf, stack);
	unsigned wait = wait_at(th, l);
	json_t *out = json_array();

	while (out && n-- > 0) {
		f = frame_of(k, pt_model_stack(k->m, stack[n])->line);
		if (f && json_array_append_new(out, json_integer(f - 1)))
			goto fail;
	}
	f = out ? frame_of(k, pt_model_function(k->m, l)) : 0;
	if (f && json_array_append_new(out, json_integer(f - 1)))
		goto fail;
	if (wait == PT_WAIT_NR || wait == PT_WAIT_RUNQ)
		return out;
	if (!k->frame_of_wait[wait])
		k->frame_of_wait[wait] = add_frame(k, pt_wait_name(wait), NULL, 0);
	if (k->frame_of_wait[wait] &&
	    !json_array_append_new(out, json_integer(k->frame_of_wait[wait] - 1)))
		return out;
fail:
	json_decref(out);
	return NULL;
}

/* A look stands for the time until the next one. But a thread on a core is sampled far more
 * often than it is looked at asleep: there a sample ends where the thread goes to sleep, and
 * a look at a sleep stands for all of it. *end: where the last one's time ended. */
static void time_of(const struct pt_thread *th, size_t i, bool sampled, uint64_t *begin,
		    uint64_t *end)
{
	const struct pt_code_look *l = &th->looks.v[i];
	uint64_t from = l->begin, until = i + 1 < th->looks.n ? l[1].begin : l->end;
	size_t at = pt_iv_after(th, l->begin);
	const struct pt_iv *iv = at < th->iv.n ? &th->iv.v[at] : NULL;

	if (sampled && iv && l->running && iv->begin > from && iv->wait != PT_WAIT_RUNQ &&
	    iv->begin < until) {
		until = iv->begin;
	} else if (sampled && iv && !l->running && iv->begin <= from) {
		from = iv->begin > *end ? iv->begin : *end;
		until = iv->ready < until ? iv->ready : until;
	}
	*begin = from;
	*end = until > from ? until : from;
}

/* Those whose time lies in the part that is asked for; it is cut at its ends. */
static int put_samples(struct speedscope *k, const struct pt_thread *th, json_t *samples,
		       json_t *weights)
{
	bool sampled = pt_is_sampled(th);
	uint64_t begin, end = th->looks.v[0].begin, until;
	size_t i;

	for (i = 0; i < th->looks.n; i++) {
		time_of(th, i, sampled, &begin, &end);
		until = end < k->end ? end : k->end;
		begin = begin > k->begin ? begin : k->begin;
		if (until < begin)
			continue;
		if (json_array_append_new(samples, sample_of(k, th, &th->looks.v[i])) ||
		    json_array_append_new(weights, json_integer((json_int_t)(until - begin))))
			return -ENOMEM;
	}
	return 0;
}

static json_int_t length_of(const struct speedscope *k, const struct pt_thread *th)
{
	uint64_t begin = th->looks.v[0].begin, end = th->looks.v[th->looks.n - 1].end;

	begin = begin > k->begin ? begin : k->begin;
	end = end < k->end ? end : k->end;
	return end > begin ? (json_int_t)(end - begin) : 0;
}

/* 0; or -ENOMEM. */
static int put_profile(struct speedscope *k, const struct pt_thread *th, json_t *profiles)
{
	json_t *p = json_object(), *samples = json_array(), *weights = json_array();
	char name[2 * PT_COMM_LEN + 64];
	int err;

	snprintf(name, sizeof(name), "%.*s %" PRIu32 ", thread %" PRIu32, PT_COMM_LEN,
		 th->proc->comm, pt_real_id(th->tgid), pt_real_id(th->tid));
	err = put_samples(k, th, samples, weights);
	err |= json_object_set_new(p, "type", json_string("sampled"));
	err |= json_object_set_new(p, "name", pt_j_string(name));
	err |= json_object_set_new(p, "unit", json_string("nanoseconds"));
	err |= json_object_set_new(p, "startValue", json_integer(0));
	err |= json_object_set_new(p, "endValue", json_integer(length_of(k, th)));
	err |= json_object_set_new(p, "samples", samples);
	err |= json_object_set_new(p, "weights", weights);
	if (!err && json_array_size(samples)) /* it is read, but not in this part */
		return json_array_append_new(profiles, p) ? -ENOMEM : 0;
	json_decref(p);
	return err ? -ENOMEM : 0;
}

int pt_export_speedscope(const struct pt_export *x, FILE *out)
{
	struct speedscope k = { .m = x->m, .end = UINT64_MAX, .frames = json_array() };
	json_t *all = json_object(), *shared = json_object(), *profiles = json_array();
	size_t i;
	int err;

	if (x->part) {
		k.begin = (uint64_t)x->r->capture.begin_ns;
		k.end = (uint64_t)x->r->capture.end_ns;
	}
	k.frame_of_line = calloc(x->m->code_lines.n + 1, sizeof(*k.frame_of_line));
	err = !k.frame_of_line || !k.frames || !profiles;
	for (i = 0; i < x->m->all_threads.n && !err; i++)
		if (x->m->all_threads.v[i]->looks.n)
			err = put_profile(&k, x->m->all_threads.v[i], profiles);
	err |= json_object_set_new(all, "$schema", json_string(
			"https://www.speedscope.app/file-format-schema.json"));
	err |= json_object_set_new(all, "exporter", json_string("pipetrace"));
	err |= json_object_set_new(shared, "frames", k.frames);
	err |= json_object_set_new(all, "shared", shared);
	err |= json_object_set_new(all, "profiles", profiles);
	errno = 0;
	err = err ? -ENOMEM : json_dumpf(all, out, JSON_COMPACT) || ferror(out) ?
		errno ? -errno : -EIO : 0;
	json_decref(all);
	free(k.frame_of_line);
	return err;
}
