/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/disks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fsname.h"
#include "capture/procfs.h"
#include "capture/session.h"

#define MAX_DEVS 64
#define MAX_BASE 256
#define MAX_MOUNTS 20000 /* lines of mountinfo that are looked at */
#define SECTOR 512

struct dev {
	uint32_t dev;
	pid_t pid;  /* who has a file of it */
	bool disk;  /* else a file system */
	bool told;
};

/* A disk's counters when the session began: which ones will matter is not
 * known then. */
struct base {
	struct pt_rec_disk counters;
	uint32_t dev;
};

struct pt_disks {
	struct dev v[MAX_DEVS];
	size_t n;
	struct base base[MAX_BASE];
	size_t n_base;
	uint64_t begun;
};

struct pt_disks *pt_disks_new(void)
{
	struct pt_disks *d = calloc(1, sizeof(*d));
	FILE *f = d ? fopen("/proc/diskstats", "re") : NULL;
	char *line = NULL;
	unsigned maj, min;
	size_t cap = 0;
	int at;

	if (!f)
		return d;
	while (d->n_base < MAX_BASE && getline(&line, &cap, f) > 0) {
		if (sscanf(line, " %u %u %*s%n", &maj, &min, &at) != 2)
			continue;
		d->base[d->n_base].dev = maj << 20 | (min & 0xfffff);
		pt_disk_stat(line + at, &d->base[d->n_base++].counters);
	}
	d->begun = pt_now_ns();
	free(line);
	fclose(f);
	return d;
}

void pt_disks_free(struct pt_disks *d)
{
	free(d);
}

static void remember(struct pt_disks *d, uint32_t dev, pid_t pid, bool disk)
{
	size_t i;

	for (i = 0; i < d->n; i++)
		if (d->v[i].dev == dev && d->v[i].disk == disk)
			return;
	if (d->n < MAX_DEVS)
		d->v[d->n++] = (struct dev){ dev, pid, disk, false };
}

void pt_disks_see(struct pt_disks *d, const void *rec)
{
	const struct pt_rec_file *f = rec;

	if (d && f->hdr.kind == PT_REC_FILE && f->hdr.size >= sizeof(*f))
		remember(d, f->dev, (pid_t)f->hdr.tgid, false);
}

void pt_disks_note(struct pt_disks *d, uint32_t disk)
{
	if (d)
		remember(d, disk, 0, true);
}

/* ---- mountinfo --------------------------------------------------------------- */

