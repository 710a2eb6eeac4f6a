/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/layers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/vec.h"
#include "capture/discover.h"

#define BUDGET (48ull << 20) /* bytes of files to look at, for a process */
#define CHUNK (1u << 20)
#define MAX_FILES 2048

struct seen {
	uint32_t dev;
	uint64_t inode, size;
	bool names; /* the driver */
};

struct pt_layers {
	PT_VEC(struct seen) files;
	char *buf; /* CHUNK, and what is left of the chunk before */
};

static const char *const needles[] = {
	"libcuda.so", "cuGetProcAddress", "cuLaunchKernel",
	"cudaGetDriverEntryPoint",
};
#define NEEDLE_MAX 32

struct pt_layers *pt_layers_new(void)
{
	struct pt_layers *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->buf = malloc(CHUNK + NEEDLE_MAX);
	if (l->buf)
		return l;
	free(l);
	return NULL;
}

void pt_layers_free(struct pt_layers *l)
{
	if (!l)
		return;
	pt_vec_free(&l->files);
	free(l->buf);
	free(l);
}

static bool has_needle(const char *buf, size_t len)
{
	size_t i;

	for (i = 0; i < sizeof(needles) / sizeof(needles[0]); i++)
		if (memmem(buf, len, needles[i], strlen(needles[i])))
			return true;
	return false;
}

/* Does the file name the driver? True also when it cannot be read. */
static bool scan(struct pt_layers *l, int fd)
{
	size_t kept = 0;
	ssize_t n;

	while ((n = read(fd, l->buf + kept, CHUNK)) > 0) {
		size_t len = kept + (size_t)n;

		if (has_needle(l->buf, len))
			return true;
		kept = len < NEEDLE_MAX ? len : NEEDLE_MAX;
		memmove(l->buf, l->buf + len - kept, kept);
	}
	return n < 0;
}

/* The same with what is remembered; takes its size off *budget. */
static bool file_names(struct pt_layers *l, const struct pt_gpulib *g,
		       uint64_t *budget)
{
	struct seen s = { .dev = g->dev, .inode = g->inode };
	struct stat st;
	int fd;

	pt_each(const struct seen, f, &l->files) {
		if (f->dev != g->dev || f->inode != g->inode)
			continue;
		*budget -= f->size < *budget ? f->size : *budget;
		return f->names;
	}
	fd = pt_gpulib_open(g);
	if (fd < 0)
		return true;
	if (fstat(fd, &st) || (uint64_t)st.st_size > *budget) {
		close(fd);
		return true;
	}
	s.size = (uint64_t)st.st_size;
	*budget -= s.size;
	s.names = scan(l, fd);
	close(fd);
	if (pt_vec_push(&l->files, s))
		return true; /* no memory: not to be told */
	return s.names;
}

/* Calls any function that a script names. */
static bool calls_by_name(const char *path)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	return strstr(base, "libffi") || strstr(base, "_ctypes") ||
	       strstr(base, "cffi") || strstr(base, "luajit");
}

bool pt_layers_direct(struct pt_layers *l, pid_t pid)
{
	struct pt_gpulib *f = calloc(MAX_FILES, sizeof(*f));
	uint64_t budget = BUDGET;
	bool direct = true;
	ssize_t n, i;

	if (!f)
		return true;
	n = pt_exec_files(pid, f, MAX_FILES);
	if (n <= 0 || n == MAX_FILES)
		goto out;
	direct = false;
	for (i = 0; i < n && !direct; i++) {
		/* of these two it is known what they do */
		if (f[i].kind == PT_GPULIB_CUDART ||
		    f[i].kind == PT_GPULIB_CUDA)
			continue;
		direct = calls_by_name(f[i].path_display) ||
			 file_names(l, &f[i], &budget);
	}
out:
	free(f);
	return direct;
}
