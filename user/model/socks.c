/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/socks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/budget.h"
#include "model/internal.h"

/* ---- taking records in --------------------------------------------------- */

/* ::ffff:a.b.c.d is an IPv4 address. */
static bool mapped(const uint8_t a[16])
{
	static const uint8_t prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
					    0xff, 0xff };

	return !memcmp(a, prefix, sizeof(prefix));
}

static void take_address(uint8_t to[16], const uint8_t from[16], bool v4_in_v6)
{
	memset(to, 0, 16);
	memcpy(to, v4_in_v6 ? from + 12 : from, v4_in_v6 ? 4 : 16);
}

static void ends_of(const struct pt_rec_sock *r, struct pt_sock_ends *e)
{
	bool v4_in_v6 = r->family == PT_AF_INET6 && mapped(r->remote);

	memset(e, 0, sizeof(*e));
	e->family = (uint8_t)(v4_in_v6 ? PT_AF_INET : r->family);
	e->protocol = (uint8_t)r->protocol;
	take_address(e->local, r->local, v4_in_v6);
	take_address(e->remote, r->remote, v4_in_v6);
	e->local_port = r->local_port;
	e->remote_port = r->remote_port;
}

/* Of a trace that is too long to be held: later ones are one without an address. Parts
 * of the analysis name them by their number, so that none can go. */
#define PEERS_MAX 65536
/* More sockets are not held open for the next word of them. */
#define SOCKS_MAX 65536

static struct pt_peer *peer_of(struct pt_model *m, const struct pt_rec_sock *r,
			       const struct pt_sock_ends *e)
{
	struct pt_peer_key key;
	struct pt_peer *p;

	memset(&key, 0, sizeof(key));
	memcpy(key.address, e->remote, sizeof(key.address));
	key.port = e->remote_port;
	key.family = e->family;
	key.protocol = e->protocol;
	if (e->family == PT_AF_UNIX)
		memcpy(key.path, r->path, sizeof(key.path));
	HASH_FIND(hh, m->peers, &key, sizeof(key), p);
	if (!p && m->trimmed_ns && HASH_COUNT(m->peers) >= PEERS_MAX) {
		memset(&key, 0, sizeof(key));
		HASH_FIND(hh, m->peers, &key, sizeof(key), p);
	}
	if (p)
		return p;
	p = pt_held_new(&m->held.names, sizeof(*p));
	if (!p)
		return NULL;
	p->key = key;
	p->index = (uint32_t)HASH_COUNT(m->peers);
	HASH_ADD(hh, m->peers, key, sizeof(p->key), p);
	if (PT_HASHED(p))
		return p;
	pt_held_drop(&m->held.names, p, sizeof(*p));
	return NULL;
}

static bool is_outside(const struct pt_model *m, uint32_t tgid)
{
	const struct pt_proc *p = pt_model_proc(m, tgid);

	return p && p->outside;
}

/* Somebody of the target, or outside of it, listens on this port. */
static int note_listener(struct pt_model *m, uint32_t tgid, uint16_t port)
{
	uint8_t **map = &m->listening[is_outside(m, tgid)];

	if (!*map) {
		*map = pt_held_new(&m->held.tasks, 65536 / 8);
		if (!*map)
			return -ENOMEM;
	}
	(*map)[port / 8] |= (uint8_t)(1u << port % 8);
	return 0;
}

static bool listens(const struct pt_model *m, bool outside, uint16_t port)
{
	const uint8_t *map = m->listening[outside];

	return map && map[port / 8] & 1u << port % 8;
}

/* Two sockets that are each other's ends. */
static int pair_up(struct pt_model *m, struct pt_sock *s)
{
	struct pt_sock_ends turned = s->ends;
	struct pt_sock *o;

	if (s->ends.family == PT_AF_UNIX || !s->ends.remote_port)
		return 0;
	memcpy(turned.local, s->ends.remote, sizeof(turned.local));
	memcpy(turned.remote, s->ends.local, sizeof(turned.remote));
	turned.local_port = s->ends.remote_port;
	turned.remote_port = s->ends.local_port;
	HASH_FIND(by_ends, m->sock_ends, &turned, sizeof(turned), o);
	/* a service that is followed from outside is a peer all the same */
	if (o && is_outside(m, o->tgid) == is_outside(m, s->tgid))
		o->inside = s->inside = true;
	HASH_FIND(by_ends, m->sock_ends, &s->ends, sizeof(s->ends), o);
	if (o)
		return 0;
	HASH_ADD(by_ends, m->sock_ends, ends, sizeof(s->ends), s);
	return s->by_ends.tbl ? 0 : -ENOMEM;
}

static struct pt_sock *sock_new(struct pt_model *m, const struct pt_rec_sock *r,
				const struct pt_sock_ends *e,
				struct pt_sock *newer_than)
{
	struct pt_sock *s = pt_held_new(&m->held.time, sizeof(*s));

