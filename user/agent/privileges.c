// SPDX-License-Identifier: BSD-2-Clause
#include "agent/privileges.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>

static const cap_value_t wanted[] = {
	CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH,
	CAP_CHECKPOINT_RESTORE,
};
#define N_WANTED (sizeof(wanted) / sizeof(*wanted))
#define N_NEEDED 2 /* of them, without which nothing works */

static bool is_wanted(cap_value_t c)
{
	size_t i;

	for (i = 0; i < N_WANTED; i++)
		if (wanted[i] == c)
			return true;
	return false;
}

/* Whoever lacks CAP_SETPCAP cannot lower the bounding set, but has nothing to
 * gain from it either: what it starts is not more than it is (no_new_privs). */
static int lower_bounds(void)
{
	cap_value_t c;

	for (c = 0; cap_get_bound(c) >= 0; c++)
		if (!is_wanted(c) && cap_get_bound(c) > 0 && cap_drop_bound(c) &&
		    errno != EPERM)
			return -errno;
	return 0;
}

static int keep_wanted(struct pt_err *err)
{
	cap_t old = cap_get_proc(), new = cap_init();
	cap_value_t keep[N_WANTED];
	cap_flag_value_t has;
	size_t i;
	int n = 0, ret = 0;

	if (!old || !new) {
		ret = pt_err_set(err, -ENOMEM, "out of memory");
		goto out;
	}
	for (i = 0; i < N_WANTED; i++) {
		if (cap_get_flag(old, wanted[i], CAP_PERMITTED, &has))
			has = CAP_CLEAR; /* a kernel that does not know it */
		if (has == CAP_SET)
			keep[n++] = wanted[i];
		else if (i < N_NEEDED)
			ret = -EPERM;
	}
	if (ret) {
		pt_err_set(err, ret, "the agent loads BPF programs, for which it "
			   "needs root, or CAP_BPF and CAP_PERFMON");
		goto out;
	}
	/* inheritable and ambient: who is not root keeps them over an exec */
	if (cap_set_flag(new, CAP_PERMITTED, n, keep, CAP_SET) ||
	    cap_set_flag(new, CAP_EFFECTIVE, n, keep, CAP_SET) ||
	    cap_set_flag(new, CAP_INHERITABLE, n, keep, CAP_SET) ||
	    cap_set_proc(new)) {
		ret = pt_err_set(err, -errno, "cannot drop capabilities: %s",
				 strerror(errno));
		goto out;
	}
	for (i = 0; i < (size_t)n; i++)
		if (cap_set_ambient(keep[i], CAP_SET) && errno != EINVAL &&
		    errno != EPERM)
			ret = pt_err_set(err, -errno, "cannot keep a capability: "
					 "%s", strerror(errno));
out:
	cap_free(old);
	cap_free(new);
	return ret;
}

int pt_privileges_drop(struct pt_err *err)
{
	int ret = lower_bounds();

	if (ret)
		return pt_err_set(err, ret, "cannot drop capabilities: %s",
				  strerror(-ret));
	ret = keep_wanted(err);
	if (!ret && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		ret = pt_err_set(err, -errno, "cannot give up new privileges");
	return ret;
}
