/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets and their peers: who is asked, what came, how soon; what is the job's
 * own; records that nobody would make. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/analysis.h"
#include "analysis/waits/feed.h"
#include "model/socks.h"
#include "stream_case.h"

#define T0 (1000 * ST_S)
#define P 500u
#define Q 600u
#define STORE 4 /* the last byte of a remote address */
#define NR_RECVFROM 45

static uint64_t at(uint64_t ms)
{
	return T0 + ms * ST_MS;
}

/* A connection to 10.0.0.4:9000 from port `port`. */
static struct pt_rec_sock *sock(struct stream *s, uint64_t ms, uint64_t inode,
				uint16_t port, uint64_t received)
{
	struct pt_rec_sock *r = (struct pt_rec_sock *)st_add(
		s, PT_REC_SOCK, sizeof(*r), at(ms), P, P);

	r->inode = inode;
	r->family = PT_AF_INET;
	r->protocol = PT_IPPROTO_TCP;
	r->state = 1;
	memcpy(r->local, "\x0a\0\0\1", 4);
	memcpy(r->remote, "\x0a\0\0", 3);
	r->remote[3] = STORE;
	r->local_port = port;
	r->remote_port = 9000;
	r->received = received;
	return r;
}

static struct pt_rec_off *wait_on(struct stream *s, uint32_t tid, uint64_t ms,
				  uint64_t end, uint64_t inode, uint16_t flags)
{
	struct pt_rec_off *o = st_sock(s, tid, tid, at(ms), at(end), at(end),
				       inode, 0, 0);

	o->syscall = NR_RECVFROM;
	o->hdr.flags |= flags;
	return o;
}

static void begin(struct stream *s)
{
	struct pt_rec_host *h;

	h = &st_add(s, PT_REC_HOST, sizeof(*h), T0, P, P)->host;
	h->cores = 4;
	h->target_pid = P;
	st_mark(s, T0, PT_MARK_BEGIN);
	st_task(s, T0, P, P, 1, "job");
	st_task(s, T0, Q, Q, P, "worker");
}

static struct pt_report *finish(struct stream *s, struct pt_model **m)
{
	st_preempted(s, P, P, at(998), at(999));
	st_mark(s, at(1000), PT_MARK_END);
	st_seal(s);
	return st_analyze(s, m);
}

static void done(struct stream *s, struct pt_model *m, struct pt_report *r)
{
	pt_report_free(r);
	pt_model_free(m);
	st_free(s);
}

static void near(double is, double should)
{
	if (!(fabs(is - should) <= 1e-9 + 1e-9 * fabs(should)))
		fail_msg("%.9g, not %.9g", is, should);
}

/* Two connections to one store, one of them open before: bytes, waits, answers. */
static void test_store(void **state)
{
	const struct pt_r_peer *p;
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s);
	sock(&s, 0, 71, 40001, 5000)->hdr.flags = PT_F_SINCE_UNKNOWN;
	sock(&s, 900, 71, 40001, 8000)->retransmits = 2;
	sock(&s, 101, 72, 40002, 0)->opened = at(100);
	sock(&s, 101, 72, 40002, 0)->connect_ns = ST_MS; /* the same again */
	sock(&s, 500, 72, 40002, 700)->opened = at(100);
	/* a request: two waits until its answer begins, one for the rest */
	wait_on(&s, P, 10, 20, 71, PT_F_AWAITED);
	wait_on(&s, P, 21, 31, 71, PT_F_AWAITED | PT_F_AGAIN);
	wait_on(&s, P, 32, 42, 71, 0);
	/* two requests, a wait each; not so long on the run queue */
	wait_on(&s, Q, 110, 115, 72, PT_F_AWAITED);
	wait_on(&s, Q, 120, 135, 72, PT_F_AWAITED)->hdr.ts = at(140);
	r = finish(&s, &m);
	assert_int_equal(r->n_peers, 1);
	p = &r->peers[0];
	assert_string_equal(p->address, "10.0.0.4");
	assert_string_equal(p->protocol, "tcp");
	assert_int_equal(p->port, 9000);
	assert_int_equal(p->connections, 2);
	assert_int_equal(p->opened, 1);
	assert_int_equal(p->bytes, 3000 + 700);
	near(p->rate_bps, 3700);
	near(p->wait_s, 0.050);
	near(p->first_byte_share, 0.8);
	assert_int_equal(p->first_byte_ms.n, 3);
	near(p->first_byte_ms.min, 5);
	near(p->first_byte_ms.p50, 15);
	near(p->first_byte_ms.max, 21);
	assert_int_equal(p->connect_ms.n, 1);
	near(p->connect_ms.max, 1);
	assert_int_equal(p->retransmits, 2);
	assert_int_equal(p->workers, 2);
	assert_int_equal(p->certainty, PT_MEASURED);
	done(&s, m, r);
}

