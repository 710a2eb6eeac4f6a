// SPDX-License-Identifier: BSD-2-Clause
/* /proc, discovery and the sampler, on text made for it and on real
 * processes: this program starts copies of itself as launcher and ranks. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "capture/discover.h"
#include "capture/maps.h"
#include "capture/hostinfo.h"
#include "cmd/host.h"
#include "capture/procfs.h"
#include "capture/sampler.h"

static char dir[64], lib[128];

/* ---- text ---------------------------------------------------------------- */

#define STAT_TAIL                                                              \
	" S 42 7 7 0 -1 4194304 10 0 0 0 150 25 0 0 20 0 3 0 98765 1000000 " \
	"250 18446744073709551615 94000 95000 140000 0 0 0 0\n"

static void stat_is_parsed(void **state)
{
	struct pt_proc_stat st;

	(void)state;
	assert_int_equal(pt_proc_parse_stat("77 (python3)" STAT_TAIL, &st), 0);
	assert_int_equal(st.pid, 77);
	assert_int_equal(st.ppid, 42);
	assert_string_equal(st.comm, "python3");
	assert_int_equal(st.threads, 3);
	assert_int_equal(st.start_ticks, 98765);
	assert_int_equal(st.start_code, 94000);
	assert_int_equal(st.start_stack, 140000);
	assert_true(st.utime_ns == 150 * (1000000000ull /
					  (uint64_t)sysconf(_SC_CLK_TCK)));
}

static void a_name_cannot_forge_fields(void **state)
{
	struct pt_proc_stat st;

	(void)state;
	assert_int_equal(pt_proc_parse_stat("77 (a) R 1 (\n)" STAT_TAIL, &st),
			 0);
	assert_string_equal(st.comm, "a) R 1 (\n");
	assert_int_equal(st.ppid, 42);
	assert_int_equal(st.state, 'S');
}

static void broken_stat_is_refused(void **state)
{
	static const char *const bad[] = {
		"", "77", "77 (x", "77 (x)", "77 (x) S", "77 (x) S 1 2 3\n",
		"(x)" STAT_TAIL, "77 )x(" STAT_TAIL,
	};
	struct pt_proc_stat st;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(pt_proc_parse_stat(bad[i], &st), -EINVAL);
}

static void masked(const char *args, size_t len, const char *want)
{
	char buf[512];

	pt_cmdline_mask(args, len, buf, sizeof(buf));
	assert_string_equal(buf, want);
}
#define MASKED(args, want) masked(args, sizeof(args), want)

static void secrets_are_masked(void **state)
{
	char small[8];

	(void)state;
	MASKED("python\0train.py\0--lr=0.1", "python train.py --lr=0.1");
	MASKED("x\0--token=abc\0y", "x --token=*** y");
	MASKED("x\0--hf-token\0abc\0y", "x --hf-token *** y");
	MASKED("x\0--api-key=abc", "x --api-key=***");
	MASKED("env\0WANDB_API_KEY=abc\0x", "env WANDB_API_KEY=*** x");
	MASKED("x\0--db_password\0p", "x --db_password ***");
	MASKED("x\0s3://user:pw@host/a", "x s3://user:***@host/a");
	/* everyday options stay */
	MASKED("x\0--tokenizer\0gpt2\0--max-tokens=5\0--author=me",
	       "x --tokenizer gpt2 --max-tokens=5 --author=me");
	MASKED("x\0--use-auth-token\0--epochs\0" "5",
	       "x --use-auth-token --epochs 5");
	MASKED("", "");
	assert_int_equal(pt_cmdline_mask("abcdefghijkl", 12, small, 8), 7);
	assert_string_equal(small, "abcdefg");
}

static void containers_are_found(void **state)
{
	char id[72];
	const char *text =
		"12:cpu:/docker/0123456789abcdef0123456789abcdef"
		"0123456789abcdef0123456789abcdef\n";

	(void)state;
	assert_int_equal(pt_cgroup_container(text, id, sizeof(id)), 0);
	assert_string_equal(id, "0123456789abcdef0123456789abcdef"
				"0123456789abcdef0123456789abcdef");
	assert_int_equal(pt_cgroup_container(text, id, 64), -ENOENT);
	assert_int_equal(pt_cgroup_container("0::/user.slice/a-b.scope\n", id,
					     sizeof(id)), -ENOENT);
	assert_int_equal(pt_cgroup_container("", id, sizeof(id)), -ENOENT);
}

