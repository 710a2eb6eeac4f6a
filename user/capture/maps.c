/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/maps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* A process may map as much as vm.max_map_count allows; more is refused. */
#define MAX_MAPS (1u << 20)
#define DELETED " (deleted)"

/* linux/fs.h since 6.11 */
struct query {
	uint64_t size, flags, addr; /* in */
	uint64_t start, end, vma_flags, page_size, offset, inode;
	uint32_t dev_major, dev_minor;
	uint32_t name_size, build_id_size;
	uint64_t name, build_id;
};
_Static_assert(sizeof(struct query) == 104, "struct procmap_query");
#define QUERY _IOWR('f', 17, struct query)
#define QUERY_EXECUTABLE 0x04
#define QUERY_OR_NEXT 0x10
#define QUERY_OF_FILE 0x20

/* A file's name: all of `text`, or its first line. */
static bool take_name(struct pt_gpulib *g, const char *text)
{
	size_t len = strcspn(text, "\n");

	if (*text != '/' || !g->inode || g->end <= g->start || len >= sizeof(g->path_display))
		return false;
	memcpy(g->path_display, text, len);
	g->path_display[len] = '\0';
	if (len > strlen(DELETED) &&
	    !strcmp(g->path_display + len - strlen(DELETED), DELETED)) {
		g->deleted = true;
		g->path_display[len - strlen(DELETED)] = '\0';
	}
	g->kind = pt_gpulib_kind(g->path_display);
	return true;
}

static bool parse(const char *line, struct pt_gpulib *g, char *perms)
{
	unsigned int major, minor;
	int at = 0;

	memset(g, 0, sizeof(*g));
	if (sscanf(line,
		   "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64
		   " %n",
		   &g->start, &g->end, perms, &g->offset, &major, &minor,
		   &g->inode, &at) < 7 || !at)
		return false;
	g->dev = major << 20 | minor;
	return take_name(g, line + at);
}

static bool parse_exec(const char *line, struct pt_gpulib *out)
{
	char perms[5];

	return parse(line, out, perms) && strchr(perms, 'x');
}

bool pt_gpulib_parse(const char *line, struct pt_gpulib *out)
{
	return parse_exec(line, out) && out->kind != 0;
}

/* A line's end in a name, as the text has it. */
static void escape(char *name, size_t size)
{
	char *c;

	while ((c = strchr(name, '\n'))) {
		size_t rest = strlen(c + 1) + 1;

		if ((size_t)(c - name) + 4 + rest > size) {
			*c = '\0';
			return;
		}
		memmove(c + 4, c + 1, rest);
		memcpy(c, "\\012", 4);
	}
}

/* The mapping that holds `addr`, or by the flags the next one: 0, -ENOENT there is none,
 * -EAGAIN its name is too long to be told, or -errno. */
static int query(const struct pt_filemaps *m, uint64_t addr, uint64_t flags,
		 struct pt_gpulib *out)
{
	char name[PT_GPULIB_PATH];
	struct query q = { .size = sizeof(q), .flags = flags, .addr = addr,
			   .name_size = sizeof(name), .name = (uintptr_t)name };
	int err = 0;

	memset(out, 0, sizeof(*out));
	if (ioctl(fileno(m->f), QUERY, &q)) {
		if (errno != ENAMETOOLONG)
			return -errno;
		q = (struct query){ .size = sizeof(q), .flags = flags, .addr = addr };
		if (ioctl(fileno(m->f), QUERY, &q))
			return -errno;
		err = -EAGAIN;
	}
	out->start = q.start;
	out->end = q.end;
	out->offset = q.offset;
	out->inode = q.inode;
	out->dev = q.dev_major << 20 | q.dev_minor;
	out->pid = m->pid;
	name[q.name_size && q.name_size < sizeof(name) ? q.name_size : sizeof(name) - 1] = '\0';
	if (err || !q.name_size)
		return -EAGAIN;
	escape(name, sizeof(name));
	return take_name(out, name) ? 0 : -EAGAIN;
}

/* An older kernel's answer, or a filter's. */
static bool is_unknown(int err)
{
	return err == -ENOTTY || err == -EINVAL || err == -EOPNOTSUPP || err == -ENOSYS ||
	       err == -EPERM || err == -EACCES;
}

int pt_filemaps_open(struct pt_filemaps *m, pid_t pid, bool ask)
{
	char path[32];

	*m = (struct pt_filemaps){ .pid = pid, .asks = ask };
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	m->f = fopen(path, "re");
	if (!m->f)
		return errno == ENOENT ? -ESRCH : -errno;
	return 0;
}

bool pt_filemaps_next(struct pt_filemaps *m, struct pt_gpulib *out)
{
	int err = 0;

	while (m->asks && m->seen < MAX_MAPS) {
		err = query(m, m->at, QUERY_EXECUTABLE | QUERY_OR_NEXT | QUERY_OF_FILE, out);
		if (err && err != -EAGAIN)
			break;
		m->seen++;
		m->at = out->end;
		if (!err)
			return true;
	}
	if (m->asks && (m->seen || !is_unknown(err))) {
		m->err = err == -ENOENT || m->seen == MAX_MAPS ? 0 : err;
		return false;
	}
	m->asks = false;
	while (m->seen++ < MAX_MAPS && getline(&m->line, &m->cap, m->f) > 0) {
		if (!parse_exec(m->line, out))
			continue;
		out->pid = m->pid;
		return true;
	}
	m->err = ferror(m->f) ? -EIO : 0;
	return false;
}

void pt_filemaps_close(struct pt_filemaps *m)
{
	free(m->line);
	if (m->f)
		fclose(m->f);
	*m = (struct pt_filemaps){ 0 };
}

/* Any mapping of a file, whatever may be done with it, from the text. */
static int read_at(struct pt_filemaps *m, uint64_t addr, struct pt_gpulib *out)
{
	uint64_t begin, end;
	char perms[5];

	while (m->seen++ < MAX_MAPS && getline(&m->line, &m->cap, m->f) > 0) {
		if (sscanf(m->line, "%" SCNx64 "-%" SCNx64, &begin, &end) != 2 ||
		    addr < begin || addr >= end)
			continue;
		if (!parse(m->line, out, perms))
			return -ENOENT;
		out->pid = m->pid;
		return 0;
	}
	return -ENOENT;
}

int pt_mapping_at(pid_t pid, uint64_t addr, struct pt_gpulib *out)
{
	struct pt_filemaps m;
	int ret = pt_filemaps_open(&m, pid, true);

	if (!ret) {
		ret = query(&m, addr, QUERY_OF_FILE, out);
		if (is_unknown(ret))
			ret = read_at(&m, addr, out);
		else if (ret == -EAGAIN)
			ret = -ENOENT;
	}
	pt_filemaps_close(&m);
	return ret;
}
