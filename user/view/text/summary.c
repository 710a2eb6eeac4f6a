/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report as a few lines of Markdown, for chat and pull requests.
 *
 * What comes from outside may hold anything that Markdown or a forge acts on: links, HTML,
 * @names, #numbers. In a code span none of it is acted on, so whatever is not plainly a
 * word or a number goes into one; a backslash would not keep an @name quiet.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "report/verdicts.h"
#include "view/text/blocks.h"

#define SHOWN 3 /* causes, devices, other verdicts, limits */
#define NAME_COLS 120
#define COMMAND_COLS 60

/* A code span ends at as many backticks as it began with. */
static void code_n(struct pt_tx *t, const char *s, size_t n)
{
	bool pad = s[0] == '`' || s[n - 1] == '`';
	size_t run = 0, most = 0, i;

	for (i = 0; i < n; i++) {
		run = s[i] == '`' ? run + 1 : 0;
		most = run > most ? run : most;
	}
	for (i = 0; i <= most; i++)
		putc('`', t->out);
	pt_tx_printf(t, "%s%.*s%s", pad ? " " : "", (int)n, s, pad ? " " : "");
	for (i = 0; i <= most; i++)
		putc('`', t->out);
}

/* One name; `s` is made safe for a terminal already. */
static void code(struct pt_tx *t, const char *s)
{
	size_t n = strlen(s);

	if (n)
		code_n(t, s, n);
}

static bool is_plain(const char *s, size_t n)
{
	bool number = n && isdigit((unsigned char)s[0]);
	size_t i;

	for (i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c >= 0x80 || (number ? isdigit(c) || strchr(".,x%", c) :
					   isalpha(c) || strchr("-'", c)))
			continue;
		return n == 1 && c == '%';
	}
	return true;
}

/* A sentence with names in it; safe for a terminal already. */
static void words(struct pt_tx *t, const char *s)
{
	while (*s) {
		size_t n = strcspn(s, " " NB), begin = strspn(s, "("), end;

		if (begin > n)
			begin = n;
		for (end = n; end > begin && strchr(".,;:)?!", s[end - 1]); end--)
			;
		pt_tx_printf(t, "%.*s", (int)begin, s);
		if (is_plain(s + begin, end - begin))
			pt_tx_printf(t, "%.*s", (int)(end - begin), s + begin);
		else
			code_n(t, s + begin, end - begin);
		pt_tx_printf(t, "%.*s", (int)(n - end), s + end);
		s += n;
		if (*s) {
			putc(' ', t->out);
			s++;
		}
	}
}

static void item(struct pt_tx *t, const char *name)
{
	pt_tx_printf(t, "- **%s:** ", name);
}

static void dot(struct pt_tx *t, size_t n)
{
	if (n)
		pt_tx_put(t, t->o.unicode ? " \xc2\xb7 " : ", ");
}

static void more(struct pt_tx *t, size_t n, size_t shown)
{
	if (n > shown)
		pt_tx_printf(t, "- and %zu more\n", n - shown);
}

static void sentence(struct pt_tx *t, const struct pt_r_verdict *v)
{
	const char *sure = pt_confidence_name(v->certainty);

	pt_tx_printf(t, "**%s:** ", pt_tx_severity(v->severity));
	words(t, pt_tx_esc(t, v->title, 0));
	pt_tx_put(t, " (");
	code(t, pt_tx_esc(t, v->id, 40));
	if (sure)
		pt_tx_printf(t, ", %s confidence", sure);
	pt_tx_put(t, ")\n");
}

