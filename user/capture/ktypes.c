/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libbpf reads the kernel's types (5.5 MB, 130,000 of them) anew for each question, and
 * looks through all of them for each name. Here they are mapped where the kernel lets
 * them be (Linux 6.16), read into memory elsewhere, and found by name.
 */
#include "capture/ktypes.h"

#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

#define PATH "/sys/kernel/btf/vmlinux"
#define BYTES_MAX (256u << 20)
#define SLOTS 16384 /* of 75,000 names: small, for each page of memory costs a fault */

struct pt_ktypes {
	unsigned users;
	unsigned char *data;
	size_t size;
	bool mapped;

	const unsigned char *types;
	const char *names;
	uint32_t types_size, names_size;
	uint32_t *at; /* by id, where in types; 0 is void */
	uint32_t n;
	uint32_t first[SLOTS]; /* ids by the name's hash; 0: none */
	uint32_t *next;	       /* by id, the one behind it there */
};

static struct pt_ktypes *shared;

static uint32_t slot(const char *name, size_t len)
{
	return pt_hash_of(name, len) % SLOTS;
}

/* ---- reading ------------------------------------------------------------------- */

/* What stands behind a type's first twelve bytes; SIZE_MAX: not known. */
static size_t behind(const struct btf_type *t)
{
	size_t n = btf_vlen(t);

	switch (btf_kind(t)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case BTF_KIND_DECL_TAG:
		return 4;
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
		return n * sizeof(struct btf_member);
	case BTF_KIND_ENUM:
		return n * sizeof(struct btf_enum);
	case BTF_KIND_ENUM64:
		return n * sizeof(struct btf_enum64);
	case BTF_KIND_FUNC_PROTO:
		return n * sizeof(struct btf_param);
	case BTF_KIND_DATASEC:
		return n * sizeof(struct btf_var_secinfo);
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case BTF_KIND_FLOAT:
	case BTF_KIND_TYPE_TAG:
		return 0;
	}
	return SIZE_MAX;
}

static int read_all(struct pt_ktypes *k, int fd)
{
	size_t at = 0;
	ssize_t n;

	k->data = malloc(k->size);
	if (!k->data)
		return -ENOMEM;
	while (at < k->size) {
		n = read(fd, k->data + at, k->size - at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		at += (size_t)n;
	}
	return 0;
}

static int take_file(struct pt_ktypes *k)
{
	int fd = open(PATH, O_RDONLY | O_CLOEXEC), r = 0;
	struct stat st;
	void *p;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		r = -errno;
		goto out;
	}
	if (st.st_size < (off_t)sizeof(struct btf_header) || st.st_size > BYTES_MAX) {
		r = -EINVAL;
		goto out;
	}
	k->size = (size_t)st.st_size;
	p = mmap(NULL, k->size, PROT_READ, MAP_PRIVATE, fd, 0);
	k->mapped = p != MAP_FAILED;
	if (k->mapped)
		k->data = p;
	else
		r = read_all(k, fd);
out:
	close(fd);
	return r;
}

static int take_header(struct pt_ktypes *k)
{
	const struct btf_header *h = (const void *)k->data;
	uint64_t room;

	if (h->magic != BTF_MAGIC || h->hdr_len < sizeof(*h) || h->hdr_len > k->size)
		return -EINVAL;
	room = k->size - h->hdr_len;
	if ((uint64_t)h->type_off + h->type_len > room || h->type_off % 4 ||
	    (uint64_t)h->str_off + h->str_len > room || !h->str_len || h->hdr_len % 4)
		return -EINVAL;
	k->types = k->data + h->hdr_len + h->type_off;
	k->types_size = h->type_len;
	k->names = (const char *)k->data + h->hdr_len + h->str_off;
	k->names_size = h->str_len;
	return k->names[k->names_size - 1] ? -EINVAL : 0;
}

