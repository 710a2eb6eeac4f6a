// SPDX-License-Identifier: BSD-2-Clause
/* In a build without OTLP: a configuration that wants it is refused. */
#include "agent/otlp.h"

#include <errno.h>
#include <stdio.h>

#define WEAK __attribute__((weak))

WEAK int pt_otlp_start(const struct pt_otlp_options *o, struct pt_otlp **out,
		       char *why, size_t n)
{
	(void)o;
	(void)out;
	snprintf(why, n, "this build cannot push OTLP");
	return -ENOTSUP;
}

WEAK int pt_otlp_metrics(struct pt_otlp *o, const struct pt_prom_agent *a,
			 const struct pt_prom_job *jobs, size_t n,
			 uint64_t start_ns, uint64_t unix_ns)
{
	(void)o, (void)a, (void)jobs, (void)n, (void)start_ns, (void)unix_ns;
	return -ENOTSUP;
}

WEAK int pt_otlp_change(struct pt_otlp *o, const struct pt_otlp_change *c)
{
	(void)o, (void)c;
	return -ENOTSUP;
}

WEAK void pt_otlp_stop(struct pt_otlp *o, double seconds)
{
	(void)o, (void)seconds;
}
