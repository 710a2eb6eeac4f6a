/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <math.h>

#include "analysis/verdicts/verdict.h"

static void evidence(struct pt_an *an, const struct pt_facts *f,
		     const struct pt_fault_facts *x, struct pt_r_verdict *v)
{
	bool traced = an->m->host_known &&
		      an->m->host.fault_door != PT_FAULT_DOOR_NONE;
	double all = (double)x->wait_ns;

	pt_evidence_starved(f, v);
	pt_evidence_against(v, "data_wait.page_fault_share", f->cause[PT_CAUSE_PAGE_FAULT],
			    "share", f->th->root_share);
	pt_evidence(v, "data_wait.disk_share", f->cause[PT_CAUSE_DISK], "share");
	if (!traced || !x->wait_ns)
		return;
	pt_evidence(v, "page_fault.text_share", (double)x->text_ns / all, "share");
	if (!x->file_ns)
		return;
	pt_evidence(v, "page_fault.file_share", (double)x->file_ns / all, "share");
	pt_evidence(v, "page_fault.file_bytes", (double)x->on.bytes, "bytes");
	pt_evidence(v, "page_fault.file_per_second", (double)x->on.faults / f->wall_s,
		    "per_second");
	if (!isnan(x->on.p99_ms))
		pt_evidence(v, "page_fault.file_wait_ms.p99", x->on.p99_ms, "ms");
}

/* Most of it is of one kind, and that has a remedy of its own. */
static void words(struct pt_an *an, const struct pt_facts *f,
		  const struct pt_fault_facts *x, struct pt_r_verdict *v)
{
	uint64_t data = x->wait_ns - x->text_ns - x->nameless_ns;
	double share = 100 * f->cause[PT_CAUSE_PAGE_FAULT];

	if (x->text_ns > data && x->text_ns > x->nameless_ns) {
		v->title = pt_sentence(an,
			"The GPU waits for page faults: %.0f %% of the data wait is workers "
			"fetching the code of programs and libraries from storage.",
			share);
		v->advice = "The program's own code was evicted from memory, or is read for "
			    "the first time: give the host or container more memory, put the "
			    "environment (Python and its libraries) on a faster disk, and "
			    "start workers once (persistent_workers=True).";
		return;
	}
	if (!data) {
		v->title = pt_sentence(an,
			"The GPU waits for page faults: %.0f %% of the data wait is workers "
			"touching mapped memory that has to come from storage.",
			share);
		v->advice = "Read the mapped data sequentially or ahead of time "
			    "(MADV_WILLNEED), leave the host enough memory to keep it in the "
			    "page cache, and check for swapping: random access to a mapped "
			    "file fetches it page by page.";
		return;
	}
	if (x->file && x->file->path)
		v->subject_file = pt_arena_strdup(an->a, x->file->path);
	v->title = pt_sentence(an,
		"The GPU waits for page faults: %.0f %% of the data wait is workers touching "
		"mapped files that have to come from storage%s.",
		share, (double)x->file_ns > PT_IO_ONE_FILE * (double)data ? ", most of it one file" : "");
	v->advice = pt_sentence(an,
		"Fetch the mapped data before it is touched (MADV_WILLNEED on what the next "
		"items need, or a read ahead of use), copy it to a faster disk or into "
		"memory, or leave the host enough memory to keep it in the page cache: each "
		"fault fetches %.0f KiB here, and the worker stands still meanwhile.",
		x->on.faults ? (double)x->on.bytes / (double)x->on.faults / 1024 : NAN);
	if (!x->on.faults)
		v->advice = "Fetch the mapped data before it is touched (MADV_WILLNEED on "
			    "what the next items need, or a read ahead of use), copy it to a "
			    "faster disk or into memory, or leave the host enough memory to "
			    "keep it in the page cache.";
}

/* Workers read mapped files that are not in memory: faults wait for storage. */
static int judge(struct pt_an *an, const struct pt_facts *f, struct pt_r_verdict *v)
{
	struct pt_fault_facts x;

	if (f->largest != PT_GROUP_IO || f->group[PT_GROUP_IO] < f->th->root_share ||
	    f->cause[PT_CAUSE_PAGE_FAULT] <= f->cause[PT_CAUSE_DISK])
		return 0;
	if (pt_fault_facts_of(an, f->t, &f->faults, &x))
		return -ENOMEM;
	evidence(an, f, &x, v);
	words(an, f, &x, v);
	pt_evidence_storage(an, f, v);
	pt_replayed_speedup(an, "no_disk_wait", v);
	return 1;
}

const struct pt_verdict pt_verdict_page_fault_io = { .asked = { { PT_V_WHAT, judge } },
	.lines = { PT_LINES_WORKERS, PT_LINES_STORAGE,
		   "the workers' storage waits" },
};
