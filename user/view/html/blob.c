/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/html/html_int.h"

__asm__(".pushsection .rodata\n"
	".local pt_html_begin, pt_html_end\n"
	"pt_html_begin:\n"
	".incbin \"" PT_HTML_FILE "\"\n"
	"pt_html_end:\n"
	".popsection\n");
extern const char pt_html_begin[] __attribute__((visibility("hidden")));
extern const char pt_html_end[] __attribute__((visibility("hidden")));

const char *pt_html_page(size_t *len)
{
	*len = (size_t)(pt_html_end - pt_html_begin);
	return pt_html_begin;
}
