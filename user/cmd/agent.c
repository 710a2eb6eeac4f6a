// SPDX-License-Identifier: BSD-2-Clause
/* The node's agent. */
#include <errno.h>

#include "agent/daemon.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

static const char doc[] =
	"Find the jobs of this node that use a GPU, and those that the "
	"configuration names, sample each from time to time within a budget, "
	"and serve what was found: /metrics for Prometheus, /jobs, and "
	"/evidence, the samples in which something was wrong (docs/agent.md).\v"
	"SIGHUP makes it read the configuration again; SIGTERM ends it.\n\n"
	"Exit status: 0 ended by a signal, 1 failed, 2 bad usage or "
	"configuration.";

int pt_cmd_agent(int argc, char **argv)
{
	struct pt_agent_options a = { 0 };
	struct pt_opts o;
	int ret;

	if (pt_opts_done(&o, PT_OPTS_AGENT, doc, argc, argv, &ret))
		return ret;
	if (!o.config)
		return pt_fail(PT_EXIT_USAGE, "the agent needs --config FILE (an example: "
			       "docs/agent.md)");
	a.config = o.config;
	a.listen = o.listen;
	ret = o.check ? pt_agent_check(&a) : pt_agent_run(&a);
	return !ret ? PT_EXIT_OK : ret == -EINVAL ? PT_EXIT_USAGE : PT_EXIT_FAILED;
}
