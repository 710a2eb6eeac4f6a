/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What one sample of a job said, out of its report. That comes from a process of
 * ours, about a job of somebody else: figures that no sample can have are left out,
 * names are bounded.
 */
#ifndef PT_AGENT_SAMPLE_H
#define PT_AGENT_SAMPLE_H

#include <stdint.h>

#include "report/verdicts.h"

#define PT_SAMPLE_VERDICTS PT_VERDICT_NR /* of one sample, at most */
#define PT_SAMPLE_STEPS 4096  /* kept of one sample, at most */
#define PT_SAMPLE_MOUNTS 16   /* told apart in one sample, at most */
#define PT_SAMPLE_MOUNT 96    /* bytes of a mount's name, with the NUL */

/* Where a step's time goes, for the comparison of ranks: they wait for each other
 * in collectives, or for the device, which may be in one. */
enum pt_phase { PT_PHASE_DATA_WAIT, PT_PHASE_HOST, PT_PHASE_GPU_WAIT,
		PT_PHASE_COLLECTIVE, PT_PHASE_NR };
const char *pt_phase_name(enum pt_phase p);

struct pt_sample_mount {
	char name[PT_SAMPLE_MOUNT];
	double read_s, bytes;
};

struct pt_sample_verdict {
	char id[32];
	uint8_t severity; /* enum pt_severity */
	bool root;	  /* no consequence of another one */
};

struct pt_sample { /* NAN: not known. GPU-seconds: over all devices */
	double duration; /* s that were observed */
	double gpus;
	double busy_s, busy_hard_s[2], busy_likely_s[2]; /* GPU-seconds */
	double idle_s[PT_CAUSE_NR];			 /* ... by cause */
	double starved_s[2]; /* ... idle in data waits: certain, likely */
	double data_wait_share; /* of the trainer's time */
	double steps;		/* NAN: none were told apart */
	double slowdown;	/* of the slowest worker */
	double read_bytes, read_s, reads;
	double phase_s[PT_PHASE_NR]; /* of the trainer; the worst rank's */
	double events, lost, tracer_cpu_s;
	bool complete;
	size_t n_verdicts;
	struct pt_sample_verdict verdict[PT_SAMPLE_VERDICTS];
	size_t n_mounts;
	struct pt_sample_mount mount[PT_SAMPLE_MOUNTS];
	size_t n_step_s; /* steps.list, where the report has it */
	float step_s[PT_SAMPLE_STEPS];
};

/* 0, or -EINVAL with one sentence in `why` (a static text). Pure. */
int pt_sample_of(const struct pt_report *r, struct pt_sample *s, const char **why);

/*
 * What was read by mount. `mountinfo` is the text of the job's
 * /proc/PID/mountinfo: mounts of a server are named by it (as nodes share them),
 * others by where they are mounted. NULL: by file system and disk, which the
 * report has; pt_sample_of() does that. Pure.
 */
void pt_sample_mounts(const struct pt_report *r, const char *mountinfo,
		      struct pt_sample *s);
/* The place of `name` among *n of at most `max`, a new one where it has none yet. The last
 * is only ever for "other": all that there is no room for. Pure. */
struct pt_sample_mount *pt_sample_mount_of(struct pt_sample_mount *v, size_t *n, size_t max,
					   const char *name);

#endif
