/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this kernel lets us do, found by doing it: tiny programs are loaded
 * (and for uprobes attached and hit: selftest.c), never guessed from a version.
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/arch.h"
#include "base/privileges.h"
#include "capture/ktypes.h"
#include "capture/selftest.h"
#include "capture/session.h"

/* Below these limits a feature that is not there may be there. */
#define MIN_FILES 64
#define MIN_MEMORY (256u << 20)

#define INSN(c, d, s, o, i)                                                    \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s),       \
			    .off = (o), .imm = (i) })
#define MOV_IMM(r, i) INSN(BPF_ALU64 | BPF_MOV | BPF_K, r, 0, 0, i)
#define MOV_REG(r, s) INSN(BPF_ALU64 | BPF_MOV | BPF_X, r, s, 0, 0)
#define CALL(f) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define EXIT() INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

static int load(enum bpf_prog_type type, enum bpf_attach_type at, uint32_t btf_id,
		const struct bpf_insn *insns, size_t n)
{
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = at,
		    .attach_btf_id = btf_id);

	return bpf_prog_load(type, "pt_probe", "GPL", insns, n, &o);
}

/* A tracing program on the BTF function or type `name`. */
static bool loads_on(const char *name, enum bpf_attach_type at,
		     const struct bpf_insn *insns, size_t n)
{
	const struct pt_ktypes *k = pt_ktypes_get();
	uint32_t id = k ? pt_ktypes_attach_id(k, name, at) : 0;
	int fd, link;
	bool ok;

	pt_ktypes_put(k);
	fd = id ? load(BPF_PROG_TYPE_TRACING, at, id, insns, n) : -1;
	ok = fd >= 0;
	/* arm64's kernels before 6.4 take such a program and cannot attach it */
	if (PT_ARCH_TRY_ATTACH && ok && at == BPF_TRACE_FENTRY) {
		link = bpf_raw_tracepoint_open(NULL, fd);
		ok = link >= 0;
		if (ok)
			close(link);
	}
	if (fd >= 0)
		close(fd);
	return ok;
}

static const struct bpf_insn nop[] = { MOV_IMM(0, 0), EXIT() };

bool pt_features_fentry(const char *function)
{
	return loads_on(function, BPF_TRACE_FENTRY, nop, 2);
}

/* The kernel has this structure, with this member: of its own, or of an unnamed
 * part of it. */
static bool has_member(const struct pt_ktypes *k, const char *type,
		       const char *member)
{
	const struct btf_type *t =
		pt_ktypes_at(k, pt_ktypes_find(k, type, BTF_KIND_STRUCT));
	int i;

	for (i = 0; t && i < btf_vlen(t); i++)
		if (!strcmp(pt_ktypes_name(k, btf_members(t)[i].name_off), member))
			return true;
	return false;
}

/* The result is read from the request: since 5.19 it is kept there. Epoll's
 * list of what is ready, and TCP's counters, have been there since 4.19. */
static void probe_types(struct pt_features *f, const struct pt_ktypes *k)
{
	f->io_uring = has_member(k, "io_kiocb", "cqe") &&
		      loads_on("io_uring_complete", BPF_TRACE_RAW_TP, nop, 2);
	f->sockets = has_member(k, "tcp_sock", "bytes_received") &&
		     has_member(k, "tcp_sock", "bytes_sent") &&
		     has_member(k, "tcp_sock", "write_seq") &&
		     has_member(k, "sock", "sk_peer_pid");
	f->sock_state = f->sockets &&
			loads_on("inet_sock_set_state", BPF_TRACE_RAW_TP, nop, 2);
	f->sock_iter = f->sockets && loads_on("task_file", BPF_TRACE_ITER, nop, 2);
	f->epoll = f->sockets && has_member(k, "eventpoll", "rdllist") &&
		   has_member(k, "epitem", "rdllink") &&
		   has_member(k, "epitem", "ffd");
	f->count_off = pt_count_offset(k);
}

static bool probe_task_pt_regs(void)
{
	const struct bpf_insn insns[] = {
		CALL(BPF_FUNC_get_current_task_btf),
		MOV_REG(1, 0),
		CALL(BPF_FUNC_task_pt_regs),
		MOV_IMM(0, 0),
		EXIT(),
	};

	return loads_on("sched_switch", BPF_TRACE_RAW_TP, insns, 5);
}

