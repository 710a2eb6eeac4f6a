/* SPDX-License-Identifier: BSD-2-Clause */
/* Those of the kernel's types that programs are fitted to, for libbpf to read. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "capture/ktypes.h"

struct writer {
	const struct pt_ktypes *k;
	uint32_t *id; /* here, by the kernel's; 0: not taken */
	PT_VEC(uint32_t) taken; /* the kernel's, in the order of those here */
	bool no_memory;
	FILE *types, *names; /* both in memory */
};

static bool is_data(const struct btf_type *t)
{
	switch (btf_kind(t)) {
	case BTF_KIND_FUNC:
	case BTF_KIND_FUNC_PROTO:
	case BTF_KIND_VAR:
	case BTF_KIND_DATASEC:
	case BTF_KIND_DECL_TAG:
		return false;
	}
	return true;
}

static void take(void *writer, uint32_t id)
{
	const struct btf_type *t;
	struct writer *w = writer;

	t = pt_ktypes_at(w->k, id);
	if (!t || !is_data(t) || w->id[id] || w->no_memory)
		return;
	w->no_memory = pt_vec_push(&w->taken, id);
	if (!w->no_memory)
		w->id[id] = (uint32_t)w->taken.n;
}

/* A program's name for a type ends where it puts "___". */
static size_t essential(const char *name)
{
	const char *more = strstr(name + 1, "___");

	return more ? (size_t)(more - name) : strlen(name);
}

static uint32_t here(const struct writer *w, uint32_t id)
{
	return id <= pt_ktypes_count(w->k) ? w->id[id] : 0;
}

/* Another type under a name or with a property: nothing lies behind its header. */
static bool is_alias(const struct btf_type *t)
{
	return btf_is_typedef(t) || btf_is_mod(t) || btf_is_type_tag(t);
}

/* What lies in it; what it points to does not. */
static void take_parts(struct writer *w, const struct btf_type *t)
{
	int i;

	if (is_alias(t))
		take(w, t->type);
	switch (btf_kind(t)) {
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		for (i = 0; i < btf_vlen(t); i++)
			take(w, btf_members(t)[i].type);
		break;
	case BTF_KIND_ARRAY:
		take(w, btf_array(t)->type);
		take(w, btf_array(t)->index_type);
		break;
	}
}

static uint32_t put_name(struct writer *w, uint32_t offset)
{
	long at = ftell(w->names);

	if (!offset)
		return 0;
	fputs(pt_ktypes_name(w->k, offset), w->names);
	fputc(0, w->names);
	return (uint32_t)at;
}

static void put_members(struct writer *w, const struct btf_type *t)
{
	struct btf_member m;
	int i;

	for (i = 0; i < btf_vlen(t); i++) {
		m = btf_members(t)[i];
		m.name_off = put_name(w, m.name_off);
		m.type = here(w, m.type);
		fwrite(&m, sizeof(m), 1, w->types);
	}
}

static void put_array(struct writer *w, const struct btf_type *t)
{
	struct btf_array a = *btf_array(t);

	a.type = here(w, a.type);
	a.index_type = here(w, a.index_type);
	fwrite(&a, sizeof(a), 1, w->types);
}

static void put_enum(struct writer *w, const struct btf_type *t)
{
	struct btf_enum64 e64;
	struct btf_enum e;
	int i;

	for (i = 0; i < btf_vlen(t); i++) {
		if (btf_kind(t) == BTF_KIND_ENUM) {
			e = btf_enum(t)[i];
			e.name_off = put_name(w, e.name_off);
			fwrite(&e, sizeof(e), 1, w->types);
		} else {
			e64 = btf_enum64(t)[i];
			e64.name_off = put_name(w, e64.name_off);
			fwrite(&e64, sizeof(e64), 1, w->types);
		}
	}
}

static void put(struct writer *w, const struct btf_type *t)
{
	struct btf_type head = *t;

	head.name_off = put_name(w, t->name_off);
	if (btf_is_ptr(t))
		head.type = 0; /* void */
	else if (is_alias(t))
		head.type = here(w, t->type);
	fwrite(&head, sizeof(head), 1, w->types);
	switch (btf_kind(t)) {
	case BTF_KIND_INT:
		fwrite(t + 1, sizeof(uint32_t), 1, w->types);
		break;
	case BTF_KIND_ARRAY:
		put_array(w, t);
		break;
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		put_members(w, t);
		break;
	case BTF_KIND_ENUM:
	case BTF_KIND_ENUM64:
		put_enum(w, t);
		break;
	}
}

static int write_all(int fd, const void *data, size_t size)
{
	const char *p = data;
	ssize_t n;

	for (; size; p += n, size -= (size_t)n) {
		n = write(fd, p, size);
		if (n < 0 && errno != EINTR)
			return -errno;
		n = n < 0 ? 0 : n;
	}
	return 0;
}

static int write_parts(int fd, const char *types, size_t types_size, const char *names,
		       size_t names_size)
{
	struct btf_header h = { .magic = BTF_MAGIC, .version = BTF_VERSION,
				.hdr_len = sizeof(h), .type_len = (uint32_t)types_size,
				.str_off = (uint32_t)types_size,
				.str_len = (uint32_t)names_size };
	int r = write_all(fd, &h, sizeof(h));

	r = r ?: write_all(fd, types, types_size);
	return r ?: write_all(fd, names, names_size);
}

int pt_ktypes_write(const struct pt_ktypes *k, const struct btf *local, int fd)
{
	char *types = NULL, *names = NULL;
	size_t types_size, names_size, i;
	struct writer w = { .k = k };
	uint32_t id;
	int r;

	w.id = calloc((size_t)pt_ktypes_count(k) + 1, sizeof(*w.id));
	w.types = open_memstream(&types, &types_size);
	w.names = open_memstream(&names, &names_size);
	r = w.id && w.types && w.names ? 0 : -ENOMEM;
	for (id = 1; !r && id < btf__type_cnt(local); id++) {
		const struct btf_type *t = btf__type_by_id(local, id);
		const char *name = btf__name_by_offset(local, t->name_off);

		if (*name && is_data(t))
			pt_ktypes_each(k, name, essential(name), take, &w);
	}
	for (i = 0; i < w.taken.n; i++) /* which grows meanwhile */
		take_parts(&w, pt_ktypes_at(k, w.taken.v[i]));
	if (!r)
		fputc(0, w.names);
	for (i = 0; !w.no_memory && i < w.taken.n; i++)
		put(&w, pt_ktypes_at(k, w.taken.v[i]));
	if ((w.types && fclose(w.types)) | (w.names && fclose(w.names)) | w.no_memory)
		r = -ENOMEM;
	r = r ?: write_parts(fd, types, types_size, names, names_size);
	pt_vec_free(&w.taken);
	free(w.id);
	free(types);
	free(names);
	return r;
}
