/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel's types and functions, as it tells them (BTF): read once, for all who ask. */
#ifndef PT_KTYPES_H
#define PT_KTYPES_H

#include <linux/bpf.h>
#include <stddef.h>
#include <stdint.h>

struct btf;
struct btf_type;
struct pt_ktypes;

/*
 * Shared by those who have it at the same time: each hands it back. NULL: the kernel
 * does not tell them, or no memory. Of one thread only.
 */
const struct pt_ktypes *pt_ktypes_get(void);
void pt_ktypes_put(const struct pt_ktypes *k);

/* As libbpf's functions of like names; `kind` is a BTF_KIND_*, 0: there is none. */
uint32_t pt_ktypes_find(const struct pt_ktypes *k, const char *name, unsigned kind);
const struct btf_type *pt_ktypes_at(const struct pt_ktypes *k, uint32_t id);
const char *pt_ktypes_name(const struct pt_ktypes *k, uint32_t offset);

uint32_t pt_ktypes_count(const struct pt_ktypes *k); /* the highest id */
/* Each type of this name, which is `len` long. */
void pt_ktypes_each(const struct pt_ktypes *k, const char *name, size_t len,
		    void (*fn)(void *ctx, uint32_t id), void *ctx);

/* What a tracing program of this kind on `name` is loaded with; 0: there is none. */
uint32_t pt_ktypes_attach_id(const struct pt_ktypes *k, const char *name,
			     enum bpf_attach_type at);

/*
 * Writes to `fd`, as BTF, of the kernel's types those that programs with the types
 * `local` can be fitted to: the ones of the same names, and what lies in them. What
 * they point to is left out, and ids are others: bpf_core_type_id_kernel() and
 * bpf_core_type_matches() would not do. 0 or -errno.
 */
int pt_ktypes_write(const struct pt_ktypes *k, const struct btf *local, int fd);

#endif
