/* SPDX-License-Identifier: BSD-2-Clause */
#include "report/fields.h"

#include <string.h>

#define SECONDS_MAX 1e10 /* some centuries */

/* ---- measures -------------------------------------------------------------- */

#define MEASURE(id, schema, decimals, min, max)                                \
	static const struct pt_measure measure_##id = { schema, decimals, min, \
							max };
MEASURE(S, "amount", 6, 0, SECONDS_MAX)
MEASURE(MS, "amount", 3, 0, 1e3 * SECONDS_MAX)
MEASURE(MS_FINE, "amount", 6, 0, 1e3 * SECONDS_MAX)
MEASURE(US, "amount", 3, 0, 1e6 * SECONDS_MAX)
MEASURE(SHARE, "share", 6, 0, 1)
MEASURE(RATE, "amount", 6, 0, 1e21)	 /* a second */
MEASURE(RATIO, "amount", 6, 0, INFINITY)
MEASURE(BYTES, "amount", 0, 0, 1e21)	 /* means, rates a second */
MEASURE(GROWTH, "number", 0, -1e21, 1e21) /* bytes a minute */
MEASURE(FIGURE_UP, "amount", 6, 0, INFINITY) /* other figures from 0 on */
MEASURE(FIGURE, "number", 6, -INFINITY, INFINITY)
MEASURE(COUNT, "count", 0, 0, 0)
MEASURE(WHOLE, "integer", 0, -9e18, 0)
MEASURE(CLOCK, "integer", 0, 0, 0)
MEASURE(UNIX_NS, "decimal_or_null", 0, 0, 0) /* a decimal string */

/* ---- names ----------------------------------------------------------------- */

#define ENUM_OF(id, null, open, ...)                                           \
	static const char *const id##_names[] = { __VA_ARGS__ };               \
	const struct pt_enum pt_enum_##id = {                                  \
		id##_names, sizeof(id##_names) / sizeof(*id##_names), null, open };
ENUM_OF(certainty, PT_CERT_NONE, true, NULL, "measured", "bounded", "estimated")
ENUM_OF(confidence, PT_CONF_NONE, true, NULL, "low", "medium", "high")
/* A severity, or a worker's state, that is not known is not the mildest one. */
ENUM_OF(severity, PT_INFO, false, "info", "warning", "critical")
ENUM_OF(worker_state, PT_WORKER_OK, false, "ok", "slow", "hung", "done", "exited")
#define X(id, name) name,
ENUM_OF(cause, PT_CAUSE_UNKNOWN, true, PT_CAUSES(X))
#undef X
static const char *const lateness_names[] = { "calls", "device" };
static const struct pt_enum pt_enum_lateness = { lateness_names, 2, 0, false };

const char *pt_enum_name(const struct pt_enum *e, unsigned value)
{
	return e->name[value < (unsigned)e->n ? (int)value : e->null];
}

int pt_enum_find(const struct pt_enum *e, const char *name)
{
	int i;

	for (i = 0; name && i < e->n; i++)
		if (e->name[i] && !strcmp(e->name[i], name))
			return i;
	return -1;
}

/* The sets that texts of our own come from. */
#define SET(id, ...) static const char *const set_##id[] = { __VA_ARGS__, NULL };
#define set_ANY NULL
static const char *const set_verdict[] = {
#define PT_VERDICT(id, flags, limits) #id,
#include "report/verdicts.def"
	NULL
};
SET(fs_class, "local", "network", "memory", "user")
SET(evidence, "supplied", "read", "named")
SET(throttle, "applications_clocks_setting", "sw_power_cap", "hw_slowdown",
    "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown",
    "hw_power_brake_slowdown", "display_clock_setting")
SET(late_reason, "data_wait", "gpu", "checkpoint", "host")
SET(op_kind, "api", "kernel", "copy", "memset", "nvtx", "python", "phase")
SET(pattern, "sequential", "random", "stride", "mixed")
SET(refaulted_in, "host", "cgroup")
SET(disk_kind, "rotational", "solid_state")
SET(protocol, "tcp", "udp", "unix", "vsock", "other")
SET(io_kind, "bandwidth", "latency", "many_small_files", "random_access",
    "page_cache_too_small", "large", "slow")

