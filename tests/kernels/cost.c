// SPDX-License-Identifier: BSD-2-Clause
/*
 * What the hooks add to what a job does.
 *
 *   cost DOOR traced|other DIR WHAT...
 *   cost --job DIR WHAT...
 *
 * One job does each WHAT many times; it is the target, or another process is.
 * DOOR is that of the read calls; "off": no tracer at all; "empty": an fexit
 * program on vfs_read that does nothing; "pair": fentry and fexit programs that do
 * nothing. Meant for an emulated machine whose clock counts instructions. Writes
 *
 *   cpu WHAT DOOR WHO EVENTS NS      CPU time of the job
 *   prog WHAT DOOR WHO NAME RUNS NS  ... of each BPF program, when it does WHAT
 *                                    once more while the kernel counts
 *   error TEXT
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "job.h"

#define FILES 100
#define FILE_SIZE 65536
#define MAP_SIZE (8 << 20)
#define TURNS 2000

static char buf[FILE_SIZE] __attribute__((aligned(4096)));
static uint32_t turn_of; /* which thread's turn it is; a futex */

static void die(const char *what)
{
	fprintf(stderr, "cost: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int open_item(const char *dir, unsigned i, int flags)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/item%u", dir, i);
	fd = open(path, flags | O_CLOEXEC, 0600);
	if (fd < 0)
		die(path);
	return fd;
}

/* ---- what the job does: each returns the number of events ------------------ */

/* Opens a cached file, reads once to four times, closes it. */
static uint64_t do_read(const char *dir)
{
	unsigned seed = 1, i, k, n = 0;

	while (n < 5000) {
		int fd = open_item(dir, (unsigned)rand_r(&seed) % FILES, O_RDONLY);

		k = 1 + (unsigned)rand_r(&seed) % 4;
		for (i = 0; i < k; i++, n++)
			if (read(fd, buf, 1 + (unsigned)rand_r(&seed) % 16384) < 0)
				die("read");
		close(fd);
	}
	return n;
}

