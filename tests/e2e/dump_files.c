/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Trace a process until standard input ends and print what the model knows of
 * its files: for tests that compare names and bytes with the job's own.
 *
 *   dump_files PID MODE DOOR     DOOR: auto, or one of pipetrace's read doors
 *
 * Says "attached" first. Then, one a line: "file DEV INODE CALLS BYTES FAULTS
 * MAJOR FAULT_BYTES WAIT_NS TEXT PATH" (a path of hexadecimal digits, "-": no
 * name), "lost NUMBER", "door READS FAULTS". Status 77: the door does not open.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capture/capture.h"
#include "model/model.h"
#include "model/timeline.h"

#define LIMIT_S 120

struct sum {
	struct pt_file_key key;
	uint64_t calls, bytes, faults, major, fault_bytes, wait;
	UT_hash_handle hh;
};
static struct sum *sums;

static void feed(void *ctx, const void *rec, size_t len)
{
	pt_model_feed(ctx, rec, len);
}

static struct sum *sum_of(uint32_t dev, uint64_t inode)
{
	struct pt_file_key key = { inode, dev };
	struct sum *s;

	HASH_FIND(hh, sums, &key, sizeof(key), s);
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		exit(1);
	s->key = key;
	HASH_ADD(hh, sums, key, sizeof(s->key), s);
	if (!PT_HASHED(s))
		exit(1);
	return s;
}

static void add(const struct pt_thread *t)
{
	struct sum *s;
	size_t i;

	for (i = 0; i < t->reads.n; i++) {
		const struct pt_read *r = &t->reads.v[i];

		if (r->obj_kind != PT_OBJ_FILE)
			continue;
		s = sum_of(r->dev, r->inode);
		s->calls += r->count;
		s->bytes += r->ret > 0 ? (uint64_t)r->ret : 0;
	}
	for (i = 0; i < t->faults.n; i++) {
		const struct pt_fault_sum *f = &t->faults.v[i];

		s = sum_of(f->dev, f->inode);
		s->faults += f->count;
		s->major += f->major;
		s->fault_bytes += f->bytes;
	}
	for (i = 0; i < t->iv.n; i++)
		if (t->iv.v[i].wait == PT_WAIT_FAULT &&
		    t->iv.v[i].obj_kind == PT_OBJ_FILE)
			sum_of(t->iv.v[i].dev, t->iv.v[i].object)->wait +=
				t->iv.v[i].ready - t->iv.v[i].begin;
}

static void print(const struct pt_model *m)
{
	struct sum *s, *tmp;
	uint64_t lost = 0;
	const char *p;
	size_t i;

	for (i = 0; i < m->all_threads.n; i++)
		add(m->all_threads.v[i]);
	HASH_ITER(hh, sums, s, tmp) {
		const struct pt_file *f = pt_model_file(m, (uint32_t)s->key.dev,
							s->key.inode);

		printf("file %u %llu %llu %llu %llu %llu %llu %llu %d ",
		       pt_model_dev(m, (uint32_t)s->key.dev, s->key.inode),
		       (unsigned long long)s->key.inode,
		       (unsigned long long)s->calls, (unsigned long long)s->bytes,
		       (unsigned long long)s->faults, (unsigned long long)s->major,
		       (unsigned long long)s->fault_bytes,
		       (unsigned long long)s->wait, f ? f->text : -1);
		for (p = f && f->path ? f->path : ""; *p; p++)
			printf("%02x", (unsigned char)*p);
		puts(f && f->path ? "" : "-");
		HASH_DEL(sums, s);
		free(s);
	}
	for (i = 0; i < PT_LOSS_NR; i++)
		lost += m->lost[i];
	printf("lost %llu\n", (unsigned long long)(lost + pt_model_missing(m)));
	printf("door %u %u\n", m->host.read_door, m->host.fault_door);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void trace(struct pt_capture *c, struct pt_model *m)
{
	double end = now() + LIMIT_S, tick = now() + 1;
	struct pollfd in = { .fd = 0, .events = POLLIN };
	char b;

	while (now() < end) {
		if (poll(&in, 1, 10) > 0 && read(0, &b, 1) <= 0)
			break;
		pt_capture_drain(c, feed, m);
		if (now() >= tick) {
			pt_capture_tick(c, feed, m);
			tick += 1;
		}
	}
	pt_capture_stop(c, feed, m);
}

int main(int argc, char **argv)
{
	struct pt_capture_opts o = { .n_pids = 1, .mode = PT_MODE_STANDARD };
	struct pt_err err = { "" };
	struct pt_capture *c;
	struct pt_model *m;
	pid_t pid;
	int r;

	if (argc != 4 || pt_reads_parse(argv[3], &o.reads)) {
		fprintf(stderr, "usage: %s PID MODE DOOR\n", argv[0]);
		return 2;
	}
	pid = (pid_t)strtol(argv[1], NULL, 10);
	o.pids = &pid;
	o.mode = !strcmp(argv[2], "light") ? PT_MODE_LIGHT :
		 !strcmp(argv[2], "full")  ? PT_MODE_FULL :
					     PT_MODE_STANDARD;
	r = pt_capture_open(&c, &o, &err);
	if (r) {
		fprintf(stderr, "%s\n", err.msg);
		return r == -ENOTSUP ? 77 : 1;
	}
	m = pt_model_new();
	if (!m)
		return 1;
	puts("attached");
	fflush(stdout);
	trace(c, m);
	pt_capture_close(c, NULL, NULL);
	if (pt_model_finish(m))
		return 1;
	print(m);
	pt_model_free(m);
	return 0;
}
