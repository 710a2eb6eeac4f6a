/* SPDX-License-Identifier: BSD-2-Clause */
#include "agent/sample.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/vec.h"

#define DURATION_MAX 86400.0
#define BYTES_MAX 1e18
#define COUNT_MAX 1e15

/* A figure in [0, max], or 0. */
static double or_zero(double x, double max)
{
	return x >= 0 && x <= max ? x : 0;
}

static double count(int64_t n, double max)
{
	return n == PT_NULL ? 0 : or_zero((double)n, max);
}

/* Shares of the window become GPU-seconds; what one device does not know is not
 * known of the sum. */
static void add_device(struct pt_sample *s, const struct pt_r_gpu *g)
{
	size_t i;

	s->gpus++;
	s->busy_s += g->busy_share * s->duration;
	for (i = 0; i < 2; i++) {
		s->busy_hard_s[i] += g->busy_hard[i] * s->duration;
		s->busy_likely_s[i] += g->busy_likely[i] * s->duration;
		s->starved_s[i] += g->starved_share[i] * s->duration;
	}
	for (i = 0; i < g->n_idle_causes; i++)
		s->idle_s[g->idle_causes[i].cause] +=
			or_zero(g->idle_causes[i].seconds, DURATION_MAX);
}

/* Ids become labels: nothing but the letters that they are made of. */
static bool take_id(char *dst, size_t cap, const char *id)
{
	size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyz_0123456789");

	if (!n || id[n] || n >= cap)
		return false;
	memcpy(dst, id, n + 1);
	return true;
}

static void add_verdict(struct pt_sample *s, const struct pt_r_verdict *v)
{
	struct pt_sample_verdict x = { .severity = (uint8_t)v->severity,
				       .root = !v->consequence_of };

	if (s->n_verdicts < PT_SAMPLE_VERDICTS &&
	    take_id(x.id, sizeof(x.id), v->id))
		s->verdict[s->n_verdicts++] = x;
}

static void add_steps(struct pt_sample *s, const struct pt_r_steps *steps)
{
	size_t i;

	s->steps = steps->count == PT_NULL ? NAN : (double)steps->count;
	for (i = 0; i < steps->n_list && s->n_step_s < PT_SAMPLE_STEPS; i++) {
		const struct pt_r_step *one = &steps->list[i];
		double sec = (double)(one->end_ns - one->begin_ns) / 1e9;

		if (sec > 0 && sec < DURATION_MAX)
			s->step_s[s->n_step_s++] = (float)sec;
	}
}

const char *pt_phase_name(enum pt_phase p)
{
	static const char *const name[] = { "data_wait", "host", "gpu_wait",
					    "collective" };

	return name[p];
}

/* Several ranks: the breakdown is that of the worst. */
static void add_phases(struct pt_sample *s, const struct pt_r_breakdown *b)
{
	s->phase_s[PT_PHASE_DATA_WAIT] = b->data_wait.seconds;
	s->phase_s[PT_PHASE_GPU_WAIT] = b->gpu_wait.seconds + b->sync.seconds;
	s->phase_s[PT_PHASE_COLLECTIVE] = b->collective.seconds;
	s->phase_s[PT_PHASE_HOST] = b->transfer.seconds + b->launch.seconds +
				    b->checkpoint.seconds + b->other.seconds;
}

static void add_reads(struct pt_sample *s, const struct pt_report *r)
{
	double bytes = 0;
	size_t i;

	pt_each_of(const struct pt_r_worker, w, r->workers, r->n_workers) {
		s->slowdown = fmax(s->slowdown, w->slowdown); /* the number */
		s->read_bytes += count(w->read_bytes, BYTES_MAX);
	}
	for (i = 0; i < r->n_files; i++) {
		s->read_s += or_zero(r->files[i].read_s, 1e9);
		s->reads += count(r->files[i].reads, COUNT_MAX);
		bytes += count(r->files[i].bytes, BYTES_MAX);
	}
	/* a job without workers reads, too */
	s->read_bytes = fmax(s->read_bytes, bytes);
}

/* ---- by mount ------------------------------------------------------------------- */

#define PATH 4096

/* The field at *p, with the kernel's octal escapes undone; false: there is none. */
static bool field(const char **p, char *out, size_t cap)
{
	const char *s = *p;
	size_t n = 0;

	while (*s == ' ')
		s++;
	if (!*s || *s == '\n')
		return false;
	for (; *s && *s != ' ' && *s != '\n'; s++) {
		char c = *s;

		if (c == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' &&
		    s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			c = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + s[3] - '0');
			s += 3;
		}
		if (n + 1 < cap)
			out[n++] = c;
	}
	out[n] = '\0';
	*p = s;
	return true;
}

/* Below a mount point, and how long that is; 0: not below it. */
static size_t below(const char *path, const char *point)
{
	size_t n = strlen(point);

	while (n && point[n - 1] == '/')
		n--;
	return strncmp(path, point, n) || (path[n] && path[n] != '/') ? 0 : n + 1;
}