static void subject(struct pt_tx *t, const struct pt_report *r, const struct pt_r_verdict *v)
{
	const char *file = v->subject_file ? v->subject_file : v->subject_peer;
	size_t n = 0;

	if (v->subject_pid == PT_NULL && v->subject_rank == PT_NULL && !file)
		return;
	item(t, "Subject");
	if (v->subject_pid != PT_NULL) {
		words(t, pt_tx_who(t, r, v->subject_pid, PT_NULL));
		n++;
	}
	if (v->subject_rank != PT_NULL) {
		dot(t, n++);
		pt_tx_printf(t, "rank %s", pt_tx_id(t, v->subject_rank));
	}
	if (file) {
		dot(t, n);
		code(t, v->subject_file && v->subject_line != PT_NULL ?
			pt_tx_fmt(t, "%s:%s", pt_tx_path(t, file, NAME_COLS),
				  pt_tx_id(t, v->subject_line)) :
			pt_tx_path(t, file, NAME_COLS));
	}
	pt_tx_put(t, "\n");
}

static void verdicts(struct pt_tx *t, const struct pt_report *r)
{
	const struct pt_r_verdict *v = r->verdicts;
	struct pt_line gain = { .n = 0 };

	if (!r->n_verdicts) {
		pt_tx_put(t, "**UNKNOWN:** nothing was concluded from what was seen.\n\n");
		return;
	}
	sentence(t, v);
	pt_tx_put(t, "\n");
	subject(t, r, v);
	if (v->advice) {
		item(t, "Fix");
		words(t, pt_tx_esc(t, v->advice, 0));
		pt_tx_put(t, "\n");
	}
	pt_tx_gain(t, &gain, v);
	if (gain.n) {
		item(t, "Expected gain");
		pt_tx_printf(t, "%s\n", gain.s);
	}
}

/* What is wrong beside it; a consequence goes with its cause. */
static void others(struct pt_tx *t, const struct pt_report *r)
{
	size_t i, n = 0;

	for (i = 1; i < r->n_verdicts; i++) {
		if (!pt_tx_is_root(r, i) || ++n > SHOWN)
			continue;
		pt_tx_put(t, "- Also ");
		sentence(t, &r->verdicts[i]);
	}
	more(t, n, SHOWN);
}

static void gpus(struct pt_tx *t, const struct pt_report *r)
{
	size_t i;

	for (i = 0; i < r->n_gpu && i < SHOWN; i++) {
		struct pt_line l = { .n = 0 };

		pt_tx_busy(t, &l, &r->gpu[i]);
		item(t, r->gpu[i].index == PT_NULL ? "GPU" :
			pt_tx_fmt(t, "GPU %s", pt_tx_id(t, r->gpu[i].index)));
		pt_tx_printf(t, "%s\n", l.s);
	}
	more(t, r->n_gpu, SHOWN);
}

static void data_wait(struct pt_tx *t, const struct pt_report *r)
{
	struct pt_tx_charge c[PT_TX_CHARGES];
	size_t n, i;

	if (!r->breakdown.known)
		return;
	item(t, "Data wait");
	pt_tx_printf(t, "%s of the time", pt_tx_pct(t, r->breakdown.data_wait.share));
	n = pt_tx_charges(r, c);
	for (i = 0; i < n && i < SHOWN; i++) {
		pt_tx_printf(t, "%s%s %s (", i ? ", " : ": ", pt_tx_pct(t, c[i].c.share),
			     pt_tx_storage(&c[i].c));
		words(t, pt_tx_who(t, r, c[i].c.subject_pid, c[i].c.subject_tid));
		if (c[i].c.what) {
			pt_tx_put(t, ", ");
			if (strchr(c[i].c.what, '/'))
				code(t, pt_tx_path(t, c[i].c.what, NAME_COLS));
			else
				words(t, pt_tx_esc(t, c[i].c.what, NAME_COLS));
		}
		if (c[i].files > 1)
			pt_tx_printf(t, " and %zu more", c[i].files - 1);
		pt_tx_put(t, ")");
	}
	pt_tx_put(t, "\n");
}

/* Hung before slow; else the one that is slowest by its peers. */
static const struct pt_r_worker *worst_worker(const struct pt_report *r)
{
	const struct pt_r_worker *worst = NULL;
	size_t i;

	for (i = 0; i < r->n_workers; i++) {
		const struct pt_r_worker *w = &r->workers[i];

		if (w->state == PT_WORKER_HUNG)
			return w;
		if (isfinite(w->slowdown) && (!worst || w->slowdown > worst->slowdown))
			worst = w;
	}
	return worst;
}

