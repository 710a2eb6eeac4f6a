/* SPDX-License-Identifier: BSD-2-Clause */
#include "inject/inject_int.h"

__asm__(".pushsection .rodata\n"
	".balign 16\n"
	".local pt_agent_begin, pt_agent_end\n"
	"pt_agent_begin:\n"
	".incbin \"" PT_AGENT_SO "\"\n"
	"pt_agent_end:\n"
	".popsection\n");
/* Hidden: they are reached without a table, in which the linker of arm64 mixes local names up. */
extern const char pt_agent_begin[] __attribute__((visibility("hidden")));
extern const char pt_agent_end[] __attribute__((visibility("hidden")));

const void *pt_agent_blob(size_t *len)
{
	*len = (size_t)(pt_agent_end - pt_agent_begin);
	return pt_agent_begin;
}
