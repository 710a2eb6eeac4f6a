/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/selftest.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "capture/session.h"

/* ---- the functions ------------------------------------------------------------------ */

/*
 * Each begins with what compilers put there for processors that check jumps; the probe
 * stands behind it, as on a GPU function. Written out, so that the instruction is known.
 */
#define FUNCTION(name, code)                                                             \
	int name(int);                                                                   \
	__asm__(".pushsection .text\n\t.balign 16\n\t.hidden " #name                     \
		"\n\t.globl " #name "\n\t.type " #name ", %function\n" #name ":\n\t" code \
		"\n\t.size " #name ", . - " #name "\n\t.popsection")

#if defined(__x86_64__)
FUNCTION(pt_self_push, "endbr64; push %rbp; mov %edi, %eax; pop %rbp; ret");
FUNCTION(pt_self_jump, "endbr64; cmp %edi, %edi; je 1f; nop; 1: mov %edi, %eax; ret");
FUNCTION(pt_self_move, "endbr64; mov %edi, %eax; ret");
#define PLACES                                                                           \
	{ pt_self_push, "push", 4, true }, { pt_self_jump, "je", 6, true },              \
	{ pt_self_move, "mov", 4, false }
#elif defined(__aarch64__)
FUNCTION(pt_self_branch, "hint 34; b 1f; nop; 1: ret");
FUNCTION(pt_self_store, "hint 34; stp x29, x30, [sp, -16]!; ldp x29, x30, [sp], 16; ret");
#define PLACES { pt_self_branch, "b", 4, true }, { pt_self_store, "stp", 4, false }
#else
#error "no functions for the self-test on this processor"
#endif

static const struct place {
	int (*fn)(int);
	const char *name; /* of the instruction */
	uint8_t skip;	  /* to it, bytes */
	bool emulated;
} places[] = { PLACES };

#define N_PLACES (sizeof(places) / sizeof(places[0]))
#define TURNS 9
#define CALLS_EMULATED 12 /* of a turn; about a microsecond each */
#define CALLS_STEPPED 4	  /* ... up to fifteen */

/* ---- putting probes there ----------------------------------------------------------- */

/* Offset in our own executable of an address of ours; 0 not found. */
static uint64_t self_offset(uintptr_t addr)
{
	unsigned long lo, hi, off;
	char line[512];
	uint64_t r = 0;
	FILE *f = fopen("/proc/self/maps", "re");

	if (!f)
		return 0;
	while (!r && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %*4s %lx", &lo, &hi, &off) == 3 &&
		    addr >= lo && addr < hi)
			r = addr - lo + off;
	fclose(f);
	return r;
}

static int perf_event(void)
{
	uint64_t offset = self_offset((uintptr_t)places[0].fn + places[0].skip);

	return offset ? pt_uprobe_perf("/proc/self/exe", offset, -1) : -ENOENT;
}

bool pt_selftest_perf_opens(void)
{
	int fd = perf_event();

	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/* A program that counts in the slot of `map` that its cookie says. */
static int counter(int map, bool multi)
{
	LIBBPF_OPTS(bpf_prog_load_opts, o,
		    .expected_attach_type = multi ?
			    (enum bpf_attach_type)PT_ATTACH_UPROBE_MULTI : 0);
	const struct bpf_insn insns[] = {
		PT_INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_attach_cookie),
		PT_INSN(BPF_JMP | BPF_JGE | BPF_K, 0, 0, 6, N_PLACES),
		PT_INSN(BPF_ALU64 | BPF_LSH | BPF_K, 0, 0, 0, 3),
		PT_INSN(BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_VALUE, 0, map),
		PT_INSN(0, 0, 0, 0, 0),
		PT_INSN(BPF_ALU64 | BPF_ADD | BPF_X, 1, 0, 0, 0),
		PT_INSN(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 1),
		PT_INSN(BPF_STX | BPF_DW | BPF_ATOMIC, 1, 2, 0, BPF_ADD),
		PT_INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0),
		PT_INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};

	return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "pt_self", "GPL", insns,
			     sizeof(insns) / sizeof(insns[0]), &o);
}

struct probes {
	int fd[2 * N_PLACES];
	size_t n;	 /* descriptors */
	size_t n_places; /* that have one */
};

static int attach_multi(struct probes *p, int prog)
{
	uint64_t offset[N_PLACES], cookie[N_PLACES];
	size_t i;
	int fd;

	for (i = 0; i < N_PLACES; i++) {
		offset[i] = self_offset((uintptr_t)places[i].fn + places[i].skip);
		cookie[i] = i;
		if (!offset[i])
			return -ENOENT;
	}
	fd = pt_uprobe_multi(prog, "/proc/self/exe", offset, cookie, N_PLACES, 0, getpid());
	if (fd < 0)
		return fd;
	p->fd[p->n++] = fd;
	p->n_places = N_PLACES;
	return 0;
}

