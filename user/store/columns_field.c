// SPDX-License-Identifier: BSD-2-Clause
/* Which fields the records have, and what each is likely to be. */
#include "store/columns_int.h"

#define F(type, member, m)                                                     \
	{ offsetof(struct type, member),                                       \
	  sizeof(((struct type *)0)->member), PT_COL_##m }

/* In the order of coding: a field may be told from those before it. What is
 * not listed is coded in words of eight bytes against the last record. */
static const struct pt_col_field header[] = {
	F(pt_hdr, cpu, LAST),
	F(pt_hdr, flags, LAST),
	F(pt_hdr, seq, SEQ),
};

static const struct pt_col_field off_cpu[] = {
	F(pt_rec_off, off_ts, TIME),
	F(pt_rec_off, wake_ts, TIME),
	/* where it slept */
	F(pt_rec_off, syscall, DICT),
	F(pt_rec_off, state, DICT2),
	F(pt_rec_off, obj_kind, DICT2),
	F(pt_rec_off, object, DICT2),
	F(pt_rec_off, dev, DICT2),
	F(pt_rec_off, arg[0], DICT2),
	F(pt_rec_off, arg[1], DICT),
	F(pt_rec_off, arg[2], DICT),
	F(pt_rec_off, tot.run_ns, RUN),
	F(pt_rec_off, tot.runq_ns, RUNQ),
	F(pt_rec_off, tot.iowait_ns, IOWAIT),
	F(pt_rec_off, tot.block_ns, BLOCK),
	/* who woke it */
	F(pt_rec_off, waker_tid, DICT),
	F(pt_rec_off, waker_tgid, DICT2),
	F(pt_rec_off, waker_syscall, DICT2),
	F(pt_rec_off, waker_obj_kind, DICT2),
	F(pt_rec_off, waker_object, DICT2),
	F(pt_rec_off, waker_dev, DICT2),
	F(pt_rec_off, waker_arg0, DICT2),
	F(pt_rec_off, waker_in, LAST),
};

static const struct pt_col_field gpu[] = {
	F(pt_rec_gpu, api, DICT),
	F(pt_rec_gpu, lib, DICT2),
	F(pt_rec_gpu, stream, DICT2),
	F(pt_rec_gpu, v[0], DICT2),
	F(pt_rec_gpu, v[1], DICT),
	F(pt_rec_gpu, v[2], DICT),
};

static const struct pt_col_field read_call[] = {
	F(pt_rec_read, begin_ts, TIME),
	F(pt_rec_read, inode, DICT),
	F(pt_rec_read, dev, DICT2),
	F(pt_rec_read, ret, DICT),
	F(pt_rec_read, obj_kind, LAST),
	F(pt_rec_read, door, LAST),
};

static const struct pt_col_field read_calls[] = {
	F(pt_rec_reads, begin_ts, TIME),
	F(pt_rec_reads, inode, DICT),
	F(pt_rec_reads, dev, DICT2),
	F(pt_rec_reads, bytes, DICT),
	F(pt_rec_reads, count, DICT),
	F(pt_rec_reads, obj_kind, LAST),
	F(pt_rec_reads, door, LAST),
	F(pt_rec_reads, placed, DICT),
	F(pt_rec_reads, contiguous, DICT2),
};

static const struct pt_col_field faults[] = {
	F(pt_rec_faults, begin_ts, TIME),
	F(pt_rec_faults, inode, DICT),
	F(pt_rec_faults, dev, DICT2),
	F(pt_rec_faults, bytes, DICT),
	F(pt_rec_faults, count, DICT),
	F(pt_rec_faults, major, LAST),
	F(pt_rec_faults, door, LAST),
};

#define LIST(kind, l) { kind, sizeof(l) / sizeof((l)[0]), l }
static const struct {
	uint16_t kind, n;
	const struct pt_col_field *f;
} kinds[] = {
	LIST(PT_REC_OFF, off_cpu),
	LIST(PT_REC_GPU_ENTER, gpu),
	LIST(PT_REC_GPU_RETURN, gpu),
	LIST(PT_REC_READ, read_call),
	LIST(PT_REC_READS, read_calls),
	LIST(PT_REC_FAULTS, faults),
};

static unsigned take(const struct pt_col_field *list, unsigned n, uint16_t size,
		     struct pt_col_field *f, unsigned have, bool *covered)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		if (list[i].off + list[i].width > size)
			continue;
		f[have] = list[i];
		/* told by fields that a cut record may lack */
		if (list[i].mode >= PT_COL_RUN &&
		    size < sizeof(struct pt_rec_off))
			f[have].mode = PT_COL_LAST;
		have++;
		memset(covered + list[i].off, 1, list[i].width);
	}
	return have;
}

unsigned pt_col_fields(uint16_t kind, uint16_t size, struct pt_col_field *f)
{
	bool covered[PT_REC_MAX] = { false };
	unsigned n, i, w;

	/* told by the form, the thread and the times' own column */
	memset(covered + offsetof(struct pt_hdr, size), 1, 4);
	memset(covered + offsetof(struct pt_hdr, ts), 1, 16);
	memset(covered + offsetof(struct pt_hdr, start), 1, 4);
	n = take(header, sizeof(header) / sizeof(header[0]), size, f, 0,
		 covered);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].kind == kind)
			n = take(kinds[i].f, kinds[i].n, size, f, n, covered);
	for (i = 0; i < size; i += w) {
		w = 1;
		if (covered[i])
			continue;
		while (w < 8 && i + w < size && !covered[i + w])
			w++;
		w = w == 8 ? 8 : w >= 4 ? 4 : w >= 2 ? 2 : 1;
		f[n++] = (struct pt_col_field){ (uint16_t)i, (uint8_t)w,
						PT_COL_LAST };
	}
	return n;
}

/* Sign-extend a difference of `width` bytes, so that zigzag sees its sign. */
static uint64_t extend(uint64_t v, unsigned width)
{
	uint64_t top = 1ull << (8 * width - 1);

	v &= pt_col_mask(width);
	return (v ^ top) - top;
}

uint64_t pt_col_code(const struct pt_col_field *f, uint64_t value,
		     const unsigned char *r, const unsigned char *prev)
{
	if (f->mode == PT_COL_TIME)
		return pt_col_swap_zero(pt_col_zigzag(pt_col_time(r) - value), pt_col_time(r));
	return pt_col_zigzag(extend(value - pt_col_guess(f, r, prev), f->width)) &
	       pt_col_mask(f->width);
}
