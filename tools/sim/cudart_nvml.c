/* SPDX-License-Identifier: BSD-2-Clause */
/* What the devices of this process do, published for the NVML stand-in. */
#include "cudart_state.h"
#include "nvml_state.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_nvml_slot *slot;
static uint64_t begin, busy_then[SIM_DEVICES]; /* of the running period */

static int state_init(void *p)
{
	struct sim_nvml_state *s = p;

	if (!s->magic)
		s->magic = SIM_NVML_MAGIC;
	if (s->magic != SIM_NVML_MAGIC)
		return -EINVAL;
	/* the file is locked: nobody else takes a slot now */
	for (unsigned i = 0; i < SIM_NVML_SLOTS; i++) {
		int64_t pid = atomic_load(&s->slot[i].pid);

		if (pid > 0 && !(kill((pid_t)pid, 0) && errno == ESRCH))
			continue;
		slot = &s->slot[i];
		atomic_store(&slot->pid, 0);
		memset(slot->dev, 0, sizeof(slot->dev));
		slot->devices = sim_cfg.devices;
		slot->updated = sim_now();
		/* a writer that died may have left it odd */
		atomic_store(&slot->seq, 0);
		atomic_store(&slot->pid, getpid());
		return 0;
	}
	return -ENOSPC;
}

void sim_nvml_open(void)
{
	const char *path = getenv("PT_SIM_NVML");

	if (!path || !*path)
		return;
	begin = sim_now();
	if (!sim_map_file(path, sizeof(struct sim_nvml_state), state_init)) {
		fprintf(stderr, "simulated GPU: PT_SIM_NVML: %s\n",
			strerror(errno));
		slot = NULL;
	}
}

uint64_t sim_nvml_due(void)
{
	return slot ? begin + SIM_NVML_PERIOD_NS : NEVER;
}

void sim_nvml_publish(uint64_t now)
{
	size_t free_bytes, total;

	if (!slot || now < sim_nvml_due())
		return;
	sim_mem_info(&free_bytes, &total);
	atomic_fetch_add(&slot->seq, 1);
	atomic_thread_fence(memory_order_seq_cst);
	for (unsigned i = 0; i < sim_cfg.devices; i++) {
		struct sim_nvml_device *d = &slot->dev[i];

		d->busy_ns = dev.device_busy[i];
		d->period_busy_ns = d->busy_ns - busy_then[i];
		d->period_ns = now - begin;
		d->period_end = now;
		d->mem_total = total;
		/* the devices share the memory; it is told of the first */
		d->mem_used = i ? 0 : total - free_bytes;
		d->used = d->busy_ns || !i;
		busy_then[i] = d->busy_ns;
	}
	slot->updated = now;
	atomic_thread_fence(memory_order_seq_cst);
	atomic_fetch_add(&slot->seq, 1);
	begin = now;
}

void sim_nvml_close(void)
{
	if (slot)
		atomic_store(&slot->pid, 0);
	slot = NULL;
}
