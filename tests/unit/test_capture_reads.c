/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Through each door that this kernel opens: the target's read calls of a file
 * are counted with their bytes, singly or summed; and the file is named.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "capture/capture.h"

#define READS 50
#define SIZE 1000
#define FILE_BYTES (READS * SIZE - 300) /* the last read is short */

struct seen {
	uint64_t inode;
	uint32_t dev, tgid;
	unsigned calls, singles, bad, names, fails;
	uint64_t bytes;
	char path[PT_PATH_LEN * 2];
	unsigned parts;
};

static struct pt_features feat;

/* Path of a record's components, outermost first. */
static void join(const struct pt_rec_file *f, char *out, size_t size)
{
	const char *part[16], *p = f->path;
	int n = 0;
	size_t used = 0;

	out[0] = 0;
	while (n < f->parts && n < 16 && p < f->path + PT_PATH_LEN) {
		part[n++] = p;
		p += strnlen(p, (size_t)(f->path + PT_PATH_LEN - p)) + 1;
	}
	while (n-- > 0 && used < size)
		used += (size_t)snprintf(out + used, size - used, "/%s", part[n]);
}

static void on_record(void *ctx, const void *rec, size_t len)
{
	const struct pt_rec_read *r = rec;
	const struct pt_rec_reads *a = rec;
	const struct pt_rec_file *f = rec;
	struct seen *s = ctx;

	(void)len;
	if (r->hdr.kind == PT_REC_FILE && f->inode == s->inode &&
	    f->dev == s->dev) {
		s->names++;
		s->parts = f->parts;
		join(f, s->path, sizeof(s->path));
		if (f->size != FILE_BYTES || !S_ISREG(f->mode))
			s->bad++;
	}
	if (r->hdr.kind == PT_REC_READS && r->hdr.tgid == s->tgid &&
	    a->inode == s->inode) {
		if (a->dev != s->dev || a->obj_kind != PT_OBJ_FILE || !a->count ||
		    a->failed || a->begin_ts > a->hdr.ts || !a->begin_ts ||
		    (a->busy_ns != UINT64_MAX &&
		     a->busy_ns > a->hdr.ts - a->begin_ts))
			s->bad++;
		s->calls += a->count;
		s->bytes += a->bytes;
	}
	if (r->hdr.kind != PT_REC_READ || r->hdr.tgid != s->tgid)
		return;
	if (r->ret < 0) {
		s->fails++;
		return;
	}
	if (r->inode != s->inode)
		return;
	if (r->dev != s->dev || r->obj_kind != PT_OBJ_FILE ||
	    r->begin_ts > r->hdr.ts || !r->begin_ts)
		s->bad++;
	s->bytes += (uint64_t)r->ret;
	s->calls++;
	s->singles++;
	if (r->offset >= (1u << 20)) { /* pread beyond the end, to be told apart */
		if (r->ret || r->offset != (1u << 20) + 7)
			s->bad++;
	} else if (r->offset % SIZE || r->offset >= FILE_BYTES) {
		s->bad++;
	}
}

static void job(const char *path, int go, int done)
{
	char b[SIZE];
	int fd, i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(go, b, 1) != 1)
		_exit(2);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		_exit(2);
	for (i = 0; i < READS; i++)
		if (read(fd, b, SIZE) < 0)
			_exit(2);
	for (i = 0; i < READS; i++)
		if (pread(fd, b, SIZE, (1 << 20) + 7) != 0)
			_exit(2);
	if (read(-1, b, 1) != -1 || write(done, b, 1) != 1)
		_exit(2);
	for (;;)
		pause();
}

static void reads(void **state)
{
	struct pt_capture_opts o = { .n_pids = 1, .mode = PT_MODE_FULL };
	const char *name = *state;
	char path[] = "/tmp/pipetrace-reads-XXXXXX", b[FILE_BYTES];
	const struct pt_hook_state *hooks;
	struct pt_err err = { "" };
	struct seen s = { 0 };
	struct pt_capture *c;
	struct stat st;
	int go[2], done[2], fd, r;
	const char *door = "";
	size_t i, n;
	pid_t pid;

	if (feat.missing[0]) {
		print_message("# needs %s\n", feat.missing);
		skip();
	}
	assert_int_equal(pt_reads_parse(name, &o.reads), 0);
	if ((!strcmp(name, "fexit") && !feat.fentry) ||
	    (!strcmp(name, "kprobe") && !feat.kprobe) ||
	    (!strcmp(name, "pages") && !feat.pages)) {
		print_message("# this kernel has no %s\n", name);
		skip();
	}
	fd = mkstemp(path);
	assert_true(fd >= 0);
	memset(b, 'x', sizeof(b));
	assert_int_equal(write(fd, b, sizeof(b)), sizeof(b));
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	s.inode = st.st_ino;
	s.dev = (uint32_t)(major(st.st_dev) << 20 | minor(st.st_dev));
	assert_int_equal(pipe(go) | pipe(done), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		job(path, go[0], done[1]);
	s.tgid = (uint32_t)pid;
	o.pids = &pid;
	r = pt_capture_open(&c, &o, &err);
	if (r) {
		kill(pid, SIGKILL);
		unlink(path);
		fail_msg("%s", err.msg);
	}
	r = write(go[1], "g", 1) == 1 && read(done[0], b, 1) == 1;
	assert_int_equal(pt_capture_stop(c, on_record, &s), 0);
	n = pt_capture_hooks(c, &hooks);
	for (i = 0; i < n; i++)
		if (!strcmp(hooks[i].need, "reads"))
			door = hooks[i].door;
	print_message("# door: %s\n", door);
	if (strcmp(name, "auto"))
		assert_string_equal(door, name);
	else
		assert_string_not_equal(door, "none");
	pt_capture_close(c, NULL, NULL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(path);
	assert_true(r);
	assert_int_equal(s.bad, 0);
	/* Reads behind the end touch no page. */
	assert_int_equal(s.calls, strcmp(door, "pages") ? 2 * READS : READS);
	assert_int_equal(s.bytes, FILE_BYTES);
	/* Summed: that many short reads of one file are few records. */
	assert_true(s.singles < READS);
	/* A bad descriptor never gets as far as vfs_read. */
	assert_int_equal(s.fails, strcmp(door, "syscall") ? 0 : 1);
	assert_int_equal(s.names, 1);
	/* The record ends at the root of the file's own file system. */
	assert_true(strlen(s.path) >= 2);
	/* ... which lies above ours in a chroot, and may lie below it */
	if (strlen(s.path) > strlen(path))
		assert_string_equal(s.path + strlen(s.path) - strlen(path),
				    path);
	else
		assert_string_equal(path + strlen(path) - strlen(s.path),
				    s.path);
	for (i = 0; i < 2; i++) {
		close(go[i]);
		close(done[i]);
	}
}

#define DOOR(name)                                                             \
	{                                                                      \
		"reads by " name, reads, NULL, NULL, name                      \
	}

int main(void)
{
	const struct CMUnitTest tests[] = { DOOR("auto"), DOOR("fexit"),
					    DOOR("kprobe"), DOOR("pages"),
					    DOOR("syscall") };

	if (pt_features_probe(&feat))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
