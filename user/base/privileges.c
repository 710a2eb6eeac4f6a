// SPDX-License-Identifier: BSD-2-Clause
#include "base/privileges.h"

#include <errno.h>
#include <grp.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	cap_value_t cap;
	unsigned keep;
	bool asleep; /* not in effect before pt_privileges_wake() */
} wanted[] = {
	{ CAP_BPF, PT_KEEP_TRACE, false },
	{ CAP_PERFMON, PT_KEEP_TRACE, false },
	{ CAP_SYS_PTRACE, PT_KEEP_LOOK, false },
	{ CAP_DAC_READ_SEARCH, PT_KEEP_LOOK, false },
	{ CAP_CHECKPOINT_RESTORE, PT_KEEP_LOOK, false },
	{ CAP_SYS_ADMIN, PT_KEEP_ADMIN, false },
	{ CAP_SYS_NICE, PT_KEEP_HASTE, false },
	{ CAP_DAC_OVERRIDE, PT_KEEP_INJECT, true },
	{ CAP_DAC_OVERRIDE, PT_KEEP_FILES, false },
	{ CAP_FOWNER, PT_KEEP_FILES, false },
};
#define N_WANTED (sizeof(wanted) / sizeof(*wanted))

static bool is_wanted(cap_value_t c, unsigned keep)
{
	size_t i;

	for (i = 0; i < N_WANTED; i++)
		if (wanted[i].cap == c && (wanted[i].keep & keep))
			return true;
	return false;
}

/* Whoever lacks CAP_SETPCAP cannot lower the bounding set, but has nothing to
 * gain from it either: what it starts is not more than it is (no_new_privs). */
static int lower_bounds(unsigned keep, bool admin)
{
	cap_value_t c;

	for (c = 0; cap_get_bound(c) >= 0; c++)
		if (!is_wanted(c, keep) && !(admin && c == CAP_SYS_ADMIN) && cap_get_bound(c) > 0 && cap_drop_bound(c) &&
		    errno != EPERM)
			return -errno;
	return 0;
}

static bool has(cap_t set, cap_value_t c, cap_flag_t flag)
{
	cap_flag_value_t v;

	/* an error: a kernel that does not know it */
	return set && !cap_get_flag(set, c, flag, &v) && v == CAP_SET;
}

static bool may_trace(cap_flag_t flag)
{
	cap_t now = cap_get_proc();
	bool ok = has(now, CAP_BPF, flag) && has(now, CAP_PERFMON, flag);

	cap_free(now);
	return ok;
}

static int keep_wanted(unsigned keep, bool admin, bool hand_on)
{
	cap_t old = cap_get_proc(), new = cap_init();
	cap_value_t kept[N_WANTED + 1], awake[N_WANTED + 1];
	int n = 0, m = 0, i, ret = old && new ? 0 : -ENOMEM;

	for (i = 0; i < (int)N_WANTED && !ret; i++) {
		if (!(wanted[i].keep & keep) || !has(old, wanted[i].cap, CAP_PERMITTED))
			continue;
		kept[n++] = wanted[i].cap;
		if (!wanted[i].asleep)
			awake[m++] = wanted[i].cap;
	}
	if (!ret && admin && has(old, CAP_SYS_ADMIN, CAP_PERMITTED))
		kept[n++] = awake[m++] = CAP_SYS_ADMIN;
	if (!ret && n &&
	    (cap_set_flag(new, CAP_PERMITTED, n, kept, CAP_SET) ||
	     (m && cap_set_flag(new, CAP_EFFECTIVE, m, awake, CAP_SET)) ||
	     (hand_on && cap_set_flag(new, CAP_INHERITABLE, n, kept, CAP_SET))))
		ret = -errno;
	if (!ret && cap_set_proc(new))
		ret = -errno;
	/* who is not root keeps them over an exec so */
	for (i = 0; i < n && hand_on && !ret; i++)
		if (cap_set_ambient(kept[i], CAP_SET) && errno != EINVAL && errno != EPERM)
			ret = -errno;
	if (!hand_on && !ret && cap_reset_ambient() && errno != EINVAL)
		ret = -errno;
	cap_free(old);
	cap_free(new);
	return ret;
}

static int become(const struct pt_identity *who)
{
	/* else they go with the user */
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) ||
	    setgroups((size_t)who->n, who->groups) ||
	    setresgid(who->gid, who->gid, who->gid) ||
	    setresuid(who->uid, who->uid, who->uid))
		return -errno;
	return geteuid() == who->uid && getuid() == who->uid ? 0 : -EPERM;
}

int pt_privileges_keep(unsigned keep, const struct pt_identity *who, bool hand_on,
		       struct pt_err *err)
{
	bool admin = (keep & PT_KEEP_TRACE) && !(keep & PT_KEEP_ADMIN) &&
		     !may_trace(CAP_PERMITTED);
	int ret = lower_bounds(keep, admin); /* takes one that goes with the user */

	ret = ret ?: who ? become(who) : 0;
	ret = ret ?: keep_wanted(keep, admin, hand_on);
	if (!ret && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		ret = -errno;
	return ret ? pt_err_set(err, ret, "cannot give up privileges: %s", strerror(-ret)) : 0;
}

bool pt_privileges_without_admin(bool (*fn)(void))
{
	cap_t was = cap_get_proc(), now = was ? cap_dup(was) : NULL;
	const cap_value_t admin = CAP_SYS_ADMIN;
	bool ok = now && !cap_set_flag(now, CAP_EFFECTIVE, 1, &admin, CAP_CLEAR) &&
		  !cap_set_proc(now) && fn();

	if (was)
		ok &= !cap_set_proc(was);
	cap_free(was);
	cap_free(now);
	return ok;
}

void pt_privileges_reach(bool far)
{
	const cap_value_t search = CAP_DAC_READ_SEARCH;
	cap_t now = cap_get_proc();
	int err = errno;

	/* a filter that refuses this stands where there is none to give up */
	if (has(now, search, CAP_PERMITTED) &&
	    !cap_set_flag(now, CAP_EFFECTIVE, 1, &search, far ? CAP_SET : CAP_CLEAR) &&
	    cap_set_proc(now))
		abort();
	cap_free(now);
	errno = err;
}

void pt_privileges_wake(void)
{
	cap_t now = cap_get_proc();
	size_t i;

	for (i = 0; i < N_WANTED && now; i++)
		if (has(now, wanted[i].cap, CAP_PERMITTED))
			cap_set_flag(now, CAP_EFFECTIVE, 1, &wanted[i].cap, CAP_SET);
	/* what is not there fails where it is needed, and is told there */
	if (now && cap_set_proc(now))
		errno = 0;
	cap_free(now);
}

bool pt_privileges_trace(void)
{
	return may_trace(CAP_EFFECTIVE);
}

/* Bytes of data that we have from our parent. */
static rlim_t own_data(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fscanf(f, "%*u %*u %*u %*u %*u %lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static int limit(int what, rlim_t value)
{
	struct rlimit r = { value, value };

	/* a lower one stays */
	return setrlimit(what, &r) && errno != EPERM ? -errno : 0;
}

int pt_confine_child(int fd, uint64_t more)
{
	int ret;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || prctl(PR_SET_DUMPABLE, 0))
		return -errno;
	if (fd > 0)
		syscall(SYS_close_range, 0, fd - 1, 0);
	syscall(SYS_close_range, fd + 1, ~0u, 0);
	ret = limit(RLIMIT_DATA, own_data() + more);
	ret = ret ?: limit(RLIMIT_FSIZE, 0);
	return ret ?: limit(RLIMIT_CORE, 0);
}
