// SPDX-License-Identifier: BSD-2-Clause
/* A recorded capture in other programs' formats. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/heap.h"
#include "cmd/cmd.h"
#include "cmd/outdir.h"
#include "cmd/session.h"
#include "cmd/sudo.h"
#include "view/export.h"

#define BUFFER (1 << 20) /* bytes: one write for many small pieces */

static const char doc[] =
	"Convert a recording (of `pipetrace record`, or of a trace with -o FILE) "
	"to other programs' formats (docs/export.md), several at once if need "
	"be. Files that exist are kept, unless --force is given; - is standard "
	"output.";

struct export {
	const struct pt_opts *o;
	struct pt_report *r;
	struct pt_outfile out[PT_EXPORT_NR];
	char *buffer[PT_EXPORT_NR];
	struct pt_outdir csv;
};

static const struct {
	const char *name;
	/* NULL: it does not go to a stream */
	int (*write)(const struct pt_export *x, FILE *out);
} formats[PT_EXPORT_NR] = {
	[PT_EXPORT_PERFETTO] = { "perfetto", pt_export_perfetto },
	[PT_EXPORT_CHROME] = { "chrome", pt_export_chrome },
	[PT_EXPORT_FOLDED] = { "folded", pt_export_folded },
	[PT_EXPORT_HTML] = { "html", pt_export_html },
	[PT_EXPORT_SQLITE] = { "sqlite", NULL },
	[PT_EXPORT_CSV] = { "csv", NULL },
	[PT_EXPORT_STACKS] = { "stacks", pt_export_stacks },
	[PT_EXPORT_SPEEDSCOPE] = { "speedscope", pt_export_speedscope },
};

static int open_one(struct export *e, int i)
{
	struct pt_err err = { "" };
	int ret;

	if (i == PT_EXPORT_CSV)
		ret = pt_outdir_open(&e->csv, e->o->export_to[i], &err);
	else
		ret = pt_outfile_open(&e->out[i], e->o->export_to[i], &err);
	if (!ret && i != PT_EXPORT_CSV && !e->o->force)
		ret = pt_outfile_keep(&e->out[i], &err);
	if (ret)
		return pt_fail(ret, "%s", err.msg);
	if (!e->out[i].f)
		return 0;
	e->buffer[i] = malloc(BUFFER);
	if (e->buffer[i])
		setvbuf(e->out[i].f, e->buffer[i], _IOFBF, BUFFER);
	return 0;
}

/* Before anything is read, so that what cannot be written is known at once. */
static int open_all(struct export *e)
{
	int i, n_stdout = 0, ret = 0;

	for (i = 0; i < PT_EXPORT_NR && !ret; i++) {
		if (!e->o->export_to[i])
			continue;
		ret = open_one(e, i);
		n_stdout += !ret && e->out[i].is_stdout;
	}
	if (ret)
		return ret;
	if (n_stdout > 1)
		return pt_fail(-EINVAL, "only one format can go to standard output");
	/* a database is written in places, and only to a file of ours */
	if (e->out[PT_EXPORT_SQLITE].f && !e->out[PT_EXPORT_SQLITE].pending)
		return pt_fail(-EINVAL, "a database can only be written to a file");
	if (e->out[PT_EXPORT_PERFETTO].is_stdout && isatty(STDOUT_FILENO))
		return pt_fail(-EINVAL, "a Perfetto trace is not text: write it to a file");
	return 0;
}

static int failed(const char *path, int err)
{
	if (err == -ENOMEM)
		pt_error("out of memory");
	else
		pt_error("cannot write %s: %s", path, strerror(-err));
	return err;
}

static int write_one(struct export *e, const struct pt_export *x, int i)
{
	struct pt_outfile *out = &e->out[i];
	struct pt_err err = { "" };
	int ret = i == PT_EXPORT_SQLITE ? pt_export_sqlite(x, fileno(out->f)) :
					  formats[i].write(x, out->f);

	if (ret)
		return failed(out->is_stdout ? "standard output" : out->path,
			      ret);
	ret = pt_outfile_commit(out, &err);
	if (ret)
		pt_error("%s", err.msg);
	return ret;
}

