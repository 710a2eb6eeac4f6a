/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is kept of samples in which something was wrong: ID.json (the report),
 * ID.ptrace (the recording) and ID.html (the page), in a folder of the agent's
 * own, bounded by size and age.
 */
#ifndef PT_AGENT_EVIDENCE_H
#define PT_AGENT_EVIDENCE_H

#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>

#include "agent/sample.h"
#include "base/err.h"

#define PT_EVIDENCE_ID 40	/* letters a-z, digits and dashes, with the end */
#define PT_EVIDENCE_MAX 4096 /* that are listed; the oldest go before */

enum pt_evidence_file { PT_KEPT_JSON, PT_KEPT_HTML, PT_KEPT_PTRACE, PT_KEPT_NR };

struct pt_kept_verdict {
	char id[32];
	uint8_t severity; /* enum pt_severity */
};

struct pt_kept {
	char id[PT_EVIDENCE_ID];
	uint64_t unix_s;
	char job[20], comm[64]; /* valid UTF-8 */
	uint64_t bytes[PT_KEPT_NR]; /* 0: there is none */
	struct pt_kept_verdict verdict[PT_SAMPLE_VERDICTS];
	size_t n_verdicts; /* at warning or worse */
	char watch[160]; /* what a watch saw; "": it is of a sample. Valid UTF-8 */
};

struct pt_evidence {
	int dir;
	char path[PATH_MAX];
	struct pt_kept *v; /* by time, the oldest first */
	size_t n, cap;
	uint64_t bytes; /* of all files */
	unsigned long lost; /* could not be kept: no space ... */
};

/*
 * Opens or makes the folder (0700) and lists what an earlier agent kept there.
 * Files that are not its own are left alone and not counted. 0, or -errno with a
 * sentence (-EPERM: others may write there).
 */
int pt_evidence_open(struct pt_evidence *e, const char *path, struct pt_err *err);
void pt_evidence_close(struct pt_evidence *e);

/* "20261121t134639-JOB". */
void pt_evidence_id(char out[PT_EVIDENCE_ID], uint64_t unix_s, const char *job);
/* Nothing but what such a name may hold, and not too long. Pure. */
bool pt_evidence_id_ok(const char *id);
/* ID.json ... as a path. */
void pt_evidence_path(const struct pt_evidence *e, const char *id,
		      enum pt_evidence_file what, char *out, size_t cap);

/*
 * Keeps a sample: `json` is its report, `recording` the path of its recording in
 * the same file system (moved), or NULL. `k`: id, unix_s, job, comm and verdicts.
 * 0, or -errno: nothing of it stays, and it is counted as lost.
 */
int pt_evidence_keep(struct pt_evidence *e, const struct pt_kept *k,
		     const char *json, size_t len, const char *recording);
/* Its page has been made, or not: looks. */
void pt_evidence_page_made(struct pt_evidence *e, const char *id);

/*
 * Which one goes first where there is no more room: the oldest that is not the
 * last one of its job and one of its verdicts; if there is none, the oldest.
 * Its index; n: there is none. Pure.
 */
size_t pt_evidence_victim(const struct pt_kept *v, size_t n);

/* Removes what is too old, or too much. True: something went. */
bool pt_evidence_bound(struct pt_evidence *e, uint64_t size, double age_s,
		       uint64_t unix_s);

/* The index, {"evidence": [...]}, the newest first; also index.json in the
 * folder, by which the next agent knows what is there. 0 or -EIO. */
int pt_evidence_list(const struct pt_evidence *e, FILE *f);
int pt_evidence_save(const struct pt_evidence *e);

#endif
