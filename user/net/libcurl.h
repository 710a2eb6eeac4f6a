/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libcurl, opened when it is needed: it brings some thirty libraries, which would
 * cost every other command four milliseconds at its start. A static binary cannot
 * load it and goes without.
 */
#ifndef PT_LIBCURL_H
#define PT_LIBCURL_H

#include <curl/curl.h>
#include <stddef.h>

/* The header's checks of types are macros over these names. */
#undef curl_easy_setopt
#undef curl_easy_getinfo

#define PT_CURL_FUNCTIONS(X)                                                   \
	X(global_init) X(easy_init) X(easy_cleanup) X(easy_setopt)             \
	X(easy_perform) X(easy_getinfo) X(easy_strerror) X(easy_escape)        \
	X(free) X(slist_append) X(slist_free_all) X(multi_init)                \
	X(multi_cleanup) X(multi_add_handle) X(multi_remove_handle)            \
	X(multi_perform) X(multi_poll) X(multi_wakeup) X(multi_info_read)

struct pt_libcurl {
#define X(name) __typeof__(curl_##name) *name;
	PT_CURL_FUNCTIONS(X)
#undef X
};

/* Filled by the first pt_libcurl_load() that succeeds, and never unloaded: its
 * libraries leave functions behind for exit(). */
extern struct pt_libcurl pt_curl;

/* Any thread. 0; -errno with a sentence in `why`, in which `whose` needs it. */
int pt_libcurl_load(const char *whose, char *why, size_t n);

#endif
