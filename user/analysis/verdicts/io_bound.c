/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>

#include "analysis/io/kind.h"
#include "analysis/verdicts/verdict.h"

/* With more of their reading than this makers are busy, too, and the title says so. */
#define BUSY_READING 0.1

/* A number of bytes as people read it. */
static const char *bytes(struct pt_an *an, double v)
{
	static const char *const units[] = { "B",   "KiB", "MiB", "GiB",
					     "TiB", "PiB", "EiB" };
	size_t u = 0;

	while (v >= 1023.5 && u < 6) {
		v /= 1024;
		u++;
	}
	return pt_sentence(an, u && v < 99.95 ? "%.1f %s" : "%.0f %s", v,
			       units[u]);
}

/* A time of some ms as people read it. */
static const char *ms(struct pt_an *an, double v)
{
	return v < 0.1 ? pt_sentence(an, "%.0f us", 1000 * v) : pt_sentence(an, "%.1f ms", v);
}

/* " in /data/train/", " of /data/x.tar", or nothing. */
static const char *where(struct pt_an *an, const struct pt_io *io)
{
	if (!io->where)
		return "";
	return pt_sentence(an, io->where_folder ? " in %s" : " of %s",
			       io->where);
}

/* The sentence: how much, where, and what the waiting is for. */
static const char *title(struct pt_an *an, const struct pt_facts *f,
			 const struct pt_io *io)
{
	double all = f->group[PT_GROUP_IO];
	double blocked = f->cause[PT_CAUSE_DISK] + f->cause[PT_CAUSE_PAGE_FAULT];
	bool mostly = blocked >= (1 - BUSY_READING) * all;
	double share = 100 * (mostly ? blocked : all);
	const char *rate = bytes(an, io->bytes_per_s), *at = where(an, io);
	const char *are = mostly ? "blocked" : "busy or blocked";

	switch (io->kind) {
	case PT_IO_CACHE:
		return pt_sentence(an,
			"The page cache is too small for the dataset: %.0f %% of the data "
			"wait is workers %s in file reads%s, and %.0f %% of what they "
			"fetch had been cached and was evicted (%s is left for the cache).",
			share, are, at, fmin(100, 100 * io->refault),
			bytes(an, (double)an->r->memory.room));
	case PT_IO_BANDWIDTH:
		return pt_sentence(an,
			"The GPU waits for storage that delivers no more than %s per second: "
			"%.0f %% of the data wait is workers %s in file reads%s.",
			rate, share, are, at);
	case PT_IO_SMALL_FILES:
		if (!isfinite(io->visit_bytes))
			return pt_sentence(an,
				"The GPU waits for files to be opened: %.0f %% of the data "
				"wait is workers %s in storage, mostly looking up "
				"files%s.",
				share, are, at);
		return pt_sentence(an,
			"The GPU waits for many small files: %.0f %% of the data wait is "
			"workers %s on files%s, %s each and %.0f per second, with %.1f "
			"ms per wait.",
			share, are, at, bytes(an, io->visit_bytes), io->visits_per_s,
			io->wait_ms);
	case PT_IO_RANDOM:
		return pt_sentence(an,
			"The GPU waits for random reads: %.0f %% of the data wait is workers "
			"%s in reads that jump through files%s, %s at a time and %s per "
			"second, with %s per wait.",
			share, are, at, bytes(an, io->read_bytes), rate, ms(an, io->wait_ms));
	case PT_IO_LATENCY:
		return pt_sentence(an,
			"The GPU waits for storage with a high latency: %.0f %% of the data "
			"wait is workers %s in file reads%s, %s each whatever their "
			"size, at %s per second.",
			share, are, at, ms(an, io->wait_ms), rate);
	case PT_IO_UNKNOWN:
		break;
	}
	return pt_sentence(an,
		"The GPU waits for storage: %.0f %% of the data wait is workers %s in "
		"file reads%s, at %s per second.",
		share, are, at, rate);
}

/* More workers keep more waits under way; the best number by the replay, where
 * it tells one. */
static const char *more_workers(struct pt_an *an, const struct pt_facts *f)
{
	int64_t better = pt_better_workers(an, f);

	if (!f->t->concurrent)
		return "read in worker processes (num_workers is 0 today)";
	return better ?
		pt_sentence(an, "raise num_workers from %zu to %lld",
				f->t->concurrent, (long long)better) :
		pt_sentence(an, "read ahead with more workers (num_workers is %zu today)",
				f->t->concurrent);
}

/* Where what is read again and again fits into memory, it need not be fetched
 * again: said only where both were seen. */
static const char *keep_it(struct pt_an *an, const struct pt_io *io)
{
	const struct pt_r_memory *m = &an->r->memory;

	if (io->kind == PT_IO_CACHE || m->set.fits != 1 ||
	    m->set.read_bytes == PT_NULL || m->set.seen[1] >= m->set.read_bytes)
		return "";
	return pt_sentence(an,
		" The data is read more than once, and all of it (%s) fits into memory (%s): "
		"keep it in the page cache, or copy it to a tmpfs first.",
		bytes(an, (double)m->set.whole[1]), bytes(an, (double)m->room));
}

/* A limit above the disk, of what kind is open: workers share it. */
static bool is_limited(const struct pt_io *io)
{
	return !io->kind && io->held >= PT_IO_HELD;
}

