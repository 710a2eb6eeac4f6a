/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/http_clients.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

void pt_http_who(const struct sockaddr *sa, socklen_t len, uint64_t who[2])
{
	who[0] = who[1] = 0;
	if (sa->sa_family == AF_INET && len >= sizeof(struct sockaddr_in)) {
		who[0] = 4;
		who[1] = ((const struct sockaddr_in *)sa)->sin_addr.s_addr;
	} else if (sa->sa_family == AF_INET6 && len >= sizeof(struct sockaddr_in6)) {
		const struct in6_addr *a =
			&((const struct sockaddr_in6 *)sa)->sin6_addr;

		if (IN6_IS_ADDR_V4MAPPED(a)) {
			uint32_t v4;

			memcpy(&v4, a->s6_addr + 12, sizeof(v4));
			who[0] = 4;
			who[1] = v4;
		} else {
			who[0] = 6;
			memcpy(&who[1], a->s6_addr, sizeof(who[1]));
		}
	}
}

static bool same(const uint64_t a[2], const uint64_t b[2])
{
	return a[0] == b[0] && a[1] == b[1];
}

static void doom(struct pt_http_clients *all, struct pt_http_client *c)
{
	shutdown(c->fd, SHUT_RDWR);
	c->doomed = true;
	all->n--;
	all->doomed++;
}

/* How many `who` has, and its oldest that waits for no answer (NULL: none). */
static unsigned held(const struct pt_http_clients *all, const uint64_t who[2],
		     struct pt_http_client **oldest)
{
	struct pt_http_client *c;
	unsigned n = 0;

	*oldest = NULL;
	for (c = all->newest; c; c = c->next) {
		if (c->doomed || !same(c->who, who))
			continue;
		n++;
		if (!c->answering)
			*oldest = c;
	}
	return n;
}

/* Of the client that holds the most and has one that can go. */
static struct pt_http_client *of_the_greatest(const struct pt_http_clients *all)
{
	struct pt_http_client *c, *oldest, *found = NULL;
	unsigned n, most = 0;

	for (c = all->newest; c; c = c->next) {
		if (c->doomed)
			continue;
		n = held(all, c->who, &oldest);
		if (oldest && n > most) {
			most = n;
			found = oldest;
		}
	}
	return found;
}

bool pt_http_clients_room(struct pt_http_clients *all, const uint64_t who[2])
{
	struct pt_http_client *oldest;

	if (held(all, who, &oldest) >= PT_HTTP_PER_CLIENT) {
		if (!oldest || all->doomed >= PT_HTTP_DOOMED)
			return false;
		doom(all, oldest);
	} else if (all->n >= PT_HTTP_CONNECTIONS) {
		oldest = of_the_greatest(all);
		if (!oldest || all->doomed >= PT_HTTP_DOOMED)
			return false;
		doom(all, oldest);
	}
	return true;
}

struct pt_http_client *pt_http_clients_add(struct pt_http_clients *all,
					   const uint64_t who[2], int fd, double now)
{
	struct pt_http_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->who[0] = who[0];
	c->who[1] = who[1];
	c->fd = fd;
	c->deadline = now + PT_HTTP_ASK_S;
	c->next = all->newest;
	c->link = &all->newest;
	if (c->next)
		c->next->link = &c->next;
	all->newest = c;
	all->n++;
	return c;
}

void pt_http_clients_remove(struct pt_http_clients *all, struct pt_http_client *c)
{
	if (!c)
		return;
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	if (c->doomed)
		all->doomed--;
	else
		all->n--;
	free(c);
}

void pt_http_client_answers(struct pt_http_client *c, uint64_t bytes, double now)
{
	c->answering = true;
	c->deadline = now + PT_HTTP_ANSWER_S + (double)bytes / PT_HTTP_SLOWEST;
}

void pt_http_client_answered(struct pt_http_client *c, double now)
{
	c->answering = false;
	c->deadline = now + PT_HTTP_IDLE_S;
}

/* libmicrohttpd misses some ends: those that come while it is answering. */
static bool left(const struct pt_http_client *c)
{
	char byte;

	return !c->answering && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

unsigned pt_http_clients_expire(struct pt_http_clients *all, double now)
{
	struct pt_http_client *c;
	unsigned n = 0;

	for (c = all->newest; c; c = c->next) {
		if (c->doomed)
			continue;
		if (now >= c->deadline) {
			doom(all, c);
			n++;
		} else if (left(c)) {
			doom(all, c);
		}
	}
	return n;
}
