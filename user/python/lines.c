// SPDX-License-Identifier: BSD-2-Clause
#include "python/lines.h"

#include <stdint.h>

#define LINE_MAX_NR 100000000 /* none is as long; a damaged table's sums stop there */

static int64_t stepped(int64_t line, int64_t by)
{
	line += by;
	return line > LINE_MAX_NR ? LINE_MAX_NR : line < -LINE_MAX_NR ? -LINE_MAX_NR : line;
}

static int told(int64_t line)
{
	return line > 0 ? (int)line : 0;
}

/* Pairs: so many bytes on, so many lines on (from 3.6 on that may be back). */
static int line_by_steps(const unsigned char *t, size_t n, int first, long at)
{
	int64_t line = first;
	long addr = 0;
	size_t i;

	for (i = 0; i + 1 < n; i += 2) {
		addr += t[i];
		if (addr > at)
			break;
		line = stepped(line, (signed char)t[i + 1]);
	}
	return told(line);
}

/* Pairs: a range of so many bytes is so many lines on; -128: it has none. */
static int line_by_ranges(const unsigned char *t, size_t n, int first, long at)
{
	int64_t line = first;
	long end = 0;
	size_t i;

	for (i = 0; i + 1 < n; i += 2) {
		int by = (signed char)t[i + 1];

		end += t[i];
		if (by != -128)
			line = stepped(line, by);
		if (at < end)
			return by == -128 ? 0 : told(line);
	}
	return 0;
}

/* Six bits a byte, the lowest first; the seventh says that more follow. */
static uint32_t varint(const unsigned char *t, size_t n, size_t *i)
{
	uint32_t v = 0;
	unsigned shift = 0, b;

	do {
		b = *i < n ? t[(*i)++] : 0;
		if (shift < 32)
			v |= (uint32_t)(b & 63) << shift;
		shift += 6;
	} while (b & 64);
	return v;
}

static int64_t signed_varint(const unsigned char *t, size_t n, size_t *i)
{
	uint32_t v = varint(t, n, i);

	return v & 1 ? -(int64_t)(v >> 1) : (int64_t)(v >> 1);
}

/* Entries begin with a byte that has its highest bit set: a kind, and of how many
 * units of code it is. */
static int line_by_entries(const unsigned char *t, size_t n, int first, long at)
{
	enum { ONE_LINE = 10, NO_COLUMNS = 13, NONE = 15 };
	int64_t line = first;
	long end = 0;
	size_t i = 0;

	while (i < n) {
		unsigned kind = t[i] >> 3 & 15;

		end += 2 * ((t[i] & 7) + 1);
		i++;
		if (kind >= ONE_LINE && kind < NO_COLUMNS)
			line = stepped(line, (int)kind - ONE_LINE);
		else if (kind >= NO_COLUMNS && kind < NONE)
			line = stepped(line, signed_varint(t, n, &i));
		if (at < end)
			return kind == NONE ? 0 : told(line);
		while (i < n && !(t[i] & 128)) /* columns */
			i++;
	}
	return 0;
}

int pt_py_line(int minor, const unsigned char *table, size_t n, int first, long at)
{
	if (at < 0)
		return told(first);
	return minor < 10  ? line_by_steps(table, n, first, at) :
	       minor == 10 ? line_by_ranges(table, n, first, at) :
			     line_by_entries(table, n, first, at);
}