static void map_lines_are_read(void **state)
{
	static const char *const no[] = {
		"7f00-7f10 r--p 0 08:01 5 /a/libcudart.so.12\n",
		"7f00-7f10 r-xp 0 08:01 5 /a/libcudart_static_test\n",
		"7f00-7f10 r-xp 0 08:01 5 /a/libcudadebugger.so.1\n",
		"7f00-7f10 r-xp 0 08:01 0 /a/libcudart.so.12\n",
		"7f10-7f00 r-xp 0 08:01 5 /a/libcudart.so.12\n",
		"7f00-7f10 r-xp 0 08:01 5 libcudart.so.12\n",
		"7f00-7f10 r-xp 0 00:00 0\n",
		"garbage libcudart.so", "", "7f00-7f10 r-xp",
	};
	struct pt_gpulib g;
	char line[2 * PT_GPULIB_PATH + 64];
	size_t i;

	(void)state;
	assert_true(pt_gpulib_parse("7f00-7f10 r-xp 00001000 08:01 55 "
				    "/a b/libcudart.so.12.4.1\n", &g));
	assert_int_equal(g.kind, PT_GPULIB_CUDART);
	assert_string_equal(g.path_display, "/a b/libcudart.so.12.4.1");
	assert_int_equal(g.start, 0x7f00);
	assert_int_equal(g.end, 0x7f10);
	assert_int_equal(g.offset, 0x1000);
	assert_int_equal(g.inode, 55);
	assert_int_equal(g.dev, 8 << 20 | 1);
	assert_false(g.deleted);
	assert_true(pt_gpulib_parse("7f00-7f10 r-xp 0 08:01 5 "
				    "/a/libcudart-d0da41ae.so.11.0 (deleted)\n",
				    &g));
	assert_true(g.deleted);
	assert_string_equal(g.path_display, "/a/libcudart-d0da41ae.so.11.0");
	assert_true(pt_gpulib_parse("7f00-7f10 r-xp 0 08:01 5 "
				    "/usr/lib/libcuda.so.550.54\n", &g));
	assert_int_equal(g.kind, PT_GPULIB_CUDA);
	for (i = 0; i < sizeof(no) / sizeof(*no); i++)
		assert_false(pt_gpulib_parse(no[i], &g));
	snprintf(line, sizeof(line), "7f00-7f10 r-xp 0 08:01 5 /%0*d%s",
		 2 * PT_GPULIB_PATH - 100, 0, "/libcudart.so");
	assert_false(pt_gpulib_parse(line, &g));
}

/* ---- real processes ------------------------------------------------------ */

/* Map the pretended library as a loader would. */
static void *map_lib(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *p;

	if (fd < 0)
		return MAP_FAILED;
	p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	close(fd);
	return p;
}

/* Newer kernels are asked for one mapping at a time, others read as text: both say the same. */
static void maps_say_the_same(void **state)
{
	char dir[] = "/tmp/pipetrace-maps-XXXXXX", path[2][128];
	struct pt_filemaps asked, text;
	struct pt_gpulib a, t, at;
	size_t n = 0, deleted = 0, broken = 0;
	void *p;

	(void)state;
	assert_non_null(mkdtemp(dir));
	for (int i = 0; i < 2; i++) {
		int fd;

		snprintf(path[i], sizeof(path[i]), "%s/%s", dir, i ? "two\nlines\n" : "gone");
		fd = open(path[i], O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		assert_true(fd >= 0 && !ftruncate(fd, 4096));
		close(fd);
		p = map_lib(path[i]);
		assert_true(p != MAP_FAILED);
		if (!i)
			assert_false(unlink(path[i]));
	}
	assert_int_equal(pt_filemaps_open(&asked, getpid(), true), 0);
	assert_int_equal(pt_filemaps_open(&text, getpid(), false), 0);
	while (pt_filemaps_next(&text, &t)) {
		memset(&a, 0, sizeof(a));
		assert_true(pt_filemaps_next(&asked, &a));
		assert_string_equal(a.path_display, t.path_display);
		assert_true(a.start == t.start && a.end == t.end && a.offset == t.offset &&
			    a.inode == t.inode && a.dev == t.dev && a.kind == t.kind &&
			    a.deleted == t.deleted && a.pid == t.pid);
		assert_int_equal(pt_mapping_at(getpid(), t.end - 1, &at), 0);
		assert_true(at.start == t.start && at.inode == t.inode);
		n++;
		deleted += t.deleted;
		broken += !!strstr(t.path_display, "/two\\012lines\\012");
	}
	assert_false(pt_filemaps_next(&asked, &a));
	assert_true(!asked.err && !text.err && n >= 4);
	assert_true(deleted == 1 && broken == 1);
	assert_int_equal(pt_mapping_at(getpid(), (uint64_t)(uintptr_t)&n, &at), -ENOENT);
	pt_filemaps_close(&asked);
	pt_filemaps_close(&text);
	unlink(path[1]);
	rmdir(dir);
}

static void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1); /* it was quicker */
}

