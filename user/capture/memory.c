// SPDX-License-Identifier: BSD-2-Clause
/* The memory that there is for the job and for its files' pages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/procfs.h"
#include "capture/session.h"

#define UNKNOWN PT_MEMORY_UNKNOWN
/* Version 1 writes "no limit" as the largest number of whole pages. */
#define NO_LIMIT (1ull << 62)

static uint64_t pages_of(uint64_t n)
{
	long size = sysconf(_SC_PAGESIZE);

	return n == UNKNOWN || size <= 0 || n > UINT64_MAX / (uint64_t)size - 1 ?
		       UNKNOWN : n * (uint64_t)size;
}

static uint64_t number_in(const char *dir, const char *name)
{
	char path[1700], text[64], *end;
	uint64_t v;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >=
		    (int)sizeof(path) ||
	    pt_file_read(path, text, sizeof(text)) <= 0)
		return UNKNOWN;
	v = strtoull(text, &end, 10);
	return end == text ? UNKNOWN : v; /* "max" */
}

static uint64_t meminfo(const char *text, const char *key)
{
	uint64_t kb;

	return pt_proc_field(text, key, &kb) || kb > UINT64_MAX >> 11 ? UNKNOWN :
									kb << 10;
}

static void host_memory(struct pt_rec_memory *m)
{
	char text[16384];
	uint64_t cached, buffers, shmem;

	if (pt_file_read("/proc/meminfo", text, sizeof(text)) > 0) {
		m->total = meminfo(text, "MemTotal");
		m->available = meminfo(text, "MemAvailable");
		cached = meminfo(text, "Cached");
		buffers = meminfo(text, "Buffers");
		shmem = meminfo(text, "Shmem");
		if (cached != UNKNOWN && buffers != UNKNOWN && shmem != UNKNOWN &&
		    cached + buffers >= shmem)
			m->cache = cached + buffers - shmem;
	}
	if (pt_file_read("/proc/vmstat", text, sizeof(text)) > 0) {
		m->refaulted = pt_file_key(text, "workingset_refault_file");
		if (m->refaulted == UNKNOWN) /* before 5.9 */
			m->refaulted = pt_file_key(text, "workingset_refault");
		m->refaulted = pages_of(m->refaulted);
	}
}

static bool stat_of(const char *dir, char *text, size_t size)
{
	char path[1700];

	return snprintf(path, sizeof(path), "%s/memory.stat", dir) <
		       (int)sizeof(path) &&
	       pt_file_read(path, text, size) > 0;
}

/* Its numbers take the cgroups below it in. */
static void group_memory(const char *dir, int version, struct pt_rec_memory *m)
{
	char text[16384];
	bool old = version == 1;

	m->used = number_in(dir, old ? "memory.usage_in_bytes" :
				       "memory.current");
	if (!stat_of(dir, text, sizeof(text)))
		return;
	m->used_cache = pt_file_key(text, old ? "total_cache" : "file");
	m->used_shm = pt_file_key(text, old ? "total_shmem" : "shmem");
}

/* What came back into the job's own cgroup, whoever's limit had driven it out:
 * where it has one, and not the root's. */
static void group_refaults(const char *dir, int version,
			   struct pt_rec_memory *m)
{
	char above[1600], text[16384], *slash;
	uint64_t again;

	snprintf(above, sizeof(above), "%s", dir);
	slash = strrchr(above, '/');
	if (!slash || slash == above)
		return;
	*slash = '\0';
	if (!stat_of(above, text, sizeof(text)) ||
	    !stat_of(dir, text, sizeof(text)))
		return;
	again = pt_file_key(text, version == 1 ? "total_workingset_refault_file" :
					      "workingset_refault_file");
	if (again == UNKNOWN) /* before 5.9 */
		again = pt_file_key(text, "workingset_refault");
	if (again == UNKNOWN)
		return;
	m->refaulted = pages_of(again);
	m->refaulted_in = PT_MEMORY_CGROUP;
}

/* The tightest limit of the cgroup and all that it lies in. */
static void limits(pid_t pid, struct pt_rec_memory *m)
{
	char dir[1600], tightest[1600] = "", *slash;
	int version = pt_cgroup_dir_of(pid, "memory", dir, sizeof(dir));
	uint64_t v;

	if (version < 0)
		return;
	group_refaults(dir, version, m);
	for (;;) {
		v = number_in(dir, version == 1 ? "memory.limit_in_bytes" :
						  "memory.max");
		if (v < NO_LIMIT && v < m->limit) {
			m->limit = v;
			memcpy(tightest, dir, sizeof(dir));
		}
		slash = strrchr(dir, '/');
		if (!slash || slash == dir)
			break;
		*slash = '\0';
	}
	if (tightest[0] && m->limit < m->total)
		group_memory(tightest, version, m);
	else
		m->limit = UNKNOWN;
}

/*
 * Memory of this machine, by /proc/meminfo and /proc/vmstat, and of the
 * tightest memory limit on the process `pid`, version 1 or 2. What cannot be
 * read is PT_MEMORY_UNKNOWN. Bytes.
 */
static void memory_record(pid_t pid, uint64_t now_ns, struct pt_rec_memory *out)
{
	pt_rec_begin(out, sizeof(*out), PT_REC_MEMORY, now_ns, (uint32_t)pid);
	out->total = out->available = out->cache = UNKNOWN;
	out->limit = out->used = out->used_cache = out->used_shm = UNKNOWN;
	out->refaulted = UNKNOWN;
	out->refaulted_in = PT_MEMORY_HOST;
	host_memory(out);
	limits(pid, out);
}

void pt_memory(struct pt_capture *c)
{
	struct pt_rec_memory m;

	memory_record(c->trainer, pt_now_ns(), &m);
	pt_queue_record(c, &m, sizeof(m));
}
