/* SPDX-License-Identifier: BSD-2-Clause */
/* The doors to page faults on mapped files: the first of the ladder that opens,
 * and beside it the pages that are added to the page cache. */
#include <bpf/libbpf.h>

#include "capture/session.h"

static const char *const doors[] = {
	[PT_FAULT_DOOR_NONE] = "none",
	[PT_FAULT_DOOR_TRACEPOINT] = "tp_btf",
	[PT_FAULT_DOOR_FENTRY] = "fentry",
	[PT_FAULT_DOOR_KPROBE] = "kprobe",
	[PT_FAULT_DOOR_ADDS] = "pages added",
};

const char *pt_fault_door_name(unsigned door)
{
	return door < sizeof(doors) / sizeof(doors[0]) ? doors[door] : "unknown";
}

/* Whoever faults on a file pays for them, traced or not: not in light mode. */
unsigned pt_faults_ladder(const struct pt_features *f, enum pt_mode mode)
{
	if (mode == PT_MODE_LIGHT || !f->page_added)
		return PT_FAULT_DOOR_NONE;
	return f->filemap_fault ? PT_FAULT_DOOR_TRACEPOINT :
	       f->fault_fentry	? PT_FAULT_DOOR_FENTRY :
	       f->kprobe	? PT_FAULT_DOOR_KPROBE :
				  PT_FAULT_DOOR_ADDS;
}

void pt_faults_choose(struct pt_capture *c, const struct pt_capture_opts *o)
{
	unsigned door = pt_faults_ladder(&c->feat, o->mode);
	struct pipetrace_bpf *s = c->skel;

	c->fault_door = (uint16_t)door;
	s->rodata->pt_cfg.fault_door = door;
	bpf_program__set_autoload(s->progs.pt_fault,
				  door == PT_FAULT_DOOR_TRACEPOINT);
	bpf_program__set_autoload(s->progs.pt_fault_fentry,
				  door == PT_FAULT_DOOR_FENTRY);
	bpf_program__set_autoload(s->progs.pt_fault_kprobe,
				  door == PT_FAULT_DOOR_KPROBE);
	bpf_program__set_autoload(s->progs.pt_page_added,
				  door != PT_FAULT_DOOR_NONE);
}

void pt_faults_attach(struct pt_capture *c)
{
	struct pipetrace_bpf *s = c->skel;
	bool ok = PT_ATTACH(s, pt_page_added);

	if (c->fault_door == PT_FAULT_DOOR_TRACEPOINT)
		ok = ok && PT_ATTACH(s, pt_fault);
	else if (c->fault_door == PT_FAULT_DOOR_FENTRY)
		ok = ok && PT_ATTACH(s, pt_fault_fentry);
	else if (c->fault_door == PT_FAULT_DOOR_KPROBE)
		ok = ok && PT_ATTACH(s, pt_fault_kprobe);
	if (!ok)
		goto none;
	pt_hook_set(c, "faults", pt_fault_door_name(c->fault_door), "%s",
		    c->fault_door == PT_FAULT_DOOR_ADDS ?
		    "faults inside a system call, and those that wait for a page "
		    "that another thread is reading, have no file" : "");
	return;
none:
	bpf_link__destroy(s->links.pt_page_added);
	s->links.pt_page_added = NULL;
	c->fault_door = PT_FAULT_DOOR_NONE;
	pt_hook_set(c, "faults", "none",
		    "page faults are not counted%s; time blocked in one is seen "
		    "as a wait outside a system call",
		    c->mode == PT_MODE_LIGHT ? " in light mode" : "");
}
