/* SPDX-License-Identifier: BSD-2-Clause */
/* Choose the programs that this kernel and this mode allow, load, attach. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "capture/ktypes.h"
#include "capture/load.h"
#include "capture/session.h"

#define PT_RING_MB 16
#define PT_RING_MB_MAX 1024
static char first_warning[256];

/* Keep the warning that says what failed, for the one sentence that the user
 * gets; those after it only say what failed because of it. */
static int keep_warning(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	if (level == LIBBPF_WARN && !first_warning[0]) {
		vsnprintf(first_warning, sizeof(first_warning), fmt, ap);
		first_warning[strcspn(first_warning, "\n")] = 0;
	}
	return 0;
}

static unsigned ring_bytes(unsigned mb)
{
	unsigned p = 1;

	if (!mb)
		mb = PT_RING_MB;
	if (mb > PT_RING_MB_MAX)
		mb = PT_RING_MB_MAX;
	while (p < mb)
		p *= 2;
	return p << 20;
}

/* By a break point each, or by one link for many. */
static void choose_door(struct bpf_program *one, struct bpf_program *many,
			const struct pt_capture *c, bool multi)
{
	bpf_program__set_autoload(one, c->feat.uprobe && !multi);
	bpf_program__set_autoload(many, multi);
	bpf_program__set_expected_attach_type(many, (enum bpf_attach_type)PT_ATTACH_UPROBE_MULTI);
}

static int choose(struct pt_capture *c, const struct pt_capture_opts *o)
{
	struct pipetrace_bpf *s = c->skel;
	bool multi = c->feat.uprobe_multi && !o->no_uprobe_multi;
	unsigned bytes = ring_bytes(o->ring_mb);
	int r;

	bpf_map__set_max_entries(s->maps.pt_ring, bytes);
	s->rodata->pt_cfg.wake_bytes = bytes / 4;
	s->rodata->pt_cfg.min_off_ns =
		o->mode == PT_MODE_LIGHT ? PT_SHORT_OFF_NS : 0;
	s->rodata->pt_cfg.file_names = 1;
	s->rodata->pt_cfg.count_off = c->feat.count_off;
	s->rodata->pt_cfg.page_shift = (uint32_t)__builtin_ctzl((unsigned long)sysconf(_SC_PAGESIZE));
	if (getrandom(s->rodata->pt_cfg.secret, sizeof(s->rodata->pt_cfg.secret),
		      0) != sizeof(s->rodata->pt_cfg.secret))
		return -EIO;

	choose_door(s->progs.pt_gpu_enter, s->progs.pt_gpu_enter_multi, c, multi);
	choose_door(s->progs.pt_gpu_return, s->progs.pt_gpu_return_multi, c, multi);
	choose_door(s->progs.pt_nvtx_enter, s->progs.pt_nvtx_enter_multi, c, multi);
	choose_door(s->progs.pt_nvtx_return, s->progs.pt_nvtx_return_multi, c, multi);

	/* for whoever injects, in a session of its own (seccomp.c) */
	bpf_program__set_autoload(s->progs.pt_iter_seccomp, false);
	bpf_map__set_autocreate(s->maps.pt_seccomp, false);
	pt_pyclock_choose(c, o->python);
	pt_socks_choose(c, o);
	pt_blocks_choose(c, o);
	pt_faults_choose(c, o);
	r = pt_reads_choose(c, o);
	if (!r)
		pt_writes_choose(c);
	return r;
}

/*
 * libbpf would read all of the kernel's types by itself, and look through them for each
 * type and each hook of the programs: it gets those that are needed, in a file in memory.
 * It takes a program on another program as one that needs none; such ours are not.
 */
#define NO_PROGRAM INT_MAX

static int hook_setup(struct bpf_program *p, long cookie)
{
	(void)cookie;
	return bpf_program__set_attach_target(p, NO_PROGRAM, NULL);
}

