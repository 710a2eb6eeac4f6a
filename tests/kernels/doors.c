// SPDX-License-Identifier: BSD-2-Clause
/*
 * Trace the job of reads.c through one door and hold its own numbers beside
 * what the records say.
 *
 *   doors DOOR[+crowd] READS DIR FILES CALLS THREADS SEED
 *   doors --load
 *   doors --cost DOOR|off traced|other READS DIR FILES CALLS
 *
 * +crowd: beside processes that are all blocked in a read of a pipe.
 * --cost: one thread reads; it is the target, or another process is. "off": no
 * tracer at all.
 *
 * Writes lines for tests/kernels/judge.py:
 *   hook NEED DOOR
 *   sum KIND files calls bytes empty seen_calls seen_bytes bound_calls
 *       exact_calls exact_data exact_bytes within named
 *     the last five: files whose calls agree, whose calls that returned data
 *     agree, whose bytes agree, whose bytes lie between the truth and two pages
 *     above it per call that is said to be bounded, and which have their name
 *   lost N
 *   cost PROGRAM instructions runs ns
 *   load MODE PROGRAM instructions
 *   cpu DOOR traced|other CALLS NS   CPU time of the job
 *   error TEXT
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capture/load.h"

#define MAX_FILES 4096
#define LIMIT_S 240
#define PAGE 4096

struct file {
	char kind[24], name[32];
	uint32_t dev;
	uint64_t inode, calls, bytes, empty;
	uint64_t seen_calls, seen_bytes, seen_bound;
	int named;
};

static struct file files[MAX_FILES];
static size_t n_files;

/* Records come before the truth is there: kept by file, in a plain table. */
struct seen {
	uint32_t dev;
	int used, named;
	uint64_t inode, calls, bytes, bound;
	char name[32];
};
#define SLOTS 65536
static struct seen table[SLOTS];

static struct seen *slot(uint32_t dev, uint64_t inode)
{
	size_t i = (size_t)((inode * 0x9e3779b97f4a7c15u) >> 40) % SLOTS, k;

	for (k = 0; k < SLOTS; k++, i = (i + 1) % SLOTS) {
		struct seen *s = &table[i];

		if (!s->used) {
			s->used = 1;
			s->dev = dev;
			s->inode = inode;
			return s;
		}
		if (s->dev == dev && s->inode == inode)
			return s;
	}
	printf("error too many files\n");
	exit(1);
}

static void on_record(void *ctx, const void *rec, size_t len)
{
	const struct pt_hdr *h = rec;
	struct seen *s;

	(void)ctx;
	(void)len;
	if (h->kind == PT_REC_READ) {
		const struct pt_rec_read *r = rec;

		if (r->obj_kind != PT_OBJ_FILE || r->ret < 0)
			return;
		s = slot(r->dev, r->inode);
		s->calls++;
		s->bytes += (uint64_t)r->ret;
	} else if (h->kind == PT_REC_READS) {
		const struct pt_rec_reads *r = rec;

		if (r->obj_kind != PT_OBJ_FILE)
			return;
		s = slot(r->dev, r->inode);
		s->calls += r->count - r->failed;
		s->bytes += r->bytes;
		if (h->flags & PT_F_BOUND)
			s->bound += r->count;
	} else if (h->kind == PT_REC_FILE) {
		const struct pt_rec_file *f = rec;

		s = slot(f->dev, f->inode);
		s->named = 1;
		snprintf(s->name, sizeof(s->name), "%.31s", f->path);
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int read_truth(const char *path)
{
	unsigned long long inode, calls, bytes, empty;
	char line[256];
	FILE *f = fopen(path, "re");

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		struct file *x = &files[n_files];

		if (!strncmp(line, "skip ", 5)) {
			printf("%s", line);
			continue;
		}
		if (!strncmp(line, "cpu ", 4))
			continue;
		if (n_files == MAX_FILES ||
		    sscanf(line, "%23s %u %llu %llu %llu %llu %31s", x->kind,
			   &x->dev, &inode, &calls, &bytes, &empty,
			   x->name) != 7)
			break;
		x->inode = inode;
		x->calls = calls;
		x->bytes = bytes;
		x->empty = empty;
		n_files++;
	}
	fclose(f);
	return 0;
}

static void compare(void)
{
	static const char *const kinds[] = { "read", "readv", "pread", "preadv2",
					     "mmap", "io_uring", "sendfile",
					     "splice", "copy_file_range",
					     "o_direct" };
	size_t k, i;

	for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		uint64_t v[7] = { 0 };
		unsigned n[6] = { 0 };

		for (i = 0; i < n_files; i++) {
			struct file *f = &files[i];
			struct seen *s;

			if (strcmp(f->kind, kinds[k]))
				continue;
			s = slot(f->dev, f->inode);
			v[0] += f->calls;
			v[1] += f->bytes;
			v[2] += f->empty;
			v[3] += s->calls;
			v[4] += s->bytes;
			v[5] += s->bound;
			n[0]++;
			n[1] += s->calls == f->calls;
			n[2] += s->calls == f->calls - f->empty;
			n[3] += s->bytes == f->bytes;
			n[4] += s->bytes >= f->bytes &&
				s->bytes <= f->bytes + 2 * PAGE * s->bound;
			n[5] += s->named && !strcmp(s->name, f->name);
		}
		printf("sum %s %u %llu %llu %llu %llu %llu %llu %u %u %u %u %u\n",
		       kinds[k], n[0], (unsigned long long)v[0],
		       (unsigned long long)v[1], (unsigned long long)v[2],
		       (unsigned long long)v[3], (unsigned long long)v[4],
		       (unsigned long long)v[5], n[1], n[2], n[3], n[4], n[5]);
	}
}

