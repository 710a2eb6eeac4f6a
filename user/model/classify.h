/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_CLASSIFY_H
#define PT_CLASSIFY_H

#include "model/timeline.h"

/* The kind of wait that an off-CPU record shows. */
enum pt_wait pt_classify(const struct pt_rec_off *r);

/*
 * What ended it. `*valid`: the recorded waker did. An interrupt's wake-up names
 * whoever ran there, who is nobody's cause: with two CPU-bound processes beside a
 * disk reader, 94 % of its wake-ups named one of them (measured). So where the
 * kernel told what the wake-up was made in (PT_WAKER_KNOWN), that decides; of a
 * network's softirq, and in records of older versions, the waker's call and what
 * it works on have to fit as well.
 */
enum pt_wake pt_wake_of(const struct pt_rec_off *r, bool *valid);

#endif