/* A window takes its part of what came between two records. */
static void test_window(void **state)
{
	const struct pt_sock *k;
	struct stream s = { 0 };
	struct pt_model *m;
	struct pt_report *r;
	double b;

	(void)state;
	begin(&s);
	sock(&s, 500, 72, 40002, 400)->opened = at(100);
	sock(&s, 900, 72, 40002, 1400)->opened = at(100);
	r = finish(&s, &m);
	k = pt_model_sock(m, 72, at(500));
	assert_non_null(k);
	assert_true(pt_sock_received(k, at(50), &b));
	near(b, 0);
	assert_true(pt_sock_received(k, at(300), &b));
	near(b, 200);
	assert_true(pt_sock_received(k, at(700), &b));
	near(b, 900);
	assert_true(pt_sock_received(k, at(950), &b));
	near(b, 1400);
	assert_null(pt_model_sock(m, 73, at(500)));
	done(&s, m, r);
}

/* What the job is to itself, and who asks it, are no peers. */
static void test_inside(void **state)
{
	struct pt_rec_sock *k;
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;
	int i;

	(void)state;
	begin(&s);
	for (i = 0; i < 2; i++) { /* both ends of one */
		k = sock(&s, 10, 81 + (unsigned)i, i ? 9000 : 40001, 100);
		k->local[3] = k->remote[3] = 1;
		k->remote_port = i ? 40001 : 9000;
	}
	k = sock(&s, 10, 83, 8888, 0); /* listens */
	k->state = PT_TCP_LISTEN;
	k->remote_port = 0;
	sock(&s, 20, 84, 8888, 900);	/* a client of that */
	k = sock(&s, 20, 85, 40002, 50); /* asks that port on this machine */
	memcpy(k->remote, "\x7f\0\0\1", 4);
	k->remote_port = 8888;
	for (i = 86; i <= 87; i++) { /* Unix: a client, and a service that is asked */
		k = sock(&s, 20, (unsigned)i, 0, 0);
		k->family = PT_AF_UNIX;
		k->protocol = 0;
		k->received = k->sent = PT_SOCK_UNKNOWN;
		snprintf(k->path, sizeof(k->path), "/run/%d", i);
		k->hdr.flags |= i == 86 ? PT_F_ACCEPTED : 0;
	}
	for (i = 81; i <= 86; i++)
		wait_on(&s, P, 100u + 10 * (unsigned)i, 105u + 10 * (unsigned)i,
			(unsigned)i, 0);
	r = finish(&s, &m);
	assert_int_equal(r->n_peers, 1);
	assert_string_equal(r->peers[0].address, "/run/87");
	assert_true(pt_sock_accepted(m, pt_model_sock(m, 84, at(20))));
	assert_false(pt_sock_accepted(m, pt_model_sock(m, 81, at(20))));
	assert_true(pt_sock_accepted(m, pt_model_sock(m, 86, at(20))));
	assert_false(pt_sock_accepted(m, pt_model_sock(m, 87, at(20))));
	assert_true(pt_sock_inside(m, pt_model_sock(m, 81, at(20))));
	done(&s, m, r);
}

