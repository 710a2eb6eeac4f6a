/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/records.h"

#define LINE(what, member, bytes, count, ...)                                  \
	{ .says = PT_SAYS_##what, .name = #member, .off = offsetof(rec, member), \
	  .width = (bytes), .n = (count), __VA_ARGS__ },
#define WIDTH(member) sizeof(((rec *)0)->member)

#define PT_RECORD(record, oldest, size, longest)                               \
	static const struct pt_rec_line *lines_of_##record(unsigned *n)        \
	{                                                                      \
		typedef struct pt_rec_##record rec;                            \
		static const struct pt_rec_line lines[] = {
#define PT_FIELD(type, member)                                                 \
	LINE(MEMBER, member, sizeof(type), 1, .is_signed = (type)-1 < 1)
#define PT_ARRAY(type, member, count) LINE(MEMBER, member, sizeof(type), count)
#define PT_TEXT(member, bytes) LINE(TEXT, member, bytes, 1)
#define PT_TOTALS(member)                                                      \
	PT_FIELD(__u64, member.run_ns)                                         \
	PT_FIELD(__u64, member.runq_ns)                                        \
	PT_FIELD(__u64, member.iowait_ns)                                      \
	PT_FIELD(__u64, member.block_ns)                                       \
	PT_FIELD(__u64, member.rchar)                                          \
	PT_FIELD(__u64, member.read_bytes)                                     \
	PT_FIELD(__u64, member.wchar)                                          \
	PT_FIELD(__u64, member.write_bytes)
#define PT_KEY(member) LINE(KEY, member, WIDTH(member), 1)
#define PT_CODE(member, how)                                                   \
	LINE(CODE, member, WIDTH(member), 1, .mode = PT_COL_##how)
#define PT_END                                                                 \
		};                                                             \
		*n = sizeof(lines) / sizeof(lines[0]);                         \
		return lines;                                                  \
	}
#include "records.def"

#define PT_RECORD(record, oldest, size, longest)                               \
	enum { OLDEST_##record = (oldest), LONGEST_##record = (longest) };
#include "records.def"

const struct pt_rec_kind pt_rec_kinds[PT_REC_KINDS] = {
#define PT_KIND(kind, nr, record, how_long, feed)                              \
	[nr] = { .name = #kind, .number = (nr), .oldest = OLDEST_##record,     \
		 .size = sizeof(struct pt_rec_##record),                       \
		 .longest = LONGEST_##record, .life = PT_LIFE_##how_long,      \
		 .lines = lines_of_##record },
#include "records.def"
};
