/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest form of one input unit: \u{10FFFF} and the NUL. */
#define UNIT_MAX 16

struct range {
	uint32_t lo, hi;
};

/*
 * Not shown as they are: controls, characters that cannot be seen, that
 * change the direction of what follows, or whose look is not defined
 * (Unicode 15, default-ignorable code points, noncharacters, private use).
 */
static const struct range hidden[] = {
	{ 0x0000, 0x001f },   { 0x007f, 0x009f },   { 0x00ad, 0x00ad },
	{ 0x034f, 0x034f },   { 0x061c, 0x061c },   { 0x115f, 0x1160 },
	{ 0x17b4, 0x17b5 },   { 0x180b, 0x180f },   { 0x200b, 0x200f },
	{ 0x2028, 0x202e },   { 0x2060, 0x206f },   { 0x3164, 0x3164 },
	{ 0xe000, 0xf8ff },   { 0xfdd0, 0xfdef },   { 0xfeff, 0xfeff },
	{ 0xffa0, 0xffa0 },   { 0xfff0, 0xfffb },   { 0x1bca0, 0x1bca3 },
	{ 0x1d173, 0x1d17a }, { 0xe0000, 0x10ffff },
};

static const struct range zero_width[] = {
	{ 0x0300, 0x036f }, { 0x0483, 0x0489 }, { 0x0591, 0x05bd },
	{ 0x064b, 0x065f }, { 0x1ab0, 0x1aff }, { 0x1dc0, 0x1dff },
	{ 0x20d0, 0x20ff }, { 0x302a, 0x302d }, { 0x3099, 0x309a },
	{ 0xfe00, 0xfe0f }, { 0xfe20, 0xfe2f },
};

static const struct range wide[] = {
	{ 0x1100, 0x115f },   { 0x2e80, 0x303e },   { 0x3041, 0xa4cf },
	{ 0xa960, 0xa97c },   { 0xac00, 0xd7a3 },   { 0xf900, 0xfaff },
	{ 0xfe30, 0xfe6f },   { 0xff00, 0xff60 },   { 0xffe0, 0xffe6 },
	{ 0x17000, 0x18cff }, { 0x1b000, 0x1b2ff }, { 0x1f300, 0x1f64f },
	{ 0x1f680, 0x1f6ff }, { 0x1f900, 0x1faff }, { 0x20000, 0x3fffd },
};

/* Typography of our own sentences, for a terminal that has only ASCII. */
static const struct {
	uint32_t cp;
	const char *ascii;
} plain[] = {
	{ 0x00a0, " " },   { 0x00b1, "+-" },  { 0x00b5, "u" },
	{ 0x00b7, "-" },   { 0x00d7, "x" },   { 0x2013, "-" },
	{ 0x2014, "-" },   { 0x2018, "'" },   { 0x2019, "'" },
	{ 0x201c, "\"" },  { 0x201d, "\"" },  { 0x2026, "..." },
	{ 0x2192, "->" },  { 0x2248, "~" },   { 0x2264, "<=" },
	{ 0x2265, ">=" },
};

#define NR(a) (sizeof(a) / sizeof((a)[0]))

static bool in_ranges(const struct range *r, size_t n, uint32_t cp)
{
	for (size_t i = 0; i < n; i++) {
		if (cp < r[i].lo)
			return false;
		if (cp <= r[i].hi)
			return true;
	}
	return false;
}