static void pass(uint32_t from, uint32_t to)
{
	while (__atomic_load_n(&turn_of, __ATOMIC_ACQUIRE) != from)
		syscall(SYS_futex, &turn_of, FUTEX_WAIT_PRIVATE, to, NULL, NULL, 0);
	__atomic_store_n(&turn_of, to, __ATOMIC_RELEASE);
	syscall(SYS_futex, &turn_of, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *echo(void *arg)
{
	unsigned i;

	(void)arg;
	for (i = 0; i < TURNS; i++)
		pass(1, 0);
	return NULL;
}

/* Two threads wake each other by a futex: two switches and two wake-ups a turn. */
static uint64_t do_switch(const char *dir)
{
	unsigned i;
	pthread_t t;

	(void)dir;
	turn_of = 0;
	if (pthread_create(&t, NULL, echo, NULL))
		die("pthread_create");
	for (i = 0; i < TURNS; i++)
		pass(0, 1);
	pthread_join(t, NULL);
	return 2 * TURNS;
}

/* Pages of memory that were never touched. */
static uint64_t do_fault(const char *dir)
{
	volatile char *m = mmap(NULL, MAP_SIZE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t i;

	(void)dir;
	if (m == MAP_FAILED || madvise((void *)m, MAP_SIZE, MADV_NOHUGEPAGE))
		die("mmap");
	for (i = 0; i < MAP_SIZE; i += 4096)
		m[i] = 1;
	munmap((void *)m, MAP_SIZE);
	return MAP_SIZE / 4096;
}

/* Pages of a mapped file, cached or not, no neighbours brought along. */
static uint64_t touch_file(const char *dir, bool cold)
{
	int fd = open_item(dir, FILES, O_RDONLY);
	volatile char *m;
	size_t i, sum = 0, step = cold ? 16 * 4096 : 4096;

	if (cold && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		die("posix_fadvise");
	m = mmap(NULL, MAP_SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
	if (m == MAP_FAILED || madvise((void *)m, MAP_SIZE, MADV_RANDOM))
		die("mmap");
	for (i = 0; i < MAP_SIZE; i += step)
		sum += (size_t)m[i];
	buf[0] = (char)sum;
	munmap((void *)m, MAP_SIZE); /* pages that are mapped cannot be dropped */
	close(fd);
	return MAP_SIZE / step;
}

static uint64_t do_fault_file(const char *dir)
{
	return touch_file(dir, false);
}

static uint64_t do_fault_disk(const char *dir)
{
	return touch_file(dir, true);
}

/* Reads that the disk has to answer. */
static uint64_t do_block(const char *dir)
{
	int fd = open_item(dir, FILES, O_RDONLY | O_DIRECT);
	unsigned i, n = 500;

	for (i = 0; i < n; i++)
		if (pread(fd, buf, 4096, (i * 37 % (MAP_SIZE / 4096)) * 4096) != 4096)
			die("pread");
	close(fd);
	return n;
}

/* Cached writes; every hundredth is made durable. */
static uint64_t do_write(const char *dir)
{
	int fd = open_item(dir, FILES + 1, O_WRONLY | O_CREAT);
	unsigned i, n = 2000;

	for (i = 0; i < n; i++) {
		if (pwrite(fd, buf, 16384, (i % 64) * 16384) != 16384)
			die("pwrite");
		if (i % 100 == 99 && fsync(fd))
			die("fsync");
	}
	close(fd);
	return n;
}

/* Connections over the loopback device, and bytes through each. */
static uint64_t do_socket(const char *dir)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), out, in;
	unsigned i, k, n = 200, sends = 10;

	(void)dir;
	if (l < 0 || listen(l, 1) || getsockname(l, (struct sockaddr *)&a, &len))
		die("listen");
	for (i = 0; i < n; i++) {
		out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (out < 0 || connect(out, (struct sockaddr *)&a, len))
			die("connect");
		in = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		for (k = 0; k < sends; k++)
			if (send(out, buf, 1000, 0) != 1000 ||
			    recv(in, buf, 1000, MSG_WAITALL) != 1000)
				die("send");
		close(in);
		close(out);
	}
	close(l);
	return n * sends;
}

static const struct {
	const char *name;
	uint64_t (*run)(const char *dir);
} works[] = {
	{ "read", do_read },	     { "switch", do_switch },
	{ "fault", do_fault },	     { "fault_file", do_fault_file },
	{ "fault_disk", do_fault_disk }, { "block", do_block },
	{ "write", do_write },	     { "socket", do_socket },
};
#define N_WORKS (sizeof(works) / sizeof(works[0]))

static void make_files(const char *dir)
{
	unsigned i, k;

	for (i = 0; i <= FILES; i++) {
		int fd = open_item(dir, i, O_WRONLY | O_CREAT | O_TRUNC);

		for (k = 0; k < (i == FILES ? MAP_SIZE / FILE_SIZE : 1); k++)
			if (write(fd, buf, FILE_SIZE) != FILE_SIZE)
				die("write");
		if (fsync(fd))
			die("fsync");
		close(fd);
	}
}

static uint64_t cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int work(const char *what, const char *dir)
{
	unsigned long long n, ns;
	char path[512], c;
	FILE *truth;
	size_t i;

	for (i = 0; i < N_WORKS && strcmp(works[i].name, what); i++)
		;
	if (i == N_WORKS)
		return 2;
	printf("ready\n");
	fflush(stdout);
	if (read(0, &c, 1) != 1)
		return 1;
	ns = cpu_now();
	n = works[i].run(dir);
	ns = cpu_now() - ns;
	snprintf(path, sizeof(path), "%s/truth", dir);
	truth = fopen(path, "we");
	if (!truth || fprintf(truth, "%llu %llu\n", n, ns) < 0 || fclose(truth))
		die(path);
	printf("done\n");
	fflush(stdout);
	return 0;
}

/* Each twice. */
static int job(const char *dir, char **what)
{
	char c;
	int r = 0;

	make_files(dir);
	do_read(dir); /* the page cache has it all now */
	do_write(dir);
	for (; *what && !r; what++) {
		r = work(*what, dir);
		if (!r)
			r = work(*what, dir);
	}
	while (read(0, &c, 1) > 0)
		;
	return r;
}

/* ---- the tracer -------------------------------------------------------------- */

static void on_record(void *ctx, const void *rec, size_t len)
{
	(void)ctx;
	(void)rec;
	(void)len;
}

/* A process that does nothing, to be the target. */
static pid_t idle(void)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

/* A program of two instructions on vfs_read; its link, or -1. */
static int attach_empty(enum bpf_attach_type at)
{
	const struct bpf_insn nop[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int id = libbpf_find_vmlinux_btf_id("vfs_read", at), prog, link;
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = at,
		    .attach_btf_id = (uint32_t)id);

	if (id <= 0)
		return -1;
	prog = bpf_prog_load(BPF_PROG_TYPE_TRACING, "empty", "GPL", nop, 2, &o);
	link = prog < 0 ? -1 : bpf_link_create(prog, 0, at, NULL);
	if (prog >= 0)
		close(prog);
	return link;
}

static uint32_t last_program(void)
{
	uint32_t id = 0;

	while (!bpf_prog_get_next_id(id, &id))
		;
	return id;
}

#define MAX_PROGS 256
struct prog {
	char name[64];
	uint32_t id;
	uint64_t runs, ns;
};

/* The whole name of a program: the kernel keeps 15 characters of it beside its type
 * information, which has all. */
static void name_of(int fd, const struct bpf_prog_info *info, struct prog *out)
{
	struct bpf_func_info first = { 0, 0 };
	struct bpf_prog_info again;
	uint32_t len = sizeof(again);
	const struct btf_type *t = NULL;
	const char *name = NULL;
	struct btf *btf = NULL;

	memset(&again, 0, sizeof(again));
	again.nr_func_info = 1;
	again.func_info_rec_size = sizeof(first);
	again.func_info = (uint64_t)(uintptr_t)&first;
	if (info->btf_id && !bpf_obj_get_info_by_fd(fd, &again, &len) &&
	    again.nr_func_info)
		btf = btf__load_from_kernel_by_id(info->btf_id);
	if (btf)
		t = btf__type_by_id(btf, first.type_id);
	if (t)
		name = btf__name_by_offset(btf, t->name_off);
	snprintf(out->name, sizeof(out->name), "%s", name ? name : info->name);
	btf__free(btf);
}

/* Those with larger ids than `id`, which were loaded since; how many. */
static size_t programs(uint32_t id, struct prog *out)
{
	size_t n = 0;

	while (n < MAX_PROGS && !bpf_prog_get_next_id(id, &id)) {
		struct bpf_prog_info info;
		uint32_t len = sizeof(info);
		int fd = bpf_prog_get_fd_by_id(id);

		if (fd < 0)
			continue;
		memset(&info, 0, sizeof(info));
		if (!bpf_obj_get_info_by_fd(fd, &info, &len)) {
			name_of(fd, &info, &out[n]);
			out[n].id = id;
			out[n].runs = info.run_cnt;
			out[n++].ns = info.run_time_ns;
		}
		close(fd);
	}
	return n;
}

static void show(const char *key, uint32_t before, const struct prog *old, size_t n)
{
	static struct prog now[MAX_PROGS];
	size_t i, k, m = programs(before, now);

	for (i = 0; i < m; i++) {
		for (k = 0; k < n && old[k].id != now[i].id; k++)
			;
		if (k < n && now[i].runs > old[k].runs)
			printf("prog %s %s %llu %llu\n", key, now[i].name,
			       (unsigned long long)(now[i].runs - old[k].runs),
			       (unsigned long long)(now[i].ns - old[k].ns));
	}
}

struct tracer {
	const char *door, *who, *dir;
	struct pt_capture *c;
	uint32_t before; /* programs with larger ids are ours */
	int links[2], to, from;
};

/* One turn of the job. */
static int turn(struct tracer *t, const char *key, bool counted)
{
	static struct prog old[MAX_PROGS];
	int count = counted ? bpf_enable_stats(BPF_STATS_RUN_TIME) : -1, r;
	size_t n = counted ? programs(t->before, old) : 0;
	unsigned long long calls, ns;
	char path[512];
	FILE *f;

	r = write(t->to, "g", 1) == 1 ? 0 : -EPIPE;
	if (!r)
		r = job_await(t->from, "done", t->c, on_record);
	if (count >= 0)
		close(count);
	if (!r && counted)
		show(key, t->before, old, n);
	snprintf(path, sizeof(path), "%s/truth", t->dir);
	f = r || counted ? NULL : fopen(path, "re");
	if (f && fscanf(f, "%llu %llu", &calls, &ns) == 2)
		printf("cpu %s %llu %llu\n", key, calls, ns);
	if (f)
		fclose(f);
	return r;
}

static int attach(struct tracer *t, pid_t target, struct pt_err *err)
{
	struct pt_capture_opts o = { .n_pids = 1, .mode = PT_MODE_STANDARD,
				     .ring_mb = 64, .pids = &target };
	bool pair = !strcmp(t->door, "pair");
	int r;

	if (!strcmp(t->door, "off"))
		return 0;
	if (pair || !strcmp(t->door, "empty")) {
		t->links[0] = attach_empty(BPF_TRACE_FEXIT);
		t->links[1] = pair ? attach_empty(BPF_TRACE_FENTRY) : 0;
		return t->links[0] < 0 || t->links[1] < 0 ? -ENOTSUP : 0;
	}
	r = pt_reads_parse(t->door, &o.reads);
	return r ? r : pt_capture_open(&t->c, &o, err);
}

static int trace(const char *door, const char *who, char *dir, char **what)
{
	struct tracer t = { .door = door, .who = who, .dir = dir,
			    .before = last_program(), .links = { -1, -1 } };
	char key[96], *job_argv[N_WORKS + 4] = { "/proc/self/exe", "--job", dir };
	bool other = !strcmp(who, "other");
	pid_t target = other ? idle() : 0, pid;
	struct pt_err err = { "" };
	size_t i;
	int r;

	for (i = 0; what[i] && i < N_WORKS; i++)
		job_argv[3 + i] = what[i];
	pid = job_start(job_argv, &t.to, &t.from);
	if (pid < 0 || target < 0)
		return 1;
	r = job_await(t.from, "ready", NULL, on_record);
	if (!r)
		r = attach(&t, target ? target : pid, &err);
	for (i = 0; what[i] && !r; i++) {
		snprintf(key, sizeof(key), "%s %s %s", what[i], door, who);
		r = turn(&t, key, false);
		if (!r)
			r = job_await(t.from, "ready", t.c, on_record);
		if (!r)
			r = turn(&t, key, true);
		if (!r && what[i + 1])
			r = job_await(t.from, "ready", t.c, on_record);
	}
	if (r)
		printf("error %s %s: %s\n", door, who,
		       err.msg[0] ? err.msg : strerror(-r));
	if (t.c)
		pt_capture_stop(t.c, on_record, NULL);
	pt_capture_close(t.c, NULL, NULL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (other) {
		kill(target, SIGKILL);
		waitpid(target, NULL, 0);
	}
	return r ? 1 : 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	if (argc > 3 && !strcmp(argv[1], "--job"))
		return job(argv[2], argv + 3);
	if (argc < 5 || argc > 4 + (int)N_WORKS) {
		fprintf(stderr, "usage: cost DOOR traced|other DIR WHAT...\n");
		return 2;
	}
	return trace(argv[1], argv[2], argv[3], argv + 4);
}
