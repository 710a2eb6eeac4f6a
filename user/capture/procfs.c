// SPDX-License-Identifier: BSD-2-Clause
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/readfile.h"
#include "capture/procfs.h"

#define PF_KTHREAD 0x00200000

ssize_t pt_file_read(const char *path, char *buf, size_t size)
{
	size_t len;
	int fd, err;

	if (size < 2)
		return -EINVAL;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = pt_read_fd(fd, buf, size - 1, &len);
	close(fd);
	buf[len] = '\0';
	return err && !len ? err : (ssize_t)len;
}

uint64_t pt_file_key(const char *text, const char *key)
{
	size_t len = strlen(key);
	const char *p = text;

	for (; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (!strncmp(p, key, len) && p[len] == ' ')
			return strtoull(p + len + 1, NULL, 10);
	return UINT64_MAX;
}

const char *pt_file_line(const char *path, char *buf, size_t size)
{
	if (pt_file_read(path, buf, size) <= 0)
		return NULL;
	buf[strcspn(buf, "\n")] = '\0';
	return buf[0] ? buf : NULL;
}

ssize_t pt_proc_read(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[96];
	ssize_t ret;

	if (pid <= 0)
		return -EINVAL;
	if (snprintf(path, sizeof(path), "/proc/%d/%s", pid, name) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	ret = pt_file_read(path, buf, size);
	return ret == -ENOENT ? -ESRCH : ret;
}

/* Fields after the command name, numbered as in proc(5); 3 is the state. */
static bool stat_fields(const char *s, uint64_t *f, size_t max)
{
	char *end;
	size_t i;

	for (i = 4; i <= max; i++) {
		while (*s == ' ')
			s++;
		if (!*s || *s == '\n')
			return false;
		/* signed fields wrap, and none of those is used */
		f[i] = strtoull(s, &end, 10);
		if (end == s)
			return false;
		s = end;
	}
	return true;
}

static uint64_t ticks_to_ns(uint64_t ticks)
{
	long hz = sysconf(_SC_CLK_TCK);

	return hz > 0 ? ticks * (1000000000ull / (uint64_t)hz) : 0;
}

int pt_proc_parse_stat(const char *text, struct pt_proc_stat *out)
{
	uint64_t f[29] = { 0 };
	const char *open, *close;
	size_t len;

	memset(out, 0, sizeof(*out));
	/* the name may hold spaces, parentheses and newlines: the last ')' */
	open = strchr(text, '(');
	close = strrchr(text, ')');
	if (!open || !close || close < open || close[1] != ' ' || !close[2])
		return -EINVAL;
	out->pid = (pid_t)strtol(text, NULL, 10);
	len = (size_t)(close - open - 1);
	if (len >= sizeof(out->comm))
		len = sizeof(out->comm) - 1;
	memcpy(out->comm, open + 1, len);
	out->state = close[2];
	if (out->pid <= 0 || !stat_fields(close + 3, f, 28))
		return -EINVAL;
	out->ppid = (pid_t)f[4];
	out->session = (pid_t)f[6];
	out->kthread = f[9] & PF_KTHREAD;
	out->utime_ns = ticks_to_ns(f[14]);
	out->stime_ns = ticks_to_ns(f[15]);
	out->threads = (uint32_t)f[20];
	out->start_ticks = f[22];
	out->start_code = f[26];
	out->start_stack = f[28];
	return 0;
}

static int read_stat(pid_t pid, const char *name, struct pt_proc_stat *out)
{
	char buf[1024];
	ssize_t len = pt_proc_read(pid, name, buf, sizeof(buf));

	return len < 0 ? (int)len : pt_proc_parse_stat(buf, out);
}

int pt_proc_stat(pid_t pid, struct pt_proc_stat *out)
{
	return read_stat(pid, "stat", out);
}

int pt_proc_thread_stat(pid_t pid, pid_t tid, struct pt_proc_stat *out)
{
	char name[64];

	snprintf(name, sizeof(name), "task/%d/stat", (int)tid);
	return read_stat(pid, name, out);
}

int pt_proc_field(const char *text, const char *key, uint64_t *out)
{
	size_t len = strlen(key);
	const char *line = text;
	char *end;

	while (line && *line) {
		if (!strncmp(line, key, len) && line[len] == ':') {
			*out = strtoull(line + len + 1, &end, 10);
			return end == line + len + 1 ? -ENOENT : 0;
		}
		line = strchr(line, '\n');
		if (line)
			line++;
	}
	return -ENOENT;
}

int pt_proc_tgid(pid_t tid, pid_t *tgid)
{
	char buf[4096];
	uint64_t v;
	ssize_t len = pt_proc_read(tid, "status", buf, sizeof(buf));

	if (len < 0)
		return (int)len;
	if (pt_proc_field(buf, "Tgid", &v) || !v || v > INT32_MAX)
		return -ESRCH;
	*tgid = (pid_t)v;
	return 0;
}

int pt_proc_uid(pid_t pid, uid_t *uid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &st))
		return errno == ENOENT ? -ESRCH : -errno;
	*uid = st.st_uid;
	return 0;
}

