/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report: what the analysis found, and the only thing that a renderer
 * sees. Field names follow the JSON contract ("pipetrace.report/1").
 *
 * Units: seconds unless the name says _ms, _us, _ns or _per_min; shares 0..1;
 * bytes plain. Not observed: NAN for doubles, PT_NULL for integers, NULL for
 * strings and arrays; every such gap has an entry in capture.limits.
 *
 * Ownership: everything a report points at lives in its arena and dies with
 * pt_report_free(). Strings are raw bytes from outside: a renderer escapes
 * them for the place that it prints in.
 */
#ifndef PT_REPORT_H
#define PT_REPORT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

#define PT_REPORT_SCHEMA "pipetrace.report/1"
#define PT_NULL INT64_MIN

enum pt_certainty { /* of a figure */
	PT_CERT_NONE = 0, /* null */
	PT_MEASURED,
	PT_BOUNDED,
	PT_ESTIMATED,
};
const char *pt_certainty_name(enum pt_certainty c); /* NULL for NONE */

enum pt_confidence { /* of a conclusion */
	PT_CONF_NONE = 0,
	PT_CONF_LOW,
	PT_CONF_MEDIUM,
	PT_CONF_HIGH,
};
const char *pt_confidence_name(enum pt_confidence c); /* "low" ... */

enum pt_severity { PT_INFO = 0, PT_WARNING, PT_CRITICAL };
const char *pt_severity_name(enum pt_severity s);

/* One enumeration of causes, everywhere (DESIGN: causes). */
#define PT_CAUSES(X)                                                           \
	X(CPU, "cpu") X(RUN_QUEUE, "run_queue") X(THROTTLE, "throttle")        \
	X(DISK, "disk") X(PAGE_FAULT, "page_fault") X(NETWORK, "network")      \
	X(LOCK, "lock") X(IPC, "ipc") X(WORKER_IDLE, "worker_idle")            \
	X(PREFETCH_FULL, "prefetch_full") X(COMPILE, "compile")                \
	X(COLLECTIVE, "collective") X(TRANSFER, "transfer") X(SYNC, "sync")    \
	X(LAUNCH, "launch") X(CHECKPOINT, "checkpoint")                        \
	X(NO_DEMAND, "no_demand") X(OTHER_HOST, "other_host")                  \
	X(SLEEP, "sleep") X(UNKNOWN, "unknown")
enum pt_cause {
#define X(id, name) PT_CAUSE_##id,
	PT_CAUSES(X)
#undef X
	PT_CAUSE_NR
};
const char *pt_cause_name(enum pt_cause c);
/* Of a list of causes each view shows so many, until all are asked for. */
#define PT_CAUSES_SHOWN 4

struct pt_dist { /* n == 0: null */
	uint64_t n;
	double mean, std, min, p50, p95, p99, max;
};

struct pt_range {
	double value, low, high;
};

/* A setting and where it was read ("observed", "cmdline", "environment"). */
struct pt_sourced {
	const char *value; /* NULL: unknown */
	const char *source;
};

struct pt_r_label { /* --label key=value: what the user calls this run */
	const char *key, *value;
};

struct pt_r_hook {
	const char *need; /* "sched", "reads", "gpu", "faults" ... */
	const char *door; /* "tp_btf", "uprobe_multi", "none" ... */
	const char *note; /* what is lost, or NULL */
};

struct pt_r_loss {
	const char *cause;
	int64_t count;
};

struct pt_r_part {
	double seconds, share;
};

/* What the host does between GPU calls while no data is obtained. */
#define PT_HOST_KINDS(X)                                                       \
	X(COMPUTING, computing) X(QUEUED, run_queue) X(SLEEPING, sleeping)     \
	X(WRITING, writing) X(LOCK, lock) X(CHILD, child)                      \
	X(COLLECTIVE, collective) X(CLIENT, client) X(PEER, peer)              \
	X(OTHER, other)
enum pt_host_kind {
#define X(id, name) PT_HOST_##id,
	PT_HOST_KINDS(X)
#undef X
	PT_HOST_NR
};

