// SPDX-License-Identifier: BSD-2-Clause
/* The one sentence that explains an error, and names of modes. */
#include <stdarg.h>
#include <stdio.h>

#include "capture/capture.h"

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

const char *pt_mode_name(enum pt_mode m)
{
	switch (m) {
	case PT_MODE_LIGHT:
		return "light";
	case PT_MODE_STANDARD:
		return "standard";
	case PT_MODE_FULL:
		return "full";
	}
	return "unknown";
}