/* A copy of this program in a role; returns when it is ready. */
static pid_t start(const char *role, const char *rank)
{
	int ready[2];
	char fd[16], c;
	pid_t pid, parent = getpid();

	assert_int_equal(pipe(ready), 0);
	snprintf(fd, sizeof(fd), "%d", ready[1]);
	pid = fork();
	if (!pid) {
		close(ready[0]);
		die_with(parent);
		if (rank)
			setenv("RANK", rank, 1);
		else
			unsetenv("RANK");
		execl("/proc/self/exe", "self", role, lib, fd, (char *)NULL);
		_exit(127);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/*
 * Roles: "rank" maps the library and forks a worker; "launch" starts two
 * ranks; "torchrun" maps it too, but uses it as little as torchrun does;
 * "plain" maps nothing.
 */
static int act(const char *role, const char *path, int ready)
{
	pid_t worker, self = getpid();

	snprintf(lib, sizeof(lib), "%s", path);
	if (!strcmp(role, "rank") || !strcmp(role, "torchrun"))
		if (map_lib(path) == MAP_FAILED)
			return 1;
	if (!strcmp(role, "rank")) {
		worker = fork();
		if (!worker) {
			die_with(self);
			for (;;)
				pause();
		}
	} else if (strcmp(role, "plain")) {
		start("rank", "1");
		start("rank", "0");
	}
	if (write(ready, "r", 1) != 1)
		return 1;
	for (;;)
		pause();
}

static pid_t child_of(const struct pt_tree *t, pid_t parent)
{
	pid_t pids[8];

	assert_true(pt_tree_descendants(t, parent, pids, 8) >= 2);
	return pids[1];
}

static int make_file(const char *path)
{
	char page[4096] = { 0 };
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);

	if (fd < 0 || write(fd, page, sizeof(page)) != sizeof(page))
		return -1;
	return close(fd);
}

static void opened_is(const struct pt_gpulib *g, const struct stat *want)
{
	int fd = pt_gpulib_open(g);
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(st.st_ino == want->st_ino && st.st_dev == want->st_dev);
	close(fd);
}

static void a_library_is_found_and_can_be_opened(void **state)
{
	pid_t pid = start("rank", NULL);
	struct pt_gpulib g[4];
	char other[160];
	struct stat a;

	(void)state;
	assert_int_equal(pt_gpulibs(pid, g, 4), 1);
	assert_int_equal(stat(lib, &a), 0);
	assert_int_equal(g[0].inode, a.st_ino);
	opened_is(&g[0], &a);

	/* replaced on disk, as an upgrade does: the name is another file's
	 * now, and only the mapping still leads to the old one */
	snprintf(other, sizeof(other), "%s/new", dir);
	assert_int_equal(make_file(other), 0);
	assert_int_equal(rename(other, lib), 0);
	assert_int_equal(pt_gpulibs(pid, g, 4), 1);
	assert_true(g[0].deleted);
	assert_string_equal(g[0].path_display, lib);
	assert_int_equal(g[0].inode, a.st_ino);
	if (!geteuid()) {
		opened_is(&g[0], &a);
		/* nothing else that the name leads to is taken for it */
		g[0].start = g[0].end;
		assert_int_equal(pt_gpulib_open(&g[0]), -ESTALE);
		assert_int_equal(unlink(lib), 0);
		assert_int_equal(symlink("/dev/null", lib), 0);
		assert_int_equal(pt_gpulib_open(&g[0]), -ESTALE);
		assert_int_equal(unlink(lib), 0);
		assert_int_equal(make_file(lib), 0);
	}
	end(pid);
	assert_int_equal(pt_gpulibs(pid, g, 4), -ESRCH);
}

static void workers_lead_to_their_trainer(void **state)
{
	pid_t pid = start("rank", NULL), worker;
	struct pt_err err;
	struct pt_tree t;
	struct pt_job j;

	(void)state;
	assert_int_equal(pt_tree_snapshot(&t), 0);
	worker = child_of(&t, pid);
	assert_int_equal(pt_discover_in(&t, worker, &j, &err), 0);
	assert_int_equal(j.root, pid);
	assert_int_equal(j.trainer, pid);
	assert_int_equal(j.n_trainers, 1);
	assert_non_null(strstr(j.note, "helper"));
	pt_tree_free(&t);
	end(pid);
}

static void launcher_case(const char *role)
{
	pid_t pid = start(role, NULL), worker, rank;
	struct pt_err err;
	struct pt_tree t;
	struct pt_job j;

	assert_int_equal(pt_tree_snapshot(&t), 0);
	assert_int_equal(pt_discover_in(&t, pid, &j, &err), 0);
	assert_int_equal(j.root, pid);
	assert_int_equal(j.n_trainers, 2);
	assert_int_equal(pt_rank_of(j.trainers[0]), 0);
	assert_int_equal(pt_rank_of(j.trainers[1]), 1);
	assert_int_equal(j.trainer, j.trainers[0]);
	/* a rank's worker belongs to the rank, not to the launcher */
	rank = j.trainers[1];
	worker = child_of(&t, rank);
	assert_int_equal(pt_discover_in(&t, worker, &j, &err), 0);
	assert_int_equal(j.root, rank);
	pt_tree_free(&t);
	end(pid);
}

static void launchers_are_followed(void **state)
{
	(void)state;
	launcher_case("launch");
	launcher_case("torchrun");
}

static void others_are_left_alone(void **state)
{
	pid_t pid = start("plain", NULL);
	struct pt_err err = { "" };
	struct pt_job j;

	(void)state;
	assert_int_equal(pt_discover(pid, &j, &err), 0);
	assert_int_equal(j.root, pid);
	assert_int_equal(j.n_trainers, 0);
	assert_int_equal(j.trainer, 0);
	end(pid);
	assert_int_equal(pt_discover(pid, &j, &err), -ESRCH);
	assert_non_null(strstr(err.msg, "no process"));
	assert_int_equal(pt_discover(getpid(), &j, &err), -EINVAL);
	assert_int_equal(pt_discover(-3, &j, &err), -ESRCH);
}

static void *thread_main(void *arg)
{
	pid_t tid = (pid_t)syscall(SYS_gettid), tgid = 0;
	int *ok = arg;

	*ok = !pt_proc_tgid(tid, &tgid) && tgid == getpid() && tid != tgid;
	return NULL;
}

static void a_thread_leads_to_its_process(void **state)
{
	pthread_t th;
	int ok = 0;

	(void)state;
	assert_int_equal(pthread_create(&th, NULL, thread_main, &ok), 0);
	pthread_join(th, NULL);
	assert_true(ok);
}

static void a_sample_tells_the_truth(void **state)
{
	struct pt_throttled last = { .ns = 0 };
	struct pt_rec_sample a, b;
	size_t size = 32 << 20;
	int fds[4], i;
	pid_t pid;
	char *p;

	(void)state;
	assert_int_equal(pt_sample_process(getpid(), 123, &last, &a), 0);
	assert_int_equal(a.hdr.kind, PT_REC_SAMPLE);
	assert_int_equal(a.hdr.size, sizeof(a));
	assert_int_equal(a.hdr.ts, 123);
	assert_int_equal(a.hdr.tgid, getpid());
	assert_int_equal(a.threads, 1);
	for (i = 0; i < 4; i++)
		fds[i] = open("/dev/null", O_RDONLY);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	memset(p, 1, size);
	assert_int_equal(pt_sample_process(getpid(), 124, &last, &b), 0);
	assert_int_equal(b.fds, a.fds + 4);
	assert_true(b.rss_anon >= a.rss_anon + size * 9 / 10);
	assert_true(b.rchar >= a.rchar);
	assert_true(b.utime_ns + b.stime_ns >= a.utime_ns + a.stime_ns);
	/* of the same control group what was read before, of another one what is there */
	assert_true(last.groups[0]);
	last.ns = 77;
	assert_int_equal(pt_throttled_ns(getpid(), &last), 77);
	last.groups[0] = '/';
	assert_int_equal(pt_throttled_ns(getpid(), &last), b.throttled_ns);
	munmap(p, size);
	for (i = 0; i < 4; i++)
		close(fds[i]);

	/* a zombie has no memory to speak of */
	pid = fork();
	if (!pid)
		_exit(0);
	waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT);
	assert_int_equal(pt_sample_process(pid, 1, &last, &a), -ESRCH);
	waitpid(pid, NULL, 0);
	assert_int_equal(pt_sample_process(pid, 1, &last, &a), -ESRCH);
}

