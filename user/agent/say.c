// SPDX-License-Identifier: BSD-2-Clause
#include "agent/say.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/str.h"

void pt_say(enum pt_say_level level, const char *fmt, ...)
{
	char raw[1024], safe[2048], line[2200], mark[8] = "";
	va_list ap;
	int n;

	va_start(ap, fmt);
	vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	pt_str_term(safe, sizeof(safe), raw, PT_TERM_UNICODE, 0);
	if (getenv("JOURNAL_STREAM"))
		snprintf(mark, sizeof(mark), "<%d>", (int)level);
	/* one write per line: threads and children write here, too */
	n = snprintf(line, sizeof(line), "%spipetrace: %s\n", mark, safe);
	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nowhere left to say so */
}

void pt_notify(const char *state)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	size_t n = path ? strlen(path) : 0;
	int fd;

	if (n < 2 || n >= sizeof(a.sun_path) ||
	    (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(a.sun_path, path, n);
	if (path[0] == '@')
		a.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	/* a manager that does not listen is its own trouble */
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL,
		   (struct sockaddr *)&a,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		pt_say(PT_SAY_WARNING, "the service manager does not listen");
	close(fd);
}

double pt_notify_watchdog(void)
{
	const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	char *end;
	double x;

	if (!us || (pid && strtol(pid, NULL, 10) != getpid()))
		return 0;
	x = strtod(us, &end);
	return end != us && !*end && x >= 1e5 && x <= 86400e6 ? x / 1e6 : 0;
}
