/* SPDX-License-Identifier: BSD-2-Clause */
/* What the doors to read calls and page faults did not show. */
#include "analysis/internal.h"

uint64_t pt_missed_read_bytes(const struct pt_an *an)
{
	uint64_t bytes = 0;

	pt_each(const struct pt_rec_missed, r, &an->m->missed)
		if (r->what == PT_MISSED_READS && pt_missed_in(an, r))
			bytes += r->bytes;
	return bytes;
}

void pt_count_reads(const struct pt_an *an, struct pt_read_calls *out)
{
	size_t i;

	for (i = 0; i < an->m->all_threads.n; i++) {
		const struct pt_thread *th = an->m->all_threads.v[i];

		pt_each(const struct pt_read, r, &th->reads) {
			if (r->end < an->t0 || r->end > an->t1)
				continue;
			out->all += r->count;
			out->bound += r->bound ? r->count : 0;
		}
	}
}

static void limit_faults(struct pt_an *an)
{
	switch (an->m->host.fault_door) {
	case PT_FAULT_DOOR_NONE:
		pt_report_limit(an->r, "files.faults", "Page faults on mapped files were not "
						       "traced: their time is known, but not "
						       "the file or the bytes.");
		break;
	case PT_FAULT_DOOR_ADDS:
		pt_report_limit(an->r, "files.faults", "Only page faults that brought in "
						       "pages outside a system call were "
						       "traced: other waits for pages have no "
						       "file.");
		break;
	}
}

void pt_limit_reads(struct pt_an *an, const struct pt_read_calls *calls)
{
	if (!an->m->host_known)
		return;
	limit_faults(an);
	if (an->m->host.read_more & 1u << PT_DOOR_AIO) {
		pt_report_limit(an->r, "reads", "For reads that libaio makes with O_DIRECT "
						"the bytes are an upper bound.");
		return;
	}
	switch (an->m->host.read_door) {
	case PT_DOOR_PAGES:
		if (calls->bound)
			pt_report_limit(an->r, "reads", "Reads were counted by their pages in the page cache: they have no duration, those with O_DIRECT, of tmpfs and at a file's end are not seen, and the bytes of %llu of %llu are an upper bound.",
					(unsigned long long)calls->bound,
					(unsigned long long)calls->all);
		else
			pt_report_limit(an->r, "reads", "Reads were counted by their pages in the page cache: they have no duration, and those with O_DIRECT, of tmpfs and at a file's end are not seen.");
		break;
	case PT_DOOR_KPROBE:
		pt_report_limit(an->r, "reads", "Reads that libaio makes are not counted; calls whose return the kernel did not keep, because too many were blocked at once, count as lost.");
		break;
	case PT_DOOR_FEXIT:
	case PT_DOOR_SYSCALL:
		pt_report_limit(an->r, "reads", "Reads that libaio makes are not counted.");
		break;
	}
}