static int attach_perf(struct probes *p, int prog)
{
	int event = perf_event(), fd;

	if (event < 0)
		return event;
	p->fd[p->n++] = event;
	fd = pt_uprobe_perf_link(prog, event, 0);
	if (fd < 0)
		return fd;
	p->fd[p->n++] = fd;
	p->n_places = 1;
	return 0;
}

/* ---- calling them ------------------------------------------------------------------- */

struct turns {
	size_t n_places;
	double ns[N_PLACES][TURNS]; /* of a call */
};

static uint32_t calls_of(const struct place *p)
{
	return p->emulated ? CALLS_EMULATED : CALLS_STEPPED;
}

/* All in turns, so that what disturbs one disturbs all; and one turn before, which brings
 * the code in. */
static void *call_all(void *arg)
{
	struct turns *t = arg;
	uint64_t begin, end;
	uint32_t k;
	size_t i;
	int turn;

	for (turn = -1; turn < TURNS; turn++)
		for (i = 0; i < t->n_places; i++) {
			begin = pt_now_ns();
			for (k = 0; k < calls_of(&places[i]); k++)
				places[i].fn((int)k);
			end = pt_now_ns();
			if (turn >= 0)
				t->ns[i][turn] = (double)(end - begin) / calls_of(&places[i]);
		}
	return NULL;
}

PT_ORDER(by_value, double, pt_cmp(*x, *y))

/* The dearest place of a kind is the kind's. */
static void take_cost(struct pt_self_cost *c, double *with, double *without)
{
	double base;

	qsort(with, TURNS, sizeof(*with), by_value);
	qsort(without, TURNS, sizeof(*without), by_value);
	base = without[TURNS / 2];
	if (c->ns >= with[TURNS / 2] - base)
		return;
	c->low = fmax(0, with[1] - base);
	c->ns = fmax(0, with[TURNS / 2] - base);
	c->high = fmax(0, with[TURNS - 2] - base);
}

static void judge(struct pt_selftest *t, int map, struct turns *with, struct turns *without)
{
	uint64_t got[N_PLACES] = { 0 };
	uint32_t want, key = 0;
	size_t i;

	if (bpf_map_lookup_elem(map, &key, got))
		memset(got, 0, sizeof(got));
	for (i = 0; i < with->n_places; i++) {
		want = calls_of(&places[i]) * (TURNS + 1);
		if (got[i] != want) {
			t->calls = want;
			t->counted = got[i] < UINT32_MAX ? (uint32_t)got[i] : UINT32_MAX;
			t->place = places[i].name;
			return;
		}
		t->calls += want;
		t->counted += want;
		take_cost(places[i].emulated ? &t->emulated : &t->stepped, with->ns[i],
			  without->ns[i]);
	}
	t->works = true;
}

static int in_a_thread(struct turns *t)
{
	pthread_t thread;
	int err = pthread_create(&thread, NULL, call_all, t);

	return err ? -err : -pthread_join(thread, NULL);
}

static void run(struct pt_selftest *t, bool multi)
{
	int map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "pt_self", 4, 8 * N_PLACES, 1, NULL);
	int prog = map < 0 ? map : counter(map, multi);
	struct turns with = { .n_places = 0 }, without = { .n_places = N_PLACES };
	struct probes p = { .n = 0 };
	int err = prog < 0 ? prog : in_a_thread(&without);

	err = err ?: (multi ? attach_multi(&p, prog) : attach_perf(&p, prog));
	if (!err) {
		with.n_places = p.n_places;
		err = in_a_thread(&with);
	}
	if (!err) {
		t->opened = true;
		judge(t, map, &with, &without);
	}
	while (p.n)
		close(p.fd[--p.n]);
	if (prog >= 0)
		close(prog);
	if (map >= 0)
		close(map);
}

const struct pt_selftest *pt_selftest(bool multi)
{
	static struct pt_selftest found[2];
	static bool done[2];
	struct pt_selftest *t = &found[multi];

	if (!done[multi]) {
		t->emulated = t->stepped = (struct pt_self_cost){ NAN, NAN, NAN };
		run(t, multi);
		done[multi] = true;
	}
	return t;
}

void pt_selftest_text(const struct pt_selftest *t, char *out, size_t size)
{
	if (!t->opened)
		snprintf(out, size, "the kernel does not take probes on a function of our own");
	else if (!t->works)
		snprintf(out, size, "of %u calls of a function of our own %u were counted (at %s)",
			 t->calls, t->counted, t->place);
	else
		snprintf(out, size, "%u of %u calls of functions of our own counted", t->counted,
			 t->calls);
}
