// SPDX-License-Identifier: BSD-2-Clause
/* Replay of a stored record stream: for developers. */
#include <errno.h>
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/session.h"
#include "store/rawstream.h"
#include "version.h"

static const char doc[] =
	"Diagnose a record stream that `pipetrace --raw-stream FILE` stored. "
	"For developers: the format carries no promise of stability.";

/* What the stream itself says about host and target. */
static void take_facts(struct pt_report *r, const void *rec, size_t len)
{
	struct pt_rec_host h;

	if (len < sizeof(h))
		return;
	memcpy(&h, rec, sizeof(h));
	h.boot_id[sizeof(h.boot_id) - 1] = '\0';
	r->host.cores = h.cores;
	if (h.quota_mcores)
		r->host.quota_cores = (double)h.quota_mcores / 1000;
	if (h.boot_id[0])
		r->host.boot_id = pt_arena_strdup(r->arena, h.boot_id);
	r->target.pid = h.target_pid;
}

static int replay(struct pt_raw_reader *in, struct pt_model *m,
		  struct pt_report *r)
{
	int len;

	while ((len = pt_raw_next(in)) > 0) {
		pt_model_feed(m, &in->rec, (size_t)len);
		if (in->rec.hdr.kind == PT_REC_HOST)
			take_facts(r, &in->rec, (size_t)len);
	}
	return len;
}

static int diagnose(struct pt_raw_reader *in, const char *name,
		    const struct pt_opts *o, struct pt_model *m,
		    struct pt_report *r)
{
	struct pt_analysis_opts a = { .batch_size = o->batch_size };
	int ret = replay(in, m, r), more;

	if (ret) {
		pt_error("cannot read %s: %s", name, strerror(-ret));
		return ret;
	}
	if (in->truncated || in->damaged)
		pt_note("%s %s after %llu records: what came before is "
			"reported",
			name,
			in->truncated ? "ends inside a record" : "is damaged",
			(unsigned long long)in->records);
	ret = pt_model_finish(m);
	more = pt_analyze(m, &a, r);
	ret = ret ? ret : more;
	if (ret)
		pt_error("out of memory: the report is incomplete");
	r->host.version = PT_VERSION;
	r->capture.complete = !in->truncated && !in->damaged;
	return ret;
}

int pt_replay_open(struct pt_raw_reader *in, FILE *f, const char *name)
{
	int ret = pt_raw_open(in, f);

	if (ret)
		pt_error(ret == -EPROTO ?
				 "%s was stored by another version of "
				 "pipetrace: record it again" :
				 "%s is not a record stream of pipetrace",
			 name);
	return ret;
}

int pt_replay_run(struct pt_raw_reader *in, const char *name,
		  const struct pt_opts *o, struct pt_report *r)
{
	struct pt_model *m = pt_model_new();
	int ret;

	if (!m) {
		pt_error("out of memory");
		return -ENOMEM;
	}
	ret = diagnose(in, name, o, m, r);
	pt_model_free(m);
	return ret;
}

static int run(const struct pt_opts *o, FILE *f)
{
	struct pt_outfile json = { .dir = -1 };
	struct pt_report *r = pt_report_new();
	struct pt_raw_reader in;
	struct pt_err err = { "" };
	int status = PT_EXIT_FAILED;

	if (!r || pt_opts_label(o, r)) {
		pt_error("out of memory");
		goto out;
	}
	if (pt_replay_open(&in, f, o->raw_stream))
		goto out;
	if (o->json && pt_outfile_open(&json, o->json, &err)) {
		pt_error("%s", err.msg);
		goto out;
	}
	if (!pt_replay_run(&in, o->raw_stream, o, r))
		status = pt_output(r, o, &json);
out:
	pt_outfile_abandon(&json);
	pt_report_free(r);
	return status;
}

int pt_cmd_report(int argc, char **argv)
{
	struct pt_opts o;
	int status;
	FILE *f;

	if (pt_opts_parse(&o, PT_OPTS_REPORT, doc, argc, argv))
		return PT_EXIT_USAGE;
	if (o.help || o.version)
		return PT_EXIT_OK;
	if (!o.raw_stream) {
		pt_error("report needs --raw-stream FILE, a record stream that "
			 "a trace stored");
		return PT_EXIT_USAGE;
	}
	f = fopen(o.raw_stream, "re");
	if (!f) {
		pt_error("cannot read %s: %s", o.raw_stream, strerror(errno));
		return PT_EXIT_FAILED;
	}
	status = run(&o, f);
	fclose(f);
	return status;
}
