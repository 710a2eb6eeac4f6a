/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/gzip.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

/* Level 1: our text shrinks tenfold, and more costs more CPU than it saves bytes.
 * 15 + 16: the largest window, with the head that says gzip. */
int pt_gzip(const void *from, size_t len, void **to, size_t *to_len)
{
	z_stream z = { 0 };
	int err = -ENOMEM;
	uLong most;

	*to = NULL;
	if (len > INT_MAX)
		return -EFBIG;
	if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	most = deflateBound(&z, len);
	*to = malloc(most);
	if (*to) {
		z.next_in = (Bytef *)from;
		z.avail_in = (uInt)len;
		z.next_out = *to;
		z.avail_out = (uInt)most;
		if (deflate(&z, Z_FINISH) == Z_STREAM_END) {
			*to_len = z.total_out;
			err = 0;
		}
	}
	deflateEnd(&z);
	if (err) {
		free(*to);
		*to = NULL;
	}
	return err;
}
