/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/blob.h"
#include "view/html/html_int.h"

PT_BLOB(pt_html, PT_HTML_FILE);

const char *pt_html_page(size_t *len)
{
	*len = (size_t)(pt_html_end - pt_html_begin);
	return pt_html_begin;
}
