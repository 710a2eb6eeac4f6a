/* SPDX-License-Identifier: BSD-2-Clause */
/* Who the target's sockets are connected to. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <unistd.h>

#include "capture/session.h"

void pt_socks_choose(struct pt_capture *c, const struct pt_capture_opts *o)
{
	struct pipetrace_bpf *s = c->skel;
	bool on = c->feat.sockets;

	s->rodata->pt_cfg.sockets = on;
	s->rodata->pt_cfg.epoll = on && c->feat.epoll;
	/* Every connection of the machine passes it, a few times in its life. */
	bpf_program__set_autoload(s->progs.pt_sock_state,
				  on && c->feat.sock_state &&
					  o->mode != PT_MODE_LIGHT);
	bpf_program__set_autoload(s->progs.pt_sock_nested,
				  on && c->feat.sock_state &&
					  o->mode != PT_MODE_LIGHT);
	bpf_program__set_autoload(s->progs.pt_iter_socks,
				  on && c->feat.sock_iter);
}

void pt_socks_attach(struct pt_capture *c)
{
	struct pipetrace_bpf *s = c->skel;

	if (!s->rodata->pt_cfg.sockets) {
		pt_hook_set(c, "sockets", "none",
			    "this kernel does not show who a socket is connected "
			    "to: waits for the network have no peer");
		return;
	}
	PT_ATTACH(s, pt_sock_nested);
	PT_ATTACH(s, pt_iter_socks);
	if (PT_ATTACH(s, pt_sock_state))
		pt_hook_set(c, "sockets", "tp_btf", "%s",
			    s->rodata->pt_cfg.epoll ? "" :
			    "what an epoll wait was for is not seen");
	else
		pt_hook_set(c, "sockets", "sched",
			    "connections are seen when a thread waits on them: "
			    "connect times, and bytes of those that nobody "
			    "waited on, are not");
}

/* The walk passes every descriptor of the machine. */
void pt_socks_pass(struct pt_capture *c, uint32_t pass, uint64_t ts)
{
	struct bpf_link *link = c->skel->links.pt_iter_socks;

	if (!link)
		return;
	c->skel->bss->pt_pass_ts = ts;
	c->skel->bss->pt_pass = pass;
	if (pt_iter_run(bpf_iter_create(bpf_link__fd(link))))
		pt_hook_set(c, "sockets", "sched",
			    "connections that nobody waited on were not looked "
			    "for");
}
