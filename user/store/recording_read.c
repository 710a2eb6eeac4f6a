// SPDX-License-Identifier: BSD-2-Clause
/* Whoever made the file is not trusted: nothing is taken that does not check. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "abi.h"
#include "store/recording.h"

/* A head that grew is skipped over, up to here. */
#define MAX_HEAD 4096u

static int room(pt_bytes *b, size_t n)
{
	unsigned char *p;

	if (n <= b->cap)
		return 0;
	p = realloc(b->v, n);
	if (!p)
		return -ENOMEM;
	b->v = p;
	b->cap = n;
	return 0;
}

/* Read exactly `n` bytes: 1; 0: the file ends first; -EIO. */
static int exactly(FILE *f, void *p, size_t n)
{
	if (!n || fread(p, n, 1, f) == 1)
		return 1;
	return ferror(f) ? -EIO : 0;
}

/* Skip what a later version added to a head. */
static int skip(FILE *f, uint32_t n)
{
	unsigned char bytes[MAX_HEAD];

	return exactly(f, bytes, n);
}

int pt_rf_open(struct pt_rf_reader *r, FILE *f)
{
	struct pt_rf_head *h = &r->head;
	int got;

	memset(r, 0, sizeof(*r));
	r->f = f;
	got = exactly(f, h, sizeof(*h));
	if (got != 1)
		return got ? got : -ENOEXEC;
	if (memcmp(h->magic, PT_RECORDING_MAGIC, sizeof(h->magic)) ||
	    h->size < sizeof(*h) || h->size > MAX_HEAD)
		return -ENOEXEC;
	if (h->format > PT_RECORDING_FORMAT || h->abi > PT_ABI_VERSION)
		return -EPROTO;
	got = skip(f, h->size - (uint32_t)sizeof(*h));
	return got == 1 ? 0 : got ? got : -ENOEXEC;
}

static bool head_is_good(const struct pt_rf_chunk *c)
{
	return c->magic == PT_RF_CHUNK_MAGIC && c->size >= sizeof(*c) &&
	       c->size <= MAX_HEAD && c->stored <= PT_RF_MAX_DATA &&
	       c->plain <= PT_RF_MAX_DATA &&
	       c->head_crc == crc32(0, (const void *)c,
				    offsetof(struct pt_rf_chunk, head_crc));
}

/* One whole chunk, its stored data in r->stored: 1; 0: there is none, and
 * r->state says why. */
static int read_chunk(struct pt_rf_reader *r, struct pt_rf_chunk *c)
{
	int got = exactly(r->f, c, sizeof(*c));

	r->state = PT_RF_CUT;
	if (got != 1)
		return got;
	r->state = PT_RF_DAMAGED;
	if (!head_is_good(c))
		return 0;
	if (room(&r->stored, c->stored))
		return -ENOMEM;
	r->state = PT_RF_CUT;
	got = skip(r->f, c->size - (uint32_t)sizeof(*c));
	if (got == 1)
		got = exactly(r->f, r->stored.v, c->stored);
	if (got != 1)
		return got;
	r->stored.n = c->stored;
	r->state = PT_RF_DAMAGED;
	if (c->data_crc != crc32(0, r->stored.v, c->stored))
		return 0;
	r->state = PT_RF_READING;
	return 1;
}

/* Data as it was before compression, in r->plain: 0, -EBADMSG, -ENOMEM. */
static int unpack(struct pt_rf_reader *r, const struct pt_rf_chunk *c)
{
	size_t n;

	if (!(c->flags & PT_RF_ZSTD)) {
		if (room(&r->plain, c->stored))
			return -ENOMEM;
		if (c->stored)
			memcpy(r->plain.v, r->stored.v, c->stored);
		r->plain.n = c->stored;
		return 0;
	}
	if (room(&r->plain, c->plain))
		return -ENOMEM;
	n = ZSTD_decompress(r->plain.v, c->plain, r->stored.v, c->stored);
	if (ZSTD_isError(n) || n != c->plain)
		return -EBADMSG;
	r->plain.n = n;
	return 0;
}

static int take_records(struct pt_rf_reader *r, const struct pt_rf_chunk *c)
{
	uint64_t n = 0;
	int err;

	r->raw.n = 0;
	err = pt_columns_decode(r->plain.v, r->plain.n, &r->raw, &n);
	r->records += n;
	r->dropped += c->dropped;
	return err;
}

static int take_about(struct pt_rf_reader *r)
{
	if (room(&r->about, r->plain.n))
		return -ENOMEM;
	if (r->plain.n)
		memcpy(r->about.v, r->plain.v, r->plain.n);
	r->about.n = r->plain.n;
	return 0;
}

static int take_end(struct pt_rf_reader *r)
{
	struct pt_rf_end e;

	if (r->plain.n < sizeof(e))
		return -EBADMSG;
	memcpy(&e, r->plain.v, sizeof(e));
	r->dropped = e.dropped;
	r->state = PT_RF_WHOLE;
	return 0;
}

int pt_rf_next(struct pt_rf_reader *r)
{
	struct pt_rf_chunk c;
	int ret;

	while (r->state == PT_RF_READING) {
		ret = read_chunk(r, &c);
		if (ret != 1)
			return ret;
		ret = unpack(r, &c);
		if (!ret && c.type == PT_RF_RECORDS)
			ret = take_records(r, &c);
		else if (!ret && c.type == PT_RF_ABOUT)
			ret = take_about(r);
		else if (!ret && c.type == PT_RF_END)
			ret = take_end(r);
		else if (!ret && c.type != PT_RF_INDEX)
			r->skipped++;
		if (ret == -EBADMSG) {
			r->state = PT_RF_DAMAGED;
			return 0;
		}
		if (ret)
			return ret;
		if (c.type == PT_RF_RECORDS)
			return 1;
	}
	return 0;
}

uint64_t pt_rf_count(struct pt_rf_reader *r)
{
	struct pt_rf_chunk c;
	uint64_t n = 0;
	off_t at = ftello(r->f);

	while (at >= 0 && exactly(r->f, &c, sizeof(c)) == 1 && head_is_good(&c) &&
	       !fseeko(r->f, (off_t)(c.size - sizeof(c)) + c.stored, SEEK_CUR))
		n += c.type == PT_RF_RECORDS ? c.records : 0;
	clearerr(r->f);
	if (at >= 0)
		fseeko(r->f, at, SEEK_SET);
	return n;
}

void pt_rf_reader_free(struct pt_rf_reader *r)
{
	pt_vec_free(&r->about);
	pt_vec_free(&r->raw);
	pt_vec_free(&r->stored);
	pt_vec_free(&r->plain);
}
