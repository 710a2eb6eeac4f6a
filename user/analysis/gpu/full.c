/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Launches that have to wait for room show a device at work, in a loop that never
 * synchronises, too: its queue is full then. Between two such moments with fewer
 * launches than the queue holds it cannot have run dry: it has finished no more
 * than was launched meanwhile.
 */

#include "analysis/gpu/passes.h"
#include "analysis/waits/look.h"

/* A stream takes about 1,024 launches before one waits; a quarter of it is certain. */
#define QUEUE_MIN 256
/* Shorter sleeps in a launch may be for a lock of the driver's. */
#define FULL_MIN_NS 50000ull

struct full {
	struct pt_trainer *t;
	pt_spans *busy;
	struct pt_span last; /* sleep for room; begin 0: none */
};

static size_t launches_in(const struct pt_proc *p, uint64_t b, uint64_t e)
{
	return pt_gpu_after(p, e) - pt_gpu_after(p, b);
}

static int add_piece(struct full *k, const struct pt_host_piece *x)
{
	struct pt_span now = { x->begin, x->end }, between;

	if (x->what != PT_HOST_LAUNCHING || !x->iv ||
	    now.end - now.begin < FULL_MIN_NS)
		return 0;
	between = (struct pt_span){ k->last.begin, now.end };
	if (!k->last.begin ||
	    launches_in(k->t->proc, k->last.end, now.begin) > QUEUE_MIN)
		between.begin = now.begin;
	k->last = now;
	return pt_vec_push(k->busy, between);
}

int pt_full_queue(struct pt_trainer *t, pt_spans *busy)
{
	const struct pt_host *h = t->look ? &t->look->host : NULL;
	struct full k = { .t = t, .busy = busy };
	size_t i;
	int err = 0;

	if (!h) /* another process on the device: only its calls are known */
		return 0;
	for (i = 0; i < h->pieces.n && !err; i++)
		err = add_piece(&k, &h->pieces.v[i]);
	return err;
}
