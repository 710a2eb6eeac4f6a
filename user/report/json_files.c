// SPDX-License-Identifier: BSD-2-Clause
/* How files were read, and the memory that there is for them. */
#include "report/json_int.h"

json_t *pt_j_bounds(int64_t lo, int64_t hi)
{
	return lo == PT_NULL && hi == PT_NULL ?
		       json_null() :
		       json_pack("[o,o]", pt_j_int(lo), pt_j_int(hi));
}

json_t *pt_j_pattern(struct pt_jb *b, const struct pt_r_pattern *p)
{
	json_t *o;

	if (!p->kind)
		return json_null();
	o = json_object();
	pt_j_text(b, o, "kind", p->kind);
	pt_j_put(b, o, "sequential", pt_j_num(p->sequential, PT_J_STD));
	pt_j_put(b, o, "read_bytes", pt_j_num(p->read_bytes, PT_J_WHOLE));
	pt_j_put(b, o, "run_bytes", pt_j_num(p->run_bytes, PT_J_WHOLE));
	pt_j_put(b, o, "stride", pt_j_int(p->stride));
	pt_j_put(b, o, "readers", pt_j_int(p->readers));
	return o;
}

static json_t *working_set(struct pt_jb *b, const struct pt_r_working_set *s)
{
	json_t *o;

	if (s->read_bytes == PT_NULL)
		return json_null();
	o = json_object();
	pt_j_put(b, o, "read_bytes", pt_j_int(s->read_bytes));
	pt_j_put(b, o, "files", pt_j_int(s->files));
	pt_j_put(b, o, "seen", pt_j_bounds(s->seen[0], s->seen[1]));
	pt_j_put(b, o, "whole", pt_j_bounds(s->whole[0], s->whole[1]));
	pt_j_put(b, o, "fits", s->fits < 0 ? json_null() : json_boolean(s->fits));
	pt_j_put(b, o, "certainty",
		 pt_j_name(pt_certainty_name(s->certainty)));
	return o;
}

void pt_j_memory(struct pt_jb *b, json_t *o, const struct pt_r_memory *m)
{
	pt_j_put(b, o, "total", pt_j_int(m->total));
	pt_j_put(b, o, "available", pt_j_int(m->available));
	pt_j_put(b, o, "cache", pt_j_int(m->cache));
	pt_j_put(b, o, "limit", pt_j_int(m->limit));
	pt_j_put(b, o, "used", pt_j_int(m->used));
	pt_j_put(b, o, "room", pt_j_int(m->room));
	pt_j_put(b, o, "refaulted", pt_j_int(m->refaulted));
	pt_j_put(b, o, "refaulted_in", pt_j_name(m->refaulted_in));
	pt_j_put(b, o, "refault_s", pt_j_num(m->refault_s, PT_J_STD));
	pt_j_put(b, o, "working_set", working_set(b, &m->set));
}
