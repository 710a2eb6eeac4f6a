/* SPDX-License-Identifier: BSD-2-Clause */
/* A verdict says in which line what it speaks of happens, where looks tell it. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "analysis/lines/lines.h"
#include "base/wilson.h"

/* Of what the verdict speaks of, at least: so much in that line, and, by the interval, not
 * much less. */
#define SHARE_MIN 0.2
#define LOW_MIN 0.1
#define LOOKS_MIN 10

static bool is_asked(const struct pt_line_ask *ask, const struct pt_r_line *l, int64_t pid)
{
	if (!(ask->causes & 1u << l->cause))
		return false;
	switch (ask->of) {
	case PT_LINES_WORKERS:
		return !strcmp(l->who, "worker") && l->pid == PT_NULL;
	case PT_LINES_SUBJECT:
		return !strcmp(l->who, "worker") && l->pid == pid;
	case PT_LINES_LOADING:
		return l->data_wait == 1;
	case PT_LINES_LOOP:
		return l->data_wait == 0;
	default:
		return false;
	}
}

/* Its length without ".<locals>.<genexpr>" and the like: the function that it stands in. */
static int length_outside(const char *function)
{
	static const char inner[] = ".<locals>.<";
	const char *end = strstr(function, inner);

	return (int)(end && end > function ? (size_t)(end - function) : strlen(function));
}

/* Of one function, with the generators and lambdas in it, which Python names apart. */
static bool same_function(const struct pt_r_line *a, const struct pt_r_line *b)
{
	int n = length_outside(a->function);

	return n == length_outside(b->function) && !strncmp(a->function, b->function, (size_t)n) &&
	       !strcmp(a->file, b->file);
}

/* The line of the loop over the loader: the training thread obtains its data there for
 * longer than it does anything else. What is not a wait there is the batch's way in, no work
 * that could be moved. */
static bool obtains(const struct pt_report *r, const struct pt_r_line *l)
{
	double wait = 0, other = 0;
	size_t i;

	for (i = 0; i < r->n_lines; i++) {
		const struct pt_r_line *x = &r->lines[i];

		if (x->line != l->line || x->pid != l->pid || x->tid != l->tid ||
		    strcmp(x->file, l->file) || strcmp(x->function, l->function))
			continue;
		*(x->data_wait == 1 ? &wait : &other) += x->seconds;
	}
	return wait >= other;
}

bool pt_top_line(const struct pt_an *an, const struct pt_line_ask *ask, int64_t pid,
		 struct pt_r_line *out)
{
	const struct pt_report *r = an->r;
	double all = 0, most = 0;
	struct pt_r_line sum;
	size_t i, k;

	*out = (struct pt_r_line){ .seconds = 0 };
	for (i = 0; i < r->n_lines; i++) {
		const struct pt_r_line *l = &r->lines[i];

		if (!is_asked(ask, l, pid))
			continue;
		all += l->seconds;
		if (ask->of == PT_LINES_LOOP && obtains(r, l))
			continue;
		sum = *l;
		sum.seconds = sum.low = 0;
		sum.looks = 0;
		for (k = 0; k < r->n_lines; k++) {
			const struct pt_r_line *x = &r->lines[k];

			if (!is_asked(ask, x, pid) || !same_function(l, x) ||
			    (ask->of == PT_LINES_LOOP && obtains(r, x)))
				continue;
			sum.seconds += x->seconds;
			sum.low += x->low;
			sum.looks = sum.looks == PT_NULL || x->looks == PT_NULL ?
					    PT_NULL : sum.looks + x->looks;
		}
		/* of the function that takes longest the line that does */
		if (sum.seconds < out->seconds ||
		    (sum.seconds == out->seconds && l->seconds <= most))
			continue;
		*out = sum;
		most = l->seconds;
	}
	out->share = all > 0 ? fmin(1, out->seconds / all) : 0;
	return out->share >= SHARE_MIN && out->low >= LOW_MIN * all &&
	       (out->looks == PT_NULL || out->looks >= LOOKS_MIN);
}

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

const char *pt_line_place(struct pt_an *an, const struct pt_r_line *l)
{
	int n = length_outside(l->function);

	return l->line == PT_NULL ?
		       pt_sentence(an, "%.*s (%s)", n, l->function, base_of(l->file)) :
		       pt_sentence(an, "%.*s (%s:%lld)", n, l->function, base_of(l->file),
				   (long long)l->line);
}

/* What is to be made cheaper is that line, not only the method that calls it. */
static void name_in_advice(struct pt_an *an, const struct pt_r_line *l, struct pt_r_verdict *v)
{
	static const char what[] = "ake __getitem__ cheaper";
	const char *at = v->advice ? strstr(v->advice, what) : NULL;

	if (at)
		v->advice = pt_sentence(an, "%.*sake %s cheaper%s", (int)(at - v->advice),
					v->advice, pt_line_place(an, l),
					at + sizeof(what) - 1);
}

