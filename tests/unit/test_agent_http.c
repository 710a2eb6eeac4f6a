/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent's HTTP server: what requests say, who may come, pages and tokens. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "agent/http_int.h"

static void evidence_names(void **state)
{
	static const char *const bad[] = {
		"",	      ".json",	      "a",	   "a.json.", "a.jsonx",
		"../a.json",  "a/b.json",     "A.json",	   "a.JSON",  "%61.json",
		"a b.json",   "a.json\n",     "\xc3.json", "a.html/", "a..html",
		"/etc/passwd", "a.ptrace.json", "a_b.json",  ".",	    "..",
	};
	char long_name[PT_HTTP_ID_MAX + 16];
	size_t i;

	(void)state;
	assert_int_equal(pt_http_evidence("20260101-abc.json"), PT_FILE_JSON);
	assert_int_equal(pt_http_evidence("0.html"), PT_FILE_HTML);
	assert_int_equal(pt_http_evidence("z-.ptrace"), PT_FILE_PTRACE);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(pt_http_evidence(bad[i]), PT_FILE_NONE);
	memset(long_name, 'a', sizeof(long_name));
	strcpy(long_name + PT_HTTP_ID_MAX, ".json");
	assert_int_equal(pt_http_evidence(long_name), PT_FILE_JSON);
	strcpy(long_name + PT_HTTP_ID_MAX, "a.json");
	assert_int_equal(pt_http_evidence(long_name), PT_FILE_NONE);
}

static void bearer_tokens(void **state)
{
	(void)state;
	assert_true(pt_http_bearer("Bearer abc", "abc", 3));
	assert_true(pt_http_bearer("bearer  abc", "abc", 3));
	assert_false(pt_http_bearer(NULL, "abc", 3));
	assert_false(pt_http_bearer("", "abc", 3));
	assert_false(pt_http_bearer("abc", "abc", 3));
	assert_false(pt_http_bearer("Basic abc", "abc", 3));
	assert_false(pt_http_bearer("Bearer ", "abc", 3));
	assert_false(pt_http_bearer("Bearer ab", "abc", 3));
	assert_false(pt_http_bearer("Bearer abcabc", "abc", 3));
	assert_false(pt_http_bearer("Bearer abc ", "abc", 3));
	assert_false(pt_http_bearer("Bearer abd", "abc", 3));
	/* no token could be read: nobody is let in */
	assert_false(pt_http_bearer("Bearer ", "", 0));
	assert_false(pt_http_bearer("Bearer abc", "", 0));
}

static void accepted_formats(void **state)
{
	static const char prometheus[] =
		"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

	(void)state;
	assert_true(pt_http_wants_openmetrics(prometheus));
	assert_true(pt_http_wants_openmetrics("Application/OpenMetrics-Text"));
	assert_false(pt_http_wants_openmetrics(NULL));
	assert_false(pt_http_wants_openmetrics("*/*"));
	assert_false(pt_http_wants_openmetrics("text/plain, application/openmetrics-text;q=0.3"));
	assert_false(pt_http_wants_openmetrics("application/openmetrics-text;q=0"));
	assert_false(pt_http_wants_openmetrics("application/openmetrics-textile"));
	assert_true(pt_http_weight("deflate, gzip;q=0.5", "gzip") == 0.5);
	assert_true(pt_http_weight("gzip ; q=0.25", "gzip") == 0.25);
	assert_true(pt_http_weight("gzip;q=0.000", "gzip") == 0);
	assert_true(pt_http_weight("gzip;q=x", "gzip") == 0);
	assert_true(pt_http_weight("gzip;q", "gzip") == 1);
	assert_true(pt_http_weight("gzip;", "gzip") == 1);
	assert_true(pt_http_weight("xgzip", "gzip") == -1);
	assert_true(pt_http_weight(",,, ,;q=1,", "gzip") == -1);
}

static void addresses(void **state)
{
	static const char *const bad[] = {
		"",	     "localhost:80", "127.0.0.1",    ":80", "127.0.0.1:",
		"1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4: 80", "[::1]", "::1:80",
		"[::1:80",   "1.2.3.4:80x", "[]:80", "1.2.3.4:99999999999999999999",
	};
	struct sockaddr_storage sa;
	socklen_t len;
	size_t i;

	(void)state;
	assert_int_equal(pt_http_address("127.0.0.1:9100", &sa, &len), 0);
	assert_int_equal(sa.ss_family, AF_INET);
	assert_int_equal(ntohs(((struct sockaddr_in *)&sa)->sin_port), 9100);
	assert_int_equal(pt_http_address("[::1]:0", &sa, &len), 0);
	assert_int_equal(sa.ss_family, AF_INET6);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(pt_http_address(bad[i], &sa, &len), -EINVAL);
}

static void who_of(const char *addr, uint64_t who[2])
{
	struct sockaddr_storage sa;
	socklen_t len;

	assert_int_equal(pt_http_address(addr, &sa, &len), 0);
	pt_http_who((struct sockaddr *)&sa, len, who);
}

