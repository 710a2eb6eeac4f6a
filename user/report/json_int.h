/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of the JSON document, private to the JSON renderer. Each returns
 * a new value, or NULL with b->failed set. */
#ifndef PT_REPORT_JSON_INT_H
#define PT_REPORT_JSON_INT_H

#include "report/json.h"
#include "report/json_build.h"

json_t *pt_j_steps(struct pt_jb *b, const struct pt_r_steps *s, size_t max);
json_t *pt_j_breakdown(struct pt_jb *b, const struct pt_r_breakdown *p);
json_t *pt_j_data_wait(struct pt_jb *b, const struct pt_r_data_wait *w);
json_t *pt_j_gpus(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_alloc_failures(struct pt_jb *b, const struct pt_r_gpu *g);
json_t *pt_j_workers(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_ranks(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_step_parts(struct pt_jb *b, const struct pt_r_step_parts *p);
json_t *pt_j_phases(struct pt_jb *b, const struct pt_report *r); /* or null */
json_t *pt_j_operations(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_files(struct pt_jb *b, const struct pt_report *r);
/* A pair of counts; null where both are. */
json_t *pt_j_bounds(int64_t lo, int64_t hi);
json_t *pt_j_pattern(struct pt_jb *b, const struct pt_r_pattern *p); /* or null */
/* Adds to the object `o`. */
void pt_j_memory(struct pt_jb *b, json_t *o, const struct pt_r_memory *m);
/* Where a file lies, into its object. */
void pt_j_file_place(struct pt_jb *b, json_t *o, const struct pt_r_file *f);
json_t *pt_j_writes(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_disks(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_peers(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_series(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_windows(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_whatif(struct pt_jb *b, const struct pt_report *r);
json_t *pt_j_verdicts(struct pt_jb *b, const struct pt_report *r);

#endif
