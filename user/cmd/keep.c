// SPDX-License-Identifier: BSD-2-Clause
#include "cmd/keep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "base/privileges.h"
#include "cmd/outdir.h"
#include "cmd/session.h"
#include "cmd/sudo.h"
#include "report/about.h"
#include "report/json.h"
#include "report/rowsort.h"
#include "store/recording.h"
#include "view/text/text.h"

#define RECORDING "window.ptrace"
#define JSON "report.json"
#define TEXT "report.txt"
#define BLOCK (4u << 20)
#define STEPS 1000000 /* all that a window can have, for diff */
#define WIDTH 100
#define CHILD_FD 3
#define NICE 10

static const char *const files[] = { RECORDING, JSON, TEXT };
#define FILES (sizeof(files) / sizeof(*files))

static const char *const kinds[PT_WHEN_NR] = { "step", "wait", "worker", "rank" };

/* ---- what earlier runs have left ------------------------------------------------ */

static bool is_one_of(const char *s, const char *const *v, size_t n)
{
	while (n--)
		if (!strcmp(s, v[n]))
			return true;
	return false;
}

/* As pt_keep_save() makes them. */
static bool is_name(const char *s)
{
	static const char form[] = "00000000T000000Z-";
	size_t i;

	for (i = 0; form[i]; i++)
		if (form[i] == '0' ? s[i] < '0' || s[i] > '9' : s[i] != form[i])
			return false;
	return is_one_of(s + i, kinds, PT_WHEN_NR);
}

/* Bytes of the folder, in which nothing is but what was saved; -1: something else is, or it
 * is no folder. */
static int64_t window_bytes(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *de;
	int64_t sum = 0;
	struct stat st;

	if (!d && fd >= 0)
		close(fd);
	while (d && sum >= 0 && (de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (!is_one_of(de->d_name, files, FILES) ||
		    fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			sum = -1;
		else
			sum += st.st_size;
	}
	if (d)
		closedir(d);
	return d ? sum : -1;
}

PT_ORDER(by_name, struct pt_kept_window, strcmp(x->name, y->name))

/* A service that starts again and again would fill the disk. 0 or -errno. */
static int count_earlier(struct pt_keep *k)
{
	DIR *d = opendir(k->o->output);
	struct pt_kept_window w = { .bytes = 0 };
	const struct dirent *de;
	int64_t bytes;
	int ret = 0;

	if (!d)
		return -errno;
	while (!ret && (de = readdir(d))) {
		bytes = is_name(de->d_name) ? window_bytes(dirfd(d), de->d_name) : -1;
		if (bytes < 0)
			continue;
		snprintf(w.name, sizeof(w.name), "%.31s", de->d_name);
		w.bytes = (uint64_t)bytes;
		ret = pt_vec_push(&k->v, w);
		k->bytes += w.bytes;
	}
	closedir(d);
	/* their names begin with the time */
	pt_vec_sort(&k->v, by_name);
	return ret;
}

int pt_keep_open(struct pt_keep *k, const struct pt_opts *o, struct pt_err *err)
{
	struct pt_outdir probe;
	char path[PATH_MAX];
	int ret;

	*k = (struct pt_keep){ .o = o, .fd = -1 };
	if (strlen(o->output) > PATH_MAX - 2 * PT_KEEP_NAME)
		return pt_err_set(err, -ENAMETOOLONG, "%s is too long", o->output);
	pt_privileges_reach(false);
	ret = mkdir(o->output, 0700) && errno != EEXIST ? -errno : 0;
	ret = ret ?: count_earlier(k);
	pt_privileges_reach(true);
	if (ret)
		return pt_err_set(err, ret, "cannot make the folder %s, or read it: %s",
				  o->output, strerror(-ret));
	snprintf(path, sizeof(path), "%s/.probe", o->output);
	ret = pt_outdir_open(&probe, path, err);
	if (ret)
		return pt_err_set(err, ret, "cannot write into %s: %s", o->output,
				  strerror(-ret));
	pt_outdir_abandon(&probe);
	return 0;
}

size_t pt_keep_surplus(const struct pt_keep *k, uint64_t bytes)
{
	uint64_t sum = k->bytes + bytes;
	size_t n = 0;

	while (n < k->v.n && (k->v.n - n + 1 > (size_t)k->o->max_windows ||
			      sum > k->o->max_bytes))
		sum -= k->v.v[n++].bytes;
	return n;
}

/* ---- in the child: one window --------------------------------------------------- */

struct writer {
	struct pt_rf_writer w;
	pt_bytes block;
	int err;
};

static void flush(struct writer *w)
{
	if (!w->err)
		w->err = pt_rf_put(&w->w, w->block.v, w->block.n);
	w->block.n = 0;
}

static void put(void *ctx, const void *rec, size_t len)
{
	struct writer *w = ctx;

	if (w->block.n + len > BLOCK)
		flush(w);
	memcpy(w->block.v + w->block.n, rec, len);
	w->block.n += len;
}

static int put_about(struct writer *w, const struct pt_report *r)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	int ret = f ? pt_about_write(r, false, f) : -ENOMEM;

	if (f && fclose(f) && !ret)
		ret = -ENOMEM;
	ret = ret ?: pt_rf_about(&w->w, text, n);
	free(text);
	return ret;
}

static int write_recording(struct pt_follow *f, const char *words, FILE *out, uint64_t *ns)
{
	struct pt_report *r = pt_report_new();
	struct writer w = { .block = { .v = malloc(BLOCK) } };

	*ns = 0;
	w.err = r && w.block.v ? 0 : -ENOMEM;
	w.err = w.err ?: pt_follow_facts(f, r);
	w.err = w.err ?: pt_report_label(r, "watch", words);
	w.err = w.err ?: pt_rf_begin(&w.w, out, pt_clock_ns(CLOCK_REALTIME));
	w.err = w.err ?: put_about(&w, r);
	if (!w.err)
		*ns = pt_follow_feed(f, put, &w);
	flush(&w);
	w.err = w.err ?: pt_rf_end(&w.w);
	pt_rf_writer_free(&w.w);
	free(w.block.v);
	pt_report_free(r);
	return w.err == -EIO && errno ? -errno : w.err;
}

/* The report is the one that the recording gives: it is read again. */
static int replay(const struct pt_keep *k, FILE *recording, struct pt_report *r)
{
	char path[40];
	FILE *in;
	int ret;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(recording));
	in = fopen(path, "re");
	if (!in)
		return -errno;
	ret = pt_replay(in, RECORDING, k->o, r);
	fclose(in);
	ret = ret ?: pt_report_demangle(r);
	return ret ?: pt_report_sort_operations(r, k->o->sort);
}