static void the_environment_is_read(void **state)
{
	pid_t pid = start("plain", "7");
	char buf[4];

	(void)state;
	assert_int_equal(pt_rank_of(pid), 7);
	assert_int_equal(pt_proc_getenv(pid, "RAN", buf, 4), -ENOENT);
	assert_int_equal(pt_proc_getenv(pid, "RANK", buf, 4), 0);
	assert_string_equal(buf, "7");
	end(pid);
	/* below mpirun, Slurm's rank is that of mpirun's helper */
	setenv("SLURM_PROCID", "0", 1);
	pid = start("plain", NULL);
	assert_int_equal(pt_rank_of(pid), 0);
	end(pid);
	setenv("OMPI_COMM_WORLD_RANK", "5", 1);
	pid = start("plain", NULL);
	assert_int_equal(pt_rank_of(pid), 5);
	end(pid);
	unsetenv("OMPI_COMM_WORLD_RANK");
	unsetenv("SLURM_PROCID");
}

static void host_facts_are_plausible(void **state)
{
	struct pt_report *r = pt_report_new();
	struct pt_rec_host h;

	(void)state;
	assert_non_null(r);
	pt_host_record(getpid(), 5, &h);
	assert_int_equal(h.hdr.size, sizeof(h));
	assert_int_equal(h.cores, sysconf(_SC_NPROCESSORS_ONLN));
	assert_int_equal(strlen(h.boot_id), 36);
	assert_int_equal(pt_host_report(r, getpid(), "none"), 0);
	assert_int_equal(pt_target_report(r, getpid(), 1), 0);
	assert_string_equal(r->host.boot_id, h.boot_id);
	assert_string_equal(r->host.lockdown, "none");
	assert_true(r->host.memory > 1 << 20);
	assert_int_equal(r->target.pid, getpid());
	assert_int_equal(r->target.resolved_from, 1);
	assert_non_null(strstr(r->target.cmdline, program_invocation_name));
	pt_report_free(r);
}

