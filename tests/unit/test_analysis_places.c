/* SPDX-License-Identifier: BSD-2-Clause */
/* Where in their files reads were: order, stride, what was read again, from
 * single records and from sums, against what the test itself read. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/analysis.h"
#include "model/timeline.h"
#include "stream_case.h"

#define T0 (1000 * ST_S)
#define P 500u
#define DEV 0x800001u
#define KB 1024ull
#define MB (1024 * KB)

struct reading {
	struct stream s;
	uint64_t at; /* of the next record */
	struct pt_model *m;
	struct pt_report *r;
};

static void begin(struct reading *j)
{
	struct pt_rec_host *h;

	memset(j, 0, sizeof(*j));
	j->at = T0 + ST_MS;
	h = &st_add(&j->s, PT_REC_HOST, sizeof(*h), T0, P, P)->host;
	h->cores = 4;
	h->target_pid = P;
	h->read_door = PT_DOOR_FEXIT;
	st_mark(&j->s, T0, PT_MARK_BEGIN);
	st_task(&j->s, T0, P, P, 1, "job");
	st_task(&j->s, T0, P + 1, P, 2, "other");
}

static void one(struct reading *j, uint32_t tid, uint64_t inode, uint64_t offset,
		int64_t ret)
{
	struct pt_rec_read *r;

	j->at += 20000;
	r = &st_add(&j->s, PT_REC_READ, sizeof(*r), j->at, P, tid)->read;
	r->begin_ts = j->at - 10000;
	r->inode = inode;
	r->dev = DEV;
	r->offset = offset;
	r->ret = ret;
	r->obj_kind = PT_OBJ_FILE;
	r->door = PT_DOOR_FEXIT;
}

/* A run of `n` reads; further ones are for the caller to set. */
static struct pt_rec_reads *run(struct reading *j, uint64_t inode, uint64_t offset,
				uint32_t n, uint64_t bytes)
{
	struct pt_rec_reads *r;

	j->at += 20000;
	r = &st_add(&j->s, PT_REC_READS, sizeof(*r), j->at, P, P)->reads;
	r->begin_ts = j->at - 10000;
	r->inode = inode;
	r->dev = DEV;
	r->offset = offset;
	r->bytes = bytes;
	r->count = r->placed = n;
	r->contiguous = n - 1;
	r->busy_ns = 5000;
	r->obj_kind = PT_OBJ_FILE;
	r->door = PT_DOOR_FEXIT;
	return r;
}

static const struct pt_r_file *done(struct reading *j, uint64_t inode)
{
	size_t i;

	st_preempted(&j->s, P, P, T0 + 800 * ST_MS, T0 + 801 * ST_MS);
	st_mark(&j->s, T0 + ST_S, PT_MARK_END);
	st_seal(&j->s);
	j->r = st_analyze(&j->s, &j->m);
	for (i = 0; i < j->r->n_files; i++)
		if (j->r->files[i].inode == inode)
			return &j->r->files[i];
	return NULL;
}

static void end(struct reading *j)
{
	pt_report_free(j->r);
	pt_model_free(j->m);
	st_free(&j->s);
}

static void near(double a, double b)
{
	assert_true(fabs(a - b) <= 1e-9 * fabs(b));
}

static void in_order(void **state)
{
	const struct pt_r_file *f;
	struct reading j;
	uint64_t i;

	(void)state;
	begin(&j);
	for (i = 0; i < 20; i++)
		one(&j, P, 7, i * 64 * KB, 64 * KB);
	run(&j, 7, 20 * 64 * KB, 44, 44 * 64 * KB);
	one(&j, P, 7, 64 * 64 * KB, 0); /* the end */
	f = done(&j, 7);
	assert_string_equal(f->pattern.kind, "sequential");
	near(f->pattern.sequential, 1);
	near(f->pattern.read_bytes, 64 * KB);
	near(f->pattern.run_bytes, 4 * MB);
	assert_int_equal(f->pattern.stride, PT_NULL);
	assert_int_equal(f->reread_bytes, 0);
	end(&j);
}