static int walk(struct pt_ktypes *k)
{
	const size_t head = sizeof(struct btf_type);
	size_t pos, more;

	k->at = calloc(k->types_size / head + 1, sizeof(*k->at));
	if (!k->at)
		return -ENOMEM;
	for (pos = 0; pos < k->types_size; pos += head + more) {
		if (k->types_size - pos < head)
			return -EINVAL;
		more = behind((const void *)(k->types + pos));
		if (more > k->types_size - pos - head)
			return -EINVAL;
		k->at[++k->n] = (uint32_t)pos;
	}
	return 0;
}

static int index_names(struct pt_ktypes *k)
{
	uint32_t id, *first;

	k->next = calloc((size_t)k->n + 1, sizeof(*k->next));
	if (!k->next)
		return -ENOMEM;
	for (id = k->n; id; id--) { /* so that the lowest stands first */
		const char *name = pt_ktypes_name(k, pt_ktypes_at(k, id)->name_off);

		if (!*name)
			continue;
		first = &k->first[slot(name, strlen(name))];
		k->next[id] = *first;
		*first = id;
	}
	return 0;
}

static void release(struct pt_ktypes *k)
{
	if (k->mapped)
		munmap(k->data, k->size);
	else
		free(k->data);
	free(k->at);
	free(k->next);
	free(k);
}

const struct pt_ktypes *pt_ktypes_get(void)
{
	struct pt_ktypes *k = shared;
	int r;

	if (!k) {
		k = calloc(1, sizeof(*k));
		if (!k)
			return NULL;
		r = take_file(k);
		r = r ?: take_header(k);
		r = r ?: walk(k);
		r = r ?: index_names(k);
		if (r) {
			release(k);
			return NULL;
		}
		shared = k;
	}
	k->users++;
	return k;
}

void pt_ktypes_put(const struct pt_ktypes *k)
{
	if (!k || --shared->users)
		return;
	release(shared);
	shared = NULL;
}

/* ---- asking -------------------------------------------------------------------- */

const struct btf_type *pt_ktypes_at(const struct pt_ktypes *k, uint32_t id)
{
	return id && id <= k->n ? (const void *)(k->types + k->at[id]) : NULL;
}

const char *pt_ktypes_name(const struct pt_ktypes *k, uint32_t offset)
{
	return offset < k->names_size ? k->names + offset : "";
}

uint32_t pt_ktypes_find(const struct pt_ktypes *k, const char *name, unsigned kind)
{
	uint32_t id = k->first[slot(name, strlen(name))];

	for (; id; id = k->next[id]) {
		const struct btf_type *t = pt_ktypes_at(k, id);

		if (btf_kind(t) == kind && !strcmp(pt_ktypes_name(k, t->name_off), name))
			break;
	}
	return id;
}

uint32_t pt_ktypes_count(const struct pt_ktypes *k)
{
	return k->n;
}

void pt_ktypes_each(const struct pt_ktypes *k, const char *name, size_t len,
		    void (*fn)(void *ctx, uint32_t id), void *ctx)
{
	uint32_t id = k->first[slot(name, len)];

	for (; id; id = k->next[id]) {
		const char *its = pt_ktypes_name(k, pt_ktypes_at(k, id)->name_off);

		if (!strncmp(its, name, len) && !its[len])
			fn(ctx, id);
	}
}

uint32_t pt_ktypes_attach_id(const struct pt_ktypes *k, const char *name,
			     enum bpf_attach_type at)
{
	char full[128];
	int n;

	n = snprintf(full, sizeof(full), "%s%s",
		     at == BPF_TRACE_RAW_TP ? "btf_trace_" :
		     at == BPF_TRACE_ITER   ? "bpf_iter_" : "", name);
	if (n < 0 || (size_t)n >= sizeof(full))
		return 0;
	return pt_ktypes_find(k, full,
			      at == BPF_TRACE_RAW_TP ? BTF_KIND_TYPEDEF : BTF_KIND_FUNC);
}
