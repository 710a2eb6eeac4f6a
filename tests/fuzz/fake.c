/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stand-ins. The linker gives the rooms __wrap_NAME() for NAME() (FUZZ_WRAP in the
 * Makefile), so that the functions which take a process id read what the target was
 * given, and a server answers with it.
 */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/elf.h"
#include "capture/mapped.h"
#include "capture/seccomp.h"
#include "net/libcurl.h"

/* ---- files ---------------------------------------------------------------------- */

#define FILES 16

static struct file {
	const char *end;
	const void *data;
	size_t size;
} files[FILES];
static size_t n_files;

void fake_file(const char *end, const void *data, size_t size)
{
	if (n_files == FILES)
		abort();
	files[n_files++] = (struct file){ end, data, size };
}

void fake_clear(void)
{
	n_files = 0;
}

static bool is_fake(const char *path)
{
	return n_files && (!strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5));
}

/* The last one that was given; NULL, and errno: no such file. */
static const struct file *find(const char *path)
{
	size_t len = strlen(path), n, i;

	for (i = n_files; i-- > 0;) {
		n = strlen(files[i].end);
		if (len >= n && !strcmp(path + len - n, files[i].end))
			return &files[i];
	}
	errno = ENOENT;
	return NULL;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	const struct file *f;
	mode_t mode = 0;
	va_list ap;
	int fd;

	if (flags & O_CREAT) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	if (!is_fake(path))
		return __real_open(path, flags, mode);
	f = find(path);
	if (!f)
		return -1;
	fd = memfd_create("fake", MFD_CLOEXEC);
	if (fd < 0 || write(fd, f->data, f->size) != (ssize_t)f->size ||
	    lseek(fd, 0, SEEK_SET) || fchmod(fd, 0600))
		abort();
	return fd;
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
	const struct file *f;

	if (!is_fake(path))
		return __real_fopen(path, mode);
	f = find(path);
	return f ? fmemopen((void *)(uintptr_t)f->data, f->size, "r") : NULL;
}

FILE *__wrap_setmntent(const char *path, const char *mode);
FILE *__wrap_setmntent(const char *path, const char *mode)
{
	return __wrap_fopen(path, mode);
}

/* ---- libraries that are mapped ---------------------------------------------------- */

bool fake_library;

int __real_pt_mapped_open(const struct pt_mapped *m);
int __wrap_pt_mapped_open(const struct pt_mapped *m);
int __wrap_pt_mapped_open(const struct pt_mapped *m)
{
	return fake_library ? memfd_create("library", MFD_CLOEXEC) :
			      __real_pt_mapped_open(m);
}

/* These ask a child, which is not to be made here. */
int __wrap_pt_elf_symbols(int fd, const char *const *names, size_t n, uint64_t *off,
			  struct pt_err *err);
int __wrap_pt_elf_symbols(int fd, const char *const *names, size_t n, uint64_t *off,
			  struct pt_err *err)
{
	size_t i;

	(void)fd;
	(void)names;
	(void)err;
	for (i = 0; i < n; i++)
		off[i] = 0x1000 + 16 * i;
	return (int)n;
}

int __wrap_pt_elf_objects(int fd, const char *const *names, size_t n, uint64_t offset,
			  uint64_t *addresses, uint64_t *at, struct pt_err *err);
int __wrap_pt_elf_objects(int fd, const char *const *names, size_t n, uint64_t offset,
			  uint64_t *addresses, uint64_t *at, struct pt_err *err)
{
	(void)offset;
	*at = 0;
	return __wrap_pt_elf_symbols(fd, names, n, addresses, err);
}

int __wrap_pt_elf_dyn(int fd, const char *const *names, size_t n, bool *exports,
		      struct pt_elf_dyn *out);
int __wrap_pt_elf_dyn(int fd, const char *const *names, size_t n, bool *exports,
		      struct pt_elf_dyn *out)
{
	(void)fd;
	(void)names;
	memset(out, 0, sizeof(*out));
	memset(exports, 1, n * sizeof(*exports));
	return 0;
}

/* ---- seccomp's filters ------------------------------------------------------------ */

const struct sock_filter *fake_filter[4];
size_t fake_filter_n[4];

int __wrap_pt_seccomp_filter(struct pt_seccomp *s, pid_t tid, unsigned which,
			     const struct sock_filter **code);
int __wrap_pt_seccomp_filter(struct pt_seccomp *s, pid_t tid, unsigned which,
			     const struct sock_filter **code)
{
	(void)s;
	(void)tid;
	if (which >= 4)
		return -E2BIG;
	*code = fake_filter[which];
	return (int)fake_filter_n[which];
}

/* ---- libcurl ---------------------------------------------------------------------- */

bool (*fake_server)(struct fake_answer *a);

static struct {
	size_t (*write)(char *data, size_t one, size_t n, void *ctx);
	void *ctx;
	struct fake_answer answer;
	CURLMsg message;
	unsigned performed;
} peer;

static CURL *easy_init(void)
{
	return malloc(1);
}

static void easy_cleanup(CURL *h)
{
	free(h);
}

