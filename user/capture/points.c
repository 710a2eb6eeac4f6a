/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/points.h"

#include "base/arch.h"
#include "capture/elf.h"
#include "gpu/api.h"

unsigned pt_layer_of(enum pt_gpulib_kind kind)
{
	return kind == PT_GPULIB_CUDART ? PT_LAYER_OUTER :
	       kind == PT_GPULIB_CUDA	? PT_LAYER_INNER :
					  PT_LAYER_ONLY;
}

struct slots {
	uint8_t stream, v[3], via;
};

/* Where this processor has what api.def says of x86-64. */
static struct slots slots_of(const struct pt_api *a)
{
	struct slots s = { a->stream, { a->v[0], a->v[1], a->v[2] }, a->how & 15 };

#ifdef __aarch64__
	/* A struct of more than 16 bytes is passed by its address, which takes a slot:
	 * cudaMalloc3D(to, extent), cudaMemset3DAsync(what, value, extent, stream). */
	if (a->how & PT_HOW_VOLUME && a->v[1] >= 6) {
		s.v[0] = a->cls == PT_API_ALLOC ? 1 : 2;
		s.v[1] = s.v[2] = PT_SLOT_ABSENT;
		s.via = PT_VIA_EXTENT;
		if (s.stream != PT_SLOT_ABSENT)
			s.stream = 3;
	}
#endif
	return s;
}

/* What bpf/gpu.bpf.c reads at an entry: the slots, and at a layer's calls and
 * where a return is watched the return address. */
static struct pt_entry_use use_of(const struct pt_api *a, enum pt_gpulib_kind kind)
{
	const struct slots s = slots_of(a);
	const uint8_t slot[] = { s.stream, s.v[0], s.v[1], s.v[2] };
	struct pt_entry_use use = { .stack = a->ret || pt_layer_of(kind) != PT_LAYER_ONLY };
	unsigned i;

	for (i = 0; i < sizeof(slot); i++) {
		if (slot[i] < PT_ARCH_ARG_SLOTS)
			use.args |= PT_ENTRY_ARG(slot[i]);
		else if (slot[i] != PT_SLOT_ABSENT)
			use.stack = 1;
	}
	return use;
}

/* A function that begins between another one's entry and its place is no part of it:
 * its own calls would count there, too. */
static void keep_apart(struct pt_point *p, unsigned n)
{
	unsigned i, j;

	for (i = 0; i < n; i++)
		for (j = 0; j < n; j++)
			if (p[j].entry > p[i].entry && p[j].entry <= p[i].offset) {
				p[i].offset = p[i].entry;
				p[i].stepped = true;
			}
}

/* Of two layers the launch by the outer one, and of the inner one the question for a
 * kernel's handle, which libraries ask before each launch. */
static bool is_brief(const struct pt_api *a, enum pt_gpulib_kind kind)
{
	return (pt_layer_of(kind) == PT_LAYER_OUTER && a->cls == PT_API_LAUNCH) ||
	       (pt_layer_of(kind) == PT_LAYER_INNER && a->cls == PT_API_FUNCTION &&
		(a->how & 15) == PT_VIA_OUT);
}

/* What is watched of it fits a struct pt_ring_call. */
static bool travels_with_others(uint64_t cookie)
{
	return !PT_COOKIE_RET(cookie) && PT_COOKIE_ONE(cookie) &&
	       (PT_COOKIE_VIA(cookie) == PT_VIA_NONE || PT_COOKIE_VIA(cookie) == PT_VIA_CONFIG);
}

int pt_points_find(int fd, enum pt_gpulib_kind kind, uint32_t lib,
		   struct pt_point *out, struct pt_err *err)
{
	const char *names[PT_MAX_POINTS] = { NULL };
	struct pt_entry_use use[PT_MAX_POINTS];
	struct pt_elf_entry e[PT_MAX_POINTS];
	uint16_t id[PT_MAX_POINTS];
	unsigned i, j, n = 0, found = 0;
	int r;

	/* A library's own names only: another's may be in it too, as local
	 * symbols of a copy that was linked in. */
	for (i = 0; i < pt_api_count && n < PT_MAX_POINTS; i++) {
		if ((int)pt_api_lib(&pt_apis[i]) != (int)kind)
			continue;
		names[n] = pt_apis[i].symbol;
		use[n] = use_of(&pt_apis[i], kind);
		id[n++] = (uint16_t)i;
	}
	if (!n)
		return 0;
	r = pt_elf_entries(fd, names, use, n, e, err);
	if (r < 0)
		return r;
	for (i = 0; i < n; i++) {
		const struct pt_api *a = &pt_apis[id[i]];
		const struct slots s = slots_of(a);

		if (!e[i].offset)
			continue;
		for (j = 0; j < found; j++)
			if (out[j].entry == e[i].offset)
				break;
		if (j < found)
			continue;
		out[found].entry = e[i].offset;
		out[found].offset = e[i].offset + e[i].place.skip;
		out[found].stepped = e[i].place.stepped;
		out[found].cookie =
			PT_COOKIE(id[i], lib, s.stream, s.v[0], s.v[1], s.v[2]) |
			PT_COOKIE_WITH(s.via, pt_layer_of(kind), a->ret);
		out[found].ret = a->ret;
		out[found].brief = is_brief(a, kind);
		if (a->cls == PT_API_LAUNCH && !a->ret && pt_layer_of(kind) != PT_LAYER_ONLY)
			out[found].cookie |= PT_COOKIE_LAUNCH;
		found++;
	}
	keep_apart(out, found);
	for (i = 0; i < found; i++) {
		if (out[i].stepped)
			out[i].cookie |= PT_COOKIE_STEPPED;
		if (travels_with_others(out[i].cookie))
			out[i].cookie |= PT_COOKIE_RUN;
	}
	return (int)found;
}
