/* SPDX-License-Identifier: BSD-2-Clause */
/* Block requests by disk, and where a file lies. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "analysis/analysis.h"
#include "base/fsname.h"
#include "capture/disks.h"
#include "model/timeline.h"
#include "stream_case.h"

#define T0 (1000 * ST_S)
#define P 500u
#define DISK (8u << 20)
#define PART (8u << 20 | 1)
#define NFS 45u /* no major number */

static void begin(struct stream *s)
{
	struct pt_rec_host *h;

	h = &st_add(s, PT_REC_HOST, sizeof(*h), T0, P, P)->host;
	h->cores = 4;
	h->target_pid = P;
	h->read_door = PT_DOOR_FEXIT;
	st_mark(s, T0, PT_MARK_BEGIN);
	st_task(s, T0, P, P, 1, "job");
}

static struct pt_rec_block *block(struct stream *s, uint64_t from_s, uint16_t op,
				  uint32_t count, uint64_t lat_us)
{
	struct pt_rec_block *b = (void *)st_add(s, PT_REC_BLOCK, sizeof(*b),
						T0 + (from_s + 1) * ST_S, P, P);

	b->begin_ts = T0 + from_s * ST_S;
	b->dev = DISK;
	b->op = op;
	b->count = count;
	b->bytes = 65536ull * count;
	b->lat_ns = lat_us * ST_US * count;
	b->max_ns = 2 * lat_us * ST_US;
	b->depth_sum = 3ull * count;
	b->depth_max = 7;
	return b;
}

static struct pt_rec_disk *disk(struct stream *s, uint64_t ms, uint32_t dev)
{
	struct pt_rec_disk *d = (void *)st_add(s, PT_REC_DISK, sizeof(*d),
					       T0 + ms * ST_MS, 0, 0);

	d->dev = dev;
	d->reads = d->read_bytes = d->read_ms = PT_DISK_UNKNOWN;
	d->writes = d->write_bytes = d->write_ms = PT_DISK_UNKNOWN;
	d->busy_ms = d->queue_ms = PT_DISK_UNKNOWN;
	return d;
}

static void counters(struct pt_rec_disk *d, uint64_t reads, uint64_t bytes,
		     uint64_t ms)
{
	d->disk = d->dev;
	d->reads = reads;
	d->read_bytes = bytes;
	d->read_ms = ms;
	d->writes = d->write_bytes = d->write_ms = 0;
	d->busy_ms = ms / 2;
	d->queue_ms = ms;
	strcpy(d->name, "sda");
	d->flags = PT_DISK_F_ROTATES;
}

static struct pt_report *finish(struct stream *s, uint64_t seconds,
				struct pt_model **m)
{
	st_preempted(s, P, P, T0 + 10 * ST_MS, T0 + 11 * ST_MS);
	st_mark(s, T0 + seconds * ST_S, PT_MARK_END);
	st_seal(s);
	return st_analyze(s, m);
}

static void sums_and_quantiles(void **state)
{
	struct stream s = { 0 };
	struct pt_rec_block *b;
	const struct pt_r_disk *d;
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s);
	counters(disk(&s, 0, DISK), 1000, 1 << 20, 500);
	b = block(&s, 0, PT_BLOCK_READ, 90, 100);
	b->hist[9] = 90; /* 65.5 to 98.3 us */
	b = block(&s, 1, PT_BLOCK_READ, 10, 5000);
	b->hist[21] = 10; /* 4.19 to 6.29 ms */
	b = block(&s, 1, PT_BLOCK_WRITE, 4, 1000);
	b->hist[16] = 4;
	counters(disk(&s, 2000, DISK), 1200, (1 << 20) + 200 * 65536, 900);
	r = finish(&s, 2, &m);

	assert_int_equal(r->n_disks, 1);
	d = &r->disks[0];
	assert_string_equal(d->name, "sda");
	assert_string_equal(d->kind, "rotational");
	assert_int_equal(d->reads, 100);
	assert_int_equal(d->read_bytes, 100 * 65536);
	assert_int_equal(d->writes, 4);
	assert_int_equal(d->read_latency_ms.n, 100);
	assert_true(fabs(d->read_latency_ms.mean - 0.59) < 1e-9);
	/* inside of the slots that hold them */
	assert_true(d->read_latency_ms.p50 > 0.0655 &&
		    d->read_latency_ms.p50 < 0.0984);
	assert_true(d->read_latency_ms.p95 > 4.19 &&
		    d->read_latency_ms.p95 < 6.30);
	assert_true(fabs(d->read_latency_ms.max - 10) < 1e-9);
	assert_true(fabs(d->depth_mean - 3) < 1e-9);
	assert_int_equal(d->depth_max, 7);
	assert_int_equal(d->all_reads, 200);
	assert_true(fabs(d->all_latency_ms - 2) < 1e-9);
	assert_true(fabs(d->busy_share - 0.1) < 1e-9);
	assert_true(fabs(d->target_share - 104.0 / 200) < 1e-9);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* Of a window, only what completed in it. */
