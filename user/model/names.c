/* SPDX-License-Identifier: BSD-2-Clause */
#include "model/names.h"

#include <errno.h>
#include <string.h>

#include "model/budget.h"
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
	n = pt_held_new(&m->held.names, sizeof(*n));
	if (!n)
		return NULL;
	n->key = (struct pt_name_key){ key, tgid, space };
	HASH_ADD(hh, m->names, key, sizeof(n->key), n);
	if (PT_HASHED(n))
		return n;
	pt_held_drop(&m->held.names, n, sizeof(*n));
	return NULL;
}

static void unname(struct pt_model *m, struct pt_name *n)
{
	pt_held_drop(&m->held.names, (char *)n->name,
		     n->name ? strlen(n->name) + 1 : 0);
	n->name = NULL;
}

static void drop(struct pt_model *m, struct pt_name *n)
{
	unname(m, n);
	HASH_DEL(m->names, n);
	pt_held_drop(&m->held.names, n, sizeof(*n));
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
	s = pt_held_new(&m->held.names, len + 1);
	if (!s)
		return -ENOMEM;
	unname(m, n);
	n->name = memcpy(s, r->name, len);
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
	unname(m, n);
	n->same_as = of;
	return 0;
}

/* ---- memory ------------------------------------------------------------------- */

static void use(const struct pt_model *m, const struct pt_proc *p, uint32_t space,
		uint64_t key)
{
	struct pt_name *n;
	int i;

	for (i = 0; i < MAX_HOPS; i++) {
		n = find(m, p->tgid, space, key);
		if (!n)
			break;
		n->used = true;
		key = n->same_as;
	}
}

static void use_all(const struct pt_model *m)
{
	size_t i, k;

	for (i = 0; i < m->all_procs.n; i++) {
		const struct pt_proc *p = m->all_procs.v[i];

		for (k = 0; k < p->acts.n; k++)
			use(m, p, PT_NAME_ACT, p->acts.v[k].name);
		for (k = 0; k < p->gpu.n; k++)
			if (p->gpu.v[k].cls == PT_API_LAUNCH)
				use(m, p, PT_NAME_FUNCTION, p->gpu.v[k].v[0]);
	}
}

/* Those of processes that are being folded go, too. */
void pt_forget_kernels(struct pt_model *m)
{
	bool many = HASH_COUNT(m->names) > 2 * PT_NAMES_KEPT;
	struct pt_name *n, *next;

	if (many)
		use_all(m);
	HASH_ITER(hh, m->names, n, next) {
		const struct pt_proc *p = pt_model_proc(m, n->key.tgid);
		bool excess = many && !n->used &&
			      HASH_COUNT(m->names) > PT_NAMES_KEPT;

		n->used = false;
		m->gone.names += excess;
		if (excess || (p && p->folded))
			drop(m, n);
	}
}

void pt_names_free(struct pt_model *m)
{
	while (m->names)
		drop(m, m->names);
}
