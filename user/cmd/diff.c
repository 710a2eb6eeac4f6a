// SPDX-License-Identifier: BSD-2-Clause
/* Reports and record streams compared: what changed, and is it noise. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/compare/compare.h"
#include "base/heap.h"
#include "cmd/cmd.h"
#include "cmd/session.h"
#include "cmd/sudo.h"
#include "report/json.h"
#include "report/readjson.h"
#include "view/export.h"
#include "view/text/text.h"

static const char doc[] =
	"Compare captures: throughput with a confidence interval, GPU idle, where a step's "
	"time goes, settings and verdicts; more than two are ranked. Each file is a recording, or "
	"a report that --json wrote. Exit status: 0 compared, 1 failed, 2 bad usage, 3 slower, "
	"with --fail-on-regression.";

struct loaded {
	struct pt_report *r[PT_MAX_FILES];
	struct pt_d_source src[PT_MAX_FILES];
	size_t n;
};

static int read_report(const char *path, FILE *f, off_t size,
		       struct pt_report *r)
{
	struct pt_read_error why = { "" };
	char *text = NULL;
	size_t len = 0;
	int ret = -ENOMEM;

	/* the reader says it better than an allocation that fails */
	if (size <= (off_t)PT_READ_MAX)
		text = malloc((size_t)size + 1);
	else
		len = (size_t)size;
	if (text) {
		len = fread(text, 1, (size_t)size, f);
		if (ferror(f)) {
			pt_error("cannot read %s: %s", path, strerror(errno));
			ret = -EIO;
			goto out;
		}
	}
	if (text || len)
		ret = pt_report_read_json(text, len, r, &why);
	if (ret == -EINVAL)
		pt_error("%s cannot be compared: %s", path, why.text);
	else if (ret)
		pt_error("out of memory");
out:
	free(text);
	return ret;
}

static void take_batch_size(const struct pt_opts *o, struct pt_report *r)
{
	if (o->batch_size <= 0 || r->steps.batch_size > 0)
		return;
	r->steps.batch_size = o->batch_size;
	r->steps.samples_per_second = r->steps.per_second *
				      (double)o->batch_size;
}

static int load(const struct pt_opts *o, const char *path, struct loaded *l)
{
	struct pt_d_source *s = &l->src[l->n];
	struct pt_report *r = pt_report_new();
	off_t size = 0;
	FILE *f;
	int ret = -ENOMEM;

	if (!r)
		return pt_fail(ret, "out of memory");
	l->r[l->n++] = r;
	f = pt_open_regular(path, &size);
	if (!f)
		return -EIO;
	s->path = path;
	s->r = r;
	s->recording = pt_replay_is_recording(f);
	ret = s->recording ? pt_replay(f, path, o, r) :
			     read_report(path, f, size, r);
	fclose(f);
	if (!ret)
		take_batch_size(o, r);
	return ret;
}

static int write_out(const struct pt_diff *d, const struct pt_opts *o,
		     struct pt_outfile *json)
{
	struct pt_text_opts t = { .color = pt_want_color(),
				  .unicode = !o->ascii,
				  .width = pt_terminal_width(),
				  .verbose = o->loud == PT_VERBOSE };
	int ret = 0;

	errno = 0;
	if (!json->f || !json->is_stdout)
		ret = pt_diff_text(d, stdout, &t);
	if (ret)
		pt_error("cannot write to standard output: %s",
			 strerror(errno ? errno : -ret));
	if (ret || !json->f)
		return ret;
	return pt_outfile_end(json, "the comparison", pt_diff_json(d, json->f, 2));
}

/* A gate that cannot tell must not pass. */
static int judge(const struct pt_diff *d, double limit)
{
	int status = PT_EXIT_OK;
	size_t i;

	for (i = 0; !isnan(limit) && i < d->n_pairs; i++) {
		const struct pt_d_pair *p = &d->pairs[i];
		const char *name = d->inputs[p->other].name;

		if (p->untested || !isfinite(p->speedup.value))
			return pt_fail(PT_EXIT_FAILED,
				       "cannot tell whether %s is slower: %s", name,
				       p->untested ? p->untested : "its throughput is unknown");
		if (p->significant && p->speedup.value <= 1 - limit &&
		    p->speedup.value < 1)
			status = PT_EXIT_VERDICT;
	}
	return status;
}

static int compare(const struct pt_opts *o, const struct loaded *l,
		   struct pt_outfile *json, struct pt_outfile *html)
{
	struct pt_diff *d = NULL;
	int ret = pt_compare(l->src, l->n, &d), status;

	if (ret)
		return pt_fail(PT_EXIT_FAILED, "cannot compare: %s", strerror(-ret));
	ret = write_out(d, o, json);
	if (!ret && html->f)
		ret = pt_outfile_end(html, "the comparison", pt_diff_html(d, html->f));
	status = ret ? PT_EXIT_FAILED : judge(d, o->fail_on_regression);
	pt_diff_free(d);
	return status;
}

int pt_cmd_diff(int argc, char **argv)
{
	struct pt_outfile json = { .dir = -1 }, html = { .dir = -1 };
	struct pt_err err = { "" };
	struct loaded l = { .n = 0 };
	int status = PT_EXIT_FAILED;
	struct pt_opts o;
	size_t i;

	if (pt_opts_done(&o, PT_OPTS_DIFF, doc, argc, argv, &status))
		return status;
	if (o.n_files < 2)
		return pt_fail(PT_EXIT_USAGE,
			       "diff needs two or more files: reports (--json) or "
			       "record streams");
	status = PT_EXIT_FAILED;
	if (pt_give_up(PT_RIGHTS_FILES, 0))
		goto out;
	pt_heap_huge_pages();
	for (i = 0; i < o.n_files; i++)
		if (load(&o, o.files[i], &l))
			goto out;
	if (o.json && pt_outfile_open(&json, o.json, &err)) {
		pt_error("%s", err.msg);
		goto out;
	}
	if (pt_output_html_open(&o, &html, &err)) {
		pt_error("%s", err.msg);
		goto out;
	}
	status = compare(&o, &l, &json, &html);
out:
	pt_outfile_abandon(&json);
	pt_outfile_abandon(&html);
	for (i = 0; i < l.n; i++)
		pt_report_free(l.r[i]);
	return status;
}
