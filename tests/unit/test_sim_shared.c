/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulated CUDA runtime: processes that share a device. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include "test_sim_child.h"

#define SHARE "/dev/shm/test_sim_shared"
#define KERNELS 20

static char share[64];

/* The file's first words, as cudart_shared.c lays them out. */
struct file {
	uint64_t magic;
	pthread_mutex_t lock;
};

static pid_t start(void (*body)(void), const char *log)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60);
		setenv("PT_SIM_LOG", log, 1);
		setenv("PT_SIM_SHARED", share, 1);
		setenv("PT_SIM_CONCURRENT", "1", 1); /* has no effect */
		body();
		exit(0);
	}
	return pid;
}

static int end(pid_t pid)
{
	int status = -1;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static uint64_t begin_at; /* both launch from here on */

static void twenty_kernels(void)
{
	OK(cudaDeviceSynchronize());
	while (now() < begin_at)
		usleep(1000);
	ptsim_set_kernel_ns(10 * MS);
	for (int i = 0; i < KERNELS; i++)
		OK(launch(NULL));
	OK(cudaDeviceSynchronize());
}

static int by_start(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

/* Both log to one file: nothing overlaps, and both are served in turn. */
static void test_two(void **state)
{
	pid_t a, b;
	size_t turns = 0;

	(void)state;
	unlink(log_path);
	unlink(share);
	begin_at = now() + 300 * MS;
	a = start(twenty_kernels, log_path);
	b = start(twenty_kernels, log_path);
	assert_int_equal(end(a), 0);
	assert_int_equal(end(b), 0);
	parse_log();
	qsort(lines, n_lines, sizeof(lines[0]), by_start);
	assert_int_equal(count("kernel", NULL), 2 * KERNELS);
	for (size_t i = 0; i + 1 < count("kernel", NULL); i++) {
		assert_true(nth("kernel", i + 1)->start >=
			    nth("kernel", i)->end);
		turns += nth("kernel", i + 1)->tid != nth("kernel", i)->tid;
	}
	assert_true(turns >= KERNELS / 2);
	unlink(share);
}

static void long_kernel(void)
{
	ptsim_set_kernel_ns(30000 * MS);
	OK(launch(NULL));
	OK(cudaDeviceSynchronize());
}

/* What a process that was killed had reserved is free. */
static void test_killed(void **state)
{
	uint64_t t;
	pid_t a;

	(void)state;
	unlink(share);
	a = start(long_kernel, "/dev/null");
	usleep(300000);
	kill(a, SIGKILL);
	assert_true(WIFSIGNALED(end(a)));
	t = now();
	unlink(log_path);
	assert_int_equal(end(start(twenty_kernels, log_path)), 0);
	assert_true(now() - t < 20000 * MS);
	parse_log();
	assert_int_equal(count("kernel", NULL), KERNELS);
	unlink(share);
}

/* So is the lock of one that was killed inside. */
static void test_lock_held(void **state)
{
	struct file *f;
	uint64_t t;
	pid_t pid;
	int fd;

	(void)state;
	unlink(share);
	assert_int_equal(end(start(twenty_kernels, "/dev/null")), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		fd = open(share, O_RDWR);
		f = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (f == MAP_FAILED || pthread_mutex_lock(&f->lock))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_true(WIFSIGNALED(end(pid)));
	t = now();
	assert_int_equal(end(start(twenty_kernels, "/dev/null")), 0);
	assert_true(now() - t < 20000 * MS);
	unlink(share);
}

/* A file that is something else is refused, and the process goes on. */
static void test_other_file(void **state)
{
	FILE *f;

	(void)state;
	unlink(share);
	f = fopen(share, "w");
	assert_non_null(f);
	fputs("not that", f);
	fclose(f);
	unlink(log_path);
	assert_int_equal(end(start(twenty_kernels, log_path)), 0);
	parse_log();
	assert_int_equal(count("kernel", NULL), KERNELS);
	unlink(share);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_two),
	cmocka_unit_test(test_killed),
	cmocka_unit_test(test_lock_held),
	cmocka_unit_test(test_other_file),
};

int main(void)
{
	int rc;

	snprintf(log_path, sizeof(log_path), "/tmp/test_sim.%d.csv", (int)getpid());
	snprintf(share, sizeof(share), SHARE ".%d", (int)getpid());
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(log_path);
	unlink(share);
	return rc;
}