/* The programs with larger ids than `id`, which are those loaded since. */
static void costs(uint32_t id)
{
	uint32_t len;
	int fd;

	while (!bpf_prog_get_next_id(id, &id)) {
		struct bpf_prog_info info;

		fd = bpf_prog_get_fd_by_id(id);
		if (fd < 0)
			continue;
		memset(&info, 0, sizeof(info));
		len = sizeof(info);
		if (!bpf_obj_get_info_by_fd(fd, &info, &len) &&
		    !strncmp(info.name, "pt_", 3) && info.run_cnt)
			printf("cost %s %u %llu %llu\n", info.name,
			       info.xlated_prog_len / 8,
			       (unsigned long long)info.run_cnt,
			       (unsigned long long)info.run_time_ns);
		close(fd);
	}
}

static uint32_t last_program(void)
{
	uint32_t id = 0;

	while (!bpf_prog_get_next_id(id, &id))
		;
	return id;
}

static pid_t start(char **argv, int *to, int *from)
{
	int in[2], out[2];
	pid_t pid;

	if (pipe(in) || pipe(out))
		return -1;
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[1]);
		close(out[0]);
		execv(argv[0], argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	*to = in[1];
	*from = out[0];
	return pid;
}

/* The next line of the job; records are read meanwhile. */
static int await(int fd, const char *word, struct pt_capture *c)
{
	double end = now() + LIMIT_S, tick = now() + 1;
	char buf[64] = "";
	size_t n = 0;
	ssize_t r;

	while (now() < end) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (poll(&p, 1, 20) > 0) {
			r = read(fd, buf + n, 1);
			if (r <= 0)
				return -EPIPE;
			if (buf[n] == '\n') {
				buf[n] = 0;
				return strcmp(buf, word) ? -EPROTO : 0;
			}
			if (n < sizeof(buf) - 1)
				n++;
			continue;
		}
		if (c)
			pt_capture_drain(c, on_record, NULL);
		if (c && now() >= tick) {
			pt_capture_tick(c, on_record, NULL);
			tick += 1;
		}
	}
	return -ETIMEDOUT;
}

static void on_program(void *ctx, const char *name, bool loaded, uint32_t insns)
{
	if (loaded)
		printf("load %s %s %u\n", (const char *)ctx, name, insns);
}

/* Every program that this kernel takes, in each mode. */
static int load_all(void)
{
	static const char *const names[] = { "light", "standard", "full" };
	struct pt_err err = { "" };
	int m, bad = 0;

	for (m = 0; m < 3; m++) {
		struct pt_capture_opts o = { .mode = (enum pt_mode)m };

		if (pt_load_list(&o, on_program, (void *)names[m], &err)) {
			printf("error %s\n", err.msg);
			bad = 1;
		}
	}
	return bad;
}

#define CROWD 40

/* Processes that block in a read until `fd`, their pipe's other end, is closed. */
static int crowd(int *fd)
{
	int p[2], i;
	char c;

	if (pipe(p))
		return -errno;
	*fd = p[1];
	for (i = 0; i < CROWD; i++) {
		if (fork())
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(p[1]);
		while (read(p[0], &c, 1) > 0)
			;
		_exit(0);
	}
	close(p[0]);
	usleep(300000);
	return 0;
}

