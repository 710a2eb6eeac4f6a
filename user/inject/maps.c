// SPDX-License-Identifier: BSD-2-Clause
/* What is mapped where in a process, and functions of what is. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/vec.h"
#include "capture/discover.h"
#include "capture/elf.h"
#include "capture/mapped.h"
#include "inject/inject_int.h"

#define MAX_MAPS (1u << 17) /* the kernel's default limit is 65530 */
#define MAX_TEXT (64u << 20)
#define DELETED " (deleted)"

static int add_name(struct pt_maps *m, const char *s, size_t len, uint32_t *at)
{
	size_t want = m->names_len + len + 1, cap = m->names_cap;
	char *p;

	/* the mappings of one file lie together: mostly the last name again */
	if (m->n && m->v[m->n - 1].path) {
		const char *last = m->names + m->v[m->n - 1].path;

		if (strlen(last) == len && !memcmp(last, s, len)) {
			*at = m->v[m->n - 1].path;
			return 0;
		}
	}
	if (want > cap) {
		cap = cap ? 2 * cap + len : 16384 + len;
		p = realloc(m->names, cap);
		if (!p)
			return -ENOMEM;
		m->names = p;
		m->names_cap = cap;
	}
	if (!m->names_len) {
		m->names[m->names_len++] = '\0';
		return add_name(m, s, len, at);
	}
	memcpy(m->names + m->names_len, s, len);
	m->names[m->names_len + len] = '\0';
	*at = (uint32_t)m->names_len;
	m->names_len += len + 1;
	return 0;
}

static int add_line(struct pt_maps *m, const char *line)
{
	struct pt_map x = { 0 };
	unsigned int major, minor;
	char perms[5];
	int at = 0, ret;
	size_t len;

	if (sscanf(line,
		   "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64
		   " %n",
		   &x.start, &x.end, perms, &x.offset, &major, &minor, &x.inode,
		   &at) < 7 || !at || x.end <= x.start)
		return 0;
	x.dev = major << 20 | minor;
	x.r = strchr(perms, 'r');
	x.w = strchr(perms, 'w');
	x.x = strchr(perms, 'x');
	len = strcspn(line + at, "\n");
	if (len) {
		ret = add_name(m, line + at, len, &x.path);
		if (ret)
			return ret;
	}
	return pt_vec_push(m, x);
}

int pt_maps_read(pid_t pid, struct pt_maps *m)
{
	char path[32], *line = NULL;
	size_t cap = 0;
	int ret = 0;
	FILE *f;

	memset(m, 0, sizeof(*m));
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? -ESRCH : -errno;
	while (!ret && getline(&line, &cap, f) > 0)
		ret = m->n < MAX_MAPS ? add_line(m, line) : -E2BIG;
	if (!ret && ferror(f))
		ret = -EIO;
	if (!ret && !m->n)
		ret = -ESRCH; /* it has no memory any more */
	free(line);
	fclose(f);
	return ret;
}

void pt_maps_free(struct pt_maps *m)
{
	pt_vec_free(m);
	free(m->names);
	memset(m, 0, sizeof(*m));
}

const struct pt_map *pt_maps_at(const struct pt_maps *m, uint64_t addr)
{
	size_t lo = pt_bisect(m->n, i, m->v[i].end <= addr);

	return lo < m->n && m->v[lo].start <= addr ? &m->v[lo] : NULL;
}

const char *pt_maps_path(const struct pt_maps *m, const struct pt_map *at)
{
	return at->path && m->names ? m->names + at->path : "";
}

static const char *base_name(const char *path)
{
	const char *base = strrchr(path, '/');

	return base ? base + 1 : path;
}

bool pt_is_glibc(const char *path)
{
	const char *b = base_name(path);

	return !strncmp(b, "libc.so.6", 9) ||
	       (!strncmp(b, "libc-2.", 7) && strstr(b, ".so"));
}

bool pt_is_musl(const char *path)
{
	const char *b = base_name(path);

	/* one file is loader and library; glibc's is libc.so.6 */
	return !strncmp(b, "ld-musl-", 8) || !strncmp(b, "libc.musl-", 10) ||
	       !strcmp(b, "libc.so");
}

static bool is_libdl(const char *path)
{
	const char *b = base_name(path);

	return !strncmp(b, "libdl.so.2", 10) || !strncmp(b, "libdl-2.", 8);
}