static int write_csv(struct export *e, const struct pt_export *x)
{
	struct pt_err err = { "" };
	const char *table;
	char name[64];
	size_t i;
	FILE *f;
	int ret = 0;

	for (i = 0; (table = pt_export_csv_name(i)) && !ret; i++) {
		snprintf(name, sizeof(name), "%s.csv", table);
		f = pt_outdir_file(&e->csv, name);
		if (!f)
			return failed(e->csv.path, -errno);
		ret = pt_export_csv(x, i, f);
		errno = 0;
		if (fclose(f) && !ret)
			ret = errno ? -errno : -EIO;
	}
	if (ret)
		return failed(e->csv.path, ret);
	ret = pt_outdir_commit(&e->csv, &err);
	if (ret)
		pt_error("%s", err.msg);
	return ret;
}

static bool of_part(const struct pt_opts *o)
{
	return o->from_ns || o->until_ns || o->by_steps;
}

static int write_all(void *ctx, const struct pt_model *m,
		     const struct pt_lanes *lanes)
{
	struct export *e = ctx;
	struct pt_export x = { .m = m, .r = e->r, .lanes = lanes,
			       .part = of_part(e->o) };
	int i, ret = pt_report_demangle(e->r);

	if (ret)
		pt_error("out of memory");
	for (i = 0; i < PT_EXPORT_NR && !ret; i++)
		if (e->out[i].f)
			ret = write_one(e, &x, i);
	if (!ret && e->csv.path)
		ret = write_csv(e, &x);
	return ret;
}

static int export_file(const struct pt_opts *o, const char *name, FILE *f)
{
	struct export e = { .o = o, .r = pt_report_new() };
	int i, ret = -ENOMEM;

	for (i = 0; i < PT_EXPORT_NR; i++)
		e.out[i].dir = -1;
	if (!e.r)
		pt_error("out of memory");
	else
		ret = open_all(&e);
	ret = ret ?: pt_replay_then(f, name, o, e.r, write_all, &e);
	for (i = 0; !ret && (size_t)i < e.r->capture.n_limits; i++)
		if (!strcmp(e.r->capture.limits[i].what, "capture.timeline"))
			pt_note("%s: %s", name, e.r->capture.limits[i].reason);
	for (i = 0; i < PT_EXPORT_NR; i++) {
		pt_outfile_abandon(&e.out[i]);
		free(e.buffer[i]);
	}
	pt_outdir_abandon(&e.csv);
	pt_report_free(e.r);
	return ret ? PT_EXIT_FAILED : PT_EXIT_OK;
}

/* --format NAME -o OUT is --NAME OUT. 0, or -EINVAL after a sentence. */
static int take_format(struct pt_opts *o)
{
	int i;

	if (!o->format && !o->output)
		return 0;
	if (!o->format || !o->output)
		return pt_fail(-EINVAL, "--format and -o go together: pipetrace export FILE "
			       "--format html -o OUT");
	for (i = 0; i < PT_EXPORT_NR; i++)
		if (!strcmp(o->format, formats[i].name))
			break;
	if (i == PT_EXPORT_NR || o->export_to[i])
		return pt_fail(-EINVAL, i == PT_EXPORT_NR ?
			       "there is no format \"%s\": perfetto, chrome, "
			       "folded, stacks, speedscope, html, sqlite or csv" :
			       "%s is asked for twice", o->format);
	o->export_to[i] = o->output;
	return 0;
}

int pt_cmd_export(int argc, char **argv)
{
	struct pt_opts o;
	int i, n = 0, status;
	FILE *f;

	if (pt_opts_done(&o, PT_OPTS_EXPORT, doc, argc, argv, &status))
		return status;
	if (take_format(&o))
		return PT_EXIT_USAGE;
	for (i = 0; i < PT_EXPORT_NR; i++)
		n += o.export_to[i] != NULL;
	if (o.n_files != 1 || !n)
		return pt_fail(PT_EXIT_USAGE,
			       "export needs a format and one recorded file: pipetrace "
			       "export --perfetto OUT FILE");
	if (of_part(&o) && (o.export_to[PT_EXPORT_CSV] ||
			    o.export_to[PT_EXPORT_SQLITE] ||
			    o.export_to[PT_EXPORT_FOLDED]))
		return pt_fail(PT_EXIT_USAGE,
			       "--csv, --sqlite and --folded are of the whole capture: --window "
			       "and --steps are for --perfetto, --chrome, --stacks, "
			       "--speedscope and --html");
	if (pt_give_up(PT_RIGHTS_FILES, 0))
		return PT_EXIT_FAILED;
	f = pt_open_regular(o.files[0], NULL);
	if (!f)
		return PT_EXIT_FAILED;
	pt_heap_huge_pages();
	status = export_file(&o, o.files[0], f);
	fclose(f);
	return status;
}