static void text_of(const char *address, size_t len, uint8_t family,
		    const char *path, size_t path_len, const char *should)
{
	struct pt_peer p = { .key = { .family = family } };
	char text[PT_PEER_TEXT];

	memcpy(p.key.address, address, len);
	memcpy(p.key.path, path, path_len);
	pt_peer_text(&p, text);
	assert_string_equal(text, should);
}

static void test_text(void **state)
{
	char long_name[PT_SOCK_PATH];

	(void)state;
#define V6(a, text) text_of(a, 16, PT_AF_INET6, "", 0, text)
	text_of("\xff\0\1\2", 4, PT_AF_INET, "", 0, "255.0.1.2");
	V6("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", "::1");
	V6("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "::");
	V6("\x20\1\x0d\xb8\0\0\0\0\0\1\0\0\0\0\0\0", "2001:db8:0:0:1::");
	V6("\x20\1\0\0\x0d\xb8\0\1\0\1\0\1\0\1\0\1", "2001:0:db8:1:1:1:1:1");
	V6("\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\1\0\2", "fe80::1:2");
	text_of("", 0, PT_AF_UNIX, "/run/x.sock", 11, "/run/x.sock");
	text_of("", 0, PT_AF_UNIX, "\0abs\n\x1b[", 7, "@abs\\x0a\\x1b[");
	memset(long_name, 0xff, sizeof(long_name));
	{
		struct pt_peer p = { .key = { .family = PT_AF_UNIX } };
		char text[PT_PEER_TEXT];

		memcpy(p.key.path, long_name, sizeof(long_name));
		pt_peer_text(&p, text);
		assert_int_equal(strlen(text), 4 * PT_SOCK_PATH);
	}
}

static void test_mapped(void **state)
{
	struct pt_rec_sock *k;
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s);
	k = sock(&s, 10, 71, 40001, 5);
	k->family = PT_AF_INET6;
	memcpy(k->remote, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\4", 16);
	sock(&s, 10, 72, 40002, 5);
	k = sock(&s, 10, 73, 40003, PT_SOCK_UNKNOWN);
	k->protocol = PT_IPPROTO_UDP;
	k->remote_port = 53;
	wait_on(&s, P, 20, 30, 73, 0);
	r = finish(&s, &m);
	assert_int_equal(r->n_peers, 2);
	assert_string_equal(r->peers[0].protocol, "udp"); /* was waited for */
	assert_int_equal(r->peers[0].bytes, PT_NULL);
	assert_true(isnan(r->peers[0].first_byte_share));
	assert_string_equal(r->peers[1].address, "10.0.0.4");
	assert_int_equal(r->peers[1].connections, 2);
	done(&s, m, r);
}

/* One socket that was connected to one after the other. */
static void test_again(void **state)
{
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;
	int i;

	(void)state;
	begin(&s);
	for (i = 0; i < 200; i++)
		sock(&s, 10 + (unsigned)i, 71, 40001, 5)->remote[3] = (uint8_t)i;
	wait_on(&s, P, 300, 310, 71, 0);
	r = finish(&s, &m);
	assert_true(r->n_peers > 0);
	assert_string_equal(r->peers[0].address, "10.0.0.199");
	near(r->peers[0].wait_s, 0.010);
	done(&s, m, r);
}

static void test_nonsense(void **state)
{
	struct pt_model *m = pt_model_new();
	struct pt_rec_sock k;

	(void)state;
	assert_non_null(m);
	memset(&k, 0, sizeof(k));
	k.hdr.size = sizeof(k);
	k.hdr.kind = PT_REC_SOCK;
	k.hdr.ts = T0;
	assert_int_equal(pt_model_feed(m, &k, sizeof(k)), -EINVAL); /* no inode */
	k.inode = 7;
	k.family = 1000;
	assert_int_equal(pt_model_feed(m, &k, sizeof(k)), -EINVAL);
	k.family = PT_AF_INET;
	k.opened = T0 + 1;
	assert_int_equal(pt_model_feed(m, &k, sizeof(k)), -EINVAL);
	k.opened = 0;
	k.received = UINT64_MAX - 1;
	assert_int_equal(pt_model_feed(m, &k, sizeof(k)), -EINVAL);
	k.received = 9;
	assert_int_equal(pt_model_feed(m, &k, sizeof(k)), 0);
	k.hdr.size = sizeof(k) - 1;
	assert_int_equal(pt_model_feed(m, &k, sizeof(k)), -EINVAL);
	pt_model_free(m);
}

/* The verdict names the peer, and which kind of slow it is. */
static void network(struct job *j, uint16_t flags)
{
	size_t i;

	for (i = 0; i < j->s.recs.n; i++) {
		union pt_rec_any *r = &j->s.recs.v[i].r;

		if (r->hdr.kind == PT_REC_OFF && r->off.obj_kind == PT_OBJ_SOCK)
			r->hdr.flags |= flags;
	}
	{
		struct pt_rec_sock *k = (struct pt_rec_sock *)st_add(
			&j->s, PT_REC_SOCK, sizeof(*k), JOB_BEGIN + 500 * ST_MS,
			JOB_TRAINER, JOB_TRAINER);

		k->inode = 888;
		k->family = PT_AF_INET;
		k->protocol = PT_IPPROTO_TCP;
		k->remote[0] = 10;
		k->remote_port = 443;
	}
}

static void late(struct job *j)
{
	network(j, PT_F_AWAITED);
}

static void narrow(struct job *j)
{
	network(j, 0);
}

static void verdict_of(void (*extra)(struct job *), const char *word)
{
	struct job_opts o = job_defaults();
	struct st_case c = { 0 };

	o.workers = 1;
	o.cores = 1;
	o.slices = 40;
	o.mix[JOB_NET] = 0.55;
	job_run(&c.j, &o);
	extra(&c.j);
	job_window(&c.j, JOB_BEGIN + 400 * ST_MS,
		   JOB_BEGIN + o.run_s_x10 * (ST_S / 10) - 100 * ST_MS);
	c.r = st_analyze(&c.j.s, &c.m);
	assert_string_equal(case_root(c.r), "network_bound");
	assert_string_equal(c.r->verdicts[0].subject_peer, "10.0.0.0:443");
	assert_non_null(strstr(c.r->verdicts[0].title, word));
	assert_true(c.r->n_peers == 1 && c.r->peers[0].data_wait_s > 0);
	case_close(&c);
}

static void test_verdict(void **state)
{
	(void)state;
	verdict_of(late, "to answer");
	verdict_of(narrow, "to send");
}

enum { H2H, H2D, D2H, D2D, ANY };

/* What goes to the devices is known, whatever else is copied, and though a copy was on its
 * way when the trace began; not where a copy does not say its direction. */
static void test_uploads(void **state)
{
	struct pt_report *r;
	struct pt_feed feed;
	struct pt_model *m;
	int unclear;

	(void)state;
	for (unclear = 0; unclear < 2; unclear++) {
		struct stream s = { 0 };

		begin(&s);
		st_gpu(&s, "cudaMemcpy", P, P, at(-5), at(5), 0, 1, 100, H2D);
		st_gpu(&s, "cudaMemcpy", P, P, at(10), at(11), 0, 1, 20, H2D);
		st_gpu(&s, "cudaMemcpy", Q, Q, at(10), at(11), 0, 1, 22, H2D);
		st_gpu(&s, "cudaMemcpy", P, P, at(12), at(13), 0, 1, 3, D2H);
		st_gpu(&s, "cudaMemcpy", P, P, at(14), at(15), 0, 1, 1000, D2D);
		st_gpu(&s, "cudaMemcpy", P, P, at(16), at(17), 0, 1, 1000, H2H);
		if (unclear)
			st_gpu(&s, "cudaMemcpy", P, P, at(18), at(19), 0, 1, 1, ANY);
		st_window(&s, T0, at(1000));
		r = finish(&s, &m);
		assert_true(pt_model_proc(m, P)->gpu.v[0].late);
		assert_int_equal(pt_find_feed(m, pt_model_proc(m, P), &feed), 0);
		assert_int_equal(feed.known, !unclear);
		assert_int_equal(feed.up_bytes, 42);
		assert_int_equal(feed.own_bytes, 20);
		assert_int_equal(feed.down_bytes, 3);
		pt_feed_free(&feed);
		done(&s, m, r);
	}
}

/* RssShmem of the process, as sampled; and the most counts. */
static void shares(struct stream *s, uint32_t pid, uint64_t most)
{
	st_add(s, PT_REC_SAMPLE, sizeof(struct pt_rec_sample), at(20), pid, pid)->sample.rss_shmem = most;
	st_add(s, PT_REC_SAMPLE, sizeof(struct pt_rec_sample), at(500), pid, pid)->sample.rss_shmem = 0;
}

#define UPLOAD (1u << 20)
#define SAMPLED_NOT UINT64_MAX

static void test_shared_memory(void **state)
{
	static const struct {
		uint64_t maker, consumer;
		bool may, nothing;
	} c[] = {
		{ UPLOAD, UPLOAD, true, false },
		{ UPLOAD / 16, UPLOAD, true, false }, /* one of many makers */
		{ UPLOAD, UPLOAD / 16, true, false },
		{ UPLOAD / 16 - 1, UPLOAD, false, false },
		{ UPLOAD, UPLOAD / 16 - 1, false, false },
		{ 16384, UPLOAD, false, true }, /* locks and flags */
		{ 16385, UPLOAD, false, false },
		{ 0, UPLOAD, false, true },
		{ UPLOAD, 0, false, false }, /* the device may fetch it */
		{ SAMPLED_NOT, UPLOAD, false, false },
		{ UPLOAD, SAMPLED_NOT, false, false },
	};
	struct pt_report *r;
	struct pt_model *m;
	struct pt_feed feed;
	struct stream s;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(c) / sizeof(*c); i++) {
		s = (struct stream){ 0 };
		begin(&s);
		st_gpu(&s, "cudaMemcpy", P, P, at(10), at(11), 0, 1, 2 * UPLOAD, H2D);
		st_gpu(&s, "cudaMemcpy", P, P, at(12), at(13), 0, 1, 0, H2D);
		if (c[i].maker != SAMPLED_NOT)
			shares(&s, Q, c[i].maker);
		if (c[i].consumer != SAMPLED_NOT)
			shares(&s, P, c[i].consumer);
		st_window(&s, T0, at(1000));
		r = finish(&s, &m);
		assert_int_equal(pt_find_feed(m, pt_model_proc(m, P), &feed), 0);
		assert_int_equal(pt_may_share(&feed, pt_model_proc(m, Q), pt_model_proc(m, P)),
				 c[i].may);
		assert_int_equal(pt_shares_nothing(&feed, pt_model_proc(m, Q)), c[i].nothing);
		assert_false(pt_may_share(&feed, pt_model_proc(m, P), pt_model_proc(m, P)));
		/* of an upload, a quarter and more may be one */
		feed.up_bytes = 2 * 4 * 16384;
		assert_int_equal(pt_shares_nothing(&feed, pt_model_proc(m, Q)),
				 c[i].nothing && c[i].maker < 16384);
		pt_feed_free(&feed);
		done(&s, m, r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_store),	 cmocka_unit_test(test_window),
		cmocka_unit_test(test_inside),	 cmocka_unit_test(test_text),
		cmocka_unit_test(test_mapped),	 cmocka_unit_test(test_again),
		cmocka_unit_test(test_nonsense), cmocka_unit_test(test_verdict),
		cmocka_unit_test(test_uploads), cmocka_unit_test(test_shared_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
