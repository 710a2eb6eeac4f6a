// SPDX-License-Identifier: BSD-2-Clause
/* GPU libraries that are mapped in a process. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "capture/discover.h"

/* A process may map as much as vm.max_map_count allows; more is refused. */
#define MAX_LINES (1u << 20)
#define DELETED " (deleted)"

enum pt_gpulib_kind pt_gpulib_kind(const char *path)
{
	static const struct {
		const char *stem;
		enum pt_gpulib_kind kind;
	} libs[] = {
		{ "libcudart", PT_GPULIB_CUDART }, { "libcuda", PT_GPULIB_CUDA },
		{ "libamdhip64", PT_GPULIB_HIP },  { "libnccl", PT_GPULIB_NCCL },
		{ "librccl", PT_GPULIB_NCCL },
	};
	const char *base = strrchr(path, '/');
	size_t i, len;

	base = base ? base + 1 : path;
	for (i = 0; i < sizeof(libs) / sizeof(libs[0]); i++) {
		len = strlen(libs[i].stem);
		if (strncmp(base, libs[i].stem, len))
			continue;
		/* pip wheels rename it to libcudart-<hash>.so.11.0 */
		if (!strncmp(base + len, ".so", 3) ||
		    (base[len] == '-' && strstr(base + len, ".so")))
			return libs[i].kind;
	}
	return 0;
}

/* Any executable mapping of a file. */
static bool parse_exec(const char *line, struct pt_gpulib *out)
{
	unsigned int major, minor;
	char perms[5];
	size_t len;
	int at = 0;

	memset(out, 0, sizeof(*out));
	if (sscanf(line,
		   "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64
		   " %n",
		   &out->start, &out->end, perms, &out->offset, &major, &minor,
		   &out->inode, &at) < 7 || !at)
		return false;
	if (!strchr(perms, 'x') || line[at] != '/' || !out->inode ||
	    out->end <= out->start)
		return false;
	len = strcspn(line + at, "\n");
	if (len >= sizeof(out->path_display))
		return false;
	memcpy(out->path_display, line + at, len);
	if (len > strlen(DELETED) &&
	    !strcmp(out->path_display + len - strlen(DELETED), DELETED)) {
		out->deleted = true;
		out->path_display[len - strlen(DELETED)] = '\0';
	}
	out->dev = major << 20 | minor;
	out->kind = pt_gpulib_kind(out->path_display);
	return true;
}

bool pt_gpulib_parse(const char *line, struct pt_gpulib *out)
{
	return parse_exec(line, out) && out->kind != 0;
}

/*
 * By name through the target's root where that still is the mapped file; else
 * by the mapping itself, which works for files that were deleted, replaced or
 * lie in another mount namespace.
 */
static void choose_path(pid_t pid, struct pt_gpulib *g)
{
	struct stat st;
	int len;

	len = snprintf(g->path_open, sizeof(g->path_open), "/proc/%d/root%s",
		       pid, g->path_display);
	if (!g->deleted && len < (int)sizeof(g->path_open) &&
	    !stat(g->path_open, &st) && S_ISREG(st.st_mode) &&
	    st.st_ino == g->inode &&
	    (major(st.st_dev) << 20 | minor(st.st_dev)) == g->dev)
		return;
	snprintf(g->path_open, sizeof(g->path_open),
		 "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, pid, g->start,
		 g->end);
}

static ssize_t read_maps(pid_t pid, struct pt_gpulib *out, size_t max, bool any)
{
	char path[32], *line = NULL;
	struct pt_gpulib g;
	size_t cap = 0, n = 0, i, lines = 0;
	int err;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? -ESRCH : -errno;
	errno = 0;
	while (n < max && lines++ < MAX_LINES && getline(&line, &cap, f) > 0) {
		if (any ? !parse_exec(line, &g) :
			  !strstr(line, "/lib") || !pt_gpulib_kind(line) ||
				  !pt_gpulib_parse(line, &g))
			continue;
		for (i = 0; i < n; i++)
			if (out[i].inode == g.inode && out[i].dev == g.dev)
				break;
		if (i < n)
			continue;
		choose_path(pid, &g);
		out[n++] = g;
	}
	err = ferror(f) ? errno : 0;
	free(line);
	fclose(f);
	return err && !n ? -err : (ssize_t)n;
}

ssize_t pt_gpulibs(pid_t pid, struct pt_gpulib *out, size_t max)
{
	return read_maps(pid, out, max, false);
}

ssize_t pt_exec_files(pid_t pid, struct pt_gpulib *out, size_t max)
{
	return read_maps(pid, out, max, true);
}
