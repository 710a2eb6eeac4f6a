/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads by file: single ones and sums count alike, and the limits say what the
 * door does not show. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/analysis.h"
#include "stream_case.h"

#define T0 (1000 * ST_S)
#define P 500u
#define DEV 0x800001u

static void begin(struct stream *s, uint32_t door)
{
	struct pt_rec_host *h;

	h = &st_add(s, PT_REC_HOST, sizeof(*h), T0, P, P)->host;
	h->cores = 4;
	h->target_pid = P;
	h->read_door = door;
	st_mark(s, T0, PT_MARK_BEGIN);
	st_task(s, T0, P, P, 1, "job");
	st_file(s, T0 + 1, DEV, 7, "seven", "data");
}

static struct pt_rec_reads *sum(struct stream *s, uint64_t ms, uint64_t inode,
				uint32_t count, uint64_t bytes, uint16_t door)
{
	struct pt_rec_reads *r;

	r = &st_add(s, PT_REC_READS, sizeof(*r), T0 + (ms + 1) * ST_MS, P, P)->reads;
	r->begin_ts = T0 + ms * ST_MS;
	r->inode = inode;
	r->dev = DEV;
	r->count = count;
	r->bytes = bytes;
	r->busy_ns = door == PT_DOOR_PAGES ? UINT64_MAX : 40000;
	r->obj_kind = PT_OBJ_FILE;
	r->door = door;
	return r;
}

static struct pt_report *finish(struct stream *s, struct pt_model **m)
{
	st_preempted(s, P, P, T0 + 800 * ST_MS, T0 + 801 * ST_MS);
	st_mark(s, T0 + ST_S, PT_MARK_END);
	st_seal(s);
	return st_analyze(s, m);
}

static const char *limit(const struct pt_report *r, const char *what)
{
	size_t i;

	for (i = 0; i < r->capture.n_limits; i++)
		if (!strcmp(r->capture.limits[i].what, what))
			return r->capture.limits[i].reason;
	return NULL;
}

static void single_and_summed(void **state)
{
	struct stream s = { 0 };
	struct pt_rec_read *one;
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s, PT_DOOR_FEXIT);
	sum(&s, 10, 7, 20, 81920, PT_DOOR_FEXIT);
	sum(&s, 20, 8, 3, 300, PT_DOOR_IO_URING);
	one = &st_add(&s, PT_REC_READ, sizeof(*one), T0 + 50 * ST_MS, P, P)->read;
	one->begin_ts = T0 + 30 * ST_MS;
	one->inode = 7;
	one->dev = DEV;
	one->ret = 4096;
	one->obj_kind = PT_OBJ_FILE;
	r = finish(&s, &m);
	assert_int_equal(r->n_files, 2);
	assert_int_equal(r->files[0].inode, 7);
	assert_int_equal(r->files[0].reads, 21);
	assert_int_equal(r->files[0].bytes, 81920 + 4096);
	assert_true(fabs(r->files[0].read_s - 0.02004) < 1e-9);
	assert_int_equal(r->files[1].reads, 3);
	assert_int_equal(r->files[1].bytes, 300);
	assert_non_null(strstr(limit(r, "reads"), "libaio"));
	/* an older recording: nothing is known of faults */
	assert_non_null(limit(r, "files.faults"));
	assert_true(r->files[0].faults == PT_NULL && isnan(r->files[0].fault_s));
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

static void faults_of(struct stream *s, unsigned at_ms, uint64_t inode,
		      uint32_t major, uint64_t bytes, uint16_t flags)
{
	struct pt_rec_faults *f;

	f = &st_add(s, PT_REC_FAULTS, sizeof(*f), T0 + at_ms * ST_MS, P, P)->faults;
	f->begin_ts = f->hdr.ts - ST_MS;
	f->hdr.flags = flags;
	f->inode = inode;
	f->dev = DEV;
	f->count = major + 1;
	f->major = major;
	f->bytes = bytes;
}

/* What faults fetch is the file's, and so is the time that they wait. */
static void mapped(void **state)
{
	struct stream s = { 0 };
	struct pt_rec_off *o;
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s, PT_DOOR_FEXIT);
	s.recs.v[0].r.host.fault_door = PT_FAULT_DOOR_FENTRY;
	st_file(&s, T0, DEV, 8, "lib.so", "lib");
	sum(&s, 10, 7, 20, 81920, PT_DOOR_FEXIT);
	faults_of(&s, 20, 7, 3, 12288, 0);
	faults_of(&s, 30, 8, 1, 65536, PT_F_TEXT);
	faults_of(&s, 40, 7, 2, 8192, 0);
	o = &st_add(&s, PT_REC_OFF, sizeof(*o), T0 + 80 * ST_MS, P, P)->off;
	o->hdr.flags = PT_F_FAULT;
	o->off_ts = T0 + 50 * ST_MS;
	o->wake_ts = T0 + 70 * ST_MS;
	o->state = 2;
	o->syscall = PT_SYSCALL_NONE;
	o->obj_kind = PT_OBJ_FILE;
	o->object = 7;
	o->dev = DEV;
	r = finish(&s, &m);
	assert_int_equal(r->n_files, 2);
	assert_int_equal(r->files[0].inode, 7); /* waited for */
	assert_int_equal(r->files[0].faults, 5);
	assert_int_equal(r->files[0].fault_bytes, 20480);
	assert_true(fabs(r->files[0].fault_s - 0.02) < 1e-9);
	assert_true(r->files[0].blocked_s == 0);
	assert_int_equal(r->files[0].text, 0);
	assert_int_equal(r->files[1].faults, 1);
	assert_int_equal(r->files[1].text, 1);
	assert_null(limit(r, "files.faults"));
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* libaio beside fexit: its reads count, and the limits say what they lack. */
static void libaio(void **state)
{
	struct stream s = { 0 };
	struct pt_rec_host *h;
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s, PT_DOOR_FEXIT);
	h = &st_add(&s, PT_REC_HOST, sizeof(*h), T0, P, P)->host;
	h->cores = 4;
	h->target_pid = P;
	h->read_door = PT_DOOR_FEXIT;
	h->read_more = 1u << PT_DOOR_AIO;
	sum(&s, 10, 7, 20, 81920, PT_DOOR_AIO);
	sum(&s, 20, 7, 5, 20480, PT_DOOR_AIO)->hdr.flags = PT_F_BOUND;
	r = finish(&s, &m);
	assert_int_equal(r->n_files, 1);
	assert_int_equal(r->files[0].reads, 25);
	assert_int_equal(r->files[0].bytes, 81920 + 20480);
	assert_non_null(strstr(limit(r, "reads"), "libaio makes with O_DIRECT"));
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