void pt_user_name(uid_t uid, char *buf, size_t size)
{
	struct passwd pw, *p;
	char line[2048];
	FILE *f = fopen("/etc/passwd", "re");

	snprintf(buf, size, "%u", uid);
	if (!f)
		return;
	while (!fgetpwent_r(f, &pw, line, sizeof(line), &p)) {
		if (pw.pw_uid == uid) {
			snprintf(buf, size, "%s", pw.pw_name);
			break;
		}
	}
	fclose(f);
}

/* ---- command lines ------------------------------------------------------ */

static bool ends_with(const char *s, size_t len, const char *tail)
{
	size_t t = strlen(tail);

	return len >= t && !strncasecmp(s + len - t, tail, t);
}

/*
 * Does this option or variable name look like one whose value is secret? By
 * its end, because "--tokenizer" and "--max-tokens" are everyday options.
 */
static bool is_secret_name(const char *s, size_t len)
{
	static const char *const tails[] = {
		"token",  "password",	"passwd",      "pwd",  "passphrase",
		"secret", "credential", "credentials", "-key", "_key",
		".key",	  "apikey",	"-pass",       "_pass",
	};
	size_t i;

	for (i = 0; i < sizeof(tails) / sizeof(*tails); i++)
		if (ends_with(s, len, tails[i]))
			return true;
	return (len == 3 && !strncasecmp(s, "key", 3)) ||
	       memmem(s, len, "SECRET", 6) || memmem(s, len, "PASSWORD", 8);
}

struct outbuf {
	char *buf;
	size_t size, len;
};

static void put(struct outbuf *o, const char *s, size_t n)
{
	size_t room = o->size - 1 - o->len;

	if (n > room)
		n = room;
	memcpy(o->buf + o->len, s, n);
	o->len += n;
	o->buf[o->len] = '\0';
}

/* scheme://user:password@host */
static void put_url_masked(struct outbuf *o, const char *s, size_t n)
{
	const char *at, *colon, *host = memmem(s, n, "://", 3);
	size_t rest;

	if (host) {
		host += 3;
		rest = n - (size_t)(host - s);
		at = memchr(host, '@', rest);
		colon = memchr(host, ':', rest);
		if (at && colon && colon < at) {
			put(o, s, (size_t)(colon + 1 - s));
			put(o, "***", 3);
			put(o, at, n - (size_t)(at - s));
			return;
		}
	}
	put(o, s, n);
}

size_t pt_cmdline_mask(const char *args, size_t len, char *buf, size_t size)
{
	struct outbuf o = { .buf = buf, .size = size };
	bool hide_next = false, first = true;
	const char *p = args, *end = args + len, *eq;
	size_t n;

	buf[0] = '\0';
	for (; p < end; p += n + 1) {
		n = strnlen(p, (size_t)(end - p));
		if (!n && p + 1 >= end)
			break;
		if (!first)
			put(&o, " ", 1);
		first = false;
		if (hide_next && (n < 1 || p[0] != '-')) {
			put(&o, "***", 3);
			hide_next = false;
			continue;
		}
		hide_next = false;
		eq = memchr(p, '=', n);
		if (eq && is_secret_name(p, (size_t)(eq - p))) {
			put(&o, p, (size_t)(eq + 1 - p));
			put(&o, "***", 3);
			continue;
		}
		hide_next = !eq && p[0] == '-' && is_secret_name(p, n);
		put_url_masked(&o, p, n);
	}
	return o.len;
}

ssize_t pt_proc_cmdline(pid_t pid, char *buf, size_t size)
{
	char args[4096];
	ssize_t len = pt_proc_read(pid, "cmdline", args, sizeof(args));

	if (size < 1)
		return -EINVAL;
	buf[0] = '\0';
	if (len < 0)
		return len;
	return (ssize_t)pt_cmdline_mask(args, (size_t)len, buf, size);
}

#define ENV_BYTES (256 * 1024)

int pt_env_read(pid_t pid, struct pt_env *e)
{
	ssize_t len;

	e->text = malloc(ENV_BYTES);
	e->len = 0;
	if (!e->text)
		return -ENOMEM;
	len = pt_proc_read(pid, "environ", e->text, ENV_BYTES);
	if (len >= 0)
		e->len = (size_t)len;
	return len < 0 ? (int)len : 0;
}

int pt_env_get(const struct pt_env *e, const char *name, char *buf, size_t size)
{
	const char *p, *end = e->text + e->len;
	size_t nlen = strlen(name), n;

	if (size < 1)
		return -EINVAL;
	for (p = e->text; p < end; p += n + 1) {
		n = strnlen(p, (size_t)(end - p));
		if (n > nlen && !strncmp(p, name, nlen) && p[nlen] == '=') {
			snprintf(buf, size, "%s", p + nlen + 1);
			return 0;
		}
	}
	return -ENOENT;
}

void pt_env_free(struct pt_env *e)
{
	free(e->text);
}

int pt_proc_getenv(pid_t pid, const char *name, char *buf, size_t size)
{
	struct pt_env e;
	int ret = pt_env_read(pid, &e);

	ret = ret ?: pt_env_get(&e, name, buf, size);
	pt_env_free(&e);
	return ret;
}