static CURLcode easy_setopt(CURL *h, CURLoption option, ...)
{
	va_list ap;

	(void)h;
	va_start(ap, option);
	if (option == CURLOPT_WRITEFUNCTION)
		peer.write = va_arg(ap, size_t (*)(char *, size_t, size_t, void *));
	else if (option == CURLOPT_WRITEDATA)
		peer.ctx = va_arg(ap, void *);
	va_end(ap);
	return CURLE_OK;
}

/* In pieces, as they come from a network. */
static CURLcode easy_perform(CURL *h)
{
	size_t at, n;
	char *piece;

	(void)h;
	peer.answer = (struct fake_answer){ 0 };
	if (!fake_server || !fake_server(&peer.answer))
		return CURLE_COULDNT_CONNECT;
	for (at = 0; at < peer.answer.len; at += n) {
		n = peer.answer.len - at < 4096 ? peer.answer.len - at : 4096;
		piece = fuzz_text(peer.answer.body + at, n);
		if (peer.write(piece, 1, n, peer.ctx) != n) {
			free(piece);
			return CURLE_WRITE_ERROR;
		}
		free(piece);
	}
	return peer.answer.broken ? CURLE_PARTIAL_FILE : CURLE_OK;
}

static CURLcode easy_getinfo(CURL *h, CURLINFO what, ...)
{
	va_list ap;

	(void)h;
	va_start(ap, what);
	if (what == CURLINFO_RESPONSE_CODE)
		*va_arg(ap, long *) = peer.answer.status;
	else if (what == CURLINFO_RETRY_AFTER)
		*va_arg(ap, curl_off_t *) = peer.answer.retry_after;
	va_end(ap);
	return CURLE_OK;
}

static const char *easy_strerror(CURLcode err)
{
	(void)err;
	return "it failed";
}

static char *easy_escape(CURL *h, const char *s, int n)
{
	(void)h;
	return fuzz_text(s, n ? (size_t)n : strlen(s));
}

static struct curl_slist *slist_append(struct curl_slist *list, const char *s)
{
	struct curl_slist *l = malloc(sizeof(*l)), *end;

	if (!l)
		abort();
	*l = (struct curl_slist){ fuzz_text(s, strlen(s)), NULL };
	for (end = list; end && end->next; end = end->next)
		;
	if (end)
		end->next = l;
	return list ? list : l;
}

static void slist_free_all(struct curl_slist *l)
{
	struct curl_slist *next;

	for (; l; l = next) {
		next = l->next;
		free(l->data);
		free(l);
	}
}

static CURLM *multi_init(void)
{
	return malloc(1);
}

static CURLMcode multi_cleanup(CURLM *m)
{
	free(m);
	return CURLM_OK;
}

static CURLMcode multi_add_handle(CURLM *m, CURL *h)
{
	(void)m;
	(void)h;
	peer.performed = 0;
	return CURLM_OK;
}

/* Nothing has come yet at first. */
static CURLMcode multi_perform(CURLM *m, int *running)
{
	(void)m;
	if (++peer.performed == 2)
		peer.message = (CURLMsg){ .msg = CURLMSG_DONE,
					  .data.result = easy_perform(NULL) };
	*running = peer.performed < 2;
	return CURLM_OK;
}

static CURLMcode multi_poll(CURLM *m, struct curl_waitfd *more, unsigned n, int ms,
			    int *ready)
{
	(void)m;
	(void)more;
	(void)n;
	(void)ms;
	(void)ready;
	return CURLM_OK;
}

static CURLMsg *multi_info_read(CURLM *m, int *left)
{
	(void)m;
	*left = 0;
	return peer.performed < 2 ? NULL : &peer.message;
}

static CURLMcode multi_remove_handle(CURLM *m, CURL *h)
{
	(void)m;
	(void)h;
	return CURLM_OK;
}

static CURLMcode multi_wakeup(CURLM *m)
{
	(void)m;
	return CURLM_OK;
}

int __wrap_pt_libcurl_load(const char *whose, char *why, size_t n);
int __wrap_pt_libcurl_load(const char *whose, char *why, size_t n)
{
	(void)whose;
	(void)why;
	(void)n;
	pt_curl.easy_init = easy_init;
	pt_curl.easy_cleanup = easy_cleanup;
	pt_curl.easy_setopt = easy_setopt;
	pt_curl.easy_perform = easy_perform;
	pt_curl.easy_getinfo = easy_getinfo;
	pt_curl.easy_strerror = easy_strerror;
	pt_curl.easy_escape = easy_escape;
	pt_curl.free = free;
	pt_curl.slist_append = slist_append;
	pt_curl.slist_free_all = slist_free_all;
	pt_curl.multi_init = multi_init;
	pt_curl.multi_cleanup = multi_cleanup;
	pt_curl.multi_add_handle = multi_add_handle;
	pt_curl.multi_remove_handle = multi_remove_handle;
	pt_curl.multi_perform = multi_perform;
	pt_curl.multi_info_read = multi_info_read;
	pt_curl.multi_wakeup = multi_wakeup;
	pt_curl.multi_poll = multi_poll;
	return 0;
}