static void pages(void **state)
{
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s, PT_DOOR_PAGES);
	sum(&s, 10, 7, 20, 81920, PT_DOOR_PAGES);
	sum(&s, 20, 7, 5, 9000, PT_DOOR_PAGES)->hdr.flags = PT_F_BOUND;
	r = finish(&s, &m);
	assert_int_equal(r->n_files, 1);
	assert_int_equal(r->files[0].reads, 25);
	assert_int_equal(r->files[0].bytes, 90920);
	assert_true(isnan(r->files[0].read_s));
	assert_non_null(strstr(limit(r, "reads"), "of 5 of 25 "));
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

#define US (ST_MS / 1000)

/* Returns when the next call may come. */
static uint64_t upload(struct stream *s, uint64_t at)
{
	st_gpu(s, "cudaMemcpyAsync", P, P, at, at + 60 * US, 0, 1, 1 << 20, 1);
	return at + 62 * US;
}

/* The loss: it sleeps until the device is done. */
static void read_back(struct stream *s, uint64_t at, uint64_t end)
{
	st_gpu(s, "cudaMemcpy", P, P, at, end, 0, 1, 4, 2);
	st_off(s, P, P, at + 5 * US, end - 5 * US, end - 2 * US);
}

/* Files in memory, which the door to pages does not see: ten milliseconds of obtaining, then
 * an upload and launches, some of them 30 us apart, then a sleep until the device is done. The
 * bytes are counted at that sleep; they belong to the longest gap before it. */
static void in_memory(void **state)
{
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;
	int i, k, steps = 14;

	(void)state;
	begin(&s, PT_DOOR_PAGES);
	for (i = 0; i < steps; i++) {
		uint64_t at = upload(&s, T0 + (uint64_t)(i * 70 + 10) * ST_MS);

		for (k = 0; k < 6; k++) {
			at += (k < 2 && (i + k) % 2 ? 35 : 8) * US;
			st_gpu(&s, k % 2 ? "cuLaunchKernel" : "cudaLaunchKernel", P, P, at,
			       at + 3 * US, 0, (uint64_t)(0x100 + k), 0, 0);
			at += 3 * US;
		}
		read_back(&s, at + 4 * US, T0 + (uint64_t)(i + 1) * 70 * ST_MS);
		st_bytes(&s, 1 << 20, 0);
	}
	st_mark(&s, T0 + ST_S, PT_MARK_END);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_in_range(r->steps.count, steps - 1, steps + 1);
	assert_true(r->breakdown.data_wait.seconds > 0.009 * (steps - 1));
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* Read and parsed for 40 ms at a stretch; the bytes are counted when it next sleeps, for the
 * thread that runs its backward pass. Nothing is loaded there. */
static void counted_later(void **state)
{
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;
	int i, k, steps = 14;

	(void)state;
	begin(&s, PT_DOOR_PAGES);
	for (i = 0; i < steps; i++) {
		uint64_t at = upload(&s, T0 + (uint64_t)(i * 70 + 50) * ST_MS);

		for (k = 0; k < 8; k++) {
			if (k == 4) {
				st_off(&s, P, P, at + 30 * US, at + 900 * US, at + 910 * US);
				st_bytes(&s, 1 << 20, 0);
				at += 1000 * US;
			}
			at += 25 * US;
			st_gpu(&s, "cudaLaunchKernel", P, P, at, at + 3 * US, 0,
			       (uint64_t)(0x100 + k), 0, 0);
			at += 3 * US;
		}
		read_back(&s, at + 4 * US, T0 + (uint64_t)(i * 70 + 80) * ST_MS);
	}
	st_mark(&s, T0 + ST_S, PT_MARK_END);
	st_seal(&s);
	r = st_analyze(&s, &m);
	assert_in_range(r->steps.count, steps - 1, steps + 1);
	assert_true(fabs(r->breakdown.data_wait.seconds - 0.04 * (steps - 1)) < 0.03);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(single_and_summed),
		cmocka_unit_test(libaio),
		cmocka_unit_test(mapped),
		cmocka_unit_test(pages),
		cmocka_unit_test(in_memory),
		cmocka_unit_test(counted_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
