// SPDX-License-Identifier: BSD-2-Clause
/*
 * Stops: uprobes whose program sends the thread a signal that is ignored by default. A
 * tracer sees it before it would be ignored; without a tracer nothing happens. So nothing
 * that is left behind can stop or end the process: the probes go with this one.
 *
 * The thread stops behind the first instruction of the function: the kernel has the
 * signal wait until it has run that one for the probe. Debug registers would stop in front
 * of it, but many virtual machines have none that work, on arm64 they cannot be combined
 * with ptrace (linux/arch/arm64/kernel/ptrace.c takes back the step that the kernel needs
 * to get past them), and some kernels want CAP_SYS_ADMIN for them.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capture/links.h"
#include "capture/mapped.h"
#include "capture/selftest.h"
#include "inject/inject_int.h"

/* What the program and this process share. */
struct pt_stop_cell {
	uint32_t points; /* a bit for each that counts now */
	uint32_t only;	 /* the thread, as the kernel counts; 0: any */
	uint32_t sig;	 /* 0: a hit is only noted */
	uint32_t pad;
	uint64_t hit;	 /* the last: point << 32 | thread; 0 none */
};

#define LOAD32(d, s, field)                                                    \
	PT_INSN(BPF_LDX | BPF_W | BPF_MEM, d, s, offsetof(struct pt_stop_cell, field), 0)

/* r6: the cell; r7: the point, by its cookie; r8: the thread */
static int load_program(int map, bool multi)
{
	LIBBPF_OPTS(bpf_prog_load_opts, o,
		    .expected_attach_type = multi ?
			    (enum bpf_attach_type)PT_ATTACH_UPROBE_MULTI : 0);
	const struct bpf_insn insns[] = {
		PT_INSN(BPF_LD | BPF_DW | BPF_IMM, 6, BPF_PSEUDO_MAP_VALUE, 0, map),
		PT_INSN(0, 0, 0, 0, 0),
		PT_INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_attach_cookie),
		PT_INSN(BPF_ALU64 | BPF_MOV | BPF_X, 7, 0, 0, 0),
		LOAD32(1, 6, points),
		PT_INSN(BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, 31),
		PT_INSN(BPF_ALU64 | BPF_RSH | BPF_X, 1, 0, 0, 0),
		PT_INSN(BPF_ALU64 | BPF_AND | BPF_K, 1, 0, 0, 1),
		PT_INSN(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 11, 0), /* to the end */
		PT_INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_current_pid_tgid),
		PT_INSN(BPF_ALU | BPF_MOV | BPF_X, 8, 0, 0, 0), /* its lower half */
		LOAD32(1, 6, only),
		PT_INSN(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1, 0),
		PT_INSN(BPF_JMP | BPF_JNE | BPF_X, 1, 8, 6, 0), /* to the end */
		PT_INSN(BPF_ALU64 | BPF_LSH | BPF_K, 7, 0, 0, 32),
		PT_INSN(BPF_ALU64 | BPF_OR | BPF_X, 7, 8, 0, 0),
		PT_INSN(BPF_STX | BPF_DW | BPF_MEM, 6, 7,
		     offsetof(struct pt_stop_cell, hit), 0),
		LOAD32(1, 6, sig),
		PT_INSN(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1, 0),
		PT_INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_send_signal_thread),
		PT_INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0),
		PT_INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};

	return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "pt_stop", "GPL", insns,
			     sizeof(insns) / sizeof(insns[0]), &o);
}

int pt_stops_open(struct pt_stops *s, int sig, struct pt_err *err)
{
	LIBBPF_OPTS(bpf_map_create_opts, o, .map_flags = BPF_F_MMAPABLE);
	int ret;
	void *m;

	*s = (struct pt_stops){ .prog = -1, .sig = sig };
	s->multi = pt_selftest(true)->works;
	ret = s->map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "pt_stop", sizeof(uint32_t),
				      sizeof(*s->cell), 1, &o);
	if (ret < 0)
		goto out;
	m = mmap(NULL, sizeof(*s->cell), PROT_READ | PROT_WRITE, MAP_SHARED, s->map, 0);
	if (m == MAP_FAILED) {
		ret = -errno;
		goto out;
	}
	s->cell = m;
	ret = s->prog = load_program(s->map, s->multi);
