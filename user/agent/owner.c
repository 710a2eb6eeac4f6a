/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Paths of control groups as container runtimes make them: with the systemd
 * driver "cri-containerd-ID.scope" under "kubepods-...-podUID.slice" (the UID's
 * dashes are underscores there), with the cgroupfs driver "podUID/ID"; containerd
 * without a driver of its own "...slice:cri-containerd:ID"; docker "docker/ID" or
 * "docker-ID.scope"; podman "libpod-ID.scope"; LXC "lxc.payload.NAME" or
 * "lxc/NAME". Slurm: ".../job_N/step_N/...".
 */
#include "agent/owner.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "capture/procfs.h"

#define ID_LEN 64
#define UID_LEN 36
/* A node has some hundred containers; whoever fills the folder is not followed. */
#define ENTRIES_MAX 65536

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Characters of DNS names; container runtimes allow these in names as well. */
static bool is_name(char c)
{
	return is_hex(c) || (c >= 'g' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '-' || c == '.';
}

/* The `len` bytes at `s`, where they fit and are all `ok`. */
static bool copy_checked(char *dst, size_t cap, const char *s, size_t len,
			 bool (*ok)(char))
{
	size_t i;

	if (!len || len >= cap)
		return false;
	for (i = 0; i < len; i++)
		if (!ok(s[i]))
			return false;
	memcpy(dst, s, len);
	dst[len] = '\0';
	return true;
}

static bool starts(const char *s, size_t len, const char *with)
{
	size_t n = strlen(with);

	return len > n && !strncmp(s, with, n);
}

/* 64 hex digits, and whose they are by what is before them. */
static void take_container(struct pt_owner *o, const char *s, size_t len,
			   const char *parent, size_t parent_len)
{
	static const struct {
		const char *before, *runtime;
	} kinds[] = {
		{ "docker-", "docker" }, { "cri-containerd-", "containerd" },
		{ "crio-", "cri-o" },	 { "libpod-", "podman" },
	};
	const char *colon = memchr(s, ':', len);
	const char *runtime = "";
	size_t i;

	if (colon) { /* SLICE:cri-containerd:ID */
		len -= (size_t)(colon + 1 - s);
		s = colon + 1;
		if (starts(s, len, "cri-containerd:")) {
			runtime = "containerd";
			s += strlen("cri-containerd:");
			len -= strlen("cri-containerd:");
		}
	}
	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (starts(s, len, kinds[i].before)) {
			runtime = kinds[i].runtime;
			s += strlen(kinds[i].before);
			len -= strlen(kinds[i].before);
		}
	if (len == ID_LEN + strlen(".scope") && !strncmp(s + ID_LEN, ".scope", 6))
		len = ID_LEN;
	if (len != ID_LEN || !copy_checked(o->container, sizeof(o->container), s, len,
					   is_hex))
		return;
	if (!*runtime && parent_len == 6 && !strncmp(parent, "docker", 6))
		runtime = "docker";
	snprintf(o->runtime, sizeof(o->runtime), "%s", runtime);
}

/* A pod's UID, with underscores where systemd took the dashes for its own. */
static void take_pod(struct pt_owner *o, const char *s, size_t len)
{
	char uid[UID_LEN + 1];
	size_t i;

	for (i = 0; i < UID_LEN && i < len; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? s[i] != '-' && s[i] != '_' : !is_hex(s[i]))
			break;
		uid[i] = dash ? '-' : s[i];
	}
	uid[i] = '\0';
	/* static pods have a hash of 32 hex digits */
	if (i < UID_LEN && ((len > 32 && is_hex(s[32])) ||
			    !copy_checked(uid, sizeof(uid), s, len < 32 ? 0 : 32, is_hex)))
		return;
	memcpy(o->pod_uid, uid, strlen(uid) + 1);
}

static void take_lxc(struct pt_owner *o, const char *s, size_t len,
		     const char *parent, size_t parent_len)
{
	const char *name = NULL;

	if (starts(s, len, "lxc.payload."))
		name = s + strlen("lxc.payload.");
	else if (parent_len == 3 && !strncmp(parent, "lxc", 3))
		name = s;
	if (name && !*o->container &&
	    copy_checked(o->container, sizeof(o->container), name,
			 len - (size_t)(name - s), is_name))
		snprintf(o->runtime, sizeof(o->runtime), "lxc");
}