/*
 * Whether programs may read kernel memory, by reading some: the current task's. A
 * kernel locked down for confidentiality can load such a program and then refuse
 * it what it asks for. `confidential`: what the kernel says of itself, where it
 * cannot run a program for a test (before 5.10).
 */
static bool probe_read_kernel(bool confidential)
{
	const struct bpf_insn insns[] = {
		CALL(BPF_FUNC_get_current_task),
		MOV_REG(3, 0),
		MOV_REG(1, 10),
		INSN(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, -8),
		MOV_IMM(2, 8),
		CALL(BPF_FUNC_probe_read_kernel),
		EXIT(),
	};
	LIBBPF_OPTS(bpf_test_run_opts, run);
	int fd = load(BPF_PROG_TYPE_RAW_TRACEPOINT, 0, 0, insns, 7);
	bool ok;

	if (fd < 0)
		return false;
	if (bpf_prog_test_run_opts(fd, &run))
		ok = !confidential;
	else
		ok = run.retval == 0;
	close(fd);
	return ok;
}

static bool probe_cookie(void)
{
	const struct bpf_insn insns[] = {
		CALL(BPF_FUNC_get_attach_cookie),
		MOV_IMM(0, 0),
		EXIT(),
	};
	int fd = load(BPF_PROG_TYPE_KPROBE, 0, 0, insns, 3);

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static long pmu_type(const char *pmu)
{
	char path[96], buf[32] = "";
	FILE *f;
	long v = -1;

	snprintf(path, sizeof(path), "/sys/bus/event_source/devices/%s/type", pmu);
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fgets(buf, sizeof(buf), f))
		v = strtol(buf, NULL, 10);
	fclose(f);
	return v;
}

static bool probe_kprobe(void)
{
	struct perf_event_attr a;
	long type = pmu_type("kprobe");
	long fd;

	if (type < 0)
		return false;
	memset(&a, 0, sizeof(a));
	a.size = sizeof(a);
	a.type = (uint32_t)type;
	a.config1 = (uint64_t)(uintptr_t)"vfs_read";
	fd = syscall(SYS_perf_event_open, &a, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return false;
	close((int)fd);
	return true;
}

static uint64_t effective_caps(void)
{
	unsigned long long caps = 0;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	fclose(f);
	return caps;
}

static void read_lockdown(char *out, size_t size)
{
	static const char *const modes[] = { "none", "integrity",
					     "confidentiality" };
	char buf[96] = "", want[24];
	FILE *f = fopen("/sys/kernel/security/lockdown", "re");
	size_t i;

	snprintf(out, size, "unknown"); /* securityfs is often not mounted */
	if (!f)
		return;
	if (!fgets(buf, sizeof(buf), f))
		buf[0] = 0;
	fclose(f);
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		snprintf(want, sizeof(want), "[%s]", modes[i]);
		if (strstr(buf, want))
			snprintf(out, size, "%s", modes[i]);
	}
}

static int quiet(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	(void)level;
	(void)fmt;
	(void)ap;
	return 0;
}

static void find_missing(struct pt_features *f)
{
	const struct {
		bool ok;
		const char *what;
	} need[] = {
		{ f->cap_bpf && f->cap_perfmon,
		  "the right to load BPF programs: run it with sudo" },
		{ f->btf, "kernel type information (/sys/kernel/btf/vmlinux): "
			  "a kernel built with CONFIG_DEBUG_INFO_BTF" },
		{ f->tp_btf, "BPF programs on kernel tracepoints (Linux 5.5, and "
			     "no policy against them)" },
		{ f->ringbuf, "BPF ring buffers (Linux 5.8)" },
		{ f->task_storage, "BPF task storage (Linux 5.11)" },
		{ f->task_iter, "the BPF task iterator (Linux 5.8)" },
		{ f->task_pt_regs, "the BPF helper task_pt_regs (Linux 5.15)" },
		{ f->probe_read_kernel,
		  "to read kernel memory from BPF programs, which a kernel that "
		  "is locked down for confidentiality refuses: boot it with "
		  "lockdown=integrity, or without" },
	};
	struct rlimit files, memory;
	size_t i;

	f->missing[0] = 0;
	for (i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		if (need[i].ok)
			continue;
		/* what a probe lacks may be the user's limit */
		if (!i || getrlimit(RLIMIT_NOFILE, &files) || getrlimit(RLIMIT_AS, &memory))
			files.rlim_cur = memory.rlim_cur = RLIM_INFINITY;
		snprintf(f->missing, sizeof(f->missing), "%s",
			 files.rlim_cur < MIN_FILES ?
				 "more file descriptors: raise the limit (ulimit -n 1024)" :
			 memory.rlim_cur < MIN_MEMORY ?
				 "more memory than its limit allows (see ulimit -v)" :
				 need[i].what);
		return;
	}
}

