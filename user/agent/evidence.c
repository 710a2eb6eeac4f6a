// SPDX-License-Identifier: BSD-2-Clause
#include "agent/evidence.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "report/fields.h"

#define INDEX "index.json"
#define INDEX_TMP ".index.tmp"
#define INDEX_MAX (64u << 20)
#define ENTRIES_MAX (4 * PT_EVIDENCE_MAX) /* of a folder that are looked at */

static const char *const endings[PT_KEPT_NR] = { ".json", ".html", ".ptrace" };
static const char id_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

bool pt_evidence_id_ok(const char *id)
{
	size_t n = strspn(id, id_chars);

	return n > 0 && n < PT_EVIDENCE_ID && !id[n] && id[0] != '-';
}

void pt_evidence_id(char out[PT_EVIDENCE_ID], uint64_t unix_s, const char *job)
{
	time_t t = (time_t)unix_s;
	struct tm tm = { 0 };

	gmtime_r(&t, &tm);
	snprintf(out, PT_EVIDENCE_ID, "%04u%02u%02ut%02u%02u%02u-%.19s",
		 (unsigned)(tm.tm_year + 1900) % 10000,
		 (unsigned)(tm.tm_mon + 1) % 100, (unsigned)tm.tm_mday % 100,
		 (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
		 (unsigned)tm.tm_sec % 100, job);
}

static void file_name(char out[64], const char *id, int what)
{
	snprintf(out, 64, "%.39s%s", id, endings[what]);
}

void pt_evidence_path(const struct pt_evidence *e, const char *id,
		      enum pt_evidence_file what, char *out, size_t cap)
{
	snprintf(out, cap, "%s/%s%s", e->path, id, endings[what]);
}

/* The sizes of its files; what is not a file of ours is not there. */
static void look(const struct pt_evidence *e, struct pt_kept *k)
{
	struct stat st;
	char name[64];
	int i;

	for (i = 0; i < PT_KEPT_NR; i++) {
		file_name(name, k->id, i);
		k->bytes[i] = 0;
		if (!fstatat(e->dir, name, &st, AT_SYMLINK_NOFOLLOW) &&
		    S_ISREG(st.st_mode))
			k->bytes[i] = st.st_size > 0 ? (uint64_t)st.st_size : 1;
	}
}

static uint64_t size_of(const struct pt_kept *k)
{
	return k->bytes[0] + k->bytes[1] + k->bytes[2];
}

static struct pt_kept *find(const struct pt_evidence *e, const char *id)
{
	size_t i;

	for (i = e->n; i-- > 0;)
		if (!strcmp(e->v[i].id, id))
			return &e->v[i];
	return NULL;
}

static int insert(struct pt_evidence *e, const struct pt_kept *k)
{
	struct pt_kept *v;
	size_t at, cap;

	if (e->n == e->cap) {
		cap = e->cap ? 2 * e->cap : 64;
		v = realloc(e->v, cap * sizeof(*v));
		if (!v)
			return -ENOMEM;
		e->v = v;
		e->cap = cap;
	}
	for (at = e->n; at > 0 && e->v[at - 1].unix_s > k->unix_s; at--)
		;
	memmove(&e->v[at + 1], &e->v[at], (e->n - at) * sizeof(*k));
	e->v[at] = *k;
	e->n++;
	e->bytes += size_of(k);
	return 0;
}

static void drop(struct pt_evidence *e, size_t at)
{
	char name[64];
	int i;

	for (i = 0; i < PT_KEPT_NR; i++) {
		file_name(name, e->v[at].id, i);
		/* one that cannot be removed is not ours any more */
		if (unlinkat(e->dir, name, 0))
			continue;
	}
	e->bytes -= size_of(&e->v[at]);
	memmove(&e->v[at], &e->v[at + 1], (--e->n - at) * sizeof(*e->v));
}

static void copy(char *dst, size_t cap, const json_t *v)
{
	const char *s = json_string_value(v);

	snprintf(dst, cap, "%s", s ? s : "");
}

/* One entry of the index, if it is one. */
static bool read_entry(const json_t *j, struct pt_kept *k)
{
	const json_t *v;
	int severity;
	size_t i;

	memset(k, 0, sizeof(*k));
	copy(k->id, sizeof(k->id), json_object_get(j, "id"));
	copy(k->job, sizeof(k->job), json_object_get(j, "job"));
	copy(k->comm, sizeof(k->comm), json_object_get(j, "comm"));
	copy(k->watch, sizeof(k->watch), json_object_get(j, "watch"));
	k->unix_s = (uint64_t)json_integer_value(json_object_get(j, "unix_s"));
	json_array_foreach(json_object_get(j, "verdicts"), i, v) {
		severity = pt_enum_find(&pt_enum_severity,
					json_string_value(json_object_get(v, "severity")));
		if (severity < 0 || k->n_verdicts == PT_SAMPLE_VERDICTS)
			continue;
		copy(k->verdict[k->n_verdicts].id, sizeof(k->verdict->id),
		     json_object_get(v, "id"));
		k->verdict[k->n_verdicts++].severity = (uint8_t)severity;
	}
	return pt_evidence_id_ok(k->id);
}

static json_t *load_json(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	json_t *j = NULL;
	struct stat st;
	FILE *f;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    st.st_size > (off_t)INDEX_MAX) {
		close(fd);
		return NULL;
	}
	f = fdopen(fd, "r");
	if (!f) {
		close(fd);
		return NULL;
	}
	j = json_loadf(f, JSON_REJECT_DUPLICATES, NULL);
	fclose(f);
	return j;
}