/* Reads whose records were lost: as many bytes more, of which none may be different ones. */
static void lost_reads(void **state)
{
	const struct pt_r_working_set *set;
	struct pt_rec_missed *x;
	struct reading j;

	(void)state;
	begin(&j);
	run(&j, 7, 0, 64, 64 * 64 * KB);
	x = &st_add(&j.s, PT_REC_MISSED, sizeof(*x), T0 + ST_S / 2, P, P)->missed;
	x->what = PT_MISSED_READS;
	x->count = 10;
	x->bytes = 3 * MB;
	done(&j, 7);
	set = &j.r->memory.set;
	assert_int_equal(set->read_bytes, 7 * MB);
	assert_int_equal(set->seen[0], 4 * MB);
	assert_int_equal(set->seen[1], 7 * MB);
	assert_int_equal(set->certainty, PT_BOUNDED);
	end(&j);
}

/* Two threads, each through its own half: by turns they jump, each by itself
 * does not. */
static void two_readers(void **state)
{
	const struct pt_r_file *f;
	struct reading j;
	uint64_t i;

	(void)state;
	begin(&j);
	for (i = 0; i < 30; i++) {
		one(&j, P, 7, i * 4096, 4096);
		one(&j, P + 1, 7, MB + i * 4096, 4096);
	}
	f = done(&j, 7);
	assert_string_equal(f->pattern.kind, "sequential");
	assert_int_equal(f->pattern.readers, 2);
	assert_int_equal(f->reread_bytes, 0);
	end(&j);
}

static void by_stride(void **state)
{
	const struct pt_r_file *f;
	struct reading j;
	uint64_t i;

	(void)state;
	begin(&j);
	for (i = 0; i < 40; i++) /* each record in two calls */
		run(&j, 7, i * 256 * KB, 2, 8 * KB);
	for (i = 0; i < 30; i++) /* back again */
		one(&j, P, 8, (30 - i) * 1000000, 5000);
	f = done(&j, 7);
	assert_string_equal(f->pattern.kind, "stride");
	assert_int_equal(f->pattern.stride, 256 * KB);
	near(f->pattern.run_bytes, 8 * KB);
	f++;
	if (f->inode != 8)
		f -= 2;
	assert_int_equal(f->inode, 8);
	assert_string_equal(f->pattern.kind, "stride");
	assert_int_equal(f->pattern.stride, -1000000);
	end(&j);
}

/* Records of 10 KB at random, header and body: half of the moves jump. Some
 * come twice. */
static void at_random(void **state)
{
	uint64_t seed, i, x, again = 0;
	const struct pt_r_file *f;
	unsigned char seen[256];
	struct reading j;

	(void)state;
	for (seed = 1; seed < 20; seed++) {
		memset(seen, 0, sizeof(seen));
		begin(&j);
		for (again = i = 0, x = seed * 7919; i < 200; i++) {
			x = x * 6364136223846793005ull + 1442695040888963407ull;
			again += seen[x >> 56];
			seen[x >> 56] = 1;
			if (i % 3)
				run(&j, 7, (x >> 56) * 10000, 2, 10000);
			else
				one(&j, P, 7, (x >> 56) * 10000, 10000);
		}
		f = done(&j, 7);
		assert_string_equal(f->pattern.kind, "random");
		assert_int_equal(f->reread_bytes, again * 10000);
		end(&j);
	}
}

/* A sum that jumped in it tells only a span: what was read again is bounded. */
static void summed_jumps(void **state)
{
	const struct pt_r_file *f;
	struct pt_rec_reads *r;
	struct reading j;

	(void)state;
	begin(&j);
	run(&j, 7, 0, 4, 40000);
	r = run(&j, 7, 60000, 11, 11000); /* 1000 each, in [20000, 120000) */
	r->contiguous = 0;
	r->forward = 6;
	r->backward = 4;
	r->before = 40000;
	r->beyond = 120000 - 71000;
	r->moved = 100000 - 71000;
	one(&j, P, 7, 100000, 1000); /* where the last one ended */
	f = done(&j, 7);
	/* 20000 of the span had been read before, and 1000 at most behind it */
	assert_int_equal(f->reread_bytes, PT_NULL);
	assert_int_equal(f->reread_lo, 0);
	assert_int_equal(f->reread_hi, 11000);
	assert_string_equal(f->pattern.kind, "random");
	near(f->pattern.sequential, 4. / 15);
	end(&j);

	/* more was read than the span holds: some of it must be again */
	begin(&j);
	r = run(&j, 7, 0, 100, 100000); /* 1000 each, in [0, 10000) */
	r->contiguous = 0;
	r->forward = 50;
	r->backward = 49;
	r->beyond = 10000 - 100000;
	r->moved = 5000 - 100000;
	f = done(&j, 7);
	assert_int_equal(f->reread_lo, 90000);
	assert_int_equal(f->reread_hi, 100000);
	end(&j);
}

