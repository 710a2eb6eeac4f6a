/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Network peers: what the job's threads waited for on the connections to one
 * address and port, what came from there, and how soon.
 *
 * First byte: from the moment at which a thread began to wait for the answer to
 * what it had written until the answer began to come. Answers that nobody had
 * to wait for are not among them.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/internal.h"
#include "model/socks.h"

#define MAX_PEERS 50

const struct pt_sock *pt_wait_sock(const struct pt_an *an, const struct pt_iv *iv)
{
	if (iv->obj_kind != PT_OBJ_SOCK || !an->m->socks)
		return NULL;
	return pt_model_sock(an->m, iv->object, iv->end);
}

bool pt_wait_inside(const struct pt_an *an, const struct pt_iv *iv)
{
	const struct pt_sock *s = pt_wait_sock(an, iv);
	const struct pt_proc *p;

	if (iv->sock & PT_IV_SOCK_INSIDE)
		return true;
	if (s && s->ends.family != PT_AF_UNIX)
		return pt_sock_inside(an->m, s);
	p = iv->valid_wake ? pt_model_proc(an->m, iv->waker_tgid) : NULL;
	return p && !p->outside;
}

static const struct pt_peer *peer_at(const struct pt_an *an, uint32_t index)
{
	const struct pt_peer *p;

	for (p = an->m->peers; p && p->index != index; p = p->hh.next)
		;
	return p;
}

const char *pt_peer_name(struct pt_an *an, uint32_t index)
{
	const struct pt_peer *p = peer_at(an, index);
	char text[PT_PEER_TEXT];

	if (!p)
		return NULL;
	pt_peer_text(p, text);
	if (!text[0])
		return p->key.family == PT_AF_VSOCK ? "vsock" : NULL;
	if (!p->key.port)
		return pt_arena_strdup(an->a, text);
	return pt_arena_printf(an->a, strchr(text, ':') ? "[%s]:%u" : "%s:%u",
			       text, (unsigned)p->key.port);
}

/* ---- sums --------------------------------------------------------------------- */

struct peer_sum {
	const struct pt_peer *peer;
	uint64_t wait_ns, awaited_ns, data_ns;
	double bytes;
	bool counted; /* bytes are known */
	bool guessed; /* some waits were an event loop's */
	uint64_t connections, opened, retransmits, out_of_order;
	uint32_t workers, last_tgid;
	uint64_t srtt_us, srtt_n;
	pt_doubles first_ms, connect_ms;
};

/* A peer that is asked: not who asks the job, nor the job itself. */
static struct peer_sum *sum_of(const struct pt_an *an, struct peer_sum *all,
			       const struct pt_sock *s)
{
	if (!s || pt_sock_inside(an->m, s) || pt_sock_accepted(an->m, s))
		return NULL;
	all[s->peer->index].peer = s->peer;
	return &all[s->peer->index];
}

struct answer { /* that a thread waits for */
	uint64_t inode, begin, end;
	struct peer_sum *sum;
};

static int answered(struct answer *a)
{
	struct peer_sum *p = a->sum;

	a->sum = NULL;
	if (!p)
		return 0;
	return pt_vec_push(&p->first_ms, pt_ms(a->end - a->begin));
}

static int sum_wait(const struct pt_an *an, struct peer_sum *all,
		    const struct pt_iv *iv, uint32_t tgid, struct answer *a)
{
	uint64_t ns = pt_overlap(an->t0, an->t1, iv->begin, iv->ready);
	struct peer_sum *p = sum_of(an, all, pt_wait_sock(an, iv));
	bool awaited = iv->sock & PT_IV_SOCK_AWAITED;
	int err = 0;

	if (!p)
		return 0;
	p->wait_ns += ns;
	if (awaited)
		p->awaited_ns += ns;
	if (iv->sock & PT_IV_SOCK_FIRST_READY)
		p->guessed = true;
	if (p->last_tgid != tgid)
		p->workers++;
	p->last_tgid = tgid;
	/* an event loop waits for more than one answer; a wait that is open, or
	 * was cut, has no length */
	if (!awaited || iv->sock & PT_IV_SOCK_FIRST_READY || iv->open ||
	    iv->since_unknown)
		return answered(a);
	if (a->sum && a->inode == iv->object && iv->sock & PT_IV_SOCK_AGAIN) {
		a->end = iv->ready;
		return 0;
	}
	err = answered(a);
	*a = (struct answer){ iv->object, iv->begin, iv->ready, p };
	return err;
}

static int sum_thread(const struct pt_an *an, struct peer_sum *all,
		      const struct pt_thread *th)
{
	struct answer a = { 0 };

	pt_each_iv(iv, th, an->t0, an->t1)
		if (iv->obj_kind == PT_OBJ_SOCK && iv->wait != PT_WAIT_RUNQ &&
		    sum_wait(an, all, iv, th->tgid, &a))
			return -ENOMEM;
	return answered(&a);
}

static int sum_proc(const struct pt_an *an, struct peer_sum *all,
		    const struct pt_proc *p)
{
	size_t i;
	int err = 0;

	for (i = 0; i < p->threads.n && !err; i++)
		err = sum_thread(an, all, p->threads.v[i]);
	return err;
}