static int hook_load(struct bpf_program *p, struct bpf_prog_load_opts *o, long cookie)
{
	const char *name = strchr(bpf_program__section_name(p), '/');
	const struct pt_ktypes *k = pt_ktypes_get();

	(void)cookie;
	o->attach_prog_fd = 0;
	o->attach_btf_id = k && name ?
		pt_ktypes_attach_id(k, name + 1, bpf_program__expected_attach_type(p)) : 0;
	pt_ktypes_put(k);
	return o->attach_btf_id ? 0 : -ESRCH;
}

static int hook_attach(const struct bpf_program *p, long cookie, struct bpf_link **link)
{
	(void)cookie;
	*link = bpf_program__expected_attach_type(p) == BPF_TRACE_ITER ?
		bpf_program__attach_iter(p, NULL) : bpf_program__attach_trace(p);
	return *link ? 0 : -errno;
}

static int take_over_hooks(void)
{
	static const struct {
		const char *section;
		enum bpf_attach_type at;
	} kinds[] = { { "tp_btf/", BPF_TRACE_RAW_TP }, { "fentry/", BPF_TRACE_FENTRY },
		      { "fexit/", BPF_TRACE_FEXIT }, { "iter/", BPF_TRACE_ITER } };
	LIBBPF_OPTS(libbpf_prog_handler_opts, o, .prog_setup_fn = hook_setup,
		    .prog_prepare_load_fn = hook_load, .prog_attach_fn = hook_attach);
	static bool done;
	size_t i;
	int r;

	for (i = 0; !done && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		r = libbpf_register_prog_handler(kinds[i].section, BPF_PROG_TYPE_TRACING,
						 kinds[i].at, &o);
		if (r < 0)
			return r;
	}
	done = true;
	return 0;
}

/* The types, in a file; -errno. */
static int types_file(const struct pipetrace_bpf *s, int fd)
{
	const struct pt_ktypes *k = pt_ktypes_get();
	int r;

	if (!k)
		return -ENOMEM;
	r = pt_ktypes_write(k, bpf_object__btf(s->obj), fd);
	pt_ktypes_put(k);
	return r;
}

int pt_skeleton_open(struct pipetrace_bpf **out, int types)
{
	char path[32];
	LIBBPF_OPTS(bpf_object_open_opts, o, .btf_custom_path = path);
	int r = take_over_hooks();

	if (r)
		return r;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", types);
	*out = pipetrace_bpf__open_opts(&o);
	if (*out && !types_file(*out, types))
		return 0;
	/* little memory, or a limit on files: then libbpf shall read them by itself */
	pipetrace_bpf__destroy(*out);
	*out = pipetrace_bpf__open();
	return *out ? 0 : -errno;
}

static int load_skeleton(struct pt_capture *c, const struct pt_capture_opts *o)
{
	int err, types = memfd_create("pipetrace-types", MFD_CLOEXEC);
	struct bpf_program *p;

	if (types < 0)
		return -errno;
	err = pt_skeleton_open(&c->skel, types);
	err = err ?: choose(c, o);
	if (err)
		goto out;
	p = o->refused ? bpf_object__find_program_by_name(c->skel->obj, o->refused) : NULL;
	if (p) /* it has no context of that kind */
		bpf_program__set_type(p, BPF_PROG_TYPE_SOCKET_FILTER);
	err = pipetrace_bpf__load(c->skel);
out:
	close(types);
	if (err) {
		pipetrace_bpf__destroy(c->skel);
		c->skel = NULL;
	}
	return err;
}

/* What is not asked for any more where the kernel refuses a program of it, by the first
 * pattern whose feature is still there. */
static const struct {
	const char *program;
	size_t feature;
} features[] = {
#define F(pattern, f) { pattern, offsetof(struct pt_features, f) }
	F("pt_gpu_*_multi", uprobe_multi),
	F("pt_nvtx_*_multi", uprobe_multi),
	F("pt_gpu_*", uprobe),
	F("pt_nvtx_*", uprobe),
	F("pt_py_clock", py_clock),
	F("pt_sock*", sock_state),
	F("pt_iter_socks", sock_iter),
	F("pt_block*", block),
	F("pt_page_added", page_added),
	F("pt_fault_fentry", fault_fentry),
	F("pt_fault_kprobe", kprobe),
	F("pt_fault", filemap_fault),
	F("pt_get_pages", pages),
	F("pt_ring_*", io_uring),
	F("pt_aio_*", libaio),
	F("*_fexit", fentry),
	F("*_fentry", fentry),
	F("*_kretprobe", kprobe),
	F("*_kprobe", kprobe),
	/* what those do for it that cannot be done without */
	F("pt_sched_*", sockets),
	F("pt_iter", sockets),
#undef F
};