	if (!s)
		return NULL;
	s->inode = r->inode;
	s->ends = *e;
	s->tgid = pt_model_id(m, r->hdr.tgid);
	s->first = s->last = r->hdr.ts;
	s->peer = peer_of(m, r, e);
	if (!s->peer)
		goto failed;
	if (newer_than) {
		HASH_DELETE(hh, m->socks, newer_than);
		s->older = newer_than;
	}
	HASH_ADD(hh, m->socks, inode, sizeof(s->inode), s);
	if (!PT_HASHED(s)) {
		if (newer_than)
			HASH_ADD(hh, m->socks, inode, sizeof(s->inode),
				 newer_than);
		goto failed;
	}
	m->n_socks++;
	return s;
failed:
	pt_held_drop(&m->held.time, s, sizeof(*s));
	return NULL;
}

/* What a counter said, in order of time. */
static int add_reading(struct pt_model *m, struct pt_sock *s,
		       const struct pt_rec_sock *r)
{
	size_t i, cap;
	void *v;

	for (i = s->n_at; i && s->at[i - 1].ts >= r->hdr.ts; i--)
		if (s->at[i - 1].ts == r->hdr.ts)
			return 0;
	if (s->n_at == s->cap_at) { /* most have two or three */
		cap = s->cap_at ? 2 * (size_t)s->cap_at : 4;
		if (cap > UINT32_MAX)
			return -ENOMEM;
		v = realloc(s->at, cap * sizeof(*s->at));
		if (!v)
			return -ENOMEM;
		m->held.time += pt_chunk(cap * sizeof(*s->at)) -
				pt_chunk(s->cap_at * sizeof(*s->at));
		s->at = v;
		s->cap_at = (uint32_t)cap;
	}
	memmove(s->at + i + 1, s->at + i, (s->n_at - i) * sizeof(*s->at));
	s->at[i].ts = r->hdr.ts;
	s->at[i].received = r->received;
	s->n_at++;
	return 0;
}

/* One socket connected so often is looked through; behind that it is new. */
#define AGAIN_MAX 64

#define READINGS 64 /* so many of a socket may be from before a cut */

/* More a counter cannot have: 4 EiB. */
#define BYTES_MAX (1ull << 62)

int pt_feed_sock(struct pt_model *m, const struct pt_rec_sock *r)
{
	struct pt_sock *newest, *s;
	struct pt_sock_ends e;
	unsigned n = 0;

	if (r->family > 255 || !r->inode || r->opened > r->hdr.ts ||
	    r->connect_ns > r->hdr.ts ||
	    (r->received > BYTES_MAX && r->received != PT_SOCK_UNKNOWN))
		return -EINVAL;
	if (r->state == PT_TCP_LISTEN && r->protocol == PT_IPPROTO_TCP)
		return note_listener(m, pt_model_id(m, r->hdr.tgid),
				     r->local_port);
	ends_of(r, &e);
	HASH_FIND(hh, m->socks, &r->inode, sizeof(r->inode), newest);
	/* one socket can be connected again, to somebody else */
	for (s = newest; s && n < AGAIN_MAX; s = s->older, n++)
		if (!memcmp(&s->ends, &e, sizeof(e)))
			break;
	if (n == AGAIN_MAX)
		s = NULL;
	if (!s) {
		s = sock_new(m, r, &e, newest);
		if (!s)
			return -ENOMEM;
		if (pair_up(m, s))
			return -ENOMEM;
	}
	if (r->hdr.ts < s->first)
		s->first = r->hdr.ts;
	if (r->opened) {
		s->opened = r->opened;
		s->first = r->opened < s->first ? r->opened : s->first;
	}
	if (r->connect_ns)
		s->connect_ns = r->connect_ns;
	s->accepted |= (r->hdr.flags & PT_F_ACCEPTED) != 0;
	if (r->hdr.ts >= s->last) {
		s->last = r->hdr.ts;
		s->sent = r->sent;
		s->srtt_us = r->srtt_us;
		s->retransmits = r->retransmits;
		s->out_of_order = r->out_of_order;
		s->state = (uint8_t)r->state;
	}
	return r->received == PT_SOCK_UNKNOWN ? 0 : add_reading(m, s, r);
}

/* ---- asking ------------------------------------------------------------------ */

const struct pt_sock *pt_model_sock(const struct pt_model *m, uint64_t inode,
				    uint64_t ts)
{
	struct pt_sock *s;
	unsigned n;

	HASH_FIND(hh, m->socks, &inode, sizeof(inode), s);
	for (n = 0; s && s->older && s->first > ts && n < AGAIN_MAX; n++)
		s = s->older;
	return s;
}

bool pt_sock_inside(const struct pt_model *m, const struct pt_sock *s)
{
	return s->inside ||
	       (pt_sock_loopback(s) && s->ends.protocol == PT_IPPROTO_TCP &&
		listens(m, false, s->ends.remote_port));
}

