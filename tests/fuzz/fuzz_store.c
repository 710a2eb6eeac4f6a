/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The recorded file, and its records' columns.
 *
 * recording: 'F' and the bytes of a file; or anything else and pieces, each to become
 * a chunk with what a chunk must have to be looked into (checksums, a whole zstd
 * frame), unless its flags say what is to be wrong with it.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "report/about.h"
#include "store/recording.h"
#include "stream_job.h"

struct piece {
	uint8_t type, how;
	uint16_t len; /* of what follows, or all that is left */
};

enum { /* how */
	ZIPPED = 1,	/* a zstd frame */
	ENCODED = 2,	/* records, of which columns are to be made */
	ONLY_SAYS = 4,	/* the flag of zstd without the frame */
	OTHER_SIZE = 8, /* once decompressed, than it says */
	BAD_DATA = 16,	/* its checksum */
	BAD_HEAD = 32,
	LONG_HEAD = 64, /* of a later version */
};

static void append(pt_bytes *b, const void *p, size_t n)
{
	unsigned char *to = n ? pt_bytes_extend(b, n) : NULL;

	if (n && !to)
		abort();
	if (n)
		memcpy(to, p, n);
}

static void add_chunk(pt_bytes *file, const struct piece *p, const uint8_t *data,
		      size_t len)
{
	struct pt_rf_chunk c = { .magic = PT_RF_CHUNK_MAGIC, .size = sizeof(c),
				 .type = p->type, .records = (uint32_t)len,
				 .dropped = p->how };
	pt_bytes plain = { 0 }, stored = { 0 };
	size_t n;

	if (!(p->how & ENCODED) || pt_columns_encode(data, len, &plain)) {
		plain.n = 0;
		append(&plain, data, len);
	}
	append(&stored, plain.v, plain.n);
	if (p->how & ZIPPED) {
		stored.n = 0;
		n = ZSTD_compressBound(plain.n);
		n = ZSTD_compress(pt_bytes_extend(&stored, n), n, plain.v, plain.n, 1);
		if (ZSTD_isError(n))
			abort();
		stored.n = n;
	}
	if (p->how & (ZIPPED | ONLY_SAYS))
		c.flags = PT_RF_ZSTD;
	if (p->how & LONG_HEAD)
		c.size += 8;
	c.stored = (uint32_t)stored.n;
	c.plain = (uint32_t)plain.n + !!(p->how & OTHER_SIZE);
	c.data_crc = (uint32_t)crc32(0, stored.v, c.stored) + !!(p->how & BAD_DATA);
	c.head_crc = (uint32_t)crc32(0, (const void *)&c,
				     offsetof(struct pt_rf_chunk, head_crc)) +
		     !!(p->how & BAD_HEAD);
	append(file, &c, sizeof(c));
	if (p->how & LONG_HEAD)
		append(file, "LATER...", 8);
	append(file, stored.v, stored.n);
	pt_vec_free(&plain);
	pt_vec_free(&stored);
}

static void make_file(pt_bytes *file, const uint8_t *data, size_t size)
{
	struct pt_rf_head h = { .magic = PT_RECORDING_MAGIC, .size = sizeof(h),
				.format = PT_RECORDING_FORMAT, .abi = PT_ABI_VERSION };
	struct piece p;
	size_t len;

	append(file, &h, sizeof(h));
	while (size >= sizeof(p)) {
		memcpy(&p, data, sizeof(p));
		data += sizeof(p);
		size -= sizeof(p);
		len = p.len < size ? p.len : size;
		add_chunk(file, &p, data, len);
		data += len;
		size -= len;
	}
	append(file, data, size);
}

/* Whole records, as all who take them rely on. */
static void check_records(const unsigned char *p, size_t len, uint64_t n)
{
	struct pt_hdr h;

	for (; len; p += h.size, len -= h.size, n--) {
		FUZZ_HOLDS(n && len >= sizeof(h));
		memcpy(&h, p, sizeof(h));
		FUZZ_HOLDS(h.size >= sizeof(h) && h.size <= PT_REC_MAX &&
			   h.size <= len);
	}
	FUZZ_HOLDS(!n);
}

static void read_about(const pt_bytes *about)
{
	struct pt_report *r = pt_report_new();
	struct pt_about a = { 0 };
	FILE *out = fopen("/dev/null", "w");

	if (!r || !out)
		abort();
	FUZZ_HOLDS(!pt_about_read(r, &a, about->v, about->n));
	FUZZ_HOLDS(!pt_about_limits(r));
	FUZZ_HOLDS(!pt_about_write(r, a.marked, out));
	fclose(out);
	pt_report_free(r);
}

