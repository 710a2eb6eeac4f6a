/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/names.h"

#include <errno.h>
#include <string.h>

#include "model/internal.h"

#define MAX_HOPS 4 /* a symbol's kernel, its function, ... */

static struct pt_name *find(const struct pt_model *m, uint32_t tgid,
			    uint32_t space, uint64_t key)
{
	struct pt_name_key k = { key, tgid, space };
	struct pt_name *n;

	HASH_FIND(hh, m->names, &k, sizeof(k), n);
	return n;
}

static struct pt_name *make(struct pt_model *m, uint32_t tgid, uint32_t space,
			    uint64_t key)
{
	struct pt_name *n = find(m, tgid, space, key);

	if (n)
		return n;
	n = pt_arena_alloc(m->arena, sizeof(*n));
	if (!n)
		return NULL;
	n->key = (struct pt_name_key){ key, tgid, space };
	HASH_ADD(hh, m->names, key, sizeof(n->key), n);
	return PT_HASHED(n) ? n : NULL;
}

static const char *name_of(const struct pt_model *m, uint32_t tgid,
			   uint32_t space, uint64_t key)
{
	const struct pt_name *n = NULL;
	int i;

	for (i = 0; i < MAX_HOPS; i++) {
		n = find(m, tgid, space, key);
		if (!n || n->name)
			break;
		key = n->same_as;
	}
	return n ? n->name : NULL;
}

const char *pt_kernel_name(const struct pt_model *m, const struct pt_proc *p,
			   uint64_t function)
{
	return name_of(m, p->tgid, PT_NAME_FUNCTION, function);
}

const char *pt_act_name(const struct pt_model *m, const struct pt_proc *p,
			uint64_t key)
{
	return name_of(m, p->tgid, PT_NAME_ACT, key);
}

int pt_feed_name(struct pt_model *m, const struct pt_rec_name *r)
{
	size_t len = strnlen(r->name, sizeof(r->name));
	struct pt_proc *p;
	struct pt_name *n;
	char *s;

	if (!len || (r->space != PT_NAME_FUNCTION && r->space != PT_NAME_ACT))
		return -EINVAL;
	p = pt_proc_make(m, r->hdr.tgid);
	n = p ? make(m, p->tgid, r->space, r->key) : NULL;
	if (!n)
		return -ENOMEM;
	if (n->name && strlen(n->name) == len && !memcmp(n->name, r->name, len))
		return 0;
	s = pt_arena_strndup(m->arena, r->name, len);
	if (!s)
		return -ENOMEM;
	n->name = s;
	return 0;
}

int pt_name_alias(struct pt_model *m, const struct pt_proc *p,
		  uint64_t function, uint64_t of)
{
	struct pt_name *n;

	if (function == of)
		return 0;
	n = make(m, p->tgid, PT_NAME_FUNCTION, function);
	if (!n)
		return -ENOMEM;
	n->name = NULL;
	n->same_as = of;
	return 0;
}