static int trace(const char *name, char **job, const char *truth)
{
	size_t len = strcspn(name, "+");
	char door[16] = "";
	struct pt_capture_opts o = { .n_pids = 1, .mode = PT_MODE_STANDARD,
				     .ring_mb = 64 };
	const struct pt_hook_state *hooks;
	uint64_t loss[PT_LOSS_NR], lost = 0;
	struct pt_capture *c = NULL;
	struct pt_err err = { "" };
	uint32_t before = last_program();
	int to, from, r, stats;
	size_t i, n;
	pid_t pid;

	int blocked = -1;

	memcpy(door, name, len < sizeof(door) ? len : 0);
	if (pt_reads_parse(door, &o.reads)) {
		printf("error no door %s\n", door);
		return 2;
	}
	pid = start(job, &to, &from);
	if (pid < 0)
		return 1;
	o.pids = &pid;
	stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	r = await(from, "ready", NULL);
	if (!r)
		r = pt_capture_open(&c, &o, &err);
	if (r) {
		printf("error %s\n", err.msg[0] ? err.msg : strerror(-r));
		goto out;
	}
	if (name[len])
		r = crowd(&blocked);
	if (!r && write(to, "g", 1) != 1)
		r = -errno;
	if (!r)
		r = await(from, "done", c);
	if (r)
		printf("error the job: %s\n", strerror(-r));
	pt_capture_stop(c, on_record, NULL);
	pt_capture_loss(c, loss);
	for (i = 0; i < PT_LOSS_NR; i++)
		lost += loss[i];
	n = pt_capture_hooks(c, &hooks);
	for (i = 0; i < n; i++)
		printf("hook %s %s %s\n", hooks[i].need, hooks[i].door,
		       hooks[i].note);
	printf("lost %llu\n", (unsigned long long)lost);
	costs(before);
	if (!r)
		r = read_truth(truth);
	if (!r)
		compare();
out:
	pt_capture_close(c, NULL, NULL);
	if (stats >= 0)
		close(stats);
	if (blocked >= 0)
		close(blocked);
	close(to);
	close(from);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return r ? 1 : 0;
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

static int cost(char **argv)
{
	const char *door = argv[2], *who = argv[3];
	char truth[512], line[256], *job[] = { argv[4], argv[5], argv[6], argv[7],
					       "1", "1", truth, "1", NULL };
	struct pt_capture_opts o = { .n_pids = 1, .mode = PT_MODE_STANDARD,
				     .ring_mb = 64 };
	bool off = !strcmp(door, "off"), other = !strcmp(who, "other");
	struct pt_capture *c = NULL;
	struct pt_err err = { "" };
	pid_t pid, target = other ? idle() : 0;
	unsigned long long calls, ns;
	int to, from, r = 0;
	FILE *f;

	snprintf(truth, sizeof(truth), "%s/truth", argv[5]);
	pid = start(job, &to, &from);
	if (!target)
		target = pid;
	o.pids = &target;
	if (pid < 0 || (!off && pt_reads_parse(door, &o.reads)))
		return 1;
	r = await(from, "ready", NULL);
	if (!r && !off)
		r = pt_capture_open(&c, &o, &err);
	if (!r && write(to, "g", 1) == 1)
		r = await(from, "done", c);
	if (r)
		printf("error %s\n", err.msg[0] ? err.msg : strerror(-r));
	if (c)
		pt_capture_stop(c, on_record, NULL);
	pt_capture_close(c, NULL, NULL);
	f = r ? NULL : fopen(truth, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "cpu %llu %llu", &calls, &ns) == 2)
			printf("cpu %s %s %llu %llu\n", door, who, calls, ns);
	if (f)
		fclose(f);
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
	char truth[512], *job[8];
	int i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && !strcmp(argv[1], "--load"))
		return load_all();
	if (argc == 8 && !strcmp(argv[1], "--cost"))
		return cost(argv);
	if (argc != 8) {
		fprintf(stderr, "usage: doors DOOR READS DIR FILES CALLS THREADS "
				"SEED | --load | --cost DOOR|off traced|other "
				"READS DIR FILES CALLS\n");
		return 2;
	}
	for (i = 0; i < 6; i++)
		job[i] = argv[i + 2];
	snprintf(truth, sizeof(truth), "%s/truth", argv[3]);
	job[6] = truth;
	job[7] = NULL;
	return trace(argv[1], job, truth);
}
