// SPDX-License-Identifier: BSD-2-Clause
/* Options, output files, commands that are started, and record streams. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/cmd.h"
#include "cmd/options.h"
#include "cmd/outfile.h"
#include "cmd/session.h"
#include "cmd/spawn.h"
#include "cmd/sudo.h"
#include "store/rawstream.h"

static char dir[64];

static const char *in_dir(const char *name)
{
	static char path[2][128];
	static int i;

	i = !i;
	snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
	return path[i];
}

/* ---- options ------------------------------------------------------------- */

static void numbers_are_strict(void **state)
{
	static const char *const bad[] = { "",	  " 5", "+5", "-5",  "5 ",
					   "0x5", "5.", "1e1", "abc", "101",
					   "99999999999999999999" };
	int64_t v = 0;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(pt_parse_int(bad[i], 0, 100, &v), -EINVAL);
	assert_int_equal(pt_parse_int("0", 1, 100, &v), -EINVAL);
	assert_int_equal(pt_parse_int("100", 1, 100, &v), 0);
	assert_int_equal(v, 100);
}

static void seconds_are_strict(void **state)
{
	static const char *const bad[] = { "",	"0",   "0.0", "-1", "nan",
					   "inf", "1e9", "5s",  ".",  "1.2.3",
					   "99999999999", "0x10" };
	double v = 0;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(pt_parse_seconds(bad[i], &v), -EINVAL);
	assert_int_equal(pt_parse_seconds("2.5", &v), 0);
	assert_true(v > 2.4999 && v < 2.5001);
}

static void pids_are_strict(void **state)
{
	static const char *const bad[] = { "", ",", "1,", ",1", "1,,2", "0",
					   "-1", "1 2", "12x", "4294967297",
					   "1,2,3,4,5" };
	pid_t p[4];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(pt_parse_pids(bad[i], p, 4), -EINVAL);
	assert_int_equal(pt_parse_pids("7,8,7", p, 4), 2);
	assert_int_equal(p[0], 7);
	assert_int_equal(p[1], 8);
}

