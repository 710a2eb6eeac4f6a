// SPDX-License-Identifier: BSD-2-Clause
/* A recorded file, or a stored record stream, through model and analysis. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "analysis/parts/part.h"
#include "base/records.h"
#include "report/lanes.h"
#include "model/past.h"
#include "cmd/parts.h"
#include "cmd/pieces.h"
#include "cmd/reach.h"
#include "cmd/session.h"
#include "model/timeline.h"
#include "report/about.h"
#include "store/rawstream.h"
#include "store/recording.h"
#include "version.h"

/* What a record takes in the timelines, about. */
#define RECORD_BYTES 100
/* A file of more records is read in pieces. */
#define WHOLE_RECORDS (PT_MAX_MODEL_BYTES / RECORD_BYTES)
/* So many pieces are asked what a change would win. */
#define ASK 4

struct replay {
	const char *name;
	struct pt_model *m;
	struct pt_report *r;
	struct pt_about about;
	struct pt_parts parts;
	struct pt_long pieces;
	struct pt_reach reach;
	uint64_t most; /* bytes of timelines, before they are cut */
	struct pt_thresholds thresholds;
	struct pt_analysis_opts opts;
	bool sized; /* the user says how much is held */
	bool again; /* it was looked at before, for its steps */
	bool whole; /* the capture ended in good order, and all of it is here */
};

/* Judge as the live trace did, but for what the user says now. */
static void set_thresholds(struct replay *k, const struct pt_opts *o)
{
	struct pt_thresholds *t = &k->thresholds;
	const struct pt_threshold_def *d;
	size_t i;

	k->opts.thresholds = t;
	*t = pt_thresholds_default;
	/* what a damaged file says wrong stays at its default */
	for (i = 0; i < k->about.n_thresholds; i++)
		pt_threshold_set(t, k->about.thresholds[i], &d);
	for (i = 0; i < pt_threshold_count; i++) {
		d = &pt_threshold_defs[i];
		if (pt_threshold_get(&o->thresholds, d) != d->value)
			memcpy((char *)t + d->offset,
			       (const char *)&o->thresholds + d->offset,
			       sizeof(double));
	}
}

/* What the stream itself says about host and target. */
static void take_facts(struct pt_report *r, const void *rec, size_t len)
{
	struct pt_rec_host h = { 0 };

	if (len < pt_rec_kind(PT_REC_HOST)->oldest)
		return;
	memcpy(&h, rec, len < sizeof(h) ? len : sizeof(h));
	h.boot_id[sizeof(h.boot_id) - 1] = '\0';
	r->host.cores = h.cores;
	if (h.quota_mcores)
		r->host.quota_cores = (double)h.quota_mcores / 1000;
	if (h.boot_id[0])
		r->host.boot_id = pt_arena_strdup(r->arena, h.boot_id);
	r->target.pid = h.target_pid;
}

/* Where the live trace was cut, so is this; unless the user wants it otherwise. */
static int cut_as_live(struct replay *k, const void *rec, size_t len)
{
	struct pt_rec_mark m = { .mark = 0 };

	memcpy(&m, rec, len < sizeof(m) ? len : sizeof(m));
	if (k->sized || k->parts.whole)
		return 0;
	if (m.mark == PT_MARK_HALF)
		return pt_model_halve(k->m);
	return m.mark == PT_MARK_PART ? pt_long_cut(&k->pieces, k->m, &k->opts) : 0;
}

static int take_record(struct replay *k, const void *rec, size_t len)
{
	struct pt_hdr h;

	memcpy(&h, rec, sizeof(h));
	if (!pt_reach_wants(&k->reach, k->m, &h))
		return 0;
	pt_model_feed(k->m, rec, len);
	if (h.kind == PT_REC_HOST)
		take_facts(k->r, rec, len);
	if (h.kind == PT_REC_WINDOW)
		return pt_parts_see(&k->parts, k->m, &k->opts, rec);
	return h.kind == PT_REC_MARK ? cut_as_live(k, rec, len) : 0;
}

/* ---- recorded files ------------------------------------------------------- */

static int no_recording(const char *name, int err)
{
	if (err == -EPROTO)
		pt_error("%s was recorded by a later version of pipetrace, "
			 "which can read it", name);
	else if (err == -ENOEXEC)
		pt_error("%s is not a recorded file of pipetrace", name);
	else if (err == -E2BIG)
		return err; /* spill() has said it */
	else
		pt_error("cannot read %s: %s", name, strerror(-err));
	return err;
}

static int say_what_lacks(struct replay *k, const struct pt_rf_reader *in)
{
	unsigned long long n = in->records;
	int err = 0;

	if (in->state != PT_RF_WHOLE)
		err = pt_report_limit(k->r, "capture.records",
			in->state == PT_RF_CUT ?
				"The recorded file ends before its end mark: "
				"the first %llu records are reported." :
				"The recorded file is damaged: the first %llu "
				"records are reported.", n);
	if (!err && in->dropped)
		err = pt_report_limit(k->r, "capture.records",
			"%llu records are not in the recorded file: the disk "
			"could not keep up.", (unsigned long long)in->dropped);
	if (in->state != PT_RF_WHOLE && !k->again)
		pt_note("%s %s after %llu records: the part before that is reported",
			k->name, in->state == PT_RF_CUT ? "is cut" : "is damaged",
			n);
	return err;
}

