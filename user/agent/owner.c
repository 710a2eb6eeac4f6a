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

/* ---- where in the tree ------------------------------------------------------- */

/*
 * A user to whom a group was given (systemd's Delegate, a container's own tree) may
 * name the groups below it as he likes. Pods and batch jobs are told by the groups
 * that only the system makes: from the root on, part by part, and nothing below
 * the container counts. A path that begins with "/.." is told from inside another
 * container's namespace: what comes then is a child of a group of the system's.
 */
#define PARTS 32

struct part {
	const char *s;
	size_t len;
};

static bool is(const struct part *p, const char *name)
{
	return p->len == strlen(name) && !memcmp(p->s, name, p->len);
}

static bool ends(const struct part *p, const char *with)
{
	size_t n = strlen(with);

	return p->len > n && !memcmp(p->s + p->len - n, with, n);
}

/* The parts of one line's path; those that lead up are left out. */
static size_t split(const char *s, const char *end, struct part *v)
{
	size_t n = 0, len;

	for (; s < end && n < PARTS; s += len) {
		if (*s == '/') {
			len = 1;
			continue;
		}
		for (len = 0; s + len < end && s[len] != '/'; len++)
			;
		v[n].s = s;
		v[n].len = len;
		if (n || !is(&v[n], ".."))
			n++;
	}
	return n;
}

/* "kubepods-burstable-podUID.slice", the kubelet's own prefix before it or not. */
static const char *pod_slice(const struct part *p)
{
	size_t i;

	if (!starts(p->s, p->len, "kubepods-") &&
	    !starts(p->s, p->len, "kubelet-kubepods-"))
		return NULL;
	for (i = 0; i + 4 < p->len; i++)
		if (!memcmp(p->s + i, "-pod", 4))
			return p->s + i + 4;
	return NULL;
}

static bool is_kube_group(const struct part *p, bool within)
{
	return is(p, "kubepods") || is(p, "kubepods.slice") ||
	       is(p, "kubelet-kubepods.slice") ||
	       ((starts(p->s, p->len, "kubepods-") ||
		 starts(p->s, p->len, "kubelet-kubepods-")) &&
		ends(p, ".slice")) ||
	       (within && (is(p, "burstable") || is(p, "besteffort") ||
			   is(p, "guaranteed")));
}

/* As the kubelet and its runtimes make them. */
static void take_kube(struct pt_owner *o, const struct part *v, size_t n)
{
	static const struct part none = { "", 0 };
	const struct part *up;
	const char *pod = NULL;
	size_t i = 0, first;

	if (n && (is(&v[0], "kubelet.slice") || is(&v[0], "kubelet")))
		i = 1;
	else if (n > 2 && is(&v[0], "system.slice") && ends(&v[1], ".service") &&
		 memchr(v[2].s, ':', v[2].len))
		i = 2; /* containerd's own, without a driver */
	for (first = i; i < n; i++) {
		pod = pod_slice(&v[i]);
		if (!pod && i > first && starts(v[i].s, v[i].len, "pod"))
			pod = v[i].s + 3;
		if (pod || !is_kube_group(&v[i], i > first))
			break;
	}
	if (!pod)
		return;
	take_pod(o, pod, (size_t)(v[i].s + v[i].len - pod));
	up = i ? &v[i - 1] : &none;
	if (!memchr(v[i].s, ':', v[i].len))
		up = &v[i++];
	if (i < n)
		take_container(o, v[i].s, v[i].len, up->s, up->len);
	o->kubelet = *o->pod_uid != '\0';
}

/* "/slurm/uid_N/job_N/step_N", or below the scope of its daemon. */
static void take_slurm(struct pt_owner *o, const struct part *v, size_t n)
{
	size_t i;

	if (n > 1 && (is(&v[0], "slurm") || starts(v[0].s, v[0].len, "slurm_")) &&
	    starts(v[1].s, v[1].len, "uid_"))
		i = 2;
	else if (n > 1 && is(&v[0], "system.slice") &&
		 (is(&v[1], "slurmstepd.scope") ||
		  ends(&v[1], "_slurmstepd.scope")))
		i = 2; /* several daemons on a node: NODE_slurmstepd */
	else
		return;
	if (i >= n || !starts(v[i].s, v[i].len, "job_") ||
	    !copy_checked(o->slurm_job, sizeof(o->slurm_job), v[i].s + 4,
			  v[i].len - 4, is_digit))
		return;
	if (++i < n && starts(v[i].s, v[i].len, "step_"))
		copy_checked(o->slurm_step, sizeof(o->slurm_step), v[i].s + 5,
			     v[i].len - 5, is_name);
}

/* A container of no pod; a user's own ones are among these. */
static void take_other(struct pt_owner *o, const struct part *v, size_t n)
{
	static const struct part none = { "", 0 };
	size_t i;

	for (i = 0; i < n; i++) {
		const struct part *up = i ? &v[i - 1] : &none;

		take_container(o, v[i].s, v[i].len, up->s, up->len);
		take_lxc(o, v[i].s, v[i].len, up->s, up->len);
	}
}

void pt_owner_cgroup(const char *text, struct pt_owner *o)
{
	const char *line, *end, *s;
	struct part v[PARTS];
	int colons, pass;
	size_t n;

	memset(o, 0, sizeof(*o));
	/* the word of the system in any hierarchy before a user's in another */
	for (pass = 0; pass < 2 && !o->kubelet; pass++)
		for (line = text; *line; line = *end ? end + 1 : end) {
			end = line + strcspn(line, "\n");
			for (s = line, colons = 0; s < end && colons < 2; s++)
				colons += *s == ':';
			n = split(s, end, v);
			if (pass) {
				take_other(o, v, n);
				continue;
			}
			if (!o->kubelet)
				take_kube(o, v, n);
			if (!*o->slurm_job)
				take_slurm(o, v, n);
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
	/* a container's id is anybody's to claim, where the kubelet made no group */
	if (o->kubelet && *o->container)
		search(logs, "containers", o, pt_owner_container_log);
	if (!*o->pod && *o->pod_uid)
		search(logs, "pods", o, pt_owner_pod_log);
	return 0;
}