static void outside_of_the_window(void **state)
{
	struct stream s = { 0 };
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s);
	block(&s, 0, PT_BLOCK_READ, 5, 100);
	block(&s, 9, PT_BLOCK_READ, 70, 100);
	r = finish(&s, 4, &m);
	assert_int_equal(r->n_disks, 1);
	assert_int_equal(r->disks[0].reads, 5);
	assert_null(r->disks[0].name);
	assert_int_equal(r->disks[0].all_reads, PT_NULL);
	assert_true(isnan(r->disks[0].target_share));
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

static void where_files_lie(void **state)
{
	struct stream s = { 0 };
	struct pt_rec_disk *d;
	struct pt_rec_reads *rd;
	struct pt_report *r;
	struct pt_model *m;
	size_t i;

	(void)state;
	begin(&s);
	st_file(&s, T0 + 1, PART, 7, "seven", "data");
	st_file(&s, T0 + 2, NFS, 8, "eight", "far");
	d = disk(&s, 5, PART);
	d->disk = DISK;
	d->cls = PT_FS_LOCAL;
	strcpy(d->fstype, "xfs");
	strcpy(d->name, "sda");
	d = disk(&s, 6, NFS);
	d->cls = PT_FS_NETWORK;
	strcpy(d->fstype, "nfs4");
	for (i = 7; i < 9; i++) {
		rd = &st_add(&s, PT_REC_READS, sizeof(*rd), T0 + i * ST_MS, P,
			     P)->reads;
		rd->begin_ts = T0 + i * ST_MS;
		rd->inode = i;
		rd->dev = i == 7 ? PART : NFS;
		rd->count = 1;
		rd->bytes = 1000 * i;
		rd->obj_kind = PT_OBJ_FILE;
		rd->door = PT_DOOR_FEXIT;
	}
	r = finish(&s, 1, &m);
	assert_int_equal(r->n_files, 2);
	for (i = 0; i < 2; i++) {
		const struct pt_r_file *f = &r->files[i];
		bool local = f->inode == 7;

		assert_string_equal(f->fs, local ? "xfs" : "nfs4");
		assert_string_equal(f->fs_class, local ? "local" : "network");
		if (local)
			assert_string_equal(f->device, "sda");
		else
			assert_null(f->device);
	}
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

static void damage(void **state)
{
	struct stream s = { 0 };
	struct pt_rec_block *b;
	struct pt_report *r;
	struct pt_model *m;

	(void)state;
	begin(&s);
	block(&s, 0, PT_BLOCK_READ, 0, 1);
	b = block(&s, 0, PT_BLOCK_READ, 1, 1);
	b->begin_ts = b->hdr.ts + 1;
	b = block(&s, 0, 9, 1, 1);
	b = block(&s, 0, PT_BLOCK_READ, 1, 1);
	b->bytes = UINT64_MAX;
	b = block(&s, 0, PT_BLOCK_READ, 1, 1);
	memset(b->hist, 0xff, sizeof(b->hist));
	memset(disk(&s, 1, DISK)->name, 'x', 32);
	r = finish(&s, 2, &m);
	assert_int_equal(m->malformed, 5);
	assert_int_equal(r->n_disks, 0);
	pt_report_free(r);
	pt_model_free(m);
	st_free(&s);
}

/* A trace that is trimmed keeps where the disk's counters stood then, and what
 * was told once. */
static void trimmed(void **state)
{
	struct pt_model *m = pt_model_new();
	struct stream s = { 0 };
	size_t i;

	(void)state;
	begin(&s);
	strcpy(disk(&s, 1, PART)->fstype, "xfs");
	for (i = 0; i < 100; i++)
		counters(disk(&s, 10 * i, DISK), i, i, i);
	st_preempted(&s, P, P, T0 + 998 * ST_MS, T0 + ST_S);
	st_seal(&s);
	for (i = 0; i < s.recs.n; i++)
		assert_int_equal(pt_model_feed(m, &s.recs.v[i].r,
					       s.recs.v[i].r.hdr.size), 0);
	assert_int_equal(m->disks.n, 101);
	assert_int_equal(pt_model_trim(m, 1), 0);
	assert_int_equal(m->disks.n, 52); /* 490 ms to 990 ms, and the other */
	assert_int_equal(m->disks.v[0].dev, PART);
	assert_int_equal(m->disks.v[1].reads, 49);
	pt_model_free(m);
	st_free(&s);
}

/* ---- mountinfo and counters ---------------------------------------------------- */

static void mount_lines(void **state)
{
	struct pt_rec_disk d = { .dev = 8u << 20 | 1 };
	char up[64];

	(void)state;
	assert_true(pt_mountinfo_line(
		"30 1 8:1 / /da\\040ta rw,relatime shared:1 master:2 - ext4 "
		"/dev/sda1 rw\n", d.dev, &d, up, sizeof(up)));
	assert_string_equal(d.fstype, "ext4");
	assert_string_equal(d.mount, "/da ta");
	assert_int_equal(d.cls, PT_FS_LOCAL);
	assert_int_equal(d.disk, d.dev);
	assert_false(pt_mountinfo_line("30 1 8:2 / / rw - ext4 /dev/x rw", d.dev,
				       &d, up, sizeof(up)));
	assert_true(pt_mountinfo_line("31 1 0:45 / /n rw - fuse.sshfs a:b rw", 45,
				      &d, up, sizeof(up)));
	assert_int_equal(d.cls, PT_FS_USER);
	assert_int_equal(d.disk, 0);
	assert_true(pt_mountinfo_line(
		"32 1 0:50 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/u/d,w=1",
		50, &d, up, sizeof(up)));
	assert_int_equal(d.cls, PT_FS_UNKNOWN);
	assert_string_equal(up, "/u/d");
}

static void hostile_mount_lines(void **state)
{
	static const char *const lines[] = {
		"", "\n", "30", "30 1", "30 1 8:1", "30 1 8:1 /", "30 1 8:1 / /m",
		"30 1 8:1 / /m rw shared:1", "30 1 8:1 / /m rw -",
		"30 1 9999:1 / /m rw - ext4 x rw", "30 1 x / /m rw - ext4 x rw",
	};
	struct pt_rec_disk d = { .dev = 0 };
	char line[1024], up[4];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		assert_false(pt_mountinfo_line(lines[i], 8u << 20 | 1, &d, up,
					       sizeof(up)));
	/* longer than any field: cut, not overrun */
	snprintf(line, sizeof(line), "30 1 8:1 / /%0300d rw - %0100d /dev/x rw",
		 1, 2);
	assert_true(pt_mountinfo_line(line, 8u << 20 | 1, &d, up, sizeof(up)));
	assert_int_equal(strlen(d.mount), sizeof(d.mount) - 1);
	assert_int_equal(strlen(d.fstype), sizeof(d.fstype) - 1);
	assert_true(pt_mountinfo_line("1 1 0:9 / /\\999\\04 rw - overlay o "
				      "rw,upperdir=/longer", 9, &d, up,
				      sizeof(up)));
	assert_string_equal(up, "/lo");
}

static void disk_counters(void **state)
{
	struct pt_rec_disk d = { .dev = 0 };

	(void)state;
	pt_disk_stat("   10  1  16  20   5  0  8  7  0  12  27 0 0 0 0", &d);
	assert_int_equal(d.reads, 10);
	assert_int_equal(d.read_bytes, 16 * 512);
	assert_int_equal(d.read_ms, 20);
	assert_int_equal(d.writes, 5);
	assert_int_equal(d.write_bytes, 8 * 512);
	assert_int_equal(d.write_ms, 7);
	assert_int_equal(d.busy_ms, 12);
	assert_int_equal(d.queue_ms, 27);
	pt_disk_stat("1 2 3", &d);
	assert_true(d.reads == PT_DISK_UNKNOWN && d.queue_ms == PT_DISK_UNKNOWN);
}

static void kinds_of_file_system(void **state)
{
	(void)state;
	assert_string_equal(pt_fs_name(0xef53), "ext4");
	assert_string_equal(pt_fs_name(0x65735546), "fuse");
	assert_null(pt_fs_name(0x12345));
	assert_int_equal(pt_fs_class("nfs4"), PT_FS_NETWORK);
	assert_int_equal(pt_fs_class("tmpfs"), PT_FS_MEMORY);
	assert_int_equal(pt_fs_class("fuse.anything"), PT_FS_USER);
	assert_int_equal(pt_fs_class("overlay"), PT_FS_UNKNOWN);
	assert_int_equal(pt_fs_class(NULL), PT_FS_UNKNOWN);
	assert_null(pt_fs_class_name(PT_FS_UNKNOWN));
	assert_string_equal(pt_fs_class_name(PT_FS_USER), "user");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_and_quantiles),
		cmocka_unit_test(outside_of_the_window),
		cmocka_unit_test(where_files_lie),
		cmocka_unit_test(damage),
		cmocka_unit_test(trimmed),
		cmocka_unit_test(mount_lines),
		cmocka_unit_test(hostile_mount_lines),
		cmocka_unit_test(disk_counters),
		cmocka_unit_test(kinds_of_file_system),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
