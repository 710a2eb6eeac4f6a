// SPDX-License-Identifier: BSD-2-Clause
#include "capture/hostinfo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/records.h"
#include "capture/procfs.h"

int64_t pt_online_cores(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n > 0 ? n : 0;
}

/* The quota set in one cgroup directory; 0 none. */
static uint64_t quota_at(const char *dir, int version)
{
	char path[1700], text[128], *end;
	uint64_t quota, period = 0;

	snprintf(path, sizeof(path), "%s/%s", dir,
		 version == 1 ? "cpu.cfs_quota_us" : "cpu.max");
	if (pt_file_read(path, text, sizeof(text)) <= 0 || text[0] == '-' ||
	    !strncmp(text, "max", 3))
		return 0;
	quota = strtoull(text, &end, 10);
	if (version == 1) {
		snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", dir);
		if (pt_file_read(path, text, sizeof(text)) <= 0)
			return 0;
		end = text;
	}
	period = strtoull(end, NULL, 10);
	if (!period || quota > UINT64_MAX / 1000)
		return 0;
	return quota * 1000 / period;
}

uint64_t pt_quota_mcores(pid_t pid)
{
	char dir[1600], *slash;
	uint64_t q, least = 0;
	int version = pt_cgroup_dir_of(pid, "cpu", dir, sizeof(dir));

	if (version < 0)
		return 0;
	/* the tightest of the cgroup and all that it lies in; above the mount
	 * point there simply are no such files */
	for (;;) {
		q = quota_at(dir, version);
		if (q && (!least || q < least))
			least = q;
		slash = strrchr(dir, '/');
		if (!slash || slash == dir)
			return least;
		*slash = '\0';
	}
}

void pt_host_record(pid_t trainer, uint64_t now_ns, struct pt_rec_host *out)
{
	char buf[64];
	const char *id;

	pt_rec_begin(out, sizeof(*out), PT_REC_HOST, now_ns, (uint32_t)trainer);
	out->cores = (uint32_t)pt_online_cores();
	out->target_pid = (uint32_t)trainer;
	out->quota_mcores = pt_quota_mcores(trainer);
	id = pt_file_line("/proc/sys/kernel/random/boot_id", buf, sizeof(buf));
	if (id)
		snprintf(out->boot_id, sizeof(out->boot_id), "%.39s", id);
}
