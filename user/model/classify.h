/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_CLASSIFY_H
#define PT_CLASSIFY_H

#include "model/timeline.h"

/* The kind of wait that an off-CPU record shows. */
enum pt_wait pt_classify(const struct pt_rec_off *r);

/*
 * True when the recorded waker can have ended this wait: it was in a system
 * call that wakes, on a matching object. Otherwise an interrupt hit
 * somebody's time slice, and that somebody is nobody's cause: with two
 * CPU-bound processes beside a disk reader, 94 % of its wake-ups named one
 * of them (measured).
 */
bool pt_waker_valid(const struct pt_rec_off *r);

#endif