void pt_name_line(struct pt_an *an, const struct pt_line_ask *ask, struct pt_r_verdict *v)
{
	struct pt_r_line l;
	size_t n = strlen(v->title);

	if (!ask->what || !pt_top_line(an, ask, v->subject_pid, &l))
		return;
	n -= n && v->title[n - 1] == '.';
	v->title = pt_sentence(an, "%.*s; %.0f %% of %s is in %s.", (int)n, v->title,
			       100 * l.share, ask->what, pt_line_place(an, &l));
	pt_evidence_add(v, "lines.share", l.share, "share", NAN, PT_ESTIMATED);
	if (ask->causes & 1u << PT_CAUSE_CPU)
		name_in_advice(an, &l, v);
	if (v->subject_file)
		return; /* of the data */
	v->subject_file = l.file;
	v->subject_line = l.line;
}

static int add_stack(struct pt_an *an, uint32_t stack, struct pt_r_verdict *v)
{
	uint32_t id[PT_STACK_DEPTH];
	size_t n = pt_model_unfold(an->m, stack, id), i;
	struct pt_r_frame *o = pt_arena_calloc(an->a, n + 1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	v->stack = o;
	for (i = 0; i < n; i++) {
		const struct pt_code_line *l =
			pt_model_line(an->m, pt_model_stack(an->m, id[i])->line);

		if (!l)
			continue;
		*o++ = (struct pt_r_frame){ .function = pt_arena_strdup(an->a, l->name),
					    .file = pt_arena_strdup(an->a, l->file),
					    .line = l->line ? l->line : PT_NULL,
					    .library = l->library };
	}
	v->n_stack = (size_t)(o - v->stack);
	return 0;
}

/* What is said, and the line; the verdict's subject with it. */
static void tell_line(struct pt_an *an, const char *inside, uint32_t line,
		      struct pt_r_verdict *v)
{
	const struct pt_code_line *l = pt_model_line(an->m, line);
	size_t n = strlen(v->title);
	struct pt_r_line at;

	if (!l)
		return;
	at = (struct pt_r_line){ .function = pt_arena_strdup(an->a, l->name),
				 .file = pt_arena_strdup(an->a, l->file),
				 .line = l->line ? l->line : PT_NULL };
	n -= n && v->title[n - 1] == '.';
	v->title = pt_sentence(an, "%.*s; %s %s.", (int)n, v->title, inside,
			       pt_line_place(an, &at));
	if (v->subject_file)
		return;
	v->subject_file = at.file;
	v->subject_line = at.line;
}

int pt_tell_stack(struct pt_an *an, const struct pt_thread *th, const struct pt_thread *trainer,
		  double seconds, const char *inside, struct pt_r_verdict *v)
{
	const struct pt_code_look *look = th && th->looks.n ? &th->looks.v[th->looks.n - 1] : NULL;
	uint32_t line;
	int err;

	if (!look || (double)look->end + seconds * NS_PER_S < (double)an->t1)
		return 0;
	err = add_stack(an, look->stack, v);
	err = err ?: pt_telling_line(an->m, trainer, look->stack, &line);
	if (!err)
		tell_line(an, inside, line, v);
	return err;
}

int pt_tell_late(struct pt_an *an, const struct pt_trainer *t, bool data,
		 struct pt_r_verdict *v)
{
	uint32_t line, stack;
	double share;
	int err = pt_late_line(an, t, data, &line, &stack, &share);

	if (err || !line || share < SHARE_MIN)
		return err;
	tell_line(an, pt_sentence(an, "%.0f %% of that rank's %s is in", 100 * share,
				  data ? "waiting for data" :
				  "time outside data waits and GPU calls"), line, v);
	return add_stack(an, stack, v);
}

int pt_tell_holder(struct pt_an *an, const struct pt_trainer *t, bool loading,
		   struct pt_r_verdict *v)
{
	double share = 0, low, high;
	uint64_t samples = 0;
	uint32_t line;
	int err = pt_holding_line(an, t, loading, &line, &share, &samples);

	if (err || !line)
		return err;
	pt_wilson(share, (double)samples, &low, &high);
	if (share < SHARE_MIN || low < LOW_MIN)
		return 0;
	tell_line(an, pt_sentence(an, "in %.0f %% of %llu samples taken meanwhile, the thread that "
				  "holds Python's lock is in", 100 * share,
				  (unsigned long long)samples), line, v);
	pt_evidence_add(v, "lock.holder_share", share, "share", NAN, PT_ESTIMATED);
	return 0;
}
