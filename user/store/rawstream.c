// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <string.h>

#include "store/rawstream.h"

int pt_raw_begin(FILE *f)
{
	struct pt_raw_head h = { .version = PT_RAW_VERSION,
				 .abi = PT_ABI_VERSION };

	memcpy(h.magic, PT_RAW_MAGIC, sizeof(h.magic));
	return fwrite(&h, sizeof(h), 1, f) == 1 ? 0 : -EIO;
}

int pt_raw_put(FILE *f, const void *rec, size_t len)
{
	struct pt_hdr h;

	if (len < sizeof(h) || len > PT_REC_MAX)
		return -EINVAL;
	memcpy(&h, rec, sizeof(h));
	/* the ring may hand out padding behind the record */
	if (h.size < sizeof(h) || h.size > len)
		return -EINVAL;
	return fwrite(rec, h.size, 1, f) == 1 ? 0 : -EIO;
}

int pt_raw_open(struct pt_raw_reader *r, FILE *f)
{
	struct pt_raw_head h;

	memset(r, 0, sizeof(*r));
	r->f = f;
	if (fread(&h, sizeof(h), 1, f) != 1)
		return ferror(f) ? -EIO : -ENOEXEC;
	if (memcmp(h.magic, PT_RAW_MAGIC, sizeof(h.magic)))
		return -ENOEXEC;
	return h.version == PT_RAW_VERSION && h.abi == PT_ABI_VERSION ?
		       0 : -EPROTO;
}

int pt_raw_next(struct pt_raw_reader *r)
{
	size_t got, rest;

	if (r->truncated || r->damaged)
		return 0;
	got = fread(&r->rec.hdr, 1, sizeof(r->rec.hdr), r->f);
	if (!got)
		return ferror(r->f) ? -EIO : 0;
	if (got < sizeof(r->rec.hdr)) {
		r->truncated = true;
		return 0;
	}
	/* nothing marks where a record begins, so a bad size ends the stream */
	if (r->rec.hdr.size < sizeof(r->rec.hdr) ||
	    r->rec.hdr.size > PT_REC_MAX) {
		r->damaged = true;
		return 0;
	}
	rest = r->rec.hdr.size - sizeof(r->rec.hdr);
	if (rest && fread(r->rec.bytes + sizeof(r->rec.hdr), rest, 1, r->f) != 1) {
		r->truncated = true;
		return ferror(r->f) ? -EIO : 0;
	}
	r->records++;
	return r->rec.hdr.size;
}