static void clients_apart(void **state)
{
	uint64_t a[2], b[2];

	(void)state;
	who_of("10.0.0.1:1", a);
	who_of("10.0.0.1:2", b);
	assert_memory_equal(a, b, sizeof(a));
	who_of("[::ffff:10.0.0.1]:1", b);
	assert_memory_equal(a, b, sizeof(a));
	who_of("10.0.0.2:1", b);
	assert_memory_not_equal(a, b, sizeof(a));
	who_of("[2001:db8:1:2:3::4]:1", a);
	who_of("[2001:db8:1:2:ffff::9]:1", b); /* whoever has one has them all */
	assert_memory_equal(a, b, sizeof(a));
	who_of("[2001:db8:1:3::4]:1", b);
	assert_memory_not_equal(a, b, sizeof(a));
}

struct pairs {
	struct pt_http_clients all;
	int other[2 * PT_HTTP_CONNECTIONS];
	struct pt_http_client *client[2 * PT_HTTP_CONNECTIONS];
	size_t n;
};

static bool come(struct pairs *p, uint64_t who, double now)
{
	uint64_t w[2] = { 4, who };
	int s[2];

	if (!pt_http_clients_room(&p->all, w))
		return false;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s), 0);
	p->other[p->n] = s[1];
	p->client[p->n] = pt_http_clients_add(&p->all, w, s[0], now);
	assert_non_null(p->client[p->n]);
	p->n++;
	return true;
}

/* As libmicrohttpd does it once it sees that a socket was shut down. */
static void sweep(struct pairs *p)
{
	size_t i;

	for (i = 0; i < p->n; i++) {
		struct pt_http_client *c = p->client[i];

		if (!c || !c->doomed)
			continue;
		assert_int_equal(read(p->other[i], &(char){ 0 }, 1), 0);
		close(p->other[i]);
		close(c->fd);
		pt_http_clients_remove(&p->all, c);
		p->client[i] = NULL;
	}
}

static void end(struct pairs *p)
{
	size_t i;

	for (i = 0; i < p->n; i++) {
		if (!p->client[i])
			continue;
		close(p->other[i]);
		close(p->client[i]->fd);
		pt_http_clients_remove(&p->all, p->client[i]);
	}
	assert_int_equal(p->all.n, 0);
	assert_int_equal(p->all.doomed, 0);
	assert_null(p->all.newest);
	free(p);
}

/* Who holds connections keeps nobody out, itself neither. */
static void room_for_all(void **state)
{
	struct pairs *p = calloc(1, sizeof(*p));
	size_t i;

	(void)state;
	assert_non_null(p);
	for (i = 0; i < PT_HTTP_PER_CLIENT; i++)
		assert_true(come(p, 1, 0));
	assert_true(come(p, 1, 1)); /* the oldest makes room */
	assert_true(p->client[0]->doomed);
	assert_int_equal(p->all.n, PT_HTTP_PER_CLIENT);
	sweep(p);
	/* Those that are answered stay, and then there is no room. */
	for (i = 1; i <= PT_HTTP_PER_CLIENT; i++)
		pt_http_client_answers(p->client[i], 0, 1);
	assert_false(come(p, 1, 1));
	assert_true(come(p, 2, 1));
	pt_http_client_answered(p->client[5], 2);
	assert_true(come(p, 1, 2));
	assert_true(p->client[5]->doomed);
	sweep(p);
	/* Many clients: all are taken, and the greatest has to give. */
	for (i = 0; p->all.n < PT_HTTP_CONNECTIONS; i++)
		assert_true(come(p, 100 + i / 2, 3));
	assert_true(come(p, 3, 3));
	assert_int_equal(p->all.n, PT_HTTP_CONNECTIONS);
	assert_int_equal(p->all.doomed, 1);
	assert_true(p->client[PT_HTTP_PER_CLIENT + 2]->doomed); /* of client 1 */
	end(p);
}

static void time_is_over(void **state)
{
	struct pairs *p = calloc(1, sizeof(*p));

	(void)state;
	assert_non_null(p);
	assert_true(come(p, 1, 100));
	assert_true(come(p, 1, 100));
	assert_int_equal(pt_http_clients_expire(&p->all, 100 + PT_HTTP_ASK_S - 1), 0);
	pt_http_client_answers(p->client[0], 10 * PT_HTTP_SLOWEST, 109);
	assert_int_equal(pt_http_clients_expire(&p->all, 100 + PT_HTTP_ASK_S), 1);
	assert_true(p->client[1]->doomed);
	assert_int_equal(
		pt_http_clients_expire(&p->all, 109 + PT_HTTP_ANSWER_S + 9), 0);
	pt_http_client_answered(p->client[0], 120);
	assert_int_equal(
		pt_http_clients_expire(&p->all, 120 + PT_HTTP_IDLE_S - 1), 0);
	assert_int_equal(pt_http_clients_expire(&p->all, 120 + PT_HTTP_IDLE_S), 1);
	assert_int_equal(pt_http_clients_expire(&p->all, 1e9), 0); /* but once */
	end(p);
}

