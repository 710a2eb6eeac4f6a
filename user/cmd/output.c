// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/session.h"
#include "report/json.h"
#include "report/rowsort.h"
#include "view/export.h"
#include "view/text/text.h"

bool pt_want_color(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no && *no) && term &&
	       strcmp(term, "dumb");
}

int pt_terminal_width(void)
{
	struct winsize ws;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) || !ws.ws_col)
		return 0;
	return ws.ws_col;
}

static int write_text(const struct pt_report *r, const struct pt_opts *o)
{
	struct pt_text_opts t = {
		.color = pt_want_color(),
		.unicode = !o->ascii,
		.width = pt_terminal_width(),
		.print_steps = (int)o->print_steps,
		.quiet = o->loud == PT_QUIET,
		.verbose = o->loud == PT_VERBOSE,
		.operations = o->operations,
		.files = o->file_sort >= 0,
		.top = o->top,
		.sort = o->sort,
	};
	int ret;

	errno = 0;
	ret = pt_report_text(r, stdout, &t);
	if (!ret && (fflush(stdout) || ferror(stdout)))
		ret = errno ? -errno : -EIO;
	if (ret)
		pt_error("cannot write the diagnosis to standard output: %s",
			 strerror(errno ? errno : -ret));
	return ret;
}

static int write_json(const struct pt_report *r, const struct pt_opts *o,
		      struct pt_outfile *json)
{
	struct pt_json_opts j = { .steps = (size_t)o->print_steps,
				  .indent = 2 };

	errno = 0;
	return pt_outfile_end(json, "the report", pt_report_json(r, json->f, &j));
}

static int write_summary(const struct pt_report *r, const struct pt_opts *o,
			 struct pt_outfile *to)
{
	errno = 0;
	return pt_outfile_end(to, "the summary", pt_report_summary(r, to->f, !o->ascii));
}

int pt_output_open(const struct pt_opts *o, struct pt_outfile *json,
		   struct pt_outfile *summary, struct pt_outfile *html,
		   struct pt_err *err)
{
	int ret = o->json ? pt_outfile_open(json, o->json, err) : 0;

	if (!ret && o->summary)
		ret = pt_outfile_open(summary, o->summary, err);
	if (!ret && json->is_stdout && summary->is_stdout)
		ret = pt_err_set(err, -EINVAL, "only one of --json and --summary can go "
				 "to standard output: name a file for the other");
	return ret ?: pt_output_html_open(o, html, err);
}

int pt_output_html_open(const struct pt_opts *o, struct pt_outfile *html,
			struct pt_err *err)
{
	const char *path = o->export_to[PT_EXPORT_HTML];

	if (!path)
		return 0;
	if (!strcmp(path, "-"))
		return pt_err_set(err, -EINVAL, "the page cannot go to standard "
				  "output, where the diagnosis goes: name a file");
	return pt_outfile_open(html, path, err);
}

int pt_output_html(const struct pt_report *r, const struct pt_model *m,
		   const struct pt_lanes *lanes, struct pt_outfile *html)
{
	struct pt_export x = { .m = m, .r = r, .lanes = lanes };

	return html->f ? pt_outfile_end(html, "the page", pt_export_html(&x, html->f)) : 0;
}

int pt_output(struct pt_report *r, const struct pt_opts *o,
	      struct pt_outfile *json, struct pt_outfile *summary)
{
	bool taken = (json->f && json->is_stdout) ||
		     (summary->f && summary->is_stdout);
	int ret = pt_report_demangle(r), more;

	ret = ret ?: pt_report_sort_operations(r, o->sort);
	if (!ret && o->file_sort >= 0)
		ret = pt_report_sort_files(r, (enum pt_file_sort)o->file_sort);
	if (!ret && o->worker_sort >= 0)
		ret = pt_report_sort_workers(r,
				(enum pt_worker_sort)o->worker_sort);
	if (ret) /* they stay as they are */
		pt_error("out of memory");
	ret = 0;
	/* the diagnosis first: it is what somebody waits for */
	if (!taken)
		ret = write_text(r, o);
	if (json->f) {
		more = write_json(r, o, json);
		ret = ret ? ret : more;
	}
	if (summary->f) {
		more = write_summary(r, o, summary);
		ret = ret ? ret : more;
	}
	if (ret)
		return PT_EXIT_FAILED;
	if (o->fail_on >= 0 && pt_report_severity(r) >= o->fail_on)
		return PT_EXIT_VERDICT;
	return PT_EXIT_OK;
}