static int write_text(const struct pt_keep *k, const struct pt_report *r, FILE *f)
{
	const struct pt_text_opts t = { .unicode = !k->o->ascii, .width = WIDTH };

	if (fprintf(f, "pipetrace watch: %s\n\n", k->now.words) < 0)
		return -EIO;
	return pt_report_text(r, f, &t);
}

/* Bytes in *sum; the error of the disk, which may come as late as here. */
static int finish(FILE *f, int ret, uint64_t *sum)
{
	struct stat st = { 0 };

	if (!ret && (fflush(f) || ferror(f) || fstat(fileno(f), &st)))
		ret = errno ? -errno : -EIO;
	if (!ret)
		*sum += (uint64_t)st.st_size;
	if (fclose(f) && !ret)
		ret = -errno;
	return ret == -EIO && errno ? -errno : ret;
}

static int write_files(struct pt_keep *k, struct pt_follow *f, struct pt_outdir *d)
{
	const struct pt_json_opts j = { .steps = STEPS, .indent = 2 };
	struct pt_report *r = pt_report_new();
	FILE *out[FILES] = { NULL };
	size_t i;
	int ret = r ? 0 : -ENOMEM;

	errno = 0;
	for (i = 0; i < FILES && !ret; i++) {
		out[i] = pt_outdir_file(d, files[i]);
		ret = out[i] ? 0 : -errno;
	}
	ret = ret ?: write_recording(f, k->now.words, out[0], &k->now.ns);
	ret = ret ?: replay(k, out[0], r);
	ret = ret ?: pt_report_json(r, out[1], &j);
	ret = ret ?: write_text(k, r, out[2]);
	for (i = 0; i < FILES; i++)
		if (out[i])
			ret = finish(out[i], ret, &k->now.bytes);
	pt_report_free(r);
	return ret;
}

static void remove_window(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	size_t i;

	for (i = 0; fd >= 0 && i < FILES; i++)
		unlinkat(fd, files[i], 0);
	if (fd >= 0)
		close(fd);
	/* one in which somebody has put something stays */
	unlinkat(dir, name, AT_REMOVEDIR);
}

