// SPDX-License-Identifier: BSD-2-Clause
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"

#define MAX_MESSAGE 1024

/* Standard error is the process's, so its state is too. */
static struct {
	enum pt_loudness loud;
	unsigned flags;
	bool live_shown;
} st;

void pt_log_init(enum pt_loudness loud, bool unicode)
{
	st.loud = loud;
	st.flags = unicode ? PT_TERM_UNICODE : 0;
}

/* One write per line, so that lines of several programs do not mix. */
static void emit(const char *prefix, const char *fmt, va_list ap,
		 size_t max_cols, const char *end)
{
	char raw[MAX_MESSAGE], safe[2 * MAX_MESSAGE], line[3 * MAX_MESSAGE];
	int len;

	vsnprintf(raw, sizeof(raw), fmt, ap);
	pt_str_term(safe, sizeof(safe), raw, st.flags, max_cols);
	len = snprintf(line, sizeof(line), "%s%s%s", prefix, safe, end);
	if (len > 0 && write(STDERR_FILENO, line, (size_t)len) < 0)
		return; /* nowhere left to say so */
}

static void message(enum pt_loudness need, const char *fmt, va_list ap)
{
	if (st.loud < need)
		return;
	pt_live_clear();
	emit("pipetrace: ", fmt, ap, 0, "\n");
}

void pt_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	message(PT_QUIET, fmt, ap);
	va_end(ap);
}

int pt_fail(int ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	message(PT_QUIET, fmt, ap);
	va_end(ap);
	return ret;
}

void pt_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	message(PT_NORMAL, fmt, ap);
	va_end(ap);
}

bool pt_live_possible(void)
{
	return st.loud > PT_QUIET && isatty(STDERR_FILENO);
}

void pt_live(const char *fmt, ...)
{
	struct winsize ws;
	size_t cols = 79;
	va_list ap;

	if (!pt_live_possible())
		return;
	if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) && ws.ws_col > 10)
		cols = ws.ws_col - 1u;
	if (cols > 200)
		cols = 200;
	va_start(ap, fmt);
	emit("\r\033[K", fmt, ap, cols, "");
	va_end(ap);
	st.live_shown = true;
}

void pt_live_clear(void)
{
	if (!st.live_shown)
		return;
	st.live_shown = false;
	if (write(STDERR_FILENO, "\r\033[K", 4) < 0)
		return;
}
