// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/host.h"

#include <errno.h>
#include <math.h>
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "capture/hostinfo.h"
#include "capture/procfs.h"
#include "version.h"

static int64_t total_memory(void)
{
	char text[4096];
	uint64_t kb;

	if (pt_file_read("/proc/meminfo", text, sizeof(text)) <= 0 ||
	    pt_proc_field(text, "MemTotal", &kb) || kb > INT64_MAX >> 10)
		return PT_NULL;
	return (int64_t)(kb << 10);
}

/* Is the target's /dev/shm a tmpfs? Asked before it is touched: a file system
 * of the target's choice could hang whoever does. */
static bool shm_is_tmpfs(pid_t pid)
{
	char path[32], line[4096];
	struct mntent me;
	bool ok = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/mounts", pid);
	f = setmntent(path, "re");
	if (!f)
		return false;
	while (getmntent_r(f, &me, line, sizeof(line)))
		if (!strcmp(me.mnt_dir, "/dev/shm"))
			ok = !strcmp(me.mnt_type, "tmpfs");
	endmntent(f);
	return ok;
}

static int64_t shm_size(pid_t pid)
{
	char path[64];
	struct statvfs vfs;

	snprintf(path, sizeof(path), "/proc/%d/root/dev/shm", pid);
	if (!shm_is_tmpfs(pid) || statvfs(path, &vfs))
		return PT_NULL;
	return (int64_t)vfs.f_blocks * (int64_t)vfs.f_frsize;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  ..." */
static const char *driver_version(struct pt_arena *a)
{
	char text[1024], *p, *end;
	const char *v;

	v = pt_file_line("/sys/module/nvidia/version", text, sizeof(text));
	if (v)
		return pt_arena_strdup(a, v);
	v = pt_file_line("/proc/driver/nvidia/version", text, sizeof(text));
	p = v ? strstr(text, "Kernel Module") : NULL;
	if (!p)
		return NULL;
	p += strcspn(p, "0123456789");
	end = p + strspn(p, "0123456789.");
	return end > p ? pt_arena_strndup(a, p, (size_t)(end - p)) : NULL;
}

/* A copy in the report's arena. 0 or -ENOMEM. */
static int copy(struct pt_report *r, const char **to, const char *s)
{
	*to = pt_arena_strdup(r->arena, s);
	return *to ? 0 : -ENOMEM;
}

/* A missing file is null, no memory an error. */
static int copy_line(struct pt_report *r, const char **to, const char *path)
{
	char buf[256];
	const char *s = pt_file_line(path, buf, sizeof(buf));

	return s ? copy(r, to, s) : 0;
}

int pt_host_report(struct pt_report *r, pid_t trainer, const char *lockdown)
{
	struct pt_r_host *h = &r->host;
	struct utsname u;
	uint64_t quota = pt_quota_mcores(trainer);
	int err = 0;

	h->version = PT_VERSION;
	h->cores = pt_online_cores();
	h->quota_cores = quota ? (double)quota / 1000 : NAN;
	h->memory = total_memory();
	h->shm_size = shm_size(trainer);
	h->driver = driver_version(r->arena);
	if (!uname(&u))
		err = copy(r, &h->hostname, u.nodename) ?: copy(r, &h->kernel, u.release);
	err = err ?: copy_line(r, &h->boot_id, "/proc/sys/kernel/random/boot_id");
	err = err ?: copy_line(r, &h->numa, "/sys/devices/system/node/online");
	if (!err && lockdown && strcmp(lockdown, "unknown"))
		err = copy(r, &h->lockdown, lockdown);
	return err;
}

/* A batch system's job, by the variables that it starts jobs with. */
static int fill_job(struct pt_report *r, pid_t pid)
{
	static const struct {
		const char *kind, *id, *name;
	} kinds[] = {
		{ "slurm", "SLURM_JOB_ID", "SLURM_JOB_NAME" },
		{ "pbs", "PBS_JOBID", "PBS_JOBNAME" },
		{ "lsf", "LSB_JOBID", "LSB_JOBNAME" },
	};
	struct pt_r_target *t = &r->target;
	char buf[256];
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (pt_proc_getenv(pid, kinds[i].id, buf, sizeof(buf)))
			continue;
		t->job_kind = kinds[i].kind;
		if (copy(r, &t->job_id, buf))
			return -ENOMEM;
		return pt_proc_getenv(pid, kinds[i].name, buf, sizeof(buf)) ?
			       0 : copy(r, &t->job_name, buf);
	}
	return 0;
}

static double started_at(const struct pt_proc_stat *st)
{
	long hz = sysconf(_SC_CLK_TCK);

	return hz > 0 ? pt_clock(CLOCK_REALTIME) - pt_clock(CLOCK_BOOTTIME) +
				(double)st->start_ticks / (double)hz : NAN;
}

int pt_target_report(struct pt_report *r, pid_t trainer, pid_t given)
{
	struct pt_r_target *t = &r->target;
	struct pt_proc_stat st;
	char buf[4096];
	uid_t uid;
	int err = 0;

	t->pid = trainer;
	if (given != trainer)
		t->resolved_from = given;
	if (pt_proc_cmdline(trainer, buf, sizeof(buf)) > 0)
		err = copy(r, &t->cmdline, buf);
	if (!pt_proc_stat(trainer, &st)) {
		t->started = started_at(&st);
		err = err ?: copy(r, &t->comm, st.comm);
	}
	if (!pt_proc_uid(trainer, &uid)) {
		pt_user_name(uid, buf, sizeof(buf));
		err = err ?: copy(r, &t->user, buf);
	}
	if (!pt_proc_container(trainer, buf, sizeof(buf)))
		err = err ?: copy(r, &t->container, buf);
	return err ?: fill_job(r, trainer);
}
