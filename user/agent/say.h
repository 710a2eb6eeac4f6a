/* SPDX-License-Identifier: BSD-2-Clause */
/* What the agent says on standard error: one line each. Under systemd with the
 * level that its journal reads, like "<4>". */
#ifndef PT_AGENT_SAY_H
#define PT_AGENT_SAY_H

enum pt_say_level { PT_SAY_ERROR = 3, PT_SAY_WARNING = 4, PT_SAY_INFO = 6 };

void pt_say(enum pt_say_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Tells a service manager ("READY=1", "WATCHDOG=1", "STATUS=..."), where one
 * listens; see sd_notify(3), whose protocol is one datagram to NOTIFY_SOCKET.
 * Never waits.
 */
void pt_notify(const char *state);
/* Seconds between two signs of life that it wants; 0: none. */
double pt_notify_watchdog(void);

#endif