static int sum_sock(const struct pt_an *an, struct peer_sum *all,
		    const struct pt_sock *s)
{
	bool open = s->state != 7;
	struct peer_sum *p;
	double b, e;

	if (s->first >= an->t1 || (!open && s->last < an->t0) ||
	    (!s->ends.remote_port && s->ends.family != PT_AF_UNIX &&
	     s->ends.family != PT_AF_VSOCK))
		return 0;
	p = sum_of(an, all, s);
	if (!p)
		return 0;
	p->connections++;
	if (pt_sock_received(s, an->t0, &b) && pt_sock_received(s, an->t1, &e)) {
		p->bytes += e - b;
		p->counted = true;
	}
	p->retransmits += s->retransmits;
	p->out_of_order += s->out_of_order;
	if (s->srtt_us) {
		p->srtt_us += s->srtt_us;
		p->srtt_n++;
	}
	if (s->opened < an->t0 || s->opened >= an->t1)
		return 0;
	p->opened++;
	return s->connect_ns ? pt_vec_push(&p->connect_ms, pt_ms(s->connect_ns)) : 0;
}

static void sum_charges(const struct pt_an *an, struct peer_sum *all, size_t n)
{
	size_t i;

	for (i = 0; an->top && i < an->top->charges.n; i++) {
		const struct pt_charge *c = &an->top->charges.v[i];

		if (c->peer && c->peer <= n)
			all[c->peer - 1].data_ns += c->ns;
	}
}

/* ---- the table ------------------------------------------------------------------ */

PT_ORDER(by_cost, struct peer_sum,
	 pt_cmp(y->data_ns, x->data_ns) ?: pt_cmp(y->wait_ns, x->wait_ns) ?:
	 pt_cmp(y->bytes, x->bytes) ?:
	 (x->peer && y->peer ? pt_cmp(x->peer->index, y->peer->index) : !x->peer - !y->peer))

static const char *protocol_of(const struct pt_peer_key *k)
{
	switch (k->family) {
	case PT_AF_UNIX: return "unix";
	case PT_AF_VSOCK: return "vsock";
	}
	return k->protocol == PT_IPPROTO_TCP ? "tcp" :
	       k->protocol == PT_IPPROTO_UDP ? "udp" : "other";
}

static int fill_address(struct pt_an *an, const struct pt_peer *p, struct pt_r_peer *o)
{
	char text[PT_PEER_TEXT];

	pt_peer_text(p, text);
	o->address = text[0] ? pt_arena_strdup(an->a, text) : NULL;
	o->protocol = protocol_of(&p->key);
	o->port = p->key.port ? p->key.port : PT_NULL;
	return text[0] && !o->address ? -ENOMEM : 0;
}

int pt_peer_row(struct pt_an *an, uint32_t index, struct pt_r_peer *o)
{
	const struct pt_peer *p = peer_at(an, index);

	return p ? fill_address(an, p, o) : 0;
}

static int fill_peer(struct pt_an *an, struct peer_sum *p, struct pt_r_peer *o)
{
	double wall = pt_sec(an->t1 - an->t0);

	if (fill_address(an, p->peer, o))
		return -ENOMEM;
	o->connections = (int64_t)p->connections;
	o->opened = (int64_t)p->opened;
	o->bytes = p->counted ? (int64_t)llround(p->bytes) : PT_NULL;
	o->rate_bps = p->counted && wall > 0 ? p->bytes / wall : NAN;
	o->wait_s = pt_sec(p->wait_ns);
	o->first_byte_share = p->wait_ns && p->counted ?
		(double)p->awaited_ns / (double)p->wait_ns : NAN;
	o->data_wait_s = an->top ? pt_sec(p->data_ns) : NAN;
	pt_dist_of(p->connect_ms.v, p->connect_ms.n, &o->connect_ms);
	pt_dist_of(p->first_ms.v, p->first_ms.n, &o->first_byte_ms);
	o->round_trip_ms = p->srtt_n ? (double)p->srtt_us /
				       (double)p->srtt_n / 1000 : NAN;
	o->retransmits = p->counted ? (int64_t)p->retransmits : PT_NULL;
	o->out_of_order = p->counted ? (int64_t)p->out_of_order : PT_NULL;
	o->workers = p->workers;
	o->certainty = p->guessed ? PT_ESTIMATED : PT_MEASURED;
	return 0;
}

int pt_fill_peers(struct pt_an *an)
{
	size_t n = HASH_COUNT(an->m->peers), i, k = 0;
	struct peer_sum *all = calloc(n + 1, sizeof(*all));
	struct pt_r_peer *o = pt_arena_calloc(an->a, MAX_PEERS, sizeof(*o));
	const struct pt_sock *s, *old;
	int err = all && o ? 0 : -ENOMEM;
	bool guessed = false;

	for (i = 0; i < an->m->all_procs.n && !err; i++)
		if (!an->m->all_procs.v[i]->outside)
			err = sum_proc(an, all, an->m->all_procs.v[i]);
	for (s = an->m->socks; s; s = s->hh.next)
		for (old = s; old && !err; old = old->older)
			err = sum_sock(an, all, old);
	if (!err)
		sum_charges(an, all, n);
	if (!err)
		qsort(all, n, sizeof(*all), by_cost);
	for (i = 0; i < n && k < MAX_PEERS && !err; i++) {
		if (!all[i].peer || (!all[i].connections && !all[i].wait_ns))
			continue;
		err = fill_peer(an, &all[i], &o[k++]);
		guessed |= all[i].guessed;
	}
	for (i = 0; all && i < n; i++) {
		pt_vec_free(&all[i].first_ms);
		pt_vec_free(&all[i].connect_ms);
	}
	free(all);
	an->r->peers = o;
	an->r->n_peers = err ? 0 : k;
	if (guessed && !err)
		err = pt_report_limit(an->r, "peers.wait_s", "A wait of an event loop (epoll) is charged to the connection that was ready first when it ended.");
	return err;
}
