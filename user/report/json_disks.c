/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of the JSON document that describe storage. */
#include "report/json_int.h"

static void place(struct pt_jb *b, json_t *o, const char *fs, const char *cls,
		  const char *device)
{
	pt_j_text(b, o, "fs", fs);
	pt_j_put(b, o, "fs_class", pt_j_name(cls));
	pt_j_text(b, o, "device", device);
}

void pt_j_file_place(struct pt_jb *b, json_t *o, const struct pt_r_file *f)
{
	pt_j_put(b, o, "fetched_bytes", pt_j_int(f->fetched_bytes));
	place(b, o, f->fs, f->fs_class, f->device);
}

json_t *pt_j_writes(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_writes; i++) {
		const struct pt_r_write *w = &r->writes[i];
		json_t *o = json_object();

		pt_j_text(b, o, "path", w->path);
		pt_j_put(b, o, "dev", json_integer(w->dev));
		pt_j_put(b, o, "inode", pt_j_u64(w->inode));
		pt_j_put(b, o, "pid", pt_j_int(w->pid));
		pt_j_put(b, o, "calls", pt_j_int(w->calls));
		pt_j_put(b, o, "fsyncs", pt_j_int(w->fsyncs));
		pt_j_put(b, o, "bytes", pt_j_int(w->bytes));
		pt_j_put(b, o, "write_s", pt_j_num(w->write_s, PT_J_STD));
		pt_j_put(b, o, "fsync_s", pt_j_num(w->fsync_s, PT_J_STD));
		pt_j_put(b, o, "blocked_s", pt_j_num(w->blocked_s, PT_J_STD));
		place(b, o, w->fs, w->fs_class, w->device);
		pt_j_add(b, a, o);
	}
	return a;
}

static json_t *disk(struct pt_jb *b, const struct pt_r_disk *d)
{
	json_t *o = json_object(), *depth = json_object();
	json_t *all = json_object();

	pt_j_text(b, o, "name", d->name);
	pt_j_put(b, o, "dev", json_integer(d->dev));
	pt_j_put(b, o, "kind", pt_j_name(d->kind));
	pt_j_text(b, o, "model", d->model);
	pt_j_put(b, o, "reads", pt_j_int(d->reads));
	pt_j_put(b, o, "read_bytes", pt_j_int(d->read_bytes));
	pt_j_put(b, o, "writes", pt_j_int(d->writes));
	pt_j_put(b, o, "write_bytes", pt_j_int(d->write_bytes));
	pt_j_put(b, o, "failed", pt_j_int(d->failed));
	pt_j_put(b, o, "latency_ms", pt_j_dist(&d->latency_ms));
	pt_j_put(b, o, "read_latency_ms", pt_j_dist(&d->read_latency_ms));
	pt_j_put(b, o, "write_latency_ms", pt_j_dist(&d->write_latency_ms));
	pt_j_put(b, depth, "mean", pt_j_num(d->depth_mean, PT_J_STD));
	pt_j_put(b, depth, "max", pt_j_int(d->depth_max));
	pt_j_put(b, o, "queue_depth", depth);
	pt_j_put(b, o, "target_share", pt_j_num(d->target_share, PT_J_STD));
	pt_j_put(b, all, "reads", pt_j_int(d->all_reads));
	pt_j_put(b, all, "read_bytes", pt_j_int(d->all_read_bytes));
	pt_j_put(b, all, "writes", pt_j_int(d->all_writes));
	pt_j_put(b, all, "write_bytes", pt_j_int(d->all_write_bytes));
	pt_j_put(b, all, "latency_ms", pt_j_num(d->all_latency_ms, PT_J_FINE));
	pt_j_put(b, all, "queue_depth", pt_j_num(d->all_depth, PT_J_STD));
	pt_j_put(b, all, "busy_share", pt_j_num(d->busy_share, PT_J_STD));
	pt_j_put(b, o, "machine", all);
	return o;
}

json_t *pt_j_disks(struct pt_jb *b, const struct pt_report *r)
{
	json_t *a = json_array();

	for (size_t i = 0; i < r->n_disks; i++)
		pt_j_add(b, a, disk(b, &r->disks[i]));
	return a;
}