static void take_slurm(struct pt_owner *o, const char *s, size_t len)
{
	if (starts(s, len, "job_"))
		copy_checked(o->slurm_job, sizeof(o->slurm_job), s + 4, len - 4,
			     is_digit);
	else if (*o->slurm_job && starts(s, len, "step_"))
		copy_checked(o->slurm_step, sizeof(o->slurm_step), s + 5, len - 5,
			     is_name);
}

static void take_part(struct pt_owner *o, const char *s, size_t len,
		      const char *parent, size_t parent_len)
{
	const char *pod;

	take_container(o, s, len, parent, parent_len);
	if (starts(s, len, "pod")) {
		take_pod(o, s + 3, len - 3);
	} else if (starts(s, len, "kubepods-")) {
		for (pod = s; pod + 4 < s + len; pod++)
			if (!strncmp(pod, "-pod", 4))
				take_pod(o, pod + 4, (size_t)(s + len - pod - 4));
	}
	take_lxc(o, s, len, parent, parent_len);
	take_slurm(o, s, len);
}

void pt_owner_cgroup(const char *text, struct pt_owner *o)
{
	const char *line, *end, *s, *parent;
	size_t len, parent_len;
	int colons;

	memset(o, 0, sizeof(*o));
	for (line = text; *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		for (s = line, colons = 0; s < end && colons < 2; s++)
			colons += *s == ':';
		parent = s;
		parent_len = 0;
		for (; s < end; s += len) {
			if (*s == '/') {
				len = 1;
				continue;
			}
			len = strcspn(s, "/\n");
			take_part(o, s, len, parent, parent_len);
			parent = s;
			parent_len = len;
		}
	}
}

int pt_owner_container_log(const char *name, struct pt_owner *o)
{
	size_t len = strlen(name), tail = 1 + ID_LEN + strlen(".log");
	const char *ns, *ctr, *end;

	if (len <= tail || strlen(o->container) != ID_LEN)
		return -ENOENT;
	end = name + len - tail;
	if (*end != '-' || strncmp(end + 1, o->container, ID_LEN) ||
	    strcmp(end + 1 + ID_LEN, ".log"))
		return -ENOENT;
	ns = strchr(name, '_');
	ctr = ns ? strchr(ns + 1, '_') : NULL;
	if (!ctr || ctr >= end ||
	    !copy_checked(o->pod, sizeof(o->pod), name, (size_t)(ns - name), is_name) ||
	    !copy_checked(o->pod_namespace, sizeof(o->pod_namespace), ns + 1,
			  (size_t)(ctr - ns - 1), is_name) ||
	    !copy_checked(o->container_name, sizeof(o->container_name), ctr + 1,
			  (size_t)(end - ctr - 1), is_name)) {
		o->pod[0] = o->pod_namespace[0] = o->container_name[0] = '\0';
		return -ENOENT;
	}
	return 0;
}

int pt_owner_pod_log(const char *name, struct pt_owner *o)
{
	const char *pod = strchr(name, '_'), *uid = strrchr(name, '_');

	if (!pod || uid == pod || !*o->pod_uid || strcmp(uid + 1, o->pod_uid))
		return -ENOENT;
	if (!copy_checked(o->pod_namespace, sizeof(o->pod_namespace), name,
			  (size_t)(pod - name), is_name) ||
	    !copy_checked(o->pod, sizeof(o->pod), pod + 1, (size_t)(uid - pod - 1),
			  is_name)) {
		o->pod[0] = o->pod_namespace[0] = '\0';
		return -ENOENT;
	}
	return 0;
}

/* The first entry of a folder that tells. */
static void search(const char *logs, const char *sub, struct pt_owner *o,
		   int (*tell)(const char *, struct pt_owner *))
{
	char path[512];
	struct dirent *e;
	int n = snprintf(path, sizeof(path), "%s/%s", logs, sub), i;
	DIR *d;

	if (n < 0 || (size_t)n >= sizeof(path))
		return;
	d = opendir(path);
	if (!d)
		return; /* no kubelet here */
	for (i = 0; i < ENTRIES_MAX && (e = readdir(d)); i++)
		if (!tell(e->d_name, o))
			break;
	closedir(d);
}

int pt_owner_of(pid_t pid, const char *logs, struct pt_owner *o)
{
	char text[8192];
	ssize_t len = pt_proc_read(pid, "cgroup", text, sizeof(text));

	memset(o, 0, sizeof(*o));
	if (len < 0)
		return (int)len;
	pt_owner_cgroup(text, o);
	if (*o->container)
		search(logs, "containers", o, pt_owner_container_log);
	if (!*o->pod && *o->pod_uid)
		search(logs, "pods", o, pt_owner_pod_log);
	return 0;
}