void recording_run(const uint8_t *data, size_t size)
{
	struct pt_rf_reader r = { 0 };
	pt_bytes file = { 0 };
	uint64_t before = 0;
	FILE *f;
	int ret;

	if (!size)
		return;
	if (*data == 'F')
		append(&file, data + 1, size - 1);
	else
		make_file(&file, data + 1, size - 1);
	f = fmemopen(file.v ? (void *)file.v : "", file.n, "r");
	if (!f)
		abort();
	if (!pt_rf_open(&r, f)) {
		pt_rf_count(&r);
		while ((ret = pt_rf_next(&r)) == 1) {
			check_records(r.raw.v, r.raw.n, r.records - before);
			before = r.records;
		}
		FUZZ_HOLDS(!ret && r.state != PT_RF_READING);
		read_about(&r.about);
	}
	pt_rf_reader_free(&r);
	fclose(f);
	pt_vec_free(&file);
}

void columns_run(const uint8_t *data, size_t size)
{
	pt_bytes raw = { 0 }, columns = { 0 }, again = { 0 };
	uint64_t n = 0, m = 0;

	if (!pt_columns_decode(data, size, &raw, &n)) {
		check_records(raw.v, raw.n, n);
		FUZZ_HOLDS(!pt_columns_encode(raw.v, raw.n, &columns));
		FUZZ_HOLDS(!pt_columns_decode(columns.v, columns.n, &again, &m));
		FUZZ_HOLDS(m == n && again.n == raw.n &&
			   (!raw.n || !memcmp(again.v, raw.v, raw.n)));
	} else {
		FUZZ_HOLDS(!raw.n);
	}
	pt_vec_free(&raw);
	pt_vec_free(&columns);
	pt_vec_free(&again);
}

/* ---- seeds ---------------------------------------------------------------------- */

/* One record of each kind that a small job has, and a few more of the first ones. */
static void job_records(pt_bytes *raw)
{
	struct job_opts o = job_defaults();
	unsigned seen[64] = { 0 };
	struct job j;
	size_t i;

	o.batch_ns = 8 * ST_MS;
	o.launches = 2;
	o.run_s_x10 = 1;
	job_run(&j, &o);
	st_file(&j.s, JOB_BEGIN + 20 * ST_MS, JOB_FILE_DEV, JOB_FILE(0), "a.jpg", "data");
	job_window(&j, JOB_BEGIN + 15 * ST_MS, JOB_BEGIN + 95 * ST_MS);
	for (i = 0; i < j.s.recs.n; i++) {
		const struct pt_hdr *h = &j.s.recs.v[i].r.hdr;

		if (seen[h->kind % 64]++ < 4)
			append(raw, h, h->size);
	}
	job_free(&j);
}

static const char about[] =
	"host.kernel\0" "6.1.0\0" "host.cpus\0" "4\0" "host.memory_bytes\0" "1024\0"
	"target.pid\0" "7\0" "target.cmdline\0" "python train.py\0"
	"capture.mode\0" "standard\0" "capture.parts\0" "marked\0"
	"hook.need\0" "gpu\0" "hook.door\0" "none\0" "hook.note\0" "it has no library\0"
	"hook.need\0" "reads\0" "threshold\0" "io_share=0.5\0"
	"label.key\0" "job\0" "label.value\0" "4711";

static void add_piece(pt_bytes *b, uint8_t type, uint8_t how, const void *data,
		      size_t len)
{
	struct piece p = { type, how, (uint16_t)len };

	append(b, &p, sizeof(p));
	append(b, data, len);
}

void recording_seeds(void)
{
	static const uint8_t wrong[] = { 0, ONLY_SAYS, ONLY_SAYS | OTHER_SIZE, BAD_DATA,
					 BAD_HEAD, ZIPPED | OTHER_SIZE };
	static const struct pt_rf_end end = { 32, 9, 1 };
	pt_bytes raw = { 0 }, b = { 0 }, file = { 0 };
	char name[32];
	size_t i;

	job_records(&raw);
	append(&b, "c", 1);
	add_piece(&b, PT_RF_ABOUT, ZIPPED, about, sizeof(about));
	add_piece(&b, PT_RF_RECORDS, ZIPPED | ENCODED, raw.v, raw.n);
	add_piece(&b, 99, LONG_HEAD, "new", 3);
	add_piece(&b, PT_RF_INDEX, ZIPPED, "index", 5);
	add_piece(&b, PT_RF_END, 0, &end, sizeof(end));
	fuzz_seed("whole", b.v, b.n);
	make_file(&file, b.v + 1, b.n - 1);
	fuzz_seed_as("file", 'F', file.v, file.n);
	fuzz_seed_as("cut", 'F', file.v, file.n / 2);
	for (i = 0; i < sizeof(wrong); i++) {
		b.n = 0;
		append(&b, "c", 1);
		add_piece(&b, i ? PT_RF_RECORDS : PT_RF_END, wrong[i], "odd", 3);
		snprintf(name, sizeof(name), "wrong-%zu", i);
		fuzz_seed(name, b.v, b.n);
	}
	pt_vec_free(&raw);
	pt_vec_free(&b);
	pt_vec_free(&file);
}

void columns_seeds(void)
{
	pt_bytes raw = { 0 }, columns = { 0 };

	fuzz_seed("empty", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 15);
	job_records(&raw);
	if (pt_columns_encode(raw.v, raw.n, &columns))
		abort();
	fuzz_seed("job", columns.v, columns.n);
	pt_vec_free(&raw);
	pt_vec_free(&columns);
}