/* A probe said yes to something that the kernel refuses: do without it. False: the
 * trace cannot. */
static bool do_without(struct pt_capture *c)
{
	char name[64];
	size_t i;

	if (sscanf(first_warning, "libbpf: prog '%63[^']'", name) != 1)
		return false;
	for (i = 0; i < sizeof(features) / sizeof(*features); i++) {
		bool *has = (bool *)((char *)&c->feat + features[i].feature);

		if (!*has || fnmatch(features[i].program, name, 0))
			continue;
		*has = false;
		return true;
	}
	if (!strncmp(name, "pt_sched_", 9) && c->feat.count_off) {
		c->feat.count_off = 0;
		return true;
	}
	return false;
}

static int load_all(struct pt_capture *c, const struct pt_capture_opts *o)
{
	int err;

	do {
		first_warning[0] = 0;
		err = load_skeleton(c, o);
	} while (err && err != -ENOTSUP && do_without(c));
	return err;
}

static int attach_core(struct pt_capture *c)
{
	struct pipetrace_bpf *s = c->skel;
	struct {
		struct bpf_program *prog;
		struct bpf_link **link;
	} core[] = {
		/* Switches first: they find no storage yet, and every task
		 * that gets one is followed from that moment. */
		{ s->progs.pt_sched_switch, &s->links.pt_sched_switch },
		{ s->progs.pt_sched_waking, &s->links.pt_sched_waking },
		{ s->progs.pt_exit, &s->links.pt_exit },
		{ s->progs.pt_exec, &s->links.pt_exec },
		{ s->progs.pt_rename, &s->links.pt_rename },
		{ s->progs.pt_fork, &s->links.pt_fork },
		{ s->progs.pt_iter, &s->links.pt_iter },
	};
	size_t i;

	for (i = 0; i < sizeof(core) / sizeof(core[0]); i++) {
		*core[i].link = bpf_program__attach(core[i].prog);
		if (!*core[i].link)
			return -errno;
	}
	return 0;
}

bool pt_attach(struct bpf_program *p, struct bpf_link **link)
{
	if (bpf_program__fd(p) < 0)
		return false;
	*link = bpf_program__attach(p);
	return *link != NULL;
}

/* The user's limits have a remedy; for the rest, what libbpf saw first. */
static void explain(struct pt_err *err, int r, const char *what)
{
	const char *why = first_warning;

	if (r == -EMFILE || r == -ENFILE)
		pt_err_set(err, r, "too few file descriptors are allowed: raise "
				   "the limit (ulimit -n 1024) and try again");
	else if (r == -ENOMEM)
		pt_err_set(err, r, "not enough memory: pipetrace needs about "
				   "100 MiB (see ulimit -v and the cgroup's limit)");
	else {
		if (!strncmp(why, "libbpf: ", 8))
			why += 8;
		pt_err_set(err, r, "%s (%s)%s%s; pipetrace doctor says what "
			   "this kernel allows", what, strerror(-r),
			   why[0] ? ": " : "", why);
	}
}

int pt_load(struct pt_capture *c, const struct pt_capture_opts *o,
	    struct pt_err *err)
{
	libbpf_print_fn_t old = libbpf_set_print(keep_warning);
	int r;