static int take_about(struct replay *k, const struct pt_opts *o,
		      const struct pt_rf_reader *in)
{
	int ret = pt_about_read(k->r, &k->about, in->about.v, in->about.n);

	set_thresholds(k, o);
	if (k->opts.batch_size <= 0 && k->r->steps.batch_size > 0)
		k->opts.batch_size = k->r->steps.batch_size;
	if (k->about.marked && !k->sized && !k->parts.whole) {
		k->most = 2 * PT_MAX_MODEL_BYTES;
		k->pieces.ask_every = PT_ASK_MARKED;
	}
	return ret;
}

/* Of a schedule's parts the report is of the last. */
static int spill(struct replay *k)
{
	if (k->reach.on) {
		int ret = pt_reach_drop(&k->reach, k->m, k->most,
					PT_MAX_MODEL_BYTES);

		if (ret == -E2BIG)
			pt_error("the requested part of %s is too long to be held at "
				 "once: choose at most some %.0f s (%.0f s on either "
				 "side are held, too)", k->name,
				 (double)pt_reach_fits(&k->reach, k->m) / 1e9,
				 (double)k->reach.margin / 1e9);
		return ret;
	}
	if (k->parts.whole || k->parts.rows.n)
		return pt_model_trim(k->m, k->most);
	return pt_long_spill(&k->pieces, k->m, &k->opts, k->most);
}

/* The records of one chunk, and what pieces they make. */
static int take_chunk(struct replay *k, const pt_bytes *raw)
{
	struct pt_hdr h;
	size_t at;
	int ret = 0;

	for (at = 0; at < raw->n && !ret; at += h.size) {
		memcpy(&h, raw->v + at, sizeof(h));
		ret = take_record(k, raw->v + at, h.size);
	}
	return ret ? ret : spill(k);
}

static bool too_long(const struct pt_opts *o, uint64_t records)
{
	return records > WHOLE_RECORDS || o->piece_bytes;
}

/* What cannot be held whole is better read in small pieces. */
static void choose_pieces(struct replay *k, const struct pt_opts *o,
			  uint64_t records)
{
	uint64_t pieces;

	if (k->parts.whole && too_long(o, records))
		pt_reach_set(&k->reach, &k->opts);
	k->most = PT_MAX_MODEL_BYTES;
	if (records > WHOLE_RECORDS)
		k->most = PT_PIECE_BYTES;
	if (o->piece_bytes)
		k->most = o->piece_bytes;
	/* what is held on of each is looked at again with the next one */
	pieces = (uint64_t)((double)(records * RECORD_BYTES) /
			    (PT_PIECE_SHARE * (1 - 1.0 / PT_PART_MARGIN) * (double)k->most));
	k->pieces.ask_every = pieces > ASK ? (pieces + ASK - 1) / ASK : 1;
}

static int read_recording(struct replay *k, const struct pt_opts *o, FILE *f)
{
	struct pt_rf_reader in;
	bool known = false;
	int ret = pt_rf_open(&in, f);

	if (ret) {
		no_recording(k->name, ret);
		goto out;
	}
	choose_pieces(k, o, pt_rf_count(&in));
	while ((ret = pt_rf_next(&in)) == 1) {
		if (!known && take_about(k, o, &in)) {
			ret = -ENOMEM;
			break;
		}
		known = true;
		ret = take_chunk(k, &in.raw);
		if (ret)
			break;
	}
	if (ret) {
		no_recording(k->name, ret);
		goto out;
	}
	ret = take_about(k, o, &in);
	ret = ret ?: say_what_lacks(k, &in);
	if (ret)
		pt_error("out of memory");
	k->whole = in.state == PT_RF_WHOLE && k->r->capture.complete;
out:
	pt_rf_reader_free(&in);
	return ret;
}

/* ---- record streams for developers ------------------------------------------ */

#define STREAM_BLOCK 1024 /* a chunk of it, in records */

static int read_stream(struct replay *k, const struct pt_opts *o, FILE *f)
{
	struct pt_raw_reader in;
	int len, ret = pt_raw_open(&in, f);

	set_thresholds(k, o);

	if (ret)
		return pt_fail(ret, ret == -EPROTO ? "%s was stored by another version of "
			       "pipetrace: record it again" :
			       "%s is not a record stream of pipetrace", k->name);
	choose_pieces(k, o, 0);
	while ((len = pt_raw_next(&in)) > 0 && !ret) {
		ret = take_record(k, &in.rec, (size_t)len);
		if (!ret && o->piece_bytes && in.records % STREAM_BLOCK == 0)
			ret = spill(k);
	}
	if (ret)
		return no_recording(k->name, ret);
	if (len)
		return pt_fail(len, "cannot read %s: %s", k->name, strerror(-len));
	k->whole = !in.truncated && !in.damaged;
	if (!k->whole)
		pt_note("%s %s after %llu records: the part before that "
			"is reported", k->name,
			in.truncated ? "ends inside a record" : "is damaged",
			(unsigned long long)in.records);
	return 0;
}