static bool is_shared(const char *fs)
{
	static const char *const all[] = { "nfs", "cifs", "smb", "lustre", "ceph",
					   "fuse", "9p", "gpfs", "beegfs", "glusterfs",
					   "virtiofs", "afs", "ocfs2", "gfs2" };
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strncmp(fs, all[i], strlen(all[i])))
			return true;
	return false;
}

static void copy_name(char *to, const char *from)
{
	size_t n = strnlen(from, PT_SAMPLE_MOUNT - 1);

	memcpy(to, from, n);
	to[n] = '\0';
}

/* The longest mount point above the path; of equal ones the last, it is on top. */
static bool by_mountinfo(const char *text, const char *path, char *name)
{
	char point[PATH], fs[64], source[PATH], skip[PATH];
	const char *line, *end;
	size_t best = 0, n;

	for (line = text; *line; line = *end ? end + 1 : end) {
		const char *p = line;
		bool good = true;
		int i;

		end = line + strcspn(line, "\n");
		for (i = 0; i < 4; i++)
			good = good && field(&p, skip, sizeof(skip));
		good = good && field(&p, point, sizeof(point));
		do
			good = good && field(&p, skip, sizeof(skip));
		while (good && strcmp(skip, "-"));
		if (!good || !field(&p, fs, sizeof(fs)) ||
		    !field(&p, source, sizeof(source)))
			continue;
		n = below(path, point);
		if (!n || n < best)
			continue;
		best = n;
		copy_name(name, is_shared(fs) && *source && strcmp(source, "none") ?
				   source : point);
	}
	return best > 0;
}

static bool by_report(const struct pt_r_file *f, char *name)
{
	if (!f->fs)
		return false;
	snprintf(name, PT_SAMPLE_MOUNT, f->device ? "%s on %s" : "%s", f->fs,
		 f->device);
	return true;
}

static size_t find_mount(const struct pt_sample_mount *v, size_t n, const char *name)
{
	size_t i;

	for (i = 0; i < n && strcmp(v[i].name, name) != 0; i++)
		;
	return i;
}

struct pt_sample_mount *pt_sample_mount_of(struct pt_sample_mount *v, size_t *n, size_t max,
					   const char *name)
{
	size_t i = find_mount(v, *n, name);

	if (i == *n && i + 1 >= max) {
		name = "other";
		i = find_mount(v, *n, name);
	}
	if (i == *n) {
		v[i] = (struct pt_sample_mount){ .read_s = 0 };
		copy_name(v[i].name, name);
		++*n;
	}
	return &v[i];
}

static void add_mount(struct pt_sample *s, const char *name,
		      const struct pt_r_file *f)
{
	struct pt_sample_mount *m = pt_sample_mount_of(s->mount, &s->n_mounts,
						       PT_SAMPLE_MOUNTS, name);

	m->read_s += or_zero(f->read_s, BYTES_MAX);
	m->bytes += or_zero((double)f->bytes, BYTES_MAX);
}

void pt_sample_mounts(const struct pt_report *r, const char *mountinfo,
		      struct pt_sample *s)
{
	char name[PT_SAMPLE_MOUNT];

	s->n_mounts = 0;
	pt_each_of(const struct pt_r_file, f, r->files, r->n_files) {
		if ((mountinfo && f->path && *f->path == '/' &&
		     by_mountinfo(mountinfo, f->path, name)) ||
		    by_report(f, name))
			add_mount(s, name, f);
	}
}

/* ---- all of it ------------------------------------------------------------------ */

int pt_sample_of(const struct pt_report *r, struct pt_sample *s, const char **why)
{
	const struct pt_r_capture *c = &r->capture;
	size_t i;

	memset(s, 0, sizeof(*s));
	*why = "it says not how long it watched";
	if (!(c->duration >= 0 && c->duration <= DURATION_MAX))
		return -EINVAL;
	s->duration = c->duration;
	for (i = 0; i < r->n_gpu; i++)
		add_device(s, &r->gpu[i]);
	if (!s->gpus)
		s->busy_s = s->busy_hard_s[0] = s->busy_hard_s[1] =
			s->busy_likely_s[0] = s->busy_likely_s[1] =
				s->starved_s[0] = s->starved_s[1] = NAN;
	s->data_wait_share = r->breakdown.data_wait.share;
	s->slowdown = NAN;
	add_reads(s, r);
	add_phases(s, &r->breakdown);
	pt_sample_mounts(r, NULL, s);
	add_steps(s, &r->steps);
	for (i = 0; i < r->n_verdicts; i++)
		add_verdict(s, &r->verdicts[i]);
	s->events = count(c->events, BYTES_MAX);
	s->lost = count(c->lost_total, BYTES_MAX);
	s->tracer_cpu_s = or_zero(c->tracer_cpu_s, DURATION_MAX);
	s->complete = c->complete;
	*why = NULL;
	return 0;
}
