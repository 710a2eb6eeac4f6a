/* SPDX-License-Identifier: BSD-2-Clause */
/* Files that are written: by calls where a door shows them, else by where the
 * thread blocked; and what of a file came from storage. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/analysis.h"
#include "model/syscalls.h"
#include "model/timeline.h"
#include "stream_case.h"

#define T0 (1000 * ST_S)
#define P 500u
#define DEV 0x800001u

static void begin(struct stream *s)
{
	struct pt_rec_host *h;

	h = &st_add(s, PT_REC_HOST, sizeof(*h), T0, P, P)->host;
	h->cores = 4;
	h->target_pid = P;
	h->read_door = PT_DOOR_FEXIT;
	st_mark(s, T0, PT_MARK_BEGIN);
	st_task(s, T0, P, P, 1, "job");
	st_file(s, T0 + 1, DEV, 7, "ckpt", "out");
}

static struct pt_report *finish(struct stream *s, struct pt_model **m)
{
	st_preempted(s, P, P, T0 + 900 * ST_MS, T0 + 901 * ST_MS);
	st_mark(s, T0 + ST_S, PT_MARK_END);
	st_seal(s);
	return st_analyze(s, m);
}

static void end(struct stream *s, struct pt_report *r, struct pt_model *m)
{
	pt_report_free(r);
	pt_model_free(m);
	st_free(s);
}

static struct pt_rec_writes *wrote(struct stream *s, uint64_t ms, uint32_t writes,
				   uint32_t fsyncs)
{
	struct pt_rec_writes *w = (void *)st_add(s, PT_REC_WRITES, sizeof(*w),
						 T0 + (ms + 10) * ST_MS, P, P);

	w->begin_ts = T0 + ms * ST_MS;
	w->inode = 7;
	w->dev = DEV;
	w->writes = writes;
	w->fsyncs = fsyncs;
	w->bytes = 1000ull * writes;
	w->write_ns = writes * ST_MS;
	w->fsync_ns = 5 * fsyncs * ST_MS;
	w->obj_kind = PT_OBJ_FILE;
	w->door = PT_DOOR_FEXIT;
	return w;
}

/* Asleep in a write or flush of file 7 after `bytes` more were written. */
static void slept(struct stream *s, uint64_t ms, uint64_t for_ms, int32_t call,
		  uint64_t bytes)
{
	struct pt_rec_off *o = &st_add(s, PT_REC_OFF, sizeof(*o),
				       T0 + (ms + for_ms) * ST_MS, P, P)->off;

	o->off_ts = T0 + ms * ST_MS;
	o->wake_ts = o->hdr.ts;
	o->state = 2;
	o->hdr.flags = PT_F_IOWAIT;
	o->syscall = call;
	o->waker_syscall = PT_SYSCALL_NONE;
	o->obj_kind = PT_OBJ_FILE;
	o->object = 7;
	o->dev = DEV;
	o->arg[0] = 3;
	st_bytes(s, 0, bytes);
}

static bool limited(const struct pt_report *r)
{
	size_t i;

	for (i = 0; i < r->capture.n_limits; i++)
		if (!strcmp(r->capture.limits[i].what, "writes"))
			return true;
	return false;
}

static void by_calls(void **state)
{
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s);
	wrote(&s, 100, 8, 0);
	wrote(&s, 200, 2, 3);
	r = finish(&s, &m);
	assert_int_equal(r->n_writes, 1);
	assert_string_equal(r->writes[0].path, "/out/ckpt");
	assert_int_equal(r->writes[0].pid, P);
	assert_int_equal(r->writes[0].calls, 10);
	assert_int_equal(r->writes[0].fsyncs, 3);
	assert_int_equal(r->writes[0].bytes, 10000);
	assert_true(fabs(r->writes[0].write_s - 0.010) < 1e-9);
	assert_true(fabs(r->writes[0].fsync_s - 0.015) < 1e-9);
	assert_false(limited(r));
	end(&s, r, m);
}