/* ---- both ------------------------------------------------------------------- */

static bool starts_with(FILE *f, const char *magic, size_t n)
{
	char got[16];
	bool same = fread(got, n, 1, f) == 1 && !memcmp(got, magic, n);

	rewind(f);
	return same;
}

bool pt_replay_is_recording(FILE *f)
{
	return starts_with(f, PT_RAW_MAGIC, sizeof(PT_RAW_MAGIC)) ||
	       starts_with(f, PT_RECORDING_MAGIC, 8);
}

static void no_such_step(const char *name, int64_t step, int64_t steps)
{
	pt_error("%s has no step %" PRId64 ": %" PRId64 " steps were found in it",
		 name, step, steps);
}

static int no_such_part(const struct replay *k, const struct pt_opts *o)
{
	if (o->by_steps)
		no_such_step(k->name, o->first_step, k->r->steps.count);
	else
		pt_error("%s has no such part: it lasts %.3f s", k->name,
			 k->r->capture.duration);
	return -ERANGE;
}

static int analyse(struct replay *k, const struct pt_opts *o,
		   struct pt_lanes *lanes)
{
	int ret, more;

	k->opts.lanes = lanes;
	ret = pt_parts_report(&k->parts, &k->pieces, k->m, &k->opts, k->r);
	if (ret == -ERANGE)
		return no_such_part(k, o);
	more = pt_about_limits(k->r);
	ret = ret ? ret : more;
	if (ret)
		pt_error("out of memory: the report is incomplete");
	k->r->host.version = PT_VERSION;
	k->r->capture.complete = k->whole;
	return ret;
}

/* A file that is not held whole, of which some steps are asked for. */
static bool must_look_twice(FILE *f, const struct pt_opts *o)
{
	struct pt_rf_reader in;
	bool yes = o->by_steps && o->piece_bytes;

	if (o->by_steps && !yes && starts_with(f, PT_RECORDING_MAGIC, 8)) {
		yes = !pt_rf_open(&in, f) && too_long(o, pt_rf_count(&in));
		pt_rf_reader_free(&in);
		rewind(f);
	}
	return yes;
}

/* Where they lie: only all the steps before them tell. */
static int find_steps(FILE *f, const char *name, const struct pt_opts *o,
		      struct pt_analysis_opts *out)
{
	struct pt_report *r = pt_report_new();
	struct pt_opts all = *o;
	const struct pt_r_step *s;
	int64_t first = o->first_step, last = o->last_step;
	size_t i;
	int ret;

	if (!r)
		return pt_fail(-ENOMEM, "out of memory");
	all.by_steps = false;
	all.from_ns = all.until_ns = 0;
	ret = pt_replay(f, name, &all, r);
	for (i = 0; i < r->steps.n_list && !ret; i++) {
		s = &r->steps.list[i];
		if (s->index == first)
			out->steps_from = (uint64_t)s->begin_ns;
		if (s->index == last)
			out->steps_until = (uint64_t)s->end_ns;
	}
	if (!ret && !out->steps_from) {
		no_such_step(name, first, r->steps.count);
		ret = -ERANGE;
	}
	out->steps_known = true;
	rewind(f);
	pt_report_free(r);
	return ret;
}

int pt_replay_then(FILE *f, const char *name, const struct pt_opts *o,
		   struct pt_report *r, pt_replayed_fn then, void *ctx)
{
	struct replay k = {
		.name = name, .r = r, .m = pt_model_new(),
		.parts.whole = o->from_ns || o->until_ns || o->by_steps,
		.sized = o->piece_bytes, .opts = pt_opts_analysis(o) };
	struct pt_lanes lanes = { 0 };
	struct pt_past past = { 0 };
	int ret = 0;

	if (!k.m)
		return pt_fail(-ENOMEM, "out of memory");
	if (then)
		k.pieces.past = &past;
	k.again = must_look_twice(f, o);
	if (k.again)
		ret = find_steps(f, name, o, &k.opts);
	if (!ret)
		ret = starts_with(f, PT_RAW_MAGIC, sizeof(PT_RAW_MAGIC)) ?
			      read_stream(&k, o, f) : read_recording(&k, o, f);
	ret = ret ?: analyse(&k, o, then ? &lanes : NULL);
	if (past.sum)
		lanes.past = &past;
	if (!ret && then)
		ret = then(ctx, k.m, &lanes);
	pt_past_free(&past);
	pt_parts_free(&k.parts);
	pt_long_free(&k.pieces);
	pt_model_free(k.m);
	return ret;
}

int pt_replay(FILE *f, const char *name, const struct pt_opts *o,
	      struct pt_report *r)
{
	return pt_replay_then(f, name, o, r, NULL, NULL);
}
