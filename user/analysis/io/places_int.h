/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PT_ANALYSIS_PLACES_INT_H
#define PT_ANALYSIS_PLACES_INT_H

#include "analysis/io/places.h"

/* A read of a regular file in the window that returned data. */
static inline bool pt_read_counts(const struct pt_an *an,
				  const struct pt_read *r)
{
	return r->obj_kind == PT_OBJ_FILE && r->end >= an->t0 &&
	       r->end <= an->t1 && r->ret > 0;
}

/* distinct.c: fill in how many different bytes were read. 0 or -ENOMEM. */
int pt_find_distinct(const struct pt_an *an, struct pt_places *places);

#endif