static void write_file(const char *path, const char *text, size_t len)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	fclose(f);
}

static void token_files(void **state)
{
	char path[] = "/tmp/pt-token-XXXXXX", lots[PT_HTTP_TOKEN_MAX + 8];
	struct pt_http_token t = { .path = path };

	(void)state;
	close(mkstemp(path));
	assert_int_equal(pt_http_token_look(&t, 1, true), -EINVAL); /* empty */
	write_file(path, "secret\r\n", 8);
	assert_int_equal(pt_http_token_look(&t, 2, true), 0);
	assert_int_equal(t.len, 6);
	assert_memory_equal(t.text, "secret", 6);
	write_file(path, "other", 5);
	assert_int_equal(pt_http_token_look(&t, 2.5, false), 0);
	assert_memory_equal(t.text, "secret", 6); /* once a second */
	assert_int_equal(pt_http_token_look(&t, 3.5, false), 0);
	assert_int_equal(t.len, 5);
	assert_memory_equal(t.text, "other", 5);
	write_file(path, "two lines\nhere", 14);
	assert_int_equal(pt_http_token_look(&t, 5, false), -EINVAL);
	assert_int_equal(t.len, 0);
	memset(lots, 'x', sizeof(lots));
	write_file(path, lots, sizeof(lots));
	assert_int_equal(pt_http_token_look(&t, 7, false), -EFBIG);
	assert_int_equal(t.len, 0);
	unlink(path);
	assert_int_equal(pt_http_token_look(&t, 9, false), -ENOENT);
	assert_int_equal(t.len, 0);
}

static void refused_starts(void **state)
{
	static const struct {
		struct pt_http_options o;
		const char *why;
	} bad[] = {
		{ { .listen = "nowhere" }, "nowhere is no address" },
		{ { .listen = NULL }, "there is no address" },
		{ { .listen = "192.0.2.1:1" }, "cannot listen on 192.0.2.1:1" },
		{ { .listen = "127.0.0.1:0", .cert = "x" }, "TLS needs" },
		{ { .listen = "127.0.0.1:0", .cert = "/x", .key = "/y" },
		  "cannot read /x" },
		{ { .listen = "127.0.0.1:0", .cert = "/dev/null", .key = "/y" },
		  "cannot read /dev/null" },
		{ { .listen = "127.0.0.1:0", .cert = "/etc/passwd",
		    .key = "/etc/passwd" },
		  "cannot be used" },
		{ { .listen = "127.0.0.1:0", .token_file = "/x" }, "no token in /x" },
		{ { .listen = "127.0.0.1:0", .evidence = "/x" },
		  "cannot open the directory /x" },
	};
	struct pt_http *h;
	char why[200];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		*why = '\0';
		assert_true(pt_http_start(&bad[i].o, &h, why, sizeof(why)) < 0);
		assert_null(h);
		if (!strstr(why, bad[i].why))
			fail_msg("\"%s\" instead of \"%s\"", why, bad[i].why);
	}
	pt_http_stop(NULL);
}

/* Pages are replaced while nobody and somebody reads them. */
static void published(void **state)
{
	struct pt_http_options o = { .listen = "127.0.0.1:0" };
	struct sockaddr_storage sa;
	socklen_t len;
	struct pt_http *h;
	char why[200], buf[4096], addr[40];
	size_t i, n;
	ssize_t got;
	int s;

	(void)state;
	assert_int_equal(pt_http_start(&o, &h, why, sizeof(why)), 0);
	snprintf(addr, sizeof(addr), "127.0.0.1:%u", pt_http_port(h));
	assert_int_equal(pt_http_address(addr, &sa, &len), 0);
	assert_int_equal(pt_http_publish(h, PT_PAGE_METRICS, NULL, 0), -ENOMEM);
	for (i = 0; i < 3; i++) {
		s = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(connect(s, (struct sockaddr *)&sa, len), 0);
		assert_int_equal(write(s, "GET /metrics HTTP/1.0\r\n\r\n", 25), 25);
		for (n = 0; (got = read(s, buf + n, sizeof(buf) - 1 - n)) > 0;)
			n += (size_t)got;
		buf[n] = '\0';
		close(s);
		if (!i)
			assert_non_null(strstr(buf, " 503 "));
		else
			assert_non_null(strstr(buf, i == 1 ? "\r\n\r\none" : "\r\n\r\ntwo"));
		assert_int_equal(pt_http_publish(h, PT_PAGE_METRICS,
						 strdup(i ? "two" : "one"), 3),
				 0);
	}
	pt_http_stop(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(evidence_names),
		cmocka_unit_test(bearer_tokens),
		cmocka_unit_test(accepted_formats),
		cmocka_unit_test(addresses),
		cmocka_unit_test(clients_apart),
		cmocka_unit_test(room_for_all),
		cmocka_unit_test(time_is_over),
		cmocka_unit_test(token_files),
		cmocka_unit_test(refused_starts),
		cmocka_unit_test(published),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