static int make_lib(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/pt-procfs-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(lib, sizeof(lib), "%s/libcudart.so.12", dir);
	return make_file(lib);
}

static int remove_lib(void **state)
{
	(void)state;
	unlink(lib);
	return rmdir(dir);
}

static void test_list_count(void **state)
{
	static const char *const bad[] = { "", "a", "1-", "-1", "3-1", "1,",
					   "0-2000000", "1,,2" };
	size_t i;

	(void)state;
	assert_int_equal(pt_list_count("0"), 1);
	assert_int_equal(pt_list_count("0-3,8\n"), 5);
	assert_int_equal(pt_list_count("1,3,5-6 "), 4);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(pt_list_count(bad[i]), -1);
}

/* What a process was started with, of a child with an environment of ours. */
static void test_proc_facts(void **state)
{
	char *const argv[] = { "sleep", "30", NULL };
	char *const env[] = { "RANK=2", "WORLD_SIZE=4", "OMP_NUM_THREADS=x", NULL };
	struct pt_rec_proc p;
	pid_t pid = fork();
	int i;

	(void)state;
	assert_true(pid >= 0);
	if (!pid) {
		execve("/bin/sleep", argv, env);
		_exit(127);
	}
	for (i = 0; i < 200; i++) {
		pt_proc_facts(pid, 7, &p);
		if (p.rank == 2)
			break;
		usleep(10000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(p.hdr.kind, PT_REC_PROC);
	assert_int_equal(p.hdr.size, sizeof(p));
	assert_int_equal(p.hdr.tgid, pid);
	assert_int_equal(p.rank, 2);
	assert_int_equal(p.world, 4);
	assert_int_equal(p.omp_threads, PT_PROC_UNKNOWN);
	assert_true(p.cpus_allowed >= 1);
	pt_proc_facts(pid, 8, &p); /* gone */
	assert_int_equal(p.rank, PT_PROC_UNKNOWN);
	assert_int_equal(p.cpus_allowed, PT_PROC_UNKNOWN);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stat_is_parsed),
		cmocka_unit_test(a_name_cannot_forge_fields),
		cmocka_unit_test(broken_stat_is_refused),
		cmocka_unit_test(secrets_are_masked),
		cmocka_unit_test(containers_are_found),
		cmocka_unit_test(map_lines_are_read),
		cmocka_unit_test(maps_say_the_same),
		cmocka_unit_test(a_library_is_found_and_can_be_opened),
		cmocka_unit_test(workers_lead_to_their_trainer),
		cmocka_unit_test(launchers_are_followed),
		cmocka_unit_test(others_are_left_alone),
		cmocka_unit_test(a_thread_leads_to_its_process),
		cmocka_unit_test(a_sample_tells_the_truth),
		cmocka_unit_test(the_environment_is_read),
		cmocka_unit_test(host_facts_are_plausible),
		cmocka_unit_test(test_list_count),
		cmocka_unit_test(test_proc_facts),
	};

	if (argc == 4)
		return act(argv[1], argv[2], atoi(argv[3]));
	return cmocka_run_group_tests(tests, make_lib, remove_lib);
}
