// SPDX-License-Identifier: BSD-2-Clause
/*
 * Trace the job of reads.c through one door and hold its own numbers beside
 * what the records say.
 *
 *   doors DOOR[+crowd] READS DIR FILES CALLS THREADS SEED [OPTIONS]
 *   doors --load
 *
 * +crowd: beside processes that are all blocked in a read of a pipe. OPTIONS are
 * the job's; "names" is for this program: a file is whatever has its name, for
 * overlayfs gives a file other numbers than the one below it has. DIR.truth gets
 * the job's numbers.
 *
 * Writes lines for tests/kernels/judge.py:
 *   hook NEED DOOR
 *   sum KIND files calls bytes empty failed seen_calls seen_bytes bound_calls
 *       seen_failed exact_calls exact_data exact_bytes exact_failed within named
 *     the last six: files whose calls agree, whose calls that returned data
 *     agree, whose bytes agree, whose failed calls agree, whose bytes lie between the truth and two pages
 *     above it per call that is said to be bounded, and which have their name
 *     of "mmap" the bytes are those that page faults brought in
 *   lost N
 *   cost PROGRAM instructions runs ns
 *   load MODE PROGRAM instructions
 *   error TEXT
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capture/load.h"
#include "job.h"

#define MAX_FILES 4096
#define PAGE 4096

struct file {
	char kind[24], name[32];
	uint32_t dev;
	uint64_t inode, calls, bytes, empty, failed;
};

static struct file files[MAX_FILES];
static size_t n_files;
static bool by_name;

/* Records come before the truth is there: kept by file, in a plain table. */
struct seen {
	uint32_t dev;
	int used, named;
	uint64_t inode, calls, bytes, bound, failed, faulted;
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

		/* a FIFO is one of the job's files, too */
		if (r->obj_kind != PT_OBJ_FILE && r->obj_kind != PT_OBJ_PIPE)
			return;
		s = slot(r->dev, r->inode);
		if (r->ret < 0) {
			s->failed++;
			return;
		}
		s->calls++;
		s->bytes += (uint64_t)r->ret;
	} else if (h->kind == PT_REC_READS) {
		const struct pt_rec_reads *r = rec;

		if (r->obj_kind != PT_OBJ_FILE)
			return;
		s = slot(r->dev, r->inode);
		s->calls += r->count - r->failed;
		s->failed += r->failed;
		s->bytes += r->bytes;
		if (h->flags & PT_F_BOUND)
			s->bound += r->count;
	} else if (h->kind == PT_REC_FAULTS) {
		const struct pt_rec_faults *r = rec;

		slot(r->dev, r->inode)->faulted += r->bytes;
	} else if (h->kind == PT_REC_FILE) {
		const struct pt_rec_file *f = rec;

		s = slot(f->dev, f->inode);
		s->named = 1;
		snprintf(s->name, sizeof(s->name), "%.31s", f->path);
	}
}

static int read_truth(const char *path)
{
	unsigned long long inode, calls, bytes, empty, failed;
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
		    sscanf(line, "%23s %u %llu %llu %llu %llu %llu %31s",
			   x->kind, &x->dev, &inode, &calls, &bytes, &empty,
			   &failed, x->name) != 8)
			break;
		x->inode = inode;
		x->calls = calls;
		x->bytes = bytes;
		x->empty = empty;
		x->failed = failed;
		n_files++;
	}
	fclose(f);
	return 0;
}

/* What was seen of a file: of its numbers, or of its name. */
static struct seen look(const struct file *f)
{
	struct seen sum = { .dev = f->dev };
	size_t i;

	if (!by_name || !strcmp(f->kind, "fifo")) /* which gets no name */
		return *slot(f->dev, f->inode);
	for (i = 0; i < SLOTS; i++) {
		const struct seen *s = &table[i];

		if (!s->named || strcmp(s->name, f->name))
			continue;
		sum.named = 1;
		snprintf(sum.name, sizeof(sum.name), "%s", s->name);
		sum.calls += s->calls;
		sum.bytes += s->bytes;
		sum.bound += s->bound;
		sum.failed += s->failed;
		sum.faulted += s->faulted;
	}
	return sum;
}

static void compare(const char *kind)
{
	uint64_t v[9] = { 0 };
	unsigned n[7] = { 0 };
	size_t i;

	for (i = 0; i < n_files; i++) {
		struct file *f = &files[i];
		struct seen s;

		if (strcmp(f->kind, kind))
			continue;
		s = look(f);
		if (!strcmp(kind, "mmap"))
			s.bytes += s.faulted;
		v[0] += f->calls;
		v[1] += f->bytes;
		v[2] += f->empty;
		v[3] += f->failed;
		v[4] += s.calls;
		v[5] += s.bytes;
		v[6] += s.bound;
		v[7] += s.failed;
		n[0]++;
		n[1] += s.calls == f->calls;
		n[2] += s.calls == f->calls - f->empty;
		n[3] += s.bytes == f->bytes;
		n[4] += s.failed == f->failed;
		n[5] += s.bytes >= f->bytes &&
			s.bytes <= f->bytes + 2 * PAGE * s.bound;
		n[6] += s.named && !strcmp(s.name, f->name);
		if (s.calls && (s.bytes < f->bytes ||
				s.bytes > f->bytes + 2 * PAGE * s.bound))
			printf("off %s %s calls %llu seen %llu bytes %llu seen "
			       "%llu bound %llu\n", kind, f->name,
			       (unsigned long long)f->calls,
			       (unsigned long long)s.calls,
			       (unsigned long long)f->bytes,
			       (unsigned long long)s.bytes,
			       (unsigned long long)s.bound);
	}
	printf("sum %s %u", kind, n[0]);
	for (i = 0; i < 8; i++)
		printf(" %llu", (unsigned long long)v[i]);
	for (i = 1; i < 7; i++)
		printf(" %u", n[i]);
	printf("\n");
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
		struct pt_capture_opts o = { .mode = (enum pt_mode)m, .python = true };

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

static const char *const kinds[] = {
	"read", "readv", "pread", "preadv2", "mmap", "io_uring", "sendfile",
	"splice", "copy_file_range", "o_direct", "libaio", "fifo",
};

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
	pid = job_start(job, &to, &from);
	if (pid < 0)
		return 1;
	o.pids = &pid;
	stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	r = job_await(from, "ready", NULL, on_record);
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
		r = job_await(from, "done", c, on_record);
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
	for (i = 0; !r && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		compare(kinds[i]);
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

int main(int argc, char **argv)
{
	char truth[512], options[128] = "", *job[11];
	int i, n = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && !strcmp(argv[1], "--load"))
		return load_all();
	if (argc != 8 && argc != 9) {
		fprintf(stderr, "usage: doors DOOR READS DIR FILES CALLS THREADS "
				"SEED [OPTIONS] | --load\n");
		return 2;
	}
	job[n++] = argv[2];
	if (argc == 9) {
		/* "names", if it is there, comes first */
		by_name = !strncmp(argv[8], "names", 5);
		snprintf(options, sizeof(options), "%s",
			 argv[8] + (by_name ? strcspn(argv[8], ",") : 0));
		job[n++] = "-o";
		job[n++] = options;
	}
	for (i = 3; i < 8; i++)
		job[n++] = argv[i];
	snprintf(truth, sizeof(truth), "%s.truth", argv[3]);
	job[n++] = truth;
	job[n] = NULL;
	return trace(argv[1], job, truth);
}
