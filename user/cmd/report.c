// SPDX-License-Identifier: BSD-2-Clause
/* The diagnosis of a capture that was recorded. */
#include <errno.h>

#include "base/heap.h"
#include "cmd/cmd.h"
#include "cmd/session.h"
#include "cmd/sudo.h"

static const char doc[] =
	"Diagnose what `pipetrace record`, or a trace with -o FILE, recorded. The "
	"report is the same that a live trace prints.";

struct replayed {
	const struct pt_opts *o;
	struct pt_report *r;
	struct pt_outfile json, summary, html;
	int status;
};

/* `m` and `lanes` are there where a page was asked for. */
static int show(void *ctx, const struct pt_model *m,
		const struct pt_lanes *lanes)
{
	struct replayed *k = ctx;

	/* the user's own go before those that were recorded */
	if (pt_opts_label(k->o, k->r))
		return pt_fail(-ENOSPC, "too many labels");
	k->status = pt_output(k->r, k->o, &k->json, &k->summary);
	return m ? pt_output_html(k->r, m, lanes, &k->html) : 0;
}

static int report_file(const struct pt_opts *o, const char *name, FILE *f)
{
	struct replayed k = { .o = o, .r = pt_report_new(),
			      .json = { .dir = -1 }, .summary = { .dir = -1 },
			      .html = { .dir = -1 },
			      .status = PT_EXIT_FAILED };
	struct pt_err err = { "" };
	int ret = -ENOMEM;

	if (!k.r) {
		pt_error("out of memory");
		goto out;
	}
	ret = pt_output_open(o, &k.json, &k.summary, &k.html, &err);
	if (ret) {
		pt_error("%s", err.msg);
		goto out;
	}
	if (k.html.f) /* it is made from the model, too */
		ret = pt_replay_then(f, name, o, k.r, show, &k);
	else if (!(ret = pt_replay(f, name, o, k.r)))
		ret = show(&k, NULL, NULL);
out:
	pt_outfile_abandon(&k.json);
	pt_outfile_abandon(&k.summary);
	pt_outfile_abandon(&k.html);
	pt_report_free(k.r);
	return ret ? PT_EXIT_FAILED : k.status;
}

int pt_cmd_report(int argc, char **argv)
{
	const char *name;
	struct pt_opts o;
	int status;
	FILE *f;

	if (pt_opts_done(&o, PT_OPTS_REPORT, doc, argc, argv, &status))
		return status;
	if (o.n_files + !!o.raw_stream != 1)
		return pt_fail(PT_EXIT_USAGE,
			       "report needs one recorded file: pipetrace report FILE");
	name = o.raw_stream ? o.raw_stream : o.files[0];
	if (pt_give_up(PT_RIGHTS_FILES, 0))
		return PT_EXIT_FAILED;
	f = pt_open_regular(name, NULL);
	if (!f)
		return PT_EXIT_FAILED;
	pt_heap_huge_pages();
	status = report_file(&o, name, f);
	fclose(f);
	return status;
}
