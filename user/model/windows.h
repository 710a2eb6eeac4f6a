/* SPDX-License-Identifier: BSD-2-Clause */
/* The active parts of a scheduled capture. */
#ifndef PT_WINDOWS_H
#define PT_WINDOWS_H

#include "model/timeline.h"

/* 0; -EINVAL: an end without its begin, or one before it; -ENOMEM. */
int pt_feed_window(struct pt_model *m, const struct pt_rec_window *r);

#endif