enum pt_worker_state {
	PT_WORKER_OK = 0,
	PT_WORKER_SLOW,
	PT_WORKER_HUNG,
	PT_WORKER_DONE,
	PT_WORKER_EXITED,
};
const char *pt_worker_state_name(enum pt_worker_state s);

enum pt_op_sort {
	PT_SORT_TOTAL = 0,
	PT_SORT_CALLS,
	PT_SORT_MEAN,
	PT_SORT_MAX,
	PT_SORT_GPU,
	PT_SORT_CPU,
	PT_SORT_NAME,
	PT_SORT_NR
};
const char *pt_op_sort_name(enum pt_op_sort s); /* "total" ... */

#define PT_R_WINDOW_VERDICTS 8

/* struct pt_r_host ... struct pt_r_window, and struct pt_report: report.def says what
 * each member is. */
#define ROW_OF(name, type) struct type {
#define ROW(name) ROW_OF(name, pt_r_##name)
#define END(name) };
#define PLAIN(...) __VA_ARGS__
#define KNOWN(m) bool m;
#define REAL(m, ...) double m;
#define INT(m, ...) int64_t m;
#define NUMBER32(m, ...) uint32_t m;
#define NUMBER64(m, ...) uint64_t m;
#define BOOL(m, ...) bool m;
#define BOOL_AS(m, ...) bool m;
#define TRI(m, ...) int64_t m;
#define TEXT(m, ...) const char *m;
#define ENUM(m, key, type, ...) enum pt_##type m;
#define SHARES(m, ...) double m[2];
#define COUNTS(m, ...) int64_t m[2];
#define DIST(m, ...) struct pt_dist m;
#define QUANTILES(m, ...) struct pt_dist m;
#define RANGE(m, ...) struct pt_range m;
#define PART(m, ...) struct pt_r_part m;
#define SETTING(m, ...) struct pt_sourced m;
#define OBJ(m, key, row, ...) struct pt_r_##row m;
#define FLAT(m, row) struct pt_r_##row m;
#define ROWS(m, key, row, ...) const struct pt_r_##row *m; size_t n_##m;
#define OWN_ROWS(m, key, row, ...) struct pt_r_##row *m; size_t n_##m;
#define NAMES(m, ...) const char *const *m; size_t n_##m;
#define NAMES_IN(m, key, max, ...) const char *m[max]; size_t n_##m;
#define OPEN(...)
#define CLOSE
#define NONE(...)
#define SPECIAL(...)
#define AGAIN_ENUM(...)
#define AGAIN_PART(...)
#define AGAIN_COUNTS(...)
#include "report/report.def"

/* An empty report: every figure null. NULL when out of memory. */
struct pt_report *pt_report_new(void);
/* ... in an arena of the caller's, with which it is freed. */
struct pt_report *pt_report_new_in(struct pt_arena *arena);
void pt_report_free(struct pt_report *r);

/* Add a limit; `reason` is copied, duplicates (same what and reason) are
 * dropped. printf-style. 0 or -ENOMEM. */
int pt_report_limit(struct pt_report *r, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define PT_LABELS_MAX 32
/* Add a label, or change it where the key is there; both are copied. 0,
 * -ENOSPC beyond PT_LABELS_MAX, or -ENOMEM. */
int pt_report_label(struct pt_report *r, const char *key, const char *value);

/* Order the operations: largest first, unknown last; names from A to Z. Equal
 * ones by calls, kind and name. 0 or -ENOMEM. */
int pt_report_sort_operations(struct pt_report *r, enum pt_op_sort by);

/* Kernels of the operations table by their names in the source. 0 or -ENOMEM. */
int pt_report_demangle(struct pt_report *r);

#define PT_PERIODS_MAX 100000
/* Periods, ms, of the steps that lie wholly in the capture: those that were read, or of
 * the list where that has all steps. Into `out` unless NULL; how many. */
size_t pt_report_periods(const struct pt_report *r, double *out);

/* Highest severity among the verdicts; -1 when there is none. */
int pt_report_severity(const struct pt_report *r);

#endif