/* When a name of ours was made, by the name itself. */
static uint64_t time_of(const char *id)
{
	struct tm tm = { 0 };

	if (sscanf(id, "%4d%2d%2dt%2d%2d%2d-", &tm.tm_year, &tm.tm_mon,
		   &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec) != 6)
		return 0;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	return (uint64_t)timegm(&tm);
}

/* ID.json ... that the index does not know: the agent ended before it wrote it. */
static bool stray(const char *name, struct pt_kept *k)
{
	size_t n, end;
	int i;

	memset(k, 0, sizeof(*k));
	for (i = 0; i < PT_KEPT_NR; i++) {
		n = strlen(name);
		end = strlen(endings[i]);
		if (n <= end || n - end >= sizeof(k->id) ||
		    strcmp(name + n - end, endings[i]))
			continue;
		memcpy(k->id, name, n - end);
		k->id[n - end] = '\0';
		k->unix_s = time_of(k->id);
		snprintf(k->job, sizeof(k->job), "%.16s",
			 strlen(k->id) > 16 ? k->id + 16 : "");
		return pt_evidence_id_ok(k->id) && k->unix_s &&
		       strlen(k->id) == 32 && k->id[15] == '-';
	}
	return false;
}

/* Half-written files of an agent that was killed. */
static void sweep(struct pt_evidence *e)
{
	int fd = openat(e->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), i;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct pt_kept k;
	struct dirent *de;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (i = 0; i < ENTRIES_MAX && (de = readdir(d)); i++) {
		if (!strncmp(de->d_name, ".pipetrace-", 11) ||
		    !strcmp(de->d_name, INDEX_TMP)) {
			if (unlinkat(e->dir, de->d_name, 0))
				continue;
		} else if (stray(de->d_name, &k) && !find(e, k.id)) {
			look(e, &k);
			if (size_of(&k) && insert(e, &k))
				break;
		}
	}
	closedir(d);
}

static int open_dir(struct pt_evidence *e, const char *path, struct pt_err *err)
{
	struct stat st;

	if (strlen(path) >= sizeof(e->path) - 64)
		return pt_err_set(err, -ENAMETOOLONG, "%s is too long", path);
	snprintf(e->path, sizeof(e->path), "%s", path);
	if (mkdir(path, 0700) && errno != EEXIST)
		return pt_err_set(err, -errno, "cannot make the folder %s: %s",
				  path, strerror(errno));
	e->dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (e->dir < 0 || fstat(e->dir, &st))
		return pt_err_set(err, -errno, "cannot open the folder %s: %s",
				  path, strerror(errno));
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return pt_err_set(err, -EPERM, "%s must belong to the user who "
				  "runs the agent, and only that user may write "
				  "there", path);
	if ((st.st_mode & 077) && fchmod(e->dir, 0700))
		return pt_err_set(err, -errno, "cannot make %s private",
				  path);
	return 0;
}

int pt_evidence_open(struct pt_evidence *e, const char *path, struct pt_err *err)
{
	json_t *index, *one;
	struct pt_kept k;
	size_t i;
	int ret;

	memset(e, 0, sizeof(*e));
	e->dir = -1;
	ret = open_dir(e, path, err);
	if (ret) {
		pt_evidence_close(e);
		return ret;
	}
	index = load_json(e->dir, INDEX);
	json_array_foreach(json_object_get(index, "evidence"), i, one) {
		if (!read_entry(one, &k) || find(e, k.id))
			continue;
		look(e, &k);
		if (size_of(&k) && insert(e, &k))
			break;
	}
	json_decref(index);
	sweep(e);
	return 0;
}

void pt_evidence_close(struct pt_evidence *e)
{
	if (e->dir >= 0)
		close(e->dir);
	free(e->v);
	memset(e, 0, sizeof(*e));
	e->dir = -1;
}