/* The next field, in place: `*at` moves behind it; octal escapes are undone. */
static char *field(char **at)
{
	char *s = *at, *from, *to;

	while (*s == ' ')
		s++;
	if (!*s)
		return NULL;
	for (from = to = s; *from && *from != ' ' && *from != '\n';) {
		if (*from == '\\' && from[1] >= '0' && from[1] <= '3' &&
		    from[2] >= '0' && from[2] <= '7' && from[3] >= '0' &&
		    from[3] <= '7') {
			*to++ = (char)((from[1] - '0') << 6 |
				       (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*at = *from ? from + 1 : from;
	*to = 0;
	return s;
}

static void copy(char *to, size_t size, const char *from)
{
	size_t n = from ? strnlen(from, size - 1) : 0;

	memcpy(to, from ? from : "", n);
	to[n] = 0;
}

static void option(const char *options, const char *name, char *out, size_t size)
{
	size_t len = strlen(name);
	const char *p = options;

	out[0] = 0;
	for (; p && *p; p = strchr(p, ','), p = p ? p + 1 : NULL)
		if (!strncmp(p, name, len) && p[len] == '=') {
			snprintf(out, size, "%.*s",
				 (int)strcspn(p + len + 1, ","), p + len + 1);
			return;
		}
}

/* ID PARENT MAJOR:MINOR ROOT MOUNT OPTIONS [TAG...] - TYPE SOURCE OPTIONS */
struct mount {
	uint32_t dev;
	const char *at, *type, *source, *options;
};

static bool parse_mount(char *line, struct mount *m)
{
	unsigned maj, min;
	char *f, *p = line;
	int i;

	for (i = 0; i < 3; i++)
		if (!(f = field(&p)))
			return false;
	if (sscanf(f, "%u:%u", &maj, &min) != 2 || maj >= 1u << 12 ||
	    min >= 1u << 20)
		return false;
	m->dev = maj << 20 | min;
	if (!field(&p) || !(m->at = field(&p)))
		return false;
	do {
		f = field(&p);
	} while (f && strcmp(f, "-"));
	if (!f || !(m->type = field(&p)))
		return false;
	m->source = field(&p);
	m->options = field(&p);
	return true;
}

bool pt_mountinfo_line(const char *line, uint32_t dev, struct pt_rec_disk *out,
		       char *upper, size_t size)
{
	char *text = strdup(line);
	struct mount m = { 0 };
	struct stat st;
	bool ok = false;

	upper[0] = 0;
	if (!text || !parse_mount(text, &m) || m.dev != dev)
		goto out;
	ok = true;
	copy(out->fstype, sizeof(out->fstype), m.type);
	copy(out->mount, sizeof(out->mount), m.at);
	out->cls = (__u16)pt_fs_class(m.type);
	out->disk = 0;
	/* btrfs and the like have numbers of their own */
	if (dev >> 20)
		out->disk = dev;
	else if (m.source && !strncmp(m.source, "/dev/", 5) &&
		 out->cls == PT_FS_LOCAL && !stat(m.source, &st) &&
		 S_ISBLK(st.st_mode))
		out->disk = (uint32_t)major(st.st_rdev) << 20 |
			    (uint32_t)minor(st.st_rdev);
	if (out->cls == PT_FS_UNKNOWN && out->disk)
		out->cls = PT_FS_LOCAL;
	if (!strcmp(m.type, "overlay") && m.options)
		option(m.options, "upperdir", upper, size);
out:
	free(text);
	return ok;
}

/* Where our own mounts have `path`: its class and disk. */
static void stacked_on(const char *path, struct pt_rec_disk *out)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	struct pt_rec_disk one;
	size_t cap = 0, best = 0, n;
	char upper[8], *line = NULL, *text;
	struct mount m;
	int i;

	if (!f)
		return;
	for (i = 0; i < MAX_MOUNTS && getline(&line, &cap, f) > 0; i++) {
		text = strdup(line);
		if (!text)
			break;
		n = parse_mount(text, &m) ? strlen(m.at) : 0;
		if (n && n >= best && !strncmp(path, m.at, n) &&
		    (n == 1 || path[n] == '/' || !path[n])) {
			memset(&one, 0, sizeof(one));
			if (pt_mountinfo_line(line, m.dev, &one, upper,
					      sizeof(upper))) {
				best = n;
				out->cls = one.cls;
				out->disk = one.disk;
			}
		}
		free(text);
	}
	free(line);
	fclose(f);
}

static bool find_mount(const char *file, struct pt_rec_disk *out)
{
	FILE *f = fopen(file, "re");
	char upper[1024] = "", *line = NULL;
	bool found = false;
	size_t cap = 0;
	int i;

	if (!f)
		return false;
	for (i = 0; i < MAX_MOUNTS && !found && getline(&line, &cap, f) > 0; i++)
		found = pt_mountinfo_line(line, out->dev, out, upper,
					  sizeof(upper));
	free(line);
	fclose(f);
	if (found && upper[0] == '/')
		stacked_on(upper, out);
	return found;
}

/* ---- disks --------------------------------------------------------------------- */

static ssize_t sys_text(uint32_t dev, const char *name, char *buf, size_t size)
{
	char path[128];
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", dev >> 20,
		 dev & 0xfffff, name);
	n = pt_file_read(path, buf, size);
	if (n >= 0)
		buf[strcspn(buf, "\n")] = 0;
	return n;
}

/* A partition's disk; a disk itself. 0: no such device here. */
static uint32_t whole_disk(uint32_t dev)
{
	unsigned maj, min;
	char text[32];

	if (sys_text(dev, "partition", text, sizeof(text)) >= 0) {
		if (sys_text(dev, "../dev", text, sizeof(text)) < 0 ||
		    sscanf(text, "%u:%u", &maj, &min) != 2)
			return 0;
		return maj << 20 | (min & 0xfffff);
	}
	return sys_text(dev, "dev", text, sizeof(text)) < 0 ? 0 : dev;
}

void pt_disk_stat(const char *text, struct pt_rec_disk *out)
{
	unsigned long long v[11];

	out->reads = out->read_bytes = out->read_ms = PT_DISK_UNKNOWN;
	out->writes = out->write_bytes = out->write_ms = PT_DISK_UNKNOWN;
	out->busy_ms = out->queue_ms = PT_DISK_UNKNOWN;
	/* Documentation/block/stat.rst */
	if (sscanf(text, "%llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu",
		   &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7],
		   &v[8], &v[9], &v[10]) != 11)
		return;
	out->reads = v[0];
	out->read_bytes = v[2] * SECTOR;
	out->read_ms = v[3];
	out->writes = v[4];
	out->write_bytes = v[6] * SECTOR;
	out->write_ms = v[7];
	out->busy_ms = v[9];
	out->queue_ms = v[10];
}

static void describe_disk(struct pt_rec_disk *r)
{
	char path[64], link[512], text[256];
	const char *name;
	ssize_t n;

	pt_disk_stat("", r);
	r->disk = r->disk ? whole_disk(r->disk) : 0;
	if (!r->disk)
		return;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", r->disk >> 20,
		 r->disk & 0xfffff);
	n = readlink(path, link, sizeof(link) - 1);
	if (n > 0) {
		link[n] = 0;
		name = strrchr(link, '/');
		snprintf(r->name, sizeof(r->name), "%.31s",
			 name ? name + 1 : link);
	}
	if (sys_text(r->disk, "device/model", text, sizeof(text)) >= 0) {
		n = (ssize_t)strlen(text);
		while (n > 0 && text[n - 1] == ' ')
			text[--n] = 0;
		copy(r->model, sizeof(r->model), text);
	}
	if (sys_text(r->disk, "queue/rotational", text, sizeof(text)) >= 0)
		/* "1" is also what a virtual disk has that was told nothing */
		r->flags |= text[0] != '1' ? PT_DISK_F_SOLID :
			    !strncmp(r->name, "vd", 2) ||
					    !strncmp(r->name, "xvd", 3) ?
					     0 : PT_DISK_F_ROTATES;
	if (sys_text(r->disk, "stat", text, sizeof(text)) >= 0)
		pt_disk_stat(text, r);
}