static void remove_surplus(const struct pt_keep *k)
{
	size_t i, n = pt_keep_surplus(k, k->now.bytes);
	int dir = open(k->o->output, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (i = 0; dir >= 0 && i < n; i++)
		remove_window(dir, k->v.v[i].name);
	if (dir >= 0)
		close(dir);
}

/* What cannot be saved is told in one line. 0 or -errno. */
static int write_window(struct pt_keep *k, struct pt_follow *f)
{
	struct pt_err err = { "" };
	char path[PATH_MAX];
	struct pt_outdir d;
	int ret;

	snprintf(path, sizeof(path), "%s/%s", k->o->output, k->now.name);
	ret = pt_outdir_open(&d, path, &err);
	if (!ret) {
		ret = write_files(k, f, &d);
		if (ret)
			pt_err_set(&err, ret, "cannot write %s: %s", path, strerror(-ret));
	}
	if (!ret && k->now.bytes > k->o->max_bytes)
		ret = pt_err_set(&err, -EFBIG, "it has %.1f MiB, more than --max-bytes",
				 (double)k->now.bytes / (1 << 20));
	if (ret)
		pt_outdir_abandon(&d);
	else
		ret = pt_outdir_commit(&d, &err);
	if (ret)
		pt_note("%s: not saved: %s", k->now.words, err.msg);
	else
		remove_surplus(k);
	return ret;
}

/* Nothing of the capture stays open here: its hooks go with the parent. */
static void child(struct pt_keep *k, struct pt_follow *f, int fd)
{
	struct pt_kept_window done;

	if (dup2(fd, CHILD_FD) < 0 || syscall(SYS_close_range, CHILD_FD + 1, ~0u, 0))
		_exit(1);
	pt_give_up_rest();
	if (setpriority(PRIO_PROCESS, 0, NICE) || write_window(k, f))
		_exit(1);
	done = k->now;
	_exit(write(CHILD_FD, &done, sizeof(done)) != sizeof(done));
}

/* ---- in the parent ----------------------------------------------------------------- */

static void lose(struct pt_keep *k, const char *why)
{
	k->lost++;
	pt_note("%s: not saved: %s", k->now.words, why);
}

void pt_keep_save(struct pt_keep *k, struct pt_follow *f, uint64_t span_ns,
		  enum pt_when_of of, uint64_t unix_ns, const char *words)
{
	time_t t = (time_t)(unix_ns / 1000000000);
	struct tm tm = { 0 };
	int fds[2];

	gmtime_r(&t, &tm);
	k->now = (struct pt_kept_window){ .bytes = 0 };
	snprintf(k->now.words, sizeof(k->now.words), "%s", words);
	strftime(k->now.name, sizeof(k->now.name), "%Y%m%dT%H%M%SZ-", &tm);
	strncat(k->now.name, kinds[of], sizeof(k->now.name) - strlen(k->now.name) - 1);
	if (k->pid) {
		lose(k, "the one before is still being written");
		return;
	}
	if (pipe2(fds, O_CLOEXEC)) {
		lose(k, strerror(errno));
		return;
	}
	pt_follow_reach(f, span_ns);
	k->pid = fork();
	if (!k->pid)
		child(k, f, fds[1]);
	close(fds[1]);
	if (k->pid > 0) {
		k->fd = fds[0];
		return;
	}
	lose(k, strerror(errno));
	close(fds[0]);
	k->pid = 0;
}

static void take(struct pt_keep *k, const struct pt_kept_window *w)
{
	size_t i, n = pt_keep_surplus(k, w->bytes);

	for (i = 0; i < n; i++)
		k->bytes -= k->v.v[i].bytes;
	memmove(k->v.v, k->v.v + n, (k->v.n - n) * sizeof(*w));
	k->v.n -= n;
	/* one that is not remembered is not removed later */
	if (!pt_vec_push(&k->v, *w))
		k->bytes += w->bytes;
	k->saved++;
	pt_note("%s: saved %s/%s (%.0f s, %.1f MiB)", w->words, k->o->output, w->name,
		(double)w->ns / 1e9, (double)w->bytes / (1 << 20));
}

void pt_keep_reap(struct pt_keep *k, int wait_ms)
{
	struct pollfd p = { .fd = k->fd, .events = POLLIN };
	struct pt_kept_window w;
	int status;

	if (!k->pid || poll(&p, 1, wait_ms) != 1)
		return;
	/* it has told, or its end of the pipe is closed: it ends at once */
	status = read(k->fd, &w, sizeof(w)) == sizeof(w);
	while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
		;
	close(k->fd);
	k->fd = -1;
	k->pid = 0;
	if (status)
		take(k, &w);
	else
		k->lost++; /* it has said why */
}

void pt_keep_close(struct pt_keep *k)
{
	if (k->pid)
		pt_note("the last window is still being written");
	if (k->fd >= 0)
		close(k->fd);
	pt_vec_free(&k->v);
	*k = (struct pt_keep){ .fd = -1 };
}