static int write_file(int dir, const char *name, const char *s, size_t len)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW |
			O_CLOEXEC, 0600), ret = 0;
	size_t at;
	ssize_t n;

	if (fd < 0)
		return -errno;
	for (at = 0; at < len && !ret; at += (size_t)n) {
		n = write(fd, s + at, len - at);
		if (n < 0) {
			ret = -errno;
			n = 0;
		}
	}
	if (close(fd) && !ret)
		ret = -errno;
	if (ret)
		unlinkat(dir, name, 0);
	return ret;
}

int pt_evidence_keep(struct pt_evidence *e, const struct pt_kept *given,
		     const char *json, size_t len, const char *recording)
{
	struct pt_kept k = *given;
	char name[64], trace[64];
	int ret = pt_evidence_id_ok(k.id) && !find(e, k.id) ? 0 : -EEXIST;

	file_name(name, k.id, PT_KEPT_JSON);
	file_name(trace, k.id, PT_KEPT_PTRACE);
	ret = ret ?: write_file(e->dir, name, json, len);
	if (!ret && recording &&
	    renameat(AT_FDCWD, recording, e->dir, trace)) {
		ret = -errno;
		unlinkat(e->dir, name, 0);
	}
	if (!ret) {
		look(e, &k);
		ret = insert(e, &k);
		if (ret) {
			unlinkat(e->dir, name, 0);
			unlinkat(e->dir, trace, 0);
		}
	}
	e->lost += ret != 0;
	return ret;
}

void pt_evidence_page_made(struct pt_evidence *e, const char *id)
{
	struct pt_kept *k = find(e, id);

	if (!k)
		return;
	e->bytes -= size_of(k);
	look(e, k);
	e->bytes += size_of(k);
}

/* Is there a later one of the same job with this verdict? */
static bool followed(const struct pt_kept *v, size_t n, size_t at,
		     const char *verdict)
{
	size_t i, k;

	for (i = at + 1; i < n; i++) {
		if (strcmp(v[i].job, v[at].job))
			continue;
		for (k = 0; k < v[i].n_verdicts; k++)
			if (!strcmp(v[i].verdict[k].id, verdict))
				return true;
	}
	return false;
}

size_t pt_evidence_victim(const struct pt_kept *v, size_t n)
{
	size_t i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < v[i].n_verdicts; k++)
			if (!followed(v, n, i, v[i].verdict[k].id))
				break;
		if (k == v[i].n_verdicts)
			return i;
	}
	return 0;
}

bool pt_evidence_bound(struct pt_evidence *e, uint64_t size, double age_s,
		       uint64_t unix_s)
{
	size_t n = e->n;

	while (e->n && (double)unix_s - (double)e->v[0].unix_s > age_s)
		drop(e, 0);
	while (e->n && (e->bytes > size || e->n > PT_EVIDENCE_MAX))
		drop(e, pt_evidence_victim(e->v, e->n));
	return e->n != n;
}

static json_t *entry(const struct pt_kept *k)
{
	json_t *files = json_object(), *verdicts = json_array();
	size_t i;

	for (i = 0; i < PT_KEPT_NR; i++)
		if (k->bytes[i])
			json_object_set_new(files, endings[i] + 1,
					    json_integer((json_int_t)k->bytes[i]));
	for (i = 0; i < k->n_verdicts; i++)
		json_array_append_new(verdicts, json_pack(
			"{s:s, s:s}", "id", k->verdict[i].id, "severity",
			pt_severity_name(k->verdict[i].severity)));
	/* a name that is no UTF-8 would make the whole entry fail */
	return json_pack("{s:s, s:I, s:s, s:s*, s:s*, s:o, s:o}", "id", k->id,
			 "unix_s", (json_int_t)k->unix_s, "job", k->job, "comm", k->comm,
			 "watch", *k->watch ? k->watch : NULL, "verdicts", verdicts,
			 "bytes", files);
}

int pt_evidence_list(const struct pt_evidence *e, FILE *f)
{
	json_t *list = json_array(), *root, *one;
	size_t i;
	int ret;

	for (i = e->n; list && i-- > 0;) {
		one = entry(&e->v[i]);
		if (one)
			json_array_append_new(list, one);
	}
	root = json_pack("{s:o}", "evidence", list);
	ret = root && !json_dumpf(root, f, JSON_INDENT(1)) &&
	      fputc('\n', f) != EOF ? 0 : -EIO;
	json_decref(root);
	return ret;
}

int pt_evidence_save(const struct pt_evidence *e)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	int ret = f ? pt_evidence_list(e, f) : -ENOMEM;

	if (f && fclose(f) && !ret)
		ret = -ENOMEM;
	if (!ret) {
		unlinkat(e->dir, INDEX_TMP, 0);
		ret = write_file(e->dir, INDEX_TMP, text, len);
	}
	if (!ret && renameat(e->dir, INDEX_TMP, e->dir, INDEX))
		ret = -errno;
	free(text);
	return ret;
}