static int parse(struct pt_opts *o, enum pt_optset set, const char *line)
{
	static char words[512];
	char *argv[32] = { (char *)"pipetrace" }, *save = NULL, *w;
	int argc = 1;

	snprintf(words, sizeof(words), "%s", line);
	for (w = strtok_r(words, " ", &save); w && argc < 31;
	     w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	argv[argc] = NULL;
	return pt_opts_parse(o, set, "doc", argc, argv);
}

static void options_are_read(void **state)
{
	struct pt_opts o;

	(void)state;
	assert_int_equal(parse(&o, PT_OPTS_TRACE, "-p 12 --reads pages"), 0);
	assert_int_equal(o.reads, PT_READS(PT_DOOR_PAGES));
	assert_int_equal(parse(&o, PT_OPTS_TRACE,
			       "-p 12,13 -d 1.5 --json out --batch-size 64 "
			       "--print-steps 3 --sort gpu --top 7 --fail-on warning --mode full "
			       "--no-uprobe-multi --cupti --ascii -q "
			       "--raw-stream r"),
			 0);
	assert_int_equal(o.n_pids, 2);
	assert_int_equal(o.pids[1], 13);
	assert_true(o.duration > 1.4 && o.duration < 1.6);
	assert_string_equal(o.json, "out");
	assert_string_equal(o.raw_stream, "r");
	assert_true(o.cupti);
	assert_int_equal(o.batch_size, 64);
	assert_int_equal(o.print_steps, 3);
	assert_int_equal(o.sort, PT_SORT_GPU);
	assert_int_equal(o.top, 7);
	assert_true(o.operations);
	assert_int_equal(o.fail_on, PT_WARNING);
	assert_int_equal(o.mode, PT_MODE_FULL);
	assert_int_equal(o.loud, PT_QUIET);
	assert_true(o.no_uprobe_multi && o.ascii);
	assert_null(o.cmd);

	assert_int_equal(parse(&o, PT_OPTS_TRACE, "-d auto -p 1"), 0);
	assert_true(o.auto_duration);
	assert_int_equal(o.fail_on, -1);
	assert_int_equal(o.mode, PT_MODE_STANDARD);
}

static void a_command_keeps_its_options(void **state)
{
	struct pt_opts o;

	(void)state;
	assert_int_equal(parse(&o, PT_OPTS_TRACE,
			       "-d 3 -- python -p --json x -- y"), 0);
	assert_non_null(o.cmd);
	assert_string_equal(o.cmd[0], "python");
	assert_string_equal(o.cmd[1], "-p");
	assert_string_equal(o.cmd[4], "--");
	assert_string_equal(o.cmd[5], "y");
	assert_null(o.cmd[6]);
	assert_int_equal(o.n_pids, 0);
	assert_null(o.json);
}

static void nonsense_is_refused(void **state)
{
	static const char *const bad[] = {
		"--nope", "-p", "-p x", "-d", "-d never -p 1", "-p 1 stray",
		"--mode fast -p 1", "--fail-on now", "--batch-size 0",
		"--print-steps -1", "--sort size", "--sort files:size", "--sort workers:", "--sort files", "--top -1", "--batch-size 1k", "stray",
	};
	struct pt_opts o;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(parse(&o, PT_OPTS_TRACE, bad[i]), -EINVAL);
	/* options of one command are not another's */
	assert_int_equal(parse(&o, PT_OPTS_PLAIN, "-p 1"), -EINVAL);
	assert_int_equal(parse(&o, PT_OPTS_REPORT, "-d 1"), -EINVAL);
	assert_int_equal(parse(&o, PT_OPTS_TARGET, "--json x"), -EINVAL);
	assert_int_equal(parse(&o, PT_OPTS_TARGET, "-p 1"), 0);
}

static int run(const char *a, const char *b, const char *c)
{
	char *argv[] = { (char *)"pipetrace", (char *)a, (char *)b, (char *)c,
			 NULL };
	int status;
	/* a command gives up its rights for good */
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(pt_cmd_main(1 + !!a + !!b + !!c, argv));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void commands_are_told_apart(void **state)
{
	(void)state;
	assert_int_equal(run("record", NULL, NULL), PT_EXIT_USAGE);
	assert_int_equal(run("", NULL, NULL), PT_EXIT_USAGE);
	assert_int_equal(run("--", NULL, NULL), PT_EXIT_USAGE);
	assert_int_equal(run("-d", "1", NULL), PT_EXIT_USAGE);
	assert_int_equal(run("report", NULL, NULL), PT_EXIT_USAGE);
	assert_int_equal(run("report", "--raw-stream", "/no/such"),
			 PT_EXIT_FAILED);
	assert_int_equal(run("report", "--raw-stream", "/dev/null"),
			 PT_EXIT_FAILED);
	assert_int_equal(run("--version", NULL, NULL), PT_EXIT_OK);
	assert_int_equal(run("doctor", "--help", NULL), PT_EXIT_OK);
}

/* ---- sudo ---------------------------------------------------------------- */

static void who_called_sudo(void **state)
{
	static const struct {
		const char *uid, *gid;
		int is;
	} cases[] = {
		{ NULL, NULL, 0 },	     { NULL, "5", 0 },	       { "0", NULL, 0 },
		{ "1000", "100", 1 },	     { "4294967294", "1", 1 }, { "2147483648", "4294967294", 1 },
		{ "4294967295", "1", -EINVAL }, { "-1", "1", -EINVAL }, { "", "1", -EINVAL },
		{ "x", "1", -EINVAL },	     { "1000", NULL, -EINVAL },
		{ "1000", "4294967295", -EINVAL },
	};
	char *argv[] = { (char *)"true", NULL };
	struct pt_spawn_opts so = { 0 };
	struct pt_invoker who;
	struct pt_spawn s;
	struct pt_err err;
	size_t i;

	(void)state;
	if (geteuid()) {
		print_message("needs root\n");
		skip();
	}
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		unsetenv("SUDO_UID");
		unsetenv("SUDO_GID");
		if (cases[i].uid)
			setenv("SUDO_UID", cases[i].uid, 1);
		if (cases[i].gid)
			setenv("SUDO_GID", cases[i].gid, 1);
		assert_int_equal(pt_invoker(&who, &err), cases[i].is);
		if (cases[i].is > 0) {
			assert_int_equal(who.uid, strtoul(cases[i].uid, NULL, 10));
			assert_int_equal(who.gid, strtoul(cases[i].gid, NULL, 10));
		}
	}
	/* nothing is run, and nothing read, as root instead */
	assert_int_equal(pt_spawn(&s, argv, &so, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "SUDO_UID"));
	assert_int_equal(pt_give_up(PT_RIGHTS_FILES, 0), -EINVAL);
	unsetenv("SUDO_UID");
	unsetenv("SUDO_GID");
}

/* ---- output files -------------------------------------------------------- */

static void what_is_read_is_not_replaced(void **state)
{
	const char *path = in_dir("in"), *other = in_dir("hard");
	struct pt_outfile o;
	struct pt_err err;
	FILE *f;

	(void)state;
	f = fopen(path, "we");
	assert_non_null(f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(link(path, other), 0);
	f = pt_open_regular(path, NULL);
	assert_non_null(f);
	assert_int_equal(pt_outfile_open(&o, path, &err), -EEXIST);
	assert_int_equal(pt_outfile_open(&o, other, &err), -EEXIST);
	fclose(f);
	unlink(path);
	unlink(other);
}

static void expect_content(const char *path, const char *want)
{
	char buf[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_true(read(fd, buf, sizeof(buf) - 1) >= 0);
	close(fd);
	assert_string_equal(buf, want);
}

static int entries(void)
{
	char cmd[128];
	FILE *f;
	int n = -1;

	snprintf(cmd, sizeof(cmd), "ls -A %s | wc -l", dir);
	f = popen(cmd, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%d", &n), 1);
	pclose(f);
	return n;
}

static void a_file_appears_whole_or_not_at_all(void **state)
{
	char path[128];
	struct pt_outfile o;
	struct pt_err err;
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s", in_dir("out.json"));
	assert_int_equal(pt_outfile_open(&o, path, &err), 0);
	fputs("first", o.f);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(pt_outfile_commit(&o, &err), 0);
	expect_content(path, "first");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);

	assert_int_equal(pt_outfile_open(&o, path, &err), 0);
	fputs("second", o.f);
	fflush(o.f);
	expect_content(path, "first");
	pt_outfile_abandon(&o);
	expect_content(path, "first");
	assert_int_equal(entries(), 1);

	assert_int_equal(pt_outfile_open(&o, path, &err), 0);
	fputs("third", o.f);
	assert_int_equal(pt_outfile_commit(&o, &err), 0);
	expect_content(path, "third");
	assert_int_equal(entries(), 1);
	unlink(path);
}

static void what_is_no_file_stays(void **state)
{
	char link_path[128], aim[128];
	struct pt_outfile o;
	struct pt_err err = { "" };

	(void)state;
	snprintf(link_path, sizeof(link_path), "%s", in_dir("link"));
	snprintf(aim, sizeof(aim), "%s", in_dir("aim"));
	assert_int_equal(symlink(aim, link_path), 0);
	assert_true(pt_outfile_open(&o, link_path, &err) < 0);
	assert_non_null(strstr(err.msg, link_path));
	assert_int_equal(access(aim, F_OK), -1);
	unlink(link_path);
	assert_true(pt_outfile_open(&o, dir, &err) < 0);
	assert_true(pt_outfile_open(&o, "/no/such/dir/x", &err) < 0);
	assert_true(pt_outfile_open(&o, "", &err) < 0);
	assert_true(pt_outfile_open(&o, in_dir("x/"), &err) < 0);
	assert_int_equal(entries(), 0);
}

static void a_full_disk_is_told(void **state)
{
	struct pt_outfile o;
	struct pt_err err = { "" };

	(void)state;
	assert_int_equal(pt_outfile_open(&o, "/dev/full", &err), 0);
	fputs("x", o.f);
	assert_int_equal(pt_outfile_commit(&o, &err), -ENOSPC);
	assert_non_null(strstr(err.msg, "/dev/full"));
}

/* ---- commands ------------------------------------------------------------ */

static void a_command_waits_for_go(void **state)
{
	char file[128];
	char *argv[] = { (char *)"touch", file, NULL };
	struct pt_spawn_opts so = { .own_group = true, .no_stdin = true };
	struct pt_spawn s;
	struct pt_err err;

	(void)state;
	snprintf(file, sizeof(file), "%s", in_dir("ran"));
	assert_int_equal(pt_spawn(&s, argv, &so, &err), 0);
	usleep(100000);
	assert_int_equal(access(file, F_OK), -1);
	assert_false(pt_spawn_done(&s));
	assert_int_equal(pt_spawn_go(&s, "touch", &err), 0);
	while (!pt_spawn_done(&s))
		usleep(1000);
	assert_int_equal(access(file, F_OK), 0);
	pt_spawn_release(&s);
	assert_int_equal(s.pid, 0);
	unlink(file);

	/* without go it never runs, and nothing is left of it */
	assert_int_equal(pt_spawn(&s, argv, &so, &err), 0);
	pt_spawn_release(&s);
	assert_int_equal(access(file, F_OK), -1);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static void a_command_that_is_not_there(void **state)
{
	char *argv[] = { (char *)"/no/such/program", NULL };
	struct pt_spawn_opts so = { 0 };
	struct pt_spawn s;
	struct pt_err err = { "" };

	(void)state;
	assert_int_equal(pt_spawn(&s, argv, &so, &err), 0);
	assert_int_equal(pt_spawn_go(&s, argv[0], &err), -ENOENT);
	assert_non_null(strstr(err.msg, argv[0]));
	pt_spawn_kill(&s);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void a_job_dies_with_its_children(void **state)
{
	char *argv[] = { (char *)"/bin/sh", (char *)"-c",
			 (char *)"sleep 60 & sleep 60 & wait", NULL };
	struct pt_spawn_opts so = { .own_group = true, .no_stdin = true };
	struct pt_spawn s;
	struct pt_err err;
	pid_t group;

	(void)state;
	assert_int_equal(pt_spawn(&s, argv, &so, &err), 0);
	group = s.pid;
	assert_int_equal(pt_spawn_go(&s, argv[0], &err), 0);
	usleep(100000);
	assert_int_equal(kill(-group, 0), 0);
	pt_spawn_kill(&s);
	assert_int_equal(kill(-group, 0), -1);
	assert_int_equal(errno, ESRCH);
}

/* ---- record streams ------------------------------------------------------ */

static FILE *stream(size_t cut, unsigned bad_size)
{
	struct pt_rec_mark m = { .hdr = { .size = sizeof(m),
					  .kind = PT_REC_MARK } };
	struct pt_rec_task t = { .hdr = { .size = sizeof(t),
					  .kind = PT_REC_TASK } };
	unsigned char padded[sizeof(m) + 8] = { 0 };
	uint16_t size = (uint16_t)bad_size;
	FILE *f = tmpfile();

	assert_non_null(f);
	setvbuf(f, NULL, _IONBF, 0); /* it is changed behind stdio's back */
	assert_int_equal(pt_raw_begin(f), 0);
	m.hdr.tid = 1;
	memcpy(padded, &m, sizeof(m));
	assert_int_equal(pt_raw_put(f, padded, sizeof(padded)), 0);
	t.hdr.tid = 2;
	assert_int_equal(pt_raw_put(f, &t, sizeof(t)), 0);
	m.hdr.tid = 3;
	assert_int_equal(pt_raw_put(f, &m, sizeof(m)), 0);
	assert_int_equal(pt_raw_put(f, &m, 8), -EINVAL);
	fflush(f);
	if (cut)
		assert_int_equal(ftruncate(fileno(f),
					   ftell(f) - (long)cut), 0);
	if (bad_size) /* of the second record */
		assert_int_equal(pwrite(fileno(f), &size, 2,
					sizeof(struct pt_raw_head) + sizeof(m)),
				 2);
	rewind(f);
	return f;
}

static void read_stream(size_t cut, unsigned bad, unsigned want, bool truncated,
			bool damaged)
{
	FILE *f = stream(cut, bad);
	struct pt_raw_reader r;
	unsigned n = 0;
	int len;

	assert_int_equal(pt_raw_open(&r, f), 0);
	while ((len = pt_raw_next(&r)) > 0) {
		assert_int_equal(len, r.rec.hdr.size);
		assert_int_equal(r.rec.hdr.tid, ++n);
	}
	assert_int_equal(len, 0);
	assert_int_equal(n, want);
	assert_int_equal(r.records, want);
	assert_int_equal(r.truncated, truncated);
	assert_int_equal(r.damaged, damaged);
	assert_int_equal(pt_raw_next(&r), 0);
	fclose(f);
}

static void streams_come_back(void **state)
{
	(void)state;
	read_stream(0, 0, 3, false, false);
	read_stream(1, 0, 2, true, false);
	read_stream(sizeof(struct pt_rec_mark) - 5, 0, 2, true, false);
	read_stream(sizeof(struct pt_rec_mark), 0, 2, false, false);
	read_stream(0, 31, 1, false, true);
	read_stream(0, PT_REC_MAX + 1, 1, false, true);
}

static void other_files_are_no_streams(void **state)
{
	struct pt_raw_reader r;
	FILE *f = stream(0, 0);
	uint32_t version = 99;

	(void)state;
	assert_int_equal(pwrite(fileno(f), &version, 4, 8), 4);
	assert_int_equal(pt_raw_open(&r, f), -EPROTO);
	rewind(f);
	assert_int_equal(pwrite(fileno(f), "x", 1, 0), 1);
	assert_int_equal(pt_raw_open(&r, f), -ENOEXEC);
	assert_int_equal(ftruncate(fileno(f), 5), 0);
	rewind(f);
	assert_int_equal(pt_raw_open(&r, f), -ENOEXEC);
	fclose(f);
}

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/pt-cli-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

static void test_step_marker(void **state)
{
	(void)state;
	assert_int_equal(pt_parse_marker("train_step"), 0);
	assert_int_equal(pt_parse_marker("libmine.so:step_begin"), 0);
	assert_int_equal(pt_parse_marker(""), -EINVAL);
	assert_int_equal(pt_parse_marker("lib:"), -EINVAL);
	assert_int_equal(pt_parse_marker(":step"), -EINVAL);
	assert_int_equal(pt_parse_marker("a::b"), -EINVAL);
	assert_int_equal(pt_parse_marker("two words"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_step_marker),
		cmocka_unit_test(numbers_are_strict),
		cmocka_unit_test(seconds_are_strict),
		cmocka_unit_test(pids_are_strict),
		cmocka_unit_test(options_are_read),
		cmocka_unit_test(a_command_keeps_its_options),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(commands_are_told_apart),
		cmocka_unit_test(who_called_sudo),
		cmocka_unit_test(a_file_appears_whole_or_not_at_all),
		cmocka_unit_test(what_is_no_file_stays),
		cmocka_unit_test(what_is_read_is_not_replaced),
		cmocka_unit_test(a_full_disk_is_told),
		cmocka_unit_test(a_command_waits_for_go),
		cmocka_unit_test(a_command_that_is_not_there),
		cmocka_unit_test(a_job_dies_with_its_children),
		cmocka_unit_test(streams_come_back),
		cmocka_unit_test(other_files_are_no_streams),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
