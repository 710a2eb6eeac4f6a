/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sockets of the target by inode, and the ends that they are connected to.
 * Several connections to one address and port have one peer.
 */
#ifndef PT_SOCKS_H
#define PT_SOCKS_H

#include "model/timeline.h"

/* Numbers of the kernel's interface, spelled out: a recorded stream may be
 * read elsewhere. */
#define PT_AF_UNIX 1
#define PT_AF_INET 2
#define PT_AF_INET6 10
#define PT_AF_VSOCK 40
#define PT_IPPROTO_TCP 6
#define PT_IPPROTO_UDP 17
#define PT_TCP_LISTEN 10

/* Room for pt_peer_text(): a Unix socket's name, every byte escaped. */
#define PT_PEER_TEXT (4 * PT_SOCK_PATH + 16)

/* The socket with this inode that was open at `ts`, or the nearest one; NULL
 * unknown. */
const struct pt_sock *pt_model_sock(const struct pt_model *m, uint64_t inode,
				    uint64_t ts);

/* The other end is a socket of the target itself: it was seen, or a process of the
 * target listens there. */
bool pt_sock_inside(const struct pt_model *m, const struct pt_sock *s);
/* It was accepted by the target: its local port is one that a process of it
 * listens on. */
bool pt_sock_accepted(const struct pt_model *m, const struct pt_sock *s);
/* The other end is on this machine, as its address shows. */
bool pt_sock_loopback(const struct pt_sock *s);

/* Payload bytes that had come in until `ts`, since the socket was first seen;
 * between two records in proportion to the time. False: not known. */
bool pt_sock_received(const struct pt_sock *s, uint64_t ts, double *bytes);

/* The address in the usual notation, without the port: IPv6 shortened; a Unix
 * socket's name escaped (\xHH) with '@' for a leading NUL; "" unknown. */
void pt_peer_text(const struct pt_peer *p, char out[PT_PEER_TEXT]);

/* Forget sockets that were closed before. */
void pt_trim_socks(struct pt_model *m, uint64_t before);
void pt_socks_free(struct pt_model *m);

#endif
