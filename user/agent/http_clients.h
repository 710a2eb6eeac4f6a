/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The connections that are open, and which of them has to go. One client (an IPv4
 * address, or the /64 of an IPv6 one) holds few of them. Where it wants one more, its
 * own oldest that waits for nothing of ours is closed for it; where all are taken, that
 * of the client that holds the most. So whoever only holds connections keeps nobody out.
 * Of one thread; sockets are only ever shut down here, never closed.
 */
#ifndef PT_AGENT_HTTP_CLIENTS_H
#define PT_AGENT_HTTP_CLIENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define PT_HTTP_CONNECTIONS 256 /* in all */
#define PT_HTTP_PER_CLIENT 16
/* Shut down, but not yet gone: the most that are waited for. */
#define PT_HTTP_DOOMED 64

/* How long a connection may last, in seconds: without a request; with a request
 * answered and none after it (a scraper comes every minute or so); with an answer
 * under way, and for each PT_HTTP_SLOWEST bytes of it. */
#define PT_HTTP_ASK_S 10
#define PT_HTTP_IDLE_S 75
#define PT_HTTP_ANSWER_S 20
#define PT_HTTP_SLOWEST (32 << 10)

struct pt_http_client { /* a connection */
	struct pt_http_client *next, **link;
	uint64_t who[2]; /* pt_http_who() */
	int fd;
	double deadline; /* s, of the caller's monotonic clock */
	bool answering;	 /* an answer is under way */
	bool doomed;	 /* shut down; it still has to be closed */
};

struct pt_http_clients {
	struct pt_http_client *newest;
	unsigned n, doomed; /* n: those that are not doomed */
};

/* An address as a client is known by: IPv4 (also as ::ffff:a.b.c.d) whole, of IPv6
 * the first 64 bits. */
void pt_http_who(const struct sockaddr *sa, socklen_t len, uint64_t who[2]);

/* Whether one more of `who` may come. Makes room as said above. */
bool pt_http_clients_room(struct pt_http_clients *all, const uint64_t who[2]);

/* It is there now. NULL: no memory. */
struct pt_http_client *pt_http_clients_add(struct pt_http_clients *all,
					   const uint64_t who[2], int fd, double now);
/* It is gone. NULL is fine. */
void pt_http_clients_remove(struct pt_http_clients *all, struct pt_http_client *c);

/* Its request is answered by `bytes`, from now on. */
void pt_http_client_answers(struct pt_http_client *c, uint64_t bytes, double now);
/* ... and that is done. */
void pt_http_client_answered(struct pt_http_client *c, double now);

/* Shuts those down whose time is over (how many), and whose client has left. */
unsigned pt_http_clients_expire(struct pt_http_clients *all, double now);

#endif