static const char *advice(struct pt_an *an, const struct pt_facts *f,
			  const struct pt_io *io)
{
	const struct pt_r_memory *m = &an->r->memory;
	const char *more = more_workers(an, f), *keep = keep_it(an, io);

	switch (io->kind) {
	case PT_IO_CACHE:
		return pt_sentence(an,
			"Give the job more memory (%s, and the page cache has %s of it), or "
			"let it read less: a smaller format, or fewer copies of objects in "
			"the workers. Otherwise use a faster disk: what is evicted is fetched "
			"again.",
			m->limit == PT_NULL ? "the machine's is full" :
			"its cgroup limits it", bytes(an, (double)m->room));
	case PT_IO_BANDWIDTH:
		return pt_sentence(an,
			"Read fewer bytes (a smaller or compressed format) or move the data "
			"to a faster disk or into memory: more workers would share the same "
			"bandwidth.%s",
			keep);
	case PT_IO_SMALL_FILES:
		return pt_sentence(an,
			"Pack the files into larger ones (tar shards, an LMDB, Arrow): every "
			"file costs waits of its own, at %.0f files per second today. Until "
			"then, %s.%s",
			isfinite(io->visits_per_s) ? io->visits_per_s : 0, more,
			keep);
	case PT_IO_RANDOM:
		return pt_sentence(an,
			"Read sequentially and shuffle in memory (shards and a shuffle "
			"buffer), or in larger pieces than today's %s; otherwise %s, or move "
			"the data to a disk with a lower latency.%s",
			bytes(an, io->read_bytes), more, keep);
	case PT_IO_LATENCY:
		return pt_sentence(an,
			"Read larger pieces at a time, or keep more reads in flight (%.1f "
			"today): %s.%s",
			io->depth, more, keep);
	case PT_IO_UNKNOWN:
		break;
	}
	if (is_limited(io))
		return pt_sentence(an,
			"The disk itself answers fast, and what holds the reads back lies above "
			"it: a limit such as a cgroup's io.max, which more workers would share. "
			"Raise that limit, or move the data to a faster disk or into memory.%s",
			keep);
	return pt_sentence(an,
		"Move the data to a faster disk or into memory, pack small files into larger ones, or %s.%s",
		more, keep);
}

static void add_evidence(const struct pt_facts *f, const struct pt_io *io,
			 struct pt_r_verdict *v)
{
	pt_evidence_against(v, "data_wait.disk_share", f->cause[PT_CAUSE_DISK], "share",
			    f->th->root_share);
	pt_evidence_against(v, "data_wait.page_fault_share", f->cause[PT_CAUSE_PAGE_FAULT],
			    "share", f->th->root_share);
	if (f->item.median_ms >= f->th->item_ms)
		pt_evidence_against(v, "item_ms.p50", f->item.median_ms, "ms",
				    f->th->item_ms);
	if (!io->waits)
		return;
	pt_evidence(v, "io.bytes_per_s", io->bytes_per_s, "bytes/s");
	pt_evidence(v, "io.wait_ms", io->wait_ms, "ms");
	pt_evidence(v, "io.readers_waiting", io->depth, "count");
	if (isfinite(io->by_bytes.value))
		pt_evidence_add(v, "io.wait_share_by_bytes",
				fmax(0, fmin(1, io->by_bytes.value)), "share", PT_IO_MOSTLY,
				PT_ESTIMATED);
	if (isfinite(io->by_share.value))
		pt_evidence_add(v, "io.wait_share_by_sharing",
				fmax(0, fmin(1, io->by_share.value)), "share", PT_IO_MOSTLY,
				PT_ESTIMATED);
	if (isfinite(io->held))
		pt_evidence_add(v, "io.wait_share_above_disk", io->held, "share",
				PT_IO_HELD, PT_BOUNDED);
	if (isfinite(io->visit_bytes)) {
		pt_evidence_against(v, "io.bytes_per_file", io->visit_bytes, "bytes",
				    PT_READ_AHEAD);
		pt_evidence(v, "io.files_per_s", io->visits_per_s, "per_second");
	}
	pt_evidence_against(v, "io.wait_share_opening", io->opening, "share",
			    PT_IO_MOSTLY);
	pt_evidence_against(v, "io.wait_share_jumping", io->random, "share",
			    PT_IO_MOSTLY);
	if (isfinite(io->refault))
		pt_evidence_against(v, "io.refetched_share", fmin(1, io->refault), "share",
				    PT_IO_REFAULT);
	if (isfinite(io->read_bytes))
		pt_evidence(v, "io.read_bytes", io->read_bytes, "bytes");
}

/* Workers wait for storage, and the trainer for them. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	struct pt_io io = f->io;
	bool by_workers;

	if (f->largest != PT_GROUP_IO || f->group[PT_GROUP_IO] < f->th->root_share)
		return 0;
	pt_io_decide(&an->r->memory, &io);
	pt_evidence_starved(f, v);
	add_evidence(f, &io, v);
	pt_evidence_storage(an, f, v);
	v->kind = pt_io_kind_name(io.kind);
	if (io.kind)
		pt_at_most(&v->certainty, io.certainty);
	v->subject_file = io.where;
	v->title = title(an, f, &io);
	v->advice = advice(an, f, &io);
	if (!io.kind && io.looked)
		pt_report_limit(an->r, "verdicts.io_bound.kind", io.placed ?
			"The waits for storage varied too little to tell a low bandwidth from "
			"a high latency." :
			"The reads' offsets in the files are not known, and the waits for "
			"storage varied too little to tell a low bandwidth from a high "
			"latency.");
	by_workers = io.kind != PT_IO_BANDWIDTH && io.kind != PT_IO_CACHE &&
		     !is_limited(&io) && pt_better_workers(an, f);
	pt_replayed_speedup(an, by_workers ? "workers" : "no_disk_wait", v);
	return 1;
}

const struct pt_verdict pt_verdict_io_bound = { .asked = { { PT_V_WHAT, judge } },
	.lines = { PT_LINES_WORKERS, PT_LINES_STORAGE,
		   "the workers' storage waits" },
};
