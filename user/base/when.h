/* SPDX-License-Identifier: BSD-2-Clause */
/* The conditions of `pipetrace watch` and of the agent's watches. */
#ifndef PT_WHEN_H
#define PT_WHEN_H

#include <stdint.h>

enum pt_when_of {
	PT_WHEN_STEP,	/* a step takes long */
	PT_WHEN_WAIT,	/* its data wait does, or data waits have this share of time */
	PT_WHEN_WORKER, /* a worker that has work delivers nothing for so long */
	PT_WHEN_RANK,	/* a rank comes so much later than the first to a collective */
	PT_WHEN_NR
};
enum pt_when_unit { PT_WHEN_NS, PT_WHEN_MEDIANS, PT_WHEN_SHARE };

struct pt_when { /* more than `limit` */
	uint8_t of;   /* enum pt_when_of */
	uint8_t unit; /* enum pt_when_unit */
	double limit; /* ns; times the usual step; share of the time */
};
#define PT_WHEN_MAX 8

/* What is accepted, for people. */
#define PT_WHEN_FORMS                                                          \
	"'step > 3x median', 'step > 500ms', 'wait > 2s', 'wait > 20%', "      \
	"'worker silent > 10s' or 'rank late > 500ms'"
/* One of PT_WHEN_FORMS. 0 or -EINVAL. */
int pt_parse_when(const char *text, struct pt_when *out);

#endif
