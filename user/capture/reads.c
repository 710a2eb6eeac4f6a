/* SPDX-License-Identifier: BSD-2-Clause */
/* The doors to read calls: the first of the ladder that opens; and those of the same kind to
 * write and fsync calls, except page ranges. */
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "capture/ktypes.h"
#include "capture/session.h"

/* A read that took longer is recorded by itself: a hundred times a page cache
 * hit, and what a fast disk takes. */
#define PT_SLOW_READ_NS 100000

static const char *const doors[] = {
	[PT_DOOR_NONE] = "none",     [PT_DOOR_FEXIT] = "fexit",
	[PT_DOOR_KPROBE] = "kprobe", [PT_DOOR_PAGES] = "pages",
	[PT_DOOR_SYSCALL] = "syscall",
};
#define N_DOORS (sizeof(doors) / sizeof(doors[0]))

const char *pt_door_name(unsigned door)
{
	return door < N_DOORS ? doors[door] :
	       door == PT_DOOR_IO_URING ? "io_uring" :
	       door == PT_DOOR_AIO ? "libaio" : "unknown";
}

int pt_reads_parse(const char *name, unsigned *out)
{
	unsigned i;

	if (!strcmp(name, "auto")) {
		*out = PT_READS_AUTO;
		return 0;
	}
	for (i = 0; i < N_DOORS; i++) {
		if (!strcmp(name, doors[i])) {
			*out = PT_READS(i);
			return 0;
		}
	}
	return -EINVAL;
}

#define MAX_FNS 5
struct io_fn {
	const char *function, *what;
	struct bpf_program *entry[2], *end[2]; /* fexit, kprobe */
	struct bpf_link **entry_link[2], **end_link[2];
};

