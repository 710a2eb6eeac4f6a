/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/points.h"

#include <string.h>

#include "capture/elf.h"
#include "gpu/api.h"

unsigned pt_layer_of(enum pt_gpulib_kind kind)
{
	return kind == PT_GPULIB_CUDART ? PT_LAYER_OUTER :
	       kind == PT_GPULIB_CUDA	? PT_LAYER_INNER :
					  PT_LAYER_ONLY;
}

int pt_points_find(int fd, enum pt_gpulib_kind kind, uint32_t lib,
		   struct pt_point *out, struct pt_err *err)
{
	const char *names[PT_MAX_POINTS] = { NULL };
	uint64_t off[PT_MAX_POINTS];
	uint16_t id[PT_MAX_POINTS];
	unsigned i, j, n = 0, found = 0;
	int r;

	/* A library's own names only: another's may be in it too, as local
	 * symbols of a copy that was linked in. */
	for (i = 0; i < pt_api_count && n < PT_MAX_POINTS; i++) {
		if ((int)pt_api_lib(&pt_apis[i]) != (int)kind)
			continue;
		names[n] = pt_apis[i].symbol;
		id[n++] = (uint16_t)i;
	}
	if (!n)
		return 0;
	memset(off, 0, sizeof(off));
	r = pt_elf_symbols(fd, names, n, off, err);
	if (r < 0)
		return r;
	for (i = 0; i < n; i++) {
		const struct pt_api *a = &pt_apis[id[i]];

		if (!off[i])
			continue;
		for (j = 0; j < found; j++)
			if (out[j].offset == off[i])
				break;
		if (j < found)
			continue;
		out[found].offset = off[i];
		out[found].cookie =
			PT_COOKIE(id[i], lib, a->stream, a->v[0], a->v[1],
				  a->v[2]) |
			PT_COOKIE_WITH(a->how & 15, pt_layer_of(kind),
				       a->ret);
		out[found].ret = a->ret;
		found++;
	}
	return (int)found;
}
