/* SPDX-License-Identifier: BSD-2-Clause */
/* Files by name: renamed ones and reused numbers, long paths; page faults. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
#include "model/timeline.h"

#define P 10
#define DEV 0x800001
#define INO 77

static uint32_t seq;

static void head(struct pt_hdr *h, uint16_t kind, size_t size, uint64_t ts)
{
	h->kind = kind;
	h->size = (uint16_t)size;
	h->ts = ts;
	h->tid = h->tgid = P;
	h->start = 1;
	h->seq = seq++;
}

static struct pt_model *begin(void)
{
	struct pt_model *m = pt_model_new();
	struct pt_rec_task t;

	assert_non_null(m);
	seq = 0;
	memset(&t, 0, sizeof(t));
	head(&t.hdr, PT_REC_TASK, sizeof(t), 1);
	assert_int_equal(pt_model_feed(m, &t, sizeof(t)), 0);
	return m;
}

static int name_dev(struct pt_model *m, uint64_t ts, uint64_t ino, const char *name)
{
	struct pt_rec_file r;

	memset(&r, 0, sizeof(r));
	head(&r.hdr, PT_REC_FILE, sizeof(r), ts);
	r.inode = ino;
	r.dev = DEV;
	r.parts = name[0] != 0;
	strncpy(r.path, name, sizeof(r.path) - 1);
	return pt_model_feed(m, &r, sizeof(r));
}

static void name(struct pt_model *m, uint64_t ts, const char *s)
{
	assert_int_equal(name_dev(m, ts, INO, s), 0);
}

static void reads(struct pt_model *m, uint64_t from, uint64_t to)
{
	struct pt_rec_reads r;

	memset(&r, 0, sizeof(r));
	head(&r.hdr, PT_REC_READS, sizeof(r), to);
	r.begin_ts = from;
	r.inode = INO;
	r.dev = DEV;
	r.count = 1;
	r.bytes = 100;
	r.obj_kind = PT_OBJ_FILE;
	assert_int_equal(pt_model_feed(m, &r, sizeof(r)), 0);
}

static int faults(struct pt_model *m, uint64_t to, uint32_t count, uint32_t major,
		  uint16_t flags)
{
	struct pt_rec_faults r;

	memset(&r, 0, sizeof(r));
	head(&r.hdr, PT_REC_FAULTS, sizeof(r), to);
	r.hdr.flags = flags;
	r.begin_ts = to - 5;
	r.inode = INO;
	r.dev = DEV;
	r.count = count;
	r.major = major;
	r.bytes = 8192;
	return pt_model_feed(m, &r, sizeof(r));
}

static const struct pt_thread *done(struct pt_model *m)
{
	const struct pt_thread *t;

	assert_int_equal(pt_model_finish(m), 0);
	t = pt_model_thread(m, P);
	assert_non_null(t);
	assert_int_equal(t->lost, 0);
	return t;
}

static const char *path_at(const struct pt_model *m, const struct pt_thread *t,
			   size_t i)
{
	const struct pt_read *r = &t->reads.v[i];

	assert_true(i < t->reads.n);
	assert_int_equal(pt_model_dev(m, r->dev, r->inode), DEV);
	return pt_model_file(m, r->dev, r->inode)->path;
}

static void by_time(void **state)
{
	struct pt_model *m = begin();
	const struct pt_thread *t;

	(void)state;
	reads(m, 5, 6); /* a name may come late */
	name(m, 10, "a");
	reads(m, 8, 10); /* it is told when the first read is over */
	reads(m, 11, 20);
	name(m, 30, "b");
	reads(m, 25, 30);
	name(m, 40, "a"); /* as two links to one file do */
	reads(m, 41, 45);
	name(m, 50, "c");
	reads(m, 51, 55);
	assert_int_equal(faults(m, 56, 2, 1, 0), 0);
	t = done(m);
	assert_string_equal(path_at(m, t, 0), "/a");
	assert_string_equal(path_at(m, t, 1), "/a");
	assert_string_equal(path_at(m, t, 2), "/a");
	assert_string_equal(path_at(m, t, 3), "/b");
	assert_string_equal(path_at(m, t, 4), "/a");
	assert_string_equal(path_at(m, t, 5), "/c");
	/* one file a name: the same name is the same one */
	assert_int_equal(t->reads.v[0].dev, DEV);
	assert_int_equal(t->reads.v[4].dev, DEV);
	assert_true(t->reads.v[3].dev >= PT_DEV_RENAMED);
	assert_int_equal(t->faults.v[0].dev, t->reads.v[5].dev);
	assert_int_equal(pt_model_dev(m, 5, 5), 5);
	pt_model_free(m);
}