unsigned pt_capture_keep(bool no_uprobe_multi)
{
	libbpf_print_fn_t old = libbpf_set_print(quiet);
	unsigned keep = PT_KEEP_TRACE | PT_KEEP_LOOK;

	/* Asked before rights are given up and again after: found out once. */
	if ((no_uprobe_multi || !pt_selftest(true)->works) &&
	    !pt_privileges_without_admin(pt_selftest_perf_opens) &&
	    pt_selftest_perf_opens())
		keep |= PT_KEEP_ADMIN;
	libbpf_set_print(old);
	return keep;
}

int pt_features_probe(struct pt_features *f)
{
	const struct pt_ktypes *k;
	libbpf_print_fn_t old;
	struct utsname u;
	uint64_t caps;

	memset(f, 0, sizeof(*f));
	if (uname(&u))
		return -errno;
	snprintf(f->kernel, sizeof(f->kernel), "%.60s", u.release);
	read_lockdown(f->lockdown, sizeof(f->lockdown));
	caps = effective_caps();
	f->cap_bpf = caps & (1ULL << 39 | 1ULL << 21);
	f->cap_perfmon = caps & (1ULL << 38 | 1ULL << 21);
	f->btf = access("/sys/kernel/btf/vmlinux", R_OK) == 0;

	/* Refusals are what we look for; they are not worth a message. */
	old = libbpf_set_print(quiet);
	k = f->btf && f->cap_bpf ? pt_ktypes_get() : NULL;
	if (k) {
		f->tp_btf = loads_on("sched_switch", BPF_TRACE_RAW_TP, nop, 2);
		f->fentry = loads_on("vfs_read", BPF_TRACE_FENTRY, nop, 2);
		f->task_iter = loads_on("task", BPF_TRACE_ITER, nop, 2);
		f->task_pt_regs = probe_task_pt_regs();
		f->probe_read_kernel = probe_read_kernel(
			!strcmp(f->lockdown, "confidentiality"));
		f->ringbuf = libbpf_probe_bpf_map_type(BPF_MAP_TYPE_RINGBUF,
						       NULL) == 1;
		f->task_storage = libbpf_probe_bpf_map_type(
					  BPF_MAP_TYPE_TASK_STORAGE, NULL) == 1;
		f->attach_cookie = probe_cookie();
		f->uprobe = f->attach_cookie && pmu_type("uprobe") >= 0;
		f->uprobe_multi = f->uprobe && pt_selftest(true)->works;
		f->kprobe = probe_kprobe();
		f->pages = loads_on("mm_filemap_get_pages", BPF_TRACE_RAW_TP,
				    nop, 2);
		f->libaio = pt_aio_probe(f, k);
		f->block = loads_on("block_rq_complete", BPF_TRACE_RAW_TP,
				    nop, 2);
		f->block_start = f->block && loads_on("block_io_start",
						      BPF_TRACE_RAW_TP, nop, 2);
		probe_types(f, k);
		f->py_clock = libbpf_probe_bpf_prog_type(BPF_PROG_TYPE_PERF_EVENT, NULL) == 1;
		f->page_added = loads_on("mm_filemap_add_to_page_cache",
					 BPF_TRACE_RAW_TP, nop, 2);
		f->filemap_fault = loads_on("mm_filemap_fault",
					    BPF_TRACE_RAW_TP, nop, 2);
		f->fault_fentry = f->fentry && pt_features_fentry("filemap_fault");
	}
	pt_ktypes_put(k);
	libbpf_set_print(old);
	find_missing(f);
	return 0;
}
