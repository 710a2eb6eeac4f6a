/* SPDX-License-Identifier: BSD-2-Clause */
/* Samples of the devices, once a second, and which of them the target uses. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "capture/procfs.h"
#include "capture/session.h"
#include "gpu/nvml.h"

#define EVERY_NS 500000000u /* two for each point of the series */

struct pt_devwatch {
	struct pt_nvml *nvml;
	uint64_t asked_ns;
};

static void ask(struct pt_devwatch *w)
{
	uint64_t now = pt_now_ns();

	if (w->asked_ns && now - w->asked_ns < EVERY_NS)
		return;
	w->asked_ns = now;
	pt_nvml_ask(w->nvml);
}

void pt_devwatch_open(struct pt_capture *c)
{
	struct pt_devwatch *w = calloc(1, sizeof(*w));
	int err = w ? pt_nvml_start(&w->nvml) : -ENOMEM;

	if (err) {
		pt_hook_set(c, "nvml", "none", "%s",
			    pt_nvml_state_text(PT_NVML_DIED));
		free(w);
		return;
	}
	pt_hook_set(c, "nvml", "none",
		    "the driver has not answered NVML yet");
	c->devices = w;
	ask(w);
}

/* Where the device is in CUDA_VISIBLE_DEVICES; its items are numbers, or the
 * beginnings of uuids. Those behind an invalid one count no more. */
static uint32_t in_list(const struct pt_rec_device *d, bool numbered,
			const char *list)
{
	uint32_t at = 0;
	size_t n;

	for (;; list += n + 1, at++) {
		unsigned long v;
		char *end;

		list += strspn(list, " ");
		n = strcspn(list, ",");
		if (n > 4 && !strncmp(list, "GPU-", 4)) {
			if (!strncmp(list, d->uuid, n))
				return at;
		} else if (numbered && *list >= '0' && *list <= '9') {
			v = strtoul(list, &end, 10);
			if (end != list + n)
				return PT_DEVICE_UNKNOWN;
			if (v == d->index)
				return at;
		} else {
			return PT_DEVICE_UNKNOWN;
		}
		if (!list[n])
			return PT_DEVICE_UNKNOWN;
	}
}

uint32_t pt_device_ordinal(const struct pt_rec_device *d, bool one,
			   const char *visible, const char *order)
{
	/* The runtime counts the fastest first unless it is told to go by the
	 * bus, as NVML does; equal ones it also takes by the bus. */
	bool numbered = one || (order && !strcmp(order, "PCI_BUS_ID"));

	if (visible)
		return in_list(d, numbered, visible);
	return numbered ? d->index : PT_DEVICE_UNKNOWN;
}

static void settle(struct pt_capture *c, struct pt_nvml_device *d, bool one)
{
	char visible[1024], order[64];
	struct pt_rec_device *r = &d->rec;
	int none, has, ordered;
	struct pt_env e;
	uint32_t i;

	r->traced = 0;
	r->pid = 0;
	r->ordinal = PT_DEVICE_UNKNOWN;
	for (i = 0; i < d->n_pids; i++) {
		if (d->pid[i] > 1u << 22 || !pt_is_target(c, (pid_t)d->pid[i]))
			continue;
		if (!r->traced++)
			r->pid = d->pid[i];
	}
	if (!r->pid)
		return;
	none = pt_env_read((pid_t)r->pid, &e);
	if (!none) {
		has = pt_env_get(&e, "CUDA_VISIBLE_DEVICES", visible, sizeof(visible));
		ordered = pt_env_get(&e, "CUDA_DEVICE_ORDER", order, sizeof(order));
		r->ordinal = pt_device_ordinal(r, one, has ? NULL : visible,
					       ordered ? NULL : order);
	}
	pt_env_free(&e);
}

void pt_devwatch_drain(struct pt_capture *c)
{
	struct pt_nvml_answer *a;
	bool one = true;
	uint32_t i;

	if (!c->devices)
		return;
	ask(c->devices);
	a = malloc(sizeof(*a));
	if (!a || !pt_nvml_poll(c->devices->nvml, a))
		goto out;
	if (a->state != PT_NVML_OK) {
		pt_hook_set(c, "nvml", "none", "%s",
			    pt_nvml_state_text(a->state));
		pt_devwatch_free(c->devices);
		c->devices = NULL;
		goto out;
	}
	pt_hook_set(c, "nvml", "nvml", "%s", "");
	for (i = 1; i < a->n; i++)
		one &= !strcmp(a->dev[i].rec.name, a->dev[0].rec.name);
	for (i = 0; i < a->n; i++) {
		settle(c, &a->dev[i], one);
		pt_queue_record(c, &a->dev[i].rec, sizeof(a->dev[i].rec));
	}
out:
	free(a);
}

void pt_devwatch_free(struct pt_devwatch *w)
{
	if (!w)
		return;
	pt_nvml_free(w->nvml);
	free(w);
}
