/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads by libaio: hooks of fs/aio.c, beside any other door to reads. */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include "capture/ktypes.h"
#include "capture/session.h"

/* aio_read's parameters, 4.19 to at least 6.18: where the result lies depends on
 * their number. */
#define PT_AIO_READ_ARGS 4

static bool has_args(const struct pt_ktypes *k, const char *function, int n)
{
	const struct btf_type *t =
		pt_ktypes_at(k, pt_ktypes_find(k, function, BTF_KIND_FUNC));

	t = t ? pt_ktypes_at(k, t->type) : NULL;
	return t && btf_is_func_proto(t) && btf_vlen(t) == n;
}

bool pt_aio_probe(const struct pt_features *f, const struct pt_ktypes *k)
{
	return f->fentry && has_args(k, "aio_read", PT_AIO_READ_ARGS) &&
	       pt_features_fentry("aio_read") &&
	       pt_features_fentry("aio_complete_rw");
}

void pt_aio_choose(struct pt_capture *c, bool on)
{
	struct pipetrace_bpf *s = c->skel;

	bpf_program__set_autoload(s->progs.pt_aio_fentry, on);
	bpf_program__set_autoload(s->progs.pt_aio_complete, on);
	bpf_program__set_autoload(s->progs.pt_aio_fexit, on);
}

/* The end of a read first: a beginning without an end must not stay. */
void pt_aio_attach(struct pt_capture *c)
{
	struct pipetrace_bpf *s = c->skel;

	if (PT_ATTACH(s, pt_aio_fexit) && PT_ATTACH(s, pt_aio_complete) &&
	    PT_ATTACH(s, pt_aio_fentry)) {
		c->read_more |= 1u << PT_DOOR_AIO;
		pt_hook_set(c, "libaio", "fexit", "of those with O_DIRECT the "
			    "bytes are an upper bound");
		return;
	}
	/* The other doors' sentences in limits speak of libaio by themselves. */
	pt_hook_set(c, "libaio", "none", "%s",
		    c->read_door == PT_DOOR_PAGES ?
			    "Reads by libaio are not counted." : "");
}
