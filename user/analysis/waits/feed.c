/* SPDX-License-Identifier: BSD-2-Clause */
#include "analysis/waits/feed.h"

#include <errno.h>
#include <stdlib.h>

#include "model/socks.h"

/* A batch comes in smaller than it goes to the device: compressed images some 40 times
 * (1:10, then bytes to floats), text some 10. */
#define PACKED 200
/* Of what comes back from the device, what is sent on as it is. */
#define SENT_ON 0.5
/* Losses and counts come back, too: so many bytes are more. */
#define SENT_MIN (1 << 20)
/* Who fetches asks in fewer words than it is answered in, and text is packed this much. */
#define ASKED_PACKED 10
/* Bytes of an upload that are a learning rate or a few, and no sample of anything. */
#define NUMBERS 64
/* Of an upload, what one of many makers writes into memory that it shares with the consumer. */
#define MAKERS 16
/* Locks and flags take so many bytes, a page each, ... */
#define FLAGS_BYTES (4 * 4096)
/* ... and less than this part of an upload. */
#define FLAGS_PART 4

static void take_call(struct pt_feed *f, const struct pt_gpu_call *c)
{
	if (c->late) /* one a thread at most: it ran when the trace began */
		return;
	if (pt_brings_results(c))
		f->result_bytes += c->v[1];
	switch (c->cls) {
	case PT_API_COPY_SYNC:
	case PT_API_COPY_ASYNC:
		if (c->v[2] == PT_COPY_H2D) {
			f->up_bytes += c->v[1];
			f->ups++;
		} else if (c->v[2] == PT_COPY_D2H)
			f->down_bytes += c->v[1];
		else if (c->v[2] >= PT_COPY_ANY)
			f->known = false; /* the addresses decide */
		break;
	case PT_API_COPY_BATCH:
	case PT_API_PREFETCH:
	case PT_API_GRAPH_LAUNCH: /* it may hold copies */
		f->known = false;
		break;
	}
}

static bool is_little(const struct pt_feed *f, double in)
{
	return in * PACKED < (double)f->up_bytes;
}

static int sum_peers(const struct pt_model *m, struct pt_feed *f)
{
	const struct pt_sock *s, *o;
	size_t i, n = HASH_COUNT(m->peers);
	double in;

	f->peers = calloc(n + 1, sizeof(*f->peers));
	if (!f->peers)
		return -ENOMEM;
	for (s = m->socks; s; s = s->hh.next)
		for (o = s; o; o = o->older) {
			if (!o->peer || !pt_sock_received(o, o->last, &in))
				continue;
			f->peers[o->peer->index].in += in;
			if (o->sent != PT_SOCK_UNKNOWN)
				f->peers[o->peer->index].out += (double)o->sent;
		}
	for (i = 0; i < n; i++)
		if (is_little(f, f->peers[i].in))
			f->little += f->peers[i].in;
	return 0;
}

int pt_find_feed(const struct pt_model *m, const struct pt_proc *own, struct pt_feed *out)
{
	size_t i, k;

	*out = (struct pt_feed){ .known = true };
	for (k = 0; k < own->gpu.n; k++)
		take_call(out, &own->gpu.v[k]);
	out->own_bytes = out->up_bytes;
	for (i = 0; i < m->all_procs.n; i++) {
		const struct pt_proc *p = m->all_procs.v[i];

		for (k = 0; k < p->gpu.n && p != own; k++)
			take_call(out, &p->gpu.v[k]);
	}
	return sum_peers(m, out);
}

void pt_feed_free(struct pt_feed *f)
{
	free(f->peers);
}

bool pt_feeds_nothing(const struct pt_feed *f)
{
	return f->known && !f->up_bytes;
}

bool pt_feeds_numbers(const struct pt_feed *f)
{
	return f->known && f->up_bytes <= NUMBERS * f->ups;
}

bool pt_feeds_too_little(const struct pt_feed *f, uint64_t bytes)
{
	return f->known && is_little(f, (double)bytes);
}

/* The most pages of shared memory that it was seen to have, bytes; UINT64_MAX: nobody looked. */
static uint64_t shared_most(const struct pt_proc *p)
{
	uint64_t most = 0;

	pt_each(const struct pt_rec_sample, s, &p->samples)
		most = pt_max64(most, s->rss_shmem);
	return p->samples.n ? most : UINT64_MAX;
}

bool pt_may_share(const struct pt_feed *f, const struct pt_proc *maker,
		  const struct pt_proc *consumer)
{
	uint64_t a = shared_most(maker), b = shared_most(consumer), both = pt_min64(a, b);

	return maker != consumer && a != UINT64_MAX && b != UINT64_MAX && both > FLAGS_BYTES &&
	       both * MAKERS * f->ups >= f->up_bytes;
}

bool pt_shares_nothing(const struct pt_feed *f, const struct pt_proc *maker)
{
	uint64_t most = shared_most(maker);

	return most <= FLAGS_BYTES && most * FLAGS_PART * f->ups < f->up_bytes;
}

bool pt_sock_feeds_nothing(const struct pt_feed *f, const struct pt_sock *s)
{
	const struct pt_traffic *t;

	if (!f->known || !s || !s->peer || !s->ends.remote_port ||
	    (s->ends.family != PT_AF_INET && s->ends.family != PT_AF_INET6))
		return false;
	t = &f->peers[s->peer->index];
	if (pt_feeds_numbers(f))
		return true;
	if (is_little(f, t->in) && is_little(f, f->little))
		return true;
	return (t->out >= SENT_MIN && t->out >= SENT_ON * t->in &&
		(double)f->down_bytes >= SENT_ON * t->out) ||
	       (t->out >= t->in && t->in * ASKED_PACKED < (double)f->up_bytes &&
		(double)f->result_bytes >= SENT_ON * t->out);
}
