// SPDX-License-Identifier: BSD-2-Clause
/* The diagnosis of a capture that was recorded. */
#include <errno.h>
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/session.h"

static const char doc[] =
	"Diagnose what `pipetrace record`, or a trace with -o FILE, recorded. The "
	"report is the one that the live trace printed.";

static int run(const struct pt_opts *o, const char *name, FILE *f)
{
	struct pt_outfile json = { .dir = -1 };
	struct pt_report *r = pt_report_new();
	struct pt_err err = { "" };
	int status = PT_EXIT_FAILED;

	if (!r) {
		pt_error("out of memory");
		goto out;
	}
	if (o->json && pt_outfile_open(&json, o->json, &err)) {
		pt_error("%s", err.msg);
		goto out;
	}
	if (pt_replay(f, name, o, r))
		goto out;
	/* the user's own go before those that were recorded */
	if (pt_opts_label(o, r)) {
		pt_error("too many labels");
		goto out;
	}
	status = pt_output(r, o, &json);
out:
	pt_outfile_abandon(&json);
	pt_report_free(r);
	return status;
}

int pt_cmd_report(int argc, char **argv)
{
	const char *name;
	struct pt_opts o;
	int status;
	FILE *f;

	if (pt_opts_parse(&o, PT_OPTS_REPORT, doc, argc, argv))
		return PT_EXIT_USAGE;
	if (o.help || o.version)
		return PT_EXIT_OK;
	if (o.n_files + !!o.raw_stream != 1) {
		pt_error("report needs one recorded file: pipetrace report FILE");
		return PT_EXIT_USAGE;
	}
	name = o.raw_stream ? o.raw_stream : o.files[0];
	f = pt_open_regular(name, NULL);
	if (!f)
		return PT_EXIT_FAILED;
	status = run(&o, name, f);
	fclose(f);
	return status;
}
