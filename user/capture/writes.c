/* SPDX-License-Identifier: BSD-2-Clause */
/* The doors to write and fsync calls: those of the reads, except page ranges. */
#include <bpf/libbpf.h>
#include <stdio.h>

#include "capture/session.h"

#define N_FNS 3
struct write_fn {
	const char *function, *what;
	struct bpf_program *entry[2], *end[2]; /* fexit, kprobe */
	struct bpf_link **entry_link[2], **end_link[2];
};

#define FN(i, fn, lost, name)                                                  \
	out[i] = (struct write_fn){                                                  \
		fn, lost,                                                      \
		{ s->progs.pt_##name##_fentry, s->progs.pt_##name##_kprobe },  \
		{ s->progs.pt_##name##_fexit, s->progs.pt_##name##_kretprobe },\
		{ &s->links.pt_##name##_fentry, &s->links.pt_##name##_kprobe },\
		{ &s->links.pt_##name##_fexit,                                 \
		  &s->links.pt_##name##_kretprobe } }

static void functions(struct pipetrace_bpf *s, struct write_fn out[N_FNS])
{
	FN(0, "vfs_write", "write", vfs_write);
	FN(1, "vfs_writev", "writev", writev);
	FN(2, "vfs_fsync_range", "fsync", fsync);
}

void pt_writes_choose(struct pt_capture *c)
{
	struct write_fn fn[N_FNS];
	size_t i;

	functions(c->skel, fn);
	for (i = 0; i < N_FNS; i++) {
		bool fexit = c->read_door == PT_DOOR_FEXIT &&
			     pt_features_fentry(fn[i].function);
		bool kprobe = c->read_door == PT_DOOR_KPROBE;

		bpf_program__set_autoload(fn[i].entry[0], fexit);
		bpf_program__set_autoload(fn[i].end[0], fexit);
		bpf_program__set_autoload(fn[i].entry[1], kprobe);
		bpf_program__set_autoload(fn[i].end[1], kprobe);
	}
}

/* The return first: an entry without one must not stay. */
static bool attach(struct write_fn *f, bool kprobe)
{
	struct bpf_link **end = f->end_link[kprobe];
	struct bpf_link **entry = f->entry_link[kprobe];

	if (bpf_program__fd(f->end[kprobe]) < 0)
		return false;
	*end = bpf_program__attach(f->end[kprobe]);
	*entry = *end ? bpf_program__attach(f->entry[kprobe]) : NULL;
	if (*entry)
		return true;
	bpf_link__destroy(*end);
	*end = NULL;
	return false;
}

void pt_writes_attach(struct pt_capture *c)
{
	bool kprobe = c->read_door == PT_DOOR_KPROBE, any = false;
	struct write_fn fn[N_FNS];
	char lost[64] = "";
	size_t i, at = 0;

	if (c->read_door == PT_DOOR_SYSCALL) {
		pt_hook_set(c, "writes", "syscall", "%s", "");
		return;
	}
	functions(c->skel, fn);
	for (i = 0; i < N_FNS && (kprobe || c->read_door == PT_DOOR_FEXIT); i++) {
		if (attach(&fn[i], kprobe))
			any = true;
		else
			at += (size_t)snprintf(lost + at, sizeof(lost) - at,
					       "%s%s", at ? ", " : "",
					       fn[i].what);
	}
	if (any)
		pt_hook_set(c, "writes", pt_door_name(c->read_door), "%s%s",
			    lost[0] ? "not seen: " : "", lost);
	else
		pt_hook_set(c, "writes", "none",
			    "single writes are not timed: blocked ones come from "
			    "the scheduler, bytes from I/O accounting");
}
