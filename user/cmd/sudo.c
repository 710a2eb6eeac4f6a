// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/privileges.h"
#include "capture/capture.h"
#include "capture/procfs.h"
#include "cmd/options.h"
#include "cmd/sudo.h"

#define MAX_GROUPS 1024

/* -1 is nobody's. 1; 0: it is not set; or -EINVAL. */
static int id_from_env(const char *name, int64_t *out)
{
	const char *s = getenv(name);

	return !s ? 0 : pt_parse_int(s, 0, UINT32_MAX - 1, out) ? -EINVAL : 1;
}

int pt_invoker(struct pt_invoker *out, struct pt_err *err)
{
	int64_t uid = 0, gid = 0;
	int has = geteuid() ? 0 : id_from_env("SUDO_UID", &uid);

	if (!has || (has > 0 && !uid))
		return 0;
	/* whom it is for cannot be told: it is not for root, then */
	if (has < 0 || id_from_env("SUDO_GID", &gid) <= 0)
		return pt_err_set(err, -EINVAL, "SUDO_UID and SUDO_GID do not name a user and a "
				  "group: to run as root, take them away (env -u SUDO_UID)");
	out->uid = (uid_t)uid;
	out->gid = (gid_t)gid;
	return 1;
}

/*
 * Supplementary groups as the invoking user's own shell has them: it is among
 * our ancestors. The group database would need a directory service.
 */
static int groups_of_shell(uid_t uid, gid_t *out, int max)
{
	struct pt_proc_stat st;
	char text[16384], *p, *end;
	pid_t pid = getppid();
	uid_t owner;
	int depth, n = 0;

	for (depth = 0; depth < 32 && pid > 1; depth++, pid = st.ppid) {
		if (pt_proc_stat(pid, &st))
			return -ESRCH;
		if (pt_proc_uid(pid, &owner) || owner != uid)
			continue;
		if (pt_proc_read(pid, "status", text, sizeof(text)) <= 0)
			return -ESRCH;
		p = strstr(text, "\nGroups:");
		if (!p)
			return -ESRCH;
		for (p += strlen("\nGroups:"); n < max; p = end) {
			while (*p == ' ' || *p == '\t')
				p++;
			if (*p < '0' || *p > '9')
				break;
			out[n++] = (gid_t)strtoul(p, &end, 10);
		}
		return n;
	}
	return -ESRCH;
}

static const gid_t *groups_of(const struct pt_invoker *who, int *n)
{
	static gid_t groups[MAX_GROUPS];
	static int count;

	if (!count) {
		count = groups_of_shell(who->uid, groups, MAX_GROUPS);
		if (count <= 0) {
			groups[0] = who->gid;
			count = 1;
		}
	}
	*n = count;
	return groups;
}

static uid_t asked_by; /* 0: nobody */

bool pt_asked_by(uid_t *uid)
{
	*uid = asked_by;
	return asked_by;
}

/* Kernels before 5.11 charge maps to it; without root it cannot be raised. */
static void lift_locked_memory(void)
{
	struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };

	if (setrlimit(RLIMIT_MEMLOCK, &none))
		return; /* the kernel says so where it matters */
}

int pt_give_up(enum pt_rights what, unsigned how)
{
	static const struct {
		unsigned keep;
		enum pt_filter filter;
	} of[] = {
		[PT_RIGHTS_LOOK] = { PT_KEEP_LOOK, PT_FILTER_TRACE },
		[PT_RIGHTS_TRACE] = { PT_KEEP_TRACE | PT_KEEP_HASTE, PT_FILTER_TRACE },
		[PT_RIGHTS_INJECT] = { PT_KEEP_TRACE | PT_KEEP_HASTE | PT_KEEP_INJECT,
				       PT_FILTER_INJECT },
		[PT_RIGHTS_FILES] = { 0, PT_FILTER_FILES },
		[PT_RIGHTS_NET] = { 0, PT_FILTER_TRACE },
	};
	struct pt_invoker who = { 0 };
	struct pt_identity id;
	struct pt_err err;
	int other = how & PT_STAY ? 0 : pt_invoker(&who, &err), ret;
	unsigned keep = of[what].keep | (other ? 0 : PT_KEEP_FILES);

	if (other < 0)
		return pt_fail(other, "%s", err.msg);
	if (keep & PT_KEEP_TRACE) {
		lift_locked_memory();
		keep |= pt_capture_keep(how & PT_PERF_DOOR);
	}
	id = (struct pt_identity){ .uid = who.uid, .gid = who.gid };
	if (other)
		id.groups = groups_of(&who, &id.n);
	ret = pt_privileges_keep(keep, other ? &id : NULL, false, &err);
	if (!ret && other)
		asked_by = who.uid;
	ret = ret ?: pt_filter_set(of[what].filter, &err);
	if (ret)
		pt_error("%s", err.msg);
	return ret;
}

void pt_give_up_rest(void)
{
	struct pt_err err;

	(void)pt_privileges_keep(asked_by ? 0 : PT_KEEP_FILES, NULL, false, &err);
}

static bool find_user(uid_t uid, char *name, size_t name_size, char *home,
		      size_t home_size)
{
	struct passwd pw, *p;
	char line[2048];
	bool found = false;
	FILE *f = fopen("/etc/passwd", "re");

	if (!f)
		return false;
	while (!found && !fgetpwent_r(f, &pw, line, sizeof(line), &p)) {
		found = pw.pw_uid == uid;
		if (found) {
			snprintf(name, name_size, "%s", pw.pw_name);
			snprintf(home, home_size, "%s", pw.pw_dir);
		}
	}
	fclose(f);
	return found;
}

int pt_become(const struct pt_invoker *who)
{
	char name[256], home[1024];
	const gid_t *groups;
	int n;

	groups = groups_of(who, &n);
	if (setgroups((size_t)n, groups) ||
	    setresgid(who->gid, who->gid, who->gid) ||
	    setresuid(who->uid, who->uid, who->uid))
		return -errno;
	/* never run a user's command as root because this went wrong */
	if (geteuid() != who->uid || getuid() != who->uid || !setuid(0))
		return -EPERM;
	if (find_user(who->uid, name, sizeof(name), home, sizeof(home)) &&
	    (setenv("HOME", home, 1) || setenv("USER", name, 1) ||
	     setenv("LOGNAME", name, 1)))
		return -ENOMEM;
	return 0;
}
