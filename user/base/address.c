// SPDX-License-Identifier: BSD-2-Clause
#include "base/address.h"

#include <arpa/inet.h>
#include <stdio.h>

void pt_address_text(const uint8_t *a, unsigned bytes, char *out, size_t size)
{
	if (!inet_ntop(bytes == 4 ? AF_INET : AF_INET6, a, out, (socklen_t)size))
		out[0] = '\0';
}

void pt_address_path(const char *path, size_t n, char *out, size_t size)
{
	size_t at = 0, i;

	while (n && !path[n - 1])
		n--;
	out[0] = 0;
	for (i = 0; i < n && at + 5 < size; i++) {
		unsigned char c = (unsigned char)path[i];

		if (!i && !c)
			out[at++] = '@'; /* an abstract name */
		else if (c > ' ' && c < 127 && c != '\\')
			out[at++] = (char)c;
		else
			at += (size_t)snprintf(out + at, size - at, "\\x%02x", c);
	}
	out[at] = 0;
}
