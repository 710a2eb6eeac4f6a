/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Print the waits of a stored record stream, one per line: tgid tid, begin in ns
 * (CLOCK_MONOTONIC), length in us, wait and wake as numbers (model/timeline.h), whether the waker did it, its tgid
 * and tid, both calls and objects, and what the wake-up was made in.
 *
 *   dump_waits STREAM [blind]
 *
 * blind: as on a kernel that does not tell what a wake-up was made in.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/classify.h"
#include "store/rawstream.h"

static void print(const struct pt_rec_off *r)
{
	enum pt_wait w = pt_classify(r);
	bool valid;
	enum pt_wake k = pt_wake_of(r, &valid);
	uint64_t until = r->wake_ts ? r->wake_ts : r->hdr.ts;

	if (w == PT_WAIT_RUNQ)
		return;
	printf("%u %u %" PRIu64 " %" PRIu64 " %d %d %d %u %u %d %d %u %" PRIx64 " %u %" PRIx64 " %x %d %x\n",
	       r->hdr.tgid, r->hdr.tid, (uint64_t)r->off_ts, (uint64_t)((until - r->off_ts) / 1000),
	       w, k, valid, r->waker_tgid, r->waker_tid, r->syscall,
	       r->waker_syscall, r->obj_kind, (uint64_t)r->object,
	       r->waker_obj_kind, (uint64_t)r->waker_object, r->waker_in,
	       r->state, r->hdr.flags);
}

int main(int argc, char **argv)
{
	struct pt_raw_reader r;
	FILE *f = argc >= 2 ? fopen(argv[1], "re") : NULL;
	bool blind = argc == 3 && !strcmp(argv[2], "blind");
	int n;

	if (!f || pt_raw_open(&r, f)) {
		fprintf(stderr, "usage: dump_waits STREAM\n");
		return 2;
	}
	while ((n = pt_raw_next(&r)) > 0) {
		struct pt_rec_off o;

		if (r.rec.hdr.kind != PT_REC_OFF || (size_t)n < sizeof(o))
			continue;
		memcpy(&o, r.rec.bytes, sizeof(o));
		if (blind)
			o.waker_in = 0;
		print(&o);
	}
	fclose(f);
	return n < 0;
}
