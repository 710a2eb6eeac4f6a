// SPDX-License-Identifier: BSD-2-Clause
/*
 * Where a CPU's preemption count lies: as far from its run queue as BTF's list of
 * the variables that each CPU has of its own says. The count is one of them up to
 * 6.1 and since 6.15, and a member of another, pcpu_hot, between.
 */
#include <bpf/btf.h>
#include <stdbool.h>
#include <string.h>

#include "base/arch.h"
#include "capture/ktypes.h"
#include "capture/session.h"

/* Offset in bytes of a member, of the structure's own or of unnamed ones in it. */
static bool member_offset(const struct pt_ktypes *k, uint32_t type, const char *name,
			  int depth, int64_t *out)
{
	const struct btf_type *t = pt_ktypes_at(k, type);
	int64_t inner;
	int i;

	if (!t || depth > 4 || !btf_is_composite(t))
		return false;
	for (i = 0; i < btf_vlen(t); i++) {
		const struct btf_member *m = &btf_members(t)[i];
		int64_t at = btf_member_bit_offset(t, (uint32_t)i) / 8;

		if (!strcmp(pt_ktypes_name(k, m->name_off), name)) {
			*out = at;
			return true;
		}
		if (!m->name_off &&
		    member_offset(k, m->type, name, depth + 1, &inner)) {
			*out = at + inner;
			return true;
		}
	}
	return false;
}

/* Place of a variable in the section of those that each CPU has. */
static bool var_offset(const struct pt_ktypes *k, const struct btf_type *section,
		       const char *name, uint32_t *type, int64_t *out)
{
	const struct btf_type *v;
	int i;

	for (i = 0; i < btf_vlen(section); i++) {
		const struct btf_var_secinfo *s = &btf_var_secinfos(section)[i];

		v = pt_ktypes_at(k, s->type);
		if (!v || strcmp(pt_ktypes_name(k, v->name_off), name))
			continue;
		*type = v->type;
		*out = s->offset;
		return true;
	}
	return false;
}

int64_t pt_count_offset(const struct pt_ktypes *k)
{
	const struct btf_type *section =
		pt_ktypes_at(k, pt_ktypes_find(k, ".data..percpu", BTF_KIND_DATASEC));
	int64_t rq, count, member;
	uint32_t type;

	if (PT_ARCH_COUNT_OF_TASK) /* bpf/arch.bpf.h; any place says that it is known */
		return 1;
	if (!section || !var_offset(k, section, "runqueues", &type, &rq))
		return 0;
	if (var_offset(k, section, "__preempt_count", &type, &count))
		return count - rq;
	if (var_offset(k, section, "pcpu_hot", &type, &count) &&
	    member_offset(k, type, "preempt_count", 0, &member))
		return count + member - rq;
	return 0;
}