int pt_maps_symbols(pid_t pid, const struct pt_maps *m, const struct pt_map *x,
		    const char *const *names, size_t n, uint64_t *addr)
{
	const struct pt_mapped file = {
		.pid = pid, .start = x->start, .end = x->end, .dev = x->dev,
		.inode = x->inode, .name = pt_maps_path(m, x),
	};
	struct pt_err err = { "" };
	int ret, fd = pt_mapped_open(&file);
	size_t i;

	if (fd < 0)
		return fd;
	ret = pt_elf_symbols(fd, names, n, addr, &err);
	close(fd);
	if (ret < 0)
		return ret;
	for (i = 0, ret = 0; i < n; i++) {
		/* file offsets so far */
		if (addr[i] < x->offset ||
		    addr[i] - x->offset >= x->end - x->start)
			addr[i] = 0;
		if (!addr[i])
			continue;
		addr[i] += x->start - x->offset;
		ret++;
	}
	return ret;
}

/* ---- the C library -------------------------------------------------------- */

/*
 * Functions that only wait. Never called with the allocator's locks held, save
 * from a signal handler or an allocator of its own, which pt_safe_here() looks for.
 */
const char *const pt_libc_waits[8] = {
	"poll", "epoll_wait", "clock_nanosleep", "select",
	"ppoll", "epoll_pwait", "nanosleep", "pselect",
};

/* The way back from signal handlers: the instructions that the kernel's documentation
 * and every unwinder know it by. */
static uint64_t find_restorer(pid_t pid, uint64_t begin, uint64_t end)
{
	uint64_t at = 0;
	unsigned char *text = NULL, *p;
	char path[32];
	ssize_t n;
	int fd;

	if (end - begin > MAX_TEXT)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	text = malloc(end - begin);
	if (fd < 0 || !text)
		goto out;
	n = pread(fd, text, end - begin, (off_t)begin);
	if (n <= 0)
		goto out;
	p = memmem(text, (size_t)n, pt_arch.restorer, pt_arch.restorer_len);
	if (p)
		at = begin + (uint64_t)(p - text);
out:
	free(text);
	if (fd >= 0)
		close(fd);
	return at;
}

static int libc_functions(pid_t pid, const struct pt_maps *m,
			  const struct pt_map *c, struct pt_libc *out)
{
	static const char *const names[] = {
		"syscall", "__errno_location", "dlopen", "dlclose",
		"__libc_dlopen_mode", "__libc_dlclose", "dlerror",
	};
	uint64_t a[7];
	int ret;

	ret = pt_maps_symbols(pid, m, c, names, 7, a);
	if (ret < 0)
		return ret;
	out->sys = a[0];
	out->errno_at = a[1];
	out->dlopen = a[2];
	out->dlclose = a[3];
	out->dlerror = a[6];
	if (!out->dlopen && a[4] && a[5]) {
		out->dlopen = a[4];
		out->dlclose = a[5];
		out->old_dlopen = true;
	}
	ret = pt_maps_symbols(pid, m, c, pt_libc_waits, 8, out->wait);
	return ret < 0 ? ret : 0;
}

/* Before glibc 2.34 the public dlopen() lies in a library of its own. */
static void libdl_functions(pid_t pid, const struct pt_maps *m,
			    struct pt_libc *out)
{
	static const char *const names[] = { "dlopen", "dlclose", "dlerror" };
	uint64_t a[3];
	size_t i;

	for (i = 0; i < m->n; i++) {
		if (!m->v[i].x || !is_libdl(pt_maps_path(m, &m->v[i])) ||
		    pt_maps_symbols(pid, m, &m->v[i], names, 3, a) != 3)
			continue;
		out->dlopen = a[0];
		out->dlclose = a[1];
		out->dlerror = a[2];
		out->old_dlopen = false;
	}
}

static bool is_loader(const char *path)
{
	const char *b = base_name(path);

	return !strncmp(b, "ld-linux", 8) || !strncmp(b, "ld-2.", 5);
}

/* The loader's function that does nothing, where calls are to return to. */
static uint64_t find_back(pid_t pid, const struct pt_maps *m)
{
	uint64_t at;
	size_t i;

	for (i = 0; i < m->n; i++)
		if (m->v[i].x && m->v[i].inode && is_loader(pt_maps_path(m, &m->v[i])) &&
		    pt_maps_symbols(pid, m, &m->v[i], &pt_arch.back, 1, &at) == 1)
			return at;
	return 0;
}

