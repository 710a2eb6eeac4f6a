// SPDX-License-Identifier: BSD-2-Clause
/*
 * One page that needs nothing else. Its code and style are made at build time;
 * here come the data: the report as --json has it, and the timeline. They are
 * JSON in blocks of their own that the browser does not run, and the page's code
 * puts every text from them in as text.
 */
#include "view/export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "report/diff.h"
#include "report/json.h"
#include "view/html/html_int.h"

#define REAL_DIGITS 15

/*
 * JSON inside of a script element: what could end it, or begin a comment, can
 * only stand in texts there, and is written as \uXXXX. So are the line ends
 * that JSON has and scripts do not.
 */
static void put_escaped(FILE *out, const char *s, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '<' || c == '>' || c == '&')
			fprintf(out, "\\u%04x", c);
		else if (i + 2 < n && c == 0xe2 && !memcmp(s + i, "\xe2\x80", 2) &&
			 ((unsigned char)s[i + 2] & 0xfe) == 0xa8) {
			fprintf(out, "\\u%04x",
				0x2000 | ((unsigned char)s[i + 2] & 0x3f));
			i += 2;
		} else {
			putc_unlocked(c, out);
		}
	}
}

typedef int (*body_fn)(const void *what, FILE *f);

/* A block of data that some function writes. */
static int put_block(FILE *out, const char *id, body_fn body, const void *what)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	int ret = f ? body(what, f) : -ENOMEM;

	if (f && fclose(f) && !ret)
		ret = -ENOMEM;
	if (!ret) {
		fprintf(out, "<script type=\"application/json\" id=\"%s\">", id);
		put_escaped(out, text, n);
		fputs("</script>\n", out);
		ret = pt_err_written(out);
	}
	free(text);
	return ret;
}

static int put_page(FILE *out, int (*data)(const void *what, FILE *out),
		    const void *what)
{
	size_t len, mark = strlen(PT_HTML_MARK);
	const char *page = pt_html_page(&len);
	const char *at = memmem(page, len, PT_HTML_MARK, mark);
	int ret;

	if (!at)
		return -ENOENT; /* the build is broken; a test sees to it */
	errno = 0;
	fwrite(page, 1, (size_t)(at - page), out);
	ret = pt_err_written(out);
	ret = ret ?: data(what, out);
	if (ret)
		return ret;
	at += mark;
	fwrite(at, 1, len - (size_t)(at - page), out);
	return pt_err_written(out);
}

static int dump(json_t *o, FILE *f)
{
	int ret = json_dumpf(o, f, JSON_COMPACT |
				     JSON_REAL_PRECISION(REAL_DIGITS)) ?
			  -ENOMEM : 0;

	json_decref(o);
	return ret;
}

/* ---- one capture ------------------------------------------------------------- */

static int report_body(const void *what, FILE *f)
{
	const struct pt_export *x = what;

	return pt_report_json(x->r, f, NULL);
}

static int timeline_body(const void *what, FILE *f)
{
	struct pt_jb b = { 0 };
	json_t *o = pt_html_timeline(&b, what);

	if (b.failed || !o) {
		json_decref(o);
		return -ENOMEM;
	}
	return dump(o, f);
}

static int stacks_body(const void *what, FILE *f)
{
	struct pt_jb b = { 0 };
	json_t *o = pt_html_stacks(&b, what);

	if (b.failed || !o) {
		json_decref(o);
		return -ENOMEM;
	}
	return dump(o, f);
}

static int capture_data(const void *what, FILE *out)
{
	const struct pt_export *x = what;
	int ret = put_block(out, "report", report_body, what);

	ret = ret ?: put_block(out, "timeline", timeline_body, what);
	if (!ret && x->m->code_stacks.n)
		ret = put_block(out, "stacks", stacks_body, what);
	return ret;
}

int pt_export_html(const struct pt_export *x, FILE *out)
{
	return put_page(out, capture_data, x);
}

/* ---- several, compared ---------------------------------------------------------- */

static int diff_body(const void *what, FILE *f)
{
	return pt_diff_json(what, f, 0);
}

/* The lengths of the steps of each, over the same bins. */
static int lengths_body(const void *what, FILE *f)
{
	const struct pt_diff *d = what;
	double low = INFINITY, high = 0, a, z;
	struct pt_jb b = { 0 };
	json_t *o = json_array();
	size_t i;

	for (i = 0; i < d->n_inputs; i++) {
		pt_html_extent(d->inputs[i].period_ms, sizeof(double),
			       d->inputs[i].n_periods, &a, &z);
		low = a < low ? a : low;
		high = z > high ? z : high;
	}
	for (i = 0; i < d->n_inputs; i++)
		pt_j_add(&b, o, low < high ?
			pt_html_histogram(&b, d->inputs[i].period_ms,
					  sizeof(double),
					  d->inputs[i].n_periods, low, high) :
			json_null());
	if (b.failed || !o) {
		json_decref(o);
		return -ENOMEM;
	}
	return dump(o, f);
}

static int input_body(const void *what, FILE *f)
{
	return pt_report_json(what, f, NULL);
}

static int diff_data(const void *what, FILE *out)
{
	const struct pt_diff *d = what;
	int ret = put_block(out, "diff", diff_body, d);
	char id[32];
	size_t i;

	ret = ret ?: put_block(out, "lengths", lengths_body, d);
	for (i = 0; i < d->n_inputs && !ret; i++) {
		snprintf(id, sizeof(id), "report-%zu", i);
		ret = put_block(out, id, input_body, d->inputs[i].r);
	}
	return ret;
}

int pt_diff_html(const struct pt_diff *d, FILE *out)
{
	return put_page(out, diff_data, d);
}
