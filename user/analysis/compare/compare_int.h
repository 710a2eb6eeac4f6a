/* SPDX-License-Identifier: BSD-2-Clause */
/* What compare.c and compare_words.c hand to each other. */
#ifndef PT_COMPARE_INT_H
#define PT_COMPARE_INT_H

#include "report/diff.h"

/* Per second, in the measure of the comparison. */

/* Each 0 or -ENOMEM. */
/* Names of the inputs: labels, else what tells the files apart. */
int pt_d_name_inputs(struct pt_diff *d, struct pt_d_input *in);
/* The settings that differ, of both the job and the host. */
int pt_d_compare_settings(struct pt_diff *d, struct pt_d_pair *p);
/* What weakens the comparison. */
int pt_d_notes(struct pt_diff *d);

#endif
