/* SPDX-License-Identifier: BSD-2-Clause */
/* The driver's hooks where only the runtime calls it: they would see each call
 * twice. Dropped once the process maps nothing new, and back when it does. */
#include <stdint.h>

#include "base/vec.h"
#include "capture/points.h"
#include "capture/session.h"
#include "capture/uprobes.h"

#define QUIET_NS 1000000000u /* no file mapped for so long: started up */

bool pt_uprobes_mapped(struct pt_capture *c, pid_t pid)
{
	struct pt_uprobes *u = c->uprobes;
	bool dropped = false;
	uint32_t i;

	for (i = 0; u && i < u->n_libs; i++) {
		if (u->lib[i].pid != pid || u->lib[i].gone)
			continue;
		u->lib[i].mapped_ns = pt_now_ns();
		dropped |= u->lib[i].dropped;
	}
	return dropped;
}

bool pt_uprobes_driver(const struct pt_capture *c, pid_t pid)
{
	const struct pt_uprobes *u = c->uprobes;
	uint32_t i;

	for (i = 0; u && i < u->n_libs; i++)
		if (u->lib[i].pid == pid && !u->lib[i].gone &&
		    u->lib[i].kind == PT_GPULIB_CUDA)
			return true;
	return false;
}

static bool has_outer(const struct pt_uprobes *u, const struct attached *in)
{
	uint32_t i;

	for (i = 0; i < u->n_libs; i++)
		if (u->lib[i].pid == in->pid && u->lib[i].start == in->start &&
		    u->lib[i].fd[1] >= 0 &&
		    pt_layer_of(u->lib[i].kind) == PT_LAYER_OUTER)
			return true;
	return false;
}

void pt_uprobes_drop(struct pt_capture *c)
{
	struct pt_uprobes *u = c->uprobes;
	uint64_t now = pt_now_ns();

	/* Without news of mappings it could not be undone in time. */
	if (!u || !u->layers || !c->maps)
		return;
	pt_each_of(struct attached, a, u->lib, u->n_libs) {
		if (a->gone || a->fd[1] < 0 || now < a->mapped_ns || now - a->mapped_ns < QUIET_NS ||
		    pt_layer_of(a->kind) != PT_LAYER_INNER || !has_outer(u, a))
			continue;
		/* Once, until something is mapped again. */
		a->mapped_ns = UINT64_MAX;
		if (pt_layers_direct(u->layers, a->pid))
			continue;
		a->dropped = true;
		pt_close_links(a->fd, 2);
		a->fd[0] = a->fd[1] = -1;
	}
}