static void by_sleeping(void **state)
{
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s);
	st_preempted(&s, P, P, T0 + 50 * ST_MS, T0 + 51 * ST_MS);
	slept(&s, 100, 20, PT_NR_write, 5000);
	slept(&s, 200, 40, PT_NR_fsync, 3000);
	r = finish(&s, &m);
	assert_int_equal(r->n_writes, 1);
	assert_int_equal(r->writes[0].calls, PT_NULL);
	assert_int_equal(r->writes[0].bytes, 8000);
	assert_true(isnan(r->writes[0].write_s));
	assert_true(fabs(r->writes[0].fsync_s - 0.040) < 1e-9);
	assert_true(fabs(r->writes[0].blocked_s - 0.060) < 1e-9);
	assert_true(limited(r));
	end(&s, r, m);
}

static void damage(void **state)
{
	struct stream s = { 0 };
	struct pt_rec_writes *w;
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s);
	wrote(&s, 100, 0, 0);
	w = wrote(&s, 110, 1, 0);
	w->begin_ts = w->hdr.ts + 1;
	wrote(&s, 120, 1, 0)->bytes = UINT64_MAX;
	wrote(&s, 130, 1, 0)->failed = 9;
	wrote(&s, 140, 1, 0)->fsync_ns = UINT64_MAX;
	r = finish(&s, &m);
	assert_int_equal(m->malformed, 5);
	assert_int_equal(r->n_writes, 0);
	end(&s, r, m);
}

static struct pt_rec_reads *was_read(struct stream *s, uint64_t ms, uint64_t inode,
				     uint32_t dev, uint64_t fetched)
{
	struct pt_rec_reads *r = &st_add(s, PT_REC_READS, sizeof(*r),
					 T0 + (ms + 1) * ST_MS, P, P)->reads;

	r->begin_ts = T0 + ms * ST_MS;
	r->inode = inode;
	r->dev = dev;
	r->count = 1;
	r->bytes = 1 << 20;
	r->fetched = fetched;
	r->obj_kind = PT_OBJ_FILE;
	r->door = PT_DOOR_FEXIT;
	return r;
}

static const struct pt_r_file *file(const struct pt_report *r, uint64_t inode)
{
	size_t i;

	for (i = 0; i < r->n_files; i++)
		if (r->files[i].inode == inode)
			return &r->files[i];
	fail_msg("file %llu is not there", (unsigned long long)inode);
	return NULL;
}

static void from_memory(void **state)
{
	struct stream s = { 0 };
	struct pt_rec_disk *d;
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s);
	d = (void *)st_add(&s, PT_REC_DISK, sizeof(*d), T0 + 2, 0, 0);
	d->dev = DEV;
	d->cls = PT_FS_LOCAL;
	strcpy(d->fstype, "ext4");
	d = (void *)st_add(&s, PT_REC_DISK, sizeof(*d), T0 + 3, 0, 0);
	d->dev = 77;
	d->cls = PT_FS_USER;
	strcpy(d->fstype, "fuse.x");
	was_read(&s, 100, 7, DEV, 1 << 18);
	was_read(&s, 110, 7, DEV, 0);
	was_read(&s, 120, 8, DEV, 5 << 20); /* read ahead, and more */
	was_read(&s, 130, 9, DEV, ~0ull);
	was_read(&s, 140, 10, 77, 0); /* FUSE does not account */
	/* a record of an older version ends before */
	was_read(&s, 150, 11, DEV, 0)->hdr.size = pt_rec_kind(PT_REC_READS)->oldest;
	r = finish(&s, &m);
	assert_int_equal(file(r, 7)->fetched_bytes, 1 << 18);
	assert_true(fabs(file(r, 7)->cached_share - 0.875) < 1e-9);
	assert_int_equal(file(r, 8)->fetched_bytes, 5 << 20);
	assert_true(file(r, 8)->cached_share == 0);
	assert_true(isnan(file(r, 9)->cached_share));
	assert_true(isnan(file(r, 10)->cached_share));
	assert_int_equal(file(r, 10)->fetched_bytes, PT_NULL);
	assert_true(isnan(file(r, 11)->cached_share));
	end(&s, r, m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_calls),
		cmocka_unit_test(by_sleeping),
		cmocka_unit_test(damage),
		cmocka_unit_test(from_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