static void forgotten_and_named_again(void **state)
{
	struct pt_model *m = begin();

	(void)state;
	name(m, 10, "a");
	name(m, 20, "a");
	name(m, 15, "a");
	assert_int_equal(name_dev(m, 20, 78, ""), 0); /* no name at all */
	assert_int_equal(name_dev(m, 21, 78, ""), 0);
	done(m);
	assert_int_equal(m->renamed, 0);
	assert_null(pt_model_file(m, DEV, 78)->path);
	pt_model_free(m);
}

/* A number that is handed out again and again does not cost the square. */
static void many_names(void **state)
{
	struct pt_model *m = begin();
	const struct pt_thread *t;
	char s[32];
	unsigned i;

	(void)state;
	for (i = 0; i < 50000; i++) {
		snprintf(s, sizeof(s), "t%u", i);
		name(m, 10 + 2 * i, s);
		reads(m, 10 + 2 * i, 11 + 2 * i);
	}
	t = done(m);
	assert_string_equal(path_at(m, t, 0), "/t0");
	assert_string_equal(path_at(m, t, 31234), "/t31234");
	assert_string_equal(path_at(m, t, 49999), "/t49999");
	pt_model_free(m);
}

static void long_paths(void **state)
{
	struct pt_model *m = begin();
	char *at, want[PT_LONG_PATH_LEN + 64] = "";
	union {
		struct pt_rec_file r;
		char b[PT_REC_MAX];
	} u;
	unsigned i;

	(void)state;
	memset(&u, 0, sizeof(u));
	head(&u.r.hdr, PT_REC_FILE, sizeof(u), 10);
	u.r.inode = INO;
	u.r.dev = DEV;
	u.r.parts = 20;
	at = u.b + offsetof(struct pt_rec_file, path);
	for (i = 0; i < 20; i++) /* innermost first */
		at += sprintf(at, "component-number-%02u", i) + 1;
	for (i = 20; i-- > 0;)
		sprintf(want + strlen(want), "/component-number-%02u", i);
	assert_int_equal(pt_model_feed(m, &u, sizeof(u)), 0);
	/* the last component has no end within the record: it is left out */
	u.r.inode = 78;
	u.r.truncated = 1;
	u.r.parts = 2;
	u.r.hdr.seq = seq++;
	memset(u.b + offsetof(struct pt_rec_file, path), 'x',
	       sizeof(u) - offsetof(struct pt_rec_file, path));
	u.r.path[3] = 0;
	assert_int_equal(pt_model_feed(m, &u, sizeof(u)), 0);
	done(m);
	assert_string_equal(pt_model_file(m, DEV, INO)->path, want);
	assert_string_equal(pt_model_file(m, DEV, 78)->path, ".../xxx");
	pt_model_free(m);
}

static void faults_are_checked(void **state)
{
	struct pt_model *m = begin();
	const struct pt_thread *t;

	(void)state;
	name(m, 10, "lib.so");
	assert_int_equal(faults(m, 20, 0, 0, 0), -EINVAL);
	seq--;
	assert_int_equal(faults(m, 20, 1, 2, 0), -EINVAL);
	seq--;
	assert_int_equal(faults(m, 20, 3, 2, 0), 0);
	assert_int_equal(faults(m, 30, 1, 1, PT_F_TEXT), 0);
	t = done(m);
	assert_int_equal(t->faults.n, 2);
	assert_int_equal(t->faults.v[0].major, 2);
	assert_true(pt_model_file(m, DEV, INO)->text);
	pt_model_free(m);
}

/* A fault inside a call is a fault, whatever the call would have been. */
static void waits(void **state)
{
	struct pt_model *m = begin();
	const struct pt_thread *t;
	struct pt_rec_off o;

	(void)state;
	memset(&o, 0, sizeof(o));
	head(&o.hdr, PT_REC_OFF, sizeof(o), 100);
	o.hdr.flags = PT_F_FAULT | PT_F_IOWAIT;
	o.off_ts = 50;
	o.wake_ts = 90;
	o.state = 2;
	o.syscall = 1;
	o.obj_kind = PT_OBJ_FILE;
	o.object = INO;
	o.dev = DEV;
	assert_int_equal(pt_model_feed(m, &o, sizeof(o)), 0);
	t = done(m);
	assert_int_equal(t->iv.n, 1);
	assert_int_equal(t->iv.v[0].wait, PT_WAIT_FAULT);
	assert_int_equal(t->iv.v[0].object, INO);
	pt_model_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(by_time),
		cmocka_unit_test(forgotten_and_named_again),
		cmocka_unit_test(many_names),
		cmocka_unit_test(long_paths),
		cmocka_unit_test(faults_are_checked),
		cmocka_unit_test(waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
