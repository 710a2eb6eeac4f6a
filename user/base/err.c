// SPDX-License-Identifier: BSD-2-Clause
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>

int pt_err_set(struct pt_err *e, int err, const char *fmt, ...)
{
	va_list ap;

	if (e) {
		va_start(ap, fmt);
		vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
		va_end(ap);
	}
	return err;
}

int pt_err_written(FILE *f)
{
	if (!ferror(f))
		return 0;
	return errno ? -errno : -EIO;
}
