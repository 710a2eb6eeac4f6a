/* SPDX-License-Identifier: BSD-2-Clause */
/* What stands behind waits for files: which storage, and how it answers. */
#include <math.h>
#include <string.h>

#include "analysis/io/disks.h"
#include "analysis/verdicts/verdict.h"

/* Of fewer requests a latency tells nothing. */
#define MIN_REQUESTS 16

/* Waits for files of this class, share of the data wait. */
static double class_share(const struct pt_an *an, const char *cls)
{
	const struct pt_r_data_wait *w = &an->r->data_wait;
	double sum = 0;
	size_t i;

	for (i = 0; i < w->n_causes; i++)
		if (w->causes[i].fs_class && !strcmp(w->causes[i].fs_class, cls))
			sum += w->causes[i].share;
	return sum;
}

static void add_disk(const struct pt_r_disk *d, struct pt_r_verdict *v)
{
	pt_evidence_add(v, "disk.read_latency_ms.mean", d->read_latency_ms.mean,
			"ms", NAN, PT_MEASURED);
	pt_evidence_add(v, "disk.read_latency_ms.p99", d->read_latency_ms.p99,
			"ms", NAN, PT_BOUNDED);
	pt_evidence_add(v, "disk.queue_depth.mean", d->depth_mean, "requests",
			NAN, PT_MEASURED);
	if (!isnan(d->busy_share))
		pt_evidence_add(v, "disk.busy_share", d->busy_share, "share",
				NAN, PT_MEASURED);
}

void pt_evidence_storage(struct pt_an *an, struct pt_r_verdict *v)
{
	const struct pt_r_disk *d = pt_main_disk(an);
	double network = class_share(an, "network"), user = class_share(an, "user");

	if (network > 0)
		pt_evidence_add(v, "data_wait.network_fs_share", network, "share",
				NAN, PT_MEASURED);
	if (user > 0)
		pt_evidence_add(v, "data_wait.fuse_share", user, "share", NAN,
				PT_MEASURED);
	/* of a disk that was waited for, or that nothing else is known of */
	if (d && d->reads >= MIN_REQUESTS && class_share(an, "local") >= network + user)
		add_disk(d, v);
}
