/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent: one process that finds jobs, samples them in turn, and tells. */
#ifndef PT_AGENT_DAEMON_H
#define PT_AGENT_DAEMON_H

struct pt_agent_options {
	const char *config; /* path */
	const char *listen; /* instead of the configured one, or NULL */
};

/* Runs until it is told to end. 0; -EINVAL: the configuration is wrong; or another
 * -errno. Every error has been told. SIGHUP reads the configuration again, SIGTERM
 * and SIGINT end it. */
int pt_agent_run(const struct pt_agent_options *o);

/* Reads the configuration and says what is wrong with it. 0 or -EINVAL. */
int pt_agent_check(const struct pt_agent_options *o);

#endif