out:
	return ret >= 0 ? 0 : pt_err_set(err, ret, "the program that stops a thread "
					 "cannot be loaded: %s", strerror(-ret));
}

int pt_stops_point(struct pt_stops *s, uint64_t addr, const char *name, bool libc)
{
	if (s->n == PT_STOPS)
		return -E2BIG;
	s->v[s->n] = (struct pt_stop){ .addr = addr, .name = name, .libc = libc };
	return (int)s->n++;
}

static int keep(struct pt_stops *s, int fd)
{
	if (fd < 0)
		return fd;
	s->fd[s->n_fd++] = fd;
	return fd;
}

/* All points from `first` on that are in the mapping `x`. */
static int attach_file(struct pt_stops *s, pid_t pid, const struct pt_maps *m,
		       const struct pt_map *x, size_t first)
{
	const struct pt_mapped file = {
		.pid = pid, .start = x->start, .end = x->end, .dev = x->dev,
		.inode = x->inode, .name = pt_maps_path(m, x),
	};
	uint64_t off[PT_STOPS], cookie[PT_STOPS];
	int fd = pt_mapped_open(&file), ret = 0;
	char path[PT_FD_PATH];
	uint32_t n = 0;
	size_t i;

	if (fd < 0)
		return fd;
	pt_fd_path(fd, path);
	for (i = first; ret >= 0 && i < s->n; i++) {
		if (s->v[i].addr < x->start || s->v[i].addr >= x->end)
			continue;
		s->v[i].there = true;
		off[n] = s->v[i].addr - x->start + x->offset;
		cookie[n] = i;
		/* from the file: in memory there may be a break point */
		if (pread(fd, s->v[i].code, sizeof(s->v[i].code), (off_t)off[n]) !=
		    sizeof(s->v[i].code))
			ret = -EIO;
		else if (!s->multi) {
			ret = keep(s, pt_uprobe_perf(path, off[n], pid));
			if (ret >= 0)
				ret = keep(s, pt_uprobe_perf_link(s->prog, ret, i));
		}
		n++;
	}
	if (ret >= 0 && s->multi)
		ret = keep(s, pt_uprobe_multi(s->prog, path, off, cookie, n, 0, pid));
	close(fd);
	return ret < 0 ? ret : 0;
}

int pt_stops_attach(struct pt_stops *s, pid_t pid, const struct pt_maps *m)
{
	const struct pt_map *x;
	size_t i;
	int ret;

	for (i = 0; i < s->n; i++) {
		x = s->v[i].there ? NULL : pt_maps_at(m, s->v[i].addr);
		if (!x || !x->x || !x->inode)
			continue;
		ret = attach_file(s, pid, m, x, i);
		if (ret)
			return ret;
	}
	return 0;
}

void pt_stops_arm(struct pt_stops *s, uint32_t points, pid_t only, bool stop)
{
	/* none first: what is armed half-way stops nobody */
	__atomic_store_n(&s->cell->points, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&s->cell->only, (uint32_t)only, __ATOMIC_RELAXED);
	__atomic_store_n(&s->cell->sig, stop ? (uint32_t)s->sig : 0, __ATOMIC_RELAXED);
	__atomic_store_n(&s->cell->hit, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&s->cell->points, points, __ATOMIC_SEQ_CST);
}

pid_t pt_stops_hit(struct pt_stops *s)
{
	return (pid_t)(uint32_t)__atomic_exchange_n(&s->cell->hit, 0, __ATOMIC_SEQ_CST);
}

const struct pt_stop *pt_stops_at(const struct pt_stops *s, uint32_t points, uint64_t ip)
{
	size_t i;

	for (i = 0; i < s->n; i++)
		if (points >> i & 1 && s->v[i].there &&
		    pt_arch_behind(s->v[i].code, s->v[i].addr, ip))
			return &s->v[i];
	return NULL;
}

/*
 * The probes stay until this process ends: one that is killed while it takes them out
 * would leave break points behind (capture/session.c), one that ends is not killed.
 */
void pt_stops_close(struct pt_stops *s)
{
	if (s->cell) {
		pt_stops_arm(s, 0, 0, false);
		munmap(s->cell, sizeof(*s->cell));
	}
	*s = (struct pt_stops){ .prog = -1, .map = -1 };
}
