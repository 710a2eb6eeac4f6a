// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/procfs.h"
#include "cmd/options.h"
#include "cmd/sudo.h"

static bool id_from_env(const char *name, int64_t *out)
{
	const char *s = getenv(name);

	return s && !pt_parse_int(s, 0, INT32_MAX, out);
}

bool pt_invoker(struct pt_invoker *out)
{
	int64_t uid, gid;

	if (geteuid() || !id_from_env("SUDO_UID", &uid) ||
	    !id_from_env("SUDO_GID", &gid) || !uid)
		return false;
	out->uid = (uid_t)uid;
	out->gid = (gid_t)gid;
	return true;
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

/* Told once: the shell may have ended by the time that an output gets its name. */
static const gid_t *groups_of(const struct pt_invoker *who, int *n)
{
	static gid_t groups[PT_SUDO_GROUPS];
	static int count;

	if (!count) {
		count = groups_of_shell(who->uid, groups, PT_SUDO_GROUPS);
		if (count <= 0) {
			groups[0] = who->gid;
			count = 1;
		}
	}
	*n = count;
	return groups;
}

/* Of this thread alone: the C library's calls are of all of them. */
static int set_fs(uid_t uid, gid_t gid, const gid_t *groups, int n)
{
	if (syscall(SYS_setgroups, n, groups))
		return -errno;
	syscall(SYS_setfsgid, gid);
	syscall(SYS_setfsuid, uid);
	/* these tell of no error, but of what holds now */
	if ((gid_t)syscall(SYS_setfsgid, -1) != gid ||
	    (uid_t)syscall(SYS_setfsuid, -1) != uid)
		return -EPERM;
	return 0;
}

int pt_rights_take(struct pt_rights *old)
{
	struct pt_invoker who;
	const gid_t *groups;
	int n, ret;

	old->other = false;
	if (!pt_invoker(&who))
		return 0;
	old->n = getgroups(PT_SUDO_GROUPS, old->groups);
	if (old->n < 0)
		return -errno;
	groups = groups_of(&who, &n);
	old->other = true;
	ret = set_fs(who.uid, who.gid, groups, n);
	if (ret)
		pt_rights_back(old);
	return ret;
}

void pt_rights_back(const struct pt_rights *old)
{
	int err = errno;

	if (old->other)
		(void)set_fs(geteuid(), getegid(), old->groups, old->n);
	errno = err;
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
