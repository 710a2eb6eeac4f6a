// SPDX-License-Identifier: BSD-2-Clause
/* Control groups of a process: its container and its CPU directory. */
#include <errno.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "capture/procfs.h"

static bool lower_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

int pt_cgroup_container(const char *text, char *buf, size_t size)
{
	const char *p, *run;
	size_t len;

	/* docker, containerd, CRI-O and podman all end in 64 hex digits;
	 * nothing else in a cgroup path does */
	for (p = text; *p; p = *run ? run + 1 : run) {
		for (run = p; lower_hex(*run); run++)
			;
		len = (size_t)(run - p);
		if (len == 64 && len < size) {
			memcpy(buf, p, len);
			buf[len] = '\0';
			return 0;
		}
	}
	return -ENOENT;
}

int pt_proc_container(pid_t pid, char *buf, size_t size)
{
	char text[8192];
	ssize_t len = pt_proc_read(pid, "cgroup", text, sizeof(text));

	return len < 0 ? (int)len : pt_cgroup_container(text, buf, size);
}

/* Path of the controller (v1) or of the unified tree (v2). */
static bool cgroup_path(const char *text, const char *name, int version,
			char *buf, size_t size)
{
	const char *line, *ctl, *path, *end;
	char list[256], wanted[32];
	size_t len;

	snprintf(wanted, sizeof(wanted), ",%s,", name);
	for (line = text; *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		ctl = memchr(line, ':', (size_t)(end - line));
		path = ctl ? memchr(ctl + 1, ':', (size_t)(end - ctl - 1)) : NULL;
		if (!path)
			continue;
		len = (size_t)(path - ctl - 1);
		if (len >= sizeof(list) - 2)
			continue;
		snprintf(list, sizeof(list), ",%.*s,", (int)len, ctl + 1);
		if (version == 1 ? !strstr(list, wanted) : len != 0)
			continue;
		len = (size_t)(end - path - 1);
		if (len >= size)
			return false;
		memcpy(buf, path + 1, len);
		buf[len] = '\0';
		return true;
	}
	return false;
}

static bool cgroup_mount(const char *name, int version, char *buf, size_t size)
{
	struct mntent me, *m;
	char line[4096];
	bool ok = false;
	FILE *f = setmntent("/proc/self/mounts", "re");

	if (!f)
		return false;
	while (!ok && (m = getmntent_r(f, &me, line, sizeof(line)))) {
		if (version == 1)
			ok = !strcmp(m->mnt_type, "cgroup") &&
			     hasmntopt(m, name);
		else
			ok = !strcmp(m->mnt_type, "cgroup2");
		if (ok)
			ok = snprintf(buf, size, "%s", m->mnt_dir) < (int)size;
	}
	endmntent(f);
	return ok;
}

int pt_cgroup_dir_of(pid_t pid, const char *name, char *buf, size_t size)
{
	char text[8192];
	ssize_t len = pt_proc_read(pid, "cgroup", text, sizeof(text));

	return len < 0 ? (int)len : pt_cgroup_dir(text, name, buf, size);
}

int pt_cgroup_dir(const char *text, const char *name, char *buf, size_t size)
{
	char path[1024], mount[512];
	struct stat st;
	int v;

	for (v = 1; v <= 2; v++) {
		if (!cgroup_path(text, name, v, path, sizeof(path)) ||
		    !cgroup_mount(name, v, mount, sizeof(mount)))
			continue;
		/* seen from another cgroup namespace: "/../.." */
		if (strstr(path, ".."))
			continue;
		if (snprintf(buf, size, "%s%s", mount,
			     strcmp(path, "/") ? path : "") >= (int)size)
			continue;
		if (!stat(buf, &st) && S_ISDIR(st.st_mode))
			return v;
	}
	return -ENOENT;
}