static void worker(struct pt_tx *t, const struct pt_report *r)
{
	const struct pt_r_worker *w = worst_worker(r);

	if (!w)
		return;
	item(t, "Worst worker");
	words(t, pt_tx_who(t, r, w->pid, w->tid));
	pt_tx_printf(t, ", %s", pt_worker_state_name(w->state));
	if (w->batch_ms.n)
		pt_tx_printf(t, ", %s ms a batch (median)", pt_tx_ms(t, w->batch_ms.p50));
	if (isfinite(w->slowdown))
		pt_tx_printf(t, ", %.1fx as long as its peers", w->slowdown);
	pt_tx_put(t, "\n");
}

static void line(struct pt_tx *t, const struct pt_report *r)
{
	double seconds;
	const struct pt_r_line *l = pt_tx_worst_line(t, r, &seconds);

	if (!l)
		return;
	item(t, "Line");
	code(t, pt_tx_path(t, l->function, NAME_COLS));
	pt_tx_put(t, " ");
	code(t, l->line == PT_NULL ? pt_tx_path(t, l->file, NAME_COLS) :
	     pt_tx_fmt(t, "%s:%s", pt_tx_path(t, l->file, NAME_COLS), pt_tx_id(t, l->line)));
	pt_tx_printf(t, ", %s of %s (", pt_tx_pct(t, l->seconds / seconds), pt_tx_sec(t, seconds));
	pt_tx_lines_of(t, l);
	pt_tx_put(t, ")\n");
}

static void limits(struct pt_tx *t, const struct pt_report *r)
{
	const struct pt_r_capture *c = &r->capture;
	size_t i, n = 0;

	for (i = 0; i < c->n_limits; i++) {
		if (!pt_limit_matters(r, c->limits[i].what) || ++n > SHOWN)
			continue;
		item(t, "Limit");
		code(t, pt_tx_esc(t, c->limits[i].what, 40));
		pt_tx_put(t, ": ");
		words(t, pt_tx_esc(t, c->limits[i].reason, 0));
		pt_tx_put(t, "\n");
	}
	more(t, n, SHOWN);
}

static void trace(struct pt_tx *t, const struct pt_report *r)
{
	const char *cmd = r->target.cmdline ? r->target.cmdline : r->target.comm;
	const struct pt_r_capture *c = &r->capture;

	item(t, "Trace");
	pt_tx_printf(t, "pid %s", pt_tx_id(t, r->target.pid));
	if (cmd) {
		pt_tx_put(t, " ");
		code(t, pt_tx_esc(t, cmd, COMMAND_COLS));
	}
	if (isfinite(c->duration)) {
		dot(t, 1);
		pt_tx_put(t, pt_tx_sec(t, c->duration));
	}
	if (r->steps.count != PT_NULL) {
		dot(t, 1);
		pt_tx_printf(t, "%s steps", pt_tx_int(t, r->steps.count));
		if (isfinite(r->steps.per_second))
			pt_tx_printf(t, ", %s/s", pt_tx_num(t, r->steps.per_second));
	}
	if (c->lost_total > 0) {
		dot(t, 1);
		pt_tx_printf(t, "%s records lost", pt_tx_int(t, c->lost_total));
	}
	dot(t, 1);
	pt_tx_put(t, "pipetrace ");
	words(t, pt_tx_esc(t, r->host.version, 40));
	pt_tx_put(t, "\n");
}

int pt_report_summary(const struct pt_report *r, FILE *out, bool unicode)
{
	struct pt_text_opts o = { .unicode = unicode };
	struct pt_tx *t = pt_tx_begin(out, &o);

	if (!t)
		return -ENOMEM;
	verdicts(t, r);
	gpus(t, r);
	data_wait(t, r);
	worker(t, r);
	line(t, r);
	others(t, r);
	limits(t, r);
	trace(t, r);
	return pt_tx_end(t);
}
