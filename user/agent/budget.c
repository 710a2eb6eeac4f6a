// SPDX-License-Identifier: BSD-2-Clause
/* What the agent may cost: it takes its own measure, and gives way. */
#include "agent/agent.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "capture/procfs.h"

#define WINDOW_MIN_S 10.0
#define SAMPLE_MIN_S 1.0
#define LEFT_OUT 10 /* samples of a job for which there is no memory */

double pt_agent_cpu(const struct pt_agent *a)
{
	struct rusage self = { 0 }, children = { 0 };

	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &children); /* that have ended */
	return pt_cpu_s(&self) + pt_cpu_s(&children) - a->watched_cpu;
}

double pt_agent_resident(void)
{
	char text[128], *end;
	double pages;

	if (pt_file_read("/proc/self/statm", text, sizeof(text)) <= 0)
		return 0;
	strtod(text, &end); /* the size, then what is resident */
	pages = strtod(end, NULL);
	return pages * (double)sysconf(_SC_PAGESIZE);
}

/* Where nodes sample together a slower one keeps to every second, fourth ... of
 * the common moments. */
double pt_agent_interval(const struct pt_agent *a)
{
	double stretch = a->budget.stretch;

	if (a->c.aligned)
		stretch = exp2(ceil(log2(stretch)));
	return a->c.interval_s * stretch;
}

void pt_agent_budget_begin(struct pt_agent *a)
{
	a->window = pt_now();
	a->window_cpu = pt_agent_cpu(a);
	a->window_resident = 0;
}

void pt_agent_budget_tick(struct pt_agent *a, double now)
{
	double interval = pt_agent_interval(a), cpu = pt_agent_cpu(a);
	double wall = now - a->window, stretch = a->budget.stretch;
	double used = (cpu - a->window_cpu) / wall;

	/* whole samples: half of one would be told as a lower rate */
	if (wall < fmax(interval, WINDOW_MIN_S) ||
	    (pt_agent_running(a) && wall < 3 * fmax(interval, WINDOW_MIN_S)))
		return;
	a->sample_resident = a->window_resident;
	pt_agent_budget_begin(a);
	if (!pt_budget_spent(&a->budget, used * wall, wall))
		return;
	if (a->budget.stretch > stretch)
		pt_say(PT_SAY_WARNING, "sampling took %.2g %% of a core, over the "
		       "budget of %.2g %%: each job is sampled every %.0f s from "
		       "now on, instead of %.0f s", 100 * used,
		       100 * a->budget.cpu_max, pt_agent_interval(a),
		       a->c.interval_s);
	else if (a->budget.stretch == 1)
		pt_say(PT_SAY_INFO, "sampling is inside its budget again: each job "
		       "is sampled every %.0f s", a->c.interval_s);
	if (pt_agent_interval(a) != interval)
		pt_agent_reschedule(a);
	a->changed = true;
}

void pt_agent_budget_memory(struct pt_agent *a, struct pt_ajob *j,
			    double resident)
{
	double all = pt_agent_resident() + resident, max = (double)a->c.memory;

	a->window_resident = fmax(a->window_resident, resident);
	a->sample_resident = fmax(a->sample_resident, resident);
	if (all < max / 3) {
		j->sample_s = fmin(a->c.sample_s, 2 * j->sample_s);
		return;
	}
	if (all < 0.9 * max)
		return;
	if (j->sample_s > SAMPLE_MIN_S) {
		j->sample_s = fmax(SAMPLE_MIN_S, j->sample_s / 2);
		pt_say(PT_SAY_WARNING, "a sample of job %s (process %d) took "
		       "%.0f MiB, near the budget of %.0f: the next ones take "
		       "%.1f s", j->id, j->root, all / 1048576, max / 1048576,
		       j->sample_s);
		return;
	}
	j->left_out = LEFT_OUT;
	pt_say(PT_SAY_WARNING, "a sample of job %s (process %d) took %.0f MiB, near "
	       "the budget of %.0f: %d samples of it are left out", j->id, j->root,
	       all / 1048576, max / 1048576, LEFT_OUT);
}