int pt_libc_find(pid_t pid, const struct pt_maps *m, struct pt_libc *out,
		 struct pt_err *err)
{
	const struct pt_map *c = NULL;
	size_t i;
	int ret;

	memset(out, 0, sizeof(*out));
	for (i = 0; i < m->n; i++) {
		const char *path = pt_maps_path(m, &m->v[i]);

		if (!m->v[i].x || !m->v[i].inode)
			continue;
		if (pt_is_musl(path))
			return pt_err_set(err, -EOPNOTSUPP,
					  "its C library is musl, which the "
					  "agent is not made for");
		if (!pt_is_glibc(path))
			continue;
		if (c)
			return pt_err_set(err, -EOPNOTSUPP,
					  "it has more than one C library "
					  "mapped");
		c = &m->v[i];
	}
	if (!c)
		return pt_err_set(err, -EOPNOTSUPP,
				  "it has no shared C library (a static "
				  "program), so that nothing can be loaded "
				  "into it");
	ret = libc_functions(pid, m, c, out);
	if (ret)
		return pt_err_set(err, ret, "its C library cannot be read: %s",
				  strerror(-ret));
	if (!out->dlopen || out->old_dlopen)
		libdl_functions(pid, m, out);
	out->begin = c->start;
	out->end = c->end;
	for (i = 0; pt_arch.restorer_in_vdso && i < m->n; i++)
		if (!strcmp(pt_maps_path(m, &m->v[i]), "[vdso]"))
			c = &m->v[i];
	out->restorer = find_restorer(pid, c->start, c->end);
	if (pt_arch.back)
		out->back = find_back(pid, m);
	if (!out->dlopen || !out->dlclose || !out->sys || !out->errno_at ||
	    !out->restorer || (pt_arch.back && !out->back))
		return pt_err_set(err, -EOPNOTSUPP,
				  "its C library lacks a function that is "
				  "needed (%s)",
				  !out->restorer ? "the way back from signals" :
				  pt_arch.back && !out->back ? pt_arch.back :
				  !out->dlopen	? "dlopen" :
						  "syscall");
	return 0;
}

/* ---- GPU functions ----------------------------------------------------------- */

size_t pt_gpu_points(pid_t pid, uint64_t addr[PT_GPU_POINTS],
		     const char *name[PT_GPU_POINTS])
{
	/* Four at a time can be watched: what a training loop calls most. */
	static const struct {
		enum pt_gpulib_kind kind;
		const char *names[4];
	} want[] = {
		{ PT_GPULIB_CUDART, { "cudaLaunchKernel", "cudaMemcpyAsync",
				      "cudaStreamSynchronize", "cudaGraphLaunch" } },
		{ PT_GPULIB_CUDA, { "cuLaunchKernel", "cuMemcpyHtoDAsync_v2",
				    "cuStreamSynchronize", "cuGraphLaunch" } },
		{ PT_GPULIB_HIP, { "hipLaunchKernel", "hipMemcpyAsync",
				   "hipStreamSynchronize", "hipGraphLaunch" } },
	};
	struct pt_gpulib libs[16];
	struct pt_err err = { "" };
	size_t n = 0, k, j;
	ssize_t found, i;
	uint64_t off[4];
	int fd, r;

	found = pt_gpulibs(pid, libs, 16);
	for (k = 0; k < 3; k++) {
		for (i = 0; i < found && i < 16; i++) {
			fd = libs[i].kind == want[k].kind ?
				     pt_gpulib_open(&libs[i]) : -1;
			if (fd < 0)
				continue;
			r = pt_elf_symbols(fd, want[k].names, 4, off, &err);
			close(fd);
			if (r <= 0)
				continue;
			for (j = 0; j < 4 && n < PT_GPU_POINTS; j++) {
				if (off[j] < libs[i].offset ||
				    off[j] - libs[i].offset >=
					    libs[i].end - libs[i].start)
					continue;
				addr[n] = libs[i].start + off[j] -
					  libs[i].offset;
				name[n++] = want[k].names[j];
			}
			break;
		}
	}
	return n;
}