size_t pt_utf8_decode(const char *s, size_t n, uint32_t *cp)
{
	const unsigned char *u = (const unsigned char *)s;
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len;
	uint32_t c;

	if (!n)
		return 0;
	if (u[0] < 0x80) {
		*cp = u[0];
		return 1;
	}
	if (u[0] >= 0xc2 && u[0] <= 0xdf)
		len = 2;
	else if ((u[0] & 0xf0) == 0xe0)
		len = 3;
	else if (u[0] >= 0xf0 && u[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (n < len)
		return 0;
	c = u[0] & (0x7f >> len);
	for (size_t i = 1; i < len; i++) {
		if ((u[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (u[i] & 0x3f);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*cp = c;
	return len;
}

static bool utf8_valid(const char *s, size_t n)
{
	uint32_t cp;
	size_t len;

	for (; n; s += len, n -= len) {
		len = pt_utf8_decode(s, n, &cp);
		if (!len)
			return false;
	}
	return true;
}

char *pt_str_utf8(const char *s, bool *escaped)
{
	size_t n = strlen(s), len, at = 0;
	uint32_t cp;
	char *out;

	if (escaped)
		*escaped = false;
	if (utf8_valid(s, n))
		return strdup(s);
	if (n > (SIZE_MAX - 1) / 4)
		return NULL;
	out = malloc(4 * n + 1);
	if (!out)
		return NULL;
	for (; n; s += len, n -= len) {
		len = pt_utf8_decode(s, n, &cp);
		if (!len) {
			len = 1;
			at += (size_t)sprintf(out + at, "\\x%02x",
					      (unsigned char)*s);
		} else if (cp == '\\') {
			out[at++] = '\\';
			out[at++] = '\\';
		} else {
			memcpy(out + at, s, len);
			at += len;
		}
	}
	out[at] = '\0';
	if (escaped)
		*escaped = true;
	return out;
}

unsigned pt_cp_cols(uint32_t cp)
{
	if (in_ranges(zero_width, NR(zero_width), cp))
		return 0;
	return in_ranges(wide, NR(wide), cp) ? 2 : 1;
}

size_t pt_str_cols(const char *s)
{
	size_t n = strlen(s), len, cols = 0;
	uint32_t cp;

	for (; n; s += len, n -= len) {
		len = pt_utf8_decode(s, n, &cp);
		if (len) {
			cols += pt_cp_cols(cp);
		} else {
			len = 1;
			cols++;
		}
	}
	return cols;
}

/* One unit of the input in its shown form. */
struct unit {
	char text[UNIT_MAX];
	size_t len;	/* of text */
	size_t cols;
	bool escaped;	/* text is an escape sequence of ours */
};

static void unit_set(struct unit *u, const char *text, bool escaped)
{
	u->len = (size_t)snprintf(u->text, sizeof(u->text), "%s", text);
	u->cols = u->len;
	u->escaped = escaped;
}

static bool unit_plain(struct unit *u, uint32_t cp)
{
	for (size_t i = 0; i < NR(plain); i++) {
		if (plain[i].cp != cp)
			continue;
		unit_set(u, plain[i].ascii, false);
		return true;
	}
	return false;
}

/* Take one unit off `s`; returns the bytes consumed (at least 1). */
static size_t unit_next(struct unit *u, const char *s, size_t n, unsigned flags,
			bool twice)
{
	char text[UNIT_MAX];
	uint32_t cp = 0;
	size_t len;

	len = pt_utf8_decode(s, n, &cp);
	if (!len) {
		snprintf(text, sizeof(text), "\\x%02x", (unsigned char)*s);
		unit_set(u, text, true);
		return 1;
	}
	if (cp == '\\' && twice) {
		unit_set(u, "\\\\", false);
	} else if (cp == '\n' || cp == '\t') {
		unit_set(u, cp == '\n' ? "\\n" : "\\t", true);
	} else if (cp < 0x20 || cp == 0x7f) {
		snprintf(text, sizeof(text), "\\x%02x", (unsigned)cp);
		unit_set(u, text, true);
	} else if (in_ranges(hidden, NR(hidden), cp) ||
		   (cp & 0xfffe) == 0xfffe) {
		snprintf(text, sizeof(text), "\\u{%x}", (unsigned)cp);
		unit_set(u, text, true);
	} else if (cp < 0x80 || (flags & PT_TERM_UNICODE)) {
		memcpy(u->text, s, len);
		u->text[len] = '\0';
		u->len = len;
		u->cols = pt_cp_cols(cp);
		u->escaped = false;
	} else if (!unit_plain(u, cp)) {
		snprintf(text, sizeof(text), "\\u{%x}", (unsigned)cp);
		unit_set(u, text, true);
	}
	return len;
}

/* Columns of the whole string when shown; sets *twice if it needs escapes. */
static size_t measure(const char *s, size_t n, unsigned flags, bool *twice)
{
	size_t cols = 0, slashes = 0, used;
	struct unit u;

	*twice = false;
	for (; n; s += used, n -= used) {
		used = unit_next(&u, s, n, flags, false);
		cols += u.cols;
		slashes += *s == '\\';
		*twice |= u.escaped;
	}
	return *twice ? cols + slashes : cols;
}

size_t pt_str_term(char *dst, size_t cap, const char *src, unsigned flags,
		   size_t max_cols)
{
	const char *dots = flags & PT_TERM_UNICODE ? "\xe2\x80\xa6" : "...";
	size_t dots_cols = flags & PT_TERM_UNICODE ? 1 : 3;
	size_t n = strlen(src), at = 0, cols = 0, total, used, room;
	bool twice, cut;
	struct unit u;

	if (!cap)
		return 0;
	dst[0] = '\0';
	total = measure(src, n, flags, &twice);
	cut = max_cols && total > max_cols;
	if (cut && max_cols < dots_cols)
		return 0;
	/* room: columns for text, once an ellipsis is known to be needed */
	room = cut ? max_cols - dots_cols : SIZE_MAX;
	if (cut && (flags & PT_TERM_TAIL)) {
		for (; n && total > room; src += used, n -= used) {
			used = unit_next(&u, src, n, flags, twice);
			total -= u.cols;
		}
		if (cap <= strlen(dots))
			return 0;
		at = (size_t)snprintf(dst, cap, "%s", dots);
		cols = dots_cols;
		cut = false;
		room = SIZE_MAX;
	}
	for (; n; src += used, n -= used) {
		used = unit_next(&u, src, n, flags, twice);
		if (cols + u.cols > room)
			break;
		/* always keep 3 bytes for the ellipsis, and the NUL */
		if (at + u.len + 4 > cap) {
			cut = true;
			break;
		}
		memcpy(dst + at, u.text, u.len);
		at += u.len;
		cols += u.cols;
	}
	dst[at] = '\0';
	if (cut && at + strlen(dots) < cap) {
		strcpy(dst + at, dots);
		cols += dots_cols;
	}
	return cols;
}
