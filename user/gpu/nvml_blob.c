/* SPDX-License-Identifier: BSD-2-Clause */
/* The program that calls NVML for a static build. */
#include <stddef.h>

#include "gpu/nvml_int.h"
#include "version.h"

#ifdef PT_STATIC
__asm__(".pushsection .rodata\n"
	".balign 16\n"
	".local pt_nvml_begin, pt_nvml_end\n"
	"pt_nvml_begin:\n"
	".incbin \"" PT_NVML_FILE "\"\n"
	"pt_nvml_end:\n"
	".popsection\n");
extern const char pt_nvml_begin[] __attribute__((visibility("hidden")));
extern const char pt_nvml_end[] __attribute__((visibility("hidden")));

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
