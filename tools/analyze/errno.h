/* SPDX-License-Identifier: BSD-2-Clause */
/* errno as the analyzers of tools/analyze/run see it: one of two numbers, whenever it is
 * read. They know nothing of it, and would take "return -errno" for a 0 that says that all
 * went well. Not where a file sets it to 0 to see whether it changes (PT_ERRNO_AS_IT_IS). */
#include_next <errno.h>

#ifndef PT_ERRNO_AS_IT_IS
int pt_either(void);
#undef errno
#define errno                                                                  \
	(*({                                                                   \
		int *e_ = __errno_location();                                  \
                                                                               \
		*e_ = pt_either() ? EIO : ENOENT;                              \
		e_;                                                            \
	}))
#endif
