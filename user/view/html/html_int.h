/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The data of the HTML page, private to html*.c. How it is packed, and what
 * the page's code reads, is said here.
 *
 * A lane is packed twice, as base64 of pieces that lie one behind the other from
 * the begin of the capture. A piece is its length (LEB128), then either one
 * category below 128 (0: nothing is known, or nothing is there) or 128 + n and n
 * pairs of a category and its share of the piece, in 255ths.
 *   detail  lengths in us; pieces shorter than `resolution_us` are mixed
 *   coarse  lengths in buckets, of which PT_LOD_COARSE are the whole capture
 */
#ifndef PT_VIEW_HTML_INT_H
#define PT_VIEW_HTML_INT_H

#include <jansson.h>

#include "report/json_build.h"
#include "view/export.h"

#define PT_LOD_COARSE 1024
#define PT_LOD_BYTES 1600000u /* of all lanes: what keeps a page below 3 MB */
#define PT_LOD_LANE_MAX 220000u
#define PT_HTML_STEPS 20480 /* more are put together */
#define PT_HTML_LANES 48    /* of threads */

/* Categories; their names are what the page gets. */
#define PT_HTML_CATS(X)                                                        \
	X(NOTHING, "nothing") X(RUNNING, "running") X(RUNQ, "run_queue")       \
	X(DISK, "disk") X(DISK_WRITE, "disk_write") X(FAULT, "page_fault")     \
	X(PIPE_IN, "pipe") X(PIPE_OUT, "pipe_full") X(SOCK, "socket")          \
	X(FUTEX, "futex") X(SLEEP, "sleep") X(POLL, "poll")                    \
	X(STOPPED, "stopped") X(BLOCKED, "blocked") X(GPU_BUSY, "gpu_busy")    \
	X(GPU_STARVED, "gpu_starved") X(GPU_STARVED_LIKELY, "gpu_starved_likely") \
	X(GPU_IDLE, "gpu_idle") X(GPU_IDLE_LIKELY, "gpu_idle_likely")          \
	X(STEP_EVEN, "step_even") X(STEP_ODD, "step_odd")
enum pt_html_cat {
#define X(id, name) PT_HC_##id,
	PT_HTML_CATS(X)
#undef X
	PT_HC_CAUSE, /* and PT_CAUSE_NR of them: data waits */
	PT_HC_NR = PT_HC_CAUSE + PT_CAUSE_NR
};

/* ---- lod.c: pieces ------------------------------------------------------- */

struct pt_bytes {
	PT_VEC(uint8_t) b;
	bool failed; /* no memory */
};
void pt_bytes_put(struct pt_bytes *s, uint8_t v);
void pt_bytes_number(struct pt_bytes *s, uint64_t v); /* LEB128 */
/* As base64; frees the bytes. A failure is noted in `b`, NULL then. */
json_t *pt_bytes_json(struct pt_jb *b, struct pt_bytes *s);

struct pt_lod;
/* One category, or several with their shares, in [begin, end): in order, what
 * overlaps an earlier one is cut. Times are CLOCK_MONOTONIC ns. */
void pt_lod_add(struct pt_lod *l, uint64_t begin, uint64_t end,
		enum pt_html_cat cat);
void pt_lod_mix(struct pt_lod *l, uint64_t begin, uint64_t end,
		const uint8_t *cats, const double *shares, unsigned n);

/* Adds all that a lane shows; called several times. */
typedef void (*pt_lod_fn)(const void *src, struct pt_lod *l);
/* Pack a lane over [begin, end) in at most `cap` bytes, but for a coarse level
 * that alone is larger: members resolution_us, detail and coarse of `lane`. */
void pt_lod_pack(struct pt_jb *b, json_t *lane, pt_lod_fn fn, const void *src,
		 uint64_t begin, uint64_t end, size_t cap);

/* ---- the page's timeline: lanes.c, steps.c ------------------------------- */

/* {duration_us, origin_ns, categories, trainers, lanes, steps, ...} */
json_t *pt_html_timeline(struct pt_jb *b, const struct pt_export *x);
/* The report's steps, packed; null without any. */
json_t *pt_html_steps(struct pt_jb *b, const struct pt_export *x);
/* Who fed the trainer's steps, packed. */
json_t *pt_html_feeds(struct pt_jb *b, const struct pt_export *x,
		      const struct pt_lane_trainer *t);
/* The least and largest of `n` positive numbers, `stride` bytes apart; NANs are
 * left out. *low is above *high without any. */
void pt_html_extent(const double *ms, size_t stride, size_t n, double *low,
		    double *high);
/* How often which length: {edges, counts}; null without two different ones. With
 * `low` below `high` the bins lie between those. */
json_t *pt_html_histogram(struct pt_jb *b, const double *ms, size_t stride,
			  size_t n, double low, double high);

/* ---- stacks.c ------------------------------------------------------------ */

/* {groups, from (s), lines, files, waits} */
json_t *pt_html_stacks(struct pt_jb *b, const struct pt_export *x);

/* ---- blob.c -------------------------------------------------------------- */

/* The page without its data, which goes where PT_HTML_MARK is. Static. */
const char *pt_html_page(size_t *len);
#define PT_HTML_MARK "@PIPETRACE-DATA@\n"

#endif