bool pt_sock_accepted(const struct pt_model *m, const struct pt_sock *s)
{
	if (s->ends.family == PT_AF_UNIX)
		return s->accepted;
	return !s->opened && s->ends.protocol == PT_IPPROTO_TCP &&
	       listens(m, is_outside(m, s->tgid),
		       s->ends.local_port);
}

bool pt_sock_loopback(const struct pt_sock *s)
{
	static const uint8_t one[16] = { [15] = 1 };

	switch (s->ends.family) {
	case PT_AF_INET: return s->ends.remote[0] == 127;
	case PT_AF_INET6: return !memcmp(s->ends.remote, one, sizeof(one));
	default: return s->ends.family == PT_AF_UNIX;
	}
}

bool pt_sock_received(const struct pt_sock *s, uint64_t ts, double *bytes)
{
	/* a connection that was open before is counted from its first record */
	uint64_t from = s->opened && s->n_at ? 0 : s->n_at ? s->at[0].received : 0;
	uint64_t t0 = s->opened;
	double v0 = 0;
	size_t i;

	if (!s->n_at)
		return false;
	for (i = 0; i < s->n_at; i++) {
		double v = s->at[i].received > from ?
				   (double)(s->at[i].received - from) : 0;

		if (s->at[i].ts > ts) {
			*bytes = !t0 || ts <= t0 ? v0 :
				 v0 + (v - v0) * (double)(ts - t0) /
					      (double)(s->at[i].ts - t0);
			return true;
		}
		v0 = v;
		t0 = s->at[i].ts;
	}
	*bytes = v0;
	return true;
}

/* ---- names ------------------------------------------------------------------- */

/* `size`: 46 at least; IPv6 as RFC 5952 has it. */
static void address_text(const uint8_t *a, unsigned bytes, char *out, size_t size)
{
	if (!inet_ntop(bytes == 4 ? AF_INET : AF_INET6, a, out, (socklen_t)size))
		out[0] = '\0';
}

/* A Unix socket's path of at most `n` bytes; '@' for the NUL that begins an abstract name,
 * \xHH for what is not printable. `size`: 4 n + 1 at least. */
static void address_path(const char *path, size_t n, char *out, size_t size)
{
	size_t at = 0, i;

	while (n && !path[n - 1])
		n--;
	out[0] = 0;
	for (i = 0; i < n && at + 5 < size; i++) {
		unsigned char c = (unsigned char)path[i];

		if (!i && !c)
			out[at++] = '@'; /* an abstract name */
		else if (c > ' ' && c < 127 && c != '\\')
			out[at++] = (char)c;
		else
			at += (size_t)snprintf(out + at, size - at, "\\x%02x", c);
	}
	out[at] = 0;
}

void pt_peer_text(const struct pt_peer *p, char out[PT_PEER_TEXT])
{
	const uint8_t *a = p->key.address;

	switch (p->key.family) {
	case PT_AF_INET:
		address_text(a, 4, out, PT_PEER_TEXT);
		break;
	case PT_AF_INET6:
		address_text(a, 16, out, PT_PEER_TEXT);
		break;
	case PT_AF_UNIX:
		address_path(p->key.path, PT_SOCK_PATH, out, PT_PEER_TEXT);
		break;
	default:
		out[0] = 0;
	}
}

/* ---- memory ------------------------------------------------------------------- */

static void drop(struct pt_model *m, struct pt_sock *s)
{
	if (s->by_ends.tbl)
		HASH_DELETE(by_ends, m->sock_ends, s);
	pt_held_drop(&m->held.time, s->at, s->cap_at * sizeof(*s->at));
	pt_held_drop(&m->held.time, s, sizeof(*s));
	m->n_socks--;
}

static void drop_older(struct pt_model *m, struct pt_sock *s)
{
	struct pt_sock *o = s->older, *next;

	s->older = NULL;
	for (; o; o = next) {
		next = o->older;
		drop(m, o);
	}
}

/* Where there are many, but for the last one before. */
static void trim_readings(struct pt_sock *s, uint64_t before)
{
	uint32_t n = 0;

	while (s->n_at > READINGS && n + 1 < s->n_at && s->at[n + 1].ts < before)
		n++;
	s->n_at -= n;
	if (n)
		memmove(s->at, s->at + n, s->n_at * sizeof(*s->at));
}

void pt_trim_socks(struct pt_model *m, uint64_t before)
{
	bool many = m->n_socks > SOCKS_MAX;
	struct pt_sock *s, *tmp;

	HASH_ITER(hh, m->socks, s, tmp) {
		drop_older(m, s);
		trim_readings(s, before);
		if (s->last >= before || (s->state != 7 /* closed */ && !many))
			continue;
		HASH_DELETE(hh, m->socks, s);
		drop(m, s);
	}
}

void pt_socks_free(struct pt_model *m)
{
	struct pt_sock *s, *tmp;

	HASH_ITER(hh, m->socks, s, tmp) {
		HASH_DELETE(hh, m->socks, s);
		drop_older(m, s);
		drop(m, s);
	}
	pt_hash_free(m->peers);
	free(m->listening[0]);
	free(m->listening[1]);
}
