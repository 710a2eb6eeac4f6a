/* SPDX-License-Identifier: BSD-2-Clause */
/* base/err.h as the analyzers of tools/analyze/run see it: they read one file at a time,
 * and so are told here that pt_err_set() returns its second argument. */
#include_next "base/err.h"

#ifndef PT_ERR_ITSELF
#define pt_err_set(e, err, ...) ((pt_err_set)(e, err, __VA_ARGS__), (err))
#endif
