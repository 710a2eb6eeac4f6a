// SPDX-License-Identifier: BSD-2-Clause
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/records.h"
#include "capture/discover.h"
#include "capture/procfs.h"
#include "capture/sampler.h"

#define UNKNOWN64 (~(__u64)0)
#define MAX_FDS 65536

static uint32_t count_fds(pid_t pid)
{
	char path[32];
	struct stat st;
	uint32_t n = 0;
	struct dirent *de;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	/* 6.2 and later give the count as the directory's size */
	if (!stat(path, &st) && st.st_size > 0 && st.st_size < MAX_FDS)
		return (uint32_t)st.st_size;
	dir = opendir(path);
	if (!dir)
		return ~0u;
	while (n < MAX_FDS && (de = readdir(dir)))
		n += de->d_name[0] != '.';
	closedir(dir);
	return n;
}

static uint64_t throttled_in(const char *groups)
{
	char dir[1600], path[1700], text[4096];
	uint64_t v;
	int version = pt_cgroup_dir(groups, "cpu", dir, sizeof(dir));

	if (version < 0)
		return UNKNOWN64;
	snprintf(path, sizeof(path), "%s/cpu.stat", dir);
	if (pt_file_read(path, text, sizeof(text)) < 0)
		return UNKNOWN64;
	if (version == 1)
		return pt_file_key(text, "throttled_time");
	v = pt_file_key(text, "throttled_usec");
	return v > UNKNOWN64 / 1000 ? UNKNOWN64 : v * 1000;
}

uint64_t pt_throttled_ns(pid_t pid, struct pt_throttled *last)
{
	char groups[sizeof(last->groups)];

	if (pt_proc_read(pid, "cgroup", groups, sizeof(groups)) < 0)
		return UNKNOWN64;
	if (!last->groups[0] || strcmp(groups, last->groups)) {
		strcpy(last->groups, groups);
		last->ns = throttled_in(groups);
	}
	return last->ns;
}

static uint64_t kb_field(const char *text, const char *key)
{
	uint64_t v;

	return pt_proc_field(text, key, &v) || v > UINT64_MAX >> 10 ? 0 :
								      v << 10;
}

static uint64_t field(const char *text, const char *key)
{
	uint64_t v;

	return pt_proc_field(text, key, &v) ? 0 : v;
}

int pt_list_count(const char *text)
{
	long long a, b, n = 0;
	char *end;

	for (;;) {
		if (*text < '0' || *text > '9')
			return -1;
		a = b = strtoll(text, &end, 10);
		if (*end == '-') {
			text = end + 1;
			if (*text < '0' || *text > '9')
				return -1;
			b = strtoll(text, &end, 10);
		}
		if (b < a || b > 1 << 20)
			return -1;
		n += b - a + 1;
		if (*end != ',')
			return n > 1 << 20 ? -1 : (int)n;
		text = end + 1;
	}
}

/* "Key:<tab>0-3" in a status text. */
static int list_field(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	if (!p)
		return PT_PROC_UNKNOWN;
	p += strlen(key);
	return pt_list_count(p + strspn(p, ": \t"));
}

static int env_number(const struct pt_env *e, const char *name)
{
	char buf[16], *end;
	long v;

	if (pt_env_get(e, name, buf, sizeof(buf)))
		return PT_PROC_UNKNOWN;
	v = strtol(buf, &end, 10);
	return end != buf && !*end && v >= 0 && v < 1 << 24 ? (int)v :
							      PT_PROC_UNKNOWN;
}

void pt_proc_facts(pid_t pid, uint64_t now_ns, struct pt_rec_proc *out)
{
	char text[4096];
	struct pt_env e;

	pt_rec_begin(out, sizeof(*out), PT_REC_PROC, now_ns, (uint32_t)pid);
	if (pt_env_read(pid, &e))
		e.len = 0;
	out->rank = pt_rank_in(&e);
	out->world = env_number(&e, "WORLD_SIZE");
	out->omp_threads = env_number(&e, "OMP_NUM_THREADS");
	pt_env_free(&e);
	out->cpus_allowed = out->mem_nodes = PT_PROC_UNKNOWN;
	if (pt_proc_read(pid, "status", text, sizeof(text)) < 0)
		return;
	out->cpus_allowed = list_field(text, "Cpus_allowed_list");
	out->mem_nodes = list_field(text, "Mems_allowed_list");
}

int pt_sample_process(pid_t pid, uint64_t now_ns, struct pt_throttled *last,
		      struct pt_rec_sample *out)
{
	struct pt_proc_stat st;
	char text[4096];
	ssize_t len;
	int ret;

	pt_rec_begin(out, sizeof(*out), PT_REC_SAMPLE, now_ns, (uint32_t)pid);
	ret = pt_proc_stat(pid, &st);
	if (ret)
		return ret;
	if (st.state == 'Z' || st.state == 'X')
		return -ESRCH;
	len = pt_proc_read(pid, "status", text, sizeof(text));
	if (len < 0)
		return (int)len;
	out->rss_anon = kb_field(text, "RssAnon");
	out->rss_file = kb_field(text, "RssFile");
	out->rss_shmem = kb_field(text, "RssShmem");
	out->utime_ns = st.utime_ns;
	out->stime_ns = st.stime_ns;
	out->threads = st.threads;
	/* refused to those who may not trace the process: counters stay 0 */
	if (pt_proc_read(pid, "io", text, sizeof(text)) > 0) {
		out->rchar = field(text, "rchar");
		out->read_bytes = field(text, "read_bytes");
		out->write_bytes = field(text, "write_bytes");
	}
	out->fds = count_fds(pid);
	out->throttled_ns = pt_throttled_ns(pid, last);
	return 0;
}