	r = load_all(c, o);
	if (r == -ENOTSUP)
		goto no_door;
	if (r) {
		explain(err, r, "the kernel refused pipetrace's BPF programs");
		goto out;
	}
	c->skel->bss->pt_armed = PT_ARMED;
	r = attach_core(c);
	if (r) {
		explain(err, r, "the BPF programs could not be attached");
		goto out;
	}
	pt_hook_set(c, "sched", "tp_btf", "%s", "");
	pt_hook_set(c, "tasks", "tp_btf", "%s", "");
	pt_socks_attach(c);
	r = pt_reads_attach(c, o);
	if (r)
		goto no_door;
	pt_writes_attach(c);
	pt_blocks_attach(c, o);
	pt_faults_attach(c);
out:
	libbpf_set_print(old);
	return r;
no_door:
	pt_err_set(err, r, "this kernel does not open the door %s to reads; "
		   "pipetrace doctor says which one it opens",
		   pt_door_name(o->reads - 1));
	goto out;
}

/* A descriptor in reserve for the passes: where they are few, a trace that has
 * begun shall not break off for the lack of one. */
static void reserve(struct pt_capture *c)
{
	if (c->has_spare)
		return;
	c->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	c->has_spare = c->spare >= 0;
}

static int iter_create(struct pt_capture *c)
{
	int link = bpf_link__fd(c->skel->links.pt_iter);
	int fd = bpf_iter_create(link);

	if (fd >= 0 || !c->has_spare || (errno != EMFILE && errno != ENFILE))
		return fd;
	close(c->spare);
	c->has_spare = false;
	return bpf_iter_create(link);
}

int pt_iter_run(int fd)
{
	char buf[256];
	ssize_t n;

	if (fd < 0)
		return -errno;
	do {
		n = read(fd, buf, sizeof(buf));
	} while (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN)));
	n = n < 0 ? -errno : 0;
	close(fd);
	return (int)n;
}

int pt_run_pass(struct pt_capture *c, uint32_t pass, uint64_t ts)
{
	int ret;

	memset(c->skel->bss->pt_hits.live, 0, sizeof(c->skel->bss->pt_hits.live));
	c->skel->bss->pt_hits.live_run_ns = 0;
	c->skel->bss->pt_pass_ts = ts;
	c->skel->bss->pt_pass = pass;
	ret = pt_iter_run(iter_create(c));
	reserve(c);
	return ret;
}

static uint32_t insn_count(int fd)
{
	struct bpf_prog_info info;
	uint32_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	return bpf_obj_get_info_by_fd(fd, &info, &len) ? 0 :
							 info.xlated_prog_len / 8;
}

int pt_load_list(const struct pt_capture_opts *o,
		 void (*fn)(void *ctx, const char *name, bool loaded,
			    uint32_t insns),
		 void *ctx, struct pt_err *err)
{
	libbpf_print_fn_t old = libbpf_set_print(keep_warning);
	const struct pt_ktypes *k = pt_ktypes_get(); /* once for all of it */
	struct pt_capture *c = calloc(1, sizeof(*c));
	struct bpf_program *p;
	int r, fd;

	first_warning[0] = 0;
	if (!c) {
		r = pt_err_set(err, -ENOMEM, "out of memory");
		goto out;
	}
	r = pt_features_probe(&c->feat);
	if (!r)
		r = load_all(c, o);
	if (r) {
		pt_err_set(err, r, "%s: %s", strerror(-r), first_warning);
		goto out;
	}
	bpf_object__for_each_program(p, c->skel->obj) {
		fd = bpf_program__fd(p);
		fn(ctx, bpf_program__name(p), fd >= 0,
		   fd >= 0 ? insn_count(fd) : 0);
	}
	pipetrace_bpf__destroy(c->skel);
out:
	free(c);
	pt_ktypes_put(k);
	libbpf_set_print(old);
	return r;
}

int pt_records_open(struct pt_capture *c, pt_ringbuf_fn fn, struct pt_err *err)
{
	const struct bpf_map *m = c->skel->maps.pt_ring;
	int r;

	first_warning[0] = 0;
	c->ring = pt_ringbuf_open(bpf_map__fd(m), bpf_map__max_entries(m), fn, c);
	if (c->ring)
		return 0;
	r = errno ? -errno : -ENOMEM;
	explain(err, r, "the ring buffer cannot be mapped");
	return r;
}
