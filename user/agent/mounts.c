/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent/sample.h"

#define PATH 4096

/* The field at *p, with the kernel's octal escapes undone; false: there is none. */
static bool field(const char **p, char *out, size_t cap)
{
	const char *s = *p;
	size_t n = 0;

	while (*s == ' ')
		s++;
	if (!*s || *s == '\n')
		return false;
	for (; *s && *s != ' ' && *s != '\n'; s++) {
		char c = *s;

		if (c == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' &&
		    s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			c = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + s[3] - '0');
			s += 3;
		}
		if (n + 1 < cap)
			out[n++] = c;
	}
	out[n] = '\0';
	*p = s;
	return true;
}

/* Below a mount point, and how long that is; 0: not below it. */
static size_t below(const char *path, const char *point)
{
	size_t n = strlen(point);

	while (n && point[n - 1] == '/')
		n--;
	return strncmp(path, point, n) || (path[n] && path[n] != '/') ? 0 : n + 1;
}

static bool shared(const char *fs)
{
	static const char *const all[] = { "nfs", "cifs", "smb", "lustre", "ceph",
					   "fuse", "9p", "gpfs", "beegfs", "glusterfs",
					   "virtiofs", "afs", "ocfs2", "gfs2" };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strncmp(fs, all[i], strlen(all[i])))
			return true;
	return false;
}

static void copy(char *to, const char *from)
{
	size_t n = strnlen(from, PT_SAMPLE_MOUNT - 1);

	memcpy(to, from, n);
	to[n] = '\0';
}

/* The longest mount point above the path; of equal ones the last, it is on top. */
static bool by_mountinfo(const char *text, const char *path, char *name)
{
	char point[PATH], fs[64], source[PATH], skip[PATH];
	const char *line, *end;
	size_t best = 0, n;

	for (line = text; *line; line = *end ? end + 1 : end) {
		const char *p = line;
		bool good = true;
		int i;

		end = line + strcspn(line, "\n");
		for (i = 0; i < 4; i++)
			good = good && field(&p, skip, sizeof(skip));
		good = good && field(&p, point, sizeof(point));
		do
			good = good && field(&p, skip, sizeof(skip));
		while (good && strcmp(skip, "-"));
		if (!good || !field(&p, fs, sizeof(fs)) ||
		    !field(&p, source, sizeof(source)))
			continue;
		n = below(path, point);
		if (!n || n < best)
			continue;
		best = n;
		copy(name, shared(fs) && *source && strcmp(source, "none") ?
				   source : point);
	}
	return best > 0;
}

static bool by_report(const struct pt_r_file *f, char *name)
{
	if (!f->fs)
		return false;
	snprintf(name, PT_SAMPLE_MOUNT, f->device ? "%s on %s" : "%s", f->fs,
		 f->device);
	return true;
}

static double figure(double x)
{
	return x > 0 && x < 1e18 ? x : 0;
}

static void add_mount(struct pt_sample *s, const char *name,
		      const struct pt_r_file *f)
{
	size_t i;

	for (i = 0; i < s->n_mounts; i++)
		if (!strcmp(s->mount[i].name, name))
			break;
	if (i == PT_SAMPLE_MOUNTS) {
		copy(s->mount[--i].name, "other");
	} else if (i == s->n_mounts) {
		s->mount[i] = (struct pt_sample_mount){ .read_s = 0 };
		copy(s->mount[i].name, name);
		s->n_mounts++;
	}
	s->mount[i].read_s += figure(f->read_s);
	s->mount[i].bytes += figure((double)f->bytes);
}

void pt_sample_mounts(const struct pt_report *r, const char *mountinfo,
		      struct pt_sample *s)
{
	char name[PT_SAMPLE_MOUNT];
	size_t i;

	s->n_mounts = 0;
	for (i = 0; i < r->n_files; i++) {
		const struct pt_r_file *f = &r->files[i];

		if ((mountinfo && f->path && *f->path == '/' &&
		     by_mountinfo(mountinfo, f->path, name)) ||
		    by_report(f, name))
			add_mount(s, name, f);
	}
}
