/* SPDX-License-Identifier: BSD-2-Clause */
/* Jobs named by rule: patterns on what a process is called and whose it is. */
#ifndef PT_AGENT_RULE_H
#define PT_AGENT_RULE_H

#include "agent/config.h"

/*
 * Does `s` match `pattern`, where * is any text and ? any byte? Takes time of
 * at most their lengths' product, whatever they hold: command lines are other
 * people's. Pure.
 */
bool pt_rule_glob(const char *pattern, const char *s);

struct pt_rule_facts { /* of one process */
	const char *comm, *cmdline, *user;
	const char *cgroup; /* text of /proc/PID/cgroup: any of its paths */
};
/* Pure. */
bool pt_rule_match(const struct pt_job_rule *r, const struct pt_rule_facts *f);

enum pt_rule_verdict { PT_RULE_NONE, PT_RULE_JOB, PT_RULE_EXCLUDED };
/* The first rule that matches decides. Pure. */
enum pt_rule_verdict pt_rule_decide(const struct pt_config *c,
				    const struct pt_rule_facts *f);

#endif