/* ---- the rows --------------------------------------------------------------- */

_Static_assert(offsetof(struct pt_r_file, reread_hi) ==
		       offsetof(struct pt_r_file, reread_lo) + sizeof(int64_t),
	       "bounds are read as a pair");

#define ROW_OF(id, type)                                                       \
	static const struct pt_row *row_##id(void)                             \
	{                                                                      \
		typedef struct type row_t;                                     \
		static const char name[] = #id;                                \
		static const struct pt_field fields[] = {
#define ROW(id) ROW_OF(id, pt_r_##id)
#define END(id)                                                                \
		{ .cls = PT_FIELD_END } };                                         \
		static const struct pt_row row = { name, sizeof(row_t),        \
						   fields };                   \
		return &row;                                                   \
	}
#define FIELD(class, m, k, d, ...)                                             \
	{ .cls = PT_FIELD_##class, .off = offsetof(row_t, m), .member = #m,    \
	  .key = k, .doc = d, __VA_ARGS__ },
#define NO_MEMBER(class, k, d, ...)                                            \
	{ .cls = PT_FIELD_##class, .key = k, .doc = d, __VA_ARGS__ },
#define NUMBERED(m) .off_n = offsetof(row_t, n_##m)

#define PLAIN(...)
#define KNOWN(m) FIELD(KNOWN, m, NULL, NULL)
#define REAL(m, k, unit, d, ...)                                               \
	FIELD(REAL, m, #k, d, .measure = &measure_##unit, __VA_ARGS__)
#define INT(m, k, unit, d, ...)                                                \
	FIELD(INT, m, #k, d, .measure = &measure_##unit, __VA_ARGS__)
#define NUMBER32(m, k, d, ...) FIELD(NUMBER32, m, #k, d, __VA_ARGS__)
#define NUMBER64(m, k, d, ...) FIELD(NUMBER64, m, #k, d, __VA_ARGS__)
#define BOOL(m, k, d, ...) FIELD(BOOL, m, #k, d, __VA_ARGS__)
#define BOOL_AS(m, k, e, d, ...)                                               \
	FIELD(BOOL, m, #k, d, .names = &pt_enum_##e, __VA_ARGS__)
#define TRI(m, k, d, ...) FIELD(TRI, m, #k, d, __VA_ARGS__)
#define TEXT(m, k, names, d, ...)                                              \
	FIELD(TEXT, m, #k, d, .set = set_##names, __VA_ARGS__)
#define ENUM(m, k, e, d, ...)                                                  \
	FIELD(ENUM, m, #k, d, .names = &pt_enum_##e, __VA_ARGS__)
#define SHARES(m, k, d, ...) FIELD(SHARES, m, #k, d, __VA_ARGS__)
#define COUNTS(m, k, d, ...) FIELD(COUNTS, m, #k, d, __VA_ARGS__)
#define DIST(m, k, d, ...) FIELD(DIST, m, #k, d, __VA_ARGS__)
#define QUANTILES(m, k, d, ...) FIELD(QUANTILES, m, #k, d, __VA_ARGS__)
#define RANGE(m, k, d, ...) FIELD(RANGE, m, #k, d, __VA_ARGS__)
#define PART(m, k, d, ...) FIELD(PART, m, #k, d, __VA_ARGS__)
#define SETTING(m, k, d) FIELD(SETTING, m, #k, d)
#define OBJ(m, k, r, d, ...) FIELD(OBJ, m, #k, d, .row = row_##r, __VA_ARGS__)
#define FLAT(m, r) FIELD(FLAT, m, NULL, NULL, .row = row_##r)
#define ROWS(m, k, r, most, d, ...)                                            \
	FIELD(ROWS, m, #k, d, .row = row_##r, .max = most, NUMBERED(m),        \
	      __VA_ARGS__)
#define OWN_ROWS ROWS
#define NAMES(m, k, names, d, ...)                                             \
	FIELD(NAMES, m, #k, d, .set = set_##names, .max = 256, NUMBERED(m),    \
	      __VA_ARGS__)
#define NAMES_IN(m, k, most, d, ...)                                           \
	FIELD(NAMES_IN, m, #k, d, .max = most, NUMBERED(m), __VA_ARGS__)
#define OPEN(k, d, ...) NO_MEMBER(OPEN, #k, d, __VA_ARGS__)
#define CLOSE { .cls = PT_FIELD_CLOSE },
#define NONE(k, s, d) NO_MEMBER(NONE, #k, d, .schema = #s)
#define SPECIAL(k, d, ...)                                                     \
	NO_MEMBER(SPECIAL, #k, d, .special = PT_S_##k, __VA_ARGS__)
#define AGAIN_ENUM ENUM
#define AGAIN_PART(m, k, d)                                                    \
	{ .cls = PT_FIELD_PART, .off = offsetof(row_t, m), .key = #k, .doc = d },
#define AGAIN_COUNTS COUNTS

#define LATER .later = true
#define FIRST .first = true
#define EMPTY_NULL .empty_null = true
#define ON_DEMAND .on_demand = true
#define TABLE .table = true
#define NEEDED .needed = true
#define KEPT .kept = true
#define HIDDEN .hidden = true
#define JOIN(how) .join = PT_ROW_JOIN_##how
#define COL(at, name) .place = at, .col = name, .col_2 = "_high"
#define LIKELY(at, name) .place = at, .col = name, .col_2 = "_likely"
#define STATS(at, name, what) .place = at, .col = name, .stats = what
#define MEAN PT_STAT_MEAN
#define P50 PT_STAT_P50
#define P95 PT_STAT_P95
#define P99 PT_STAT_P99
#define MAX PT_STAT_MAX
#include "report/report.def"

const struct pt_row *pt_row_report(void)
{
	return row_report();
}

static const struct pt_row *find(const struct pt_row *r, const char *name)
{
	const struct pt_row *found = strcmp(r->name, name) ? NULL : r;
	const struct pt_field *f;

	for (f = r->fields; f->cls != PT_FIELD_END && !found; f++)
		if (f->row)
			found = find(f->row(), name);
	return found;
}

const struct pt_row *pt_row_find(const char *name)
{
	return find(pt_row_report(), name);
}

/* ---- what every user of them needs ------------------------------------------ */

const struct pt_field *pt_field_behind(const struct pt_field *open)
{
	const struct pt_field *f = open + 1;
	int depth = 1;

	for (; depth; f++)
		depth += (f->cls == PT_FIELD_OPEN) - (f->cls == PT_FIELD_CLOSE);
	return f;
}

bool pt_field_is_null(const struct pt_field *f, const void *row)
{
	const void *m = (const char *)row + f->off;

	switch (f->cls) {
	case PT_FIELD_REAL:
		return !isfinite(*(const double *)m);
	case PT_FIELD_INT:
		return *(const int64_t *)m == PT_NULL;
	case PT_FIELD_TEXT:
		return !*(const char *const *)m;
	default:
		return false;
	}
}

static void null_member(const struct pt_field *f, void *m)
{
	const struct pt_r_part no_part = { NAN, NAN };
	const struct pt_range no_range = { NAN, NAN, NAN };
	double *share = m;
	int64_t *count = m;

	switch (f->cls) {
	case PT_FIELD_REAL:
		*share = NAN;
		break;
	case PT_FIELD_SHARES:
		share[0] = share[1] = NAN;
		break;
	case PT_FIELD_INT:
	case PT_FIELD_TRI:
		*count = PT_NULL;
		break;
	case PT_FIELD_COUNTS:
		count[0] = count[1] = PT_NULL;
		break;
	case PT_FIELD_ENUM:
		*(unsigned *)m = (unsigned)f->names->null;
		break;
	case PT_FIELD_PART:
		*(struct pt_r_part *)m = no_part;
		break;
	case PT_FIELD_RANGE:
		*(struct pt_range *)m = no_range;
		break;
	case PT_FIELD_OBJ:
	case PT_FIELD_FLAT:
		pt_row_null(f->row(), m);
		break;
	default: /* zero is null */
		break;
	}
}

void pt_row_null(const struct pt_row *r, void *row)
{
	const struct pt_field *f;

	memset(row, 0, r->size);
	for (f = r->fields; f->cls != PT_FIELD_END; f++)
		null_member(f, (char *)row + f->off);
}
