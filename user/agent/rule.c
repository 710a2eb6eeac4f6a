// SPDX-License-Identifier: BSD-2-Clause
#include "agent/rule.h"

#include <string.h>

/* Goes back to the last star only: what was matched before it stays right. */
static bool glob(const char *pattern, const char *s, const char *end)
{
	const char *star = NULL, *from = s;

	while (s < end) {
		if (*pattern == '*') {
			star = pattern++;
			from = s;
		} else if (*pattern && (*pattern == '?' || *pattern == *s)) {
			pattern++;
			s++;
		} else if (star) {
			pattern = star + 1;
			s = ++from;
		} else {
			return false;
		}
	}
	return !pattern[strspn(pattern, "*")];
}

bool pt_rule_glob(const char *pattern, const char *s)
{
	return glob(pattern, s, s + strlen(s));
}

/* Lines are "ID:CONTROLLERS:PATH". */
static bool in_cgroup(const char *pattern, const char *text)
{
	const char *end, *path;

	for (; *text; text = *end ? end + 1 : end) {
		end = text + strcspn(text, "\n");
		path = memchr(text, ':', (size_t)(end - text));
		if (path)
			path = memchr(path + 1, ':', (size_t)(end - path - 1));
		if (path && glob(pattern, path + 1, end))
			return true;
	}
	return false;
}

bool pt_rule_match(const struct pt_job_rule *r, const struct pt_rule_facts *f)
{
	return (!*r->comm || pt_rule_glob(r->comm, f->comm)) &&
	       (!*r->user || pt_rule_glob(r->user, f->user)) &&
	       (!*r->cmdline || pt_rule_glob(r->cmdline, f->cmdline)) &&
	       (!*r->cgroup || in_cgroup(r->cgroup, f->cgroup));
}

enum pt_rule_verdict pt_rule_decide(const struct pt_config *c,
				    const struct pt_rule_facts *f)
{
	size_t i;

	for (i = 0; i < c->n_rules; i++)
		if (pt_rule_match(&c->rules[i], f))
			return c->rules[i].exclude ? PT_RULE_EXCLUDED :
						     PT_RULE_JOB;
	return PT_RULE_NONE;
}
