// SPDX-License-Identifier: BSD-2-Clause
#include "net/libcurl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "version.h" /* PT_STATIC */

struct pt_libcurl pt_curl;

#ifndef PT_STATIC
static int loaded; /* 0; -errno */

static void load(void)
{
	/* Never unloaded: its libraries leave functions behind for exit(). */
	void *so = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

	if (!so)
		so = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
	loaded = so ? 0 : -ENOENT;
#define X(name)                                                                \
	if (!loaded && !(*(void **)&pt_curl.name = dlsym(so, "curl_" #name)))  \
		loaded = -ENOSYS;
	PT_CURL_FUNCTIONS(X)
#undef X
	if (!loaded && pt_curl.global_init(CURL_GLOBAL_DEFAULT))
		loaded = -EIO;
}
#endif

int pt_libcurl_load(const char *whose, char *why, size_t n)
{
#ifdef PT_STATIC
	snprintf(why, n, "this program was linked statically and cannot load libcurl, which %s needs",
		 whose);
	return -ENOTSUP;
#else
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (loaded == -ENOENT)
		snprintf(why, n, "%s needs libcurl.so.4, which is not here (Debian: libcurl4)",
			 whose);
	else if (loaded)
		snprintf(why, n, "the libcurl that is here is too old for %s", whose);
	return loaded;
#endif
}
