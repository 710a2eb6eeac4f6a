/* SPDX-License-Identifier: BSD-2-Clause */
/* The program that calls NVML for a static build. */
#include <stddef.h>

#include "base/blob.h"
#include "gpu/nvml_int.h"
#include "version.h"

#ifdef PT_STATIC
PT_BLOB(pt_nvml, PT_NVML_FILE);

const void *pt_nvml_blob(size_t *len)
{
	*len = (size_t)(pt_nvml_end - pt_nvml_begin);
	return pt_nvml_begin;
}
#else
const void *pt_nvml_blob(size_t *len)
{
	*len = 0;
	return NULL;
}
#endif