/* Epochs over one file: all but the first are read again. */
static void epochs(void **state)
{
	const struct pt_r_file *f;
	struct reading j;
	int i;

	(void)state;
	begin(&j);
	for (i = 0; i < 5; i++) {
		run(&j, 7, 0, 16, MB);
		one(&j, P, 7, MB, 0);
	}
	f = done(&j, 7);
	assert_string_equal(f->pattern.kind, "sequential");
	assert_int_equal(f->reread_bytes, 4 * MB);
	near(f->pattern.run_bytes, MB);
	end(&j);
}

/* Pages: a read begins somewhere in its first page. */
static void by_pages(void **state)
{
	const struct pt_r_file *f;
	struct pt_rec_reads *r;
	struct reading j;
	uint64_t i;

	(void)state;
	begin(&j);
	for (i = 0; i < 40; i++) {
		r = run(&j, 7, i * 6000 / 4096 * 4096, 1, 6000);
		r->door = PT_DOOR_PAGES;
		r->busy_ns = UINT64_MAX;
	}
	f = done(&j, 7);
	assert_string_equal(f->pattern.kind, "sequential");
	assert_int_equal(f->reread_lo, 0);
	assert_true(f->reread_hi > 0 && f->reread_hi < 40 * 4096);
	end(&j);
}

/* Records of older versions end before the places; nothing is made up. */
static void unknown(void **state)
{
	const struct pt_r_file *f;
	struct pt_rec_reads *r;
	struct reading j;

	(void)state;
	begin(&j);
	r = run(&j, 7, 0, 20, 20000);
	r->placed = r->contiguous = 0;
	r->hdr.size = pt_rec_kind(PT_REC_READS)->oldest;
	one(&j, P, 8, UINT64_MAX, 5000);
	f = done(&j, 7);
	assert_non_null(f);
	assert_int_equal(f->bytes, 20000);
	assert_null(f->pattern.kind);
	assert_int_equal(f->reread_bytes, PT_NULL);
	end(&j);
}

/* Places that no file has, and counts that cannot be. */
static void damaged(void **state)
{
	struct pt_rec_reads *r;
	struct reading j;

	(void)state;
	begin(&j);
	r = run(&j, 7, 1000, 3, 3000);
	r->before = 2000; /* below 0 */
	r->contiguous = 1;
	r->backward = 1;
	r = run(&j, 7, 1ull << 63, 3, 3000);
	r = run(&j, 7, 0, 3, 3000);
	r->beyond = INT64_MIN;
	r->contiguous = 1;
	r->forward = 1;
	r = run(&j, 7, 0, 3, 3000);
	r->contiguous = UINT32_MAX; /* refused */
	r = run(&j, 7, 0, 3, 3000);
	r->placed = 9; /* refused */
	one(&j, P, 7, UINT64_MAX - 5, 4096);
	assert_non_null(done(&j, 7));
	assert_int_equal(j.m->malformed, 2);
	assert_int_equal(j.r->files[0].bytes, 3 * 3000 + 4096);
	assert_null(j.r->files[0].pattern.kind);
	end(&j);
}


int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order),
		cmocka_unit_test(lost_reads),	cmocka_unit_test(two_readers),
		cmocka_unit_test(by_stride),	cmocka_unit_test(at_random),
		cmocka_unit_test(summed_jumps), cmocka_unit_test(epochs),
		cmocka_unit_test(by_pages),	cmocka_unit_test(unknown),
		cmocka_unit_test(damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
