/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of kernels: as in the symbol table, or as the program asked for them.
 * They come from the target: whoever prints one escapes it, and demangles it
 * there (user/base/demangle.h). */
#ifndef PT_MODEL_NAMES_H
#define PT_MODEL_NAMES_H

#include "model/timeline.h"

/*
 * Name of the kernel that a launch of `p` passed as its function (v[0] of a
 * PT_API_LAUNCH call). NULL: not known. The string is the model's.
 */
const char *pt_kernel_name(const struct pt_model *m, const struct pt_proc *p,
			   uint64_t function);

/* The same for the `name` of an activity record of `p`. */
const char *pt_act_name(const struct pt_model *m, const struct pt_proc *p,
			uint64_t key);

/* `function` of `p` is the same kernel as `of`, whose name may come later.
 * 0 or -ENOMEM. */
int pt_name_alias(struct pt_model *m, const struct pt_proc *p,
		  uint64_t function, uint64_t of);

/* Forget the oldest that nothing held refers to, where there are very many. */
void pt_forget_kernels(struct pt_model *m);
void pt_names_free(struct pt_model *m);

#endif