/* `r` as it was when the session began. */
static void tell_base(struct pt_capture *c, const struct pt_disks *all,
		      struct pt_rec_disk r)
{
	const struct pt_rec_disk *b;
	size_t i;

	for (i = 0; i < all->n_base && all->base[i].dev != r.dev; i++)
		;
	if (i == all->n_base)
		return;
	b = &all->base[i].counters;
	r.hdr.ts = all->begun;
	r.reads = b->reads;
	r.read_bytes = b->read_bytes;
	r.read_ms = b->read_ms;
	r.writes = b->writes;
	r.write_bytes = b->write_bytes;
	r.write_ms = b->write_ms;
	r.busy_ms = b->busy_ms;
	r.queue_ms = b->queue_ms;
	pt_queue_record(c, &r, sizeof(r));
}

static void tell(struct pt_capture *c, const struct pt_disks *all, struct dev *d)
{
	struct pt_rec_disk r;
	char file[48];

	pt_rec_begin(&r, sizeof(r), PT_REC_DISK, pt_now_ns(), 0);
	r.dev = d->dev;
	if (d->disk) {
		r.disk = d->dev;
	} else {
		snprintf(file, sizeof(file), "/proc/%d/mountinfo", (int)d->pid);
		/* it may have gone: mounts are mostly the same for all */
		if (!find_mount(file, &r) &&
		    !find_mount("/proc/self/mountinfo", &r))
			r.disk = d->dev >> 20 ? d->dev : 0;
	}
	describe_disk(&r);
	if (d->disk && !d->told)
		tell_base(c, all, r);
	pt_queue_record(c, &r, sizeof(r));
	d->told = true;
}

void pt_disks_tick(struct pt_capture *c, struct pt_disks *d)
{
	size_t i;

	for (i = 0; d && i < d->n; i++)
		if (!d->v[i].told || d->v[i].disk)
			tell(c, d, &d->v[i]);
}
