// SPDX-License-Identifier: BSD-2-Clause
#include "store/shrink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/records.h"

/* More names than this are left out: they are the files' of a job that opens
 * hundreds of thousands. */
#define NAMES_MAX (4u << 20)

static int append(pt_bytes *b, const void *data, size_t n)
{
	unsigned char *p = pt_bytes_extend(b, n);

	if (!p)
		return -ENOMEM;
	memcpy(p, data, n);
	return 0;
}

/* What names something, who is there, and what was watched. */
static bool stays(uint16_t kind)
{
	const struct pt_rec_kind *k = pt_rec_kind(kind);

	return k && (k->life == PT_LIFE_TREE || k->life == PT_LIFE_FACT ||
		     k->life == PT_LIFE_FRAME);
}

int pt_shrink_see(struct pt_shrink *s, const void *records, size_t len)
{
	const unsigned char *raw = records;
	struct pt_rec_mark m;
	struct pt_hdr h;
	size_t at;

	for (at = 0; s->max && at < len; at += h.size) {
		bool keep;

		memcpy(&h, raw + at, sizeof(h));
		keep = stays(h.kind) && s->names.n + h.size <= NAMES_MAX;
		if (h.kind == PT_REC_MARK && h.size >= sizeof(m)) {
			memcpy(&m, raw + at, sizeof(m));
			keep = m.mark == PT_MARK_BEGIN;
		}
		if (keep && append(&s->names, raw + at, h.size))
			return -ENOMEM;
	}
	return 0;
}

/* The old file from `at` on, behind what `w` has. */
static int copy_rest(int from, uint64_t at, struct pt_rf_writer *w)
{
	unsigned char buf[65536];
	ssize_t n;

	while ((n = pread(from, buf, sizeof(buf), (off_t)at)) > 0) {
		if (fwrite(buf, (size_t)n, 1, w->f) != 1)
			return -EIO;
		at += (uint64_t)n;
		w->at += (uint64_t)n;
	}
	return n < 0 ? -errno : 0;
}

/* What was kept, and that the rest up to `ts` is not there. */
static int put_names(const struct pt_shrink *s, struct pt_rf_writer *w,
		     uint64_t ts)
{
	struct pt_rec_mark m = { .hdr = { .size = sizeof(m),
					  .kind = PT_REC_MARK, .ts = ts },
				 .mark = PT_MARK_CUT };
	pt_bytes all = { 0 };
	int err = append(&all, s->names.v, s->names.n);

	err = err ?: append(&all, &m, sizeof(m));
	err = err ?: pt_rf_put(w, all.v, all.n);
	pt_vec_free(&all);
	return err;
}

static int fill(const struct pt_shrink *s, const struct pt_rf_writer *old,
		size_t first, int from, struct pt_rf_writer *w)
{
	const struct pt_rf_index *x = old->index.v;
	uint64_t by;
	size_t i;
	int err = 0;

	if (s->about.n)
		err = pt_rf_about(w, s->about.v, s->about.n);
	err = err ?: put_names(s, w, x[first].begin);
	by = x[first].offset - w->at;
	for (i = first; i < old->index.n && !err; i++) {
		struct pt_rf_index y = x[i];

		y.offset -= by;
		w->records += y.records;
		err = pt_vec_push(&w->index, y) ? -ENOMEM : 0;
	}
	err = err ?: copy_rest(from, x[first].offset, w);
	if (!err && fflush(w->f))
		err = -errno;
	w->dropped = old->dropped;
	w->dropped_before = old->dropped_before;
	return err;
}

int pt_shrink_step(struct pt_shrink *s, struct pt_rf_writer *w)
{
	struct pt_rf_writer next = { 0 };
	size_t first = 0;
	char path[64];
	FILE *f = NULL;
	int err, from;

	if (!s->max || w->at + pt_rf_end_bytes(w) <= s->max || w->index.n < 2)
		return 0;
	/* at least the newest chunk stays */
	while (first + 1 < w->index.n &&
	       w->at - w->index.v[first].offset > s->max / 2)
		first++;
	if (fflush(w->f))
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(w->f));
	from = open(path, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		return -errno;
	err = s->again.open(s->again.ctx, &f);
	err = err ?: pt_rf_begin(&next, f, s->unix_ns);
	err = err ?: fill(s, w, first, from, &next);
	err = err ?: s->again.publish(s->again.ctx);
	close(from);
	if (err) {
		pt_rf_writer_free(&next);
		return err;
	}
	s->gone += w->records > next.records ? w->records - next.records : 0;
	pt_rf_writer_free(w);
	*w = next;
	return 0;
}

void pt_shrink_free(struct pt_shrink *s)
{
	pt_vec_free(&s->names);
	pt_vec_free(&s->about);
}