#define FN(i, fn, lost, name)                                                  \
	out[i] = (struct io_fn){                                               \
		fn, lost,                                                      \
		{ s->progs.pt_##name##_fentry, s->progs.pt_##name##_kprobe },  \
		{ s->progs.pt_##name##_fexit, s->progs.pt_##name##_kretprobe },\
		{ &s->links.pt_##name##_fentry, &s->links.pt_##name##_kprobe },\
		{ &s->links.pt_##name##_fexit,                                 \
		  &s->links.pt_##name##_kretprobe } }

/* The functions of bpf/read.bpf.c. The first has to open, the others may lack: a
 * kernel's compiler can have merged one into its caller. */
static size_t read_functions(struct pipetrace_bpf *s, struct io_fn out[MAX_FNS])
{
	FN(0, "vfs_read", "read", vfs_read);
	FN(1, "vfs_readv", "readv", readv);
	FN(2, "do_splice_direct", "sendfile", direct);
	FN(3, "splice_file_to_pipe", "splice", pipe);
	FN(4, "vfs_copy_file_range", "copy_file_range", copy);
	return 5;
}

static size_t write_functions(struct pipetrace_bpf *s, struct io_fn out[MAX_FNS])
{
	FN(0, "vfs_write", "write", vfs_write);
	FN(1, "vfs_writev", "writev", writev);
	FN(2, "vfs_fsync_range", "fsync", fsync);
	return 3;
}

/* `first`: the first one is known to be there. */
static void choose_functions(const struct io_fn *fn, size_t n, unsigned door, bool first)
{
	size_t i;

	for (i = 0; i < n; i++) {
		bool fexit = door == PT_DOOR_FEXIT &&
			     ((!i && first) || pt_features_fentry(fn[i].function));

		bpf_program__set_autoload(fn[i].entry[0], fexit);
		bpf_program__set_autoload(fn[i].end[0], fexit);
		bpf_program__set_autoload(fn[i].entry[1], door == PT_DOOR_KPROBE);
		bpf_program__set_autoload(fn[i].end[1], door == PT_DOOR_KPROBE);
	}
}

static bool opens(const struct pt_features *f, unsigned door)
{
	switch (door) {
	case PT_DOOR_FEXIT: return f->fentry;
	case PT_DOOR_KPROBE: return f->kprobe;
	case PT_DOOR_PAGES: return f->pages;
	default: return true;
	}
}

/* What every process pays for is not in light mode, and system calls, which
 * cost most, in full mode only; they see more than page ranges. */
unsigned pt_reads_ladder(const struct pt_features *f, enum pt_mode mode)
{
	if (mode == PT_MODE_LIGHT)
		return PT_DOOR_NONE;
	if (f->fentry)
		return PT_DOOR_FEXIT;
	if (f->kprobe)
		return PT_DOOR_KPROBE;
	if (mode == PT_MODE_FULL)
		return PT_DOOR_SYSCALL;
	return f->pages ? PT_DOOR_PAGES : PT_DOOR_NONE;
}

static bool has_tracepoint(const char *name)
{
	const struct pt_ktypes *k = pt_ktypes_get();
	bool there = k && pt_ktypes_attach_id(k, name, BPF_TRACE_RAW_TP);

	pt_ktypes_put(k);
	return there;
}

int pt_reads_choose(struct pt_capture *c, const struct pt_capture_opts *o)
{
	struct pipetrace_bpf *s = c->skel;
	unsigned door = o->reads ? o->reads - 1 : pt_reads_ladder(&c->feat, o->mode);
	bool ring = c->feat.io_uring && o->mode != PT_MODE_LIGHT &&
		    door != PT_DOOR_NONE;
	bool renamed = ring && has_tracepoint("io_uring_submit_req");
	bool older = ring && !renamed && has_tracepoint("io_uring_submit_sqe");
	struct io_fn fn[MAX_FNS];

	if (o->reads && !opens(&c->feat, door))
		return -ENOTSUP;
	pt_aio_choose(c, door == PT_DOOR_FEXIT && c->feat.libaio);
	choose_functions(fn, read_functions(s, fn), door, true);
	bpf_program__set_autoload(s->progs.pt_sys_enter, door == PT_DOOR_SYSCALL);
	bpf_program__set_autoload(s->progs.pt_sys_exit, door == PT_DOOR_SYSCALL);
	bpf_program__set_autoload(s->progs.pt_get_pages, door == PT_DOOR_PAGES);
	bpf_program__set_autoload(s->progs.pt_ring_complete, ring);
	bpf_program__set_autoload(s->progs.pt_ring_submit, renamed);
	bpf_program__set_autoload(s->progs.pt_ring_submit_sqe, older);
	c->read_door = (uint16_t)door;
	s->rodata->pt_cfg.read_door = door;
	s->rodata->pt_cfg.slow_ns = PT_SLOW_READ_NS;
	return 0;
}

/* Attach two hooks; both or none. */
static bool attach_pair(struct bpf_program *a, struct bpf_link **la,
			struct bpf_program *b, struct bpf_link **lb)
{
	if (pt_attach(a, la) && pt_attach(b, lb))
		return true;
	bpf_link__destroy(*la);
	*la = NULL;
	return false;
}

/* The returns first: an entry without a return must not stay. `lost` gets the names of
 * what could not be hooked. How many could; none without the `first`. */
static size_t attach_functions(const struct io_fn *fn, size_t n, bool kprobe, bool first,
			       char *lost, size_t size)
{
	size_t i, at = 0, done = 0;

	for (i = 0; i < n; i++) {
		if (attach_pair(fn[i].end[kprobe], fn[i].end_link[kprobe],
				fn[i].entry[kprobe], fn[i].entry_link[kprobe]))
			done++;
		else if (!i && first)
			break;
		else if (at < size)
			at += (size_t)snprintf(lost + at, size - at, "%s%s",
					       at ? ", " : "", fn[i].what);
	}
	return done;
}

static void attach_ring(struct pt_capture *c)
{
	struct pipetrace_bpf *s = c->skel;

	if (c->read_door == PT_DOOR_NONE)
		return;
	if (!PT_ATTACH(s, pt_ring_complete)) {
		pt_hook_set(c, "io_uring", "none", "reads by io_uring are not "
			    "counted: bytes are in I/O accounting only");
		return;
	}
	if (!PT_ATTACH(s, pt_ring_submit))
		PT_ATTACH(s, pt_ring_submit_sqe);
	pt_hook_set(c, "io_uring", "tp_btf", "%s", "");
}

int pt_reads_attach(struct pt_capture *c, const struct pt_capture_opts *o)
{
	struct pipetrace_bpf *s = c->skel;
	unsigned door = c->read_door;
	struct io_fn fn[MAX_FNS];
	char lost[64] = "";
	bool ok = false;

	switch (door) {
	case PT_DOOR_FEXIT:
	case PT_DOOR_KPROBE:
		ok = attach_functions(fn, read_functions(s, fn), door == PT_DOOR_KPROBE,
				      true, lost, sizeof(lost));
		break;
	case PT_DOOR_PAGES:
		ok = PT_ATTACH(s, pt_get_pages);
		break;
	case PT_DOOR_SYSCALL:
		ok = attach_pair(s->progs.pt_sys_exit, &s->links.pt_sys_exit,
				 s->progs.pt_sys_enter, &s->links.pt_sys_enter);
		break;
	}
	if (!ok)
		c->read_door = PT_DOOR_NONE;
	if (!ok && o->reads && door != PT_DOOR_NONE)
		return -ENOTSUP;
	attach_ring(c);
	if (c->read_door != PT_DOOR_NONE)
		pt_aio_attach(c);
	if (ok && door == PT_DOOR_PAGES)
		pt_hook_set(c, "reads", pt_door_name(door),
			    "buffered reads are counted, not timed; O_DIRECT and "
			    "tmpfs are not seen");
	else if (ok)
		pt_hook_set(c, "reads", pt_door_name(door), "%s%s",
			    lost[0] ? "not seen: " : "", lost);
	else
		pt_hook_set(c, "reads", "none",
			    "single reads are not timed%s: blocked reads come "
			    "from the scheduler, bytes from I/O accounting",
			    o->mode == PT_MODE_LIGHT ? " in light mode" :
			    o->mode == PT_MODE_FULL || o->reads ? "" :
			    " (--mode full would)");
	return 0;
}

void pt_writes_choose(struct pt_capture *c)
{
	struct io_fn fn[MAX_FNS];

	choose_functions(fn, write_functions(c->skel, fn), c->read_door, false);
}

void pt_writes_attach(struct pt_capture *c)
{
	bool kprobe = c->read_door == PT_DOOR_KPROBE;
	struct io_fn fn[MAX_FNS];
	char lost[64] = "";

	if (c->read_door == PT_DOOR_SYSCALL)
		pt_hook_set(c, "writes", "syscall", "%s", "");
	else if ((kprobe || c->read_door == PT_DOOR_FEXIT) &&
		 attach_functions(fn, write_functions(c->skel, fn), kprobe, false, lost,
				  sizeof(lost)))
		pt_hook_set(c, "writes", pt_door_name(c->read_door), "%s%s",
			    lost[0] ? "not seen: " : "", lost);
	else
		pt_hook_set(c, "writes", "none",
			    "single writes are not timed: blocked ones come from "
			    "the scheduler, bytes from I/O accounting");
}
