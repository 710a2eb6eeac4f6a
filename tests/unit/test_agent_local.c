/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent's socket in the file system: what it may replace, who may ask, what stays. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/http.h"
#include "agent/http_local.h"

static char top[64], path[128], why[256];

static int setup(void **state)
{
	(void)state;
	strcpy(top, "/tmp/pt-local-XXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(path, sizeof(path), "%s/socket", top);
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

static int begin(struct pt_http_local *l)
{
	return pt_http_local_open(l, path, why, sizeof(why));
}

static void refused(int err, const char *word)
{
	struct pt_http_local l;

	assert_int_equal(begin(&l), err);
	assert_int_equal(l.fd, -1);
	assert_int_equal(l.dir, -1);
	if (!strstr(why, word))
		fail_msg("\"%s\" lacks %s", why, word);
}

static int ask(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(sa.sun_path, path);
	assert_int_equal(connect(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return s;
}

static void made_and_removed(void **state)
{
	struct pt_http_local l;
	mode_t mask = umask(0);
	struct stat st;
	int s, i;

	(void)state;
	for (i = 0; i < 2; i++) {
		assert_int_equal(begin(&l), 0);
		assert_int_equal(lstat(path, &st), 0);
		assert_true(S_ISSOCK(st.st_mode));
		assert_int_equal(st.st_mode & 07777, 0600);
		s = ask();
		assert_true(pt_http_local_trusts(s)); /* it is ourselves */
		close(s);
		pt_http_local_close(&l);
		pt_http_local_close(&l);
		assert_int_equal(lstat(path, &st), -1);
	}
	umask(mask);
}

/* An agent that was killed leaves its socket. */
static void what_is_left_is_replaced(void **state)
{
	struct pt_http_local l, other;
	struct stat st;

	(void)state;
	assert_int_equal(begin(&l), 0);
	close(l.fd);
	close(l.dir);
	assert_int_equal(begin(&l), 0);
	refused(-EADDRINUSE, "another agent");
	/* one that somebody else put there meanwhile is not ours to remove */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(begin(&other), 0);
	pt_http_local_close(&l);
	assert_int_equal(lstat(path, &st), 0);
	pt_http_local_close(&other);
	assert_int_equal(lstat(path, &st), -1);
}

static void what_is_no_socket_stays(void **state)
{
	char target[160], text[8] = "";
	struct stat st;
	int fd;

	(void)state;
	snprintf(target, sizeof(target), "%s/target", top);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, "mine", 4), 4);
	close(fd);
	refused(-EEXIST, "something else");
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, text, sizeof(text)), 4);
	assert_string_equal(text, "mine");
	close(fd);
	assert_int_equal(unlink(path), 0);
	/* links: to nothing, to a file, to a socket */
	assert_int_equal(symlink(target, path), 0);
	refused(-EEXIST, "something else");
	assert_int_equal(lstat(target, &st), -1);
	assert_int_equal(mkdir(target, 0700), 0);
	refused(-EEXIST, "something else");
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	refused(-EEXIST, "something else");
}

static void folders(void **state)
{
	char text[300];
	struct pt_http_local l;

	(void)state;
	assert_int_equal(chmod(top, 0770), 0);
	refused(-EPERM, "others may write");
	assert_int_equal(chmod(top, 01777), 0);
	refused(-EPERM, "others may write");
	assert_int_equal(chmod(top, 0755), 0);
	if (!geteuid()) {
		assert_int_equal(chown(top, 65534, 65534), 0);
		refused(-EPERM, "others may write");
		assert_int_equal(chown(top, 0, 0), 0);
	}
	assert_int_equal(begin(&l), 0);
	pt_http_local_close(&l);
	assert_int_equal(pt_http_local_open(&l, "/nowhere/at/all", why, sizeof(why)),
			 -ENOENT);
	assert_int_equal(pt_http_local_open(&l, "socket", why, sizeof(why)), -EINVAL);
	assert_int_equal(pt_http_local_open(&l, "/tmp/", why, sizeof(why)), -EINVAL);
	/* longer than an address of a socket may be, by its folder and by its name */
	snprintf(text, sizeof(text), "%s/%0*d", top, 100, 0);
	assert_int_equal(mkdir(text, 0700), 0);
	strcat(text, "/socket");
	assert_int_equal(pt_http_local_open(&l, text, why, sizeof(why)), 0);
	pt_http_local_close(&l);
	snprintf(text, sizeof(text), "%s/%0*d", top, 200, 0);
	assert_int_equal(pt_http_local_open(&l, text, why, sizeof(why)), -ENAMETOOLONG);
}

static void get(const char *page, const char *status)
{
	char text[4096];
	ssize_t got;
	size_t n;
	int s = ask();

	n = (size_t)snprintf(text, sizeof(text), "GET %s HTTP/1.0\r\n\r\n", page);
	assert_int_equal(write(s, text, n), n);
	for (n = 0; (got = read(s, text + n, sizeof(text) - 1 - n)) > 0;)
		n += (size_t)got;
	text[n] = '\0';
	close(s);
	if (!strstr(text, status))
		fail_msg("%s: not \"%s\" but \"%s\"", page, status, text);
}

/* All pages, with no token that anybody could know; with and without a port. */
static void served(void **state)
{
	struct pt_http_options o = { .local = path };
	struct pt_http *h;
	struct stat st;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		o.listen = i ? "127.0.0.1:0" : NULL;
		assert_int_equal(pt_http_start(&o, &h, why, sizeof(why)), 0);
		assert_string_equal(why, "");
		assert_int_equal(pt_http_port(h) != 0, i);
		get("/healthz", " 200 ");
		get("/jobs", " 503 "); /* nothing yet, but not 401 */
		assert_int_equal(pt_http_publish(h, PT_PAGE_JOBS, strdup("[]"), 2), 0);
		get("/jobs", " 200 ");
		get("/elsewhere", " 404 ");
		pt_http_stop(h);
		assert_int_equal(lstat(path, &st), -1);
	}
	/* where it cannot be made */
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(pt_http_start(&o, &h, why, sizeof(why)), -EEXIST);
	o.local_or_not = true;
	assert_int_equal(pt_http_start(&o, &h, why, sizeof(why)), 0);
	assert_non_null(strstr(why, "no socket at"));
	pt_http_stop(h);
	assert_int_equal(rmdir(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(made_and_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_left_is_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_no_socket_stays, setup, teardown),
		cmocka_unit_test_setup_teardown(folders, setup, teardown),
		cmocka_unit_test_setup_teardown(served, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
