/* SPDX-License-Identifier: BSD-2-Clause */
#include "gpu/api.h"

#include <stddef.h>

#define PT_API(sym, c, r, s, v0, v1, v2) { #sym, PT_API_##c, r, s, { v0, v1, v2 } },
const struct pt_api pt_apis[] = {
#include "gpu/api.def"
};
const unsigned pt_api_count = sizeof(pt_apis) / sizeof(pt_apis[0]);

const struct pt_api *pt_api_get(uint32_t id)
{
	return id < pt_api_count ? &pt_apis[id] : NULL;
}
